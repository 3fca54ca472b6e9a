//! The connections of the exporter: HTTP/1.1, one request each, in one thread that waits for none of them. Peers may be
//! many, silent, slow or gone: they hold few descriptors, and those for a while only.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;
use httparse::Status;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

/// Connections at a time. When full, the oldest is closed; a well-behaved client is long done.
const MOST: usize = 32;
/// A request's head, its first line and headers, is refused that has not ended after so many bytes.
const HEAD_MAX_BYTES: usize = 8192;
const HEADERS_MAX: usize = 64;
/// Before the next try where no connection can be accepted.
const REST: Duration = Duration::from_millis(100);

/// What is answered to a request.
pub(crate) struct HttpAnswer {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub text: Rc<str>,
}

struct Connection {
    stream: TcpStream,
    /// When it is closed, wherever it is.
    until: Instant,
    state: ConnectionState,
}

enum ConnectionState {
    /// So much of the request has come.
    Asking(Vec<u8>),
    /// So many bytes of the answer, a head and a text, are written.
    Answering { head: Vec<u8>, text: Rc<str>, written: usize },
    /// All is written. To close it before the peer has would take the answer from who still sends.
    Ending,
}

/// Answers requests forever; fails only where it can't begin.
///
/// `limit` is how long a request may take to come, and again how long the peer may take to read its answer. `answer` is
/// asked, by method and target, for what to say; of a HEAD request the text is left out.
pub(crate) fn serve(
    listener: &TcpListener,
    limit: Duration,
    answer: &mut dyn FnMut(&str, &str) -> HttpAnswer,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        let ready = wait(listener, &connections);
        let mut is_ready = ready.iter();
        connections.retain_mut(|connection| {
            let goes_on = is_ready.next() != Some(&true) || connection.go_on(limit, answer);
            goes_on && Instant::now() < connection.until
        });
        // One at a time: what it asks is looked at before others can take its place.
        match listener.accept().and_then(|(stream, _)| Connection::new(stream, limit)) {
            Ok(connection) => {
                if connections.len() == MOST {
                    connections.remove(0);
                }
                connections.push(connection);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Mostly there is no descriptor left.
            Err(_) => {
                if !connections.is_empty() {
                    connections.remove(0);
                }
                std::thread::sleep(REST);
            }
        }
    }
}

/// Waits until the listener or a connection is ready, or a connection's time is over. Tells which connections are ready.
fn wait(listener: &TcpListener, connections: &[Connection]) -> Vec<bool> {
    let mut descriptors = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    descriptors.extend(connections.iter().map(|connection| {
        let is_answering = matches!(connection.state, ConnectionState::Answering { .. });
        let event = if is_answering { PollFlags::POLLOUT } else { PollFlags::POLLIN };
        PollFd::new(connection.stream.as_fd(), event)
    }));
    let timeout = connections.iter().map(|connection| connection.until).min().map(|until| {
        // Rounded up: poll counts in milliseconds, and waking too early would spin.
        until.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000)
    });
    let timeout =
        timeout.map_or(PollTimeout::NONE, |ms| PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX));
    // A failure is an early return, with nothing ready.
    let _ = poll(&mut descriptors, timeout);
    descriptors[1..].iter().map(|descriptor| descriptor.any() != Some(false)).collect()
}

impl Connection {
    fn new(stream: TcpStream, limit: Duration) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        let state = ConnectionState::Asking(Vec::new());
        Ok(Connection { stream, until: Instant::now() + limit, state })
    }

    /// Reads or writes what is possible now. False: it is over.
    fn go_on(&mut self, limit: Duration, answer: &mut dyn FnMut(&str, &str) -> HttpAnswer) -> bool {
        self.step(limit, answer)
            .unwrap_or_else(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
    }

    fn step(
        &mut self,
        limit: Duration,
        answer: &mut dyn FnMut(&str, &str) -> HttpAnswer,
    ) -> io::Result<bool> {
        let mut buffer = [0; HEAD_MAX_BYTES];
        match &mut self.state {
            ConnectionState::Asking(request) => {
                let count = self.stream.read(&mut buffer)?;
                request.extend_from_slice(&buffer[..count]);
                if let Some((head, text)) = respond(request, answer) {
                    self.state = ConnectionState::Answering { head, text, written: 0 };
                    self.until = Instant::now() + limit;
                }
                Ok(count > 0)
            }
            ConnectionState::Answering { head, text, written } => {
                let rest = match written.checked_sub(head.len()) {
                    None => &head[*written..],
                    Some(written) => &text.as_bytes()[written..],
                };
                *written += self.stream.write(rest)?;
                if *written == head.len() + text.len() {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.state = ConnectionState::Ending;
                }
                Ok(true)
            }
            ConnectionState::Ending => Ok(self.stream.read(&mut buffer)? > 0),
        }
    }
}

/// Head and text of the answer; None while the request is not whole.
fn respond(request: &[u8], answer: &mut dyn FnMut(&str, &str) -> HttpAnswer) -> Option<(Vec<u8>, Rc<str>)> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let result = parsed.parse(request);
    let method = parsed.method.unwrap_or_default();
    let HttpAnswer { status, content_type, text } = match result {
        Ok(Status::Complete(_)) => answer(method, parsed.path.unwrap_or_default()),
        Ok(Status::Partial) if request.len() < HEAD_MAX_BYTES => return None,
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            refusal(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
        }
        Err(httparse::Error::Version) => refusal(StatusCode::HTTP_VERSION_NOT_SUPPORTED),
        Err(_) => refusal(StatusCode::BAD_REQUEST),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nDate: {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        httpdate::fmt_http_date(SystemTime::now()),
        text.len()
    );
    Some((head.into_bytes(), if method == "HEAD" { "".into() } else { text }))
}

fn refusal(status: StatusCode) -> HttpAnswer {
    HttpAnswer { status, content_type: "text/plain; charset=utf-8", text: format!("{status}\n").into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    /// Longer than any test waits.
    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_secs(1);
    /// More than sockets take that nobody reads from.
    const MUCH_BYTES: usize = 64 << 20;

    /// Serves until the tests end: method and target of the request or, of `/much`, as many bytes.
    fn start(limit: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            serve(&listener, limit, &mut |method, target| HttpAnswer {
                status: StatusCode::OK,
                content_type: "text/plain",
                text: if target == "/much" { "x".repeat(MUCH_BYTES) } else { format!("{method} {target}") }
                    .into(),
            })
        });
        address
    }

    fn connect(address: SocketAddr, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// All that comes until the connection is closed.
    fn ask(address: SocketAddr, request: &str) -> String {
        let mut text = String::new();
        connect(address, request).read_to_string(&mut text).unwrap();
        text
    }

    /// Whether the peer has closed it: with or without a complaint about what was sent to it later.
    fn is_closed(mut stream: &TcpStream) -> bool {
        stream
            .read(&mut [0])
            .map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |count| count == 0)
    }

    #[test]
    fn requests_are_answered() {
        let address = start(LONG);
        let answer = ask(address, "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        let lines: Vec<&str> = head.lines().collect();
        assert_eq!((lines[0], text), ("HTTP/1.1 200 OK", "GET /a?b"));
        assert!(lines[1].starts_with("Date: ") && lines[1].ends_with(" GMT"), "{answer}");
        assert_eq!(lines[2..], ["Content-Type: text/plain", "Content-Length: 8", "Connection: close"]);
        let head_only = ask(address, "HEAD / HTTP/1.0\r\n\r\n");
        assert!(head_only.ends_with("Content-Length: 6\r\nConnection: close\r\n\r\n"), "{head_only}");
        assert!(ask(address, "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").ends_with("\r\n\r\nPOST /"));
    }

    #[test]
    fn a_request_may_come_in_pieces() {
        let mut stream = connect(start(LONG), "GE");
        for piece in ["T /a HT", "TP/1.1\r", "\nHost: x\r\n", "\r\n"] {
            std::thread::sleep(Duration::from_millis(20));
            stream.write_all(piece.as_bytes()).unwrap();
        }
        assert!(io::read_to_string(stream).unwrap().ends_with("\r\n\r\nGET /a"));
    }

    #[test]
    fn requests_that_are_none_are_refused() {
        let address = start(LONG);
        let status = |request: &str| ask(address, request).get(9..12).unwrap().to_string();
        assert_eq!(status("what?\r\n\r\n"), "400");
        assert_eq!(status("GET / HTTP/2.0\r\n\r\n"), "505");
        let header = "Name: value\r\n";
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{}\r\n", header.repeat(HEADERS_MAX))), "200");
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{}\r\n", header.repeat(HEADERS_MAX + 1))), "431");
        assert_eq!(status(&format!("GET /{}", "x".repeat(3 * HEAD_MAX_BYTES))), "431", "it never ends");
    }

    #[test]
    fn who_asks_nothing_makes_room() {
        let address = start(LONG);
        let idle: Vec<TcpStream> = (0..2 * MOST + 1).map(|_| connect(address, "")).collect();
        assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").ends_with("GET /"));
        let (closed, open) = idle.split_at(MOST + 2);
        assert!(closed.iter().all(is_closed));
        for stream in open {
            stream.set_nonblocking(true).unwrap();
            assert_eq!((&*stream).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn who_does_not_read_stops_nobody() {
        let address = start(LONG);
        let _unread = connect(address, "GET /much HTTP/1.1\r\n\r\n");
        assert!(ask(address, "GET /other HTTP/1.1\r\n\r\n").ends_with("GET /other"));
        let much = ask(address, "GET /much HTTP/1.1\r\n\r\n");
        assert_eq!(much.split_once("\r\n\r\n").unwrap().1.len(), MUCH_BYTES);
    }

    #[test]
    fn who_does_not_read_is_closed() {
        let unread = connect(start(SHORT), "GET /much HTTP/1.1\r\n\r\n");
        std::thread::sleep(3 * SHORT);
        let mut received = Vec::new();
        let _ = (&unread).read_to_end(&mut received);
        assert!((1..MUCH_BYTES).contains(&received.len()), "{}", received.len());
    }

    #[test]
    fn who_asks_slowly_is_closed() {
        let begin = Instant::now();
        let mut stream = connect(start(SHORT), "GET /");
        stream.set_read_timeout(Some(SHORT / 20)).unwrap();
        // Each byte comes in time, but not all of them.
        while !is_closed(&stream) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it still waits");
            let _ = stream.write_all(b"x");
        }
        assert!(begin.elapsed() >= SHORT);
    }

    #[test]
    fn fuzzed_requests() {
        snug_base::random::fuzz(&[b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"], |bytes| {
            respond(bytes, &mut |_, _| refusal(StatusCode::NOT_FOUND));
        });
    }
}
