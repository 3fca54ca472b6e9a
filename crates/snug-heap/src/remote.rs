//! Reading and writing the memory of another process without stopping it, and finding snug's page of counters there.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::size_of;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::uio::{process_vm_readv, process_vm_writev, RemoteIoVec};
use nix::unistd::Pid as NixPid;

use crate::answers::{self, HeapSize};
use crate::counters::{self, Account, Counters};
use crate::read_error::ReadError;
use crate::wishes::{Wishes, WishesLayout};
use snug_base::elf::ElfFacts;
use snug_process::maps::Mapping;
use snug_process::proc::{self, Pid};

/// Pages of a stripped static program that are searched, 1 GiB: a process may map its file as often as it likes.
const SEARCHED_PAGES: usize = 1 << 18;
/// Files that say that they have the page: a program may map as many as it likes.
const SEARCHED_FILES: usize = 16;

/// Where the page of counters of a process lies: by its symbol in one of these files, which are mapped there, or
/// in a stripped static `executable` by its magic. None if there is no sign of snug.
pub fn find_page<'a>(
    pid: Pid,
    maps: &'a [Mapping],
    maps_text: &[u8],
    images: impl Iterator<Item = (&'a str, &'a ElfFacts)> + 'a,
    static_executable: Option<&str>,
) -> Option<u64> {
    let is_filled = |address: &u64| {
        read_memory(pid, *address, counters::MAGIC.len()).is_ok_and(|start| start == counters::MAGIC)
    };
    let by_symbol: Vec<u64> = addresses_of("snug_counters", maps, images).collect();
    if let Some(first) = by_symbol.first() {
        // A program may be linked with one file of snug's and have another preloaded: only one of them serves.
        return by_symbol.iter().copied().find(is_filled).or(Some(*first));
    }
    let ranges = writable_ranges(maps_text, static_executable?);
    let addresses =
        ranges.into_iter().flat_map(|(start, end)| (start..end).step_by(counters::ALIGN as usize));
    addresses.take(SEARCHED_PAGES).find(is_filled)
}

/// Where the answers of an allocator lie, in a process that the asker was preloaded into.
pub fn find_answers<'a>(
    maps: &'a [Mapping],
    images: impl Iterator<Item = (&'a str, &'a ElfFacts)> + 'a,
) -> Option<u64> {
    let found = addresses_of(answers::SYMBOL, maps, images).next();
    found
}

/// Where a symbol of mapped files lies in the process.
fn addresses_of<'a>(
    name: &'static str,
    maps: &'a [Mapping],
    images: impl Iterator<Item = (&'a str, &'a ElfFacts)> + 'a,
) -> impl Iterator<Item = u64> + 'a {
    let has_it = move |elf: &ElfFacts| elf.exported.contains_key(name) || elf.internal.contains_key(name);
    let having = images.filter(move |(_, elf)| has_it(elf)).take(SEARCHED_FILES);
    having.filter_map(move |(path, elf)| address_of(elf, name, path, maps))
}

/// Where a symbol of a mapped file lies in the process.
fn address_of(elf: &ElfFacts, name: &str, path: &str, maps: &[Mapping]) -> Option<u64> {
    let symbol = elf.exported.get(name).or(elf.internal.get(name))?;
    let (first_address, first_offset) = elf.first_load?;
    let first_map = maps.iter().find(|mapping| mapping.path == path)?;
    // A segment is mapped at its address plus the load base, each rounded down to pages alike.
    let first_byte = first_map.start.wrapping_sub(first_map.offset);
    let base = first_byte.wrapping_sub(first_address.wrapping_sub(first_offset));
    // The upper half of all addresses is the kernel's; a file may say anything.
    Some(base.wrapping_add(*symbol)).filter(|address| *address <= i64::MAX as u64)
}

/// Reads the head of the page at an address.
pub fn read_counters(pid: Pid, address: u64) -> Result<Counters, ReadError> {
    Counters::parse(&read_memory(pid, address, counters::HEAD_BYTES)?)
}

/// Reads the wishes in the page at an address. None: they can't be read, or the library has none.
pub fn read_wishes(pid: Pid, address: u64) -> Option<Wishes> {
    let size = read_memory(pid, address + counters::SIZE_OFFSET as u64, 4).ok()?;
    let size = u32::from_ne_bytes(size.try_into().ok()?) as usize;
    if size < counters::WISHES_OFFSET + size_of::<WishesLayout>() {
        return None;
    }
    Wishes::parse(
        &read_memory(pid, address + counters::WISHES_OFFSET as u64, size_of::<WishesLayout>()).ok()?,
    )
}

/// Reads the page at an address, with the size classes of up to `arenas` arenas: as many as the last reading
/// found, or 1 at first. Reads again if there are more by now.
pub fn read_account(pid: Pid, address: u64, arenas: u32) -> Result<Account, ReadError> {
    let mut arenas = arenas.max(1);
    loop {
        let account = Account::parse(&read_memory(pid, address, counters::bytes_with_arenas(arenas))?)?;
        if account.head.arena_count <= arenas || arenas as usize >= counters::ARENAS {
            return Ok(account);
        }
        arenas = account.head.arena_count;
    }
}

/// Reads the allocator's last answer at an address. Ok(None): there is none yet, or none since long; Err: there is no place
/// for any.
pub fn read_answer(pid: Pid, address: u64) -> Result<Option<HeapSize>, ReadError> {
    answers::parse(&read_memory(pid, address, answers::BYTES)?)
}

/// Writable mappings of a file and the anonymous ones that directly follow them: its zeroed data.
fn writable_ranges(maps_text: &[u8], path: &str) -> Vec<(u64, u64)> {
    let text = String::from_utf8_lossy(maps_text);
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut end_of_file_part = 0;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(permissions)) = (words.next(), words.next()) else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else {
            continue;
        };
        let of_file = line.contains(path);
        let follows = start == end_of_file_part && words.nth(3).is_none_or(|name| name == "[heap]");
        if of_file || follows {
            end_of_file_part = end;
            if permissions.starts_with("rw") {
                ranges.push((start, end));
            }
        }
    }
    ranges
}

/// Copies memory of another process without stopping it.
pub fn read_memory(pid: Pid, address: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0u8; length];
    read_into(pid, address, &mut buffer)?;
    Ok(buffer)
}

/// The same into a buffer, which it fills.
pub fn read_into(pid: Pid, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    let length = buffer.len();
    read_pieces(pid, &[address], length, buffer)
}

/// The word at an offset of what was read.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The same for pieces of `length` bytes each, which follow each other in the buffer.
///
/// By the file, which leaves the process as it is. process_vm_readv(2) pins the pages that it reads, and since Linux 5.19
/// (FAULT_FLAG_UNSHARE in mm/gup.c) a process gets a copy of each pinned page that it shared since a fork: it would grow
/// by being looked at. But the call asks for CAP_SYS_PTRACE alone, where the file has an owner, too.
pub fn read_pieces(pid: Pid, addresses: &[u64], length: usize, buffer: &mut [u8]) -> io::Result<()> {
    if buffer.is_empty() {
        return Ok(());
    }
    match read_pieces_of(pid, addresses, length, buffer) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => match proc::living(pid) {
            thread if thread != pid => read_pieces_of(thread, addresses, length, buffer),
            _ => Err(error),
        },
        read => read,
    }
}

/// The same of a thread.
fn read_pieces_of(pid: Pid, addresses: &[u64], length: usize, buffer: &mut [u8]) -> io::Result<()> {
    let held = HELD.with_borrow(|held| held.clone()).filter(|held| held.0 == pid).map(|held| held.1);
    let file = held.map_or_else(|| File::open(format!("/proc/{pid}/mem")).map(Arc::new), Ok);
    let Ok(file) = file else { return call_for_pieces(pid, addresses, length, buffer) };
    for (address, piece) in addresses.iter().zip(buffer.chunks_mut(length)) {
        file.read_exact_at(piece, *address).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Errno::ESRCH.into(),
            _ if error.raw_os_error() == Some(libc::EIO) => Errno::EFAULT.into(), // as the call says it
            _ => error,
        })?;
    }
    Ok(())
}

/// Pieces in one call: IOV_MAX of Linux.
const PIECES_MAX: usize = 1024;

fn call_for_pieces(pid: Pid, addresses: &[u64], length: usize, buffer: &mut [u8]) -> io::Result<()> {
    for (addresses, buffer) in addresses.chunks(PIECES_MAX).zip(buffer.chunks_mut(PIECES_MAX * length)) {
        let remote: Vec<RemoteIoVec> =
            addresses.iter().map(|base| RemoteIoVec { base: *base as usize, len: length }).collect();
        let wanted = buffer.len();
        match process_vm_readv(NixPid::from_raw(pid), &mut [IoSliceMut::new(buffer)], &remote) {
            Ok(count) if count == wanted => {}
            Ok(_) => return Err(Errno::EFAULT.into()),
            // A sandbox that has no such call refuses, too.
            Err(Errno::EPERM | Errno::ENOSYS) => return Err(io::ErrorKind::PermissionDenied.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

thread_local! {
    /// Of this process this memory is read.
    static HELD: RefCell<Option<(Pid, Arc<File>)>> = const { RefCell::new(None) };
}

/// The memory of the program that a process runs now. Not that of a program which it executes later, with more rights
/// perhaps, nor that of another process with its number: what was found there is looked up and written where it was found.
///
/// Who may not open the memory, but may call process_vm_readv(2), has the memory of that moment all the same.
pub struct ProgramMemory {
    pid: Pid,
    file: Option<Arc<File>>,
    can_write: bool,
}

impl ProgramMemory {
    /// To read it.
    pub fn to_read(pid: Pid) -> ProgramMemory {
        let file = File::open(format!("/proc/{}/mem", proc::living(pid))).ok();
        ProgramMemory { pid, file: file.map(Arc::new), can_write: false }
    }

    /// To read and to write it.
    pub fn to_write(pid: Pid) -> ProgramMemory {
        let path = format!("/proc/{}/mem", proc::living(pid));
        match File::options().read(true).write(true).open(path) {
            Ok(file) => ProgramMemory { pid, file: Some(Arc::new(file)), can_write: true },
            Err(_) => ProgramMemory::to_read(pid),
        }
    }

    /// What is read of the process meanwhile, by whatever function here, is this program's.
    pub fn within<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = HELD.replace(self.file.clone().map(|file| (self.pid, file)));
        let result = read();
        HELD.set(before);
        result
    }

    /// Writes some of it.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        match &self.file {
            Some(file) if self.can_write => return file.write_all_at(bytes, address),
            // The kernel may not let anybody write by the file; by this it is the program still.
            Some(file) => file.read_exact_at(&mut [0], address)?,
            None => {}
        }
        write_memory(self.pid, address, bytes)
    }
}

/// Writes memory of another process without stopping it.
pub fn write_memory(pid: Pid, address: u64, bytes: &[u8]) -> io::Result<()> {
    let remote = [RemoteIoVec { base: address as usize, len: bytes.len() }];
    let pid = proc::living(pid);
    match process_vm_writev(NixPid::from_raw(pid), &[IoSlice::new(bytes)], &remote) {
        Ok(count) if count == bytes.len() => return Ok(()),
        Err(Errno::EPERM) => return Err(io::ErrorKind::PermissionDenied.into()),
        Err(Errno::ESRCH) => return Err(Errno::ESRCH.into()),
        // Sandboxes may refuse the call itself: the file does the same.
        _ => {}
    }
    File::options().write(true).open(format!("/proc/{pid}/mem"))?.write_all_at(bytes, address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::must_end;

    #[test]
    fn own_memory_can_be_read() {
        let text = *b"a text to find again";
        let read = read_memory(std::process::id() as Pid, text.as_ptr() as u64, text.len()).unwrap();
        assert_eq!(read, text);
        let nothing_there = read_memory(std::process::id() as Pid, 8, 16).unwrap_err();
        assert_eq!(nothing_there.raw_os_error(), Some(libc::EFAULT));
        assert!(read_memory(std::process::id() as Pid, 8, 0).unwrap().is_empty(), "there is nothing to read");
        let many: Vec<[u8; 2]> = (0..3000u16).map(u16::to_le_bytes).collect();
        let addresses: Vec<u64> = many.iter().rev().map(|piece| piece.as_ptr() as u64).collect();
        let mut pieces = vec![0; 6000];
        read_pieces(std::process::id() as Pid, &addresses, 2, &mut pieces).unwrap();
        assert!(pieces.chunks_exact(2).eq(many.iter().rev()), "more than one call takes");
    }

    /// As one may do that wants a command of root's to write into a program with more rights.
    #[test]
    fn another_program_of_the_same_process_is_neither_read_nor_written() {
        use std::process::{Command, Stdio};
        let script = "read line; exec sleep 600";
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id() as Pid;
        let program = || std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let wait_for = |name: &str| while !program().ends_with(name) {};
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        wait_for(shell.file_name().unwrap().to_str().unwrap());
        let memories = [ProgramMemory::to_read(pid), ProgramMemory::to_write(pid)];
        drop(child.stdin.take());
        wait_for("sleep");
        // The kernel names the program a moment before it maps it.
        let address = loop {
            let maps = snug_process::maps::parse_regions(&proc::content(pid, "maps").unwrap());
            if let Some(first) = maps.first() {
                break first.start;
            }
        };
        let by_number = read_memory(pid, address, 8);
        let held = memories.each_ref().map(|memory| {
            let read = memory.within(|| read_memory(pid, address, 8));
            (read.map_err(ReadError::from), memory.write(address, &[1; 8]).is_ok())
        });
        let after = read_memory(pid, address, 8);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(held, [const { (Err(ReadError::Io(Errno::ESRCH)), false) }; 2]);
        assert!(by_number.is_ok() && by_number.ok() == after.ok(), "what is there now is as it was");
    }

    #[test]
    fn pieces_can_be_asked_for_by_the_call() {
        let many: Vec<[u8; 2]> = (0..3000u16).map(u16::to_le_bytes).collect();
        let addresses: Vec<u64> = many.iter().rev().map(|piece| piece.as_ptr() as u64).collect();
        let mut pieces = vec![0; 6000];
        call_for_pieces(std::process::id() as Pid, &addresses, 2, &mut pieces).unwrap();
        assert!(pieces.chunks_exact(2).eq(many.iter().rev()), "more than one call takes");
        assert!(call_for_pieces(std::process::id() as Pid, &[8, addresses[0]], 2, &mut pieces[..4]).is_err());
    }

    #[test]
    fn an_end_is_no_refusal() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as Pid;
        child.wait().unwrap();
        for error in [read_memory(pid, 8, 16).unwrap_err(), write_memory(pid, 8, b"x").unwrap_err()] {
            assert_eq!(ReadError::from(error), ReadError::Io(Errno::ESRCH));
        }
    }

    #[test]
    fn refusals_are_told_from_pages_that_say_nothing() {
        for errno in [libc::EACCES, libc::EPERM] {
            assert_eq!(ReadError::from(io::Error::from_raw_os_error(errno)), ReadError::Refused);
        }
        assert_eq!(ReadError::from(io::Error::from(io::ErrorKind::PermissionDenied)), ReadError::Refused);
        assert_eq!(ReadError::from(io::Error::from_raw_os_error(libc::EIO)), ReadError::Io(Errno::EIO));
        // A page of another version, or one that is not written yet, is read all the same.
        let own = [0u8; counters::HEAD_BYTES];
        let error = read_counters(std::process::id() as Pid, own.as_ptr() as u64).unwrap_err();
        assert!(matches!(error, ReadError::NotThere(_)), "{error}");
    }

    #[test]
    fn zeroed_data_follows_the_file() {
        let maps = b"1000-2000 r-xp 0 fe:00 7 /bin/app\n2000-3000 rw-p 1000 fe:00 7 /bin/app\n\
            3000-5000 rw-p 0 00:00 0 \n5000-6000 rw-p 0 00:00 0 [heap]\n8000-9000 rw-p 0 00:00 0 \n";
        assert_eq!(writable_ranges(maps, "/bin/app"), [(0x2000, 0x3000), (0x3000, 0x5000), (0x5000, 0x6000)]);
    }

    #[test]
    fn a_program_that_maps_its_file_far_and_wide_is_searched_to_an_end() {
        must_end(|| {
            let maps = b"1000-7ffffffff000 rw-p 0 fe:00 7 /bin/app\n";
            let pid = std::process::id() as Pid;
            assert_eq!(find_page(pid, &[], maps, std::iter::empty(), Some("/bin/app")), None);
        });
    }
}
