//! The program as a user meets it: arguments in, standard output, standard error and status out.
//!
//! This test is the program too: started with [`program::AS_PROGRAM`] in its environment it does what
//! `ringsmith` does, local ranks included. So the crate tests itself without the root package.

mod arguments;
mod bundle;
mod cache;
mod files;
mod golden;
mod hostile;
mod program;
mod quotes;
mod runs;
mod simulate;
mod topo;
mod tune;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::var_os(program::AS_PROGRAM).is_some() {
        return ringsmith_cli::main();
    }
    let mut trials = golden::trials();
    trials.extend(arguments::trials());
    trials.extend(bundle::trials());
    trials.extend(cache::trials());
    trials.extend(files::trials());
    trials.extend(runs::trials());
    trials.extend(hostile::trials());
    trials.extend(quotes::trials());
    trials.extend(simulate::trials());
    trials.extend(topo::trials());
    trials.extend(tune::trials());
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit_code()
}
