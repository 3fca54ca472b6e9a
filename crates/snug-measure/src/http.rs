//! The built-in load: GET requests over kept connections, each client sending the next when it has the answer to
//! the one before (a closed loop). Latency is from sending a request to the last byte of its answer.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ureq::Agent;

use crate::serving::Amount;
use crate::target::Target;
use snug_base::failure::{Context, Result};
use snug_compare::results::{Latency, Percentile};

/// Percentiles that are saved.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 100.0];
/// An answer that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A client's stack: it holds little, and there may be hundreds.
const STACK_BYTES: usize = 256 << 10;
/// Latencies are kept in microseconds, up to this, with three digits.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// What failed requests do to a load.
struct Patience {
    /// After so many there is no point in going on.
    failures_max: u64,
    /// Rest after each, so that a server that is gone is not asked a million times.
    rest: Duration,
}

/// Of a load that has an end, on a server that is ready.
const SHORT: Patience = Patience { failures_max: 100, rest: Duration::from_millis(10) };
/// Of a load that goes on: the server may still be starting, or start anew.
const ENDLESS: Patience = Patience { failures_max: u64::MAX, rest: Duration::from_millis(100) };

/// What the requests came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub latency: Latency,
    pub first_failure: Option<String>,
}

/// What the requests of a load that goes on have come to so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Requests that were answered as they should be.
    pub answered: u64,
    /// Those that failed. Once one is answered, without those sent before: the server was starting.
    pub failures: Failures,
}

/// Requests that failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Failures {
    pub count: u64,
    /// What was wrong with the first.
    pub first: Option<String>,
}

/// Failures, by whether the request was sent before any was answered.
#[derive(Debug, Default)]
struct Failed {
    early: Failures,
    late: Failures,
}

impl Failed {
    fn all(&self) -> Failures {
        Failures {
            count: self.early.count + self.late.count,
            first: self.early.first.clone().or_else(|| self.late.first.clone()),
        }
    }
}

/// What all clients share.
struct Shared {
    target: Target,
    next: AtomicU64,
    limit: u64,
    end: Option<Instant>,
    patience: Patience,
    answered: AtomicU64,
    failed: Mutex<Failed>,
    stop: AtomicBool,
}

/// What one client has seen.
struct ClientLog {
    latencies: Histogram<u64>,
    last: Instant,
}

/// Clients at work. They stop when this is dropped.
pub struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<ClientLog>>,
    begin: Instant,
}

impl Clients {
    /// Lets `target.concurrency` clients begin. They give up if too many requests fail.
    pub fn start(target: &Target, amount: Amount) -> Result<Clients> {
        Clients::begin(target, amount, SHORT)
    }

    /// Lets them make requests until they are dropped, however many fail.
    pub fn start_endless(target: &Target) -> Result<Clients> {
        Clients::begin(target, Amount::default(), ENDLESS)
    }

    /// With neither a number nor a time they go on until they are dropped.
    fn begin(target: &Target, amount: Amount, patience: Patience) -> Result<Clients> {
        let begin = Instant::now();
        let shared = Arc::new(Shared {
            target: target.clone(),
            next: AtomicU64::new(0),
            limit: amount.count.unwrap_or(u64::MAX),
            end: amount.time.map(|time| begin + time),
            patience,
            answered: AtomicU64::new(0),
            failed: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let mut clients = Clients { shared, threads: Vec::new(), begin };
        for _ in 0..u64::from(target.concurrency).min(clients.shared.limit) {
            let shared = Arc::clone(&clients.shared);
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || shared.work());
            clients.threads.push(thread.cannot(|| "start a thread for a client".into())?);
        }
        Ok(clients)
    }

    pub fn are_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// What has come of it so far.
    pub fn tally(&self) -> Tally {
        // In this order: what was answered before a failure is counted with it.
        let failed = self.shared.failed();
        let answered = self.shared.answered.load(Ordering::Relaxed);
        Tally { answered, failures: if answered > 0 { failed.late.clone() } else { failed.all() } }
    }

    /// Waits for the clients and adds up what they saw.
    pub fn finish(mut self) -> Outcome {
        let mut latencies = histogram();
        let mut last = self.begin;
        for seen in self.threads.drain(..).filter_map(|thread| thread.join().ok()) {
            latencies += &seen.latencies;
            last = last.max(seen.last);
        }
        let failures = self.shared.failed().all();
        let answered = latencies.len();
        let percentiles = PERCENTILES.map(|percent| Percentile {
            percent,
            latency_s: latencies.value_at_percentile(percent) as f64 / 1e6,
        });
        Outcome {
            latency: Latency {
                requests: answered + failures.count,
                failed: failures.count,
                requests_per_s: answered as f64 / (last - self.begin).as_secs_f64().max(1e-6),
                percentiles: if answered > 0 { percentiles.to_vec() } else { Vec::new() },
            },
            first_failure: failures.first,
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// The life of one client.
    fn work(&self) -> ClientLog {
        let agent = agent(TIMEOUT);
        let mut seen = ClientLog { latencies: histogram(), last: Instant::now() };
        while let Some(path) = self.take() {
            let is_early = self.answered.load(Ordering::Relaxed) == 0;
            let begin = Instant::now();
            let answer = self.request(&agent, path);
            seen.last = Instant::now();
            match answer {
                Ok(()) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    let microseconds = (seen.last - begin).as_micros() as u64;
                    seen.latencies.saturating_record(microseconds.max(1));
                }
                Err(what) => {
                    self.note_failure(is_early, format!("GET {path}: {what}"));
                    std::thread::sleep(self.patience.rest);
                }
            }
        }
        seen
    }

    fn failed(&self) -> MutexGuard<'_, Failed> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_failure(&self, is_early: bool, what: String) {
        let mut failed = self.failed();
        let failures = if is_early { &mut failed.early } else { &mut failed.late };
        failures.count += 1;
        failures.first.get_or_insert(what);
        if failed.early.count + failed.late.count >= self.patience.failures_max {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// The path of the next request; None when it is over.
    fn take(&self) -> Option<&str> {
        let is_over = self.stop.load(Ordering::Relaxed) || self.end.is_some_and(|end| Instant::now() >= end);
        if is_over {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.limit).then(|| self.target.paths[number as usize % self.target.paths.len()].as_str())
    }

    /// Makes one request and reads the whole answer.
    fn request(&self, agent: &Agent, path: &str) -> std::result::Result<(), String> {
        let mut request = agent.get(format!("{}{path}", self.target.base));
        for (name, value) in &self.target.headers {
            request = request.header(name, value);
        }
        let response = request.call().map_err(|error| error.to_string())?;
        let status = response.status();
        io::copy(&mut response.into_body().into_reader(), &mut io::sink())
            .map_err(|error| format!("status {status}, then the answer broke off: {error}"))?;
        match status.as_u16() {
            code if code < 400 || self.target.allowed.contains(&code) => Ok(()),
            _ => Err(format!("status {status}")),
        }
    }
}

/// An HTTP client that does as it is told: no proxy, no redirects, statuses are answers.
pub fn agent(timeout: Duration) -> Agent {
    Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent("snug")
        .build()
        .into()
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("these bounds are valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    /// Serves until the test ends: /slow takes 50 ms, /missing is a 404, /short breaks off, /boots is a 503 until the
    /// server was asked `BOOTS` times for it, all else is fine.
    fn serve() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicU64::new(0));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let asked = Arc::clone(&asked);
                std::thread::spawn(move || answer(connection, &asked));
            }
        });
        base
    }

    /// More than a load with an end bears.
    const BOOTS: u64 = SHORT.failures_max + 50;

    fn answer(connection: TcpStream, asked: &AtomicU64) {
        let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
        let mut connection = connection;
        while let Some(Ok(line)) = lines.next() {
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let (status, length) = match line.split(' ').nth(1).unwrap_or("") {
                "/missing" => ("404 Not Found", 2),
                "/short" => ("200 OK", 1000),
                "/boots" if asked.fetch_add(1, Ordering::Relaxed) < BOOTS => ("503 Service Unavailable", 2),
                path => {
                    std::thread::sleep(Duration::from_millis(if path == "/slow" { 50 } else { 0 }));
                    ("200 OK", 2)
                }
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\nok");
            if connection.write_all(head.as_bytes()).is_err() || length > 2 {
                return;
            }
        }
    }

    fn target(paths: &[&str], concurrency: u32) -> Target {
        Target {
            base: serve(),
            paths: paths.iter().map(|path| path.to_string()).collect(),
            concurrency,
            headers: vec![("X-Test".into(), "1".into())],
            allowed: Vec::new(),
        }
    }

    fn load(paths: &[&str], amount: Amount, allowed: &[u16]) -> Outcome {
        let target = Target { allowed: allowed.to_vec(), ..target(paths, 4) };
        Clients::start(&target, amount).unwrap().finish()
    }

    /// Waits until the requests have come to this; fails the test if they do not.
    fn until(clients: &Clients, is_so: impl Fn(&Tally) -> bool) -> Tally {
        let begin = Instant::now();
        loop {
            let tally = clients.tally();
            if is_so(&tally) {
                return tally;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{tally:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn count(count: u64) -> Amount {
        Amount { count: Some(count), time: None }
    }

    #[test]
    fn so_many_requests_with_their_latencies() {
        let Outcome { latency, first_failure } = load(&["/", "/slow"], count(41), &[]);
        assert_eq!((latency.requests, latency.failed, first_failure), (41, 0, None));
        let at = |percent| latency.percentiles.iter().find(|p| p.percent == percent).unwrap().latency_s;
        // Half of them take 50 ms, or more on a busy machine.
        assert!(at(90.0) >= 0.05 && at(50.0) <= at(90.0) && at(90.0) <= at(100.0), "{latency:?}");
        // 20 slow requests of 50 ms by 4 clients take at least 5 rounds.
        assert!(latency.requests_per_s > 0.0 && latency.requests_per_s < 41.0 / 0.25, "{latency:?}");
    }

    #[test]
    fn so_long() {
        let begin = Instant::now();
        let outcome = load(&["/slow"], Amount { count: None, time: Some(Duration::from_millis(300)) }, &[]);
        assert!((0.3..30.0).contains(&begin.elapsed().as_secs_f64()));
        assert!((1..=28).contains(&outcome.latency.requests), "{outcome:?}");
    }

    #[test]
    fn failures_are_counted_and_the_first_is_told() {
        let outcome = load(&["/missing", "/"], count(10), &[]);
        assert_eq!((outcome.latency.requests, outcome.latency.failed), (10, 5));
        assert_eq!(outcome.first_failure.unwrap(), "GET /missing: status 404 Not Found");
        assert_eq!(load(&["/missing"], count(10), &[404]).latency.failed, 0);
        let broken = load(&["/short"], count(1), &[]).first_failure.unwrap();
        assert!(broken.contains("broke off"), "{broken}");
    }

    #[test]
    fn nobody_there() {
        let target = Target { base: "http://127.0.0.1:1".into(), ..target(&["/"], 2) };
        let outcome = Clients::start(&target, count(1_000_000)).unwrap().finish();
        let limit = SHORT.failures_max;
        assert!((limit..limit + 2).contains(&outcome.latency.failed), "{outcome:?}");
        assert!(outcome.first_failure.unwrap().contains("refused"));
    }

    #[test]
    fn a_load_that_goes_on_bears_a_server_that_starts() {
        let clients = Clients::start_endless(&target(&["/boots"], 32)).unwrap();
        let starting = until(&clients, |tally| tally.failures.count + tally.answered > 0);
        if starting.answered == 0 {
            assert!(starting.failures.first.unwrap().contains("/boots: status 503"));
        }
        let serving = until(&clients, |tally| tally.answered > 100);
        assert_eq!(serving.failures, Failures::default(), "what failed before is forgiven");
    }

    #[test]
    fn failures_of_a_load_that_goes_on_are_counted_from_the_first_answer() {
        let clients = Clients::start_endless(&target(&["/", "/missing"], 1)).unwrap();
        let tally = until(&clients, |tally| tally.failures.count > 1);
        assert!(tally.answered > 1, "{tally:?}");
        assert_eq!(tally.failures.first.unwrap(), "GET /missing: status 404 Not Found");
        let shared = Arc::clone(&clients.shared);
        drop(clients);
        assert!(shared.take().is_none(), "they stop");
    }
}
