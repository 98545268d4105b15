//! The `ringsmith` program: the command line over the language, the compiler and the runtime.
//!
//! The only place that prints. Results go to standard output, everything else to standard error.
//! It decides nothing about schedules or communication: it reads arguments and files, asks the other
//! crates, and draws what they answer. The whole of it is [`main`].

mod arguments;
mod cache;
mod choice;
mod compile;
mod complaint;
mod draw;
mod excerpt;
mod expand;
mod fmt;
mod generate;
mod input;
mod lower;
mod outcome;
mod output;
mod plan;
mod run;
mod show;
mod simulate;
mod site;
mod topo;
mod tune;
mod values;
mod verify;
mod written;

use arguments::{Arguments, Command};
use clap::Parser;
use outcome::{Failure, Outcome, Result};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(message) => {
            if let Some(text) = complaint::about_value(&message) {
                return ended_by(Failure::unusable(text)).code().into();
            }
            let is_mistake = message.use_stderr();
            // Help and version are results, on standard output; mistakes go to standard error.
            let printed = complaint::about(message).print().and_then(|()| io::stdout().flush());
            let outcome = match printed {
                _ if is_mistake => Outcome::Unusable,
                Ok(()) => Outcome::Done,
                Err(error) => ended_by(Failure::output(&error)),
            };
            return outcome.code().into();
        }
    };
    write_errors_are_errors();
    carry_out(&arguments.command).unwrap_or_else(ended_by).code().into()
}

/// Has a file that may grow no further (`ulimit -f`) fail to be written, where it would end this process by a
/// signal with half a file left behind.
fn write_errors_are_errors() {
    // Where that cannot be arranged, the signal ends the process as it would any other.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Tells why a command could not be carried out.
fn ended_by(failure: Failure) -> Outcome {
    match failure {
        Failure::Message { outcome, text } => {
            output::remark(format_args!("error: {text}"));
            outcome
        }
        Failure::OutputClosed => output_closed(),
    }
}

fn carry_out(command: &Command) -> Result {
    match command {
        Command::Run(arguments) => run::run(arguments),
        Command::Plan(arguments) => plan::run(arguments),
        Command::Topo(arguments) => topo::run(arguments),
        Command::Simulate(arguments) => simulate::run(arguments),
        Command::Tune(arguments) => tune::run(arguments),
        Command::Expand(arguments) => expand::run(arguments),
        Command::Fmt(arguments) => fmt::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Lower(arguments) => lower::run(arguments),
        Command::Compile(arguments) => compile::run(arguments),
        Command::Show(arguments) => show::run(arguments),
        Command::Cache(arguments) => cache::run(arguments),
        Command::Completions { shell } => generate::completions(*shell),
        Command::Man { folder } => generate::man(folder),
    }
}

/// Ends as a program does whose reader has gone: by the signal that tells so.
fn output_closed() -> Outcome {
    // Where the signal does not end the process, its status must still not read as success.
    let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
    Outcome::WorldFailed
}
