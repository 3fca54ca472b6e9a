//! Profiles in jemalloc's format, read by the real jeprof: those that the library writes, and those of `snug profile`.

mod common;

use std::path::Path;
use std::process::Command;

use common::{run, snug, snug_library, Scratch};
use snug_base::need;
use snug_base::testing::program;

/// Keeps 40 MB of one function and frees 20 MB of another, writes a profile under the name that it is given, or none.
const PROGRAM: &str = r#"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
static void *volatile kept[20000];
__attribute__((noinline)) void *planted(void) { char *p = malloc(2000); memset(p, 1, 2000); return p; }
__attribute__((noinline)) void dropped(void) {
  for (int i = 0; i < 20000; i++) { void *volatile p = malloc(1000); free(p); }
}
int main(int count, char **arguments) {
  for (int i = 0; i < 20000; i++) kept[i] = planted();
  dropped();
  return count > 1 ? mallctl("prof.dump", NULL, NULL, &arguments[1], sizeof arguments[1]) : 0;
}
"#;

const PYTHON: &str = "
def planted():
    return bytearray(50000)

kept = [planted() for _ in range(1000)]
";

/// What jeprof says of a function: its own megabytes. None: the function is in no line.
fn megabytes_of(function: &str, arguments: &[&Path], sort: &str) -> Option<f64> {
    let output = Command::new("jeprof").args(["--text", sort]).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("Total: "), "{output:?}");
    let line = text.lines().find(|line| line.split_whitespace().skip(5).any(|word| word == function))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn jeprof_reads_what_the_library_writes() {
    let library = snug_library();
    need!(program("jeprof"));
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &["-g"]);
    let file = scratch.path("asked.heap");
    let status = Command::new(&program)
        .arg(&file)
        .env("LD_PRELOAD", &library)
        .env_remove("SNUG")
        .env(
            "MALLOC_CONF",
            format!("prof:true,lg_prof_sample:12,prof_final:true,prof_prefix:{}", scratch.text("end")),
        )
        .status();
    assert!(status.unwrap().success());
    let mut files = vec![file];
    let names = std::fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path());
    files.extend(names.filter(|path| path.to_string_lossy().ends_with(".f.heap")));
    assert_eq!(files.len(), 2, "one that was asked for, and the final one: {files:?}");
    for file in &files {
        let arguments = [Path::new(&program), file];
        let planted = megabytes_of("planted", &arguments, "--inuse_space").unwrap();
        assert!((24.0..54.0).contains(&planted), "38.1 MB (2^20) were planted: {planted}");
        assert!(megabytes_of("dropped", &arguments, "--inuse_space").is_none_or(|dropped| dropped < 0.2));
        let dropped = megabytes_of("dropped", &arguments, "--alloc_space").unwrap();
        assert!((8.0..32.0).contains(&dropped), "19.1 MB were dropped: {dropped}");
    }
}

#[test]
fn jeprof_reads_what_the_tool_writes() {
    let library = snug_library();
    need!(program("jeprof"));
    let scratch = Scratch::new();
    let program = scratch.compile("program", PROGRAM, &[]);
    let file = scratch.path("tool.heap");
    let path = scratch.text("tool.heap");
    let profile = |view: &str, program: &[&str]| {
        let command = ["profile", "--heap-v2", &path, "--mean-bytes", "4096", "--view", view, "--json", "--"];
        run(snug(&command).args(program).env("SNUG_LIBRARY", &library)).expect_code(0).json()
    };
    let json = profile("live", &[&program]);
    let planted = megabytes_of("planted", &[&file], "--inuse_space").unwrap();
    let bytes = json["sites"][0]["bytes"].as_f64().unwrap();
    assert!((planted - bytes / 1048576.0).abs() < 0.11, "{planted} of {json}");
    // At its end Python frees what modules hold.
    let script = scratch.path("planted.py");
    std::fs::write(&script, PYTHON).unwrap();
    let json = profile("allocated", &["/usr/bin/python3", &script.to_string_lossy()]);
    let planted = megabytes_of("planted", &[&file], "--inuse_space").unwrap();
    assert!((25.0..70.0).contains(&planted), "47.7 MB were planted: {planted} of {json}");
}
