//! A line of a topology's text as words, `key=value` pairs and braces.
//!
//! Words end at white space; quotes keep it, and `\"`, `\\` and `\u{…}` stand for what cannot be
//! written. A comment runs from `//`, where a word could begin, to the line's end.

use super::codes;
use crate::diagnostic::{Diagnostic, Span};

/// One part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) what: What,
    pub(super) span: Span,
}

/// What a part of a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A word or quoted text.
    Word(String),
    /// `key=value`.
    Pair(String, String),
    /// `{`
    Open,
    /// `}`
    Close,
}

/// Splits a line that begins at byte `start` of the text.
pub(super) fn split(line: &str, start: usize, diagnostics: &mut Vec<Diagnostic>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(c) = line[at..].chars().next() {
        let begin = at;
        let what = match c {
            _ if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '/' if line[at..].starts_with("//") => break,
            '{' | '}' => {
                at += 1;
                if c == '{' { What::Open } else { What::Close }
            }
            _ => {
                let first = word(line, &mut at, start, diagnostics);
                if line[at..].starts_with('=') {
                    at += 1;
                    let value = word(line, &mut at, start, diagnostics);
                    What::Pair(first, value)
                } else {
                    What::Word(first)
                }
            }
        };
        parts.push(Part { what, span: Span::new(start + begin, start + at) });
    }
    parts
}

/// Reads a word or a quoted text at `at`, which moves behind it. May be empty in front of `=` or a space.
fn word(line: &str, at: &mut usize, start: usize, diagnostics: &mut Vec<Diagnostic>) -> String {
    let mut text = String::new();
    if !line[*at..].starts_with('"') {
        let rest = &line[*at..];
        let ends = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | '=' | '"');
        // A quote inside a word would be taken for part of it: it begins another one.
        let len = rest.find(ends).unwrap_or(rest.len());
        text.push_str(&rest[..len]);
        *at += len;
        return text;
    }
    let open = *at;
    *at += 1;
    loop {
        let rest = &line[*at..];
        let Some(c) = rest.chars().next() else {
            let span = Span::new(start + open, start + *at);
            diagnostics.push(Diagnostic::new(
                codes::EXPECTED,
                "this text is not closed",
                span,
                "`\"` is missing",
            ));
            return text;
        };
        *at += c.len_utf8();
        match c {
            '"' => return text,
            '\\' => match escape(&line[*at..]) {
                Some((c, len)) => {
                    text.push(c);
                    *at += len;
                }
                None => {
                    let span = Span::new(start + *at - 1, start + *at);
                    let label = "`\\\"`, `\\\\` and `\\u{1f}` are";
                    diagnostics.push(Diagnostic::new(codes::EXPECTED, "this is no escape", span, label));
                }
            },
            c => text.push(c),
        }
    }
}

/// What stands for one character behind a backslash, and how long it is.
fn escape(rest: &str) -> Option<(char, usize)> {
    match rest.chars().next()? {
        c @ ('"' | '\\') => Some((c, 1)),
        'u' => {
            let digits = rest.strip_prefix("u{")?;
            let digits = &digits[..digits.find('}')?];
            let value = u32::from_str_radix(digits, 16).ok().filter(|_| digits.len() <= 6)?;
            Some((char::from_u32(value)?, digits.len() + 3))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<What> {
        let mut diagnostics = Vec::new();
        let parts = split(line, 0, &mut diagnostics);
        assert_eq!(diagnostics, []);
        parts.into_iter().map(|part| part.what).collect()
    }

    fn word(text: &str) -> What {
        What::Word(text.to_owned())
    }

    fn pair(key: &str, value: &str) -> What {
        What::Pair(key.to_owned(), value.to_owned())
    }

    #[test]
    fn lines_split_into_words_pairs_and_braces() {
        assert_eq!(
            words(r#"gpu g0 bus=0000:18:00.0 speed="8 GT/s" { // the first"#),
            [word("gpu"), word("g0"), pair("bus", "0000:18:00.0"), pair("speed", "8 GT/s"), What::Open]
        );
        assert_eq!(words("a{b}"), [word("a"), What::Open, word("b"), What::Close]);
        assert_eq!(words(r#"x="" y="a//b" "\"\\\u{9}""#), [pair("x", ""), pair("y", "a//b"), word("\"\\\t")]);
        assert_eq!(words(" // nothing"), []);
    }

    #[test]
    fn what_is_not_closed_is_told() {
        for line in ["\"a", "k=\"a", "\"\\", "\"\\u{}\"", "\"\\u{110000}\""] {
            let mut diagnostics = Vec::new();
            split(line, 0, &mut diagnostics);
            assert!(!diagnostics.is_empty(), "{line}");
            assert!(
                diagnostics
                    .iter()
                    .all(|d| line.get(d.span().start as usize..d.span().end as usize).is_some())
            );
        }
    }
}
