//! `snug fleet`: from Prometheus' data, what memory containers need under snug, and what that frees.

pub mod arguments;
mod queries;

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::command_fleet::arguments::FleetArguments;
use crate::fleet::{self, FleetSizes};
use crate::{fleet_text, resize_text};
use snug_base::failure::{Context, Failure, Result, UNKNOWN};
use snug_base::{json, progress, terminal};
use snug_client::prometheus::{inner, range, utc, Prometheus};

/// What JSON has.
#[derive(Serialize)]
struct FleetReport<'a> {
    prometheus: &'a str,
    selector: &'a str,
    canary: &'a str,
    /// UTC, as 2026-11-21T02:03:04Z.
    from: String,
    to: String,
    step_s: u64,
    confidence: f64,
    limit_share: f64,
    request_share: f64,
    #[serde(flatten)]
    sizes: &'a FleetSizes,
}

/// Runs the command.
pub fn run(arguments: &FleetArguments) -> Result<()> {
    if inner(&arguments.pods.canary).is_empty() {
        return Err(Failure::usage("--canary is empty", "write it as --canary 'pod=~\".*-canary-.*\"'"));
    }
    let server = Prometheus::new(&arguments.pods.server)?;
    let end = arguments.pods.end.unwrap_or_else(SystemTime::now);
    let end_s = end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let range = range(arguments.pods.window, arguments.pods.step, end_s);
    let asking = format!("asking {}", server.name());
    let found = progress::during(&asking, None, || queries::read(arguments, &server, range))?;
    let window_s = (range.to_s - range.from_s) as f64;
    let sizes = fleet::size(&found.pods, window_s, range.to_s as f64, range.step_s as f64, found.node_bytes);
    let mut stdout = anstream::stdout().lock();
    let written = if arguments.pods.json {
        let report = FleetReport {
            prometheus: server.name(),
            selector: &arguments.pods.selector,
            canary: &arguments.pods.canary,
            from: utc(range.from_s),
            to: utc(range.to_s),
            step_s: range.step_s,
            confidence: fleet::CONFIDENCE,
            limit_share: fleet::LIMIT_SHARE,
            request_share: fleet::REQUEST_SHARE,
            sizes: &sizes,
        };
        json::write(json::FLEET, &report, &mut stdout)
    } else if arguments.resize {
        resize_text::write(&sizes, &mut stdout)
    } else {
        fleet_text::write(&sizes, window_s, terminal::stdout_colours(), &mut stdout)
    };
    written.cannot(|| "write to stdout".into())?;
    match sizes.containers.iter().any(|row| row.under_snug.is_some()) {
        true => Ok(()),
        false => Err(Failure::already_told(UNKNOWN)),
    }
}
