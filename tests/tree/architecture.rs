//! ARCHITECTURE.md against the tree: every folder, what it imports, and where `unsafe` may stand.
//!
//! The table of ARCHITECTURE.md has one row per folder: its path, what it imports, and what it holds.
//! For the folder of a crate, imports are the crates of this workspace that it depends on; for a
//! folder of modules, the modules of its crate that it names with `crate::`. A path that ends with
//! `/…` speaks for everything below.

use crate::files;
use crate::report;
use crate::sources::{UNSAFE_FOLDERS, is_beside_the_product};
use crate::tokens::{self, Token};
use std::collections::{BTreeMap, BTreeSet};

struct Row {
    folder: String,
    imports: BTreeSet<String>,
    holds: String,
}

/// The rows of the table of folders.
fn rows() -> Vec<Row> {
    let text =
        std::fs::read_to_string(files::root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    text.lines()
        .skip_while(|line| !line.starts_with("| folder |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').splitn(3, '|').collect();
            let [folder, imports, holds] = cells[..] else { panic!("a row without three cells: {line}") };
            let folder =
                words(folder).into_iter().next().unwrap_or_else(|| panic!("a row without a folder: {line}"));
            Row { folder, imports: words(imports).into_iter().collect(), holds: holds.to_owned() }
        })
        .collect()
}

/// Every folder that holds a file of its own, but the root.
fn folders() -> BTreeSet<String> {
    files::all().iter().filter_map(|path| Some(path.rsplit_once('/')?.0.to_owned())).collect()
}

/// Whether a row speaks for a folder.
fn covers(row: &str, folder: &str) -> bool {
    match row.strip_suffix("/…") {
        Some(above) => {
            folder == above || folder.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
        }
        None => row == folder,
    }
}

#[test]
fn every_folder_has_a_row() {
    let (rows, folders) = (rows(), folders());
    let mut broken = Vec::new();
    for folder in &folders {
        match rows.iter().filter(|row| covers(&row.folder, folder)).count() {
            0 => broken.push(format!("{folder}: has no row in ARCHITECTURE.md")),
            1 => {}
            n => broken.push(format!("{folder}: {n} rows of ARCHITECTURE.md speak for it")),
        }
    }
    for row in rows.iter().filter(|row| !folders.iter().any(|folder| covers(&row.folder, folder))) {
        broken.push(format!("{}: a row of ARCHITECTURE.md for a folder that is not there", row.folder));
    }
    report("ARCHITECTURE.md names every folder once", &broken);
}

#[test]
fn crates_import_what_the_table_says() {
    let mut broken = Vec::new();
    let rows = rows();
    for package in crate::dependencies::our_packages() {
        let Some(row) = rows.iter().find(|row| row.folder == package.folder) else {
            if !package.folder.is_empty() {
                broken.push(format!("{}: a crate without a row", package.folder));
            }
            continue;
        };
        compare(row, &package.imports, &mut broken);
    }
    report("crates depend on those of our crates that ARCHITECTURE.md lists", &broken);
}

#[test]
fn modules_import_what_the_table_says() {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files::with_endings(&["rs"]) {
        let (folder, _) = file.path.rsplit_once('/').unwrap_or_default();
        // The module that the folder is, and none for the root of a crate.
        let Some((_, inside)) = folder.split_once("/src/") else { continue };
        let own = inside.split('/').next().unwrap_or_default();
        if is_beside_the_product(&file.path) {
            continue;
        }
        let named = crate_paths(&tokens::read(&file.path, &file.text)).into_iter().filter(|name| name != own);
        used.entry(folder.to_owned()).or_default().extend(named);
    }
    let mut broken = Vec::new();
    for row in rows().iter().filter(|row| row.folder.contains("/src/")) {
        let mut found = BTreeSet::new();
        for (_, names) in used.iter().filter(|(folder, _)| covers(&row.folder, folder)) {
            found.extend(names.iter().cloned());
        }
        compare(row, &found, &mut broken);
    }
    report("modules use those modules of their crate that ARCHITECTURE.md lists", &broken);
}

fn compare(row: &Row, found: &BTreeSet<String>, broken: &mut Vec<String>) {
    broken.extend(
        found.difference(&row.imports).map(|name| format!("{}: imports `{name}`, not listed", row.folder)),
    );
    broken.extend(
        row.imports.difference(found).map(|name| format!("{}: lists `{name}`, not imported", row.folder)),
    );
}

/// The modules that follow `crate::` outside tests: `crate::a`, `crate::{a, b::c}`.
fn crate_paths(tokens: &[Token]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for start in 0..tokens.len().saturating_sub(3) {
        let [crate_, colon, colon2, first] = &tokens[start..start + 4] else { break };
        if crate_.text != "crate" || colon.text != ":" || colon2.text != ":" || crate_.in_test {
            continue;
        }
        if first.text != "{" {
            names.insert(first.text.clone());
            continue;
        }
        let (mut depth, mut at_start) = (0, true);
        for token in &tokens[start + 3..] {
            match token.text.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                "," => at_start |= depth == 1,
                name if at_start && depth == 1 => {
                    names.insert(name.to_owned());
                    at_start = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    // Items of the crate's root: macros and constants are no modules.
    names.retain(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    names
}

#[test]
fn the_table_says_where_unsafe_code_is() {
    let mut broken = Vec::new();
    for row in rows() {
        let allowed = UNSAFE_FOLDERS.iter().any(|folder| format!("{}/", row.folder).starts_with(folder));
        if row.holds.contains("`unsafe`") != allowed {
            let verb = if allowed { "does not say" } else { "says" };
            broken.push(format!("{}: ARCHITECTURE.md {verb} that it has `unsafe`", row.folder));
        }
    }
    report("ARCHITECTURE.md and the rule about `unsafe` agree", &broken);
}

#[test]
fn paths_inside_groups_are_found() {
    let source = "use crate::{a, b::{c, d}, e as f};\nfn g() { crate::h::i(); }\n#[cfg(test)]\nmod t { use crate::k; }";
    let found = crate_paths(&tokens::read("source", source));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a", "b", "e", "h"]);
}
