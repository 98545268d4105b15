//! What is printed: results on standard output, remarks on standard error, nothing of a terminal's
//! language from a file that somebody else wrote.

use crate::outcome::{Failure, Result};
use ringsmith_runtime::shown::turns;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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
    let _ = writeln!(io::stderr().lock(), "{}", harmless(&text.to_string()));
}

/// A line on a terminal that says what takes so long and for how long it has, and vanishes when it is
/// over. Prints nothing elsewhere.
pub(crate) struct Progress {
    on_terminal: bool,
    /// Whoever holds it may write the line.
    shown: Arc<Mutex<Option<Shown>>>,
    /// Rewrites the line as time passes; ends when it is dropped.
    clock: Option<Sender<()>>,
}

/// What a line of progress says.
struct Shown {
    text: String,
    since: Instant,
}

impl Shown {
    fn draw(&self) {
        let seconds = self.since.elapsed().as_secs();
        let time = if seconds == 0 { String::new() } else { format!(" ({seconds} s)") };
        let _ = write!(io::stderr().lock(), "\r\x1b[K{}{time}", self.text);
    }
}

impl Progress {
    /// Shows nothing yet.
    pub(crate) fn new() -> Self {
        Self { on_terminal: io::stderr().is_terminal(), shown: Arc::default(), clock: None }
    }

    /// Replaces the line.
    pub(crate) fn show(&mut self, text: impl fmt::Display) {
        if !self.on_terminal {
            return;
        }
        let text = harmless(&text.to_string()).into_owned();
        let mut shown = lock(&self.shown);
        let since = shown.as_ref().map_or_else(Instant::now, |shown| shown.since);
        shown.insert(Shown { text, since }).draw();
        drop(shown);
        self.clock.get_or_insert_with(|| tick(self.shown.clone()));
    }

    /// Takes the line away, so that other text can be printed.
    pub(crate) fn clear(&mut self) {
        if lock(&self.shown).take().is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn lock(shown: &Mutex<Option<Shown>>) -> MutexGuard<'_, Option<Shown>> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws the line anew each second, until the sender is dropped.
fn tick(shown: Arc<Mutex<Option<Shown>>>) -> Sender<()> {
    let (sender, dropped) = mpsc::channel();
    let redraw = move || {
        while dropped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            if let Some(shown) = &*lock(&shown) {
                shown.draw();
            }
        }
    };
    // Where no thread can be had, the line stays as it is.
    let _ = thread::Builder::new().name("progress".to_owned()).spawn(redraw);
    sender
}

/// The text, or its beginning and its end where it is longer than a few lines of a terminal: what it
/// quotes may be of any length.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    /// Ours: an error of the verifier at its longest.
    const MOST: usize = 1000;
    const END: usize = 200;
    if text.len() <= MOST {
        return Cow::Borrowed(text);
    }
    let start = &text[..text.floor_char_boundary(MOST - END)];
    let end = &text[text.ceil_char_boundary(text.len() - END)..];
    Cow::Owned(format!("{start} … {end}"))
}

/// The text with characters that a terminal would obey replaced by visible ones of the same length
/// in UTF-8, so that byte offsets stay what they were. Line ends and tabs stay.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| (c.is_control() && c != '\n' && c != '\t') || turns(c);
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

    #[test]
    fn long_texts_keep_both_ends() {
        assert!(matches!(shortened("short"), Cow::Borrowed("short")));
        let long = format!("a{}z", "\u{e9}".repeat(1 << 20));
        let shown = shortened(&long);
        assert!(shown.starts_with('a') && shown.ends_with('z') && shown.contains('…'));
        assert!(shown.len() < 1020, "{}", shown.len());
    }
}
