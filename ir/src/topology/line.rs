//! One line of a topology's text, sorted into words and attributes, and the values that stand in it.
//!
//! [`super::read`] says which words and attributes a line may have; nothing here knows that.

use super::{Rate, codes};
use crate::diagnostic::{Diagnostic, Span};
use crate::text::nearest;

/// The most words, attributes and braces of a line. Ours: a port has some fifteen.
pub(super) const MAX_PARTS: usize = 256;

/// A line without its first word: words, attributes and whether a block begins.
pub(super) struct Line {
    pub(super) word: String,
    /// Of the first word.
    pub(super) at: Span,
    /// Of the whole line.
    pub(super) span: Span,
    pub(super) words: Vec<(String, Span)>,
    pub(super) attributes: Vec<(String, String, Span)>,
    pub(super) opens: bool,
}

/// Reads a rate in GB/s.
pub(super) fn rate(text: &str) -> Option<Rate> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 6 || part.len() > 3 || !digits(whole) || !digits(part) {
        return None;
    }
    let thousandths: u64 = format!("{part:0<3}").parse().ok()?;
    let rate = whole.parse::<u64>().ok()? * 1000 + thousandths;
    (1..=100_000_000).contains(&rate).then_some(Rate(rate))
}

/// Whether a name can be carried: what XML allows and texts read back.
pub fn is_key(key: &str) -> bool {
    let mut chars = key.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        && key.len() <= 64
}

/// Takes an attribute out of a line.
pub(super) fn take(line: &mut Line, key: &str) -> Option<(String, Span)> {
    let at = line.attributes.iter().position(|(known, ..)| known == key)?;
    let (_, value, span) = line.attributes.remove(at);
    Some((value, span))
}

/// What is left of a line's attributes.
pub(super) fn carried(line: &mut Line) -> super::Carried {
    line.attributes.drain(..).map(|(key, value, _)| (key, value)).collect()
}

pub(super) fn no_attribute(key: &str, keys: &[&str], span: Span) -> Diagnostic {
    let message = format!("there is no attribute `{}` here", short(key));
    let diagnostic = Diagnostic::new(codes::ATTRIBUTE, message, span, "unknown attribute");
    match nearest(key, keys.iter().copied()) {
        Some(near) if near != key => diagnostic.help(format!("did you mean `{near}`?")),
        _ => diagnostic.help("an attribute that is only to be kept is written `x.NAME=VALUE`"),
    }
}

/// A word as messages quote it.
pub(super) fn short(word: &str) -> String {
    let start: String = word.chars().take(40).collect();
    if start.len() < word.len() { format!("{start}…") } else { start }
}
