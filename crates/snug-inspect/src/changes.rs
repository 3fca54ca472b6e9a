//! Lines to paste that change what was found. Pure.

use std::path::Path;

use crate::deploy::{self, Deployment, Snippet};
use crate::kinds::Kind;
use crate::linkage::PreloadEffect;
use crate::packages::Package;
use crate::report::CheckReport;
use snug_process::place::Place;

/// Lines that put `kind` into use where the processes of a report run; `library` is its file on this machine, `package`
/// what brings it elsewhere.
pub fn changes(
    report: &CheckReport,
    kind: Kind,
    library: Option<&Path>,
    package: Option<&Package>,
) -> Vec<Snippet> {
    if kind.is_c_library() {
        return Vec::new();
    }
    let root = report.processes.iter().find(|process| process.depth == 0);
    if let Some(root) = root.filter(|root| root.linkage.preload != PreloadEffect::Works) {
        return deploy::lines_to_link(kind, &root.linkage);
    }
    let program = root.map(|root| root.arguments.as_slice()).filter(|program| !is_title(program));
    let program = program.unwrap_or_default();
    let all = deploy::lines(&Deployment { kind, library, package, variables: &[], program });
    let wanted = |snippet: &Snippet| {
        report.processes.iter().any(|process| match process.place {
            Place::Host => true,
            Place::Unit { .. } => snippet.title == "systemd",
            Place::Container { .. } | Place::Image { .. } => {
                snippet.title == "Docker" || snippet.title.starts_with("Kubernetes")
            }
        })
    };
    let mut chosen: Vec<Snippet> = all.into_iter().filter(wanted).collect();
    for snippet in &mut chosen {
        let unit = report.processes.iter().find_map(|process| match &process.place {
            Place::Unit { name } => Some(name),
            _ => None,
        });
        if let (Some(unit), "systemd") = (unit, snippet.title) {
            snippet.text =
                format!("# systemctl edit {unit}\n{}# then: systemctl restart {unit}\n", snippet.text);
        }
    }
    chosen
}

/// Whether this is what a server wrote about itself, and not what one types to start it. A title is one argument.
fn is_title(program: &[String]) -> bool {
    let [title] = program else { return false };
    title.split(' ').any(|word| word.starts_with(['(', '[']) || word.ends_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::judge;
    use crate::linkage::{Linkage, Linked};

    fn titles(place: Place, kind: Kind) -> Vec<String> {
        texts(&["bundle", "exec", "puma"], place, kind)
    }

    fn texts(program: &[&str], place: Place, kind: Kind) -> Vec<String> {
        let arguments = program.iter().map(|argument| argument.to_string()).collect();
        let facts = Facts { command: program.join(" "), arguments, place, ..Facts::default() };
        let report = CheckReport {
            expected: None,
            expectation_met: None,
            transparent_huge_pages: String::new(),
            processes: vec![judge::judge(&facts)],
            unreadable: Vec::new(),
            changes: Vec::new(),
        };
        let chosen = changes(&report, kind, Some(Path::new("/opt/libx.so")), None);
        chosen.into_iter().map(|snippet| format!("{}: {}", snippet.title, snippet.text)).collect()
    }

    #[test]
    fn titles_are_no_commands() {
        let is_title =
            |program: &[&str]| is_title(&program.iter().map(|word| word.to_string()).collect::<Vec<_>>());
        assert!(
            is_title(&["puma 6.4.2 (tcp://0.0.0.0:3000) [shop]"]) && is_title(&["puma: cluster worker 0"])
        );
        assert!(!is_title(&["bundle", "exec", "puma", "-C", "config/puma.rb"]));
        assert!(
            !is_title(&["python3", "-c", "if True: print((1, 2))"]),
            "what a program is given is no title"
        );
    }

    #[test]
    fn arguments_stay_whole() {
        let program = ["python3", "-c", "import time; time.sleep(60)"];
        let shell = texts(&program, Place::Host, Kind::Snug);
        let line = "snug run -- python3 -c 'import time; time.sleep(60)'\n";
        assert!(shell.iter().any(|text| text.ends_with(line)), "{shell:?}");
    }

    #[test]
    fn where_no_preload_works_nothing_is_preloaded() {
        for preload in [PreloadEffect::Never, PreloadEffect::NoEffect, PreloadEffect::Ignored] {
            for linked in [Linked::Statically, Linked::StaticPie, Linked::Dynamically] {
                let mut process = judge::judge(&Facts::default());
                process.linkage = Linkage { preload, linked, ..Linkage::default() };
                let report = CheckReport {
                    expected: None,
                    expectation_met: None,
                    transparent_huge_pages: String::new(),
                    processes: vec![process],
                    unreadable: Vec::new(),
                    changes: Vec::new(),
                };
                let chosen = changes(&report, Kind::Snug, Some(Path::new("/opt/libsnug.so")), None);
                assert!(chosen[0].text.contains("libsnug.a"), "{chosen:?}");
                let text: String = chosen.iter().map(|snippet| snippet.text.as_str()).collect();
                assert!(!text.contains("PRELOAD") && !text.contains("snug run"), "{text}");
            }
        }
    }

    #[test]
    fn lines_fit_the_place() {
        assert_eq!(titles(Place::Host, Kind::Snug).len(), 5);
        assert!(titles(Place::Host, Kind::Glibc).is_empty(), "there is nothing to preload");
        let image = titles(Place::Image { name: "shop".into() }, Kind::Jemalloc);
        assert!(image.len() == 2 && image[0].starts_with("Docker") && image[1].starts_with("Kubernetes"));
        assert!(
            image[1].contains("value: \"/usr/local/lib/libx.so\""),
            "where the Dockerfile puts it: {image:?}"
        );
        let unit = titles(Place::Unit { name: "puma.service".into() }, Kind::Snug);
        assert_eq!(unit.len(), 1);
        assert!(
            unit[0].contains("systemctl edit puma.service\n[Service]\nEnvironment=LD_PRELOAD=/opt/libx.so")
        );
    }
}
