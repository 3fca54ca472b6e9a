//! What is common to all commands, and `snug generate`.

mod common;

use std::process::Command;

use common::{run, snug, Scratch};

#[test]
fn the_version_is_that_of_the_project() {
    let version = include_str!("../../VERSION").trim();
    let answer = run(&mut snug(&["--version"])).expect_code(0);
    assert_eq!(answer.stdout, format!("snug {version}\n"));
}

/// The commands that `snug --help` lists.
fn commands() -> Vec<String> {
    let help = run(&mut snug(&["--help"])).expect_code(0).stdout;
    let listed = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let words =
        listed.take_while(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next());
    let commands: Vec<String> = words.filter(|word| *word != "help").map(String::from).collect();
    assert!(commands.len() >= 4 && commands.contains(&"top".to_string()), "{commands:?}");
    commands
}

#[test]
fn every_help_has_an_example_and_exit_codes() {
    for command in commands() {
        run(&mut snug(&[&command, "--help"]))
            .expect_code(0)
            .expect_stdout("Example")
            .expect_stdout(&format!("  snug {command}"));
    }
    for command in ["run", "check", "compare", "top"] {
        run(&mut snug(&[command, "--help"])).expect_code(0).expect_stdout("Exit codes");
    }
}

#[test]
fn completions_for_each_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let answer = run(&mut snug(&["generate", "completions", shell])).expect_code(0);
        for command in commands() {
            assert!(answer.stdout.contains(&command), "{shell} knows no {command}");
        }
    }
    // bash reads what is meant for it.
    let script = run(&mut snug(&["generate", "completions", "bash"])).stdout;
    let ask = "COMP_WORDS=(snug to); COMP_CWORD=1; _snug snug to snug; echo \"${COMPREPLY[@]}\"";
    let answer = run(Command::new("bash").args(["--norc", "-c", &format!("{script}\n{ask}")]));
    assert_eq!(answer.expect_code(0).stdout.trim(), "top");
}

#[test]
fn man_pages_of_all_commands() {
    let scratch = Scratch::new();
    run(&mut snug(&["generate", "man"])).expect_code(0).expect_stdout(".TH snug 1");
    run(&mut snug(&["generate", "man", "--out", &scratch.text("man")])).expect_code(0);
    for command in commands() {
        let page = std::fs::read_to_string(scratch.path("man").join(format!("snug-{command}.1"))).unwrap();
        let sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"];
        let places = sections
            .map(|name| page.find(&format!("\n.SH {name}\n")).or(page.find(&format!("\n.SH \"{name}\"\n"))));
        assert!(places.iter().all(Option::is_some), "{command}: {places:?}");
        assert!(!page.contains(".SH EXTRA") && page.contains(&format!("snug {command}")), "{command}");
        // The formatter has nothing to say about it.
        let path = scratch.path("man").join(format!("snug-{command}.1"));
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
