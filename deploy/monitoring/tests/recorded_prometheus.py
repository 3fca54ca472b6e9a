"""A real Prometheus server that holds recorded series, for tests of what asks it."""

import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time

from test_monitoring import SNUG, free_port, get

STARTS_WITHIN_S = 120


def write_families(out, families):
    """Writes series as OpenMetrics. `families`: of each name its type, and (labels, [(time in s, value)]) of each series."""
    for name, (kind, series) in families.items():
        suffix = "_total" if kind == "counter" else ""
        out.write(f"# TYPE {name} {kind}\n")
        for labels, points in series:
            text = ",".join(f'{label}="{value}"' for label, value in labels.items())
            out.writelines(f"{name}{suffix}{{{text}}} {value} {time_s}\n" for time_s, value in points)
    out.write("# EOF\n")


def commands_of(page, name, url):
    """The commands `snug NAME` that a page of the guide shows, as lists of words, with this server in place of theirs."""
    commands = []
    for shown in re.findall(rf"^\$ (snug {name} (?:.*\\\n)*.*)$", page.read_text(), re.M):
        words = [SNUG, *shlex.split(shown.replace("\\\n", " "))[1:]]
        words[words.index("--prometheus") + 1] = url
        commands.append(words)
    return commands


def start(case, write, *options):
    """Starts a server with the series that `write(file)` writes, until the class `case` of tests is done. Returns its URL."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="snug-recorded-"))
    case.addClassCleanup(shutil.rmtree, directory)
    with open(directory / "recorded", "w") as out:
        write(out)
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "recorded", "data"], cwd=directory, check=True, capture_output=True)
    (directory / "prometheus.yml").write_text("scrape_configs: []\n")
    address = f"127.0.0.1:{free_port()}"
    log = open(directory / "log", "w")
    case.addClassCleanup(log.close)
    server = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
         f"--web.listen-address={address}", "--log.level=warn", *options], cwd=directory, stdout=log, stderr=log)
    case.addClassCleanup(server.wait)
    case.addClassCleanup(server.kill)
    scheme = "https" if any(option.startswith("--web.config.file") for option in options) else "http"
    deadline = time.monotonic() + STARTS_WITHIN_S
    while scheme == "http" and time.monotonic() < deadline:
        try:
            get(f"http://{address}/-/ready")
            return f"http://{address}"
        except OSError:
            time.sleep(0.1)
    if scheme == "https":
        return f"https://{address}"
    raise AssertionError((directory / "log").read_text())
