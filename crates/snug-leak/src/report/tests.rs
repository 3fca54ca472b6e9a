//! Reports of made-up watches.

use super::*;
use crate::assemble::ByAge;
use crate::simulate::{draw, BEHAVIOURS};
use crate::trend::Doubt;
use crate::verdict::assess;
use snug_base::random::Random;
use snug_base::terminal::bytes;
use snug_live::record::RecordedProcess;
use snug_profile::keeping::KeptInAll;
use snug_profile::sites::Frame;

fn report(series: Series, live_source: LiveSource, by_age: Option<(Series, usize)>) -> LeakReport {
    report_with(series, live_source, by_age, Remarks::default())
}

fn report_with(
    series: Series,
    live_source: LiveSource,
    by_age: Option<(Series, usize)>,
    remarks: Remarks,
) -> LeakReport {
    let readings = series.time_s.len();
    let judgement = assess(&series, 0.05);
    let by_age = by_age.map(|(series, lives)| ByAge { series, lives, age_s: 60.0 });
    let judgement_by_age = by_age.as_ref().map(|by_age| assess(&by_age.series, 0.05));
    let assembled = Assembled {
        measure: Measure::Rss,
        live_source,
        processes: vec![1; readings],
        moments: (0..readings).collect(),
        total: series,
        by_age,
    };
    let process = RecordedProcess { kind: Some(Kind::Snug), ..RecordedProcess::example() };
    let recording = Recording { processes: vec![process], ..Recording::default() };
    LeakReport::new(Findings {
        subject: "ruby app.rb".into(),
        recording: &recording,
        assembled: &assembled,
        total: judgement,
        by_age: judgement_by_age,
        requests: (0..readings).map(|moment| 10.0 * moment as f64).collect(),
        request_unit: "request",
        load: None,
        remarks,
        lines: vec![KeepingLine {
            bytes_per_s: 1.0,
            bytes_per_s_interval: (0.5, 1.5),
            samples: 16,
            line: Frame { function: "keeps".into(), file: "a.rb".into(), line: 3, source: None },
            callers: Vec::new(),
        }],
        sizes: Vec::new(),
        other_measures: OtherMeasures::default(),
    })
}

/// 600 readings, one per second, of a program that grows evenly by so many bytes.
fn line(growth: f64) -> Series {
    let time_s: Vec<f64> = (0..600).map(f64::from).collect();
    let used: Vec<f64> = time_s.iter().map(|time_s| 100e6 + growth * time_s / 599.0).collect();
    let memory = used.iter().map(|used| used + 20e6).collect();
    Series { time_s, memory, live: used.clone(), heap: used.clone(), used }
}

#[test]
fn a_leak_is_stated_per_hour_and_per_request() {
    let report = report(line(59.9e6), LiveSource::Counted, None);
    assert_eq!(report.verdict, Verdict::Leak);
    assert!(report.answer.contains("360 MB per hour"), "{}", report.answer);
    assert!(report.answer.contains("10.0 kB per request"), "{}", report.answer);
    assert!(report.advice[0].contains("find what is kept"), "{:?}", report.advice);
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

/// Leaks 60 MB, in malloc or else in what it maps itself, and what is live does something `beside`.
fn leaking(in_malloc: bool, beside: fn(f64) -> f64) -> Series {
    let time_s: Vec<f64> = (0..600).map(f64::from).collect();
    let mut series = Series { time_s, ..Series::default() };
    for time_s in &series.time_s {
        let x = time_s / 599.0;
        let (kept, mapped) = if in_malloc { (60e6 * x, 0.0) } else { (0.0, 60e6 * x) };
        let (live, mapped) = (50e6 + kept + beside(x), 80e6 + mapped);
        series.live.push(live);
        series.heap.push(1.1 * live);
        series.used.push(live + mapped);
        series.memory.push(1.1 * live + mapped + 20e6);
    }
    series
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
                true => report(line(0.0), LiveSource::Counted, Some((series, 7))),
                false => report(series, LiveSource::Counted, None),
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

/// Neither grows, and the allocator holds what it does at each moment.
fn steady(live: Vec<f64>, heap: Vec<f64>) -> Series {
    let time_s: Vec<f64> = (0..live.len()).map(|moment| moment as f64).collect();
    let level = vec![100e6; live.len()];
    Series { time_s, memory: level.clone(), used: level, live, heap }
}

#[test]
fn what_the_allocator_holds_is_compared_with_what_is_live_by_two_numbers() {
    let cycle = |of: [f64; 3]| (0..300).map(|moment| of[moment % 3] * 1e6).collect::<Vec<f64>>();
    let series = steady(cycle([10.0, 20.0, 30.0]), cycle([20.0, 22.0, 60.0]));
    let told = report(series, LiveSource::Counted, None);
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
        let told = report(steady(live, heap), LiveSource::Counted, None);
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
fn without_a_live_byte_there_is_no_ratio() {
    let told = report(steady(vec![0.0; 300], vec![30e6; 300]), LiveSource::Counted, None);
    assert_eq!(told.answer, "Fragmented: steady, but the allocator holds 30.0 MB for 0 B that are live.");
    line_with(&told, "the allocator holds 30.0 MB more than its live bytes");
}

#[test]
fn restarts_do_not_hide_a_leak() {
    let report = report(line(0.0), LiveSource::Counted, Some((line(59.9e6), 7)));
    assert_eq!((report.verdict, report.decided_by_age), (Verdict::Leak, true));
    assert!(report.answer.contains("7 were, at the age of 60 s"), "{}", report.answer);
}

#[test]
fn a_plateau_of_a_program_that_was_asked_nothing_is_none() {
    let obstacles = || vec!["the load failed all 9 times".into()];
    let remarks = || Remarks { obstacles: obstacles(), ..Remarks::default() };
    let steady = report_with(line(0.0), LiveSource::Counted, None, remarks());
    assert_eq!(steady.verdict, Verdict::Unclear);
    assert!(steady.answer.contains("the load failed all 9 times"), "{}", steady.answer);
    assert!(steady.advice[0].contains("fix that"), "{:?}", steady.advice);
    let grows = report_with(line(59.9e6), LiveSource::Counted, None, remarks());
    assert_eq!(grows.verdict, Verdict::Leak, "growth is growth");
}

#[test]
fn a_plateau_of_a_process_that_ended_is_none_and_nothing_to_fix() {
    let end = "process 47 ended after 55 min: it exited with code 0";
    let ended = |obstacles: &[&str]| {
        let obstacles = obstacles.iter().map(|text| text.to_string()).collect();
        let remarks = Remarks { obstacles, end: Some(end.into()), ended: true, ..Remarks::default() };
        report_with(line(0.0), LiveSource::Counted, None, remarks)
    };
    let report = ended(&[]);
    assert_eq!(report.verdict, Verdict::Unclear);
    assert_eq!(report.answer, format!("Not enough data: memory does not grow, but {end}."));
    assert_eq!(report.advice, [WATCH_ANOTHER]);
    let failed = ended(&["the load failed all 9 times"]);
    assert!(failed.answer.contains("the load failed") && failed.advice[0].contains("fix that"));
}

/// Whatever is in doubt.
#[test]
fn what_has_ended_is_not_to_be_watched_longer() {
    let mut short = line(0.0);
    let all = [&mut short.time_s, &mut short.memory, &mut short.used, &mut short.live, &mut short.heap];
    all.into_iter().for_each(|values| values.truncate(10));
    let still_rises = |x: f64| 80e6 * (1.0 - (-x / 0.6).exp());
    let mut rising = line(0.0);
    let moments = rising.time_s.len() as f64;
    for values in [&mut rising.memory, &mut rising.used, &mut rising.live, &mut rising.heap] {
        values.iter_mut().enumerate().for_each(|(at, value)| *value += still_rises(at as f64 / moments));
    }
    let short_advice =
        "the process ended too early: watch one that runs longer, or read more often (--interval)";
    let cases = [(short, Doubt::Short, short_advice), (rising, Doubt::Settling, WATCH_ANOTHER)];
    for (series, doubt, wanted) in cases {
        let advice = |ended: bool| {
            let remarks = Remarks { ended, ..Remarks::default() };
            let report = report_with(series.clone(), LiveSource::Counted, None, remarks);
            assert_eq!(report.judgement.doubt, Some(doubt), "{report:?}");
            report.advice
        };
        assert!(advice(false)[0].contains("watch longer (--for)"), "{:?}", advice(false));
        assert_eq!(advice(true), [wanted]);
    }
}

#[test]
fn a_plateau_says_since_when() {
    let mut series = line(0.0);
    for (index, value) in series.used.iter_mut().enumerate() {
        *value -= 50e6 * (-(index as f64) / 40.0).exp();
    }
    let report = report(series, LiveSource::Counted, None);
    assert_eq!(report.verdict, Verdict::Plateau);
    let says = |text| report.answer.contains(text);
    assert!(says(" s and ") && says(" requests"), "{}", report.answer);
}

/// So many readings over so many seconds.
fn drawn(span_s: f64, of: impl Fn(f64) -> f64) -> Series {
    let time_s: Vec<f64> = (0..200).map(|reading| f64::from(reading) * span_s / 199.0).collect();
    let used: Vec<f64> = time_s.iter().map(|time_s| of(*time_s)).collect();
    let memory = used.iter().map(|used| used + 6e6).collect();
    Series { time_s, memory, live: used.clone(), heap: used.clone(), used }
}

#[test]
fn what_is_flat_at_the_end_is_not_called_rising() {
    for rise_s in [30.0, 40.0, 50.0, 60.0, 70.0] {
        for height in [5e6, 20e6, 80e6] {
            let series = drawn(100.0, |time_s| {
                50e6 + height * (time_s / rise_s).min(1.0) + 1e5 * (time_s * 7919.0).sin()
            });
            let report = report(series, LiveSource::Counted, None);
            assert!(!report.answer.contains("still rising"), "{rise_s} {height}: {}", report.answer);
            let says = report.answer.contains("steady since") || report.verdict == Verdict::Plateau;
            assert!(says, "{rise_s} {height}: {}", report.answer);
        }
    }
}

/// 50 kB a second are 1 GB in six hours, though in three seconds they are little of 8 MB.
#[test]
fn some_seconds_of_slow_growth_are_not_called_settled() {
    let series = drawn(3.0, |time_s| 8e6 + 50e3 * time_s + 1e3 * (time_s * 7919.0).sin());
    let report = report(series, LiveSource::Counted, None);
    assert_eq!(report.verdict, Verdict::Unclear, "{}", report.answer);
    assert!(report.answer.contains("too short"), "{}", report.answer);
    let flat = drawn(3.0, |time_s| 8e6 + 1e3 * (time_s * 7919.0).sin());
    assert_eq!(super::tests::report(flat, LiveSource::Counted, None).verdict, Verdict::Plateau);
}

#[test]
fn a_plateau_says_how_high_it_reaches() {
    let series = drawn(100.0, |time_s| 3e6 + 44e6 * (time_s / 4.03).fract());
    let report = report(series, LiveSource::Counted, None);
    assert_eq!(report.verdict, Verdict::Plateau, "{}", report.answer);
    let peak = bytes(report.series.memory_bytes.iter().max().copied().unwrap() as f64);
    assert!(report.answer.contains(&peak), "{peak}: {}", report.answer);
    assert!(line_with(&report, "RSS: ").ends_with(&format!("at most {peak}")), "{:?}", report.evidence);
    assert!(report.advice[0].contains(&format!("its peak, {peak}")), "{:?}", report.advice);
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
fn without_live_bytes_a_leak_is_only_growth() {
    let mut series = line(59.9e6);
    (series.used, series.live, series.heap) = (vec![], vec![], vec![]);
    let report = report(series, LiveSource::Unknown, None);
    assert_eq!(report.verdict, Verdict::Growing);
    assert!(report.advice[0].contains("snug leak -- PROGRAM"), "{:?}", report.advice);
    let asked = LeakReport { allocators: vec![Kind::Jemalloc], ..report };
    let grounds = Grounds {
        judgement: asked.judgement.clone(),
        by_age: false,
        live: None,
        heap: None,
        replaced: None,
        ended: false,
        other_measures: OtherMeasures::default(),
    };
    assert!(asked.advice_for(&grounds)[0].contains("--ask-allocator"), "{:?}", asked.advice);
}

#[test]
fn every_verdict_has_words() {
    for (behaviour, seed) in
        BEHAVIOURS.into_iter().flat_map(|behaviour| (0..5).map(move |seed| (behaviour, seed)))
    {
        let report = report(draw(behaviour, seed), LiveSource::Counted, None);
        assert!(report.answer.ends_with('.') && !report.answer.contains("NaN"), "{}", report.answer);
        assert!(report.evidence.len() >= 3, "{:?}", report.evidence);
        let is_all_well = report.verdict == Verdict::Plateau && report.peak().is_none();
        assert_eq!(report.advice.is_empty(), is_all_well, "{:?}", report.advice);
    }
}
