//! Texts of somebody else as messages quote them: values of settings, names, what ranks disagree on. On one
//! line, of a bounded length, and with nothing in it that a terminal would obey.
//!
//! Quotes only: what a value means is decided elsewhere, by the whole of it.

use std::borrow::Cow;

/// The most of a text that is quoted, in bytes before escapes. Ours: any sensible value, two lines of a
/// terminal.
const MOST_BYTES: usize = 200;
/// How much of the end of a longer text is kept.
const END_BYTES: usize = 40;
/// How much stands before the place at which two long texts begin to differ.
const BEFORE_BYTES: usize = 60;

/// The text on one line, or its beginning and end where it is long.
pub fn shown(text: &str) -> Cow<'_, str> {
    match short(text) {
        Cow::Borrowed(whole) => escaped(whole),
        Cow::Owned(part) => Cow::Owned(escaped(&part).into_owned()),
    }
}

/// The text as it is, or its beginning and end where it is long: for those who escape it themselves.
pub fn short(text: &str) -> Cow<'_, str> {
    if text.len() <= MOST_BYTES {
        return Cow::Borrowed(text);
    }
    let start = &text[..text.floor_char_boundary(MOST_BYTES - END_BYTES)];
    let end = &text[text.ceil_char_boundary(text.len() - END_BYTES)..];
    Cow::Owned(format!("{start}…{end}"))
}

/// Two texts that differ; of long ones, the part where they begin to.
pub fn differing(first: &str, second: &str) -> (String, String) {
    if first.len().max(second.len()) <= MOST_BYTES {
        return (shown(first).into_owned(), shown(second).into_owned());
    }
    let common = first.bytes().zip(second.bytes()).take_while(|(a, b)| a == b).count();
    let part = |text: &str| {
        let start = text.floor_char_boundary(common.saturating_sub(BEFORE_BYTES));
        let end = text.ceil_char_boundary((start + MOST_BYTES).min(text.len()));
        let mark = |left_out: bool| if left_out { "…" } else { "" };
        format!("{}{}{}", mark(start > 0), escaped(&text[start..end]), mark(end < text.len()))
    };
    (part(first), part(second))
}

/// All of the text, on one line: line ends, other characters that a terminal obeys, and those that turn the
/// direction of writing stand as Rust writes them in a string.
pub fn escaped(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() || turns(c);
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let one = |c: char| if obeyed(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(one).collect())
}

/// Whether a character changes the direction in which those around it are shown.
pub fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        assert!(matches!(shown("ring;allreduce:é"), Cow::Borrowed(_)));
        assert_eq!(shown("a\x1b[31m\nb\u{202e}"), "a\\u{1b}[31m\\nb\\u{202e}");
    }

    #[test]
    fn long_texts_keep_both_ends() {
        let shown = shown(&format!("a{}z", "\u{e9}".repeat(1 << 20))).into_owned();
        assert!(shown.starts_with("aé") && shown.ends_with("éz") && shown.contains('…'), "{shown}");
        assert!(shown.len() < MOST_BYTES + 10, "{}", shown.len());
    }

    #[test]
    fn long_texts_are_shown_where_they_differ() {
        let text = |word: &str| format!("{}{word}{}", "é\n".repeat(100_000), "x".repeat(100_000));
        let (first, second) = differing(&text("one"), &text("two"));
        assert!(first.contains("é\\none") && first.starts_with('…') && first.ends_with('…'), "{first}");
        assert!(second.contains("é\\ntwo") && second.len() < 2 * MOST_BYTES, "{second}");
        let (whole, longer) = differing(&"a".repeat(300), &"a".repeat(301));
        assert!(whole.ends_with('a') && longer.ends_with("aa") && longer.len() == whole.len() + 1);
        assert_eq!(differing("ring", "tree"), ("ring".to_owned(), "tree".to_owned()));
    }
}
