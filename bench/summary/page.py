"""The page about all workloads of a day, as Markdown. Pure."""

from . import goals, hooks

# What compare.json does not hold, so that nobody takes silence for success.
NOT_DECIDED = """Not decided here, because a peer does not tell its live bytes: resident over live, and idle memory against live
plus what is outside of malloc. `bench/traces` measures the first; the column *idle* is what is left some seconds after
the load. Private memory counts all pages, not malloc's alone; the goal about malloc's pages of a worker takes off what
others wrote to in snug's workers."""


def machine_line(machine):
    gibibytes = machine["memory_bytes"] / 2 ** 30
    cpus = "1 CPU" if machine["cpus"] == 1 else f"{machine['cpus']} CPUs"
    return (f"{machine['cpu']}, {cpus}, {gibibytes:.0f} GiB, {machine['system']}, Linux {machine['kernel']}, "
            f"{machine['architecture']}, huge pages: {machine['transparent_huge_pages']}")


def goals_table(everything):
    lines = ["| workload | goal | |", "|---|---|---|"]
    for result in everything:
        verdicts = goals.verdicts(result)
        if not verdicts:
            lines.append(f"| {result.workload} | | not measured: no good run of snug, or of any peer |")
        for place, verdict in enumerate(verdicts):
            text = verdict.text() if verdict.met else f"**{verdict.text()}**"
            lines.append(f"| {result.workload if place == 0 else ''} | {verdict.goal} | {text} |")
    return lines


def count_line(everything):
    verdicts = [verdict for result in everything for verdict in goals.verdicts(result)]
    return f"{sum(verdict.met for verdict in verdicts)} of {len(verdicts)} goals met."


def better_lines(result):
    better = goals.better_peers(result)
    if result.snug() is None:
        return ["No run of snug went well."]
    if not better:
        return ["No peer is better in any of these."]
    margin = "by `snug report --baseline snug`" if result.comparison["settings"]["rounds"] > 1 else "in one run each"
    return [f"Peers that are better than snug, {margin}:", ""] + [
        f"- {heading}: " + "; ".join(f"{name} ({ratio:.2f} × snug's{', may be chance' if chance else ''})" for name, ratio, chance in peers)
        for heading, peers in better]


def section(result, pictures):
    summary = result.comparison["summary"]
    lines = [f"## {result.workload}", "", f"{summary['conclusion']} ([report]({result.workload}/report.md))", "",
             *better_lines(result), ""]
    lines += [f"![{result.workload}: {picture.rpartition('.')[0]}]({result.workload}/{picture})" for picture in pictures]
    if pictures:
        lines.append("")
    lines += [f"- {warning}" for warning in summary["warnings"]]
    lines += [f"- {row.failed} run{'s' if row.failed > 1 else ''} failed under {row.name}" for row in result.rows if row.failed]
    rounds = result.comparison["settings"]["rounds"]
    lines += [f"- {rounds} run{'s' if rounds > 1 else ''} under each allocator, interleaved; begun {result.comparison['started_at']}",
              f"- `{' '.join(quoted(word) for word in result.comparison['invocation'])}`", ""]
    return lines


def quoted(word):
    """A word of a command line as a shell takes it."""
    plain = word and all(character.isalnum() or character in "-_./=:,+%@" for character in word)
    return word if plain else "'" + word.replace("'", "'\\''") + "'"


def page(everything, pictures, overview):
    """The whole page, dated by its earliest run. `pictures` has, for each workload, the names of the plots in its directory;
    `overview` are the tables of `snug report --overview` on all of them."""
    first = everything[0].comparison
    machines = {machine_line(result.comparison["machine"]) for result in everything}
    day = min(result.comparison["started_at"] for result in everything)[:10]
    short = any("--quick" in result.comparison["invocation"] for result in everything)
    lines = [f"# Measured {day}{', the short form of the workloads' if short else ''}", "", f"snug {first['snug_version']} and its peers on: {'; '.join(sorted(machines))}.",
             "Medians of the runs, by `snug report`; report.md beside each workload's results has their intervals and all else. Each",
             "allocator was preloaded into the server only. Made by `bench/compare`; the command ends each section.", "",
             "## Overview", "", "The last column of a table is the geometric mean of the ratios. Memory is RSS, or PSS where processes fork.", "",
             overview.rstrip(), "", *hooks.section(everything), "## Goals", "", count_line(everything), "",
             *goals_table(everything), "", NOT_DECIDED, ""]
    for result in everything:
        lines += section(result, pictures.get(result.workload, []))
    return "\n".join(lines)
