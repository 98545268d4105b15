//! What the readers of every text form share: a cursor over tokens, recovery, comments.
//!
//! A reader that meets something it cannot use reports it, returns [`Failed`], and its caller goes on
//! with the next line, so that one pass finds every mistake.

use super::codes;
use super::lexer::{Comment, Kind, Lexer, Token};
use super::suggest::nearest;
use crate::diagnostic::{Diagnostic, Span};
use crate::program::{Name, Trivia, TriviaLine};

/// How many mistakes are reported before a reader gives up.
pub(crate) const MAX_DIAGNOSTICS: usize = 100;

/// The largest text, in bytes. A position is 32 bits; a schedule with the largest allowed number of
/// ops fits.
pub const MAX_SOURCE_BYTES: usize = 1 << 30;

/// The largest program, in bytes: a tree takes many times the memory of its text.
pub const MAX_PROGRAM_BYTES: usize = 1 << 24;

/// How deeply blocks may be nested. A reader uses the stack for each.
pub(crate) const MAX_BLOCK_DEPTH: u32 = 48;

/// Something was wrong and has been reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed;

/// A value, or a mistake that has been reported.
pub(crate) type Parse<T> = Result<T, Failed>;

/// Words that cannot be names, since an expression may end in front of them.
const RESERVED: [&str; 6] = ["let", "for", "in", "if", "else", "via"];

/// A cursor over the tokens of a text.
pub(crate) struct Parser<'a> {
    pub(crate) source: &'a str,
    lexer: Lexer<'a>,
    /// The token at hand, not yet consumed.
    pub(crate) token: Token,
    /// Where the last consumed token ended.
    pub(crate) end: u32,
    /// Comments in front of the token at hand that no line has claimed yet.
    comments: Vec<Comment>,
    /// Comments from inside a line that opened a block; they go above the block's first line.
    pulled: Vec<TriviaLine>,
    /// What is wrong so far.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl<'a> Parser<'a> {
    /// A cursor at the start of `source`.
    pub(crate) fn new(source: &'a str) -> Result<Self, Vec<Diagnostic>> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(vec![too_large(source.len(), MAX_SOURCE_BYTES)]);
        }
        let mut lexer = Lexer::new(source);
        let (mut comments, mut diagnostics) = (Vec::new(), Vec::new());
        let token = lexer.next(&mut comments, &mut diagnostics);
        Ok(Self { source, lexer, token, end: 0, comments, pulled: Vec::new(), diagnostics })
    }

    /// Consumes the token at hand.
    pub(crate) fn advance(&mut self) -> Token {
        let token = self.token;
        self.end = token.span.end;
        self.token = self.lexer.next(&mut self.comments, &mut self.diagnostics);
        if self.at_limit() {
            self.give_up();
        }
        token
    }

    /// Stops reading: what follows is taken for the end of the text.
    fn give_up(&mut self) {
        self.lexer = Lexer::new("");
        self.token.kind = Kind::End;
        self.comments.clear();
    }

    /// The text of `span`.
    pub(crate) fn text(&self, span: Span) -> &'a str {
        &self.source[span.start as usize..span.end as usize]
    }

    /// Reports a mistake. After one more than are reported, reading ends.
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) -> Failed {
        if !self.at_limit() {
            self.diagnostics.push(diagnostic);
        }
        if self.at_limit() {
            self.give_up();
        }
        Failed
    }

    /// Whether more mistakes would not be reported.
    pub(crate) fn at_limit(&self) -> bool {
        self.diagnostics.len() > MAX_DIAGNOSTICS
    }

    pub(crate) fn at_end(&self) -> bool {
        self.token.kind == Kind::End
    }

    pub(crate) fn at(&self, sign: &str) -> bool {
        matches!(self.token.kind, Kind::Sign(s) if s == sign)
    }

    pub(crate) fn at_word(&self, word: &str) -> bool {
        self.token.kind == Kind::Name && self.text(self.token.span) == word
    }

    /// Consumes `sign` if it is at hand.
    pub(crate) fn eat(&mut self, sign: &str) -> bool {
        let found = self.at(sign);
        if found {
            self.advance();
        }
        found
    }

    /// Consumes `word` if it is at hand.
    pub(crate) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.advance();
        }
        found
    }

    /// Consumes `sign`, or says that it was expected `after` something.
    pub(crate) fn expect(&mut self, sign: &str, after: &str) -> Parse<()> {
        if self.eat(sign) { Ok(()) } else { Err(self.expected(&format!("`{sign}`"), after)) }
    }

    /// Consumes `word`, or says that it was expected `after` something.
    pub(crate) fn expect_word(&mut self, word: &str, after: &str) -> Parse<()> {
        if self.eat_word(word) { Ok(()) } else { Err(self.expected(&format!("`{word}`"), after)) }
    }

    /// Says that `what` was expected `after` something. Where a line is cut short, the place is its
    /// end and not the next line.
    pub(crate) fn expected(&mut self, what: &str, after: &str) -> Failed {
        if self.after_unknown() {
            return Failed;
        }
        let (span, found) = if self.token.first && self.end > 0 {
            (Span { start: self.end, end: self.end }, "the end of the line".to_owned())
        } else {
            (self.token.span, self.found())
        };
        self.report(Diagnostic::new(
            codes::EXPECTED,
            format!("expected {what}, found {found}"),
            span,
            format!("{what} must follow {after}"),
        ))
    }

    /// Whether something that is no token stands in front of the token at hand: then it is to blame,
    /// and has been reported.
    fn after_unknown(&self) -> bool {
        self.diagnostics.last().is_some_and(|d| d.code == codes::CHARACTER && d.span().start >= self.end)
    }

    /// The token at hand as a message names it.
    pub(crate) fn found(&self) -> String {
        match self.token.kind {
            Kind::End => "the end of the text".to_owned(),
            Kind::Name | Kind::Int(_) | Kind::Sign(_) => {
                let text = self.text(self.token.span);
                let short: String = text.chars().take(40).collect();
                format!("`{short}{}`", if short.len() < text.len() { "…" } else { "" })
            }
        }
    }

    /// Consumes a name that is being declared or used as `what`.
    pub(crate) fn name(&mut self, what: &str, after: &str) -> Parse<Name> {
        if self.token.kind != Kind::Name || self.token.first && self.end > 0 {
            return Err(self.expected(what, after));
        }
        let span = self.token.span;
        let text = self.text(span);
        if RESERVED.contains(&text) {
            return Err(self.report(Diagnostic::new(
                codes::RESERVED,
                format!("`{text}` is a word of the language and cannot be a name"),
                span,
                format!("expected {what}"),
            )));
        }
        self.advance();
        Ok(Name { text: text.to_owned(), span })
    }

    /// Whether the word at hand can be a name.
    pub(crate) fn at_name(&self) -> bool {
        self.token.kind == Kind::Name && !RESERVED.contains(&self.text(self.token.span))
    }

    /// Consumes one of the words of `table`, or says which there are.
    pub(crate) fn word<T: Copy>(&mut self, what: &str, after: &str, table: &[(&str, T)]) -> Parse<T> {
        if self.token.kind != Kind::Name || self.token.first && self.end > 0 {
            return Err(self.expected(what, after));
        }
        let span = self.token.span;
        let text = self.text(span);
        if let Some((_, value)) = table.iter().find(|(name, _)| *name == text) {
            self.advance();
            return Ok(*value);
        }
        let diagnostic = Diagnostic::new(
            codes::UNKNOWN_WORD,
            format!("`{text}` is not {what}"),
            span,
            format!("expected {what}"),
        );
        let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        let diagnostic = match nearest(text, names.iter().copied()) {
            Some(name) => diagnostic.help(format!("did you mean `{name}`?")),
            None => diagnostic.help(format!("there are {}", listed(&names))),
        };
        Err(self.report(diagnostic))
    }

    /// Checks that the line ends here.
    pub(crate) fn line_end(&mut self, what: &str) -> Parse<()> {
        if self.token.first || self.at_end() || self.at("}") {
            return Ok(());
        }
        if self.after_unknown() {
            return Err(Failed);
        }
        let span = self.token.span;
        let found = self.found();
        Err(self.report(
            Diagnostic::new(
                codes::LINE_END,
                format!("{found} cannot stand here"),
                span,
                format!("the line should end after {what}"),
            )
            .help("one statement a line"),
        ))
    }

    /// Skips the rest of a line that failed. True if it ends by opening a block, which is then next.
    pub(crate) fn skip_line(&mut self) -> bool {
        let mut open = 0u32;
        while !self.at_end() {
            if self.token.first && open == 0 && self.end > 0 {
                return false;
            }
            if self.at("}") && open == 0 {
                return false;
            }
            let token = self.advance();
            if token.kind == Kind::Sign("{") {
                if self.token.first {
                    return true;
                }
                open += 1;
            } else if token.kind == Kind::Sign("}") {
                open = open.saturating_sub(1);
            }
            if self.token.first {
                open = 0;
            }
        }
        false
    }

    /// The lines above the token at hand that belong to it. Those of a block's first line and end
    /// lose the empty lines next to the brace.
    pub(crate) fn lines_before(&mut self, block_start: bool) -> Vec<TriviaLine> {
        if self.comments.is_empty() && self.token.newlines < 2 && self.pulled.is_empty() {
            return Vec::new();
        }
        let mut lines = std::mem::take(&mut self.pulled);
        for comment in std::mem::take(&mut self.comments) {
            if comment.newlines >= 2 {
                lines.push(TriviaLine::Blank);
            }
            lines.push(TriviaLine::Comment(self.text(comment.span).to_owned()));
        }
        if self.token.newlines >= 2 {
            lines.push(TriviaLine::Blank);
        }
        if block_start && lines.first() == Some(&TriviaLine::Blank) {
            lines.remove(0);
        }
        if (self.at("}") || self.at_end()) && lines.last() == Some(&TriviaLine::Blank) {
            lines.pop();
        }
        lines
    }

    /// The comment at the end of the line just read. Comments inside the line go to `before`.
    pub(crate) fn line_comment(&mut self, before: &mut Vec<TriviaLine>) -> Option<String> {
        if self.comments.is_empty() {
            return None;
        }
        let inside = self.comments.iter().take_while(|c| c.span.start < self.end).count();
        for comment in self.comments.drain(..inside).collect::<Vec<_>>() {
            before.push(TriviaLine::Comment(self.text(comment.span).to_owned()));
        }
        let here = self.comments.first().is_some_and(|c| c.newlines == 0);
        here.then(|| {
            let comment = self.comments.remove(0);
            self.text(comment.span).to_owned()
        })
    }

    /// The comment after the `{` just read.
    pub(crate) fn opening_comment(&mut self) -> Option<String> {
        let mut pulled = std::mem::take(&mut self.pulled);
        let comment = self.line_comment(&mut pulled);
        self.pulled = pulled;
        comment
    }

    /// Claims what stands around the line just read.
    pub(crate) fn trivia(&mut self, mut before: Vec<TriviaLine>) -> Trivia {
        let after = self.line_comment(&mut before);
        Trivia { before, after }
    }

    /// From `start` to the last consumed token.
    pub(crate) fn span_from(&self, start: u32) -> Span {
        Span { start, end: self.end.max(start) }
    }

    /// Reports a text that is not `wanted`.
    pub(crate) fn wrong_form(mut self, wanted: &str) -> Vec<Diagnostic> {
        let span = self.token.span;
        let found = self.found();
        let diagnostic = Diagnostic::new(
            codes::FORM,
            format!("expected {wanted}, found {found}"),
            span,
            format!("{wanted} should begin here"),
        );
        let word = self.text(span);
        self.report(match nearest(word, ["program", "schedule", "kernel_plan"]) {
            Some(form) if form != word => diagnostic.help(format!("did you mean `{form}`?")),
            Some("kernel_plan") => diagnostic.help(
                "a kernel plan is what a schedule is lowered to: `ringsmith show` proves it, `ringsmith simulate` tells \
                 what it takes",
            ),
            _ => diagnostic,
        });
        self.finish()
    }

    /// Everything that is wrong, in the order of the text.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        in_order(self.diagnostics)
    }
}

/// A text of more than `most` bytes.
pub(crate) fn too_large(bytes: usize, most: usize) -> Diagnostic {
    Diagnostic::new(
        codes::SOURCE_SIZE,
        format!("this text has {bytes} bytes; at most {most} are read"),
        Span::default(),
        "nothing of it was read",
    )
}

/// Diagnostics in the order of the text, and no more than are worth reading.
pub(crate) fn in_order(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    diagnostics.sort_by_key(Diagnostic::span);
    if let Some(dropped) = diagnostics.get(MAX_DIAGNOSTICS) {
        let span = dropped.span();
        diagnostics.truncate(MAX_DIAGNOSTICS);
        let message = format!("there are more than {MAX_DIAGNOSTICS} mistakes");
        diagnostics.push(Diagnostic::new(codes::TOO_MANY, message, span, "the next one; others may follow"));
    }
    diagnostics
}

/// `a, b and c`.
pub(crate) fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => format!("`{one}`"),
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(|n| format!("`{n}`")).collect();
            format!("{} and `{last}`", rest.join(", "))
        }
    }
}
