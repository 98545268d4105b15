//! Installs what the tests use and this machine lacks.
//!
//! Nothing here is needed to build or run the project: a test whose program is missing reports itself
//! skipped. So a failed installation is told and is no error. Installs only what is listed below, by
//! name, through the system's package manager and rustup.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// A program that tests start.
struct Tool {
    /// Its name on the search path.
    program: &'static str,
    /// The package of Debian and Ubuntu that has it.
    package: &'static str,
    /// What it is used for.
    purpose: &'static str,
}

const TOOLS: [Tool; 2] = [
    Tool { program: "mpirun", package: "openmpi-bin", purpose: "ranks started by a launcher" },
    Tool { program: "ip", package: "iproute2", purpose: "two hosts as network namespaces" },
];

const COMPONENTS: [(&str, &str); 2] = [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];

/// `cargo xtask setup`.
pub(crate) fn command() -> ExitCode {
    install();
    let missing = TOOLS.iter().filter(|tool| !is_there(tool.program)).count();
    println!("{} of {} programs for tests are there", TOOLS.len() - missing, TOOLS.len());
    if missing == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Installs what is missing, as far as that is possible, and says what is not.
pub(crate) fn install() {
    for (program, component) in COMPONENTS {
        if !is_there(program) {
            let added = run(&["rustup", "component", "add", component]);
            if !added {
                eprintln!("note: {component} is missing and could not be added with rustup");
            }
        }
    }
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| !is_there(tool.program)).collect();
    if missing.is_empty() {
        return;
    }
    apt_install(&missing.iter().map(|tool| tool.package).collect::<Vec<_>>());
    for tool in missing.iter().filter(|tool| !is_there(tool.program)) {
        eprintln!(
            "note: {} ({}) is missing and could not be installed; tests that use it report themselves \
             skipped. On Debian: apt-get install {}",
            tool.program, tool.purpose, tool.package
        );
    }
}

/// Whether a program is on the search path, or where system administration tools lie.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| Path::new(&folder).join(program).is_file())
}

fn apt_install(packages: &[&str]) {
    if !is_there("apt-get") {
        return;
    }
    // Never asks: without the right to install, it fails at once and the tests are skipped.
    let words = |rest: &[&'static str]| {
        let mut words = vec!["apt-get", "-qq", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=30"];
        if !is_root() {
            words.splice(0..0, ["sudo", "-n"]);
        }
        words.extend_from_slice(rest);
        words
    };
    if !is_root() && !is_there("sudo") {
        return;
    }
    let mut install = words(&["install", "-y", "--no-install-recommends"]);
    install.extend_from_slice(packages);
    let _ = run(&words(&["update"])) && run(&install);
}

/// Whether this process may install without asking.
fn is_root() -> bool {
    // The owner of /proc/self is the effective user.
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn run(words: &[&str]) -> bool {
    eprintln!("+ {}", words.join(" "));
    Command::new(words[0])
        .args(&words[1..])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
