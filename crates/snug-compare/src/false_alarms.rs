//! A test of how often a report shows a difference where there is none: two copies of one allocator, compared again and
//! again.

use crate::fixture;
use crate::results::Comparison;
use crate::view::{self, Difference, Table};

/// Pages to make, and how many of them may show a difference: 5 % and 3.3 standard deviations of that.
const SAMPLE: (u32, u32) = (200, 20);
const WHOLE: (u32, u32) = (1000, 70);

struct Chance(u64);

impl Chance {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Like a normal distribution's logarithm, of so many percent.
    fn factor(&mut self, percent: f64) -> f64 {
        let normal = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
        (normal * percent / 100.0).exp()
    }
}

/// A comparison of copies of one allocator. What a run measures scatters together and by itself.
fn copies(allocators: &[&str], runs: usize, chance: &mut Chance) -> Comparison {
    let means = vec![100.0; runs];
    let rows: Vec<(&str, &[f64])> = allocators.iter().map(|label| (*label, &means[..])).collect();
    let mut comparison = fixture::comparison(&rows);
    for run in &mut comparison.runs {
        let common = chance.factor(2.0);
        for name in ["cgroup_peak_bytes", "swap_peak_bytes", "uss_mean_bytes"] {
            run.memory.insert(name.into(), 50e6);
        }
        run.memory.values_mut().for_each(|value| *value *= common * chance.factor(1.0));
        run.wall_s = 10.0 * chance.factor(3.0);
        run.cpu_user_s = 8.0 * chance.factor(5.0);
        run.minor_faults = (50_000.0 * chance.factor(4.0)) as u64;
        let names = ["jobs_per_s", "mails_per_s", "p50_ms", "p99_ms", "boot_s", "heap_mb"];
        run.metrics = names.into_iter().map(|name| (name.to_string(), 20.0 * chance.factor(6.0))).collect();
    }
    comparison.summary = crate::summary::summarise(&comparison);
    comparison
}

/// How many cells are called better or worse: of what the comparison is about, and of all else.
fn coloured(comparison: &Comparison, verdict: impl Fn(&view::Cell) -> bool) -> (u32, u32) {
    let tables: Vec<Table> =
        [Some(view::table(comparison)), view::others(comparison).map(|others| others.table)]
            .into_iter()
            .flatten()
            .collect();
    let subject = view::subject(comparison).unwrap();
    let (mut primary, mut secondary) = (0, 0);
    for table in &tables {
        for row in &table.rows {
            for (quantity, cell) in table.quantities.iter().zip(&row.cells) {
                let is_coloured = cell.as_ref().is_some_and(&verdict);
                let is_primary = row.label == subject && quantity.name == "rss_mean_bytes";
                *(if is_primary { &mut primary } else { &mut secondary }) += u32::from(is_coloured);
            }
        }
    }
    (primary, secondary)
}

#[test]
fn two_copies_of_an_allocator_do_not_differ() {
    check_copies(SAMPLE);
}

#[test]
#[ignore = "long"]
fn two_copies_of_an_allocator_do_not_differ_on_many_pages() {
    check_copies(WHOLE);
}

fn check_copies((all_pages, most): (u32, u32)) {
    let mut chance = Chance(5);
    for (allocators, runs) in
        [(&["glibc", "snug"][..], 3), (&["glibc", "snug"], 5), (&["glibc", "snug", "jemalloc"], 8)]
    {
        let (mut primary_pages, mut pages, mut uncorrected_pages) = (0, 0, 0);
        for _ in 0..all_pages {
            let comparison = copies(allocators, runs, &mut chance);
            let (primary, secondary) =
                coloured(&comparison, |cell| matches!(cell.verdict, Difference::Better | Difference::Worse));
            let (_, uncorrected) = coloured(&comparison, |cell| {
                matches!(cell.verdict, Difference::Better | Difference::Worse | Difference::MayBeChance)
            });
            primary_pages += u32::from(primary > 0);
            pages += u32::from(secondary > 0);
            uncorrected_pages += u32::from(uncorrected > 0);
        }
        let found = format!(
            "{runs} runs of {allocators:?}: {primary_pages} {pages} {uncorrected_pages} of {all_pages}"
        );
        assert!(primary_pages <= most && pages <= most, "{found}");
        assert!(uncorrected_pages > 3 * most, "without a correction it would show: {found}");
    }
}

#[test]
fn real_differences_are_shown() {
    let mut chance = Chance(6);
    let mut shown = 0;
    for _ in 0..100 {
        let mut comparison = copies(&["glibc", "snug"], 5, &mut chance);
        for run in comparison.runs.iter_mut().filter(|run| run.allocator == "snug") {
            run.cpu_user_s *= 1.5;
        }
        comparison.summary = crate::summary::summarise(&comparison);
        let table = view::table(&comparison);
        let column = table.quantities.iter().position(|quantity| quantity.name == "cpu_s").unwrap();
        shown += u32::from(table.rows[1].cells[column].as_ref().unwrap().verdict == Difference::Worse);
    }
    assert!(shown > 90, "{shown} of 100");
}
