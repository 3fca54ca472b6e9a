//! The report on a program's boot: from the lines of its hook to a tree of files, and sums by library. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::library::{library_of, APPLICATION};
use snug_process::proc::Pid;

/// Memory of a process at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootMemory {
    /// Allocated by malloc and not freed.
    pub live_bytes: u64,
    pub rss_bytes: u64,
}

/// What something cost. Memory may be given back meanwhile: then it is negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BootCost {
    pub live_bytes: i64,
    pub rss_bytes: i64,
    pub time_s: f64,
}

impl BootCost {
    fn between(begin: BootMoment, end: BootMoment) -> BootCost {
        let grown = |old: u64, new: u64| new as i64 - old as i64;
        BootCost {
            live_bytes: grown(begin.memory.live_bytes, end.memory.live_bytes),
            rss_bytes: grown(begin.memory.rss_bytes, end.memory.rss_bytes),
            time_s: end.time_ns.saturating_sub(begin.time_ns) as f64 / 1e9,
        }
    }

    pub fn plus(self, other: BootCost) -> BootCost {
        BootCost {
            live_bytes: self.live_bytes + other.live_bytes,
            rss_bytes: self.rss_bytes + other.rss_bytes,
            time_s: self.time_s + other.time_s,
        }
    }

    pub fn minus(self, other: BootCost) -> BootCost {
        BootCost {
            live_bytes: self.live_bytes - other.live_bytes,
            rss_bytes: self.rss_bytes - other.rss_bytes,
            time_s: (self.time_s - other.time_s).max(0.0),
        }
    }

    /// The larger of its two kinds of memory.
    pub fn memory_bytes(self) -> i64 {
        self.live_bytes.max(self.rss_bytes)
    }
}

/// A file that was loaded because it was required.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RequiredFile {
    /// As it was required; of an absolute path the end.
    pub name: String,
    pub path: String,
    pub library: String,
    /// With all that it requires itself.
    pub cost: BootCost,
    /// Names of others that require it, too, and found it loaded.
    pub also_required_by: Vec<String>,
    /// The costliest first.
    pub required: Vec<RequiredFile>,
}

/// Live objects by where they were allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootObjects {
    pub objects: u64,
    pub bytes: u64,
}

/// What the files of a library cost, each without those that it requires.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LibraryCost {
    pub library: String,
    pub files: u64,
    pub cost: BootCost,
    /// At the end, if that was asked for.
    pub objects: Option<BootObjects>,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BootReport {
    /// The command line.
    pub program: String,
    /// `ruby` or `python`, and its version.
    pub language: String,
    pub language_version: String,
    pub files: u64,
    /// From where the hook was loaded to the end of the program.
    pub cost: BootCost,
    pub at_start: BootMemory,
    pub at_end: BootMemory,
    /// After a last garbage collection; None: the program ended without one.
    pub after_collection: Option<BootMemory>,
    /// The costliest first.
    pub libraries: Vec<LibraryCost>,
    /// Left out when a file is read back: a difference needs no more than the libraries, and files require each other more
    /// deeply than JSON can be read.
    #[serde(skip_deserializing)]
    pub required: Vec<RequiredFile>,
}

impl BootReport {
    /// What `--fail-if` can name.
    pub const QUANTITIES: &'static [&'static str] = &["files", "live_bytes", "rss_bytes", "time_s"];

    /// The same, with values.
    pub fn quantities(&self) -> BTreeMap<String, f64> {
        let end = self.after_collection.unwrap_or(self.at_end);
        let values = [self.files as f64, end.live_bytes as f64, end.rss_bytes as f64, self.cost.time_s];
        BootReport::QUANTITIES.iter().map(ToString::to_string).zip(values).collect()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct BootMoment {
    time_ns: u64,
    memory: BootMemory,
}

#[derive(Debug)]
struct LoadedFile {
    name: String,
    path: String,
    parent: Option<usize>,
    begin: BootMoment,
    end: Option<BootMoment>,
    was_loaded: bool,
}

/// Takes what the hook of a program tells, line by line.
#[derive(Debug, Default)]
pub struct BootRecorder {
    language: String,
    language_version: String,
    start: Option<BootMoment>,
    last: BootMoment,
    end: Option<BootMoment>,
    collected: Option<BootMemory>,
    is_done: bool,
    nodes: Vec<LoadedFile>,
    /// Those that are being loaded, the innermost last.
    open: Vec<usize>,
    /// What was required though it was loaded, and by whom.
    again: Vec<(String, Option<usize>)>,
    /// Paths of names that were required again.
    paths: HashMap<String, String>,
    /// Of modules of Python: who else has it.
    importers: Vec<(String, String)>,
    objects: BTreeMap<String, BootObjects>,
}

/// What a line was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The hook waits for a reply.
    More,
    /// It was none of the hook's.
    Nothing,
}

impl BootRecorder {
    /// Whether a line that begins so is about a moment at which memory is to be read.
    pub fn wants_memory(line: &str) -> bool {
        let kind = line.split(' ').nth(1).unwrap_or_default();
        ["start", "+", "-", "end", "collected"].contains(&kind)
    }

    /// The PID of the program that begins by this line, perhaps anew: it has executed another one.
    pub fn pid_of_start(line: &str) -> Option<Pid> {
        let mut words = line.split(' ').skip(1);
        (words.next()? == "start").then(|| words.next()?.parse().ok()).flatten()
    }

    /// Takes a line. What is not understood is left out: a program may write into what it inherits.
    pub fn take(&mut self, line: &str, memory: BootMemory) -> Told {
        let mut parts = line.splitn(3, ' ');
        let (Some(Ok(time_ns)), Some(kind)) = (parts.next().map(str::parse), parts.next()) else {
            return Told::Nothing;
        };
        let rest = parts.next().unwrap_or_default();
        if BootRecorder::wants_memory(line) {
            self.last = BootMoment { time_ns, memory };
        }
        let now = self.last;
        match kind {
            "start" if BootRecorder::pid_of_start(line).is_none() => return Told::Nothing,
            "start" => self.start(rest, now),
            "+" => self.begin(rest, now),
            "-" => self.finish(rest, now),
            "end" => self.end = Some(now),
            "collected" => self.collected = Some(now.memory),
            "path" => {
                self.paths.extend(rest.split_once('\t').map(|(name, path)| (name.into(), path.into())));
            }
            "importer" => {
                let both = rest.split_once('\t');
                self.importers.extend(both.map(|(name, importer)| (name.into(), importer.into())));
            }
            "objects" => self.count_objects(rest),
            "done" => self.is_done = true,
            _ => return Told::Nothing,
        }
        Told::More
    }

    /// Whether all was told that a program tells which ends by itself.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether there was a hook at all.
    pub fn has_started(&self) -> bool {
        self.start.is_some()
    }

    fn start(&mut self, rest: &str, now: BootMoment) {
        let mut words = rest.split(' ').skip(1).map(String::from);
        let mut word = || words.next().unwrap_or_default();
        let (language, language_version) = (word(), word());
        *self = BootRecorder {
            language,
            language_version,
            start: Some(now),
            last: now,
            ..BootRecorder::default()
        };
    }

    fn begin(&mut self, name: &str, now: BootMoment) {
        let parent = self.open.last().copied();
        self.open.push(self.nodes.len());
        let (name, path) = (name.to_string(), String::new());
        self.nodes.push(LoadedFile { name, path, parent, begin: now, end: None, was_loaded: false });
    }

    fn finish(&mut self, rest: &str, now: BootMoment) {
        let (state, path) = rest.split_once(' ').unwrap_or((rest, ""));
        let Some(index) = self.open.pop() else { return };
        let node = &mut self.nodes[index];
        (node.end, node.was_loaded, node.path) = (Some(now), state == "loaded", path.to_string());
        if state == "again" {
            self.again.push((node.name.clone(), node.parent));
        }
    }

    fn count_objects(&mut self, rest: &str) {
        let mut parts = rest.splitn(3, ' ');
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
        let (objects, bytes) = (number(), number());
        let path = rest.splitn(3, ' ').nth(2).unwrap_or_default();
        let count = self.objects.entry(library_of(path, &self.language)).or_default();
        (count.objects, count.bytes) = (count.objects + objects, count.bytes + bytes);
    }

    /// What was told so far.
    pub fn report(&self, program: &str) -> BootReport {
        let end = self.end.unwrap_or(self.last);
        let start = self.start.unwrap_or(end);
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut roots = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            node.parent.map_or(&mut roots, |parent| &mut below[parent]).push(index);
        }
        let also = self.also_required_by();
        let tree = Tree { recorder: self, below: &below, also: &also, end };
        let required = tree.files(&roots);
        let mut libraries = BTreeMap::new();
        required.iter().for_each(|file| add_up(file, &mut libraries));
        for (library, objects) in &self.objects {
            entry(&mut libraries, library).objects = Some(*objects);
        }
        let mut libraries: Vec<LibraryCost> = libraries.into_values().collect();
        libraries.sort_by_key(|library| -library.cost.memory_bytes());
        BootReport {
            program: program.into(),
            language: self.language.clone(),
            language_version: self.language_version.clone(),
            files: libraries.iter().map(|library| library.files).sum(),
            cost: BootCost::between(start, end),
            at_start: start.memory,
            at_end: end.memory,
            after_collection: self.collected,
            libraries,
            required,
        }
    }

    /// By the index of a file, the names of others that require it.
    fn also_required_by(&self) -> HashMap<usize, BTreeSet<String>> {
        let loaded = || self.nodes.iter().enumerate().filter(|(_, node)| node.was_loaded);
        let by_path: HashMap<&str, usize> =
            loaded().map(|(index, node)| (node.path.as_str(), index)).collect();
        let by_name: HashMap<&str, usize> =
            loaded().map(|(index, node)| (node.name.as_str(), index)).collect();
        let mut also: HashMap<usize, BTreeSet<String>> = HashMap::new();
        for (name, parent) in &self.again {
            let path = self.paths.get(name).unwrap_or(name);
            let found = by_path.get(path.as_str()).or_else(|| by_name.get(name.as_str()));
            let (Some(index), Some(parent)) = (found, parent) else { continue };
            if self.nodes[*index].parent != Some(*parent) && !self.is_below(*parent, *index) {
                also.entry(*index).or_default().insert(short_name(&self.nodes[*parent].name).into());
            }
        }
        for (name, importer) in &self.importers {
            let both = (by_name.get(name.as_str()), by_name.get(importer.as_str()));
            let (Some(index), Some(by)) = both else { continue };
            // A package has each of its modules among its names.
            let is_package = name.strip_prefix(importer.as_str()).is_some_and(|rest| rest.starts_with('.'));
            if self.nodes[*index].parent != Some(*by) && !self.is_below(*by, *index) && !is_package {
                also.entry(*index).or_default().insert(importer.clone());
            }
        }
        also
    }

    /// Whether a file is this one, or was required below it.
    fn is_below(&self, index: usize, above: usize) -> bool {
        std::iter::successors(Some(index), |index| self.nodes[*index].parent).any(|index| index == above)
    }
}

struct Tree<'a> {
    recorder: &'a BootRecorder,
    below: &'a [Vec<usize>],
    also: &'a HashMap<usize, BTreeSet<String>>,
    end: BootMoment,
}

impl Tree<'_> {
    fn files(&self, indices: &[usize]) -> Vec<RequiredFile> {
        let mut files: Vec<RequiredFile> = indices.iter().filter_map(|index| self.file(*index)).collect();
        files.sort_by_key(|file| -file.cost.memory_bytes());
        files
    }

    /// None: it was there, or could not be loaded, and nothing was loaded below it.
    fn file(&self, index: usize) -> Option<RequiredFile> {
        let node = &self.recorder.nodes[index];
        let required = self.files(&self.below[index]);
        if node.end.is_some() && !node.was_loaded && required.is_empty() {
            return None;
        }
        Some(RequiredFile {
            name: short_name(&node.name).into(),
            path: node.path.clone(),
            // Of one that was not loaded to its end there is no path.
            library: match node.path.is_empty() {
                true => APPLICATION.into(),
                false => library_of(&node.path, &self.recorder.language),
            },
            cost: BootCost::between(node.begin, node.end.unwrap_or(self.end)),
            also_required_by: self.also.get(&index).into_iter().flatten().cloned().collect(),
            required,
        })
    }
}

/// Of an absolute path what follows the folder from which libraries are required: `lib`, or `lib/ruby/3.3.0`.
fn short_name(name: &str) -> &str {
    let Some((_, rest)) = name.rsplit_once("/lib/").filter(|_| name.starts_with('/')) else { return name };
    let of_ruby = rest.strip_prefix("ruby/").and_then(|rest| rest.split_once('/'));
    of_ruby.map_or(rest, |(_, rest)| rest)
}

fn entry<'a>(libraries: &'a mut BTreeMap<String, LibraryCost>, name: &str) -> &'a mut LibraryCost {
    libraries
        .entry(name.to_string())
        .or_insert_with(|| LibraryCost { library: name.into(), ..LibraryCost::default() })
}

fn add_up(file: &RequiredFile, libraries: &mut BTreeMap<String, LibraryCost>) {
    let below = file.required.iter().fold(BootCost::default(), |sum, file| sum.plus(file.cost));
    let library = entry(libraries, &file.library);
    library.files += 1;
    library.cost = library.cost.plus(file.cost.minus(below));
    file.required.iter().for_each(|file| add_up(file, libraries));
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::json;

    /// Each line with live and resident kilobytes at that moment.
    pub(crate) fn record(lines: &[(&str, u64, u64)]) -> BootRecorder {
        let mut recorder = BootRecorder::default();
        for (line, live, rss) in lines {
            let memory = BootMemory { live_bytes: live * 1000, rss_bytes: rss * 1000 };
            assert_ne!(recorder.take(line, memory), Told::Nothing, "{line}");
        }
        recorder
    }

    const RUBY: [(&str, u64, u64); 16] = [
        ("0 start 7 ruby 3.3.1", 100, 1000),
        ("1000 + shop", 100, 1000),
        ("2000 + json", 110, 1000),
        ("5000 - loaded /usr/lib/ruby/3.3.0/json.rb", 160, 1300),
        ("6000 + /var/lib/gems/3.3.0/gems/rack-3.0.1/lib/rack/utils.rb", 160, 1300),
        ("6500 + json", 160, 1300),
        ("6600 - again ", 160, 1300),
        ("6700 + nothing", 160, 1300),
        ("6800 - failed ", 160, 1300),
        ("9000 - loaded /var/lib/gems/3.3.0/gems/rack-3.0.1/lib/rack/utils.rb", 260, 1500),
        ("10000 - loaded /app/shop.rb", 300, 1600),
        ("20000 end", 350, 1700),
        ("30000 collected", 320, 1700),
        ("30000 path json\t/usr/lib/ruby/3.3.0/json.rb", 0, 0),
        ("30000 objects 3 120 /var/lib/gems/3.3.0/gems/rack-3.0.1/lib/rack/utils.rb", 0, 0),
        ("30000 done", 0, 0),
    ];

    #[test]
    fn a_tree_of_costs() {
        let recorder = record(&RUBY);
        assert!(recorder.is_done() && recorder.has_started());
        let report = recorder.report("ruby shop.rb");
        let [shop] = report.required.as_slice() else { panic!("{report:?}") };
        assert_eq!((shop.name.as_str(), shop.library.as_str()), ("shop", "application"));
        assert_eq!(shop.cost, BootCost { live_bytes: 200_000, rss_bytes: 600_000, time_s: 9e-6 });
        let names: Vec<_> =
            shop.required.iter().map(|file| (file.name.as_str(), file.cost.rss_bytes)).collect();
        assert_eq!(names, [("json", 300_000), ("rack/utils.rb", 200_000)], "the costliest first");
        assert_eq!(shop.required[0].also_required_by, ["rack/utils.rb"]);
        let libraries: Vec<_> = report
            .libraries
            .iter()
            .map(|one| (one.library.as_str(), one.files, one.cost.live_bytes))
            .collect();
        assert_eq!(libraries, [("ruby", 1, 50_000), ("rack", 1, 100_000), ("application", 1, 50_000)]);
        assert_eq!(report.libraries[1].objects, Some(BootObjects { objects: 3, bytes: 120 }));
        assert_eq!(report.cost, BootCost { live_bytes: 250_000, rss_bytes: 700_000, time_s: 20e-6 });
        assert_eq!(report.quantities()["live_bytes"], 320_000.0, "what stays after a collection");
    }

    #[test]
    fn sums_are_the_same_at_each_level() {
        let report = record(&RUBY).report("");
        let by_library = report.libraries.iter().fold(BootCost::default(), |sum, one| sum.plus(one.cost));
        assert_eq!(by_library.live_bytes, report.required[0].cost.live_bytes);
        assert!((by_library.time_s - report.required[0].cost.time_s).abs() < 1e-12);
    }

    #[test]
    fn a_program_that_is_killed_has_what_was_told() {
        let report = record(&RUBY[..5]).report("");
        let shop = &report.required[0];
        assert_eq!(shop.cost.time_s, 5e-6, "up to what was heard last");
        assert_eq!(shop.required.len(), 2);
        assert_eq!(report.after_collection, None);
        assert_eq!(report.quantities()["rss_bytes"], 1_300_000.0);
    }

    #[test]
    fn a_program_that_is_executed_begins_anew() {
        let mut lines = RUBY[..5].to_vec();
        lines.extend(RUBY);
        assert_eq!(record(&lines).report(""), record(&RUBY).report(""));
    }

    #[test]
    fn importers_of_python() {
        let report = record(&[
            ("0 start 7 python 3.12.1", 0, 0),
            ("1 + shop", 0, 0),
            ("2 + json", 0, 0),
            ("3 - loaded /usr/lib/python3.12/json/__init__.py", 0, 0),
            ("4 + yaml", 0, 0),
            ("5 - loaded /usr/lib/python3/dist-packages/yaml/__init__.py", 0, 0),
            ("6 - loaded /app/shop.py", 0, 0),
            ("7 importer json\tshop", 0, 0),
            ("7 importer json\tyaml", 0, 0),
            ("7 importer yaml\tyaml", 0, 0),
            ("7 importer shop\tjson", 0, 0),
        ])
        .report("");
        let json = report.required[0].required.iter().find(|file| file.name == "json").unwrap();
        assert_eq!(
            (json.library.as_str(), json.also_required_by.as_slice()),
            ("python", &["yaml".to_string()][..])
        );
    }

    #[test]
    fn names_are_short() {
        for (name, short) in [
            ("json", "json"),
            ("lib/json", "lib/json"),
            ("/usr/lib/ruby/3.1.0/openssl/ssl", "openssl/ssl"),
            ("/usr/lib/ruby/vendor_ruby/rack/utils", "rack/utils"),
            ("/gems/rack-3.0.1/lib/rack/utils.rb", "rack/utils.rb"),
            ("/srv/shop/config/application", "/srv/shop/config/application"),
        ] {
            assert_eq!(short_name(name), short);
        }
    }

    #[test]
    fn what_is_no_line_of_the_hook_is_left_out() {
        let mut recorder = BootRecorder::default();
        for line in ["", "x", "1", "one + json", "1 what", "1 start x", "1 start"] {
            assert_eq!(recorder.take(line, BootMemory::default()), Told::Nothing, "{line}");
        }
        assert_eq!(recorder.take("1 - loaded x", BootMemory::default()), Told::More, "nothing is open");
        assert!(!recorder.has_started());
    }

    /// Of a program whose files require each other so deeply.
    fn boot_report(depth: usize) -> BootReport {
        let mut recorder = BootRecorder::default();
        let mut take = |line: String| assert_ne!(recorder.take(&line, BootMemory::default()), Told::Nothing);
        take("0 start 7 ruby 3.3.1".into());
        (0..depth).for_each(|number| take(format!("{number} + file{number}")));
        (0..depth).rev().for_each(|number| take(format!("{depth} - loaded /app/file{number}.rb")));
        recorder.report("ruby app.rb")
    }

    #[test]
    fn files_that_require_each_other_deeply_can_be_read_back() {
        for depth in [1, 70, 1000] {
            let report = boot_report(depth);
            let mut out = Vec::new();
            json::write(json::BOOT, &report, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.matches("\"required\"").count(), depth + 1);
            let read: BootReport = snug_profile::difference::parse(&text, json::BOOT).unwrap();
            assert_eq!(report.files, depth as u64);
            assert_eq!(read, BootReport { required: Vec::new(), ..report });
        }
    }
}
