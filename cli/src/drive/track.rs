//! Follows the processes below this one: which belong to the tree, which of them are measured, and whether the allocator
//! is mapped in them. Reads through `Processes`; decides nothing about when to look (see `pace`), adds up nothing (see
//! `sample`), and spawns nothing.
//!
//! Every process below this one belongs to the tree. That includes daemons: this process is the one that inherits
//! orphans, so whoever is double-forked appears again as its direct child.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

use regex_lite::Regex;

use crate::allocator::kinds::Kind;
use crate::analysis::results::{Loaded, ProcessSeen};
use crate::process::proc::{self, Mapping, Pid, Processes, Rollup, Stat};
use crate::process::tree;

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
pub struct Target {
    /// Measure only processes whose command line matches.
    pub only: Option<Regex>,
    /// The library that must be mapped in each of them, without links in its path.
    pub library: Option<PathBuf>,
}

/// A process below this one.
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
    stat: Stat,
    stat_read_s: f64,
    rss_peak_pages: u64,
    /// None: not decided yet.
    loaded: Option<Loaded>,
    /// Its mappings may not be read.
    is_unreadable: bool,
}

/// The processes of one run.
pub struct Tracker<P: Processes> {
    source: P,
    own: Pid,
    target: Target,
    page_size_bytes: u64,
    ticks_per_s: f64,
    /// Every process that exists; None for those outside of the tree.
    known: HashMap<Pid, Option<Tracked>>,
    /// The newest process or thread of the machine when processes were last listed.
    newest: Option<Pid>,
    /// The next reading is one of the whole state of all processes.
    whole_state: bool,
    /// Process groups that make the load.
    load_groups: Vec<Pid>,
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
    pub fn new(source: P, own: Pid, target: Target, page_size_bytes: u64, ticks_per_s: f64) -> Tracker<P> {
        Tracker {
            source,
            own,
            target,
            page_size_bytes,
            ticks_per_s,
            known: HashMap::new(),
            newest: None,
            whole_state: false,
            load_groups: Vec::new(),
            ended: Vec::new(),
            used_by_ended: (0, 0),
            found: Vec::new(),
            unreadable: 0,
            buffer: Vec::new(),
        }
    }

    /// Takes note of the processes that exist before the program starts, which makes the first reading quick.
    pub fn look_around(&mut self) {
        self.refresh_tree(0.0);
    }

    /// Processes of this group, and those they start, make the load: they are not measured. To be called before
    /// the next reading.
    pub fn leave_out(&mut self, group: Pid) {
        self.load_groups.push(group);
    }

    /// Whether a process makes the load.
    pub fn is_load(&self, pid: Pid) -> bool {
        self.load_groups.contains(&pid) || matches!(self.known.get(&pid), Some(Some(tracked)) if tracked.load)
    }

    /// Lets the next reading be exact in CPU time and page faults, too.
    pub fn refresh_all(&mut self) {
        self.whole_state = true;
    }

    /// Reads resident sizes. `each` gets the state of every measured process that holds memory.
    pub fn read(&mut self, now_s: f64, each: &mut dyn FnMut(&Stat)) {
        self.refresh_tree(now_s);
        for pid in self.measurable() {
            if !self.update(pid, now_s) {
                continue;
            }
            self.look_for_allocator(pid, now_s);
            let Some(Some(tracked)) = self.known.get(&pid) else { continue };
            if tracked.measured && tracked.stat.rss_pages > 0 {
                each(&tracked.stat);
            }
        }
        self.whole_state = false;
    }

    /// Reads proportional and unique set sizes of the processes that the last `read` saw.
    pub fn read_details(&mut self, now_s: f64, each: &mut dyn FnMut(&Rollup)) {
        for pid in self.measurable() {
            let Some(Some(tracked)) = self.known.get(&pid) else { continue };
            if now_s - tracked.command_read_s >= READ_EVERY_S {
                self.refresh_command(pid, now_s);
            }
            let Some(Some(tracked)) = self.known.get(&pid) else { continue };
            if !tracked.measured {
                continue;
            }
            match self.source.read(pid, "smaps_rollup", &mut self.buffer) {
                Ok(()) => {
                    if let Some(rollup) = proc::parse_smaps_rollup(&self.buffer) {
                        each(&rollup);
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
        let alive = self.known.values().flatten().filter(|tracked| tracked.ever_measured);
        let (ticks, faults) = alive.fold(self.used_by_ended, |(ticks, faults), tracked| {
            (ticks + tracked.stat.ticks(), faults + tracked.stat.faults())
        });
        (ticks as f64 / self.ticks_per_s, faults)
    }

    /// Processes of the tree that are alive, with their commands; for stopping them.
    pub fn alive(&mut self, now_s: f64) -> Vec<(Pid, String)> {
        self.refresh_tree(now_s);
        let mut alive = Vec::new();
        for pid in self.tree() {
            if self.update(pid, now_s) {
                if let Some(Some(tracked)) = self.known.get(&pid) {
                    alive.push((pid, tracked.command.clone()));
                }
            }
        }
        alive
    }

    /// Ends the run.
    pub fn finish(mut self) -> Ended {
        for pid in self.tree() {
            self.end(pid);
        }
        Ended { processes: self.ended, found: self.found, unreadable: self.unreadable }
    }

    /// Everything below this process.
    fn tree(&self) -> Vec<Pid> {
        self.known.iter().filter(|(_, tracked)| tracked.is_some()).map(|(pid, _)| *pid).collect()
    }

    /// The tree without what makes the load.
    fn measurable(&self) -> Vec<Pid> {
        let is_measurable = |tracked: &Option<Tracked>| tracked.as_ref().is_some_and(|tracked| !tracked.load);
        self.known.iter().filter(|(_, tracked)| is_measurable(tracked)).map(|(pid, _)| *pid).collect()
    }

    /// Finds processes that have come or gone. A process that was outside of the tree once stays so.
    fn refresh_tree(&mut self, now_s: f64) {
        // Listing all processes is most of the cost of a reading. Those that have ended are noticed when read.
        let newest = self.source.newest();
        if newest.is_some() && newest == self.newest {
            return;
        }
        self.newest = newest;
        let Ok(pids) = self.source.pids() else { return };
        let exists: HashSet<Pid> = pids.iter().copied().collect();
        let gone: Vec<Pid> = self.known.keys().filter(|pid| !exists.contains(pid)).copied().collect();
        for pid in gone {
            self.end(pid);
        }
        let mut unknown: Vec<(Pid, Stat)> = Vec::new();
        for pid in pids {
            if pid == self.own || self.known.contains_key(&pid) {
                continue;
            }
            if self.source.read(pid, "stat", &mut self.buffer).is_ok() {
                unknown.extend(proc::parse_stat(&self.buffer).map(|stat| (pid, stat)));
            }
        }
        tree::parents_first(&mut unknown);
        for (pid, stat) in unknown {
            let parent = self.known.get(&stat.parent).and_then(Option::as_ref);
            let tracked = (stat.parent == self.own || parent.is_some()).then(|| {
                let load = parent.is_some_and(|parent| parent.load) || self.load_groups.contains(&stat.group);
                Tracked::new(stat, load, now_s)
            });
            if tracked.is_none() {
                self.source.forget(pid);
            }
            self.known.insert(pid, tracked);
        }
    }

    /// Reads a process of the tree again. False if it is gone or only its exit status is left.
    fn update(&mut self, pid: Pid, now_s: f64) -> bool {
        if self.update_resident(pid, now_s) {
            return true;
        }
        let stat = match self.source.read(pid, "stat", &mut self.buffer) {
            Ok(()) => proc::parse_stat(&self.buffer),
            Err(_) => None,
        };
        let Some(stat) = stat else {
            self.end(pid);
            return false;
        };
        let Some(Some(tracked)) = self.known.get_mut(&pid) else { return false };
        tracked.stat_read_s = now_s;
        let ending = stat.has_ended();
        tracked.rss_peak_pages = tracked.rss_peak_pages.max(stat.rss_pages);
        let renamed = tracked.stat.name != stat.name;
        tracked.stat = stat;
        if ending {
            return false;
        }
        tracked.last_s = now_s;
        let is_old = now_s - tracked.command_read_s >= YOUNG_READ_EVERY_S;
        if tracked.command.is_empty() || renamed || is_old && now_s - tracked.first_s < YOUNG_S {
            self.refresh_command(pid, now_s);
        }
        true
    }

    /// Reads only the resident size, where that will do: of a process whose state was read lately and that lives.
    fn update_resident(&mut self, pid: Pid, now_s: f64) -> bool {
        let Some(Some(tracked)) = self.known.get_mut(&pid) else { return false };
        let is_young = now_s - tracked.first_s < YOUNG_S;
        if is_young || self.whole_state || now_s - tracked.stat_read_s >= STATE_EVERY_S {
            return false;
        }
        let read = self.source.read(pid, "statm", &mut self.buffer);
        let pages = read.ok().and_then(|()| proc::parse_resident_pages(&self.buffer));
        let Some(pages) = pages.filter(|pages| *pages > 0) else { return false };
        tracked.stat.rss_pages = pages;
        tracked.rss_peak_pages = tracked.rss_peak_pages.max(pages);
        tracked.last_s = now_s;
        true
    }

    /// Reads the command line again and decides anew whether the process is measured.
    fn refresh_command(&mut self, pid: Pid, now_s: f64) {
        if self.source.read(pid, "cmdline", &mut self.buffer).is_err() {
            return;
        }
        let command = proc::parse_command_line(&self.buffer);
        let Some(Some(tracked)) = self.known.get_mut(&pid) else { return };
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
        let Some(Some(tracked)) = self.known.get(&pid) else { return };
        if !tracked.measured || tracked.loaded.is_some() {
            return;
        }
        let age_s = now_s - tracked.command_since_s;
        if self.target.library.is_none() && age_s <= LOADING_TAKES_AT_MOST_S / 4.0 {
            return;
        }
        let read = self.source.read(pid, "maps", &mut self.buffer);
        let Some(Some(tracked)) = self.known.get_mut(&pid) else { return };
        tracked.is_unreadable =
            read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        let maps = if read.is_ok() { proc::parse_maps(&self.buffer) } else { Vec::new() };
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
        let Some(Some(tracked)) = self.known.get_mut(&pid) else { return };
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
        self.source.read(pid, "maps", &mut self.buffer).is_ok() && proc::parse_maps(&self.buffer) == maps
    }

    /// Takes note of a process that has ended.
    fn end(&mut self, pid: Pid) {
        self.source.forget(pid);
        let Some(Some(tracked)) = self.known.remove(&pid) else { return };
        if !tracked.ever_measured {
            return;
        }
        let (ticks, faults) = (tracked.stat.ticks(), tracked.stat.faults());
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
        self.ended.push((seen, tracked.stat));
    }
}

impl Tracked {
    fn new(stat: Stat, load: bool, now_s: f64) -> Tracked {
        Tracked {
            load,
            command: String::new(),
            command_since_s: now_s,
            command_read_s: now_s,
            measured: false,
            ever_measured: false,
            first_s: now_s,
            last_s: now_s,
            stat,
            stat_read_s: f64::NEG_INFINITY,
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
