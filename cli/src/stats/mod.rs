//! `snug stats`: what is known about the memory of one running process.
//!
//! `Stats` is the model, `text` and `json` write it, and the metrics are those of `snug exporter`.

mod json;
mod text;

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::access;
use crate::allocator::Kind;
use crate::arguments::StatsArguments;
use crate::check::report::AllocatorUsed;
use crate::counters::{Account, Class};
use crate::failure::{Context, Failure, Result, UNKNOWN};
use crate::glibc_heap::{self, Estimate, Obstacle};
use crate::proc::{self, Pid, ProcFilesystem, Processes, Rollup};
use crate::{exporter, machine, remote, role, terminal, VERSION};

/// Name and version of the JSON format.
pub const FORMAT: &str = "snug-stats";
pub const FORMAT_VERSION: u32 = 1;

/// One process at one moment. All memory is in bytes.
#[derive(Debug, Clone, Serialize)]
pub struct Stats {
    pub format: &'static str,
    pub format_version: u32,
    pub snug_version: &'static str,
    pub pid: Pid,
    /// What it does in its application, as its title says.
    pub role: String,
    pub command: String,
    pub allocator: Option<AllocatorUsed>,
    pub settings: BTreeMap<String, String>,
    pub warnings: Vec<String>,
    pub rss_bytes: u64,
    /// None: the kernel does not say.
    pub pss_bytes: Option<u64>,
    pub uss_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    pub threads: u64,
    pub cpu_s: f64,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// None for other allocators than snug: they tell nobody outside.
    pub heap: Option<Heap>,
    /// For glibc, what a walk over its heaps finds.
    pub glibc_heap: Option<Estimate>,
    /// Why neither is known; None if one is.
    pub live_unknown: Option<String>,
}

/// The heap of a process under snug, by its own counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Heap {
    /// What the program asked for and has not freed; of small blocks estimated from samples.
    pub live_requested_bytes: u64,
    /// The blocks that hold it.
    pub live_allocated_bytes: u64,
    /// Freed blocks that threads keep at hand.
    pub cached_bytes: u64,
    /// Free blocks in slabs that may hold memory.
    pub slab_free_bytes: u64,
    /// Free pages that hold memory.
    pub dirty_bytes: u64,
    pub metadata_bytes: u64,
    /// At most this is resident.
    pub resident_bytes: u64,
    /// Share of that which is not live, from 0 to 1.
    pub fragmentation: f64,
    /// Blocks that ever left the slabs, and their bytes; what a thread's cache serves again is not counted.
    pub taken_blocks: u64,
    pub taken_bytes: u64,
    pub purged_bytes: u64,
    pub purges: u64,
    pub idle_purges: u64,
    pub limit_purges: u64,
    pub forks: u64,
    pub thread_caches: u64,
    pub arenas: u32,
    pub large_blocks: u64,
    pub large_bytes: u64,
    /// Whether blocks in caches, free pages and tables were counted: not in a program that has done little. They are
    /// 0 then, and blocks in caches pass for live.
    pub counted: bool,
    /// Classes of which blocks were ever used.
    pub classes: Vec<Class>,
}

impl Heap {
    /// Adds up what a page of counters says (E2, E3 and E5 of its header).
    pub fn from_account(account: &Account) -> Heap {
        let head = &account.head;
        let outstanding: u64 = account.classes.iter().map(Class::outstanding_bytes).sum();
        let in_slabs: u64 = account.classes.iter().map(|class| class.slab_bytes).sum();
        let (taken_blocks, taken_bytes) = account.taken();
        Heap {
            taken_blocks,
            taken_bytes,
            live_requested_bytes: requested_bytes(account, outstanding),
            live_allocated_bytes: account.live_bytes(),
            cached_bytes: head.cached_bytes,
            slab_free_bytes: in_slabs.saturating_sub(outstanding + head.slab_purged_bytes),
            dirty_bytes: head.dirty_bytes,
            metadata_bytes: head.metadata_bytes,
            resident_bytes: account.resident_bytes(),
            fragmentation: account.fragmentation(),
            purged_bytes: head.purged_bytes,
            purges: head.purges,
            idle_purges: head.idle_purges,
            limit_purges: head.limit_purges,
            forks: head.forks,
            thread_caches: head.caches,
            arenas: head.arena_count,
            large_blocks: head.large_blocks,
            large_bytes: head.large_bytes,
            counted: account.is_counted(),
            classes: account.classes.iter().filter(|class| class.taken_blocks > 0).copied().collect(),
        }
    }
}

/// E3: each class's blocks at the mean size that was asked for; runs and large blocks exactly.
fn requested_bytes(account: &Account, outstanding: u64) -> u64 {
    let head = &account.head;
    let asked: f64 = account
        .classes
        .iter()
        .filter(|class| class.sampled_requests > 0)
        .map(|class| {
            let mean = class.sampled_requested_bytes as f64 / class.sampled_requests as f64;
            class.outstanding_blocks as f64 * mean
        })
        .sum();
    let live = outstanding.saturating_sub(head.cached_bytes) as f64;
    let share = if outstanding > 0 { asked / outstanding as f64 } else { 0.0 };
    (live * share) as u64 + head.run_requested_bytes + head.large_requested_bytes
}

/// Writes stats in one format.
pub trait Writer {
    fn write(&self, stats: &Stats, out: &mut dyn Write) -> io::Result<()>;
}

/// Runs the command.
pub fn run(arguments: &StatsArguments) -> Result<()> {
    if arguments.prometheus {
        access::look_at(arguments.pid)?;
        let metrics = exporter::metrics_of(arguments.pid)?;
        return anstream::stdout().write_all(metrics.as_bytes()).cannot(|| "write to stdout".into());
    }
    let stats = collect(arguments.pid)?;
    let writer: &dyn Writer = if arguments.json {
        &json::JsonWriter
    } else {
        &text::TextWriter { colours: terminal::stdout_colours(), classes: arguments.classes }
    };
    match writer.write(&stats, &mut anstream::stdout().lock()) {
        // `snug stats PID | head`: the reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.cannot(|| "write to stdout".into()),
    }
}

/// Looks at a process.
pub fn collect(pid: Pid) -> Result<Stats> {
    let found = access::look_at(pid)?;
    let gone = || Failure::new(format!("process {pid} has ended meanwhile")).exit_code(UNKNOWN);
    let mut source = ProcFilesystem::new();
    let mut buffer = Vec::new();
    let read = source.read(pid, "stat", &mut buffer);
    let stat = read.ok().and_then(|()| proc::parse_stat(&buffer)).ok_or_else(gone)?;
    let rollup: Option<Rollup> =
        source.read(pid, "smaps_rollup", &mut buffer).ok().and_then(|()| proc::parse_smaps_rollup(&buffer));
    let heap = match found.counters_at {
        Some(address) => Some(remote::read_account(pid, address, 1).map_err(|_| gone())?),
        None => None,
    };
    let _ = source.read(pid, "cmdline", &mut buffer);
    let text = String::from_utf8_lossy(&buffer).into_owned();
    let words: Vec<String> = text.split('\0').filter(|word| !word.is_empty()).map(String::from).collect();
    let own_warnings = heap.iter().flat_map(|account| account.head.warnings.split("; "));
    let problems =
        found.report.problems.iter().map(|problem| format!("{}; fix: {}", problem.message, problem.fix));
    let kind = found.report.allocator.as_ref().map(|used| used.kind);
    let walk = (kind == Some(Kind::Glibc)).then(|| glibc_heap::examine(pid)).transpose();
    let (glibc_heap, obstacle) = walk.map_or_else(|obstacle| (None, Some(obstacle)), |found| (found, None));
    let unknown = heap.is_none() && glibc_heap.is_none();
    Ok(Stats {
        format: FORMAT,
        format_version: FORMAT_VERSION,
        snug_version: VERSION,
        pid,
        role: role::role(&words, &stat.name),
        command: found.report.command.clone(),
        warnings: own_warnings.filter(|text| !text.is_empty()).map(String::from).chain(problems).collect(),
        allocator: found.report.allocator,
        settings: found.report.settings,
        rss_bytes: rollup.map_or(stat.rss_pages * machine::page_size_bytes(), |rollup| rollup.rss_bytes),
        pss_bytes: rollup.map(|rollup| rollup.pss_bytes),
        uss_bytes: rollup.map(|rollup| rollup.uss_bytes),
        swap_bytes: rollup.map(|rollup| rollup.swap_bytes),
        threads: stat.threads,
        cpu_s: (stat.user_ticks + stat.system_ticks) as f64 / machine::ticks_per_second(),
        minor_faults: stat.minor_faults,
        major_faults: stat.major_faults,
        heap: heap.as_ref().map(Heap::from_account),
        glibc_heap,
        live_unknown: unknown.then(|| why_unknown(kind, obstacle, &access::ptrace_scope())),
    })
}

/// Why nothing is known of what is live. `obstacle` is what a walk over glibc's heaps met.
fn why_unknown(kind: Option<Kind>, obstacle: Option<Obstacle>, ptrace_scope: &str) -> String {
    match (kind, obstacle) {
        (None, _) => "which allocator it uses is not known".into(),
        (Some(Kind::Snug), _) => "snug's counters were not found".into(),
        (_, Some(Obstacle::Refused)) => {
            let (why, advice) = access::refusal(ptrace_scope);
            format!("glibc's heaps may not be read: {why}; {advice}")
        }
        (_, Some(Obstacle::Swapped)) => "many pages are in swap, where they are left".into(),
        (_, Some(Obstacle::Unsound)) => {
            "glibc's heaps could not be walked: they changed while they were read; try again".into()
        }
        _ => "this allocator tells nobody outside what is in use".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;

    fn account() -> Account {
        let class = |size_bytes, outstanding_blocks, mean: u64| Class {
            size_bytes,
            outstanding_blocks,
            slab_bytes: size_bytes * outstanding_blocks * 2,
            taken_blocks: outstanding_blocks,
            sampled_requests: 10,
            sampled_requested_bytes: 10 * mean,
            ..Class::default()
        };
        let head = Counters {
            cached_bytes: 300,
            cached_at_ns: 1,
            run_bytes: 40_960,
            run_requested_bytes: 40_000,
            heap_top_bytes: 100_000,
            clean_bytes: 20_000,
            metadata_bytes: 4_096,
            ..Counters::default()
        };
        Account { head, classes: vec![class(100, 30, 90), class(200, 0, 150), Class::default()] }
    }

    #[test]
    fn a_heap_adds_up() {
        let heap = Heap::from_account(&account());
        assert_eq!(heap.live_allocated_bytes, 3000 - 300 + 40_960);
        assert_eq!(heap.live_requested_bytes, 2430 + 40_000);
        assert_eq!(heap.slab_free_bytes, 3000);
        assert_eq!(heap.resident_bytes, 100_000 - 20_000 + 4_096);
        assert_eq!(heap.classes.len(), 1, "only classes that were used");
        assert!(heap.counted);
        let idle = Account { head: Counters { cached_at_ns: 0, ..account().head }, ..account() };
        assert!(!Heap::from_account(&idle).counted);
    }

    #[test]
    fn own_process_has_stats_and_no_heap() {
        let stats = collect(std::process::id() as Pid).unwrap();
        assert!(stats.heap.is_none() && stats.rss_bytes > 1 << 20 && stats.pss_bytes.unwrap() > 0);
    }

    #[test]
    fn what_is_unknown_is_explained() {
        let refused = |scope| why_unknown(Some(Kind::Glibc), Some(Obstacle::Refused), scope);
        assert!(refused("1").contains("kernel.yama.ptrace_scope is 1"), "{}", refused("1"));
        assert!(refused("1").contains("as root or with the capability"), "{}", refused("1"));
        assert!(refused("").contains("run this as root"), "{}", refused(""));
        assert!(why_unknown(Some(Kind::Glibc), Some(Obstacle::Unsound), "1").contains("try again"));
        assert!(why_unknown(Some(Kind::Jemalloc), None, "1").contains("tells nobody outside"));
        assert!(why_unknown(None, None, "1").contains("not known"));
    }
}
