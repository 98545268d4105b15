//! Expected mistakes, as comments on the lines at fault.
//!
//! `// error[V0302]: text` at a line's end expects a diagnostic with this code whose first label begins
//! on this line and whose message, or that label, contains the text. `// also[V0302]: text` expects a
//! further label of a diagnostic with this code on this line. A comment that stands alone and begins
//! with `//^` speaks of the line above, where the line itself cannot hold a comment; several may follow
//! each other. Every diagnostic
//! must be expected, and every expectation met.

use ringsmith_ir::diagnostic::{Diagnostic, line_column};
use std::fmt::Write as _;

/// One expected error or label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    line: usize,
    /// A further label, not the place of the mistake.
    also: bool,
    code: String,
    text: String,
}

/// Compares diagnostics with what the comments of a text expect.
///
/// Errors: everything that differs.
pub(crate) fn compare(text: &str, found: &[Diagnostic]) -> Result<(), String> {
    let expected = read(text)?;
    let mut met = vec![false; expected.len()];
    let mut report = String::new();
    for diagnostic in found {
        if !take(&expected, &mut met, text, diagnostic) {
            let (line, column) = line_column(text, diagnostic.span().start);
            let label = diagnostic.labels.first().map_or("", |label| &label.message);
            let _ = writeln!(report, "not expected: {line}:{column}: {diagnostic} ({label})");
            for other in diagnostic.labels.iter().skip(1) {
                let (line, column) = line_column(text, other.span.start);
                let _ = writeln!(report, "    also {line}:{column}: {}", other.message);
            }
        }
    }
    for expected in expected.iter().zip(&met).filter(|(_, met)| !**met).map(|(expected, _)| expected) {
        let what = if expected.also { "also" } else { "error" };
        let _ =
            writeln!(report, "missing: line {}: {what}[{}]: {}", expected.line, expected.code, expected.text);
    }
    if report.is_empty() { Ok(()) } else { Err(report) }
}

/// Marks the expectations that a diagnostic meets. Whether its place was expected.
fn take(expected: &[Expected], met: &mut [bool], text: &str, diagnostic: &Diagnostic) -> bool {
    let line_of = |start| line_column(text, start).0.min(text.lines().count());
    let mut place_expected = false;
    for (index, label) in diagnostic.labels.iter().enumerate() {
        let also = index > 0;
        let fits = |e: &Expected| {
            e.also == also
                && e.line == line_of(label.span.start)
                && e.code == diagnostic.code.0
                && (label.message.contains(&e.text) || !also && diagnostic.message.contains(&e.text))
        };
        let Some(at) = (0..expected.len()).find(|&at| fits(&expected[at]) && (also || !met[at])) else {
            continue;
        };
        met[at] = true;
        place_expected |= !also;
    }
    place_expected
}

/// The expectations of a text.
///
/// Errors: a comment that begins like one and is none.
fn read(text: &str) -> Result<Vec<Expected>, String> {
    let mut all = Vec::new();
    let mut number = 0;
    for (index, line) in text.lines().enumerate() {
        let above = line.trim_start().strip_prefix("//^");
        if above.is_none() {
            number = index + 1;
        }
        let comments = above
            .map_or_else(|| line.split("//").skip(1).collect::<Vec<_>>(), |rest| rest.split("//").collect());
        for comment in comments {
            let comment = comment.trim();
            let (also, rest) = match (comment.strip_prefix("error["), comment.strip_prefix("also[")) {
                (Some(rest), _) => (false, rest),
                (_, Some(rest)) => (true, rest),
                _ => continue,
            };
            let (code, text) = rest
                .split_once("]: ")
                .ok_or_else(|| format!("line {number}: `{comment}` lacks `]: ` and a text"))?;
            all.push(Expected { line: number, also, code: code.to_owned(), text: text.to_owned() });
        }
    }
    Ok(all)
}
