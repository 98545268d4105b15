//! Every code that reading or expanding a text can report. `docs/diagnostics/` has a page for each.
//!
//! P01 is about the form of the text, P02 about names and shape, E03 about what comes out when a
//! program is expanded for a number of ranks. The verifier's codes begin with V and are its own.

use crate::diagnostic::{Code, Diagnostic};

/// The codes of mistakes that lie between a text and what it is to be expanded for, or that end a proof
/// before its end: they say neither that a schedule is right nor that it is wrong.
const NO_ANSWER: [Code; 6] = [UNKNOWN_ARGUMENT, RANKS, ROOT, SIZE, TOO_MUCH, Code("V0605")];

/// Whether one of the mistakes leaves the question open, rather than refute what the text says: the text
/// cannot be read, the arguments do not fit it, or it is too large to be proved.
pub fn undecided(mistakes: &[Diagnostic]) -> bool {
    mistakes.iter().any(|m| m.code.0.starts_with('P') || NO_ANSWER.contains(&m.code))
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal;)*) => {
        $($(#[doc = $doc])+ pub const $name: Code = Code($code);)*

        /// Every code of this module and what it stands for.
        pub const ALL: &[(Code, &str)] = &[$(($name, concat!($($doc),+).trim_ascii_start()),)*];
    };
}

codes! {
    /// A character that no token begins with.
    CHARACTER = "P0101";
    /// Something else was expected here.
    EXPECTED = "P0102";
    /// A number that does not fit.
    NUMBER = "P0103";
    /// Brackets or blocks nested too deeply, or an expression with too many operations in a row.
    DEPTH = "P0104";
    /// A text that is too large.
    SOURCE_SIZE = "P0105";
    /// A second statement on a line.
    LINE_END = "P0106";
    /// A block that is never closed.
    UNCLOSED = "P0107";
    /// A line that begins with no known word.
    STATEMENT = "P0108";
    /// A comparison of a comparison.
    CHAINED = "P0109";
    /// More mistakes than are worth reporting.
    TOO_MANY = "P0110";
    /// Text after the end.
    TRAILING = "P0111";
    /// A text of another form, or of none.
    FORM = "P0112";
    /// An op whose two sides are the wrong way round, or on the wrong rank.
    OP_SHAPE = "P0113";
    /// A name that stands for nothing here.
    UNKNOWN_NAME = "P0201";
    /// A buffer that is not declared.
    UNKNOWN_BUFFER = "P0202";
    /// A link that is not declared.
    UNKNOWN_LINK = "P0203";
    /// A name in use already.
    DUPLICATE_NAME = "P0204";
    /// A line that a text cannot do without.
    MISSING_LINE = "P0205";
    /// A line that may stand only once.
    REPEATED_LINE = "P0206";
    /// A function that does not exist.
    UNKNOWN_FUNCTION = "P0207";
    /// A function or link family with the wrong number of arguments.
    ARITY = "P0208";
    /// A word of the language that is misspelt: a collective, operation, protocol, or kind.
    UNKNOWN_WORD = "P0209";
    /// An operation, order or root that the collective has no use for.
    NOT_FOR_COLLECTIVE = "P0210";
    /// An attribute that does not exist here, or a value that it cannot have.
    ATTRIBUTE = "P0211";
    /// Buffers that cannot be declared together, or under this name.
    BUFFER_SET = "P0212";
    /// Links of a flat text that are not numbered in order.
    LINK_ORDER = "P0213";
    /// Something that only a program may contain.
    FLAT = "P0214";
    /// A word of the language used as a name.
    RESERVED = "P0215";
    /// An argument that names no parameter, or a root where none is wanted.
    UNKNOWN_ARGUMENT = "E0301";
    /// A number of ranks that cannot be.
    RANKS = "E0302";
    /// A root that is missing or does not exist.
    ROOT = "E0303";
    /// Arithmetic without a result.
    ARITHMETIC = "E0304";
    /// A chunk outside its buffer.
    CHUNK_INDEX = "E0305";
    /// A rank that does not exist.
    RANK_INDEX = "E0306";
    /// A member that its link family does not have.
    LINK_INDEX = "E0307";
    /// A lane that is declared twice.
    DUPLICATE_LANE = "E0308";
    /// A member that its link family has twice.
    DUPLICATE_LINK = "E0309";
    /// A size that cannot be.
    SIZE = "E0310";
    /// A buffer whose size does not fit the collective.
    BUFFER_SIZE = "E0311";
    /// Chunks that cannot be shared out among the ranks.
    CHUNKS_PER_RANK = "E0312";
    /// A lane number that cannot be.
    LANE_INDEX = "E0313";
    /// More ops, links, lanes or steps than are allowed.
    TOO_MUCH = "E0314";
}
