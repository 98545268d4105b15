//! Files that a user names: read whole, within a bound, as UTF-8, and told apart by their first word.
//!
//! What is read is hostile until parsed. A file that cannot be read is an error; a text that is
//! wrong is a list of diagnostics, which the command draws.

use crate::draw::{self, Source};
use crate::outcome::{Failure, Result};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::text::{MAX_PROGRAM_BYTES, MAX_SOURCE_BYTES};
use ringsmith_runtime::shown::escaped;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What a file is called in a sentence: on one line, whatever its name.
pub(crate) fn name_of(path: &Path) -> String {
    escaped(&path.to_string_lossy()).into_owned()
}

/// A file's text and the name it was given by.
#[derive(Debug)]
pub(crate) struct Input {
    /// Where it was read from; none for standard input.
    pub(crate) path: Option<PathBuf>,
    /// What to call it.
    pub(crate) name: String,
    /// What it says.
    pub(crate) text: String,
}

impl Input {
    /// Reads a file, or standard input for `-`.
    ///
    /// Errors: what cannot be read, is larger than any text may be, or is no UTF-8.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            let text = text("standard input", io::stdin().lock())?;
            return Ok(Self { path: None, name: "standard input".to_owned(), text });
        }
        let name = name_of(path);
        let failed = |e: io::Error| Failure::unusable(format_args!("cannot read {name}: {e}"));
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(Failure::unusable(format_args!("cannot read {name}: it is a folder")));
        }
        let text = text(&name, file)?;
        Ok(Self { path: Some(path.to_owned()), name, text })
    }

    /// The text with its name, for drawing.
    pub(crate) fn source(&self) -> Source<'_> {
        Source { name: &self.name, text: &self.text }
    }

    /// Draws mistakes of this text.
    pub(crate) fn draw(&self, diagnostics: &[Diagnostic]) {
        draw::mistakes(self.source(), diagnostics);
    }
}

/// The first word of a text, after blank lines and comments.
pub(crate) fn first_word(text: &str) -> Option<&str> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("//"))?;
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
}

/// Whether a text begins as a schedule or kernel plan does.
fn is_flat(beginning: &[u8]) -> bool {
    /// Ours: room for a licence above the first word.
    const LOOKED_AT_BYTES: usize = 64 << 10;
    let text = String::from_utf8_lossy(&beginning[..beginning.len().min(LOOKED_AT_BYTES)]);
    matches!(first_word(&text), Some("schedule" | "kernel_plan"))
}

fn text(name: &str, mut reader: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    let failed = |e| Failure::unusable(format_args!("cannot read {name}: {e}"));
    // Reads on up to a bound. True if there is more.
    let mut goes_beyond = |bytes: &mut Vec<u8>, bound: usize| {
        let left = (bound + 1 - bytes.len()) as u64;
        reader.by_ref().take(left).read_to_end(bytes).map(|_| bytes.len() > bound).map_err(failed)
    };
    if goes_beyond(&mut bytes, MAX_PROGRAM_BYTES)? {
        // Only what an expansion has printed may be longer.
        let flat = is_flat(&bytes);
        let (bound, what) =
            if flat { (MAX_SOURCE_BYTES, "schedule") } else { (MAX_PROGRAM_BYTES, "program") };
        if !flat || goes_beyond(&mut bytes, bound)? {
            return Err(Failure::unusable(format_args!(
                "{name} is larger than {bound} bytes, the most that a {what} may have"
            )));
        }
    }
    String::from_utf8(bytes).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        let line = e.as_bytes()[..valid].iter().filter(|&&b| b == b'\n').count() + 1;
        Failure::unusable(format_args!(
            "{name} is not UTF-8 text: byte {valid}, on line {line}, is part of no character"
        ))
    })
}
