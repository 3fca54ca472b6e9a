//! Runs the commands that README.md and the guide in docs show: each line `$ COMMAND` of a fenced block of ```console, and
//! the commands in README's table, in order, in one directory for each page. A small server and a script stand in for the reader's.
//!
//! What stands for the reader's own is replaced: PID 4711 by that of a process called puma, which runs under snug and
//! serves on port 3000; that port by a free one; its name by one that nobody else uses; user `deploy` by this one; the
//! library's place in /usr/local by that of the build; /volume by a folder.
//! Comparisons are shortened: one run, a second of idling, few requests, two allocators. Watches
//! take three seconds. Blocks marked `console skip`
//! need what a test machine lacks; what they may hold is listed below. The guide has no commands in other blocks.

mod common;

use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{shape, snug_library, Running, Scratch};

/// What a command of a skipped block must be about. Those for real servers are run by docs/tests, those that ask
/// Prometheus by deploy/monitoring/tests.
const SKIPPED: &[&str] = &[
    "docker",
    "podman",
    "skopeo",
    "kubectl",
    "helm",
    "--prometheus",
    "curl",
    "systemctl",
    "heroku",
    "sudo",
    "apt",
    "git clone",
    "make",
    "bin/rails",
    "bundle exec",
    "celery",
    "gunicorn",
    "sidekiq",
];
/// How long a command may take.
const AT_MOST: Duration = Duration::from_secs(120);
/// Commands that never end by themselves are stopped after this, if they have shown something.
const STAYS: Duration = Duration::from_secs(4);

/// Where the reader's library is.
const INSTALLED: &str = "/usr/local/lib/libsnug.so";

/// What the server is called here.
const PUMA: &str = "guide-puma";

/// A small real server: threads, memory that comes and goes, free blocks, and `/` as its only page.
const SERVER: &str = r#"#!/usr/bin/env ruby
require 'socket'
Process.setproctitle("guide-puma 6.4.2 (tcp://127.0.0.1:3000) [shop]") if $0.end_with?('puma')
# Half of them go, so that its pages hold free blocks however long it idles.
kept = Array.new(2_000) { 'x' * 1_000 }.each_slice(2).map(&:first)
GC.start
server = TCPServer.new('127.0.0.1', Integer(ENV.fetch('PORT', '3000')))
loop do
  Thread.new(server.accept) do |client|
    while (line = client.gets)
      nil while (header = client.gets) && header != "\r\n"
      kept << 'x' * rand(20_000)
      kept.shift if kept.size > 500
      body = "hello\n" * 200
      client.write "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}"
    end
  rescue SystemCallError, IOError
    nil
  ensure
    client.close
  end
end
"#;

/// A script that works for a moment and ends.
const SCRIPT: &str = "kept = Array.new(60_000) { |i| 'x' * (i % 700) }\nsleep 0.4\nputs kept.sum(&:size)\n";

/// A command of a page.
struct Shown {
    command: String,
    /// Lines that the page shows below it.
    output: Vec<String>,
    skipped: bool,
    page: String,
    line: usize,
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Commands of all blocks of a page, in order. A backslash at its end continues a line.
fn commands(page: &Path) -> Vec<Shown> {
    let text = std::fs::read_to_string(page).unwrap();
    let name = page.strip_prefix(project()).unwrap().display().to_string();
    let mut shown: Vec<Shown> = Vec::new();
    let mut block: Option<bool> = None;
    let mut continues = false;
    for (index, line) in text.lines().enumerate() {
        // README.md shows the tool's commands in a table.
        let in_table = line.strip_prefix("| ").filter(|_| name == "README.md");
        let cell = in_table.and_then(|row| row.strip_suffix("` |")?.rsplit_once(" | `"));
        if let Some((_, command)) = cell.filter(|(_, command)| command.starts_with("snug ")) {
            let command = command.to_string();
            let (output, page) = (Vec::new(), name.clone());
            shown.push(Shown { command, output, skipped: false, page, line: index + 1 });
        }
        let fence = line.trim_start().strip_prefix("```");
        match (fence, block) {
            (Some(info), None) => {
                let mut words = info.split_whitespace();
                if words.next() == Some("console") {
                    let word = words.next();
                    assert!(
                        matches!(word, None | Some("skip")),
                        "{name}:{}: unknown word {word:?}",
                        index + 1
                    );
                    block = Some(word.is_some());
                }
            }
            (Some(_), Some(_)) => block = None,
            (None, Some(skipped)) => {
                let command =
                    if continues { Some(line.trim()) } else { line.trim_start().strip_prefix("$ ") };
                let Some(command) = command else {
                    let last = shown.last_mut().expect("a block begins with a command");
                    last.output.push(line.into());
                    continue;
                };
                let part = command.strip_suffix('\\');
                let words = part.unwrap_or(command);
                match shown.last_mut().filter(|_| continues) {
                    Some(last) => last.command += words,
                    None => {
                        let (command, output, page) = (words.to_string(), Vec::new(), name.clone());
                        shown.push(Shown { command, output, skipped, page, line: index + 1 });
                    }
                }
                continues = part.is_some();
            }
            (None, None) => {}
        }
    }
    shown
}

/// The value of an option that is there replaced by another.
fn with_option(command: &str, option: &str, value: &str) -> String {
    let mut words: Vec<String> = command.split(' ').map(String::from).collect();
    if let Some(at) = words.iter().position(|word| word == option) {
        words[at + 1] = value.into();
    }
    words.join(" ")
}

/// A command as it is run here.
fn stand_in(command: &str, pid: u32, user: &str, port: u16, library: &str) -> String {
    let command =
        command.replace("4711", &pid.to_string()).replace("--user deploy", &format!("--user {user}"));
    let command = command.replace("3000", &port.to_string()).replace(INSTALLED, library);
    let command = command.replace("install /volume", "install volume");
    // Other servers of that name may run on this machine.
    let name = |word: &str| if word == "puma" { PUMA.to_string() } else { word.to_string() };
    let mut command = command.split(' ').map(name).collect::<Vec<_>>().join(" ");
    let is_comparison = command.starts_with("snug compare") || command.starts_with("snug advise");
    for (option, value) in [("--runs", "1"), ("--idle", "1s"), ("--requests", "60"), ("--warmup", "10")] {
        command = with_option(&command, option, value);
    }
    // As few as it allows; whether the goal is reached is another matter.
    command = command.replacen("--until 5%", "--until 5% --runs 6", 1);
    if command.starts_with("snug leak") {
        command = with_option(&command, "--for", "3s");
    }
    if is_comparison && !command.contains("--with") {
        let name = command.split(' ').nth(1).unwrap_or_default().to_string();
        let mut short = format!("snug {name} --with glibc,snug");
        if !command.contains("--runs") {
            short += " --runs 1";
        }
        if command.contains("--ready") && !command.contains("--idle") {
            short += " --idle 1s";
        }
        command = command.replacen(&format!("snug {name}"), &short, 1);
    }
    command
}

/// A directory like the reader's, and the environment of a shell there.
struct Place {
    scratch: Scratch,
    port: u16,
}

impl Place {
    fn new() -> Place {
        let place = Place { scratch: Scratch::new(), port: common::free_port() };
        for name in ["bin", "volume"] {
            std::fs::create_dir(place.scratch.path(name)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_snug"), place.scratch.path("bin/snug")).unwrap();
        for (name, text) in [("server", SERVER), ("bin/guide-puma", SERVER), ("script.rb", SCRIPT)] {
            std::fs::write(place.scratch.path(name), text).unwrap();
            std::fs::set_permissions(place.scratch.path(name), PermissionsExt::from_mode(0o755)).unwrap();
        }
        for name in ["deploy", "bench", "docs"] {
            if project().join(name).exists() {
                symlink(project().join(name), place.scratch.path(name)).unwrap();
            }
        }
        place
    }

    fn shell(&self, command: &str, library: &str) -> Command {
        let mut shell = Command::new("sh");
        let path = format!("{}:{}", self.scratch.text("bin"), std::env::var("PATH").unwrap());
        shell.args(["-c", command]).env("PATH", path).env("SNUG_LIBRARY", library).env("NO_COLOR", "1");
        shell.env_remove("LD_PRELOAD").env_remove("SNUG").current_dir(&self.scratch.0).process_group(0);
        shell.env("PORT", self.port.to_string()).env("XDG_STATE_HOME", &self.scratch.0).stdin(Stdio::null());
        shell
    }

    /// The reader's server, under snug.
    fn start_puma(&self, library: &str) -> Running {
        let puma = Running(self.shell("exec snug run -- guide-puma", library).spawn().unwrap());
        common::eventually("puma listens", || {
            let title = std::fs::read_to_string(format!("/proc/{}/cmdline", puma.0.id())).unwrap_or_default();
            title.starts_with("guide-puma 6")
                && std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
        puma
    }

    /// Runs a command as a reader would, and returns what it said. An error says how it went wrong.
    fn run(&self, command: &str, library: &str) -> Result<String, String> {
        let is_top = command.starts_with("snug top") && !command.contains("--once");
        let stays = is_top || command.starts_with("snug exporter");
        let in_terminal = format!("TERM=xterm script -qec '{command}' /dev/null");
        let mut shell = self.shell(if is_top { &in_terminal } else { command }, library);
        let output = self.scratch.path("output");
        let file = std::fs::File::create(&output).unwrap();
        let mut running = Running(shell.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap());
        let begin = Instant::now();
        let told = || std::fs::read_to_string(&output).unwrap_or_else(|error| error.to_string());
        loop {
            if let Some(status) = running.0.try_wait().unwrap() {
                return if status.success() { Ok(told()) } else { Err(format!("{status}\n{}", told())) };
            }
            match stays {
                // On a busy machine the first line may take its time.
                true if begin.elapsed() > STAYS && !told().trim().is_empty() => return Ok(told()),
                true if begin.elapsed() > AT_MOST => return Err(format!("it shows nothing in {AT_MOST:?}")),
                false if begin.elapsed() > AT_MOST => {
                    return Err(format!("not done in {AT_MOST:?}\n{}", told()))
                }
                _ => std::thread::sleep(Duration::from_millis(30)),
            }
        }
    }
}

/// The folders of docs with what users read.
const FOLDERS: [&str; 4] = ["tutorial", "how-to", "reference", "explanation"];

fn pages_of_the_guide() -> Vec<PathBuf> {
    let folders = FOLDERS.iter().map(|name| project().join("docs").join(name));
    let files =
        folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.sort();
    assert!(pages.len() > 20, "only {pages:?} were found");
    pages
}

/// What these say depends on whether the process sleeps just then: control.rs has both.
const SAY_EITHER: &[&str] = &["snug purge", "snug set"];

/// Whether what a page shows is said, in this order, with other numbers: "..." stands for lines that it leaves out.
fn compare(shown: &[String], said: &str) -> Result<(), String> {
    let shape = |text: &str| shape(text, &[]).trim().to_string();
    let lines: Vec<String> = said.lines().map(shape).collect();
    let mut rest = lines.iter();
    let mut wanted = shown.iter().filter(|line| !["", "..."].contains(&line.trim()));
    match wanted.find(|line| !rest.any(|said| *said == shape(line))) {
        Some(missing) => Err(format!("the page shows, but it does not say, {missing:?}:\n{said}")),
        None => Ok(()),
    }
}

#[test]
fn outputs_are_compared_but_for_their_numbers() {
    let shown = |lines: &[&str]| lines.iter().map(|line| line.to_string()).collect::<Vec<_>>();
    let said = "12: gave back 1 B; RSS 2 MB\n  live    1 kB  0.1 %  in use\n  RSS  3 MB\n";
    assert_eq!(compare(&shown(&["4711: gave back 3.4 MB; RSS 9 MB", "...", "  RSS   3 GB"]), said), Ok(()));
    assert!(compare(&shown(&["  live  7 MB  2 %  in uses"]), said).is_err());
    assert!(compare(&shown(&["  RSS  3 MB", "  live  7 MB  2 %  in use"]), said).is_err());
}

#[test]
fn commands_of_the_guide() {
    let library = snug_library();
    let mut pages: Vec<PathBuf> = vec![project().join("README.md")];
    pages.extend(pages_of_the_guide());
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let mut failures = Vec::new();
    let (mut ran, mut skipped) = (0, Vec::new());
    for page in &pages {
        let place = Place::new();
        for shown in commands(page) {
            let at = format!("{}:{}: $ {}", shown.page, shown.line, shown.command);
            if shown.skipped {
                let is_listed = SKIPPED.iter().any(|word| shown.command.contains(word));
                assert!(is_listed, "{at}: is skipped, but needs none of {SKIPPED:?}");
                skipped.push(at);
                continue;
            }
            // A comparison starts the server itself, on the same port.
            let needs_puma =
                ["4711", "puma", "exporter", "snug top"].iter().any(|word| shown.command.contains(word))
                    && !shown.command.contains("--ready");
            let puma = needs_puma.then(|| place.start_puma(&library));
            let pid = puma.as_ref().map_or(4711, |puma| puma.0.id());
            let command = stand_in(&shown.command, pid, user.trim(), place.port, &library);
            let begin = Instant::now();
            let mut result = place.run(&command, &library);
            // The watch of a program that has just ended may still be writing its file.
            while result.is_err() && command.starts_with("snug blame") && begin.elapsed() < AT_MOST {
                std::thread::sleep(Duration::from_millis(300));
                result = place.run(&command, &library);
            }
            let is_either = SAY_EITHER.iter().any(|name| shown.command.starts_with(name));
            if let Err(why) =
                result.and_then(|said| compare(if is_either { &[] } else { &shown.output }, &said))
            {
                failures.push(format!("{at}\n  run as: {command}\n  {why}"));
            }
            ran += 1;
        }
    }
    println!(
        "ran {ran} commands; left out, because they need what a test machine lacks:\n{}",
        skipped.join("\n")
    );
    assert!(failures.is_empty(), "{} of {ran} commands fail:\n{}", failures.len(), failures.join("\n"));
    assert!(ran >= 10, "only {ran} commands were found");
}

/// Lines of code that `commands` skips, with their numbers: indented blocks, and fenced ones of a shell.
fn passed_over(page: &str) -> Vec<(usize, &str)> {
    let mut passed_over = Vec::new();
    let (mut in_fence, mut after_blank) = (false, true);
    for (index, line) in page.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        let is_shell = fence.is_some_and(|info| ["sh", "bash", "shell"].contains(&info.trim()));
        let is_indented = line.starts_with("    ") && after_blank && !in_fence;
        if is_shell || is_indented {
            passed_over.push((index + 1, line));
        }
        in_fence ^= fence.is_some();
        after_blank = line.trim().is_empty();
    }
    passed_over
}

#[test]
fn no_command_of_the_guide_is_passed_over() {
    assert_eq!(passed_over("a\n\n    make\n\n```ini\n\n    b\n```\nc\n    d\n```sh\nls\n```\n").len(), 2);
    for path in pages_of_the_guide() {
        let found = std::fs::read_to_string(&path).unwrap();
        let found = passed_over(&found);
        assert!(found.is_empty(), "{}: commands belong into blocks of ```console: {found:?}", path.display());
    }
}

#[test]
fn pages_are_linked_from_the_index() {
    let index = std::fs::read_to_string(project().join("docs/README.md")).unwrap();
    for page in pages_of_the_guide() {
        let name = page.strip_prefix(project().join("docs")).unwrap().display();
        assert!(index.contains(&format!("({name})")), "{name} is not in docs/README.md");
    }
}
