//! Sites, the code that allocated: sampled stacks under one name for each frame, native and of an interpreter, merged
//! and as a tree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snug_base::file::file_name;

use snug_process::symbols::CODE_MADE;

/// A function, and the line of it that ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Its name.
    pub function: String,
    /// The source file; of native code, the file that is mapped. Empty: none.
    pub file: String,
    /// 0: unknown, and of native code. Of JavaScript's, where the function begins.
    pub line: u32,
    /// Of native code, the place in the source that was compiled, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceLine>,
}

/// A line of a source that was compiled.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceLine {
    /// The source file.
    pub file: String,
    /// The line in it.
    pub line: u32,
}

impl Frame {
    /// A frame at a line of a file; of native code, 0 in the file that is mapped.
    pub fn new(function: impl Into<String>, file: impl Into<String>, line: u32) -> Frame {
        Frame { function: function.into(), file: file.into(), line, source: None }
    }

    /// The last part of the file's path.
    fn file_name(&self) -> &str {
        file_name(&self.file)
    }

    /// As people read it.
    pub fn text(&self) -> String {
        let file = self.file_name();
        match (self.line, &self.source) {
            (0, Some(source)) => format!("{} ({}:{})", self.function, source.file, source.line),
            _ if file.is_empty() => self.function.clone(),
            (0, None) => format!("{} ({file})", self.function),
            (line, _) => format!("{} ({}:{line})", self.function, without_package_folder(&self.file)),
        }
    }
}

/// The part of a path below the folder in which packages of the language are installed, or all of it.
fn without_package_folder(path: &str) -> &str {
    let folders = ["/gems/", "/site-packages/", "/dist-packages/"];
    let below = folders.iter().filter_map(|folder| Some(path.rsplit_once(folder)?.1));
    below.min_by_key(|rest| rest.len()).unwrap_or(path)
}

/// What was allocated at one stack: estimates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// Bytes.
    pub bytes: f64,
    /// Blocks.
    pub blocks: f64,
    /// Samples behind the estimates.
    pub samples: u64,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// Of the bytes, by the samples. None: not known, in files that were written before it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variance: Option<f64>,
}

impl Site {
    /// What one sampled block stands for. It was to be sampled by a chance of one in `blocks`, from which its part of the
    /// variance follows (Horvitz and Thompson, 1952).
    pub fn of_sample(bytes: f64, blocks: f64) -> Site {
        let variance = bytes * bytes * (1.0 - 1.0 / blocks.max(1.0));
        Site { bytes, blocks, samples: 1, variance: Some(variance), frames: Vec::new() }
    }

    /// The variance; where it is not known, as if all samples weighed the same.
    pub fn variance_or_guess(&self) -> f64 {
        let samples = self.samples.max(1) as f64;
        let unsure = (1.0 - samples / self.blocks.max(samples)).max(0.0);
        self.variance.unwrap_or(self.bytes * self.bytes / samples * unsure)
    }
}

/// The library itself, and the names under which programs call it.
fn is_allocator(frame: &Frame) -> bool {
    let file = frame.file_name();
    let named = ["malloc", "calloc", "realloc", "posix_memalign", "_Znwm", "_Znam"]
        .contains(&frame.function.as_str());
    named || file.starts_with("libsnug.so") || file.starts_with("libjemalloc.so")
}

/// Whether a native frame is the interpreter's own: of its library, or of a program such as ruby or python3.11.
fn is_interpreter(frame: &Frame) -> bool {
    let file = frame.file_name();
    ["ruby", "python", "pypy"].iter().any(|name| {
        // As python3.14t: without the global lock; python3.14d: with checks.
        let version = file.strip_prefix(name).map(|version| version.trim_end_matches(['d', 't']));
        version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
            || file.strip_prefix("lib").is_some_and(|library| library.starts_with(name))
    })
}

/// Whether a native frame runs code of the language: what is further out called that, and not what was allocated.
/// Interpreters without symbols of their own show the functions by which extensions have such code run.
fn runs_language(frame: &Frame) -> bool {
    let begins = [
        "_PyEval_EvalFrame",
        "PyEval_Eval",
        "PyObject_Call",
        "PyObject_Vectorcall",
        "_PyObject_Call",
        "rb_vm_exec",
        "rb_vm_call",
        "rb_vm_invoke",
        "rb_yield",
        "rb_funcall",
        "rb_block_call",
        "rb_proc_call",
        "rb_eval",
        "rb_iterate",
        "rb_class_new_instance",
        "rb_obj_call_init",
        "rb_ensure",
        "rb_rescue",
        "rb_protect",
        "rb_catch",
        "vm_exec",
    ];
    is_interpreter(frame) && begins.iter().any(|begin| frame.function.starts_with(begin))
}

/// Whether a native frame is code of a library or a program, which code made at run time is not.
fn is_of_file(frame: &Frame) -> bool {
    frame.file.starts_with('/')
}

/// Whether it is of libc and what belongs to it, which allocate for their callers.
fn is_of_system(frame: &Frame) -> bool {
    let file = frame.file_name();
    ["libc.", "libc-", "ld-", "libpthread", "libstdc++"].iter().any(|name| file.starts_with(name))
}

/// One stack of both, innermost first: native frames up to the interpreter, then those of its language. Frames of the
/// allocator are left out, and so are the interpreter's own by which an extension allocates.
pub fn splice(native: Vec<Frame>, language: Vec<Frame>) -> Vec<Frame> {
    let mut frames: Vec<Frame> = native.into_iter().skip_while(is_allocator).collect();
    if !language.is_empty() {
        let own = frames.iter().position(runs_language).unwrap_or(frames.len());
        frames.truncate(own);
        let extension = frames.iter().rposition(|frame| !is_interpreter(frame) && is_of_file(frame));
        frames.truncate(extension.map_or(0, |last| last + 1));
        let inner = frames.iter().position(|frame| !is_interpreter(frame)).unwrap_or(0);
        frames.drain(..inner);
        frames.extend(language);
    }
    frames
}

/// What the frame begins and ends with that stands for code of a language that the library does not read.
const UNREAD: (&str, &str) = ("[code of ", "]");

/// Adds such a frame where the interpreter begins, seen from outside, if it is in the stack at all. `name`: of the language,
/// and its version.
pub fn mark_unread(frames: &mut Vec<Frame>, name: &str) {
    if let Some(outermost) = frames.iter().rposition(is_interpreter) {
        let function = format!("{}{name}{}", UNREAD.0, UNREAD.1);
        frames.insert(outermost + 1, Frame { function, ..Frame::default() });
    }
}

fn unread(frame: &Frame) -> Option<&str> {
    let name = frame.function.strip_prefix(UNREAD.0)?.strip_suffix(UNREAD.1)?;
    Some(name).filter(|_| frame.file.is_empty())
}

/// An interpreter in the stack of which no version is read.
pub fn unread_interpreter(frames: &[Frame]) -> Option<&'static str> {
    let names = [("libpypy", "PyPy"), ("libpythonvm", "GraalPy")];
    let found = |(begin, _): &(&str, _)| frames.iter().any(|frame| frame.file_name().starts_with(begin));
    names.into_iter().find(found).map(|(_, name)| name)
}

/// What every command that names lines says where the code of a process's language has no names. None: it has, or there is
/// none.
pub fn lacks_language<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Option<String> {
    let frames: Vec<&Frame> = frames.into_iter().collect();
    let unread = frames.iter().find_map(|frame| unread(frame));
    unread.map(unread_text).or_else(|| unnamed_text(&frames))
}

/// The same of languages whose functions are made at run time, and named by their runtime if it is asked to.
fn unnamed_text(frames: &[&Frame]) -> Option<String> {
    let any = |is: fn(&Frame) -> bool| frames.iter().any(|frame| is(frame));
    let has_node = any(|frame| frame.file_name() == "node" || frame.file_name().starts_with("libnode.so"));
    let has_java = any(|frame| frame.file_name() == "libjvm.so");
    let (language, how) = if has_node && !any(|frame| frame.line > 0) {
        ("JavaScript", "Node names them if it is started with NODE_OPTIONS='--perf-basic-prof --interpreted-frames-native-stack'")
    } else if has_java && any(|frame| frame.function == CODE_MADE) {
        ("Java", "they have some if an agent writes /tmp/perf-PID.map")
    } else {
        return None;
    };
    Some(format!("{language}'s functions have no names here, so native ones stand for them: {how}"))
}

/// That note, by the language's name and version.
pub fn unread_text(name: &str) -> String {
    format!(
        "the library does not read the code of {name}, so its frames are native only, and none of its lines is named: it \
         reads Ruby 3.0 to 4.1 and CPython 3.11 to 3.15, not builds without the global lock"
    )
}

/// Index of the frame that people look for: the innermost with a line of a language; else that of native code. Where the
/// language is not read, not one of its interpreter but of the extension that allocates by it, or what stands for its code.
pub fn telling_frame(frames: &[Frame]) -> usize {
    // Node's own scripts are no more telling than its native code.
    let of_program = frames.iter().position(|frame| frame.line > 0 && !frame.file.starts_with("node:"));
    let any = || frames.iter().position(|frame| frame.line > 0);
    of_program.or_else(any).unwrap_or_else(|| own_frame(frames))
}

/// Index of the innermost frame that is none of the standard library of C++ or Rust, nor of an interpreter that is not read.
pub fn own_frame(frames: &[Frame]) -> usize {
    let Some(code) = frames.iter().position(|frame| unread(frame).is_some()) else {
        return frames.iter().position(|frame| !is_of_standard_library(frame)).unwrap_or(0);
    };
    let mut inner = frames[..code].iter().take_while(|frame| !runs_language(frame));
    let is_extension = |frame: &Frame| {
        !is_interpreter(frame) && is_of_file(frame) && !is_of_system(frame) && !is_of_standard_library(frame)
    };
    inner.position(is_extension).unwrap_or(code)
}

/// Containers, strings and allocators of C++ and Rust, which allocate for who calls them.
fn is_of_standard_library(frame: &Frame) -> bool {
    let name = frame.function.trim_start_matches('<');
    let spaces = ["std::", "__gnu_cxx::", "core::", "alloc::", "hashbrown::", "__rustc::", "operator new"];
    frame.line == 0 && spaces.iter().any(|space| name.starts_with(space))
}

/// Adds sites with the same frames up; the most bytes first.
pub fn merge(sites: impl IntoIterator<Item = Site>) -> Vec<Site> {
    let mut merged: BTreeMap<Vec<Frame>, Site> = BTreeMap::new();
    for site in sites {
        let into = merged.entry(site.frames.clone()).or_default();
        into.bytes += site.bytes;
        into.blocks += site.blocks;
        into.variance = Some(into.variance.unwrap_or(0.0) + site.variance_or_guess());
        into.samples += site.samples;
        into.frames = site.frames;
    }
    let mut sites: Vec<Site> = merged.into_values().collect();
    sites.sort_by(|a, b| b.bytes.total_cmp(&a.bytes).then_with(|| a.frames.cmp(&b.frames)));
    sites
}

/// Callers above callees: what was allocated in a function or below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Branch {
    /// An estimate.
    pub bytes: f64,
    /// Samples behind it.
    pub samples: u64,
    /// Of the bytes.
    pub variance: f64,
    /// The function.
    pub frame: Frame,
    /// The most bytes first.
    pub below: Vec<Branch>,
}

/// The tree of all sites; its root stands for the process.
pub fn tree(sites: &[Site]) -> Branch {
    let mut root = Branch::default();
    for site in sites {
        root.add(site);
        let mut node = &mut root;
        for frame in site.frames.iter().rev() {
            let found = node.below.iter().position(|child| child.frame == *frame);
            let index = found.unwrap_or(node.below.len());
            if found.is_none() {
                node.below.push(Branch { frame: frame.clone(), ..Branch::default() });
            }
            node = &mut node.below[index];
            node.add(site);
        }
    }
    sort(&mut root);
    root
}

impl Branch {
    fn add(&mut self, site: &Site) {
        self.bytes += site.bytes;
        self.samples += site.samples;
        self.variance += site.variance_or_guess();
    }
}

fn sort(node: &mut Branch) {
    node.below.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    node.below.iter_mut().for_each(sort);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_shown_without_their_folder() {
        let frame = |file: &str| Frame::new("f", file, 3).text();
        assert_eq!(
            frame("/usr/share/rubygems-integration/all/gems/rack-2.2.6/lib/rack.rb"),
            "f (rack-2.2.6/lib/rack.rb:3)"
        );
        assert_eq!(frame("/v/lib/python3.11/site-packages/celery/app/trace.py"), "f (celery/app/trace.py:3)");
        assert_eq!(frame("/srv/shop/app/models/order.rb"), "f (/srv/shop/app/models/order.rb:3)");
    }

    fn frame(function: &str, file: &str) -> Frame {
        Frame::new(function, file, 0)
    }

    fn site(bytes: f64, names: &[&str]) -> Site {
        let frames = names.iter().map(|name| frame(name, "a")).collect();
        Site { bytes, blocks: 1.0, samples: 1, frames, variance: None }
    }

    #[test]
    fn native_frames_end_where_the_interpreter_begins() {
        let native = vec![
            frame("block_take_slow", "/l/libsnug.so"),
            frame("malloc", "/l/libsnug.so"),
            frame("parse", "/gems/parser.so"),
            frame("vm_exec", "/usr/lib/libruby-3.1.so.3.1"),
            frame("main", "/usr/bin/ruby3.1"),
        ];
        let language = vec![frame("Parser.parse", "a.rb"), frame("<main>", "b.rb")];
        let names = |frames: Vec<Frame>| frames.into_iter().map(|frame| frame.function).collect::<Vec<_>>();
        assert_eq!(names(splice(native.clone(), language)), ["parse", "Parser.parse", "<main>"]);
        assert_eq!(names(splice(native, vec![])), ["parse", "vm_exec", "main"]);
    }

    #[test]
    fn interpreters_that_are_not_read_are_told_and_are_no_culprits() {
        let ruby = |function| frame(function, "/opt/lib/libruby.so.4.0.1");
        let main = || frame("main", "/opt/bin/ruby");
        let marked = |mut frames: Vec<Frame>| {
            mark_unread(&mut frames, "Ruby 4.0");
            frames
        };
        let native = [ruby("rb_gc_impl_malloc"), ruby("rb_str_new"), ruby("vm_exec"), main()];
        let code = marked(native.to_vec());
        assert_eq!(code.iter().map(Frame::text).collect::<Vec<_>>()[4], "[code of Ruby 4.0]");
        assert!(lacks_language(&code).unwrap().contains("does not read the code of Ruby 4.0"));
        // Native samples alone say nothing about the version.
        assert_eq!(lacks_language(&native), None);
        assert_eq!(lacks_language(&marked(vec![frame("work", "/opt/bin/server")])), None);
        let told = |native: &[Frame]| {
            let frames = marked(native.to_vec());
            frames[telling_frame(&frames)].text()
        };
        assert_eq!(told(&native), "[code of Ruby 4.0]");
        let extension = frame("grow", "/gems/parser.so");
        assert_eq!(
            told(&[ruby("rb_gc_impl_malloc"), extension.clone(), ruby("vm_exec"), main()]),
            "grow (parser.so)"
        );
        assert_eq!(told(&[frame("strdup", "/lib/libc.so.6"), ruby("rb_x"), main()]), "[code of Ruby 4.0]");
        // It calls code of the language, which allocates.
        assert_eq!(told(&[ruby("rb_str_new"), ruby("rb_yield"), extension, main()]), "[code of Ruby 4.0]");
        let python = [frame("python3.15+0x2ce4ed", "/usr/bin/python3.15"), main()];
        assert_eq!(told(&python), "[code of Ruby 4.0]");
    }

    #[test]
    fn runtimes_without_names_are_told() {
        let malloc = || frame("malloc", "/l/libsnug.so");
        let pypy = [
            malloc(),
            frame("libpypy3.11-c.so+0x1", "/l/libpypy3.11-c.so"),
            frame("main", "/usr/bin/pypy3.11"),
        ];
        assert_eq!(unread_interpreter(&pypy), Some("PyPy"));
        let mut frames = splice(pypy.to_vec(), vec![]);
        mark_unread(&mut frames, "PyPy");
        assert_eq!(frames[telling_frame(&frames)].text(), "[code of PyPy]");
        assert_eq!(unread_interpreter(&[frame("f", "/l/libpythonvm.so")]), Some("GraalPy"));
        assert_eq!(unread_interpreter(&[frame("f", "/l/libpython3.14.so.1.0"), malloc()]), None);

        for program in ["python3.14t", "python3.14td", "python3.14", "python3", "ruby4.0"] {
            assert!(is_interpreter(&frame("f", &format!("/usr/bin/{program}"))), "{program}");
        }
        assert!(!is_interpreter(&frame("f", "/usr/bin/python3.14-tool")));

        let script = Frame { line: 3, ..frame("keep", "/app/keeps.js") };
        for file in ["/usr/bin/node", "/l/libnode.so.137"] {
            let native = frame("node::Buffer::New", file);
            let note = lacks_language([&native, &frame(CODE_MADE, "")]).unwrap();
            assert!(note.contains("JavaScript") && note.contains("--perf-basic-prof"), "{note}");
            assert_eq!(lacks_language([&native, &script]), None);
            let own = Frame { line: 391, ..frame("alloc", "node:buffer") };
            assert_eq!(telling_frame(&[native.clone(), own.clone(), script.clone()]), 2);
            assert_eq!(telling_frame(&[native, own]), 1);
        }
        let java = frame("os::malloc", "/jvm/lib/server/libjvm.so");
        assert!(lacks_language([&java, &frame(CODE_MADE, "")]).unwrap().starts_with("Java's"));
        assert_eq!(lacks_language([&java, &frame("Ljava/lang/String;::hash", "")]), None);
        assert_eq!(lacks_language([&frame("main", "/usr/bin/node_exporter")]), None);
    }

    #[test]
    fn extensions_that_allocate_through_the_interpreter_are_seen() {
        let ruby = |function| frame(function, "/usr/lib/libruby-3.1.so.3.1");
        let python = |function| frame(function, "/usr/bin/python3.11");
        let malloc = || frame("malloc", "/l/libsnug.so");
        let line = || vec![frame("call", "a.rb")];
        let names =
            |native| splice(native, line()).into_iter().map(|frame| frame.function).collect::<Vec<_>>();
        let native = frame("grow", "/gems/parser.so");
        assert_eq!(
            names(vec![malloc(), ruby("ruby_xmalloc"), native.clone(), ruby("rb_vm_exec")]),
            ["grow", "call"]
        );
        let outer = frame("parse", "/gems/parser.so");
        let through = [malloc(), ruby("rb_str_new"), native.clone(), ruby("rb_hash_foreach"), outer];
        assert_eq!(names(through.to_vec()), ["grow", "rb_hash_foreach", "parse", "call"]);
        // What calls code of the language did not allocate.
        let by_yield = vec![malloc(), ruby("rb_str_dup"), ruby("rb_yield"), native.clone()];
        assert_eq!(names(by_yield), ["call"]);
        let evaluated =
            vec![malloc(), python("PyMem_Malloc"), python("_PyEval_EvalFrameDefault.cold"), native.clone()];
        assert_eq!(names(evaluated), ["call"]);
        // Nor did code made at run time, which has no file.
        assert_eq!(names(vec![malloc(), ruby("ruby_xmalloc"), frame("0x7f", "")]), ["call"]);
        assert_eq!(names(vec![malloc(), ruby("ruby_xmalloc"), frame("0x7f", "[anon]")]), ["call"]);
    }

    #[test]
    fn files_of_interpreters_are_known() {
        for file in [
            "pypy3.11",
            "libpypy3.11-c.so",
            "ruby",
            "ruby3.1",
            "libruby.so.3.3",
            "python3",
            "python3.11",
            "libpython3.13.so.1.0",
        ] {
            assert!(is_interpreter(&frame("main", &format!("/usr/lib/{file}"))), "{file}");
        }
        for file in ["rubyx", "python3-config", "json.so", "_json.cpython-311-x86_64-linux-gnu.so", ""] {
            assert!(!is_interpreter(&frame("main", &format!("/usr/lib/{file}"))), "{file}");
        }
    }

    #[test]
    fn equal_stacks_are_one_site_and_make_a_tree() {
        let sites = merge([site(1.0, &["f", "main"]), site(5.0, &["g", "main"]), site(2.0, &["f", "main"])]);
        assert_eq!(
            sites.iter().map(|site| (site.bytes, site.samples)).collect::<Vec<_>>(),
            [(5.0, 1), (3.0, 2)]
        );
        let root = tree(&sites);
        assert_eq!((root.bytes, root.below.len()), (8.0, 1));
        let main = &root.below[0];
        assert_eq!((main.bytes, main.frame.function.as_str()), (8.0, "main"));
        assert_eq!(main.below.iter().map(|node| node.bytes).collect::<Vec<_>>(), [5.0, 3.0]);
    }

    #[test]
    fn frames_are_short_to_read() {
        let ruby = Frame::new("each", "/app/a.rb", 7);
        assert_eq!(ruby.text(), "each (/app/a.rb:7)");
        assert_eq!(frame("f", "/usr/lib/libz.so.1").text(), "f (libz.so.1)");
        assert_eq!(frame("f", "").text(), "f");
    }
}
