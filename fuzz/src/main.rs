//! Fuzzing on stable Rust: damaged input for everything that parses or judges what others wrote.
//!
//! A target gets one damaged input per case and panics when the code under test breaks a promise. Each
//! target runs in a process of its own ([`watch`]), so that a stack overflow, an exhausted memory or a
//! hang is a failure with a seed like any other. A case depends on its seed and the corpus alone:
//! `--seed N --cases 1 --show` repeats it and prints the input.
//!
//! The mutator knows no coverage. What makes it effective is a corpus of right inputs and damage that
//! keeps most of their form ([`mutate`]).

mod corpus;
mod mutate;
mod options;
mod targets;
mod watch;

use options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("error: {message}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    if options.list {
        for target in &targets::ALL {
            println!("{:12} {}", target.name, target.what);
        }
        return ExitCode::SUCCESS;
    }
    match &options.child {
        Some(state) => {
            watch::run_cases(&options, state);
            ExitCode::SUCCESS
        }
        None => watch::run_targets(&options),
    }
}
