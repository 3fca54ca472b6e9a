//! From a comparison, and what the memory was seen to consist of, to one recommendation. Pure.

use crate::allocator::Kind;
use crate::compare::results::{Allocator, Comparison, Ratio};
use crate::terminal::{bytes, short_number};

/// An allocator is recommended only for at least this saving: a share of the memory, and bytes.
const WORTHWHILE_RATIO: f64 = 0.95;
const WORTHWHILE_BYTES: f64 = 5e6;
/// And only if it is not clearly slower than this: times the wall time, times the CPU time.
const WALL_RATIO_MAX: f64 = 1.05;
const CPU_RATIO_MAX: f64 = 1.25;
/// A setting without a library is preferred unless a library is smaller still by this factor.
const SIMPLER_RATIO: f64 = 0.95;
/// Programs smaller than this are not worth the trouble.
const SMALL_BYTES: f64 = 20e6;
/// A part of memory is what it mostly consists of above this share.
const MOSTLY: f64 = 0.5;
/// Above this share of the heap, what is live is the reason for its size.
const LIVE_SHARE: f64 = 0.85;

/// What the memory of the program's processes consisted of under snug: means over time, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Composition {
    pub rss: f64,
    /// Pages of files, libraries above all, and shared memory.
    pub files: f64,
    /// What the allocator holds, and what of it is live.
    pub heap: f64,
    pub live: f64,
    /// Anonymous memory that the program maps by itself: arenas of a language, stacks.
    pub mapped: f64,
    pub is_python: bool,
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
    let memory = format!("{}_mean_bytes", comparison.summary.memory_measure);
    let baseline = comparison.summary.baseline.clone();
    let Some(before) = comparison.estimate(&baseline, &memory).map(|estimate| estimate.mean) else {
        let answer = format!("Unknown: {baseline} has no good run to compare with.");
        return Decision { advice: Advice::Unknown, answer, evidence: Vec::new() };
    };
    let ratio = |index: usize, quantity: &str| {
        comparison.estimate(&comparison.allocators[index].label, quantity).and_then(|estimate| estimate.ratio)
    };
    let others: Vec<usize> =
        (0..comparison.allocators.len()).filter(|index| ratio(*index, &memory).is_some()).collect();
    if others.is_empty() {
        let answer = format!("Unknown: nothing ran beside {baseline}.");
        return Decision { advice: Advice::Unknown, answer, evidence: Vec::new() };
    }
    if others.iter().all(|index| ratio(*index, &memory).is_some_and(|ratio| ratio.interval.is_none())) {
        let answer = "Unknown: one run each can't tell a difference from noise; use --runs 3 or more.".into();
        return Decision { advice: Advice::Unknown, answer, evidence: Vec::new() };
    }
    let mut evidence = Vec::new();
    let mut good: Vec<(f64, usize)> = Vec::new();
    for index in others {
        let label = &comparison.allocators[index].label;
        let Some(memory_ratio) = ratio(index, &memory) else { continue };
        let price = price(comparison, index);
        evidence.push(format!("{label}: {} the memory of {baseline}{}", times(memory_ratio), price.words));
        let smaller = memory_ratio.interval.is_some_and(|(_, high)| high < 1.0)
            && memory_ratio.value <= WORTHWHILE_RATIO
            && before * (1.0 - memory_ratio.value) >= WORTHWHILE_BYTES;
        if smaller && !price.too_high {
            good.push((memory_ratio.value, index));
        }
    }
    good.sort_by(|left, right| left.0.total_cmp(&right.0));
    evidence.extend(composition.into_iter().flat_map(consists_of));
    match choose(&comparison.allocators, &good) {
        Some((value, index)) => {
            let label = &comparison.allocators[index].label;
            let saved = bytes(before * (1.0 - value));
            let percent = (100.0 * (1.0 - value)).round();
            let answer =
                format!("Use {label}: it saves {percent} % of the memory, {saved} of {}.", bytes(before));
            Decision { advice: Advice::Use(index), answer, evidence }
        }
        None => {
            let answer = format!("Changing the allocator will not help: {}.", why_not(before, composition));
            Decision { advice: Advice::Stay, answer, evidence }
        }
    }
}

/// The smallest; or a mere setting, if that is nearly as good.
fn choose(allocators: &[Allocator], good: &[(f64, usize)]) -> Option<(f64, usize)> {
    let best = *good.first()?;
    let setting = good.iter().find(|(_, index)| allocators[*index].library.is_none());
    Some(*setting.filter(|setting| best.0 > SIMPLER_RATIO * setting.0).unwrap_or(&best))
}

/// What an allocator costs beside memory.
struct Price {
    too_high: bool,
    words: String,
}

fn price(comparison: &Comparison, index: usize) -> Price {
    let label = &comparison.allocators[index].label;
    let mut price = Price { too_high: false, words: String::new() };
    let Some(row) = comparison.row(label) else { return price };
    for (quantity, estimate) in &row.quantities {
        let Some(ratio) = estimate.ratio else { continue };
        let Some((low, high)) = ratio.interval else { continue };
        let (name, too_high) = match quantity.as_str() {
            "wall_s" => ("wall time", low > WALL_RATIO_MAX),
            "cpu_s" => ("CPU time", low > CPU_RATIO_MAX),
            name if name.ends_with("_per_s") => {
                (name.trim_start_matches("metric:"), high < 1.0 / WALL_RATIO_MAX)
            }
            _ => continue,
        };
        price.too_high |= too_high;
        let verdict = if too_high { ": too high a price" } else { "" };
        if low > 1.0 || high < 1.0 {
            price.words.push_str(&format!("; {name} {}{verdict}", times(ratio)));
        }
    }
    if price.words.is_empty() {
        price.words = "; no difference in time can be shown".into();
    }
    price
}

fn times(ratio: Ratio) -> String {
    match ratio.interval {
        Some((low, high)) => format!("{:.2} times ({low:.2} to {high:.2})", ratio.value),
        None => format!("{:.2} times", ratio.value),
    }
}

fn consists_of(composition: &Composition) -> Vec<String> {
    let percent = |part: f64| format!("{:.0} %", 100.0 * part / composition.rss.max(1.0));
    vec![format!(
        "under snug the memory ({}) is {} malloc's, {} mapped by the program itself, {} files and libraries; \
         malloc's is {} times what is live",
        bytes(composition.rss),
        percent(composition.heap),
        percent(composition.mapped),
        percent(composition.files),
        short_number(composition.heap / composition.live.max(1.0))
    )]
}

fn why_not(before: f64, composition: Option<&Composition>) -> String {
    let nothing = "no difference that counts was measured, at a price that is worth it".to_string();
    if before < SMALL_BYTES {
        return format!("the program is small, {} in all", bytes(before));
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
    use crate::compare::fixture;

    fn decide_on(memory_mb: &[(&str, &[f64])], composition: Option<Composition>) -> Decision {
        let mut comparison = fixture::comparison(memory_mb);
        for allocator in &mut comparison.allocators {
            allocator.library = (allocator.kind != Kind::Glibc).then(|| "/l/lib.so".to_string());
        }
        decide(&comparison, composition.as_ref())
    }

    #[test]
    fn the_smallest_is_recommended() {
        let decision = decide_on(
            &[
                ("glibc", &[400.0, 402.0, 398.0]),
                ("jemalloc", &[300.0, 301.0, 299.0]),
                ("snug", &[200.0, 201.0, 199.0]),
            ],
            None,
        );
        assert_eq!(decision.advice, Advice::Use(2));
        assert!(decision.answer.starts_with("Use snug: it saves 50 % of the memory, 200 MB"), "{decision:?}");
        assert_eq!(decision.evidence.len(), 2);
    }

    #[test]
    fn others_are_recommended_where_they_are_smaller() {
        let decision = decide_on(
            &[
                ("glibc", &[400.0, 402.0, 398.0]),
                ("jemalloc", &[200.0, 201.0, 199.0]),
                ("snug", &[300.0, 301.0, 299.0]),
            ],
            None,
        );
        assert!(decision.answer.starts_with("Use jemalloc"), "{decision:?}");
    }

    #[test]
    fn a_setting_that_is_as_good_needs_no_library() {
        let decision = decide_on(
            &[
                ("glibc", &[400.0, 402.0, 398.0]),
                ("glibc:MALLOC_ARENA_MAX=2", &[205.0, 206.0, 204.0]),
                ("snug", &[200.0, 201.0, 199.0]),
            ],
            None,
        );
        assert!(decision.answer.starts_with("Use glibc:MALLOC_ARENA_MAX=2"), "{decision:?}");
    }

    #[test]
    fn too_slow_is_no_bargain() {
        let mut comparison =
            fixture::comparison(&[("glibc", &[400.0, 402.0, 398.0]), ("snug", &[200.0, 201.0, 199.0])]);
        for run in comparison.runs.iter_mut().filter(|run| run.allocator == "snug") {
            run.wall_s *= 1.5;
        }
        comparison.summary = crate::compare::summary::summarise(&comparison);
        let decision = decide(&comparison, None);
        assert_eq!(decision.advice, Advice::Stay, "{decision:?}");
        assert!(decision.evidence[0].contains("too high a price"), "{decision:?}");
    }

    #[test]
    fn reasons_why_nothing_helps() {
        let same: &[(&str, &[f64])] = &[("glibc", &[400.0, 402.0, 398.0]), ("snug", &[399.0, 401.0, 400.0])];
        let of = |composition| decide_on(same, Some(Composition { rss: 400e6, ..composition })).answer;
        let python =
            Composition { mapped: 300e6, heap: 50e6, live: 45e6, is_python: true, ..Default::default() };
        assert!(of(python).contains("Python's own object allocator"), "{}", of(python));
        let mapped = Composition { is_python: false, ..python };
        assert!(of(mapped).contains("mapped by the program itself"), "{}", of(mapped));
        let files = Composition { files: 300e6, ..Default::default() };
        assert!(of(files).contains("files and libraries"), "{}", of(files));
        let live = Composition { heap: 350e6, live: 340e6, ..Default::default() };
        assert!(of(live).contains("must keep less"), "{}", of(live));
        let small = decide_on(&[("glibc", &[9.0, 9.1, 9.2]), ("snug", &[8.0, 8.1, 8.2])], None);
        assert!(small.answer.contains("the program is small"), "{small:?}");
    }

    #[test]
    fn one_run_tells_nothing() {
        assert_eq!(decide_on(&[("glibc", &[400.0]), ("snug", &[100.0])], None).advice, Advice::Unknown);
        assert_eq!(decide_on(&[("glibc", &[400.0, 400.0])], None).advice, Advice::Unknown);
    }
}
