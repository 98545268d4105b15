//! Text forms: reading and printing programs and schedules.
//!
//! Reading finds every mistake of a text in one pass and reports each with its place; what comes out
//! of it is well-formed, but only the verifier says whether it is right. Printing and reading are
//! inverses. Nothing here reads files or draws diagnostics.
//!
//! `docs/language.md` describes the language, `docs/diagnostics/` each mistake.

pub mod codes;
mod expression;
mod extras;
mod kernel;
mod lexer;
mod parser;
mod print;
mod print_schedule;
mod program;
mod schedule;

mod spans;
pub(crate) mod structure;
mod suggest;
mod writer;

pub use expression::MAX_EXPR_DEPTH;
pub(crate) use expression::plural;
pub use kernel::{parse_kernel_plan, print_kernel_plan};
pub(crate) use parser::{MAX_BLOCK_DEPTH, MAX_DIAGNOSTICS, in_order};
pub use parser::{MAX_PROGRAM_BYTES, MAX_SOURCE_BYTES};
pub use print::print_program;
pub use print_schedule::print_schedule;
pub(crate) use program::NAMELESS_LINK;
pub use spans::{program_without_spans, schedule_without_spans};
pub(crate) use suggest::nearest;

use crate::diagnostic::Diagnostic;
use crate::expand;
use crate::program::Program;
use crate::schedule::Schedule;
use parser::Parser;
use std::collections::HashSet;

/// What a text holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// A program, to be expanded.
    Program(Program),
    /// A flat schedule.
    Schedule(Schedule),
}

/// Reads a text that holds a program or a schedule.
///
/// Errors: everything that is wrong, in the order of the text.
pub fn parse(source: &str) -> Result<File, Vec<Diagnostic>> {
    let parser = Parser::new(source)?;
    if parser.at_word("program") {
        parse_program(source).map(File::Program)
    } else if parser.at_word("schedule") {
        parse_schedule(source).map(File::Schedule)
    } else {
        Err(parser.wrong_form("`program` or `schedule`"))
    }
}

/// Reads a program and checks everything about it that does not depend on the number of ranks.
///
/// Errors: everything that is wrong, in the order of the text.
pub fn parse_program(source: &str) -> Result<Program, Vec<Diagnostic>> {
    let mut parser = Parser::new(source)?;
    if !parser.at_word("program") {
        return Err(parser.wrong_form("`program`"));
    }
    if source.len() > MAX_PROGRAM_BYTES {
        return Err(vec![parser::too_large(source.len(), MAX_PROGRAM_BYTES)]);
    }
    let mut lost = HashSet::new();
    let Ok(program) = parser.program(&mut lost) else {
        return Err(parser.finish());
    };
    if let Err(found) = expand::check(&program, &lost) {
        parser.diagnostics.extend(found);
    }
    if parser.diagnostics.is_empty() { Ok(program) } else { Err(parser.finish()) }
}

/// Reads a flat schedule. Lanes come out ordered by rank and index, whatever their order in the text.
///
/// Errors: everything that is wrong, in the order of the text.
pub fn parse_schedule(source: &str) -> Result<Schedule, Vec<Diagnostic>> {
    read_schedule(source).map(|(schedule, _)| schedule)
}

fn read_schedule(source: &str) -> Result<(Schedule, extras::Extras), Vec<Diagnostic>> {
    let mut parser = Parser::new(source)?;
    if !parser.at_word("schedule") {
        return Err(parser.wrong_form("`schedule`"));
    }
    match parser.schedule() {
        Ok(read) if parser.diagnostics.is_empty() => Ok(read),
        _ => Err(parser.finish()),
    }
}

/// Prints a text that holds a program or a schedule in its canonical form, comments included.
///
/// Errors: everything that is wrong with the text, in its order.
pub fn format(source: &str) -> Result<String, Vec<Diagnostic>> {
    if Parser::new(source)?.at_word("schedule") {
        let (schedule, extras) = read_schedule(source)?;
        return Ok(print_schedule::print(&schedule, Some(&extras)));
    }
    parse(source).map(|file| match file {
        File::Program(program) => print_program(&program),
        File::Schedule(schedule) => print_schedule(&schedule),
    })
}
