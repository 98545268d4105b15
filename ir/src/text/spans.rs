//! Forgets places, so that texts laid out differently can be compared by what they say.

use crate::diagnostic::Span;
use crate::program::{
    Attribute, Block, Clause, Expr, ExprKind, Item, ItemKind, Let, LinkExpr, Name, OpLine, Program, Range,
    RemoteSliceExpr, SliceExpr, Statement, StatementKind,
};
use crate::schedule::Schedule;

/// The same schedule, as if no text said it.
#[must_use]
pub fn schedule_without_spans(mut schedule: Schedule) -> Schedule {
    schedule.buffers.values_mut().for_each(|b| b.span = Span::default());
    schedule.links.values_mut().for_each(|l| l.span = Span::default());
    for lane in schedule.lanes.values_mut() {
        lane.span = Span::default();
        lane.ops.iter_mut().for_each(|o| o.span = Span::default());
    }
    schedule
}

/// The same program, as if no text said it.
#[must_use]
pub fn program_without_spans(mut program: Program) -> Program {
    program.span = Span::default();
    name(&mut program.name);
    for parameter in &mut program.parameters {
        parameter.span = Span::default();
        name(&mut parameter.name);
    }
    program.items.iter_mut().for_each(item);
    program
}

fn name(name: &mut Name) {
    name.span = Span::default();
}

fn item(item: &mut Item) {
    item.span = Span::default();
    match &mut item.kind {
        ItemKind::Collective(_) | ItemKind::Protocol(_) => {}
        ItemKind::Chunks(e) | ItemKind::Lanes(e) => expr(e),
        ItemKind::Let(line) => let_line(line),
        ItemKind::Buffer(buffer) => {
            name(&mut buffer.name);
            expr(&mut buffer.chunks);
        }
        ItemKind::Link(link) => {
            name(&mut link.name);
            link.indices.iter_mut().for_each(expr);
            expr(&mut link.from);
            expr(&mut link.to);
            link.clauses.iter_mut().for_each(clause);
            link.attributes.iter_mut().for_each(attribute);
        }
        ItemKind::Lane(lane) => {
            expr(&mut lane.rank);
            expr(&mut lane.index);
            lane.clauses.iter_mut().for_each(clause);
            block(&mut lane.body);
        }
    }
}

fn let_line(line: &mut Let) {
    name(&mut line.name);
    expr(&mut line.value);
}

fn clause(clause: &mut Clause) {
    match clause {
        Clause::For(r) => range(r),
        Clause::If(condition) => expr(condition),
    }
}

fn range(range: &mut Range) {
    name(&mut range.name);
    expr(&mut range.start);
    expr(&mut range.end);
}

fn attribute(attribute: &mut Attribute) {
    name(&mut attribute.name);
    name(&mut attribute.value);
}

fn block(block: &mut Block) {
    block.statements.iter_mut().for_each(statement);
}

fn statement(statement: &mut Statement) {
    statement.span = Span::default();
    match &mut statement.kind {
        StatementKind::Let(line) => let_line(line),
        StatementKind::For { range: r, body } => {
            range(r);
            block(body);
        }
        StatementKind::If { branches, otherwise } => {
            for branch in branches {
                expr(&mut branch.condition);
                block(&mut branch.body);
            }
            otherwise.iter_mut().for_each(block);
        }
        StatementKind::Op { op: line, attributes } => {
            op(line);
            attributes.iter_mut().for_each(attribute);
        }
    }
}

fn op(op: &mut OpLine) {
    match op {
        OpLine::Put { src, dst, link: l } => {
            slice(src);
            remote(dst);
            link(l);
        }
        OpLine::Get { src, dst, link: l } => {
            remote(src);
            slice(dst);
            link(l);
        }
        OpLine::Signal { link: l } | OpLine::Wait { link: l } => link(l),
        OpLine::Reduce { dst, src } | OpLine::Copy { src, dst } => {
            slice(src);
            slice(dst);
        }
    }
}

fn remote(remote: &mut RemoteSliceExpr) {
    expr(&mut remote.rank);
    slice(&mut remote.slice);
}

fn slice(slice: &mut SliceExpr) {
    slice.span = Span::default();
    name(&mut slice.buffer);
    expr(&mut slice.chunk);
}

fn link(link: &mut LinkExpr) {
    link.span = Span::default();
    name(&mut link.name);
    link.indices.iter_mut().for_each(expr);
}

fn expr(e: &mut Expr) {
    e.span = Span::default();
    match &mut e.kind {
        ExprKind::Int(_) | ExprKind::Name(_) => {}
        ExprKind::Unary(_, inner) => expr(inner),
        ExprKind::Binary(_, left, right) => {
            expr(left);
            expr(right);
        }
        ExprKind::Call(_, arguments) => arguments.iter_mut().for_each(expr),
    }
}
