//! The part of Prometheus' HTTP API that is asked: series of a query over a range of time.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::prelude::{Engine, BASE64_STANDARD};
use serde::Deserialize;
use ureq::http::{header, HeaderValue, Response, Uri};
use ureq::{Agent, Body};

use crate::base::failure::{Context, Failure, Result, UNKNOWN};
use crate::commands::canary::arguments::CanaryArguments;

/// A server answers with at most 11,000 points of each series; fewer keep an answer for a thousand pods small.
const POINTS_MOST: u64 = 2000;
/// An answer of a thousand pods has some 50 MB.
const ANSWER_BYTES_MOST: u64 = 1 << 30;
/// The variable with a bearer token.
const TOKEN_VARIABLE: &str = "SNUG_PROMETHEUS_TOKEN";
/// So much of an answer that is none is shown.
const SHOWN_LETTERS: usize = 200;

/// Times that are read: from, to and between, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeRange {
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

/// A series of an answer: labels, then times in s and values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LabelledSeries {
    pub labels: BTreeMap<String, String>,
    pub points: Vec<(f64, f64)>,
}

/// A server, and how to be let in.
pub(super) struct Server {
    agent: Agent,
    base: String,
    /// For messages: without a password.
    pub name: String,
    authorization: Option<HeaderValue>,
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

impl Server {
    /// The server of the command line; nothing is asked yet.
    pub(super) fn new(arguments: &CanaryArguments) -> Result<Server> {
        let url = arguments.prometheus.trim_end_matches('/');
        let base = url.strip_suffix("/api/v1").unwrap_or(url).to_string();
        let usage = |what: String| Failure::usage(what, "write it as --prometheus http://prometheus:9090");
        if base.starts_with("https://") {
            return Err(Failure::usage(
                "snug speaks HTTP without TLS".to_string(),
                "forward a port, `kubectl port-forward service/prometheus 9090`, or put a proxy beside it",
            ));
        }
        let uri = base.parse::<Uri>().map_err(|error| usage(format!("{url:?} is no URL: {error}")))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
            return Err(usage(format!("{url:?} is no URL of a server")));
        }
        let name = base.split_once('@').map_or(base.clone(), |(_, server)| format!("http://{server}"));
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(arguments.timeout))
            .max_redirects(0)
            .max_redirects_will_error(false);
        let agent = config.user_agent("snug").build().new_agent();
        Ok(Server { agent, base, name, authorization: authorization(arguments)? })
    }

    /// Asks for all series of a query.
    pub(super) fn range(&self, query: &str, range: TimeRange) -> Result<Vec<LabelledSeries>> {
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
        let mut request = self.agent.post(format!("{}/api/v1/query_range", self.base));
        if let Some(value) = &self.authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let mut response = request.send_form(form).map_err(|error| self.unreachable(&error))?;
        let limited = response.body_mut().with_config().limit(ANSWER_BYTES_MOST).lossy_utf8(true);
        let text = limited.read_to_string().map_err(|error| self.unreachable(&error))?;
        self.understand(&response, &text, query)
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let advice = match error {
            ureq::Error::Timeout(_) => "give it more by --timeout, or ask for less: a shorter --window, a longer --step",
            _ => "is it running, and is that its address? `kubectl port-forward service/prometheus 9090` reaches into a cluster",
        };
        Failure::new(format!("cannot ask Prometheus at {}: {error}", self.name))
            .advise(advice)
            .exit_code(UNKNOWN)
    }

    fn understand(&self, response: &Response<Body>, text: &str, query: &str) -> Result<Vec<Matrix>> {
        let status = response.status();
        let failure =
            |message: String, advice: &str| Err(Failure::new(message).advise(advice).exit_code(UNKNOWN));
        if let 401 | 403 = status.as_u16() {
            let advice = "give a token by --bearer-token-file, or name and password by --basic-auth-file";
            return failure(format!("{} does not let us in: {status}", self.name), advice);
        }
        let envelope = match serde_json::from_str::<Envelope>(text) {
            Ok(envelope) => envelope,
            Err(_) if status.is_success() || status.as_u16() == 404 => {
                let begin: String = text.trim().chars().take(SHOWN_LETTERS).collect();
                let advice = "give the address that is before /api/v1, without a page of a user interface";
                return failure(
                    format!("{} does not answer as Prometheus does ({status}): {begin}", self.name),
                    advice,
                );
            }
            Err(_) => return failure(format!("{} answers {status}", self.name), "its log has the reason"),
        };
        match envelope {
            Envelope { status, data: Some(data), .. }
                if status == "success" && data.result_type == "matrix" =>
            {
                Ok(data.result)
            }
            Envelope { error, .. } => {
                let error = error.unwrap_or_else(|| "it gives no reason".into());
                failure(format!("{} refuses the query: {error}", self.name), &format!("the query is {query}"))
            }
        }
    }
}

/// What goes into the header Authorization, if anything.
fn authorization(arguments: &CanaryArguments) -> Result<Option<HeaderValue>> {
    let read = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).cannot(|| format!("read {}", path.display()))?;
        match text.trim() {
            "" => Err(Failure::usage(format!("{} is empty", path.display()), "it holds what lets us in")),
            text => Ok(text.to_string()),
        }
    };
    let bearer = |token: String| format!("Bearer {token}");
    let text = match (&arguments.bearer_token_file, &arguments.basic_auth_file) {
        (Some(path), _) => bearer(read(path)?),
        (None, Some(path)) => {
            let pair = read(path)?;
            if !pair.contains(':') {
                return Err(Failure::usage(
                    format!("{} holds no name and password", path.display()),
                    "write NAME:PASSWORD into it",
                ));
            }
            format!("Basic {}", BASE64_STANDARD.encode(pair))
        }
        (None, None) => match std::env::var(TOKEN_VARIABLE) {
            Ok(token) if !token.trim().is_empty() => bearer(token.trim().to_string()),
            _ => return Ok(None),
        },
    };
    let mut value = HeaderValue::from_str(&text).map_err(|_| {
        Failure::usage("the token or password has letters that no header can carry", "is it that file?")
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// A whole number of seconds, at least 1.
pub(super) fn seconds(time: Duration) -> u64 {
    (time.as_secs_f64().round() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_asked_for_in_parts() {
        let parts: Vec<_> = TimeRange { from_s: 0, to_s: 10 * 2000 + 5, step_s: 10 }.parts().collect();
        assert_eq!(parts, [(0, 19_990), (20_000, 20_005)]);
        let parts: Vec<_> = TimeRange { from_s: 100, to_s: 100, step_s: 60 }.parts().collect();
        assert_eq!(parts, [(100, 100)]);
    }
}
