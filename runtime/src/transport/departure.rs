//! How a rank goes, as its peers see it: one word per pair, over shared memory and over sockets alike.
//!
//! The word is 0 while the rank is there, 1 once it has closed in good order, and 2 + culprit once it has
//! given up on the communicator. It is stored with release after everything the rank had to send, and
//! read with acquire before the counters are looked at for the last time.

/// Whether and how a rank has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It is there, as far as anybody knows.
    Here,
    /// It has closed its links in good order; all that it had sent has arrived.
    InOrder,
    /// Its communicator is broken, and it holds a rank to blame: itself or another.
    GaveUp {
        /// The rank to blame.
        culprit: u32,
    },
}

impl Departure {
    /// The word that says so.
    pub(crate) fn word(self) -> u32 {
        match self {
            Self::Here => 0,
            Self::InOrder => 1,
            Self::GaveUp { culprit } => culprit.saturating_add(2),
        }
    }

    /// What a word of `peer` says. A culprit that is none of the `ranks` is the peer itself: over shared
    /// memory anything may stand there.
    pub(crate) fn of(word: u32, peer: u32, ranks: u32) -> Self {
        match word {
            0 => Self::Here,
            1 => Self::InOrder,
            _ if word - 2 < ranks => Self::GaveUp { culprit: word - 2 },
            _ => Self::GaveUp { culprit: peer },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_meant_and_nonsense_blames_its_writer() {
        for departure in [Departure::Here, Departure::InOrder, Departure::GaveUp { culprit: 7 }] {
            assert_eq!(Departure::of(departure.word(), 3, 8), departure);
        }
        for word in [10, u32::MAX] {
            assert_eq!(Departure::of(word, 3, 8), Departure::GaveUp { culprit: 3 });
        }
    }
}
