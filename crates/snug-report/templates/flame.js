"use strict";
// Draws the frames that #trees holds, of each view its name and its outermost frame: [name, place, kind, bytes, frames below].
(() => {
  const ROW = 22, LEAST_PIXELS = 5, NAME = 0, PLACE = 1, KIND = 2, BYTES = 3, BELOW = 4;
  const KINDS = ["remark", "native", "language"];
  const trees = new Map(JSON.parse(document.getElementById("trees").textContent));
  let root = trees.values().next().value;
  const section = document.getElementById("flame");
  const [graph, pointed, search, whole, found] =
    [".graph", ".pointed", "input", ".whole", ".found"].map(name => section.querySelector(name));
  let shown = [root]; // from the root to the frame that is as wide as the page
  let width = 0; // of the graph, as it was drawn

  const text = bytes => {
    for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
      if (bytes >= 0.9995 * size) return `${(bytes / size).toPrecision(3)} ${unit}`;
    }
    return `${Math.round(bytes)} B`;
  };
  const percent = bytes => `${(100 * bytes / root[BYTES]).toFixed(1)} %`;
  const describe = frame => `${frame[NAME]}${frame[PLACE] ? ` (${frame[PLACE]})` : ""}: ${text(frame[BYTES])}, ${percent(frame[BYTES])} of all`;
  const nearest = place => place.split(", ")[0].split("/").pop();
  const words = () => search.value.trim().toLowerCase();
  const matches = frame => words() !== "" && `${frame[NAME]} ${frame[PLACE]}`.toLowerCase().includes(words());
  // Bytes of the outermost frames that match: what is below them is in them.
  const matching = frame => matches(frame) ? frame[BYTES] : frame[BELOW].reduce((sum, child) => sum + matching(child), 0);

  function draw() {
    width = graph.clientWidth;
    const buttons = [];
    let depth = 0;
    const put = (path, left, pixels) => {
      const row = path.length - 1, frame = path[row], button = document.createElement("button");
      button.type = "button";
      button.className = KINDS[frame[KIND]];
      if (path.length < shown.length) button.classList.add("above");
      if (matches(frame)) button.classList.add("match");
      button.style.cssText = `left:${left}px;top:${row * ROW}px;width:${pixels}px`;
      if (pixels > 24) button.textContent = frame[PLACE] ? `${frame[NAME]} (${nearest(frame[PLACE])})` : frame[NAME];
      button.title = describe(frame);
      button.setAttribute("aria-label", describe(frame));
      button.onclick = () => { shown = path; draw(); };
      button.onmouseenter = button.onfocus = () => { pointed.textContent = describe(frame); };
      buttons.push(button);
      depth = Math.max(depth, row + 1);
    };
    const putBelow = (path, left, scale) => {
      for (const child of path[path.length - 1][BELOW]) {
        const pixels = child[BYTES] * scale;
        if (pixels < LEAST_PIXELS) break; // the largest come first
        put([...path, child], left, pixels);
        putBelow([...path, child], left, scale);
        left += pixels;
      }
    };
    shown.forEach((_, row) => put(shown.slice(0, row + 1), 0, width));
    putBelow(shown, 0, width / shown[shown.length - 1][BYTES]);
    const focused = graph.contains(document.activeElement);
    graph.replaceChildren(...buttons);
    if (focused) buttons[shown.length - 1].focus();
    graph.style.height = `${depth * ROW}px`;
    whole.hidden = shown.length === 1;
    pointed.textContent = shown.length === 1 ? "Click a frame to widen it; Escape shows all again." : describe(shown[shown.length - 1]);
    const bytes = matching(root);
    found.textContent = words() === "" ? "" : `${text(bytes)}, ${percent(bytes)} of all, in frames that match`;
  }

  const views = document.querySelector(".views");
  const buttons = [...trees.keys()].map(name => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.onclick = () => show(name);
    return button;
  });
  views.append(...buttons);
  views.hidden = buttons.length < 2;

  function show(name) {
    root = trees.get(name);
    shown = [root];
    buttons.forEach(button => button.setAttribute("aria-pressed", button.textContent === name));
    for (const part of document.querySelectorAll("[data-view]")) part.hidden = part.dataset.view !== name;
    section.hidden = root[BYTES] <= 0;
    if (!section.hidden) draw();
  }

  search.oninput = draw;
  whole.onclick = () => { shown = [root]; draw(); };
  document.addEventListener("keydown", event => {
    if (event.key === "Escape" && shown.length > 1 && !(event.target === search && search.value)) whole.onclick();
  });
  new ResizeObserver(() => {
    if (!section.hidden && graph.clientWidth !== width) draw(); // drawing changes the height alone
  }).observe(graph);
  show(trees.keys().next().value);
})();
