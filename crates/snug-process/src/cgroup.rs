//! A control group for one program, to learn the most memory that it ever held, page cache and kernel memory
//! included: what a container's limit is compared with.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A control group of our own below the one we are in; removed when this is dropped.
pub struct Group {
    directory: PathBuf,
    peak_file: &'static str,
}

/// A place in which groups can be made, and the file in which they tell their peak.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupParent {
    directory: PathBuf,
    peak_file: &'static str,
    /// Must say "max".
    limit: Option<PathBuf>,
}

impl Group {
    /// Makes a group; else says why that can't be done.
    pub fn create(name: &str) -> Result<Group, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let places = places(&own, Path::new("/sys/fs/cgroup"));
        let mut reason = "no memory control group is available here".to_string();
        for place in places.into_iter().filter(may_hold) {
            remove_left_overs(&place.directory, name);
            let directory = place.directory.join(name);
            if let Err(error) = fs::create_dir(&directory) {
                reason = format!("cannot make a control group in {}: {error}", place.directory.display());
                continue;
            }
            let group = Group { directory, peak_file: place.peak_file };
            if group.directory.join(place.peak_file).exists() && group.accepts_processes() {
                return Ok(group);
            }
            reason = format!("{} does not count the memory of its control groups", place.directory.display());
        }
        Err(reason)
    }

    /// The file into which a process writes 0 to join.
    pub fn processes_file(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// The most bytes its processes ever held together; None if none has joined.
    pub fn peak_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(self.directory.join(self.peak_file)).ok()?;
        text.trim().parse().ok().filter(|bytes| *bytes > 0)
    }

    /// Page cache that is counted for it now: of files that its processes read and wrote.
    pub fn cache_bytes(&self) -> Option<u64> {
        cache_of(&fs::read_to_string(self.directory.join("memory.stat")).ok()?)
    }

    fn accepts_processes(&self) -> bool {
        File::options().write(true).open(self.processes_file()).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that have just ended may still be counted; an empty group that stays does no harm.
        for _ in 0..20 {
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Removes groups that programs made which were killed since. `name` ends with the identifier of this program.
fn remove_left_overs(directory: &Path, name: &str) {
    let Some((prefix, _)) = name.rsplit_once('-') else { return };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let other = entry.file_name().to_string_lossy().into_owned();
        let maker = other.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')?.parse::<u32>().ok());
        if maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // One in which something still runs stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The page cache that `memory.stat` tells, of either version.
fn cache_of(stat: &str) -> Option<u64> {
    let value = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value("file ").or_else(|| value("total_cache "))
}

/// Where groups can be made, best first, by what `/proc/self/cgroup` says. In version 2 a group with processes may not
/// divide its memory among groups below it: then one beside it serves.
fn places(own: &str, root: &Path) -> Vec<GroupParent> {
    let mut places = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|controller| controller == "memory") {
            let directory = root.join("memory").join(path);
            places.insert(0, GroupParent { directory, peak_file: "memory.max_usage_in_bytes", limit: None });
        }
        if controllers.is_empty() {
            let own = root.join(path);
            let above = own.parent().filter(|_| !path.is_empty()).map(Path::to_path_buf);
            places.push(GroupParent { directory: own.clone(), peak_file: "memory.peak", limit: None });
            places.extend(above.map(|directory| GroupParent {
                directory,
                peak_file: "memory.peak",
                limit: Some(own.join("memory.max")),
            }));
        }
    }
    places
}

/// Whether a group may be made there: we may move processes in, and that does not let them out of a limit of ours.
fn may_hold(place: &GroupParent) -> bool {
    let is_unlimited = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|limit| limit.trim() == "max");
    let writable = File::options().write(true).open(place.directory.join("cgroup.procs")).is_ok();
    writable && place.limit.as_ref().is_none_or(is_unlimited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cache_of_both_versions() {
        assert_eq!(cache_of("anon 1\nfile 4096\nfile_mapped 12\n"), Some(4096));
        assert_eq!(cache_of("cache 1\nrss 3\ntotal_cache 8192\n"), Some(8192));
        assert_eq!(cache_of("anon 1\n"), None);
    }

    #[test]
    fn groups_of_killed_programs_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!("snug-compare-{}", std::process::id());
        let names = ["snug-compare-4194999", "snug-compare-1", "snug-other-4194999", "snug-compare-x", &own];
        names.iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
        remove_left_overs(folder.path(), &own);
        let stays: Vec<bool> = names.iter().map(|name| folder.path().join(name).exists()).collect();
        assert_eq!(stays, [false, true, true, true, true]);
    }

    #[test]
    fn both_versions_of_control_groups() {
        let found = |own: &str| -> Vec<(String, &'static str, bool)> {
            let shown = |place: GroupParent| {
                (place.directory.display().to_string(), place.peak_file, place.limit.is_some())
            };
            places(own, Path::new("/c")).into_iter().map(shown).collect()
        };
        let second = [("/c/user/app".into(), "memory.peak", false), ("/c/user".into(), "memory.peak", true)];
        assert_eq!(found("0::/user/app\n"), second);
        assert_eq!(found("0::/\n"), [("/c/".into(), "memory.peak", false)]);
        let first = found("5:cpu:/\n4:memory,x:/a:b\n0::/\n");
        assert_eq!(first[0], ("/c/memory/a:b".into(), "memory.max_usage_in_bytes", false));
        assert!(found("nonsense").is_empty());
    }
}
