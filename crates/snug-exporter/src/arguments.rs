//! The command line of `snug exporter`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use snug_base::time::time;

/// Export the memory of processes to Prometheus
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  snug exporter
  snug exporter --listen 127.0.0.1:9876 --user deploy
  snug exporter --cgroup system.slice/puma.service
  snug exporter --user deploy --sites 10
  snug exporter --role 'bin/jobs (\\w+)=jobs $1'
  snug exporter --once | promtool check metrics

Without --user, --cgroup and --pid: the processes of this user (root: of all users) that hold 8 MB or more or use an \
allocator of their own. Everything is read from outside; no process is stopped or changed. To see what is live under \
snug, it must run as root or with the capability CAP_SYS_PTRACE or, where kernel.yama.ptrace_scope is 0, as the user \
of the processes. Heaps that it may not read are counted in snug_exporter_processes_refused.

Each process has the labels allocator, role and worker: 'puma worker' and '2', from the titles that Puma, Unicorn, \
Sidekiq, Resque, Solid Queue, Celery, gunicorn and PostgreSQL give themselves, else from the script or the program; \
and app, where the title of Puma, Sidekiq or gunicorn names the application, or the pod's name does. Processes in \
containers have the labels namespace, pod and container, taken from the names of the files in \
/var/log/containers; the label group is canary in containers that use snug or should, else baseline. Where a process \
and its children look the same, the parent is the master and the children are workers. Workers without a \
number get the lowest free one, so that restarts create no new time series. Metric names, alert rules and a \
dashboard are in deploy/monitoring/.

With --sites, snug_site_live_bytes has the live bytes of each process under snug that samples, by function and line, \
since sampling was switched on: an estimate. For each program (same role and app), the label site names the N call \
sites with the most live bytes; the rest is site=\"other\". A name that was shown in the last hour keeps its place \
until another has 25 % more, which keeps the number of time series small. The exporter never switches sampling on: \
start the program with SNUG=profile:1, or use `snug set PID profile=1` or `snug profile --keep`. Reading samples \
costs at most half a percent of one core, so they may be older than the other metrics.

In a container that shares the host's PIDs, as in a DaemonSet, mount the host's /sys/fs/cgroup and \
/var/log/containers, read-only, below the folder that --host names.

Reading PSS may cost half a percent of one core.

Exit codes: 1 it can't listen on the address; 2 the arguments are invalid; 3 no such user, process or control \
group.")]
pub struct ExporterArguments {
    /// Address and port for HTTP
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9876")]
    pub listen: SocketAddr,
    /// Processes of this user
    #[arg(long, value_name = "NAME|UID", conflicts_with_all = ["cgroup", "pid"])]
    pub user: Option<String>,
    /// Processes of this control group and those below it: a directory, or its path below /sys/fs/cgroup
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub cgroup: Option<PathBuf>,
    /// This process and all below it; may be repeated
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Vec<i32>,
    /// Where the host's file system is mounted, to read limits and names of other containers from inside a container
    #[arg(long, value_name = "DIR")]
    pub host: Option<PathBuf>,
    /// Give this role to processes whose command line matches; may be repeated, the first match wins
    #[arg(long, value_name = "REGEX=NAME", value_parser = role_rule)]
    pub role: Vec<(String, String)>,
    /// Maximum number of processes; the largest are kept
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_processes: usize,
    /// Serve the last reading again while it is younger than this
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub cache: Duration,
    /// Also estimate what is live under glibc, in processes below 500 MB, for at most 2 % of a core
    #[arg(long)]
    pub estimates: bool,
    /// Also export live bytes by function and line, for the N call sites with the most in each program, where processes sample
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub sites: Option<u8>,
    /// Write the metrics once and exit
    #[arg(long)]
    pub once: bool,
}

/// The name follows the last `=`: expressions may hold others.
fn role_rule(text: &str) -> Result<(String, String), String> {
    let (expression, name) = text.rsplit_once('=').ok_or("write it as REGEX=NAME")?;
    if name.is_empty() {
        return Err("the name is empty".into());
    }
    regex_lite::Regex::new(expression).map_err(|error| format!("not a regular expression: {error}"))?;
    Ok((expression.into(), name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_roles() {
        assert_eq!(role_rule("a=b=jobs").unwrap(), ("a=b".into(), "jobs".into()));
        assert!(role_rule("jobs").is_err() && role_rule("x=").is_err() && role_rule("(=jobs").is_err());
    }
}
