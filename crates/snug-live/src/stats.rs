//! The memory of one running process, as known of the kernel, of its allocator, and of its heap.

use std::collections::BTreeMap;

use serde::Serialize;

use snug_base::failure::{Failure, Result, UNKNOWN};
use snug_base::machine;
use snug_heap::account::Heap;
use snug_heap::glibc_heap::{self, HeapSize, Obstacle};
use snug_heap::remote;
use snug_inspect::access;
use snug_inspect::kinds::Kind;
use snug_inspect::report::AllocatorUsed;
use snug_process::proc::{self, Pid, ProcFilesystem, Processes, Rollup};
use snug_process::role;

/// One process at one moment. All memory is in bytes.
#[derive(Debug, Clone, Serialize)]
pub struct Stats {
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
    pub glibc_heap: Option<HeapSize>,
    /// Why neither is known; None if one is.
    pub live_unknown: Option<String>,
}

/// Looks at a process.
pub fn collect(pid: Pid) -> Result<Stats> {
    let found = access::look_at(pid)?;
    let gone = || Failure::new(format!("process {pid} has ended")).exit_code(UNKNOWN);
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
        (_, Some(Obstacle::Swapped)) => "many pages are swapped out, and were left there".into(),
        (_, Some(Obstacle::Unsound)) => {
            "glibc's heaps could not be walked: they changed while they were read; try again".into()
        }
        _ => "this allocator does not show from outside what is in use".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_stats_and_no_heap() {
        let stats = collect(std::process::id() as Pid).unwrap();
        assert!(stats.heap.is_none() && stats.rss_bytes > 1 << 20 && stats.pss_bytes.unwrap() > 0);
    }

    #[test]
    fn what_is_unknown_is_explained() {
        let refused = why_unknown(Some(Kind::Glibc), Some(Obstacle::Refused), "1");
        assert!(refused.starts_with("glibc's heaps may not be read: "), "{refused}");
        assert!(why_unknown(Some(Kind::Glibc), Some(Obstacle::Unsound), "1").contains("try again"));
        assert!(why_unknown(Some(Kind::Jemalloc), None, "1").contains("does not show from outside"));
        assert!(why_unknown(None, None, "1").contains("not known"));
    }
}
