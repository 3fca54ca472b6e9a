//! The setup of a comparison, settled before its first run: which allocators exist, and that each works with the
//! program.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use regex_lite::Regex;

use crate::plan::{self, Candidate};
use crate::{perf, serving, settings};
use snug_base::elf;
use snug_base::failure::{Failure, Result, USAGE};
use snug_compare::attribution::AllocatorCode;
use snug_compare::until::Goal;
use snug_inspect::asker::Asker;
use snug_inspect::kinds::Kind;
use snug_inspect::program::{self, Program, Variables};

/// What to run, how often, and what to measure of it.
#[derive(Debug)]
pub struct ComparePlan {
    pub program: Vec<OsString>,
    /// With a goal, at most.
    pub rounds: u32,
    pub until: Option<Goal>,
    pub interval_ms: u64,
    /// What command lines of measured processes match.
    pub only: Option<Regex>,
    pub ask_allocator: bool,
    /// Whether perf samples.
    pub profile: bool,
    pub keep_going: bool,
    /// None: the program ends by itself.
    pub serving: Option<serving::Plan>,
}

/// What all runs are made of; one element for each candidate.
pub struct RunSetup<'a> {
    pub candidates: &'a [Candidate],
    pub environments: Vec<Variables>,
    /// Whether the loader confirmed that it loads the allocator into the program.
    pub probed: Vec<bool>,
    /// What each says against its settings.
    pub complaints: Vec<Vec<String>>,
    /// Where the code of each is, if CPU time is to be sampled.
    pub profiles: Option<Vec<AllocatorCode>>,
    /// The program's own, which answers malloc where no allocator is preloaded.
    pub c_library: Option<PathBuf>,
}

impl RunSetup<'_> {
    /// Fails if the program, an allocator or a setting can't be measured as the plan says. Runs nothing of the program.
    pub fn prepare<'a>(plan: &ComparePlan, candidates: &'a [Candidate]) -> Result<RunSetup<'a>> {
        let program = program::find(&plan.program[0])?;
        let preloaded = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty());
        refuse_preloaded_allocator(preloaded.as_deref())?;
        let asker = plan.ask_allocator.then(|| find_asker(&program)).transpose()?;
        let profiles = plan.profile.then(|| profiles(&program, candidates)).transpose()?;
        let (environments, probed, complaints) = (vec![], vec![], vec![]);
        let c_library = program::c_library(&program);
        let mut setup = RunSetup { candidates, environments, probed, complaints, profiles, c_library };
        for candidate in candidates {
            let environment = plan::environment(candidate, asker.as_ref(), preloaded.as_deref());
            setup.probed.push(probe(&program, candidate, &environment).map_err(before_start)?);
            setup.environments.push(environment);
        }
        for (candidate, environment) in candidates.iter().zip(&setup.environments) {
            setup.complaints.push(settings::refused(candidate, environment)?);
        }
        Ok(setup)
    }
}

/// Where the code of each allocator is. Fails if perf can't sample here, or that can't be said.
fn profiles(program: &Program, candidates: &[Candidate]) -> Result<Vec<AllocatorCode>> {
    perf::check()?;
    let code = |candidate: &Candidate| match &candidate.library {
        Some(library) => Ok(AllocatorCode::library(&library.path)),
        None => own_allocator(program),
    };
    candidates.iter().map(code).collect()
}

/// Where the allocator is that the program is linked with: a library of its own, or the C library.
fn own_allocator(program: &Program) -> Result<AllocatorCode> {
    let listing = program::list_libraries(program, &Variables::new())?;
    let code = match listing.find(|kind| !kind.is_c_library()) {
        Some(path) => Some(AllocatorCode::library(&path)),
        None => {
            let path = listing.find(Kind::is_c_library);
            path.and_then(|path| AllocatorCode::in_c_library(&path, &elf::exported_functions(&path)))
        }
    };
    code.ok_or_else(|| {
        Failure::usage(
            format!("--profile can't tell where malloc is in {}", program.image.display()),
            "leave glibc out of --with, or give a program that is linked dynamically with glibc",
        )
    })
}

/// What can't be done is a mistake in the request as long as nothing was run.
pub fn before_start(failure: Failure) -> Failure {
    failure.exit_code(USAGE)
}

fn find_asker(program: &Program) -> Result<Asker> {
    let asker = Asker::find().map_err(before_start)?;
    match asker.obstacle(program) {
        Some(obstacle) => Err(before_start(obstacle)),
        None => Ok(asker),
    }
}

/// A preload of the caller's that is itself an allocator would be part of every row.
fn refuse_preloaded_allocator(existing: Option<&OsStr>) -> Result<()> {
    let existing = existing.unwrap_or_default().to_string_lossy();
    for path in existing.split([':', ' ']) {
        if let Some(kind) = Kind::from_file_name(path).filter(|kind| !kind.is_c_library()) {
            return Err(Failure::new(format!(
                "LD_PRELOAD already holds {} ({path}): it would be in every run, also under glibc",
                kind.name()
            ))
            .advise("unset LD_PRELOAD; snug compare sets it for each run")
            .exit_code(USAGE));
        }
    }
    Ok(())
}

/// Asks the dynamic loader whether it would load the library into this program, without running the program.
/// True if it would; false if the loader can't be asked.
fn probe(program: &Program, candidate: &Candidate, environment: &Variables) -> Result<bool> {
    let Some(library) = &candidate.library else { return Ok(false) };
    if let Some(obstacle) = program::preload_obstacle(program, &library.path, &library.elf) {
        return Err(obstacle);
    }
    let listing = program::list_libraries(program, environment)?;
    if listing.libraries.is_empty() {
        return Ok(false);
    }
    if listing.libraries.contains(&library.path) {
        return Ok(true);
    }
    let said = if listing.complaint.is_empty() { "nothing" } else { &listing.complaint };
    Err(Failure::new(format!(
        "{} would not be loaded into {}; the loader said: {said}",
        library.path.display(),
        program.image.display(),
    ))
    .advise("check that the library was built for this system, and its dependencies with ldd"))
}
