//! The target of the built-in load, from the command line. Nothing here sends any.

use std::net::{SocketAddr, ToSocketAddrs};

use clap::Args;
use ureq::http::{HeaderName, HeaderValue, Uri};

use snug_base::failure::{Failure, Result};

/// What the requests of the built-in load are like. Who takes these options has a group `serving` of those that say
/// where the server is.
#[derive(Debug, Args)]
pub struct RequestArguments {
    /// Built-in load: requests at a time
    #[arg(long, value_name = "N", default_value_t = 8, requires = "serving", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub concurrency: u32,
    /// Built-in load: a path to request; if repeated, the paths are requested in turn [default: that of --url, or /]
    #[arg(long, value_name = "PATH", requires = "serving")]
    pub path: Vec<String>,
    /// Built-in load: a header to send with every request, as 'Name: value'
    #[arg(long, value_name = "HEADER", requires = "serving")]
    pub header: Vec<String>,
    /// Built-in load: statuses of 400 and above that don't count as failures, separated by commas
    #[arg(long, value_name = "CODES", requires = "serving", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(400..600))]
    pub allow_status: Vec<u16>,
}

/// Where requests go, what they are like, and what counts as a good answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Scheme and authority, such as `http://localhost:3000`.
    pub base: String,
    /// Requested in turn.
    pub paths: Vec<String>,
    pub concurrency: u32,
    pub headers: Vec<(String, String)>,
    /// Statuses of 400 and above that are no failure.
    pub allowed: Vec<u16>,
}

impl Target {
    /// The server of a URL. Unless paths are asked for, the URL's own is requested.
    pub fn at(url: &str, arguments: &RequestArguments) -> Result<Target> {
        let uri = parse_url(url)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Target::new(base(&uri), path, arguments)
    }

    /// The server at this scheme and authority. Unless paths are asked for, this one is requested.
    pub fn new(base: String, path: &str, arguments: &RequestArguments) -> Result<Target> {
        let paths = match arguments.path.is_empty() {
            true => vec![path.to_string()],
            false => arguments.path.clone(),
        };
        for path in &paths {
            if !path.starts_with('/') || format!("{base}{path}").parse::<Uri>().is_err() {
                return Err(Failure::usage(
                    format!("--path {path:?} is no path"),
                    "it starts with / and has no spaces: --path '/a?b=c'",
                ));
            }
        }
        Ok(Target {
            base,
            paths,
            concurrency: arguments.concurrency,
            headers: arguments.header.iter().map(|header| parse_header(header)).collect::<Result<_>>()?,
            allowed: arguments.allow_status.clone(),
        })
    }

    /// The base without a user and password, for reports.
    pub fn server(&self) -> String {
        match self.base.rsplit_once('@') {
            Some((_, server)) => format!("http://{server}"),
            None => self.base.clone(),
        }
    }
}

/// Scheme and authority of a URL.
pub fn base(uri: &Uri) -> String {
    format!("http://{}", uri.authority().map_or("", |authority| authority.as_str()))
}

/// Where the server of a URL listens.
pub fn addresses(url: &str) -> Result<Vec<SocketAddr>> {
    let uri = parse_url(url)?;
    resolve(uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(80))
}

/// The addresses of a host, with this port.
pub fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match (host, port).to_socket_addrs().map(Iterator::collect::<Vec<_>>) {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Ok(_) => Err(Failure::usage(
            format!("{host} has no address"),
            "give an address as a number, such as 127.0.0.1",
        )),
        Err(error) => Err(Failure::usage(
            format!("cannot find {host}: {error}"),
            "give an address as a number, such as 127.0.0.1",
        )),
    }
}

/// Reads a URL of a server that requests can be sent to.
pub fn parse_url(text: &str) -> Result<Uri> {
    let uri: Uri = text.parse().map_err(|error| {
        Failure::usage(format!("{text:?} is not a URL: {error}"), "for example http://localhost:3000/")
    })?;
    match uri.scheme_str() {
        Some("http") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        Some("https") => Err(Failure::usage(
            format!("{text}: built-in requests do not speak TLS"),
            "let the server speak plain HTTP for this, or make the load with --load COMMAND (and --ready PORT, where \
             there is --ready)",
        )),
        _ => Err(Failure::usage(format!("{text:?} is not a URL of a server"), "for example \
            http://localhost:3000/")),
    }
}

/// Reads `Name: value`.
fn parse_header(text: &str) -> Result<(String, String)> {
    let pair = text.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
    let valid = pair
        .filter(|(name, value)| name.parse::<HeaderName>().is_ok() && value.parse::<HeaderValue>().is_ok());
    let (name, value) = valid.ok_or_else(|| {
        Failure::usage(format!("--header {text:?} is not a header"), "write it as 'Name: value'")
    })?;
    Ok((name.to_string(), value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(paths: &[&str], headers: &[&str]) -> RequestArguments {
        let owned = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
        RequestArguments {
            concurrency: 3,
            path: owned(paths),
            header: owned(headers),
            allow_status: vec![404],
        }
    }

    #[test]
    fn an_url_names_the_server_and_a_path() {
        let target = Target::at("http://127.0.0.1:9292/shop?a=b", &arguments(&[], &["X-Who:  me"])).unwrap();
        assert_eq!((target.base.as_str(), target.concurrency), ("http://127.0.0.1:9292", 3));
        assert_eq!(target.paths, ["/shop?a=b"]);
        assert_eq!(target.headers, [("X-Who".to_string(), "me".to_string())]);
        assert_eq!(target.allowed, [404]);
        assert_eq!(target.server(), target.base);
        let secret = Target::at("http://me:secret@127.0.0.1:9292/", &arguments(&[], &[])).unwrap();
        assert_eq!(secret.server(), target.base, "passwords are not told");
        assert_eq!(Target::at("http://127.0.0.1", &arguments(&[], &[])).unwrap().paths, ["/"]);
        let several = Target::at("http://127.0.0.1/up", &arguments(&["/a", "/b"], &[])).unwrap();
        assert_eq!(several.paths, ["/a", "/b"]);
        assert_eq!(addresses("http://127.0.0.1/up").unwrap(), ["127.0.0.1:80".parse().unwrap()]);
    }

    #[test]
    fn mistakes_say_what_to_write() {
        let advice = |url: &str, paths: &[&str], headers: &[&str]| {
            Target::at(url, &arguments(paths, headers)).unwrap_err().advice.unwrap()
        };
        assert!(advice("localhost:3000", &[], &[]).contains("http://localhost:3000/"));
        assert!(advice("https://localhost/", &[], &[]).contains("--load COMMAND"));
        assert!(advice("http://localhost/", &["shop"], &[]).contains("starts with /"));
        assert!(advice("http://localhost/", &[], &["nonsense"]).contains("Name: value"));
        assert!(addresses("http://no-such-host.invalid/").unwrap_err().message.contains("cannot find"));
    }
}
