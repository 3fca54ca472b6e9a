//! `snug check` on what is no process of this root: images, units, containers.

mod common;

use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{jemalloc_library, run, snug, Answer, Scratch};
use snug_base::need;
use snug_base::testing::root;

const ENTRY: &str = "#!/bin/sh -e
if [ -z \"${LD_PRELOAD+x}\" ]; then
  LD_PRELOAD=$(find /usr/lib -name libjemalloc.so.2 -print -quit)
  export LD_PRELOAD
fi
exec \"${@}\"
";

/// Copies a file of this machine into a root file system, at the same path.
fn copy(root: &Path, file: &str) {
    let to = root.join(file.trim_start_matches('/'));
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(file, to).unwrap();
}

/// Copies a program or library and all that it loads.
fn copy_with_libraries(root: &Path, file: &str) {
    copy(root, file);
    let output = Command::new("ldd").arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for path in text.split_whitespace().filter(|word| word.starts_with('/')) {
        copy(root, path);
    }
}

/// A small root file system: a shell, `sleep`, jemalloc with all that it needs, and an entry script as Rails has it.
fn root_file_system(scratch: &Scratch, jemalloc: &str) -> PathBuf {
    let root = scratch.path("root");
    for program in ["/bin/sh", "/bin/sleep"] {
        copy_with_libraries(&root, program);
    }
    copy_with_libraries(&root, jemalloc);
    std::fs::create_dir_all(root.join("usr/lib/deep")).unwrap();
    let at = Path::new("/").join(jemalloc.trim_start_matches('/'));
    symlink(at, root.join("usr/lib/deep/libjemalloc.so.2")).unwrap();
    std::fs::create_dir_all(root.join("app")).unwrap();
    std::fs::write(root.join("app/entry"), ENTRY).unwrap();
    std::fs::set_permissions(root.join("app/entry"), PermissionsExt::from_mode(0o755)).unwrap();
    root
}

fn check(arguments: &[&str]) -> Answer {
    run(&mut snug(&[&["check"], arguments].concat()))
}

#[test]
fn root_file_systems() {
    let jemalloc = need!(jemalloc_library());
    let scratch = Scratch::new();
    let root = root_file_system(&scratch, &jemalloc);
    let name = root.display().to_string();
    check(&["--expect", "jemalloc", "--image", &name, "--", "/app/entry", "sleep", "1"])
        .expect_code(0)
        .expect_stdout("sets LD_PRELOAD to /usr/lib/deep/libjemalloc.so.2 by itself");
    let answer = check(&["--expect", "jemalloc", "--image", &name, "--", "sleep", "1"]).expect_code(1);
    assert!(
        answer.stdout.contains("it uses glibc") && answer.stdout.contains("Lines that change it"),
        "{answer:#?}"
    );
    assert!(answer.stdout.contains("ENV LD_PRELOAD=\"/usr/local/lib/libjemalloc.so.2\""), "{answer:#?}");
    assert!(!answer.stdout.contains("Procfile"), "an image is built from a Dockerfile: {answer:#?}");
    // What jemalloc needs is not there: it would end the program, and not be used.
    let mut removed = 0;
    for directory in ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64"] {
        removed += u32::from(std::fs::remove_file(root.join(directory).join("libstdc++.so.6")).is_ok());
    }
    if removed > 0 {
        check(&["--expect", "jemalloc", "--image", &name, "--", "/app/entry", "sleep", "1"])
            .expect_code(1)
            .expect_stdout("needs libstdc++.so.6, which is missing")
            .expect_stdout("does not start");
    }
    check(&["--image", &name, "--", "nothing"]).expect_code(127).expect_stderr("there is no program nothing");
    check(&["--image", &name]).expect_code(1).expect_stderr("name it: snug check --image");
    let script = root.join("app/entry").display().to_string();
    check(&["--image", &script, "--", "sh"]).expect_code(1).expect_stderr("docker export");
}

#[test]
fn malloc_conf_of_an_image_is_read() {
    let (jemalloc, library) = (need!(jemalloc_library()), common::snug_library());
    let scratch = Scratch::new();
    let root = root_file_system(&scratch, &jemalloc);
    std::fs::copy(library, root.join("usr/lib/deep/libsnug.so")).unwrap();
    std::fs::create_dir_all(root.join("etc")).unwrap();
    symlink("narenas:3", root.join("etc/malloc.conf")).unwrap();
    let name = root.display().to_string();
    copy(&root, "/usr/bin/env");
    let preload = "LD_PRELOAD=/usr/lib/deep/libsnug.so";
    let arguments =
        ["--json", "--expect", "snug", "--image", &name, "--", "env", preload, "/app/entry", "sleep", "9"];
    let answer = check(&arguments).expect_code(0).json();
    let process = &answer["processes"][0];
    assert_eq!(process["malloc_conf"][0]["key"], "narenas", "{process}");
    assert_eq!(process["malloc_conf"][0]["source"], "/etc/malloc.conf");
    assert_eq!(process["linkage"]["c_library"], "glibc");
}

#[test]
fn static_programs_and_other_machines_in_images() {
    let jemalloc = need!(jemalloc_library());
    let scratch = Scratch::new();
    let root = root_file_system(&scratch, &jemalloc);
    let name = root.display().to_string();
    let fixed = scratch.compile("fixed", common::SLEEPER, &["-static"]);
    std::fs::copy(fixed, root.join("bin/fixed")).unwrap();
    check(&["--image", &name, "--", "/app/entry", "fixed"])
        .expect_code(1)
        .expect_stdout("the program is static");
    let mut content = std::fs::read(root.join("bin/sleep")).unwrap();
    content[18..20].copy_from_slice(&183u16.to_le_bytes());
    std::fs::write(root.join("bin/sleep"), content).unwrap();
    check(&["--image", &name, "--", "/app/entry", "sleep", "1"])
        .expect_code(1)
        .expect_stdout("the program for aarch64");
}

#[test]
fn units_that_do_not_run() {
    let jemalloc = need!(jemalloc_library());
    let scratch = Scratch::new();
    let unit = scratch.text("shop.service");
    std::fs::write(&unit, "[Service]\nExecStart=/bin/sh -c \"cd / && exec sleep 5\"\n").unwrap();
    check(&["--expect", "jemalloc", "--unit", &unit])
        .expect_code(1)
        .expect_stderr("does not run")
        .expect_stdout("systemctl edit shop.service")
        .expect_stdout(&format!("Environment=LD_PRELOAD={jemalloc}"));
    std::fs::create_dir(scratch.path("shop.service.d")).unwrap();
    let more = format!("[Service]\nEnvironment=LD_PRELOAD={jemalloc}\n");
    std::fs::write(scratch.path("shop.service.d/snug.conf"), more).unwrap();
    check(&["--expect", "jemalloc", &format!("unit:{unit}")])
        .expect_code(0)
        .expect_stdout("of the unit shop.service");
    check(&["unit:no-such-unit"]).expect_code(3).expect_stderr("has no file");
}

#[test]
fn processes_with_another_root() {
    need!(root());
    let jemalloc = need!(jemalloc_library());
    let scratch = Scratch::new();
    let root = root_file_system(&scratch, &jemalloc);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "chroot"]).arg(&root);
    command.args(["/bin/sleep", "4243"]).env("LD_PRELOAD", "").stderr(Stdio::null());
    command.env("LD_PRELOAD", "/usr/lib/deep/libjemalloc.so.2");
    let mut child = command.spawn().expect("unshare can be started");
    let inside = || -> Option<i32> {
        let entries = std::fs::read_dir("/proc").ok()?.flatten();
        let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.find(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"/bin/sleep\x004243\0")
        })
    };
    for _ in 0..3000 {
        if inside().is_some() || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let answer = inside().map(|pid| check(&["--expect", "jemalloc", "--json", &pid.to_string()]));
    let _ = child.kill();
    let _ = child.wait();
    let answer = answer.expect("it starts").expect_code(0);
    let process = &answer.json()["processes"][0];
    assert_eq!(process["place"]["kind"], "container");
    assert_eq!(process["place"]["pid_inside"], 1);
    assert_eq!(process["executable"], "/bin/sleep", "as the container sees it");
    assert_eq!(process["allocator"]["how"], "preloaded");
}
