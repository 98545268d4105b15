//! Prints programs. Reading what is printed gives the same tree.

use super::writer::Writer;
use crate::program::{
    Attribute, Block, Clause, CollectiveLine, Expr, ExprKind, Item, ItemKind, LaneItem, Let, LinkExpr,
    LinkItem, OpLine, ParameterKind, Program, Range, RemoteSliceExpr, SliceExpr, Statement, StatementKind,
};
use crate::schedule::Order;
use std::fmt::{self, Write};

/// Prints a program in its canonical form, comments included. Reading it gives the same program.
pub fn print_program(program: &Program) -> String {
    let mut writer = Writer::new();
    writer.before(&program.before);
    let parameters: Vec<String> = program
        .parameters
        .iter()
        .map(|p| match p.kind {
            ParameterKind::Ranks => format!("{}: ranks", p.name.text),
            ParameterKind::Root => format!("{}: root", p.name.text),
            ParameterKind::Integer { default } => format!("{} = {default}", p.name.text),
        })
        .collect();
    let heading = format!("program @{}({})", program.name.text, parameters.join(", "));
    writer.open(&heading, program.braces.opening.as_deref());
    let mut rest = &program.items[..];
    while let Some((item, after)) = rest.split_first() {
        let run = buffer_run(rest);
        let width = run.iter().map(|i| buffer_name(i).len()).max().unwrap_or(0);
        if run.is_empty() {
            print_item(item, &mut writer);
            rest = after;
        } else {
            for item in run {
                print_buffer(item, width, &mut writer);
            }
            rest = &rest[run.len()..];
        }
    }
    let braces = &program.braces;
    writer.close(&braces.last, None, braces.closing.as_deref());
    writer.before(&program.footer);
    writer.finish()
}

/// The buffers at the start of `items` that stand directly below each other.
fn buffer_run(items: &[Item]) -> &[Item] {
    let is_buffer = |i: &&Item| matches!(i.kind, ItemKind::Buffer(_));
    if items.first().filter(is_buffer).is_none() {
        return &[];
    }
    let more = items[1..].iter().take_while(|i| is_buffer(i) && i.trivia.before.is_empty()).count();
    &items[..=more]
}

fn buffer_name(item: &Item) -> &str {
    match &item.kind {
        ItemKind::Buffer(buffer) => &buffer.name.text,
        _ => "",
    }
}

fn print_buffer(item: &Item, width: usize, writer: &mut Writer) {
    if let ItemKind::Buffer(buffer) = &item.kind {
        writer.before(&item.trivia.before);
        let text =
            buffer_line(&buffer.name.text, width, buffer.kind.name(), &Shown(&buffer.chunks, Place::Any));
        writer.line(&text, item.trivia.after.as_deref());
    }
}

/// A buffer's line; kinds of buffers below each other stand in one column.
pub(super) fn buffer_line(name: &str, width: usize, kind: &str, chunks: &dyn fmt::Display) -> String {
    let padding = width.saturating_sub(name.len());
    format!("buffer {name}:{:padding$} {kind}[{chunks}]", "")
}

fn print_item(item: &Item, writer: &mut Writer) {
    writer.before(&item.trivia.before);
    let text = match &item.kind {
        ItemKind::Collective(line) => collective_line(*line),
        ItemKind::Chunks(expr) => format!("chunks {}", any(expr)),
        ItemKind::Lanes(expr) => format!("lanes {}", any(expr)),
        ItemKind::Protocol(protocol) => format!("protocol {protocol}"),
        ItemKind::Let(line) => let_line(line),
        ItemKind::Buffer(buffer) => {
            buffer_line(&buffer.name.text, 0, buffer.kind.name(), &any(&buffer.chunks))
        }
        ItemKind::Link(link) => link_item(link),
        ItemKind::Lane(lane) => {
            writer.open(&lane_heading(lane), lane.body.braces.opening.as_deref());
            print_block(&lane.body, writer);
            writer.close(&lane.body.braces.last, None, lane.body.braces.closing.as_deref());
            return;
        }
    };
    writer.line(&text, item.trivia.after.as_deref());
}

/// A `collective` line.
pub(super) fn collective_line(line: CollectiveLine) -> String {
    let op = line.op.map_or_else(String::new, |op| format!("({op})"));
    let order = match line.order {
        Order::Same => "",
        Order::Any => " { order = any }",
    };
    format!("collective {}{op}{order}", line.collective)
}

fn let_line(line: &Let) -> String {
    format!("let {} = {}", line.name.text, any(&line.value))
}

fn link_item(link: &LinkItem) -> String {
    let mut text = format!("link {}", link.name.text);
    push_indices(&link.indices, &mut text);
    text.push_str(&format!(": {} -> {}", any(&link.from), any(&link.to)));
    if !link.clauses.is_empty() {
        text.push(' ');
    }
    push_clauses(&link.clauses, &mut text);
    push_attributes(&link.attributes, &mut text);
    text
}

fn lane_heading(lane: &LaneItem) -> String {
    let mut text =
        format!("lane {}.{}", Shown(&lane.rank, Place::Primary), Shown(&lane.index, Place::Primary));
    push_clauses(&lane.clauses, &mut text);
    text
}

fn push_indices(indices: &[Expr], text: &mut String) {
    if !indices.is_empty() {
        let shown: Vec<String> = indices.iter().map(|e| any(e).to_string()).collect();
        text.push_str(&format!("[{}]", shown.join(", ")));
    }
}

fn push_clauses(clauses: &[Clause], text: &mut String) {
    for clause in clauses {
        match clause {
            Clause::For(range) => text.push_str(&format!(" {}", range_text(range))),
            Clause::If(condition) => text.push_str(&format!(" if {}", any(condition))),
        }
    }
}

fn range_text(range: &Range) -> String {
    format!("for {} in {}..{}", range.name.text, any(&range.start), any(&range.end))
}

/// Attributes at a line's end.
pub(super) fn push_attributes(attributes: &[Attribute], text: &mut String) {
    if !attributes.is_empty() {
        let shown: Vec<String> =
            attributes.iter().map(|a| format!("{} = {}", a.name.text, a.value.text)).collect();
        text.push_str(&format!(" {{ {} }}", shown.join(", ")));
    }
}

fn print_block(block: &Block, writer: &mut Writer) {
    for statement in &block.statements {
        print_statement(statement, writer);
    }
}

fn print_statement(statement: &Statement, writer: &mut Writer) {
    writer.before(&statement.trivia.before);
    let after = statement.trivia.after.as_deref();
    match &statement.kind {
        StatementKind::Let(line) => writer.line(&let_line(line), after),
        StatementKind::For { range, body } => {
            writer.open(&range_text(range), body.braces.opening.as_deref());
            print_block(body, writer);
            writer.close(&body.braces.last, None, body.braces.closing.as_deref());
        }
        StatementKind::If { branches, otherwise } => {
            let headings = branches.iter().map(|b| (format!("if {}", any(&b.condition)), &b.body));
            let mut last: Option<&Block> = None;
            for (heading, body) in headings.chain(otherwise.iter().map(|b| (String::new(), b))) {
                let opening = body.braces.opening.as_deref();
                match last {
                    None => writer.open(&heading, opening),
                    Some(last) => {
                        let next = format!("else {heading}");
                        writer.close(&last.braces.last, Some(next.trim_end()), opening);
                    }
                }
                print_block(body, writer);
                last = Some(body);
            }
            if let Some(last) = last {
                writer.close(&last.braces.last, None, last.braces.closing.as_deref());
            }
        }
        StatementKind::Op { op, attributes } => {
            let mut text = op_line(op);
            push_attributes(attributes, &mut text);
            writer.line(&text, after);
        }
    }
}

fn op_line(op: &OpLine) -> String {
    match op {
        OpLine::Put { src, dst, link } => {
            format!("put    {} -> {} via {}", slice(src), remote(dst), link_text(link))
        }
        OpLine::Get { src, dst, link } => {
            format!("get    {} -> {} via {}", remote(src), slice(dst), link_text(link))
        }
        OpLine::Signal { link } => format!("signal {}", link_text(link)),
        OpLine::Wait { link } => format!("wait   {}", link_text(link)),
        OpLine::Reduce { dst, src } => format!("reduce {} += {}", slice(dst), slice(src)),
        OpLine::Copy { src, dst } => format!("copy   {} -> {}", slice(src), slice(dst)),
    }
}

fn slice(slice: &SliceExpr) -> String {
    format!("{}[{}]", slice.buffer.text, any(&slice.chunk))
}

fn remote(remote: &RemoteSliceExpr) -> String {
    format!("{}.{}", Shown(&remote.rank, Place::Primary), slice(&remote.slice))
}

fn link_text(link: &LinkExpr) -> String {
    let mut text = link.name.text.clone();
    push_indices(&link.indices, &mut text);
    text
}

/// How tightly something must bind to stand in a place without parentheses.
#[derive(Clone, Copy)]
enum Place {
    /// Anything may stand here.
    Any,
    /// An operation of at least this precedence.
    Operand(u8),
    /// The operand of a sign in front of it.
    Unary,
    /// Only a name, a number or a call.
    Primary,
}

/// An expression as it is written in a place.
struct Shown<'e>(&'e Expr, Place);

fn any(expr: &Expr) -> Shown<'_> {
    Shown(expr, Place::Any)
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(expr, place) = self;
        let bare = match (&expr.kind, place) {
            (_, Place::Any) => true,
            (ExprKind::Binary(op, ..), Place::Operand(least)) => op.precedence() >= *least,
            (ExprKind::Binary(..), _) => false,
            (ExprKind::Unary(..), place) => !matches!(place, Place::Primary),
            (ExprKind::Int(value), place) => *value >= 0 || matches!(place, Place::Operand(_)),
            (ExprKind::Name(_) | ExprKind::Call(..), _) => true,
        };
        if !bare {
            f.write_char('(')?;
        }
        match &expr.kind {
            // Its opposite does not fit, so it can only be computed.
            ExprKind::Int(i64::MIN) => write!(f, "(-{} - 1)", i64::MAX)?,
            ExprKind::Int(value) => write!(f, "{value}")?,
            ExprKind::Name(name) => f.write_str(name)?,
            ExprKind::Unary(op, inner) => write!(f, "{}{}", op.symbol(), Shown(inner, Place::Unary))?,
            ExprKind::Binary(op, left, right) => {
                let own = op.precedence();
                let left_place = Place::Operand(if op.compares() { own + 1 } else { own });
                let (left, right) = (Shown(left, left_place), Shown(right, Place::Operand(own + 1)));
                write!(f, "{left} {} {right}", op.symbol())?;
            }
            ExprKind::Call(function, arguments) => {
                write!(f, "{}(", function.name())?;
                for (i, argument) in arguments.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { ", " } else { "" }, any(argument))?;
                }
                f.write_char(')')?;
            }
        }
        if bare { Ok(()) } else { f.write_char(')') }
    }
}
