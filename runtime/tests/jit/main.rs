//! Kernels compiled by a real NVRTC, which needs no GPU, and kept for processes that have none.
//!
//! Where NVRTC is missing every trial reports itself skipped; `cargo xtask setup` installs it. A trial
//! that needs processes starts this program again with `RINGSMITH_TEST_JIT_CHILD` set.

mod trials;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::jit::{JitError, Nvrtc};

/// What a trial returns.
type Outcome = Result<(), Failed>;
/// A trial's name and what runs it.
type Named = (&'static str, fn(&Nvrtc) -> Outcome);

fn main() {
    if let Some(scenario) = std::env::var_os(trials::CHILD) {
        trials::child(&scenario.to_string_lossy());
        return;
    }
    let mut arguments = Arguments::from_args();
    // Each is several threads or processes already.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let named: [Named; 10] = [
        ("architectures", trials::architectures),
        ("mistakes_are_shown_with_their_lines", trials::mistakes),
        ("spills_are_told", trials::spills),
        ("generated_kernels_fit_their_registers", trials::generated),
        ("the_exchange_kernel_fits_its_registers", trials::exchange),
        ("no_contraction", trials::no_contraction),
        ("the_setting_is_obeyed", trials::setting),
        ("a_kept_kernel_needs_no_nvrtc", trials::kept),
        ("threads_race_on_one_key", trials::threads),
        ("processes_race_on_one_key", trials::processes),
    ];
    let trials = named.into_iter().map(|(name, run)| {
        Trial::ignorable_test(name, move || match Nvrtc::find(&usual()) {
            Ok(nvrtc) => run(&nvrtc).map(|()| Completion::Completed),
            Err(JitError::Missing(_)) => Ok(Completion::ignored_with("no NVRTC here; cargo xtask setup")),
            Err(error) => Err(error.to_string().into()),
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// The settings of whoever runs the tests.
fn usual() -> Config {
    Config::from_env().expect("settings that can be used").0
}

/// Fails with a reason unless something holds.
fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(reason().into()) }
}
