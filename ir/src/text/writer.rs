//! Lines of canonical text: indentation, empty lines, and comments at line ends in one column.

use crate::program::TriviaLine;

/// Puts lines together.
#[derive(Default)]
pub(crate) struct Writer {
    text: String,
    depth: usize,
    /// Lines whose comments share a column: those of one block that follow each other without a line
    /// between.
    commented: Vec<(String, String)>,
    /// Whether an empty line is due before the next one.
    blank: bool,
    /// Whether the next line is the first of the text or of a block.
    opening: bool,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { opening: true, ..Self::default() }
    }

    /// One line.
    pub(crate) fn line(&mut self, text: &str, comment: Option<&str>) {
        if std::mem::take(&mut self.blank) {
            self.flush();
            self.text.push('\n');
        }
        self.opening = false;
        let indent = 2 * self.depth;
        if let Some(comment) = comment {
            self.commented.push((format!("{:indent$}{text}", ""), comment.to_owned()));
            return;
        }
        self.flush();
        self.text.extend(std::iter::repeat_n(' ', indent));
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// A line that opens a block: `text {`.
    pub(crate) fn open(&mut self, text: &str, comment: Option<&str>) {
        self.flush();
        self.line(&format!("{text} {{"), comment);
        self.flush();
        self.depth += 1;
        self.opening = true;
    }

    /// A line that closes a block, and perhaps opens another: `}` or `} else {`.
    pub(crate) fn close(&mut self, last: &[TriviaLine], next: Option<&str>, comment: Option<&str>) {
        self.before(last);
        self.flush();
        self.blank = false;
        self.depth = self.depth.saturating_sub(1);
        match next {
            Some(next) => self.open(&format!("}} {next}"), comment),
            None => self.line("}", comment),
        }
        self.flush();
    }

    /// An empty line, unless a block has just begun or there is one already.
    pub(crate) fn blank(&mut self) {
        self.blank = !self.opening;
    }

    /// The lines above a line.
    pub(crate) fn before(&mut self, lines: &[TriviaLine]) {
        for line in lines {
            match line {
                TriviaLine::Blank => self.blank(),
                TriviaLine::Comment(comment) => self.line(comment, None),
            }
        }
    }

    fn flush(&mut self) {
        let column = self.commented.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0) + 2;
        for (line, comment) in self.commented.drain(..) {
            self.text.push_str(&format!("{line:column$}{comment}\n"));
        }
    }

    /// The text.
    pub(crate) fn finish(mut self) -> String {
        self.flush();
        self.text
    }
}
