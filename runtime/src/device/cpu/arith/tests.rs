//! Arithmetic against the reference: every type, operation and level, odd counts, unaligned and
//! aliased pointers.

use super::divisor::Divisor;
use super::narrow::{Brain, E4M3, E5M2, Format, Half};
use super::{Kernel, Level, Operand, Scalar};
use crate::reference::{Data, Exactness, Kind, Request, compare, expected, format_of, input};
use ringsmith_ir::entity::Rank;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};

/// Prints with a failure; change it to replay another run.
const SEED: u64 = 0x5eed;

fn next(word: &mut u64) -> u64 {
    *word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *word >> 16
}

fn same(a: f32, b: f64) -> bool {
    f64::from(a).to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Every pattern one way; the other way every boundary between two values, its neighbours, and
/// random values.
fn conversions<F: Format>(dtype: DataType) {
    let format = format_of(dtype).expect("a float of at most 32 bits");
    for bits in 0..1u32 << format.bits() {
        let (got, want) = (F::decode(bits), format.decode(bits));
        assert!(same(got, want), "{dtype} {bits:#x}: {got:e}, not {want:e}");
    }
    let encodes = |value: f32| {
        for value in [value, -value] {
            let (got, want) = (F::encode(value), format.encode(f64::from(value)));
            assert_eq!(got, want, "{dtype} of {value:e} ({:#x})", value.to_bits());
        }
    };
    for bits in 0..=format.magnitude_mask() {
        let (low, high) = (F::decode(bits), F::decode((bits + 1).min(format.magnitude_mask())));
        let middle = ((f64::from(low) + f64::from(high)) / 2.0) as f32;
        for value in [low, low.next_up(), middle.next_down(), middle, middle.next_up(), high.next_down()] {
            encodes(value);
        }
    }
    for value in
        [f32::MAX, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE, f32::from_bits(1), f32::from_bits(0x7f80_0001)]
    {
        encodes(value);
    }
    let mut word = SEED;
    for _ in 0..300_000 {
        encodes(f32::from_bits(next(&mut word) as u32));
    }
}

#[test]
fn half_converts_as_defined() {
    conversions::<Half>(DataType::Float16);
}

#[test]
fn brain_float_converts_as_defined() {
    conversions::<Brain>(DataType::Bfloat16);
}

#[test]
fn eight_bit_floats_convert_as_defined() {
    conversions::<E4M3>(DataType::Float8E4M3);
    conversions::<E5M2>(DataType::Float8E5M2);
}

#[test]
fn division_by_the_number_of_ranks_is_exact() {
    let mut word = SEED;
    let small =
        (1..300).chain([1000, 16_384, 65_535, 65_536, 1 << 31, (1 << 31) + 1, u32::MAX - 1, u32::MAX]);
    for ranks in small {
        let divisor = Divisor::new(ranks);
        let by = u64::from(ranks);
        for dividend in 0..=255u8 {
            assert_eq!(
                u64::from(divisor.divide_8(dividend)),
                u64::from(dividend) / by,
                "{dividend} / {ranks}"
            );
        }
        let edges = [0, 1, by - 1, by, by * 7 - 1, by * 7, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1];
        let random = std::iter::repeat_with(|| next(&mut word) << (next(&mut word) % 17)).take(200);
        for dividend in edges.into_iter().chain(random) {
            assert_eq!(divisor.divide_64(dividend), dividend / by, "{dividend} / {ranks}");
            let dividend = dividend as u32;
            assert_eq!(divisor.divide_32(dividend), dividend / ranks, "{dividend} / {ranks}");
        }
    }
}

/// Buffers at odd addresses: one source or destination each.
struct Buffers {
    bytes: Vec<Vec<u8>>,
}

impl Buffers {
    fn new(contents: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let pad = |content: Vec<u8>| [&[0xa5], content.as_slice(), &[0xa5]].concat();
        Self { bytes: contents.into_iter().map(pad).collect() }
    }

    fn ptr(&mut self, index: usize) -> *mut u8 {
        self.bytes[index][1..].as_mut_ptr()
    }

    fn content(&self, index: usize) -> &[u8] {
        let buffer = &self.bytes[index];
        assert_eq!((buffer[0], buffer[buffer.len() - 1]), (0xa5, 0xa5), "nothing else was written");
        &buffer[1..buffer.len() - 1]
    }
}

/// Runs a kernel on buffers by index; all sources are raw inputs and the result is complete.
fn run(kernel: &Kernel, buffers: &mut Buffers, dst: &[usize], src: &[usize], elements: usize) {
    let dst: Vec<*mut u8> = dst.iter().map(|index| buffers.ptr(*index)).collect();
    let src: Vec<Operand> = src.iter().map(|index| Operand { ptr: buffers.ptr(*index), pre: true }).collect();
    // SAFETY: each buffer holds `elements` elements from its pointer on; buffers are disjoint.
    unsafe { kernel.run(&dst, &src, true, elements) }
}

fn request(dtype: DataType, op: ReduceOp, terms: u32, elements: usize) -> Request {
    Request::new(Collective::AllReduce, dtype, op, terms, elements as u64).expect("a request")
}

/// The operations whose NaN has the bits that the processor chose.
fn propagates_nan(dtype: DataType, op: ReduceOp) -> bool {
    matches!(dtype, DataType::Float32 | DataType::Float64) && !matches!(op, ReduceOp::Min | ReduceOp::Max)
}

fn kernel(level: Level, request: &Request) -> Kernel {
    let scalar = Scalar::from_element_bits(request.dtype, request.scalar);
    Kernel::at_level(level, request.dtype, request.op, request.ranks, scalar)
}

/// Every operation of a type at every level on 1 to 5 sources: out of place, onto each source, onto
/// several destinations; results as the reference's, and the same bits at each level.
fn matches_reference(dtype: DataType) {
    let size = dtype.size_bytes();
    for op in ReduceOp::ALL {
        for terms in 1..=5u32 {
            for elements in [1, 2, 3, 15, 67, 1025, 2117] {
                let request = request(dtype, op, terms, elements);
                let data = Data { seed: SEED + elements as u64, kind: Kind::Wild };
                let inputs: Vec<Vec<u8>> =
                    (0..terms).map(|rank| input(&request, &data, Rank::from_u32(rank))).collect();
                let want = expected(&request, Rank::from_u32(0), &inputs);
                let exactness = if propagates_nan(dtype, op) { Exactness::Values } else { Exactness::Bits };
                let sources: Vec<usize> = (0..terms as usize).collect();
                let (out, more) = (terms as usize, terms as usize + 1);
                let mut first_level: Option<Vec<u8>> = None;
                for level in Level::available() {
                    let kernel = kernel(level, &request);
                    let verify = |dst: &[usize], result: usize, buffers: &Buffers| {
                        let got = buffers.content(result);
                        let report = compare(&want, got, dtype, exactness);
                        assert_eq!(
                            report.wrong, 0,
                            "{level:?} {dtype} {op} of {terms} x {elements} into {dst:?}: {}",
                            report.first[0]
                        );
                    };
                    let mut targets = vec![vec![out], vec![out, more], vec![out, 0, more], vec![0, out, 0]];
                    targets.extend(sources.iter().map(|source| vec![*source]));
                    for dst in targets {
                        let spare = vec![vec![0xee; elements * size]; 2];
                        let mut buffers = Buffers::new(inputs.iter().cloned().chain(spare));
                        run(&kernel, &mut buffers, &dst, &sources, elements);
                        for result in &dst {
                            verify(&dst, *result, &buffers);
                        }
                        for source in sources.iter().filter(|source| !dst.contains(source)) {
                            assert_eq!(buffers.content(*source), inputs[*source], "sources stay as they are");
                        }
                        let got = buffers.content(dst[0]);
                        let first = first_level.get_or_insert_with(|| got.to_vec());
                        assert_eq!(compare(first, got, dtype, exactness).wrong, 0, "{level:?} as the others");
                    }
                }
            }
        }
    }
}

macro_rules! matches_reference {
    ($($name:ident: $dtype:ident),*) => {$(
        #[test]
        fn $name() {
            matches_reference(DataType::$dtype);
        }
    )*};
}
matches_reference!(
    int8_matches_reference: Int8,
    uint8_matches_reference: Uint8,
    int32_matches_reference: Int32,
    uint32_matches_reference: Uint32,
    int64_matches_reference: Int64,
    uint64_matches_reference: Uint64,
    float16_matches_reference: Float16,
    float32_matches_reference: Float32,
    float64_matches_reference: Float64,
    bfloat16_matches_reference: Bfloat16,
    float8e4m3_matches_reference: Float8E4M3,
    float8e5m2_matches_reference: Float8E5M2
);

#[test]
fn one_source_twice_and_in_place_is_doubled() {
    let request = request(DataType::Float32, ReduceOp::Sum, 2, 3000);
    let data = Data::exact(SEED);
    let content = input(&request, &data, Rank::from_u32(0));
    let want = expected(&request, Rank::from_u32(0), &[&content, &content]);
    for level in Level::available() {
        let mut buffers = Buffers::new([content.clone()]);
        run(&kernel(level, &request), &mut buffers, &[0], &[0, 0], 3000);
        assert_eq!(buffers.content(0), want, "{level:?}");
    }
}

/// A pass on of a partial result: neither the first nor the last step applies.
#[test]
fn steps_apply_only_where_the_plan_says_so() {
    for op in [ReduceOp::Avg, ReduceOp::PremulSum] {
        let request = request(DataType::Float32, op, 3, 1);
        let kernel = kernel(Level::Baseline, &request);
        let values = [6f32, 9.0, 15.0];
        let sum = |pre: [bool; 3], post: bool| {
            let mut out = 0f32;
            let operands: Vec<Operand> = values
                .iter()
                .zip(pre)
                .map(|(value, pre)| Operand { ptr: std::ptr::from_ref(value).cast(), pre })
                .collect();
            // SAFETY: each pointer is that of one 32-bit float.
            unsafe { kernel.run(&[std::ptr::from_mut(&mut out).cast()], &operands, post, 1) }
            out
        };
        // The scalar of a request is 2.
        let want: [f32; 4] = match op {
            ReduceOp::Avg => [30.0, 30.0, 10.0, 10.0],
            _ => [30.0, 45.0, 30.0, 45.0],
        };
        let mixed = [true, true, false];
        let got = [sum([false; 3], false), sum(mixed, false), sum([false; 3], true), sum(mixed, true)];
        assert_eq!(got, want, "{op}");
    }
}

#[test]
fn copies_keep_every_bit() {
    // Signalling NaN of 16, 32 and 64 bits among them.
    let content: Vec<u8> = (0..4096u32).flat_map(|i| [(i * 37) as u8, 0x7f, 0xf0, 0x7f]).collect();
    for dtype in DataType::ALL {
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            let kernel = Kernel::new(dtype, op, 4, Scalar::one(dtype));
            let mut buffers = Buffers::new([content.clone(), vec![0; content.len()], vec![1; content.len()]]);
            run(&kernel, &mut buffers, &[1, 2, 0], &[0], content.len() / dtype.size_bytes());
            for index in 0..3 {
                assert_eq!(buffers.content(index), content, "{dtype} {op}");
            }
        }
    }
}

#[test]
fn nothing_is_touched_without_elements_sources_or_destinations() {
    let kernel = Kernel::new(DataType::Float32, ReduceOp::Avg, 2, Scalar::one(DataType::Float32));
    let mut buffers = Buffers::new([vec![1; 8], vec![2; 8]]);
    run(&kernel, &mut buffers, &[0], &[1], 0);
    run(&kernel, &mut buffers, &[0], &[], 2);
    run(&kernel, &mut buffers, &[], &[0, 1], 2);
    assert_eq!((buffers.content(0), buffers.content(1)), (&[1; 8][..], &[2; 8][..]));
    // SAFETY: with no elements no pointer is followed.
    unsafe { kernel.run(&[std::ptr::null_mut()], &[], true, 0) }
}

#[test]
fn slices_combine_as_pointers_do() {
    let kernel = Kernel::new(DataType::Int32, ReduceOp::Avg, 3, Scalar::one(DataType::Int32));
    let bytes = |value: i32| [value.to_ne_bytes(), (-value).to_ne_bytes()].concat();
    let mut out = [0; 8];
    kernel.combine(&mut out, &[&bytes(7), &bytes(8), &bytes(10)]);
    assert_eq!(out[..], bytes(8));
}

#[test]
#[should_panic(expected = "sources are as long as the destination")]
fn slices_of_other_lengths_are_a_bug() {
    let kernel = Kernel::new(DataType::Int8, ReduceOp::Sum, 2, Scalar::one(DataType::Int8));
    kernel.combine(&mut [0; 8], &[&[1; 8], &[1; 7]]);
}

#[test]
fn scalars_round_to_the_type_or_are_refused() {
    let bits = |dtype, value| Scalar::from_f64(dtype, value);
    assert_eq!(bits(DataType::Int8, -128.0), Ok(Scalar::from_element_bits(DataType::Int8, -128i64 as u64)));
    assert_eq!(
        bits(DataType::Uint64, 18_446_744_073_709_549_568.0).map(|s| s.acc_bits()),
        Ok(u64::MAX - 2047)
    );
    assert_eq!(bits(DataType::Float64, 0.1).map(|s| s.acc_bits()), Ok(0.1f64.to_bits()));
    // bfloat16 has eight bits of precision.
    assert_eq!(
        bits(DataType::Bfloat16, 0.1).map(|s| s.acc_bits()),
        Ok(u64::from(0.100_097_656f32.to_bits()))
    );
    for (dtype, value) in [
        (DataType::Int8, 128.0),
        (DataType::Uint8, -1.0),
        (DataType::Int32, 0.5),
        (DataType::Uint64, 18_446_744_073_709_551_616.0),
        (DataType::Int64, f64::NAN),
    ] {
        assert!(bits(dtype, value).is_err(), "{dtype} {value}");
    }
    let error = bits(DataType::Int32, 0.5).expect_err("not whole");
    assert_eq!(error.to_string(), "0.5 is no int32: give a whole number within the type's range");
    for dtype in DataType::ALL {
        assert_eq!(Scalar::from_f64(dtype, 1.0), Ok(Scalar::one(dtype)), "{dtype}");
    }
}

/// A thread that treats subnormals as zero and rounds towards zero.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_threads_mode_changes_nothing_and_is_left_alone() {
    const FLUSH_AND_TRUNCATE: u32 = 0xffc0;
    let kernel = Kernel::new(DataType::Float32, ReduceOp::Sum, 2, Scalar::one(DataType::Float32));
    let (one, almost_two) = (1f32, 2f32.next_down());
    let (mut subnormal, mut rounded) = ([0; 4], [0; 4]);
    let before = super::mode::read();
    super::mode::write(FLUSH_AND_TRUNCATE);
    let naive = std::hint::black_box(f32::from_bits(1)) * std::hint::black_box(1.0);
    kernel.combine(&mut subnormal, &[&1u32.to_ne_bytes(), &1u32.to_ne_bytes()]);
    kernel.combine(&mut rounded, &[&one.to_ne_bytes(), &almost_two.to_ne_bytes()]);
    let after = super::mode::read();
    super::mode::write(before);
    assert_eq!(naive.to_bits(), 0, "the test is about something");
    assert_eq!(u32::from_ne_bytes(subnormal), 2);
    assert_eq!(f32::from_ne_bytes(rounded), 3.0, "2.9999999 rounds up");
    assert_eq!(after & !0x3f, FLUSH_AND_TRUNCATE, "flags of past exceptions aside");
}
