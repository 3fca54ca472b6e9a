//! The role of a process in its application, as its title or its command line says: `puma worker 2`. Pure.

use crate::command_line;

/// The role of a process from its arguments (`/proc/PID/cmdline`): what servers write into their titles, else the
/// script that an interpreter runs, else the program's name. Never empty if `name`, the kernel's name, is not.
pub fn role(arguments: &[String], name: &str) -> String {
    let first = arguments.first().map(String::as_str).unwrap_or_default();
    // A program that rewrote its title wrote one string with spaces in it, or left empty words behind it.
    if let Some(role) = from_title(first).or_else(|| from_title(&arguments.join(" "))) {
        return role;
    }
    let program = match command_line::program(arguments) {
        "" => name,
        program => program,
    };
    command_line::script(arguments).unwrap_or_else(|| program.to_string())
}

/// The application that the title names: `[shop]` of Puma and gunicorn, the name behind the version of Sidekiq, what
/// Celery's `-A` says. Empty if it names none.
pub fn app(arguments: &[String]) -> String {
    let title = arguments.join(" ");
    let title = title.trim_end();
    let words = || title.split(' ');
    let app = if title.starts_with("puma") || title.starts_with("gunicorn: ") {
        title.strip_suffix(']').and_then(|title| title.rsplit_once(" [")).map(|(_, app)| app)
    } else if title.starts_with("sidekiq ") {
        words().nth(2).filter(|word| !word.starts_with('['))
    } else if title.starts_with("[celeryd: ") || is_celery(title) {
        celery_app(title)
    } else {
        None
    };
    app.unwrap_or_default().to_string()
}

/// Whether a command line runs Celery: by its script, or by `python -m celery`.
fn is_celery(title: &str) -> bool {
    title.split(' ').any(|word| word.ends_with("/celery") || word == "celery")
}

/// What follows `-A`, which Celery shows in its title, too: `(worker -A shop)`.
fn celery_app(title: &str) -> Option<&str> {
    let mut words = title.split(' ');
    let option = words.find(|word| *word == "-A" || word.starts_with("--app"))?;
    let app = option.strip_prefix("--app=").or_else(|| words.next())?;
    Some(app.trim_end_matches(')'))
}

/// Reads the titles that Puma, Unicorn, Passenger, Sidekiq, Resque, Solid Queue, Celery, gunicorn and PostgreSQL give
/// themselves.
fn from_title(title: &str) -> Option<String> {
    let after = |prefix: &str| title.strip_prefix(prefix);
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    if let Some(rest) = after("puma: cluster worker ") {
        return Some(format!("puma worker {}", number(rest)));
    }
    if after("puma ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Some("puma".into());
    }
    if after("sidekiq ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Some("sidekiq".into());
    }
    for server in ["unicorn", "pitchfork", "rainbows"] {
        let Some(rest) = after(server).map(|rest| rest.trim_start_matches("_rails")) else { continue };
        if let Some(at) = rest.find("worker[") {
            return Some(format!("{server} worker {}", number(&rest[at + "worker[".len()..])));
        }
        if rest.starts_with(" master") {
            return Some(format!("{server} master"));
        }
    }
    if let Some(rest) = after("[celeryd: ") {
        let worker = rest.split(']').next().unwrap_or(rest);
        return Some(match worker.rsplit_once(":ForkPoolWorker-") {
            Some((_, number)) => format!("celery worker {number}"),
            None => "celery main".into(),
        });
    }
    if let Some(rest) = after("gunicorn: ") {
        return Some(format!("gunicorn {}", rest.split([' ', '[']).next().unwrap_or_default()));
    }
    if let Some(rest) = after("postgres: ") {
        let words: Vec<&str> = rest.split(' ').take(2).collect();
        return Some(format!("postgres {}", words.join(" ").trim_end()));
    }
    if let Some(rest) = after("nginx: ") {
        return Some(format!("nginx {}", rest.split(' ').next().unwrap_or_default()));
    }
    if let Some((_, what)) = after("resque-").and_then(|rest| rest.split_once(": ")) {
        // The child that runs a job keeps the words that the worker had when it forked.
        return Some(if what.starts_with("Processing ") { "resque job" } else { "resque worker" }.into());
    }
    if let Some((part, _)) = after("solid-queue-").and_then(|rest| rest.split_once('(')) {
        // Supervisors that fork and those that do not have names of their own.
        let part = part.rsplit('-').next().unwrap_or(part);
        return Some(format!("solid-queue {part}"));
    }
    (is_celery(title) && title.split(' ').any(|word| word == "worker" || word == "beat")).then(|| {
        let what = if title.split(' ').any(|word| word == "beat") { "beat" } else { "worker" };
        format!("celery {what}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(|word| word.to_string()).collect();
        role(&arguments, "kernel-name")
    }

    #[test]
    fn titles_of_servers() {
        assert_eq!(of(&["puma: cluster worker 2: 4711 [shop]"]), "puma worker 2");
        assert_eq!(of(&["puma 5.6.5 (tcp://0.0.0.0:9292) [shop]"]), "puma");
        assert_eq!(of(&["sidekiq 6.5.7 shop [0 of 10 busy]"]), "sidekiq");
        assert_eq!(of(&["unicorn_rails worker[3] -c config/unicorn.rb"]), "unicorn worker 3");
        assert_eq!(of(&["unicorn master -D"]), "unicorn master");
        assert_eq!(of(&["[celeryd: w1@host:ForkPoolWorker-7]"]), "celery worker 7");
        assert_eq!(of(&["[celeryd: w1@host:MainProcess] -active- (worker -A app)"]), "celery main");
        assert_eq!(of(&["gunicorn: worker [app]"]), "gunicorn worker");
        assert_eq!(of(&["postgres: checkpointer "]), "postgres checkpointer");
        assert_eq!(of(&["nginx: master process nginx"]), "nginx master");
        assert_eq!(of(&["resque-3.0.0: Waiting for high,low"]), "resque worker");
        assert_eq!(of(&["resque-3.0.0: Forked 4711 at 1764083000"]), "resque worker");
        assert_eq!(of(&["resque-3.0.0: Processing high since 1764083000 [Mail]"]), "resque job");
        assert_eq!(of(&["solid-queue-worker(1.5.0): waiting for jobs in *"]), "solid-queue worker");
        assert_eq!(of(&["solid-queue-fork-supervisor(1.5.0): supervising 12, 13"]), "solid-queue supervisor");
        assert_eq!(of(&["ruby", "/srv/bin/good_job", "start"]), "good_job");
    }

    #[test]
    fn applications() {
        let app = |title: &str| app(&[title.to_string()]);
        assert_eq!(app("puma: cluster worker 2: 4711 [shop]"), "shop");
        assert_eq!(app("puma 5.6.5 (tcp://0.0.0.0:9292) [my shop]"), "my shop");
        assert_eq!(app("sidekiq 6.5.7 shop [0 of 10 busy]"), "shop");
        assert_eq!(app("sidekiq 6.5.7 [0 of 10 busy]"), "");
        assert_eq!(app("gunicorn: worker [app]"), "app");
        assert_eq!(app("[celeryd: w1@host:MainProcess] -active- (worker -A shop)"), "shop");
        assert_eq!(app("[celeryd: w1@host:ForkPoolWorker-7]"), "");
        assert_eq!(app("/usr/bin/python3 /srv/bin/celery -A shop.tasks worker -l info"), "shop.tasks");
        assert_eq!(app("python3 -m celery --app=shop worker"), "shop");
        assert_eq!(app("celery --app shop beat"), "shop");
        assert_eq!([app("celery worker"), app("celery -A"), app("ls -A celeriac")], ["", "", ""]);
        assert_eq!([app("puma 5.6.5 (tcp://[::]:80)"), app("redis-server *:6379"), app("")], ["", "", ""]);
    }

    #[test]
    fn command_lines() {
        assert_eq!(of(&["/usr/bin/python3", "/srv/bin/celery", "-A", "app", "worker"]), "celery worker");
        assert_eq!(of(&["ruby", "-W0", "/usr/bin/script.rb", "x"]), "script.rb");
        assert_eq!(of(&["ruby", "-I", "lib", "serve.rb"]), "serve.rb");
        assert_eq!(of(&["ruby3.1", "-e", "loop {}"]), "ruby3.1");
        assert_eq!(of(&["python3", "-m", "http.server"]), "http.server");
        assert_eq!(of(&["/usr/sbin/redis-server", "*:6379"]), "redis-server");
        assert_eq!(of(&["redis-server *:6379"]), "redis-server");
        assert_eq!(of(&[]), "kernel-name");
    }
}
