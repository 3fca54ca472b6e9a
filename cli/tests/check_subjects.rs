//! `snug check` on what is no process of this root: images, units, containers.

mod common;

use std::io::Write;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{jemalloc_library, run, snug, Answer, Scratch};
use serde_json::{json, Value};

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

fn tar_of(fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.follow_symlinks(false);
    fill(&mut builder);
    builder.into_inner().unwrap()
}

fn add(builder: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, name, content).unwrap();
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn config(environment: &[&str]) -> Value {
    json!({"config": {"Entrypoint": ["/app/entry"], "Cmd": ["sleep", "9"], "Env": environment}})
}

/// An archive as `docker image save` writes it: plain layers, and manifest.json.
fn docker_archive(path: &Path, layers: &[Vec<u8>], config: &Value) {
    let archive = tar_of(|builder| {
        add(builder, "config.json", config.to_string().as_bytes());
        let mut names = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            names.push(format!("{number}/layer.tar"));
            add(builder, &names[number], layer);
        }
        let manifest = json!([{"Config": "config.json", "RepoTags": ["shop:1"], "Layers": names}]);
        add(builder, "manifest.json", manifest.to_string().as_bytes());
    });
    std::fs::write(path, archive).unwrap();
}

/// A frame of zstd.
fn zstd(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A frame that holds nothing of the content.
fn skippable(content: &[u8]) -> Vec<u8> {
    [&0x184d_2a5a_u32.to_le_bytes()[..], &(content.len() as u32).to_le_bytes(), content].concat()
}

/// An archive as OCI tools write it: an index that leads to an index; layers are compressed already.
fn oci_archive(path: &Path, layers: &[Vec<u8>], config: &Value) {
    let archive = tar_of(|builder| {
        let mut blob = |name: &str, content: &[u8]| {
            add(builder, &format!("blobs/sha256/{name}"), content);
            json!({"digest": format!("sha256:{name}"), "size": content.len()})
        };
        let config = blob("c0", config.to_string().as_bytes());
        let named = layers.iter().enumerate();
        let layers: Vec<Value> = named.map(|(number, layer)| blob(&format!("a{number}"), layer)).collect();
        let mut manifest = blob("b0", json!({"config": config, "layers": layers}).to_string().as_bytes());
        manifest["platform"] = json!({"architecture": "amd64", "os": "linux"});
        let attestation = json!({"digest": "sha256:00", "platform": {"architecture": "unknown"}});
        let index = blob("d0", json!({"manifests": [attestation, manifest]}).to_string().as_bytes());
        add(builder, "index.json", json!({"manifests": [index]}).to_string().as_bytes());
    });
    std::fs::write(path, archive).unwrap();
}

fn check(arguments: &[&str]) -> Answer {
    run(&mut snug(&[&["check"], arguments].concat()))
}

#[test]
fn root_file_systems() {
    let Some(jemalloc) = jemalloc_library() else { return };
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
}

#[test]
fn archives_of_images() {
    let Some(jemalloc) = jemalloc_library() else { return };
    let scratch = Scratch::new();
    let root = root_file_system(&scratch, &jemalloc);
    let below = tar_of(|builder| builder.append_dir_all(".", &root).unwrap());
    let above = tar_of(|builder| {
        add(builder, "app/file", b"x");
        add(builder, "usr/lib/deep/.wh.libjemalloc.so.2", b"");
    });
    let temporary = scratch.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let check = |arguments: &[&str]| run(snug(&[&["check"], arguments].concat()).env("TMPDIR", &temporary));
    let archive = scratch.text("image.tar");
    docker_archive(Path::new(&archive), std::slice::from_ref(&below), &config(&["A=1"]));
    let answer = check(&["--expect", "jemalloc", "--json", "--image", &archive]).expect_code(0);
    let process = &answer.json()["processes"][0];
    assert_eq!(process["place"]["kind"], "image");
    assert_eq!(process["command"], "sleep 9");
    assert!(process["allocator"]["version"].as_str().unwrap().starts_with("5."), "{process}");
    let tag = format!("LD_PRELOAD={jemalloc}");
    docker_archive(Path::new(&archive), std::slice::from_ref(&below), &config(&[&tag]));
    check(&["--expect", "jemalloc", "--image", &archive]).expect_code(0);
    // A later layer removes the link that the script finds; another archive format, compressed.
    oci_archive(Path::new(&archive), &[gzip(&below), gzip(&above)], &config(&[]));
    check(&["--expect", "snug", "--image", &archive]).expect_code(1).expect_stdout("ENV LD_PRELOAD=");
    let preload = config(&["LD_PRELOAD=/usr/lib/deep/libjemalloc.so.2"]);
    let whiteout = tar_of(|builder| add(builder, "usr/lib/deep/.wh..wh..opq", b""));
    oci_archive(Path::new(&archive), &[gzip(&below), gzip(&whiteout)], &preload);
    check(&["--image", &archive]).expect_code(1).expect_stdout("there is no such file");
    std::fs::write(&archive, "no archive").unwrap();
    check(&["--image", &archive]).expect_code(1).expect_stderr("is no");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "nothing temporary is left");
}

/// As podman's zstd:chunked does, and pzstd, which begins with a skippable frame.
#[test]
fn all_frames_of_a_layer_are_read() {
    let Some(jemalloc) = jemalloc_library() else { return };
    let scratch = Scratch::new();
    let root = root_file_system(&scratch, &jemalloc);
    let files = tar_of(|builder| builder.append_dir_all(".", &root).unwrap());
    // Without the two blocks of zeros that end an archive.
    let before = tar_of(|builder| add(builder, "app/file", b"x"));
    let (before, _) = before.split_at(1024);
    let archive = scratch.text("image.tar");
    let check = |layer: &[Vec<u8>]| {
        oci_archive(Path::new(&archive), &[layer.concat()], &config(&[]));
        check(&["--expect", "jemalloc", "--image", &archive])
    };
    let chunked = [zstd(before), skippable(b"of the tool"), zstd(&files), skippable(&[7; 100_000])];
    check(&chunked).expect_code(0);
    check(&[skippable(b""), zstd(before), zstd(b""), zstd(&files)]).expect_code(0);
    let whole = chunked.concat();
    for cut in [1, 100_000, 100_007, 100_009] {
        check(&[whole[..whole.len() - cut].to_vec()]).expect_code(1).expect_stderr("layer 1 of 1");
    }
}

#[test]
fn malloc_conf_of_an_image_is_read() {
    let (Some(jemalloc), Some(library)) = (jemalloc_library(), common::snug_library()) else { return };
    let scratch = Scratch::new();
    let root = root_file_system(&scratch, &jemalloc);
    std::fs::copy(library, root.join("usr/lib/deep/libsnug.so")).unwrap();
    std::fs::create_dir_all(root.join("etc")).unwrap();
    symlink("narenas:3", root.join("etc/malloc.conf")).unwrap();
    let layer = tar_of(|builder| builder.append_dir_all(".", &root).unwrap());
    let archive = scratch.text("image.tar");
    docker_archive(Path::new(&archive), &[layer], &config(&["LD_PRELOAD=/usr/lib/deep/libsnug.so"]));
    let answer = check(&["--json", "--expect", "snug", "--image", &archive]).expect_code(0).json();
    let process = &answer["processes"][0];
    assert_eq!(process["malloc_conf"][0]["key"], "narenas", "{process}");
    assert_eq!(process["malloc_conf"][0]["source"], "/etc/malloc.conf");
    assert_eq!(process["linkage"]["c_library"], "glibc");
}

#[test]
fn static_programs_and_other_machines_in_images() {
    let Some(jemalloc) = jemalloc_library() else { return };
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
    let Some(jemalloc) = jemalloc_library() else { return };
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
    let Some(jemalloc) = jemalloc_library() else { return };
    let scratch = Scratch::new();
    let root = root_file_system(&scratch, &jemalloc);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "chroot"]).arg(&root);
    command.args(["/bin/sleep", "4243"]).env("LD_PRELOAD", "").stderr(Stdio::null());
    command.env("LD_PRELOAD", "/usr/lib/deep/libjemalloc.so.2");
    let Ok(mut child) = command.spawn() else { return };
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
    if let Some(pid) = inside() {
        let answer = check(&["--expect", "jemalloc", "--json", &pid.to_string()]);
        let _ = child.kill();
        let _ = child.wait();
        let answer = answer.expect_code(0);
        let process = &answer.json()["processes"][0];
        assert_eq!(process["place"]["kind"], "container");
        assert_eq!(process["place"]["pid_inside"], 1);
        assert_eq!(process["executable"], "/bin/sleep", "as the container sees it");
        assert_eq!(process["allocator"]["how"], "preloaded");
    } else {
        let _ = child.wait();
        let _ = writeln!(std::io::stderr(), "SKIPPED: unshare and chroot need root");
    }
}
