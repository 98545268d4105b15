//! The arguments of the fuzzer.

use crate::targets::{self, Target};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const HELP: &str = "\
usage: ringsmith-fuzz [TARGET…] [--seconds N] [--cases N] [--seed N] [--show] [--list]

Runs the targets (all, unless named) for N seconds each (default 60), or for N cases.
Example, one case again with its input: ringsmith-fuzz text --seed 1234 --cases 1 --show
";

/// How long a target runs where nobody says. Ours.
const DEFAULT_SECONDS: u64 = 60;

/// What to run.
pub(crate) struct Options {
    /// The targets.
    pub(crate) targets: Vec<&'static Target>,
    /// How long each runs.
    pub(crate) limit: Duration,
    /// How many cases each runs at most.
    pub(crate) cases: u64,
    /// The seed of the first case; the following cases have the following numbers.
    pub(crate) seed: u64,
    /// Print the input of each case.
    pub(crate) show: bool,
    /// Only name the targets.
    pub(crate) list: bool,
    /// Set in the process that runs the cases: the file that holds the current case's seed.
    pub(crate) child: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments.
    ///
    /// Errors: what is wrong with them, as one sentence.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            targets: Vec::new(),
            limit: Duration::from_secs(DEFAULT_SECONDS),
            cases: u64::MAX,
            seed: seed_of_now(),
            show: false,
            list: false,
            child: None,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--seconds" => options.limit = Duration::from_secs(number(&argument, arguments.next())?),
                "--cases" => options.cases = number(&argument, arguments.next())?,
                "--seed" => options.seed = number(&argument, arguments.next())?,
                "--show" => options.show = true,
                "--list" => options.list = true,
                "--child" => options.child = arguments.next().map(PathBuf::from),
                name => {
                    let target = targets::ALL.iter().find(|t| t.name == name);
                    options.targets.push(target.ok_or_else(|| format!("no target `{name}`"))?);
                }
            }
        }
        if options.targets.is_empty() {
            options.targets = targets::ALL.iter().collect();
        }
        Ok(options)
    }
}

fn number(option: &str, value: Option<String>) -> Result<u64, String> {
    let value = value.ok_or_else(|| format!("{option} needs a number"))?;
    value.parse().map_err(|_| format!("{option} {value}: not a number"))
}

/// A new seed each time; it is printed, so any run can be repeated.
fn seed_of_now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // Seconds in the upper digits keep the cases of runs apart, whatever number of cases they have.
    now.map_or(1, |since| since.as_secs() % 1_000_000_000 * 1_000_000_000)
}
