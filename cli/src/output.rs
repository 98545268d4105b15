//! What is printed: results on standard output, remarks on standard error, nothing of a terminal's
//! language from a file that somebody else wrote.

use crate::outcome::{Failure, Result};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Standard output, buffered. Every failure to write is an error, never a panic.
pub(crate) struct Output {
    writer: BufWriter<StdoutLock<'static>>,
}

impl Output {
    /// Takes standard output until dropped.
    pub(crate) fn new() -> Self {
        Self { writer: BufWriter::new(io::stdout().lock()) }
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<()> {
        writeln!(self.writer, "{text}").map_err(|e| Failure::output(&e))
    }

    /// Writes a text as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).map_err(|e| Failure::output(&e))
    }

    /// Writes one JSON object on a line of its own.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(value).expect("rows are plain data with string keys");
        self.line(line)
    }

    /// Hands everything over, so that a reader sees it now.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.writer.flush().map_err(|e| Failure::output(&e))
    }
}

/// Says something on standard error. Where nobody listens, nothing is lost that a result depends on.
pub(crate) fn remark(text: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A line on a terminal that says how far long work has come, and vanishes when it is over. Prints
/// nothing elsewhere.
pub(crate) struct Progress {
    shown: bool,
    on_terminal: bool,
}

impl Progress {
    /// Shows nothing yet.
    pub(crate) fn new() -> Self {
        Self { shown: false, on_terminal: io::stderr().is_terminal() }
    }

    /// Replaces the line.
    pub(crate) fn show(&mut self, text: impl fmt::Display) {
        if self.on_terminal {
            let _ = write!(io::stderr().lock(), "\r\x1b[K{text}");
            self.shown = true;
        }
    }

    /// Takes the line away, so that other text can be printed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The text with characters that a terminal would obey replaced by visible ones of the same length
/// in UTF-8, so that byte offsets stay what they were. Line ends and tabs stay.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| {
        let direction =
            matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (c.is_control() && c != '\n' && c != '\t') || direction
    };
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let replacement = |c: char| match c.len_utf8() {
        1 => '?',
        2 => '\u{bf}',
        _ => '\u{fffd}',
    };
    Cow::Owned(text.chars().map(|c| if obeyed(c) { replacement(c) } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_visible_and_offsets_stay() {
        let text = "a\x1b[31mb\u{9b}c\u{202e}d\te\n";
        let shown = harmless(text);
        assert_eq!(shown, "a?[31mb\u{bf}c\u{fffd}d\te\n");
        assert_eq!(shown.len(), text.len());
        assert!(matches!(harmless("caf\u{e9}"), Cow::Borrowed(_)));
    }
}
