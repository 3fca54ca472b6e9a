//! The part of Prometheus' HTTP API that we use: the series of a query over a range of time.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use ureq::http::StatusCode;

use crate::server::{beginning, tls_advice, PrometheusArguments, Server, ELSEWHERE, HOW_TO_BE_LET_IN};
use snug_base::failure::{Failure, Result, UNKNOWN};
use snug_base::terminal::printable_json;

/// A server answers with at most 11,000 points of each series; fewer keep an answer for a thousand pods small.
const POINTS_MOST: u64 = 2000;
/// An answer of a thousand pods has some 50 MB.
const ANSWER_BYTES_MOST: u64 = 1 << 30;

/// Times that are read: from, to and between, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    pub from_s: u64,
    pub to_s: u64,
    pub step_s: u64,
}

impl TimeRange {
    /// Parts that a server answers at once.
    fn parts(self) -> impl Iterator<Item = (u64, u64)> {
        let length = self.step_s * (POINTS_MOST - 1);
        let starts = (self.from_s..=self.to_s).step_by((length + self.step_s) as usize);
        starts.map(move |start| (start, (start + length).min(self.to_s)))
    }
}

/// The window that ends at a time, in steps that stay the same from one question to the next.
///
/// `step`: between readings; None for a 288th of the window, at least a minute.
pub fn range(window: Duration, step: Option<Duration>, end_s: u64) -> TimeRange {
    let window_s = seconds(window);
    let step_s = step.map_or_else(|| (window_s / 288).max(60), seconds);
    let to_s = end_s / step_s * step_s;
    TimeRange { from_s: to_s.saturating_sub(window_s / step_s * step_s), to_s, step_s }
}

/// A series of an answer: labels, then times in s and values.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledSeries {
    pub labels: BTreeMap<String, String>,
    pub points: Vec<(f64, f64)>,
}

/// A Prometheus server.
pub struct Prometheus {
    server: Server,
}

#[derive(Deserialize)]
struct Envelope {
    status: String,
    data: Option<Data>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    #[serde(default)]
    result: Vec<Matrix>,
}

#[derive(Deserialize)]
struct Matrix {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

impl Prometheus {
    /// That of the command line; nothing is asked yet.
    pub fn new(arguments: &PrometheusArguments) -> Result<Prometheus> {
        Ok(Prometheus { server: Server::new(arguments)? })
    }

    /// Its URL, for messages: without a password.
    pub fn name(&self) -> &str {
        &self.server.name
    }

    /// Asks for all series of a query.
    pub fn range(&self, query: &str, range: TimeRange) -> Result<Vec<LabelledSeries>> {
        let mut all: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
        for (from_s, to_s) in range.parts() {
            for series in self.part(query, from_s, to_s, range.step_s)? {
                let number = |(time, text): (f64, String)| Some((time, text.parse::<f64>().ok()?));
                all.entry(series.metric).or_default().extend(series.values.into_iter().filter_map(number));
            }
        }
        Ok(all.into_iter().map(|(labels, points)| LabelledSeries { labels, points }).collect())
    }

    fn part(&self, query: &str, from_s: u64, to_s: u64, step_s: u64) -> Result<Vec<Matrix>> {
        let form = [
            ("query", query),
            ("start", &from_s.to_string()),
            ("end", &to_s.to_string()),
            ("step", &step_s.to_string()),
        ];
        let request = self.server.post("/api/v1/query_range");
        let mut response = request.send_form(form).map_err(|error| self.unreachable(&error))?;
        let limited = response.body_mut().with_config().limit(ANSWER_BYTES_MOST).lossy_utf8(true);
        let text = limited.read_to_string().map_err(|error| self.unreachable(&error))?;
        understand(&self.server.name, response.status(), &text, query)
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let advice = tls_advice(error).unwrap_or(match error {
            ureq::Error::Timeout(_) => "raise --timeout, or ask for less: a shorter --window, a longer --step",
            _ => "is it running, and is that its address? `kubectl port-forward service/prometheus 9090` reaches into a cluster",
        });
        Failure::new(format!("cannot ask Prometheus at {}: {error}", self.server.name))
            .advise(advice)
            .exit_code(UNKNOWN)
    }
}

/// Reads what the server of this name answers.
fn understand(name: &str, status: StatusCode, text: &str, query: &str) -> Result<Vec<Matrix>> {
    let failure =
        |message: String, advice: &str| Err(Failure::new(message).advise(advice).exit_code(UNKNOWN));
    if let 401 | 403 = status.as_u16() {
        return failure(format!("{name} refused our credentials: {status}"), HOW_TO_BE_LET_IN);
    }
    let envelope = match serde_json::from_str::<Envelope>(&printable_json(text)) {
        Ok(envelope) => envelope,
        Err(_) if status.is_success() || status.as_u16() == 404 => {
            let begin = beginning(text);
            let advice = "give the address that is before /api/v1, without a page of a user interface";
            return failure(format!("{name} does not answer as Prometheus does ({status}): {begin}"), advice);
        }
        Err(_) if status.is_redirection() => {
            return failure(format!("{name} answers {status}"), ELSEWHERE);
        }
        Err(_) => return failure(format!("{name} answers {status}"), "its log has the reason"),
    };
    match envelope {
        Envelope { status, data: Some(data), .. } if status == "success" && data.result_type == "matrix" => {
            Ok(data.result)
        }
        Envelope { error, .. } => {
            let error = error.unwrap_or_else(|| "it gives no reason".into());
            failure(format!("{name} refuses the query: {error}"), &format!("the query is {query}"))
        }
    }
}

/// A name as Prometheus takes it for metrics: what else there is in a query belongs in matchers.
pub fn metric(text: &str) -> std::result::Result<String, String> {
    let good = |(index, letter): (usize, char)| {
        letter.is_ascii_alphabetic() || "_:".contains(letter) || (index > 0 && letter.is_ascii_digit())
    };
    match !text.is_empty() && text.chars().enumerate().all(good) {
        true => Ok(text.into()),
        false => Err("not the name of a metric: letters, digits, _ and :".into()),
    }
}

/// A time as 2026-11-20T12:00:00Z.
pub fn moment(text: &str) -> std::result::Result<SystemTime, String> {
    humantime::parse_rfc3339(text).map_err(|error| format!("{error}; write it as 2026-11-20T12:00:00Z"))
}

/// A time in seconds since 1970 as people read it, in UTC.
pub fn utc(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

/// Matchers without the braces around them.
pub fn inner(matchers: &str) -> &str {
    let text = matchers.trim();
    text.strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
        .unwrap_or(text)
        .trim()
        .trim_end_matches(',')
}

/// A whole number of seconds, at least 1.
pub fn seconds(time: Duration) -> u64 {
    (time.as_secs_f64().round() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_matchers() {
        assert!(
            metric("a:b_1").is_ok()
                && metric("1a").is_err()
                && metric("a{b}").is_err()
                && metric("").is_err()
        );
        assert!(moment("2026-11-20T12:00:00Z").is_ok() && moment("yesterday").is_err());
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(inner(" {a=\"b\",} "), "a=\"b\"");
    }

    #[test]
    fn ranges_are_asked_for_in_parts() {
        let parts: Vec<_> = TimeRange { from_s: 0, to_s: 10 * 2000 + 5, step_s: 10 }.parts().collect();
        assert_eq!(parts, [(0, 19_990), (20_000, 20_005)]);
        let parts: Vec<_> = TimeRange { from_s: 100, to_s: 100, step_s: 60 }.parts().collect();
        assert_eq!(parts, [(100, 100)]);
    }

    #[test]
    fn fuzzed_answers() {
        let sample = br#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"pod":"a"},"values":[[1,"2.5"],[61,"NaN"]]}]}}"#;
        snug_base::random::fuzz(&[sample, br#"{"status":"error","error":"no"}"#], |bytes| {
            let _ = understand("a", StatusCode::OK, &String::from_utf8_lossy(bytes), "up");
        });
    }
}
