//! What a flat text says and a schedule does not hold: comments, empty lines, attributes, and lines
//! that say what would hold anyway. Formatting a file needs it; nothing else does.

use crate::entity::LaneName;
use crate::program::{Attribute, Braces, Trivia, TriviaLine};
use std::collections::BTreeMap;

/// A line of a flat text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Anchor {
    Ranks,
    Collective,
    Root,
    Chunks,
    Lanes,
    Protocol,
    Buffer(usize),
    Link(usize),
    Lane(LaneName),
    Op(LaneName, usize),
}

/// What surrounds a line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) trivia: Trivia,
    pub(crate) attributes: Vec<Attribute>,
}

/// What surrounds the lines of a flat text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// Lines above the text.
    pub(crate) before: Vec<TriviaLine>,
    /// Around the outermost braces.
    pub(crate) braces: Braces,
    /// Lines below the text.
    pub(crate) footer: Vec<TriviaLine>,
    /// Around lines; those of the heading are here even if they have nothing around them.
    pub(crate) lines: BTreeMap<Anchor, Extra>,
    /// Around the braces of lanes.
    pub(crate) lanes: BTreeMap<LaneName, Braces>,
}
