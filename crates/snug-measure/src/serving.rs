//! The plan for a server: when it counts as ready, what load it gets, how long it is watched afterwards. From the
//! command line to a plan; nothing here runs anything.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{ArgGroup, Args};

use crate::target::{self, parse_url, resolve, RequestArguments, Target};
use snug_base::failure::{Failure, Result};
use snug_base::time::time;
use snug_compare::results::Serving;

/// How long the built-in load lasts when neither a number of requests nor a time is given. Under fewer seconds memory
/// seldom settles, and a number that takes long enough nobody knows beforehand.
const LOAD_LASTS: Duration = Duration::from_secs(30);

/// How a server is driven. Times are written as 500ms, 30s, 2m.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers (programs that don't end by \
    themselves)", group = ArgGroup::new("serving").multiple(true))]
pub struct ServerArguments {
    /// The program is a server: ready once it accepts connections on this port, answers this URL with a status
    /// below 500, or writes a line that contains TEXT
    #[arg(long, value_name = "PORT|HOST:PORT|URL|line:TEXT", group = "serving")]
    pub ready: Option<String>,
    /// How long it may take to become ready
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time, requires = "serving")]
    pub ready_timeout: Duration,
    /// A shell command that generates the load; it is not measured. A non-zero exit status fails the run
    ///
    /// Lines 'snug-metric: NAME=VALUE' on its stdout become columns, and 'snug-metric: errors=N' with N above 0 fails
    /// the run. Tools such as wrk exit with 0 even if requests failed: print their errors as such a line.
    #[arg(long, value_name = "COMMAND", requires = "serving",
          conflicts_with_all = ["requests", "concurrency", "path", "header", "allow_status"])]
    pub load: Option<String>,
    /// Built-in load: this many GET requests
    #[arg(long, value_name = "N", requires = "serving", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Built-in load: where to send requests [default: where --ready looks]
    #[arg(long, value_name = "URL", group = "serving")]
    pub url: Option<String>,
    #[command(flatten)]
    pub request: RequestArguments,
    /// Warm up before the measured load: for a number of requests (or runs of the command), or for a time
    #[arg(long, value_name = "N|TIME", requires = "serving")]
    pub warmup: Option<String>,
    /// How long the load lasts; a command is repeated until then, and stopped [default: 30s of built-in load,
    /// if there is no --requests]
    #[arg(long, value_name = "TIME", requires = "serving", value_parser = time)]
    pub load_for: Option<Duration>,
    /// How long to keep measuring the server afterwards, while it is idle
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "serving", value_parser = time)]
    pub idle: Duration,
    /// How long the server may take to exit after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "serving", value_parser = time)]
    pub grace: Duration,
}

/// Everything to be done with a server between its start and its end.
#[derive(Debug, Clone)]
pub struct Plan {
    pub ready: Ready,
    /// As it was written.
    pub ready_text: String,
    pub ready_timeout: Duration,
    /// None: it is only started and left idle.
    pub load: Option<Load>,
    pub warm: Amount,
    pub load_amount: Amount,
    pub idle: Duration,
    /// How long it may take to end after SIGTERM.
    pub grace: Duration,
}

/// What says that the server serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ready {
    /// One of these addresses accepts connections.
    Port { shown: String, addresses: Vec<SocketAddr> },
    /// It wrote a line that holds this text.
    Line(String),
    /// It answers requests for this URL, with a status below 500.
    Url { url: String, addresses: Vec<SocketAddr> },
}

/// What makes the load.
#[derive(Debug, Clone)]
pub enum Load {
    /// A command line for the shell.
    Command(String),
    /// Requests of our own.
    Requests(Target),
}

/// How much of a load: so many requests (or times that the command runs), so long, or what ends first. Neither:
/// none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Amount {
    pub count: Option<u64>,
    pub time: Option<Duration>,
}

impl Amount {
    pub fn is_none(&self) -> bool {
        self.count.is_none() && self.time.is_none()
    }
}

impl Ready {
    /// Where the server will listen, as far as that is known.
    pub fn addresses(&self) -> &[SocketAddr] {
        match self {
            Ready::Port { addresses, .. } | Ready::Url { addresses, .. } => addresses,
            Ready::Line(_) => &[],
        }
    }
}

impl std::fmt::Display for Ready {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ready::Port { shown, .. } => write!(formatter, "port {shown} accepted no connection"),
            Ready::Line(text) => write!(formatter, "it wrote no line with {text:?}"),
            Ready::Url { url, .. } => write!(formatter, "{url} gave no answer with a status below 500"),
        }
    }
}

/// Makes a plan of the options; None if they do not describe a server.
pub fn plan(arguments: &ServerArguments) -> Result<Option<Plan>> {
    let Some(ready_text) = arguments.ready.as_ref().or(arguments.url.as_ref()) else { return Ok(None) };
    let ready = parse_ready(ready_text)?;
    let load_amount = Amount { count: arguments.requests, time: arguments.load_for };
    let requests_wanted =
        !load_amount.is_none() || !arguments.request.path.is_empty() || arguments.url.is_some();
    let load = match &arguments.load {
        Some(command) => Some(Load::Command(command.clone())),
        None if requests_wanted => Some(Load::Requests(target(arguments, &ready)?)),
        None => None,
    };
    let load_amount = match &load {
        Some(Load::Command(_)) if load_amount.is_none() => Amount { count: Some(1), time: None },
        Some(Load::Requests(_)) if load_amount.is_none() => Amount { count: None, time: Some(LOAD_LASTS) },
        _ => load_amount,
    };
    let warm = arguments.warmup.as_deref().map(parse_amount).transpose()?.unwrap_or_default();
    if load.is_none() && !warm.is_none() {
        return Err(Failure::usage(
            "--warmup needs a load to warm up with",
            "add --requests N, --load-for TIME or --load COMMAND",
        ));
    }
    Ok(Some(Plan {
        ready,
        ready_text: ready_text.clone(),
        ready_timeout: arguments.ready_timeout,
        load,
        warm,
        load_amount,
        idle: arguments.idle,
        grace: arguments.grace,
    }))
}

/// The plan as it is saved with the results.
pub fn describe(plan: &Plan) -> Serving {
    let seconds = |time: Duration| time.as_secs_f64();
    let mut serving = Serving {
        ready: plan.ready_text.clone(),
        warm_count: plan.warm.count,
        warm_s: plan.warm.time.map(seconds),
        load_count: plan.load_amount.count,
        load_s: plan.load_amount.time.map(seconds),
        idle_s: seconds(plan.idle),
        ..Serving::default()
    };
    match &plan.load {
        Some(Load::Command(command)) => serving.load_command = Some(command.clone()),
        Some(Load::Requests(target)) => {
            serving.url = Some(target.base.clone());
            serving.paths.clone_from(&target.paths);
            serving.concurrency = target.concurrency;
        }
        None => {}
    }
    serving
}

/// Reads `3000`, `host:port`, `http://...` or `line:TEXT`.
fn parse_ready(text: &str) -> Result<Ready> {
    if let Some(line) = text.strip_prefix("line:") {
        let empty = Failure::usage(
            "--ready line: has no text to wait for",
            "write for example --ready 'line:Listening on'",
        );
        return if line.is_empty() { Err(empty) } else { Ok(Ready::Line(line.to_string())) };
    }
    if text.contains("://") {
        return Ok(Ready::Url { url: text.to_string(), addresses: target::addresses(text)? });
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("localhost", text));
    let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
        Failure::usage(
            format!("--ready {text:?} is neither a port, host:port, a URL nor line:TEXT"),
            "for example --ready 3000, --ready http://localhost:3000/up or --ready 'line:Listening on'",
        )
    })?;
    Ok(Ready::Port { shown: text.to_string(), addresses: resolve(host, port)? })
}

/// Where requests go: to --url, or to where --ready looks.
fn target(arguments: &ServerArguments, ready: &Ready) -> Result<Target> {
    let base = match (&arguments.url, ready) {
        (Some(url), _) => return Target::at(url, &arguments.request),
        (None, Ready::Url { url, .. }) => target::base(&parse_url(url)?),
        (None, Ready::Port { shown, .. }) if shown.contains(':') => format!("http://{shown}"),
        (None, Ready::Port { shown, .. }) => format!("http://localhost:{shown}"),
        (None, Ready::Line(_)) => {
            return Err(Failure::usage(
                "there is no address to send requests to",
                "add --url http://localhost:PORT, or give --ready a port or a URL",
            ))
        }
    };
    Target::new(base, "/", &arguments.request)
}

/// Reads a number of requests, or a time.
fn parse_amount(text: &str) -> Result<Amount> {
    if let Ok(count) = text.parse::<u64>() {
        return Ok(Amount { count: (count > 0).then_some(count), time: None });
    }
    match humantime::parse_duration(text) {
        Ok(time) => Ok(Amount { count: None, time: Some(time) }),
        Err(_) => Err(Failure::usage(
            format!("--warmup {text:?} is neither a number of requests nor a time"),
            "for example --warmup 200 or --warmup 5s",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        server: ServerArguments,
    }

    fn planned(options: &str) -> Result<Option<Plan>> {
        let words = std::iter::once("snug").chain(options.split_ascii_whitespace());
        plan(&CommandLine::try_parse_from(words).unwrap().server)
    }

    fn requests(options: &str) -> (Target, Plan) {
        let plan = planned(options).unwrap().unwrap();
        match plan.load.clone() {
            Some(Load::Requests(target)) => (target, plan),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_program_that_ends_by_itself_has_no_plan() {
        assert!(planned("").unwrap().is_none());
    }

    #[test]
    fn requests_go_where_the_server_is_ready() {
        let (target, plan) = requests("--ready 3000 --requests 50 --path /a --path /b?c=d --warmup 5");
        assert_eq!((target.base.as_str(), target.concurrency), ("http://localhost:3000", 8));
        assert_eq!(target.paths, ["/a", "/b?c=d"]);
        assert_eq!(plan.load_amount, Amount { count: Some(50), time: None });
        assert_eq!(plan.warm.count, Some(5));
        let (target, plan) = requests("--ready http://127.0.0.1:9292/up --load-for 30s");
        assert_eq!((target.base.as_str(), target.paths[0].as_str()), ("http://127.0.0.1:9292", "/"));
        assert_eq!(plan.load_amount, Amount { count: None, time: Some(Duration::from_secs(30)) });
        let (target, plan) = requests("--url http://127.0.0.1:9292/shop --ready line:up");
        assert_eq!((target.base.as_str(), target.paths[0].as_str()), ("http://127.0.0.1:9292", "/shop"));
        assert_eq!((plan.load_amount.time, plan.ready), (Some(LOAD_LASTS), Ready::Line("up".into())));
    }

    #[test]
    fn a_command_runs_once_or_as_long_as_asked() {
        let plan = planned("--ready 3000 --load wrk").unwrap().unwrap();
        assert_eq!(plan.load_amount.count, Some(1));
        let plan = planned("--ready 3000 --load wrk --load-for 3s").unwrap().unwrap();
        assert_eq!(plan.load_amount, Amount { count: None, time: Some(Duration::from_secs(3)) });
        assert!(planned("--ready 3000").unwrap().unwrap().load.is_none());
    }

    #[test]
    fn mistakes_say_what_to_write() {
        let advice = |options| planned(options).unwrap_err().advice.unwrap();
        assert!(advice("--ready abc").contains("--ready 3000"));
        assert!(advice("--ready line:").contains("line:Listening"));
        assert!(advice("--ready line:up --requests 5").contains("--url"));
        assert!(advice("--ready https://localhost/ --requests 5").contains("--load COMMAND"));
        assert!(advice("--ready 3000 --warmup 5").contains("--requests"));
        assert!(advice("--ready 3000 --requests 5 --warmup soon").contains("--warmup 5s"));
    }
}
