//! Runs each target in a process of its own and turns whatever ends that process into a failure with a
//! seed.
//!
//! The child writes the seed of each case to a file before it runs the case, so the parent knows which
//! case panicked, overflowed the stack, ran out of memory, or takes too long.

use crate::mutate::Random;
use crate::options::Options;
use crate::targets::Target;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// How long one case may take. Ours: the language bounds the work of an expansion at some seconds.
const CASE_LIMIT: Duration = Duration::from_secs(40);
/// How much memory a target may use. Ours: far more than any input of this size can need.
const MEMORY_BYTES: u64 = 3 << 30;
const POLL: Duration = Duration::from_millis(50);
/// Bytes of the state file: the current seed and the number of cases finished.
const STATE_BYTES: usize = 16;

/// Runs the targets one after the other and reports like Rust's test harness.
pub(crate) fn run_targets(options: &Options) -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    println!("\nrunning {} tests, seed {}", options.targets.len(), options.seed);
    for target in &options.targets {
        let state =
            std::env::temp_dir().join(format!("ringsmith-fuzz-{}-{}", std::process::id(), target.name));
        let outcome = run_target(target, options, &state);
        let (seed, cases) = read_state(&state).unwrap_or((options.seed, 0));
        let _ = std::fs::remove_file(&state);
        match outcome {
            Ok(()) => {
                passed += 1;
                println!("test fuzz::{} ({cases} cases) ... ok", target.name);
            }
            Err(reason) => {
                failed += 1;
                println!("test fuzz::{} ... FAILED", target.name);
                println!(
                    "{reason} after {cases} cases; again, with its input: cargo xtask fuzz {} --seed {seed} \
                     --cases 1 --show",
                    target.name
                );
            }
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn run_target(target: &Target, options: &Options, state: &PathBuf) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("this program is gone: {error}"))?;
    let mut command = Command::new(program);
    command.arg(target.name).arg("--child").arg(state);
    command.args(["--seed", &options.seed.to_string()]);
    command.args(["--seconds", &options.limit.as_secs().to_string()]);
    command.args(["--cases", &options.cases.to_string()]);
    command.args(options.show.then_some("--show"));
    let mut child = command.spawn().map_err(|error| format!("cannot start the target: {error}"))?;
    let status = supervise(&mut child, state)?;
    if status.success() { Ok(()) } else { Err(format!("the case ended the process ({status})")) }
}

/// Waits for the child while its cases go on.
fn supervise(child: &mut Child, state: &Path) -> Result<ExitStatus, String> {
    let mut last = (None, Instant::now());
    loop {
        if let Some(status) =
            child.try_wait().map_err(|error| format!("cannot wait for the target: {error}"))?
        {
            return Ok(status);
        }
        let seed = read_state(state).map(|(seed, _)| seed);
        if seed != last.0 {
            last = (seed, Instant::now());
        } else if last.1.elapsed() > CASE_LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("the case took longer than {} s", CASE_LIMIT.as_secs()));
        }
        std::thread::sleep(POLL);
    }
}

fn read_state(path: &Path) -> Option<(u64, u64)> {
    let bytes = std::fs::read(path).ok()?;
    let (words, _) = bytes.as_chunks::<8>();
    Some((u64::from_le_bytes(*words.first()?), u64::from_le_bytes(*words.get(1)?)))
}

/// The child: runs the cases of the one target it was given.
///
/// Panics: when a case finds a mistake.
pub(crate) fn run_cases(options: &Options, state: &Path) {
    limit_memory();
    let target = options.targets[0];
    let state = File::create(state).expect("the parent's folder for temporary files can be written");
    let mut run = (target.prepare)();
    let start = Instant::now();
    for case in 0..options.cases {
        if start.elapsed() >= options.limit {
            break;
        }
        let seed = options.seed.wrapping_add(case);
        let mut bytes = [0; STATE_BYTES];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..].copy_from_slice(&case.to_le_bytes());
        state.write_all_at(&bytes, 0).expect("the state file can be written");
        run(&mut Random::new(seed), options.show);
    }
}

fn limit_memory() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::As).maximum;
    let current = Some(maximum.map_or(MEMORY_BYTES, |most| most.min(MEMORY_BYTES)));
    setrlimit(Resource::As, Rlimit { current, maximum }).expect("a process may lower its own limit");
}
