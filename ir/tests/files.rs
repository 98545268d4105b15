//! Texts with the mistakes they earn: every `.sched` file under `tests/files` is one test.
//!
//! The first line says what to do with the text:
//!
//! ```text
//! //! run = ["parse"]
//! //! run = ["expand"], ranks = 4, root = 0, per_node = 2
//! ```
//!
//! `parse` reads the text as a program, schedule or kernel plan, by its first word; `expand` also
//! expands it. A name other than `run`, `ranks` and `root` is a setting of the program.
//!
//! Comments say what is expected. At a line's end: a mistake whose first label begins on this line.
//! On a line of its own, with a caret: one that begins on the line above, in the caret's column.
//!
//! ```text
//! let x = m   // error[P0201]: there is no value `m` here
//! let x = m
//! //      ^ error[P0201]: there is no value `m` here | did you mean `n`?
//! ```
//!
//! After the message, separated by ` | `, may stand labels, notes and help; each must be there, word
//! for word. Every mistake must be expected. A text without expectations must have none, and must be
//! in canonical form.

use libtest_mimic::{Arguments as Flags, Failed, Trial};
use ringsmith_ir::diagnostic::{Diagnostic, line_column};
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::text::{
    File, format, parse, parse_kernel_plan, parse_schedule, print_kernel_plan, print_schedule,
};
use std::path::{Path, PathBuf};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths.sort();
    let trials = paths.into_iter().map(|path| {
        let name = path.strip_prefix(&root).expect("it was found there").display().to_string();
        Trial::test(name, move || check(&path).map_err(Failed::from))
    });
    libtest_mimic::run(&Flags::from_args(), trials.collect()).exit();
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() { collect(&path, paths) } else { paths.push(path) }
    }
}

/// What a file's first line says.
struct Directive {
    expand: bool,
    arguments: Arguments,
}

/// A mistake that a comment expects.
#[derive(Debug)]
struct Expected {
    line: usize,
    column: Option<usize>,
    code: String,
    parts: Vec<String>,
}

fn check(path: &Path) -> Result<(), String> {
    if path.extension().is_none_or(|e| e != "sched") {
        return Err("a file's ending must be `.sched`".to_owned());
    }
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let directive = directive(text.lines().next().unwrap_or(""))?;
    let mut expected = expectations(&text)?;
    let clean = expected.is_empty();
    let mut wrong = Vec::new();
    for found in run(&text, &directive)? {
        let place = line_column(&text, found.span().start);
        match expected.iter().position(|e| meets(e, &found, place)) {
            Some(index) => drop(expected.swap_remove(index)),
            None => wrong.push(format!("not expected, at {}:{}: {found:#?}", place.0, place.1)),
        }
    }
    wrong.extend(expected.iter().map(|e| format!("not found: {e:?}")));
    if clean && wrong.is_empty() && !text.contains("kernel_plan @") {
        let canonical = format(&text).map_err(|d| format!("{d:?}"))?;
        if canonical != text {
            wrong.push(format!("the text is not in canonical form, which is\n{canonical}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn meets(expected: &Expected, found: &Diagnostic, (line, column): (usize, usize)) -> bool {
    let says = |part: &String| {
        *part == found.message
            || found.labels.iter().any(|l| l.message == *part)
            || found.notes.contains(part)
            || found.help.as_ref() == Some(part)
    };
    expected.code == found.code.0
        && expected.line == line
        && expected.column.is_none_or(|c| c == column)
        && expected.parts.iter().all(says)
}

fn directive(line: &str) -> Result<Directive, String> {
    let text =
        line.strip_prefix("//!").ok_or("the first line must be a directive: `//! run = [\"parse\"]`")?;
    let mut directive = Directive { expand: false, arguments: Arguments::ranks(0) };
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is no directive"))?;
        let (key, value) = (key.trim(), value.trim());
        let number = || value.parse::<i64>().map_err(|e| format!("{key}: {e}"));
        let small = || value.parse::<u32>().map_err(|e| format!("{key}: {e}"));
        match (key, value) {
            ("run", "[\"parse\"]") => {}
            ("run", "[\"expand\"]") => directive.expand = true,
            ("run", _) => return Err(format!("run = {value} is unknown here")),
            ("ranks", _) => directive.arguments.ranks = small()?,
            ("root", _) => directive.arguments.root = Some(small()?),
            _ => drop(directive.arguments.set.insert(key.to_owned(), number()?)),
        }
    }
    Ok(directive)
}

fn expectations(text: &str) -> Result<Vec<Expected>, String> {
    let mut expected = Vec::new();
    let mut last = 0;
    for (i, line) in text.lines().enumerate().skip(1) {
        let own = line.trim_start().starts_with("//");
        if let Some(at) = line.find("error[") {
            let rest = &line[at + "error[".len()..];
            let (code, rest) = rest.split_once("]: ").ok_or_else(|| format!("line {}: no `]: `", i + 1))?;
            let column = if own {
                let caret = line[..at].find('^').ok_or_else(|| format!("line {}: no caret", i + 1))?;
                Some(line[..caret].chars().count() + 1)
            } else {
                None
            };
            let line = if own { last } else { i + 1 };
            let parts = rest.split(" | ").map(|p| p.trim().to_owned()).collect();
            expected.push(Expected { line, column, code: code.to_owned(), parts });
        }
        if !own {
            last = i + 1;
        }
    }
    Ok(expected)
}

fn run(text: &str, directive: &Directive) -> Result<Vec<Diagnostic>, String> {
    let form = text.lines().map(str::trim_start).find(|l| !l.is_empty() && !l.starts_with("//"));
    if form.is_some_and(|l| l.starts_with("kernel_plan")) {
        if directive.expand {
            return Err("a kernel plan is not expanded".to_owned());
        }
        return Ok(match parse_kernel_plan(text) {
            Ok(plan) => {
                let back = parse_kernel_plan(&print_kernel_plan(&plan));
                if back != Ok(plan) {
                    return Err(format!("printed and read, the plan is another: {back:?}"));
                }
                Vec::new()
            }
            Err(found) => found,
        });
    }
    Ok(match (parse(text), directive.expand) {
        (Err(found), _) => found,
        (Ok(_), false) => Vec::new(),
        (Ok(File::Schedule(_)), true) => return Err("a schedule is not expanded".to_owned()),
        (Ok(File::Program(program)), true) => match expand(&program, &directive.arguments) {
            Err(found) => found,
            Ok(schedule) => {
                let printed = print_schedule(&schedule);
                if let Err(found) = parse_schedule(&printed) {
                    return Err(format!("the expansion cannot be read: {found:#?}\n{printed}"));
                }
                Vec::new()
            }
        },
    })
}
