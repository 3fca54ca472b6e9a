'use strict';
// Comfort only: values under the pointer, lines that can be hidden, commands that can be copied.

const numbers = (text) => text.trim().split(/\s+/).map(Number);
const short = (value) => value.toFixed(Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2);

function readLines(svg) {
  const lines = [];
  for (const series of svg.querySelectorAll('g.series')) {
    const main = series.querySelector('polyline.main');
    if (!main) continue;
    const flat = numbers(main.getAttribute('points').replace(/,/g, ' '));
    const points = [];
    for (let i = 0; i < flat.length; i += 2) points.push([flat[i], flat[i + 1]]);
    lines.push({ series, name: series.dataset.name, points });
  }
  return lines;
}

// The height of a line at a place, between two of its points in proportion; nothing beyond its ends.
function heightAt(points, x) {
  const after = points.findIndex((point) => point[0] >= x);
  if (after < 0 || (after === 0 && points[0][0] > x)) return null;
  if (after === 0) return points[0][1];
  const [left, right] = [points[after - 1], points[after]];
  const share = right[0] > left[0] ? (x - left[0]) / (right[0] - left[0]) : 1;
  return left[1] + (right[1] - left[1]) * share;
}

function row(colour, name, value) {
  const line = document.createElement('div');
  const [label, number] = [document.createElement('span'), document.createElement('b')];
  label.textContent = name;
  label.style.color = colour;
  number.textContent = value;
  line.append(label, number);
  return line;
}

function followPointer(svg) {
  const picture = svg.closest('.picture');
  const plane = numbers(svg.dataset.plane), xs = numbers(svg.dataset.x), ys = numbers(svg.dataset.y);
  const [xUnit, yUnit] = svg.dataset.units.split(' ');
  const lines = readLines(svg);
  if (!lines.length || svg.querySelector('circle[fill-opacity]')) return;
  const cursor = document.createElement('div'), readout = document.createElement('div');
  cursor.className = 'cursor';
  readout.className = 'readout';
  const hide = () => { cursor.remove(); readout.remove(); };
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect(), outer = picture.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale;
    const share = (x - plane[0]) / plane[2];
    if (share < 0 || share > 1) return hide();
    const shown = [];
    for (const line of lines) {
      if (line.series.classList.contains('away')) continue;
      const height = heightAt(line.points, x);
      if (height === null) continue;
      const value = ys[0] + (1 - (height - plane[1]) / plane[3]) * (ys[1] - ys[0]);
      shown.push({ value, element: row(getComputedStyle(line.series).color, line.name, `${short(value)} ${yUnit}`) });
    }
    shown.sort((left, right) => right.value - left.value);
    const time = row('inherit', 'at', `${(xs[0] + share * (xs[1] - xs[0])).toFixed(1)} ${xUnit}`);
    readout.replaceChildren(time, ...shown.map((one) => one.element));
    picture.append(cursor, readout);
    const left = event.clientX - outer.left;
    cursor.style.left = `${left}px`;
    cursor.style.top = `${box.top - outer.top + plane[1] / scale}px`;
    cursor.style.height = `${plane[3] / scale}px`;
    const flip = left + readout.offsetWidth + 24 > outer.width;
    readout.style.left = `${Math.max(0, flip ? left - readout.offsetWidth - 12 : left + 12)}px`;
    readout.style.top = `${box.top - outer.top + plane[1] / scale + 6}px`;
  });
}

function makeSwitch(entry) {
  const figure = entry.closest('figure');
  entry.setAttribute('aria-pressed', 'true');
  entry.setAttribute('role', 'button');
  entry.tabIndex = 0;
  entry.title = 'hide or show';
  const toggle = () => {
    const show = entry.getAttribute('aria-pressed') !== 'true';
    entry.setAttribute('aria-pressed', String(show));
    for (const series of figure.querySelectorAll('.picture g.series')) {
      if (series.dataset.name === entry.dataset.series) series.classList.toggle('away', !show);
    }
  };
  entry.addEventListener('click', toggle);
  entry.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); toggle(); }
  });
}

function addCopy(block) {
  if (!navigator.clipboard) return;
  const text = block.textContent;
  const button = document.createElement('button');
  button.className = 'copy';
  button.textContent = 'copy';
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = 'copied';
    setTimeout(() => { button.textContent = 'copy'; }, 1500);
  });
  block.append(button);
}

document.querySelectorAll('svg[data-plane]').forEach(followPointer);
document.querySelectorAll('.legend tr[data-series]').forEach(makeSwitch);
document.querySelectorAll('pre.command').forEach(addCopy);
