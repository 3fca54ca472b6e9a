//! Facts about a process, and the order in which the dynamic loader searches what is mapped in it. Pure.
//!
//! The loader binds malloc to the first object that defines it, in this order: the program itself, what was
//! preloaded, then the libraries that each of them needs, breadth first. A library that is merely mapped, or that
//! is linked but stands behind another in this order, is not the allocator, whatever its name.

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use crate::kinds::Kind;
use crate::problem::Problem;
use snug_base::elf::ElfFacts;
use snug_base::file::file_name;
use snug_heap::counters::Counters;
use snug_heap::read_error::ReadError;
use snug_heap::sharing::ForkHooks;
use snug_process::place::Place;
use snug_process::proc::{Pid, Rollup};

/// Everything that is known about a process.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub pid: Pid,
    pub parent: Pid,
    pub command: String,
    /// The same, as its arguments one by one.
    pub arguments: Vec<String>,
    pub executable: Image,
    pub setuid: bool,
    /// Shared objects that are mapped.
    pub objects: Vec<Image>,
    /// None: it may not be read.
    pub environment: Option<Vec<(String, String)>>,
    /// Entries of /etc/ld.so.preload.
    pub system_preload: Vec<String>,
    /// The text of the symbolic link /etc/malloc.conf.
    pub malloc_conf_link: Option<String>,
    /// What is at the paths that LD_PRELOAD names.
    pub preload_files: Vec<(String, PreloadFile)>,
    /// Where its page of counters lies, if there is a sign of one.
    pub counters_at: Option<u64>,
    pub counters: Option<Counters>,
    /// Why there are no counters although snug is loaded.
    pub counters_error: Option<ReadError>,
    /// Where an allocator that is asked leaves its answers.
    pub answers_at: Option<u64>,
    pub is_forked: bool,
    pub hooks: Option<ForkHooks>,
    pub transparent_huge_pages: String,
    /// What it holds, where huge pages may be part of it and somebody wants to know.
    pub rollup: Option<Rollup>,
    /// Libraries that are nowhere: who needs them, and their names. For programs that do not run.
    pub missing: Vec<(String, String)>,
    /// What was noticed while looking.
    pub notes: Vec<Problem>,
    pub place: Place,
}

/// A mapped ELF file.
#[derive(Debug, Clone, Default)]
pub struct Image {
    pub path: String,
    pub deleted: bool,
    /// Lowest address at which it is mapped.
    pub base: u64,
    pub elf: Option<Rc<ElfFacts>>,
    /// Version of the allocator in it, if it is one.
    pub version: Option<String>,
}

/// What a path in LD_PRELOAD leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreloadFile {
    Missing,
    NotElf,
    Elf(Rc<ElfFacts>),
}

impl Image {
    pub fn exports_malloc(&self) -> bool {
        self.elf.as_ref().is_some_and(|elf| elf.exported.contains_key("malloc"))
    }

    /// The allocator in this file, by its symbols or else by its name.
    pub fn kind(&self) -> Option<Kind> {
        let by_symbols = self.elf.as_ref().and_then(|elf| {
            Kind::from_symbols(elf.exported.keys().chain(elf.internal.keys()).map(String::as_str))
        });
        let by_name = Kind::from_file_name(&self.path);
        match (by_symbols, by_name) {
            // A library named after an allocator tells more by that than by a C library's symbols.
            (Some(kind), Some(named)) if kind.is_c_library() && !named.is_c_library() => Some(named),
            (Some(kind), _) => Some(kind),
            (None, named) => named,
        }
    }

    /// A library whose purpose is to be an allocator.
    pub fn is_allocator_library(&self) -> bool {
        self.kind().is_some_and(|kind| !kind.is_c_library())
            && self.elf.as_ref().is_none_or(|_| self.exports_malloc())
    }

    pub fn answers_to(&self, needed: &str) -> bool {
        file_name(&self.path) == needed
            || self.elf.as_ref().and_then(|elf| elf.soname.as_deref()) == Some(needed)
    }
}

impl Facts {
    pub fn variable(&self, name: &str) -> Option<&str> {
        let environment = self.environment.as_ref()?;
        environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Paths in LD_PRELOAD.
    pub fn preload_paths(&self) -> Vec<&str> {
        let variable = self.variable("LD_PRELOAD").unwrap_or_default();
        variable.split([':', ' ']).filter(|path| !path.is_empty()).collect()
    }

    /// The libraries that are preloaded: indices into `objects`, in the order of the loader.
    pub fn preloaded(&self) -> Vec<usize> {
        let needed = self.needed_order(&[]);
        let asked =
            self.preload_paths().into_iter().map(String::from).chain(self.system_preload.iter().cloned());
        let mut preloaded: Vec<usize> = Vec::new();
        for path in asked {
            let name = file_name(&path).to_string();
            let found =
                self.objects.iter().position(|object| object.path == path || object.answers_to(&name));
            let by_link = || self.through_link(&path);
            preloaded.extend(found.or_else(by_link).filter(|index| !preloaded.contains(index)));
        }
        // A process title may have been written over the environment. Then the place tells.
        for (index, object) in self.objects.iter().enumerate() {
            let unexplained = !needed.contains(&index) && !preloaded.contains(&index);
            if unexplained && object.is_allocator_library() && self.is_placed_first(object, &needed) {
                preloaded.push(index);
            }
        }
        preloaded
    }

    /// Whether an object was mapped before those that the program needs: the loader begins with what is preloaded, and
    /// maps each further one below the one before. musl's C library is its loader, and so there before all.
    fn is_placed_first(&self, object: &Image, needed: &[usize]) -> bool {
        let c_library = self.objects.iter().find(|other| other.kind().is_some_and(Kind::is_c_library));
        match c_library.and_then(Image::kind) {
            None => false,
            Some(Kind::Musl) => {
                let mut others = needed.iter().map(|index| &self.objects[*index]);
                others.all(|other| other.kind() == Some(Kind::Musl) || object.base > other.base)
            }
            Some(_) => c_library.is_some_and(|c_library| object.base > c_library.base),
        }
    }

    /// LD_PRELOAD may name a link: then the ELF file behind it has the soname of a mapped object.
    pub fn through_link(&self, path: &str) -> Option<usize> {
        let (_, file) = self.preload_files.iter().find(|(other, _)| other == path)?;
        let PreloadFile::Elf(elf) = file else { return None };
        let soname = elf.soname.as_deref()?;
        self.objects.iter().position(|object| object.answers_to(soname))
    }

    /// Libraries needed by the program and by `first`, breadth first, as the loader orders them.
    pub fn needed_order(&self, first: &[usize]) -> Vec<usize> {
        let mut order: Vec<usize> = first.to_vec();
        let mut seen: HashSet<usize> = first.iter().copied().collect();
        let mut queue: VecDeque<Option<usize>> = VecDeque::from([None]);
        queue.extend(first.iter().copied().map(Some));
        while let Some(at) = queue.pop_front() {
            let image = at.map_or(&self.executable, |index| &self.objects[index]);
            let Some(elf) = &image.elf else { continue };
            for needed in &elf.needed {
                let Some(index) = self.objects.iter().position(|object| object.answers_to(needed)) else {
                    continue;
                };
                if seen.insert(index) {
                    order.push(index);
                    queue.push_back(Some(index));
                }
            }
        }
        order
    }
}
