//! Reading `/proc`: pure parsers, and one trait in front of the files so that everything above it can be
//! tested with made-up processes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use snug_base::failure::{self, Failure, UNKNOWN};

/// A process identifier as the kernel counts them.
pub type Pid = i32;

/// What the process calls itself that writes the black box of a program. It is a child of the program, but no part of it.
pub const BLACK_BOX_NAME: &str = "snug-black-box";

/// Where processes are looked up. `ProcFilesystem` is the real one; tests use `FakeProcesses`.
pub trait Processes {
    /// All process identifiers that exist now.
    fn pids(&mut self) -> io::Result<Vec<Pid>>;
    /// The identifier that was given away last, to a process or a thread. While it stays the same there is nobody
    /// new. None if that can't be told.
    fn newest(&mut self) -> Option<Pid> {
        None
    }
    /// Replaces `buffer` by the whole content of `/proc/PID/file`.
    fn read(&mut self, pid: Pid, file: &'static str, buffer: &mut Vec<u8>) -> io::Result<()>;
    /// Where the link `/proc/PID/file` points.
    fn link(&mut self, pid: Pid, file: &'static str) -> io::Result<PathBuf>;
    /// Lets go of whatever is kept for a process that has ended.
    fn forget(&mut self, _pid: Pid) {}

    /// Every process: identifier, parent, and name. Watches of black boxes are none of what anybody looks for.
    fn all(&mut self) -> Vec<(Pid, Pid, String)> {
        let (mut all, mut buffer) = (Vec::new(), Vec::new());
        for pid in self.pids().unwrap_or_default() {
            let stat = self.read(pid, "stat", &mut buffer).ok().and_then(|()| parse_stat(&buffer));
            self.forget(pid);
            let stat = stat.filter(|stat| stat.name != BLACK_BOX_NAME);
            all.extend(stat.map(|stat| (pid, stat.parent, stat.name)));
        }
        all
    }

    /// The arguments of the command line; none for a kernel thread.
    fn arguments(&mut self, pid: Pid) -> Vec<String> {
        let mut buffer = Vec::new();
        let _ = self.read(pid, "cmdline", &mut buffer);
        parse_arguments(&buffer)
    }

    /// The program's file.
    fn executable(&mut self, pid: Pid) -> Option<String> {
        let link = self.link(pid, "exe").ok()?.to_string_lossy().into_owned();
        Some(link.trim_end_matches(" (deleted)").to_string())
    }
}

/// The kernel's `/proc`. Keeps `stat` and `statm` files open: reading one again costs a third of opening it, and an
/// open one can't be mistaken for a later process with the same identifier.
/// Those of the first few hundred processes only: a program may have no more than 1024 files open, by default.
#[derive(Default)]
pub struct ProcFilesystem {
    stat_files: HashMap<Pid, File>,
    statm_files: HashMap<Pid, File>,
}

/// Files of each kind that are kept open.
const KEPT_MAX: usize = 300;

impl ProcFilesystem {
    pub fn new() -> ProcFilesystem {
        ProcFilesystem::default()
    }
}

/// Fails where /proc shows no processes, or those of a PID name space that this one is not in.
pub fn need_processes() -> failure::Result<()> {
    if Path::new("/proc/self/stat").exists() {
        return Ok(());
    }
    Err(Failure::new("/proc shows nothing of this process, so nothing of others either")
        .advise("mount it (mount -t proc proc /proc); snug run works without")
        .exit_code(UNKNOWN))
}

/// That there is no such process.
pub fn missing(pid: Pid) -> Failure {
    Failure::new(format!("there is no process {pid}{}", hiding_text())).exit_code(UNKNOWN)
}

/// What to add where a process was not found: those of other users may be hidden.
pub fn hiding_text() -> &'static str {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut options = mounts.lines().filter_map(|line| line.split_once(" /proc proc ")).map(|(_, rest)| rest);
    match options.next_back().and_then(|rest| rest.split_once("hidepid=")) {
        Some((_, value)) if !value.starts_with(['0', 'o']) => "; /proc hides those of other users (hidepid)",
        _ => "",
    }
}

impl Processes for ProcFilesystem {
    fn pids(&mut self) -> io::Result<Vec<Pid>> {
        let entries = std::fs::read_dir("/proc")?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
    }

    fn newest(&mut self) -> Option<Pid> {
        parse_newest(&std::fs::read_to_string("/proc/loadavg").ok()?)
    }

    fn read(&mut self, pid: Pid, file: &'static str, buffer: &mut Vec<u8>) -> io::Result<()> {
        let read = self.read_of_first_thread(pid, file, buffer);
        let is_ended = |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH);
        if read.as_ref().map_or_else(is_ended, |()| lacks_memory(file, buffer)) {
            let thread = living(pid);
            if thread != pid && file == "stat" {
                let of_thread = std::fs::read(format!("/proc/{thread}/stat"))?;
                *buffer = with_memory_of(buffer, &of_thread).unwrap_or_else(|| buffer.clone());
            } else if thread != pid {
                return read_anew(thread, file, buffer);
            }
        }
        read
    }

    fn link(&mut self, pid: Pid, file: &'static str) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/{pid}/{file}")).or_else(|error| match living(pid) {
            thread if thread != pid => std::fs::read_link(format!("/proc/{thread}/{file}")),
            _ => Err(error),
        })
    }

    fn forget(&mut self, pid: Pid) {
        self.stat_files.remove(&pid);
        self.statm_files.remove(&pid);
    }
}

impl ProcFilesystem {
    fn read_of_first_thread(&mut self, pid: Pid, file: &'static str, buffer: &mut Vec<u8>) -> io::Result<()> {
        let kept = match file {
            "stat" => &mut self.stat_files,
            "statm" => &mut self.statm_files,
            _ => return read_anew(pid, file, buffer),
        };
        let read = |file: &File, buffer: &mut Vec<u8>| -> io::Result<()> {
            let mut text = [0; 2048];
            let length = file.read_at(&mut text, 0)?;
            buffer.clear();
            buffer.extend_from_slice(&text[..length]);
            Ok(())
        };
        if let Some(open) = kept.get(&pid) {
            return read(open, buffer);
        }
        let open = File::open(format!("/proc/{pid}/{file}"))?;
        read(&open, buffer)?;
        if kept.len() < KEPT_MAX {
            kept.insert(pid, open);
        }
        Ok(())
    }
}

/// A thread by which the memory of a process is to be seen: the first, which has its number, unless that has ended and others
/// run on. Then it stays as a zombie, of which the kernel shows nothing: no mappings, no program, no root.
pub fn living(pid: Pid) -> Pid {
    let stat = |pid: Pid| parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?);
    if stat(pid).is_none_or(|stat| !stat.has_ended() || stat.threads <= 1) {
        return pid;
    }
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
    let is_alive = |thread: &Pid| stat(*thread).is_some_and(|stat| !stat.has_ended() && !stat.is_ending());
    threads.find(is_alive).unwrap_or(pid)
}

/// Whether a file has nothing of what the memory of a process has in it.
fn lacks_memory(file: &str, content: &[u8]) -> bool {
    match file {
        "maps" | "smaps" | "smaps_rollup" | "environ" | "cmdline" | "auxv" => content.is_empty(),
        "statm" => content.starts_with(b"0 "),
        "stat" => parse_stat(content).is_some_and(|stat| stat.has_ended() && stat.threads > 1),
        "status" => String::from_utf8_lossy(content).lines().any(|line| line.starts_with("State:\tZ")),
        _ => false,
    }
}

/// The line of `/proc/PID/stat` with what another thread's says of the memory, and of whether it runs.
fn with_memory_of(stat: &[u8], of_thread: &[u8]) -> Option<Vec<u8>> {
    /// Of proc(5): state, flags, sizes, limits and places of memory, arguments and environment.
    const OF_MEMORY: &[usize] = &[3, 9, 23, 24, 26, 27, 28, 45, 46, 47, 48, 49, 50, 51];
    let fields = |line: &'_ [u8]| -> Option<(usize, Vec<String>)> {
        let begin = line.iter().rposition(|byte| *byte == b')')? + 2;
        let text = String::from_utf8_lossy(line.get(begin..)?);
        Some((begin, text.split_ascii_whitespace().map(String::from).collect()))
    };
    let (begin, mut own) = fields(stat)?;
    let (_, other) = fields(of_thread)?;
    for field in OF_MEMORY {
        let place = own.get_mut(field - 3).zip(other.get(field - 3));
        place.into_iter().for_each(|(own, other)| own.clone_from(other));
    }
    Some([&stat[..begin], own.join(" ").as_bytes(), b"\n"].concat())
}

/// The whole content of `/proc/PID/file`.
pub fn content(pid: Pid, file: &str) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::new();
    read_anew(living(pid), file, &mut buffer)?;
    Ok(buffer)
}

/// Replaces `buffer` by what a file says now.
fn read_anew(pid: Pid, file: &str, buffer: &mut Vec<u8>) -> io::Result<()> {
    match file {
        "smaps_rollup" => read_rollup(&format!("/proc/{pid}"), buffer),
        _ => read_all(&File::open(format!("/proc/{pid}/{file}"))?, most_bytes(file), buffer),
    }
}

/// Replaces `buffer` by `smaps_rollup` of a folder of `/proc`, or before Linux 4.14, which has none, by `smaps`: the same
/// for each mapping, which `parse_smaps_rollup` sums.
fn read_rollup(folder: &str, buffer: &mut Vec<u8>) -> io::Result<()> {
    let file = match File::open(format!("{folder}/smaps_rollup")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(format!("{folder}/smaps")),
        opened => opened,
    };
    read_all(&file?, most_bytes("smaps"), buffer)
}

/// How much is read of a file, at most. A process may say that its arguments take any part of its addresses (prctl(2),
/// PR_SET_MM): no more than a program can be given, as `getconf ARG_MAX` says it, counts. And it may have as many mappings
/// as the kernel allows, with paths of 4 KB.
fn most_bytes(file: &str) -> Most {
    match file {
        "cmdline" | "environ" => Most::Cut(2 << 20),
        "smaps" => Most::Refused(512 << 20),
        _ => Most::Refused(64 << 20),
    }
}

/// What becomes of what is longer.
#[derive(Clone, Copy)]
enum Most {
    Cut(usize),
    Refused(usize),
}

/// Reads a file to its end in as few calls as can be: the kernel does not tell the sizes of these files, and mostly
/// one read gets all.
fn read_all(mut file: &File, most: Most, buffer: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = [0; 8192];
    buffer.clear();
    loop {
        let length = file.read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        buffer.extend_from_slice(&chunk[..length]);
        match most {
            Most::Cut(bytes) if buffer.len() >= bytes => {
                buffer.truncate(bytes);
                return Ok(());
            }
            Most::Refused(bytes) if buffer.len() > bytes => {
                buffer.clear();
                return Err(io::Error::other(format!("it is longer than {} MiB", bytes >> 20)));
            }
            _ => {}
        }
    }
}

/// The last word of `/proc/loadavg`, as in `0.20 0.18 0.12 1/80 11206`: proc(5).
fn parse_newest(loadavg: &str) -> Option<Pid> {
    loadavg.split_ascii_whitespace().nth(4)?.parse().ok()
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    pub name: String,
    pub state: char,
    pub parent: Pid,
    /// The process group.
    pub group: Pid,
    /// The kernel's PF_... of the thread.
    pub flags: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub threads: u64,
    pub start_ticks: u64,
    pub rss_pages: u64,
    /// The bottom of its stack, which an exec moves; 0 where that is not to be known.
    pub start_stack: u64,
    /// How it ended, as wait(2) tells it; 0 while it runs, or where that is not to be known.
    pub wait_status: i32,
}

impl Stat {
    /// Clock ticks of CPU time.
    pub fn ticks(&self) -> u64 {
        self.user_ticks + self.system_ticks
    }

    pub fn faults(&self) -> u64 {
        self.minor_faults + self.major_faults
    }

    /// Whether it is about to end, at whatever that takes: its memory may be there still.
    pub fn is_ending(&self) -> bool {
        const PF_EXITING: u64 = 4;
        self.flags & PF_EXITING != 0
    }

    /// Whether it is a zombie, or dead: it has no memory any more.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Reads a line of `/proc/PID/stat`. The name may hold spaces and parentheses: the last `)` ends it.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let text = String::from_utf8_lossy(text);
    let open = text.find('(')?;
    let close = text.rfind(')')?;
    let fields: Vec<&str> = text.get(close + 2..)?.split_ascii_whitespace().collect();
    // Field 3 of proc(5), the state, is fields[0].
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        name: text.get(open + 1..close)?.to_string(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        flags: number(9)?,
        minor_faults: number(10)?,
        major_faults: number(12)?,
        user_ticks: number(14)?,
        system_ticks: number(15)?,
        threads: number(20)?,
        start_ticks: number(22)?,
        rss_pages: number(24)?,
        start_stack: number(28).unwrap_or(0),
        wait_status: number(52).and_then(|status| i32::try_from(status).ok()).unwrap_or(0),
    })
}

/// Where the arguments of a process lie in its memory, from begin to end, by its line of `/proc/PID/stat`.
pub fn parse_arguments_place(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split_ascii_whitespace().skip(48 - 3);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The second field of `/proc/PID/statm`: resident pages; 0 for a process of which only the exit status is left.
pub fn parse_resident_pages(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What `/proc/PID/smaps_rollup` says, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rollup {
    pub rss_bytes: u64,
    pub pss_bytes: u64,
    /// Private_Clean + Private_Dirty: what would be gone if the process ended (USS).
    pub uss_bytes: u64,
    pub lazy_free_bytes: u64,
    /// Written, and mapped by others as well: of a forked process, what it has not copied.
    pub shared_dirty_bytes: u64,
    /// Not backed by a file.
    pub anonymous_bytes: u64,
    pub huge_bytes: u64,
    pub swap_bytes: u64,
}

/// Reads `/proc/PID/smaps_rollup`, or sums up `smaps`; None if it is empty, as for a process that is ending.
pub fn parse_smaps_rollup(text: &[u8]) -> Option<Rollup> {
    // The paths in `smaps` may be anything.
    let text = String::from_utf8_lossy(text);
    let mut rollup = Rollup::default();
    let mut found = false;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(key), Some(value)) = (words.next(), words.next()) else { continue };
        let Ok(kibibytes) = value.parse::<u64>() else { continue };
        let bytes = kibibytes * 1024;
        match key {
            "Rss:" => {
                rollup.rss_bytes += bytes;
                found = true;
            }
            "Pss:" => rollup.pss_bytes += bytes,
            "Private_Clean:" | "Private_Dirty:" => rollup.uss_bytes += bytes,
            "Shared_Dirty:" => rollup.shared_dirty_bytes += bytes,
            "Anonymous:" => rollup.anonymous_bytes += bytes,
            "LazyFree:" => rollup.lazy_free_bytes += bytes,
            "AnonHugePages:" => rollup.huge_bytes += bytes,
            "Swap:" => rollup.swap_bytes += bytes,
            _ => {}
        }
    }
    found.then_some(rollup)
}

/// `RssShmem` of `/proc/PID/status`, in bytes: resident pages of shared memory, which have no file behind them.
pub fn parse_shared_bytes(status: &[u8]) -> Option<u64> {
    parse_status_bytes(status, "RssShmem:")
}

/// What a line of `/proc/PID/status` counts in kB, in bytes. The name of the process stands there, too, whose end the
/// kernel may have cut off inside a character.
pub fn parse_status_bytes(status: &[u8], name: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(status);
    let kibibytes = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(kibibytes.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Whether `/proc/PID/auxv` says that the process was started with other rights than its parent's, so that its loader
/// trusts no environment: AT_SECURE of getauxval(3).
pub fn is_secure(auxv: &[u8]) -> bool {
    const AT_SECURE: usize = 23;
    let word = |bytes: &[u8]| usize::from_ne_bytes(bytes.try_into().expect("a word"));
    let words: Vec<usize> = auxv.chunks_exact(size_of::<usize>()).map(word).collect();
    words.chunks_exact(2).any(|pair| pair[0] == AT_SECURE && pair[1] != 0)
}

/// Makes one line of the NUL-separated `/proc/PID/cmdline`.
pub fn parse_command_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.trim_end_matches('\0').replace('\0', " ")
}

/// Splits the NUL-separated `/proc/PID/cmdline`; none for a kernel thread.
pub fn parse_arguments(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    // Behind a title that a process gave itself the rest is zeroed.
    let text = text.trim_end_matches('\0');
    if text.is_empty() {
        return Vec::new();
    }
    text.split('\0').map(String::from).collect()
}

/// Splits the NUL-separated `/proc/PID/environ`. None: the process has written something else there, as those do that give
/// themselves a title, which is longer than the arguments that it replaces.
pub fn parse_environment(text: &[u8]) -> Option<Vec<(String, String)>> {
    let text = String::from_utf8_lossy(text);
    let is_name = |name: &str| !name.is_empty() && !name.contains([' ', '\n']);
    let begins_with_one = text.split_once('=').is_some_and(|(name, _)| is_name(name) && !name.contains('\0'));
    let is_written_over = !begins_with_one || text.contains("\0\0") || !text.ends_with('\0');
    if !text.is_empty() && is_written_over {
        return None;
    }
    let pairs = text.split('\0').filter_map(|entry| entry.split_once('='));
    Some(pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_a_hostile_name() {
        let line = b"42 (a) R (b c) S 7 42 42 0 -1 4194304 100 5 2 0 30 4 0 0 20 0 9 0 12345 1000 77 18446744073709551615";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.name, "a) R (b c");
        assert_eq!((stat.state, stat.parent, stat.threads), ('S', 7, 9));
        assert_eq!((stat.minor_faults, stat.major_faults), (100, 2));
        assert_eq!(
            (stat.user_ticks, stat.system_ticks, stat.start_ticks, stat.rss_pages),
            (30, 4, 12345, 77)
        );
    }

    #[test]
    fn memory_is_that_of_a_thread_that_runs_on() {
        let zombie = b"42 (a) b) Z 7 42 42 0 -1 4194308 100 5 2 0 30 4 0 0 20 0 2 0 12345 0 0 99 0 0 0 0 0";
        let thread = b"43 (other) S 7 42 42 0 -1 64 1 5 2 0 30 4 0 0 20 0 2 0 99999 1000 77 99 1 2 3 4 5";
        let merged = parse_stat(&with_memory_of(zombie, thread).unwrap()).unwrap();
        assert_eq!((merged.name.as_str(), merged.state, merged.flags), ("a) b", 'S', 64));
        assert_eq!((merged.start_ticks, merged.rss_pages, merged.start_stack), (12345, 77, 3));
        assert!(lacks_memory("stat", zombie) && !lacks_memory("stat", thread));
        assert_eq!(with_memory_of(b"", thread), None);
        assert_eq!(living(std::process::id() as Pid), std::process::id() as Pid);
    }

    #[test]
    fn the_newest_process() {
        assert_eq!(parse_newest("0.20 0.18 0.12 1/80 11206\n"), Some(11206));
        assert_eq!(parse_newest(""), None);
        let mut processes = ProcFilesystem::new();
        let before = processes.newest();
        assert!(std::process::Command::new("true").status().unwrap().success());
        assert_ne!(before, processes.newest());
    }

    #[test]
    fn stat_that_is_cut_short() {
        assert_eq!(parse_stat(b"42 (a) S 7 42"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn rollup_in_bytes() {
        let text = b"55a-7ff ---p 0 00:00 0 [rollup]\nRss: 100 kB\nPss: 60 kB\nPss_Anon: 1 kB\n\
            Shared_Dirty: 3 kB\nPrivate_Clean: 5 kB\nPrivate_Dirty: 40 kB\nAnonymous: 44 kB\nLazyFree: 8 kB\nAnonHugePages: 0 kB\nSwap: 1 kB\n";
        let rollup = parse_smaps_rollup(text).unwrap();
        assert_eq!(rollup.rss_bytes, 100 << 10);
        assert_eq!(rollup.pss_bytes, 60 << 10);
        assert_eq!((rollup.uss_bytes, rollup.anonymous_bytes), (45 << 10, 44 << 10));
        assert_eq!(rollup.shared_dirty_bytes, 3 << 10);
        assert_eq!((rollup.lazy_free_bytes, rollup.swap_bytes), (8 << 10, 1 << 10));
        assert_eq!(parse_smaps_rollup(b""), None);
    }

    #[test]
    fn what_is_no_text_hides_nothing() {
        let status = b"Name:\t\xc3\xa9\xc3\nUmask:\t0022\nRssShmem:\t       8 kB\nVmPTE:\t      44 kB\n";
        assert_eq!(parse_shared_bytes(status), Some(8 << 10));
        assert_eq!(parse_status_bytes(status, "VmPTE:"), Some(44 << 10));
        assert_eq!(parse_status_bytes(status, "VmSwap:"), None);
        let smaps = b"55a-55b r-xp 0 fe:00 9 /bin/\xc3\nRss: 8 kB\nPss: 3 kB\n";
        assert_eq!(parse_smaps_rollup(smaps).unwrap().pss_bytes, 3 << 10);
    }

    #[test]
    fn without_a_rollup_the_mappings_are_summed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let mut buffer = Vec::new();
        assert_eq!(read_rollup(path, &mut buffer).unwrap_err().kind(), io::ErrorKind::NotFound);
        let text = "55a-55b r-xp 0 fe:00 9 /bin/x\nRss: 8 kB\nPss: 3 kB\nPrivate_Clean: 2 kB\nVmFlags: rd mr\n\
            7ff-800 rw-p 0 00:00 0\nRss: 100 kB\nPss: 60 kB\nPrivate_Dirty: 40 kB\nAnonymous: 44 kB\nSwap: 1 kB\n";
        std::fs::write(folder.path().join("smaps"), text).unwrap();
        read_rollup(path, &mut buffer).unwrap();
        let rollup = parse_smaps_rollup(&buffer).unwrap();
        assert_eq!((rollup.rss_bytes, rollup.pss_bytes, rollup.uss_bytes), (108 << 10, 63 << 10, 42 << 10));
        assert_eq!((rollup.anonymous_bytes, rollup.swap_bytes), (44 << 10, 1 << 10));
    }

    /// Both files of a process that waits say the same, to the kilobytes that the kernel rounds away.
    #[test]
    fn the_sum_is_what_the_kernel_says() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let read = |file: &str| {
            let mut buffer = Vec::new();
            read_anew(child.id() as Pid, file, &mut buffer).unwrap();
            parse_smaps_rollup(&buffer).unwrap()
        };
        // It may still be starting.
        let same = (0..600).any(|_| {
            let (rolled, summed) = (read("smaps_rollup"), read("smaps"));
            let same = rolled.rss_bytes == summed.rss_bytes
                && rolled.uss_bytes == summed.uss_bytes
                && rolled.pss_bytes.abs_diff(summed.pss_bytes) < 200 << 10;
            same || {
                std::thread::sleep(std::time::Duration::from_millis(100));
                false
            }
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(same);
    }

    #[test]
    fn command_lines_and_environments() {
        assert_eq!(parse_command_line(b"ruby\0a b\0"), "ruby a b");
        assert_eq!(parse_arguments(b"ruby\0\0a b\0"), ["ruby", "", "a b"]);
        assert_eq!(parse_arguments(b"puma: worker 1\0\0\0"), ["puma: worker 1"]);
        assert!(parse_arguments(b"").is_empty());
        let environment = parse_environment(b"A=1\0LD_PRELOAD=/x:/y\0broken\0").unwrap();
        assert_eq!(environment, [("A".into(), "1".into()), ("LD_PRELOAD".into(), "/x:/y".into())]);
        assert_eq!(parse_environment(b""), Some(vec![]));
        assert_eq!(parse_environment(b"BASH_FUNC_f%%=() { x\n}\0").unwrap()[0].0, "BASH_FUNC_f%%");
        // What titles leave: nothing, an end of theirs, one that looks like a variable, and no end.
        let left: [&[u8]; 5] =
            [b"\0\0\0", b"orker [app]\0\0", b"ency=8)\0\0\0\0", b"shop --app=x\0A=1\0", b"A=1"];
        for text in left {
            assert_eq!(parse_environment(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn what_has_no_end_is_read_to_an_end() {
        let zeros = File::open("/dev/zero").unwrap();
        let mut buffer = Vec::new();
        read_all(&zeros, most_bytes("cmdline"), &mut buffer).unwrap();
        assert_eq!(buffer.len(), 2 << 20);
        for file in ["maps", "status", "smaps"] {
            let error = read_all(&zeros, most_bytes(file), &mut buffer).unwrap_err();
            assert!(error.to_string().contains("longer than") && buffer.is_empty(), "{file}: {error}");
        }
    }

    #[test]
    fn own_process_can_be_read() {
        let mut processes = ProcFilesystem::new();
        let own = std::process::id() as Pid;
        assert!(processes.pids().unwrap().contains(&own));
        let mut buffer = Vec::new();
        processes.read(own, "stat", &mut buffer).unwrap();
        assert!(parse_stat(&buffer).unwrap().rss_pages > 0);
        processes.read(own, "statm", &mut buffer).unwrap();
        assert!(parse_resident_pages(&buffer).unwrap() > 0);
        processes.read(own, "smaps_rollup", &mut buffer).unwrap();
        assert!(parse_smaps_rollup(&buffer).unwrap().pss_bytes > 0);
        assert!(processes.link(own, "exe").unwrap().is_absolute());
    }
}
