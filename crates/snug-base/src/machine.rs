//! The machine, as far as it matters to measurements of memory. Names nobody and nothing private.

use std::fs;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::terminal;

/// A description of the machine that measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub architecture: String,
    pub system: String,
    pub cpu: String,
    pub cpus: usize,
    pub memory_bytes: u64,
    pub page_size_bytes: u64,
    /// Setting of transparent huge pages: always, madvise or never.
    pub transparent_huge_pages: String,
    pub overcommit_memory: String,
    pub swap_bytes: u64,
    pub cgroup_memory_limit_bytes: Option<u64>,
    pub cgroup_cpu_limit: Option<f64>,
}

/// Looks at this machine.
pub fn describe() -> Machine {
    let uname = nix::sys::utsname::uname().ok();
    let text =
        |value: Option<&std::ffi::OsStr>| value.map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
    let meminfo = read("/proc/meminfo");
    let levels = cgroup_levels(&read("/proc/self/cgroup"));
    Machine {
        kernel: text(uname.as_ref().map(|uname| uname.release())),
        architecture: text(uname.as_ref().map(|uname| uname.machine())),
        system: parse_pretty_name(&read("/etc/os-release")),
        cpu: parse_cpu_model(&read("/proc/cpuinfo")),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: meminfo_bytes(&meminfo, "MemTotal:"),
        page_size_bytes: page_size_bytes(),
        transparent_huge_pages: parse_selected(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
        overcommit_memory: read("/proc/sys/vm/overcommit_memory").trim().to_string(),
        swap_bytes: meminfo_bytes(&meminfo, "SwapTotal:"),
        cgroup_memory_limit_bytes: levels
            .iter()
            .filter_map(|level| read(&format!("{level}/memory.max")).trim().parse().ok())
            .min(),
        cgroup_cpu_limit: levels
            .iter()
            .filter_map(|level| parse_cpu_max(&read(&format!("{level}/cpu.max"))))
            .min_by(f64::total_cmp),
    }
}

impl Machine {
    /// One line for the foot of a plot.
    pub fn line(&self) -> String {
        let gibibytes = self.memory_bytes as f64 / (1u64 << 30) as f64;
        let cpus = terminal::counted(self.cpus, "CPU");
        format!(
            "{}, {cpus}, {gibibytes:.0} GiB, {}, Linux {}, huge pages: {}",
            self.cpu, self.system, self.kernel, self.transparent_huge_pages
        )
    }
}

/// What to say if this kernel is older than Linux 3.10, whose system calls are all that library and tool need.
pub fn old_kernel() -> Option<String> {
    let uname = nix::sys::utsname::uname().ok()?;
    older_than_supported(&uname.release().to_string_lossy())
}

fn older_than_supported(release: &str) -> Option<String> {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next()?, numbers.next().unwrap_or(0));
    (version < (3, 10))
        .then(|| format!("snug needs Linux 3.10 or newer, and this kernel is {release}: it may not work"))
}

/// Bytes of a page.
pub fn page_size_bytes() -> u64 {
    use nix::unistd::{sysconf, SysconfVar};
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().map_or(4096, |size| size as u64)
}

/// Clock ticks per second, the unit of CPU times in `/proc`.
pub fn ticks_per_second() -> f64 {
    use nix::unistd::{sysconf, SysconfVar};
    sysconf(SysconfVar::CLK_TCK).ok().flatten().map_or(100.0, |ticks| ticks as f64)
}

/// Seconds of CPU time that the whole machine has spent working since it started.
pub fn busy_cpu_s() -> f64 {
    parse_busy_ticks(&read("/proc/stat")) / ticks_per_second()
}

/// The moment now, in UTC, as 2026-11-21T02:03:04Z.
pub fn now_utc() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn parse_pretty_name(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "unknown system".into(), |name| name.trim_matches('"').to_string())
}

fn parse_cpu_model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':')).map(|(_, model)| model.trim().to_string());
    model.unwrap_or_else(|| "unknown CPU".into())
}

fn meminfo_bytes(meminfo: &str, key: &str) -> u64 {
    let line = meminfo.lines().find(|line| line.starts_with(key));
    let kibibytes = line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// `always [madvise] never` is madvise.
fn parse_selected(text: &str) -> String {
    let selected = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    selected.map_or_else(|| "unknown".into(), |(word, _)| word.to_string())
}

/// The folders of our control group of version 2 and of all above it. In a container the topmost is its own; the path may
/// be the host's, of which nothing is to be seen there.
fn cgroup_levels(own: &str) -> Vec<String> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let levels = std::path::Path::new(path).ancestors();
    levels
        .map(|level| format!("/sys/fs/cgroup{}", level.display()).trim_end_matches('/').to_string())
        .collect()
}

/// `150000 100000` is 1.5 CPUs, `max 100000` no limit.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

/// Everything on the first line of /proc/stat but idle, iowait, and guest time, which user time holds already.
fn parse_busy_ticks(stat: &str) -> f64 {
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<f64> =
        line.split_ascii_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let at = |index: usize| fields.get(index).copied().unwrap_or(0.0);
    at(0) + at(1) + at(2) + at(5) + at(6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_files() {
        assert_eq!(parse_selected("always [madvise] never\n"), "madvise");
        assert_eq!(parse_selected(""), "unknown");
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        let levels =
            ["/sys/fs/cgroup/system.slice/a.service", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"];
        assert_eq!(cgroup_levels("1:name=systemd:/x\n0::/system.slice/a.service\n"), levels);
        assert_eq!(cgroup_levels("0::/\n"), levels[2..]);
        assert_eq!(cgroup_levels(""), levels[2..]);
        assert_eq!(meminfo_bytes("MemTotal:   1024 kB\n", "MemTotal:"), 1 << 20);
        assert_eq!(parse_busy_ticks("cpu  10 1 5 900 3 1 2 8 4 0\n"), 19.0);
        assert_eq!(parse_pretty_name("ID=debian\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
    }

    #[test]
    fn kernels_that_are_too_old() {
        for release in ["2.6.32-754.el6.x86_64", "3.9.11", "3.2.0-4-amd64", "3"] {
            assert!(older_than_supported(release).is_some_and(|text| text.contains(release)), "{release}");
        }
        for release in ["3.10.0-1160.el7.x86_64", "4.4.302+", "6.18", "10.0-rc1", "unknown", ""] {
            assert_eq!(older_than_supported(release), None, "{release}");
        }
    }

    #[test]
    fn this_machine_is_described() {
        let machine = describe();
        assert!(machine.memory_bytes > 0 && machine.cpus > 0 && !machine.kernel.is_empty());
        assert!(machine.page_size_bytes.is_power_of_two());
    }
}
