//! The hooks of snug's wheel, where it is installed for the Python that a program is about to run in: variables that switch
//! them on, the same as `python -m snug run` sets.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// 0 leaves all hooks out, of the gem, too.
pub const SWITCH: &str = "SNUG_HOOKS";
/// Servers that have hooks, and whose names say so; uWSGI's name may go on.
const SERVERS: &[&str] = &["celery", "gunicorn"];
const UWSGI_BEGINS: &str = "uwsgi";
/// Small objects lie in slabs then.
const MALLOC: (&str, &str) = ("PYTHONMALLOC", "malloc");
/// uWSGI imports no module of its own; it takes options from variables.
const UWSGI: (&str, &str) = ("UWSGI_IMPORT", "snug.uwsgi");
/// For those that load applications before they fork: in a worker no thread holds Python's lock then, and the call would end
/// it by a fault.
const UWSGI_BEFORE_FORK: (&str, &str) =
    ("UWSGI_HOOK_POST_APP", "call:PyRun_SimpleString import snug.uwsgi as s; s.before_fork()");
/// Words in a configuration by which workers may load applications themselves, there or in a file that it names.
const MAY_BE_LAZY: &[&str] = &["lazy", "emperor", "include", "inherit"];
const CONFIGURATION_ENDS: &[&str] = &[".ini", ".xml", ".yaml", ".yml", ".json", ".conf", ".cfg"];

/// What switches hooks on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hooks {
    pub server: String,
    /// The folder that Python is to look into first.
    pub folder: PathBuf,
    /// What is set where it is not set yet.
    pub variables: Vec<(&'static str, &'static str)>,
}

/// The hooks of a server that has some, if the wheel is there. `image` is the program's file.
pub fn hooks(words: &[OsString], image: &Path) -> Option<Hooks> {
    let server = server(words)?;
    let mut variables = vec![MALLOC];
    if server.starts_with(UWSGI_BEGINS) {
        variables.push(UWSGI);
        let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let set = std::env::vars_os()
            .map(|(name, value)| [name, value].map(|text| text.to_string_lossy().into_owned()));
        if !may_be_lazy(&words, set.filter(|[name, _]| name.starts_with("UWSGI_"))) {
            variables.push(UWSGI_BEFORE_FORK);
        }
    }
    Some(Hooks { folder: folder(image)?, server, variables })
}

/// Whether uWSGI's workers may load applications themselves, by the command, the variables, and the files that these name.
fn may_be_lazy(words: &[String], variables: impl Iterator<Item = [String; 2]>) -> bool {
    let mut values: Vec<String> = words
        .iter()
        .map(|word| word.split_once('=').map_or(word.as_str(), |(_, value)| value).into())
        .collect();
    let mut texts = words.to_vec();
    for [name, value] in variables {
        texts.push(name.to_lowercase());
        values.push(value);
    }
    for path in values.iter().map(|value| value.split(':').next().unwrap_or(value)) {
        if CONFIGURATION_ENDS.iter().any(|end| path.ends_with(end)) {
            let Ok(text) = std::fs::read(path) else { return true };
            texts.push(String::from_utf8_lossy(&text).into_owned());
        }
    }
    texts.iter().any(|text| MAY_BE_LAZY.iter().any(|word| text.contains(word)))
}

impl Hooks {
    /// PYTHONPATH with the folder first. None: it is there already.
    pub fn python_path(&self, existing: Option<&OsStr>) -> Option<OsString> {
        let existing = existing.filter(|existing| !existing.is_empty());
        let parts: Vec<PathBuf> =
            existing.map(|existing| std::env::split_paths(existing).collect()).unwrap_or_default();
        if parts.iter().any(|part| part.ends_with("snug/auto")) {
            return None;
        }
        std::env::join_paths(std::iter::once(self.folder.clone()).chain(parts)).ok()
    }
}

/// The server that a command starts: `celery -A app worker`, `python3 -m celery`.
fn server(words: &[OsString]) -> Option<String> {
    let name = |index: usize| Some(Path::new(words.get(index)?).file_name()?.to_string_lossy().into_owned());
    let first = name(0)?;
    let is_module = first.starts_with("python") && words.get(1).is_some_and(|word| word == "-m");
    let named = if is_module { name(2)? } else { first };
    (SERVERS.contains(&named.as_str()) || named.starts_with(UWSGI_BEGINS)).then_some(named)
}

/// Where the wheel has what Python reads at its start, for this interpreter, or for uWSGI beside one.
fn folder(image: &Path) -> Option<PathBuf> {
    let real = image.canonicalize().ok();
    let version = real.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    // As python3.11: other versions have folders of their own under the same prefix.
    let version = version.filter(|name| name.starts_with("python3."));
    let prefixes = [Some(image), real.as_deref()].into_iter().flatten();
    for prefix in prefixes.filter_map(|path| path.parent()?.parent()) {
        let folders = ["lib", "lib64", "local/lib"].map(|name| prefix.join(name));
        let pythons =
            folders.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
        let fits = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name == "python3"
                || version.as_ref().map_or(name.starts_with("python3."), |version| name == *version)
        };
        let pythons = pythons.map(|entry| entry.path()).filter(fits);
        let packages =
            pythons.flat_map(|path| ["site-packages", "dist-packages"].map(|name| path.join(name)));
        let mut hooks = packages.map(|path| path.join("snug/auto"));
        if let Some(found) = hooks.find(|path| path.join("sitecustomize.py").is_file()) {
            return Some(found);
        }
        // A virtual environment sees no other packages, unless it says so; and then they are found by its interpreter's.
        let settings = std::fs::read_to_string(prefix.join("pyvenv.cfg")).ok();
        if settings.is_some_and(|text| !text.contains("include-system-site-packages = true")) {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn servers_are_known_by_their_names() {
        let known = |text: &str| server(&words(text));
        assert_eq!(known("/srv/venv/bin/celery -A app worker").as_deref(), Some("celery"));
        assert_eq!(known("python3.12 -m gunicorn app:app").as_deref(), Some("gunicorn"));
        assert_eq!(known("uwsgi-core --ini x").as_deref(), Some("uwsgi-core"));
        for other in ["python3 celery.py", "puma", "sh -c celery", "python3 -m http.server", "python3 -m"] {
            assert_eq!(known(other), None, "{other}");
        }
    }

    /// Text between quotes in the statement of the wheel that assigns to a name.
    fn of_wheel(name: &str) -> Vec<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/wheel/snug/__main__.py");
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = ")).unwrap();
        line.split('"').skip(1).step_by(2).map(String::from).collect()
    }

    #[test]
    fn servers_and_variables_are_those_of_the_wheel() {
        let flat = |pairs: &[(&str, &str)]| {
            pairs.iter().flat_map(|(name, value)| [name.to_string(), value.to_string()]).collect::<Vec<_>>()
        };
        assert_eq!(of_wheel("FORKING"), SERVERS);
        assert_eq!(of_wheel("MALLOC"), flat(&[MALLOC]));
        assert_eq!(of_wheel("UWSGI"), flat(&[UWSGI]));
        assert_eq!(of_wheel("UWSGI_BEFORE_FORK"), flat(&[UWSGI_BEFORE_FORK]));
        assert_eq!(of_wheel("MAY_BE_LAZY"), MAY_BE_LAZY);
    }

    #[test]
    fn workers_that_load_applications_themselves_get_no_call_before_the_fork() {
        let scratch = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(scratch.path().join(name), text).unwrap();
            scratch.path().join(name).display().to_string()
        };
        let (plain, lazy) =
            (file("a.ini", "[uwsgi]\nmaster = 1\n"), file("b.ini", "[uwsgi]\nlazy-apps = 1\n"));
        let is_lazy = |command: &str, set: &[[&str; 2]]| {
            let words: Vec<String> = command.split(' ').map(String::from).collect();
            may_be_lazy(&words, set.iter().map(|pair| pair.map(String::from)))
        };
        assert!(!is_lazy("uwsgi --master --wsgi-file app.py", &[["UWSGI_PROCESSES", "2"]]));
        assert!(!is_lazy(&format!("uwsgi --ini {plain}"), &[]));
        assert!(is_lazy("uwsgi --lazy-apps --wsgi-file app.py", &[]));
        assert!(is_lazy("uwsgi --wsgi-file app.py", &[["UWSGI_LAZY_APPS", "1"]]));
        for command in
            [format!("uwsgi {lazy}"), format!("uwsgi --ini={lazy}:section"), "uwsgi /no/such.ini".into()]
        {
            assert!(is_lazy(&command, &[]), "{command}");
        }
        assert!(is_lazy("uwsgi", &[["UWSGI_INI", &lazy]]));
    }

    #[test]
    fn the_folder_is_that_of_the_interpreter() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let install = |name: &str| {
            let folder = path(name).join("snug/auto");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("sitecustomize.py"), "").unwrap();
            folder
        };
        let link = |name: &str, to: &Path| {
            std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(to, path(name)).unwrap();
            path(name)
        };
        std::fs::create_dir_all(path("usr/bin")).unwrap();
        std::fs::write(path("usr/bin/python3.11"), "").unwrap();
        let system = link("usr/bin/python3", &path("usr/bin/python3.11"));
        assert_eq!(folder(&system), None);
        install("usr/lib/python3.12/site-packages");
        assert_eq!(folder(&system), None, "another version's");
        let of_system = install("usr/local/lib/python3.11/dist-packages");
        assert_eq!(folder(&system).unwrap(), of_system);
        let virtual_one = link("venv/bin/python", &system);
        assert_eq!(folder(&virtual_one).unwrap(), of_system);
        std::fs::write(path("venv/pyvenv.cfg"), "include-system-site-packages = false\n").unwrap();
        assert_eq!(folder(&virtual_one), None);
        let own = install("venv/lib/python3.11/site-packages");
        assert_eq!(folder(&virtual_one).unwrap(), own);
    }

    #[test]
    fn the_folder_is_put_first_once() {
        let hooks = Hooks { server: "celery".into(), folder: "/v/snug/auto".into(), variables: vec![] };
        assert_eq!(hooks.python_path(None).unwrap(), "/v/snug/auto");
        assert_eq!(hooks.python_path(Some(OsStr::new(""))).unwrap(), "/v/snug/auto");
        assert_eq!(hooks.python_path(Some(OsStr::new("/a:/b"))).unwrap(), "/v/snug/auto:/a:/b");
        assert_eq!(hooks.python_path(Some(OsStr::new("/a:/w/snug/auto"))), None, "the wheel did it");
    }
}
