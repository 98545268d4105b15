//! The files of the tree: everything but what is built, hidden or ignored.

use std::path::{Path, PathBuf};

/// A file: its path from the root of the tree, with `/`, and its text.
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The root of the tree.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file with one of the endings, ordered by path.
pub(crate) fn with_endings(endings: &[&str]) -> Vec<TextFile> {
    let read = |path: String| {
        let text =
            std::fs::read_to_string(root().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        TextFile { path, text }
    };
    let wanted = |path: &String| path.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(&ending));
    all().into_iter().filter(wanted).map(read).collect()
}

/// The path of every file, ordered.
pub(crate) fn all() -> Vec<String> {
    let mut files = Vec::new();
    walk(root(), &mut files);
    let mut paths: Vec<String> = files
        .iter()
        .map(|path| path.strip_prefix(root()).expect("found below the root").to_string_lossy().into_owned())
        .collect();
    paths.sort();
    paths
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry of a folder that was just opened").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hidden = name.starts_with('.') && !matches!(name.as_str(), ".ci" | ".cargo");
        // Cargo marks its folders of built things; what others keep beside the sources is not ours.
        if hidden || name == "target" || path.join("CACHEDIR.TAG").exists() {
            continue;
        }
        if path.is_dir() {
            walk(&path, files);
        } else {
            files.push(path);
        }
    }
}
