//! `snug profile --diff`: which lines have more in the second of two saved profiles.

use std::path::{Path, PathBuf};

use snug_base::failure::{Context, Failure, Result, USAGE};
use snug_base::{json, terminal};
use snug_profile::difference::{self, SavedProfile};
use snug_report::profile_text::{self, Extent};

/// Compares two files and writes the answer to stdout.
pub(super) fn run(files: &[PathBuf], as_json: bool, extent: &Extent) -> Result<()> {
    let [old, new] = files else {
        return Err(Failure::new("--diff takes two files, the older one first").exit_code(USAGE));
    };
    let (old, new) = (load(old)?, load(new)?);
    let found = difference::difference(&old, &new).map_err(|why| {
        Failure::new(format!("these profiles can't be compared: {why}"))
            .advise("measure both with the same --view")
            .exit_code(USAGE)
    })?;
    let mut stdout = anstream::stdout().lock();
    let written = if as_json {
        json::write(json::PROFILE_DIFF, &found, &mut stdout)
    } else {
        profile_text::write_difference(&found, extent, terminal::stdout_colours(), &mut stdout)
    };
    written.cannot(|| "write to stdout".into())
}

fn load(path: &Path) -> Result<SavedProfile> {
    let text = std::fs::read_to_string(path)
        .cannot(|| format!("read {}", path.display()))
        .map_err(|failure| failure.exit_code(USAGE))?;
    difference::parse(&text, json::PROFILE).map_err(|problem| {
        Failure::new(format!("{} {problem}", path.display()))
            .advise("give files that `snug profile --json` wrote")
            .exit_code(USAGE)
    })
}
