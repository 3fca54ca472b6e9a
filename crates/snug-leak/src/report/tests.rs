//! Reports of made-up watches.

use super::*;
use crate::fixture::{drawn, leaking, line, steady, Watch};
use crate::simulate::{draw, BEHAVIOURS};
use snug_base::random::Random;
use snug_profile::keeping::KeptInAll;

fn report(series: Series) -> LeakReport {
    Watch::of(series).report()
}

/// The pace of requests, and so of growth, falls to a half on the way.
#[test]
fn growth_per_request_is_right_at_any_pace_of_requests() {
    let fast_then_slow = |second: u32| f64::from(second.min(300) * 20 + second.saturating_sub(300) * 10);
    let requests: Vec<f64> = (0..600).map(fast_then_slow).collect();
    let values: Vec<f64> = requests.iter().map(|requests| 100e6 + 10_000.0 * requests).collect();
    let (growth, (low, high)) = growth_per_request(&requests, &values).unwrap();
    assert!((growth / 10_000.0 - 1.0).abs() < 0.01, "{growth}");
    assert!(low < 10_000.1 && high > 9_999.9 && high - low < 500.0, "{low} {high}");
    let seldom: Vec<f64> = (0..600).map(|second: u32| f64::from(second / 60)).collect();
    assert_eq!(growth_per_request(&seldom, &values), None);
}

/// As the text shows them, in bytes.
fn numbers_of_bytes(text: &str) -> Vec<f64> {
    let number = regex_lite::Regex::new("([0-9.]+) ([kMG]?)B\\b").unwrap();
    let value = |found: regex_lite::Captures| {
        let factor = match &found[2] {
            "G" => 1e9,
            "M" => 1e6,
            "k" => 1e3,
            _ => 1.0,
        };
        found[1].parse::<f64>().unwrap() * factor
    };
    number.captures_iter(text).map(value).collect()
}

fn line_with<'a>(report: &'a LeakReport, text: &str) -> &'a str {
    let found = report.evidence.iter().find(|line| line.contains(text));
    found.unwrap_or_else(|| panic!("no {text:?} in {:?}", report.evidence))
}

/// Wherever in the cycles of a collector the watch begins and ends, whatever is warmed up, and whatever other
/// workers hold.
#[test]
fn the_advice_is_about_where_the_leak_is() {
    type Beside = (&'static str, fn(f64) -> f64);
    let besides: [Beside; 4] = [
        ("nothing", |_| 0.0),
        ("a warm-up", |x| 80e6 * (1.0 - (-x / 0.08).exp())),
        ("from the top of a saw-tooth to its bottom", |x| 40e6 * (30.1 * x + 0.95).fract()),
        ("from the bottom of a saw-tooth to its top", |x| 40e6 * (30.93 * x + 0.02).fract()),
    ];
    for (name, beside) in besides {
        for (in_malloc, by_age) in [(true, false), (true, true), (false, false), (false, true)] {
            let series = leaking(in_malloc, beside);
            let mapped = series.used[570] - series.live[570];
            let report = match by_age {
                true => Watch { by_age: Some((series, 7)), ..Watch::of(line(0.0)) }.report(),
                false => report(series),
            };
            let told = (&report.answer, &report.evidence, &report.advice);
            let case = format!("in malloc: {in_malloc}, by age: {by_age}, beside: {name}: {told:?}");
            assert_eq!((report.verdict, report.decided_by_age), (Verdict::Leak, by_age), "{case}");
            let advice = if in_malloc { "find what is kept" } else { "tracemalloc" };
            assert!(report.advice[0].contains(advice), "{case}");
            let level = numbers_of_bytes(line_with(&report, "in use: "))[0];
            let parts = numbers_of_bytes(line_with(&report, "of that, "));
            // Three digits are shown of each.
            assert!((parts[0] + parts[1] - level).abs() <= 0.011 * level, "{case}");
            assert!((parts[1] - mapped).abs() <= 0.1 * mapped, "{mapped}: {case}");
        }
    }
}

#[test]
fn what_the_allocator_holds_is_compared_with_what_is_live_by_two_numbers() {
    let cycle = |of: [f64; 3]| (0..300).map(|moment| of[moment % 3] * 1e6).collect::<Vec<f64>>();
    let series = steady(cycle([10.0, 20.0, 30.0]), cycle([20.0, 22.0, 60.0]));
    let told = report(series);
    assert_eq!((told.judgement.heap_ratio, told.judgement.excess_bytes), (Some(1.1), Some(2e6)));
    line_with(&told, "holds 1.10 times its live bytes, 2.00 MB more");
    let random = &mut Random::new(10);
    for _ in 0..60 {
        let (level, factor) = (random.log_between(2e5, 4e9), random.log_between(2.5, 30.0));
        let (mut live, mut heap) = (Vec::new(), Vec::new());
        for _ in 0..120 {
            live.push(level * random.between(0.5, 1.5));
            heap.push((level * factor * random.between(0.5, 1.5)).max(30e6));
        }
        let told = report(steady(live, heap));
        assert_eq!(told.verdict, Verdict::Fragmented, "{}", told.answer);
        let shown = numbers_of_bytes(&told.answer);
        let (held, live) = (shown[0], shown[1]);
        let evidence = line_with(&told, "the allocator holds ");
        let ratio = |text: &str| {
            let found = regex_lite::Regex::new("([0-9.]+) times ").unwrap().captures(text);
            found.unwrap_or_else(|| panic!("{text}"))[1].to_string()
        };
        let (case, divided) = (format!("{} {evidence}", told.answer), held / live);
        assert_eq!(ratio(&told.answer), ratio(evidence), "{case}");
        // Three digits are shown of it, too.
        let error = (ratio(evidence).parse::<f64>().unwrap() / divided - 1.0).abs();
        assert!(error <= 0.0051, "{divided}: {case}");
        let excess = numbers_of_bytes(evidence)[0];
        assert!((excess - (held - live)).abs() <= 0.011 * held, "{case}");
    }
}

#[test]
fn growth_is_growth_whatever_went_wrong() {
    let remarks = Remarks { obstacles: vec!["the load failed all 9 times".into()], ..Remarks::default() };
    assert_eq!(Watch { remarks, ..Watch::of(line(59.9e6)) }.report().verdict, Verdict::Leak);
}

#[test]
fn what_is_flat_at_the_end_is_not_called_rising() {
    for rise_s in [30.0, 40.0, 50.0, 60.0, 70.0] {
        for height in [5e6, 20e6, 80e6] {
            let series = drawn(200, 100.0, |time_s| {
                50e6 + height * (time_s / rise_s).min(1.0) + 1e5 * (time_s * 7919.0).sin()
            });
            let report = report(series);
            assert!(!report.answer.contains("still rising"), "{rise_s} {height}: {}", report.answer);
            let says = report.answer.contains("steady since") || report.verdict == Verdict::Plateau;
            assert!(says, "{rise_s} {height}: {}", report.answer);
        }
    }
}

/// 50 kB a second are 1 GB in six hours, though in three seconds they are little of 8 MB.
#[test]
fn some_seconds_of_slow_growth_are_not_called_settled() {
    let series = drawn(200, 3.0, |time_s| 8e6 + 50e3 * time_s + 1e3 * (time_s * 7919.0).sin());
    let report = report(series);
    assert_eq!(report.verdict, Verdict::Unclear, "{}", report.answer);
    assert!(report.answer.contains("too short"), "{}", report.answer);
    let flat = drawn(200, 3.0, |time_s| 8e6 + 1e3 * (time_s * 7919.0).sin());
    assert_eq!(super::tests::report(flat).verdict, Verdict::Plateau);
}

#[test]
fn growth_that_lines_and_sizes_do_not_confirm_is_doubtful() {
    let lines = |bytes_per_s: f64| KeptInAll {
        bytes_per_s,
        bytes_per_s_interval: (0.8 * bytes_per_s, 1.3 * bytes_per_s),
        samples: 40,
    };
    let growth = (2500.0, (2220.0, 2770.0));
    let widened =
        |by_lines, by_sizes| OtherMeasures { by_lines, by_sizes }.beside(0.0).widened(growth.0, growth.1);
    assert_eq!(widened(Some(lines(1000.0)), Some(2400.0)), Some((800.0, 2770.0)));
    assert_eq!(widened(Some(lines(2000.0)), Some(5000.0)), Some((2220.0, 5000.0)));
    assert_eq!(widened(None, Some(-500.0)), Some((-500.0, 2770.0)));
    assert_eq!(widened(Some(lines(2000.0)), Some(2900.0)), None);
    assert_eq!(widened(Some(KeptInAll { samples: 3, ..lines(10.0) }), None), None);
    // As much again is mapped beside malloc.
    let others = OtherMeasures { by_lines: Some(lines(1250.0)), by_sizes: Some(1250.0) }.beside(1250.0);
    assert_eq!(others.widened(growth.0, growth.1), None);
}

#[test]
fn every_verdict_has_words() {
    for (behaviour, seed) in
        BEHAVIOURS.into_iter().flat_map(|behaviour| (0..5).map(move |seed| (behaviour, seed)))
    {
        let report = report(draw(behaviour, seed));
        assert!(report.answer.ends_with('.') && !report.answer.contains("NaN"), "{}", report.answer);
        assert!(report.evidence.len() >= 3, "{:?}", report.evidence);
        let is_all_well = report.verdict == Verdict::Plateau && report.peak().is_none();
        assert_eq!(report.advice.is_empty(), is_all_well, "{:?}", report.advice);
    }
}
