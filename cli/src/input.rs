//! Files that a user names: read whole, within a bound, as UTF-8, and told apart by their first word.
//!
//! A pipe will do, as of process substitution; one that nobody writes to is refused after a moment.
//!
//! What is read is hostile until parsed. A file that cannot be read is an error; a text that is
//! wrong is a list of diagnostics, which the command draws.

use crate::draw::{self, Source};
use crate::outcome::{Failure, Result};
use crate::output::remark;
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::text::{MAX_PROGRAM_BYTES, MAX_SOURCE_BYTES};
use ringsmith_runtime::shown::escaped;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Whether standard input has been read: there is nothing left in it.
static STDIN_READ: AtomicBool = AtomicBool::new(false);

/// What a file is called in a sentence: on one line, whatever its name.
pub(crate) fn name_of(path: &Path) -> String {
    escaped(&path.to_string_lossy()).into_owned()
}

/// A file's text and the name it was given by.
#[derive(Debug)]
pub(crate) struct Input {
    /// The file that it was read from; none for standard input and other pipes.
    pub(crate) path: Option<PathBuf>,
    /// What to call it.
    pub(crate) name: String,
    /// What it says.
    pub(crate) text: String,
}

impl Input {
    /// Reads a program, schedule or kernel plan from a file, or from standard input for `-`.
    ///
    /// Errors: as [`Input::read_as`].
    pub(crate) fn read(path: &Path) -> Result<Self> {
        Self::read_as(path, "a program")
    }

    /// Reads a text, which messages call `what` where it is too large, or standard input for `-`.
    ///
    /// Errors: what cannot be read, is larger than any text may be, or is no UTF-8.
    pub(crate) fn read_as(path: &Path, what: &str) -> Result<Self> {
        if path == Path::new("-") {
            if STDIN_READ.swap(true, Ordering::Relaxed) {
                return Err(Failure::unusable("`-` is given twice: standard input can be read once"));
            }
            let text = text("standard input", io::stdin().lock(), what)?;
            return Ok(Self { path: None, name: "standard input".to_owned(), text });
        }
        let name = name_of(path);
        let failed = |e: io::Error| Failure::unusable(format_args!("cannot read {name}: {e}"));
        // Opening a pipe as one opens a file waits for a writer, for ever if there is none.
        let nonblocking = OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(Failure::unusable(format_args!("cannot read {name}: it is a folder")));
        }
        let mut first = Vec::new();
        if metadata.file_type().is_fifo() {
            first = first_of_pipe(&file, &name).map_err(failed)?;
        }
        let blocking = fcntl_getfl(&file).map(|flags| flags.difference(OFlags::NONBLOCK));
        blocking.and_then(|flags| fcntl_setfl(&file, flags)).map_err(|e| failed(e.into()))?;
        let text = text(&name, first.as_slice().chain(file), what)?;
        Ok(Self { path: metadata.is_file().then(|| path.to_owned()), name, text })
    }

    /// The text that the first process of a run has read from `--schedule` and passed on.
    pub(crate) fn passed_on(path: &Path, text: String) -> Self {
        let name = if path == Path::new("-") { "standard input".to_owned() } else { name_of(path) };
        Self { path: None, name, text }
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

/// The first bytes of a pipe, which is read without waiting so far: what writes to it may be slow, and says so
/// by holding it open.
///
/// Errors: nobody has written to it.
fn first_of_pipe(mut pipe: &File, name: &str) -> io::Result<Vec<u8>> {
    /// Ours: whoever shall write has been started, and needs no longer to open it.
    const PATIENCE: Duration = Duration::from_secs(2);
    const LOOK_EVERY: Duration = Duration::from_millis(10);
    let since = Instant::now();
    let mut told = false;
    let mut bytes = vec![0; 4096];
    loop {
        match pipe.read(&mut bytes) {
            Ok(0) if since.elapsed() >= PATIENCE => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "it is a pipe that nobody writes to",
                ));
            }
            Ok(0) => (),
            Ok(len) => {
                bytes.truncate(len);
                return Ok(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if since.elapsed() >= PATIENCE && !std::mem::replace(&mut told, true) {
                    remark(format_args!("{name}: waiting for whoever writes to this pipe"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
        thread::sleep(LOOK_EVERY);
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

fn text(name: &str, mut reader: impl Read, what: &str) -> Result<String> {
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
            if flat { (MAX_SOURCE_BYTES, "a schedule or kernel plan") } else { (MAX_PROGRAM_BYTES, what) };
        if !flat || goes_beyond(&mut bytes, bound)? {
            return Err(Failure::unusable(format_args!(
                "{name} is larger than {bound} bytes, the most that {what} may have"
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
