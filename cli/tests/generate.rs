//! What is common to all commands, and `snug generate`.

mod common;

use common::{run, snug, Scratch};

#[test]
fn the_version_is_that_of_the_project() {
    let version = include_str!("../../VERSION").trim();
    let answer = run(&mut snug(&["--version"])).expect_code(0);
    assert_eq!(answer.stdout, format!("snug {version}\n"));
}

#[test]
fn help_has_examples() {
    for command in ["run", "check", "compare"] {
        run(&mut snug(&[command, "--help"]))
            .expect_code(0)
            .expect_stdout("Examples:")
            .expect_stdout("Exit codes");
    }
}

#[test]
fn completions_for_each_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        run(&mut snug(&["generate", "completions", shell])).expect_code(0).expect_stdout("compare");
    }
}

#[test]
fn man_pages() {
    let scratch = Scratch::new();
    run(&mut snug(&["generate", "man"])).expect_code(0).expect_stdout(".TH snug 1");
    run(&mut snug(&["generate", "man", "--out", &scratch.text("man")])).expect_code(0);
    for page in ["snug.1", "snug-run.1", "snug-check.1", "snug-compare.1"] {
        assert!(scratch.path("man").join(page).exists(), "{page}");
    }
}

#[test]
fn no_color_is_respected() {
    let mut command = snug(&["check", "1", "--expect", "nothing"]);
    let answer = run(command.env("NO_COLOR", "1"));
    assert!(!answer.stderr.contains('\u{1b}'), "{answer:#?}");
}
