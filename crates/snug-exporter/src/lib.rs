//! `snug exporter`: metrics of processes for Prometheus.
//!
//! `snug_live::watch` reads the processes. `places` finds their control groups and containers, `pods` names the
//! containers, `labels` names the processes, `sites` finds the lines that hold memory in them, `metrics` writes the
//! text, `serve` answers requests, and `connections` carries them.

pub mod arguments;
mod connections;
mod labels;
mod metrics;
mod places;
mod pods;
mod serve;
mod sites;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nix::unistd::User;

use crate::arguments::ExporterArguments;
use crate::labels::{LabelSource, Labeller};
use crate::metrics::{NamedCgroup, Own, Sample};
use crate::places::{Places, ProcessPlace};
use crate::sites::Sites;
use snug_base::failure::{Context, Failure, Result, UNKNOWN};
use snug_base::{machine, terminal};
use snug_heap::account::Heap;
use snug_heap::glibc_heap;
use snug_inspect::access;
use snug_inspect::identity::Identity;
use snug_inspect::inspector::Inspector;
use snug_inspect::kinds::Kind;
use snug_live::control;
use snug_live::watch::{Choice, Reading, Watcher};
use snug_process::memory_group::MemoryGroup;
use snug_process::proc::{missing, need_processes, Pid, ProcFilesystem};
use snug_process::system;

/// Runs the command.
pub fn run(arguments: &ExporterArguments) -> Result<()> {
    need_processes()?;
    let host = arguments.host.as_deref().unwrap_or(Path::new("/"));
    if !host.is_dir() {
        let what = format!("--host {}: there is no such folder", host.display());
        return Err(Failure::usage(
            what,
            "name the folder where the host's files are mounted, as --host=/host",
        ));
    }
    let mut exporter =
        Exporter::new(choice(arguments, host)?, &arguments.role, arguments.max_processes, host);
    if arguments.estimates {
        exporter.watcher = exporter.watcher.with_estimates();
    }
    exporter.sites = arguments.sites.map(|most| Sites::new(usize::from(most)));
    if arguments.once {
        let text = exporter.text()?;
        return anstream::stdout().write_all(text.as_bytes()).cannot(|| "write to stdout".into());
    }
    serve::serve(arguments.listen, arguments.cache, &mut exporter)
}

/// The metrics of one process.
pub fn metrics_of(pid: Pid) -> Result<String> {
    let choice = Choice { pids: vec![pid], ..Choice::default() };
    let mut exporter = Exporter::new(choice, &[], 1, Path::new("/"));
    exporter.only = Some(pid);
    exporter.text()
}

fn choice(arguments: &ExporterArguments, host: &Path) -> Result<Choice> {
    for pid in &arguments.pid {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            return Err(missing(*pid));
        }
    }
    let user = arguments.user.as_deref().map(user_id).transpose()?;
    let cgroup = arguments.cgroup.as_deref().map(|path| cgroup_directory(path, host)).transpose()?;
    Ok(Choice { pids: arguments.pid.clone(), names: Vec::new(), user, cgroup })
}

fn user_id(name: &str) -> Result<u32> {
    let known = User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    known.or_else(|| name.parse().ok()).ok_or_else(|| {
        Failure::new(format!("there is no user '{name}'"))
            .advise("give a name or a number")
            .exit_code(UNKNOWN)
    })
}

fn cgroup_directory(path: &Path, host: &Path) -> Result<PathBuf> {
    let below = |root: &str| host.join(root).join(path.strip_prefix("/").unwrap_or(path));
    let places = [path.to_path_buf(), below("sys/fs/cgroup"), below("sys/fs/cgroup/memory")];
    let found = places.into_iter().find(|place| place.join("cgroup.procs").exists());
    found.ok_or_else(|| {
        Failure::new(format!("there is no control group '{}'", path.display()))
            .advise("`systemd-cgls` shows them; `cat /proc/PID/cgroup` that of a process")
            .exit_code(UNKNOWN)
    })
}

/// Reads processes and makes the text of the metrics.
pub struct Exporter {
    watcher: Watcher<ProcFilesystem, Inspector>,
    labeller: Labeller,
    max_processes: usize,
    /// Of a tree, this process alone.
    only: Option<Pid>,
    /// That heaps are missing is said once.
    warned: bool,
    places: Places,
    /// None: they are not wanted.
    sites: Option<Sites>,
    started: Instant,
    booted_s: f64,
    ticks_per_s: f64,
}

impl Exporter {
    fn new(choice: Choice, roles: &[(String, String)], max_processes: usize, host: &Path) -> Exporter {
        let inspector = Inspector::new(machine::describe().transparent_huge_pages);
        Exporter {
            watcher: Watcher::new(ProcFilesystem::new(), inspector, choice),
            labeller: Labeller::new(roles),
            max_processes,
            only: None,
            warned: false,
            places: Places::new(host),
            sites: None,
            started: Instant::now(),
            booted_s: booted_s(),
            ticks_per_s: machine::ticks_per_second(),
        }
    }

    /// Reads all processes and writes the metrics.
    pub fn text(&mut self) -> Result<String> {
        let begun = Instant::now();
        let mut readings = self.watcher.read(self.started.elapsed().as_secs_f64());
        readings.retain(|reading| reading.rss_bytes > 0 && self.only.is_none_or(|pid| pid == reading.pid));
        let count =
            |is_so: fn(&Identity) -> bool| readings.iter().filter(|reading| is_so(&reading.identity)).count();
        let refused = count(Identity::is_refused);
        let heaps_refused = count(Identity::is_heap_refused);
        if heaps_refused > 0 && !self.warned {
            anstream::eprintln!("snug: {}", warning(heaps_refused, &access::ptrace_scope()));
            self.warned = true;
        }
        let left_out = readings.len().saturating_sub(self.max_processes);
        if left_out > 0 {
            readings.sort_by_key(|reading| std::cmp::Reverse(reading.rss_bytes));
            readings.truncate(self.max_processes);
            readings.sort_by_key(|reading| reading.pid);
        }
        let places = self.places.look(&readings);
        let mut samples = self.samples(&readings, &places);
        if let Some(sites) = &mut self.sites {
            sites.add(self.started.elapsed().as_secs_f64(), &readings, &mut samples);
        }
        let groups: BTreeMap<&MemoryGroup, &ProcessPlace> =
            places.iter().filter_map(|place| Some((place.memory.as_ref()?, place))).collect();
        let read = |(group, place): (&MemoryGroup, &ProcessPlace)| {
            Some(NamedCgroup { names: place.names.clone(), cgroup: group.read()? })
        };
        let mut groups: Vec<NamedCgroup> = groups.into_iter().filter_map(read).collect();
        groups.dedup_by(|left, right| left.cgroup.path == right.cgroup.path);
        let own = Own {
            cpu_s: system::own_cpu().as_secs_f64(),
            reading_s: begun.elapsed().as_secs_f64(),
            left_out,
            refused,
        };
        metrics::text(&samples, &groups, &own)
    }

    fn samples(&mut self, readings: &[Reading], places: &[ProcessPlace]) -> Vec<Sample> {
        let processes: Vec<LabelSource> = readings
            .iter()
            .zip(places)
            .map(|(reading, place)| LabelSource {
                pid: reading.pid,
                parent: reading.parent,
                start_ticks: reading.stat.start_ticks,
                role: &reading.role,
                app: &reading.app,
                command: &reading.command,
                names: place.names.clone(),
            })
            .collect();
        let labels = self.labeller.label(&processes);
        readings
            .iter()
            .zip(labels)
            .zip(places)
            .map(|((reading, labels), place)| {
                let used = reading.identity.allocator.as_ref();
                let ticks = |ticks: u64| ticks as f64 / self.ticks_per_s;
                Sample {
                    labels: Some(labels),
                    allocator: used.map_or("unknown", |used| used.kind.name()).into(),
                    version: used.and_then(|used| used.version.clone()).unwrap_or_default(),
                    group: place.group,
                    cgroup: place.memory.as_ref().map(MemoryGroup::path).unwrap_or_default().into(),
                    pid: reading.pid,
                    start_time_s: self.booted_s + ticks(reading.stat.start_ticks),
                    rss_bytes: reading.rss_bytes,
                    pss_bytes: reading.pss_bytes,
                    swap_bytes: reading.swap_bytes,
                    hooks: reading.hooks.clone(),
                    cpu_s: ticks(reading.stat.user_ticks + reading.stat.system_ticks),
                    minor_faults: reading.stat.minor_faults,
                    major_faults: reading.stat.major_faults,
                    threads: reading.threads,
                    heap: reading.heap.as_ref().map(|heap| Heap::from_account(&heap.account)),
                    purge_budget: reading.heap.as_ref().and_then(|heap| {
                        let percent = control::setting(&heap.account.head.settings, "purge_cpu_percent")?;
                        Some(percent.parse::<f64>().ok()? / 100.0)
                    }),
                    // Of one process, once: a walk costs as much as the heap is large.
                    glibc_heap: self
                        .only
                        .filter(|_| reading.kind() == Some(Kind::Glibc))
                        .and_then(glibc_heap::estimate_process)
                        .or(reading.glibc_heap),
                    sites: Vec::new(),
                }
            })
            .collect()
    }
}

/// What to say where the kernel does not let the exporter read the heaps of so many processes.
fn warning(heaps: usize, scope: &str) -> String {
    let (why, advice) = access::refusal(scope);
    let processes = terminal::counted(heaps, "process");
    format!(
        "the heaps of {processes} under snug are missing, because the kernel refuses access: {why}; {advice}"
    )
}

/// When the machine started, in seconds since 1970.
fn booted_s() -> f64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let up_s: f64 = uptime.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs_f64() - up_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_heaps_are_explained() {
        let text = warning(3, "1");
        assert!(text.contains("3 processes") && text.contains("CAP_SYS_PTRACE"), "{text}");
        assert!(warning(1, "").contains("1 process under snug"), "{}", warning(1, ""));
    }

    #[test]
    fn own_process_has_metrics() {
        let mut exporter = Exporter::new(Choice::default(), &[], 1000, Path::new("/"));
        exporter.only = None;
        assert!(exporter.text().unwrap().contains("snug_exporter_processes "));
        assert!(user_id("no-such-user-here").is_err() && user_id("0").unwrap() == 0);
        assert!(cgroup_directory(Path::new("no/such/group"), Path::new("/")).is_err());
    }
}
