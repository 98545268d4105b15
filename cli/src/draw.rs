//! Diagnostics as people read them: the lines at fault, underlined, with codespan-reporting.
//!
//! The only place that draws. What is drawn comes from files that anybody may have written: spans
//! are held against the text, what a terminal would obey is made visible first, and of a line of any
//! length only the part around the mistake is shown ([`crate::excerpt`]).

use crate::excerpt::Excerpt;
use crate::output::{harmless, shortened};
use codespan_reporting::diagnostic::{Diagnostic as Drawn, Label};
use codespan_reporting::files::{Files, SimpleFile};
use codespan_reporting::term::termcolor::{ColorChoice, StandardStream};
use codespan_reporting::term::{self, Config};
use ringsmith_ir::diagnostic::{Diagnostic, Span};
use std::io::{self, IsTerminal};
use std::ops::Range;

/// A text and the name to show for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// The file's name.
    pub(crate) name: &'a str,
    /// Its text.
    pub(crate) text: &'a str,
}

/// Draws mistakes of a text on standard error.
pub(crate) fn mistakes(source: Source<'_>, diagnostics: &[Diagnostic]) {
    let text = harmless(source.text);
    let name = harmless(source.name);
    let file = SimpleFile::new(&*name, &*text);
    for diagnostic in diagnostics {
        let mut ranges: Vec<Range<usize>> =
            diagnostic.labels.iter().map(|label| within(label.span, &text)).collect();
        let excerpt = Excerpt::of(&name, &text, &mut ranges);
        let labels = diagnostic.labels.iter().zip(ranges).enumerate().map(|(index, (label, range))| {
            let label_of = if index == 0 { Label::primary } else { Label::secondary };
            label_of((), range).with_message(plain(&label.message))
        });
        let drawn = head(diagnostic).with_labels(labels.collect()).with_notes(notes(diagnostic));
        match &excerpt {
            None => emit(&file, &drawn),
            Some(excerpt) => emit(excerpt, &drawn),
        }
    }
}

/// Draws mistakes of something that no text says, such as a kernel plan: places are named by the
/// messages alone.
pub(crate) fn mistakes_without_text(name: &str, diagnostics: &[Diagnostic]) {
    let file = SimpleFile::new(harmless(name), "");
    for diagnostic in diagnostics {
        let labels = diagnostic.labels.iter().filter(|label| !label.message.is_empty());
        let places = labels.map(|label| plain(&label.message));
        let of = std::iter::once(format!("in {}", plain(name)));
        let all: Vec<String> = of.chain(places).chain(notes(diagnostic)).collect();
        emit(&file, &head(diagnostic).with_notes(all));
    }
}

fn head(diagnostic: &Diagnostic) -> Drawn<()> {
    Drawn::error().with_code(diagnostic.code.0).with_message(plain(&diagnostic.message))
}

fn notes(diagnostic: &Diagnostic) -> Vec<String> {
    let help = diagnostic.help.iter().map(|help| format!("help: {}", plain(help)));
    diagnostic.notes.iter().map(|note| plain(note)).chain(help).collect()
}

/// A sentence that may quote anything.
fn plain(text: &str) -> String {
    harmless(&shortened(text)).into_owned()
}

/// The part of a span that lies in the text, widened to whole characters.
fn within(span: Span, text: &str) -> Range<usize> {
    let start = text.floor_char_boundary((span.start as usize).min(text.len()));
    let end = text.ceil_char_boundary((span.end as usize).clamp(start, text.len()));
    start..end
}

fn emit<'a>(file: &'a impl Files<'a, FileId = ()>, drawn: &Drawn<()>) {
    // `Auto` looks at TERM and NO_COLOR; whether this is a terminal is for the caller to see.
    let choice = if io::stderr().is_terminal() { ColorChoice::Auto } else { ColorChoice::Never };
    let mut stream = StandardStream::stderr(choice);
    // A closed standard error takes nothing from the exit status.
    let _ = term::emit_to_write_style(&mut stream, &Config::default(), file, drawn);
}
