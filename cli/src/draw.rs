//! Diagnostics as people read them: the lines at fault, underlined, with codespan-reporting.
//!
//! The only place that draws. What is drawn comes from files that anybody may have written: spans
//! are held against the text, and what a terminal would obey is made visible first.

use crate::output::harmless;
use codespan_reporting::diagnostic::{Diagnostic as Drawn, Label};
use codespan_reporting::files::SimpleFile;
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
    let file = SimpleFile::new(harmless(source.name), &*text);
    for diagnostic in diagnostics {
        let labels = diagnostic.labels.iter().enumerate().map(|(index, label)| {
            let range = within(label.span, &text);
            let label_of = if index == 0 { Label::primary } else { Label::secondary };
            label_of((), range).with_message(harmless(&label.message))
        });
        emit(&file, &head(diagnostic).with_labels(labels.collect()).with_notes(notes(diagnostic)));
    }
}

/// Draws mistakes of something that no text says, such as a kernel plan: places are named by the
/// messages alone.
pub(crate) fn mistakes_without_text(name: &str, diagnostics: &[Diagnostic]) {
    let file = SimpleFile::new(harmless(name), "");
    for diagnostic in diagnostics {
        let labels = diagnostic.labels.iter().filter(|label| !label.message.is_empty());
        let places = labels.map(|label| harmless(&label.message).into_owned());
        let all: Vec<String> = places.chain(notes(diagnostic)).collect();
        emit(&file, &head(diagnostic).with_notes(all));
    }
}

fn head(diagnostic: &Diagnostic) -> Drawn<()> {
    Drawn::error().with_code(diagnostic.code.0).with_message(harmless(&diagnostic.message))
}

fn notes(diagnostic: &Diagnostic) -> Vec<String> {
    let help = diagnostic.help.iter().map(|help| format!("help: {}", harmless(help)));
    diagnostic.notes.iter().map(|note| harmless(note).into_owned()).chain(help).collect()
}

/// The part of a span that lies in the text, widened to whole characters.
fn within(span: Span, text: &str) -> Range<usize> {
    let start = text.floor_char_boundary((span.start as usize).min(text.len()));
    let end = text.ceil_char_boundary((span.end as usize).clamp(start, text.len()));
    start..end
}

fn emit(file: &SimpleFile<impl std::fmt::Display + Clone, &str>, drawn: &Drawn<()>) {
    // `Auto` looks at TERM and NO_COLOR; whether this is a terminal is for the caller to see.
    let choice = if io::stderr().is_terminal() { ColorChoice::Auto } else { ColorChoice::Never };
    let mut stream = StandardStream::stderr(choice);
    // A closed standard error takes nothing from the exit status.
    let _ = term::emit_to_write_style(&mut stream, &Config::default(), file, drawn);
}
