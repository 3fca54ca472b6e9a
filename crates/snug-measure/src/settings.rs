//! A check that an allocator takes the settings that it is given with `--with`.

use std::process::{Command, Stdio};

use crate::plan::{self, Candidate};
use snug_base::failure::{Failure, Result};
use snug_inspect::kinds::Kind;
use snug_inspect::program::Variables;

/// What an allocator says against the settings it was given: asked by letting it start with a program that does nothing.
/// Of snug that is a mistake in the request, of others a note for the reader.
pub fn refused(candidate: &Candidate, environment: &Variables) -> Result<Vec<String>> {
    /// Words of those who do not take a setting.
    const REFUSALS: &[&str] =
        &["invalid", "unknown", "warning", "malformed", "error", "unrecognized", "ignor"];
    const COMPLAINTS_MAX: usize = 5;
    let mut complaints = plan::unread_variables(candidate);
    if candidate.library.is_none() || candidate.variables.is_empty() {
        return Ok(complaints);
    }
    let mut nothing = Command::new("/bin/true");
    // What the caller's own variables say wrong is not said of this request.
    for name in candidate.kind.row().map_or(&[][..], |row| row.variables) {
        nothing.env_remove(name);
    }
    // Where there is no such program nothing can be asked.
    let Ok(output) = nothing.envs(environment).stdin(Stdio::null()).output() else {
        return Ok(complaints);
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if candidate.kind == Kind::Snug {
        let warned = said.lines().find_map(|line| line.strip_prefix("snug: warning: "));
        if let Some(warning) = warned {
            let message = format!("--with {}: {}", candidate.label, warning.replace(" (ignored)", ""));
            return Err(Failure::usage(message, "`SNUG=help snug run true` lists the options"));
        }
    }
    let refuses = |line: &&str| {
        let line = line.to_lowercase();
        REFUSALS.iter().any(|word| line.contains(word))
    };
    complaints
        .extend(said.lines().filter(refuses).take(COMPLAINTS_MAX).map(|line| format!("it says {line:?}")));
    Ok(complaints)
}
