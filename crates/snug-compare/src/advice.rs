//! One recommendation, from a comparison and from what the memory consisted of. Pure.

use crate::quantities::{named, Quantity};
use crate::results::{Allocator, Comparison};
use crate::{shown_ratio, view};
use snug_base::terminal::{bytes, counted, short_number, three_digits};
use snug_inspect::kinds::Kind;
use snug_stats::{Meaning, Ratio};

/// An allocator is recommended only for at least this saving: a share of the memory, and bytes.
const WORTHWHILE_RATIO: f64 = 0.95;
const WORTHWHILE_BYTES: f64 = 5e6;
/// Runs that differ leave a saving open if it may be as large as this: twice of what is worthwhile.
const OPEN_RATIO: f64 = 0.9;
/// More runs that may tell: twice as many, and at least so many.
const MORE_RUNS_MIN: u32 = 5;
/// An allocator is recommended only if it is not clearly slower than this: times the wall time, times the CPU time,
/// times the 99th percentile of the latency, which few requests make.
const WALL_RATIO_MAX: f64 = 1.05;
const CPU_RATIO_MAX: f64 = 1.25;
const P99_RATIO_MAX: f64 = 1.1;
/// A setting without a library is preferred unless a library is smaller still by this factor.
const SIMPLER_RATIO: f64 = 0.95;
/// Programs smaller than this are not worth the trouble.
const SMALL_BYTES: f64 = 20e6;
/// Huge pages are mentioned above this share of what is resident.
const HUGE_SHARE: f64 = 0.1;
/// A part of memory is what it mostly consists of above this share.
const MOSTLY: f64 = 0.5;
/// Above this share of the heap, what is live is the reason for its size.
const LIVE_SHARE: f64 = 0.85;

/// What the memory of the program's processes consisted of under snug: means over time, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Composition {
    pub rss: f64,
    /// Pages of files, libraries above all.
    pub files: f64,
    /// Shared memory without a file: anonymous mappings that are shared, and files in memory.
    pub shared: f64,
    /// What the allocator holds, and what of it is live.
    pub heap: f64,
    pub live: f64,
    /// Anonymous memory that the program maps by itself: arenas of a language, stacks.
    pub mapped: f64,
    pub is_python: bool,
    /// How many moments the means are of.
    pub looks: usize,
}

/// The recommendation.
#[derive(Debug, Clone, PartialEq)]
pub enum Advice {
    /// Use the allocator with this index in the comparison.
    Use(usize),
    /// Leave everything as it is.
    Stay,
    /// The runs do not tell.
    Unknown,
}

/// A recommendation and its reasons, as sentences.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub advice: Advice,
    pub answer: String,
    pub evidence: Vec<String>,
}

/// Decides.
pub fn decide(comparison: &Comparison, composition: Option<&Composition>) -> Decision {
    let memory = named(&format!("{}_mean_bytes", comparison.summary.memory_measure));
    let baseline = comparison.summary.baseline.clone();
    let median = |label: &str| comparison.estimate(label, &memory.name).map(|estimate| estimate.median);
    let Some(before) = median(&baseline) else {
        let answer = format!("Unknown: {baseline} has no good run to compare with.");
        return Decision { advice: Advice::Unknown, answer, evidence: Vec::new() };
    };
    let ratio =
        |index: usize| shown_ratio::of_allocator(comparison, &comparison.allocators[index].label, &memory);
    let others: Vec<usize> =
        (0..comparison.allocators.len()).filter(|index| ratio(*index).is_some()).collect();
    if others.is_empty() {
        let answer = format!("Unknown: nothing but {baseline} ran.");
        return Decision { advice: Advice::Unknown, answer, evidence: Vec::new() };
    }
    if others.iter().all(|index| ratio(*index).is_some_and(|ratio| ratio.interval.is_none())) {
        let answer = "Unknown: one run each can't tell a difference from noise; use --runs 3 or more.".into();
        return Decision { advice: Advice::Unknown, answer, evidence: Vec::new() };
    }
    let floor = composition.map_or(0.0, |composition| floor_bytes(comparison, &memory, composition));
    let mut evidence = Vec::new();
    let mut good: Vec<(f64, usize)> = Vec::new();
    let mut open: Vec<(Ratio, String)> = Vec::new();
    for index in others {
        let label = &comparison.allocators[index].label;
        let (Some(memory_ratio), Some(after)) = (ratio(index), median(label)) else { continue };
        let price = price(comparison, index);
        let (times, chance) = (times(memory_ratio), chance(memory_ratio));
        evidence.push(format!("{label}: {times} the memory of {baseline}{chance}{}", price.words));
        if price.too_high {
            continue;
        }
        match is_smaller(memory_ratio, before - after) {
            true if price.too_high_if_real => {
                open.push((memory_ratio, format!("the price of {label} is real")));
            }
            true => good.push((after, index)),
            false if may_be_smaller(memory_ratio, before, floor) => {
                open.push((memory_ratio, format!("{label} helps")));
            }
            false => {}
        }
    }
    good.sort_by(|left, right| left.0.total_cmp(&right.0));
    open.sort_by(|left, right| left.0.value.total_cmp(&right.0.value));
    evidence.extend(huge_pages(comparison).chain(composition.into_iter().flat_map(consists_of)));
    let (advice, answer) = match (choose(&comparison.allocators, &good), open.first()) {
        (Some((after, index)), _) => {
            let label = &comparison.allocators[index].label;
            let saved = saving(&memory, ratio(index), before, after);
            (Advice::Use(index), format!("Use {label}: it saves {saved}."))
        }
        (None, Some((ratio, what))) => {
            let runs = (2 * comparison.settings.rounds).max(MORE_RUNS_MIN);
            let answer = format!(
                "Unknown: the runs differ too much to tell whether {what}, at {} the memory{}; use --runs {runs}, \
                 or a longer program.",
                times(*ratio),
                chance(*ratio)
            );
            (Advice::Unknown, answer)
        }
        (None, None) => {
            let why = why_not(&memory, before, composition);
            (Advice::Stay, format!("Changing the allocator will not help: {why}."))
        }
    };
    Decision { advice, answer, evidence }
}

/// Of which allocators much is in huge pages, and how to be without them.
fn huge_pages(comparison: &Comparison) -> impl Iterator<Item = String> + '_ {
    comparison.allocators.iter().filter_map(|allocator| huge_pages_of(comparison, allocator))
}

fn huge_pages_of(comparison: &Comparison, allocator: &Allocator) -> Option<String> {
    let median = |quantity: &str| Some(comparison.estimate(&allocator.label, quantity)?.median);
    let (huge, rss) = (median("huge_mean_bytes")?, median("rss_mean_bytes")?);
    if huge < HUGE_SHARE * rss {
        return None;
    }
    let shown = |quantity: &str, bytes: f64| view::with_unit(&named(quantity), bytes);
    let way_out = match (comparison.machine.transparent_huge_pages.as_str(), allocator.kind) {
        ("always", _) => {
            "; the system gives them to all: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        }
        (_, Kind::Glibc) => "; GLIBC_TUNABLES=glibc.malloc.hugetlb=0 keeps glibc from asking for them",
        _ => "",
    };
    Some(format!(
        "{}: {} of {} are in huge pages, which stay while a byte of each is in use{way_out}",
        allocator.label,
        shown("huge_mean_bytes", huge),
        shown("rss_mean_bytes", rss)
    ))
}

/// What is saved of the memory, as the numbers that the table shows have it.
fn saving(memory: &Quantity, ratio: Option<Ratio>, before: f64, after: f64) -> String {
    let percent = ratio.map_or(0.0, |ratio| (100.0 * (1.0 - ratio.value)).round());
    let shown = |value: f64| shown_ratio::shown_value(memory, value).unwrap_or(value * memory.factor);
    let saved = three_digits(shown(before) - shown(after));
    format!("{percent} % of the memory, {saved} {} of {}", memory.unit, view::with_unit(memory, before))
}

/// A saving that was shown and that counts.
fn is_smaller(ratio: Ratio, saved: f64) -> bool {
    ratio.interval.is_some_and(|(_, high)| high < 1.0)
        && !ratio.may_be_chance()
        && ratio.value <= WORTHWHILE_RATIO
        && saved >= WORTHWHILE_BYTES
}

/// None was shown, but one that counts may be there. `before` is the memory that the ratio refers to. No allocator can
/// do with less than `floor`.
fn may_be_smaller(ratio: Ratio, before: f64, floor: f64) -> bool {
    let lowest = ratio.interval.map_or(1.0, |(low, _)| low).max(floor / before);
    let is_open = ratio.holds_one() || ratio.may_be_chance();
    is_open && lowest <= OPEN_RATIO && before * (1.0 - lowest) >= WORTHWHILE_BYTES
}

/// What of the memory under snug is live, or not malloc's.
fn floor_bytes(comparison: &Comparison, memory: &Quantity, composition: &Composition) -> f64 {
    let spare_share = (composition.heap - composition.live) / composition.rss.max(1.0);
    let snug = comparison.allocators.iter().find(|allocator| looks_inside(allocator));
    let under_snug = snug.and_then(|allocator| comparison.estimate(&allocator.label, &memory.name));
    under_snug.map_or(0.0, |estimate| estimate.median * (1.0 - spare_share))
}

/// The smallest, with the memory under it; or a mere setting, if that is nearly as good.
fn choose(allocators: &[Allocator], good: &[(f64, usize)]) -> Option<(f64, usize)> {
    let best = *good.first()?;
    let setting = good.iter().find(|(_, index)| allocators[*index].library.is_none());
    Some(*setting.filter(|setting| best.0 > SIMPLER_RATIO * setting.0).unwrap_or(&best))
}

/// What an allocator costs beside memory.
struct Price {
    /// A price was shown that is too high.
    too_high: bool,
    /// One is too high that may be chance.
    too_high_if_real: bool,
    words: String,
}

fn price(comparison: &Comparison, index: usize) -> Price {
    let label = &comparison.allocators[index].label;
    let mut price = Price { too_high: false, too_high_if_real: false, words: String::new() };
    let Some(row) = comparison.row(label) else { return price };
    for quantity in row.quantities.keys() {
        let Some(ratio) = shown_ratio::of_allocator(comparison, label, &named(quantity)) else { continue };
        let Some((low, high)) = ratio.interval else { continue };
        let (name, too_high) = match quantity.as_str() {
            "wall_s" => ("wall time", low > WALL_RATIO_MAX),
            "cpu_s" => ("CPU time", low > CPU_RATIO_MAX),
            "latency_p99_s" => ("p99 latency", low > P99_RATIO_MAX),
            name if name.ends_with("_per_s") => {
                (name.trim_start_matches("metric:"), high < 1.0 / WALL_RATIO_MAX)
            }
            _ => continue,
        };
        price.too_high |= too_high && !ratio.may_be_chance();
        price.too_high_if_real |= too_high && ratio.may_be_chance();
        let verdict = match (ratio.may_be_chance(), too_high) {
            (true, true) => ": too high a price if it is not",
            (false, true) => ": too high a price",
            (_, false) => "",
        };
        let words = match ratio.meaning() {
            Some(Meaning::NoDifference) => continue,
            Some(Meaning::NotEnoughData) => format!("; not enough data on {name}, {}", times(ratio)),
            _ => format!("; {name} {}{}{verdict}", times(ratio), chance(ratio)),
        };
        price.words.push_str(&words);
    }
    if price.words.is_empty() {
        price.words = "; no difference in time".into();
    }
    price
}

fn times(ratio: Ratio) -> String {
    let times = shown_ratio::times(ratio);
    match ratio.interval {
        Some(_) => format!("{times} times ({})", shown_ratio::interval(ratio)),
        None => format!("{times} times"),
    }
}

/// What is said behind a ratio that the table marks so.
fn chance(ratio: Ratio) -> &'static str {
    if ratio.may_be_chance() {
        ", which may be chance"
    } else {
        ""
    }
}

fn consists_of(composition: &Composition) -> Option<String> {
    let percent = |part: f64| format!("{:.0} %", 100.0 * part / composition.rss.max(1.0));
    let times = short_number(composition.heap / composition.live.max(1.0));
    let held = match composition.live > 0.0 {
        true => format!("; malloc held {times} times what was live"),
        false => String::new(),
    };
    Some(format!(
        "under snug, {} were resident, in the mean of {} half a second apart: {} held by malloc, {} mapped by the \
         program itself, {} shared memory, {} files and libraries{held}",
        bytes(composition.rss),
        counted(composition.looks, "look"),
        percent(composition.heap),
        percent(composition.mapped),
        percent(composition.shared),
        percent(composition.files),
    ))
}

fn why_not(memory: &Quantity, before: f64, composition: Option<&Composition>) -> String {
    let nothing = "no allocator saved enough at an acceptable price".to_string();
    if before < SMALL_BYTES {
        return format!("the program is small, {} in all", view::with_unit(memory, before));
    }
    let Some(composition) = composition else { return nothing };
    let share = |part: f64| part / composition.rss.max(1.0);
    if share(composition.mapped) > MOSTLY && composition.is_python {
        return "most of its memory is in arenas that Python's own object allocator maps; malloc never sees them"
            .into();
    }
    if share(composition.mapped) > MOSTLY {
        return "most of its memory is mapped by the program itself; malloc never sees it".into();
    }
    if share(composition.shared) > MOSTLY {
        return "most of its memory is shared memory that it maps itself; malloc never sees it".into();
    }
    if share(composition.files) > MOSTLY {
        return "most of its memory is files and libraries".into();
    }
    if composition.live > LIVE_SHARE * composition.heap && share(composition.heap) > MOSTLY {
        return "what malloc holds is in use: the program must keep less".into();
    }
    nothing
}

/// Whether snug itself is among the allocators: only then it is known what memory consists of.
pub fn looks_inside(allocator: &Allocator) -> bool {
    allocator.kind == Kind::Snug
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::results::Run;
    use crate::summary::summarise;
    use crate::view::Difference;
    use snug_base::random::Random;

    /// Mostly near 1, now and then far above it.
    fn skewed(random: &mut Random) -> f64 {
        let above = if random.chance(0.2) { random.between(0.0, 0.5) } else { 0.0 };
        random.between(0.97, 1.03) + above
    }

    /// Of two allocators beside the baseline, their runs scattered unevenly.
    fn skewed_comparison(random: &mut Random) -> Comparison {
        let level = random.log_between(30.0, 3000.0);
        let ratios = [random.between(0.3, 1.1), random.between(0.6, 1.1)];
        let mut means = |level: f64| -> Vec<f64> { (0..5).map(|_| level * skewed(random)).collect() };
        let [glibc, snug, jemalloc] = [1.0, ratios[0], ratios[1]].map(|ratio| means(level * ratio));
        let mut comparison =
            fixture::comparison(&[("glibc", &glibc), ("snug", &snug), ("jemalloc", &jemalloc)]);
        let slower = random.between(0.97, 1.06);
        for run in &mut comparison.runs {
            let factor = if run.allocator == "snug" { slower } else { 1.0 };
            run.wall_s = 0.15 * factor * random.between(0.99, 1.01);
            run.cpu_user_s = 2.0 * factor * skewed(random);
            run.metrics.insert("requests_per_s".into(), 150.0 / factor * random.between(0.99, 1.01));
        }
        comparison.summary = summarise(&comparison);
        comparison
    }

    #[test]
    fn what_it_says_is_what_the_table_says() {
        let mut random = Random::new(4);
        let (mut used, mut by_chance, mut memory_by_chance) = (0, 0, 0);
        for _ in 0..300 {
            let comparison = skewed_comparison(&mut random);
            let table = view::table(&comparison);
            let cell = |row: usize, name: &str| {
                let column = table.quantities.iter().position(|quantity| quantity.name == name).unwrap();
                table.rows[row].cells[column].clone().unwrap()
            };
            let decision = decide(&comparison, None);
            for (row, label) in [(1, "snug:"), (2, "jemalloc:")] {
                let line = &decision.evidence[row - 1];
                let names = [
                    ("rss_mean_bytes", label, " the memory of glibc"),
                    ("wall_s", "; wall time", ""),
                    ("cpu_s", "; CPU time", ""),
                    ("metric:requests_per_s", "; requests_per_s", ""),
                ];
                for (name, before, after) in names {
                    let cell = cell(row, name);
                    let ratio = cell.ratio.trim_end_matches('×');
                    let open = format!("; not enough data on{},", before.trim_start_matches(';'));
                    let is_open = cell.verdict == Difference::NotEnoughData && name != "rss_mean_bytes";
                    let before = if is_open { &open } else { before };
                    let times = format!("{before} {ratio} times ({}){after}", cell.interval);
                    let is_memory = name == "rss_mean_bytes";
                    let is_mentioned = is_memory || cell.verdict != Difference::Same;
                    assert_eq!(line.contains(&times), is_mentioned, "{times}: {line}");
                    let is_chance = cell.verdict == Difference::MayBeChance;
                    let said = line.contains(&format!("{times}, which may be chance"));
                    assert_eq!(said, is_chance, "{times}: {line}");
                    by_chance += u32::from(is_chance);
                    memory_by_chance += u32::from(is_chance && is_memory);
                }
            }
            if let Advice::Use(index) = decision.advice {
                let (own, other) = (cell(index, "rss_mean_bytes"), cell(0, "rss_mean_bytes"));
                assert_eq!(own.verdict, Difference::Better, "{decision:?}");
                let end = format!(" MB of {} MB.", other.value);
                let saved = decision.answer.strip_suffix(&end).and_then(|text| text.rsplit(' ').next());
                let saved: f64 = saved.unwrap_or_else(|| panic!("{decision:?}")).parse().unwrap();
                let number = |text: &str| text.parse::<f64>().unwrap();
                let difference = number(&other.value) - number(&own.value);
                assert!((saved - difference).abs() <= 0.005 * difference, "{own:?} {other:?}: {decision:?}");
                let percent = 100 - (100.0 * number(own.ratio.trim_end_matches('×'))).round() as i64;
                assert!(decision.answer.contains(&format!("it saves {percent} % ")), "{own:?}: {decision:?}");
                used += 1;
            }
        }
        assert!(used > 50 && by_chance > 10 && memory_by_chance > 5, "{used} {by_chance} {memory_by_chance}");
    }

    /// What the correction for many ratios makes of one of them.
    fn set_chance(comparison: &mut Comparison, index: usize, quantity: &str, interval: (f64, f64)) {
        let estimate = comparison.summary.allocators[index].quantities.get_mut(quantity).unwrap();
        let ratio = estimate.ratio.as_mut().unwrap();
        (ratio.interval, ratio.adjusted_p_value) = (Some(interval), Some(0.2));
    }

    /// Those with these mean memories, in MB, and libraries but for glibc's.
    fn of(memory_mb: &[(&str, &[f64])]) -> Comparison {
        let mut comparison = fixture::comparison(memory_mb);
        for allocator in &mut comparison.allocators {
            allocator.library = (allocator.kind != Kind::Glibc).then(|| "/l/lib.so".to_string());
        }
        comparison
    }

    /// The runs under snug, changed.
    fn with(mut comparison: Comparison, change: impl Fn(&mut Run)) -> Comparison {
        comparison.runs.iter_mut().filter(|run| run.allocator == "snug").for_each(change);
        comparison.summary = summarise(&comparison);
        comparison
    }

    fn slower(run: &mut Run) {
        run.wall_s *= 1.5;
    }

    const GLIBC: (&str, &[f64]) = ("glibc", &[400.0, 402.0, 398.0]);
    const HALF: (&str, &[f64]) = ("snug", &[200.0, 201.0, 199.0]);
    const NOISY: [(&str, &[f64]); 2] = [("glibc", &[400.0, 380.0, 420.0]), ("snug", &[150.0, 240.0, 330.0])];

    /// What each comparison is an example of.
    fn examples() -> Vec<(&'static str, Comparison)> {
        fn jemalloc(means: &[f64]) -> (&str, &[f64]) {
            ("jemalloc", means)
        }
        let jemalloc_half = jemalloc(&[200.0, 201.0, 199.0]);
        let arenas: (&str, &[f64]) = ("glibc:MALLOC_ARENA_MAX=2", &[205.0, 206.0, 204.0]);
        let mut chance = of(&[
            ("glibc", &[400.0, 400.5, 399.5]),
            ("snug", &[400.0, 401.0, 399.0]),
            jemalloc(&[372.0, 372.4, 371.6]),
        ]);
        let known = chance.clone();
        set_chance(&mut chance, 2, "rss_mean_bytes", (0.88, 0.98));
        let mut small_chance = known.clone();
        set_chance(&mut small_chance, 2, "rss_mean_bytes", (0.92, 0.98));
        let mut price = with(of(&[GLIBC, HALF]), slower);
        set_chance(&mut price, 1, "wall_s", (1.2, 1.8));
        let slow_tail = |run: &mut Run| {
            let percentiles = &mut run.latency.as_mut().unwrap().percentiles;
            percentiles.iter_mut().filter(|at| at.percent == 99.0).for_each(|at| at.latency_s *= 1.4);
        };
        let mut huge = fixture::comparison(&[("glibc", &[370.0, 371.0]), ("snug", &[46.0, 46.5])]);
        for run in &mut huge.runs {
            let bytes = if run.allocator == "glibc" { 124e6 } else { 1e6 };
            run.memory.insert("huge_mean_bytes".into(), bytes);
        }
        huge.summary = summarise(&huge);
        let mut huge_for_all = huge.clone();
        huge_for_all.machine.transparent_huge_pages = "always".into();
        let mut failed = of(&[GLIBC, HALF]);
        failed.runs[..3].iter_mut().for_each(|run| run.failure = Some("crash".into()));
        failed.summary = summarise(&failed);
        vec![
            ("the smallest of three", of(&[GLIBC, jemalloc(&[300.0, 301.0, 299.0]), HALF])),
            ("another than snug", of(&[GLIBC, jemalloc_half, ("snug", &[300.0, 301.0, 299.0])])),
            ("a setting that is nearly as good", of(&[GLIBC, arenas, HALF])),
            ("one large run", of(&[("glibc", &[200.0, 200.0, 260.0]), ("snug", &[100.0, 101.0, 102.0])])),
            ("a server", fixture::server()),
            ("a server with a slow tail", with(fixture::server(), slow_tail)),
            ("smaller and too slow", with(of(&[GLIBC, HALF]), slower)),
            ("a price that may be chance", price),
            ("a small saving", known),
            ("the same, which may be chance", chance),
            ("the same, too small to count where it is chance", small_chance),
            ("runs that differ", of(&NOISY)),
            ("runs that differ, and another that is smaller", of(&[NOISY[0], NOISY[1], jemalloc_half])),
            ("runs that differ, too slow", with(of(&NOISY), slower)),
            ("a little noise", of(&[GLIBC, ("snug", &[398.0, 404.0, 394.0])])),
            ("a small program", of(&[("glibc", &[4.0, 3.8, 4.2]), ("snug", &[1.5, 2.4, 3.3])])),
            ("glibc asks for huge pages", huge),
            ("all have huge pages", huge_for_all),
            ("one run each", of(&[("glibc", &[400.0]), ("snug", &[100.0])])),
            ("nothing to compare with", of(&[("glibc", &[400.0, 400.0])])),
            ("a baseline that failed", failed),
        ]
    }

    /// What its memory is, where no allocator helps.
    fn compositions() -> [(&'static str, Composition); 5] {
        let all = Composition { rss: 400e6, looks: 20, ..Composition::default() };
        let mapped = Composition { mapped: 300e6, heap: 50e6, live: 45e6, ..all };
        [
            ("Python's arenas", Composition { is_python: true, ..mapped }),
            ("its own mappings", mapped),
            ("shared memory", Composition { shared: 300e6, ..all }),
            ("files", Composition { files: 300e6, ..all }),
            ("live blocks", Composition { heap: 350e6, live: 340e6, ..all }),
        ]
    }

    #[test]
    fn each_advice_has_words() {
        let mut told = String::new();
        let mut tell = |name: &str, comparison: &Comparison, composition: Option<&Composition>| {
            let decision = decide(comparison, composition);
            let used = matches!(decision.advice, Advice::Use(_));
            assert_eq!(decision.answer.starts_with("Use "), used, "{decision:?}");
            assert_eq!(decision.answer.starts_with("Unknown: "), decision.advice == Advice::Unknown);
            told += &format!("{name}\n  {}\n", decision.answer);
            decision.evidence.iter().for_each(|line| told += &format!("    {line}\n"));
        };
        examples().iter().for_each(|(name, comparison)| tell(name, comparison, None));
        let same = of(&[GLIBC, ("snug", &[399.0, 401.0, 400.0])]);
        let kinds = compositions();
        kinds.iter().for_each(|(name, composition)| tell(name, &same, Some(composition)));
        let differ = of(&[GLIBC, ("snug", &[320.0, 400.0, 460.0])]);
        tell("runs that differ, of memory that may be malloc's", &differ, None);
        tell("runs that differ, of memory that is not malloc's", &differ, Some(&kinds[1].1));
        expect_test::expect_file!["../golden/advice.txt"].assert_eq(&told);
    }
}
