//! Options that all commands share, and `snug generate`.

mod common;

use std::process::Command;

use common::{commands, run, snug, Scratch};

/// What bash offers for a line, asked as bash asks at Tab.
fn offered(line: &str) -> Vec<String> {
    let script = run(&mut snug(&["generate", "completions", "bash"])).expect_code(0).stdout;
    let words: Vec<&str> = line.split(' ').collect();
    let last = words.last().copied().unwrap_or_default();
    let ask = format!(
        "compopt() {{ :; }}\nCOMP_WORDS=({} '{last}'); COMP_CWORD={}; COMP_TYPE=9\n\
         _clap_complete_snug snug '{last}' x; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words[..words.len() - 1].join(" "),
        words.len() - 1
    );
    let tool = snug(&[]);
    let beside = std::path::Path::new(tool.get_program()).parent().unwrap().display().to_string();
    let path = format!("{beside}:{}", std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &format!("{script}\n{ask}")]).env("PATH", path);
    run(&mut bash).expect_code(0).stdout.lines().map(|line| line.trim().to_string()).collect()
}

#[test]
fn completions_know_commands_allocators_programs_and_processes() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        run(&mut snug(&["generate", "completions", shell])).expect_code(0).expect_stdout("SNUG_COMPLETE");
    }
    // What the scripts of the other two call.
    for shell in ["zsh", "fish"] {
        let words = ["--", "snug", "leak", "--with", "jem"];
        let answer = run(snug(&words).env("SNUG_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", "3"));
        assert_eq!(answer.expect_code(0).stdout.trim(), "jemalloc", "{shell}");
    }
    assert_eq!(offered("snug to"), ["top"]);
    let listed = offered("snug ");
    assert!(commands().iter().all(|command| listed.contains(command)), "{listed:?}");
    assert_eq!(offered("snug leak --ask"), ["--ask-allocator"]);
    assert_eq!(offered("snug leak --with jem"), ["jemalloc"]);
    assert_eq!(offered("snug compare --with glibc,tcm"), ["glibc,tcmalloc"]);
    assert!(offered("snug run tru").contains(&"true".to_string()));
    let sleeper = common::Running(Command::new("sleep").arg("60").spawn().unwrap());
    assert!(offered(&format!("snug check {}", sleeper.pid())).contains(&sleeper.pid()));
    common::eventually("it is offered by its name", || {
        offered("snug top sle").contains(&"sleep".to_string())
    });
}

#[test]
fn man_pages_of_all_commands() {
    let scratch = Scratch::new();
    run(&mut snug(&["generate", "man"])).expect_code(0).expect_stdout(".TH snug 1");
    run(&mut snug(&["generate", "man", "--out", &scratch.text("man")])).expect_code(0);
    let commands = commands().into_iter().map(|command| format!("snug {command}"));
    for command in commands.chain(["snug".to_string()]) {
        let path = scratch.path("man").join(format!("{}.1", command.replace(' ', "-")));
        let page = std::fs::read_to_string(&path).unwrap();
        let sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"];
        let places = sections
            .map(|name| page.find(&format!("\n.SH {name}\n")).or(page.find(&format!("\n.SH \"{name}\"\n"))));
        assert!(places.iter().all(Option::is_some), "{command}: {places:?}");
        assert!(!page.contains(".SH EXTRA") && page.contains(&format!("\n{command} ")), "{command}");
        // The formatter has nothing to say about it.
        let groff = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(path).output();
        if let Ok(output) = groff {
            assert!(output.stderr.is_empty(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn no_color_is_respected() {
    let mut command = snug(&["check", "1", "--expect", "nothing"]);
    let answer = run(command.env("NO_COLOR", "1"));
    assert!(!answer.stderr.contains('\u{1b}'), "{answer:#?}");
}
