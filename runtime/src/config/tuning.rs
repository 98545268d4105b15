//! Files of tuning: what `ringsmith tune` writes and the planner reads.

use ringsmith_compiler::plan::Tuning;
use std::fs::File;
use std::io::Read;

/// The most bytes that such a file may have. Ours: several times what `tune` writes.
const MAX_BYTES: u64 = 8 << 20;

/// Reads a file.
///
/// Errors: what is wrong with it, as the end of a sentence.
pub fn read(path: &str) -> Result<Tuning, String> {
    let failed = |error: std::io::Error| format!("cannot read it: {error}");
    let kind = std::fs::metadata(path).map_err(failed)?;
    if !kind.is_file() {
        return Err("expected a file that `ringsmith tune` wrote, and it is no ordinary file".into());
    }
    let mut text = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("it is larger than {MAX_BYTES} bytes, the most that a file of tuning may have"));
    }
    serde_json::from_slice(&text)
        .map_err(|error| format!("it is no file that this version's `ringsmith tune` wrote: {error}"))
}

/// A tuning as [`read`] takes it: JSON, a measured call a line.
pub fn text(tuning: &Tuning) -> String {
    let json = serde_json::to_string(tuning).expect("numbers and names");
    let lines =
        json.replace("{\"collective\"", "\n{\"collective\"").replace(",\"measured\"", ",\n\"measured\"");
    format!("{lines}\n")
}
