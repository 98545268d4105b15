//! Jobs of real processes, as users start them: launchers, hosts, ranks that die, stop or never come,
//! and strangers at every port. One trial is one job or a few.
//!
//! Every job has a deadline, after which it is killed and the trial fails. A trial that this machine
//! cannot run reports itself skipped, with the reason. What is waited for is an event (a line of
//! output, an end), never a time.

mod hosts;
mod job;
mod launch;
mod loss;
mod refusal;
mod strangers;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// What a trial returns.
type Outcome = Result<Completion, Failed>;
/// A trial's name and what runs it.
type Named = (&'static str, fn() -> Outcome);

fn main() {
    let mut arguments = Arguments::from_args();
    // Each trial is several processes already.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let trials: [Named; 20] = [
        ("launch::readme", launch::readme),
        ("launch::mpirun", launch::mpirun),
        ("launch::torchrun", launch::torchrun),
        ("hosts::two_pretended", hosts::two_pretended),
        ("hosts::two_namespaces", hosts::two_namespaces),
        ("loss::never_started", loss::never_started),
        ("loss::killed_over_memory", loss::killed_over_memory),
        ("loss::killed_over_sockets", loss::killed_over_sockets),
        ("loss::killed_root", loss::killed_root),
        ("loss::stopped_over_memory", loss::stopped_over_memory),
        ("loss::stopped_over_sockets", loss::stopped_over_sockets),
        ("loss::timeout", loss::timeout),
        ("refusal::same_rank_twice", refusal::same_rank_twice),
        ("refusal::different_numbers_of_ranks", refusal::different_numbers_of_ranks),
        ("refusal::different_settings", refusal::different_settings),
        ("refusal::different_versions", refusal::different_versions),
        ("strangers::while_joining", strangers::while_joining),
        ("strangers::while_running", strangers::while_running),
        ("strangers::more_than_files", strangers::more_than_files),
        ("strangers::local_jobs_are_not_seen_from_outside", strangers::local_jobs_are_not_seen_from_outside),
    ];
    let trials = trials.into_iter().map(|(name, run)| Trial::ignorable_test(name, run)).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// Fails with a reason unless something holds.
fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(reason().into()) }
}
