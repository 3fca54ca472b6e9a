//! Processes that tests make up.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use crate::proc::{parse_stat, Pid, Processes};

/// Processes made up by a test.
#[derive(Default)]
pub struct FakeProcesses {
    pub files: HashMap<(Pid, &'static str), Vec<u8>>,
    pub links: HashMap<(Pid, &'static str), PathBuf>,
    pub newest: Option<Pid>,
    /// A process that may not be read in detail, as setuid ones.
    pub closed: Option<Pid>,
    /// What the next readings of a file bring, the last first, before its content does.
    pub next: HashMap<(Pid, &'static str), Vec<Vec<u8>>>,
}

impl FakeProcesses {
    /// Adds or changes a process.
    pub fn set(&mut self, pid: Pid, parent: Pid, name: &str, rss_pages: u64) {
        // Another program has another stack.
        let start_stack = 7000 + name.bytes().map(u64::from).sum::<u64>();
        self.set_stat(pid, parent, name, rss_pages, 55, start_stack);
        self.files.insert((pid, "statm"), format!("9000 {rss_pages} 30 1 0 700 0\n").into_bytes());
        self.files.insert((pid, "cmdline"), format!("{name}\0--flag\0").into_bytes());
        let rollup = format!("Rss: {} kB\nPss: {} kB\nPrivate_Dirty: 4 kB\n", rss_pages * 4, rss_pages * 2);
        self.files.insert((pid, "smaps_rollup"), rollup.into_bytes());
    }

    /// Puts a process of 100 pages with another start in the place of one that has ended.
    pub fn restart(&mut self, pid: Pid, parent: Pid, name: &str, start_ticks: u64) {
        self.set(pid, parent, name, 100);
        self.set_stat(pid, parent, name, 100, start_ticks, 7000);
    }

    /// Lets a process execute another program.
    pub fn exec(&mut self, pid: Pid, name: &str) {
        let before = parse_stat(&self.files[&(pid, "stat")]).expect("it was set");
        self.set(pid, before.parent, name, before.rss_pages);
        let start_stack = before.start_stack + 100_000;
        self.set_stat(pid, before.parent, name, before.rss_pages, before.start_ticks, start_stack);
    }

    /// Lets a process change its name.
    pub fn rename(&mut self, pid: Pid, name: &str) {
        let stat = parse_stat(&self.files[&(pid, "stat")]).expect("it was set");
        self.set_stat(pid, stat.parent, name, stat.rss_pages, stat.start_ticks, stat.start_stack);
    }

    pub fn set_stat(
        &mut self,
        pid: Pid,
        parent: Pid,
        name: &str,
        rss_pages: u64,
        start_ticks: u64,
        start_stack: u64,
    ) {
        let stat = format!(
            "{pid} ({name}) S {parent} {pid} {pid} 0 -1 4194304 7 0 1 0 20 10 0 0 20 0 3 0 {start_ticks} 1000000 \
             {rss_pages} 0 1 1 {start_stack}\n"
        );
        self.files.insert((pid, "stat"), stat.into_bytes());
    }

    /// Ends a process.
    pub fn remove(&mut self, pid: Pid) {
        self.files.retain(|(other, _), _| *other != pid);
        self.links.retain(|(other, _), _| *other != pid);
    }
}

/// A process whose name the kernel has cut at 15 bytes, inside a character: ééééééé and a half. It is killed on drop.
pub struct CutName {
    child: Child,
    _folder: tempfile::TempDir,
}

impl CutName {
    pub fn start() -> CutName {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let program = folder.path().join("é".repeat(9));
        symlink("/bin/sleep", &program).expect("a link can be made");
        let child = Command::new(&program).arg("600").spawn().expect("sleep is there");
        let process = CutName { child, _folder: folder };
        for _ in 0..1000 {
            let read =
                |file: &str| std::fs::read(format!("/proc/{}/{file}", process.pid())).expect("it runs");
            // It has its name before its memory is the new program's.
            if String::from_utf8(read("comm")).is_err()
                && read("maps").windows(5).any(|part| part == b"libc.")
            {
                return process;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the name of process {} is not cut", process.pid());
    }

    pub fn pid(&self) -> Pid {
        self.child.id() as Pid
    }
}

impl Drop for CutName {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Processes for FakeProcesses {
    fn pids(&mut self) -> io::Result<Vec<Pid>> {
        Ok(self.files.keys().filter(|(_, file)| *file == "stat").map(|(pid, _)| *pid).collect())
    }

    fn newest(&mut self) -> Option<Pid> {
        self.newest
    }

    fn read(&mut self, pid: Pid, file: &'static str, buffer: &mut Vec<u8>) -> io::Result<()> {
        if self.closed == Some(pid) && ["maps", "smaps_rollup"].contains(&file) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let content = self.files.get(&(pid, file)).ok_or(io::ErrorKind::NotFound)?;
        let next = self.next.get_mut(&(pid, file)).and_then(Vec::pop);
        buffer.clone_from(next.as_ref().unwrap_or(content));
        Ok(())
    }

    fn link(&mut self, pid: Pid, file: &'static str) -> io::Result<PathBuf> {
        Ok(self.links.get(&(pid, file)).ok_or(io::ErrorKind::NotFound)?.clone())
    }
}
