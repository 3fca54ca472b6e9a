//! Compiles snug's core from the sources in `core/`, under names that begin with `snug_`: one call of the C compiler, one of
//! objcopy, and nothing from the network.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-builtin-malloc",
    "-fno-lto",
    "-U_FORTIFY_SOURCE",
    "-r",
    "-nostdlib",
    "core/archive/prefixed.c",
    "core/archive/needed.c",
];

fn main() {
    println!("cargo:rerun-if-changed=core");
    println!("cargo:rerun-if-env-changed=OBJCOPY");
    let (os, pointer) = (variable("CARGO_CFG_TARGET_OS"), variable("CARGO_CFG_TARGET_POINTER_WIDTH"));
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    if os != "linux" || pointer != "64" || !["x86_64", "aarch64"].contains(&architecture.as_str()) {
        fail(&format!(
            "snug serves 64-bit Linux on x86-64 and aarch64, not {architecture} with {os}: \
             name it in [target.'cfg(target_os = \"linux\")'.dependencies], and its #[global_allocator] under the same cfg"
        ));
    }
    let object = PathBuf::from(variable("OUT_DIR")).join("snug.o");
    // Whatever the profile: an allocator without optimisation serves nobody.
    let compiler = cc::Build::new().opt_level(2).debug(true).warnings(false).get_compiler();
    run(compiler.to_command().args(FLAGS).arg("-o").arg(&object));
    run(Command::new(objcopy(compiler.path()))
        .args(["--wildcard", "--keep-global-symbol=snug_*"])
        .arg(&object));
    cc::Build::new().object(&object).compile("snug-prefixed");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// `$OBJCOPY`, for a target as the crate cc reads `$CC`, or the one that belongs to the compiler:
/// aarch64-linux-gnu-objcopy to aarch64-linux-gnu-gcc-12.
fn objcopy(compiler: &Path) -> PathBuf {
    let target = variable("TARGET");
    let of_target = [format!("OBJCOPY_{target}"), format!("OBJCOPY_{}", target.replace('-', "_"))];
    if let Some(set) =
        of_target.iter().map(String::as_str).chain(["TARGET_OBJCOPY", "OBJCOPY"]).find_map(env::var_os)
    {
        return set.into();
    }
    let name = compiler.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').trim_end_matches('-');
    match name.strip_suffix("gcc") {
        Some(prefix) if prefix.ends_with('-') && !prefix.starts_with("musl") => {
            compiler.with_file_name(format!("{prefix}objcopy"))
        }
        _ if name.contains("clang") && Command::new("llvm-objcopy").arg("--version").output().is_ok() => {
            "llvm-objcopy".into()
        }
        _ => "objcopy".into(),
    }
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!(
            "{command:?} ended with {status}; CC and OBJCOPY name other programs, and both must be for {}",
            variable("TARGET")
        )),
        Err(error) => fail(&format!(
            "{:?} can't be started: {error}; snug-alloc needs a C compiler and binutils (Debian: gcc libc6-dev binutils; \
             CC and OBJCOPY name others)",
            command.get_program()
        )),
    }
}

fn fail(why: &str) -> ! {
    eprintln!("snug-alloc: {why}");
    std::process::exit(1);
}
