//! Mistakes on the command line, as clap words them, made fit to be shown: what was typed is quoted on one
//! line, cut where it is long, and nothing is advised that does not help.

use clap::Error;
use clap::error::{ContextKind, ContextValue};
use ringsmith_runtime::shown::shown;

/// Where clap quotes what was typed.
const QUOTED: [ContextKind; 3] =
    [ContextKind::InvalidArg, ContextKind::InvalidValue, ContextKind::InvalidSubcommand];

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
