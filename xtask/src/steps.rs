//! The steps of `cargo xtask test`, fast ones first. A failed step does not stop the others: one run
//! tells everything.
//!
//! Everything but the README's own command is built in the development profile, where overflow and
//! debug assertions are checked, so that the parts share one set of built crates.

use crate::setup;
use crate::tally::Tally;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// How long each fuzz target runs, in seconds. Ours; longer runs are for `cargo xtask fuzz`.
const FUZZ_SECONDS: &str = "20";

/// What a step is called and does.
struct Step {
    name: &'static str,
    what: &'static str,
    run: fn() -> Tally,
}

const STEPS: [Step; 9] = [
    Step { name: "format", what: "rustfmt changes nothing", run: format },
    Step { name: "tree", what: "rules of the tree, licences, duplicates", run: tree },
    Step { name: "clippy", what: "no warning of compiler or clippy", run: clippy },
    Step { name: "file", what: "file tests", run: file },
    Step { name: "test", what: "unit, integration and multi-process tests", run: rest },
    Step { name: "docs", what: "rustdoc without a warning", run: docs },
    Step { name: "fuzz", what: "every fuzz target for a while", run: short_fuzz },
    Step { name: "examples", what: "the numbered examples", run: examples },
    Step { name: "readme", what: "the README's first command", run: readme },
];

/// `cargo xtask test [STEP…]`.
pub(crate) fn test(names: &[String]) -> ExitCode {
    if let Some(unknown) = names.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        let all: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        eprintln!("error: `{unknown}` is no step; the steps are {}", all.join(", "));
        return ExitCode::from(2);
    }
    setup::install();
    let mut sum = Tally::default();
    let mut lines = Vec::new();
    for step in STEPS.iter().filter(|step| names.is_empty() || names.iter().any(|name| name == step.name)) {
        println!("\n== {}: {}", step.name, step.what);
        let start = Instant::now();
        let tally = (step.run)();
        lines.push(format!("{:9} {:6.1} s  {tally}", step.name, start.elapsed().as_secs_f64()));
        sum += tally;
    }
    println!("\n{}\n{sum}", lines.join("\n"));
    if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// `cargo xtask fuzz …`.
pub(crate) fn fuzz(arguments: &[String]) -> ExitCode {
    let mut words = vec!["run", "--quiet", "--package", "ringsmith-fuzz", "--"];
    words.extend(arguments.iter().map(String::as_str));
    exit(ran(&mut cargo(&words)))
}

/// `cargo xtask bless`.
pub(crate) fn bless() -> ExitCode {
    exit(ran(cargo(&["test", "--quiet", "--package", "ringsmith", "--test", "file"]).env("BLESS", "1")))
}

fn format() -> Tally {
    Tally::one(ran(&mut cargo(&["fmt", "--all", "--check"])))
}

fn tree() -> Tally {
    counted(&mut cargo(&["test", "--locked", "--package", "ringsmith", "--test", "tree"]))
}

fn clippy() -> Tally {
    Tally::one(ran(&mut cargo(&[
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ])))
}

fn file() -> Tally {
    counted(&mut cargo(&["test", "--locked", "--package", "ringsmith", "--test", "file"]))
}

/// Everything that `cargo test` runs, without what the steps before have run.
fn rest() -> Tally {
    let general = ["test", "--locked", "--no-fail-fast", "--workspace", "--exclude", "ringsmith"];
    let ours = ["test", "--locked", "--no-fail-fast", "--package", "ringsmith"];
    let mut tally = counted(&mut cargo(&general));
    let mut command = cargo(&ours);
    command.args(["--lib", "--bins", "--examples"]);
    for name in our_tests().iter().filter(|name| !matches!(name.as_str(), "tree" | "file")) {
        command.args(["--test", name]);
    }
    tally += counted(&mut command);
    tally += counted(cargo(&ours).arg("--doc"));
    tally
}

/// The integration tests that the root manifest lists.
fn our_tests() -> Vec<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the manifest was just used");
    let sections = manifest.split("[[test]]").skip(1);
    let name = |section: &str| Some(section.trim().strip_prefix("name = \"")?.split('"').next()?.to_owned());
    sections.map(|section| name(section).expect("a test of the manifest begins with its name")).collect()
}

fn docs() -> Tally {
    let mut doc = cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
    Tally::one(ran(doc.env("RUSTDOCFLAGS", "-D warnings")))
}

fn short_fuzz() -> Tally {
    counted(&mut cargo(&[
        "run",
        "--locked",
        "--quiet",
        "--package",
        "ringsmith-fuzz",
        "--",
        "--seconds",
        FUZZ_SECONDS,
    ]))
}

fn examples() -> Tally {
    let mut names: Vec<String> = std::fs::read_dir(root().join("examples"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    let mut tally = Tally::default();
    for name in names {
        let passed =
            ran(&mut cargo(&["run", "--locked", "--quiet", "--package", "ringsmith", "--example", &name]));
        println!("example {name} ... {}", if passed { "ok" } else { "FAILED" });
        tally += Tally::one(passed);
    }
    tally
}

fn readme() -> Tally {
    Tally::one(ran(&mut cargo(&["run", "--locked", "--release", "--", "run", "all_reduce", "--ranks", "4"])))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root()).stdin(Stdio::null());
    command
}

fn ran(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("error: cannot start {}: {error}", command.get_program().display());
            false
        }
    }
}

/// Runs test programs, passes their output on and adds up what they report. A program that fails
/// without reporting a failed test (it did not build, or died) counts as one.
fn counted(command: &mut Command) -> Tally {
    let mut tally = Tally::default();
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("error: cannot start {}: {error}", command.get_program().display());
            return Tally::one(false);
        }
    };
    let output = child.stdout.take().expect("stdout was piped");
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        if let Some(found) = Tally::of_line(&line) {
            tally += found;
        }
    }
    let success = child.wait().is_ok_and(|status| status.success());
    if !success && tally.failed == 0 {
        tally += Tally::one(false);
    }
    tally
}

fn exit(success: bool) -> ExitCode {
    if success { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
