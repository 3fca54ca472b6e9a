//! Follows the processes below this one: which belong to the tree, which of them are measured, and whether the
//! allocator is mapped in them. Reads through `Processes`; decides nothing about when to look (see `pace`), adds up
//! nothing (see `sample`), and spawns nothing.
//!
//! Every process below this one belongs to the tree. That includes daemons: this process inherits orphans, so a process
//! that was forked twice appears again as its direct child.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use regex_lite::Regex;

use snug_compare::results::{Loaded, ProcessSeen};
use snug_inspect::kinds::Kind;
use snug_process::follow::{Depth, Follower, Process};
use snug_process::maps::{self, Mapping};
use snug_process::proc::{self, Pid, Processes, Rollup, Stat};

/// A process without its C library after this long will not load anything any more.
const LOADING_TAKES_AT_MOST_S: f64 = 1.0;
/// Command lines of processes younger than this are read again every so often: they may have called exec. Mostly
/// their name changes then, too, and that is seen at once.
const YOUNG_S: f64 = 1.0;
const YOUNG_READ_EVERY_S: f64 = 0.1;
/// And those of older ones every so often: many servers change their title.
const READ_EVERY_S: f64 = 2.0;

/// The whole state of a process is read this often once it is no longer young; its resident size, which costs a fifth
/// of that, each time.
const STATE_EVERY_S: f64 = 0.25;

/// What to look for in the tree.
#[derive(Debug, Clone, Default)]
pub struct TrackOptions {
    /// Measure only processes whose command line matches.
    pub only: Option<Regex>,
    /// The library that must be mapped in each of them, without links in its path.
    pub library: Option<PathBuf>,
}

/// What is kept of a process below this one.
struct Tracked {
    /// It makes the load and is not measured.
    load: bool,
    command: String,
    command_since_s: f64,
    command_read_s: f64,
    measured: bool,
    ever_measured: bool,
    first_s: f64,
    last_s: f64,
    rss_peak_pages: u64,
    /// None: not decided yet.
    loaded: Option<Loaded>,
    /// Its mappings may not be read.
    is_unreadable: bool,
}

/// The processes of one run.
pub struct Tracker<P: Processes> {
    processes: Follower<P, Tracked>,
    own: Pid,
    target: TrackOptions,
    page_size_bytes: u64,
    ticks_per_s: f64,
    /// The next reading is one of the whole state of all processes.
    whole_state: bool,
    /// Process groups that make the load, and all processes that did.
    load_groups: Vec<Pid>,
    load: HashSet<Pid>,
    ended: Vec<(ProcessSeen, Stat)>,
    /// Their CPU ticks and page faults.
    used_by_ended: (u64, u64),
    found: Vec<String>,
    unreadable: u32,
    buffer: Vec<u8>,
}

/// What is known of the processes once all have ended.
pub struct Ended {
    /// The measured ones, with their state when they were last read.
    pub processes: Vec<(ProcessSeen, Stat)>,
    /// Allocators found in processes that were to use their own.
    pub found: Vec<String>,
    /// Times a process could not be read in detail, as setuid ones can't.
    pub unreadable: u32,
}

impl<P: Processes> Tracker<P> {
    /// `own` is the root whose descendants are tracked.
    pub fn new(
        source: P,
        own: Pid,
        target: TrackOptions,
        page_size_bytes: u64,
        ticks_per_s: f64,
    ) -> Tracker<P> {
        Tracker {
            processes: Follower::new(source),
            own,
            target,
            page_size_bytes,
            ticks_per_s,
            whole_state: false,
            load_groups: Vec::new(),
            load: HashSet::new(),
            ended: Vec::new(),
            used_by_ended: (0, 0),
            found: Vec::new(),
            unreadable: 0,
            buffer: Vec::new(),
        }
    }

    #[cfg(test)]
    pub fn source(&mut self) -> &mut P {
        &mut self.processes.source
    }

    /// Takes note of the processes that exist before the program starts, which makes the first reading quick.
    pub fn look_around(&mut self) {
        self.look(0.0, |_, _| Depth::Nothing);
    }

    /// Processes of this group, and those they start, make the load: they are not measured. To be called before
    /// the next reading.
    pub fn leave_out(&mut self, group: Pid) {
        if !self.load_groups.contains(&group) {
            self.load_groups.push(group);
        }
    }

    /// Those groups.
    pub fn load_groups(&self) -> &[Pid] {
        &self.load_groups
    }

    /// Whether a process makes the load.
    pub fn is_load(&self, pid: Pid) -> bool {
        self.load_groups.contains(&pid) || self.processes.get(pid).is_some_and(|process| process.note.load)
    }

    /// Processes that made the load, as far as they were seen.
    pub fn load(&self) -> HashSet<Pid> {
        self.load.iter().chain(&self.load_groups).copied().collect()
    }

    /// Lets the next reading be exact in CPU time and page faults, too.
    pub fn refresh_all(&mut self) {
        self.whole_state = true;
    }

    /// Reads resident sizes. `each` gets the state of every measured process that holds memory.
    pub fn read(&mut self, now_s: f64, each: &mut dyn FnMut(&Stat)) {
        let whole_state = self.whole_state;
        self.look(now_s, |_, process| {
            let is_young = now_s - process.note.first_s < YOUNG_S;
            match process.note.load {
                true => Depth::Nothing,
                false if is_young || whole_state || now_s - process.read_s >= STATE_EVERY_S => Depth::State,
                false => Depth::Size,
            }
        });
        for pid in self.measurable() {
            if !self.update(pid, now_s) {
                continue;
            }
            self.look_for_allocator(pid, now_s);
            let Some(process) = self.processes.get(pid) else { continue };
            if process.note.measured && process.stat.rss_pages > 0 {
                each(&process.stat);
            }
        }
        self.whole_state = false;
    }

    /// Reads proportional and unique set sizes of the processes that the last `read` saw.
    pub fn read_details(&mut self, now_s: f64, each: &mut dyn FnMut(Pid, &Rollup)) {
        for pid in self.measurable() {
            let Some(process) = self.processes.get(pid) else { continue };
            if now_s - process.note.command_read_s >= READ_EVERY_S {
                self.refresh_command(pid, now_s);
            }
            if self.processes.get(pid).is_none_or(|process| !process.note.measured) {
                continue;
            }
            match self.processes.source.read(pid, "smaps_rollup", &mut self.buffer) {
                Ok(()) => {
                    if let Some(rollup) = proc::parse_smaps_rollup(&self.buffer) {
                        each(pid, &rollup);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.unreadable += 1,
                // It has ended; the buffer holds what was read of another.
                Err(_) => {}
            }
        }
    }

    /// CPU seconds and page faults of the measured processes since the start, also of those that have ended.
    pub fn used_so_far(&self) -> (f64, u64) {
        let alive = self.processes.iter().filter(|(_, process)| process.note.ever_measured);
        let (ticks, faults) = alive.fold(self.used_by_ended, |(ticks, faults), (_, process)| {
            (ticks + process.stat.ticks(), faults + process.stat.faults())
        });
        (ticks as f64 / self.ticks_per_s, faults)
    }

    /// Processes of the tree that are alive, with their commands; for stopping them.
    pub fn alive(&mut self, now_s: f64) -> Vec<(Pid, String)> {
        self.look(now_s, |_, _| Depth::State);
        let tree: Vec<Pid> = self.processes.iter().map(|(pid, _)| pid).collect();
        let alive = tree.into_iter().filter(|pid| self.update(*pid, now_s)).collect::<Vec<Pid>>();
        alive
            .into_iter()
            .filter_map(|pid| Some((pid, self.processes.get(pid)?.note.command.clone())))
            .collect()
    }

    /// Ends the run.
    pub fn finish(mut self) -> Ended {
        for (pid, process) in self.processes.leave_all() {
            self.end(pid, process);
        }
        Ended { processes: self.ended, found: self.found, unreadable: self.unreadable }
    }

    fn note(&mut self, pid: Pid) -> Option<&mut Tracked> {
        self.processes.get_mut(pid).map(|process| &mut process.note)
    }

    /// The tree without what makes the load.
    fn measurable(&self) -> Vec<Pid> {
        let measurable = self.processes.iter().filter(|(_, process)| !process.note.load);
        measurable.map(|(pid, _)| pid).collect()
    }

    /// Finds processes that have come or gone, and reads the others. Who was outside of the tree once stays so.
    fn look(&mut self, now_s: f64, depth: impl Fn(Pid, &Process<Tracked>) -> Depth) {
        let (own, load_groups, all_load) = (self.own, &self.load_groups, &mut self.load);
        let news = self.processes.look(now_s, depth, |pid, stat, parent| {
            let is_below = pid != own && (stat.parent == own || parent.is_some());
            let load = parent.is_some_and(|parent| parent.load) || load_groups.contains(&stat.group);
            if is_below && load {
                all_load.insert(pid);
            }
            is_below.then(|| Tracked::new(load, now_s))
        });
        for (pid, process) in news.gone {
            self.end(pid, process);
        }
        for pid in &news.executed {
            if let Some(tracked) = self.note(*pid) {
                tracked.command_since_s = now_s;
                (tracked.loaded, tracked.is_unreadable) = (None, false);
            }
        }
        for pid in news.executed.into_iter().chain(news.renamed) {
            self.refresh_command(pid, now_s);
        }
    }

    /// Takes note of what was read of a process. False if only its exit status is left.
    fn update(&mut self, pid: Pid, now_s: f64) -> bool {
        let Some(process) = self.processes.get_mut(pid) else { return false };
        let tracked = &mut process.note;
        tracked.rss_peak_pages = tracked.rss_peak_pages.max(process.stat.rss_pages);
        if process.stat.has_ended() {
            return false;
        }
        tracked.last_s = now_s;
        let is_old = now_s - tracked.command_read_s >= YOUNG_READ_EVERY_S;
        if tracked.command.is_empty() || is_old && now_s - tracked.first_s < YOUNG_S {
            self.refresh_command(pid, now_s);
        }
        true
    }

    /// Reads the command line again and decides anew whether the process is measured.
    fn refresh_command(&mut self, pid: Pid, now_s: f64) {
        if self.processes.source.read(pid, "cmdline", &mut self.buffer).is_err() {
            return;
        }
        let command = proc::parse_command_line(&self.buffer);
        let Some(Process { note: tracked, .. }) = self.processes.get_mut(pid) else { return };
        tracked.command_read_s = now_s;
        if command.is_empty() || command == tracked.command {
            return;
        }
        tracked.command = command;
        tracked.command_since_s = now_s;
        (tracked.loaded, tracked.is_unreadable) = (None, false);
        let matches = self.target.only.as_ref().is_none_or(|only| only.is_match(&tracked.command));
        tracked.measured = matches && !tracked.load;
        tracked.ever_measured |= tracked.measured;
    }

    /// Decides from the mappings whether the allocator is loaded. The loader maps preloaded libraries before
    /// the C library: when that is there and ours is not, it never will be, if the list was whole.
    fn look_for_allocator(&mut self, pid: Pid, now_s: f64) {
        let Some(tracked) = self.note(pid) else { return };
        if !tracked.measured || tracked.loaded.is_some() {
            return;
        }
        let age_s = now_s - tracked.command_since_s;
        if self.target.library.is_none() && age_s <= LOADING_TAKES_AT_MOST_S / 4.0 {
            return;
        }
        let read = self.processes.source.read(pid, "maps", &mut self.buffer);
        let Some(tracked) = self.note(pid) else { return };
        tracked.is_unreadable =
            read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        let maps = if read.is_ok() { maps::parse_maps(&self.buffer) } else { Vec::new() };
        if maps.is_empty() {
            return;
        }
        let library = self.target.library.as_ref().map(|library| library.to_string_lossy());
        let holds_library = |maps: &[Mapping]| {
            library.as_ref().is_some_and(|library| maps.iter().any(|m| m.path == *library))
        };
        let is_missing = library.is_some() && !holds_library(&maps);
        if is_missing && !self.still_maps(pid, &maps) {
            return;
        }
        let Some(Process { note: tracked, .. }) = self.processes.get_mut(pid) else { return };
        let is_c_library = |mapping: &Mapping| {
            Kind::from_file_name(&mapping.path).is_some_and(Kind::is_c_library) && mapping.executable
        };
        match &self.target.library {
            Some(_) => {
                if !is_missing {
                    tracked.loaded = Some(Loaded::Yes);
                } else if maps.iter().any(is_c_library) || age_s > LOADING_TAKES_AT_MOST_S {
                    tracked.loaded = Some(Loaded::No);
                }
            }
            None => {
                tracked.loaded = Some(Loaded::NotAsked);
                for name in allocator_files(&maps) {
                    if !self.found.contains(&name) {
                        self.found.push(name);
                    }
                }
            }
        }
    }

    /// Whether a second reading shows the same files. The list of mappings of a process that ends, or executes another
    /// program, while it is read is cut short anywhere; what is read after that is empty, or another program's.
    fn still_maps(&mut self, pid: Pid, maps: &[Mapping]) -> bool {
        self.processes.source.read(pid, "maps", &mut self.buffer).is_ok()
            && maps::parse_maps(&self.buffer) == maps
    }

    /// Takes note of a process that has ended.
    fn end(&mut self, pid: Pid, Process { stat, note: tracked, .. }: Process<Tracked>) {
        if !tracked.ever_measured {
            return;
        }
        let (ticks, faults) = (stat.ticks(), stat.faults());
        self.used_by_ended.0 += ticks;
        self.used_by_ended.1 += faults;
        let unseen = match (&self.target.library, tracked.is_unreadable) {
            (None, _) => Loaded::NotAsked,
            (Some(_), true) => Loaded::Unreadable,
            (Some(_), false) => Loaded::TooShort,
        };
        let seen = ProcessSeen {
            pid,
            command: tracked.command.chars().take(200).collect(),
            first_s: tracked.first_s,
            last_s: tracked.last_s,
            rss_peak_bytes: tracked.rss_peak_pages * self.page_size_bytes,
            cpu_s: ticks as f64 / self.ticks_per_s,
            allocator_loaded: tracked.loaded.unwrap_or(unseen),
        };
        self.ended.push((seen, stat));
    }
}

impl Tracked {
    fn new(load: bool, now_s: f64) -> Tracked {
        Tracked {
            load,
            command: String::new(),
            command_since_s: now_s,
            command_read_s: now_s,
            measured: false,
            ever_measured: false,
            first_s: now_s,
            last_s: now_s,
            rss_peak_pages: 0,
            loaded: None,
            is_unreadable: false,
        }
    }
}

/// Files of known allocators, other than the C library, that are mapped.
fn allocator_files(maps: &[Mapping]) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for mapping in maps {
        let kind = Kind::from_file_name(&mapping.path);
        if kind.is_some_and(|kind| !kind.is_c_library()) && !files.contains(&mapping.path) {
            files.push(mapping.path.clone());
        }
    }
    files
}

#[cfg(test)]
mod tests;
