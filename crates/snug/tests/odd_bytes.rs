//! Bytes that are no text in arguments, paths and variables: programs see them as they do under env(1).

mod common;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{snug, snug_library, Scratch};

/// Writes what it is given into the file that OUT names: its arguments, and of two variables what is odd in them.
const TELLS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
  FILE *file = fopen(getenv("OUT"), "w");
  for (int i = 1; i < count; i++) fprintf(file, "%d: %s\n", i, words[i]);
  const char *odd = getenv("ODD"), *preload = getenv("LD_PRELOAD");
  preload = preload ? strstr(preload, "/odd") : NULL;
  fprintf(file, "ODD=%s\nLD_PRELOAD=%s\n", odd ? odd : "", preload ? preload : "");
  fclose(file);
  usleep(600000);
  return 0;
}
"#;

/// A folder and a file in it that are no text, beside names that are.
fn odd() -> &'static OsStr {
    OsStr::from_bytes(b"odd\xff\xc3")
}

/// The program, its arguments, and a variable.
type Case<'a> = (&'a OsStr, Vec<&'a OsStr>, Option<(&'a str, &'a OsStr)>);

/// What the program was told.
fn told(mut command: Command, out: &Path) -> (Option<i32>, Vec<u8>, String) {
    let _ = std::fs::remove_file(out);
    let output = command.env("OUT", out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), std::fs::read(out).unwrap_or_default(), said)
}

#[test]
fn programs_are_given_the_bytes_that_they_are_given_under_env() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = PathBuf::from(scratch.compile("tells", TELLS, &[]));
    let folder = scratch.path("x").with_file_name(odd());
    std::fs::create_dir(&folder).unwrap();
    let odd_program = folder.join("tells-oddly");
    std::fs::copy(&program, &odd_program).unwrap();
    let beside = PathBuf::from(scratch.compile("beside.so", "int beside;", &["-shared", "-fPIC"]));
    let odd_library = folder.join("beside.so");
    std::fs::copy(&beside, &odd_library).unwrap();
    let out = scratch.path("out");
    let path = OsString::from_iter([folder.as_os_str(), OsStr::new(":/usr/bin:/bin")]);
    let plain = program.as_os_str();
    let cases: [Case; 7] = [
        (plain, vec![odd()], None),
        (plain, vec![OsStr::new("--option"), odd(), odd()], None),
        (odd_program.as_os_str(), vec![odd()], None),
        (OsStr::new("tells-oddly"), vec![], Some(("PATH", &path))),
        (plain, vec![], Some(("ODD", odd()))),
        (plain, vec![], Some(("LD_PRELOAD", odd_library.as_os_str()))),
        (plain, vec![], Some(("SNUG", OsStr::from_bytes(b"verbose:0,odd\xff:1")))),
    ];
    let commands: [&[&str]; 6] = [
        &["run"],
        &["run", "--this-only"],
        &["check", "--for", "300ms"],
        &["leak", "--for", "400ms"],
        &["profile", "--for", "10s"],
        &["compare", "--with", "glibc", "--runs", "1"],
    ];
    for (name, words, variable) in &cases {
        let mut plain = Command::new("env");
        plain.arg(name).args(words).env_remove("LD_PRELOAD").env_remove("SNUG").envs(*variable);
        let (code, expected, _) = told(plain, &out);
        assert!(code == Some(0) && !expected.is_empty());
        for command in commands {
            let mut under = snug(command);
            under.arg("--").arg(name).args(words).env("SNUG_LIBRARY", &library).envs(*variable);
            under.current_dir(scratch.path("."));
            let (code, found, said) = told(under, &out);
            let case = format!("{command:?} {name:?} {words:?} {variable:?}: {said}");
            assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&expected), "{case}");
            assert_eq!((code, found), (Some(0), expected.clone()), "{case}");
        }
    }
}

/// The library's own path, and the settings that are extended.
#[test]
fn the_librarys_path_and_settings_are_bytes() {
    let library = snug_library();
    let scratch = Scratch::new();
    let folder = scratch.path("x").with_file_name(odd());
    std::fs::create_dir(&folder).unwrap();
    let copy = folder.join("libsnug.so");
    std::fs::copy(library, &copy).unwrap();
    let mut command = snug(&["run", "--", "sh", "-c", "printf %s \"$LD_PRELOAD\""]);
    let output = command.env("SNUG_LIBRARY", &copy).output().unwrap();
    assert_eq!(output.stdout, copy.as_os_str().as_bytes(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut command = snug(&["check", "--json", "--", "sleep", "5"]);
    command.env("LD_PRELOAD", &copy);
    let output = command.output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["processes"][0]["problems"].as_array().map(Vec::len), Some(0), "{json}");
}
