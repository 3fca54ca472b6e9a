//! `snug profile --push`: sends the profile to Pyroscope, or to what takes profiles as it does (`POST /ingest`).

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use flate2::write::GzEncoder;
use flate2::Compression;
use ureq::http::{header, Response};
use ureq::Body;

use crate::profile::views::ProfileView;
use crate::profile::{view_name, MeasuredProfile, ProfileArguments};
use snug_base::failure::{Context, Failure, Result, FAILED};
use snug_base::terminal::{self, bytes};
use snug_client::server::{beginning, tls_advice, Access, Server, ELSEWHERE, HOW_TO_BE_LET_IN};
use snug_profile::pprof;

/// How long the server may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The variable with a bearer token.
const TOKEN_VARIABLE: &str = "SNUG_PUSH_TOKEN";
/// So much of an answer is read: its first line is shown.
const ANSWER_BYTES_MOST: u64 = 1 << 16;

/// Where the profile is sent to.
#[derive(Debug, Args)]
pub(crate) struct PushArguments {
    /// Also send the profile to Pyroscope: http://HOST:PORT or https://HOST, with the path in front of /ingest if there is one
    #[arg(
        long,
        value_name = "URL",
        value_hint = clap::ValueHint::Url,
        conflicts_with_all = ["diff", "black_box"]
    )]
    pub push: Option<String>,
    /// Its name there, and labels: shop, or shop{env=production,region=eu} [default: the program's name]
    #[arg(long, value_name = "NAME", requires = "push", value_parser = push_name)]
    pub push_name: Option<PushName>,
    /// A file with a bearer token for --push
    #[arg(long, value_name = "FILE", requires = "push", conflicts_with = "basic_auth_file")]
    pub bearer_token_file: Option<PathBuf>,
    /// A file with NAME:PASSWORD for --push
    #[arg(long, value_name = "FILE", requires = "push")]
    pub basic_auth_file: Option<PathBuf>,
    /// A PEM file with the authorities to trust for https [default: the public ones, built in]
    #[arg(long, value_name = "FILE", requires = "push")]
    pub ca_file: Option<PathBuf>,
}

/// What a profile is called on the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PushName {
    name: String,
    labels: Vec<(String, String)>,
}

/// A server that takes profiles.
pub(super) struct Push {
    server: Server,
}

impl Push {
    /// That of the command line, if there is one; nothing is sent yet.
    pub(super) fn new(arguments: &PushArguments) -> Result<Option<Push>> {
        let Some(url) = &arguments.push else { return Ok(None) };
        let access = Access {
            timeout: TIMEOUT,
            ca_file: arguments.ca_file.as_deref(),
            bearer_token_file: arguments.bearer_token_file.as_deref(),
            basic_auth_file: arguments.basic_auth_file.as_deref(),
            token_variable: TOKEN_VARIABLE,
        };
        let server = Server::new(url, "/ingest", "--push http://pyroscope:4040", &access)?;
        Ok(Some(Push { server }))
    }

    /// Sends the view that was asked for, and says so. `began`: when the measurement did, since the epoch.
    pub(super) fn send(
        &self,
        measured: &MeasuredProfile,
        arguments: &ProfileArguments,
        began: Duration,
    ) -> Result<()> {
        let shown = &measured.views[0];
        if shown.sites.is_empty() {
            terminal::note(&format!("nothing was sent to {}, as there is nothing to show", self.server.name));
            return Ok(());
        }
        let names = if shown.view == ProfileView::Allocated { pprof::ALLOCATED } else { pprof::LIVE };
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        let profile = pprof::encode(
            &shown.sites,
            names,
            nanoseconds(began),
            nanoseconds(measured.duration),
            measured.mean_bytes,
        );
        let name = arguments
            .push
            .push_name
            .clone()
            .unwrap_or_else(|| default_name(arguments, &measured.command))
            .with_label("view", &view_name(shown.view));
        self.post(&name, began, measured.duration, &gzipped(&profile)?)?;
        let total = shown.sites.iter().fold(0.0, |sum, site| sum + site.bytes);
        terminal::note(&format!("sent to {}: {}, {}", self.server.name, name.text(), bytes(total)));
        Ok(())
    }

    fn post(&self, name: &PushName, began: Duration, duration: Duration, body: &[u8]) -> Result<()> {
        let until_s = (began + duration).as_secs_f64().ceil() as u64;
        let request = self
            .server
            .post("/ingest")
            .query("name", name.text())
            .query("from", began.as_secs().to_string())
            .query("until", until_s.to_string())
            .query("format", "pprof")
            .query("spyName", "snug")
            .header(header::CONTENT_TYPE, "application/octet-stream");
        let mut response = request.send(body).map_err(|error| self.unreachable(&error))?;
        let limited = response.body_mut().with_config().limit(ANSWER_BYTES_MOST).lossy_utf8(true);
        // What is too long, or breaks off, has been answered all the same: the status counts.
        let text = limited.read_to_string().unwrap_or_default();
        self.understand(&response, &text)
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let advice = tls_advice(error).unwrap_or(match error {
            ureq::Error::Timeout(_) => {
                "it may have too much to do, or drop what comes from here: its log may say more"
            }
            _ => {
                "is it running, and is that its address? Pyroscope listens on port 4040 unless told otherwise"
            }
        });
        Failure::new(format!("cannot send the profile to {}: {error}", self.server.name))
            .advise(advice)
            .exit_code(FAILED)
    }

    fn understand(&self, response: &Response<Body>, text: &str) -> Result<()> {
        let status = response.status();
        let first_line: String =
            text.trim().lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
        let said =
            if first_line.is_empty() { String::new() } else { format!(": {}", beginning(&first_line)) };
        let is_page = response.headers().get(header::CONTENT_TYPE).is_some_and(|value| {
            value.to_str().is_ok_and(|text| text.trim_start().to_ascii_lowercase().starts_with("text/html"))
        });
        let place = "give the address that is before /ingest, without a page of a user interface";
        let (what, advice) = match status.as_u16() {
            200..=299 if is_page => ("does not answer as Pyroscope does", place),
            200..=299 => return Ok(()),
            300..=399 => ("does not take the profile", ELSEWHERE),
            401 | 403 => ("refused our credentials", HOW_TO_BE_LET_IN),
            404 | 405 => ("does not take profiles there", place),
            413 => ("refuses the profile", "a larger --mean-bytes, or a shorter --for, makes it smaller"),
            429 => ("refuses the profile", "it has had enough for now: send less often"),
            _ => ("refuses the profile", "its log may say more"),
        };
        Err(Failure::new(format!("{} {what}: {status}{said}", self.server.name))
            .advise(advice)
            .exit_code(FAILED))
    }
}

impl PushName {
    /// With one more label, unless there is one of that name.
    fn with_label(mut self, name: &str, value: &str) -> PushName {
        if !self.labels.iter().any(|(known, _)| known == name) {
            self.labels.push((name.into(), value.into()));
        }
        self
    }

    /// As Pyroscope reads it.
    fn text(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{}{{{}}}", self.name, labels.join(","))
    }
}

/// Letters that Pyroscope takes in a name; those of labels are fewer.
fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_.-/".contains(letter)
}

/// NAME or NAME{LABEL=VALUE,...}.
fn push_name(text: &str) -> std::result::Result<PushName, String> {
    let (name, rest) = text.split_once('{').unwrap_or((text, "}"));
    let inner = rest.strip_suffix('}').filter(|inner| !inner.contains(['{', '}']));
    let inner = inner.ok_or("labels are written as shop{env=production,region=eu}")?;
    if name.is_empty() || !name.chars().all(is_of_name) {
        return Err("a name has letters, digits, and _ . - / alone".into());
    }
    let mut labels: Vec<(String, String)> = Vec::new();
    for label in inner.split(',').map(str::trim).filter(|label| !label.is_empty()) {
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        let (key, value) = (key.trim(), value.trim().trim_matches('"'));
        let is_good = key.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            && key.starts_with(|letter: char| !letter.is_ascii_digit());
        if !is_good || key.starts_with("__") {
            return Err(format!("{key:?} is not the name of a label: letters, digits and _"));
        }
        if value.is_empty() {
            return Err(format!("the label {key} has no value: write {key}=VALUE"));
        }
        if labels.iter().any(|(known, _)| known == key) {
            return Err(format!("the label {key} is there twice"));
        }
        labels.push((key.into(), value.into()));
    }
    Ok(PushName { name: name.into(), labels })
}

/// That of the program: the name that was asked for, or the first word of its command line.
fn default_name(arguments: &ProfileArguments, command: &str) -> PushName {
    let asked = arguments.process.as_deref().filter(|process| process.parse::<u32>().is_err());
    let program = arguments.program.first().map(|program| program.to_string_lossy());
    let word = asked.or(program.as_deref()).or(command.split_whitespace().next()).unwrap_or_default();
    let file = word.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name: String = file.chars().map(|letter| if is_of_name(letter) { letter } else { '_' }).collect();
    let name = name.trim_matches('_');
    PushName { name: if name.is_empty() { "unnamed" } else { name }.into(), labels: Vec::new() }
}

fn gzipped(data: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data).and_then(|()| encoder.finish()).cannot(|| "compress the profile".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels() {
        let text = |name: &str| push_name(name).map(|name| name.with_label("view", "live").text());
        assert_eq!(text("shop"), Ok("shop{view=live}".into()));
        assert_eq!(text("shop/web-1.0{}"), Ok("shop/web-1.0{view=live}".into()));
        let labelled = "shop{env=production, region=\"eu\"}";
        assert_eq!(text(labelled), Ok("shop{env=production,region=eu,view=live}".into()));
        assert_eq!(text("shop{view=mine}"), Ok("shop{view=mine}".into()));
        for bad in ["", "{a=b}", "my shop", "shop{", "shop{a=b", "shop{a=b}c", "shop}", "shop{a}", "shop{a=}"]
        {
            assert!(text(bad).is_err(), "{bad}");
        }
        for bad in ["shop{1a=b}", "shop{__name__=b}", "shop{a=b,a=c}", "shop{=b}", "shop{a=b{}}"] {
            assert!(text(bad).is_err(), "{bad}");
        }
    }
}
