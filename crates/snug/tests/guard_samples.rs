//! `SNUG=guard_samples:1` on a mistake in a C extension of Ruby and Python: the lines of the script that led to it.

mod common;

use std::process::Command;

use common::{snug_library, Scratch};
use snug_base::need;
use snug_base::testing::program;

/// An extension with mistakes in it, for both: `put` may write anywhere, and `give` keeps the pointer. Of Ruby's headers
/// it needs nothing.
const EXTENSION: &str = r#"
#include <malloc.h>
#include <stdlib.h>
typedef unsigned long value;
extern value rb_define_module(const char *) __attribute__((weak));
extern void rb_define_module_function(value, const char *, void *, int) __attribute__((weak));
extern long rb_num2long(value) __attribute__((weak));
extern value rb_uint2inum(unsigned long) __attribute__((weak));
static char *kept;
unsigned long take(unsigned long bytes) { free(kept); kept = malloc(bytes); return malloc_usable_size(kept); }
long give(void) { free(kept); __asm__ volatile(""); return 0; }
long put(long at) { ((volatile char *)kept)[at] = 1; return 0; }
static value ruby_take(value self, value bytes) { return rb_uint2inum(take((unsigned long)rb_num2long(bytes))); }
static value ruby_give(value self) { return rb_uint2inum((unsigned long)give()); }
static value ruby_put(value self, value at) { return rb_uint2inum((unsigned long)put(rb_num2long(at))); }
void Init_planted(void) {
  value module = rb_define_module("Planted");
  rb_define_module_function(module, "take", ruby_take, 1);
  rb_define_module_function(module, "give", ruby_give, 0);
  rb_define_module_function(module, "put", ruby_put, 1);
}
"#;

/// A block of 40 bytes has room for 48, unless it is guarded.
const RUBY: &str = r#"
require "./planted"
def copy_name = Planted.take(40)
def find_one
  5_000_000.times { return if copy_name == 40 }
  abort "no guarded block"
end
def drop = Planted.give
def write_beyond = Planted.put(48)
def write_first = Planted.put(0)
find_one
case ARGV[0]
when "beyond" then write_beyond
when "after" then drop; write_first
when "twice" then drop; drop
end
"#;

const PYTHON: &str = r#"
import ctypes, sys
planted = ctypes.PyDLL("./planted.so")
def copy_name(): return planted.take(ctypes.c_ulong(40))
def find_one():
    for _ in range(5_000_000):
        if copy_name() == 40: return
    sys.exit("no guarded block")
def drop(): planted.give()
def write_beyond(): planted.put(ctypes.c_long(48))
def write_first(): planted.put(ctypes.c_long(0))
find_one()
if sys.argv[1] == "beyond": write_beyond()
elif sys.argv[1] == "after": drop(); write_first()
elif sys.argv[1] == "twice": drop(); drop()
"#;

/// Runs the script with the extension beside it; what it wrote to stderr.
fn make_mistake(scratch: &Scratch, interpreter: &str, script: &str, mistake: &str, library: &str) -> String {
    let output = Command::new(interpreter)
        .args([script, mistake])
        .current_dir(scratch.path("."))
        .env("LD_PRELOAD", library)
        .env("SNUG", "profile:4096,guard_samples:4096")
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The words of each part in their order: the message, where the block was allocated, freed and misused.
#[track_caller]
fn check_order(said: &str, words: &[&str]) {
    let mut rest = said;
    for word in words {
        let at = rest.find(word).unwrap_or_else(|| panic!("no {word:?} after the others in:\n{said}"));
        rest = &rest[at + word.len()..];
    }
}

fn check_mistakes(interpreter: &str, script: &str, source: &str) {
    let library = snug_library();
    need!(program(interpreter));
    let scratch = Scratch::new();
    scratch.compile("planted.so", EXTENSION, &["-shared", "-fPIC", "-O1", "-Wno-unused-parameter"]);
    std::fs::write(scratch.path(script), source).unwrap();
    let line = |function: &str| format!("snug:   {function} (");
    let line_of = |text: &str| source.lines().position(|line| line.contains(text)).unwrap() + 1;
    let allocated = format!("{script}:{})", line_of("take("));
    let beyond = make_mistake(&scratch, interpreter, script, "beyond", &library);
    let message = "snug: fatal: write beyond the end of a block: ";
    check_order(&beyond, &[message, " allocated by this thread:", "take+0x", &line("copy_name"), &allocated]);
    check_order(&beyond, &["and this is the access:", "put+0x", &line("write_beyond"), script]);
    let after = make_mistake(&scratch, interpreter, script, "after", &library);
    let message = "snug: fatal: write after free: ";
    check_order(&after, &[message, " allocated by this thread:", &line("copy_name"), &allocated]);
    check_order(&after, &[" freed by this thread:", "give+0x", &line("drop"), "and this is the access:"]);
    check_order(&after, &["and this is the access:", &line("write_first"), script]);
    let twice = make_mistake(&scratch, interpreter, script, "twice", &library);
    let message = "snug: fatal: double free: ";
    check_order(&twice, &[message, &line("copy_name"), " freed by this thread:", &line("drop")]);
    check_order(&twice, &["and this is the call that shows it:", "give+0x", &line("drop")]);
}

#[test]
fn ruby_lines_are_named() {
    check_mistakes("ruby", "over.rb", RUBY);
}

#[test]
fn python_lines_are_named() {
    check_mistakes("python3", "over.py", PYTHON);
}
