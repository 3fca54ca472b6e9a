//! The log of a measured program, or of its load. Only its beginning and its end are kept: hours of output would fill
//! the disk, and the log, which the kernel keeps in memory, would count as the program's in the control group.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{fallocate, FallocateFlags};

/// What is kept of a log that grows beyond all.
const HEAD_BYTES: u64 = 1 << 20;
const TAIL_BYTES: u64 = 8 << 20;
/// What is in between goes in pieces of this size at least.
const PIECE_BYTES: u64 = 8 << 20;

/// A file to which a program writes. What lies in its middle is taken out of the file while the program goes on.
pub struct Log {
    path: PathBuf,
    file: File,
    /// What lies between the head and here is a hole.
    hole_end: u64,
    /// False: the file system makes no holes.
    can_shrink: bool,
}

impl Log {
    /// Follows a log that exists.
    pub fn open(path: &Path) -> io::Result<Log> {
        let file = File::options().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        let path = path.to_path_buf();
        Ok(Log { path, file, hole_end: HEAD_BYTES, can_shrink: true })
    }

    /// Gives back what has become the middle since.
    pub fn trim(&mut self) {
        let Ok(length) = self.length() else { return };
        let end = self.middle_end(length);
        if !self.can_shrink || end <= self.hole_end {
            return;
        }
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let (start, bytes) = (self.hole_end as libc::off_t, (end - self.hole_end) as libc::off_t);
        self.can_shrink = fallocate(&self.file, hole, start, bytes).is_ok();
        if self.can_shrink {
            self.hole_end = end;
        }
    }

    /// Takes the middle out of the file, whether it is a hole or not: a line says what was left out. The program must have
    /// ended, or append what it writes.
    pub fn close(mut self) -> io::Result<()> {
        self.trim();
        let length = self.length()?;
        let middle = HEAD_BYTES..self.middle_end(length);
        if middle.is_empty() || length < middle.end {
            return Ok(());
        }
        let left_out = middle.end - middle.start;
        let note = format!("\n[snug: {left_out} bytes of {} were not kept]\n", self.path.display());
        cut_out(&self.file, middle, &note)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Where the end begins that is kept of a log of this length.
    fn middle_end(&self, length: u64) -> u64 {
        (length.saturating_sub(TAIL_BYTES) / PIECE_BYTES * PIECE_BYTES).max(self.hole_end)
    }
}

/// Puts a text in the place of what lies there in a file. Who writes to it meanwhile must append, and what it writes may be
/// lost.
pub fn cut_out(file: &File, place: Range<u64>, text: &str) -> io::Result<()> {
    let mut rest = vec![0; file.metadata()?.len().saturating_sub(place.end) as usize];
    file.read_exact_at(&mut rest, place.end)?;
    file.set_len(place.start)?;
    // Of a file that others append to as well, Linux puts this at the end wherever it is to go.
    file.write_all_at(text.as_bytes(), place.start)?;
    file.write_all_at(&rest, place.start + text.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Lines of 1 MB with these numbers.
    fn write_lines(program: &mut File, numbers: Range<u32>) {
        let line = "x".repeat(999_990);
        numbers.for_each(|number| writeln!(program, "{number:08} {line}").unwrap());
    }

    #[test]
    fn the_beginning_and_the_end_of_a_long_log_are_kept() {
        let path = std::env::temp_dir().join(format!("snug-log-{}", std::process::id()));
        let mut program = File::create(&path).unwrap();
        let mut log = Log::open(&path).unwrap();
        for number in 0..60 {
            write_lines(&mut program, number..number + 1);
            log.trim();
            let held = path.metadata().unwrap().blocks() * 512;
            assert!(held <= HEAD_BYTES + TAIL_BYTES + 2 * PIECE_BYTES, "{held} bytes after line {number}");
        }
        log.close().unwrap();
        let kept = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(kept.starts_with("00000000 x") && kept.ends_with("x\n"));
        assert!(kept.contains("\n00000059 x") && !kept.contains("\n00000030 x") && !kept.contains('\0'));
        let (_, rest) = kept.split_once("[snug: ").unwrap();
        assert!(rest[..30].contains(" bytes of "), "{}", &rest[..30]);
    }

    /// As of a program that writes much between the last look and its end, or on a file system without holes.
    #[test]
    fn a_long_log_is_cut_though_no_hole_was_made() {
        for can_shrink in [true, false] {
            let path =
                std::env::temp_dir().join(format!("snug-late-log-{}-{can_shrink}", std::process::id()));
            let mut program = File::create(&path).unwrap();
            let log = Log { can_shrink, ..Log::open(&path).unwrap() };
            write_lines(&mut program, 0..60);
            log.close().unwrap();
            let kept = std::fs::read_to_string(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let bytes = kept.len() as u64;
            assert!(
                bytes <= HEAD_BYTES + TAIL_BYTES + PIECE_BYTES + 100,
                "{bytes} bytes, holes: {can_shrink}"
            );
            assert!(
                kept.starts_with("00000000 x") && kept.contains("\n00000059 x") && kept.contains("[snug: ")
            );
        }
    }

    #[test]
    fn a_short_log_stays_as_it_is() {
        let path = std::env::temp_dir().join(format!("snug-short-log-{}", std::process::id()));
        std::fs::write(&path, "all of it\n").unwrap();
        let mut log = Log::open(&path).unwrap();
        log.trim();
        log.close().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "all of it\n");
        std::fs::remove_file(&path).unwrap();
    }
}
