//! Printed results that lie beside their case.

use std::path::Path;

/// Endings of printed results: one for each action that prints.
pub(crate) const ENDINGS: [&str; 3] = ["fmt", "expand", "lower"];

/// Compares a result with the file beside the case, or rewrites that file.
///
/// Errors: the first line that differs, or the file that is missing.
pub(crate) fn compare(case: &Path, ending: &str, found: &str, bless: bool) -> Result<(), String> {
    let path = case.with_extension(ending);
    let name = path.file_name().expect("a case has a name").to_string_lossy().into_owned();
    if bless {
        return std::fs::write(&path, found).map_err(|error| format!("{name}: {error}"));
    }
    let expected = std::fs::read_to_string(&path)
        .map_err(|error| format!("{name}: {error}; `cargo xtask bless` writes it"))?;
    if expected == found {
        return Ok(());
    }
    let differ = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
    let line = differ.unwrap_or_else(|| expected.lines().count().min(found.lines().count()));
    let at = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_owned();
    Err(format!(
        "{name}:{}: differs\nexpected: {}\nfound:    {}\n\n`cargo xtask bless` rewrites it",
        line + 1,
        at(&expected),
        at(found)
    ))
}
