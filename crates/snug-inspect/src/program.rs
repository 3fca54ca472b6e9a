//! A program before it runs: where it lies, what the kernel will really execute, and whether a preloaded library can
//! reach it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::statvfs::{statvfs, FsFlags};
use nix::unistd::{getgid, getuid};

use crate::kinds::{is_telling_symbol, Kind};
use snug_base::elf::{self, ElfFacts};
use snug_base::failure::{Context, Failure, Result, NOT_EXECUTABLE, NOT_FOUND};
use snug_process::system;

/// Variables of an environment.
pub type Variables = BTreeMap<String, OsString>;

/// A program that exists and may be executed.
#[derive(Debug, Clone)]
pub struct Program {
    /// The file that was named.
    pub path: PathBuf,
    /// The file the kernel loads: the interpreter when `path` is a script.
    pub image: PathBuf,
    pub elf: ElfFacts,
    /// The kernel gives the image rights that this process does not have, so the loader ignores preloads.
    pub setuid: bool,
}

/// Finds a program as execvp would and reads what it is.
pub fn find(name: &OsStr) -> Result<Program> {
    find_in(name, &std::env::var_os("PATH").unwrap_or_default())
}

fn find_in(name: &OsStr, path_variable: &OsStr) -> Result<Program> {
    let path = locate(name, path_variable)?;
    let mut image = path.clone();
    // The kernel follows at most a few interpreters; so do we.
    for _ in 0..5 {
        let facts = elf::read(&image, &is_telling_symbol).map_err(|error| {
            Failure::new(format!("cannot read {}: {error}", image.display())).exit_code(NOT_EXECUTABLE)
        })?;
        if let Some(elf) = facts {
            let setuid = gains_rights(&image);
            return Ok(Program { path, image, elf, setuid });
        }
        match script_interpreter(&image) {
            Some(interpreter) => image = locate(&interpreter, path_variable)?,
            None => break,
        }
    }
    Err(Failure::new(format!(
        "{} is neither an ELF program nor a script that starts with #!",
        image.display()
    ))
    .advise("name the interpreter, for example: sh SCRIPT")
    .exit_code(NOT_EXECUTABLE))
}

/// Whether the kernel would start this file with other rights than ours, so that the loader is told not to trust the
/// environment (AT_SECURE of getauxval(3)). A user's own setuid program, for which nothing changes, is like any other.
fn gains_rights(image: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(image) else { return false };
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let no_new_privileges = status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"]));
    let nosuid = statvfs(image).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_NOSUID));
    if no_new_privileges || nosuid {
        return false;
    }
    let (user, group) = (getuid(), getgid());
    changes_ids(metadata.mode(), metadata.uid() != user.as_raw(), metadata.gid() != group.as_raw())
        || (!user.is_root() && system::has_capabilities(image))
}

/// Whether these bits change the user or the group. Without the right to execute, setgid means something else.
fn changes_ids(mode: u32, other_user: bool, other_group: bool) -> bool {
    (mode & 0o4000 != 0 && other_user) || (mode & 0o2010 == 0o2010 && other_group)
}

/// Finds the file that execvp would execute.
fn locate(file: &OsStr, path_variable: &OsStr) -> Result<PathBuf> {
    let name = file.to_string_lossy();
    if file.as_bytes().contains(&b'/') {
        let path = PathBuf::from(file);
        return match std::fs::metadata(&path) {
            Err(error) => Err(Failure::new(format!("cannot run {name}: {error}")).exit_code(NOT_FOUND)),
            Ok(metadata) if metadata.is_dir() => {
                Err(Failure::new(format!("cannot run {name}: it is a directory")).exit_code(NOT_EXECUTABLE))
            }
            Ok(_) if !is_executable(&path) => Err(Failure::new(format!("{name} is not executable"))
                .advise(format!("make it so (chmod +x {name}) or name its interpreter"))
                .exit_code(NOT_EXECUTABLE)),
            Ok(_) => Ok(path),
        };
    }
    let parts = path_variable.as_bytes().split(|byte| *byte == b':');
    let directories = parts.map(|part| OsStr::from_bytes(if part.is_empty() { b"." } else { part }));
    let candidates: Vec<PathBuf> = directories.map(|directory| Path::new(directory).join(file)).collect();
    if let Some(found) = candidates.iter().find(|candidate| candidate.is_file() && is_executable(candidate)) {
        return Ok(found.clone());
    }
    if let Some(found) = candidates.iter().find(|candidate| candidate.is_file()) {
        return Err(Failure::new(format!("{} is not executable", found.display()))
            .advise(format!("make it so: chmod +x {}", found.display()))
            .exit_code(NOT_EXECUTABLE));
    }
    let mut failure = Failure::new(format!("program not found: {name}")).exit_code(NOT_FOUND);
    failure.advice = Some(if Path::new(file).is_file() {
        format!("it is in this directory, which is not in PATH: write ./{name}")
    } else {
        "it is not in PATH; give its path".into()
    });
    Err(failure)
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

/// The interpreter that a script's first line names.
fn script_interpreter(path: &Path) -> Option<OsString> {
    use std::io::Read;
    let mut start = [0u8; 256];
    let length = std::fs::File::open(path).ok()?.read(&mut start).ok()?;
    parse_script_start(&start[..length])
}

/// Reads `#!/usr/bin/env ruby` as `ruby`, and `#!/bin/sh -e` as `/bin/sh`.
pub fn parse_script_start(start: &[u8]) -> Option<OsString> {
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let interpreter = words.next()?;
    let is_env = interpreter.ends_with(b"/env");
    let program = words.find(|word| is_env && !word.starts_with(b"-") && !word.contains(&b'='));
    Some(OsStr::from_bytes(program.unwrap_or(interpreter)).into())
}

/// What the dynamic loader answers when asked what it would load.
pub struct Listing {
    /// The libraries, in the order of loading.
    pub libraries: Vec<PathBuf>,
    /// What it complained about.
    pub complaint: String,
}

impl Listing {
    /// The first library whose name is that of such a kind, without links: as the kernel shows it in `/proc/PID/maps`.
    pub fn find(&self, is_wanted: impl Fn(Kind) -> bool) -> Option<PathBuf> {
        let named =
            |path: &&PathBuf| Kind::from_file_name(&path.display().to_string()).is_some_and(&is_wanted);
        self.libraries.iter().find(named).map(|path| std::fs::canonicalize(path).unwrap_or(path.clone()))
    }
}

/// The C library that a program loads. None: it loads none, or its loader can't be asked. That of this tool says
/// nothing of it: what is released has its own linked into it.
pub fn c_library(program: &Program) -> Option<PathBuf> {
    list_libraries(program, &Variables::new()).ok()?.find(Kind::is_c_library)
}

/// Asks the dynamic loader what it would load for this program in this environment, without running the program.
/// The list is empty where the loader can't be asked: only glibc's answers, and not for setuid programs.
pub fn list_libraries(program: &Program, environment: &Variables) -> Result<Listing> {
    let is_glibc = program.elf.interpreter.as_ref().is_some_and(|path| path.contains("ld-linux"));
    if !is_glibc || program.setuid {
        return Ok(Listing { libraries: Vec::new(), complaint: String::new() });
    }
    let mut command = Command::new(&program.image);
    command.envs(environment).env("LD_TRACE_LOADED_OBJECTS", "1").stdin(Stdio::null());
    let output = command.output().cannot(|| format!("ask the loader of {}", program.image.display()))?;
    Ok(Listing {
        libraries: parse_listing(&output.stdout),
        complaint: String::from_utf8_lossy(&output.stderr).trim().to_string(),
    })
}

/// Reads lines `libc.so.6 => /lib/libc.so.6 (0x...)` and `/lib/libx.so (0x...)`.
fn parse_listing(text: &[u8]) -> Vec<PathBuf> {
    let place = |line: &[u8], wanted: &[u8]| line.windows(wanted.len()).rposition(|window| window == wanted);
    let path = |line: &[u8]| {
        let file = place(line, b" => ").map_or(line, |at| &line[at + 4..]).trim_ascii();
        let file = place(file, b" (0x").map_or(file, |end| &file[..end]);
        file.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(file)))
    };
    text.split(|byte| *byte == b'\n').filter_map(path).collect()
}

/// Why a library can't be preloaded into a program, with what to do; None if nothing stands in the way.
pub fn preload_obstacle(program: &Program, library_path: &Path, library: &ElfFacts) -> Option<Failure> {
    let shown = program.image.display();
    if program.elf.is_static_program() {
        return Some(
            Failure::new(format!("{shown} is a static program: no library can be preloaded into it")).advise(
                format!(
                    "link it dynamically, or link the allocator into it (for snug: {})",
                    archive(library_path)
                ),
            ),
        );
    }
    if (program.elf.machine, program.elf.bits) != (library.machine, library.bits) {
        return Some(
            Failure::new(format!(
                "wrong architecture: {shown} is for {}, {} is for {}",
                program.elf.machine_name(),
                library_path.display(),
                library.machine_name()
            ))
            .advise(format!("use the library that was built for {}", program.elf.machine_name())),
        );
    }
    if program.setuid {
        return Some(
            Failure::new(format!(
                "{shown} is setuid or setgid or has capabilities: the loader ignores LD_PRELOAD for it"
            ))
            .advise("run it as the user it switches to, or list the library in /etc/ld.so.preload"),
        );
    }
    let program_is_musl = program.elf.interpreter.as_ref().is_some_and(|path| path.contains("ld-musl"));
    let library_needs_glibc = library.needed.iter().any(|name| name == "libc.so.6");
    if program_is_musl && library_needs_glibc {
        return Some(
            Failure::new(format!("{shown} runs on musl, {} was built for glibc", library_path.display()))
                .advise("use a build of the library for musl; libsnug.so serves both"),
        );
    }
    None
}

/// Where libsnug.a is: beside the library, as a build and an installation leave it.
fn archive(library_path: &Path) -> String {
    let beside = library_path.with_file_name("libsnug.a");
    if beside.exists() {
        beside.display().to_string()
    } else {
        "libsnug.a, which its build makes".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::elf::{EM_AARCH64, EM_X86_64};

    fn program(elf: ElfFacts) -> Program {
        Program { path: "/bin/x".into(), image: "/bin/x".into(), elf, setuid: false }
    }

    fn dynamic(machine: u16) -> ElfFacts {
        ElfFacts {
            machine,
            bits: 64,
            interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()),
            needed: vec!["libc.so.6".into()],
            ..ElfFacts::default()
        }
    }

    #[test]
    fn only_a_change_of_rights_counts() {
        assert!(changes_ids(0o104_755, true, false) && changes_ids(0o102_755, false, true));
        assert!(!changes_ids(0o104_755, false, true), "one's own");
        assert!(!changes_ids(0o102_745, false, true) && !changes_ids(0o100_755, true, true));
    }

    #[test]
    fn script_starts() {
        assert_eq!(parse_script_start(b"#!/usr/bin/env ruby\nputs 1"), Some("ruby".into()));
        assert_eq!(parse_script_start(b"#! /bin/sh -e\n"), Some("/bin/sh".into()));
        assert_eq!(parse_script_start(b"#!/usr/bin/env -S FOO=1 python3 -u\n"), Some("python3".into()));
        assert_eq!(parse_script_start(b"\x7fELF"), None);
    }

    #[test]
    fn loader_listings() {
        let text =
            "\tlinux-vdso.so.1 (0x7ff)\n\t/opt/a b/libx.so (0x7f1)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f2)\n\
            \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x7f3)\n";
        let expected =
            ["/opt/a b/libx.so", "/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse_listing(text.as_bytes()), expected);
    }

    #[test]
    fn obstacles() {
        let library = dynamic(EM_X86_64);
        let at = Path::new("/lib/libx.so");
        assert_eq!(preload_obstacle(&program(dynamic(EM_X86_64)), at, &library), None);
        let wrong = preload_obstacle(&program(dynamic(EM_AARCH64)), at, &library).unwrap();
        assert!(
            wrong.message.contains("is for aarch64") && wrong.message.contains("is for x86-64"),
            "{wrong}"
        );
        let fixed = ElfFacts { machine: EM_X86_64, bits: 64, ..ElfFacts::default() };
        assert!(preload_obstacle(&program(fixed), at, &library).unwrap().message.contains("static program"));
        let mut musl = dynamic(EM_X86_64);
        musl.interpreter = Some("/lib/ld-musl-x86_64.so.1".into());
        assert!(preload_obstacle(&program(musl), at, &library).unwrap().message.contains("musl"));
    }

    #[test]
    fn the_c_library_is_the_programs() {
        let shell = find("/bin/sh".as_ref()).unwrap();
        let path = c_library(&shell).unwrap();
        assert_eq!(Kind::from_file_name(&path.display().to_string()), Some(Kind::Glibc));
        assert_eq!(path, std::fs::canonicalize(&path).unwrap());
        let fixed = ElfFacts { interpreter: None, ..shell.elf.clone() };
        assert_eq!(c_library(&Program { elf: fixed, ..shell }), None, "a static one has none to load");
    }

    #[test]
    fn programs_are_found_as_execvp_does() {
        let find = |name: &str, path: &str| find_in(name.as_ref(), path.as_ref());
        let found = find("sh", "/nonexistent:/bin").unwrap();
        assert_eq!(found.path, PathBuf::from("/bin/sh"));
        let missing = find("no-such-program", "/bin").unwrap_err();
        assert_eq!(missing.exit_code, NOT_FOUND);
        assert_eq!(find("/etc/passwd", "").unwrap_err().exit_code, NOT_EXECUTABLE);
        assert_eq!(find("/", "").unwrap_err().exit_code, NOT_EXECUTABLE);
    }
}
