//! Images that docker has, as archives that can be looked into.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::base::failure::{Context, Failure, Result, UNKNOWN};
use crate::base::progress;
use crate::image::temporary::Temporary;
use crate::process::system;

/// What an image is called that docker wrote.
const SAVED: &str = "image.tar";

/// The archive in the directory that `save` made.
pub(super) fn archive(saved: &Temporary) -> PathBuf {
    saved.path().join(SAVED)
}

/// Has docker write an image into a directory, which is removed with what is returned.
pub(super) fn save(name: &str) -> Result<Temporary> {
    let directory = Temporary::new()?;
    let saved = directory.path().join(SAVED);
    anstream::eprintln!("snug: no file {name}: asking docker for the image of that name");
    let mut docker = Command::new("docker");
    docker.args(["image", "save", "--output"]).arg(&saved).arg(name).stdin(Stdio::null());
    system::unblock_signals(&mut docker);
    let advice =
        "give a directory, an archive of `docker image save`, or an image that `docker image ls` lists";
    let output = progress::during("waiting for docker", None, || docker.output()).map_err(|error| {
        Failure::new(format!("there is no file {name}, and docker can't be run: {error}"))
            .advise(advice)
            .exit_code(UNKNOWN)
    })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let why = text.trim().lines().last().unwrap_or("no reason given");
        return Err(Failure::new(format!("there is no file {name}, and docker says: {why}"))
            .advise(advice)
            .exit_code(UNKNOWN));
    }
    std::fs::metadata(&saved).cannot(|| format!("read {}", saved.display()))?;
    Ok(directory)
}
