"""A soak in slices, in a folder that outlives them: when each ran, of which sources, what it did and how it ended
(slices.json), every sample (samples.csv), and what the services keep on disk (state/).

slices.json is written anew after each round, so that a slice that was interrupted, by a signal, a kill or the end of the
machine, counts as far as it came.
"""

import csv
import json
import os
import shutil
from pathlib import Path

ENDED = "ended"  # as planned, or by a signal after a round
RUNNING = "running"  # now; in a soak that is gone on with, it was interrupted


class SlicesError(Exception):
    """The text says what to do."""


def _number(text):
    """A field of samples.csv: names stay, the rest are numbers."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


class Slices:
    """Those in one folder. `columns` are samples.csv's."""

    def __init__(self, directory, columns):
        self.directory, self.columns = Path(directory), columns
        self.all, self.rows = [], []

    @property
    def now(self):
        return self.all[-1]

    def begin(self):
        """An empty folder for a new soak."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if (self.directory / "slices.json").exists():
            raise SlicesError(f"{self.directory} holds a soak already: --resume {self.directory} goes on with it")
        self._write([], "w")

    def resume(self):
        """Reads what earlier slices left."""
        try:
            self.all = json.loads((self.directory / "slices.json").read_text())
            whole = self._samples().read_text().rpartition("\n")[0]  # without a line that was cut off
            self.rows = [{name: _number(text) for name, text in row.items()} for row in csv.DictReader(whole.splitlines())]
        except (OSError, ValueError) as error:
            raise SlicesError(f"{self.directory} holds no soak to go on with ({error}); --results begins one") from error
        for ran in self.all:
            if ran["state"] == RUNNING:
                ran["state"] = "interrupted"
        self._write(self.rows, "w")

    def add(self, **facts):
        """One more slice, which begins now."""
        self.all.append({"slice": len(self.all) + 1, "state": RUNNING, "minutes": 0, "rounds": 0, "phases": {}, "work": {},
                         "failures": [], "watched": {}, "peaks": [], **facts})
        self.save()

    def note(self, rows):
        """The samples of a round."""
        rows = [{"slice": self.now["slice"], **row} for row in rows]
        self.rows += rows
        self._write(rows, "a")

    def save(self):
        temporary = self.directory / "slices.json.new"
        temporary.write_text(json.dumps(self.all, indent=1) + "\n")
        temporary.replace(self.directory / "slices.json")

    def units_of(self, service):
        """How many units of work a service did in earlier slices: it goes on with the next."""
        return sum(ran["work"].get(service, {}).get("units", 0) for ran in self.all)

    def restore(self, service, directory):
        """Puts what a service kept on disk into its folder for this slice."""
        if (kept := self._state(service)).is_dir():
            shutil.copytree(kept, directory, dirs_exist_ok=True)

    def keep(self, service, files):
        """Keeps files of a service, which has ended, for the next slice."""
        kept = self._state(service)
        kept.mkdir(parents=True, exist_ok=True)
        for path in files:
            if path.exists():
                shutil.copy(path, kept / (path.name + ".new"))
                os.replace(kept / (path.name + ".new"), kept / path.name)

    def _write(self, rows, mode):
        with open(self._samples(), mode, encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            if mode == "w":
                writer.writeheader()
            writer.writerows(rows)

    def _samples(self):
        return self.directory / "samples.csv"

    def _state(self, service):
        return self.directory / "state" / service
