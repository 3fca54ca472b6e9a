//! What programs, and tools that make load, report in what they print: lines `snug-metric: NAME=VALUE`, and the
//! closing reports of wrk, wrk2, ab, hey and h2load. These tools exit with 0 though requests failed: only the report
//! tells. Pure.

mod tool;

use std::collections::BTreeMap;

use crate::reported::tool::{begins, Tool, ToolReport};
use snug_base::terminal::printable;
use snug_compare::results::{Latency, Percentile};
use snug_stats::median;

/// Complaints that are shown.
const COMPLAINTS_MAX: usize = 5;

/// What a load says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Reported {
    /// None: it reports its rate by lines of its own.
    pub latency: Option<Latency>,
    /// What failed, in the words of the tool; None if nothing did.
    pub failure: Option<String>,
}

/// What lines `snug-metric: NAME=VALUE` say. A name that comes again replaces the value before.
#[derive(Debug, Default)]
pub struct OwnMetrics(BTreeMap<String, f64>);

impl OwnMetrics {
    /// Goes on with what follows.
    pub fn read(&mut self, output: &[u8]) {
        let text = String::from_utf8_lossy(output);
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("snug-metric:"));
        let pairs = lines.filter_map(|line| line.split_once('='));
        let read = pairs.filter_map(|(name, value)| Some((name.trim(), value.trim().parse::<f64>().ok()?)));
        self.0.extend(read.map(|(name, value)| (name.to_string(), value)));
    }

    /// `errors` that are not a finite number: nobody knows how many there were.
    pub fn uncounted_errors(&self) -> Option<f64> {
        self.0.get("errors").copied().filter(|errors| !errors.is_finite())
    }

    /// The values, and a note for each that is left out: NaN and infinity, which programs print that divide by 0, can
    /// neither be compared nor saved.
    pub fn finish(self) -> (BTreeMap<String, f64>, Vec<String>) {
        let (values, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.0.into_iter().partition(|(_, value)| value.is_finite());
        let note = |(name, value): (String, f64)| {
            format!("snug-metric {}={value} was left out: it is not a finite number", printable(&name))
        };
        (values, others.into_iter().map(note).collect())
    }
}

/// Reads the reports in the output of a load, which may come in parts.
#[derive(Default)]
pub struct LoadReader {
    /// All reports that are whole: a tool that was killed may leave half of one.
    reports: Vec<ToolReport>,
    /// The one that is being read.
    report: Option<ToolReport>,
    own: OwnMetrics,
    /// Bytes of the output that were not read.
    pub left_out: u64,
}

impl LoadReader {
    /// Goes on with what follows.
    pub fn read(&mut self, output: &[u8]) {
        self.own.read(output);
        for line in String::from_utf8_lossy(output).lines().map(str::trim) {
            if let Some(tool) = begins(line) {
                self.end_report();
                self.report = Some(ToolReport::new(tool));
            } else if line.starts_with("Success rate:") {
                // oha: like hey's, but it counts as errors what was under way when the time was over.
                self.report = None;
            } else if let Some(report) = &mut self.report {
                report.read(line);
            }
        }
    }

    /// Takes note that some of the output is missing here.
    pub fn leave_out(&mut self, bytes: u64) {
        if bytes > 0 {
            self.left_out += bytes;
            self.end_report();
        }
    }

    fn end_report(&mut self) {
        self.reports.extend(self.report.take().filter(|report| report.is_whole));
    }

    /// What the reports say; None if there is none. Who prints `snug-metric` lines is believed: if they hold a rate, those
    /// of the tool are left alone, and if they hold `errors`, so are its failures.
    pub fn finish(mut self) -> Option<Reported> {
        self.end_report();
        let tool = self.reports.first()?.tool;
        let latency = add_up(&self.reports);
        let (own, _) = self.own.finish();
        let has_own_rate = own.keys().any(|name| name.ends_with("_per_s"));
        let failure = if own.contains_key("errors") { None } else { failure(tool, &self.reports, &latency) };
        Some(Reported { latency: (!has_own_rate).then_some(latency), failure })
    }
}

fn failure(tool: Tool, reports: &[ToolReport], latency: &Latency) -> Option<String> {
    // One that was stopped as soon as it began may have none.
    if latency.failed == 0 && reports.iter().any(|report| report.answered > 0) {
        return None;
    }
    let complaints: Vec<&str> = reports
        .iter()
        .flat_map(|report| &report.complaints)
        .map(String::as_str)
        .take(COMPLAINTS_MAX)
        .collect();
    if complaints.is_empty() {
        return Some(format!("{} says that no request was answered", tool.name()));
    }
    let (failed, all, what) = (latency.failed, latency.requests, complaints.join("; "));
    Some(format!("{failed} of {all} requests failed; {} says: {what}", tool.name()))
}

/// Several reports, of a command that ran again and again, as one. Percentiles of different times can't be put together:
/// the median of each stands for all.
fn add_up(reports: &[ToolReport]) -> Latency {
    let (mut latency, mut time_s) = (Latency::default(), 0.0);
    let mut percentiles: Vec<(f64, Vec<f64>)> = Vec::new();
    for report in reports {
        let requests = report.answered + report.lost;
        latency.requests += requests;
        latency.failed += (report.lost + report.bad).min(requests);
        if report.requests_per_s > 0.0 {
            time_s += report.answered as f64 / report.requests_per_s;
        }
        for one in &report.percentiles {
            match percentiles.iter_mut().find(|(percent, _)| *percent == one.percent) {
                Some((_, latencies)) => latencies.push(one.latency_s),
                None => percentiles.push((one.percent, vec![one.latency_s])),
            }
        }
    }
    let answered: u64 = reports.iter().map(|report| report.answered).sum();
    let rate = answered as f64 / time_s;
    latency.requests_per_s = if rate.is_finite() { rate } else { 0.0 };
    percentiles.sort_by(|left, right| left.0.total_cmp(&right.0));
    let middle =
        |(percent, latencies): (f64, Vec<f64>)| Percentile { percent, latency_s: median(&latencies) };
    latency.percentiles = percentiles.into_iter().map(middle).collect();
    latency
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_compare::{fixture, saved, summary};

    const WRK: &str = include_str!("../../../snug/tests/data/wrk.txt");
    const WRK_ERRORS: &str = "Running 1s test @ http://127.0.0.1:7781/error
  1 threads and 2 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   198.88us  638.30us   8.59ms   92.45%
    Req/Sec    69.69k    14.51k   85.20k    45.45%
  76003 requests in 1.10s, 6.23MB read
  Socket errors: connect 0, read 3, write 0, timeout 4
  Non-2xx or 3xx responses: 70000
Requests/sec:  69127.57
Transfer/sec:      5.67MB
";
    const WRK_RESET: &str = "Running 1s test @ http://127.0.0.1:7781/reset
  1 threads and 2 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.00us    0.00us   0.00us    -nan%
    Req/Sec     0.00      0.00     0.00      -nan%
  0 requests in 1.00s, 0.00B read
  Socket errors: connect 0, read 1833, write 0, timeout 0
Requests/sec:      0.00
Transfer/sec:       0.00B
";
    const WRK2: &str = "Running 10s test @ http://127.0.0.1:80/
  2 threads and 10 connections
  Thread calibration: mean lat.: 1.2ms, rate sampling interval: 10ms
  Latency Distribution (HdrHistogram - Recorded Latency)
 50.000%    1.02ms
 99.900%    1.10s
100.000%    1.05m

  Detailed Percentile spectrum:
       Value   Percentile   TotalCount 1/(1-Percentile)
       0.221     0.000000            1         1.00
----------------------------------------------------------
  Latency Distribution (HdrHistogram - Uncorrected Latency (measured without taking delayed starts into account))
 50.000%    0.50ms
  20000 requests in 10.00s, 2.02MB read
Requests/sec:   2000.00
";
    const AB: &str = "This is ApacheBench, Version 2.3 <$Revision$>

Benchmarking 127.0.0.1 (be patient)

Document Path:          /len%20x
Document Length:        7 bytes

Concurrency Level:      2
Time taken for tests:   0.249 seconds
Complete requests:      200
Failed requests:        133
   (Connect: 0, Receive: 0, Length: 133, Exceptions: 0)
Total transferred:      12600 bytes
HTML transferred:       1200 bytes
Requests per second:    804.09 [#/sec] (mean)
Time per request:       2.487 [ms] (mean)

Connection Times (ms)
              min  mean[+/-sd] median   max
Total:          0    2   2.5      1      11

Percentage of the requests served within a certain time (ms)
  50%      1
  99%      8
 100%     11 (longest request)
";
    const HEY: &str = "
Summary:
  Total:\t0.0097 secs
  Slowest:\t0.0012 secs
  Requests/sec:\t20561.9710

Response time histogram:
  0.000 [1]\t|
  0.001 [199]\t|■■■■

Latency distribution:
  50% in 0.0001 secs
  99%% in 0.0006 secs

Details (average, fastest, slowest):
  DNS+dialup:\t0.0000 secs, 0.0000 secs, 0.0012 secs

Status code distribution:
  [200]\t150 responses
  [302]\t50 responses
";
    const HEY_DOWN: &str = "
Summary:
  Total:\t0.0009 secs
  Average:\t NaN secs
  Requests/sec:\t23266.3920

Latency distribution:

Status code distribution:

Error distribution:
  [20]\tGet \"http://127.0.0.1:1/\": dial tcp 127.0.0.1:1: connect: connection refused
";
    const H2LOAD: &str = "starting benchmark...
spawning thread #0: 2 total client(s). 200 total requests
progress: 100% done

finished in 22.57ms, 8862.50 req/s, 744.31KB/s
requests: 200 total, 200 started, 200 done, 150 succeeded, 50 failed, 0 errored, 0 timeout
status codes: 150 2xx, 0 3xx, 0 4xx, 50 5xx
                     min         max         mean         sd        +/- sd
time for request:       12us      4.75ms       138us       602us    98.00%
";

    fn load(output: &[u8]) -> Option<Reported> {
        let mut reader = LoadReader::default();
        reader.read(output);
        reader.finish()
    }

    fn own(output: &[u8]) -> (BTreeMap<String, f64>, Vec<String>) {
        let mut own = OwnMetrics::default();
        own.read(output);
        own.finish()
    }

    fn read(output: &str) -> Reported {
        load(output.as_bytes()).unwrap()
    }

    fn good(output: &str) -> Latency {
        let reported = read(output);
        assert_eq!(reported.failure, None);
        reported.latency.unwrap()
    }

    fn at(latency: &Latency, percent: f64) -> f64 {
        latency.percentiles.iter().find(|one| one.percent == percent).unwrap().latency_s
    }

    #[test]
    fn metrics_are_read_from_output() {
        let output =
            b"hello\nsnug-metric: requests_per_s=51.3\n  snug-metric: p99_ms = 12\nsnug-metric: bad=x\n";
        let (metrics, notes) = own(output);
        assert_eq!((metrics.len(), notes.len()), (2, 0));
        assert_eq!(metrics["requests_per_s"], 51.3);
        assert_eq!(metrics["p99_ms"], 12.0);
    }

    #[test]
    fn what_is_no_number_is_left_out_and_noted() {
        let line = |name: &str, value: &str| format!("snug-metric: {name}={value}\n");
        let lines =
            [line("a", "NaN"), line("b", "-Infinity"), line("c", "1e999"), line("d", "7"), line("d", "nan")];
        let (metrics, notes) = own(lines.concat().as_bytes());
        assert!(metrics.is_empty(), "{metrics:?}");
        let noted: Vec<&str> = notes.iter().map(|note| note.split(" was left out").next().unwrap()).collect();
        assert_eq!(
            noted,
            ["snug-metric a=NaN", "snug-metric b=-inf", "snug-metric c=inf", "snug-metric d=NaN"]
        );
        let (metrics, notes) = own(format!("{}{}", line("a", "NaN"), line("a", "5")).as_bytes());
        assert_eq!((metrics["a"], notes.len()), (5.0, 0), "the last one counts");
        let uncounted = |lines: &[String]| {
            let mut own = OwnMetrics::default();
            lines.iter().for_each(|line| own.read(line.as_bytes()));
            own.uncounted_errors().map(|errors| errors.to_string())
        };
        let [no_number, seven] = ["Infinity", "7"].map(|value| line("errors", value));
        assert_eq!(uncounted(&[seven.clone(), no_number.clone()]).as_deref(), Some("inf"));
        assert_eq!([uncounted(&[no_number, seven]), uncounted(&[line("a", "NaN")])], [None, None]);
        // A rate and errors of which nothing is known replace none of those of a tool.
        let reported = read(&format!("{WRK_ERRORS}{}{}", line("pages_per_s", "NaN"), line("errors", "NaN")));
        assert!(reported.latency.is_some() && reported.failure.is_some());
    }

    /// Programs and tools that measured nothing print what comes of dividing by it.
    #[test]
    fn whatever_was_reported_can_be_read_when_it_was_saved() {
        let numbers = [
            "NaN",
            "-nan",
            "inf",
            "-Infinity",
            "1e999",
            "-1e999",
            "1e308",
            "-1e308",
            "1e-320",
            "-0",
            "7",
            "x",
            "",
        ];
        let reports = [
            "snug-metric: rate_per_s=#\nsnug-metric: p99_ms=#\n".to_string(),
            WRK.replace("31535.48", "#"),
            WRK.replace("54.00us", "#us"),
            WRK2.replace("1.05m", "#m"),
            WRK2.replace("99.900%", "#%"),
            AB.replace("804.09", "#"),
            AB.replace("99%      8", "99%      #"),
            HEY.replace("20561.9710", "#"),
            HEY.replace("0.0006", "#"),
            H2LOAD.replace("8862.50", "#"),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("compare.json");
        for (report, first) in reports.iter().flat_map(|report| (0..numbers.len()).map(move |i| (report, i)))
        {
            assert!(report.contains('#'));
            let mut comparison = fixture::comparison(&[("glibc", &[100.0, 102.0]), ("snug", &[50.0, 51.0])]);
            for (index, run) in comparison.runs.iter_mut().enumerate() {
                let output = report.replace('#', numbers[(first + index / 2) % numbers.len()]);
                let (metrics, notes) = own(output.as_bytes());
                (run.metrics, run.notes) = (metrics, notes);
                run.latency = load(output.as_bytes()).and_then(|reported| reported.latency);
            }
            comparison.summary = summary::summarise(&comparison);
            std::fs::write(&path, serde_json::to_string(&comparison).unwrap()).unwrap();
            let read = saved::load_all(&[path.display().to_string()]);
            let read = read.unwrap_or_else(|failure| panic!("{failure} {} in {report}", numbers[first]));
            for (read, run) in read[0].comparison.runs.iter().zip(&comparison.runs) {
                assert_eq!((&read.metrics, &read.latency), (&run.metrics, &run.latency), "{report}");
            }
        }
    }

    #[test]
    fn what_is_no_report_is_left_alone() {
        assert_eq!(load(b"hello\nsnug-metric: requests_per_s=51.3\n"), None);
        assert_eq!(load(b"Summary:\n  Requests/sec: 12\n"), None);
        let (half, _) = WRK.split_once("  31555").unwrap();
        assert_eq!(load(half.as_bytes()), None, "it was killed");
        let oha = HEY_DOWN.replace("Summary:", "Summary:\n  Success rate:\t0.00%");
        assert_eq!(load(oha.as_bytes()), None);
        let ghz = "Summary:\n  Count:\t200\n  Requests/sec:\t900.0\n\nStatus code distribution:\n  [OK]   200 responses\n";
        assert_eq!(load(ghz.as_bytes()), None);
        let autocannon =
            "Running 10s test @ http://127.0.0.1:80\n10 connections\n900 requests in 10.04s, 1.2 MB read\n";
        assert_eq!(load(autocannon.as_bytes()), None);
    }

    #[test]
    fn wrk_and_wrk2() {
        let latency = good(WRK);
        assert_eq!((latency.requests, latency.failed, latency.percentiles.len()), (31555, 0, 4));
        assert!((latency.requests_per_s - 31535.48).abs() < 1e-6);
        assert!((at(&latency, 50.0) - 54e-6).abs() < 1e-12 && (at(&latency, 99.0) - 3.98e-3).abs() < 1e-12);
        let failed = read(WRK_ERRORS);
        assert_eq!(
            failed.failure.unwrap(),
            "70007 of 76006 requests failed; wrk says: Socket errors: connect 0, read 3, write 0, timeout 4; \
             Non-2xx or 3xx responses: 70000"
        );
        assert!(read(WRK_RESET).failure.unwrap().starts_with("1833 of 1833 requests failed"));
        let latency = good(WRK2);
        assert_eq!(
            latency.percentiles.len(),
            3,
            "those of the spectrum and of the second table do not count"
        );
        assert_eq!((at(&latency, 99.9), at(&latency, 100.0)), (1.1, 63.0));
    }

    #[test]
    fn ab_takes_other_lengths_for_failures_and_empty_answers_for_none() {
        let latency = good(AB);
        assert_eq!((latency.requests, latency.failed), (200, 0));
        assert_eq!((latency.requests_per_s, at(&latency, 99.0), at(&latency, 100.0)), (804.09, 0.008, 0.011));
        let failure = |from: &str, to: &str| read(&AB.replace(from, to)).failure.unwrap();
        let received = failure("Receive: 0", "Receive: 7");
        assert!(
            received.starts_with("7 of 200 requests failed; ab says: (Connect: 0, Receive: 7"),
            "{received}"
        );
        let statuses = failure("Total tr", "Non-2xx responses:      50\nTotal tr");
        assert_eq!(statuses, "50 of 200 requests failed; ab says: Non-2xx responses: 50");
        let empty = failure("12600 bytes", "0 bytes");
        assert_eq!(empty, "200 of 200 requests failed; ab says: Total transferred: 0 bytes");
    }

    #[test]
    fn hey_and_h2load() {
        let latency = good(HEY);
        assert_eq!((latency.requests, latency.requests_per_s), (200, 20561.971));
        assert_eq!((at(&latency, 50.0), at(&latency, 99.0)), (0.0001, 0.0006));
        let missing = read(&HEY.replace("[302]", "[404]")).failure.unwrap();
        assert_eq!(missing, "50 of 200 requests failed; hey says: [404] 50 responses");
        let down = read(HEY_DOWN).failure.unwrap();
        assert!(
            down.starts_with("20 of 20 requests failed; hey says: [20] Get") && down.ends_with("refused")
        );
        let failed = read(H2LOAD).failure.unwrap();
        assert!(
            failed.starts_with("50 of 200 requests failed; h2load says: requests: 200 total"),
            "{failed}"
        );
        let latency = good(&H2LOAD.replace("150 succ", "200 succ").replace("50 failed", "0 failed"));
        assert_eq!((latency.requests, latency.requests_per_s), (200, 8862.5));
    }

    #[test]
    fn no_answer_at_all_is_a_failure() {
        let nothing = read(&WRK.replace("31555 requests", "0 requests")).failure.unwrap();
        assert_eq!(nothing, "wrk says that no request was answered");
    }

    #[test]
    fn reports_of_a_command_that_ran_again_are_one() {
        let slower = WRK.replace("31555 requests", "10000 requests").replace("31535.48", "10000.00");
        let latency = good(&format!("{WRK}{slower}{}", slower.replace("3.98ms", "9.00ms")));
        assert_eq!(latency.requests, 51555);
        assert!((latency.requests_per_s - 51555.0 / (31555.0 / 31535.48 + 2.0)).abs() < 1e-6, "{latency:?}");
        assert!((at(&latency, 99.0) - 3.98e-3).abs() < 1e-12, "{latency:?}");
        assert!(read(&format!("{WRK_ERRORS}{WRK}")).failure.is_some());
        let stopped = WRK.replace("31555 requests", "0 requests").replace("31535.48", "0.00");
        assert_eq!(good(&format!("{WRK}{stopped}")).requests, 31555);
    }

    #[test]
    fn what_comes_in_parts_is_read_as_a_whole() {
        let mut reader = LoadReader::default();
        let (half, rest) = WRK.split_once("  31555").unwrap();
        for part in [WRK, half, &format!("  31555{rest}snug-metric: pages=7\n")] {
            reader.read(part.as_bytes());
        }
        assert_eq!(reader.finish(), load(format!("{WRK}{WRK}snug-metric: pages=7\n").as_bytes()));
        // Of one whose middle is missing neither half counts, nor does the other half belong to the one before.
        let mut reader = LoadReader::default();
        reader.read(format!("{WRK}{half}").as_bytes());
        reader.leave_out(0);
        reader.leave_out(100);
        reader.read(format!("  99999{rest}{AB}").as_bytes());
        assert_eq!(reader.left_out, 100);
        assert_eq!(reader.finish(), load(format!("{WRK}{AB}").as_bytes()));
    }

    #[test]
    fn lines_of_the_loads_own_go_first() {
        let own = |lines: &str| read(&format!("{WRK_ERRORS}{lines}"));
        let rate = own("snug-metric: pages_per_s=7\n");
        assert!(rate.latency.is_none() && rate.failure.is_some());
        let errors = own("snug-metric: errors=0\n");
        assert!(errors.latency.is_some() && errors.failure.is_none());
        assert!(own("snug-metric: pages=7\n").latency.is_some());
    }
}
