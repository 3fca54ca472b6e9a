//! Functions that a program makes at run time and names in `/tmp/perf-PID.map`, for perf: Node does with
//! `--perf-basic-prof`, Python 3.12 with `-X perf`, Java with an agent. A line has address and size in hexadecimal
//! digits, and the name.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::proc::{self, Pid};
use crate::symbols::lines::CodeLine;
use snug_base::file::open_regular;

/// What is read of such a file: programs that make code for days go on writing.
const BYTES_MAX: u64 = 64 << 20;
/// Functions that are kept of it: a line of a few bytes would take ten times as many here.
const FUNCTIONS_MAX: usize = 1 << 20;

/// The functions of one process.
pub(super) struct PerfMap {
    /// Address, size, name; by address, of the same address in the order of the file.
    functions: Vec<(u64, u64, String)>,
}

impl PerfMap {
    /// Empty if the process wrote none. A file of another user's is none: anybody may write into /tmp.
    pub(super) fn of(root: &str, pid: Pid) -> PerfMap {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", proc::living(pid))).unwrap_or_default();
        let inside = pid_inside(&status).unwrap_or(pid);
        let owner =
            status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_ascii_whitespace().nth(1));
        let owner = owner.and_then(|uid| uid.parse().ok()).unwrap_or_else(|| nix::unistd::geteuid().as_raw());
        let mut text = Vec::new();
        if let Ok(file) = open_regular(Path::new(&format!("{root}/tmp/perf-{inside}.map"))) {
            if file.metadata().is_ok_and(|data| data.uid() == owner) {
                let _ = file.take(BYTES_MAX).read_to_end(&mut text);
            }
        }
        PerfMap::parse(&text)
    }

    fn parse(text: &[u8]) -> PerfMap {
        let text = String::from_utf8_lossy(text);
        let function = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            let (address, size) = (number()?, number()?);
            Some((address, size, words.next()?.trim().to_string()))
        };
        let mut functions: Vec<(u64, u64, String)> =
            text.lines().filter_map(function).take(FUNCTIONS_MAX).collect();
        functions.sort_by_key(|(address, ..)| *address);
        PerfMap { functions }
    }

    /// The function at an address; of those that were there one after the other the last.
    pub(super) fn name_at(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = self.functions[..after].last()?;
        (address - start < *size).then_some(name.as_str())
    }
}

/// The function of V8's that a name stands for, and where it begins, as in `JS:~keep /app/keeps.js:3:14`. None: it is no
/// such name.
pub(super) fn script_place(name: &str) -> Option<(String, CodeLine)> {
    let (kind, rest) = name.split_once(':')?;
    let rest = rest.strip_prefix(['~', '^', '+', '*']).filter(|_| kind.chars().all(char::is_alphabetic))?;
    let (rest, last) = number_behind(rest)?;
    // Before Node 20 there is no column.
    let (rest, line) = number_behind(rest).unwrap_or((rest, last));
    // A name may have spaces, as that of a getter, and so may a path.
    let begins = [" /", " file://", " node:"].iter().filter_map(|begin| rest.find(begin)).min();
    let (function, file) = rest.split_at(begins.or_else(|| rest.find(' '))?);
    let function = if function.is_empty() { "(anonymous)" } else { function };
    let file = file.trim_start().trim_start_matches("file://");
    Some((function.into(), CodeLine { file: file.into(), line }))
}

/// A text and the number behind its last colon.
fn number_behind(text: &str) -> Option<(&str, u32)> {
    let (rest, number) = text.rsplit_once(':')?;
    Some((rest, number.parse().ok()?))
}

/// What the process itself takes its identifier for.
fn pid_inside(status: &str) -> Option<Pid> {
    status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_ascii_whitespace().last()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_function_at_an_address_counts() {
        let text = b"7f00 10 LazyCompile:*old /a.js:1\nnonsense\n7f40 0x20 py::f:/a b.py\n7f00 8 JS:*new /a.js:2:5\n\xff\n";
        let map = PerfMap::parse(text);
        assert_eq!(map.name_at(0x7f07), Some("JS:*new /a.js:2:5"));
        assert_eq!(map.name_at(0x7f5f), Some("py::f:/a b.py"));
        assert_eq!([0x7eff, 0x7f08, 0x7f60].map(|address| map.name_at(address)), [None; 3]);
    }

    #[test]
    fn functions_of_scripts_have_places() {
        let place = |name| script_place(name).map(|(function, at)| (function, at.file, at.line));
        let is = |name, function: &str, file: &str, line| {
            assert_eq!(place(name), Some((function.into(), file.into(), line)), "{name}");
        };
        is("JS:~keep /app/keeps.js:3:14", "keep", "/app/keeps.js", 3);
        is("JS:*get size /my app/keeps.js:30:5", "get size", "/my app/keeps.js", 30);
        is("LazyCompile:^ file:///app/a.mjs:1:1", "(anonymous)", "/app/a.mjs", 1);
        is("JS:~emit node:events:466:44", "emit", "node:events", 466);
        is("Script:~ evalmachine:1:1", "(anonymous)", "evalmachine", 1);
        is("LazyCompile:*old /a.js:1", "old", "/a.js", 1);
        for other in ["py::f:/a b.py", "JS:made", "JS:~f /a.js:x", "JS:~f", "Builtin:Call", "", ":~:1:1"] {
            assert_eq!(place(other), None, "{other}");
        }
    }

    #[test]
    fn it_is_found_by_the_process() {
        let pid = std::process::id() as Pid;
        let path = format!("/tmp/perf-{pid}.map");
        std::fs::write(&path, "1000 10 JS:made\n").unwrap();
        let found = PerfMap::of("", pid).name_at(0x1008).map(String::from);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found.as_deref(), Some("JS:made"));
        assert!(PerfMap::of("", pid).functions.is_empty());
    }
}
