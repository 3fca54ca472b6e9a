//! CPU time by samples: into the allocator's code, into its system calls, into page faults. Pure. What a run takes
//! drifts with what else the machine does; which share of its samples this is hardly does.
//!
//! The text of `perf script` is read, and not perf.data by the crate linux-perf-data, which gives records: the names of
//! the kernel's functions, the mappings, and the addresses in files, which perf script has worked out, would be ours.

use std::collections::HashSet;
use std::io::{self, BufRead};
use std::ops::Range;
use std::path::Path;

use crate::results::CpuSamples;
use snug_process::proc::Pid;

/// Where an allocator's code lies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllocatorCode {
    /// The file that it is in, without links in its path.
    pub path: String,
    /// Addresses in it as the file has them; None: all of it is the allocator.
    pub addresses: Option<Range<u64>>,
}

impl AllocatorCode {
    /// A library that is nothing else.
    pub fn library(path: &Path) -> AllocatorCode {
        AllocatorCode { path: path.display().to_string(), addresses: None }
    }

    /// A C library, whose exported functions are `functions`: names, addresses and sizes in bytes. What malloc consists
    /// of is compiled as one, so it lies between the functions that are exported before and after all of malloc's; most
    /// of it has no name in a stripped file. None if there is no malloc in it.
    pub fn in_c_library(path: &Path, functions: &[(String, u64, u64)]) -> Option<AllocatorCode> {
        let is_own = |name: &str| MALLOCS.contains(&name);
        let own = functions.iter().filter(|(name, ..)| is_own(name));
        let first = own.clone().map(|(_, address, _)| *address).min()?;
        let last = own.map(|(_, address, _)| *address).max()?;
        let others = || functions.iter().filter(|(name, ..)| !is_own(name));
        let before =
            others().filter(|(_, address, _)| *address < first).map(|(_, address, bytes)| address + bytes);
        let after = others().map(|(_, address, _)| *address).filter(|address| *address > last);
        let addresses = before.max()?..after.min()?;
        Some(AllocatorCode { path: path.display().to_string(), addresses: Some(addresses) })
    }

    fn holds(&self, frame: &StackFrame) -> bool {
        let is_inside =
            |range: &Range<u64>| range.contains(&frame.address) || MALLOCS.contains(&frame.symbol);
        frame.file == self.path && self.addresses.as_ref().is_none_or(is_inside)
    }
}

/// What glibc's malloc exports (malloc/Versions), with the names that only debug information has.
const MALLOCS: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "malloc_trim",
    "malloc_stats",
    "malloc_info",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "cfree",
    "__libc_malloc",
    "__libc_free",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__libc_valloc",
    "__libc_pvalloc",
    "__libc_mallopt",
    "__posix_memalign",
    "__default_morecore",
];
/// System calls that get memory or give it back.
const MEMORY_CALLS: &[&str] = &["madvise", "munmap", "mmap", "mremap", "mprotect", "brk", "membarrier"];

/// One function on a stack.
struct StackFrame<'a> {
    address: u64,
    symbol: &'a str,
    file: &'a str,
}

impl StackFrame<'_> {
    /// Of a line of `perf script`: address, function, file in parentheses.
    fn parse(line: &str) -> Option<StackFrame<'_>> {
        let (address, rest) = line.trim().split_once(' ')?;
        let rest = rest.trim_end().strip_suffix(')')?;
        // A path may hold parentheses, as may the name of a C++ function; no such name holds a path.
        let path = rest.find(" (/").map(|at| (&rest[..at], &rest[at + 2..]));
        let (symbol, file) = path.or_else(|| rest.rsplit_once('('))?;
        let file = file.strip_suffix(" (deleted)").unwrap_or(file);
        Some(StackFrame { address: u64::from_str_radix(address, 16).ok()?, symbol: symbol.trim(), file })
    }

    fn is_kernel(&self) -> bool {
        self.address >= 1 << 63
    }

    fn is_page_fault(&self) -> bool {
        // Of x86-64 and of aarch64.
        self.symbol.contains("page_fault") || self.symbol == "do_mem_abort"
    }

    fn is_memory_call(&self) -> bool {
        let name = self.symbol.rsplit_once("_sys_").map(|(_, name)| name);
        name.is_some_and(|name| MEMORY_CALLS.contains(&name))
    }
}

/// Counts the samples of these processes in what `perf script -F pid,ip,sym,dso` writes: a line with the process, then
/// the stack with the innermost function first, then an empty line. A sample counts once: in the kernel for a page
/// fault, in the kernel for a call about memory, or in the code of an allocator. One sample at a time is held, since all
/// of a long run are gigabytes. `others` are not counted, nor what they start, as `--show-task-events` tells.
pub fn attribute(
    mut script: impl BufRead,
    codes: &[AllocatorCode],
    mut others: HashSet<Pid>,
    is_measured: &dyn Fn(Pid) -> bool,
) -> io::Result<CpuSamples> {
    let mut counts = CpuSamples::default();
    let (mut sample, mut line) = (String::new(), Vec::new());
    loop {
        line.clear();
        let is_end = script.read_until(b'\n', &mut line)? == 0;
        if !is_end && !line.trim_ascii().is_empty() {
            let text = String::from_utf8_lossy(&line);
            match text.split_once(" PERF_RECORD_") {
                Some((_, event)) => follow(event, &mut others),
                None => sample.push_str(&text),
            }
            continue;
        }
        count(&mut counts, &sample, codes, &|pid| is_measured(pid) && !others.contains(&pid));
        sample.clear();
        if is_end {
            return Ok(counts);
        }
    }
}

/// A child belongs to where its parent does: `FORK(CHILD:THREAD):(PARENT:THREAD)`. Numbers of processes are used again.
fn follow(event: &str, others: &mut HashSet<Pid>) {
    let Some((child, parent)) = event.strip_prefix("FORK(").and_then(|event| event.split_once("):(")) else {
        return;
    };
    let process = |text: &str| text.split_once(':').and_then(|(pid, _)| pid.parse::<Pid>().ok());
    let (Some(child), Some(parent)) = (process(child), process(parent)) else { return };
    if others.contains(&parent) {
        others.insert(child);
    } else {
        others.remove(&child);
    }
}

fn count(counts: &mut CpuSamples, sample: &str, codes: &[AllocatorCode], is_measured: &dyn Fn(Pid) -> bool) {
    let Some((pid, stack)) = sample.split_once('\n') else { return };
    let frames: Vec<StackFrame> = stack.lines().filter_map(StackFrame::parse).collect();
    let Some(innermost) = frames.first() else { return };
    if !pid.trim().parse().is_ok_and(is_measured) {
        return;
    }
    counts.total += 1;
    let kernel = || frames.iter().take_while(|frame| frame.is_kernel());
    if kernel().any(StackFrame::is_page_fault) {
        counts.page_faults += 1;
    } else if kernel().any(StackFrame::is_memory_call) {
        counts.memory_calls += 1;
    } else if codes.iter().any(|code| code.holds(innermost)) {
        counts.allocator_code += 1;
    }
}

/// Whether any function of the kernel has its name in there: without names no fault and no call can be told.
pub fn names_the_kernel(script: &str) -> bool {
    let frames = script.lines().filter_map(StackFrame::parse);
    frames.filter(StackFrame::is_kernel).any(|frame| frame.symbol != "[unknown]")
}

/// Whether addresses in files are as the files have them, as perf writes them since 5.9, and not as they were in a
/// process.
pub fn has_file_addresses(script: &str) -> bool {
    let frames = script.lines().filter_map(StackFrame::parse);
    let in_libraries = frames.filter(|frame| !frame.is_kernel() && frame.file.contains(".so"));
    in_libraries.map(|frame| frame.address).all(|address| address < 1 << 40)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
7 
\tffffffff815eb94e __handle_mm_fault ([kernel.kallsyms])
\tffffffff81000c82 asm_exc_page_fault ([kernel.kallsyms])
\t           10100 malloc (/lib/libm.so)

7 
\tffffffff821d4ffb mas_store_gfp ([kernel.kallsyms])
\tffffffff815f27f7 __x64_sys_munmap ([kernel.kallsyms])
\t          101a07 __munmap (/lib/libc.so.6)

7 
\tffffffff821d4ffb zap_page_range ([kernel.kallsyms])
\tffff800080010000 __arm64_sys_madvise ([kernel.kallsyms])

7 
\tffffffff81710b04 prepend_path ([kernel.kallsyms])
\tffffffff81710fe4 __do_sys_getcwd ([kernel.kallsyms])
\t           10100 malloc (/lib/libm.so)

7 
\t           10100 [unknown] (/lib/libm.so)
\t            2200 main (/bin/a (deleted))

7 
\t           95140 [unknown] (/lib/libc.so.6)
\t            2200 main (/bin/a)

7 
\t           f0000 memcpy (/lib/libc.so.6)
\t           10100 malloc (/lib/libm.so)

8 
	           10100 malloc (/lib/libm.so)

";

    fn counts(script: &str, codes: &[AllocatorCode], is_measured: &dyn Fn(Pid) -> bool) -> CpuSamples {
        attribute(script.as_bytes(), codes, HashSet::new(), is_measured).unwrap()
    }

    #[test]
    fn what_others_start_is_not_counted() {
        let sample = |pid| format!("{pid:5} \n\t 10100 malloc (/lib/libm.so)\n\n");
        let script = [
            "    6 PERF_RECORD_FORK(7:7):(5:5)\n    7 PERF_RECORD_COMM exec: curl:7/7\n".to_string(),
            "    7 PERF_RECORD_FORK(8:8):(7:7)\n".to_string(),
            [7, 8, 9].map(sample).concat(),
            "    7 PERF_RECORD_EXIT(7:7):(5:5)\n    9 PERF_RECORD_FORK(7:7):(9:9)\n".to_string(),
            sample(7),
        ];
        let counted = attribute(script.concat().as_bytes(), &[], HashSet::from([5]), &|_| true).unwrap();
        assert_eq!(counted.total, 2, "of 9, and of what it started with a number that was used before");
    }

    #[test]
    fn a_sample_counts_once_and_where_it_was() {
        let library = |path: &str| AllocatorCode::library(Path::new(path));
        let seen = counts(SCRIPT, &[library("/lib/libm.so")], &|pid| pid == 7);
        let parts = (seen.total, seen.allocator_code, seen.memory_calls, seen.page_faults);
        assert_eq!(parts, (7, 1, 2, 1));
        assert_eq!(counts("\n\n\n", &[library("")], &|_| true), CpuSamples::default());
        let both = counts(SCRIPT, &[library("/lib/libm.so"), library("/lib/libc.so.6")], &|pid| pid == 7);
        assert_eq!(both.allocator_code, 3, "processes of a tree may have different allocators");
    }

    #[test]
    fn names_and_paths_may_hold_spaces_and_parentheses() {
        for (file, path) in
            [("/my (1) app/libm.so", "/my (1) app/libm.so"), ("/my app/libm.so (deleted)", "/my app/libm.so")]
        {
            let script = format!("7 \n\t 10100 f(void (*)(int), (anonymous namespace)::T) ({file})\n\n");
            let code = [AllocatorCode::library(Path::new(path))];
            assert_eq!(counts(&script, &code, &|_| true).allocator_code, 1, "{script}");
        }
    }

    #[test]
    fn malloc_of_a_c_library_is_what_lies_between_the_functions_of_others() {
        let function = |name: &str, address, bytes| (name.to_string(), address, bytes);
        let functions = [
            function("timer_settime", 0x944f0, 0x10),
            function("__default_morecore", 0x96030, 0x33),
            function("malloc", 0x98930, 0x317),
            function("malloc_info", 0x9a300, 0x36),
            function("mcheck", 0x9a340, 6),
            function("memcpy", 0xf0000, 9),
        ];
        let code = AllocatorCode::in_c_library(Path::new("/lib/libc.so.6"), &functions).unwrap();
        assert_eq!(code.addresses, Some(0x94500..0x9a340));
        assert_eq!(counts(SCRIPT, &[code], &|_| true).allocator_code, 1, "not in memcpy");
        assert_eq!(AllocatorCode::in_c_library(Path::new("/lib/libm.so"), &functions[5..]), None);
    }

    #[test]
    fn addresses_of_a_process_are_told_from_those_of_a_file() {
        assert!(has_file_addresses(SCRIPT));
        assert!(!has_file_addresses("\t    7f9d50362e88 [unknown] (/lib/libc.so.6)\n"));
    }

    #[test]
    fn a_kernel_that_hides_its_names_is_noticed() {
        assert!(names_the_kernel(SCRIPT));
        assert!(!names_the_kernel(
            "\tffffffff81710b04 [unknown] ([unknown])\n\t 10100 malloc (/lib/libm.so)\n"
        ));
    }

    #[test]
    fn fuzzed_samples_of_perf() {
        snug_base::random::fuzz(&[SCRIPT.as_bytes(), b"PERF_RECORD_FORK(8:8):(7:7)\n"], |bytes| {
            attribute(bytes, &[], HashSet::from([8]), &|pid| pid == 7).unwrap();
        });
    }
}
