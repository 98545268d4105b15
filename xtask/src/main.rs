//! Chores of the project, as `cargo xtask CHORE`: `test` is what a change must pass, `setup` installs
//! what the tests use, `fuzz` and `bless` run one part of them.
//!
//! Only starts other programs and counts what they report; what is checked stands in `tests/`, `fuzz/`
//! and the crates.

mod setup;
mod steps;
mod tally;

use std::process::ExitCode;

const HELP: &str = "\
Chores of the project.

cargo xtask test [STEP…]    installs what is missing, then runs every check and test, or only the named steps
cargo xtask setup           installs what is missing
cargo xtask fuzz [TARGET…] [--seconds N] [--seed N] [--list]
cargo xtask bless           rewrites the golden files of tests/file
cargo xtask help

Example: cargo xtask test format clippy
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((chore, rest)) = arguments.split_first() else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    match chore.as_str() {
        "test" => steps::test(rest),
        "setup" if rest.is_empty() => setup::command(),
        "fuzz" => steps::fuzz(rest),
        "bless" if rest.is_empty() => steps::bless(),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("error: `{}` is no chore, or takes no arguments\n\n{HELP}", arguments.join(" "));
            ExitCode::from(2)
        }
    }
}
