//! Huge pages of a process: who asked for them, and what they hold. One of 2 MiB stays in memory as long as a byte of it is
//! in use. Pure.

use object::elf::EM_AARCH64;

use crate::facts::Facts;
use crate::kinds::Kind;
use crate::report::{AllocatorUsed, Problem, Severity};
use snug_base::terminal::bytes;

const TUNABLES: &str = "GLIBC_TUNABLES";
const TUNABLE: &str = "glibc.malloc.hugetlb";
/// Since this version glibc asks for huge pages by itself on 64-bit Arm.
const ASKS_BY_ITSELF: (u32, u32) = (2, 43);
/// Huge pages below this share of what is resident are no reason to change anything.
const NOTEWORTHY_SHARE: f64 = 0.1;
/// Whatever the program and its allocator ask for.
const OF_THE_SYSTEM: &str =
    "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (snug opts out by itself)";

/// What is to be said of them, if anything.
pub(crate) fn problem(facts: &Facts, used: &AllocatorUsed) -> Option<Problem> {
    let opted_out = facts.counters.as_ref().is_some_and(|counters| !counters.settings.contains("thp:1"));
    if opted_out {
        return None;
    }
    if facts.transparent_huge_pages == "always" {
        let text = format!(
            "transparent huge pages are 'always': {} may hold several times the memory{}",
            used.kind.name(),
            held(facts)
        );
        return Some(Problem::new("huge-pages-always", severity(facts), text, OF_THE_SYSTEM));
    }
    let (why, value) = asked(facts, used)?;
    if value == 0 {
        return None;
    }
    let fix = format!("start the program with {TUNABLES}={TUNABLE}=0, or under snug");
    let (severity, effect) = match (value, facts.transparent_huge_pages.as_str()) {
        (1, "never") => (Severity::Note, ", which the system never gives".to_string()),
        (1, _) => (severity(facts), held(facts)),
        _ => (
            Severity::Note,
            " of the system's reserve (HugetlbPages of /proc/PID/status), which RSS leaves out".into(),
        ),
    };
    Some(Problem::new("huge-pages-glibc", severity, format!("{why} asks for huge pages{effect}"), fix))
}

/// Whether there may be huge pages at all, so that it is worth to count them.
pub(crate) fn may_be_there(setting: &str, environment: &[(String, String)], is_arm: bool) -> bool {
    setting == "always"
        || setting == "madvise" && (is_arm || tunable(environment).is_some_and(|value| value != 0))
}

/// Who asks for them, and the tunable's value: 1 is transparent huge pages, more is the system's reserve.
fn asked(facts: &Facts, used: &AllocatorUsed) -> Option<(String, u64)> {
    if used.kind != Kind::Glibc {
        return None;
    }
    if let Some(value) = tunable(facts.environment.as_deref().unwrap_or_default()).filter(|_| !facts.setuid) {
        return Some((format!("glibc, by {TUNABLE}={value},"), value));
    }
    let mut numbers = used.version.as_deref()?.split('.').map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next()?, numbers.next()?);
    let is_arm = facts.executable.elf.as_ref().is_some_and(|elf| elf.machine == EM_AARCH64);
    (is_arm && version >= ASKS_BY_ITSELF)
        .then(|| (format!("glibc {}.{}, by default on 64-bit Arm,", version.0, version.1), 1))
}

/// The last of several counts, as in glibc.
fn tunable(environment: &[(String, String)]) -> Option<u64> {
    let (_, all) = environment.iter().find(|(name, _)| name == TUNABLES)?;
    let values = all.split(':').filter_map(|one| one.strip_prefix(TUNABLE)?.strip_prefix('='));
    values.filter_map(number).last()
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn severity(facts: &Facts) -> Severity {
    match facts.rollup {
        Some(rollup) if (rollup.huge_bytes as f64) < NOTEWORTHY_SHARE * rollup.rss_bytes as f64 => {
            Severity::Note
        }
        _ => Severity::Warning,
    }
}

/// What they hold of it now.
fn held(facts: &Facts) -> String {
    let of = |count: u64| bytes(count as f64);
    match facts.rollup {
        Some(rollup) if rollup.huge_bytes > 0 => format!(
            "; {} of its {} are in huge pages now, each of which stays while a byte of it is in use",
            of(rollup.huge_bytes),
            of(rollup.rss_bytes)
        ),
        Some(_) => "; none of its memory is in huge pages now".into(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Image;
    use crate::report::How;
    use snug_base::elf::ElfFacts;
    use snug_process::proc::Rollup;
    use std::rc::Rc;

    fn facts(setting: &str, tunables: &str, machine: u16) -> Facts {
        let elf = Rc::new(ElfFacts { machine, ..ElfFacts::default() });
        let environment = [(TUNABLES.to_string(), tunables.to_string())];
        Facts {
            transparent_huge_pages: setting.into(),
            environment: Some(environment.into_iter().filter(|(_, value)| !value.is_empty()).collect()),
            executable: Image { elf: Some(elf), ..Image::default() },
            ..Facts::default()
        }
    }

    fn with_memory(mut facts: Facts, huge_mb: u64) -> Facts {
        let rollup = Rollup { rss_bytes: 370_000_000, huge_bytes: huge_mb * 1_000_000, ..Rollup::default() };
        facts.rollup = Some(rollup);
        facts
    }

    fn used(kind: Kind, version: &str) -> AllocatorUsed {
        AllocatorUsed {
            kind,
            version: Some(version.into()),
            how: How::CLibrary,
            file: "/lib/libc.so.6".into(),
        }
    }

    fn said(facts: &Facts, version: &str) -> Option<(&'static str, Severity, String)> {
        let problem = problem(facts, &used(Kind::Glibc, version))?;
        Some((problem.id, problem.severity, problem.message))
    }

    #[test]
    fn the_tunable_is_told_with_what_it_costs() {
        let asks = facts("madvise", "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1", 62);
        let (id, severity, text) = said(&with_memory(asks.clone(), 124), "2.41").unwrap();
        assert_eq!((id, severity), ("huge-pages-glibc", Severity::Warning));
        assert!(text.contains("glibc.malloc.hugetlb=1, asks for huge pages; 124 MB of its 370 MB"), "{text}");
        let (_, severity, text) = said(&with_memory(asks, 0), "2.41").unwrap();
        assert!(
            severity == Severity::Note && text.ends_with("none of its memory is in huge pages now"),
            "{text}"
        );
        let (_, severity, text) = said(&facts("never", "glibc.malloc.hugetlb=1", 62), "2.41").unwrap();
        assert!(severity == Severity::Note && text.ends_with("which the system never gives"), "{text}");
        let (_, _, text) = said(&facts("madvise", "glibc.malloc.hugetlb=0x200000", 62), "2.41").unwrap();
        assert!(text.contains("HugetlbPages"), "{text}");
        for none in [
            "glibc.malloc.hugetlb=0",
            "glibc.malloc.hugetlb=1:glibc.malloc.hugetlb=0",
            "glibc.malloc.hugetlbx=1",
            "",
        ] {
            assert_eq!(said(&facts("madvise", none, 62), "2.43"), None, "{none}");
        }
        let mut setuid = facts("madvise", "glibc.malloc.hugetlb=1", 62);
        setuid.setuid = true;
        assert_eq!(said(&setuid, "2.43"), None, "glibc does not read it then");
    }

    #[test]
    fn on_arm_a_new_glibc_asks_by_itself() {
        let arm = |tunables| with_memory(facts("madvise", tunables, EM_AARCH64), 124);
        let (id, severity, text) = said(&arm(""), "2.43").unwrap();
        assert_eq!((id, severity), ("huge-pages-glibc", Severity::Warning));
        assert!(text.starts_with("glibc 2.43, by default on 64-bit Arm, asks"), "{text}");
        assert!(said(&arm(""), "2.44").is_some() && said(&arm(""), "3.0").is_some());
        assert_eq!(said(&arm(""), "2.42"), None);
        assert_eq!(said(&arm("glibc.malloc.hugetlb=0"), "2.43"), None);
        assert!(problem(&arm(""), &used(Kind::Jemalloc, "5.3")).is_none());
    }

    #[test]
    fn the_system_s_setting_is_told_of_every_allocator() {
        let always = with_memory(facts("always", "", 62), 124);
        for kind in [Kind::Glibc, Kind::Jemalloc, Kind::Mimalloc] {
            let problem = problem(&always, &used(kind, "5")).unwrap();
            assert_eq!((problem.id, problem.severity), ("huge-pages-always", Severity::Warning));
            assert!(problem.message.contains("124 MB of its 370 MB"), "{}", problem.message);
        }
        assert!(may_be_there("always", &[], false) && may_be_there("madvise", &[], true));
        assert!(!may_be_there("madvise", &[], false) && !may_be_there("never", &[], true));
    }
}
