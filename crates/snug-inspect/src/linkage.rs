//! The linkage of a program: how, with which C library, and what follows for a preloaded library. Pure.

use serde::Serialize;

use crate::facts::{Facts, Image};
use crate::kinds::Kind;

/// How a program is linked, and with what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Linkage {
    pub linked: Linked,
    /// None: it has none; of a static program, also: it was stripped and does not show one.
    pub c_library: Option<Kind>,
    pub c_library_version: Option<String>,
    /// The kernel gives it rights that who started it does not have.
    pub setuid: bool,
    pub preload: PreloadEffect,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Linked {
    /// A loader starts it.
    #[default]
    Dynamically,
    Statically,
    /// At an address that the kernel chooses.
    StaticPie,
}

/// What becomes of libsnug.so in LD_PRELOAD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PreloadEffect {
    #[default]
    Works,
    /// There is no loader.
    Never,
    /// It is loaded, and does nothing: nobody calls malloc of a C library.
    NoEffect,
    /// The loader trusts no variable.
    Ignored,
}

/// Says what kind of program it is.
pub fn linkage(facts: &Facts) -> Linkage {
    let Some(elf) = &facts.executable.elf else { return Linkage::default() };
    let linked = match (elf.is_static_program(), elf.position_independent) {
        (false, _) => Linked::Dynamically,
        (true, false) => Linked::Statically,
        (true, true) => Linked::StaticPie,
    };
    let c_library = c_library_inside(&facts.executable).filter(|_| linked != Linked::Dynamically);
    let loaded = facts.objects.iter().find_map(|object| Some((object.c_library()?, object.version.clone())));
    let (c_library, c_library_version) = match (linked, loaded) {
        (Linked::Dynamically, Some((kind, version))) => (Some(kind), version),
        _ => (c_library, None),
    };
    let preload = match (linked, c_library, facts.setuid) {
        (Linked::Dynamically, _, true) => PreloadEffect::Ignored,
        (Linked::Dynamically, Some(_), false) => PreloadEffect::Works,
        (Linked::Dynamically, None, false) => PreloadEffect::NoEffect,
        _ => PreloadEffect::Never,
    };
    Linkage { linked, c_library, c_library_version, setuid: facts.setuid, preload }
}

/// The C library whose symbols a static program shows, beside those of an allocator that it may have.
fn c_library_inside(executable: &Image) -> Option<Kind> {
    let elf = executable.elf.as_ref()?;
    let has = |kind: &Kind| {
        let row = kind.row();
        let mut symbols = row.iter().flat_map(|row| row.symbols);
        symbols.any(|symbol| elf.internal.contains_key(*symbol) || elf.exported.contains_key(*symbol))
    };
    [Kind::Glibc, Kind::Musl].into_iter().find(has)
}

impl Image {
    fn c_library(&self) -> Option<Kind> {
        self.kind().filter(|kind| kind.is_c_library())
    }
}

impl Linkage {
    /// In a line, with what follows.
    pub fn text(&self) -> String {
        let how = match self.linked {
            Linked::Dynamically => "dynamic",
            Linked::Statically => "static",
            Linked::StaticPie => "static-pie",
        };
        let version =
            self.c_library_version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
        let c_library = match (self.c_library, self.linked) {
            (Some(kind), _) => format!(", {}{version}", kind.name()),
            (None, Linked::Dynamically) => ", without a C library".into(),
            (None, _) => String::new(),
        };
        let setuid = if self.setuid { ", setuid or with capabilities" } else { "" };
        let follows = match self.preload {
            PreloadEffect::Works => "libsnug.so can be preloaded",
            PreloadEffect::Never => "no library can be preloaded; libsnug.a can be linked into it",
            PreloadEffect::NoEffect => "a preloaded libsnug.so leaves it alone",
            PreloadEffect::Ignored => {
                "the loader ignores LD_PRELOAD; a library in /etc/ld.so.preload is loaded"
            }
        };
        format!("{how}{c_library}{setuid}: {follows}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::elf::ElfFacts;
    use std::rc::Rc;

    fn image(path: &str, interpreter: bool, position_independent: bool, symbols: &[&str]) -> Image {
        let elf = ElfFacts {
            interpreter: interpreter.then(|| "/lib/ld.so".into()),
            position_independent,
            internal: symbols.iter().map(|name| (name.to_string(), 1)).collect(),
            ..ElfFacts::default()
        };
        Image { path: path.into(), elf: Some(Rc::new(elf)), version: Some("2.36".into()), ..Image::default() }
    }

    fn text(executable: Image, libraries: &[&str], setuid: bool) -> String {
        let objects = libraries.iter().map(|path| image(path, false, true, &[])).collect();
        linkage(&Facts { executable, objects, setuid, ..Facts::default() }).text()
    }

    #[test]
    fn each_kind_of_program_is_told_with_what_follows() {
        let dynamic = || image("/bin/app", true, true, &[]);
        assert_eq!(
            text(dynamic(), &["/lib/libm.so.6", "/lib/libc.so.6"], false),
            "dynamic, glibc 2.36: libsnug.so can be preloaded"
        );
        assert!(text(dynamic(), &["/lib/ld-musl-x86_64.so.1"], false).starts_with("dynamic, musl"));
        assert_eq!(
            text(dynamic(), &[], false),
            "dynamic, without a C library: a preloaded libsnug.so leaves it alone"
        );
        let setuid = text(dynamic(), &["/lib/libc.so.6"], true);
        assert!(
            setuid.ends_with(
                "with capabilities: the loader ignores LD_PRELOAD; a library in /etc/ld.so.preload is loaded"
            ),
            "{setuid}"
        );
        let linked = ["_int_malloc", "je_malloc"];
        assert!(text(image("/bin/app", false, false, &linked), &[], false)
            .starts_with("static, glibc: no library"));
        assert!(
            text(image("/bin/app", false, true, &["__dls2b"]), &[], false).starts_with("static-pie, musl: ")
        );
        assert!(text(image("/bin/app", false, false, &[]), &[], false).starts_with("static: no library"));
    }
}
