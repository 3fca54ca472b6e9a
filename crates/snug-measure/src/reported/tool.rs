//! How each tool that makes load writes its report, line by line.

use snug_compare::results::Percentile;

/// Tools whose reports are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// And wrk2, which calls itself wrk.
    Wrk,
    Ab,
    Hey,
    H2load,
}

/// One report.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolReport {
    pub tool: Tool,
    /// It has come to the number of requests.
    pub is_whole: bool,
    pub answered: u64,
    /// Requests without an answer.
    pub lost: u64,
    /// Answers that came too late, or with a status that says that something is wrong.
    pub bad: u64,
    pub requests_per_s: f64,
    pub percentiles: Vec<Percentile>,
    /// The lines that tell of failures.
    pub complaints: Vec<String>,
    /// The last line that ended in a colon: what the lines below it are about.
    section: String,
}

/// The tool whose output begins with this line.
pub(crate) fn begins(line: &str) -> Option<Tool> {
    match line {
        "Summary:" => Some(Tool::Hey),
        "starting benchmark..." => Some(Tool::H2load),
        _ if line.starts_with("This is ApacheBench,") => Some(Tool::Ab),
        _ if line.starts_with("Running ") && line.contains(" test @ ") => Some(Tool::Wrk),
        _ => None,
    }
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tool::Wrk => "wrk",
            Tool::Ab => "ab",
            Tool::Hey => "hey",
            Tool::H2load => "h2load",
        }
    }
}

impl ToolReport {
    /// Nothing is read yet.
    pub(crate) fn new(tool: Tool) -> ToolReport {
        ToolReport {
            tool,
            is_whole: false,
            answered: 0,
            lost: 0,
            bad: 0,
            requests_per_s: 0.0,
            percentiles: Vec::new(),
            complaints: Vec::new(),
            section: String::new(),
        }
    }

    /// Reads the next line of the output, without spaces at its ends.
    pub(crate) fn read(&mut self, line: &str) {
        // What does not have the form expected is some other line.
        let _ = match self.tool {
            Tool::Wrk => self.read_wrk(line),
            Tool::Ab => self.read_ab(line),
            Tool::Hey => self.read_hey(line),
            Tool::H2load => self.read_h2load(line),
        };
        if let Some(heading) = line.strip_suffix(':') {
            self.section = heading.into();
        }
    }

    /// ```text
    ///   Latency Distribution
    ///      50%   54.00us
    ///   31555 requests in 1.00s, 2.02MB read
    ///   Socket errors: connect 0, read 3, write 0, timeout 0
    ///   Non-2xx or 3xx responses: 12
    /// Requests/sec:  31535.48
    /// ```
    fn read_wrk(&mut self, line: &str) -> Option<()> {
        if line.starts_with("Latency Distribution") {
            // wrk2 may print a second one, of times that are not corrected.
            self.section = if self.percentiles.is_empty() { "latency" } else { "" }.into();
        } else if let Some(rate) = line.strip_prefix("Requests/sec:") {
            self.requests_per_s = rate.trim().parse().ok()?;
            // Others that begin and count like it do not end like it.
            self.is_whole = true;
        } else if let Some((count, _)) = line.split_once(" requests in ") {
            self.answered = count.parse().ok()?;
        } else if let Some(counts) = line.strip_prefix("Socket errors:") {
            let counts = pairs(counts);
            let count =
                |name: &str| counts.iter().find(|(word, _)| *word == name).map_or(0, |(_, count)| *count);
            self.lost = count("connect") + count("read") + count("write");
            // wrk counts these as answered, too.
            self.bad += count("timeout");
            self.complain(line, self.lost + count("timeout"));
        } else if let Some(count) = line.strip_prefix("Non-2xx or 3xx responses:") {
            let count = count.trim().parse().ok()?;
            self.bad += count;
            self.complain(line, count);
        } else if self.section == "latency" {
            let (percent, time) = line.split_once('%')?;
            self.percentile(percent, wrk_time_s(time.trim())?)?;
        }
        Some(())
    }

    /// ```text
    /// Complete requests:      200
    /// Failed requests:        133
    ///    (Connect: 0, Receive: 0, Length: 133, Exceptions: 0)
    /// Non-2xx responses:      200
    /// Total transferred:      12600 bytes
    /// Requests per second:    804.09 [#/sec] (mean)
    /// Percentage of the requests served within a certain time (ms)
    ///   50%      1
    ///  100%     11 (longest request)
    /// ```
    fn read_ab(&mut self, line: &str) -> Option<()> {
        if line.starts_with('(') {
            let kinds = line.trim_matches(['(', ')']).replace(':', "");
            // Answers of different lengths are as they should be.
            let failed =
                pairs(&kinds).iter().filter(|(kind, _)| *kind != "Length").map(|(_, count)| count).sum();
            self.lost += failed;
            self.answered = self.answered.saturating_sub(failed);
            self.complain(line, failed);
            return Some(());
        }
        if let Some((percent, time)) = line.split_once('%') {
            let milliseconds: f64 = time.split_whitespace().next()?.parse().ok()?;
            return self.percentile(percent, milliseconds / 1e3);
        }
        let (name, value) = line.split_once(':')?;
        let value = value.split_whitespace().next()?;
        match name {
            "Complete requests" => {
                self.answered = value.parse().ok()?;
                self.is_whole = true;
            }
            "Non-2xx responses" => {
                self.bad = value.parse().ok()?;
                self.complain(line, self.bad);
            }
            // Connections that are closed without an answer are no failures to it.
            "Total transferred" if value == "0" => {
                self.lost += std::mem::take(&mut self.answered);
                self.complain(line, 1);
            }
            "Requests per second" => self.requests_per_s = value.parse().ok()?,
            _ => {}
        }
        Some(())
    }

    /// ```text
    ///   Requests/sec: 8491.9113
    /// Latency distribution:
    ///   50% in 0.0001 secs
    /// Status code distribution:
    ///   [200] 150 responses
    /// Error distribution:
    ///   [20]  Get "http://127.0.0.1:1/": dial tcp 127.0.0.1:1: connect: connection refused
    /// ```
    fn read_hey(&mut self, line: &str) -> Option<()> {
        if let Some(rate) = line.strip_prefix("Requests/sec:") {
            self.requests_per_s = rate.trim().parse().ok()?;
            return Some(());
        }
        // Others may have a summary with a rate, too.
        self.is_whole |= line == "Status code distribution:";
        match self.section.as_str() {
            "Latency distribution" => {
                // Some versions write the sign twice.
                let (percent, time) = line.split_once(" in ")?;
                let time_s = time.strip_suffix(" secs")?.parse().ok()?;
                self.percentile(percent.trim_end_matches('%'), time_s)?;
            }
            "Status code distribution" => {
                let (status, rest) = line.strip_prefix('[')?.split_once(']')?;
                let count: u64 = rest.trim().strip_suffix("responses")?.trim().parse().ok()?;
                self.answered += count;
                // ghz writes the same of calls that end with "OK": it is not understood.
                let Ok(status) = status.parse::<u16>() else {
                    self.is_whole = false;
                    return None;
                };
                if !(200..400).contains(&status) {
                    self.bad += count;
                    self.complain(line, count);
                }
            }
            "Error distribution" => {
                let count = line.strip_prefix('[')?.split_once(']')?.0.parse().ok()?;
                self.lost += count;
                self.complain(line, count);
            }
            _ => {}
        }
        Some(())
    }

    /// ```text
    /// finished in 16.44ms, 12163.97 req/s, 795.88KB/s
    /// requests: 200 total, 200 started, 200 done, 190 succeeded, 10 failed, 4 errored, 0 timeout
    /// ```
    fn read_h2load(&mut self, line: &str) -> Option<()> {
        if let Some((_, rest)) = line.strip_prefix("finished in ").and_then(|rest| rest.split_once(", ")) {
            self.requests_per_s = rest.split_once(" req/s")?.0.parse().ok()?;
        } else if let Some(counts) = line.strip_prefix("requests:") {
            let count = |name: &str| {
                let found = counts.split(',').find_map(|part| part.trim().strip_suffix(name));
                found.and_then(|count| count.trim().parse::<u64>().ok())
            };
            let (total, succeeded, failed) = (count("total")?, count("succeeded")?, count("failed")?);
            self.answered = succeeded;
            // Those with a status of failure are in it.
            self.lost = failed;
            self.is_whole = true;
            self.complain(line, failed + u64::from(total == 0));
        }
        Some(())
    }

    fn percentile(&mut self, percent: &str, latency_s: f64) -> Option<()> {
        let percent: f64 = percent.trim().parse().ok()?;
        // Who measured nothing may say so as NaN, which can't be saved.
        let is_known = percent.is_finite() && latency_s.is_finite();
        self.percentiles.extend(is_known.then_some(Percentile { percent, latency_s }));
        Some(())
    }

    fn complain(&mut self, line: &str, count: u64) {
        if count > 0 {
            self.complaints.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}

/// Reads `connect 0, read 3`.
fn pairs(text: &str) -> Vec<(&str, u64)> {
    let words = text.split(',').filter_map(|part| part.trim().rsplit_once(' '));
    words.filter_map(|(name, count)| Some((name.trim(), count.parse().ok()?))).collect()
}

/// Reads `54.00us`, `1.88ms`, `1.10s`, `1.05m` or `1.00h`.
fn wrk_time_s(text: &str) -> Option<f64> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}
