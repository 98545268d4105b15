//! The docs against the sources: settings, diagnostic codes, and the index.

use crate::files;
use crate::report;
use crate::sources::is_beside_the_product;
use crate::tokens;
use std::collections::{BTreeMap, BTreeSet};

/// What names of environment variables begin with, ours and those that we read.
const PREFIXES: [&str; 6] = ["RINGSMITH_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_"];

/// Words of string literals outside tests that satisfy `wanted`, with the first place of each.
fn words_of_strings(wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let mut words = BTreeMap::new();
    for file in files::with_endings(&["rs"]) {
        if is_beside_the_product(&file.path) {
            continue;
        }
        for token in
            tokens::read(&file.path, &file.text).iter().filter(|t| t.text.contains('"') && !t.in_test)
        {
            let parts = token.text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            for word in parts.filter(|word| wanted(word)) {
                words.entry(word.to_owned()).or_insert_with(|| format!("{}:{}", file.path, token.line));
            }
        }
    }
    words
}

fn doc(path: &str) -> String {
    std::fs::read_to_string(files::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_variable_is_documented() {
    let documented: BTreeSet<String> = ["docs/settings.md", "docs/launchers.md"]
        .iter()
        .flat_map(|path| {
            doc(path)
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    // A prefix alone names no variable.
    let is_variable =
        |word: &str| !word.ends_with('_') && PREFIXES.iter().any(|prefix| word.starts_with(prefix));
    let broken: Vec<String> = words_of_strings(is_variable)
        .into_iter()
        .filter(|(name, _)| !documented.contains(name))
        .map(|(name, place)| format!("{place}: {name}"))
        .collect();
    report("every environment variable of the code is in docs/settings.md or docs/launchers.md", &broken);
}

/// Diagnostic codes of the code, with the first place of each.
fn codes() -> BTreeMap<String, String> {
    words_of_strings(|word| {
        let mut chars = word.chars();
        word.len() == 5
            && chars.next().is_some_and(|first| matches!(first, 'E' | 'P' | 'T' | 'V'))
            && chars.all(|c| c.is_ascii_digit())
    })
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let codes = codes();
    let pages: BTreeSet<String> = files::all()
        .iter()
        .filter_map(|path| path.strip_prefix("docs/diagnostics/")?.strip_suffix(".md"))
        .filter(|name| *name != "README")
        .map(str::to_owned)
        .collect();
    let without = codes
        .iter()
        .filter(|(code, _)| !pages.contains(*code))
        .map(|(code, place)| format!("{place}: {code} has no page"));
    let stale = pages
        .iter()
        .filter(|page| !codes.contains_key(*page))
        .map(|page| format!("docs/diagnostics/{page}.md: no such code"));
    let index = doc("docs/diagnostics/README.md");
    let unlisted = pages
        .iter()
        .filter(|page| !index.contains(&format!("({page}.md)")))
        .map(|page| format!("docs/diagnostics/README.md: {page} is missing"));
    let broken: Vec<String> = without.chain(stale).chain(unlisted).collect();
    report("docs/diagnostics has one page per code, and its README lists them", &broken);
}

#[test]
fn every_code_is_earned_by_a_test() {
    let mut earned = String::new();
    for file in
        files::with_endings(&["sched", "plan", "rs"]).iter().filter(|file| is_beside_the_product(&file.path))
    {
        earned.push_str(&file.text);
    }
    let broken: Vec<String> = codes()
        .into_iter()
        .filter(|(code, _)| !earned.contains(code.as_str()))
        .map(|(code, place)| format!("{place}: {code}"))
        .collect();
    report("every diagnostic is earned by some test or example", &broken);
}

#[test]
fn the_index_names_every_page() {
    let index = doc("docs/README.md");
    let broken: Vec<String> = files::all()
        .into_iter()
        .filter_map(|path| Some(path.strip_prefix("docs/")?.to_owned()))
        .filter(|page| {
            page.ends_with(".md")
                && page != "README.md"
                && (!page.contains('/') || page.ends_with("/README.md"))
        })
        .filter(|page| !index.contains(&format!("({page})")))
        .collect();
    report("docs/README.md links to every page of docs/", &broken);
}
