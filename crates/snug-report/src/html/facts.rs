//! The facts by which a comparison is judged or repeated: machine, settings, allocators, and every run.

use crate::markdown::repeat;
use snug_base::machine::Machine;
use snug_base::terminal::{self, short_count, short_number};
use snug_compare::quantities::named;
use snug_compare::results::{Allocator, Comparison, Run, Serving};
use snug_compare::{until, view};

/// One comparison: a file, or the one just made.
pub(crate) struct ComparisonFacts {
    /// Empty for the only one.
    pub name: String,
    pub started_at: String,
    /// The command that repeats it.
    pub command: String,
    pub machine: Vec<(&'static str, String)>,
    pub settings: Vec<(&'static str, String)>,
    pub allocators: Vec<AllocatorFacts>,
    pub runs: Vec<RunFacts>,
}

pub(crate) struct AllocatorFacts {
    pub label: String,
    pub version: String,
    pub library: String,
    pub inherited: Vec<String>,
    /// The command that runs the program once under this allocator.
    pub command: String,
}

pub(crate) struct RunFacts {
    pub round: u32,
    pub allocator: String,
    pub failure: Option<String>,
    pub wall: String,
    pub cpu: String,
    pub memory: String,
    pub peak: String,
    pub faults: String,
    pub loaded: String,
    pub requests: String,
    pub other_busy: String,
    pub overhead: String,
    pub log: String,
}

impl ComparisonFacts {
    pub(crate) fn new(name: &str, comparison: &Comparison) -> ComparisonFacts {
        ComparisonFacts {
            name: name.into(),
            started_at: comparison.started_at.clone(),
            command: repeat(comparison),
            machine: machine(&comparison.machine),
            settings: settings(comparison),
            allocators: comparison.allocators.iter().map(|one| allocator(one, comparison)).collect(),
            runs: comparison.runs.iter().map(|one| run(one, comparison)).collect(),
        }
    }
}

fn machine(machine: &Machine) -> Vec<(&'static str, String)> {
    let gibibytes = |bytes: u64| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64);
    let mut facts = vec![
        ("CPU", format!("{} × {}", machine.cpus, machine.cpu)),
        ("memory", gibibytes(machine.memory_bytes)),
        ("swap", gibibytes(machine.swap_bytes)),
        ("system", machine.system.clone()),
        ("kernel", format!("Linux {}, {}", machine.kernel, machine.architecture)),
        ("page", format!("{} bytes", machine.page_size_bytes)),
        ("transparent huge pages", machine.transparent_huge_pages.clone()),
        ("overcommit_memory", machine.overcommit_memory.clone()),
    ];
    facts.extend(
        machine.cgroup_memory_limit_bytes.map(|bytes| ("memory limit of the container", gibibytes(bytes))),
    );
    facts.extend(machine.cgroup_cpu_limit.map(|cpus| ("CPU limit of the container", short_number(cpus))));
    facts
}

fn settings(comparison: &Comparison) -> Vec<(&'static str, String)> {
    let settings = &comparison.settings;
    let mut facts = vec![
        ("program", terminal::shell_line(&comparison.program)),
        ("directory", comparison.directory.clone()),
        ("runs under each allocator", rounds(comparison)),
        ("RSS is read every", format!("{} ms", settings.interval_ms)),
        ("PSS and USS are read every", format!("{} ms", settings.detail_interval_ms)),
        ("measuring cost", overhead(comparison)),
        ("snug", comparison.snug_version.clone()),
    ];
    facts.extend(settings.until.iter().map(|until| ("until", until::outcome(until))));
    facts.extend(settings.only.iter().map(|only| ("only processes that match", only.clone())));
    facts.extend(settings.serving.iter().flat_map(serving));
    facts
}

/// What measuring took, and what it was to take at most.
fn overhead(comparison: &Comparison) -> String {
    let shares = comparison.runs.iter().map(|run| run.overhead.share_of_one_core * 100.0);
    let most = shares.fold(0.0, f64::max);
    format!(
        "{most:.2} % of one core at most (limit: {} %)",
        short_number(comparison.settings.overhead_limit * 100.0)
    )
}

/// How many runs were asked for, and how many of all there are if it stopped early.
fn rounds(comparison: &Comparison) -> String {
    let stopped = comparison.stopped_early();
    let stopped = stopped.map(|(made, planned)| format!("; stopped after {made} of {planned}"));
    format!("{}{}", comparison.settings.rounds, stopped.unwrap_or_default())
}

/// How a server was driven.
fn serving(serving: &Serving) -> Vec<(&'static str, String)> {
    let amount = |count: Option<u64>, time_s: Option<f64>| {
        let parts = [
            count.map(|count| count.to_string()),
            time_s.map(|time_s| format!("{} s", short_number(time_s))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            "none".to_string()
        } else {
            parts.join(" or ")
        }
    };
    let load = match (&serving.load_command, &serving.url) {
        (Some(command), _) => command.clone(),
        (None, Some(url)) => {
            format!("{} at a time to {url}, paths {}", serving.concurrency, serving.paths.join(" "))
        }
        (None, None) => "none".into(),
    };
    vec![
        ("ready when", serving.ready.clone()),
        ("load", load),
        ("amount of load", amount(serving.load_count, serving.load_s)),
        ("amount before it, to warm up", amount(serving.warm_count, serving.warm_s)),
        ("left idle for", format!("{} s", short_number(serving.idle_s))),
    ]
}

fn allocator(allocator: &Allocator, comparison: &Comparison) -> AllocatorFacts {
    let set = allocator.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let mut words: Vec<String> = set.collect();
    if !words.is_empty() {
        words.insert(0, "env".into());
    }
    words.extend(comparison.program.iter().cloned());
    AllocatorFacts {
        label: allocator.label.clone(),
        version: allocator.version.clone().unwrap_or_else(|| "unknown".into()),
        library: allocator.library.clone().unwrap_or_else(|| "none: what the program has".into()),
        inherited: allocator.inherited.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        command: terminal::shell_line(&words),
    }
}

fn run(run: &Run, comparison: &Comparison) -> RunFacts {
    let measure = &comparison.summary.memory_measure;
    // With as many digits as the table has.
    let shown = |quantity: &str, value: f64| view::number(&named(quantity), value);
    let memory = |what: &str| {
        let quantity = format!("{measure}_{what}_bytes");
        let value = run.memory.get(&quantity);
        value.map_or_else(|| "–".into(), |bytes| shown(&quantity, *bytes))
    };
    let requests = run.latency.as_ref().map(|latency| {
        let failed = if latency.failed > 0 { format!(", {} failed", latency.failed) } else { String::new() };
        format!("{}{failed}", short_count(latency.requests as f64))
    });
    RunFacts {
        round: run.round,
        allocator: run.allocator.clone(),
        failure: run.failure.as_ref().map(|text| text.lines().next().unwrap_or_default().to_string()),
        wall: shown("wall_s", run.wall_s),
        cpu: format!("{} + {}", shown("cpu_user_s", run.cpu_user_s), shown("cpu_system_s", run.cpu_system_s)),
        memory: memory("mean"),
        peak: memory("peak"),
        faults: short_count((run.minor_faults + run.major_faults) as f64),
        loaded: loaded(run, comparison),
        requests: requests.unwrap_or_else(|| "–".into()),
        other_busy: short_number(run.other_busy_cores),
        overhead: format!("{:.2} %", run.overhead.share_of_one_core * 100.0),
        log: run.log.clone(),
    }
}

/// In how many processes the allocator was seen.
fn loaded(run: &Run, comparison: &Comparison) -> String {
    let allocator = comparison.allocators.iter().find(|one| one.label == run.allocator);
    if allocator.is_none_or(|one| one.library.is_none()) {
        return "nothing to load".into();
    }
    let evidence = &run.evidence;
    let seen = match evidence.processes_loaded {
        0 if evidence.probe => "by the loader alone".into(),
        0 => "not seen".into(),
        loaded => format!("in {loaded} of {}", run.processes_seen),
    };
    let unseen =
        [(evidence.processes_too_short, "too short to see"), (evidence.processes_unreadable, "not readable")];
    let unseen =
        unseen.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}"));
    seen + &unseen.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::fixture;
    use snug_compare::results::Evidence;

    #[test]
    fn commands_can_be_repeated() {
        let comparison = fixture::comparison(&[("glibc", &[1.0]), ("glibc:MALLOC_ARENA_MAX=2", &[1.0])]);
        let source = ComparisonFacts::new("", &comparison);
        assert_eq!(source.command, "cd /srv/app && snug compare -- ruby app.rb");
        assert_eq!(source.allocators[0].command, "ruby app.rb");
        assert_eq!(source.allocators[1].command, "env MALLOC_ARENA_MAX=2 ruby app.rb");
    }

    #[test]
    fn runs_have_the_digits_of_the_table() {
        let mut comparison = fixture::comparison(&[("glibc", &[0.1451])]);
        let run = &mut comparison.runs[0];
        (run.wall_s, run.cpu_user_s, run.cpu_system_s) = (0.1451, 0.01234, 0.0);
        let facts = ComparisonFacts::new("", &comparison);
        let shown = &facts.runs[0];
        assert_eq!((&*shown.memory, &*shown.wall, &*shown.cpu), ("0.145", "0.145", "0.0123 + 0.00"));
    }

    #[test]
    fn where_the_allocator_was_seen() {
        let mut comparison = fixture::comparison(&[("glibc", &[1.0]), ("snug", &[1.0])]);
        comparison.allocators[1].library = Some("/l/libsnug.so".into());
        let mut shown = |probe, processes_loaded, processes_too_short, processes_unreadable| {
            let found = Vec::new();
            comparison.runs[1].processes_seen = 3;
            comparison.runs[1].evidence =
                Evidence { probe, processes_loaded, processes_too_short, processes_unreadable, found };
            loaded(&comparison.runs[1], &comparison)
        };
        assert_eq!(shown(true, 3, 0, 0), "in 3 of 3");
        assert_eq!(shown(true, 1, 1, 1), "in 1 of 3, 1 too short to see, 1 not readable");
        assert_eq!(shown(false, 0, 0, 0), "not seen");
        assert_eq!(shown(true, 0, 3, 0), "by the loader alone, 3 too short to see");
        assert_eq!(loaded(&comparison.runs[0], &comparison), "nothing to load");
    }
}
