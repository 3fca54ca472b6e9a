//! The table of quantities: everything about a run that has a number, once. The terminal's table, the report, CSV,
//! `--fail-if`, the help and docs/reference/json.md take names, headings, units and order from here. Pure.

use snug_inspect::kinds::closest;

/// A quantity.
#[derive(Debug)]
pub struct QuantityRow {
    /// In results, CSV and conditions. Of one phase its name stands before, as in "idle.rss_mean_bytes".
    pub name: &'static str,
    /// In reports.
    pub heading: &'static str,
    /// In the terminal's table, whose columns are narrow.
    pub short: &'static str,
    pub unit: Unit,
    /// What a reader wants; None where nothing can be said.
    pub wanted: Option<Wanted>,
    /// It is measured of each phase of a server, too.
    pub by_phase: bool,
    pub shown: Shown,
    /// The terminal's table has room for its ratio.
    pub ratio: bool,
}

/// The unit that is shown; results are in bytes and seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Megabytes,
    Seconds,
    Milliseconds,
    PerSecond,
    Percent,
    Count,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Less,
    More,
}

/// Where a quantity is shown, in reports and on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// In the table.
    Table,
    /// In the table if the comparison is about this kind of memory; else below.
    Memory,
    /// The same, or not at all.
    MemoryOnly,
    /// The same; of a server, that of its last phase.
    MemoryAtEnd,
    /// In the table if several processes share pages; else below.
    Forked,
    /// In the table, of a program that ends by itself, or of a load that is a fixed amount of work.
    Duration,
    /// In the table, of the load.
    PerRequest,
    /// In the table, of the load or else of the whole run, unless it is known per request.
    Cost,
    /// Folded away below the table.
    Below,
    /// In results, CSV and conditions only.
    Nowhere,
}

impl Unit {
    pub fn text(self) -> &'static str {
        match self {
            Unit::Megabytes => "MB",
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
            Unit::PerSecond => "/s",
            Unit::Percent => "%",
            Unit::Count => "",
        }
    }

    /// From the unit of results to this one.
    pub fn factor(self) -> f64 {
        match self {
            Unit::Megabytes => 1e-6,
            Unit::Milliseconds => 1e3,
            _ => 1.0,
        }
    }
}

use Shown::{Below, Cost, Duration, Forked, Memory, MemoryAtEnd, MemoryOnly, Nowhere, PerRequest, Table};
use Unit::{Count, Megabytes, Milliseconds, PerSecond, Percent, Seconds};
use Wanted::{Less, More};

const fn row(
    name: &'static str,
    heading: &'static str,
    short: &'static str,
    unit: Unit,
    shown: Shown,
) -> QuantityRow {
    QuantityRow { name, heading, short, unit, wanted: Some(Less), by_phase: true, shown, ratio: false }
}

impl QuantityRow {
    const fn with_ratio(self) -> QuantityRow {
        QuantityRow { ratio: true, ..self }
    }

    /// Of this, less is not better in itself.
    const fn neutral(self) -> QuantityRow {
        QuantityRow { wanted: None, ..self }
    }

    const fn whole_run(self) -> QuantityRow {
        QuantityRow { by_phase: false, ..self }
    }
}

/// All quantities, in the order of columns. Percentiles of latency and what programs report follow by `named`.
pub const ROWS: &[QuantityRow] = &[
    row("rss_mean_bytes", "mean RSS", "mean\nRSS", Megabytes, Memory).with_ratio(),
    row("pss_mean_bytes", "mean PSS", "mean\nPSS", Megabytes, Memory).with_ratio(),
    row("rss_peak_bytes", "peak", "peak", Megabytes, MemoryOnly),
    row("pss_peak_bytes", "peak", "peak", Megabytes, MemoryOnly),
    row("cgroup_peak_bytes", "cgroup peak", "cgroup\npeak", Megabytes, Table).whole_run(),
    row("cgroup_cache_peak_bytes", "most page cache", "", Megabytes, Nowhere).neutral().whole_run(),
    row("rss_final_bytes", "final", "final", Megabytes, MemoryAtEnd),
    row("pss_final_bytes", "final", "final", Megabytes, MemoryAtEnd),
    row("uss_mean_bytes", "mean USS", "mean\nUSS", Megabytes, Forked),
    QuantityRow {
        wanted: Some(More),
        ..row("requests_per_s", "requests", "requests\nper s", PerSecond, Table)
    }
    .whole_run()
    .with_ratio(),
    row("latency_p50_s", "p50", "p50\nms", Milliseconds, Table).whole_run().with_ratio(),
    row("latency_p99_s", "p99", "p99\nms", Milliseconds, Table).whole_run().with_ratio(),
    row("wall_s", "wall time", "wall\ntime", Seconds, Duration).with_ratio(),
    row("cpu_s", "CPU time", "CPU\ntime", Seconds, Cost).with_ratio(),
    row("cpu_per_request_s", "CPU per request", "CPU ms\n/request", Milliseconds, PerRequest).with_ratio(),
    row("page_faults", "page faults", "page\nfaults", Count, Cost),
    row("page_faults_per_request", "page faults per request", "faults\n/request", Count, PerRequest),
    row("allocator_cpu_percent", "CPU time for the allocator", "malloc\n% CPU", Percent, Table).whole_run(),
    row("allocator_code_percent", "CPU time in its code", "", Percent, Below).whole_run(),
    row("memory_calls_percent", "CPU time in calls about memory", "", Percent, Below).whole_run(),
    row("fault_cpu_percent", "CPU time in page faults", "", Percent, Below).whole_run(),
    row("live_mean_bytes", "mean live", "", Megabytes, Below).neutral(),
    row("live_final_bytes", "final live", "", Megabytes, Below).neutral(),
    row("huge_mean_bytes", "mean in huge pages", "", Megabytes, Below).neutral(),
    row("lazy_free_mean_bytes", "mean LazyFree", "", Megabytes, Below).neutral(),
    row("swap_peak_bytes", "peak in swap", "", Megabytes, Below),
    row("threads_peak", "most threads", "", Count, Below).neutral(),
    row("processes_mean", "mean processes", "", Count, Below).neutral(),
    row("live_peak_bytes", "peak live", "", Megabytes, Nowhere).neutral(),
    row("uss_peak_bytes", "peak USS", "", Megabytes, Nowhere),
    row("uss_final_bytes", "final USS", "", Megabytes, Nowhere),
    row("huge_peak_bytes", "peak in huge pages", "", Megabytes, Nowhere).neutral(),
    row("huge_final_bytes", "final in huge pages", "", Megabytes, Nowhere).neutral(),
    row("lazy_free_peak_bytes", "peak LazyFree", "", Megabytes, Nowhere).neutral(),
    row("lazy_free_final_bytes", "final LazyFree", "", Megabytes, Nowhere).neutral(),
    row("swap_mean_bytes", "mean in swap", "", Megabytes, Nowhere),
    row("swap_final_bytes", "final in swap", "", Megabytes, Nowhere),
    row("cpu_user_s", "user CPU time", "", Seconds, Nowhere).whole_run(),
    row("cpu_system_s", "system CPU time", "", Seconds, Nowhere).whole_run(),
];

/// Phases of a server, in order.
pub const PHASES: &[&str] = &["boot", "warm", "load", "idle"];

/// The row of a quantity, by its name without a phase.
pub fn find(name: &str) -> Option<&'static QuantityRow> {
    ROWS.iter().find(|row| row.name == name)
}

/// A quantity as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// As in `SummaryRow::quantities`.
    pub name: String,
    pub heading: String,
    pub short: String,
    pub unit: &'static str,
    /// From the quantity's own unit to the one shown.
    pub factor: f64,
    pub wanted: Option<Wanted>,
    /// The terminal's table has room for its ratio.
    pub ratio: bool,
}

impl Quantity {
    pub fn headed(self, heading: &str, short: &str) -> Quantity {
        Quantity { heading: heading.into(), short: short.into(), ..self }
    }
}

/// The phase in a name, empty if there is none, and the rest.
pub fn split_phase(name: &str) -> (&str, &str) {
    name.split_once('.').filter(|(phase, _)| PHASES.contains(phase)).unwrap_or(("", name))
}

/// How to show a quantity, by its full name.
pub fn named(name: &str) -> Quantity {
    if let Some(metric) = name.strip_prefix("metric:") {
        return reported(name, metric);
    }
    let (phase, base) = split_phase(name);
    let after = |text: &str| if phase.is_empty() { text.into() } else { format!("{text}, {phase}") };
    let (heading, short, unit, wanted, ratio) = match (find(base), percentile(base)) {
        (Some(row), _) => (row.heading.into(), row.short.into(), row.unit, row.wanted, row.ratio),
        (None, Some(percent)) => (format!("p{percent}"), String::new(), Milliseconds, Some(Less), false),
        (None, None) => (base.replace('_', " "), String::new(), Count, None, false),
    };
    Quantity {
        name: name.into(),
        heading: after(&heading),
        short,
        unit: unit.text(),
        factor: unit.factor(),
        wanted,
        ratio,
    }
}

/// The percent in `latency_p99_9_s`.
pub fn percentile(name: &str) -> Option<f64> {
    let percent = name.strip_prefix("latency_p")?.strip_suffix("_s")?;
    percent.replace('_', ".").parse().ok()
}

/// How what a program reports is shown, by the ending of its name: the unit, and the factor to it.
pub const REPORTED: &[(&str, &str, f64, Wanted)] = &[
    ("_bytes", "MB", 1e-6, Less),
    ("_mb", "MB", 1.0, Less),
    ("_per_s", "/s", 1.0, More),
    ("_ms", "ms", 1.0, Less),
    ("_s", "s", 1.0, Less),
];

/// What a program reports. The terminal shows it as it was reported.
fn reported(name: &str, metric: &str) -> Quantity {
    let known = REPORTED.iter().find_map(|(ending, unit, factor, wanted)| {
        Some((metric.strip_suffix(ending)?, *unit, *factor, Some(*wanted)))
    });
    let (stem, unit, factor, wanted) = known.unwrap_or((metric, "", 1.0, None));
    let heading = stem.replace('_', " ");
    Quantity { name: name.into(), heading, short: metric.into(), unit, factor, wanted, ratio: false }
}

/// Endings of names that may be left out.
const ENDINGS: &[&str] = &["", "_bytes", "_s"];

/// The full name of a quantity: what the summary calls it.
pub fn quantity_name(name: &str) -> Result<String, String> {
    if let Some(metric) = name.strip_prefix("metric.").or_else(|| name.strip_prefix("metric:")) {
        return Ok(format!("metric:{metric}"));
    }
    let (phase, rest) = match split_phase(name) {
        ("", rest) => (String::new(), rest),
        (phase, rest) => (format!("{phase}."), rest),
    };
    // Percentiles are written p99.9, and called p99_9.
    let rest = if rest.starts_with("latency_p") { rest.replace('.', "_") } else { rest.to_string() };
    let fits = |full: &String| find(full).is_some() || percentile(full).is_some();
    let found = ENDINGS.iter().map(|ending| format!("{rest}{ending}")).find(fits);
    if let Some(row) = found.as_deref().and_then(find).filter(|row| !row.by_phase) {
        if !phase.is_empty() {
            return Err(format!("{name:?}: {} is measured of whole runs only", row.name));
        }
    }
    found.map(|found| format!("{phase}{found}")).ok_or_else(|| {
        let names = short_names();
        let guess = closest(&rest, names.iter().copied());
        let guess = guess.map_or_else(String::new, |guess| format!(" (did you mean {phase}{guess}?)"));
        format!(
            "no quantity {name:?}{guess}; there are {}, latency_p50 and other percentiles, each also of a phase, as \
             idle.rss_mean, and metric.NAME for what the program prints",
            names.join(", ")
        )
    })
}

/// The names for `--fail-if`, without the endings that may be left out.
pub fn short_names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name.strip_suffix("_bytes").unwrap_or(row.name)).collect()
}

/// A name without the ending that may be left out.
pub fn without_unit(name: &str) -> &str {
    let short = name.strip_suffix("_bytes").or(name.strip_suffix("_s"));
    short.filter(|_| !name.ends_with("_per_s")).unwrap_or(name)
}

/// The end of the help of `--fail-if`.
pub fn help() -> String {
    let names = |by_phase: bool| {
        let names = ROWS.iter().filter(|row| row.by_phase == by_phase);
        names.map(|row| without_unit(row.name)).collect::<Vec<_>>().join(", ")
    };
    format!(
        "Quantities of a run, and of each phase of a server, as load.cpu: {}. For a run only: {} and other percentiles; \
         metric.NAME is what the program prints, in the unit that NAME ends in: _bytes, _mb, _per_s, _ms or _s.",
        names(true),
        names(false)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_quantity_of_a_comparison_can_be_named() {
        for comparison in [fixture::server(), fixture::comparison(&[("glibc", &[1.0])])] {
            for row in &comparison.summary.allocators {
                for name in row.quantities.keys() {
                    assert_eq!(quantity_name(name).as_ref(), Ok(name), "add it to quantities::ROWS");
                }
            }
        }
    }

    #[test]
    fn units_follow_from_names() {
        let shown = |name| (named(name).heading, named(name).unit);
        assert_eq!(shown("idle.rss_mean_bytes"), ("mean RSS, idle".into(), "MB"));
        assert_eq!(shown("metric:tasks_per_s"), ("tasks".into(), "/s"));
        assert_eq!(shown("metric:p99_ms"), ("p99".into(), "ms"));
        assert_eq!(shown("latency_p99_s"), ("p99".into(), "ms"));
        assert_eq!(shown("latency_p99_9_s"), ("p99.9".into(), "ms"));
        assert_eq!(shown("metric:widgets"), ("widgets".into(), ""));
    }

    #[test]
    fn names_end_in_the_units_of_their_values() {
        for row in ROWS {
            let ending = match row.unit {
                Unit::Megabytes => "_bytes",
                Unit::PerSecond => "_per_s",
                Unit::Seconds | Unit::Milliseconds => "_s",
                Unit::Percent => "_percent",
                Unit::Count => "",
            };
            assert!(row.name.ends_with(ending), "{}", row.name);
            assert_eq!(
                row.short.is_empty(),
                matches!(row.shown, Shown::Below | Shown::Nowhere),
                "{}",
                row.name
            );
            assert_eq!(ROWS.iter().filter(|other| other.name == row.name).count(), 1, "{}", row.name);
        }
    }

    #[test]
    fn the_guide_describes_every_quantity() {
        let page = include_str!("../../../docs/reference/json.md");
        let missing = ROWS.iter().map(|row| row.name).filter(|name| !page.contains(&format!("`{name}`")));
        assert_eq!(missing.collect::<Vec<_>>(), [""; 0], "docs/reference/json.md lacks them");
    }
}
