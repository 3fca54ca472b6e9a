//! Fleets made up from a seed, as pods behave: levels of their own, days with peaks, warm-ups, restarts, noise that
//! lasts, scatter that differs between the groups. They show how often chance is called a difference, also if asked again
//! and again, and whether an effect is found in the time that is told.

use crate::canary::conclusion::{conclude, Aspect, Conclusion, FleetReadings, Question};
use crate::canary::groups::PodSeries;
use crate::canary::{Answer, Missing};
use snug_base::random::Random;

const STEP_S: f64 = 900.0;
const QUESTION: Question = Question { effect: 0.1, tolerance: 0.02, warm_up_s: 600.0 };

/// How a made-up fleet behaves.
#[derive(Clone, Copy)]
struct Habits {
    pods: (usize, usize),
    hours: f64,
    /// Ratio of memory.
    ratio: f64,
    /// Standard deviations of logarithms: of levels of pods of either group, of what lasts for hours, of readings.
    levels: (f64, f64),
    lasting: f64,
    noise: f64,
    day: f64,
    warm_up: f64,
    restarts_per_hour: f64,
}

impl Habits {
    fn draw(random: &mut Random, pods: (usize, usize), ratio: f64) -> Habits {
        let level = random.log_between(0.02, 0.15);
        Habits {
            pods,
            hours: random.log_between(3.0, 30.0),
            ratio,
            levels: (level * random.log_between(0.4, 1.5), level),
            lasting: random.log_between(0.01, 0.1),
            noise: random.log_between(0.005, 0.1),
            day: random.between(0.0, 0.4),
            warm_up: random.between(0.0, 0.5),
            restarts_per_hour: random.log_between(0.001, 0.1),
        }
    }
}

/// The readings of a fleet until an hour; the same pods and readings for every hour that is asked.
fn fleet(habits: &Habits, seed: u64, until_hour: f64) -> FleetReadings {
    let random = &mut Random::new(seed);
    let phase = random.between(0.0, std::f64::consts::TAU);
    let count = (habits.hours * 3600.0 / STEP_S) as usize;
    let shown = ((until_hour * 3600.0 / STEP_S) as usize).min(count);
    let mut readings =
        FleetReadings { step_s: STEP_S, span_s: shown as f64 * STEP_S, ..FleetReadings::default() };
    let (mut memory, mut cpu) = (Vec::new(), Vec::new());
    for number in 0..habits.pods.0 + habits.pods.1 {
        let is_canary = number < habits.pods.0;
        let spread = if is_canary { habits.levels.0 } else { habits.levels.1 };
        let ratio = if is_canary { habits.ratio } else { 1.0 };
        let (level, cpu_level) = (spread * random.normal(), 0.2 * random.normal());
        // They were deployed together; some restarted since.
        let mut start = -random.between(0.0, 1800.0);
        let (mut lasting, mut kills) = (0.0, 0.0);
        let mut series: [Vec<(f64, f64)>; 4] = Default::default();
        for index in 0..count {
            let time = index as f64 * STEP_S;
            if random.chance(habits.restarts_per_hour * STEP_S / 3600.0) {
                start = time - 10.0;
                kills += f64::from(u8::from(random.chance(0.3)));
            }
            lasting = 0.9 * lasting + 0.19f64.sqrt() * habits.lasting * random.normal();
            let day = habits.day * (phase + time / 86_400.0 * std::f64::consts::TAU).sin();
            let warm = -habits.warm_up * (-(time - start) / 5400.0).exp();
            let logarithm = level + lasting + day + warm + habits.noise * random.normal();
            series[0].push((time, 3e8 * ratio * logarithm.exp()));
            series[1].push((time, 0.3 * (cpu_level + day + 0.1 * random.normal()).exp()));
            series[2].push((time, start));
            series[3].push((time, kills));
        }
        let [of_memory, of_cpu, starts, oom_kills] = series.map(|mut readings| {
            readings.truncate(shown);
            PodSeries { unit: number.to_string(), is_canary, readings }
        });
        memory.push(of_memory);
        cpu.push(of_cpu);
        readings.starts.push(starts);
        readings.oom_kills.push(oom_kills);
    }
    readings.levels = vec![(Aspect::Memory, memory), (Aspect::Cpu, cpu)];
    readings
}

fn asked(habits: &Habits, seed: u64, until_hour: f64) -> Conclusion {
    conclude(&fleet(habits, seed, until_hour), QUESTION)
}

fn pods(random: &mut Random) -> (usize, usize) {
    let canary = random.log_between(3.0, 40.0) as usize;
    (canary, (canary as f64 * random.log_between(1.0, 6.0)) as usize)
}

/// How many of `fleets` without a difference are called better or worse at one of the looks.
fn false_alarms(fleets: u64, looks: &[f64]) -> usize {
    let calls = |seed: &u64| {
        let random = &mut Random::new(seed.wrapping_mul(77));
        let pods = pods(random);
        let habits = Habits::draw(random, pods, 1.0);
        looks.iter().any(|share| {
            matches!(asked(&habits, *seed, share * habits.hours).answer, Answer::Better | Answer::Worse)
        })
    };
    (1..=fleets).filter(calls).count()
}

#[test]
fn chance_is_seldom_called_a_difference() {
    let alarms = false_alarms(2000, &[1.0]);
    eprintln!("false alarms, one look: {alarms} of 2000");
    assert!(alarms <= 100, "{alarms} of 2000");
}

/// Eight looks at each.
fn looked_at_again(fleets: u64) {
    let looks: Vec<f64> = (1..=8).map(|look| f64::from(look) / 8.0).collect();
    let alarms = false_alarms(fleets, &looks);
    eprintln!("false alarms, eight looks: {alarms} of {fleets}");
    assert!(alarms as u64 <= fleets / 20, "{alarms} of {fleets}");
}

#[test]
fn asking_again_does_not_make_chance_a_difference() {
    looked_at_again(120);
}

#[test]
#[ignore = "a minute; make test-cli LONG=1"]
fn asking_again_does_not_make_chance_a_difference_in_2000_fleets() {
    looked_at_again(2000);
}

/// Fleets whose canary holds 10 % less, asked early; when they lack time, asked again after that.
#[test]
fn an_effect_is_found_in_the_time_that_is_told() {
    let (mut told, mut found, mut at_once, mut wrong) = (0, 0, 0, 0);
    for seed in 1..=200 {
        let random = &mut Random::new(seed * 1_000_003);
        let pods = (random.log_between(5.0, 15.0) as usize, random.log_between(10.0, 40.0) as usize);
        let drawn = Habits::draw(random, pods, 0.9);
        let level = random.log_between(0.01, 0.04);
        let noise = random.log_between(0.1, 0.5);
        let lasting = random.log_between(0.01, 0.04);
        let habits = Habits { hours: 60.0, levels: (level, level), lasting, noise, ..drawn };
        let early_h = 2.0;
        let first = asked(&habits, seed, early_h);
        match (first.answer, first.missing) {
            (Answer::Better, _) => at_once += 1,
            (Answer::NotEnoughData, Some(Missing::Seconds(more_s))) => {
                let until_h = early_h + more_s / 3600.0;
                if until_h <= habits.hours {
                    told += 1;
                    found += usize::from(asked(&habits, seed, until_h).answer == Answer::Better);
                }
            }
            (Answer::NotEnoughData, _) => {}
            _ => wrong += 1,
        }
    }
    eprintln!("an effect of 10 %: at once {at_once}, later {found} of {told}, wrong {wrong}, of 200");
    assert!(told >= 40, "{told}");
    assert!(f64::from(found as u32) >= 0.75 * f64::from(told), "{found} of {told}");
    assert!(wrong <= 6, "{wrong}");
}

/// Few pods of which time shows all there is: as many as were told are nearly always enough, and few times far too many.
#[test]
fn an_effect_is_found_with_the_pods_that_are_told() {
    let (mut told, mut found, mut with_half, mut more) = (0, 0, 0, 0);
    for seed in 1..=150 {
        let random = &mut Random::new(seed * 7_000_003);
        let level = random.log_between(0.02, 0.06);
        let few = [random.between(3.0, 6.0), random.between(3.0, 6.0)].map(|count| count as usize);
        let drawn = Habits::draw(random, (few[0], few[1]), 0.9);
        let steady = Habits { hours: 24.0, levels: (level, level), lasting: 0.01, noise: 0.01, ..drawn };
        let first = asked(&steady, seed, steady.hours);
        let (Answer::NotEnoughData, Some(Missing::Pods { canary, baseline })) = (first.answer, first.missing)
        else {
            continue;
        };
        told += 1;
        let with = |pods| asked(&Habits { pods, ..steady }, seed, steady.hours);
        let then = with((canary, baseline));
        found += u32::from(then.answer == Answer::Better);
        with_half += u32::from(with((canary.div_ceil(2), baseline.div_ceil(2))).answer == Answer::Better);
        more += u32::from(
            matches!(then.missing, Some(Missing::Pods { canary: again, .. }) if again > 2 * canary),
        );
    }
    eprintln!("an effect of 10 %, few pods: {found} of {told}, {with_half} with half as many, told twice as many {more}");
    assert!(told >= 40 && f64::from(found) >= 0.6 * f64::from(told), "{found} of {told}");
    assert!(f64::from(more) <= 0.1 * f64::from(told), "{more} of {told}");
}

#[test]
fn a_thousand_pods_show_an_effect_and_no_more() {
    let random = &mut Random::new(5);
    let mut habits = Habits { hours: 24.0, ..Habits::draw(random, (100, 900), 0.9) };
    let found = asked(&habits, 5, 24.0);
    let memory = &found.quantities[0];
    let (low, high) = memory.interval.map(|(low, high)| (low, high.unwrap())).unwrap();
    assert!(found.answer == Answer::Better && low < 0.9 && high > 0.9 && high - low < 0.06, "{memory:?}");
    habits.ratio = 1.0;
    assert_eq!(asked(&habits, 6, 24.0).answer, Answer::NoDifference);
}
