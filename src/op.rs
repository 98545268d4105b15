//! Reduction operations as callers write them.

use ringsmith_ir::types::ReduceOp;
use std::fmt;

/// How values of several ranks become one.
///
/// Every rank gives the same operation. docs/arithmetic.md says what is rounded, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Prod,
    /// Maximum; a NaN wins over every number.
    Max,
    /// Minimum; a NaN wins over every number.
    Min,
    /// The sum, divided once by the number of ranks. Integers truncate towards zero, and their sum
    /// wraps first.
    Avg,
    /// Every rank's values times its own factor, then the sum. The factor is rounded to the element
    /// type; for integers it must be whole and in range. Ranks may give different factors.
    PremulSum(f64),
}

impl Op {
    /// The operation and the factor as the runtime takes them.
    pub(crate) fn parts(self) -> (ReduceOp, f64) {
        match self {
            Self::Sum => (ReduceOp::Sum, 1.0),
            Self::Prod => (ReduceOp::Prod, 1.0),
            Self::Max => (ReduceOp::Max, 1.0),
            Self::Min => (ReduceOp::Min, 1.0),
            Self::Avg => (ReduceOp::Avg, 1.0),
            Self::PremulSum(factor) => (ReduceOp::PremulSum, factor),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.parts().0.name())
    }
}
