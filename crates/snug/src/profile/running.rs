//! `snug profile PID|NAME`: samples of processes that run already, added up.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::profile::views::{Looks, ProfileView, SeenBlocks};
use crate::profile::{MeasuredProfile, MeasuredView, ProfileArguments, WATCH_FOR};
use snug_base::failure::{Failure, Result, UNKNOWN};
use snug_base::time::duration;
use snug_base::{progress, terminal};
use snug_heap::profile::Profile;
use snug_inspect::inspector::Inspector;
use snug_live::record::SnugProcess;
use snug_process::children::Children;
use snug_process::ending::EndingTold;
use snug_process::pace::Pace;
use snug_process::proc::{self, Pid};
use snug_process::symbols::Symbols;
use snug_process::system;
use snug_profile::sampled_tree::SampledTree;
use snug_profile::sampling::{hides_small_objects, maps_beside, monotonic_ns, read, MEAN_BYTES, SETTING};
use snug_profile::sites;

/// Time between two looks, and the same for the highest; the share of a core that they may take.
const LOOK_EVERY_S: f64 = 1.0;
const LOOK_FOR_PEAK_EVERY_S: f64 = 0.1;
const LOOKING_SHARE: f64 = 0.01;
/// How long a process may take to end whose memory is gone.
const ENDS_WITHIN: Duration = Duration::from_millis(200);
/// Reasons why processes are left out that are told.
const REASONS_TOLD: usize = 5;

/// A file system as processes see it: their name space of mounts, and where their root lies.
type RootKey = (String, u64, u64);

/// What was read of one process.
struct ProfiledProcess {
    process: SnugProcess,
    looks: Looks,
    root: RootKey,
    hides_small_objects: bool,
    /// Number of the last look at which it was there.
    last_look: usize,
}

/// What was read of all.
struct TreeWatch<'a> {
    arguments: &'a ProfileArguments,
    tree: SampledTree,
    processes: Vec<ProfiledProcess>,
    begin: Instant,
    begin_ns: u64,
    looks: usize,
    peak_bytes: f64,
    /// Why a process could not be read that runs.
    failure: Option<Failure>,
}

/// Switches sampling on in a process and all below it.
pub(super) fn begin(root: Pid, arguments: &ProfileArguments) -> Result<SampledTree> {
    let mean_bytes = arguments.mean_bytes.unwrap_or(MEAN_BYTES);
    let tree = SampledTree::begin(root, arguments.alone, mean_bytes)?;
    if tree.was_on() && arguments.mean_bytes.is_some() {
        terminal::note(&format!(
            "sampling was on already, so --mean-bytes has no effect; to change it: snug set {root} {SETTING}=BYTES"
        ));
    }
    Ok(tree)
}

/// Says which processes are missing, and why.
pub(super) fn tell_left_out(reasons: &[String]) {
    for reason in reasons.iter().take(REASONS_TOLD) {
        terminal::note(&format!("left out: {reason}"));
    }
    let more = reasons.len().saturating_sub(REASONS_TOLD);
    if more > 0 {
        terminal::note(&format!("left out: {more} more"));
    }
}

/// Samples a process and all below it.
pub(super) fn measure(root: Pid, arguments: &ProfileArguments) -> Result<MeasuredProfile> {
    let mut children = Children::new()?;
    let end = EndingTold::of_running(root).map_err(|_| {
        Failure::new(format!("process {root} ended before its samples were read")).exit_code(UNKNOWN)
    })?;
    let command = Inspector::new(String::new()).command(root);
    let mut watch = TreeWatch {
        arguments,
        tree: begin(root, arguments)?,
        processes: Vec::new(),
        begin: Instant::now(),
        begin_ns: monotonic_ns(),
        looks: 0,
        peak_bytes: f64::NEG_INFINITY,
        failure: None,
    };
    let message = format!("sampling {root}; Ctrl-C ends it with what there is");
    let watch_for = arguments.watch_for.unwrap_or(WATCH_FOR);
    progress::during(&message, Some(watch_for), || watch.follow(&end, watch_for, &mut children));
    let duration = watch.begin.elapsed();
    let views = watch.tell_gaps(root).map(|()| watch.views());
    let left_out: Vec<String> = watch.tree.left_out().into_iter().map(String::from).collect();
    let was_on = watch.tree.was_on();
    watch.tree.finish(arguments.keep);
    let views = views?;
    tell_left_out(&left_out);
    let processes = watch.processes.iter().filter(|process| process.is_last(watch.looks)).count();
    let below = terminal::counted(processes.saturating_sub(1), "process");
    let means = watch.processes.iter().map(|process| process.looks.last().mean_bytes);
    let mean_bytes = means.max().unwrap_or(0);
    Ok(MeasuredProfile {
        pid: root,
        processes,
        subject: if processes > 1 { format!("{root} and {below} below it") } else { root.to_string() },
        command,
        duration,
        views,
        mean_bytes,
        first_mean_bytes: match was_on {
            true => mean_bytes,
            false => arguments.mean_bytes.unwrap_or(MEAN_BYTES).into(),
        },
        hides_small_objects: watch.processes.iter().any(|process| process.hides_small_objects),
        failed: false,
    })
}

impl ProfiledProcess {
    fn is_last(&self, looks: usize) -> bool {
        self.last_look == looks
    }
}

impl TreeWatch<'_> {
    /// Looks until the time is over, the processes have ended, or a signal asks to stop.
    fn follow(&mut self, end: &EndingTold, watch_for: Duration, children: &mut Children) {
        let look_every_s = if self.arguments.wants_peak() { LOOK_FOR_PEAK_EVERY_S } else { LOOK_EVERY_S };
        let mut pace = Pace::new(look_every_s, LOOKING_SHARE);
        let mut is_first = true;
        loop {
            let left = watch_for.saturating_sub(self.begin.elapsed());
            let now_s = self.begin.elapsed().as_secs_f64();
            if is_first || left.is_zero() || now_s >= pace.next_s {
                let before = system::thread_cpu();
                self.look();
                pace.looked(now_s, (system::thread_cpu() - before).as_secs_f64());
            }
            is_first = false;
            let has_ended = !self.tree.is_root_alive();
            if left.is_zero() || has_ended && self.tree.sampled().is_empty() {
                return;
            }
            let wait = Duration::from_secs_f64((pace.next_s - self.begin.elapsed().as_secs_f64()).max(0.0));
            let (descriptor, ask_within) = match has_ended {
                true => (None, Duration::MAX),
                false => (end.descriptor(), end.ask_within()),
            };
            if children.wait_beside(wait.min(left).min(ask_within), descriptor) {
                return self.look();
            }
            if !has_ended && end.has_ended() {
                self.look();
            }
        }
    }

    /// Reads all processes once.
    fn look(&mut self) {
        self.tree.look();
        let (mut read_now, mut failed) = (Vec::new(), Vec::new());
        for (process, parent) in self.tree.sampled() {
            let profile = read(process.pid, process.page).map(Option::unwrap_or_default);
            let maps = |profile: &Profile| maps_beside(process.pid, process.page, profile);
            match profile.and_then(|profile| maps(&profile).map(|maps| (profile, maps))) {
                Ok((profile, maps)) => read_now.push((process, parent, profile, maps)),
                Err(failure) => failed.push((process, failure)),
            }
        }
        self.failure = self.of_those_that_stay(failed);
        if read_now.is_empty() {
            return;
        }
        self.looks += 1;
        // What a forked process has from its parent is compared with the parent's state before this look.
        let new: Vec<ProfiledProcess> = read_now
            .iter()
            .filter_map(|(process, parent, profile, _)| self.joined(*process, *parent, profile))
            .collect();
        self.processes.extend(new);
        let (mut sum_bytes, mut seen) = (0.0, SeenBlocks::default());
        for (process, _, profile, maps) in read_now {
            let looks = self.looks;
            let Some(known) = self.processes.iter_mut().find(|known| known.process == process) else {
                continue;
            };
            let live = profile.live.iter().filter(|sample| seen.is_new(sample));
            sum_bytes += live.map(|sample| sample.weight_bytes).sum::<f64>();
            known.hides_small_objects = hides_small_objects(process.pid, &profile);
            known.looks.note(profile, maps);
            known.last_look = looks;
        }
        if self.arguments.wants_peak() && sum_bytes > self.peak_bytes {
            self.peak_bytes = sum_bytes;
            for known in &mut self.processes {
                known.looks.note_peak(known.last_look == self.looks);
            }
        }
    }

    /// Why one could not be read that has neither ended nor executed another program.
    fn of_those_that_stay(&mut self, failed: Vec<(SnugProcess, Failure)>) -> Option<Failure> {
        if failed.is_empty() {
            return None;
        }
        self.tree.look();
        let sampled = self.tree.sampled();
        let stays = |process: &SnugProcess| {
            let end = EndingTold::of_running(process.pid);
            sampled.iter().any(|(now, _)| now == process)
                && end.is_ok_and(|end| !end.ends_within(ENDS_WITHIN))
        };
        failed.into_iter().rev().find_map(|(process, failure)| stays(&process).then_some(failure))
    }

    /// A process that is new here.
    fn joined(&self, process: SnugProcess, parent: Pid, now: &Profile) -> Option<ProfiledProcess> {
        if self.processes.iter().any(|known| known.process == process) {
            return None;
        }
        // The same program at the same place: it was forked, if not by its parent then by one that has ended.
        let relatives = self.processes.iter().filter(|known| known.process.page == process.page);
        let before = match relatives.max_by_key(|known| (known.process.pid == parent, known.last_look)) {
            Some(known) => Some(known.looks.last().clone()),
            None if self.looks == 1 => Some(now.clone()),
            None => None,
        };
        Some(ProfiledProcess {
            process,
            looks: Looks::new(self.begin_ns, before),
            root: root_key(process.pid),
            hides_small_objects: false,
            last_look: 0,
        })
    }

    /// Says what is missing. Fails if nothing was read.
    fn tell_gaps(&mut self, root: Pid) -> Result<()> {
        let after = duration(self.begin.elapsed().as_secs_f64());
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.looks < 2 {
            let ended = format!("process {root} ended after {after}, before its samples were read");
            return Err(Failure::new(ended).exit_code(UNKNOWN));
        }
        if self.tree.sampled().is_empty() {
            terminal::note(&format!(
                "process {root} ended after {after}; this is what was seen at the last look"
            ));
        }
        Ok(())
    }

    /// The views that are shown, of all processes together.
    fn views(&self) -> Vec<MeasuredView> {
        let mut symbols: HashMap<&RootKey, Symbols> = HashMap::new();
        let views = self.arguments.views().map(|view| {
            let (mut found, mut dropped, mut seen) = (Vec::new(), 0, SeenBlocks::default());
            // What one held that has ended is nobody's any more.
            let has_ended_counts = matches!(view, ProfileView::Allocated | ProfileView::Peak);
            let shown = |process: &&ProfiledProcess| has_ended_counts || process.is_last(self.looks);
            for process in self.processes.iter().filter(shown) {
                let symbols = symbols.entry(&process.root).or_insert_with(|| self.symbols(&process.root));
                found.extend(process.looks.sites(view, process.process.pid, symbols, &mut seen));
                dropped += process.looks.dropped(view);
            }
            self.arguments.chosen(view, sites::merge(found), dropped)
        });
        views.collect()
    }

    /// Of a root: files are read through a process that is alive, if there is one.
    fn symbols(&self, root: &RootKey) -> Symbols {
        let alive = self.tree.sampled();
        let mut here = alive.iter().map(|(process, _)| process.pid).filter(|pid| root_key(*pid) == *root);
        let symbols = here.next().map(|pid| Symbols::new(pid, Vec::new()));
        symbols.unwrap_or_else(|| Symbols::of_ended(0, Vec::new())).with_lines()
    }
}

fn root_key(pid: Pid) -> RootKey {
    let thread = proc::living(pid);
    let mounts = std::fs::read_link(format!("/proc/{thread}/ns/mnt")).unwrap_or_default();
    let root = std::fs::metadata(format!("/proc/{thread}/root"));
    let (device, inode) = root.map_or((0, 0), |root| (root.dev(), root.ino()));
    (mounts.to_string_lossy().into_owned(), device, inode)
}
