//! Names that every stage shares: collectives, element types, reductions.
//!
//! Plain data with one spelling each. The spellings are those of docs/cli.md; common synonyms are
//! accepted when reading and never printed.

use std::fmt;
use std::str::FromStr;

/// What a group of ranks computes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collective {
    /// Every rank ends with the reduction of all inputs.
    AllReduce,
    /// Every rank ends with all inputs, in rank order.
    AllGather,
    /// Rank r ends with block r of the reduction of all inputs.
    ReduceScatter,
    /// Every rank ends with the root's input.
    Broadcast,
    /// The root ends with the reduction of all inputs.
    Reduce,
    /// The root ends with all inputs, in rank order.
    Gather,
    /// Rank r ends with block r of the root's input.
    Scatter,
    /// Rank r ends with block r of every rank's input, in rank order.
    AllToAll,
    /// As `AllToAll`, with a size per pair of ranks.
    AllToAllV,
    /// Messages between pairs of ranks.
    SendRecv,
    /// No rank leaves before every rank has entered.
    Barrier,
}

impl Collective {
    /// Every collective, in the order in which documentation lists them.
    pub const ALL: [Self; 11] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::Gather,
        Self::Scatter,
        Self::AllToAll,
        Self::AllToAllV,
        Self::SendRecv,
        Self::Barrier,
    ];

    /// The spelling in text forms and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::AllToAll => "all_to_all",
            Self::AllToAllV => "all_to_all_v",
            Self::SendRecv => "send_recv",
            Self::Barrier => "barrier",
        }
    }

    /// Whether values are combined, so that a reduction operation is part of the request.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether one rank plays a part of its own.
    pub const fn rooted(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// Whether chunks are grouped by rank: wherever a count is per rank, and where each pair of ranks
    /// has a size of its own.
    pub const fn has_blocks(self) -> bool {
        self.blocked() || matches!(self, Self::AllToAllV)
    }

    /// Whether a rank's input is one block, where the output is the whole.
    pub const fn input_is_block(self) -> bool {
        matches!(self, Self::AllGather | Self::Gather)
    }

    /// Whether a rank's output is one block, where the input is the whole.
    pub const fn output_is_block(self) -> bool {
        matches!(self, Self::ReduceScatter | Self::Scatter)
    }

    /// Whether a count is per rank and the buffers of one side hold one block a rank.
    pub const fn blocked(self) -> bool {
        matches!(self, Self::AllGather | Self::ReduceScatter | Self::Gather | Self::Scatter | Self::AllToAll)
    }
}

/// An element type. Sizes are in bytes and equal the alignment a caller would expect, but buffers
/// may be unaligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataType {
    /// Signed 8-bit integer.
    Int8,
    /// Unsigned 8-bit integer.
    Uint8,
    /// Signed 32-bit integer.
    Int32,
    /// Unsigned 32-bit integer.
    Uint32,
    /// Signed 64-bit integer.
    Int64,
    /// Unsigned 64-bit integer.
    Uint64,
    /// IEEE 754 binary16.
    Float16,
    /// IEEE 754 binary32.
    Float32,
    /// IEEE 754 binary64.
    Float64,
    /// The upper half of a binary32.
    Bfloat16,
    /// OCP 8-bit float, 4 exponent bits, no infinities (E4M3FN).
    Float8E4M3,
    /// OCP 8-bit float, 5 exponent bits, with infinities.
    Float8E5M2,
}

impl DataType {
    /// Every type, in NCCL's order.
    pub const ALL: [Self; 12] = [
        Self::Int8,
        Self::Uint8,
        Self::Int32,
        Self::Uint32,
        Self::Int64,
        Self::Uint64,
        Self::Float16,
        Self::Float32,
        Self::Float64,
        Self::Bfloat16,
        Self::Float8E4M3,
        Self::Float8E5M2,
    ];

    /// The spelling in text forms and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Int32 => "int32",
            Self::Uint32 => "uint32",
            Self::Int64 => "int64",
            Self::Uint64 => "uint64",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Bfloat16 => "bfloat16",
            Self::Float8E4M3 => "float8e4m3",
            Self::Float8E5M2 => "float8e5m2",
        }
    }

    /// Bytes per element.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 | Self::Float8E4M3 | Self::Float8E5M2 => 1,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::Int64 | Self::Uint64 | Self::Float64 => 8,
        }
    }
}

/// How values of several ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Prod,
    /// Maximum; NaN wins.
    Max,
    /// Minimum; NaN wins.
    Min,
    /// Sum divided once by the number of ranks; integers truncate towards zero.
    Avg,
    /// Sum of inputs that are each multiplied by a scalar first.
    PremulSum,
}

impl ReduceOp {
    /// Every operation, in NCCL's order.
    pub const ALL: [Self; 6] = [Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg, Self::PremulSum];

    /// The spelling in text forms and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::Avg => "avg",
            Self::PremulSum => "premulsum",
        }
    }
}

/// A spelling that names nothing of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// What was looked for: `collective`, `type` or `operation`.
    pub kind: &'static str,
    /// The spelling found.
    pub found: String,
    /// Every accepted spelling, comma-separated.
    pub expected: String,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} `{}`; expected one of {}", self.kind, self.found, self.expected)
    }
}

impl std::error::Error for UnknownName {}

fn unknown(kind: &'static str, found: &str, names: impl Iterator<Item = &'static str>) -> UnknownName {
    UnknownName { kind, found: found.to_owned(), expected: names.collect::<Vec<_>>().join(", ") }
}

impl FromStr for Collective {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let canonical = match text {
            "allreduce" => "all_reduce",
            "allgather" => "all_gather",
            "reducescatter" => "reduce_scatter",
            "bcast" => "broadcast",
            "alltoall" => "all_to_all",
            "alltoallv" => "all_to_all_v",
            "sendrecv" => "send_recv",
            other => other,
        };
        Self::ALL
            .into_iter()
            .find(|c| c.name() == canonical)
            .ok_or_else(|| unknown("collective", text, Self::ALL.into_iter().map(Self::name)))
    }
}

impl FromStr for DataType {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let canonical = match text {
            "i8" | "char" => "int8",
            "u8" => "uint8",
            "i32" | "int" => "int32",
            "u32" => "uint32",
            "i64" => "int64",
            "u64" => "uint64",
            "f16" | "half" => "float16",
            "f32" | "float" => "float32",
            "f64" | "double" => "float64",
            "bf16" => "bfloat16",
            "f8e4m3" | "fp8e4m3" | "float8_e4m3" => "float8e4m3",
            "f8e5m2" | "fp8e5m2" | "float8_e5m2" => "float8e5m2",
            other => other,
        };
        Self::ALL
            .into_iter()
            .find(|t| t.name() == canonical)
            .ok_or_else(|| unknown("type", text, Self::ALL.into_iter().map(Self::name)))
    }
}

impl FromStr for ReduceOp {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let canonical = match text {
            "mulsum" | "premul_sum" => "premulsum",
            other => other,
        };
        Self::ALL
            .into_iter()
            .find(|o| o.name() == canonical)
            .ok_or_else(|| unknown("operation", text, Self::ALL.into_iter().map(Self::name)))
    }
}

macro_rules! display_name {
    ($($t:ty),*) => {$(
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    )*};
}
display_name!(Collective, DataType, ReduceOp);
