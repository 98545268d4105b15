//! Every loop compiled once per instruction set, and the choice among them.
//!
//! The loops are the same source at each level and are elementwise, so each level gives the same
//! bits; `tests.rs` compares them. Nothing here contracts a product and a sum into one rounding:
//! Rust never does that by itself.

use super::body;
use super::divisor::Divisor;
use super::element::{Combine, Element, Narrow, Number, Ordered, Pick, Plain, Prod, Sum};
use super::half;
use super::narrow::{Brain, E4M3, E5M2, Half};
use ringsmith_ir::types::{DataType, ReduceOp};

/// How many elements an accumulator block holds: with 8-byte accumulators 8 KiB, so that it and the
/// blocks of a few operands stay in a first-level cache.
pub(super) const BLOCK_ELEMENTS: usize = 1024;

/// What the first and last step of an operation need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    /// The scalar of a pre-multiplied sum: bits of the accumulation type, in the low bytes.
    pub(super) scalar_bits: u64,
    /// What an average divides by.
    pub(super) divisor: Divisor,
}

/// An instruction set that the loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of the target has.
    Baseline,
    /// 256-bit vectors and conversions of 16-bit floats.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors with the byte, word, long and quad extensions.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// Every level of the target, narrowest first.
    pub const ALL: &[Self] = &[
        Self::Baseline,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
    ];

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Baseline => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512vl")
                    && std::arch::is_x86_feature_detected!("avx512dq")
            }
        }
    }

    /// The levels that this processor has, narrowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|level| level.is_available())
    }

    /// The widest level that this processor has.
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self::Baseline)
    }
}

/// `(dst, a, b, elements)`.
pub(super) type PairFn = unsafe fn(*mut u8, *const u8, *const u8, usize);
/// `(dst, other operand, elements)`.
pub(super) type OntoFn = unsafe fn(*mut u8, *const u8, usize);
/// `(acc, src, elements, constants)`.
pub(super) type LoadFn = unsafe fn(*mut u8, *const u8, usize, &Constants);
/// `(dst, acc, elements, constants)`.
pub(super) type StoreFn = unsafe fn(*mut u8, *const u8, usize, &Constants);

/// The loops of one type, operation and level.
///
/// All take counts of elements. Destinations and sources may be unaligned and must not overlap; an
/// accumulator is a block of [`BLOCK_ELEMENTS`] words, aligned for 8-byte elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loops {
    pub(super) pair: PairFn,
    pub(super) pair_onto_left: OntoFn,
    pub(super) pair_onto_right: OntoFn,
    /// Starts an accumulator with one source.
    pub(super) load: LoadFn,
    /// The same, applying the operation's first step.
    pub(super) load_pre: LoadFn,
    /// Starts an accumulator with two sources, neither of them needing a first step.
    pub(super) load_pair: PairFn,
    /// Adds a source to an accumulator.
    pub(super) fold: LoadFn,
    /// The same, applying the operation's first step.
    pub(super) fold_pre: LoadFn,
    /// Rounds an accumulator into a destination.
    pub(super) store: StoreFn,
    /// The same, applying the operation's last step.
    pub(super) store_post: StoreFn,
}

macro_rules! level {
    ($name:ident $(, $features:literal)?) => {
        mod $name {
            use super::{Combine, Constants, Element, Loops, Number, body};
            use std::slice::{from_raw_parts, from_raw_parts_mut};

            // SAFETY, for every function below: the caller passes pointers to `n` elements (or
            // accumulators, aligned for their type) that live through the call, destinations that
            // overlap no source, and runs on a processor with this level's features. Byte arrays
            // have alignment 1 and no invalid values.

            $(#[target_feature(enable = $features)])?
            unsafe fn pair<E: Element, C: Combine<E>>(d: *mut u8, a: *const u8, b: *const u8, n: usize) {
                // SAFETY: as at the top of this module.
                unsafe {
                    let (a, b) = (from_raw_parts(a.cast(), n), from_raw_parts(b.cast(), n));
                    body::pair::<E, C>(from_raw_parts_mut(d.cast(), n), a, b);
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn pair_onto_left<E: Element, C: Combine<E>>(d: *mut u8, b: *const u8, n: usize) {
                // SAFETY: as at the top of this module.
                unsafe {
                    let d = from_raw_parts_mut(d.cast(), n);
                    body::pair_onto_left::<E, C>(d, from_raw_parts(b.cast(), n));
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn pair_onto_right<E: Element, C: Combine<E>>(d: *mut u8, a: *const u8, n: usize) {
                // SAFETY: as at the top of this module.
                unsafe {
                    let d = from_raw_parts_mut(d.cast(), n);
                    body::pair_onto_right::<E, C>(d, from_raw_parts(a.cast(), n));
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn load<E: Element>(acc: *mut u8, src: *const u8, n: usize, _: &Constants) {
                // SAFETY: as at the top of this module.
                unsafe { body::load::<E>(from_raw_parts_mut(acc.cast(), n), from_raw_parts(src.cast(), n)) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn load_scaled<E: Number>(acc: *mut u8, src: *const u8, n: usize, with: &Constants) {
                // SAFETY: as at the top of this module.
                unsafe {
                    let acc = from_raw_parts_mut(acc.cast(), n);
                    body::load_scaled::<E>(acc, from_raw_parts(src.cast(), n), with.scalar_bits);
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn load_pair<E: Element, C: Combine<E>>(
                acc: *mut u8,
                a: *const u8,
                b: *const u8,
                n: usize,
            ) {
                // SAFETY: as at the top of this module.
                unsafe {
                    let (a, b) = (from_raw_parts(a.cast(), n), from_raw_parts(b.cast(), n));
                    body::load_pair::<E, C>(from_raw_parts_mut(acc.cast(), n), a, b);
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn fold<E: Element, C: Combine<E>>(acc: *mut u8, src: *const u8, n: usize, _: &Constants) {
                // SAFETY: as at the top of this module; the accumulators were written before.
                unsafe {
                    body::fold::<E, C>(from_raw_parts_mut(acc.cast(), n), from_raw_parts(src.cast(), n));
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn fold_scaled<E: Number, C: Combine<E>>(
                acc: *mut u8,
                src: *const u8,
                n: usize,
                with: &Constants,
            ) {
                // SAFETY: as at the top of this module; the accumulators were written before.
                unsafe {
                    let acc = from_raw_parts_mut(acc.cast(), n);
                    body::fold_scaled::<E, C>(acc, from_raw_parts(src.cast(), n), with.scalar_bits);
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn store<E: Element>(d: *mut u8, acc: *const u8, n: usize, _: &Constants) {
                // SAFETY: as at the top of this module; the accumulators were written before.
                unsafe { body::store::<E>(from_raw_parts_mut(d.cast(), n), from_raw_parts(acc.cast(), n)) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn store_divided<E: Number>(d: *mut u8, acc: *const u8, n: usize, with: &Constants) {
                // SAFETY: as at the top of this module; the accumulators were written before.
                unsafe {
                    let d = from_raw_parts_mut(d.cast(), n);
                    body::store_divided::<E>(d, from_raw_parts(acc.cast(), n), &with.divisor);
                }
            }

            pub(super) fn simple<E: Element, C: Combine<E>>() -> Loops {
                Loops {
                    pair: pair::<E, C>,
                    pair_onto_left: pair_onto_left::<E, C>,
                    pair_onto_right: pair_onto_right::<E, C>,
                    load: load::<E>,
                    load_pre: load::<E>,
                    load_pair: load_pair::<E, C>,
                    fold: fold::<E, C>,
                    fold_pre: fold::<E, C>,
                    store: store::<E>,
                    store_post: store::<E>,
                }
            }

            pub(super) fn average<E: Number, C: Combine<E>>() -> Loops {
                Loops { store_post: store_divided::<E>, ..simple::<E, C>() }
            }

            pub(super) fn scaled<E: Number, C: Combine<E>>() -> Loops {
                Loops { load_pre: load_scaled::<E>, fold_pre: fold_scaled::<E, C>, ..simple::<E, C>() }
            }
        }
    };
}

level!(baseline);
#[cfg(target_arch = "x86_64")]
level!(avx2, "avx2,f16c");
#[cfg(target_arch = "x86_64")]
level!(avx512, "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq");

/// Sums and products of `E`, minima of `L`, maxima of `H`.
fn of_type<E, L, H>(level: Level, op: ReduceOp) -> Loops
where
    E: Number,
    L: Element,
    H: Element,
    Sum: Combine<E>,
    Prod: Combine<E>,
    Pick<false>: Combine<L>,
    Pick<true>: Combine<H>,
{
    macro_rules! at {
        ($level:ident) => {
            match op {
                ReduceOp::Sum => $level::simple::<E, Sum>(),
                ReduceOp::Prod => $level::simple::<E, Prod>(),
                ReduceOp::Max => $level::simple::<H, Pick<true>>(),
                ReduceOp::Min => $level::simple::<L, Pick<false>>(),
                ReduceOp::Avg => $level::average::<E, Sum>(),
                ReduceOp::PremulSum => $level::scaled::<E, Sum>(),
            }
        };
    }
    match level {
        Level::Baseline => at!(baseline),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => at!(avx2),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => at!(avx512),
    }
}

fn integer<T>(level: Level, op: ReduceOp) -> Loops
where
    Plain<T>: Number,
    Sum: Combine<Plain<T>>,
    Prod: Combine<Plain<T>>,
    Pick<false>: Combine<Plain<T>>,
    Pick<true>: Combine<Plain<T>>,
{
    of_type::<Plain<T>, Plain<T>, Plain<T>>(level, op)
}

type Low<I, const SPECIAL: u64> = Ordered<I, SPECIAL, false>;
type High<I, const SPECIAL: u64> = Ordered<I, SPECIAL, true>;
/// Infinities of the formats: the largest magnitudes that are not NaN.
const INFINITY_64: u64 = 0x7ff0_0000_0000_0000;
const INFINITY_32: u64 = 0x7f80_0000;
const INFINITY_HALF: u64 = 0x7c00;
const INFINITY_BRAIN: u64 = 0x7f80;
const INFINITY_E5M2: u64 = 0x7c;
/// E4M3 has no infinity; its largest finite magnitude.
const LARGEST_E4M3: u64 = 0x7e;

/// The loops for a type and an operation. The caller has made sure that `level` is available.
pub(super) fn loops(level: Level, dtype: DataType, op: ReduceOp) -> Loops {
    match dtype {
        DataType::Int8 => integer::<i8>(level, op),
        DataType::Uint8 => integer::<u8>(level, op),
        DataType::Int32 => integer::<i32>(level, op),
        DataType::Uint32 => integer::<u32>(level, op),
        DataType::Int64 => integer::<i64>(level, op),
        DataType::Uint64 => integer::<u64>(level, op),
        DataType::Float16 => {
            type Least = Low<i16, INFINITY_HALF>;
            type Most = High<i16, INFINITY_HALF>;
            half::faster(level, op, of_type::<Narrow<Half, 2>, Least, Most>(level, op))
        }
        DataType::Float32 => of_type::<Plain<f32>, Low<i32, INFINITY_32>, High<i32, INFINITY_32>>(level, op),
        DataType::Float64 => of_type::<Plain<f64>, Low<i64, INFINITY_64>, High<i64, INFINITY_64>>(level, op),
        DataType::Bfloat16 => {
            of_type::<Narrow<Brain, 2>, Low<i16, INFINITY_BRAIN>, High<i16, INFINITY_BRAIN>>(level, op)
        }
        DataType::Float8E4M3 => {
            of_type::<Narrow<E4M3, 1>, Low<i8, LARGEST_E4M3>, High<i8, LARGEST_E4M3>>(level, op)
        }
        DataType::Float8E5M2 => {
            of_type::<Narrow<E5M2, 1>, Low<i8, INFINITY_E5M2>, High<i8, INFINITY_E5M2>>(level, op)
        }
    }
}
