//! The dynamic loader's work for a program, told from files alone: for programs of another machine or of an image,
//! where no loader can be asked. Follows ld.so(8) and, for musl, its manual; `$LIB` and caches are left out.

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use object::elf::{EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64};

use crate::facts::{Image, PreloadFile};
use crate::kinds::is_telling_symbol;
use crate::library;
use snug_base::elf::{self, ElfFacts};
use snug_base::file::{self, file_name};
use snug_base::root::{self, Root};

/// What would be mapped.
#[derive(Default)]
pub struct Loading {
    /// In the order of loading; addresses fall as they would in a process.
    pub objects: Vec<Image>,
    /// Entries of LD_PRELOAD, with what is there.
    pub preload_files: Vec<(String, PreloadFile)>,
    /// Who needs a library that is nowhere, and its name.
    pub missing: Vec<(String, String)>,
}

/// Reads an ELF file of a root; None if it is none.
pub fn read_elf(root: &dyn Root, path: &str) -> Option<Rc<ElfFacts>> {
    let on_disk = root.file(&root::file(root, path)?).ok()?;
    elf::read(&on_disk, &is_telling_symbol).ok().flatten().map(Rc::new)
}

/// An ELF file of a root as an image.
pub fn image(root: &dyn Root, path: &str, elf: Rc<ElfFacts>) -> Image {
    let mut image = Image { path: path.to_string(), elf: Some(elf), ..Image::default() };
    let on_disk = root::file(root, path).and_then(|path| root.file(&path).ok());
    image.version = image.kind().and_then(|kind| library::version(kind, &on_disk?));
    image
}

/// Finds out what would be loaded for the program at this path with this environment.
pub fn simulate(
    root: &dyn Root,
    program_path: &str,
    program: &Rc<ElfFacts>,
    environment: &[(String, String)],
) -> Loading {
    let mut loading = Loading::default();
    let variable = |name: &str| {
        environment.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value.as_str())
    };
    let search = Search { root, program, library_path: variable("LD_LIBRARY_PATH") };
    let mut seen: HashSet<String> = HashSet::new();
    let mut queue: VecDeque<(String, Rc<ElfFacts>)> = VecDeque::new();
    let system = file::read_text_below(root, "/etc/ld.so.preload").unwrap_or_default();
    let listed = variable("LD_PRELOAD").split([':', ' ']).filter(|path| !path.is_empty());
    for entry in listed.chain(system.split_whitespace()) {
        let path = match entry.contains('/') {
            true => Some(entry.to_string()),
            false => search.find(entry, &[], "/").map(|(path, _)| path),
        };
        let found = path.as_ref().and_then(|path| Some((root::file(root, path)?, read_elf(root, path))));
        let state = match &found {
            None => PreloadFile::Missing,
            Some((_, None)) => PreloadFile::NotElf,
            Some((_, Some(elf))) => PreloadFile::Elf(elf.clone()),
        };
        loading.preload_files.push((entry.to_string(), state));
        if let (Some((_, Some(elf))), Some(path)) = (found, path) {
            if !program.is_static_program() && fits(program, &elf) && seen.insert(path.clone()) {
                queue.push_back((path, elf));
            }
        }
    }
    // The program's own come after those preloaded, and before what those need.
    let mut order: Vec<(String, Rc<ElfFacts>)> = queue.iter().cloned().collect();
    queue.push_front((program_path.to_string(), program.clone()));
    while let Some((who, elf)) = queue.pop_front() {
        let origin = who.rsplit_once('/').map_or("/", |(directory, _)| directory).to_string();
        for needed in &elf.needed {
            if order.iter().any(|(path, elf)| answers_to(path, elf, needed)) {
                continue;
            }
            match search.find(needed, &elf.run_paths, &origin) {
                Some((path, elf)) => {
                    seen.insert(path.clone());
                    order.push((path.clone(), elf.clone()));
                    queue.push_back((path, elf));
                }
                // The kernel maps the loader itself, under the name that it goes by.
                None if is_loader(needed) => {}
                None => loading.missing.push((who.clone(), needed.clone())),
            }
        }
    }
    let count = order.len() as u64;
    loading.objects = order
        .into_iter()
        .enumerate()
        .map(|(index, (path, elf))| Image { base: count - index as u64, ..image(root, &path, elf) })
        .collect();
    loading
}

fn answers_to(path: &str, elf: &ElfFacts, needed: &str) -> bool {
    file_name(path) == needed || elf.soname.as_deref() == Some(needed)
}

fn is_loader(name: &str) -> bool {
    name.starts_with("ld-linux") || name.starts_with("ld64") || name.starts_with("libc.musl-")
}

/// Whether a library can be loaded into a program at all.
fn fits(program: &ElfFacts, library: &ElfFacts) -> bool {
    let musl = |elf: &ElfFacts| elf.interpreter.as_ref().is_some_and(|path| path.contains("ld-musl"));
    let needs_glibc = library.needed.iter().any(|name| name == "libc.so.6");
    (program.machine, program.bits) == (library.machine, library.bits) && !(musl(program) && needs_glibc)
}

/// Where the loader looks.
struct Search<'a> {
    root: &'a dyn Root,
    program: &'a ElfFacts,
    library_path: &'a str,
}

impl Search<'_> {
    /// A library by its name, of the program's architecture.
    fn find(&self, name: &str, run_paths: &[String], origin: &str) -> Option<(String, Rc<ElfFacts>)> {
        let fitting = |path: &str| {
            let elf = read_elf(self.root, path)?;
            ((elf.machine, elf.bits) == (self.program.machine, self.program.bits)).then_some(elf)
        };
        if name.contains('/') {
            return fitting(name).map(|elf| (name.to_string(), elf));
        }
        let own = run_paths
            .iter()
            .flat_map(|paths| paths.split(':'))
            .map(|path| path.replace("${ORIGIN}", origin).replace("$ORIGIN", origin));
        let variable = self.library_path.split([':', ';']).map(String::from);
        let directories = own.chain(variable).filter(|path| !path.is_empty());
        let mut paths =
            directories.chain(self.configured()).chain(self.usual()).map(|path| format!("{path}/{name}"));
        paths.find_map(|path| fitting(&path).map(|elf| (path, elf)))
    }

    /// Directories of /etc/ld.so.conf, for glibc.
    fn configured(&self) -> Vec<String> {
        let mut texts: Vec<String> =
            file::read_text_below(self.root, "/etc/ld.so.conf").into_iter().collect();
        for name in self.root.list("/etc/ld.so.conf.d") {
            texts.extend(file::read_text_below(self.root, &format!("/etc/ld.so.conf.d/{name}")));
        }
        let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
        lines.filter(|line| line.starts_with('/')).map(String::from).collect()
    }

    /// Directories that need no configuration, on any distribution.
    fn usual(&self) -> Vec<String> {
        let triple = match self.program.machine {
            EM_X86_64 => "x86_64-linux-gnu",
            EM_AARCH64 => "aarch64-linux-gnu",
            EM_386 => "i386-linux-gnu",
            EM_ARM => "arm-linux-gnueabihf",
            EM_RISCV => "riscv64-linux-gnu",
            EM_PPC64 => "powerpc64le-linux-gnu",
            EM_S390 => "s390x-linux-gnu",
            _ => "",
        };
        let mut directories = Vec::new();
        if !triple.is_empty() {
            directories.extend([format!("/lib/{triple}"), format!("/usr/lib/{triple}")]);
        }
        directories.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"].map(String::from));
        directories
    }
}

/// The newest version of glibc whose symbols a file names, as in GLIBC_2.36: for a program or library what it wants,
/// for libc.so.6 what it is.
pub fn glibc_version(root: &dyn Root, path: &str) -> Option<(u32, u32)> {
    let content = file::read_below(root, path, 1 << 28)?;
    let mark = b"GLIBC_2.";
    let ends = (0..content.len().saturating_sub(mark.len()))
        .filter(|at| content[*at] == b'G' && content[*at..].starts_with(mark));
    let minors = ends.filter_map(|at| {
        let digits = content[at + mark.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        String::from_utf8(digits.copied().collect()).ok()?.parse::<u32>().ok()
    });
    minors.max().map(|minor| (2, minor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::root::DirectoryRoot;

    #[test]
    #[cfg_attr(not(target_env = "gnu"), ignore = "musl's loader is another")]
    fn the_simulation_agrees_with_the_loader() {
        let root = DirectoryRoot("/".into());
        let own = std::env::current_exe().unwrap().display().to_string();
        let program = read_elf(&root, &own).unwrap();
        let loading = simulate(&root, &own, &program, &[]);
        assert!(loading.missing.is_empty(), "{:?}", loading.missing);
        let names: Vec<&str> = loading.objects.iter().map(|image| file_name(&image.path)).collect();
        assert!(names.contains(&"libc.so.6"), "{names:?}");
        let ours = glibc_version(&root, &own).unwrap();
        let libc = loading.objects.iter().find(|image| image.path.ends_with("libc.so.6")).unwrap();
        assert!(glibc_version(&root, &libc.path).unwrap() >= ours);
    }

    #[test]
    fn preloads_come_first_and_missing_ones_are_told() {
        let root = DirectoryRoot("/".into());
        let own = std::env::current_exe().unwrap().display().to_string();
        let program = read_elf(&root, &own).unwrap();
        let environment =
            [("LD_PRELOAD".to_string(), "/nonexistent/libx.so:/etc/passwd libm.so.6".to_string())];
        let loading = simulate(&root, &own, &program, &environment);
        assert_eq!(loading.preload_files[0].1, PreloadFile::Missing);
        assert_eq!(loading.preload_files[1].1, PreloadFile::NotElf);
        if cfg!(target_env = "gnu") {
            assert!(loading.objects[0].path.ends_with("/libm.so.6"), "{:?}", loading.objects[0].path);
        }
    }
}
