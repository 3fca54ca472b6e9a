//! Fleets made up from a seed: how often a limit, and a request, that is called sure with 95 % is really above what it is to
//! be above.

use crate::fleet::{need, PodMemory, LIMIT_SHARE, REQUEST_SHARE};
use snug_base::random::Random;
use statrs::distribution::{ContinuousCDF, Normal};

use std::f64::consts::TAU;

const FLEETS: usize = 400;
const STEPS: usize = 24;
const WINDOW_S: f64 = 86400.0;

/// How the levels of pods differ.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Spread {
    /// As is assumed.
    LogNormal,
    /// None far from the others.
    Even,
    /// Two kinds of pods.
    TwoKinds,
    /// Some far above the others.
    Exponential,
}

impl Spread {
    fn log(self, random: &mut Random) -> f64 {
        match self {
            Spread::LogNormal => 0.1 * random.normal(),
            Spread::Even => random.between(-0.2, 0.2),
            Spread::TwoKinds => 0.02 * random.normal() + if random.chance(0.5) { 0.2 } else { 0.0 },
            Spread::Exponential => -0.1 * random.between(1e-9, 1.0).ln(),
        }
    }

    /// The logarithm that is above this share of pods.
    fn quantile(self, share: f64) -> f64 {
        match self {
            Spread::LogNormal => 0.1 * Normal::standard().inverse_cdf(share),
            Spread::Even => -0.2 + 0.4 * share,
            Spread::TwoKinds => 0.2 + 0.02 * Normal::standard().inverse_cdf(2.0 * share - 1.0),
            Spread::Exponential => -0.1 * (1.0 - share).ln(),
        }
    }
}

/// The share of fleets whose limits, and whose requests, hold.
fn held(spread: Spread, pods: usize) -> (f64, f64) {
    let mut random = Random::new(pods as u64 * 7919 + spread as u64);
    let (mut limits, mut requests) = (0, 0);
    for _ in 0..FLEETS {
        let level = random.log_between(50e6, 5e9);
        let fleet: Vec<PodMemory> = (0..pods)
            .map(|number| {
                let own = level * spread.log(&mut random).exp();
                // A day, the same for all: its peak is the level.
                let day = |step: usize| 1.0 - 0.3 * (1.0 - (step as f64 / STEPS as f64 * TAU).sin()) / 2.0;
                let readings =
                    (0..=STEPS).map(|step| (WINDOW_S * step as f64 / STEPS as f64, own * day(step)));
                PodMemory { pod: number.to_string(), readings: readings.collect(), ..PodMemory::default() }
            })
            .collect();
        let found = need(&fleet.iter().collect::<Vec<_>>(), WINDOW_S).unwrap();
        let usual = 1.0 - 0.3 * (1.0 - 1.0_f64.min((TAU * 7.0 / 24.0).sin())) / 2.0;
        limits += usize::from(found.limit_bytes >= level * spread.quantile(LIMIT_SHARE).exp());
        requests += usize::from(found.request_bytes >= level * usual * spread.quantile(REQUEST_SHARE).exp());
    }
    (limits as f64 / FLEETS as f64, requests as f64 / FLEETS as f64)
}

#[test]
fn bounds_hold_as_often_as_they_say() {
    for pods in [5, 12, 40] {
        for spread in [Spread::LogNormal, Spread::Even, Spread::TwoKinds, Spread::Exponential] {
            let (limits, requests) = held(spread, pods);
            println!("{pods} pods, {spread:?}: limits {limits:.3}, requests {requests:.3}");
            // 95 % of 400, less what chance does.
            let least = if spread == Spread::Exponential { 0.0 } else { 0.92 };
            assert!(limits >= least, "{pods} pods, {spread:?}: {limits}");
            if spread == Spread::LogNormal {
                assert!(requests >= 0.92, "{pods} pods, {spread:?}: {requests}");
            }
        }
    }
}
