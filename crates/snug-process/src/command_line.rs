//! Command lines: names by which people know a process. Pure.

use snug_base::file::file_name;

/// An interpreter of scripts, and what of its command line is no script.
struct Interpreter {
    /// What its file is called, but for a version behind it.
    names: &'static [&'static str],
    /// Letters of options that take a value, which is the next word if nothing follows the letter.
    with_value: &'static str,
    /// The same with a value that must follow the letter, or none.
    attached: &'static str,
    /// Letters of options behind which there is program text, and no script.
    text: &'static str,
    /// Letters of options whose value is the script, or the module.
    script: &'static str,
    /// Long options that take the next word, unless they hold a `=`.
    long_with_value: &'static [&'static str],
    /// Long options behind which there is program text.
    long_text: &'static [&'static str],
}

const NONE: Interpreter = Interpreter {
    names: &[],
    with_value: "",
    attached: "",
    text: "",
    script: "",
    long_with_value: &[],
    long_text: &[],
};

const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &["ruby", "jruby", "truffleruby"],
        with_value: "ICXrE",
        attached: "FKTWix",
        text: "e",
        long_with_value: &[
            "--encoding",
            "--external-encoding",
            "--internal-encoding",
            "--enable",
            "--disable",
            "--backtrace-limit",
        ],
        ..NONE
    },
    Interpreter {
        names: &["python", "pypy"],
        with_value: "WXQ",
        text: "c",
        script: "m",
        long_with_value: &["--check-hash-based-pycs"],
        ..NONE
    },
    Interpreter { names: &["perl"], with_value: "I", attached: "MmCDFVixd", text: "eE", ..NONE },
    Interpreter {
        names: &["node", "nodejs"],
        with_value: "rC",
        text: "ep",
        long_with_value: &[
            "--require",
            "--import",
            "--loader",
            "--experimental-loader",
            "--conditions",
            "--env-file",
            "--title",
            "--icu-data-dir",
            "--openssl-config",
            "--diagnostic-dir",
            "--redirect-warnings",
        ],
        long_text: &["--eval", "--print"],
        ..NONE
    },
    Interpreter {
        names: &["php"],
        with_value: "cdzSt",
        text: "rBRFE",
        script: "f",
        long_with_value: &["--define", "--php-ini", "--server", "--docroot"],
        long_text: &["--run"],
        ..NONE
    },
    Interpreter {
        names: &["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"],
        with_value: "oO",
        text: "cs",
        long_with_value: &["--rcfile", "--init-file"],
        ..NONE
    },
    Interpreter { names: &["lua", "luajit"], with_value: "l", text: "e", ..NONE },
    Interpreter { names: &["Rscript"], text: "e", ..NONE },
    Interpreter { names: &["tclsh", "dotnet", "guile", "escript"], ..NONE },
    Interpreter { names: &["julia"], with_value: "LCJptH", text: "eE", ..NONE },
];

/// Options of Java that take a word. All of its options are long ones, of one dash or two.
const JAVA_WITH_VALUE: &[&str] = &[
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--add-opens",
    "--add-exports",
    "--add-reads",
    "--enable-native-access",
];

/// Whether a file is that program, or a version of it: `python3.13t`.
fn is_version_of(file: &str, program: &str) -> bool {
    let version = file.strip_prefix(program).map(|version| version.strip_prefix('-').unwrap_or(version));
    version.is_some_and(|version| {
        version.is_empty() || version.starts_with(|first: char| first.is_ascii_digit())
    })
}

/// The words of a command line: of a title that was written as one string, those in it.
fn words(arguments: &[String]) -> Vec<&str> {
    let used = arguments.iter().rposition(|word| !word.is_empty()).map_or(0, |last| last + 1);
    match &arguments[..used] {
        [title] => title.split(' ').collect(),
        words => words.iter().map(String::as_str).collect(),
    }
}

/// The program that a command line or a title begins with: `puma` of `puma: cluster worker 0`, `bash` of `-bash`.
pub fn program(arguments: &[String]) -> &str {
    let first = arguments.first().map(String::as_str).unwrap_or_default();
    let word = first.split(' ').next().unwrap_or_default();
    let name = file_name(word.trim_end_matches(':'));
    name.strip_prefix('-').unwrap_or(name)
}

/// The script or module that an interpreter was given, by the name of its file; None: it is no interpreter, or reads its
/// program from elsewhere.
pub fn script(arguments: &[String]) -> Option<String> {
    let words = words(arguments);
    let (first, rest) = words.split_first()?;
    let program = file_name(first.strip_prefix('-').unwrap_or(first));
    if is_version_of(program, "java") {
        return java_class(rest).map(String::from);
    }
    let named =
        |interpreter: &&Interpreter| interpreter.names.iter().any(|name| is_version_of(program, name));
    let found = script_place(INTERPRETERS.iter().find(named)?, rest)?;
    let name = file_name(found.0).trim_end_matches(".__main__");
    if !matches!(name, "bundle" | "bundler") {
        return Some(name.to_string());
    }
    // `bundle exec puma` runs puma in its own process.
    let mut behind = rest[found.1..].iter().skip_while(|word| **word != "exec").skip(1);
    Some(behind.find(|word| !word.starts_with('-')).map_or(name, |word| file_name(word)).to_string())
}

/// The script, and how many words there are up to it.
fn script_place<'a>(interpreter: &Interpreter, words: &[&'a str]) -> Option<(&'a str, usize)> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if *word == "--" {
            return words.get(at).map(|script| (*script, at + 1));
        }
        if *word == "-" {
            return None; // the standard input
        }
        if word.starts_with("--") {
            if interpreter.long_text.iter().any(|option| is_option(word, option)) {
                return None;
            }
            at += usize::from(interpreter.long_with_value.contains(word));
            continue;
        }
        // A shell's +o takes a value as its -o does.
        let Some(letters) =
            word.strip_prefix('-').or_else(|| word.strip_prefix('+').filter(|_| !word.contains('/')))
        else {
            return Some((word, at));
        };
        for (place, letter) in letters.char_indices() {
            let behind = &letters[place + letter.len_utf8()..];
            if interpreter.text.contains(letter) {
                return None;
            }
            if interpreter.script.contains(letter) {
                let next = || words.get(at).copied();
                let script = if behind.is_empty() { next() } else { Some(behind) };
                return script.map(|script| (script, at + usize::from(behind.is_empty())));
            }
            if interpreter.with_value.contains(letter) {
                at += usize::from(behind.is_empty());
                break;
            }
            if interpreter.attached.contains(letter) {
                break;
            }
        }
    }
    None
}

/// Whether a word is the option, with a value or without.
fn is_option(word: &str, option: &str) -> bool {
    word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

fn java_class<'a>(words: &[&'a str]) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "-jar" => return words.next().map(|jar| file_name(jar)),
            "-m" | "--module" => return words.next().copied(),
            word if JAVA_WITH_VALUE.contains(&word) => _ = words.next(),
            word if word.starts_with(['-', '@']) => {}
            class => return Some(file_name(class)),
        }
    }
    None
}

/// Whether a process goes by this name: its own name as the kernel has it, its program's file, the first word of its
/// title, or the script that an interpreter runs. Other arguments are no names: `vim puma.rb` is no puma, nor is
/// `journalctl -fu puma`.
pub fn name_matches(wanted: &str, name: &str, executable: &str, arguments: &[String]) -> bool {
    if wanted.is_empty() {
        return false;
    }
    let title = program(arguments);
    // `solid-queue-worker(1.5.0): ...`, `[celeryd: ...`
    let plain = title.split(['(', ':']).next().unwrap_or(title);
    let is_celery = || wanted == "celery" && plain == "[celeryd";
    // `resque-3.0.0: ...`
    let is_title = arguments.first().is_some_and(|first| first.contains(": "));
    let version = plain.strip_prefix(wanted).and_then(|rest| rest.strip_prefix('-')).filter(|_| is_title);
    name == wanted
        || file_name(executable) == wanted
        || title == wanted
        || plain == wanted
        || version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
        || is_celery()
        || script(arguments).is_some_and(|script| script == wanted)
}

/// What an argument of a command means by a process: a PID or a name; no number that can't be a PID.
pub fn process_named(text: &str) -> std::result::Result<String, String> {
    match text.parse::<i64>() {
        Ok(number) if !(1..=i64::from(i32::MAX)).contains(&number) => Err("it is not a PID".into()),
        _ if text.trim().is_empty() => Err("it is empty".into()),
        _ => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a shell splits it, but for quotes: `~` stands for a space in a word.
    fn arguments(line: &str) -> Vec<String> {
        line.split(' ').map(|word| word.replace('~', " ")).collect()
    }

    /// The line, and the names that it must go by.
    const LINES: &[(&str, &[&str])] = &[
        // Programs.
        ("/usr/sbin/redis-server *:6379", &["redis-server"]),
        ("redis-server~*:6379", &["redis-server"]),
        ("-bash", &["bash"]),
        ("nginx:~master~process~/usr/sbin/nginx~-g~daemon~off;", &["nginx"]),
        ("postgres:~14/main:~checkpointer~", &["postgres"]),
        ("php-fpm:~pool~www", &["php-fpm"]),
        // Titles.
        ("puma~5.6.5~(tcp://0.0.0.0:9292)~[shop]", &["puma"]),
        ("puma:~cluster~worker~0:~123~[shop]", &["puma"]),
        ("sidekiq~6.5.7~shop~[0~of~10~busy]", &["sidekiq"]),
        ("gunicorn:~master~[shop.wsgi]", &["gunicorn"]),
        ("[celeryd:~celery@host:MainProcess]~-active-~(worker~-A~shop)", &["celery"]),
        ("resque-3.0.0:~Waiting~for~high,low", &["resque"]),
        ("solid-queue-worker(1.5.0):~waiting~for~jobs~in~*", &["solid-queue-worker"]),
        ("unicorn_rails~master~-c~config/unicorn.rb", &["unicorn_rails"]),
        // Scripts.
        ("/usr/bin/ruby /srv/bin/puma -C config/puma.rb", &["puma", "ruby"]),
        ("ruby -W0 /usr/bin/puma -t 5", &["puma", "ruby"]),
        ("ruby3.1 -I lib -r ./boot --disable gems -W:no-deprecated bin/puma", &["puma", "ruby3.1"]),
        ("ruby -Ilib -rset --yjit --encoding utf-8 puma", &["puma", "ruby"]),
        ("ruby -C /srv -- puma", &["puma", "ruby"]),
        ("ruby /usr/local/bin/bundle exec puma -p 80", &["puma", "ruby"]),
        ("ruby /usr/local/bin/bundle exec --keep-file-descriptors /srv/bin/puma", &["puma", "ruby"]),
        ("python3 -m celery -A shop worker", &["celery", "python3"]),
        ("python3 -X dev -W error -m celery -A puma worker", &["celery", "python3"]),
        ("/usr/bin/python3.13t -Xdev -um celery.__main__", &["celery", "python3.13t"]),
        ("python3~/srv/bin/celery~-A~puma~worker", &["celery", "python3"]),
        ("python3 -Bu /srv/bin/gunicorn puma:app", &["gunicorn", "python3"]),
        ("perl -w -I lib -MData::Dumper serve.pl puma", &["serve.pl", "perl"]),
        ("node --require ./trace.js --max-old-space-size=4096 server.js", &["server.js", "node"]),
        ("node -r puma --import=puma server.js puma", &["server.js", "node"]),
        ("php -d memory_limit=1G -c puma artisan queue:work", &["artisan", "php"]),
        ("php -f artisan puma", &["artisan", "php"]),
        ("bash -e -o pipefail +o posix deploy.sh puma", &["deploy.sh", "bash"]),
        ("/bin/sh /srv/bin/puma", &["puma", "sh"]),
        ("java -cp puma:lib/* -Xmx1g com.shop.Main puma", &["com.shop.Main", "java"]),
        ("java -jar /srv/shop.jar puma", &["shop.jar", "java"]),
        // What only says the name.
        ("journalctl -fu puma", &["journalctl"]),
        ("su postgres -s /bin/bash -c pgbench", &["su"]),
        ("sudo -u puma id", &["sudo"]),
        ("grep puma", &["grep"]),
        ("vim puma.rb", &["vim"]),
        ("vim puma", &["vim"]),
        ("less /var/log/puma", &["less"]),
        ("tail -f /var/log/puma", &["tail"]),
        ("systemctl status puma", &["systemctl"]),
        ("snug top puma", &["snug"]),
        ("watch -n 1 puma", &["watch"]),
        ("strace -f puma", &["strace"]),
        ("man puma", &["man"]),
        ("bash -c puma", &["bash"]),
        ("bash -ec puma", &["bash"]),
        ("sh -s puma", &["sh"]),
        ("ruby -e puma puma", &["ruby"]),
        ("ruby -ne puma puma", &["ruby"]),
        ("ruby -r puma", &["ruby"]),
        ("ruby - puma", &["ruby"]),
        ("ruby -I puma -C puma other.rb", &["ruby", "other.rb"]),
        ("python3 -c puma puma", &["python3"]),
        ("perl -lne puma puma", &["perl"]),
        ("node -e puma puma", &["node"]),
        ("node --eval=puma puma", &["node"]),
        ("node_exporter puma", &["node_exporter"]),
        ("redis-6379 x", &["redis-6379"]),
        ("shfmt puma", &["shfmt"]),
        ("python-config puma", &["python-config"]),
        ("postgres:~puma~shop~[local]~idle", &["postgres"]),
        ("tail:~/var/log/puma", &["tail"]),
    ];

    #[test]
    fn processes_go_by_what_they_run_and_by_nothing_that_they_are_told() {
        let asked = [
            "puma", "celery", "gunicorn", "sidekiq", "postgres", "nginx", "bash", "ruby", "python3", "node",
            "redis",
        ];
        for (line, names) in LINES {
            let arguments = arguments(line);
            let file = program(&arguments).to_string();
            for name in asked.iter().chain(*names) {
                let found = name_matches(name, "a-thread", "/usr/bin/of-its-file", &arguments);
                assert_eq!(found, names.contains(name), "{name} in {line} (begins with {file})");
            }
        }
    }

    #[test]
    fn names_of_the_kernel_and_of_files_count() {
        assert!(name_matches("ruby3.1", "x", "/usr/bin/ruby3.1", &[]));
        assert!(name_matches("puma", "puma", "", &[]));
        for (name, executable) in [("", ""), ("x", "/usr/bin/")] {
            assert!(!name_matches("", name, executable, &[]), "nothing is called nothing");
        }
    }

    #[test]
    fn odd_command_lines_are_read_to_an_end() {
        for line in [
            "",
            " ",
            "ruby",
            "ruby -",
            "ruby --",
            "ruby -I",
            "python3 -m",
            "bash -",
            "java -cp",
            "node --eval",
        ] {
            assert_eq!(script(&arguments(line)), None, "{line}");
        }
        assert_eq!(script(&["ruby".into(), String::new(), String::new()]), None);
        assert_eq!(script(&["ruby".into(), "é.rb".into()]).as_deref(), Some("é.rb"));
        assert_eq!(script(&["ruby".into(), "-é".into(), "a.rb".into()]).as_deref(), Some("a.rb"));
    }
}
