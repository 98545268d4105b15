//! Arithmetic: checked 64-bit integers.

use super::resolve::{Node, Nodes, Value};
use crate::diagnostic::Span;
use crate::program::{BinaryOp, Function, UnaryOp};

/// Arithmetic without a result: where, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mistake {
    pub(super) span: Span,
    pub(super) why: Why,
}

/// Why there is no result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Why {
    Binary(BinaryOp, i64, i64),
    Negate(i64),
    Call(Function, i64),
}

impl Why {
    /// What was computed.
    pub(super) fn computed(self) -> String {
        match self {
            Self::Binary(op, a, b) => format!("{a} {} {b}", op.symbol()),
            Self::Negate(a) => format!("-({a})"),
            Self::Call(function, a) => format!("{}({a})", function.name()),
        }
    }

    /// Why it has no result.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Binary(BinaryOp::Divide | BinaryOp::Remainder, _, 0) => "division by zero",
            Self::Binary(BinaryOp::ShiftLeft | BinaryOp::ShiftRight, _, b) if b < 0 => {
                "a shift by a negative number"
            }
            Self::Call(Function::Log2 | Function::CeilLog2, _) => "only numbers above 0 have a logarithm",
            Self::Call(Function::Pow2, x) if x < 0 => "the result is not a whole number",
            Self::Binary(..) | Self::Negate(_) | Self::Call(..) => "the result does not fit 64 bits",
        }
    }
}

impl Nodes {
    /// The value of an expression.
    pub(super) fn evaluate(&self, value: Value, slots: &[i64]) -> Result<i64, Mistake> {
        self.node(value.last, slots)
    }

    fn node(&self, index: u32, slots: &[i64]) -> Result<i64, Mistake> {
        let fail = |why| Mistake { span: self.spans[index as usize], why };
        match self.nodes[index as usize] {
            Node::Int(value) => Ok(value),
            Node::Slot(slot) => Ok(slots[slot as usize]),
            Node::Unary(UnaryOp::Not, a) => Ok(i64::from(self.node(a, slots)? == 0)),
            Node::Unary(UnaryOp::Negate, a) => {
                let a = self.node(a, slots)?;
                a.checked_neg().ok_or_else(|| fail(Why::Negate(a)))
            }
            Node::Binary(BinaryOp::Both, a, b) => {
                Ok(i64::from(self.node(a, slots)? != 0 && self.node(b, slots)? != 0))
            }
            Node::Binary(BinaryOp::Either, a, b) => {
                Ok(i64::from(self.node(a, slots)? != 0 || self.node(b, slots)? != 0))
            }
            Node::Binary(op, a, b) => {
                let (a, b) = (self.node(a, slots)?, self.node(b, slots)?);
                binary(op, a, b).ok_or_else(|| fail(Why::Binary(op, a, b)))
            }
            Node::Call(Function::Select, [c, a, b]) => {
                self.node(if self.node(c, slots)? != 0 { a } else { b }, slots)
            }
            Node::Call(Function::Min, [a, b, _]) => Ok(self.node(a, slots)?.min(self.node(b, slots)?)),
            Node::Call(Function::Max, [a, b, _]) => Ok(self.node(a, slots)?.max(self.node(b, slots)?)),
            Node::Call(function, [a, ..]) => {
                let a = self.node(a, slots)?;
                logarithm(function, a).ok_or_else(|| fail(Why::Call(function, a)))
            }
        }
    }
}

fn binary(op: BinaryOp, a: i64, b: i64) -> Option<i64> {
    Some(match op {
        BinaryOp::Add => a.checked_add(b)?,
        BinaryOp::Subtract => a.checked_sub(b)?,
        BinaryOp::Multiply => a.checked_mul(b)?,
        BinaryOp::Divide => {
            let quotient = a.checked_div(b)?;
            if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
        }
        BinaryOp::Remainder => a.checked_rem_euclid(b).or((b == -1).then_some(0))?,
        BinaryOp::ShiftLeft => {
            let shifted = a.checked_shl(u32::try_from(b).ok()?).unwrap_or(0);
            let back = shifted.checked_shr(b as u32).unwrap_or(0);
            if back == a { shifted } else { return None }
        }
        BinaryOp::ShiftRight => a >> u32::try_from(b.min(63)).ok()?,
        BinaryOp::And => a & b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Or => a | b,
        BinaryOp::Equal => i64::from(a == b),
        BinaryOp::NotEqual => i64::from(a != b),
        BinaryOp::Less => i64::from(a < b),
        BinaryOp::LessOrEqual => i64::from(a <= b),
        BinaryOp::Greater => i64::from(a > b),
        BinaryOp::GreaterOrEqual => i64::from(a >= b),
        BinaryOp::Both => i64::from(a != 0 && b != 0),
        BinaryOp::Either => i64::from(a != 0 || b != 0),
    })
}

fn logarithm(function: Function, x: i64) -> Option<i64> {
    match function {
        Function::Log2 => x.checked_ilog2().map(i64::from),
        Function::CeilLog2 if x == 1 => Some(0),
        Function::CeilLog2 => (x > 0).then(|| i64::from((x - 1).ilog2()) + 1),
        Function::Pow2 => (0..63).contains(&x).then(|| 1 << x),
        Function::Min | Function::Max | Function::Select => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{binary, logarithm};
    use crate::program::{BinaryOp, Function};

    #[test]
    fn division_rounds_down_and_remainders_are_not_negative() {
        for a in -7..=7 {
            for b in (-3..=3).filter(|b| *b != 0) {
                let quotient = binary(BinaryOp::Divide, a, b).unwrap();
                let remainder = binary(BinaryOp::Remainder, a, b).unwrap();
                assert_eq!(quotient, (a as f64 / b as f64).floor() as i64, "{a} / {b}");
                assert!((0..b.abs()).contains(&remainder), "{a} % {b} = {remainder}");
                assert_eq!((a - remainder) % b, 0, "{a} % {b} = {remainder}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_has_no_value() {
        for (op, a, b) in [
            (BinaryOp::Add, i64::MAX, 1),
            (BinaryOp::Subtract, i64::MIN, 1),
            (BinaryOp::Multiply, i64::MAX, 2),
            (BinaryOp::Divide, 1, 0),
            (BinaryOp::Divide, i64::MIN, -1),
            (BinaryOp::Remainder, 1, 0),
            (BinaryOp::ShiftLeft, 1, 63),
            (BinaryOp::ShiftLeft, 1, -1),
            (BinaryOp::ShiftLeft, 1, 64),
            (BinaryOp::ShiftLeft, 1, i64::MAX),
            (BinaryOp::ShiftRight, 1, -1),
        ] {
            assert_eq!(binary(op, a, b), None, "{a} {} {b}", op.symbol());
        }
        assert_eq!(binary(BinaryOp::Remainder, i64::MIN, -1), Some(0));
        assert_eq!(binary(BinaryOp::ShiftLeft, -1, 63), Some(i64::MIN));
        assert_eq!(binary(BinaryOp::ShiftLeft, 0, i64::from(u32::MAX)), Some(0));
        assert_eq!(binary(BinaryOp::ShiftRight, -8, 1), Some(-4));
        assert_eq!(binary(BinaryOp::ShiftRight, 8, i64::MAX), Some(0));
    }

    #[test]
    fn logarithms() {
        for x in 1..=70i64 {
            let floor = (0..).take_while(|k| 1i64 << k <= x).last().unwrap();
            let ceil = (0..).find(|k| 1i64 << k >= x).unwrap();
            assert_eq!(logarithm(Function::Log2, x), Some(floor), "{x}");
            assert_eq!(logarithm(Function::CeilLog2, x), Some(ceil), "{x}");
        }
        for x in [0, -1, i64::MIN] {
            assert_eq!(logarithm(Function::Log2, x), None);
            assert_eq!(logarithm(Function::CeilLog2, x), None);
        }
        assert_eq!(logarithm(Function::CeilLog2, i64::MAX), Some(63));
        assert_eq!(logarithm(Function::Pow2, 62), Some(1 << 62));
        assert_eq!(logarithm(Function::Pow2, 63), None);
        assert_eq!(logarithm(Function::Pow2, -1), None);
    }
}
