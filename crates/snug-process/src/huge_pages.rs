//! Huge pages of a process: what asked for them, and what they hold. One of 2 MiB stays in memory as long as a byte of
//! it is in use. Pure.

use crate::proc::Rollup;
use snug_base::terminal::bytes;

const TUNABLES: &str = "GLIBC_TUNABLES";
const TUNABLE: &str = "glibc.malloc.hugetlb";
/// Since this version glibc asks for huge pages by itself on 64-bit Arm.
const ASKS_BY_ITSELF: (u32, u32) = (2, 43);
/// Huge pages below this share of what is resident are no reason to change anything.
const NOTEWORTHY_SHARE: f64 = 0.1;

/// What decides about them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances<'a> {
    /// The system's: always, madvise or never.
    pub setting: &'a str,
    pub allocator: &'a str,
    /// None: glibc does not serve malloc.
    pub glibc_version: Option<&'a str>,
    /// As far as glibc reads it.
    pub environment: &'a [(String, String)],
    /// 64-bit Arm.
    pub is_arm: bool,
    /// None: nobody counted.
    pub held: Option<Rollup>,
}

/// What is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HugePages {
    /// The system gives them to all; else glibc asks for them.
    pub by_system: bool,
    /// They hold too much, or nobody counted.
    pub is_dear: bool,
    pub message: String,
    pub fix: String,
}

impl Circumstances<'_> {
    /// What is to be said of huge pages, if anything.
    pub fn judge(&self) -> Option<HugePages> {
        let is_dear =
            self.held.is_none_or(|held| held.huge_bytes as f64 >= NOTEWORTHY_SHARE * held.rss_bytes as f64);
        if self.setting == "always" {
            let message = format!(
                "transparent huge pages are 'always': {} may hold several times the memory{}",
                self.allocator,
                self.counted()
            );
            let fix =
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (snug opts out by itself)".into();
            return Some(HugePages { by_system: true, is_dear, message, fix });
        }
        let (who, value) = self.asked()?;
        let (is_dear, effect) = match (value, self.setting) {
            (0, _) => return None,
            (1, "never") => (false, ", which the system never gives".to_string()),
            (1, _) => (is_dear, self.counted()),
            _ => {
                let reserve =
                    " of the system's reserve (HugetlbPages of /proc/PID/status), which RSS leaves out";
                (false, reserve.into())
            }
        };
        let fix = format!("start the program with {TUNABLES}={TUNABLE}=0, or under snug");
        Some(HugePages {
            by_system: false,
            is_dear,
            message: format!("{who} asks for huge pages{effect}"),
            fix,
        })
    }

    /// Who asks for them, and the tunable's value: 1 is transparent huge pages, more is the system's reserve.
    fn asked(&self) -> Option<(String, u64)> {
        let version = self.glibc_version?;
        if let Some(value) = tunable(self.environment) {
            return Some((format!("glibc, by {TUNABLE}={value},"), value));
        }
        let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
        let (major, minor) = (numbers.next()?, numbers.next()?);
        (self.is_arm && (major, minor) >= ASKS_BY_ITSELF)
            .then(|| (format!("glibc {major}.{minor}, by default on 64-bit Arm,"), 1))
    }

    /// What they hold of it now.
    fn counted(&self) -> String {
        let of = |count: u64| bytes(count as f64);
        match self.held {
            Some(held) if held.huge_bytes > 0 => format!(
                "; {} of its {} are in huge pages now, each of which stays while a byte of it is in use",
                of(held.huge_bytes),
                of(held.rss_bytes)
            ),
            Some(_) => "; none of its memory is in huge pages now".into(),
            None => String::new(),
        }
    }
}

/// The last of several counts, as in glibc.
fn tunable(environment: &[(String, String)]) -> Option<u64> {
    let (_, all) = environment.iter().find(|(name, _)| name == TUNABLES)?;
    let mut values = all.rsplit(':').filter_map(|one| one.strip_prefix(TUNABLE)?.strip_prefix('='));
    values.find_map(|text| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(setting: &str, tunables: &str, version: &str, is_arm: bool, huge_mb: u64) -> Option<HugePages> {
        let environment = [(TUNABLES.to_string(), tunables.to_string())];
        let held = Rollup { rss_bytes: 370_000_000, huge_bytes: huge_mb * 1_000_000, ..Rollup::default() };
        let circumstances = Circumstances {
            setting,
            allocator: "glibc",
            glibc_version: Some(version).filter(|version| !version.is_empty()),
            environment: if tunables.is_empty() { &[] } else { &environment },
            is_arm,
            held: Some(held),
        };
        circumstances.judge()
    }

    #[test]
    fn the_tunable_is_told_with_what_it_costs() {
        let asks = "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1";
        let found = told("madvise", asks, "2.41", false, 124).unwrap();
        assert!(
            found.is_dear && !found.by_system && found.fix.contains("glibc.malloc.hugetlb=0"),
            "{found:?}"
        );
        let wanted = "glibc, by glibc.malloc.hugetlb=1, asks for huge pages; 124 MB of its 370 MB are";
        assert!(found.message.starts_with(wanted), "{found:?}");
        let found = told("madvise", asks, "2.41", false, 0).unwrap();
        assert!(
            !found.is_dear && found.message.ends_with("none of its memory is in huge pages now"),
            "{found:?}"
        );
        let found = told("never", asks, "2.41", false, 0).unwrap();
        assert!(!found.is_dear && found.message.ends_with("which the system never gives"), "{found:?}");
        let found = told("madvise", "glibc.malloc.hugetlb=0x200000", "2.41", false, 124).unwrap();
        assert!(!found.is_dear && found.message.contains("HugetlbPages"), "{found:?}");
        for none in ["=0", "=1:glibc.malloc.hugetlb=0", "x=1", "=", "=-1"] {
            let tunables = format!("glibc.malloc.hugetlb{none}");
            assert_eq!(told("madvise", &tunables, "2.43", false, 124), None, "{tunables}");
        }
        assert_eq!(told("madvise", asks, "", false, 124), None, "another allocator serves malloc");
    }

    #[test]
    fn on_arm_a_new_glibc_asks_by_itself() {
        let arm = |version, tunables| told("madvise", tunables, version, true, 124);
        let found = arm("2.43", "").unwrap();
        assert!(
            found.is_dear && found.message.starts_with("glibc 2.43, by default on 64-bit Arm, asks"),
            "{found:?}"
        );
        assert!(arm("2.44", "").is_some() && arm("3.0", "").is_some());
        assert!(arm("2.42", "").is_none() && arm("2.43", "glibc.malloc.hugetlb=0").is_none());
        assert_eq!(told("madvise", "", "2.43", false, 124), None);
    }

    #[test]
    fn the_setting_of_the_system_is_told_of_every_allocator() {
        for version in ["", "2.36"] {
            let found = told("always", "", version, false, 124).unwrap();
            assert!(
                found.by_system && found.is_dear && found.message.contains("124 MB of its 370 MB"),
                "{found:?}"
            );
            assert!(!told("always", "", version, false, 3).unwrap().is_dear);
        }
        let unknown = Circumstances { setting: "always", allocator: "jemalloc", ..Circumstances::default() };
        let found = unknown.judge().unwrap();
        assert!(found.is_dear && found.message.ends_with("several times the memory"), "{found:?}");
    }
}
