//! Rules about Rust sources.

use crate::files::{self, TextFile};
use crate::report;
use crate::tokens::{self, Token};

/// Lines above which a file needs a reason in its first comment.
const MAX_LINES: usize = 800;
/// The words with which a longer file gives its reason.
const REASON: &str = "800 lines";
/// Folders that may use `unsafe`. ARCHITECTURE.md says the same, which another rule compares.
pub(crate) const UNSAFE_FOLDERS: [&str; 5] = [
    "nccl/src/edge/",
    "runtime/src/device/",
    "runtime/src/jit/",
    "runtime/src/memory/",
    "runtime/src/transport/",
];
/// Folders that measure and test those from outside, and call what is unsafe to call.
const UNSAFE_TESTS: [&str; 2] = ["runtime/benches/", "runtime/tests/links/"];
/// Folders of programs, which talk to people.
const PRINTING_FOLDERS: [&str; 3] = ["cli/src/", "fuzz/src/", "xtask/src/"];
/// Names that say nothing about what a file holds.
const EMPTY_NAMES: [&str; 8] = ["utils", "util", "common", "base", "helpers", "misc", "stuff", "lib2"];

fn each(check: impl Fn(&TextFile, &[Token], &mut Vec<String>)) -> Vec<String> {
    let mut broken = Vec::new();
    for file in files::with_endings(&["rs"]) {
        check(&file, &tokens::read(&file.path, &file.text), &mut broken);
    }
    broken
}

/// Whether a path holds tests, measurements or examples, which may print and may be blunt.
pub(crate) fn is_beside_the_product(path: &str) -> bool {
    let beside = ["tests", "benches", "examples"];
    path.split('/').any(|part| beside.contains(&part)) || is_test_file(path)
}

/// Whether a file below `src` holds tests only.
fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

#[test]
fn every_file_says_what_it_is_for() {
    let broken: Vec<String> = files::with_endings(&["rs"])
        .iter()
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| format!("{}:1", file.path))
        .collect();
    report("every source opens with `//!`", &broken);
}

#[test]
fn long_files_have_a_reason() {
    let broken: Vec<String> = files::with_endings(&["rs"])
        .iter()
        .filter(|file| file.text.lines().count() > MAX_LINES)
        .filter(|file| {
            !file.text.lines().take_while(|line| line.starts_with("//!")).any(|line| line.contains(REASON))
        })
        .map(|file| format!("{}: {} lines", file.path, file.text.lines().count()))
        .collect();
    report("a file above 800 lines says why in its first comment, with the words `800 lines`", &broken);
}

#[test]
fn names_say_what_a_file_holds() {
    let empty = |path: &String| {
        path.split('/').any(|part| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or_default()))
    };
    let broken: Vec<String> = files::all().into_iter().filter(empty).collect();
    report("files and folders have names that mean something", &broken);
}

#[test]
fn unsafe_code_stays_where_it_may_be() {
    let broken = each(|file, tokens, broken| {
        if !UNSAFE_FOLDERS.iter().chain(&UNSAFE_TESTS).any(|folder| file.path.starts_with(folder)) {
            broken
                .extend(tokens::find(tokens, &["unsafe"]).iter().map(|line| format!("{}:{line}", file.path)));
        }
    });
    report("`unsafe` stands only in the folders that ARCHITECTURE.md names", &broken);
}

#[test]
fn only_programs_print() {
    let broken = each(|file, tokens, broken| {
        let is_program = PRINTING_FOLDERS.iter().any(|folder| file.path.starts_with(folder));
        // A build script is a program that talks to cargo.
        let may = is_program || file.path.ends_with("/build.rs");
        if may || is_beside_the_product(&file.path) {
            return;
        }
        for name in ["print", "println", "eprint", "eprintln"] {
            let found = tokens.windows(2).filter(|w| w[0].text == name && w[1].text == "!" && !w[0].in_test);
            broken.extend(found.map(|w| format!("{}:{}: {name}!", file.path, w[0].line)));
        }
    });
    report("only the programs print; libraries return or log", &broken);
}

#[test]
fn nothing_is_left_unfinished() {
    let broken = each(|file, tokens, broken| {
        let sequences: [&[&str]; 4] =
            [&["todo", "!"], &["unimplemented", "!"], &["dbg", "!"], &["#", "[", "ignore"]];
        for sequence in sequences {
            let found = tokens::find(tokens, sequence);
            broken.extend(found.iter().map(|line| format!("{}:{line}: {}", file.path, sequence.concat())));
        }
    });
    report("no stub, no left-over, no test that never runs", &broken);
}

#[test]
fn nothing_is_exported_by_a_star() {
    let broken = each(|file, tokens, broken| {
        for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.text == "pub") {
            let mut item = tokens[index..].iter().take_while(|token| token.text != ";");
            let is_use =
                tokens[index + 1..].iter().take(5).take_while(|t| t.text != ";").any(|t| t.text == "use");
            if is_use && item.any(|token| token.text == "*") {
                broken.push(format!("{}:{}", file.path, token.line));
            }
        }
    });
    report("`pub use` names what it exports", &broken);
}

#[test]
fn every_allow_has_a_reason() {
    let broken = each(|file, tokens, broken| {
        for (index, token) in tokens.iter().enumerate() {
            let is_attribute = index > 0 && tokens[index - 1].text == "[";
            if !(is_attribute && matches!(token.text.as_str(), "allow" | "expect")) {
                continue;
            }
            let reason = tokens[index..].iter().take_while(|t| t.text != "]").any(|t| t.text == "reason");
            let lines: Vec<&str> = file.text.lines().skip(token.line.saturating_sub(2)).take(2).collect();
            if !reason && !lines.iter().any(|line| line.contains("//")) {
                broken.push(format!("{}:{}", file.path, token.line));
            }
        }
    });
    report("an `allow` has a `reason` or a comment at or above it", &broken);
}
