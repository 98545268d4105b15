//! Golden tests: a file begins with a command line, and goes on with what that command prints.
//!
//! `$ ringsmith ARGUMENT… [< FILE]`, arguments apart by spaces. `BLESS=1` rewrites what follows.

use crate::program::{self, Done};
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};

/// A test for each file.
pub(crate) fn trials() -> Vec<Trial> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "golden"].iter().collect();
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the folder of golden files")
        .map(|entry| entry.expect("an entry of it").path())
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            Trial::test(format!("golden::{name}"), move || check(&path))
        })
        .collect()
}

fn check(path: &Path) -> Result<(), Failed> {
    if path.extension().is_none_or(|ending| ending != "txt") {
        return Err("golden files end in .txt".into());
    }
    let golden = fs::read_to_string(path)?;
    let first = golden.lines().next().unwrap_or_default();
    let line = first.strip_prefix("$ ringsmith ").ok_or("the first line is `$ ringsmith …`")?;
    let (arguments, stdin) = match line.split_once(" < ") {
        Some((arguments, file)) => (arguments, fs::read(program::samples().join(file))?),
        None => (line, Vec::new()),
    };
    let Done { status, stdout, stderr } = program::run_with(arguments.split_whitespace(), &stdin);
    let now = format!("{first}\nstatus {status}\n--- stdout\n{stdout}--- stderr\n{stderr}");
    if golden == now {
        return Ok(());
    }
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        return Ok(fs::write(path, now)?);
    }
    Err(format!("it prints something else now:\n{now}").into())
}
