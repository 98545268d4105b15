//! Mistakes on the command line made fit to be shown. A value that cannot be used is told as everywhere in this
//! program. Other mistakes keep clap's words: what was typed is quoted on one line, cut where it is long,
//! and nothing is advised that does not help.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use ringsmith_runtime::shown::shown;
use std::error::Error as _;

/// Where clap quotes what was typed.
const QUOTED: [ContextKind; 3] =
    [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand];

/// What is said of a value that its flag or argument cannot take: flag, value, and what would do. None for other
/// mistakes.
pub(crate) fn about_value(mistake: &Error) -> Option<String> {
    if mistake.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let text = |kind| match mistake.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    // `--ranks <N>`, or `<FILE>` of an argument without a flag.
    let argument = text(ContextKind::InvalidArg)?;
    let flag = argument.split(' ').next().unwrap_or(argument).trim_matches(['<', '>', '[', ']', '.']);
    let value = match text(ContextKind::InvalidValue)? {
        "" => "\"\"".into(),
        value => shown(value),
    };
    let detail = mistake.source()?;
    Some(format!("{flag} {value}: {detail}"))
}

/// The same mistake, fit to be shown.
pub(crate) fn about(mut mistake: Error) -> Error {
    let mut helps = true;
    for kind in QUOTED {
        let Some(ContextValue::String(typed)) = mistake.get(kind) else { continue };
        let quoted = shown(typed).into_owned();
        // clap advises to put `--` in front of what looks like a flag. A number is none.
        helps &= quoted == *typed && typed.parse::<f64>().is_err();
        mistake.insert(kind, ContextValue::String(quoted));
    }
    if !helps {
        mistake.remove(ContextKind::Suggested);
    }
    mistake
}
