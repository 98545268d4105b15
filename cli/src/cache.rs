//! `cache`: the compiled kernels that are kept on disk.

use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, remark};
use clap::{Args, Subcommand};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::jit::cache::{Cache, CacheEntry, CacheError, Cleared};
use ringsmith_runtime::shown::escaped;
use serde::Serialize;

/// Arguments of `cache`.
#[derive(Args, Debug)]
pub(crate) struct CacheArguments {
    /// What to do with it.
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lists every kernel
    Ls {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Reads and checks every kernel, and names the damaged ones
    Verify,
    /// Removes every kernel
    Clear,
}

/// A row of `ls --json`.
#[derive(Serialize)]
struct Row<'a> {
    path: String,
    bytes: u64,
    kernel: Option<&'a str>,
    architecture: Option<String>,
    nvrtc: Option<String>,
    damage: Option<String>,
}

/// Runs `cache`.
pub(crate) fn run(arguments: &CacheArguments) -> Result {
    let (config, warnings) = Config::from_env().map_err(Failure::unusable)?;
    for warning in warnings {
        remark(format_args!("warning: {warning}"));
    }
    let cache = Cache::open(&config).map_err(|error| failed(&error))?;
    let mut output = Output::new();
    let outcome = match arguments.action {
        Action::Ls { json } => list(&cache, json, &mut output)?,
        Action::Verify => verify(&cache, &mut output)?,
        Action::Clear => {
            let Cleared { kernels, bytes } = cache.clear().map_err(|error| failed(&error))?;
            let folder = cache.folder().display().to_string();
            let kernels = counted(kernels);
            output.line(format_args!("removed {kernels}, {bytes} bytes, from {}", escaped(&folder)))?;
            Outcome::Done
        }
    };
    output.flush()?;
    Ok(outcome)
}

/// A folder that somebody chose wrongly is an unusable setting; one that fails is the world's fault.
fn failed(error: &CacheError) -> Failure {
    match error {
        CacheError::NoFolder | CacheError::Owner { .. } | CacheError::Writable { .. } => {
            Failure::unusable(error)
        }
        CacheError::Folder { .. } => Failure::world(error),
    }
}

fn counted(kernels: u64) -> String {
    if kernels == 1 { "1 kernel".to_owned() } else { format!("{kernels} kernels") }
}

fn list(cache: &Cache, json: bool, output: &mut Output) -> Result {
    let entries = cache.entries().map_err(|error| failed(&error))?;
    for entry in &entries {
        if json { output.json(&row(entry))? } else { line(entry, output)? }
    }
    if !json {
        let (number, bytes) = (entries.len() as u64, entries.iter().map(|entry| entry.bytes).sum::<u64>());
        let folder = cache.folder().display().to_string();
        output.line(format_args!("{}, {bytes} bytes, in {}", counted(number), escaped(&folder)))?;
    }
    Ok(Outcome::Done)
}

fn row(entry: &CacheEntry) -> Row<'_> {
    let kept = entry.kernel.as_ref().ok();
    Row {
        path: entry.path.display().to_string(),
        bytes: entry.bytes,
        kernel: kept.map(|kept| kept.name.as_str()),
        architecture: kept.map(|kept| kept.cubin.architecture().to_string()),
        nvrtc: kept.map(|kept| kept.version.to_string()),
        damage: entry.kernel.as_ref().err().map(ToString::to_string),
    }
}

fn line(entry: &CacheEntry, output: &mut Output) -> Result<()> {
    let file = entry.path.file_name().unwrap_or_default().to_string_lossy();
    match &entry.kernel {
        Ok(kept) => output.line(format_args!(
            "{:<32} {:<7} {:<5} {:>9} {file}",
            escaped(&kept.name),
            kept.cubin.architecture().to_string(),
            kept.version.to_string(),
            entry.bytes
        )),
        Err(damage) => output.line(format_args!("damaged: {file}: {damage}")),
    }
}

fn verify(cache: &Cache, output: &mut Output) -> Result {
    let entries = cache.entries().map_err(|error| failed(&error))?;
    let mut damaged = 0;
    for entry in &entries {
        if let Err(damage) = &entry.kernel {
            damaged += 1;
            output.line(format_args!("{}: {damage}", escaped(&entry.path.display().to_string())))?;
        }
    }
    let sound = counted(entries.len() as u64 - damaged);
    output.line(format_args!("{sound} sound, {damaged} damaged"))?;
    Ok(if damaged == 0 { Outcome::Done } else { Outcome::No })
}
