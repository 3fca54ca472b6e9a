//! The lines of `snug check` about hooks, one for each server.

use snug_base::file::file_name;
use snug_base::terminal;
use snug_inspect::report::CheckReport;

/// Programs that hooks are for, by the beginnings of their names.
const INTERPRETERS: &[&str] = &["python", "ruby", "uwsgi"];
/// Workers that are named.
const NAMED_MOST: usize = 8;

/// Whether hooks are active, one line for each server. None if there is no interpreter.
pub fn lines(report: &CheckReport) -> Vec<String> {
    let mut groups: Vec<u64> = Vec::new();
    for hooks in report.processes.iter().filter_map(|process| process.hooks.as_ref()) {
        if !groups.contains(&hooks.group) {
            groups.push(hooks.group);
        }
    }
    let mut lines: Vec<String> = groups.into_iter().map(|group| prepared(report, group)).collect();
    let has_hooks = |pid: i32| report.processes.iter().any(|other| other.pid == pid && other.hooks.is_some());
    let is_interpreter = |executable: &str| {
        let name = file_name(executable);
        INTERPRETERS.iter().any(|start| name.starts_with(start))
    };
    let interpreted = || report.processes.iter().filter(|process| is_interpreter(&process.executable));
    let bare: Vec<i32> = interpreted()
        .filter(|process| process.is_forked && process.hooks.is_none() && !has_hooks(process.parent))
        .map(|process| process.pid)
        .collect();
    if !bare.is_empty() {
        lines.push(format!(
            "none, and {} forked: `snug stats --copied` shows what is shared still, and the hooks of snug's wheel and gem let \
             workers share more",
            named(&bare)
        ));
    } else if lines.is_empty() && interpreted().next().is_some() {
        lines.push("none, and no interpreter here was forked: there is nothing to share".into());
    }
    lines
}

/// What the hooks of one server did, and what its workers have copied since.
fn prepared(report: &CheckReport, group: u64) -> String {
    let of_group = || {
        let hooks = report.processes.iter().filter_map(|process| Some((process, process.hooks.as_ref()?)));
        hooks.filter(move |(_, hooks)| hooks.group == group)
    };
    let Some((first, hooks)) = of_group().next() else { return String::new() };
    let state = &hooks.state;
    let is_ruby = file_name(&first.executable).starts_with("ruby");
    let done = match (is_ruby, state.immortal) {
        (true, _) => "a heap made ready",
        (false, true) => "immortal objects",
        (false, false) => "gc.freeze",
    };
    let mut line = format!("{done} before the fork, {} shared", terminal::bytes(state.shared_bytes as f64));
    if let Some((process, _)) = of_group().find(|(_, hooks)| hooks.is_prepared) {
        line = format!("process {}: {line}", process.pid);
    }
    if state.immortal {
        line += &format!(", in it {}", terminal::counted(state.objects as usize, "object"));
    } else if let Some(reason) = state.reason.as_ref().filter(|_| !is_ruby) {
        line += &format!("; no immortal objects: {reason}");
    }
    let copied: Vec<String> = of_group()
        .filter_map(|(process, hooks)| {
            Some(format!("{} {}", process.pid, terminal::bytes(hooks.copied_bytes? as f64)))
        })
        .collect();
    match copied.as_slice() {
        [] => line,
        some => {
            let more = if some.len() > NAMED_MOST { ", ..." } else { "" };
            let shown = &some[..some.len().min(NAMED_MOST)];
            format!("{line}; of that workers have copied: {}{more}", shown.join(", "))
        }
    }
}

fn named(pids: &[i32]) -> String {
    let shown: Vec<String> = pids.iter().take(NAMED_MOST).map(i32::to_string).collect();
    let more = if pids.len() > NAMED_MOST { ", ..." } else { "" };
    let (noun, verb) = if pids.len() == 1 { ("process", "was") } else { ("processes", "were") };
    format!("{noun} {}{more} {verb}", shown.join(", "))
}
