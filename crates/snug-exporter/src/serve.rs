//! Answers http requests for metrics. One at a time: a reading takes milliseconds, and its text is kept for a while.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::StatusCode;

use crate::connections::{self, HttpAnswer};
use crate::Exporter;
use snug_base::failure::{Failure, Result};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PAGE: &str = "<!doctype html><title>snug exporter</title><h1>snug exporter</h1><p><a href=\"/metrics\">metrics</a></p>\n";
/// A request takes no longer to come, nor its answer to be read.
const LIMIT: Duration = Duration::from_secs(30);

/// Listens until the process is ended.
pub(crate) fn serve(listen: SocketAddr, keep_for: Duration, exporter: &mut Exporter) -> Result<()> {
    let failed = |error: io::Error| {
        Failure::new(format!("cannot listen on {listen}: {error}")).advise("choose another with --listen")
    };
    let listener = TcpListener::bind(listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    // The first reading looks into every process; who scrapes waits for ten seconds.
    let mut kept: Option<(Instant, Rc<str>)> = exporter.text().ok().map(|text| (Instant::now(), text.into()));
    anstream::eprintln!("snug: metrics at http://{address}/metrics");
    let mut respond = |method: &str, target: &str| {
        let path = target.split('?').next().unwrap_or_default();
        match (method, path) {
            ("GET" | "HEAD", "/metrics") => {
                let fresh = kept.as_ref().is_some_and(|(read_at, _)| read_at.elapsed() < keep_for);
                if !fresh {
                    kept = match exporter.text() {
                        Ok(text) => Some((Instant::now(), text.into())),
                        Err(failure) => {
                            anstream::eprintln!("snug: {failure}");
                            None
                        }
                    };
                }
                match &kept {
                    Some((_, text)) => answer(StatusCode::OK, TEXT, text.clone()),
                    None => {
                        answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the metrics could not be written\n")
                    }
                }
            }
            ("GET" | "HEAD", "/") => answer(StatusCode::OK, "text/html; charset=utf-8", PAGE),
            ("GET" | "HEAD", _) => {
                answer(StatusCode::NOT_FOUND, TEXT, "not found; metrics are at /metrics\n")
            }
            _ => answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n"),
        }
    };
    connections::serve(&listener, LIMIT, &mut respond).map_err(failed)
}

fn answer(status: StatusCode, content_type: &'static str, text: impl Into<Rc<str>>) -> HttpAnswer {
    HttpAnswer { status, content_type, text: text.into() }
}
