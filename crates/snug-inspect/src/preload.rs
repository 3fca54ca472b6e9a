//! Problems of LD_PRELOAD: libraries that it names and that are not loaded, or have no effect. Pure, as `judge`.

use crate::facts::{Facts, Image, PreloadFile};
use crate::report::{AllocatorUsed, How, Problem, Severity};
use snug_base::elf::ElfFacts;
use snug_base::file::file_name;

/// What went wrong with LD_PRELOAD.
pub fn problems(
    facts: &Facts,
    preloaded: &[usize],
    used: Option<&AllocatorUsed>,
    problems: &mut Vec<Problem>,
) {
    for path in facts.preload_paths() {
        let name = file_name(path);
        let mapped = facts.objects.iter().any(|object| object.path == path || object.answers_to(name))
            || facts.through_link(path).is_some();
        if !mapped {
            problems.push(ignored_preload(facts, path));
        }
    }
    let allocators: Vec<&Image> = preloaded
        .iter()
        .map(|index| &facts.objects[*index])
        .filter(|object| object.is_allocator_library())
        .collect();
    if let [first, others @ ..] = allocators.as_slice() {
        if !others.is_empty() {
            let names: Vec<&str> = others.iter().map(|object| object.path.as_str()).collect();
            problems.push(Problem::new(
                "conflicting-preloads",
                Severity::Error,
                format!(
                    "several allocators are preloaded: {} is used, {} only takes memory",
                    first.path,
                    names.join(", ")
                ),
                "keep one of them in LD_PRELOAD",
            ));
        }
        if used.is_some_and(|used| used.how == How::LinkedStatically) {
            problems.push(Problem::new(
                "preload-without-effect",
                Severity::Error,
                format!(
                    "{} is preloaded, but an allocator compiled into the program comes first",
                    first.path
                ),
                "build the program without its own allocator",
            ));
        }
    }
}

/// Why an entry of LD_PRELOAD is not mapped.
fn ignored_preload(facts: &Facts, path: &str) -> Problem {
    let file = facts.preload_files.iter().find(|(other, _)| other == path).map(|(_, file)| file);
    let program = facts.executable.elf.as_deref();
    let ignored = |id, why: String, fix: String| {
        Problem::new(
            id,
            Severity::Error,
            format!("LD_PRELOAD names {path}, but it is not loaded: {why}"),
            fix,
        )
    };
    if program.is_some_and(ElfFacts::is_static_program) {
        return ignored(
            "static-program",
            "the program is static, so no library can be preloaded".into(),
            "link the program dynamically, or link the allocator into it".into(),
        );
    }
    if facts.setuid {
        return ignored(
            "setuid",
            "the program is setuid or setgid or has capabilities, so the loader ignores it".into(),
            "start it as the user it switches to, or list the library in /etc/ld.so.preload".into(),
        );
    }
    match (file, program) {
        (Some(PreloadFile::Missing), _) => ignored(
            "preload-missing",
            "there is no such file".into(),
            "correct the path, or install the library".into(),
        ),
        (Some(PreloadFile::NotElf), _) => ignored(
            "preload-not-a-library",
            "it is not an ELF library".into(),
            "name a .so file for this system".into(),
        ),
        (Some(PreloadFile::Elf(library)), Some(program))
            if (library.machine, library.bits) != (program.machine, program.bits) =>
        {
            ignored(
                "wrong-architecture",
                format!("it is for {}, the program for {}", library.machine_name(), program.machine_name()),
                format!("use the library for {}", program.machine_name()),
            )
        }
        (Some(PreloadFile::Elf(library)), Some(program))
            if uses_musl(program) && library.needed.iter().any(|name| name == "libc.so.6") =>
        {
            ignored(
                "musl",
                "the program runs on musl and the library was built for glibc".into(),
                "use a build of the library for musl; libsnug.so serves both".into(),
            )
        }
        _ => ignored(
            "preload-ignored",
            "the loader refused it, or the variable was set after the start".into(),
            format!("run LD_PRELOAD={path} {} to see the loader's message", facts.executable.path),
        ),
    }
}

fn uses_musl(elf: &ElfFacts) -> bool {
    let by_interpreter = elf.interpreter.as_ref().is_some_and(|path| path.contains("ld-musl"));
    by_interpreter || elf.needed.iter().any(|name| name.starts_with("libc.musl"))
}
