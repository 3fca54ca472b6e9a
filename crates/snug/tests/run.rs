//! `snug run` on real programs.

mod common;

use common::{run, snug, snug_library, Scratch, SLEEPER};
use snug_base::need;
use snug_base::testing::root;

#[test]
fn the_library_is_preloaded_before_what_was_there() {
    let library = snug_library();
    let mut command = snug(&["run", "--", "sh", "-c", "echo $LD_PRELOAD; grep -c libsnug /proc/self/maps"]);
    command.env("SNUG_LIBRARY", &library).env("LD_PRELOAD", "libm.so.6");
    let answer = run(&mut command).expect_code(0);
    let mut lines = answer.stdout.lines();
    assert_eq!(lines.next(), Some(format!("{library}:libm.so.6").as_str()));
    assert!(lines.next().unwrap().parse::<u32>().unwrap() > 0, "children inherit it");
}

#[test]
fn this_only_is_not_inherited() {
    let library = snug_library();
    let script = "grep -c libsnug /proc/$$/maps; env | grep -c -e LD_PRELOAD -e SNUG_THIS_ONLY; true";
    let answer =
        run(snug(&["run", "--this-only", "sh", "-c", script]).env("SNUG_LIBRARY", &library)).expect_code(0);
    let numbers: Vec<u32> = answer.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert!(numbers[0] > 0 && numbers[1] == 0, "{answer:#?}");
}

#[test]
fn exit_codes_and_signals_are_the_programs_own() {
    let library = snug_library();
    run(snug(&["run", "--", "sh", "-c", "exit 7"]).env("SNUG_LIBRARY", &library)).expect_code(7);
    let answer = run(snug(&["run", "--", "sh", "-c", "kill -TERM $$"]).env("SNUG_LIBRARY", &library));
    assert_eq!(answer.code, None, "it died of the signal: {answer:#?}");
}

#[test]
fn the_name_as_typed_is_what_the_program_sees() {
    let library = snug_library();
    let answer = run(snug(&["run", "sh", "-c", "echo $0"]).env("SNUG_LIBRARY", &library)).expect_code(0);
    assert_eq!(answer.stdout, "sh\n");
}

#[test]
fn a_missing_library_is_explained() {
    let mut command = snug(&["run", "true"]);
    run(command.env("SNUG_LIBRARY", "/nonexistent/libsnug.so"))
        .expect_code(125)
        .expect_stderr("/nonexistent/libsnug.so")
        .expect_stderr("SNUG_LIBRARY must be the path");
}

/// setarch has the kernel call itself 2.6.
#[test]
fn a_kernel_that_is_too_old_is_named() {
    let library = snug_library();
    let tool = env!("CARGO_BIN_EXE_snug");
    let mut command = std::process::Command::new("setarch");
    command.args(["--uname-2.6", tool, "run", "--", "true"]).env("SNUG_LIBRARY", &library);
    run(&mut command).expect_code(0).expect_stderr("snug needs Linux 3.10 or newer, and this kernel is 2.6.");
    let answer = run(snug(&["run", "--", "true"]).env("SNUG_LIBRARY", &library)).expect_code(0);
    assert!(!answer.stderr.contains("3.10"), "{answer:#?}");
}

#[test]
fn programs_that_cannot_run_are_explained() {
    run(&mut snug(&["run", "no-such-program"])).expect_code(127).expect_stderr("program not found");
    run(&mut snug(&["run", "/etc/passwd"])).expect_code(126).expect_stderr("not executable");
    run(&mut snug(&["run", "/"])).expect_code(126).expect_stderr("directory");
}

#[test]
fn static_programs_are_refused() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("static", SLEEPER, &["-static"]);
    run(snug(&["run", &program]).env("SNUG_LIBRARY", &library))
        .expect_code(125)
        .expect_stderr("is a static program")
        .expect_stderr(&library.replace(".so", ".a"));
    let alone = scratch.text("libsnug.so");
    std::fs::copy(&library, &alone).unwrap();
    run(snug(&["run", &program]).env("SNUG_LIBRARY", &alone))
        .expect_code(125)
        .expect_stderr("libsnug.a, which its build makes");
}

/// Only root can make a program that changes its user.
#[test]
fn programs_that_gain_rights_are_refused_with_that_cause() {
    let library = snug_library();
    need!(root());
    let scratch = Scratch::new();
    let of_nobody = |name: &str, mode: &str| {
        let program = scratch.compile(name, SLEEPER, &[]);
        for (tool, what) in [("chown", "65534:65534"), ("chmod", mode)] {
            assert!(std::process::Command::new(tool).args([what, &program]).status().unwrap().success());
        }
        program
    };
    let call = |arguments: &[&str]| run(snug(arguments).env("SNUG_LIBRARY", &library));
    for (name, mode) in [("setuid", "4755"), ("setgid", "2755")] {
        let program = of_nobody(name, mode);
        call(&["run", "--", &program, "0"]).expect_code(125).expect_stderr("setuid or setgid");
        let out = scratch.text(&format!("out-{name}"));
        let compare = ["compare", "--with", "snug", "--runs", "1", "--out", &out, "--", &program, "0.1"];
        call(&compare).expect_code(2).expect_stderr("setuid or setgid");
        call(&["leak", "--", &program, "0.1"]).expect_code(2).expect_stderr("setuid or setgid");
        run(snug(&["check", "--expect", "snug", "--", &program, "1"]).env("LD_PRELOAD", &library))
            .expect_code(1)
            .expect_stdout("setuid or setgid");
    }
    // root's own changes nothing.
    let own = scratch.compile("own", SLEEPER, &[]);
    assert!(std::process::Command::new("chmod").args(["6755", &own]).status().unwrap().success());
    call(&["run", "--", &own, "0"]).expect_code(0);
    run(snug(&["check", "--expect", "snug", "--for", "0.5", "--", &own, "1"]).env("LD_PRELOAD", &library))
        .expect_code(0);
}

#[test]
fn a_library_for_another_machine_is_refused() {
    let library = snug_library();
    let scratch = Scratch::new();
    // e_machine is at offset 18: the same library, but for a machine that this is not.
    let mut content = std::fs::read(&library).unwrap();
    let other: u16 = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
    content[18..20].copy_from_slice(&other.to_le_bytes());
    std::fs::write(scratch.path("libsnug.so"), content).unwrap();
    run(snug(&["run", "true"]).env("SNUG_LIBRARY", scratch.path("libsnug.so")))
        .expect_code(125)
        .expect_stderr("wrong architecture");
}

/// A virtual environment with a server and, unless told otherwise, the wheel. The server shows its variables.
fn virtual_environment(scratch: &Scratch, wheel: bool) -> String {
    let path = |name: &str| scratch.path(name);
    let python = std::fs::canonicalize("/usr/bin/python3").unwrap();
    let name = python.file_name().unwrap().to_str().unwrap();
    let packages = path("venv/lib").join(name).join("site-packages/snug/auto");
    std::fs::create_dir_all(path("venv/bin")).unwrap();
    std::fs::create_dir_all(&packages).unwrap();
    std::fs::write(path("venv/pyvenv.cfg"), "home = /usr/bin\ninclude-system-site-packages = false\n")
        .unwrap();
    std::os::unix::fs::symlink(&python, path("venv/bin/python")).unwrap();
    if wheel {
        std::fs::write(packages.join("sitecustomize.py"), "import sys; sys.hooks_are_on = True").unwrap();
    }
    let server = scratch.text("venv/bin/celery");
    let script = format!(
        "#!{}\nimport os, sys\nprint(hasattr(sys, 'hooks_are_on'), os.environ.get('PYTHONMALLOC'), os.environ.get('SNUG_HOOKS'))\n",
        scratch.text("venv/bin/python")
    );
    std::fs::write(&server, script).unwrap();
    std::process::Command::new("chmod").args(["+x", &server]).status().unwrap();
    server
}

#[test]
fn hooks_of_the_wheel_are_switched_on_where_it_is() {
    let library = snug_library();
    let scratch = Scratch::new();
    let server = virtual_environment(&scratch, true);
    let run_with = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = snug(&["run"]);
        command.args(words).env("SNUG_LIBRARY", &library).envs(variables.iter().copied());
        for name in ["PYTHONPATH", "PYTHONMALLOC", "SNUG_HOOKS"] {
            if !variables.iter().any(|(set, _)| *set == name) {
                command.env_remove(name);
            }
        }
        run(&mut command).expect_code(0)
    };
    let python = scratch.text("venv/bin/python");
    let answer = run_with(&["--", &server, "worker"], &[]);
    assert_eq!(answer.stdout, "True malloc None\n", "{answer:#?}");
    assert_eq!(
        answer.stderr.matches("snug: hooks for celery are on, with PYTHONMALLOC=malloc; --no-hooks").count(),
        1
    );
    let answer = run_with(&["--", &server], &[("PYTHONMALLOC", "pymalloc"), ("PYTHONPATH", "/nowhere")]);
    assert_eq!(answer.stdout, "True pymalloc None\n", "{answer:#?}");
    assert!(answer.stderr.contains("hooks for celery are on; "), "{answer:#?}");
    let answer = run_with(&["--no-hooks", "--", &server], &[]);
    assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("False None 0\n", ""));
    let answer = run_with(&["--", &server], &[("SNUG_HOOKS", "0")]);
    assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("False None 0\n", ""));
    // Another program is left alone, and so is a server whose Python has no wheel.
    let show = "import os, sys; print(hasattr(sys, 'hooks_are_on'), os.environ.get('PYTHONMALLOC'))";
    let answer = run_with(&["--", &python, "-c", show], &[]);
    assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("False None\n", ""));
    let other = Scratch::new();
    let answer = run_with(&["--", &virtual_environment(&other, false)], &[]);
    assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("False None None\n", ""));
}
