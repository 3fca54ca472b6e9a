//! systemd units that do not run: what their files would start, and with which environment. Read as systemd.unit(5)
//! and systemd.service(5) describe; specifiers other than %% are left as they are.

use std::path::{Path, PathBuf};

use crate::entry::{self, EntryCommand};
use snug_base::failure::{Failure, Result, UNKNOWN};
use snug_base::file::file_name;
use snug_process::place::Place;

/// Where unit files lie, the most important first.
const DIRECTORIES: &[&str] = &[
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// What a unit's files say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Service {
    exec_start: Vec<Vec<String>>,
    environment: Vec<(String, String)>,
    environment_files: Vec<String>,
    directory: String,
    root: String,
}

/// The name of a unit with its suffix: systemctl, too, takes `puma` for `puma.service`.
pub fn full_name(name: &str) -> String {
    let file = file_name(name);
    if file.contains('.') {
        file.to_string()
    } else {
        format!("{file}.service")
    }
}

/// The commands that a unit would start, and the root directory for them. `name` may be the path of a unit's file.
pub fn entries(name: &str) -> Result<(Vec<EntryCommand>, PathBuf)> {
    let unit = full_name(name);
    let mut directories: Vec<PathBuf> = DIRECTORIES.iter().map(PathBuf::from).collect();
    let own = std::env::var_os("HOME").map(PathBuf::from);
    directories.extend(own.map(|home| home.join(".config/systemd/user")));
    directories.push("/usr/lib/systemd/user".into());
    let file = match name.contains('/') {
        true => Some(PathBuf::from(name)).filter(|path| path.is_file()),
        false => directories.iter().find_map(|directory| unit_file(directory, &unit)),
    };
    let file = file.ok_or_else(|| {
        Failure::new(format!("no process runs in the unit {unit}, and it has no file"))
            .advise("`systemctl list-units` and `systemctl list-unit-files` list those that exist; a path works, too")
            .exit_code(UNKNOWN)
    })?;
    if name.contains('/') {
        directories = file.parent().map(Path::to_path_buf).into_iter().collect();
    }
    let mut service = Service::default();
    for part in std::iter::once(file.clone()).chain(drop_ins(&directories, &unit)) {
        let text = std::fs::read_to_string(&part).unwrap_or_default();
        service.read(&text);
    }
    if service.exec_start.is_empty() {
        return Err(Failure::new(format!("{} starts nothing: it has no ExecStart", file.display())));
    }
    let mut environment = service.environment;
    for path in &service.environment_files {
        let text = std::fs::read_to_string(path.trim_start_matches('-')).unwrap_or_default();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            environment.extend(words(line).iter().filter_map(|word| assignment(word)));
        }
    }
    // The last assignment counts.
    environment.reverse();
    let entry = |command: Vec<String>| EntryCommand {
        command,
        environment: environment.clone(),
        directory: if service.directory.is_empty() { "/".into() } else { service.directory.clone() },
        place: Place::Unit { name: unit.clone() },
    };
    let root = if service.root.is_empty() { "/".into() } else { service.root.clone() };
    Ok((service.exec_start.into_iter().map(entry).collect(), root.into()))
}

/// The file of a unit in a directory; for `app@3.service` its template's, too.
fn unit_file(directory: &Path, unit: &str) -> Option<PathBuf> {
    let template =
        unit.split_once('@').and_then(|(name, rest)| Some(format!("{name}@.{}", rest.rsplit_once('.')?.1)));
    let names = std::iter::once(unit.to_string()).chain(template);
    names.map(|name| directory.join(name)).find(|path| path.is_file())
}

/// Files that add to a unit, in the order in which they count.
fn drop_ins(directories: &[PathBuf], unit: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for directory in directories {
        let entries = std::fs::read_dir(directory.join(format!("{unit}.d")));
        for path in entries.into_iter().flatten().flatten().map(|entry| entry.path()) {
            let hidden = found.iter().any(|other| other.file_name() == path.file_name());
            if path.extension().is_some_and(|extension| extension == "conf") && !hidden {
                found.push(path);
            }
        }
    }
    found.sort_by_key(|path| path.file_name().map(|name| name.to_os_string()));
    found
}

impl Service {
    /// Adds what a file says. An empty assignment removes what was there.
    fn read(&mut self, text: &str) {
        let text = text.replace("\\\n", " ");
        let mut section = "";
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            if line.starts_with('[') {
                section = line;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| section == "[Service]") else {
                continue;
            };
            let value = value.trim();
            match key.trim() {
                "ExecStart" if value.is_empty() => self.exec_start.clear(),
                "ExecStart" => {
                    // @ - : + ! are flags of systemd's own.
                    let flags: &[char] = &['@', '-', ':', '+', '!'];
                    let named = value.starts_with('@');
                    let mut command = words(value.trim_start_matches(flags));
                    if named && command.len() > 1 {
                        command.remove(1);
                    }
                    self.exec_start.push(command);
                }
                "Environment" if value.is_empty() => self.environment.clear(),
                "Environment" => {
                    self.environment.extend(words(value).iter().filter_map(|word| assignment(word)));
                }
                "EnvironmentFile" if value.is_empty() => self.environment_files.clear(),
                "EnvironmentFile" => self.environment_files.push(value.to_string()),
                "WorkingDirectory" => self.directory = value.trim_start_matches('-').to_string(),
                "RootDirectory" => self.root = value.to_string(),
                _ => {}
            }
        }
    }
}

fn assignment(word: &str) -> Option<(String, String)> {
    word.split_once('=').map(|(name, value)| (name.to_string(), value.to_string()))
}

/// Splits at spaces that are not quoted; %% is a percent sign.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words.into_iter().map(|word| word.replace("%%", "%")).collect()
}

/// The program that units are given when nothing says so.
pub fn with_usual_path(mut entry: EntryCommand) -> EntryCommand {
    if !entry.environment.iter().any(|(name, _)| name == "PATH") {
        entry.environment.push(("PATH".into(), entry::USUAL_PATH.into()));
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_with_their_drop_ins() {
        let mut service = Service::default();
        service.read(
            "[Unit]\nExecStart=/no\n[Service]\n# comment\nWorkingDirectory=-/srv/app\nEnvironment=A=1 \"B=two words\"\n\
             Environment=PERCENT=50%%\nExecStart=-/usr/bin/bundle exec \\\n  puma -C 'config/my puma.rb'\n",
        );
        assert_eq!(service.directory, "/srv/app");
        assert_eq!(service.exec_start, [["/usr/bin/bundle", "exec", "puma", "-C", "config/my puma.rb"]]);
        let pairs = [("A", "1"), ("B", "two words"), ("PERCENT", "50%")];
        assert_eq!(service.environment, pairs.map(|(name, value)| (name.to_string(), value.to_string())));
        service.read("[Service]\nExecStart=\nExecStart=@/bin/x other-name y\nEnvironment=LD_PRELOAD=/l.so\n");
        assert_eq!(service.exec_start, [["/bin/x", "y"]]);
        assert_eq!(service.environment.last().unwrap().1, "/l.so");
    }

    #[test]
    fn names_have_suffixes() {
        assert_eq!(full_name("puma"), "puma.service");
        assert_eq!(full_name("/etc/systemd/system/app@.service"), "app@.service");
    }
}
