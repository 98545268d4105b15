//! Rules about Markdown: one sentence a line, and links that lead somewhere.

use crate::files::{self, TextFile};
use crate::report;

/// The lines of running text: no code, tables, headings, quotations of other files or empty lines.
fn prose(file: &TextFile) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !trimmed.starts_with(['|', '#', '<', '!']) && !trimmed.is_empty() {
            lines.push((index + 1, line));
        }
    }
    lines
}

/// Code spans blanked, so that their signs end no sentence.
fn without_code(line: &str) -> String {
    line.split('`')
        .enumerate()
        .map(|(i, part)| if i % 2 == 0 { part.to_owned() } else { "x".repeat(part.len()) })
        .collect()
}

/// Whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let after = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ") || line.starts_with("* ") || after.len() < line.len() && after.starts_with(". ")
}

#[test]
fn a_line_holds_one_sentence() {
    let mut broken = Vec::new();
    for file in files::with_endings(&["md"]) {
        let lines = prose(&file);
        for (at, (number, line)) in lines.iter().enumerate() {
            let text = without_code(line);
            let ends_inside = text.match_indices(['.', '?', '!']).any(|(index, _)| {
                let rest = &text[index + 1..];
                let before = &text[..index];
                let numbered = before.trim().chars().all(|c| c.is_ascii_digit());
                let short_form = ["e.g", "i.e", "vs", "etc"].iter().any(|short| before.ends_with(short));
                let next = rest.strip_prefix(' ').and_then(|rest| rest.chars().next());
                !numbered && !short_form && next.is_some_and(|c| c.is_uppercase() || c == '`')
            });
            // An item of a list may hold several: it is one line to the reader.
            if ends_inside && !is_item(line) {
                broken.push(format!("{}:{number}: a second sentence: {line}", file.path));
            }
            let continues = lines.get(at + 1).is_some_and(|(next, text)| {
                let item =
                    text.trim_start().starts_with(['-', '*', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
                *next == number + 1 && !item
            });
            if continues
                && !text.trim_end().trim_end_matches(['*', '_']).ends_with(['.', '?', '!', ':', ')', ';'])
            {
                broken.push(format!("{}:{number}: a broken sentence: {line}", file.path));
            }
        }
    }
    report("Markdown has one sentence a line", &broken);
}

#[test]
fn links_lead_to_files() {
    let mut broken = Vec::new();
    for file in files::with_endings(&["md"]) {
        let folder = files::root().join(&file.path).parent().expect("a file is in a folder").to_owned();
        for (number, line) in prose_and_tables(&file) {
            for target in without_code(line).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = target.split('#').next().unwrap_or_default();
                if !path.is_empty()
                    && !path.contains("://")
                    && !path.starts_with("mailto:")
                    && !folder.join(path).exists()
                {
                    broken.push(format!("{}:{number}: {target}", file.path));
                }
            }
        }
    }
    report("links of Markdown lead to files", &broken);
}

fn prose_and_tables(file: &TextFile) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    file.text.lines().enumerate().filter_map(move |(index, line)| {
        in_code ^= line.trim_start().starts_with("```");
        (!in_code).then_some((index + 1, line))
    })
}
