//! The scalar of a pre-multiplied sum: a value of the element type.

use super::narrow::{Brain, E4M3, E5M2, Format, Half};
use ringsmith_ir::types::DataType;
use std::fmt;

/// A value that is no scalar of the type.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarError {
    /// The value asked for.
    pub value: f64,
    /// The element type.
    pub dtype: DataType,
}

impl fmt::Display for ScalarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no {}: give a whole number within the type's range", self.value, self.dtype)
    }
}

impl std::error::Error for ScalarError {}

/// What a pre-multiplied sum multiplies inputs by: an element of the type, or of the accumulation
/// type for floats of at most 16 bits, which multiply in 32 bits anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// Bits of the accumulation type, in the low bytes.
    bits: u64,
}

impl Scalar {
    /// One, which changes nothing.
    pub fn one(dtype: DataType) -> Self {
        Self {
            bits: match dtype {
                DataType::Int8
                | DataType::Uint8
                | DataType::Int32
                | DataType::Uint32
                | DataType::Int64
                | DataType::Uint64 => 1,
                DataType::Float64 => 1f64.to_bits(),
                DataType::Float16
                | DataType::Float32
                | DataType::Bfloat16
                | DataType::Float8E4M3
                | DataType::Float8E5M2 => u64::from(1f32.to_bits()),
            },
        }
    }

    /// The scalar whose element, in the low bytes and native order, is `bits`: what an NCCL program
    /// passes by pointer. Higher bits are ignored.
    pub fn from_element_bits(dtype: DataType, bits: u64) -> Self {
        let decoded = |value: f32| u64::from(value.to_bits());
        Self {
            bits: match dtype {
                DataType::Int8
                | DataType::Uint8
                | DataType::Int32
                | DataType::Uint32
                | DataType::Int64
                | DataType::Uint64
                | DataType::Float32
                | DataType::Float64 => bits,
                DataType::Float16 => decoded(Half::decode(bits as u32 & 0xffff)),
                DataType::Bfloat16 => decoded(Brain::decode(bits as u32 & 0xffff)),
                DataType::Float8E4M3 => decoded(E4M3::decode(bits as u32 & 0xff)),
                DataType::Float8E5M2 => decoded(E5M2::decode(bits as u32 & 0xff)),
            },
        }
    }

    /// The scalar nearest to `value`, rounded to the element type, so that it is the one that a
    /// caller who can only pass an element gets. Floats of at most 16 bits round through 32 bits.
    ///
    /// Errors: an integer type and a value that is not whole or out of range.
    pub fn from_f64(dtype: DataType, value: f64) -> Result<Self, ScalarError> {
        // 2^64 and 2^63 as floats are exact; the largest integers are not, hence `<`.
        let whole = |low: f64, end: f64| {
            if value.fract() == 0.0 && value >= low && value < end {
                // Wraps negative values into two's complement.
                Ok(if value < 0.0 { value as i64 as u64 } else { value as u64 })
            } else {
                Err(ScalarError { value, dtype })
            }
        };
        let two = 2f64;
        let bits = match dtype {
            DataType::Int8 => whole(-two.powi(7), two.powi(7))?,
            DataType::Uint8 => whole(0.0, two.powi(8))?,
            DataType::Int32 => whole(-two.powi(31), two.powi(31))?,
            DataType::Uint32 => whole(0.0, two.powi(32))?,
            DataType::Int64 => whole(-two.powi(63), two.powi(63))?,
            DataType::Uint64 => whole(0.0, two.powi(64))?,
            DataType::Float64 => value.to_bits(),
            DataType::Float32 => u64::from((value as f32).to_bits()),
            DataType::Float16 => u64::from(Half::encode(value as f32)),
            DataType::Bfloat16 => u64::from(Brain::encode(value as f32)),
            DataType::Float8E4M3 => u64::from(E4M3::encode(value as f32)),
            DataType::Float8E5M2 => u64::from(E5M2::encode(value as f32)),
        };
        Ok(Self::from_element_bits(dtype, bits))
    }

    /// Bits of the accumulation type.
    pub fn acc_bits(self) -> u64 {
        self.bits
    }
}
