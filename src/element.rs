//! Element types: which Rust types may stand in a buffer, and under which name the runtime knows them.
//!
//! The trait is sealed: a type that the arithmetic does not know cannot be passed. Buffers become
//! bytes through `bytemuck`, so nothing here is unchecked.

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use ringsmith_ir::types::DataType;
use ringsmith_runtime::reference::format_of;
use std::fmt;

/// A type that buffers can hold: `i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64 F8E4M3 F8E5M2`.
///
/// docs/arithmetic.md says how each is added, rounded and compared.
///
/// ```
/// use ringsmith::{DataType, Element, bf16};
///
/// assert_eq!(bf16::TYPE, DataType::Bfloat16);
/// assert_eq!(<f32 as Element>::TYPE.size_bytes(), 4);
/// ```
pub trait Element: Pod + PartialEq + fmt::Debug + Send + Sync + sealed::Sealed {
    /// The runtime's name for the type.
    const TYPE: DataType;
}

mod sealed {
    /// Keeps other crates from implementing `Element`.
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $name:ident,)*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const TYPE: DataType = DataType::$name;
        }
    )*};
}

elements! {
    i8 => Int8,
    u8 => Uint8,
    i32 => Int32,
    u32 => Uint32,
    i64 => Int64,
    u64 => Uint64,
    f16 => Float16,
    bf16 => Bfloat16,
    f32 => Float32,
    f64 => Float64,
    F8E4M3 => Float8E4M3,
    F8E5M2 => Float8E5M2,
}

/// An 8-bit float with 4 exponent bits and no infinities (OCP E4M3FN); the largest is 448.
///
/// Equality is that of the bits: a NaN equals itself, and 0 differs from -0.
///
/// ```
/// use ringsmith::F8E4M3;
///
/// assert_eq!(F8E4M3::from_f32(1.5).to_f32(), 1.5);
/// assert_eq!(F8E4M3::from_f32(1e9).to_f32(), 448.0); // saturates
/// assert_eq!(F8E4M3::from_f32(1.0 / 3.0).to_f32(), 0.34375); // rounds to nearest, ties to even
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct F8E4M3(u8);

/// An 8-bit float with 5 exponent bits (OCP E5M2); the largest finite one is 57344.
///
/// Equality is that of the bits: a NaN equals itself, and 0 differs from -0.
///
/// ```
/// use ringsmith::F8E5M2;
///
/// assert_eq!(F8E5M2::from_f32(-1.25).to_f32(), -1.25);
/// assert_eq!(F8E5M2::from_f32(1e9).to_f32(), 57344.0); // saturates, also where an infinity exists
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct F8E5M2(u8);

macro_rules! float8 {
    ($($name:ident),*) => {$(
        impl $name {
            /// The number with these bits.
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// The bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The nearest number of this type, as reductions round: ties to even, beyond the range the
            /// largest finite one.
            pub fn from_f32(value: f32) -> Self {
                let format = format_of(Self::TYPE).expect("the 8-bit floats have a format");
                Self(format.encode(f64::from(value)) as u8)
            }

            /// The value; exact.
            pub fn to_f32(self) -> f32 {
                let format = format_of(Self::TYPE).expect("the 8-bit floats have a format");
                format.decode(u32::from(self.0)) as f32
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.to_f32())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.to_f32())
            }
        }
    )*};
}

float8!(F8E4M3, F8E5M2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_agree_with_the_runtime() {
        fn check<T: Element>() {
            assert_eq!(size_of::<T>(), T::TYPE.size_bytes(), "{}", T::TYPE);
        }
        check::<i8>();
        check::<u8>();
        check::<i32>();
        check::<u32>();
        check::<i64>();
        check::<u64>();
        check::<f16>();
        check::<bf16>();
        check::<f32>();
        check::<f64>();
        check::<F8E4M3>();
        check::<F8E5M2>();
    }

    #[test]
    fn every_8_bit_float_reads_back() {
        for bits in 0..=u8::MAX {
            let number = F8E4M3::from_bits(bits);
            if number.to_f32().is_nan() {
                assert_eq!(bits & 0x7f, 0x7f);
            } else {
                assert_eq!(F8E4M3::from_f32(number.to_f32()), number, "{bits:#x}");
            }
            let number = F8E5M2::from_bits(bits);
            // An infinity saturates on its way back.
            if number.to_f32().is_finite() {
                assert_eq!(F8E5M2::from_f32(number.to_f32()), number, "{bits:#x}");
            } else {
                assert!(bits & 0x7f >= 0x7c);
            }
        }
    }
}
