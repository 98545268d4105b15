//! The expected output of a request, and the comparison with what a device returned.

use super::data::{Data, Pattern, get_element, precision, put_element};
use super::number::{format_of, is_integer, is_nan, power_of_two, reduce, show, value_of};
use super::request::{Request, Source};
use ringsmith_ir::entity::Rank;
use ringsmith_ir::types::{DataType, ReduceOp};
use std::fmt;

/// How many wrong elements a [`Report`] keeps; all are counted.
pub const MAX_REPORTED: usize = 8;

/// When two elements count as equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exactness<'a> {
    /// All bits equal: for data that is only moved.
    Bits,
    /// All bits equal, or both NaN: for results that do not depend on the order.
    Values,
    /// A difference of at most this much at each element, or both NaN.
    Within(&'a [f64]),
}

/// A wrong element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its type.
    pub dtype: DataType,
    /// Its index in the output.
    pub index: u64,
    /// The bits it should have, or nearly have.
    pub expected: u64,
    /// The bits it has.
    pub got: u64,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (expected, got) = (show(self.dtype, self.expected), show(self.dtype, self.got));
        write!(f, "element {}: expected {expected}, got {got}", self.index)
    }
}

/// The outcome of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many elements are wrong.
    pub wrong: u64,
    /// The first of them, at most [`MAX_REPORTED`].
    pub first: Vec<Mismatch>,
}

impl Report {
    fn add(&mut self, mismatch: Mismatch) {
        self.wrong += 1;
        if self.first.len() < MAX_REPORTED {
            self.first.push(mismatch);
        }
    }
}

/// Compares outputs of equal length.
///
/// Panics: if the lengths differ, or the list of [`Exactness::Within`] has another length.
pub fn compare(expected: &[u8], got: &[u8], dtype: DataType, exactness: Exactness<'_>) -> Report {
    assert_eq!(expected.len(), got.len(), "outputs to compare have one length");
    let mut report = Report::default();
    compare_at(&mut report, 0, expected, got, dtype, exactness);
    report
}

/// Compares a stretch that starts at element `first` of the output.
fn compare_at(
    report: &mut Report,
    first: u64,
    expected: &[u8],
    got: &[u8],
    dtype: DataType,
    exactness: Exactness<'_>,
) {
    if expected == got {
        return;
    }
    let size_bytes = dtype.size_bytes();
    if let Exactness::Within(limits) = exactness {
        assert_eq!(limits.len(), expected.len() / size_bytes, "there is a limit for each element");
    }
    // Lines of 4 KiB of which most are equal, even in a wrong output.
    const LINE: usize = 4096;
    for (line, (expected, got)) in expected.chunks(LINE).zip(got.chunks(LINE)).enumerate() {
        if expected == got {
            continue;
        }
        let before = line * LINE / size_bytes;
        for index in 0..expected.len() / size_bytes {
            let want = get_element(expected, size_bytes, index);
            let have = get_element(got, size_bytes, index);
            let equal = want == have
                || match exactness {
                    Exactness::Bits => false,
                    Exactness::Values => is_nan(dtype, want) && is_nan(dtype, have),
                    Exactness::Within(limits) => near(dtype, want, have, limits[before + index]),
                };
            if !equal {
                let index = first + (before + index) as u64;
                report.add(Mismatch { dtype, index, expected: want, got: have });
            }
        }
    }
}

/// Whether two elements are both NaN, or at most `limit` apart.
fn near(dtype: DataType, want: u64, have: u64, limit: f64) -> bool {
    let (want, have) = (value_of(dtype, want), value_of(dtype, have));
    (want.is_nan() && have.is_nan()) || (want - have).abs() <= limit
}

/// How far a reduction of `terms` terms, in any order and with a rounding to the type after any
/// step, can be from the exact result. `magnitude` is the sum of the terms' magnitudes after the
/// operation's first and last step, or for a product the magnitude of the result.
///
/// Derived in docs/arithmetic.md. It holds as long as nothing overflows, and for products as long as
/// every partial product is a normal number.
pub fn error_bound(dtype: DataType, op: ReduceOp, terms: u32, magnitude: f64) -> f64 {
    if is_integer(dtype) || matches!(op, ReduceOp::Max | ReduceOp::Min) {
        return 0.0;
    }
    let unit = |precision: u32| power_of_two(-(precision as i32));
    let (of_type, of_acc) = match dtype {
        // What is accumulated in its own type is not rounded a second time.
        DataType::Float64 => (0.0, unit(53)),
        DataType::Float32 => (0.0, unit(24)),
        _ => (unit(precision(dtype)), unit(24)),
    };
    let first_or_last = u32::from(matches!(op, ReduceOp::Avg | ReduceOp::PremulSum));
    let steps = f64::from(terms.saturating_sub(1) + first_or_last);
    // (1 + u)^steps - 1, without cancellation.
    let relative = (steps * (of_type.ln_1p() + of_acc.ln_1p())).exp_m1();
    let smallest = match format_of(dtype) {
        Some(format) => power_of_two(format.min_exponent() - format.mantissa_bits as i32),
        None => f64::from_bits(1),
    };
    // Rounding errors of subnormal results, each at most half the smallest number, grown by at most
    // a factor 1 + relative.
    let absolute = if op == ReduceOp::Prod { 0.0 } else { (steps + 1.0) * smallest * (1.0 + relative) };
    // The last factor covers the rounding of this very computation.
    (magnitude * relative + absolute) * (1.0 + power_of_two(-20))
}

/// One element of the reduction of all inputs, in rank order.
fn reduced(request: &Request, terms: &[u64]) -> u64 {
    reduce(request.dtype, request.op, request.ranks, request.scalar, terms)
}

/// The output of `rank`, from every rank's input in rank order.
///
/// Reductions go in rank order in the accumulation type and are rounded once.
///
/// Panics: if the inputs are not as many and as long as the request says.
pub fn expected(request: &Request, rank: Rank, inputs: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let size_bytes = request.dtype.size_bytes();
    assert_eq!(inputs.len(), request.ranks as usize, "there is an input for each rank");
    for (rank, input) in request.every_rank().zip(inputs) {
        let bytes = request.input_elements(rank) * size_bytes as u64;
        assert_eq!(input.as_ref().len() as u64, bytes, "the input of {rank} is as long as requested");
    }
    let mut output = Vec::new();
    for segment in request.segments(rank) {
        let range = segment.first as usize..(segment.first + segment.elements) as usize;
        match segment.of {
            Source::Rank(from) => {
                let input = inputs[from.as_u32() as usize].as_ref();
                output.extend_from_slice(&input[range.start * size_bytes..range.end * size_bytes]);
            }
            Source::Reduced => {
                let mut terms = Vec::with_capacity(inputs.len());
                for index in range {
                    terms.clear();
                    let elements = inputs.iter().map(|input| get_element(input.as_ref(), size_bytes, index));
                    terms.extend(elements);
                    put_element(&mut output, size_bytes, reduced(request, &terms));
                }
            }
        }
    }
    output
}

/// Compares what `rank` got with what it should have got if all inputs came from `data`.
///
/// Takes memory for one period of the inputs, not for the output, and apart from that the time of
/// comparing memory. Where the result depends on the order, elements may be as far from the expected
/// one as two evaluations of [`error_bound`] can be apart.
///
/// Panics: if `got` has another length than the request says.
pub fn check(request: &Request, data: &Data, rank: Rank, got: &[u8]) -> Report {
    let size_bytes = request.dtype.size_bytes();
    let elements = request.output_elements(rank);
    assert_eq!(
        got.len() as u64,
        elements * size_bytes as u64,
        "the output of {rank} is as long as requested"
    );
    let mut report = Report::default();
    let mut rest = got;
    for segment in request.segments(rank) {
        let part;
        (part, rest) = rest.split_at(segment.elements as usize * size_bytes);
        if part.is_empty() {
            continue;
        }
        let start = (got.len() - rest.len() - part.len()) / size_bytes;
        let known = segment.first + segment.elements;
        let (pattern, limits) = match segment.of {
            Source::Rank(from) => {
                (Pattern::new(request.dtype, known, |index| data.bits(request, from, index)), None)
            }
            Source::Reduced => reduced_pattern(request, data, known),
        };
        for (offset, stretch) in pattern.stretches(segment.first, part.len()) {
            let exactness = match (segment.of, &limits) {
                (Source::Rank(_), _) => Exactness::Bits,
                (Source::Reduced, None) => Exactness::Values,
                (Source::Reduced, Some(limits)) => {
                    Exactness::Within(&limits[stretch.start / size_bytes..stretch.end / size_bytes])
                }
            };
            let first = (start + offset / size_bytes) as u64;
            let got = &part[offset..offset + stretch.len()];
            compare_at(&mut report, first, &pattern.bytes[stretch], got, request.dtype, exactness);
        }
    }
    report
}

/// The reduction of all inputs, and where it depends on the order how far an element may be off.
fn reduced_pattern(request: &Request, data: &Data, elements: u64) -> (Pattern, Option<Vec<f64>>) {
    let terms =
        |index| -> Vec<u64> { request.every_rank().map(|rank| data.bits(request, rank, index)).collect() };
    let pattern = Pattern::new(request.dtype, elements, |index| reduced(request, &terms(index)));
    if data.is_exact(request) {
        return (pattern, None);
    }
    let known = pattern.bytes.len() / pattern.size_bytes;
    let limits = (0..known as u64).map(|index| limit(request, &terms(index))).collect();
    (pattern, Some(limits))
}

/// How far apart two results of any two orders may be.
fn limit(request: &Request, terms: &[u64]) -> f64 {
    let magnitudes = terms.iter().map(|bits| value_of(request.dtype, *bits).abs());
    let magnitude = match request.op {
        ReduceOp::Prod => magnitudes.product(),
        ReduceOp::Avg => magnitudes.sum::<f64>() / f64::from(request.ranks),
        ReduceOp::PremulSum => magnitudes.sum::<f64>() * value_of(request.dtype, request.scalar).abs(),
        ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min => magnitudes.sum(),
    };
    2.0 * error_bound(request.dtype, request.op, request.ranks, magnitude)
}
