//! The log of a measured program, of which the beginning and the end are kept: a program that writes for hours would fill
//! the disk, and its log, which the kernel keeps in memory, would count as the program's in the control group.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{fallocate, FallocateFlags};

/// What is kept of a log that grows beyond all.
const HEAD_BYTES: u64 = 1 << 20;
const TAIL_BYTES: u64 = 8 << 20;
/// What is in between goes in pieces of this size at least.
const PIECE_BYTES: u64 = 8 << 20;

/// A file to which a program writes. What lies in its middle is taken out of the file while the program goes on.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    /// What lies between the head and here is a hole.
    hole_end: u64,
    /// False: the file system makes no holes.
    can_shrink: bool,
}

impl Log {
    /// Follows a log that exists.
    pub(crate) fn open(path: &Path) -> io::Result<Log> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Log { path: path.to_path_buf(), file, hole_end: HEAD_BYTES, can_shrink: true })
    }

    /// Gives back what has become the middle since.
    pub(crate) fn trim(&mut self) {
        let Ok(length) = self.file.metadata().map(|known| known.len()) else { return };
        let end = length.saturating_sub(TAIL_BYTES) / PIECE_BYTES * PIECE_BYTES;
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

    /// Closes the hole, if there is one: a line says what was left out. The program must have ended.
    pub(crate) fn close(mut self) -> io::Result<()> {
        if self.hole_end == HEAD_BYTES {
            return Ok(());
        }
        let mut tail = Vec::new();
        self.file.seek(SeekFrom::Start(self.hole_end))?;
        self.file.read_to_end(&mut tail)?;
        let left_out = self.hole_end - HEAD_BYTES;
        self.file.set_len(HEAD_BYTES)?;
        self.file.seek(SeekFrom::End(0))?;
        writeln!(self.file, "\n[snug: {left_out} bytes of {} were not kept]", self.path.display())?;
        self.file.write_all(&tail)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_beginning_and_the_end_of_a_long_log_are_kept() {
        let path = std::env::temp_dir().join(format!("snug-log-{}", std::process::id()));
        let mut program = File::create(&path).unwrap();
        let mut log = Log::open(&path).unwrap();
        let line = "x".repeat(999_990);
        for number in 0..60 {
            writeln!(program, "{number:08} {line}").unwrap();
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
