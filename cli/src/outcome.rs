//! How a command ends: the four exit statuses, and the errors that lead to them.
//!
//! Sits under every command. Nothing here prints: [`crate::main`] does, once.

use std::fmt;
use std::io;

/// The exit status of a command, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Status 0: done as asked.
    Done,
    /// Status 1: the question was understood, and the answer is no.
    No,
    /// Status 2: an argument or a file cannot be used.
    Unusable,
    /// Status 3: a rank, a device or a deadline was lost.
    WorldFailed,
}

impl Outcome {
    /// The number that the process exits with.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Unusable => 2,
            Self::WorldFailed => 3,
        }
    }
}

/// Why a command could not be carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something to tell the user.
    Message {
        /// The exit status.
        outcome: Outcome,
        /// What is wrong, where, and what to do, without a full stop.
        text: String,
    },
    /// Whoever read standard output has stopped reading.
    OutputClosed,
}

/// What a command returns: an outcome whose reasons have been reported, or a reason yet to be told.
pub(crate) type Result<T = Outcome> = std::result::Result<T, Failure>;

impl Failure {
    /// An argument, a file or a setting that cannot be used.
    pub(crate) fn unusable(text: impl fmt::Display) -> Self {
        Self::Message { outcome: Outcome::Unusable, text: text.to_string() }
    }

    /// Something outside that failed.
    pub(crate) fn world(text: impl fmt::Display) -> Self {
        Self::Message { outcome: Outcome::WorldFailed, text: text.to_string() }
    }

    /// Standard output that could not be written.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::world(format_args!("cannot write to standard output: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_outcome_is_the_largest() {
        assert_eq!([Outcome::No, Outcome::WorldFailed, Outcome::Done].into_iter().max().unwrap().code(), 3);
        assert_eq!(Outcome::Unusable.max(Outcome::No).code(), 2);
    }
}
