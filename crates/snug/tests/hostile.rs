//! A process that wants to harm who looks at it, who is root perhaps: its arguments have no end, its address space and its list
//! of mappings are as large as the kernel lets them be, and its names hold what terminals obey. Each command answers within
//! limits of memory and of CPU time, and prints nothing that a terminal would obey.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::{run, snug, snug_library, Running, Scratch};
use snug_base::need;
use snug_base::testing::program;

/// What a command may take: bytes of addresses, and seconds of CPU time. Each takes a quarter of that at most.
const MEMORY_BYTES: u64 = 1 << 30;
const CPU_S: u64 = 15;

/// Its argument is a folder with a long path, in which it makes the files that it maps.
const HARMS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/prctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { FILES = 5000 };
static const size_t ARGUMENTS = (size_t)64 << 30, WIDE = (size_t)60 << 40;

static void *reserve(size_t bytes) {
  void *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) exit(3);
  return found;
}

// Says that the arguments and the variables take all of this.
static int set_arguments(char *start) {
  char text[4096], *word;
  unsigned long long fields[64] = {0};
  FILE *stat = fopen("/proc/self/stat", "r");
  if (!stat || !fgets(text, sizeof text, stat)) exit(4);
  int number = 3;
  for (word = strtok(strrchr(text, ')') + 2, " "); word; word = strtok(NULL, " ")) fields[number++] = strtoull(word, NULL, 10);
  struct prctl_mm_map map = {
    .start_code = fields[26], .end_code = fields[27], .start_stack = fields[28], .start_data = fields[45],
    .end_data = fields[46], .start_brk = fields[47], .brk = (unsigned long)sbrk(0), .exe_fd = -1,
    .arg_start = (unsigned long)start, .arg_end = (unsigned long)start + ARGUMENTS,
    .env_start = (unsigned long)start, .env_end = (unsigned long)start + ARGUMENTS,
  };
  return prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0);
}

int main(int count, char **words) {
  (void)count;
  char path[4096], *arguments = reserve(ARGUMENTS);
  ((volatile char *)reserve(WIDE))[WIDE / 2] = 1;
  for (int i = 0; i < FILES; i++) {
    snprintf(path, sizeof path, "%s/%d", words[1], i);
    int file = open(path, O_RDWR | O_CREAT, 0700);
    if (file < 0 || write(file, "x", 1) != 1) exit(5);
    if (mmap(NULL, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) == MAP_FAILED) exit(6);
    close(file);
  }
  strcpy(arguments, "\x1b]0;owned\a\xe2\x80\xae" "php\n");
  int set = set_arguments(arguments);
  prctl(PR_SET_NAME, "\x1b[2J\n\xe2\x80\xae" "evil");
  puts(set == 0 ? "ready" : "plain");
  fflush(stdout);
  for (;;) {
    free(calloc(1, 100000));
    usleep(10000);
  }
}
"#;

/// 3.5 kB of path.
fn long_folder(scratch: &Scratch) -> String {
    let folder = scratch.text(&vec!["a".repeat(220); 15].join("/"));
    std::fs::create_dir_all(&folder).unwrap();
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&folder, everybody.clone()).unwrap();
    std::fs::set_permissions(scratch.path("."), everybody).unwrap();
    folder
}

fn is_obeyed(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t' || ('\u{202a}'..='\u{202e}').contains(&c)
}

#[test]
fn who_means_harm_is_looked_at_to_an_end() {
    let prlimit = need!(program("prlimit"));
    let scratch = Scratch::new();
    let folder = long_folder(&scratch);
    // Called as an interpreter is, in whose memory more is looked for.
    let mut command = Command::new(scratch.compile("python3.12", HARMS, &[]));
    command.arg(folder).env("LD_PRELOAD", snug_library()).env("SNUG", "profile:1");
    if nix::unistd::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let process = Running::when_ready(&mut command);
    let pid = process.pid();
    if std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| !name.starts_with(b"\x1b")) {
        panic!("it has no such name");
    }
    let lines = [
        "check --json PID",
        "stats --where PID",
        "top --once PID",
        "exporter --once --sites 5 --pid PID",
        "profile PID --for 1s",
        "purge PID",
    ];
    for line in lines {
        let snug =
            snug(&line.split(' ').map(|word| if word == "PID" { &pid } else { word }).collect::<Vec<_>>());
        let mut limited = Command::new(&prlimit);
        limited.args([format!("--as={MEMORY_BYTES}"), format!("--cpu={CPU_S}")]).arg(snug.get_program());
        limited.args(snug.get_args()).env_remove("SNUG").env("CLICOLOR_FORCE", "1");
        let answer = run(&mut limited);
        // 3: it can't be looked at.
        assert!(matches!(answer.code, Some(0..=3)), "{line}: {answer:#.2000?}");
        let printed = answer.stdout + &answer.stderr;
        let plain = regex_lite::Regex::new("\u{1b}\\[[0-9;]*m").unwrap().replace_all(&printed, "");
        let obeyed: Vec<char> = plain.chars().filter(|c| is_obeyed(*c)).collect();
        assert!(obeyed.is_empty(), "{line}: {obeyed:?} in {printed:?}");
    }
}
