//! Text forms: reading and printing programs and schedules.
//!
//! Reading finds every mistake of a text in one pass and reports each with its place; what comes out
//! of it is well-formed, but only the verifier says whether it is right. Printing and reading are
//! inverses. Nothing here reads files or draws diagnostics.
//!
//! `docs/language.md` describes the language, `docs/diagnostics/` each mistake.

pub mod codes;
mod expression;
mod lexer;
mod parser;
mod program;
pub(crate) mod structure;
mod suggest;

pub use expression::MAX_EXPR_DEPTH;
pub(crate) use expression::plural;
pub use parser::MAX_SOURCE_BYTES;
pub(crate) use parser::{MAX_BLOCK_DEPTH, MAX_DIAGNOSTICS};
pub(crate) use suggest::nearest;

use crate::diagnostic::Diagnostic;
use crate::expand;
use crate::program::Program;
use parser::Parser;
use std::collections::HashSet;

/// Reads a program and checks everything about it that does not depend on the number of ranks.
///
/// Errors: everything that is wrong, in the order of the text.
pub fn parse_program(source: &str) -> Result<Program, Vec<Diagnostic>> {
    let mut parser = Parser::new(source)?;
    if !parser.at_word("program") {
        return Err(parser.wrong_form("a program"));
    }
    let mut lost = HashSet::new();
    let program = parser.program(&mut lost);
    let Ok(program) = program else {
        return Err(parser.finish());
    };
    if let Err(found) = expand::check(&program, &lost) {
        parser.diagnostics.extend(found);
    }
    if parser.diagnostics.is_empty() { Ok(program) } else { Err(parser.finish()) }
}
