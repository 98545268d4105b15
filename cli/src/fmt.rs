//! `fmt`: programs and schedules in their canonical form, comments kept.

use crate::arguments::FmtArguments;
use crate::input::Input;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, remark};
use crate::written;
use ringsmith_ir::text;
use std::path::Path;

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
                written::write(path, formatted.as_bytes()).map_err(failed)?;
            }
            Ok(Outcome::Done)
        }
        _ => output.text(&formatted).map(|()| Outcome::Done),
    }
}
