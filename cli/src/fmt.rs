//! `fmt`: programs and schedules in their canonical form, comments kept.

use crate::arguments::FmtArguments;
use crate::input::Input;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, remark};
use ringsmith_ir::text;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Runs `fmt`. Files that are wrong are reported and left alone; the others are still rewritten.
pub(crate) fn run(arguments: &FmtArguments) -> Result {
    let mut outcome = Outcome::Done;
    let mut output = Output::new();
    for path in &arguments.files {
        let one = file(path, arguments, &mut output);
        match one {
            Ok(one) => outcome = outcome.max(one),
            Err(Failure::Message { outcome: Outcome::Unusable, text }) => {
                remark(format_args!("error: {text}"));
                outcome = outcome.max(Outcome::Unusable);
            }
            // No other file would fare better: standard output cannot be written.
            Err(failure) => return Err(failure),
        }
    }
    output.flush()?;
    Ok(outcome)
}

fn file(path: &Path, arguments: &FmtArguments, output: &mut Output) -> Result {
    let input = Input::read(path)?;
    let formatted = match text::format(&input.text) {
        Ok(formatted) => formatted,
        Err(mistakes) => {
            input.draw(&mistakes);
            return Ok(Outcome::Unusable);
        }
    };
    let changed = formatted != input.text;
    match &input.path {
        _ if arguments.check => {
            if changed {
                output.line(&input.name)?;
            }
            Ok(if changed { Outcome::No } else { Outcome::Done })
        }
        Some(path) if !arguments.stdout => {
            if changed {
                let failed = |e| Failure::unusable(format_args!("cannot rewrite {}: {e}", input.name));
                replace(path, &formatted).map_err(failed)?;
            }
            Ok(Outcome::Done)
        }
        _ => output.text(&formatted).map(|()| Outcome::Done),
    }
}

/// Puts a new text in a file's place, whole or not at all, with the file's permissions.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link stays a link: the file that it leads to is replaced.
    let path = fs::canonicalize(path)?;
    let permissions = fs::metadata(&path)?.permissions();
    if permissions.readonly() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is read-only"));
    }
    let (temporary, mut file) = beside(&path)?;
    let written = file
        .set_permissions(permissions)
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A new file in the same folder, for nobody else.
fn beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    Ok((temporary, file))
}
