//! `completions` and `man`: made from the command line's own description, so they cannot go stale.

use crate::arguments::Arguments;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::Output;
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::path::Path;

/// Runs `completions`.
pub(crate) fn completions(shell: Shell) -> Result {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "ringsmith", &mut text);
    let mut output = Output::new();
    output.bytes(&text)?;
    output.flush()?;
    Ok(Outcome::Done)
}

/// Runs `man`: a page for the program and one for each command.
pub(crate) fn man(folder: &Path) -> Result {
    let failed =
        |e| Failure::unusable(format_args!("cannot write manual pages to {}: {e}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Arguments::command(), folder).map_err(failed)?;
    Ok(Outcome::Done)
}
