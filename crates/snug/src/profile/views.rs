//! The views of a profile, blocks chosen of what was read when the measurement began, when it ended, and in between.

use std::collections::HashSet;

use clap::ValueEnum;
use serde::Serialize;

use snug_heap::profile::{LiveSample, Profile, SampledStack};
use snug_process::maps::Mapping;
use snug_process::proc::Pid;
use snug_process::symbols::Symbols;
use snug_profile::sampling::{chosen, kept_until_ns, monotonic_ns, sites_of, Chosen};
use snug_profile::sites::Site;

/// Which blocks a profile shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProfileView {
    /// Allocated during the measurement, and live at its end
    Grown,
    /// Likewise, without what a garbage collector will free, judging by the ages of blocks: what a leak keeps
    Kept,
    /// Live at the end, since sampling was first switched on
    Live,
    /// Allocated during the measurement, freed or not
    Allocated,
    /// Live at the highest of the moments at which snug looked, ten times a second or less often
    Peak,
}

/// Blocks of several processes: one that forked processes have from their parent is one block.
#[derive(Default)]
pub(super) struct SeenBlocks(HashSet<(u64, u64)>);

impl SeenBlocks {
    /// Whether no process before has the block.
    pub(super) fn is_new(&mut self, sample: &LiveSample) -> bool {
        self.0.insert((sample.address, sample.time_ns)) || !sample.inherited
    }
}

/// What was read of a process at one moment: its samples, and the mappings that give their addresses names.
#[derive(Default, Clone)]
struct Look {
    profile: Profile,
    maps: Vec<Mapping>,
}

/// What was read of a process during a measurement.
#[derive(Default)]
pub(super) struct Looks {
    pub begin_ns: u64,
    /// When the last look was.
    last_ns: u64,
    /// None: nothing had been sampled when it began.
    before: Option<Profile>,
    after: Look,
    /// That of the looks at which the most was live.
    peak: Look,
}

impl Looks {
    /// Begins with what was there at that time; None: the process begins, too.
    pub(super) fn new(begin_ns: u64, before: Option<Profile>) -> Looks {
        Looks { begin_ns, before, ..Looks::default() }
    }

    /// Takes a look that is the last so far.
    pub(super) fn add(&mut self, profile: Profile, maps: Vec<Mapping>) {
        let peak = &self.peak.profile;
        // What another program had before is none of this one's.
        let is_peak = profile.started_ns != peak.started_ns || profile.live_bytes() > peak.live_bytes();
        self.note(profile, maps);
        if is_peak {
            self.note_peak(true);
        }
    }

    /// Takes a look of one process of several.
    pub(super) fn note(&mut self, profile: Profile, maps: Vec<Mapping>) {
        self.after = Look { profile, maps };
        self.last_ns = monotonic_ns();
    }

    /// The processes had most together at the last look, of which this one was a part or not.
    pub(super) fn note_peak(&mut self, is_part: bool) {
        self.peak = if is_part { self.after.clone() } else { Look::default() };
    }

    /// What was there at the last look.
    pub(super) fn last(&self) -> &Profile {
        &self.after.profile
    }

    /// Where the blocks of a view were allocated, but for those that were seen in other processes.
    pub(super) fn sites(
        &self,
        view: ProfileView,
        pid: Pid,
        symbols: &mut Symbols,
        seen: &mut SeenBlocks,
    ) -> Vec<Site> {
        let look = if view == ProfileView::Peak { &self.peak } else { &self.after };
        symbols.map_anew(pid, look.maps.clone());
        sites_of(symbols, &look.profile, self.selected(view, seen))
    }

    /// What the view shows, by number of the stack.
    fn selected(&self, view: ProfileView, seen: &mut SeenBlocks) -> Vec<Chosen> {
        match view {
            ProfileView::Allocated => self.allocated(),
            ProfileView::Peak => {
                self.peak.profile.live.iter().filter(|sample| seen.is_new(sample)).map(chosen).collect()
            }
            ProfileView::Live => {
                self.after.profile.live.iter().filter(|sample| seen.is_new(sample)).map(chosen).collect()
            }
            ProfileView::Grown => {
                let is_new = |sample: &&LiveSample| sample.is_of(self.begin_ns..u64::MAX);
                self.after.profile.live.iter().filter(is_new).map(chosen).collect()
            }
            ProfileView::Kept => {
                let until_ns = kept_until_ns(&self.after.profile, self.begin_ns, self.last_ns);
                let is_kept = |sample: &&LiveSample| sample.is_of(self.begin_ns..until_ns);
                self.after.profile.live.iter().filter(is_kept).map(chosen).collect()
            }
        }
    }

    fn allocated(&self) -> Vec<Chosen> {
        let none = SampledStack::default();
        let old = |number| self.before.as_ref().and_then(|before| before.stacks.get(number)).unwrap_or(&none);
        let after = &self.after.profile;
        let grown = after.stacks.iter().map(|(number, stack)| {
            let old = old(number);
            let bytes = stack.allocated_bytes - old.allocated_bytes;
            (*number, bytes, stack.allocated_blocks - old.allocated_blocks)
        });
        let grown: Vec<(u32, f64, f64)> = grown.filter(|(_, bytes, _)| *bytes > 0.0).collect();
        let taken = after.taken.saturating_sub(self.before.as_ref().map_or(0, |before| before.taken));
        let counts = samples_behind(&grown, taken);
        let site = |((number, bytes, blocks), samples): ((u32, f64, f64), f64)| {
            (number, Site { bytes, blocks, samples: samples.round().max(1.0) as u64, ..Site::default() })
        };
        grown.into_iter().zip(counts).map(site).collect()
    }

    /// Blocks that should have been samples of this view, and found no room. The library counts them since sampling was
    /// first switched on.
    pub(super) fn dropped(&self, view: ProfileView) -> u64 {
        match view {
            ProfileView::Live => self.after.profile.dropped,
            ProfileView::Peak => self.peak.profile.dropped,
            ProfileView::Grown | ProfileView::Kept | ProfileView::Allocated => self
                .after
                .profile
                .dropped
                .saturating_sub(self.before.as_ref().map_or(0, |before| before.dropped)),
        }
    }
}

/// How many of all samples each sum of bytes and blocks is of, which the library does not count: by the one distance
/// between samples at which there would be so many.
fn samples_behind(sums: &[(u32, f64, f64)], taken: u64) -> Vec<f64> {
    let at = |mean: f64, bytes: f64, blocks: f64| {
        let blocks = blocks.max(1.0);
        blocks * -(-bytes / blocks / mean).exp_m1()
    };
    let (mut low, mut high) = (1.0, 2f64.powi(31));
    for _ in 0..60 {
        let mean: f64 = f64::sqrt(low * high);
        let all: f64 = sums.iter().map(|(_, bytes, blocks)| at(mean, *bytes, *blocks)).sum();
        if all > taken as f64 {
            low = mean;
        } else {
            high = mean;
        }
    }
    sums.iter().map(|(_, bytes, blocks)| at(high, *bytes, *blocks)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_choose_samples() {
        let stack =
            |bytes| SampledStack { allocated_bytes: bytes, allocated_blocks: 1.0, ..SampledStack::default() };
        let sample = |weight_bytes, time_ns, inherited| LiveSample {
            stack: 1,
            weight_bytes,
            blocks: 1.0,
            time_ns,
            address: weight_bytes as u64,
            inherited,
        };
        let before = Profile { stacks: [(1, stack(100.0))].into(), ..Profile::default() };
        let highest = Profile { live: vec![sample(500.0, 30, false)], ..before.clone() };
        let after = Profile {
            live: vec![sample(10.0, 5, false), sample(20.0, 50, false), sample(40.0, 50, true)],
            stacks: [(1, stack(130.0)), (2, stack(7.0))].into(),
            ..Profile::default()
        };
        let mut looks = Looks::new(20, Some(before));
        assert_eq!(
            looks.selected(ProfileView::Peak, &mut SeenBlocks::default()),
            [],
            "it was not there at the peak"
        );
        looks.add(highest, Vec::new());
        looks.add(after, Vec::new());
        let bytes = |view| {
            let found = looks.selected(view, &mut SeenBlocks::default());
            let mut all: Vec<f64> = found.into_iter().map(|found| found.1.bytes).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        assert_eq!(bytes(ProfileView::Live), [10.0, 20.0, 40.0]);
        assert_eq!(bytes(ProfileView::Grown), [20.0]);
        assert_eq!(bytes(ProfileView::Allocated), [7.0, 30.0]);
        assert_eq!(bytes(ProfileView::Peak), [500.0]);
    }

    #[test]
    fn samples_of_sums_are_worked_out() {
        // 1000 blocks of 1000 bytes, of which a mean of 50 kB takes 20; and 5 that are sampled for sure.
        let found = samples_behind(&[(1, 1e6, 1000.0), (2, 50e6, 5.0)], 25);
        assert!((found[0] - 20.0).abs() < 0.5 && (found[1] - 5.0).abs() < 0.01, "{found:?}");
        assert_eq!(samples_behind(&[], 7), [0.0; 0]);
    }

    #[test]
    fn another_program_has_a_peak_of_its_own() {
        let map = |path: &str| vec![Mapping { path: path.into(), ..Mapping::default() }];
        let mut looks = Looks::new(0, None);
        let mut add = |started_ns, taken, bytes, path| {
            let live =
                vec![LiveSample { stack: 1, weight_bytes: bytes, time_ns: 1, ..LiveSample::default() }];
            looks.add(Profile { started_ns, taken, live, ..Profile::default() }, map(path));
            (looks.peak.profile.live_bytes(), looks.peak.maps[0].path.clone())
        };
        assert_eq!(add(1, 3, 500.0, "sh"), (500.0, "sh".into()));
        assert_eq!(add(1, 4, 400.0, "ended"), (500.0, "sh".into()), "named as it was at the peak");
        assert_eq!(add(2, 100, 20.0, "ruby"), (20.0, "ruby".into()), "with more samples of less");
    }

    #[test]
    fn what_was_dropped_before_counts_for_what_is_live_alone() {
        let [before, after] = [3, 10].map(|dropped| Profile { dropped, ..Profile::default() });
        let mut looks = Looks::new(0, Some(before));
        looks.add(after, Vec::new());
        let found = [ProfileView::Grown, ProfileView::Allocated, ProfileView::Live];
        assert_eq!(found.map(|view| looks.dropped(view)), [7, 7, 10]);
    }
}
