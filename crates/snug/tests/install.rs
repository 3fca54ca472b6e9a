//! `snug install`: into directories that work and directories that don't, again, as an upgrade, and back out.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use common::{run, snug, snug_library, Running, Scratch, SLEEPER};
use snug_base::testing::skip;

/// The command that installs this library.
fn install(library: &str, arguments: &[&str]) -> Command {
    let mut command = snug(&["install"]);
    command.args(arguments).env("SNUG_LIBRARY", library);
    command
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_it_installs_works_for_everybody_and_stays_when_installed_again() {
    let library = snug_library();
    let scratch = Scratch::new();
    let (directory, text) = (scratch.path("volume"), scratch.text("volume"));
    fs::create_dir(&directory).unwrap();
    let mut strict = Command::new("sh");
    strict.args(["-c", "umask 077; exec \"$0\" install \"$1\"", env!("CARGO_BIN_EXE_snug"), &text]);
    let answer = run(strict.env("SNUG_LIBRARY", &library)).expect_code(0).expect_stderr("libsnug.so");
    assert_eq!(answer.stdout, format!("LD_PRELOAD={text}/libsnug.so\n"));
    let inodes = || {
        names(&directory).into_iter().map(|name| {
            let metadata = fs::metadata(directory.join(&name)).unwrap();
            let mode = if name == "snug" { 0o755 } else { 0o644 };
            assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{name}");
            (name, metadata.ino())
        })
    };
    let first: Vec<_> = inodes().collect();
    assert_eq!(
        first.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["asker.so", "libsnug.so", "snug"]
    );

    // The line that was printed, and the tool that was installed, which finds the library beside it.
    let mut program = Command::new("sh");
    program.args(["-c", "grep -c volume/libsnug.so /proc/self/maps"]);
    let (variable, value) = answer.stdout.trim().split_once('=').unwrap();
    assert_ne!(run(program.env(variable, value)).expect_code(0).stdout, "0\n");
    let mut installed = Command::new(directory.join("snug"));
    installed
        .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env_remove("LD_PRELOAD")
        .env_remove("SNUG_LIBRARY");
    run(&mut installed).expect_code(0).expect_stdout("volume/libsnug.so");

    run(&mut install(&library, &[&text]))
        .expect_code(0)
        .expect_stderr("already")
        .expect_stdout("LD_PRELOAD=");
    assert_eq!(inodes().collect::<Vec<_>>(), first, "nothing was written");
}

#[test]
fn an_upgrade_replaces_the_file_that_running_processes_keep() {
    let library = snug_library();
    let scratch = Scratch::new();
    let (directory, text) = (scratch.path("volume"), scratch.text("volume"));
    fs::create_dir(&directory).unwrap();
    run(&mut install(&library, &[&text])).expect_code(0);
    let old = fs::metadata(directory.join("libsnug.so")).unwrap().ino();
    let mut command = Command::new(scratch.compile("sleeper", SLEEPER, &[]));
    command.arg("60").env("LD_PRELOAD", directory.join("libsnug.so"));
    let mut running = Running(command.spawn().unwrap());
    let maps = format!("/proc/{}/maps", running.pid());
    common::eventually("it has loaded the library", || {
        fs::read_to_string(&maps).unwrap().contains("volume/libsnug.so")
    });

    let newer = scratch.text("newer.so");
    fs::write(&newer, [fs::read(&library).unwrap(), b"newer".to_vec()].concat()).unwrap();
    let answer = run(&mut install(&newer, &[&text])).expect_code(0).expect_stderr("libsnug.so");
    assert!(!answer.stderr.contains("snug, libsnug.so"), "the tool is the same: {answer:#?}");
    assert_ne!(fs::metadata(directory.join("libsnug.so")).unwrap().ino(), old);
    assert_eq!(fs::read(directory.join("libsnug.so")).unwrap(), fs::read(&newer).unwrap());
    assert!(fs::read_to_string(&maps).unwrap().contains("volume/libsnug.so (deleted)"));
    assert_eq!(running.0.try_wait().unwrap(), None, "it goes on");
}

#[test]
fn removing_leaves_nothing_of_ours_and_all_else() {
    let library = snug_library();
    let scratch = Scratch::new();
    let (directory, text) = (scratch.path("volume"), scratch.text("volume"));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("notes"), "mine").unwrap();
    // An installation was killed.
    fs::write(directory.join(".snug-install-abc"), "half").unwrap();
    run(&mut install(&library, &["--jemalloc", &text])).expect_code(0).expect_stderr("libjemalloc.so.2");
    let all = [".snug-install-abc", "asker.so", "libjemalloc.so.2", "libsnug.so", "notes", "snug"];
    assert_eq!(names(&directory), all, "it may be the file of one that runs now");
    // The installed tool removes itself, too.
    let mut command = Command::new(directory.join("snug"));
    run(command.args(["install", "--uninstall", &text])).expect_code(0).expect_stdout("libjemalloc.so.2");
    assert_eq!(names(&directory), ["notes"]);
    run(&mut snug(&["install", "--uninstall", &text])).expect_code(0).expect_stdout("nothing of snug");
}

#[test]
fn files_of_others_are_left_alone() {
    let library = snug_library();
    let scratch = Scratch::new();
    let (directory, text) = (scratch.path("volume"), scratch.text("volume"));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("libsnug.so"), "another's").unwrap();
    for arguments in [vec![text.as_str()], vec!["--uninstall", &text]] {
        run(&mut install(&library, &arguments))
            .expect_code(1)
            .expect_stderr("libsnug.so is there and not from");
    }
    // A link, as `make install` and packages make it: renaming a file to it would tear their installation apart.
    fs::remove_file(directory.join("libsnug.so")).unwrap();
    std::os::unix::fs::symlink(&library, directory.join("libsnug.so")).unwrap();
    run(&mut install(&library, &[&text])).expect_code(1).expect_stderr("use a directory of its own");
    assert_eq!(names(&directory), ["libsnug.so"]);
}

#[test]
fn what_cannot_work_is_refused_with_the_reason() {
    let library = snug_library();
    let scratch = Scratch::new();
    let spaced = scratch.text("a volume");
    fs::create_dir(&spaced).unwrap();
    run(&mut install(&library, &[&spaced])).expect_code(1).expect_stderr("colon or a space");

    let volume = scratch.text("volume");
    fs::create_dir(&volume).unwrap();
    run(&mut install("/nonexistent.so", &[&volume])).expect_code(125).expect_stderr("/nonexistent.so");
    // The same library with another machine in its header.
    let mut foreign = fs::read(&library).unwrap();
    foreign[18] = if cfg!(target_arch = "x86_64") { 183 } else { 62 };
    let path = scratch.text("foreign.so");
    fs::write(&path, foreign).unwrap();
    run(&mut install(&path, &[&volume])).expect_code(125).expect_stderr("and this tool for");
    assert!(names(Path::new(&volume)).is_empty());
}

/// In a mount namespace, which may be forbidden here.
#[test]
fn full_and_read_only_volumes_stay_as_they_were() {
    let library = snug_library();
    let scratch = Scratch::new();
    let volume = scratch.text("volume");
    fs::create_dir(&volume).unwrap();
    let mounted = |options: &str, script: &str| {
        let mount = format!("mount -t tmpfs -o {options} none '{volume}' && {{ {script}; }}");
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount]);
        run(command.env("SNUG_LIBRARY", &library).env("TOOL", env!("CARGO_BIN_EXE_snug")).env("DIR", &volume))
    };
    if mounted("size=1m", "true").code != Some(0) {
        return skip("no mount namespaces here");
    }
    let list = "code=$?; ls -A $DIR; exit $code";
    let full = mounted("size=2m", &format!("\"$TOOL\" install $DIR; {list}")).expect_code(1);
    let full = full.expect_stderr("No space left").expect_stderr("nothing in it was changed");
    assert_eq!(full.stdout, "", "no file is left, not even a part of one");
    mounted("ro", &format!("\"$TOOL\" install $DIR; {list}"))
        .expect_code(1)
        .expect_stderr("mount it writable");
    mounted("noexec", "\"$TOOL\" install $DIR").expect_code(0).expect_stderr("mounted noexec");
}
