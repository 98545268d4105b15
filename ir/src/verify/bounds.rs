//! How much one proof may cost. Texts, and plans that programs build, can name more ranks, chunks and
//! lanes than any memory holds; what is beyond these bounds is refused with V0605.
//!
//! The bounds are ours: a proof stays below some GiB and below about half a minute.

use crate::diagnostic::{Code, Diagnostic, Span};

/// The most ops that one proof runs, over all tiles, launches and layouts.
pub const MAX_STEPS: u64 = 100_000_000;
/// Words of vector clocks that may be alive at once, and of all lanes' clocks together: 1 GiB.
pub(super) const MAX_CLOCK_WORDS: usize = 1 << 28;
/// Pieces of memory, over all ranks.
pub(super) const MAX_LOCATIONS: u64 = 1 << 25;
/// Words of the bit sets that say who has contributed to a value: 1 GiB.
pub(super) const MAX_VALUE_WORDS: usize = 1 << 27;
/// Words of clocks and entries of read lists that one run may go through: an op that signals or waits
/// goes through as many words as there are lanes.
pub const MAX_WORK: u64 = 1 << 35;
/// Collisions that one run remembers; the list that is shown is much shorter.
pub(super) const MAX_COLLISIONS: usize = 1 << 16;
/// Mistakes that one run collects before it stops looking for more of the kind.
pub(super) const MAX_FOUND: usize = 1000;

/// What a proof would take.
pub(super) struct Size {
    /// Ops to run, over all tiles, launches and layouts.
    pub(super) steps: u64,
    /// Pieces of memory, over all ranks.
    pub(super) locations: u64,
    /// Lanes.
    pub(super) lanes: usize,
    /// Pieces of input, over all ranks, that start a launch.
    pub(super) inputs: u64,
    /// Ranks.
    pub(super) ranks: u32,
}

/// Whether a proof of this size is within the bounds.
///
/// Errors: V0605, with the bound that is passed.
pub(super) fn check(size: &Size) -> Result<(), Diagnostic> {
    let input_words = size.inputs.saturating_mul(words_of_value(size.ranks, 0) as u64);
    let clock_words = (size.lanes as u64).saturating_mul(size.lanes as u64);
    let pairs = u64::from(size.ranks) * u64::from(size.ranks);
    let bounds = [
        (size.steps, MAX_STEPS, "steps"),
        (size.locations, MAX_LOCATIONS, "pieces of memory"),
        (clock_words, MAX_CLOCK_WORDS as u64, "words of clocks"),
        (input_words, MAX_VALUE_WORDS as u64, "words for what is in the inputs"),
        (pairs, 1 << 30, "pairs of ranks"),
    ];
    match bounds.into_iter().find(|(needed, bound, _)| needed > bound) {
        None => Ok(()),
        Some((needed, bound, what)) => {
            Err(too_large(format!("the proof would take {needed} {what}; the bound is {bound}")))
        }
    }
}

/// Words that a value takes which combines so many terms.
pub(super) fn words_of_value(ranks: u32, terms: usize) -> usize {
    const NODE: usize = 8;
    (ranks as usize).div_ceil(64) + terms + NODE
}

/// What a run says that had to stop.
pub(super) fn outgrown() -> Diagnostic {
    too_large("the proof has outgrown its bounds of time and memory".to_owned())
}

pub(super) fn too_large(message: String) -> Diagnostic {
    Diagnostic::new(Code("V0605"), message, Span::default(), "too large to verify whole")
        .help("use fewer ranks, lanes, chunks or ops; a smaller instance of the same program can be proved")
}
