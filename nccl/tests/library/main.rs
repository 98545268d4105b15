//! `libnccl.so.2` as C programs use it: built with gcc against include/nccl.h, linked by the library's name, and
//! run as real processes.
//!
//! `c/` is one program with a trial for every part of the interface; each trial runs in 1, 2 and 4 processes.
//! The others are the examples, and programs that only print what the header says. Where gcc is missing the
//! trials report themselves skipped.

mod examples;
mod header;
mod job;
mod nvidia;
mod programs;

use job::Ranks;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use programs::Programs;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a trial returns.
type Outcome = Result<(), Failed>;
/// A trial's name and what runs it.
type Named = (&'static str, fn(&Programs) -> Outcome);

/// The trials of `c/main.c`, which a trial of its own compares with what the program knows.
const TRIALS: [&str; 30] = [
    "collectives",
    "in_place",
    "operations",
    "messages",
    "random_calls",
    "groups",
    "group_mistakes",
    "several_communicators",
    "several_ranks_of_one_process",
    "initialisation",
    "fixed_address",
    "nonblocking",
    "split",
    "shrink",
    "farewell",
    "farewell_in_any_order",
    "nothing_stays",
    "lost_peer",
    "abort_ends_a_wait",
    "revocation",
    "wrong_arguments",
    "different_counts",
    "pointers",
    "fork_after_init",
    "two_threads",
    "twins",
    "asking",
    "memory",
    "parameters",
    "device_interface",
];
const WORLDS: [u32; 3] = [1, 2, 4];
/// Trials that also run without shared memory: a C program has no protection against SIGPIPE but the library's.
const OVER_SOCKETS: [&str; 4] = ["random_calls", "lost_peer", "abort_ends_a_wait", "different_counts"];

/// What carries messages between the ranks of a trial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// Shared memory, as ranks of one host have it.
    Memory,
    /// TCP.
    Sockets,
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Each is several processes already.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let programs: Arc<OnceLock<Result<Programs, String>>> = Arc::default();
    let mut trials = Vec::new();
    let mut add = |name: String, run: Box<dyn FnOnce(&Programs) -> Outcome + Send>| {
        let programs = programs.clone();
        trials.push(Trial::ignorable_test(name, move || {
            if !programs::has_compiler() {
                return Ok(Completion::ignored_with("no gcc here"));
            }
            let built = programs.get_or_init(Programs::build).as_ref().map_err(Failed::from)?;
            run(built)?;
            Ok(Completion::Completed)
        }));
    };
    add("every_trial_is_run".to_owned(), Box::new(every_trial));
    for trial in TRIALS {
        for world in WORLDS {
            add(
                format!("{trial}/{world}"),
                Box::new(move |programs| conform(programs, trial, world, Carrier::Memory)),
            );
        }
    }
    for trial in OVER_SOCKETS {
        add(
            format!("{trial}/3/sockets"),
            Box::new(move |programs| conform(programs, trial, 3, Carrier::Sockets)),
        );
    }
    let others: [Named; 10] = [
        ("header_and_library_agree", header::numbers),
        ("header_is_c_and_cpp", header::languages),
        ("every_function_and_its_twin_is_exported", header::exports),
        ("every_function_is_driven", header::driven),
        ("calls_are_logged_in_nccls_words", examples::log_lines),
        ("without_the_setting_gpus_are_refused", examples::gpus),
        ("names_that_articles_invented_are_told", examples::invented_settings),
        ("settings_that_cannot_be_used_stop_a_program", examples::unusable_settings),
        ("example_two_ranks", examples::two_ranks),
        ("mistake_two_ids", examples::two_ids),
    ];
    for (name, run) in others {
        add(name.to_owned(), Box::new(run));
    }
    let built = programs.clone();
    trials.push(Trial::ignorable_test("beside_nvidias_header", move || {
        let Some(folder) = nvidia::folder() else {
            return Ok(Completion::ignored_with(
                "RINGSMITH_TEST_NCCL_INCLUDE names no folder with NVIDIA's nccl.h",
            ));
        };
        if !programs::has_compiler() {
            return Ok(Completion::ignored_with("no gcc here"));
        }
        let built = built.get_or_init(Programs::build).as_ref().map_err(Failed::from)?;
        nvidia::compare(built, &folder)?;
        Ok(Completion::Completed)
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Nothing is dropped once the process exits: what was built goes now.
    drop(programs);
    conclusion.exit();
}

/// The seed of trials that draw: `RINGSMITH_TEST_SEED`, or another one every time.
fn seed() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_nanos() as u64);
    std::env::var("RINGSMITH_TEST_SEED").unwrap_or_else(|_| now.to_string())
}

/// One trial in some processes.
fn conform(programs: &Programs, trial: &str, world: u32, carrier: Carrier) -> Outcome {
    let seed = seed();
    let folder = programs.folder(&format!("{trial}-{world}"))?;
    let ranks = Ranks::start(world, |rank| {
        let mut command = programs.command(programs.conformance());
        command.args([trial, &rank.to_string(), &world.to_string()]).arg(&folder);
        command.env("RINGSMITH_TEST_SEED", &seed);
        if carrier == Carrier::Sockets {
            command.env("RINGSMITH_SHM_DISABLE", "1");
        }
        command.envs(std::env::var_os("RINGSMITH_TEST_WHOLE").map(|value| ("RINGSMITH_TEST_WHOLE", value)));
        command
    })?;
    ranks.all_succeed().map_err(|failed| {
        let text = failed.message().unwrap_or_default();
        format!("RINGSMITH_TEST_SEED={seed}\n{text}").into()
    })
}

/// The program knows the trials that are listed here, and no others.
fn every_trial(programs: &Programs) -> Outcome {
    let output = programs.command(programs.conformance()).output()?;
    let known = String::from_utf8_lossy(&output.stdout).into_owned();
    if known.lines().eq(TRIALS) { Ok(()) } else { Err(format!("the program's trials are\n{known}").into()) }
}
