//! The load that keeps a program at work while it is watched: a command that is run again and again, or requests of our
//! own.

use clap::Args;

use crate::report::{LoadMade, Remarks};
use snug_base::failure::{Failure, Result};
use snug_measure::errand::Errand;
use snug_measure::http::{Clients, Tally};
use snug_measure::probe;
use snug_measure::target::{self, RequestArguments, Target};
use snug_process::proc::Pid;
use snug_process::system::Ending;

/// What makes the load, on the command line.
#[derive(Debug, Args)]
pub struct LoadArguments {
    /// Built-in load: GET requests to this URL, again and again; they are not measured
    ///
    /// Requests start at once and go on until the watch ends. Until the first one succeeds, the server may still be
    /// starting; from then on failures are reported: statuses of 400 and above, connections that are refused or break
    /// off, and answers that take more than a minute. If none succeeds, memory that does not grow proves nothing, and
    /// the answer is "not enough data". Growth is given per successful request, unless --requests-from counts requests.
    #[arg(long, value_name = "URL", group = "serving")]
    pub url: Option<String>,
    #[command(flatten)]
    pub request: RequestArguments,
    /// A shell command that generates the load; it is run again and again, and not measured
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["url", "concurrency", "path", "header", "allow_status"])]
    pub load: Option<String>,
}

/// What makes the load.
pub enum LoadDriver {
    Command(Errand),
    Requests(Visits),
}

/// Requests of our own, from the first look at the program to the end of the watch.
pub struct Visits {
    target: Target,
    /// None until they begin, and after their end.
    clients: Option<Clients>,
    /// What they had come to when the program was last seen alive: what fails as it ends is not its failure.
    tally: Tally,
}

impl LoadDriver {
    /// What the options ask for; nothing is started yet. Fails if a program that is still to be started would find its
    /// address taken: the requests would go to somebody else.
    pub fn of(arguments: &LoadArguments, is_running: bool) -> Result<Option<LoadDriver>> {
        if let Some(command) = &arguments.load {
            return Ok(Some(LoadDriver::Command(Errand::new(command, 0.0)?)));
        }
        let Some(url) = &arguments.url else { return Ok(None) };
        let target = Target::at(url, &arguments.request)?;
        let addresses = target::addresses(url)?;
        let taken = if is_running { None } else { probe::served(&addresses) };
        if let Some(address) = taken {
            let taken = format!("something was listening on {address} before the program was started");
            let advice = "stop it, or let yours listen on another port; to watch a server that is already \
                running, give its PID";
            return Err(Failure::usage(taken, advice));
        }
        Ok(Some(LoadDriver::Requests(Visits { target, clients: None, tally: Tally::default() })))
    }

    /// Starts what is not running, if it is time. Returns the process group of what was started, if it is one.
    pub fn start_if_due(&mut self, now_s: f64) -> Result<Option<Pid>> {
        match self {
            LoadDriver::Command(errand) => errand.start_if_due(now_s),
            LoadDriver::Requests(visits) => {
                if visits.clients.is_none() {
                    visits.clients = Some(Clients::start_endless(&visits.target)?);
                }
                Ok(None)
            }
        }
    }

    /// When to call `start_if_due` again at the latest; None if there is nothing to start.
    pub fn next_s(&self) -> Option<f64> {
        match self {
            LoadDriver::Command(errand) => errand.next_s(),
            LoadDriver::Requests(_) => None,
        }
    }

    /// Takes note of a child that has ended.
    pub fn ended(&mut self, pid: Pid, ending: Ending, now_s: f64) {
        if let LoadDriver::Command(errand) = self {
            errand.ended(pid, ending, now_s);
        }
    }

    /// To be called while the program is seen alive: takes note of what the load has come to, and bounds what is kept of
    /// a command's output.
    pub fn look(&mut self) {
        match self {
            LoadDriver::Command(errand) => errand.trim(),
            LoadDriver::Requests(Visits { clients: Some(clients), tally, .. }) => *tally = clients.tally(),
            LoadDriver::Requests(_) => {}
        }
    }

    /// Ends requests of our own; commands end with all other children.
    pub fn stop(&mut self) {
        if let LoadDriver::Requests(visits) = self {
            visits.clients = None;
        }
    }

    /// What is counted.
    pub fn unit(&self) -> &'static str {
        match self {
            LoadDriver::Command(_) => "run of the load",
            LoadDriver::Requests(_) => "request",
        }
    }

    /// How many of them went well so far.
    pub fn succeeded(&self) -> u64 {
        match self {
            LoadDriver::Command(errand) => errand.succeeded,
            LoadDriver::Requests(visits) => visits.tally.answered,
        }
    }

    /// What was asked for and what came of it, as the report has it.
    pub fn made(&self) -> LoadMade {
        match self {
            LoadDriver::Command(errand) => LoadMade {
                command: Some(errand.command.clone()),
                succeeded: errand.succeeded,
                failed: if errand.succeeded > 0 { errand.failed_later } else { errand.failed },
                ..LoadMade::default()
            },
            LoadDriver::Requests(Visits { target, tally, .. }) => LoadMade {
                url: Some(target.server()),
                paths: target.paths.clone(),
                concurrency: Some(target.concurrency),
                succeeded: tally.answered,
                failed: tally.failures.count,
                ..LoadMade::default()
            },
        }
    }

    /// Adds what the user should know of it.
    pub fn remark(&mut self, now_s: f64, remarks: &mut Remarks) {
        match self {
            LoadDriver::Command(errand) => remark_on_command(errand, now_s, remarks),
            LoadDriver::Requests(visits) => remark_on_requests(&visits.tally, remarks),
        }
    }
}

fn remark_on_command(errand: &mut Errand, now_s: f64, remarks: &mut Remarks) {
    if errand.always_failed(now_s) {
        let output = errand.output();
        let tail: Vec<&str> = output.lines().rev().take(5).collect();
        let tail: Vec<String> = tail.iter().rev().map(|line| format!("    {line}")).collect();
        let failed = format!("the load failed all {} times", errand.failed);
        remarks.notes.push(format!("{failed}; the last wrote:\n{}", tail.join("\n")));
        remarks.obstacles.push(failed);
    } else if errand.failed_later > 0 {
        remarks.notes.push(format!(
            "the load failed {} of {} times",
            errand.failed_later,
            errand.failed_later + errand.succeeded
        ));
    }
}

fn remark_on_requests(tally: &Tally, remarks: &mut Remarks) {
    let (answered, failed) = (tally.answered, tally.failures.count);
    let first =
        tally.failures.first.as_ref().map(|first| format!("; the first: {first}")).unwrap_or_default();
    match (answered, failed) {
        (1.., 0) => {}
        (1.., _) => {
            remarks.notes.push(format!("{failed} of {} requests failed{first}", answered + failed));
        }
        (0, _) => {
            let what = match failed {
                0 => "no request was answered".into(),
                _ => format!("none of {failed} requests succeeded{first}"),
            };
            remarks.notes.push(what.clone());
            remarks.obstacles.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use snug_measure::http::Failures;
    use std::net::TcpListener;

    #[derive(Parser)]
    #[command(group = clap::ArgGroup::new("serving"))]
    struct CommandLineOfLoad {
        #[command(flatten)]
        load: LoadArguments,
    }

    fn load(options: &[&str], is_running: bool) -> Result<Option<LoadDriver>> {
        LoadDriver::of(
            &CommandLineOfLoad::try_parse_from([&["snug"], options].concat()).unwrap().load,
            is_running,
        )
    }

    fn remarks(answered: u64, failed: u64) -> Remarks {
        let first = (failed > 0).then(|| "GET /: status 500".to_string());
        let mut remarks = Remarks::default();
        let tally = Tally { answered, failures: Failures { count: failed, first } };
        remark_on_requests(&tally, &mut remarks);
        remarks
    }

    #[test]
    fn what_makes_the_load_and_what_is_counted() {
        assert!(load(&[], true).unwrap().is_none());
        let command = load(&["--load", "hey"], true).unwrap().unwrap();
        assert_eq!((command.unit(), command.made().command.as_deref()), ("run of the load", Some("hey")));
        let options = ["--url", "http://127.0.0.1:1/shop", "--concurrency", "3"];
        let requests = load(&options, true).unwrap().unwrap();
        let made = requests.made();
        assert_eq!((requests.unit(), made.url.as_deref()), ("request", Some("http://127.0.0.1:1")));
        assert_eq!((made.paths, made.concurrency), (vec!["/shop".to_string()], Some(3)));
    }

    #[test]
    fn requests_must_not_go_to_somebody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let Err(failure) = load(&["--url", &url], false) else { panic!("somebody listens there") };
        assert!(failure.message.contains("something was listening on 127.0.0.1"), "{failure}");
        assert!(load(&["--url", &url], true).is_ok(), "a process that runs may listen");
    }

    #[test]
    fn failed_requests_are_told_and_matter_if_none_succeeded() {
        assert!(remarks(5, 0).notes.is_empty());
        let some = remarks(5, 2);
        assert_eq!(some.notes, ["2 of 7 requests failed; the first: GET /: status 500"]);
        assert!(some.obstacles.is_empty());
        let all = remarks(0, 812);
        assert_eq!(all.obstacles, ["none of 812 requests succeeded; the first: GET /: status 500"]);
        assert_eq!(all.notes, all.obstacles);
        assert_eq!(remarks(0, 0).obstacles, ["no request was answered"]);
    }
}
