//! Installs what the tests use and this machine lacks.
//!
//! Nothing here is needed to build or run the project: a test whose program is missing reports itself
//! skipped. So a failed installation is told and is no error. Installs only what is listed below, by
//! name, through the system's package manager, rustup and pip.

use std::path::{Path, PathBuf};
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

/// A package of python's index whose files tests use.
struct Wheel {
    /// Its name, with the versions that do.
    package: &'static str,
    /// A folder that it makes.
    folder: &'static str,
    /// What it is used for.
    purpose: &'static str,
}

const WHEELS: [Wheel; 1] = [Wheel {
    package: "nvidia-cuda-nvrtc==13.0.*",
    folder: "nvidia/cu13/lib",
    purpose: "kernels compiled without a GPU",
}];

const COMPONENTS: [(&str, &str); 2] = [("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")];

/// `cargo xtask setup`.
pub(crate) fn command() -> ExitCode {
    install();
    let missing = TOOLS.iter().filter(|tool| !is_there(tool.program)).count();
    println!("{} of {} programs for tests are there", TOOLS.len() - missing, TOOLS.len());
    let missing_wheels = WHEELS.iter().filter(|wheel| !is_installed(wheel)).count();
    println!("{} of {} packages for tests are there", WHEELS.len() - missing_wheels, WHEELS.len());
    if missing + missing_wheels == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
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
    WHEELS.iter().filter(|wheel| !is_installed(wheel)).for_each(pip_install);
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

/// Where wheels are installed: in cargo's folder of built things, which this program lies in, so that
/// programs of the same folder find them.
fn wheels_folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let target = program.ancestors().skip(1).find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
    Some(target.join("tools/python"))
}

fn is_installed(wheel: &Wheel) -> bool {
    wheels_folder().is_some_and(|folder| folder.join(wheel.folder).is_dir())
}

fn pip_install(wheel: &Wheel) {
    let Some(folder) = wheels_folder() else { return };
    let Some(target) = folder.to_str() else { return };
    let words = ["python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"];
    let rest = ["--retries", "1", "--timeout", "30", "--no-deps", "--target", target, wheel.package];
    if !run(&[&words[..], &rest].concat()) {
        eprintln!(
            "note: {} ({}) could not be installed; tests that use it report themselves skipped unless they \
             find it elsewhere. By hand: pip install --target {target} '{}'",
            wheel.package, wheel.purpose, wheel.package
        );
    }
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
