//! The pages of the verifier's codes: the first text of a page earns its code and nothing else, what the
//! verifier says of it stands below it, word for word, and the last text is proved.
//!
//! `BLESS=1` rewrites what the verifier says.

use ringsmith_ir::diagnostic::{Diagnostic, line_column};
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::text::{File, parse, parse_kernel_plan};
use ringsmith_ir::verify;
use std::path::PathBuf;

/// Codes that no text earns: reading it already finds the mistake. `by_hand` earns them.
const WITHOUT_TEXT: [&str; 3] = ["V0201", "V0204", "V0207"];

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The codes in the tables of the verifier's documentation.
fn codes() -> Vec<String> {
    let source = include_str!("../../src/verify/mod.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | V"));
    let mut codes: Vec<String> = rows
        .flat_map(|row| {
            let (cell, _) = row.split_once(" |").expect("a row has cells");
            cell.split(", ").map(|code| format!("V{}", code.trim_start_matches('V'))).collect::<Vec<_>>()
        })
        .collect();
    codes.sort();
    codes
}

/// A text and the answer about it.
fn answer(kind: &str, arguments: &str, text: &str) -> Vec<Diagnostic> {
    if kind == "plan" {
        let plan = parse_kernel_plan(text).unwrap_or_else(|d| panic!("{d:#?}\n{text}"));
        return verify::kernel_plan(plan).err().unwrap_or_default();
    }
    let ranks = arguments.trim().strip_prefix("ranks=").map(|n| n.parse().expect("a number"));
    let schedule = match (parse(text).unwrap_or_else(|d| panic!("{d:#?}\n{text}")), ranks) {
        (File::Schedule(schedule), None) => schedule,
        (File::Program(program), Some(ranks)) => {
            expand(&program, &Arguments::ranks(ranks)).unwrap_or_else(|d| panic!("{d:#?}\n{text}"))
        }
        _ => panic!("`ranks=` is for programs, and they need it:\n{text}"),
    };
    verify::schedule(schedule).err().unwrap_or_default()
}

/// Diagnostics as pages show them.
fn shown(text: &str, found: &[Diagnostic]) -> String {
    let mut out = String::new();
    for diagnostic in found {
        out += &format!("{diagnostic}\n");
        for label in &diagnostic.labels {
            if label.span != Default::default() {
                let line = line_column(text, label.span.start).0;
                let source = text.lines().nth(line - 1).unwrap_or_default().trim();
                out += &format!("  {source}\n    {}\n", label.message);
            }
        }
        for note in &diagnostic.notes {
            out += &format!("  note: {note}\n");
        }
        if let Some(help) = &diagnostic.help {
            out += &format!("  help: {help}\n");
        }
    }
    out
}

/// A fenced block: its kind, the rest of that line, its text, and where the text lies in the page.
struct Block<'a> {
    kind: &'a str,
    arguments: &'a str,
    text: &'a str,
    range: std::ops::Range<usize>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut from = 0;
    while let Some(open) = page[from..].find("```") {
        let info_at = from + open + 3;
        let text_at = info_at + page[info_at..].find('\n').expect("a block has lines") + 1;
        let end = text_at + page[text_at..].find("```").expect("a block is closed");
        let info = page[info_at..text_at].trim();
        let (kind, arguments) = info.split_once(' ').unwrap_or((info, ""));
        blocks.push(Block { kind, arguments, text: &page[text_at..end], range: text_at..end });
        from = end + 3;
    }
    blocks
}

fn check(code: &str, bless: bool) -> Result<(), String> {
    let path = docs().join(format!("diagnostics/{code}.md"));
    let page = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    if !page.starts_with(&format!("# {code}: ")) {
        return Err("the page has another title".to_owned());
    }
    let blocks = blocks(&page);
    if WITHOUT_TEXT.contains(&code) {
        return if blocks.is_empty() { Ok(()) } else { Err("no text earns this".to_owned()) };
    }
    let [wrong, said, .., right] = &blocks[..] else {
        return Err("a wrong text, an answer, a right text".into());
    };
    let found = answer(wrong.kind, wrong.arguments, wrong.text);
    if found.is_empty() || found.iter().any(|d| d.code.0 != code) {
        return Err(format!("the first text earns {}", shown(wrong.text, &found)));
    }
    let answer_now = shown(wrong.text, &found);
    if said.text != answer_now {
        if !bless {
            return Err(format!("the verifier says otherwise:\n{answer_now}"));
        }
        let mut page = page.clone();
        page.replace_range(said.range.clone(), &answer_now);
        std::fs::write(&path, page).map_err(|e| e.to_string())?;
    }
    let rest = answer(right.kind, right.arguments, right.text);
    if rest.is_empty() { Ok(()) } else { Err(format!("the last text earns {}", shown(right.text, &rest))) }
}

#[test]
fn every_page_is_true() {
    let bless = std::env::var_os("BLESS").is_some_and(|value| value == "1");
    let index = std::fs::read_to_string(docs().join("diagnostics/README.md")).expect("the index");
    let codes = codes();
    assert!(codes.len() > 30, "{codes:?}");
    let mut broken = Vec::new();
    for code in &codes {
        if let Err(reason) = check(code, bless) {
            broken.push(format!("{code}: {reason}"));
        }
        if !index.contains(&format!("[{code}]({code}.md)")) {
            broken.push(format!("{code}: not in docs/diagnostics/README.md"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
