//! Diagnostics as data: what is wrong with a text, where, why, and what to do. Drawn only at the
//! edge (the command line, a log).

use crate::entity::OpAddress;
use std::fmt;

/// A range of bytes of the text at hand. The default is the empty range at its start, used for
/// things that no text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The range from `start` to `end`, in bytes.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }
}

/// A stable name for one kind of mistake. Written `V0302`. `docs/diagnostics/` has a page for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub &'static str);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A place that has a part in the mistake, and which part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// Its part, without a full stop.
    pub message: String,
    /// The op of a schedule that stands there, where the text was not at hand: whoever has the
    /// schedule knows the place.
    pub op: Option<OpAddress>,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its kind.
    pub code: Code,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// Where. The first label is the place to mend.
    pub labels: Vec<Label>,
    /// Further facts, one a line.
    pub notes: Vec<String>,
    /// What to do, if there is something to suggest.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A mistake at one place.
    pub fn new(code: Code, message: impl Into<String>, span: Span, label: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            labels: vec![Label { span, message: label.into(), op: None }],
            notes: Vec::new(),
            help: None,
        }
    }

    /// Adds a place.
    #[must_use]
    pub fn label(mut self, span: Span, message: impl Into<String>) -> Self {
        self.labels.push(Label { span, message: message.into(), op: None });
        self
    }

    /// Adds an op of a schedule whose text is not at hand. The first one is the place to mend.
    #[must_use]
    pub fn op(mut self, op: OpAddress, message: impl Into<String>) -> Self {
        let placeless = |label: &Label| label.op.is_none() && label.span == Span::default();
        if self.labels.len() == 1 && self.labels.first().is_some_and(placeless) {
            self.labels.clear();
        }
        self.labels.push(Label { span: Span::default(), message: message.into(), op: Some(op) });
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The place to mend.
    pub fn span(&self) -> Span {
        self.labels.first().map_or_else(Span::default, |l| l.span)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)
    }
}

/// Line and column, both from 1, of a byte offset. Columns count characters.
pub fn line_column(text: &str, offset: u32) -> (usize, usize) {
    let mut offset = (offset as usize).min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    (line, column)
}
