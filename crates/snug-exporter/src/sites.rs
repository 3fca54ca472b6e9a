//! Functions and lines that hold the memory of processes that sample: the few with most in each program, by names of
//! which there are few, too. Nothing here switches sampling on.
//!
//! What a reading costs: a copy of the tables of samples, and names for stacks that are new. Processes are read as often
//! as a share of one core pays for, the one that has waited longest first.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::metrics::Sample;
use snug_base::terminal::{self, printable};
use snug_heap::profile;
use snug_live::control;
use snug_live::watch::Reading;
use snug_process::proc::Pid;
use snug_process::symbols::Symbols;
use snug_process::system;
use snug_profile::sampling::{maps_beside, native_frame, telling_frame_of, SETTING};
use snug_profile::sites::{self, Frame};

/// What has no place of its own.
const OTHER: &str = "other";
/// Characters of a name at most, and of these the first, which are those of the function. The line is at the end.
const NAME_MAX: usize = 120;
const NAME_BEGIN: usize = 50;
/// Share of one core that reading samples may take, and CPU time that it may use at once.
const READ_SHARE: f64 = 0.005;
const READ_BUDGET_S: f64 = 0.1;
/// What was not used for so long is forgotten.
const FORGET_AFTER_S: f64 = 3600.0;
/// Stacks and addresses that are remembered of a process at most, far more than programs have.
const REMEMBERED_MAX: usize = 1 << 17;
/// A name that was shown keeps its place until another one has so many times its bytes.
const KEEPS_PLACE: f64 = 1.25;

/// PID, start, and address of the page of counters, which another program has elsewhere.
type ProcessKey = (Pid, u64, u64);
/// Role and application: what shares the names.
type NamingGroup = (String, String);

/// Finds the sites of processes, and remembers their names.
pub(crate) struct Sites {
    most: usize,
    processes: HashMap<ProcessKey, ProcessSites>,
    /// When names were shown last, by program.
    shown: HashMap<NamingGroup, HashMap<String, f64>>,
    /// CPU time that reading may still use. The first reading takes what it needs.
    budget_s: f64,
    last_s: Option<f64>,
    /// It was said that the lines of a language can't be named.
    is_told: Cell<bool>,
}

/// What is known of a process that samples.
#[derive(Default)]
struct ProcessSites {
    read_at_s: Option<f64>,
    /// Live bytes by name; None: they can't be read.
    live: Option<BTreeMap<String, f64>>,
    /// When its program began to sample.
    started_ns: u64,
    /// A line of it was named.
    has_lines: bool,
    stacks: Remembered<u32, String>,
    addresses: Remembered<u64, Frame>,
}

/// Values that were found once, and when they were used last.
struct Remembered<K, V>(HashMap<K, (V, f64)>);

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Remembered<K, V> {
        Remembered(HashMap::new())
    }
}

impl<K: std::hash::Hash + Eq, V: Clone> Remembered<K, V> {
    /// The value of a key, found if it is not known.
    fn get(&mut self, key: K, now_s: f64, find: impl FnOnce() -> V) -> V {
        if self.0.len() >= REMEMBERED_MAX && !self.0.contains_key(&key) {
            return find();
        }
        let (value, used_s) = self.0.entry(key).or_insert_with(|| (find(), now_s));
        *used_s = now_s;
        value.clone()
    }

    fn forget(&mut self, now_s: f64) {
        self.0.retain(|_, (_, used_s)| now_s - *used_s < FORGET_AFTER_S);
    }
}

impl Sites {
    /// At most `most` names for each program at a time, beside that of the rest.
    pub(crate) fn new(most: usize) -> Sites {
        Sites {
            most,
            processes: HashMap::new(),
            shown: HashMap::new(),
            budget_s: f64::INFINITY,
            last_s: None,
            is_told: Cell::new(false),
        }
    }

    /// Adds the sites to the samples, which are of the processes of the readings, in their order. `now_s` is a clock
    /// that only goes forward.
    pub(crate) fn add(&mut self, now_s: f64, readings: &[Reading], samples: &mut [Sample]) {
        let keys: Vec<Option<ProcessKey>> = readings.iter().map(key).collect();
        let alive: HashSet<ProcessKey> = keys.iter().flatten().copied().collect();
        self.processes.retain(|key, _| alive.contains(key));
        alive.into_iter().for_each(|key| _ = self.processes.entry(key).or_default());
        self.read(now_s);
        let mut programs: BTreeMap<NamingGroup, Vec<usize>> = BTreeMap::new();
        for (index, sample) in samples.iter().enumerate().filter(|(index, _)| keys[*index].is_some()) {
            let labels = sample.labels.clone().unwrap_or_default();
            programs.entry((labels.role, labels.app)).or_default().push(index);
        }
        for (program, members) in programs {
            let live = |index: &usize| self.processes.get(&keys[*index]?)?.live.as_ref();
            let names = self.shown.entry(program).or_default();
            let chosen = choose(self.most, members.iter().filter_map(live), names);
            chosen.iter().for_each(|name| _ = names.insert(name.clone(), now_s));
            for index in &members {
                samples[*index].sites = live(index).map(|live| divide(live, &chosen)).unwrap_or_default();
            }
        }
        for names in self.shown.values_mut() {
            names.retain(|_, shown_s| now_s - *shown_s < FORGET_AFTER_S);
        }
        self.shown.retain(|_, names| !names.is_empty());
    }

    /// Reads the processes that have waited longest, as far as the budget goes.
    fn read(&mut self, now_s: f64) {
        let elapsed_s = self.last_s.map_or(0.0, |last_s| now_s - last_s);
        if self.last_s.is_some() {
            self.budget_s = (self.budget_s + elapsed_s * READ_SHARE).min(READ_BUDGET_S);
        }
        self.last_s = Some(now_s);
        let mut waiting: Vec<(&ProcessKey, &mut ProcessSites)> = self.processes.iter_mut().collect();
        let read_at_s = |process: &ProcessSites| process.read_at_s.unwrap_or(f64::NEG_INFINITY);
        waiting.sort_by(|left, right| {
            read_at_s(left.1).total_cmp(&read_at_s(right.1)).then_with(|| left.0.cmp(right.0))
        });
        for ((pid, _, page), process) in waiting {
            if self.budget_s <= 0.0 {
                break;
            }
            let before = system::own_cpu();
            process.live = process.read(now_s, *pid, *page, &self.is_told);
            process.read_at_s = Some(now_s);
            self.budget_s -= system::own_cpu().saturating_sub(before).as_secs_f64();
        }
    }
}

impl ProcessSites {
    /// Live bytes by name. None: there are no samples, or they can't be read.
    fn read(
        &mut self,
        now_s: f64,
        pid: Pid,
        page: u64,
        is_told: &Cell<bool>,
    ) -> Option<BTreeMap<String, f64>> {
        let mut profile =
            profile::read_live(pid, page, |stack| self.stacks.0.contains_key(&stack)).ok()??;
        if profile.started_ns != self.started_ns {
            // What is known is of the program that it ran before.
            let knew_none = self.stacks.0.is_empty();
            *self = ProcessSites { started_ns: profile.started_ns, ..ProcessSites::default() };
            if !knew_none {
                profile = profile::read_live(pid, page, |_| false).ok()??;
            }
        }
        let ProcessSites { stacks, addresses, has_lines, .. } = self;
        let tell = |note: String| {
            if !is_told.replace(true) {
                terminal::note(&note);
            }
        };
        profile.unread_language.as_deref().map(sites::unread_text).into_iter().for_each(tell);
        // Symbols are large: read where an address is new, and not kept.
        let (mut symbols, mut has_changed) = (None, false);
        let mut native = |address: u64| {
            addresses.get(address, now_s, || {
                let maps = || maps_beside(pid, page, &profile);
                let begin =
                    || Symbols::new(pid, maps().inspect_err(|_| has_changed = true).unwrap_or_default());
                native_frame(symbols.get_or_insert_with(begin), address)
            })
        };
        let (mut live, mut new): (BTreeMap<String, f64>, Vec<Frame>) = Default::default();
        for sample in &profile.live {
            let stack = profile.stacks.get(&sample.stack);
            let mut find = || {
                let frame = telling_frame_of(&profile, stack, &mut native);
                let name = name_of(&frame.text());
                new.push(frame);
                name
            };
            // The table of a copy may end before a stack that is new.
            let is_whole = stack.is_some() || stacks.0.contains_key(&sample.stack);
            let name = if is_whole { stacks.get(sample.stack, now_s, find) } else { find() };
            *live.entry(name).or_default() += sample.weight_bytes;
        }
        *has_lines |= new.iter().any(|frame| frame.line > 0);
        sites::lacks_language(&new).filter(|_| !*has_lines).into_iter().for_each(tell);
        stacks.forget(now_s);
        addresses.forget(now_s);
        if has_changed {
            *self = ProcessSites::default();
            return None;
        }
        Some(live)
    }
}

/// None: it does not sample, or may not be read.
fn key(reading: &Reading) -> Option<ProcessKey> {
    let settings = &reading.heap.as_ref()?.account.head.settings;
    let samples = control::setting(settings, SETTING).is_some_and(|value| value != "0");
    Some((reading.pid, reading.stat.start_ticks, reading.identity.counters_at?)).filter(|_| samples)
}

/// A label's value for what people read: one line, not too long.
fn name_of(text: &str) -> String {
    let characters: Vec<char> = printable(text).chars().collect();
    if characters.len() <= NAME_MAX {
        return characters.into_iter().collect();
    }
    let end = characters.len() - (NAME_MAX - NAME_BEGIN - 1);
    characters[..NAME_BEGIN].iter().chain(&['…']).chain(&characters[end..]).collect()
}

/// The names with most bytes in all processes of a program; those that were `shown` have an advantage.
fn choose<'a>(
    most: usize,
    processes: impl Iterator<Item = &'a BTreeMap<String, f64>>,
    shown: &HashMap<String, f64>,
) -> HashSet<String> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, bytes) in processes.flatten().filter(|(name, _)| *name != OTHER) {
        *sums.entry(name).or_default() += bytes;
    }
    let rank = |(name, bytes): (&'a str, f64)| {
        (bytes * if shown.contains_key(name) { KEEPS_PLACE } else { 1.0 }, name)
    };
    let mut ranked: Vec<(f64, &str)> = sums.into_iter().map(rank).collect();
    ranked.sort_by(|left, right| right.0.total_cmp(&left.0));
    ranked.into_iter().take(most).map(|(_, name)| name.to_string()).collect()
}

/// The bytes of the chosen names, the most first, and of the rest.
fn divide(live: &BTreeMap<String, f64>, chosen: &HashSet<String>) -> Vec<(String, f64)> {
    let (own, rest): (Vec<_>, Vec<_>) = live.iter().partition(|(name, _)| chosen.contains(*name));
    let mut sites: Vec<(String, f64)> = own.into_iter().map(|(name, bytes)| (name.clone(), *bytes)).collect();
    sites.sort_by(|left, right| right.1.total_cmp(&left.1));
    let other = rest.into_iter().fold(0.0, |sum, (_, bytes)| sum + bytes); // sum() of none is -0.0
    sites.push((OTHER.into(), other));
    sites
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(sites: &[(&str, f64)]) -> BTreeMap<String, f64> {
        sites.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect()
    }

    fn chosen(most: usize, processes: &[BTreeMap<String, f64>], shown: &[&str]) -> Vec<String> {
        let shown = shown.iter().map(|name| (name.to_string(), 0.0)).collect();
        let mut names: Vec<String> = choose(most, processes.iter(), &shown).into_iter().collect();
        names.sort();
        names
    }

    #[test]
    fn a_program_has_so_many_names_in_all_its_processes() {
        let processes =
            [live(&[("a", 60.0), ("b", 50.0), ("c", 1.0)]), live(&[("c", 70.0), ("other", 900.0)])];
        assert_eq!(chosen(2, &processes, &[]), ["a", "c"]);
        assert_eq!(chosen(9, &processes, &[]), ["a", "b", "c"]);
        let names: HashSet<String> = ["a".to_string(), "c".into()].into();
        let divided = |index: usize| divide(&processes[index], &names);
        assert_eq!(divided(0), [("a".into(), 60.0), ("c".into(), 1.0), ("other".into(), 50.0)]);
        assert_eq!(divided(1), [("c".into(), 70.0), ("other".into(), 900.0)]);
    }

    #[test]
    fn names_that_were_shown_keep_their_places() {
        assert_eq!(chosen(1, &[live(&[("a", 100.0), ("b", 81.0)])], &["b"]), ["b"]);
        assert_eq!(chosen(1, &[live(&[("a", 100.0), ("b", 79.0)])], &["b"]), ["a"]);
    }

    #[test]
    fn what_was_not_used_for_an_hour_is_forgotten() {
        let mut remembered = Remembered::default();
        remembered.get("old", 0.0, || 1);
        assert_eq!(remembered.get("used", 0.0, || 2), 2);
        assert_eq!(remembered.get("used", 3000.0, || panic!("it is known")), 2);
        remembered.forget(3700.0);
        assert_eq!(remembered.0.keys().copied().collect::<Vec<_>>(), ["used"]);
        let mut full = Remembered::default();
        (0..=REMEMBERED_MAX).for_each(|key| assert_eq!(full.get(key, 0.0, || key), key));
        assert_eq!(full.get(0, 0.0, || panic!("it is known")), 0);
        assert_eq!(full.0.len(), REMEMBERED_MAX);
        let mut sites = Sites::new(1);
        let names = [("old".to_string(), 0.0), ("new".into(), 3000.0)];
        sites.shown.insert(("puma".into(), String::new()), names.into());
        sites.add(3700.0, &[], &mut []);
        assert_eq!(sites.shown.values().next().unwrap().keys().collect::<Vec<_>>(), ["new"]);
        sites.add(7000.0, &[], &mut []);
        assert!(sites.shown.is_empty());
    }

    #[test]
    fn names_are_lines_of_bounded_length() {
        assert_eq!(name_of("a\nb\t(\"c\")"), "a\u{fffd}b\u{fffd}(\"c\")");
        let long = format!("{} (/{}/order.rb:33)", "é".repeat(200), "d".repeat(200));
        let name = name_of(&long);
        assert_eq!(name.chars().count(), NAME_MAX);
        assert!(
            name.starts_with("ééé") && name.ends_with("d/order.rb:33)") && name.contains("é…d"),
            "{name}"
        );
    }
}
