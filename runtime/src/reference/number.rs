//! Numbers from their definitions: float formats bit by bit, and reductions one element at a time.
//!
//! An element is passed around as its bits, in the low bytes of a `u64`.

use ringsmith_ir::types::{DataType, ReduceOp};

/// A binary float format of at most 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Bits of the exponent field.
    pub exponent_bits: u32,
    /// Bits of the mantissa field.
    pub mantissa_bits: u32,
    /// Whether the largest exponent is that of infinities and NaN, as in IEEE 754. Otherwise it is
    /// an ordinary one, and only the magnitude of all ones is a NaN.
    pub has_infinity: bool,
    /// Whether a value beyond the range becomes the largest finite one instead of infinity.
    pub saturates: bool,
}

/// IEEE 754 binary16.
const FLOAT16: FloatFormat =
    FloatFormat { exponent_bits: 5, mantissa_bits: 10, has_infinity: true, saturates: false };
/// The upper half of a binary32.
const BFLOAT16: FloatFormat =
    FloatFormat { exponent_bits: 8, mantissa_bits: 7, has_infinity: true, saturates: false };
/// IEEE 754 binary32.
const FLOAT32: FloatFormat =
    FloatFormat { exponent_bits: 8, mantissa_bits: 23, has_infinity: true, saturates: false };
/// OCP E4M3.
const FLOAT8_E4M3: FloatFormat =
    FloatFormat { exponent_bits: 4, mantissa_bits: 3, has_infinity: false, saturates: true };
/// OCP E5M2.
const FLOAT8_E5M2: FloatFormat =
    FloatFormat { exponent_bits: 5, mantissa_bits: 2, has_infinity: true, saturates: true };

/// The format of a float type of at most 32 bits.
pub fn format_of(dtype: DataType) -> Option<FloatFormat> {
    match dtype {
        DataType::Float16 => Some(FLOAT16),
        DataType::Float32 => Some(FLOAT32),
        DataType::Bfloat16 => Some(BFLOAT16),
        DataType::Float8E4M3 => Some(FLOAT8_E4M3),
        DataType::Float8E5M2 => Some(FLOAT8_E5M2),
        DataType::Int8
        | DataType::Uint8
        | DataType::Int32
        | DataType::Uint32
        | DataType::Int64
        | DataType::Uint64
        | DataType::Float64 => None,
    }
}

/// 2 to the power of `exponent`, which is that of a normal 64-bit float.
pub(super) fn power_of_two(exponent: i32) -> f64 {
    assert!((-1022..=1023).contains(&exponent), "2^{exponent} must be a normal number");
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

impl FloatFormat {
    /// All bits.
    pub fn bits(self) -> u32 {
        1 + self.exponent_bits + self.mantissa_bits
    }

    /// The exponent of the smallest normal number, and of the subnormal ones.
    pub fn min_exponent(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1))
    }

    /// All bits but the sign. With the sign clear, the NaN that operations give.
    pub fn magnitude_mask(self) -> u32 {
        ((1u64 << (self.bits() - 1)) - 1) as u32
    }

    /// The magnitude of infinity, if there is one.
    pub fn infinity(self) -> Option<u32> {
        self.has_infinity.then(|| ((1 << self.exponent_bits) - 1) << self.mantissa_bits)
    }

    /// The largest finite magnitude.
    pub fn largest(self) -> u32 {
        self.infinity().unwrap_or(self.magnitude_mask()) - 1
    }

    /// Whether `bits` are those of a NaN.
    pub fn is_nan(self, bits: u32) -> bool {
        let magnitude = bits & self.magnitude_mask();
        match self.infinity() {
            Some(infinity) => magnitude > infinity,
            None => magnitude == self.magnitude_mask(),
        }
    }

    /// The value of `bits`; exact.
    pub fn decode(self, bits: u32) -> f64 {
        let magnitude = bits & self.magnitude_mask();
        let sign = if bits == magnitude { 1.0 } else { -1.0 };
        if self.is_nan(bits) {
            return f64::NAN;
        }
        if Some(magnitude) == self.infinity() {
            return sign * f64::INFINITY;
        }
        let field = (magnitude >> self.mantissa_bits) as i32;
        let fraction = magnitude & ((1 << self.mantissa_bits) - 1);
        let (significand, exponent) = match field {
            0 => (fraction, self.min_exponent()),
            _ => (fraction + (1 << self.mantissa_bits), self.min_exponent() + field - 1),
        };
        sign * f64::from(significand) * power_of_two(exponent - self.mantissa_bits as i32)
    }

    /// The bits of the value nearest to `value`; of two equally near ones, that with an even
    /// mantissa.
    pub fn encode(self, value: f64) -> u32 {
        if value.is_nan() {
            return self.magnitude_mask();
        }
        let sign = u32::from(value.is_sign_negative()) << (self.bits() - 1);
        let beyond = if self.saturates { self.largest() } else { self.infinity().unwrap_or(self.largest()) };
        let size = value.abs();
        if size.is_infinite() {
            return sign | beyond;
        }
        // The distance between neighbours near `value` is 2^unit.
        let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(self.min_exponent());
        let unit = exponent - self.mantissa_bits as i32;
        if exponent > 200 {
            return sign | beyond;
        }
        let units = size / power_of_two(unit);
        let (below, rest) = (units.floor(), units - units.floor());
        let up = rest > 0.5 || (rest == 0.5 && below % 2.0 == 1.0);
        let significand = below as u32 + u32::from(up);
        // A significand that rounded up to the next power of two carries into the exponent field.
        let magnitude = (((exponent - self.min_exponent()) as u32) << self.mantissa_bits) + significand;
        sign | if magnitude > self.largest() { beyond } else { magnitude }
    }
}

/// The integer of a type that `value` wraps to.
fn wrap(dtype: DataType, value: i128) -> i128 {
    match dtype {
        DataType::Int8 => i128::from(value as i8),
        DataType::Uint8 => i128::from(value as u8),
        DataType::Int32 => i128::from(value as i32),
        DataType::Uint32 => i128::from(value as u32),
        DataType::Int64 => i128::from(value as i64),
        DataType::Uint64 => i128::from(value as u64),
        DataType::Float16
        | DataType::Float32
        | DataType::Float64
        | DataType::Bfloat16
        | DataType::Float8E4M3
        | DataType::Float8E5M2 => unreachable!("{dtype} is no integer type"),
    }
}

/// Whether a type is an integer type.
pub(super) fn is_integer(dtype: DataType) -> bool {
    dtype != DataType::Float64 && format_of(dtype).is_none()
}

/// The bits of `value` in an integer type.
fn integer_bits(dtype: DataType, value: i128) -> u64 {
    let width = 8 * dtype.size_bytes() as u32;
    (value as u64) & (u64::MAX >> (64 - width))
}

/// The value of an element, for float types and for showing.
pub(super) fn value_of(dtype: DataType, bits: u64) -> f64 {
    match format_of(dtype) {
        Some(format) => format.decode(bits as u32),
        None if dtype == DataType::Float64 => f64::from_bits(bits),
        None => wrap(dtype, i128::from(bits)) as f64,
    }
}

/// The bits of the float nearest to `value`.
pub(super) fn bits_of(dtype: DataType, value: f64) -> u64 {
    match format_of(dtype) {
        Some(format) => u64::from(format.encode(value)),
        None => value.to_bits(),
    }
}

/// Whether an element is a NaN.
pub(super) fn is_nan(dtype: DataType, bits: u64) -> bool {
    match format_of(dtype) {
        Some(format) => format.is_nan(bits as u32),
        None => dtype == DataType::Float64 && f64::from_bits(bits).is_nan(),
    }
}

/// An element for people: its value and its bits.
pub fn show(dtype: DataType, bits: u64) -> String {
    let digits = 2 * dtype.size_bytes();
    if is_integer(dtype) {
        format!("{} (0x{bits:0digits$x})", wrap(dtype, i128::from(bits)))
    } else {
        format!("{} (0x{bits:0digits$x})", value_of(dtype, bits))
    }
}

/// Reduces one element: `terms` in rank order, `ranks` to divide an average by, and the scalar's
/// bits for a pre-multiplied sum.
///
/// Floats of at most 32 bits accumulate in 32 bits, others in their own type; the result is rounded
/// to the type once.
///
/// Panics: if there are no terms, or no ranks.
pub fn reduce(dtype: DataType, op: ReduceOp, ranks: u32, scalar: u64, terms: &[u64]) -> u64 {
    assert!(!terms.is_empty() && ranks > 0, "a reduction has at least one term");
    if let ([only], ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min) = (terms, op) {
        return *only;
    }
    if is_integer(dtype) {
        return reduce_integers(dtype, op, ranks, scalar, terms);
    }
    match op {
        ReduceOp::Max | ReduceOp::Min => pick(dtype, op == ReduceOp::Max, terms),
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Avg | ReduceOp::PremulSum => match format_of(dtype) {
            Some(format) => {
                let decode = |bits: &u64| format.decode(*bits as u32) as f32;
                let scalar = decode(&scalar);
                let mut acc = None;
                for term in terms.iter().map(decode) {
                    let term = if op == ReduceOp::PremulSum { term * scalar } else { term };
                    acc = Some(match acc {
                        None => term,
                        Some(acc) if op == ReduceOp::Prod => acc * term,
                        Some(acc) => acc + term,
                    });
                }
                let acc = acc.expect("there is a term");
                let acc = if op == ReduceOp::Avg { acc / ranks as f32 } else { acc };
                u64::from(format.encode(f64::from(acc)))
            }
            None => {
                let scalar = f64::from_bits(scalar);
                let mut acc = None;
                for term in terms.iter().map(|bits| f64::from_bits(*bits)) {
                    let term = if op == ReduceOp::PremulSum { term * scalar } else { term };
                    acc = Some(match acc {
                        None => term,
                        Some(acc) if op == ReduceOp::Prod => acc * term,
                        Some(acc) => acc + term,
                    });
                }
                let acc = acc.expect("there is a term");
                (if op == ReduceOp::Avg { acc / f64::from(ranks) } else { acc }).to_bits()
            }
        },
    }
}

fn reduce_integers(dtype: DataType, op: ReduceOp, ranks: u32, scalar: u64, terms: &[u64]) -> u64 {
    let value = |bits: u64| wrap(dtype, i128::from(bits));
    let mut acc: Option<i128> = None;
    for term in terms.iter().map(|bits| value(*bits)) {
        let term =
            if op == ReduceOp::PremulSum { wrap(dtype, term.wrapping_mul(value(scalar))) } else { term };
        acc = Some(match (acc, op) {
            (None, _) => term,
            (Some(acc), ReduceOp::Prod) => wrap(dtype, acc.wrapping_mul(term)),
            (Some(acc), ReduceOp::Max) => acc.max(term),
            (Some(acc), ReduceOp::Min) => acc.min(term),
            (Some(acc), ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum) => wrap(dtype, acc + term),
        });
    }
    let acc = acc.expect("there is a term");
    // Division of integers truncates in Rust.
    integer_bits(dtype, if op == ReduceOp::Avg { acc / i128::from(ranks) } else { acc })
}

/// The largest or smallest of two or more floats: NaN if there is any, and -0 below +0.
fn pick(dtype: DataType, max: bool, terms: &[u64]) -> u64 {
    if terms.iter().any(|bits| is_nan(dtype, *bits)) {
        return u64::MAX >> (65 - 8 * dtype.size_bytes() as u32);
    }
    let mut best = terms[0];
    for &term in &terms[1..] {
        let (a, b) = (value_of(dtype, best), value_of(dtype, term));
        let above = b > a || (a == b && a.is_sign_negative() && b.is_sign_positive());
        let below = b < a || (a == b && a.is_sign_positive() && b.is_sign_negative());
        if if max { above } else { below } {
            best = term;
        }
    }
    best
}
