//! Samples of running processes: switching them on, reading them, and naming where they were taken.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

use crate::keeping::{self, KeepingLine, KeptAtStack, KeptInAll};
use crate::sites::{self, Frame, Site, SourceLine};
use snug_base::failure::{Context, Failure, Result, UNKNOWN};
use snug_heap::profile::{self, LanguageFrame, LiveSample, Profile, SampledStack};
use snug_live::control;
use snug_live::record::SnugProcess;
use snug_live::sampling_lease::{SamplingEnd, SamplingLease};
use snug_process::maps::{self, Mapping};
use snug_process::proc::{self, Pid};
use snug_process::symbols::Symbols;

/// The variable with the library's settings.
pub const VARIABLE: &str = "SNUG";
/// The setting of the library that switches sampling on.
pub const SETTING: &str = "profile";
/// Bytes between two samples, on average, unless the command line says otherwise.
pub const MEAN_BYTES: u32 = 512 << 10;
/// The same in a watch, which may be short, of a leak that may be slow. Where much is allocated the library's budget of
/// samples makes it longer.
const WATCH_MEAN_BYTES: u32 = 64 << 10;
/// How long to wait for the answer of a process that sampling is to end in: it ends at its next slow call all the same.
const SHORT_WAIT: Duration = Duration::from_millis(20);
/// A stack by its number, and what of it was chosen, without frames.
pub type Chosen = (u32, Site);

/// What a sampled block stands for, at its stack.
pub fn chosen(sample: &LiveSample) -> Chosen {
    (sample.stack, Site::of_sample(sample.weight_bytes, sample.blocks))
}

/// Settings with sampling behind them, unless it is on by them. The library takes the last of two.
pub fn with_sampling(existing: &OsStr, mean_bytes: u32) -> Option<OsString> {
    let mut all = existing.to_os_string();
    let existing = existing.to_string_lossy();
    let settings = existing.split(',').filter_map(|word| word.split_once(':'));
    let sampling = settings.filter(|(name, _)| name.trim() == SETTING);
    let last = sampling.rev().find_map(|(_, value)| value.trim().parse::<u32>().ok());
    if last.is_some_and(|value| value != 0) {
        return None;
    }
    let separator = if existing.trim().is_empty() { "" } else { "," };
    all.push(format!("{separator}{SETTING}:{mean_bytes}"));
    Some(all)
}

/// The samples of a process whose page of counters lies at the address; None: none were ever taken.
pub fn read(pid: Pid, page: u64) -> Result<Option<Profile>> {
    profile::read(pid, page).map_err(|why| {
        Failure::new(format!("the samples of process {pid} can't be read: {why}")).exit_code(UNKNOWN)
    })
}

/// As the library's coarse clock has it, which may lag by some milliseconds.
pub fn monotonic_ns() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC_COARSE;
    let now = nix::time::clock_gettime(clock).map(Duration::from).unwrap_or_default();
    now.as_nanos() as u64
}

/// The mappings of a process whose samples were read just now. Fails if it has ended since, or executed another program:
/// addresses of one program mean nothing in another.
pub fn maps_beside(pid: Pid, page: u64, profile: &Profile) -> Result<Vec<Mapping>> {
    let maps = proc::content(pid, "maps").cannot(|| format!("read the mappings of {pid}"))?;
    // Of a process that has ended the kernel gives an empty file.
    let maps = Some(maps::parse_maps(&maps)).filter(|maps| !maps.is_empty());
    maps.filter(|_| profile::is_still_of(pid, page, profile)).ok_or_else(|| {
        let changed = format!("process {pid} ended or executed another program while it was read");
        Failure::new(changed).exit_code(UNKNOWN)
    })
}

/// Merges what was chosen of a profile into sites with names.
pub fn sites_of(symbols: &mut Symbols, profile: &Profile, chosen: Vec<Chosen>) -> Vec<Site> {
    let mut names: HashMap<u32, Vec<Frame>> = HashMap::new();
    let mut frames = |number: u32| {
        let stack = profile.stacks.get(&number);
        let named = names.entry(number);
        named.or_insert_with(|| frames_of(profile, stack, |address| native_frame(symbols, address))).clone()
    };
    sites::merge(chosen.into_iter().map(|(number, site)| Site { frames: frames(number), ..site }))
}

/// The frame at an address in native code, or in code made at run time.
pub fn native_frame(symbols: &mut Symbols, address: u64) -> Frame {
    let place = symbols.place(address);
    if let (Some(line), true) = (&place.line, place.path.is_empty()) {
        return Frame::new(place.function, line.file.clone(), line.line);
    }
    let source = place.line.map(|line| SourceLine { file: line.file, line: line.line });
    Frame { function: place.function, file: place.path, line: 0, source }
}

/// The frame of a stack that people look for. `native` names addresses, where that frame may be native.
pub fn telling_frame_of(
    profile: &Profile,
    stack: Option<&SampledStack>,
    native: impl FnMut(u64) -> Frame,
) -> Frame {
    // Native frames have no line.
    if let Some(frame) = stack.and_then(|stack| stack.language.iter().find(|frame| frame.line > 0)) {
        return language_frame(frame);
    }
    let mut frames = frames_of(profile, stack, native);
    frames.swap_remove(sites::telling_frame(&frames))
}

fn language_frame(frame: &LanguageFrame) -> Frame {
    Frame::new(&*frame.label, &*frame.path, frame.line)
}

/// Names of the frames of a stack, of which `native` names addresses, and what is to be known about them. None: the
/// library found no room for it.
fn frames_of(
    profile: &Profile,
    stack: Option<&SampledStack>,
    native: impl FnMut(u64) -> Frame,
) -> Vec<Frame> {
    let unknown = SampledStack { tags: profile::TAG_NO_ROOM, ..SampledStack::default() };
    let stack = stack.unwrap_or(&unknown);
    let native = stack.native.iter().copied().map(native);
    let language = stack.language.iter().map(language_frame);
    let mut frames = sites::splice(native.collect(), language.collect());
    let unread = profile.unread_language.as_deref().or_else(|| sites::unread_interpreter(&frames));
    if let (Some(name), true) = (unread, stack.language.is_empty()) {
        sites::mark_unread(&mut frames, name);
    }
    let note = |text: &str| Frame { function: text.into(), ..Frame::default() };
    if stack.tags & profile::TAG_RUBY_GC != 0 {
        frames.push(note("[Ruby's collector]"));
    } else if stack.tags & profile::TAG_RUBY_NO_LOCK != 0 {
        frames.push(note("[without Ruby's lock]"));
    } else if stack.tags & profile::TAG_PYTHON_NO_LOCK != 0 {
        frames.push(note("[without Python's lock]"));
    }
    if stack.tags & profile::TAG_DEEP != 0 {
        frames.push(note("[more frames]"));
    }
    if stack.tags & profile::TAG_NO_ROOM != 0 || frames.is_empty() {
        frames.push(note("[unknown]"));
    }
    frames
}

/// Whether the process runs Python code and leaves small objects to Python's own allocator.
pub fn hides_small_objects(pid: Pid, profile: &Profile) -> bool {
    if !profile.stacks.values().any(|stack| stack.tags & profile::TAG_PYTHON != 0) {
        return false;
    }
    let environment = proc::content(pid, "environ").unwrap_or_default();
    let environment = proc::parse_environment(&environment).unwrap_or_default();
    let mut chosen = environment.into_iter().filter(|(name, _)| name == "PYTHONMALLOC");
    !chosen.any(|(_, allocator)| allocator.starts_with("malloc"))
}

/// Until when a block must have been allocated to count as kept, if it was sampled between these moments and is live.
pub fn kept_until_ns(profile: &Profile, begin_ns: u64, end_ns: u64) -> u64 {
    let sampled = profile.live.iter().filter(|sample| sample.is_of(begin_ns..end_ns));
    let births = sampled.map(|sample| ((sample.time_ns - begin_ns) as f64, sample.weight_bytes));
    begin_ns + keeping::kept_until(births.collect(), end_ns.saturating_sub(begin_ns) as f64) as u64
}

/// The processes of a watch, sampled for its later part.
#[derive(Default)]
pub struct WatchedSamples {
    processes: BTreeMap<Pid, SampledProcess>,
}

struct SampledProcess {
    process: SnugProcess,
    switch: SamplingSwitch,
    /// Since when it is known to be sampled.
    begin_ns: Option<u64>,
}

/// Sampling in one process, which is switched on here unless it is on.
pub struct SamplingSwitch {
    pid: Pid,
    mean_bytes: u32,
    lease: SamplingLease,
    /// It was off before, or was switched on here in the process that this one was forked from.
    pub is_ours: bool,
}

impl SamplingSwitch {
    /// Asks a process to sample. `others_are_ours`: sampling was switched on here in others, and one that was forked since has
    /// it from its parent.
    pub fn on(pid: Pid, mean_bytes: u32, others_are_ours: bool) -> Result<SamplingSwitch> {
        let settings = control::changeable(pid)?;
        let Some((_, value)) = settings.into_iter().find(|(name, _)| name == SETTING) else {
            return Err(Failure::new(format!("the snug in process {pid} takes no samples"))
                .advise("restart the process with a newer libsnug.so"));
        };
        let is_ours = value == "0" || others_are_ours && value == mean_bytes.to_string();
        Ok(SamplingSwitch { pid, mean_bytes, lease: SamplingLease::begin(pid, mean_bytes)?, is_ours })
    }

    /// Whether the process has answered, or samples anyway.
    pub fn has_begun(&self) -> bool {
        matches!(self.lease.has_begun(), Ok(true))
    }

    /// Asks for the end of what began here; None: there is nothing to wait for.
    pub fn off(self) -> Result<Option<SamplingEnd>> {
        self.lease.end()
    }

    /// Has it go on for good.
    pub fn keep(self) -> Result<()> {
        if self.is_ours {
            control::set(self.pid, SETTING, &self.mean_bytes.to_string(), SHORT_WAIT)?;
        }
        Ok(())
    }
}

/// Waits until all these processes have heard of the end, or the time is over.
pub fn await_answers(mut ends: Vec<SamplingEnd>, time: Duration) {
    let begin = Instant::now();
    loop {
        ends.retain(|end| !end.is_heard());
        if ends.is_empty() || begin.elapsed() >= time {
            return;
        }
        std::thread::sleep(control::LOOK_EVERY);
    }
}

impl WatchedSamples {
    /// Whether nothing was sampled so far.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Switches sampling on in those of the processes that are new here.
    pub fn look(&mut self, processes: &[SnugProcess]) {
        for process in processes {
            let known = self.processes.get_mut(&process.pid).filter(|known| known.process == *process);
            if let Some(known) = known {
                known.look();
            } else if let Ok(new) = self.begin(*process) {
                self.processes.insert(process.pid, new);
            }
        }
    }

    fn begin(&self, process: SnugProcess) -> Result<SampledProcess> {
        let others_are_ours = self.processes.values().any(|other| other.switch.is_ours);
        let switch = SamplingSwitch::on(process.pid, WATCH_MEAN_BYTES, others_are_ours)?;
        let begin_ns = switch.has_begun().then(monotonic_ns);
        Ok(SampledProcess { process, switch, begin_ns })
    }

    /// Returns the lines whose blocks stayed, the fastest first, and what all keep; of processes that have ended nothing is
    /// known.
    pub fn lines(&self) -> (Vec<KeepingLine>, Option<KeptInAll>) {
        let kept: Vec<_> = self.processes.values().filter_map(SampledProcess::kept).flatten().collect();
        (keeping::keeping_lines(&kept), keeping::kept_in_all(&kept))
    }

    /// Ends sampling where it began here.
    pub fn finish(self) {
        // A process may have ended.
        let requests = self.processes.into_values().filter_map(|process| process.switch.off().ok()?);
        await_answers(requests.collect(), SHORT_WAIT);
    }
}

impl SampledProcess {
    fn look(&mut self) {
        if self.begin_ns.is_none() && self.switch.has_begun() {
            self.begin_ns = Some(monotonic_ns());
        }
    }

    /// What was allocated early enough and is live, by stack. None: it is not sampled, or can't be read any more.
    fn kept(&self) -> Option<Vec<KeptAtStack>> {
        let begin_ns = self.begin_ns?;
        let SnugProcess { pid, page, .. } = self.process;
        let profile = read(pid, page).ok()??;
        let end_ns = kept_until_ns(&profile, begin_ns, monotonic_ns());
        let span_ns = (end_ns - begin_ns) as f64;
        let mut symbols = Symbols::new(pid, maps_beside(pid, page, &profile).ok()?).with_lines();
        let mut by_stack: BTreeMap<u32, KeptAtStack> = BTreeMap::new();
        let stayed = |sample: &&LiveSample| sample.is_of(begin_ns..end_ns);
        for sample in profile.live.iter().filter(stayed) {
            let kept = by_stack.entry(sample.stack).or_insert_with(|| KeptAtStack {
                frames: frames_of(&profile, profile.stacks.get(&sample.stack), |address| {
                    native_frame(&mut symbols, address)
                }),
                ..KeptAtStack::default()
            });
            let span_s = span_ns / 1e9;
            kept.add(sample.weight_bytes / span_s, sample.weight_by(profile.mean_bytes) / span_s);
        }
        Some(by_stack.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_set_stays() {
        let with = |existing: &str| with_sampling(existing.as_ref(), 4096)?.into_string().ok();
        assert_eq!(with("").as_deref(), Some("profile:4096"));
        assert_eq!(with("background:0").as_deref(), Some("background:0,profile:4096"));
        assert_eq!(with("background:0, profile : 1"), None);
        assert_eq!(with("profile:65536,verbose:1"), None);
        assert_eq!(with("profile:1,profile:0").as_deref(), Some("profile:1,profile:0,profile:4096"));
        assert_eq!(with("profile:many").as_deref(), Some("profile:many,profile:4096"));
    }

    #[test]
    fn a_process_that_has_ended_has_no_mappings() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as Pid;
        let mut ending = nix::sys::wait::WaitPidFlag::WEXITED;
        ending.insert(nix::sys::wait::WaitPidFlag::WNOWAIT);
        nix::sys::wait::waitid(nix::sys::wait::Id::Pid(nix::unistd::Pid::from_raw(pid)), ending).unwrap();
        assert_eq!(std::fs::read(format!("/proc/{pid}/maps")).unwrap(), b"", "the kernel says no error");
        assert!(maps_beside(pid, 0, &Profile::default()).is_err());
        child.wait().unwrap();
    }

    #[test]
    fn the_telling_frame_is_that_of_the_whole_stack() {
        let native = |address: u64| match address {
            1 => Frame::new("malloc", "/l/libsnug.so", 0),
            2 => Frame::new("grow", "/gems/parser.so", 0),
            _ => Frame::new("rb_vm_exec", "/usr/lib/libruby-3.1.so.3.1", 0),
        };
        let line = |line| LanguageFrame { label: "call".into(), path: "a.rb".into(), line };
        let of = |language: Vec<LanguageFrame>, tags| SampledStack {
            native: vec![1, 2, 3],
            language,
            tags,
            ..SampledStack::default()
        };
        let stacks = [
            (Some(of(vec![line(0), line(7)], 0)), "call (a.rb:7)"),
            (Some(of(vec![line(0)], 0)), "grow (parser.so)"),
            (Some(of(vec![], profile::TAG_RUBY_NO_LOCK)), "grow (parser.so)"),
            (Some(SampledStack::default()), "[unknown]"),
            (None, "[unknown]"),
        ];
        let profile = Profile::default();
        for (stack, expected) in &stacks {
            let frames = frames_of(&profile, stack.as_ref(), native);
            let found = telling_frame_of(&profile, stack.as_ref(), native);
            assert_eq!(found, frames[sites::telling_frame(&frames)], "{stack:?}");
            assert_eq!(found.text(), *expected);
        }
        telling_frame_of(&profile, stacks[0].0.as_ref(), |_| {
            panic!("nothing native is named where a line is known")
        });
    }
}
