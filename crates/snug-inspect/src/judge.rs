//! Decides from the facts about a process which allocator serves its malloc and what is wrong. Pure: `inspector` has
//! looked everything up before.

use std::collections::BTreeMap;

use crate::facts::{Facts, Image};
use crate::kinds::Kind;
use crate::options::{self, Understood};
use crate::report::{AllocatorUsed, How, Problem, ProcessReport, SettingsSource, Severity};
use crate::{linkage, preload};
use object::elf::EM_AARCH64;
use snug_heap::read_error::ReadError;
use snug_process::huge_pages::Circumstances;

/// Judges one process.
pub fn judge(facts: &Facts) -> ProcessReport {
    let preloaded = facts.preloaded();
    let allocator = allocator_used(facts, &preloaded);
    let mut problems = Vec::new();
    preload::problems(facts, &preloaded, allocator.as_ref(), &mut problems);
    linkage_problems(facts, &preloaded, allocator.as_ref(), &mut problems);
    image_problems(facts, allocator.as_ref(), &mut problems);
    environment_problems(facts, allocator.as_ref(), &mut problems);
    unknown_environment(facts, allocator.as_ref(), &mut problems);
    let understood = understood(facts, allocator.as_ref());
    ignored_settings(facts, &understood, &mut problems);
    missing_libraries(facts, &mut problems);
    problems.extend(facts.notes.iter().cloned());
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    let (settings, settings_source) = settings(facts, allocator.as_ref());
    // Programs that write their title over the environment lose it: then nothing is said of where settings come from.
    let shows_preload = facts.variable("LD_PRELOAD").is_some() || !facts.system_preload.is_empty();
    let is_whole = shows_preload || allocator.as_ref().is_some_and(|used| used.how != How::Preloaded);
    // A copy of snug for calls of the program's own has other defaults, and reads less.
    let is_snug = allocator.as_ref().is_some_and(|used| used.kind == Kind::Snug);
    let origins = match &facts.counters {
        Some(_) if is_snug && is_whole && facts.environment.is_some() => {
            options::origins(&settings, &understood)
        }
        _ => BTreeMap::new(),
    };
    ProcessReport {
        pid: facts.pid,
        parent: facts.parent,
        depth: 0,
        command: facts.command.clone(),
        arguments: facts.arguments.clone(),
        place: facts.place.clone(),
        executable: facts.executable.path.clone(),
        linkage: linkage::linkage(facts),
        settings_from: origins,
        malloc_conf: understood.conf_keys,
        allocator,
        settings,
        settings_source,
        counters: facts.counters.clone(),
        is_forked: facts.is_forked,
        hooks: facts.hooks.clone(),
        problems,
    }
}

/// Finds who defines malloc first.
fn allocator_used(facts: &Facts, preloaded: &[usize]) -> Option<AllocatorUsed> {
    let executable = &facts.executable;
    let elf = executable.elf.as_ref()?;
    let of = |image: &Image, kind: Kind, how: How| {
        let own_version = facts.counters.as_ref().filter(|_| kind == Kind::Snug);
        let version = own_version.map(|counters| counters.snug_version.clone()).or(image.version.clone());
        AllocatorUsed { kind, version, how, file: image.path.clone() }
    };
    if elf.is_static_program() || executable.exports_malloc() {
        let is_beside = || facts.objects.iter().any(|object| object.kind() == Some(Kind::Snug));
        let kind = match executable.kind() {
            Some(kind) if !kind.is_c_library() => kind,
            // Stripped: its page of counters tells, if it is not that of a library.
            _ if facts.counters.is_some() && !is_beside() => Kind::Snug,
            kind => kind.unwrap_or(Kind::Other),
        };
        return Some(of(executable, kind, How::LinkedStatically));
    }
    let order = facts.needed_order(preloaded);
    let first = order.into_iter().find(|index| facts.objects[*index].exports_malloc())?;
    let object = &facts.objects[first];
    let kind = object.kind().unwrap_or(Kind::Other);
    let how = match kind {
        kind if kind.is_c_library() => How::CLibrary,
        _ if preloaded.contains(&first) => How::Preloaded,
        _ => How::LinkedDynamically,
    };
    Some(of(object, kind, how))
}

/// What is wrong with how allocators are linked.
fn linkage_problems(
    facts: &Facts,
    preloaded: &[usize],
    used: Option<&AllocatorUsed>,
    problems: &mut Vec<Problem>,
) {
    let Some(used) = used else { return };
    let needed = facts.needed_order(preloaded);
    for (index, object) in facts.objects.iter().enumerate() {
        let Some(kind) = object.kind().filter(|kind| !kind.is_c_library() && *kind != used.kind) else {
            continue;
        };
        if preloaded.contains(&index) || object.path == used.file {
            continue;
        }
        if needed.contains(&index) {
            let severity = if used.how == How::Preloaded { Severity::Note } else { Severity::Error };
            let (message, fix) = if used.how == How::Preloaded {
                (
                    format!(
                        "the program is linked to {}, which is loaded but replaced by {}",
                        object.path,
                        used.kind.name()
                    ),
                    "nothing to do; a build without it would save a little memory".to_string(),
                )
            } else {
                (
                    format!(
                        "half-linked: the program is linked to {} ({}), but malloc comes from {}",
                        object.path,
                        kind.name(),
                        used.file
                    ),
                    format!(
                        "preload it (LD_PRELOAD={}), or link it to the program itself, first",
                        object.path
                    ),
                )
            };
            problems.push(Problem::new("half-linked", severity, message, fix));
        } else {
            problems.push(Problem::new(
                "loaded-later",
                Severity::Note,
                format!("{} was loaded while the program ran; it does not serve malloc", object.path),
                "nothing to do, unless it was meant to be preloaded",
            ));
        }
    }
}

/// What is wrong with the program's own file, and with files that have changed.
fn image_problems(facts: &Facts, used: Option<&AllocatorUsed>, problems: &mut Vec<Problem>) {
    let Some(used) = used else { return };
    let executable = &facts.executable;
    let compiled_in = executable.kind().filter(|kind| !kind.is_c_library() && *kind != used.kind);
    if let Some(kind) = compiled_in.filter(|_| used.how != How::LinkedStatically) {
        let (severity, fix) = match kind {
            Kind::Snug => (Severity::Note, "nothing to do; snug run puts the rest under snug, too"),
            _ => (Severity::Warning, "to replace it too, build the program without it"),
        };
        let message = format!(
            "the program has {} compiled in for calls of its own; only the rest goes to {}",
            kind.name(),
            used.kind.name()
        );
        problems.push(Problem::new("compiled-in", severity, message, fix));
    }
    if used.kind == Kind::Other && used.how == How::LinkedStatically {
        problems.push(Problem::new(
            "static-program",
            Severity::Note,
            "the program is static and stripped: its allocator can't be identified, and none can be preloaded"
                .into(),
            "link it dynamically, or link the allocator into it",
        ));
    }
    let images = facts.objects.iter().chain(std::iter::once(executable));
    if images.into_iter().any(|image| image.path == used.file && image.deleted) {
        problems.push(Problem::new(
            "replaced-library",
            Severity::Warning,
            format!(
                "{} was deleted or replaced since the process started: it still runs the old one",
                used.file
            ),
            "restart the process",
        ));
    }
}

/// Libraries without which the loader ends the program before it starts.
fn missing_libraries(facts: &Facts, problems: &mut Vec<Problem>) {
    for (who, needed) in &facts.missing {
        problems.push(Problem::new(
            "missing-library",
            Severity::Error,
            format!("{who} needs {needed}, which is missing: the program will not start"),
            format!("install the package that brings {needed}"),
        ));
    }
}

/// Where nothing is known of the environment that the process was started with.
fn unknown_environment(facts: &Facts, used: Option<&AllocatorUsed>, problems: &mut Vec<Problem>) {
    if facts.environment.is_some() || used.is_none_or(|used| used.kind == Kind::Snug) {
        return;
    }
    problems.push(Problem::new(
        "environment-unknown",
        Severity::Note,
        "the process has written over its environment, as those do that give themselves a title: whether LD_PRELOAD or \
         settings were in it can't be seen"
            .into(),
        "look at what starts it: its unit, its container, or a process above it",
    ));
}

/// What is wrong with variables and with the system.
fn environment_problems(facts: &Facts, used: Option<&AllocatorUsed>, problems: &mut Vec<Problem>) {
    let Some(used) = used else { return };
    for (name, _) in facts.environment.iter().flatten() {
        let owners: Vec<Kind> =
            crate::kinds::ROWS.iter().map(|row| row.kind).filter(|kind| kind.reads_variable(name)).collect();
        if name != "GLIBC_TUNABLES" && !owners.is_empty() && !owners.contains(&used.kind) {
            problems.push(Problem::new(
                "setting-without-effect",
                Severity::Warning,
                format!(
                    "{name} is set, but it is a setting of {} and {} is in use",
                    owners[0].name(),
                    used.kind.name()
                ),
                format!("remove {name}, or load {}", owners[0].name()),
            ));
        }
    }
    if used.kind == Kind::Musl {
        problems.push(Problem::new(
            "musl",
            Severity::Note,
            "the program runs on musl, whose malloc is small but slow with threads".into(),
            "preload snug, whose library serves musl, too",
        ));
    }
    problems.extend(huge_pages(facts, used));
    for warning in facts.counters.iter().flat_map(|counters| counters.warnings.split("; ")) {
        if !warning.is_empty() {
            problems.push(Problem::new(
                "snug-warning",
                Severity::Warning,
                format!("snug warns: {warning}"),
                "see its message",
            ));
        }
    }
    if let (Kind::Snug, Some(error)) = (used.kind, &facts.counters_error) {
        problems.push(Problem::new(
            "counters-unreadable",
            Severity::Note,
            format!("snug's settings and counters can't be read: {error}"),
            match *error == ReadError::Refused {
                true => "run snug check as the same user or as root; where kernel.yama.ptrace_scope is 1, only root may look",
                false => "try again once it is running; if that doesn't help, its libsnug.so and this tool \
                    are different versions",
            },
        ));
    }
}

/// That huge pages hold too much of it, unless its snug opted out.
fn huge_pages(facts: &Facts, used: &AllocatorUsed) -> Option<Problem> {
    let opted_out = facts.counters.as_ref().is_some_and(|counters| !counters.settings.contains("thp:1"));
    let is_glibc = used.kind == Kind::Glibc;
    let circumstances = Circumstances {
        setting: &facts.transparent_huge_pages,
        allocator: used.kind.name(),
        glibc_version: is_glibc.then_some(used.version.as_deref().unwrap_or_default()),
        environment: facts.environment.as_deref().filter(|_| !facts.setuid).unwrap_or_default(),
        is_arm: facts.executable.elf.as_ref().is_some_and(|elf| elf.machine == EM_AARCH64),
        held: facts.rollup,
    };
    let found = circumstances.judge().filter(|_| !opted_out)?;
    let id = if found.by_system { "huge-pages-always" } else { "huge-pages-glibc" };
    let severity = if found.is_dear { Severity::Warning } else { Severity::Note };
    Some(Problem::new(id, severity, found.message, found.fix))
}

/// What snug makes of the environment, where it is in use.
fn understood(facts: &Facts, used: Option<&AllocatorUsed>) -> Understood {
    match (used, &facts.environment) {
        (Some(used), Some(environment)) if used.kind == Kind::Snug => {
            // It trusts the environment as little as the loader does.
            let environment = if facts.setuid { &[] } else { environment.as_slice() };
            options::understand(environment, facts.malloc_conf_link.as_deref())
        }
        _ => Understood::default(),
    }
}

/// Parts of SNUG that the library could make nothing of.
fn ignored_settings(facts: &Facts, understood: &Understood, problems: &mut Vec<Problem>) {
    let settings = facts.counters.as_ref().map_or("", |counters| &counters.settings);
    let known = |name: &str| settings.split(',').any(|pair| pair.split(':').next() == Some(name));
    for ignored in &understood.ignored {
        // A library of another version may have options that this tool does not know.
        let name = ignored.text.split(':').next().unwrap_or_default();
        if options::find(name).is_none() && known(name) {
            continue;
        }
        problems.push(Problem::new(
            "setting-ignored",
            Severity::Warning,
            format!("SNUG holds {}, which is ignored: {}", ignored.text, ignored.why),
            ignored.fix.clone(),
        ));
    }
}

/// The settings in effect.
fn settings(facts: &Facts, used: Option<&AllocatorUsed>) -> (BTreeMap<String, String>, SettingsSource) {
    if let Some(counters) = &facts.counters {
        let pairs = counters.settings.split(',').filter_map(|pair| pair.split_once(':'));
        let settings = pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        return (settings, SettingsSource::Allocator);
    }
    match (used, &facts.environment) {
        (Some(used), Some(environment)) => {
            let own = environment.iter().filter(|(name, _)| used.kind.reads_variable(name));
            (own.cloned().collect(), SettingsSource::Environment)
        }
        _ => (BTreeMap::new(), SettingsSource::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::PreloadFile;
    use snug_base::elf::ElfFacts;
    use snug_heap::counters::Counters;
    use std::rc::Rc;

    use object::elf::{EM_AARCH64, EM_X86_64};

    fn elf(needed: &[&str], exported: &[&str]) -> Rc<ElfFacts> {
        Rc::new(ElfFacts {
            machine: EM_X86_64,
            bits: 64,
            dynamic: true,
            needed: needed.iter().map(|name| name.to_string()).collect(),
            exported: exported.iter().map(|name| (name.to_string(), 1)).collect(),
            ..ElfFacts::default()
        })
    }

    fn image(path: &str, base: u64, elf: Rc<ElfFacts>) -> Image {
        Image { path: path.into(), base, elf: Some(elf), ..Image::default() }
    }

    fn libc() -> Image {
        image("/lib/libc.so.6", 0x1000, elf(&[], &["malloc", "gnu_get_libc_version"]))
    }

    fn jemalloc(base: u64) -> Image {
        image("/lib/libjemalloc.so.2", base, elf(&["libc.so.6"], &["malloc", "mallctl"]))
    }

    /// A program that needs `needed`, with these objects mapped and this LD_PRELOAD.
    fn facts(needed: &[&str], objects: Vec<Image>, preload: &str) -> Facts {
        Facts {
            pid: 1,
            executable: image("/bin/app", 0x10, elf(needed, &[])),
            objects,
            environment: Some(vec![("LD_PRELOAD".into(), preload.into())]),
            transparent_huge_pages: "madvise".into(),
            ..Facts::default()
        }
    }

    fn ids(report: &ProcessReport) -> Vec<&'static str> {
        report.problems.iter().map(|problem| problem.id).collect()
    }

    #[test]
    fn plain_programs_use_the_c_library() {
        let report = judge(&facts(&["libc.so.6"], vec![libc()], ""));
        let used = report.allocator.unwrap();
        assert_eq!((used.kind, used.how), (Kind::Glibc, How::CLibrary));
        assert!(report.problems.is_empty());
    }

    #[test]
    fn preloaded_allocators_come_before_the_c_library() {
        let facts = facts(&["libc.so.6"], vec![libc(), jemalloc(0x9000)], "/lib/libjemalloc.so.2");
        let report = judge(&facts);
        let used = report.allocator.as_ref().unwrap();
        assert_eq!((used.kind, used.how), (Kind::Jemalloc, How::Preloaded));
        assert!(ids(&report).is_empty(), "{:?}", report.problems);
    }

    #[test]
    fn a_preload_is_seen_even_if_the_environment_was_overwritten() {
        let mut facts = facts(&["libc.so.6"], vec![libc(), jemalloc(0x9000)], "");
        facts.environment = Some(Vec::new());
        assert!(judge(&facts).uses(Kind::Jemalloc));
        // Mapped below the C library: it was opened later.
        facts.objects[1].base = 0x500;
        let report = judge(&facts);
        assert!(report.uses(Kind::Glibc));
        assert_eq!(ids(&report), ["loaded-later"]);
    }

    #[test]
    fn of_an_environment_that_was_overwritten_nothing_is_concluded() {
        let mut facts = facts(&["libc.so.6"], vec![libc()], "");
        let is_told =
            |facts: &Facts| judge(facts).problems.iter().any(|problem| problem.id == "environment-unknown");
        assert!(!is_told(&facts));
        facts.environment = None;
        assert!(is_told(&facts));
    }

    /// musl's C library is the loader, which the kernel maps: all else lies below it.
    #[test]
    fn a_preload_is_seen_under_musl_even_if_the_environment_was_overwritten() {
        let musl = || image("/lib/ld-musl-x86_64.so.1", 0x9000, elf(&[], &["malloc"]));
        let other = || image("/lib/libz.so.1", 0x3000, elf(&["ld-musl-x86_64.so.1"], &[]));
        let needed = ["libz.so.1", "ld-musl-x86_64.so.1"];
        let preloaded = facts(&needed, vec![jemalloc(0x4000), other(), musl()], "");
        assert_eq!(judge(&preloaded).allocator.unwrap().how, How::Preloaded);
        let opened_late = facts(&needed, vec![other(), jemalloc(0x2000), musl()], "");
        assert_eq!(judge(&opened_late).allocator.unwrap().kind, Kind::Musl);
        let alone = facts(&needed[1..], vec![jemalloc(0x4000), musl()], "");
        assert_eq!(judge(&alone).allocator.unwrap().how, How::Preloaded);
    }

    #[test]
    fn half_linked_rubies_are_found() {
        // ruby needs libruby and libc; libruby needs jemalloc: libc comes first.
        let libruby = image("/lib/libruby.so.3", 0x2000, elf(&["libjemalloc.so.2", "libc.so.6"], &[]));
        let objects = vec![libc(), libruby.clone(), jemalloc(0x500)];
        let report = judge(&facts(&["libruby.so.3", "libc.so.6"], objects, ""));
        assert!(report.uses(Kind::Glibc));
        assert_eq!(ids(&report), ["half-linked"]);
        assert_eq!(report.problems[0].severity, Severity::Error);
        // Linked to the program itself, before libc, it is used.
        let objects = vec![libc(), libruby, jemalloc(0x500)];
        let report = judge(&facts(&["libruby.so.3", "libjemalloc.so.2", "libc.so.6"], objects, ""));
        assert_eq!(report.allocator.as_ref().unwrap().how, How::LinkedDynamically);
        assert!(ids(&report).is_empty());
    }

    #[test]
    fn ignored_preloads_are_explained() {
        let mut facts = facts(&["libc.so.6"], vec![libc()], "/x/libsnug.so");
        assert_eq!(ids(&judge(&facts)), ["preload-ignored"]);
        facts.preload_files = vec![("/x/libsnug.so".into(), PreloadFile::Missing)];
        assert_eq!(ids(&judge(&facts)), ["preload-missing"]);
        let foreign = ElfFacts { machine: EM_AARCH64, bits: 64, ..ElfFacts::default() };
        facts.preload_files = vec![("/x/libsnug.so".into(), PreloadFile::Elf(Rc::new(foreign)))];
        let report = judge(&facts);
        assert_eq!(ids(&report), ["wrong-architecture"]);
        assert!(report.problems[0].message.contains("it is for aarch64, the program for x86-64"));
        facts.setuid = true;
        assert_eq!(ids(&judge(&facts)), ["setuid"]);
        facts.executable.elf = Some(Rc::new(ElfFacts::default()));
        assert!(ids(&judge(&facts)).contains(&"static-program"));
    }

    #[test]
    fn several_preloads_conflict() {
        let tcmalloc = image("/lib/libtcmalloc.so.4", 0x8000, elf(&["libc.so.6"], &["malloc", "tc_malloc"]));
        let objects = vec![libc(), jemalloc(0x9000), tcmalloc];
        let report = judge(&facts(&["libc.so.6"], objects, "/lib/libtcmalloc.so.4:/lib/libjemalloc.so.2"));
        assert!(report.uses(Kind::Tcmalloc));
        assert_eq!(ids(&report), ["conflicting-preloads"]);
    }

    #[test]
    fn links_in_the_variable_are_followed_by_soname() {
        let mut library = ElfFacts::clone(&elf(&[], &["malloc", "snug_counters"]));
        library.soname = Some("libsnug.so.0".into());
        let library = Rc::new(library);
        let mapped = image("/opt/snug-0.1/libsnug.so.0.1.0", 0x9000, library.clone());
        let mut facts = facts(&["libc.so.6"], vec![libc(), mapped], "/usr/lib/allocator.so");
        facts.preload_files = vec![("/usr/lib/allocator.so".into(), PreloadFile::Elf(library))];
        let report = judge(&facts);
        assert!(report.uses(Kind::Snug));
        assert!(ids(&report).is_empty(), "{:?}", report.problems);
    }

    #[test]
    fn settings_of_another_allocator_have_no_effect() {
        let mut facts = facts(&["libc.so.6"], vec![libc()], "");
        facts.environment =
            Some(vec![("MALLOC_CONF".into(), "narenas:2".into()), ("MALLOC_ARENA_MAX".into(), "2".into())]);
        facts.transparent_huge_pages = "always".into();
        let report = judge(&facts);
        assert_eq!(ids(&report), ["setting-without-effect", "huge-pages-always"]);
        assert_eq!(report.settings, BTreeMap::from([("MALLOC_ARENA_MAX".to_string(), "2".to_string())]));
    }

    #[test]
    fn static_programs_tell_by_their_symbols() {
        let mut facts = facts(&[], vec![], "");
        let symbols = ["malloc", "_int_malloc", "mi_heap_malloc"];
        let internal = symbols.iter().map(|name| (name.to_string(), 1)).collect();
        facts.executable.elf = Some(Rc::new(ElfFacts { internal, ..ElfFacts::default() }));
        let used = judge(&facts).allocator.unwrap();
        assert_eq!((used.kind, used.how), (Kind::Mimalloc, How::LinkedStatically));
        facts.executable.elf = Some(Rc::new(ElfFacts::default()));
        let report = judge(&facts);
        assert!(report.uses(Kind::Other));
        assert_eq!(ids(&report), ["static-program"]);
    }

    #[test]
    fn counters_name_version_and_settings() {
        let library = image("/x/libsnug.so", 0x9000, elf(&[], &["malloc", "snug_counters"]));
        let mut facts = facts(&["libc.so.6"], vec![libc(), library], "/x/libsnug.so");
        facts.counters = Some(Counters {
            snug_version: "0.1.0".into(),
            settings: "arenas_max:2,background:1".into(),
            warnings: "huge pages are always on".into(),
            ..Counters::default()
        });
        let report = judge(&facts);
        assert_eq!(report.allocator.as_ref().unwrap().version.as_deref(), Some("0.1.0"));
        assert_eq!(report.settings["arenas_max"], "2");
        assert_eq!(report.settings_source, SettingsSource::Allocator);
        assert_eq!(ids(&report), ["snug-warning"]);
    }
}
