//! Topologies from end to end: texts, NCCL's files, known machines, and the graphs that are found for
//! them.
//!
//! Files of other projects are read from the folder that `RINGSMITH_TEST_CORPUS` names, and all below
//! it; without it those trials report themselves skipped.

mod channels;
mod corpus;
mod files;
mod round_trips;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let mut trials = Vec::new();
    trials.extend(files::trials());
    trials.extend(round_trips::trials());
    trials.extend(channels::trials());
    trials.extend(corpus::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A trial of something that panics if it is not so.
fn trial(name: &str, check: fn()) -> Trial {
    Trial::test(name, move || {
        check();
        Ok(())
    })
}
