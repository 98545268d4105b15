//! The tree of a program: what its author wrote, before any number of ranks is known.
//!
//! [`crate::text::parse_program`] makes it, [`crate::text::print_program`] prints it, and
//! [`crate::expand`] turns it into a flat schedule. It is plain data: nothing here checks names or
//! sizes, and a tree put together by hand is checked when it is expanded.
//!
//! Comments and blank lines are part of the tree ([`Trivia`]), so that formatting a file keeps them.
//! Parentheses are not: the printer puts them where the tree needs them.

use crate::diagnostic::Span;
use crate::schedule::{BufferKind, Order, Protocol};
use crate::types::{Collective, ReduceOp};

/// A line that the compiler does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriviaLine {
    /// An empty line.
    Blank,
    /// A comment on a line of its own, from `//` on, without white space at its end.
    Comment(String),
}

/// Comments and blank lines around one line of text.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Trivia {
    /// Lines above it.
    pub before: Vec<TriviaLine>,
    /// The comment at its end, from `//` on.
    pub after: Option<String>,
}

impl Trivia {
    /// Whether there is nothing to print.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_none()
    }
}

/// A name and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

impl Name {
    /// A name that no text says.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), span: Span::default() }
    }
}

/// A program: a schedule for any number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name, without the `@`.
    pub name: Name,
    /// Parameters, in order.
    pub parameters: Vec<Parameter>,
    /// The lines of its body, in order.
    pub items: Vec<Item>,
    /// Lines above `program`.
    pub before: Vec<TriviaLine>,
    /// Comments around the braces.
    pub braces: Braces,
    /// Lines below the closing `}`.
    pub footer: Vec<TriviaLine>,
    /// From `program` to the closing `}`.
    pub span: Span,
}

impl Program {
    /// What it computes, unless it lacks the line that says so.
    pub fn collective(&self) -> Option<CollectiveLine> {
        self.items.iter().find_map(|item| match item.kind {
            ItemKind::Collective(line) => Some(line),
            _ => None,
        })
    }
}

/// A parameter of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: Name,
    /// Where its value comes from.
    pub kind: ParameterKind,
    /// The whole parameter.
    pub span: Span,
}

/// Where a parameter's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// The number of ranks. Written `n: ranks`.
    Ranks,
    /// The root of a rooted collective. Written `root: root`.
    Root,
    /// A setting of the caller's. Written `per_node = 8`.
    Integer {
        /// Its value where the caller says nothing.
        default: i64,
    },
}

/// One entry of a program's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it declares.
    pub kind: ItemKind,
    /// Comments around it. Where it ends with a block, the comment at its end is the block's.
    pub trivia: Trivia,
    /// Its text, without comments.
    pub span: Span,
}

/// What an entry of a program's body declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// What the program computes. Written `collective all_reduce(sum) { order = any }`.
    Collective(CollectiveLine),
    /// How many chunks the larger side is cut into. Written `chunks n`.
    Chunks(Expr),
    /// Over how many slices of a chunk each lane is replicated. Written `lanes 16`.
    Lanes(Expr),
    /// How messages travel. Written `protocol ll128`.
    Protocol(Protocol),
    /// A name for a value.
    Let(Let),
    /// A buffer.
    Buffer(BufferItem),
    /// A link or a family of links.
    Link(LinkItem),
    /// A lane or a family of lanes.
    Lane(LaneItem),
}

/// What a program computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveLine {
    /// The collective.
    pub collective: Collective,
    /// The operation it is written for; none means any.
    pub op: Option<ReduceOp>,
    /// Whether ranks may reduce in different orders.
    pub order: Order,
}

/// A name for a value. Written `let next = (r + 1) % n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Let {
    /// The name; it may not be in use already.
    pub name: Name,
    /// The value.
    pub value: Expr,
}

/// A buffer. Written `buffer inbox: scratch[n - 1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferItem {
    /// Its name.
    pub name: Name,
    /// What it is to the caller.
    pub kind: BufferKind,
    /// How many chunks it holds on every rank.
    pub chunks: Expr,
}

/// A link or a family of links. Written `link fwd[r]: r -> (r + 1) % n  for r in 0..n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkItem {
    /// The family's name.
    pub name: Name,
    /// What tells its members apart; empty for a single link.
    pub indices: Vec<Expr>,
    /// The rank that puts and signals.
    pub from: Expr,
    /// The rank that waits.
    pub to: Expr,
    /// Which members there are.
    pub clauses: Vec<Clause>,
    /// Attributes at the line's end.
    pub attributes: Vec<Attribute>,
}

/// A lane or a family of lanes. Written `lane r.0 for r in 0..n { … }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneItem {
    /// The rank that runs it.
    pub rank: Expr,
    /// Its number within the rank.
    pub index: Expr,
    /// Which members there are.
    pub clauses: Vec<Clause>,
    /// What it does.
    pub body: Block,
}

/// A part of the description of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clause {
    /// One member for each value. Written `for r in 0..n`.
    For(Range),
    /// Only members for which this holds. Written `if s != d`.
    If(Expr),
}

/// A name that takes every value from `start` up to, not including, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The name; it may not be in use already.
    pub name: Name,
    /// The first value.
    pub start: Expr,
    /// One past the last value. The range is empty if this is not above `start`.
    pub end: Expr,
}

/// A hint at a line's end, which may change the cost and never the meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// What it is about.
    pub name: Name,
    /// Its value: a word.
    pub value: Name,
}

/// The lines between `{` and `}`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Block {
    /// Its statements, in order.
    pub statements: Vec<Statement>,
    /// Comments around the braces.
    pub braces: Braces,
}

/// What the compiler does not read around a pair of braces.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Braces {
    /// The comment after the `{`.
    pub opening: Option<String>,
    /// Lines above the `}`.
    pub last: Vec<TriviaLine>,
    /// The comment after the `}`. Where `else` follows, there is none.
    pub closing: Option<String>,
}

/// One line of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What it does.
    pub kind: StatementKind,
    /// Comments around it. Where it ends with a block, the comment at its end is the block's.
    pub trivia: Trivia,
    /// Its text, without comments.
    pub span: Span,
}

/// What a line of a lane does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Name a value.
    Let(Let),
    /// Repeat a block.
    For {
        /// Over which values.
        range: Range,
        /// What is repeated.
        body: Block,
    },
    /// Choose a block.
    If {
        /// `if` and every `else if`, at least one.
        branches: Vec<Branch>,
        /// What is done if no condition holds.
        otherwise: Option<Block>,
    },
    /// Do something.
    Op {
        /// What.
        op: OpLine,
        /// Attributes at the line's end.
        attributes: Vec<Attribute>,
    },
}

/// `if CONDITION { … }` or `else if CONDITION { … }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Chosen if not 0.
    pub condition: Expr,
    /// What is done.
    pub body: Block,
}

/// An op, with expressions for its numbers. See [`crate::schedule::OpKind`] for what each does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpLine {
    /// `put data[k] -> next.inbox[k] via fwd[r]`.
    Put {
        /// Local source.
        src: SliceExpr,
        /// Destination in a peer's memory.
        dst: RemoteSliceExpr,
        /// The link whose next signal publishes it.
        link: LinkExpr,
    },
    /// `get next.inbox[0] -> data[1] via fwd[prev]`.
    Get {
        /// Source in a peer's memory.
        src: RemoteSliceExpr,
        /// Local destination.
        dst: SliceExpr,
        /// The link whose last awaited signal published it.
        link: LinkExpr,
    },
    /// `signal fwd[r]`.
    Signal {
        /// The link.
        link: LinkExpr,
    },
    /// `wait fwd[prev]`.
    Wait {
        /// The link.
        link: LinkExpr,
    },
    /// `reduce data[k] += inbox[k]`.
    Reduce {
        /// Accumulator.
        dst: SliceExpr,
        /// The other operand.
        src: SliceExpr,
    },
    /// `copy data[0] -> acc[0]`.
    Copy {
        /// Source.
        src: SliceExpr,
        /// Destination.
        dst: SliceExpr,
    },
}

/// A chunk of a buffer. Written `data[k]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceExpr {
    /// The buffer.
    pub buffer: Name,
    /// The chunk.
    pub chunk: Expr,
    /// The whole of it.
    pub span: Span,
}

/// A chunk of a buffer of another rank. Written `next.inbox[k]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSliceExpr {
    /// Whose memory.
    pub rank: Expr,
    /// Which chunk.
    pub slice: SliceExpr,
}

/// A link. Written `up` or `mesh[s, d]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkExpr {
    /// The family.
    pub name: Name,
    /// Which member; empty for a single link.
    pub indices: Vec<Expr>,
    /// The whole of it.
    pub span: Span,
}

/// An expression over 64-bit integers. Truth is 1, falsehood 0; any value but 0 counts as true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    /// What it computes.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
}

impl Expr {
    /// An integer that no text says.
    pub fn int(value: i64) -> Self {
        Self { kind: ExprKind::Int(value), span: Span::default() }
    }

    /// A name that no text says.
    pub fn name(name: impl Into<String>) -> Self {
        Self { kind: ExprKind::Name(name.into()), span: Span::default() }
    }

    /// An operation on two values that no text says.
    pub fn binary(op: BinaryOp, left: Self, right: Self) -> Self {
        Self { kind: ExprKind::Binary(op, Box::new(left), Box::new(right)), span: Span::default() }
    }
}

/// What an expression computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprKind {
    /// A number. In text never negative: `-1` is an operation on 1.
    Int(i64),
    /// A parameter, a `let`, or the name of a range.
    Name(String),
    /// An operation on one value.
    Unary(UnaryOp, Box<Expr>),
    /// An operation on two values.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// A function's value.
    Call(Function, Vec<Expr>),
}

/// An operation on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `-a`.
    Negate,
    /// `!a`: 1 if a is 0, else 0.
    Not,
}

impl UnaryOp {
    /// The spelling.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Negate => "-",
            Self::Not => "!",
        }
    }
}

/// An operation on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `a + b`.
    Add,
    /// `a - b`.
    Subtract,
    /// `a * b`.
    Multiply,
    /// `a / b`, rounded towards minus infinity.
    Divide,
    /// `a % b`, never negative.
    Remainder,
    /// `a << b`; losing a bit is an error.
    ShiftLeft,
    /// `a >> b`.
    ShiftRight,
    /// `a & b`.
    And,
    /// `a ^ b`.
    Xor,
    /// `a | b`.
    Or,
    /// `a == b`.
    Equal,
    /// `a != b`.
    NotEqual,
    /// `a < b`.
    Less,
    /// `a <= b`.
    LessOrEqual,
    /// `a > b`.
    Greater,
    /// `a >= b`.
    GreaterOrEqual,
    /// `a && b`; b is not evaluated if a is 0.
    Both,
    /// `a || b`; b is not evaluated if a is not 0.
    Either,
}

impl BinaryOp {
    /// Every operation, from the tightest to the loosest.
    pub const ALL: [Self; 18] = [
        Self::Multiply,
        Self::Divide,
        Self::Remainder,
        Self::Add,
        Self::Subtract,
        Self::ShiftLeft,
        Self::ShiftRight,
        Self::And,
        Self::Xor,
        Self::Or,
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::LessOrEqual,
        Self::Greater,
        Self::GreaterOrEqual,
        Self::Both,
        Self::Either,
    ];

    /// The spelling.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::And => "&",
            Self::Xor => "^",
            Self::Or => "|",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Both => "&&",
            Self::Either => "||",
        }
    }

    /// How tightly it binds: more is tighter. As in Rust.
    pub const fn precedence(self) -> u8 {
        match self {
            Self::Multiply | Self::Divide | Self::Remainder => 8,
            Self::Add | Self::Subtract => 7,
            Self::ShiftLeft | Self::ShiftRight => 6,
            Self::And => 5,
            Self::Xor => 4,
            Self::Or => 3,
            Self::Equal
            | Self::NotEqual
            | Self::Less
            | Self::LessOrEqual
            | Self::Greater
            | Self::GreaterOrEqual => 2,
            Self::Both => 1,
            Self::Either => 0,
        }
    }

    /// Whether it compares: `a < b < c` is refused.
    pub const fn compares(self) -> bool {
        self.precedence() == 2
    }
}

/// A function of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `min(a, b)`.
    Min,
    /// `max(a, b)`.
    Max,
    /// `log2(x)`, rounded down.
    Log2,
    /// `ceil_log2(x)`: the logarithm rounded up.
    CeilLog2,
    /// `pow2(x)`.
    Pow2,
    /// `select(c, a, b)`: a if c is not 0, else b. Only the chosen one is evaluated.
    Select,
}

impl Function {
    /// Every function.
    pub const ALL: [Self; 6] = [Self::Min, Self::Max, Self::Log2, Self::CeilLog2, Self::Pow2, Self::Select];

    /// The spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Log2 => "log2",
            Self::CeilLog2 => "ceil_log2",
            Self::Pow2 => "pow2",
            Self::Select => "select",
        }
    }

    /// How many arguments it takes.
    pub const fn arity(self) -> usize {
        match self {
            Self::Log2 | Self::CeilLog2 | Self::Pow2 => 1,
            Self::Min | Self::Max => 2,
            Self::Select => 3,
        }
    }
}
