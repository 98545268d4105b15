//! Inputs that depend on nothing but a seed, the rank and the element's index.
//!
//! Element i of a rank equals element i modulo [`PERIOD_ELEMENTS`]: large buffers are filled and
//! checked by copying and comparing memory. The period is prime, so pieces that a schedule cuts at
//! powers of two, or multiples of any smaller number, all differ.
//!
//! # Exact data
//! For every order of the terms, and with a rounding to the type after every step, the reduction
//! gives the same bits:
//! - integers wrap, which is associative: any bits will do (odd ones but for one rank in a product,
//!   or products of many would all be zero);
//! - sums of floats with p bits of precision: integers of which all magnitudes together are at most
//!   2^p, times a power of two that an element's terms share. If there are more ranks than that
//!   leaves room for, a window of ranks that moves from element to element contributes;
//! - products: powers of two whose exponents' magnitudes together stay within the normal range, any
//!   signs, and one rank with two more bits of mantissa;
//! - averages are such a sum, divided once;
//! - minima and maxima do not round: any bits, with NaN rare enough to leave other results.

use super::number::{bits_of, format_of, is_integer, power_of_two, value_of};
use super::request::Request;
use ringsmith_ir::entity::Rank;
use ringsmith_ir::types::{DataType, ReduceOp};

/// After how many elements inputs repeat; a prime.
pub const PERIOD_ELEMENTS: usize = 16_381;

/// What inputs are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The result has one right answer, bit for bit, whatever the order.
    Exact,
    /// Magnitudes up to 1 (for products: near 1), any mantissa: every step rounds, and the result is
    /// right within [`super::error_bound`].
    Rounding,
    /// Any bits, many of them zeros, subnormals, infinities and NaN. Results of reductions depend on
    /// the order, except minima and maxima.
    Wild,
}

/// A seed and a kind: all that inputs depend on besides the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Names the inputs; printed with a failure, it replays it.
    pub seed: u64,
    /// What they are like.
    pub kind: Kind,
}

/// A well-mixed word of a counter: the finaliser of SplitMix64.
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Bits of precision of a float type, the hidden one included.
pub(super) fn precision(dtype: DataType) -> u32 {
    format_of(dtype).map_or(53, |format| format.mantissa_bits + 1)
}

impl Data {
    /// Inputs whose result has one right answer.
    pub fn exact(seed: u64) -> Self {
        Self { seed, kind: Kind::Exact }
    }

    /// Whether the result of `request` is right only if it has the very bits of [`super::expected`]
    /// (any NaN for a NaN).
    pub fn is_exact(&self, request: &Request) -> bool {
        if !request.collective.reduces() || is_integer(request.dtype) || request.ranks == 1 {
            return true;
        }
        match (request.op, self.kind) {
            (ReduceOp::Max | ReduceOp::Min, _) => true,
            (_, Kind::Rounding | Kind::Wild) => false,
            (ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Avg, Kind::Exact) => true,
            // Products with such a scalar are exact and stay within the range that `sum_term` leaves.
            (ReduceOp::PremulSum, Kind::Exact) => {
                let size = value_of(request.dtype, request.scalar).abs();
                (-SCALAR_EXPONENTS..=SCALAR_EXPONENTS).any(|exponent| size == power_of_two(exponent))
            }
        }
    }

    /// The bits of one element of a rank's input.
    pub fn bits(&self, request: &Request, rank: Rank, index: u64) -> u64 {
        let index = index % PERIOD_ELEMENTS as u64;
        // What all ranks share at this element, and what this rank has there.
        let shared = mix(self.seed ^ mix(index));
        let own = mix(shared ^ mix(u64::from(rank.as_u32()) << 32 | 1));
        let dtype = request.dtype;
        let width = u64::MAX >> (64 - 8 * dtype.size_bytes() as u32);
        if self.kind == Kind::Wild && !is_integer(dtype) {
            return wild(dtype, own);
        }
        if !request.collective.reduces() {
            return own & width;
        }
        if is_integer(dtype) {
            let owner = shared % u64::from(request.ranks) == u64::from(rank.as_u32());
            let odd = u64::from(request.op == ReduceOp::Prod && !owner);
            return (own | odd) & width;
        }
        match (request.op, self.kind) {
            (ReduceOp::Max | ReduceOp::Min, _) => ordered(dtype, own),
            (ReduceOp::Prod, Kind::Rounding) => {
                let near_one = 0.75 + (own >> 11) as f64 * power_of_two(-54);
                bits_of(dtype, if own & 1 == 0 { near_one } else { -near_one })
            }
            (ReduceOp::Prod, Kind::Exact | Kind::Wild) => product_term(request, rank, shared, own),
            (ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum, Kind::Rounding) => {
                let size = (own >> 11) as f64 * power_of_two(-53);
                bits_of(dtype, if own & 1 == 0 { size } else { -size })
            }
            (ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum, Kind::Exact | Kind::Wild) => {
                sum_term(request, rank, shared, own)
            }
        }
    }
}

/// Up to which exponent a scalar that is a power of two leaves exact data exact.
const SCALAR_EXPONENTS: i32 = 4;

/// Whether `rank` is in the window of `active` ranks of this element.
fn in_window(request: &Request, rank: Rank, shared: u64, active: u64) -> bool {
    let ranks = u64::from(request.ranks);
    (u64::from(rank.as_u32()) + shared % ranks) % ranks < active
}

/// An integer in `-most..=most`.
fn signed(word: u64, most: u64) -> i64 {
    (word % (2 * most + 1)) as i64 - most as i64
}

fn sum_term(request: &Request, rank: Rank, shared: u64, own: u64) -> u64 {
    let dtype = request.dtype;
    let budget = 1u64 << precision(dtype);
    let active = budget.min(u64::from(request.ranks));
    if !in_window(request, rank, shared, active) {
        return 0;
    }
    // Units from the smallest subnormal on, sums up to the largest binade but one.
    let (lowest, highest) = match format_of(dtype) {
        Some(format) => {
            let lowest = format.min_exponent() - format.mantissa_bits as i32;
            let top = (format.largest() >> format.mantissa_bits) as i32 + format.min_exponent() - 1;
            (lowest, top - 1 - precision(dtype) as i32)
        }
        // Narrower than the type's range, so that powers of two stay normal numbers.
        None => (-960, 900),
    };
    let (lowest, highest) = (lowest + SCALAR_EXPONENTS, highest - SCALAR_EXPONENTS);
    let units = (highest - lowest + 1) as u64;
    let unit = lowest + ((shared >> 32) % units) as i32;
    bits_of(dtype, signed(own, budget / active) as f64 * power_of_two(unit))
}

fn product_term(request: &Request, rank: Rank, shared: u64, own: u64) -> u64 {
    let dtype = request.dtype;
    // Exponents from -budget to budget are normal numbers, also with a mantissa.
    let budget = match format_of(dtype) {
        Some(format) => -format.min_exponent() as u64,
        None => 1022,
    };
    let active = budget.min(u64::from(request.ranks));
    let exponent =
        if in_window(request, rank, shared, active) { signed(own >> 8, budget / active) } else { 0 };
    let owner = (shared >> 32) % u64::from(request.ranks) == u64::from(rank.as_u32());
    let quarters = if owner { 4 + (own >> 1) % 4 } else { 4 };
    let size = quarters as f64 / 4.0 * power_of_two(exponent as i32);
    bits_of(dtype, if own & 1 == 0 { size } else { -size })
}

/// Any value, few of them zeros and infinities and very few NaN.
fn ordered(dtype: DataType, own: u64) -> u64 {
    let special = mix(own);
    if special.is_multiple_of(1024) {
        return bits_of(dtype, f64::NAN);
    }
    if special % 64 == 1 {
        return bits_of(dtype, if own & 1 == 0 { 0.0 } else { -0.0 });
    }
    let width = u64::MAX >> (64 - 8 * dtype.size_bytes() as u32);
    let bits = own & width;
    if value_of(dtype, bits).is_nan() { bits_of(dtype, 1.0) } else { bits }
}

/// Any bits; every other element one of the values at which rules change.
fn wild(dtype: DataType, own: u64) -> u64 {
    let width = u64::MAX >> (64 - 8 * dtype.size_bytes() as u32);
    let sign = (width >> 1) + 1;
    let (infinity, largest, smallest_normal, largest_nan) = match format_of(dtype) {
        Some(format) => (
            u64::from(format.infinity().unwrap_or(format.largest())),
            u64::from(format.largest()),
            1 << format.mantissa_bits,
            u64::from(format.magnitude_mask()),
        ),
        None => (f64::INFINITY.to_bits(), f64::MAX.to_bits(), 1 << 52, u64::MAX >> 1),
    };
    let magnitude = match (own >> 56) % 16 {
        0 => 0,
        1 => 1,
        2 => smallest_normal - 1,
        3 => smallest_normal,
        4 => largest,
        5 => infinity,
        6 => largest_nan,
        7 => own % smallest_normal,
        _ => own & (sign - 1),
    };
    magnitude | if own & (1 << 48) == 0 { 0 } else { sign }
}

/// A stretch of elements that repeats: what an input, or the reduction of all, is made of.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) bytes: Vec<u8>,
    pub(super) size_bytes: usize,
}

impl Pattern {
    /// The first `elements` elements, at most a period of them, each given by its index.
    pub(super) fn new(dtype: DataType, elements: u64, bits: impl Fn(u64) -> u64) -> Self {
        let size_bytes = dtype.size_bytes();
        let elements = elements.min(PERIOD_ELEMENTS as u64);
        let mut bytes = Vec::with_capacity(elements as usize * size_bytes);
        for index in 0..elements {
            put_element(&mut bytes, size_bytes, bits(index));
        }
        Self { bytes, size_bytes }
    }

    /// The longest stretches of the pattern, from element `first` on, that follow each other over
    /// `len_bytes`: for each the offset into the whole, and where its bytes are in the pattern.
    pub(super) fn stretches(
        &self,
        first: u64,
        len_bytes: usize,
    ) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> + use<> {
        let period_bytes = self.bytes.len();
        let mut phase = (first % PERIOD_ELEMENTS as u64) as usize * self.size_bytes;
        let mut offset = 0;
        std::iter::from_fn(move || {
            if offset == len_bytes {
                return None;
            }
            let len = (period_bytes - phase).min(len_bytes - offset);
            let stretch = (offset, phase..phase + len);
            offset += len;
            phase = 0;
            Some(stretch)
        })
    }
}

/// Appends an element's bytes.
pub(super) fn put_element(bytes: &mut Vec<u8>, size_bytes: usize, bits: u64) {
    match size_bytes {
        1 => bytes.push(bits as u8),
        2 => bytes.extend_from_slice(&(bits as u16).to_ne_bytes()),
        4 => bytes.extend_from_slice(&(bits as u32).to_ne_bytes()),
        _ => bytes.extend_from_slice(&bits.to_ne_bytes()),
    }
}

/// Reads an element's bits.
pub(super) fn get_element(bytes: &[u8], size_bytes: usize, index: usize) -> u64 {
    let element = &bytes[index * size_bytes..(index + 1) * size_bytes];
    match *element {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
        _ => u64::from_ne_bytes(element.try_into().expect("elements have 1, 2, 4 or 8 bytes")),
    }
}

/// Writes `rank`'s input into `buffer`, which has room for exactly that.
///
/// Panics: if it has not.
pub fn fill_input(request: &Request, data: &Data, rank: Rank, buffer: &mut [u8]) {
    let elements = request.input_elements(rank);
    let size_bytes = request.dtype.size_bytes();
    assert_eq!(buffer.len() as u64, elements * size_bytes as u64, "the buffer holds the input of {rank}");
    let pattern = Pattern::new(request.dtype, elements, |index| data.bits(request, rank, index));
    for (offset, stretch) in pattern.stretches(0, buffer.len()) {
        buffer[offset..offset + stretch.len()].copy_from_slice(&pattern.bytes[stretch]);
    }
}

/// `rank`'s input.
pub fn input(request: &Request, data: &Data, rank: Rank) -> Vec<u8> {
    let bytes = request.input_elements(rank) * request.dtype.size_bytes() as u64;
    let mut buffer = vec![0; usize::try_from(bytes).expect("a request's buffers can be addressed")];
    fill_input(request, data, rank, &mut buffer);
    buffer
}
