//! The folder of black boxes: one file for each program that was watched, written whole and replaced in one step. The
//! watch holds a lock on its file, which the kernel releases when the watch ends, however that comes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::black_box::BlackBox;
use snug_base::failure::{Context, Failure, Result, UNKNOWN, USAGE};
use snug_base::file::open_regular;

/// How the names of files begin and end; those that are being written begin with a point.
const BEGIN: &str = "black-box-";
const END: &str = ".json";
/// Files that stay in a folder, the new one included.
const KEPT: usize = 10;
/// What nobody has written for so long is not being written.
const LEFT_AFTER: Duration = Duration::from_secs(60);
/// What is read of a file, far more than a watch writes: the folder may be shared.
const READ_BYTES_MOST: u64 = 16 << 20;
/// How often a file is opened again that is replaced meanwhile.
const TRIES: u32 = 100;

/// A file that is written again and again.
pub struct BlackBoxFile {
    path: PathBuf,
    beside: PathBuf,
    /// What is there now; the lock is on it.
    current: Option<Flock<File>>,
}

impl BlackBoxFile {
    /// A file for a program. Removes the oldest of those that nobody writes any more, and what was being written when its
    /// watch was killed.
    pub fn new(folder: &Path, black_box: &BlackBox) -> BlackBoxFile {
        let digits: String = black_box.started_at.chars().filter(char::is_ascii_alphanumeric).collect();
        let host: String =
            black_box.host.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let name = format!("{BEGIN}{digits}-{host}-{}{END}", black_box.pid);
        let is_left =
            |(_, written): &(PathBuf, SystemTime)| written.elapsed().is_ok_and(|age| age > LEFT_AFTER);
        let left = files(folder, &format!(".{BEGIN}")).into_iter().filter(is_left);
        for (old, _) in files(folder, BEGIN).into_iter().skip(KEPT - 1).chain(left) {
            if matches!(open(&old), Ok((_, false))) {
                let _ = fs::remove_file(old);
            }
        }
        BlackBoxFile { path: folder.join(&name), beside: folder.join(format!(".{name}")), current: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts this in the place of what was there.
    pub fn write(&mut self, black_box: &BlackBox) -> io::Result<()> {
        let text = serde_json::to_vec(black_box)?;
        // The folder may be shared: what has that name may be a link of somebody's. It is replaced, not written to.
        let _ = fs::remove_file(&self.beside);
        let file = File::create_new(&self.beside)?;
        let written = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut locked) => locked.write_all(&text).map(|()| Some(locked)),
            // A file system without locks, or somebody who may read the folder was faster: nobody knows then whether
            // somebody watches, and nobody is waited for.
            Err((mut file, _)) => file.write_all(&text).map(|()| None),
        };
        let renamed = written.and_then(|locked| fs::rename(&self.beside, &self.path).map(|()| locked));
        match renamed {
            Ok(locked) => self.current = locked,
            Err(error) => {
                let _ = fs::remove_file(&self.beside);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Refuses a folder in which nothing can be written. `option` names it.
pub fn check(folder: &Path) -> Result<PathBuf> {
    let shown = folder.display();
    let refused = |why: String| {
        Failure::usage(
            format!("--black-box {shown}: {why}"),
            "name a folder that exists and can be written, such as a volume that outlives the container",
        )
    };
    let whole = folder.canonicalize().map_err(|error| refused(error.to_string()))?;
    if !whole.is_dir() {
        return Err(refused("it is no folder".into()));
    }
    tempfile::tempfile_in(&whole).map_err(|error| refused(error.to_string()))?;
    Ok(whole)
}

/// A file that was found, and what is in it.
pub struct FoundBlackBox {
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub black_box: BlackBox,
    /// Its program, or its watch at least, runs.
    pub is_watched: bool,
    /// Others in the folder, the newest first.
    pub others: Vec<PathBuf>,
}

/// Reads a file; of a folder the newest whose program has ended, or else the newest.
pub fn read(place: &Path) -> Result<FoundBlackBox> {
    let metadata = fs::metadata(place).cannot(|| format!("read {}", place.display()));
    if !metadata.map_err(|failure| failure.exit_code(UNKNOWN))?.is_dir() {
        return read_file(place, Vec::new());
    }
    let all: Vec<PathBuf> = files(place, BEGIN).into_iter().map(|(path, _)| path).collect();
    let has_ended = |path: &&PathBuf| matches!(open(path), Ok((_, false)));
    let Some(chosen) = all.iter().find(has_ended).or(all.first()) else {
        return Err(Failure::new(format!("there is no black box in {}", place.display()))
            .advise(
                "a program writes one there if it was started by `snug run --black-box DIR -- PROGRAM`, into a folder \
                 that outlives its container",
            )
            .exit_code(UNKNOWN));
    };
    read_file(chosen, all.iter().filter(|path| *path != chosen).cloned().collect())
}

fn read_file(path: &Path, others: Vec<PathBuf>) -> Result<FoundBlackBox> {
    let (file, is_watched) = open(path)
        .cannot(|| format!("read {}", path.display()))
        .map_err(|failure| failure.exit_code(UNKNOWN))?;
    let text = io::read_to_string(file.take(READ_BYTES_MOST))
        .cannot(|| format!("read {}", path.display()))
        .map_err(|failure| failure.exit_code(UNKNOWN))?;
    let black_box = BlackBox::parse(&text).map_err(|problem| {
        Failure::new(format!("{} {problem}", path.display()))
            .advise("give a file or the folder of `snug run --black-box`")
            .exit_code(USAGE)
    })?;
    Ok(FoundBlackBox { path: path.into(), black_box, is_watched, others })
}

/// Opens a file and tells whether somebody writes it. It may be replaced at any moment.
fn open(path: &Path) -> io::Result<(File, bool)> {
    for _ in 0..TRIES {
        let file = open_regular(path)?;
        let inode = file.metadata()?.ino();
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Err((file, Errno::EWOULDBLOCK)) => return Ok((file, true)),
            Err((file, _)) => return Ok((file, false)),
            // Nobody holds it; or it is an old one, whose lock went with it.
            Ok(locked) if fs::metadata(path)?.ino() == inode => {
                return Ok((locked.unlock().map_err(|(_, errno)| errno)?, false))
            }
            Ok(_) => {}
        }
    }
    Err(io::Error::other("it is replaced all the time"))
}

/// The files of a folder whose names begin so, the one that was written last first.
fn files(folder: &Path, begin: &str) -> Vec<(PathBuf, SystemTime)> {
    let is_ours = |name: &str| name.starts_with(begin) && name.ends_with(END);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    let mut found: Vec<(PathBuf, SystemTime)> =
        ours.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?))).collect();
    found.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn black_box(pid: i32) -> BlackBox {
        BlackBox::new(pid, "a/b".into(), "2026-11-25T11:02:03Z".into())
    }

    #[test]
    fn the_newest_that_has_ended_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).err().unwrap().message.contains("there is no black box"));
        let mut old = BlackBoxFile::new(folder.path(), &black_box(1));
        old.write(&black_box(1)).unwrap();
        assert!(read(folder.path()).unwrap().is_watched);
        drop(old);
        let mut new = BlackBoxFile::new(folder.path(), &black_box(2));
        new.write(&black_box(2)).unwrap();
        let found = read(folder.path()).unwrap();
        assert_eq!((found.black_box.pid, found.is_watched), (1, false), "the other runs");
        assert_eq!(found.others, [new.path()]);
        drop(new);
        assert_eq!(read(folder.path()).unwrap().black_box.pid, 2);
    }

    #[test]
    fn few_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        for pid in 0..(KEPT as i32 + 5) {
            BlackBoxFile::new(folder.path(), &black_box(pid)).write(&black_box(pid)).unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), KEPT);
    }

    #[test]
    fn what_a_killed_watch_was_writing_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (left, foreign) = (folder.path().join(".black-box-1-a-b-1.json"), folder.path().join(".other"));
        let [locked, recent] =
            [2, 3].map(|number| folder.path().join(format!(".black-box-{number}-a-b-1.json")));
        for path in [&left, &foreign, &locked, &recent] {
            let file = File::create(path).unwrap();
            file.set_modified(SystemTime::now() - LEFT_AFTER - Duration::from_secs(1)).unwrap();
        }
        fs::write(&recent, "{").unwrap();
        let _lock = Flock::lock(File::open(&locked).unwrap(), FlockArg::LockExclusive).unwrap();
        BlackBoxFile::new(folder.path(), &black_box(1)).write(&black_box(1)).unwrap();
        assert_eq!([left, foreign, locked, recent].map(|path| path.exists()), [false, true, true, true]);
    }

    #[test]
    fn links_that_others_put_there_are_not_followed() {
        let name = "black-box-20261125T110203Z-a-b-1.json";
        let probe = format!(".{BEGIN}{}", std::process::id());
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("of another");
        fs::write(&target, "kept").unwrap();
        for link in [name, &format!(".{name}"), &probe] {
            std::os::unix::fs::symlink(&target, folder.path().join(link)).unwrap();
        }
        check(folder.path()).unwrap();
        let mut file = BlackBoxFile::new(folder.path(), &black_box(1));
        file.write(&black_box(1)).unwrap();
        assert_eq!(file.path().file_name().unwrap(), name);
        assert!(file.path().symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    }

    #[test]
    fn pipes_that_others_put_there_are_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("black-box-1-a-b-1.json");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(read(folder.path()).is_err());
        BlackBoxFile::new(folder.path(), &black_box(1)).write(&black_box(1)).unwrap();
    }

    #[test]
    fn a_file_without_end_is_read_to_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("black-box-1-a-b-1.json");
        File::create(&large).unwrap().set_len(1 << 40).unwrap();
        snug_base::random::must_end(move || assert!(read(&large).is_err()));
    }

    #[test]
    fn a_reader_sees_whole_files_that_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = BlackBoxFile::new(folder.path(), &black_box(1));
        file.write(&black_box(1)).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    file.write(&black_box(1)).unwrap();
                }
            });
            let whole = (0..200).all(|_| read(folder.path()).is_ok_and(|found| found.is_watched));
            is_over.store(true, Ordering::Relaxed);
            assert!(whole);
        });
    }

    #[test]
    fn folders_that_cannot_be_written_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check(folder.path()).is_ok());
        assert_eq!(check(&folder.path().join("none")).unwrap_err().exit_code, USAGE);
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(check(&folder.path().join("file")).unwrap_err().message.contains("no folder"));
    }

    #[test]
    fn fuzzed_black_boxes() {
        let sample = serde_json::to_vec(&black_box(7)).unwrap();
        snug_base::random::fuzz(&[&sample], |bytes| {
            let _ = BlackBox::parse(&String::from_utf8_lossy(bytes)).map(|found| found.root().map(|_| ()));
        });
    }
}
