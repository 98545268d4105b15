//! `completions` and `man`: made from the command line's own description, so they cannot go stale.

use crate::arguments::Arguments;
use crate::input::name_of;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::Output;
use crate::written;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
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
    let failed = |e| Failure::unusable(format_args!("cannot make {}: {e}", name_of(folder)));
    fs::create_dir_all(folder).map_err(failed)?;
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    pages(&program, folder)?;
    Ok(Outcome::Done)
}

/// Writes the page of a command, and those of the commands below it.
fn pages(command: &clap::Command, folder: &Path) -> Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, folder)?;
    }
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text).expect("memory takes every byte");
    written::whole(&folder.join(page.get_filename()), &text)
}
