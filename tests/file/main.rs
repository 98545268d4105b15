//! File tests: one file is one reported test.
//!
//! A case is a `.sched` file (a program or a schedule) or a `.plan` file (a kernel plan) whose first
//! line says what to do with it ([`directive`]). Mistakes that it is to earn stand as comments on the
//! faulty lines ([`expectation`]); printed results lie beside it ([`golden`]). A file that no case asks
//! for, an unknown ending, key or action is a failed test.
//!
//! `BLESS=1` rewrites the printed results.

mod case;
mod check;
mod directive;
mod expectation;
mod golden;

use case::Case;
use libtest_mimic::{Arguments, Trial};
use std::path::{Path, PathBuf};

/// Where cases lie. The schedules among the examples are cases too: what they say of themselves holds.
const FOLDERS: [&str; 3] = ["tests/file", "examples/schedules", "examples/mistakes"];

fn main() {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bless = std::env::var_os("BLESS").is_some_and(|value| value == "1");
    let mut trials = Vec::new();
    for folder in FOLDERS {
        let mut files = Vec::new();
        collect(&root.join(folder), &mut files);
        files.sort();
        trials.extend(files.iter().filter_map(|file| trial(root, file, &files, bless)));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Every file below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry of a folder that was just opened").path();
        // What keeps an empty folder in the tree is nothing to test.
        if path.file_name().is_some_and(|name| name == ".gitkeep") {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// The test of a file; none for files that are checked with their case.
fn trial(root: &Path, file: &Path, files: &[PathBuf], bless: bool) -> Option<Trial> {
    let name = file.strip_prefix(root).expect("found below the root").to_string_lossy().into_owned();
    let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_owned();
    let file = file.to_owned();
    match ending.as_str() {
        "md" => None,
        // The harness itself.
        "rs" if file.parent() == Some(&root.join("tests/file")) => None,
        "sched" | "plan" => Some(Trial::test(name, move || Ok(Case::load(&file)?.run(bless)?))),
        _ if golden::ENDINGS.contains(&ending.as_str()) => {
            let asked = ["sched", "plan"].into_iter().any(|case| files.contains(&file.with_extension(case)));
            let orphan = || Err("no case beside it asks for this file".into());
            (!asked).then(|| Trial::test(name, orphan))
        }
        _ => {
            Some(Trial::test(name, move || Err(format!("no test has files that end in `.{ending}`").into())))
        }
    }
}
