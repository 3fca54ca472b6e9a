//! A root file system to look into without running anything in it: a directory, or the layers of an image. Links are
//! followed inside of it only.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file, with the bits of its mode.
    File(u32),
    Directory,
    /// A symbolic link and where it points.
    Link(String),
}

/// A root file system. Paths are absolute and hold neither `.` nor `..` nor links but the last component.
pub trait Root {
    fn node(&self, path: &str) -> Option<Node>;
    /// A file of this machine that holds the content of the file at the path.
    fn file(&self, path: &str) -> io::Result<PathBuf>;
    /// Names in a directory.
    fn list(&self, path: &str) -> Vec<String>;
}

/// An unpacked root file system, or `/` itself.
pub struct DirectoryRoot(pub PathBuf);

impl DirectoryRoot {
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }
}

impl Root for DirectoryRoot {
    fn node(&self, path: &str) -> Option<Node> {
        let at = self.at(path);
        let metadata = std::fs::symlink_metadata(&at).ok()?;
        if metadata.is_symlink() {
            return Some(Node::Link(std::fs::read_link(at).ok()?.to_string_lossy().into_owned()));
        }
        match metadata.is_dir() {
            true => Some(Node::Directory),
            // Devices, FIFOs and sockets hold nothing to read.
            false => metadata.is_file().then(|| Node::File(metadata.permissions().mode())),
        }
    }

    fn file(&self, path: &str) -> io::Result<PathBuf> {
        Ok(self.at(path))
    }

    fn list(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.at(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// Follows all links of a path. The path that remains, and what stands there; None if nothing does.
pub fn resolve(root: &dyn Root, path: &str) -> Option<(String, Node)> {
    let mut todo: Vec<String> = components(path);
    let mut done: Vec<String> = Vec::new();
    let mut links = 0;
    while let Some(component) = todo.pop() {
        if component == ".." {
            done.pop();
            continue;
        }
        done.push(component);
        let here = format!("/{}", done.join("/"));
        match root.node(&here)? {
            Node::Link(target) => {
                links += 1;
                if links > 40 {
                    return None;
                }
                done.pop();
                if target.starts_with('/') {
                    done.clear();
                }
                todo.extend(components(&target));
            }
            Node::File(_) if !todo.is_empty() => return None,
            node if todo.is_empty() => return Some((here, node)),
            _ => {}
        }
    }
    Some((format!("/{}", done.join("/")), Node::Directory))
}

/// The components of a path, the last one first.
fn components(path: &str) -> Vec<String> {
    path.split('/').rev().filter(|part| !part.is_empty() && *part != ".").map(String::from).collect()
}

/// The path of a file, links followed; None if there is none.
pub fn file(root: &dyn Root, path: &str) -> Option<String> {
    match resolve(root, path)? {
        (path, Node::File(_)) => Some(path),
        _ => None,
    }
}

/// Finds a program as execvp would: its path, links not followed.
pub fn find_program(root: &dyn Root, name: &str, path_variable: &str, directory: &str) -> Option<String> {
    let is_program =
        |path: &str| matches!(resolve(root, path), Some((_, Node::File(mode))) if mode & 0o111 != 0);
    if name.contains('/') {
        let path = if name.starts_with('/') { name.to_string() } else { format!("{directory}/{name}") };
        return is_program(&path).then_some(path);
    }
    path_variable.split(':').map(|part| format!("{part}/{name}")).find(|path| is_program(path))
}

/// Whether a directory looks like a root file system.
pub fn looks_like_root(path: &Path) -> bool {
    ["bin", "usr", "lib", "etc"].iter().any(|name| path.join(name).symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A root with links of all kinds, removed at the end.
    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn links_stay_inside() {
        let path = std::env::temp_dir().join(format!("snug-root-{}", std::process::id()));
        let _scratch = Scratch(path.clone());
        std::fs::create_dir_all(path.join("usr/bin")).unwrap();
        std::fs::write(path.join("usr/bin/ruby3"), "x").unwrap();
        std::fs::set_permissions(path.join("usr/bin/ruby3"), PermissionsExt::from_mode(0o755)).unwrap();
        symlink("usr/bin", path.join("bin")).unwrap();
        symlink("/bin/ruby3", path.join("usr/bin/ruby")).unwrap();
        symlink("../../../../etc/passwd", path.join("usr/bin/out")).unwrap();
        symlink("loop", path.join("loop")).unwrap();
        nix::unistd::mkfifo(&path.join("usr/bin/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let root = DirectoryRoot(path);
        assert_eq!(file(&root, "/bin/ruby").as_deref(), Some("/usr/bin/ruby3"));
        assert_eq!(file(&root, "/bin/../bin/./ruby").as_deref(), Some("/usr/bin/ruby3"));
        assert_eq!(file(&root, "/usr/bin/out"), None, "the machine's own /etc/passwd is not in it");
        assert_eq!(file(&root, "/loop"), None);
        assert_eq!(find_program(&root, "fifo", "/bin", "/"), None);
        assert_eq!(find_program(&root, "ruby", "/sbin:/bin", "/").as_deref(), Some("/bin/ruby"));
        assert_eq!(find_program(&root, "./ruby3", "", "/usr/bin").as_deref(), Some("/usr/bin/./ruby3"));
        assert_eq!(resolve(&root, "/").unwrap().1, Node::Directory);
    }
}
