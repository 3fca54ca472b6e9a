//! One process by its identifier: what it uses and where its counters lie, or why it can't be looked at and what to do.

use std::os::unix::fs::MetadataExt;

use nix::unistd::{geteuid, Uid, User};

use crate::facts::Facts;
use crate::inspector::{Hidden, Inspector};
use crate::judge;
use crate::report::ProcessReport;
use snug_base::failure::{Failure, Result, UNKNOWN};
use snug_base::machine;
use snug_heap::read_error::ReadError;
use snug_process::proc::{missing, Pid};

/// A process that may be looked at.
pub struct AccessibleProcess {
    pub report: ProcessReport,
    pub allocator_text: String,
    /// Where its page of counters lies, and that it can be read; None: it does not use snug.
    pub counters_at: Option<u64>,
}

/// Looks at a process. Fails if there is none, or if it uses snug and its counters can't be read.
pub fn look_at(pid: Pid) -> Result<AccessibleProcess> {
    look_at_with(&mut Inspector::new(machine::describe().transparent_huge_pages), pid)
}

/// The same with an inspector, which remembers the files of others.
pub fn look_at_with(inspector: &mut Inspector, pid: Pid) -> Result<AccessibleProcess> {
    let facts = inspector.facts(pid).map_err(|hidden| explain_hidden(pid, hidden))?;
    if let (Some(_), Some(error)) = (facts.counters_at, &facts.counters_error) {
        return Err(explain_unreadable(&facts, error));
    }
    let report = judge::judge(&facts);
    Ok(AccessibleProcess { allocator_text: report.allocator_text(), counters_at: facts.counters_at, report })
}

/// Why a process can't be looked at at all.
fn explain_hidden(pid: Pid, hidden: Hidden) -> Failure {
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok().map(|metadata| metadata.uid());
    let failure = match (hidden, owner) {
        (_, None) => missing(pid),
        (Hidden::Gone, Some(_)) => Failure::new(format!("process {pid} has ended, or is a kernel thread")),
        (Hidden::NotPermitted, Some(owner)) if owner != geteuid().as_raw() && !geteuid().is_root() => {
            Failure::new(format!("process {pid} belongs to {}", user_name(owner))).advise(match owner {
                0 => "run this as root".into(),
                owner => format!("run this as {} or as root", user_name(owner)),
            })
        }
        (Hidden::NotPermitted, Some(_)) => explain_refused(pid, ""),
    };
    failure.exit_code(UNKNOWN)
}

/// Why the counters of a process under snug can't be read.
fn explain_unreadable(facts: &Facts, error: &ReadError) -> Failure {
    let pid = facts.pid;
    if std::fs::metadata(format!("/proc/{pid}")).is_err() {
        return Failure::new(format!("process {pid} has ended")).exit_code(UNKNOWN);
    }
    if *error != ReadError::Refused {
        return Failure::new(format!("the counters of process {pid} can't be read: {error}"))
            .exit_code(UNKNOWN);
    }
    explain_refused(pid, &ptrace_scope())
}

/// The value of kernel.yama.ptrace_scope; empty where the kernel has no such module.
pub fn ptrace_scope() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    text.trim().to_string()
}

/// Why the memory of processes can't be read, and what to do, by the value of kernel.yama.ptrace_scope: 1 lets parents
/// look at their children only, 2 only those who may trace all processes, 3 nobody (Documentation/admin-guide/LSM/Yama.rst
/// of the kernel).
pub fn refusal(scope: &str) -> (String, &'static str) {
    refusal_to(scope, geteuid().is_root())
}

fn refusal_to(scope: &str, is_root: bool) -> (String, &'static str) {
    if is_root && scope != "3" {
        let why = "not all of root's rights are here, as in a container or a sandbox";
        return (why.into(), "run this outside of it, or in a container with the capability CAP_SYS_PTRACE");
    }
    let advice = match scope {
        "1" => {
            "run this as root or with the capability CAP_SYS_PTRACE; or allow it for processes of the same user, until \
             the next boot: sudo sysctl kernel.yama.ptrace_scope=0"
        }
        "2" => "run this as root, or with the capability CAP_SYS_PTRACE",
        "3" => "nobody can until the next boot: the sysctl can't be lowered from 3",
        _ => {
            let why = "it has more privileges than you, or made itself unreadable (prctl PR_SET_DUMPABLE)";
            return (why.into(), "run this as root");
        }
    };
    (format!("kernel.yama.ptrace_scope is {scope}"), advice)
}

/// Why the memory of a process can't be read, by the value of kernel.yama.ptrace_scope, and what to do.
pub fn explain_refused(pid: Pid, scope: &str) -> Failure {
    let (why, advice) = refusal(scope);
    Failure::new(format!("the kernel does not let you read the memory of process {pid}: {why}"))
        .advise(advice)
        .exit_code(UNKNOWN)
}

fn user_name(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| format!("user {uid}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_looked_at_is_explained() {
        let failure = look_at(Pid::MAX).err().unwrap();
        assert_eq!(
            (failure.message.as_str(), failure.exit_code),
            ("there is no process 2147483647", UNKNOWN)
        );
        assert!(explain_refused(7, "1")
            .message
            .starts_with("the kernel does not let you read the memory of process 7: "));
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        for scope in ["", "0", "1", "2", "3"] {
            let (why, advice) = refusal_to(scope, true);
            assert!(!advice.contains("as root") && !why.contains("than you"), "{scope}: {why}; {advice}");
        }
        assert!(refusal_to("1", false).1.contains("sudo sysctl kernel.yama.ptrace_scope=0"));
        assert!(refusal_to("2", false).1.contains("CAP_SYS_PTRACE"));
        assert_eq!(refusal_to("", false).1, "run this as root");
    }

    #[test]
    fn own_process_is_found() {
        let found = look_at(std::process::id() as Pid).unwrap();
        assert!(found.counters_at.is_none() && found.allocator_text.starts_with("glibc"));
    }
}
