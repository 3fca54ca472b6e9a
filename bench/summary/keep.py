"""What of a comparison's results is kept in the repository: small, and without names of this machine's directories."""

import json
import subprocess
import tempfile
from pathlib import Path

KEPT_REPORTS = ("report.md", "runs.csv", "memory.svg", "frontier.svg")
# Moments of a run that are kept: enough for the plot of memory over time, 0.1 MB for thirty runs.
MOMENTS = 100


def thinned(series, moments=MOMENTS):
    """Columns of samples with at most so many elements each, the last among them."""
    length = len(series["time_s"])
    step = -(-length // moments) if length else 1
    kept = range(length - 1, -1, -step)[::-1]
    return {name: [column[place] for place in kept] if len(column) == length else column
            for name, column in series.items()}


def thinned_comparison(comparison):
    """A compare.json with fewer samples; everything that was computed from all of them stays."""
    runs = [{**run, "samples": thinned(run["samples"]), "details": thinned(run["details"])}
            for run in comparison["runs"]]
    return {**comparison, "runs": runs}


def without_directories(text, root, out):
    """Paths below the repository become relative; those of the results' own directory go by OUT."""
    return text.replace(str(out), "OUT").replace(f"{root}/", "").replace(str(root), ".")


def rounds(kept: Path):
    """How many rounds were kept; 0 if there is nothing."""
    path = kept / "compare.json"
    return json.loads(path.read_text())["settings"]["rounds"] if path.exists() else 0


def added(before, comparison):
    """Both comparisons as one, of the same program under the same allocators. Its summary is nobody's: whoever reads the file works it
    out anew."""
    for what in ("program", "allocators"):
        if before[what] != comparison[what]:
            raise ValueError(f"rounds can be added with the same {what} only: before {before[what]}, now {comparison[what]}")
    count = before["settings"]["rounds"]
    runs = [*before["runs"], *({**run, "round": run["round"] + count} for run in comparison["runs"])]
    return {**before, "settings": {**before["settings"], "rounds": count + comparison["settings"]["rounds"]}, "runs": runs}


def keep(source: Path, target: Path, root: Path, add=False):
    """Copies what is kept of a comparison's directory; adds it to what was kept before."""
    target.mkdir(parents=True, exist_ok=True)
    comparison = json.loads(without_directories((source / "compare.json").read_text(), root, source))
    if add and rounds(target):
        comparison = added(json.loads((target / "compare.json").read_text()), comparison)
    # Samples one number apart would make thousands of lines; a run a line makes differences readable.
    thin = thinned_comparison(comparison)
    runs = ",\n".join(json.dumps(run, separators=(",", ":")) for run in thin.pop("runs"))
    text = json.dumps(thin, separators=(",", ":"))[:-1] + ',"runs":[\n' + runs + "\n]}\n"
    (target / "compare.json").write_text(text)
    if add:
        table = subprocess.run([root / "build/snug", "report", target / "compare.json"], check=True, capture_output=True, text=True).stdout
        (target / "table.txt").write_text(table)
    elif (source / "table.txt").exists():
        (target / "table.txt").write_text(without_directories((source / "table.txt").read_text(), root, source))
    report(target, root / "build/snug")


def report(kept: Path, snug: Path):
    """Writes reports and plots of what is kept, so that anybody can make the same again from the compare.json beside them."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([snug, "report", kept / "compare.json", "--out", name], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        for report in KEPT_REPORTS:
            if Path(name, report).exists():
                (kept / report).write_text(Path(name, report).read_text())
