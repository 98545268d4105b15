//! Reads expressions, by precedence.

use super::codes;
use super::lexer::Kind;
use super::parser::{Parse, Parser, listed};
use super::suggest::nearest;
use crate::diagnostic::{Diagnostic, Span};
use crate::program::{BinaryOp, Expr, ExprKind, Function, UnaryOp};

/// How deep the tree of an expression may be; later passes walk it on the stack.
pub const MAX_EXPR_DEPTH: u32 = 128;

/// How deep the reader may go: each node of a tree may stand in parentheses of its own.
const MAX_READER_DEPTH: u32 = 2 * MAX_EXPR_DEPTH + 16;

/// Where an expression is being read.
#[derive(Clone, Copy)]
struct Context<'c> {
    /// How many calls of the reader are open.
    depth: u32,
    /// Whether brackets are open, so that line ends mean nothing.
    bracketed: bool,
    /// What the expression follows, for messages.
    after: &'c str,
}

/// An expression and the depth of its tree.
type Sized = (Expr, u32);

impl Parser<'_> {
    /// Reads an expression that follows `after`.
    pub(crate) fn expr(&mut self, after: &str) -> Parse<Expr> {
        self.binary(0, Context { depth: 0, bracketed: false, after }).map(|(e, _)| e)
    }

    /// Reads a number, a name, a call, or an expression in parentheses.
    pub(crate) fn primary_expr(&mut self, after: &str) -> Parse<Expr> {
        self.primary(Context { depth: 0, bracketed: false, after }).map(|(e, _)| e)
    }

    /// Reads what stands between `[` and `]`, the former being next.
    pub(crate) fn bracketed_exprs(&mut self) -> Parse<Vec<Expr>> {
        self.advance();
        let context = Context { depth: 0, bracketed: true, after: "`[`" };
        Ok(self.list("]", context)?.0)
    }

    /// Reads an expression whose operations bind at least as tightly as `minimum`.
    fn binary(&mut self, minimum: u8, context: Context<'_>) -> Parse<Sized> {
        let context = self.deeper(context)?;
        let (mut left, mut height) = self.unary(context)?;
        let mut compared = false;
        while let Some(op) = self.operator(context).filter(|op| op.precedence() >= minimum) {
            if op.compares() && compared {
                return Err(self.chained(&left));
            }
            compared = op.compares();
            self.advance();
            let after = Context { after: op.symbol(), ..context };
            let (right, right_height) = self.binary(op.precedence() + 1, after)?;
            height = self.bounded(height.max(right_height) + 1, left.span)?;
            let span = Span { start: left.span.start, end: self.end };
            left = Expr { kind: ExprKind::Binary(op, Box::new(left), Box::new(right)), span };
        }
        Ok((left, height))
    }

    fn operator(&self, context: Context<'_>) -> Option<BinaryOp> {
        match self.token.kind {
            Kind::Sign(sign) if context.bracketed || !self.token.first => {
                BinaryOp::ALL.into_iter().find(|op| op.symbol() == sign)
            }
            _ => None,
        }
    }

    fn unary(&mut self, context: Context<'_>) -> Parse<Sized> {
        let op = match self.token.kind {
            Kind::Sign("-") => UnaryOp::Negate,
            Kind::Sign("!") => UnaryOp::Not,
            _ => return self.primary(context),
        };
        let start = self.advance().span.start;
        let context = Context { after: op.symbol(), ..self.deeper(context)? };
        let (inner, height) = self.unary(context)?;
        let height = self.bounded(height + 1, inner.span)?;
        Ok((Expr { kind: ExprKind::Unary(op, Box::new(inner)), span: self.span_from(start) }, height))
    }

    fn primary(&mut self, context: Context<'_>) -> Parse<Sized> {
        let span = self.token.span;
        if self.token.first && !context.bracketed && self.end > 0 {
            return Err(self.expected("an expression", context.after));
        }
        match self.token.kind {
            Kind::Int(value) => {
                self.advance();
                Ok((Expr { kind: ExprKind::Int(value), span }, 1))
            }
            Kind::Sign("(") => {
                self.advance();
                let inner = Context { bracketed: true, after: "`(`", ..context };
                let (mut expr, height) = self.binary(0, inner)?;
                self.expect(")", "the expression")?;
                expr.span = self.span_from(span.start);
                Ok((expr, height))
            }
            Kind::Name if self.at_name() => {
                self.advance();
                if self.at("(") && !self.token.first {
                    return self.call(span, context);
                }
                Ok((Expr { kind: ExprKind::Name(self.text(span).to_owned()), span }, 1))
            }
            _ => Err(self.expected("an expression", context.after)),
        }
    }

    fn call(&mut self, name: Span, context: Context<'_>) -> Parse<Sized> {
        let text = self.text(name);
        let function = Function::ALL.into_iter().find(|f| f.name() == text);
        self.advance();
        let inner = Context { bracketed: true, after: "`(`", ..self.deeper(context)? };
        let (arguments, height) = self.list(")", inner)?;
        let Some(function) = function else {
            let names: Vec<&str> = Function::ALL.into_iter().map(Function::name).collect();
            let help = match nearest(text, names.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("there are {}", listed(&names)),
            };
            let message = format!("there is no function `{text}`");
            let diagnostic = Diagnostic::new(codes::UNKNOWN_FUNCTION, message, name, "unknown function");
            return Err(self.report(diagnostic.help(help)));
        };
        if arguments.len() != function.arity() {
            let (takes, given) = (function.arity(), arguments.len());
            let message = format!("`{text}` takes {takes} argument{}, not {given}", plural(takes));
            let span = self.span_from(name.start);
            let label = format!("{given} argument{} here", plural(given));
            return Err(self.report(Diagnostic::new(codes::ARITY, message, span, label)));
        }
        let height = self.bounded(height + 1, name)?;
        let span = self.span_from(name.start);
        Ok((Expr { kind: ExprKind::Call(function, arguments), span }, height))
    }

    /// Reads expressions separated by commas up to `close`, and the depth of the deepest.
    fn list(&mut self, close: &str, context: Context<'_>) -> Parse<(Vec<Expr>, u32)> {
        let (mut exprs, mut height) = (Vec::new(), 0);
        loop {
            let (expr, h) = self.binary(0, context)?;
            height = height.max(h);
            exprs.push(expr);
            if !self.eat(",") {
                break;
            }
        }
        self.expect(close, "the expression")?;
        Ok((exprs, height))
    }

    fn deeper<'c>(&mut self, context: Context<'c>) -> Parse<Context<'c>> {
        if context.depth >= MAX_READER_DEPTH {
            return Err(self.too_deep(self.token.span));
        }
        Ok(Context { depth: context.depth + 1, ..context })
    }

    fn bounded(&mut self, height: u32, span: Span) -> Parse<u32> {
        if height > MAX_EXPR_DEPTH { Err(self.too_deep(span)) } else { Ok(height) }
    }

    fn too_deep(&mut self, span: Span) -> super::parser::Failed {
        self.report(
            Diagnostic::new(
                codes::DEPTH,
                format!("this expression is nested more than {MAX_EXPR_DEPTH} deep"),
                span,
                "too deep here",
            )
            .help("name parts of it with `let`"),
        )
    }

    fn chained(&mut self, left: &Expr) -> super::parser::Failed {
        let span = self.token.span;
        self.report(
            Diagnostic::new(
                codes::CHAINED,
                "a comparison cannot be compared further",
                span,
                "the second comparison",
            )
            .label(left.span, "the first")
            .help("join two comparisons with `&&`, or put one in parentheses"),
        )
    }
}

pub(crate) fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
