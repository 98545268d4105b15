//! Every code that reading a topology can report, as text or as XML. `docs/diagnostics/` has a page
//! for each.
//!
//! T01 is about the form of a description, T02 about what it describes.

use crate::diagnostic::Code;

/// A description of another kind, or of none.
pub const FORM: Code = Code("T0101");
/// Something else was expected here.
pub const EXPECTED: Code = Code("T0102");
/// A value that cannot be.
pub const VALUE: Code = Code("T0103");
/// An attribute that is missing, given twice, or not of this line.
pub const ATTRIBUTE: Code = Code("T0104");
/// A block that is never closed, or closes nothing.
pub const BLOCK: Code = Code("T0105");
/// A line that begins with no known word, or cannot stand here.
pub const STATEMENT: Code = Code("T0106");
/// XML that is not well-formed, or declares a document type.
pub const XML: Code = Code("T0107");
/// More than is allowed.
pub const TOO_MUCH: Code = Code("T0108");
/// A name or address that two things have.
pub const DUPLICATE: Code = Code("T0201");
/// An end of a link, or a machine, that is not there.
pub const UNKNOWN: Code = Code("T0202");
/// A link that cannot be.
pub const LINK: Code = Code("T0203");
/// A device under another number than it gets.
pub const NUMBERING: Code = Code("T0204");
/// A description of nothing.
pub const EMPTY: Code = Code("T0205");
