//! The end of a watched process that the tool did not start, and what the user should know of it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::report::Remarks;
use snug_base::time::duration;
use snug_process::ending::EndingTold;
use snug_process::proc::Pid;
use snug_process::system::Ending;

/// How long a process may take to end whose memory is gone.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// The end of a process that was not started here.
pub(crate) struct RootEnd {
    pid: Pid,
    told: EndingTold,
    /// When it was noticed.
    ended_s: Option<f64>,
    /// When no process below was left to be read, either.
    pub nothing_left_s: Option<f64>,
}

impl RootEnd {
    /// None if the process has ended already.
    pub(crate) fn of_running(pid: Pid) -> Option<RootEnd> {
        let told = EndingTold::of_running(pid).ok()?;
        Some(RootEnd { pid, told, ended_s: None, nothing_left_s: None })
    }

    /// Whether the process has ended since the last call.
    pub(crate) fn has_just_come(&mut self, now_s: f64) -> bool {
        let is_news = self.ended_s.is_none() && self.told.has_ended();
        if is_news {
            self.ended_s = Some(now_s);
        }
        is_news
    }

    /// Can be read from once the process has ended; None when that is known.
    pub(crate) fn to_come(&self) -> Option<BorrowedFd<'_>> {
        self.told.descriptor().filter(|_| self.ended_s.is_none())
    }

    /// Adds what the user should know of it.
    pub(crate) fn remark(&self, remarks: &mut Remarks) {
        // The memory of a process goes before it has ended.
        let is_ending = || self.told.ends_within(ENDS_WITHIN);
        let ended_s = self.ended_s.or_else(|| self.nothing_left_s.filter(|_| is_ending()));
        let ending = ended_s.and_then(|_| self.told.ending());
        let Some(text) = end_text(self.pid, ended_s, ending, self.nothing_left_s) else { return };
        remarks.notes.push(text.clone());
        match (self.nothing_left_s, ended_s) {
            (Some(_), Some(_)) => (remarks.end, remarks.ended) = (Some(text), true),
            (Some(_), None) => remarks.obstacles.push(text),
            (None, _) => {}
        }
    }
}

/// When a process ended, and how, if that is known; and whether the watch went on without it, or when there was nothing
/// left to watch. None if nothing of this happened.
fn end_text(
    pid: Pid,
    ended_s: Option<f64>,
    ending: Option<Ending>,
    nothing_left_s: Option<f64>,
) -> Option<String> {
    let Some(after) = ended_s.map(duration) else {
        let after = duration(nothing_left_s?);
        return Some(format!("process {pid} could no longer be read after {after}"));
    };
    let how = ending.map_or_else(String::new, |ending| format!(": it {}", ending.text()));
    let others = match nothing_left_s.map(duration) {
        None => String::from("; the watch went on with its descendants"),
        Some(last) if last != after => format!("; the last process below it ended after {last}"),
        Some(_) => String::new(),
    };
    Some(format!("process {pid} ended after {after}{how}{others}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn the_end_of_a_process_is_told() {
        let text = |ended_s, ending, nothing_left_s| end_text(47, ended_s, ending, nothing_left_s);
        let says = |text: &str| Some(text.to_string());
        assert_eq!(text(None, None, None), None);
        let killed = Some(Ending::Signalled(9));
        assert_eq!(
            text(Some(300.0), killed, Some(300.0)),
            says("process 47 ended after 5 min: it was killed by SIGKILL")
        );
        assert_eq!(text(Some(300.0), None, Some(300.0)), says("process 47 ended after 5 min"));
        let both = "process 47 ended after 5 min: it exited with code 0; the last process below it ended after 20 min";
        assert_eq!(text(Some(300.0), Some(Ending::Exited(0)), Some(1200.0)), says(both));
        assert_eq!(
            text(Some(300.0), killed, None),
            says("process 47 ended after 5 min: it was killed by SIGKILL; the watch went on with its descendants")
        );
        assert_eq!(text(None, None, Some(20.0)), says("process 47 could no longer be read after 20 s"));
    }

    fn start(script: &str) -> (Child, RootEnd) {
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let end = RootEnd::of_running(child.id() as Pid).unwrap();
        (child, end)
    }

    #[test]
    fn an_end_is_news_once_and_matters_if_nothing_is_left() {
        for (script, how) in
            [("read x; exit 0", "exited with code 0"), ("read x; kill -9 $$", "was killed by SIGKILL")]
        {
            let (mut child, mut end) = start(script);
            assert!(!end.has_just_come(1.0));
            let mut remarks = Remarks::default();
            end.remark(&mut remarks);
            assert_eq!((remarks.notes.len(), remarks.ended), (0, false), "it runs");
            drop(child.stdin.take());
            assert!(end.told.ends_within(Duration::from_secs(60)));
            assert!(end.has_just_come(2.0) && !end.has_just_come(3.0));
            assert!(end.to_come().is_none(), "who waits for it would never sleep");
            end.remark(&mut remarks);
            assert_eq!((remarks.notes.len(), &remarks.end, remarks.ended), (1, &None, false));
            assert!(remarks.notes[0].contains(how), "{}", remarks.notes[0]);
            end.nothing_left_s = Some(2.0);
            let mut remarks = Remarks::default();
            end.remark(&mut remarks);
            let told = format!("process {} ended after 2.00 s: it {how}", end.pid);
            assert!(remarks.ended && remarks.obstacles.is_empty(), "there is nothing to fix");
            assert_eq!((remarks.notes, remarks.end), (vec![told.clone()], Some(told)));
            child.wait().unwrap();
        }
    }

    /// Its memory is gone before it has ended.
    #[test]
    fn an_end_is_waited_for_where_nothing_can_be_read() {
        let (mut child, mut end) = start("read x; exit 3");
        end.nothing_left_s = Some(1.0);
        let stdin = child.stdin.take();
        let mut remarks = Remarks::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                drop(stdin);
            });
            end.remark(&mut remarks);
        });
        let told = format!("process {} ended after 1.00 s: it exited with code 3", end.pid);
        assert_eq!(remarks.notes, [told]);
        child.wait().unwrap();
    }
}
