//! `snug advise` on real programs.

mod common;

use common::{run, snug, snug_library, Answer, Scratch, SLEEPER};

/// Threads that each allocate and free alone keep an arena each under glibc, and leave holes in it.
const ARENAS: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { THREADS = 8, BLOCKS = 6000 };
static pthread_barrier_t barrier;
static void *work(void *unused) {
  static _Thread_local char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(900), 1, 900);
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < BLOCKS; i++) if (i % 16 != 0) free(blocks[i]);
  /* Churn in which no more than this is ever live. */
  for (int i = 0; i < 1500; i++) { free(memset(malloc(900), 1, 900)); usleep(2000); }
  pthread_barrier_wait(&barrier);
  return unused;
}
int main(void) {
  pthread_t threads[THREADS];
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  return 0;
}
"#;

/// All memory is mapped by the program itself: for itself alone, or, with an argument, shared with its children.
const MAPPER: &str = r#"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **arguments) {
  size_t size_bytes = 64u << 20;
  int kind = count > 1 ? MAP_SHARED : MAP_PRIVATE;
  char *memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
  memset(memory, 1, size_bytes);
  usleep(1500000);
  return 0;
}
"#;

fn advise(library: &str, scratch: &Scratch, arguments: &[&str]) -> Answer {
    let out = scratch.text("out");
    let mut all = vec!["advise", "--out", &out, "--with", "glibc,snug"];
    all.extend(arguments);
    run(snug(&all).env("SNUG_LIBRARY", library))
}

#[test]
fn a_program_that_another_allocator_helps_gets_lines_to_paste() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("arenas", ARENAS, &["-pthread", "-O1"]);
    let answer = advise(&library, &scratch, &["--runs", "3", "--", &program]).expect_code(0);
    assert!(answer.stdout.contains("Use snug: it saves"), "{answer:#?}");
    assert!(answer.stdout.contains("were resident, in the mean of "), "{answer:#?}");
    assert!(answer.stdout.contains(&format!("Environment=LD_PRELOAD={library}")), "{answer:#?}");
    assert!(answer.stdout.contains("snug check --expect snug"), "{answer:#?}");
    assert!(scratch.path("out/compare.json").exists(), "the comparison is there to be looked at");
}

#[test]
fn a_program_that_none_helps_is_told_why() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("mapper", MAPPER, &[]);
    let reasons = [
        (vec![], "most of its memory is mapped by the program itself"),
        (vec!["shared"], "most of its memory is shared memory that it maps itself"),
    ];
    for (arguments, reason) in reasons {
        // On a busy machine two runs may differ too much to tell; more will do then, as it says itself.
        let ask = |runs: &str| {
            let options = ["--runs", runs, "--force", "--", &program];
            advise(&library, &scratch, &[&options[..], &arguments].concat()).expect_code(0)
        };
        let mut answers = ["2", "3", "5"].into_iter().map(ask);
        let answer = answers.find(|answer| !answer.stdout.contains("\nUnknown: the runs differ"));
        let answer = answer.expect("five runs tell");
        assert!(answer.stdout.contains("Changing the allocator will not help"), "{answer:#?}");
        assert!(answer.stdout.contains(reason), "{reason}: {answer:#?}");
        assert!(!answer.stdout.contains("Dockerfile"), "{answer:#?}");
    }
}

#[test]
fn one_run_is_not_enough() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("sleeper", SLEEPER, &[]);
    advise(&library, &scratch, &["--runs", "1", "--", &program, "1.5"])
        .expect_code(0)
        .expect_stdout("use --runs 3");
}

#[test]
fn a_format_on_stdout_is_all_that_is_there() {
    let library = snug_library();
    let scratch = Scratch::new();
    let program = scratch.compile("sleeper", SLEEPER, &[]);
    let answer = advise(&library, &scratch, &["--runs", "1", "--json", "-", "--", &program, "0.5"])
        .expect_code(0)
        .expect_stderr("use --runs 3");
    assert_eq!(answer.json()["format"], "snug-compare");
}

#[test]
fn options_of_compare_work() {
    let library = snug_library();
    let scratch = Scratch::new();
    let call =
        |arguments: &[&str]| run(snug(&[&["advise"], arguments].concat()).env("SNUG_LIBRARY", &library));
    call(&["--list-allocators"]).expect_code(0).expect_stdout("jemalloc");
    let program = scratch.compile("sleeper", SLEEPER, &[]);
    let out = scratch.text("out");
    let condition = |text| {
        let options = ["--runs", "1", "--with", "glibc,snug", "--out", &out, "--force", "--fail-if", text];
        call(&[&options[..], &["--", &program, "1.5"]].concat())
    };
    let failed = condition("snug.rss_mean > 1 kB").expect_code(4).expect_stderr("holds");
    assert!(failed.stdout.contains("use --runs 3"), "the advice comes all the same: {failed:#?}");
    condition("snug.rss_mean < 1 kB").expect_code(0).expect_stderr("does not hold");
    condition("snug.rss_mean > 1 ms").expect_code(2);
}
