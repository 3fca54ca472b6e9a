//! Finding out whether a server is ready, from a thread of its own: an answer may take long, and measuring goes on.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::http;
use crate::serving::Ready;
use snug_base::failure::{Context, Result};

/// Time between two attempts.
const EVERY: Duration = Duration::from_millis(20);
/// An attempt that takes longer is given up; a first answer may well take seconds.
const CONNECTING_MAX: Duration = Duration::from_millis(500);
const ANSWERING_MAX: Duration = Duration::from_secs(10);
/// So much of what a program writes is looked at together.
const PIECE_BYTES: u64 = 1 << 20;

/// Attempts that go on until the server is ready, or this is dropped.
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Probe {
    /// `logs` are the files into which the program writes.
    pub fn start(ready: &Ready, logs: Vec<PathBuf>) -> Result<Probe> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, ready) = (Arc::clone(&stop), ready.clone());
        let work = move || {
            let mut readers: Vec<LineReader> = logs.iter().map(|log| LineReader::new(log)).collect();
            while !stopped.load(Ordering::Relaxed) && !is_ready(&ready, &mut readers) {
                std::thread::sleep(EVERY);
            }
        };
        let thread = std::thread::Builder::new().spawn(work).cannot(|| "start a thread".into())?;
        Ok(Probe { stop, thread })
    }

    pub fn is_ready(&self) -> bool {
        self.thread.is_finished()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The first of these addresses that somebody serves.
pub fn served(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let connects = |address: &&SocketAddr| TcpStream::connect_timeout(address, CONNECTING_MAX).is_ok();
    addresses.iter().find(connects).copied()
}

fn is_ready(ready: &Ready, readers: &mut [LineReader]) -> bool {
    match ready {
        Ready::Port { addresses, .. } => served(addresses).is_some(),
        Ready::Line(text) => readers.iter_mut().any(|reader| reader.sees(text)),
        Ready::Url { url, .. } => {
            http::agent(ANSWERING_MAX).get(url).call().is_ok_and(|answer| answer.status().as_u16() < 500)
        }
    }
}

/// Reads what is added to a file.
struct LineReader {
    path: PathBuf,
    offset: u64,
    /// The end of what was read: the text may have begun there.
    rest: Vec<u8>,
}

impl LineReader {
    fn new(path: &Path) -> LineReader {
        LineReader { path: path.to_path_buf(), offset: 0, rest: Vec::new() }
    }

    /// Whether the text is in what was added; an incomplete line counts.
    fn sees(&mut self, text: &str) -> bool {
        let Ok(mut file) = File::open(&self.path) else { return false };
        if file.seek(SeekFrom::Start(self.offset)).is_err() {
            return false;
        }
        while let Ok(length @ 1..) = file.by_ref().take(PIECE_BYTES).read_to_end(&mut self.rest) {
            self.offset += length as u64;
            if self.rest.windows(text.len()).any(|window| window == text.as_bytes()) {
                return true;
            }
            self.rest.drain(..self.rest.len().saturating_sub(text.len() - 1));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn lines_are_found_though_they_come_in_pieces() {
        let path = std::env::temp_dir().join(format!("snug-probe-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let mut reader = LineReader::new(&path);
        file.write_all(b"booting\nListen").unwrap();
        assert!(!reader.sees("Listening on"));
        file.write_all(b"ing on 3000").unwrap();
        assert!(reader.sees("Listening on"));
        assert!(!reader.sees("booting"), "it is read once");
        std::fs::remove_file(&path).unwrap();
        assert!(!LineReader::new(&path).sees("x"));
    }

    #[test]
    fn of_what_has_no_lines_little_is_kept() {
        let path = std::env::temp_dir().join(format!("snug-probe-long-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let mut reader = LineReader::new(&path);
        file.write_all(&vec![b'x'; 5 << 20]).unwrap();
        assert!(!reader.sees("Listening on"));
        assert!(reader.rest.len() < 100, "{} bytes", reader.rest.len());
        file.write_all(b"Listening on 3000").unwrap();
        assert!(reader.sees("Listening on"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn ports_and_their_owners() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(served(&["127.0.0.1:1".parse().unwrap(), address]), Some(address));
        let ready = Ready::Port { shown: "x".into(), addresses: vec![address] };
        assert!(is_ready(&ready, &mut []));
        drop(listener);
        assert!(!is_ready(&ready, &mut []));
    }
}
