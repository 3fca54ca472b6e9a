//! `snug compare --list-allocators`: what can be compared here.

use std::io::Write;

use comfy_table::{ContentArrangement, Table};

use snug_base::failure::{Context, Result};
use snug_inspect::kinds::{Kind, ROWS};
use snug_inspect::{library, packages, program};
use snug_measure::sets;

/// Writes all allocators with their versions, or how to install them, and all sets.
pub(super) fn show() -> Result<()> {
    let mut allocators = table(["allocator", "version", "library"]);
    for row in ROWS.iter().filter(|row| row.kind != Kind::Musl) {
        if row.kind.is_c_library() {
            // That of the shell stands for the system's.
            let shell = program::find("/bin/sh".as_ref()).ok().and_then(|shell| program::c_library(&shell));
            let version = shell.and_then(|path| library::version(row.kind, &path));
            allocators.add_row([row.name, &version.unwrap_or_default(), "the program's own"]);
            continue;
        }
        match library::find_by_kind(row.kind) {
            Ok(found) => {
                let version = library::version(row.kind, &found.path).unwrap_or_default();
                allocators.add_row([row.name, &version, &found.path.display().to_string()]);
            }
            Err(_) => {
                allocators.add_row([row.name, "-", &format!("not found: {}", packages::install(row))]);
            }
        }
    }
    let mut named = table(["set", "allocators"]);
    for name in sets::NAMES {
        named.add_row([name, &sets::entries(name).unwrap_or_default().join("\n")]);
    }
    let trimmed = |table: &Table| table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    writeln!(anstream::stdout(), "{}\n\n{}", trimmed(&allocators), trimmed(&named))
        .cannot(|| "write to stdout".into())
}

fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_preset("     ══                ").set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table
}
