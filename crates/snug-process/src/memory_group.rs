//! Control groups of processes: how much memory they use and may use. Versions 1 and 2.

use std::path::{Path, PathBuf};

/// Where control groups are mounted.
pub const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// Limits from here on are none: version 1 writes the largest multiple of a page for "no limit".
const NO_LIMIT_BYTES: u64 = 1 << 62;
/// How deep groups are looked for.
const LEVELS_MOST: usize = 8;

/// Memory of a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its path below the root of the control groups.
    pub path: String,
    pub used_bytes: u64,
    /// What of that are cached files which the kernel can drop at once.
    pub inactive_file_bytes: u64,
    /// The same, and cached files that were used lately: the kernel drops them, too, before it kills.
    pub file_bytes: u64,
    /// How much it can hold, files aside that can be dropped at once, before it or one above it is at its limit: others
    /// may hold most of what those above it are allowed.
    pub limit_bytes: Option<u64>,
}

/// A group that has a limit, and how near it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitedGroup {
    pub group: MemoryGroup,
    pub limit_bytes: u64,
    /// What may be added before it is at its limit, files aside that can be dropped at once.
    room_bytes: u64,
}

/// Where the memory of a control group is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryGroup {
    root: PathBuf,
    path: String,
    /// None where its files are not to be seen.
    directory: Option<PathBuf>,
    version_1: bool,
}

/// Reads `/proc/PID/cgroup`: version 1's memory hierarchy if there is one, else version 2's only one.
pub fn place(text: &str, root: &Path) -> Option<MemoryGroup> {
    place_seen_by(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default(), text, root)
}

/// `own`: `/proc/self/cgroup` of who looks.
fn place_seen_by(own: &str, text: &str, root: &Path) -> Option<MemoryGroup> {
    let (version_1, path) = memory_path(text)?;
    let root = if version_1 { root.join("memory") } else { root.to_path_buf() };
    let own = memory_path(own).map(|(_, path)| path);
    let directory = directory(&path, own.as_deref(), &root);
    Some(MemoryGroup { root, path, directory, version_1 })
}

/// Whether memory is counted by version 1, and the path there.
fn memory_path(text: &str) -> Option<(bool, String)> {
    let fields = |line: &'_ str| -> Option<(String, String)> {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?.to_string(), parts.next()?.to_string()))
    };
    let lines: Vec<(String, String)> = text.lines().filter_map(fields).collect();
    let version_1 = lines.iter().find(|(names, _)| names.split(',').any(|name| name == "memory"));
    match version_1 {
        Some((_, path)) => Some((true, path.clone())),
        None => lines.into_iter().find(|(names, _)| names.is_empty()).map(|(_, path)| (false, path)),
    }
}

/// The directory of a control group.
///
/// A process with a namespace of control groups of its own, as in a container, sees groups outside as paths that begin
/// with `/..`: they are looked for below `root`. Inside a container of version 1 the paths are those of the host, and
/// the mounted files begin at the container's own group: that is right for the container's own processes alone.
fn directory(path: &str, own: Option<&str>, root: &Path) -> Option<PathBuf> {
    if path == "/.." || path.starts_with("/../") {
        let tail = path.trim_start_matches("/..").trim_start_matches('/');
        return (!tail.is_empty()).then(|| below(root, Path::new(tail), LEVELS_MOST)).flatten();
    }
    let whole = root.join(path.trim_start_matches('/'));
    if whole.is_dir() {
        return Some(whole);
    }
    let inside = Path::new(path).strip_prefix(own?).ok()?;
    Some(root.join(inside)).filter(|directory| directory.is_dir())
}

/// The first directory that ends in this path.
fn below(directory: &Path, tail: &Path, levels: usize) -> Option<PathBuf> {
    let found = directory.join(tail);
    if found.is_dir() {
        return Some(found);
    }
    let entries = std::fs::read_dir(directory).ok().filter(|_| levels > 0)?;
    let is_directory = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.flatten().filter(is_directory).find_map(|entry| below(&entry.path(), tail, levels - 1))
}

impl Cgroup {
    /// What it holds without files that can be dropped at once.
    pub fn working_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.inactive_file_bytes)
    }

    /// The same without any cached files.
    pub fn own_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.file_bytes)
    }
}

impl MemoryGroup {
    /// Its path below the root of the control groups.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads what is counted there; None if it counts no memory, as the root of version 2.
    pub fn read(&self) -> Option<Cgroup> {
        let own = self.read_alone()?;
        let limit_bytes = self.nearest_of(&own).map(|nearest| own.working_bytes() + nearest.room_bytes);
        Some(Cgroup { limit_bytes, ..own })
    }

    /// The same without its limit.
    fn read_alone(&self) -> Option<Cgroup> {
        let (inactive, active) = match self.version_1 {
            true => ("total_inactive_file ", "total_active_file "),
            false => ("inactive_file ", "active_file "),
        };
        let used_bytes = self.used_bytes()?;
        let stat = std::fs::read_to_string(self.directory()?.join("memory.stat")).unwrap_or_default();
        let counted = |name: &str| {
            let value = stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
            value.unwrap_or(0)
        };
        Some(Cgroup {
            path: self.path.clone(),
            used_bytes,
            inactive_file_bytes: counted(inactive),
            file_bytes: counted(inactive) + counted(active),
            limit_bytes: None,
        })
    }

    /// Of it and those above it, the one that is nearest to its limit.
    pub fn nearest_limit(&self) -> Option<LimitedGroup> {
        self.nearest_of(&self.read_alone()?)
    }

    /// `own`: what was read of it.
    fn nearest_of(&self, own: &Cgroup) -> Option<LimitedGroup> {
        let limit_file = if self.version_1 { "memory.limit_in_bytes" } else { "memory.max" };
        let levels = self.directory()?.ancestors().take_while(|level| level.starts_with(&self.root));
        let limited = levels.filter_map(|level| {
            let limit_bytes = number(level, limit_file).filter(|limit| *limit < NO_LIMIT_BYTES)?;
            let path = format!("/{}", level.strip_prefix(&self.root).ok()?.display());
            let mut group = MemoryGroup { path, directory: Some(level.to_path_buf()), ..self.clone() };
            // What is told of one above can't be less than what is told of its part; or it is not told at all.
            let mut working_bytes = own.working_bytes();
            if self.directory() == Some(level) {
                group.path.clone_from(&self.path);
            } else if let Some(above) = group.read_alone() {
                working_bytes = above.working_bytes().max(working_bytes);
            }
            Some(LimitedGroup { group, limit_bytes, room_bytes: limit_bytes.saturating_sub(working_bytes) })
        });
        limited.min_by_key(|limited| (limited.room_bytes, limited.limit_bytes))
    }

    /// What is counted there, cached files included, in one read: of the group alone.
    pub fn used_bytes(&self) -> Option<u64> {
        let file = if self.version_1 { "memory.usage_in_bytes" } else { "memory.current" };
        number(self.directory()?, file)
    }

    /// How many processes the kernel has OOM-killed there; None: it does not count them.
    pub fn kills(&self) -> Option<u64> {
        let file = if self.version_1 { "memory.oom_control" } else { "memory.events" };
        let text = std::fs::read_to_string(self.directory()?.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }
}

fn number(directory: &Path, file: &str) -> Option<u64> {
    std::fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files(PathBuf);

    impl Files {
        fn new(name: &str, files: &[(&str, &str)]) -> Files {
            let root = std::env::temp_dir().join(format!("snug-cgroups-{name}-{}", std::process::id()));
            for (path, content) in files {
                std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
                std::fs::write(root.join(path), content).unwrap();
            }
            Files(root)
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn version_2() {
        let files = Files::new(
            "2",
            &[
                ("app.slice/memory.max", "1000000\n"),
                ("app.slice/puma/memory.max", "max\n"),
                ("app.slice/puma/memory.current", "700000\n"),
                ("app.slice/puma/memory.events", "low 0\noom 4\noom_kill 3\noom_group_kill 0\n"),
                ("app.slice/puma/memory.stat", "anon 5\ninactive_file 4096\nactive_file 100\n"),
            ],
        );
        let group = place("0::/app.slice/puma\n", &files.0).unwrap();
        let cgroup = group.read().unwrap();
        assert_eq!((group.kills(), cgroup.file_bytes), (Some(3), 4196));
        assert_eq!(cgroup.path, "/app.slice/puma");
        assert_eq!((cgroup.used_bytes, cgroup.inactive_file_bytes), (700_000, 4096));
        assert_eq!(cgroup.limit_bytes, Some(1_000_000), "that of the one above counts, too");
        assert_eq!(place("0::/\n", &files.0).unwrap().read(), None);
    }

    /// As in a slice of systemd, or a pod: what the group above holds counts, and not what this one does.
    #[test]
    fn the_group_that_has_the_limit_is_the_one_that_counts() {
        let slice = |used, own_limit| {
            vec![
                ("s/memory.max", "150\n"),
                ("s/memory.current", used),
                ("s/memory.stat", "inactive_file 10\nactive_file 5\n"),
                ("s/g/memory.max", own_limit),
                ("s/g/memory.current", "40\n"),
                ("s/g/memory.stat", "inactive_file 4\nactive_file 1\n"),
            ]
        };
        let version_1 = |files: Vec<(&str, &str)>| -> Vec<(String, String)> {
            let name = |path: &str| path.replace("memory.max", "memory.limit_in_bytes");
            let name = |path: &str| name(path).replace("memory.current", "memory.usage_in_bytes");
            let count =
                |text: &str| text.replace("inactive", "total_inactive").replace("\nact", "\ntotal_act");
            files.iter().map(|(path, text)| (format!("memory/{}", name(path)), count(text))).collect()
        };
        // Used above, the own limit, and: which is nearest, its limit, what is left.
        for (used, own_limit, expected) in [
            ("159\n", "max\n", ("/s", 150, 1)),
            ("155\n", "60\n", ("/s", 150, 5)),
            ("90\n", "60\n", ("/s/g", 60, 24)),
            ("90\n", "100\n", ("/s/g", 100, 64)),
            ("99\n", "200\n", ("/s", 150, 61)),
            ("999\n", "100\n", ("/s", 150, 0)),
        ] {
            let second = slice(used, own_limit);
            let first = version_1(slice(used, own_limit));
            let first = first.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            for (text, files) in [("0::/s/g\n", second), ("3:memory:/s/g\n", first)] {
                let files = Files::new("above", &files);
                let group = place(text, &files.0).unwrap();
                let LimitedGroup { group: nearest, limit_bytes, room_bytes } = group.nearest_limit().unwrap();
                assert_eq!((nearest.path(), limit_bytes, room_bytes), expected, "{text} {used} {own_limit}");
                assert_eq!(
                    group.read().unwrap().limit_bytes,
                    Some(36 + room_bytes),
                    "{text} {used} {own_limit}"
                );
                let used = if expected.0 == "/s" { used } else { "40" };
                assert_eq!(nearest.used_bytes(), used.trim().parse().ok());
            }
        }
    }

    #[test]
    fn version_1_and_paths_of_the_host() {
        let files = Files::new(
            "1",
            &[
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/memory.usage_in_bytes", "123\n"),
                ("memory/memory.stat", "inactive_file 1\ntotal_inactive_file 7\n"),
            ],
        );
        let text = "5:cpu:/x\n4:memory:/docker/abc\n0::/\n";
        let cgroup = place_seen_by(text, text, &files.0).unwrap().read().unwrap();
        assert_eq!((cgroup.used_bytes, cgroup.inactive_file_bytes, cgroup.limit_bytes), (123, 7, None));
        for others in ["4:memory:/docker/abcd\n", "4:memory:/docker/other\n", "0::/\n", ""] {
            let group = place_seen_by(others, text, &files.0).unwrap();
            assert_eq!(group.read(), None, "our own memory is not that of another container");
        }
        assert_eq!(place("", &files.0), None);
    }

    #[test]
    fn groups_outside_of_our_namespace() {
        let pod = "kubepods.slice/kubepods-pod12.slice";
        let named = |name: &str, file: &str| format!("{pod}/cri-containerd-{name}.scope/{file}");
        let files = Files::new(
            "outside",
            &[
                (&named("ab", "memory.current"), "700\n"),
                (&named("ab", "memory.max"), "1000\n"),
                ("memory.current", "5\n"),
            ],
        );
        let from_a_sibling = "0::/../cri-containerd-ab.scope\n";
        let from_another_pod = format!("0::/../../../{pod}/cri-containerd-ab.scope\n");
        for text in [from_a_sibling, &from_another_pod] {
            let cgroup = place_seen_by("0::/\n", text, &files.0).unwrap().read().unwrap();
            assert_eq!((cgroup.used_bytes, cgroup.limit_bytes), (700, Some(1000)), "{text}");
        }
        for text in ["0::/../cri-containerd-cd.scope\n", "0::/..\n", "0::/../../\n", "0::/elsewhere\n"] {
            assert_eq!(place_seen_by("0::/\n", text, &files.0).unwrap().read(), None, "{text}");
        }
    }
}
