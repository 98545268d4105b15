//! Text to tokens, one at a time.
//!
//! White space and comments come with the token that follows them, so that the parser knows where
//! lines end and the printer can put comments back. Nothing here fails: what is no token is reported
//! and skipped.

use super::codes;
use super::parser::MAX_DIAGNOSTICS;
use crate::diagnostic::{Diagnostic, Span};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word.
    Name,
    /// A number and its value.
    Int(i64),
    /// A sign; the text is one of [`SIGNS`].
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// A token and the space in front of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// What it is.
    pub(crate) kind: Kind,
    /// Where it stands.
    pub(crate) span: Span,
    /// Line ends between it and the token or comment before it: 0, 1, or 2 for more.
    pub(crate) newlines: u8,
    /// Whether it begins a line.
    pub(crate) first: bool,
}

/// A comment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comment {
    /// From `//` on, without white space at its end.
    pub(crate) span: Span,
    /// Line ends between it and the token or comment before it: 0, 1, or 2 for more.
    pub(crate) newlines: u8,
}

/// Every sign of the language; a sign stands after those that it is the beginning of.
const SIGNS: [&str; 29] = [
    "..", "->", "+=", "<<", ">>", "==", "!=", "<=", ">=", "&&", "||", "@", "(", ")", "{", "}", "[", "]", ":",
    ",", ".", "=", "+", "-", "*", "/", "%", "<", ">",
];
/// Signs that no longer sign begins with, kept apart so that the search above stays short.
const OPERATORS: [&str; 4] = ["&", "|", "^", "!"];

/// Reads tokens from a text.
#[derive(Clone)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        // Some editors put a byte order mark in front.
        let position = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        Self { text, position }
    }

    /// The next token. Comments before it go to `comments`, what is no token to `diagnostics`.
    pub(crate) fn next(&mut self, comments: &mut Vec<Comment>, diagnostics: &mut Vec<Diagnostic>) -> Token {
        let bytes = self.text.as_bytes();
        let mut newlines = 0u8;
        let mut first = self.position == 0;
        loop {
            let start = self.position;
            let Some(&byte) = bytes.get(start) else {
                return Token { kind: Kind::End, span: Span::new(start, start), newlines, first: true };
            };
            match byte {
                b'\n' => {
                    newlines = newlines.saturating_add(1).min(2);
                    first = true;
                    self.position += 1;
                }
                b' ' | b'\t' | b'\r' => self.position += 1,
                b'/' if bytes.get(start + 1) == Some(&b'/') => {
                    let end = self.text[start..].find('\n').map_or(self.text.len(), |i| start + i);
                    self.position = end;
                    let end = start + self.text[start..end].trim_end().len();
                    comments.push(Comment { span: Span::new(start, end), newlines });
                    newlines = 0;
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                    let rest = &bytes[start..];
                    let len = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
                    return self.token(Kind::Name, len, newlines, first);
                }
                b'0'..=b'9' => {
                    let len = bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count();
                    let value = self.text[start..start + len].parse::<i64>().unwrap_or_else(|_| {
                        diagnostics.push(too_large(start, len));
                        0
                    });
                    return self.token(Kind::Int(value), len, newlines, first);
                }
                _ => {
                    if let Some(sign) = self.sign() {
                        return self.token(Kind::Sign(sign), sign.len(), newlines, first);
                    }
                    diagnostics.push(self.skip_unknown());
                    if diagnostics.len() > MAX_DIAGNOSTICS {
                        self.position = bytes.len();
                    }
                }
            }
        }
    }

    fn token(&mut self, kind: Kind, len: usize, newlines: u8, first: bool) -> Token {
        let start = self.position;
        self.position += len;
        Token { kind, span: Span::new(start, start + len), newlines, first }
    }

    fn sign(&self) -> Option<&'static str> {
        let rest = &self.text.as_bytes()[self.position..];
        let first = rest.first();
        let is_here = |s: &&str| s.as_bytes().first() == first && rest.starts_with(s.as_bytes());
        SIGNS.iter().chain(&OPERATORS).copied().find(is_here)
    }

    /// Skips characters that begin no token, all of a row at once.
    fn skip_unknown(&mut self) -> Diagnostic {
        let start = self.position;
        while let Some(c) = self.text[self.position..].chars().next() {
            let ends = matches!(c, ' ' | '\t' | '\r' | '\n' | '_') || c.is_ascii_alphanumeric();
            // Only punctuation is looked for in the table: a row may be as long as the text.
            if ends || c.is_ascii_punctuation() && self.sign().is_some() {
                break;
            }
            self.position += c.len_utf8();
        }
        let found: String = self.text[start..self.position].chars().take(16).collect();
        let quote = |c: &char| matches!(c, '"' | '\'');
        let shown: String = match found.chars().find(|c| !quote(c)) {
            None => found.clone(),
            Some(_) => found.escape_debug().to_string(),
        };
        let message = format!("`{shown}` means nothing here");
        let diagnostic = Diagnostic::new(
            codes::CHARACTER,
            message,
            Span::new(start, self.position),
            "no word, number or sign begins like this",
        );
        match found.chars().next() {
            Some('#') => diagnostic.help("a comment begins with `//`"),
            Some(';') => diagnostic.help("a line's end ends a statement; remove the `;`"),
            Some('"' | '\'') => diagnostic.help("names are written without quotes"),
            _ => diagnostic,
        }
    }
}

fn too_large(start: usize, len: usize) -> Diagnostic {
    Diagnostic::new(
        codes::NUMBER,
        "this number is too large",
        Span::new(start, start + len),
        format!("the largest number is {}", i64::MAX),
    )
}
