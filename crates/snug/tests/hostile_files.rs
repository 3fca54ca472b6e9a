//! Files of others, as a colleague sends them or a shared folder holds them: no text of theirs reaches a terminal as what it
//! obeys, nor a page as markup, nor a spreadsheet as a formula.

mod common;

use common::{run, snug, Scratch};
use serde_json::Value;

/// Behind every text: what clears a screen, what turns the direction of a line, markup, and the end of a script.
const HARM: &str = "\u{1b}[2J\u{9b}2J\u{202e}<img src=x></script>";

/// The file of stored data, places of texts that are one of few words (`*`: each of a list), and commands that read it.
type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a [&'a str]]);
const CASES: &[Case] = &[
    (
        "server.json",
        &["format", "allocators.*.kind"],
        &[
            &["report", "FILE"],
            &["report", "FILE", "OTHER"],
            &["report", "FILE", "FILE", "--overview=memory"],
            &["report", "FILE", "--markdown", "PAGE"],
            &["report", "FILE", "--html", "PAGE"],
        ],
    ),
    (
        "black-box.json",
        &["format", "processes.*.ending.kind", "written_for"],
        &[&["blame", "FILE"], &["blame", "FILE", "--html", "PAGE"]],
    ),
    (
        "boot-old.json",
        &["format"],
        &[&["boot", "--diff", "FILE", "OTHER"], &["boot", "--diff", "OTHER", "FILE"]],
    ),
    ("profile.json", &["format", "view"], &[&["profile", "--diff", "FILE", "OTHER"]]),
];

/// Adds the harm to all texts but those of `kept`. `place` is where the value is.
fn spoil(value: &mut Value, place: &str, kept: &[&str]) {
    let below = |name: &str| if place.is_empty() { name.to_string() } else { format!("{place}.{name}") };
    match value {
        Value::String(text) if !kept.contains(&place) => text.push_str(HARM),
        Value::Array(values) => values.iter_mut().for_each(|value| spoil(value, &below("*"), kept)),
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| spoil(value, &below(name), kept)),
        _ => {}
    }
}

#[test]
fn texts_of_others_are_texts() {
    let scratch = Scratch::new();
    let (file, page) = (scratch.text("file.json"), scratch.text("page"));
    for (name, kept, commands) in CASES {
        let other = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut value: Value = serde_json::from_str(&std::fs::read_to_string(&other).unwrap()).unwrap();
        spoil(&mut value, "", kept);
        std::fs::write(&file, value.to_string()).unwrap();
        for command in *commands {
            let word = |word: &&'static str| match *word {
                "FILE" => file.clone(),
                "OTHER" => other.clone(),
                "PAGE" => page.clone(),
                word => word.to_string(),
            };
            let words: Vec<String> = command.iter().map(word).collect();
            let mut call = snug(&words.iter().map(String::as_str).collect::<Vec<_>>());
            // As on a terminal that shows colours.
            let answer = run(call.env("CLICOLOR_FORCE", "1"));
            assert_eq!(answer.code, Some(0), "{words:?}: {answer:#?}");
            let mut text = answer.stdout + &answer.stderr;
            assert!(
                text.contains("<img") || command.contains(&"PAGE"),
                "{words:?} shows nothing of it: {text}"
            );
            if let Ok(content) = std::fs::read_to_string(&page) {
                std::fs::remove_file(&page).unwrap();
                assert!(content.contains("img src"), "{words:?} shows nothing of it: {content}");
                if command.contains(&"--html") {
                    assert!(!content.contains("<img src"), "{words:?}: {content}");
                    let scripts = content.matches("<script").count();
                    assert_eq!(content.matches("</script>").count(), scripts, "{words:?}: {content}");
                }
                text += &content;
            }
            for harm in ["\u{1b}[2J", "\u{9b}", "\u{202e}"] {
                assert!(!text.contains(harm), "{words:?} {harm:?}: {text}");
            }
        }
    }
}
