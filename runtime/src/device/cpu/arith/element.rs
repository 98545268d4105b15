//! How an element is read, accumulated and written, per type, and what an operation does to two
//! accumulators.
//!
//! Everything here is a few branchless instructions on one element; the loops are in `body.rs`.

use super::divisor::Divisor;
use super::narrow::Format;
use std::marker::PhantomData;

/// An element in memory and in an accumulator.
pub(super) trait Element: 'static {
    /// The element's bytes: an array, so that slices of it need no alignment.
    type Bytes: Copy;
    /// What sums and products are formed in.
    type Acc: Copy;
    /// Reads an element.
    fn load(bytes: Self::Bytes) -> Self::Acc;
    /// Rounds to the type.
    fn store(acc: Self::Acc) -> Self::Bytes;
}

/// An element that can be scaled and divided.
pub(super) trait Number: Element {
    /// `acc` times a scalar, given as the accumulator's bits in the low bytes of a word.
    fn scale(acc: Self::Acc, scalar_bits: u64) -> Self::Acc;
    /// `acc` divided by the number of ranks; integers truncate towards zero.
    fn divide(acc: Self::Acc, by: &Divisor) -> Self::Acc;
}

/// One step of a reduction.
pub(super) trait Combine<E: Element>: 'static {
    /// `left op right`.
    fn combine(left: E::Acc, right: E::Acc) -> E::Acc;
}

/// Addition; integers wrap.
pub(super) struct Sum;
/// Multiplication; integers wrap.
pub(super) struct Prod;
/// Selection of the larger or smaller key of [`Ordered`] elements and integers.
pub(super) struct Pick<const MAX: bool>;

/// An integer, or a float of 32 or 64 bits: accumulated in its own type.
pub(super) struct Plain<T>(PhantomData<T>);

/// A float of at most 16 bits in `BYTES` bytes: accumulated in 32 bits and rounded at the end.
pub(super) struct Narrow<F, const BYTES: usize>(PhantomData<F>);

macro_rules! plain {
    ($($t:ty),*) => {$(
        impl Element for Plain<$t> {
            type Bytes = [u8; size_of::<$t>()];
            type Acc = $t;
            #[inline(always)]
            fn load(bytes: Self::Bytes) -> $t {
                <$t>::from_ne_bytes(bytes)
            }
            #[inline(always)]
            fn store(acc: $t) -> Self::Bytes {
                acc.to_ne_bytes()
            }
        }
    )*};
}
plain!(i8, u8, i32, u32, i64, u64, f32, f64);

macro_rules! integer {
    ($($t:ty, $magnitude:ty, $divide:ident);*) => {$(
        impl Number for Plain<$t> {
            #[inline(always)]
            fn scale(acc: $t, scalar_bits: u64) -> $t {
                acc.wrapping_mul(scalar_bits as $t)
            }
            #[inline(always)]
            fn divide(acc: $t, by: &Divisor) -> $t {
                // The magnitude of a signed minimum fits the unsigned type.
                let negative = (acc >> (<$t>::BITS - 1)) as $magnitude != 0 && <$t>::MIN != 0;
                let magnitude = if negative { (acc as $magnitude).wrapping_neg() } else { acc as $magnitude };
                let quotient = by.$divide(magnitude);
                (if negative { quotient.wrapping_neg() } else { quotient }) as $t
            }
        }
        impl Combine<Plain<$t>> for Sum {
            #[inline(always)]
            fn combine(left: $t, right: $t) -> $t {
                left.wrapping_add(right)
            }
        }
        impl Combine<Plain<$t>> for Prod {
            #[inline(always)]
            fn combine(left: $t, right: $t) -> $t {
                left.wrapping_mul(right)
            }
        }
        impl<const MAX: bool> Combine<Plain<$t>> for Pick<MAX> {
            #[inline(always)]
            fn combine(left: $t, right: $t) -> $t {
                if MAX { left.max(right) } else { left.min(right) }
            }
        }
    )*};
}
integer!(
    i8, u8, divide_8; u8, u8, divide_8;
    i32, u32, divide_32; u32, u32, divide_32;
    i64, u64, divide_64; u64, u64, divide_64
);

macro_rules! float {
    ($($t:ty, $bits:ty);*) => {$(
        impl Number for Plain<$t> {
            #[inline(always)]
            fn scale(acc: $t, scalar_bits: u64) -> $t {
                acc * <$t>::from_bits(scalar_bits as $bits)
            }
            #[inline(always)]
            fn divide(acc: $t, by: &Divisor) -> $t {
                acc / by.ranks as $t
            }
        }
    )*};
}
float!(f32, u32; f64, u64);

macro_rules! narrow {
    ($bits:ty, $bytes:literal) => {
        impl<F: Format> Element for Narrow<F, $bytes> {
            type Bytes = [u8; $bytes];
            type Acc = f32;
            #[inline(always)]
            fn load(bytes: Self::Bytes) -> f32 {
                F::decode(<$bits>::from_ne_bytes(bytes) as u32)
            }
            #[inline(always)]
            fn store(acc: f32) -> Self::Bytes {
                (F::encode(acc) as $bits).to_ne_bytes()
            }
        }
        impl<F: Format> Number for Narrow<F, $bytes> {
            #[inline(always)]
            fn scale(acc: f32, scalar_bits: u64) -> f32 {
                Plain::<f32>::scale(acc, scalar_bits)
            }
            #[inline(always)]
            fn divide(acc: f32, by: &Divisor) -> f32 {
                Plain::<f32>::divide(acc, by)
            }
        }
    };
}
narrow!(u8, 1);
narrow!(u16, 2);

macro_rules! float_combine {
    ($(($($generics:tt)*) $element:ty);*) => {$(
        impl $($generics)* Combine<$element> for Sum {
            #[inline(always)]
            fn combine(
                left: <$element as Element>::Acc,
                right: <$element as Element>::Acc,
            ) -> <$element as Element>::Acc {
                left + right
            }
        }
        impl $($generics)* Combine<$element> for Prod {
            #[inline(always)]
            fn combine(
                left: <$element as Element>::Acc,
                right: <$element as Element>::Acc,
            ) -> <$element as Element>::Acc {
                left * right
            }
        }
    )*};
}
float_combine!(() Plain<f32>; () Plain<f64>; (<F: Format>) Narrow<F, 1>; (<F: Format>) Narrow<F, 2>);

/// A float under max (`MAX`) or min: accumulated as an integer that sorts as the values do, -0 below
/// +0, with NaN where it always wins. `SPECIAL` is the largest magnitude that is not a NaN.
///
/// The result is one of the operands, bit for bit, or the NaN with every bit but the sign set.
pub(super) struct Ordered<I, const SPECIAL: u64, const MAX: bool>(PhantomData<I>);

macro_rules! ordered {
    ($($key:ty, $bits:ty);*) => {$(
        impl<const SPECIAL: u64, const MAX: bool> Element for Ordered<$key, SPECIAL, MAX> {
            type Bytes = [u8; size_of::<$key>()];
            type Acc = $key;
            #[inline(always)]
            fn load(bytes: Self::Bytes) -> $key {
                let bits = <$key>::from_ne_bytes(bytes);
                // Negative values sort backwards as integers: flip all but their sign.
                let flip = ((bits >> (<$key>::BITS - 1)) as $bits >> 1) as $key;
                let is_nan = (bits & <$key>::MAX) > SPECIAL as $key;
                let nan = if MAX { <$key>::MAX } else { <$key>::MIN };
                if is_nan { nan } else { bits ^ flip }
            }
            #[inline(always)]
            fn store(key: $key) -> Self::Bytes {
                let flip = ((key >> (<$key>::BITS - 1)) as $bits >> 1) as $key;
                let is_nan = !MAX && key == <$key>::MIN;
                (if is_nan { <$key>::MAX } else { key ^ flip }).to_ne_bytes()
            }
        }
        impl<const SPECIAL: u64, const MAX: bool> Combine<Ordered<$key, SPECIAL, MAX>> for Pick<MAX> {
            #[inline(always)]
            fn combine(left: $key, right: $key) -> $key {
                if MAX { left.max(right) } else { left.min(right) }
            }
        }
    )*};
}
ordered!(i8, u8; i16, u16; i32, u32; i64, u64);
