//! The lines that put an allocator into use: for Docker, a Procfile, systemd, Kubernetes and a shell. Pure.
//!
//! A library is named by its path where the lines are in effect: on this machine for systemd and the shell, in the image
//! that the Dockerfile makes for a Dockerfile and Kubernetes, and in the application for a Procfile.

use std::path::Path;

use crate::kinds::Kind;
use crate::linkage::{Linkage, Linked};
use crate::packages::Package;
use snug_base::terminal;

/// Lines to paste.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Snippet {
    /// Where one deploys this way: "Docker".
    pub title: &'static str,
    /// The file that they belong into, or what to do with them.
    pub file: &'static str,
    /// The lines, each ended by a newline.
    pub text: String,
}

/// What is to be put into use.
#[derive(Debug, Clone, Copy)]
pub struct Deployment<'a> {
    pub kind: Kind,
    /// What is preloaded, as a full path; None if only variables are set.
    pub library: Option<&'a Path>,
    /// What brings the same library into an image; None if no package does.
    pub package: Option<&'a Package>,
    /// Variables to set beside LD_PRELOAD.
    pub variables: &'a [(String, String)],
    /// The program and its arguments; empty if they are not known.
    pub program: &'a [String],
}

/// The lines for every way of deploying that we know.
pub fn lines(deployment: &Deployment) -> Vec<Snippet> {
    vec![
        docker(deployment),
        procfile(deployment),
        systemd(deployment),
        kubernetes(deployment),
        shell(deployment),
    ]
}

/// The lines for a program that no preload reaches: it is linked with the allocator, or made anew so that one does.
pub fn lines_to_link(kind: Kind, linkage: &Linkage) -> Vec<Snippet> {
    let archive = match kind {
        Kind::Snug => "/usr/local/lib/libsnug.a".to_string(),
        _ => format!("lib{}.a", kind.name()),
    };
    let linked = Snippet {
        title: "Linked",
        file: "the command that links the program",
        text: match linkage.linked {
            Linked::Dynamically => format!("cc -o PROGRAM OBJECTS... {archive} -lpthread\n"),
            Linked::Statically => format!("cc -static -o PROGRAM OBJECTS... {archive} -lpthread\n"),
            Linked::StaticPie => format!("cc -static-pie -o PROGRAM OBJECTS... {archive} -lpthread\n"),
        },
    };
    let dynamic = Snippet {
        title: "Dynamic",
        file: "the same command, without -static; then a preload works",
        text: "cc -o PROGRAM OBJECTS...\n".into(),
    };
    let is_static = linkage.linked != Linked::Dynamically;
    std::iter::once(linked).chain(is_static.then_some(dynamic)).collect()
}

impl Deployment<'_> {
    /// All variables, the preload first, with the library at this path.
    fn environment(&self, library: Option<&str>) -> Vec<(String, String)> {
        let preload = library.map(|path| ("LD_PRELOAD".to_string(), path.to_string()));
        preload.into_iter().chain(self.variables.iter().cloned()).collect()
    }

    fn here(&self) -> Vec<(String, String)> {
        let path = self.library.map(|path| path.display().to_string());
        self.environment(path.as_deref())
    }

    fn in_image(&self) -> Vec<(String, String)> {
        self.environment(self.path_in_image().as_deref())
    }

    fn path_in_image(&self) -> Option<String> {
        Some(format!("/usr/local/lib/{}", self.file_name()?))
    }

    fn command(&self) -> String {
        if self.program.is_empty() {
            "YOUR-COMMAND".into()
        } else {
            terminal::shell_line(self.program)
        }
    }

    /// The name under which an image gets the library: that of its package, not that of the file here, which belongs to
    /// one release.
    fn file_name(&self) -> Option<String> {
        let here = self.library?.file_name()?.to_string_lossy().into_owned();
        Some(self.package.map_or(here, |package| package.soname.clone()))
    }
}

fn docker(deployment: &Deployment) -> Snippet {
    let mut text = String::new();
    if let (Some(name), Some(path)) = (deployment.file_name(), deployment.path_in_image()) {
        match (deployment.kind, deployment.package) {
            (Kind::Snug, _) => text.push_str(
                "# build stage; the library runs in images of any distribution\nFROM debian:12 AS snug\n\
                 RUN apt-get update && apt-get install -y binutils gcc libc6-dev make\nCOPY snug /snug\n\
                 RUN make -C /snug install-library DESTDIR=/out\n\n# your image\n\
                 COPY --from=snug /out/usr/local /usr/local\n",
            ),
            (_, Some(package)) => text.push_str(&format!(
                "RUN apt-get update && apt-get install -y --no-install-recommends {} && \\\n    \
                 ln -s /usr/lib/$(uname -m)-linux-gnu/{name} {path}\n",
                package.name
            )),
            (_, None) => text.push_str(&format!("COPY {name} {path}\n")),
        }
    }
    for (name, value) in deployment.in_image() {
        text.push_str(&format!("ENV {name}={}\n", double_quoted(&value)));
    }
    Snippet { title: "Docker", file: "Dockerfile", text }
}

fn procfile(deployment: &Deployment) -> Snippet {
    let path = deployment.file_name().map(|name| format!("/app/vendor/{name}"));
    let environment = deployment.environment(path.as_deref());
    let text = format!("web: {}{}\n", assignments(&environment), deployment.command());
    let file = match path {
        Some(_) => "Procfile; the library is in vendor/ of your application, built on that platform",
        None => "Procfile",
    };
    Snippet { title: "Heroku and others with a Procfile", file, text }
}

fn systemd(deployment: &Deployment) -> Snippet {
    let mut text = "[Service]\n".to_string();
    for (name, value) in deployment.here() {
        // systemd.exec(5): the whole assignment is quoted if it holds spaces, and % begins a specifier.
        let assignment = format!("{name}={}", value.replace('%', "%%"));
        let quoted = if assignment.contains([' ', '"', '\\', '\'']) {
            format!("\"{}\"", assignment.replace('\\', "\\\\").replace('"', "\\\""))
        } else {
            assignment
        };
        text.push_str(&format!("Environment={quoted}\n"));
    }
    Snippet { title: "systemd", file: "systemctl edit YOUR-UNIT", text }
}

fn kubernetes(deployment: &Deployment) -> Snippet {
    let mut text = "env:\n".to_string();
    for (name, value) in deployment.in_image() {
        text.push_str(&format!("  - name: {name}\n    value: {}\n", double_quoted(&value)));
    }
    let file = match deployment.library {
        Some(_) => {
            "the container in your Deployment, or values.yaml of your Helm chart; the image is that of the Dockerfile"
        }
        None => "the container in your Deployment, or values.yaml of your Helm chart",
    };
    Snippet { title: "Kubernetes, Helm", file, text }
}

fn shell(deployment: &Deployment) -> Snippet {
    let by_tool = deployment.kind == Kind::Snug && deployment.library.is_some();
    let text = if by_tool {
        let settings = assignments(deployment.variables);
        format!("{settings}snug run -- {}\n", deployment.command())
    } else {
        format!("{}{}\n", assignments(&deployment.here()), deployment.command())
    };
    Snippet { title: "Shell", file: "to try it", text }
}

/// `A=1 B=2 ` with a space at the end, for in front of a command.
fn assignments(variables: &[(String, String)]) -> String {
    variables
        .iter()
        .map(|(name, value)| format!("{name}={} ", terminal::shell_line(std::slice::from_ref(value))))
        .collect()
}

/// A string as Dockerfile and YAML both read it.
fn double_quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(deployment: &Deployment) -> String {
        lines(deployment).iter().map(|snippet| format!("{}\n{}", snippet.file, snippet.text)).collect()
    }

    #[test]
    fn lines_to_paste_are_as_they_were() {
        let program = ["bundle", "exec", "puma"].map(String::from);
        let conf = [("MALLOC_CONF".to_string(), "narenas:2,thp:never".to_string())];
        let quoted = [("MALLOC_ARENA_MAX".to_string(), "2".to_string()), ("A".into(), "50% \"x\"".into())];
        let package = Package::new("libjemalloc2");
        let of = |kind, library: Option<&'static str>| Deployment {
            kind,
            library: library.map(Path::new),
            package: None,
            variables: &[],
            program: &[],
        };
        let jemalloc = of(Kind::Jemalloc, Some("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"));
        let jemalloc = Deployment { variables: &conf, ..jemalloc };
        let cases = [
            ("snug", Deployment { program: &program, ..of(Kind::Snug, Some("/opt/snug/libsnug.so")) }),
            ("jemalloc of a package", Deployment { package: Some(&package), ..jemalloc }),
            ("jemalloc of no package", jemalloc),
            ("variables alone, to be quoted", Deployment { variables: &quoted, ..of(Kind::Glibc, None) }),
        ];
        let text: String = cases.iter().map(|(name, each)| format!("==== {name}\n{}", all(each))).collect();
        expect_test::expect_file!["../golden/lines-to-paste.txt"].assert_eq(&text);
    }

    #[test]
    fn the_guide_shows_the_same_dockerfile() {
        let guide = include_str!("../../../docs/how-to/roll-out-containers.md");
        let library = Path::new("/usr/local/lib/libsnug.so");
        let deployment = Deployment {
            kind: Kind::Snug,
            library: Some(library),
            package: None,
            variables: &[],
            program: &[],
        };
        for line in docker(&deployment).text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            assert!(guide.contains(&line.replace('"', "")), "{line}");
        }
    }
}
