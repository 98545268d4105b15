//! Files that a user names: read whole, within a bound, as UTF-8, and told apart by their first word.
//!
//! What is read is hostile until parsed. A file that cannot be read is an error; a text that is
//! wrong is a list of diagnostics, which the command draws.

use crate::draw::{self, Source};
use crate::outcome::{Failure, Result};
use crate::output::harmless;
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::text::MAX_SOURCE_BYTES;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

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
        let name = harmless(&path.to_string_lossy()).into_owned();
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

fn text(name: &str, reader: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    let bound = MAX_SOURCE_BYTES as u64;
    reader
        .take(bound + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Failure::unusable(format_args!("cannot read {name}: {e}")))?;
    if bytes.len() as u64 > bound {
        return Err(Failure::unusable(format_args!(
            "{name} is larger than {bound} bytes, the most that is read"
        )));
    }
    String::from_utf8(bytes).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        let line = e.as_bytes()[..valid].iter().filter(|&&b| b == b'\n').count() + 1;
        Failure::unusable(format_args!(
            "{name} is not UTF-8 text: byte {valid}, on line {line}, is part of no character"
        ))
    })
}
