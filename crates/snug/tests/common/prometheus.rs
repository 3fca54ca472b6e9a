//! A stand-in for Prometheus: answers range queries about two groups of pods, or with what is wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What the server does.
#[derive(Clone)]
pub(crate) enum Manner {
    /// Answers about pods: the canary's memory, as a ratio to the others'.
    Pods { canary: usize, baseline: usize, ratio: f64 },
    /// The same with values that are no numbers.
    OnlyNan,
    /// One reading of each pod.
    OneReading,
    /// Answers with this status and text.
    Says { status: u16, text: &'static str },
}

pub(crate) struct FakePrometheus {
    pub url: String,
    /// What was asked: header lines and decoded forms.
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl FakePrometheus {
    /// Serves until the test ends.
    pub(crate) fn start(manner: Manner) -> FakePrometheus {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (manner, log) = (manner.clone(), Arc::clone(&log));
                std::thread::spawn(move || stream.map(|stream| serve(stream, &manner, &log)));
            }
        });
        FakePrometheus { url, asked }
    }
}

fn serve(stream: TcpStream, manner: &Manner, log: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
            head += &line;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let form = decoded(&String::from_utf8(body).unwrap());
        log.lock().unwrap().push(format!("{head}{form}"));
        let (status, text) = match manner {
            Manner::Says { status, text } => (*status, text.to_string()),
            _ => (200, matrix(&form, manner)),
        };
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        reader.get_mut().write_all(answer.as_bytes())?;
    }
}

fn decoded(form: &str) -> String {
    let bytes = form.replace('+', " ").into_bytes();
    let (mut out, mut index) = (Vec::new(), 0);
    while index < bytes.len() {
        if bytes[index] == b'%' {
            let digits = std::str::from_utf8(&bytes[index + 1..index + 3]).unwrap();
            out.push(u8::from_str_radix(digits, 16).unwrap());
            index += 3;
        } else {
            out.push(bytes[index]);
            index += 1;
        }
    }
    String::from_utf8(out).unwrap()
}

fn number(form: &str, name: &str) -> u64 {
    let (_, rest) = form.split_once(&format!("{name}=")).unwrap();
    rest.split('&').next().unwrap().parse().unwrap()
}

/// Pods that keep their levels, within 2 %.
fn matrix(form: &str, manner: &Manner) -> String {
    let (canaries, others, ratio) = match manner {
        Manner::Pods { canary, baseline, ratio } => (*canary, *baseline, *ratio),
        _ => (5, 5, 1.0),
    };
    // Without the canary's matchers all pods are asked for, with those of a group called none, nothing.
    let names: Vec<String> = (0..canaries).map(|pod| format!("web-canary-{pod}")).collect();
    let rest = (0..others).map(|pod| format!("web-{pod}"));
    let names: Vec<String> = match () {
        () if form.contains("none") => Vec::new(),
        () if form.contains("web-canary") => names,
        () => names.into_iter().chain(rest).collect(),
    };
    let (start, end, step) = (number(form, "start"), number(form, "end"), number(form, "step"));
    let series = names.iter().enumerate().map(|(number, name)| {
        let value = |time: u64| -> f64 {
            let noise = 1.0 + 0.004 * ((number as u64 * 7 + time / step * 3) % 5) as f64;
            match () {
                () if form.contains("limit") => 1e9,
                () if form.contains("memory") => {
                    4e8 * noise * if name.contains("canary") { ratio } else { 1.0 }
                }
                () if form.contains("cpu") => 0.2 * noise,
                () if form.contains("start_time") => 1000.0,
                () if form.contains("histogram_quantile") => 0.120 * noise,
                () => 0.0,
            }
        };
        let point = |time: u64| match manner {
            Manner::OnlyNan => format!("[{time},\"NaN\"]"),
            _ => format!("[{time},\"{}\"]", value(time)),
        };
        let points: Vec<String> = match manner {
            Manner::OneReading => vec![point(end)],
            _ => (start..=end).step_by(step as usize).map(point).collect(),
        };
        format!(
            "{{\"metric\":{{\"namespace\":\"shop\",\"pod\":\"{name}\",\"container\":\"web\"}},\"values\":[{}]}}",
            points.join(",")
        )
    });
    let series = series.collect::<Vec<_>>().join(",");
    format!("{{\"status\":\"success\",\"data\":{{\"resultType\":\"matrix\",\"result\":[{series}]}}}}")
}
