//! Answers http requests for metrics. One at a time: a reading takes milliseconds, and its text is kept for a while.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tiny_http::{Header, Method, Request, Response, Server};

use crate::base::failure::{Failure, Result};
use crate::commands::exporter::Exporter;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PAGE: &str = "<!doctype html><title>snug exporter</title><h1>snug exporter</h1><p><a href=\"/metrics\">metrics</a></p>\n";

/// Listens until the process is ended.
pub(super) fn serve(listen: SocketAddr, keep_for: Duration, exporter: &mut Exporter) -> Result<()> {
    let server = Server::http(listen).map_err(|error| {
        Failure::new(format!("cannot listen on {listen}: {error}")).advise("choose another with --listen")
    })?;
    // The first reading looks into every process; who scrapes waits for ten seconds.
    let mut kept = exporter.text().ok().map(|text| (Instant::now(), text));
    anstream::eprintln!("snug: metrics at http://{}/metrics", server.server_addr());
    loop {
        let request = match server.recv() {
            Ok(request) => request,
            Err(error) => return Err(Failure::new(format!("cannot keep listening on {listen}: {error}"))),
        };
        let path = request.url().split('?').next().unwrap_or_default().to_string();
        match (request.method(), path.as_str()) {
            (Method::Get | Method::Head, "/metrics") => {
                let fresh = kept.as_ref().is_some_and(|(read_at, _)| read_at.elapsed() < keep_for);
                if !fresh {
                    kept = match exporter.text() {
                        Ok(text) => Some((Instant::now(), text)),
                        Err(failure) => {
                            anstream::eprintln!("snug: {failure}");
                            None
                        }
                    };
                }
                match &kept {
                    Some((_, text)) => answer(request, 200, TEXT, text),
                    None => answer(request, 500, TEXT, "the metrics could not be written\n"),
                }
            }
            (Method::Get | Method::Head, "/") => answer(request, 200, "text/html; charset=utf-8", PAGE),
            (Method::Get | Method::Head, _) => {
                answer(request, 404, TEXT, "not found; metrics are at /metrics\n");
            }
            _ => answer(request, 405, TEXT, "only GET\n"),
        }
    }
}

/// A requester that has gone is not our trouble.
fn answer(request: Request, status: u16, content_type: &str, text: &str) {
    let header = Header::from_bytes("Content-Type", content_type).expect("it is ASCII");
    let _ = request.respond(Response::from_string(text).with_status_code(status).with_header(header));
}
