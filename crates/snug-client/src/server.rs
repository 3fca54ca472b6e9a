//! The server of Prometheus: its address, whose certificates are believed, and what lets us in.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{Engine, BASE64_STANDARD};
use clap::Args;
use rustls::InvalidMessage;
use ureq::http::{header, HeaderValue, Uri};
use ureq::tls::{parse_pem, Certificate, PemItem, RootCerts, TlsConfig};
use ureq::typestate::WithBody;
use ureq::{Agent, RequestBuilder};

use snug_base::failure::{Context, Failure, Result, USAGE};
use snug_base::time::time;

/// So much of an answer that is not the one expected is shown.
const SHOWN_LETTERS: usize = 200;

/// The variable with a bearer token, for where there is neither file.
const TOKEN_VARIABLE: &str = "SNUG_PROMETHEUS_TOKEN";

/// What to do where a server lets nobody in.
pub const HOW_TO_BE_LET_IN: &str =
    "give a token by --bearer-token-file, or name and password by --basic-auth-file";
/// What to do where a server sends elsewhere.
pub const ELSEWHERE: &str =
    "it sends elsewhere, perhaps to a login page: give the address behind that, or a token";

/// A server, and how it lets us in.
pub struct Server {
    agent: Agent,
    /// The URL in front of what is asked for.
    base: String,
    /// For messages: without a password.
    pub name: String,
    authorization: Option<HeaderValue>,
}

/// Which server to ask, and how it lets us in.
#[derive(Debug, Args)]
pub struct PrometheusArguments {
    /// The URL of Prometheus: http://HOST:PORT or https://HOST, with the path in front of /api/v1 if there is one
    #[arg(long, value_name = "URL")]
    pub prometheus: String,
    /// A file with a bearer token
    #[arg(long, value_name = "FILE", conflicts_with = "basic_auth_file")]
    pub bearer_token_file: Option<PathBuf>,
    /// A file with NAME:PASSWORD
    #[arg(long, value_name = "FILE")]
    pub basic_auth_file: Option<PathBuf>,
    /// A PEM file with the authorities to trust for https [default: the public ones, built in]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// How long Prometheus may take to answer
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = time)]
    pub timeout: Duration,
}

impl Server {
    /// That of the command line; nothing is asked yet. Statuses are answers, and redirects are not followed.
    pub fn new(arguments: &PrometheusArguments) -> Result<Server> {
        let url = arguments.prometheus.trim_end_matches('/');
        let base = url.strip_suffix("/api/v1").unwrap_or(url).to_string();
        let usage = |what: String| Failure::usage(what, "write it as --prometheus http://prometheus:9090");
        let uri = base.parse::<Uri>().map_err(|error| usage(format!("{url:?} is no URL: {error}")))?;
        let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme));
        let Some(scheme) = scheme else { return Err(usage(format!("{url:?} is no URL of a server"))) };
        if uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
            return Err(usage(format!("{url:?} is no URL of a server")));
        }
        let name = base.split_once('@').map_or(base.clone(), |(_, server)| format!("{scheme}://{server}"));
        if arguments.ca_file.is_some() && scheme == "http" {
            return Err(Failure::usage("--ca-file is for https", "write the URL as https://HOST:PORT"));
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(arguments.timeout))
            .tls_config(tls(arguments.ca_file.as_deref())?)
            .max_redirects(0)
            .max_redirects_will_error(false);
        let agent = config.user_agent("snug").build().new_agent();
        Ok(Server { agent, name, authorization: arguments.authorization()?, base })
    }

    /// A request to send something to a path below the server's URL.
    pub fn post(&self, path: &str) -> RequestBuilder<WithBody> {
        let request = self.agent.post(format!("{}{path}", self.base));
        match &self.authorization {
            Some(value) => request.header(header::AUTHORIZATION, value),
            None => request,
        }
    }
}

impl PrometheusArguments {
    /// What goes into the header Authorization, if anything.
    fn authorization(&self) -> Result<Option<HeaderValue>> {
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path)
                .cannot(|| format!("read {}", path.display()))
                .map_err(invalid)?;
            match text.trim() {
                "" => Err(Failure::usage(format!("{} is empty", path.display()), "it holds what lets us in")),
                text => Ok(text.to_string()),
            }
        };
        let bearer = |token: String| format!("Bearer {token}");
        let text = match (&self.bearer_token_file, &self.basic_auth_file) {
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
            let place = self.bearer_token_file.as_ref().or(self.basic_auth_file.as_ref());
            let place = place.map_or_else(|| TOKEN_VARIABLE.to_string(), |path| path.display().to_string());
            Failure::usage(
                format!("{place} has a character that is not allowed in an HTTP header"),
                "is it the right one? a line break within it is such a character",
            )
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// What to do about an error of TLS; None: it is another.
pub fn tls_advice(error: &ureq::Error) -> Option<&'static str> {
    let of_tls = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref()),
        _ => None,
    };
    match of_tls? {
        rustls::Error::InvalidCertificate(_) => {
            Some("if its certificate is of an authority of your own, give that by --ca-file")
        }
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            Some("it may speak http alone: write http:// in place of https://")
        }
        _ => None,
    }
}

/// The beginning of an answer, to be shown.
pub fn beginning(text: &str) -> String {
    text.trim().chars().take(SHOWN_LETTERS).collect()
}

/// A file that an option names can't be read.
fn invalid(failure: Failure) -> Failure {
    failure.exit_code(USAGE)
}

/// Whose certificates are believed.
fn tls(ca_file: Option<&Path>) -> Result<TlsConfig> {
    let Some(path) = ca_file else { return Ok(TlsConfig::default()) };
    let text = std::fs::read(path).cannot(|| format!("read {}", path.display())).map_err(invalid)?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(Failure::usage(
            format!("{} holds no certificate", path.display()),
            "it is a file that begins with -----BEGIN CERTIFICATE-----",
        ));
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::Specific(Arc::new(certificates))).build())
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn errors_of_tls_have_advice() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let _ = client.read(&mut [0; 1000]);
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        });
        let arguments = PrometheusArguments {
            prometheus: url,
            timeout: Duration::from_secs(60),
            ca_file: None,
            bearer_token_file: None,
            basic_auth_file: None,
        };
        let error = Server::new(&arguments).unwrap().post("/").send("").unwrap_err();
        server.join().unwrap();
        assert!(tls_advice(&error).is_some_and(|advice| advice.contains("http alone")), "{error}");
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let error = ureq::Error::Io(io::Error::new(io::ErrorKind::InvalidData, unknown));
        assert!(tls_advice(&error).is_some_and(|advice| advice.contains("--ca-file")));
        assert!(tls_advice(&ureq::Error::HostNotFound).is_none());
    }
}
