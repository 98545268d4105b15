//! The reference against the definitions it is written from, and against damage.

use super::data::{get_element, put_element};
use super::number::{bits_of, is_integer, power_of_two, value_of};
use super::{
    Data, Exactness, FloatFormat, Kind, MAX_REPORTED, PERIOD_ELEMENTS, Request, RequestError, Sizes, check,
    compare, error_bound, expected, format_of, input, reduce,
};
use ringsmith_ir::entity::Rank;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};

const NARROW: [DataType; 4] =
    [DataType::Float16, DataType::Bfloat16, DataType::Float8E4M3, DataType::Float8E5M2];

fn rank(index: u32) -> Rank {
    Rank::from_u32(index)
}

fn inputs(request: &Request, data: &Data) -> Vec<Vec<u8>> {
    request.every_rank().map(|rank| input(request, data, rank)).collect()
}

#[test]
fn formats_have_the_values_their_standards_list() {
    let known: [(DataType, u32, f64); 21] = [
        (DataType::Float16, 0x3c00, 1.0),
        (DataType::Float16, 0xc000, -2.0),
        (DataType::Float16, 0x7bff, 65504.0),
        (DataType::Float16, 0x0400, 1.0 / 16384.0),
        (DataType::Float16, 0x0001, 1.0 / 16_777_216.0),
        (DataType::Float16, 0xfc00, f64::NEG_INFINITY),
        (DataType::Bfloat16, 0x3f80, 1.0),
        (DataType::Bfloat16, 0x4049, 3.140625),
        (DataType::Bfloat16, 0x7f80, f64::INFINITY),
        (DataType::Float8E4M3, 0x38, 1.0),
        (DataType::Float8E4M3, 0x7e, 448.0),
        (DataType::Float8E4M3, 0x08, 1.0 / 64.0),
        (DataType::Float8E4M3, 0x01, 1.0 / 512.0),
        (DataType::Float8E4M3, 0xfe, -448.0),
        (DataType::Float8E5M2, 0x3c, 1.0),
        (DataType::Float8E5M2, 0x7b, 57344.0),
        (DataType::Float8E5M2, 0x04, 1.0 / 16384.0),
        (DataType::Float8E5M2, 0x01, 1.0 / 65536.0),
        (DataType::Float8E5M2, 0x7c, f64::INFINITY),
        (DataType::Float32, 0x4049_0fdb, 3.141_592_741_012_573_2),
        (DataType::Float32, 0x0000_0001, 1.401298464324817e-45),
    ];
    for (dtype, bits, value) in known {
        let format = format_of(dtype).expect("a float");
        assert_eq!(format.decode(bits), value, "{dtype} {bits:#x}");
    }
    for (dtype, nans) in [(DataType::Float16, 2046), (DataType::Bfloat16, 254)] {
        let format = format_of(dtype).expect("a float");
        assert_eq!((0..=0xffff).filter(|bits| format.decode(*bits).is_nan()).count(), nans, "{dtype}");
    }
    for (dtype, nans) in [(DataType::Float8E4M3, 2), (DataType::Float8E5M2, 6)] {
        let format = format_of(dtype).expect("a float");
        assert_eq!((0..=0xff).filter(|bits| format.decode(*bits).is_nan()).count(), nans, "{dtype}");
    }
}

#[test]
fn every_narrow_value_survives_a_round_trip() {
    for dtype in NARROW {
        let format = format_of(dtype).expect("a float");
        for bits in 0..1u32 << format.bits() {
            let value = format.decode(bits);
            let want = match (value.is_nan(), value.is_infinite() && format.saturates) {
                (true, _) => format.magnitude_mask(),
                (_, true) => bits - 1,
                _ => bits,
            };
            assert_eq!(format.encode(value), want, "{dtype} {bits:#x} = {value}");
        }
    }
}

/// Neighbouring values, halfway points and what lies just beside those.
fn rounds_to_nearest_even(dtype: DataType, format: FloatFormat) {
    for low in 0..format.largest() {
        let (below, above) = (format.decode(low), format.decode(low + 1));
        assert!(below < above, "{dtype}: values grow with bits");
        let middle = (below + above) / 2.0;
        let even = low + (low & 1);
        for (value, want) in
            [(middle, even), (middle.next_down(), low), (middle.next_up(), low + 1), (below.next_up(), low)]
        {
            assert_eq!(format.encode(value), want, "{dtype} {value:e}");
            let sign = format.magnitude_mask() + 1;
            assert_eq!(format.encode(-value), want | sign, "{dtype} -{value:e}");
        }
    }
}

#[test]
fn encoding_takes_the_nearest_value_and_the_even_one_of_two() {
    for dtype in NARROW {
        let format = format_of(dtype).expect("a float");
        rounds_to_nearest_even(dtype, format);
        let largest = format.decode(format.largest());
        let step = largest - format.decode(format.largest() - 1);
        let beyond = if format.saturates { format.largest() } else { format.infinity().expect("it has one") };
        assert_eq!(format.encode((largest + step / 2.0).next_down()), format.largest(), "{dtype}");
        assert_eq!(format.encode(largest + step / 2.0), beyond, "{dtype}");
        assert_eq!(format.encode(f64::MAX), beyond, "{dtype}");
        assert_eq!(format.encode(f64::INFINITY), beyond, "{dtype}");
    }
}

#[test]
fn the_general_format_agrees_with_the_hardware_for_float32() {
    let format = format_of(DataType::Float32).expect("a float");
    let mut word = 1u64;
    for _ in 0..200_000 {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let single = f32::from_bits((word >> 32) as u32);
        let decoded = format.decode(single.to_bits());
        assert!(decoded == f64::from(single) || (decoded.is_nan() && single.is_nan()), "{single:e}");
        // Doubles with exponents around the range of a 32-bit float.
        let exponent = 1023 - 160 + (word >> 52) % 300;
        let double = f64::from_bits((word & ((1 << 52) - 1)) | (exponent << 52));
        assert_eq!(format.encode(double), (double as f32).to_bits(), "{double:e}");
    }
}

#[test]
fn reductions_follow_the_rules_for_a_few_hand_made_cases() {
    let float = |value: f32| u64::from(value.to_bits());
    let cases = [
        // Wraps, then divides; truncates towards zero.
        (DataType::Int8, ReduceOp::Sum, vec![100, 100], 200),
        (DataType::Int8, ReduceOp::Avg, vec![0xf9, 0xfc, 0xfd], 0xfc),
        (DataType::Uint8, ReduceOp::Avg, vec![200, 100, 1], 15),
        (DataType::Int8, ReduceOp::Min, vec![0x7f, 0x80], 0x80),
        (DataType::Uint8, ReduceOp::Min, vec![0x7f, 0x80], 0x7f),
        (DataType::Uint64, ReduceOp::Prod, vec![u64::MAX, u64::MAX], 1),
        (DataType::Int32, ReduceOp::PremulSum, vec![5, 0xffff_ffff], 8),
        // In rank order in 32 bits: the small terms vanish one by one in front, not behind.
        (
            DataType::Float32,
            ReduceOp::Sum,
            vec![float(16_777_216.0), float(1.0), float(1.0)],
            float(16_777_216.0),
        ),
        (
            DataType::Float32,
            ReduceOp::Sum,
            vec![float(1.0), float(1.0), float(16_777_216.0)],
            float(16_777_218.0),
        ),
        // One rounding at the end: 256 + 1 + 1 is 258 in bfloat16, but 257 rounds to 256.
        (DataType::Bfloat16, ReduceOp::Sum, vec![0x4380, 0x3f80, 0x3f80], 0x4381),
        (DataType::Float32, ReduceOp::Max, vec![float(-0.0), float(0.0)], float(0.0)),
        (DataType::Float32, ReduceOp::Max, vec![float(0.0), float(-0.0)], float(0.0)),
        (DataType::Float32, ReduceOp::Min, vec![float(0.0), float(-0.0)], float(-0.0)),
        (DataType::Float32, ReduceOp::Min, vec![float(1.0), float(-f32::NAN)], 0x7fff_ffff),
        (DataType::Float8E4M3, ReduceOp::Sum, vec![0x7e, 0x7e], 0x7e),
        (DataType::Float8E4M3, ReduceOp::Max, vec![0x7e, 0xff], 0x7f),
        (DataType::Float8E5M2, ReduceOp::Max, vec![0x7c, 0x7b], 0x7c),
        (DataType::Float8E5M2, ReduceOp::Sum, vec![0x7c, 0x3c], 0x7b),
        (DataType::Float16, ReduceOp::Sum, vec![0x7bff, 0x7bff], 0x7c00),
    ];
    for (dtype, op, terms, want) in cases {
        let scalar = if is_integer(dtype) { 2 } else { bits_of(dtype, 2.0) };
        let got = reduce(dtype, op, terms.len() as u32, scalar, &terms);
        assert_eq!(got, want, "{dtype} {op} of {terms:x?}: {got:#x}, not {want:#x}");
    }
}

/// The reduction in the order of `order`, rounded to the type after every step as between hops.
fn reduce_by_hops(request: &Request, terms: &[u64], order: &[usize]) -> u64 {
    let dtype = request.dtype;
    // The first step, with a rounding; the steps between; the last step.
    let scaled = |bits: u64| match request.op {
        ReduceOp::PremulSum => reduce(dtype, ReduceOp::PremulSum, 1, request.scalar, &[bits]),
        _ => bits,
    };
    let step = match request.op {
        ReduceOp::Avg | ReduceOp::PremulSum => ReduceOp::Sum,
        op => op,
    };
    let mut acc = scaled(terms[order[0]]);
    for &index in &order[1..] {
        acc = reduce(dtype, step, request.ranks, 0, &[acc, scaled(terms[index])]);
    }
    if request.op == ReduceOp::Avg { reduce(dtype, ReduceOp::Avg, request.ranks, 0, &[acc]) } else { acc }
}

/// A few orders of `n` terms: backwards, forwards, and from the middle outwards.
fn orders(n: usize) -> Vec<Vec<usize>> {
    let outwards = (0..n).map(|i| if i % 2 == 0 { n / 2 + i / 2 } else { n / 2 - 1 - i / 2 });
    vec![(0..n).rev().collect(), (0..n).collect(), outwards.collect()]
}

#[test]
fn exact_data_has_one_result_in_every_order() {
    for dtype in DataType::ALL {
        for op in ReduceOp::ALL {
            for ranks in [2, 3, 8, 17, 100] {
                let request = Request::new(Collective::AllReduce, dtype, op, ranks, 1).expect("a request");
                let data = Data::exact(u64::from(ranks));
                assert!(data.is_exact(&request), "{dtype} {op}");
                for index in 0..60 {
                    let terms: Vec<u64> =
                        request.every_rank().map(|rank| data.bits(&request, rank, index)).collect();
                    let want = reduce(dtype, op, ranks, request.scalar, &terms);
                    for order in orders(ranks as usize) {
                        let got = reduce_by_hops(&request, &terms, &order);
                        assert_eq!(got, want, "{dtype} {op} of {ranks}, element {index}, order {order:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn rounding_data_stays_within_the_bound_and_damage_does_not() {
    for dtype in NARROW.into_iter().chain([DataType::Float32, DataType::Float64]) {
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Avg, ReduceOp::PremulSum] {
            let ranks = 5;
            let request = Request::new(Collective::AllReduce, dtype, op, ranks, 3000).expect("a request");
            let data = Data { seed: 3, kind: Kind::Rounding };
            assert!(!data.is_exact(&request));
            let all = inputs(&request, &data);
            for order in orders(ranks as usize) {
                let mut output = Vec::new();
                let mut missing = Vec::new();
                for index in 0..3000 {
                    let size = dtype.size_bytes();
                    let terms: Vec<u64> = all.iter().map(|input| get_element(input, size, index)).collect();
                    put_element(&mut output, size, reduce_by_hops(&request, &terms, &order));
                    put_element(&mut missing, size, reduce_by_hops(&request, &terms, &order[1..]));
                }
                let report = check(&request, &data, rank(2), &output);
                assert_eq!(report.wrong, 0, "{dtype} {op} {order:?}: {}", report.first[0]);
                // With three or four bits of precision and five terms little is provably wrong: data
                // that rounds is no check of eight-bit types, exact data is.
                if dtype.size_bytes() > 1 {
                    let found = check(&request, &data, rank(2), &missing).wrong;
                    assert!(found > 2000, "{dtype} {op}: {found} of 3000 found");
                }
            }
        }
    }
}

#[test]
fn the_bound_is_that_of_the_last_place_for_one_addition() {
    let bound = error_bound(DataType::Float32, ReduceOp::Sum, 2, 1.0);
    assert!(bound >= power_of_two(-24) && bound < power_of_two(-23), "{bound:e}");
    assert_eq!(error_bound(DataType::Float32, ReduceOp::Max, 9, 1.0), 0.0);
    assert_eq!(error_bound(DataType::Int32, ReduceOp::Sum, 9, 1.0), 0.0);
}

#[test]
fn a_missing_or_doubled_contribution_is_found_in_exact_data() {
    for dtype in DataType::ALL {
        for op in ReduceOp::ALL {
            let ranks = 4;
            let request = Request::new(Collective::AllReduce, dtype, op, ranks, 500).expect("a request");
            let data = Data::exact(11);
            let mut all = inputs(&request, &data);
            let good = expected(&request, rank(0), &all);
            assert_eq!(check(&request, &data, rank(0), &good).wrong, 0, "{dtype} {op}");
            // Rank 3 is left out, and rank 0 counts twice.
            all[3] = all[0].clone();
            let bad = expected(&request, rank(0), &all);
            let found = check(&request, &data, rank(0), &bad).wrong;
            // A minimum or maximum changes where rank 3 had it: a quarter of 500.
            assert!(found > 75, "{dtype} {op}: {found} of 500 found");
        }
    }
}

/// What each rank should get, written out for element values `rank * 10 + block`.
#[test]
fn outputs_are_laid_out_as_the_collectives_prescribe() {
    let run = |collective, blocks_in: &[&[u8]], root: u32, sizes: Sizes, of: u32| -> Vec<u8> {
        let request = Request::new(collective, DataType::Uint8, ReduceOp::Sum, 3, 1)
            .and_then(|request| request.with_root(rank(root)))
            .and_then(|request| request.with_sizes(sizes))
            .expect("a request");
        expected(&request, rank(of), blocks_in)
    };
    let each: [&[u8]; 3] = [&[0], &[10], &[20]];
    let blocks: [&[u8]; 3] = [&[0, 1, 2], &[10, 11, 12], &[20, 21, 22]];
    let at_1: [&[u8]; 3] = [&[], &[10, 11, 12], &[]];
    assert_eq!(run(Collective::AllReduce, &each, 0, Sizes::Equal, 2), [30]);
    assert_eq!(run(Collective::Reduce, &each, 1, Sizes::Equal, 1), [30]);
    assert_eq!(run(Collective::Reduce, &each, 1, Sizes::Equal, 0), [0u8; 0]);
    assert_eq!(run(Collective::AllGather, &each, 0, Sizes::Equal, 1), [0, 10, 20]);
    assert_eq!(run(Collective::Gather, &each, 2, Sizes::Equal, 2), [0, 10, 20]);
    assert_eq!(run(Collective::Gather, &each, 2, Sizes::Equal, 0), [0u8; 0]);
    assert_eq!(run(Collective::ReduceScatter, &blocks, 0, Sizes::Equal, 2), [36]);
    assert_eq!(run(Collective::Broadcast, &[&[], &[7], &[]], 1, Sizes::Equal, 0), [7]);
    assert_eq!(run(Collective::Scatter, &at_1, 1, Sizes::Equal, 2), [12]);
    assert_eq!(run(Collective::AllToAll, &blocks, 0, Sizes::Equal, 1), [1, 11, 21]);
    assert_eq!(run(Collective::AllToAllV, &blocks, 0, Sizes::Equal, 1), [1, 11, 21]);
    assert_eq!(run(Collective::SendRecv, &each, 0, Sizes::NextRank, 0), [20]);
    assert_eq!(run(Collective::Barrier, &[&[], &[], &[]], 0, Sizes::Equal, 0), [0u8; 0]);
    // Row by row: rank 0 sends 0, 2, 1; rank 1 sends 1, 0, 0; rank 2 sends 0, 1, 2.
    let table = Sizes::Table(vec![0, 2, 1, 1, 0, 0, 0, 1, 2]);
    let uneven: [&[u8]; 3] = [&[1, 2, 3], &[11], &[21, 22, 23]];
    assert_eq!(run(Collective::AllToAllV, &uneven, 0, table.clone(), 0), [11]);
    assert_eq!(run(Collective::AllToAllV, &uneven, 0, table.clone(), 1), [1, 2, 21]);
    assert_eq!(run(Collective::SendRecv, &uneven, 0, table, 2), [3, 22, 23]);
}

#[test]
fn checking_agrees_with_the_expected_output_past_the_period() {
    let count = PERIOD_ELEMENTS as u64 + 3000;
    for collective in Collective::ALL {
        for (dtype, kind) in [
            (DataType::Float32, Kind::Exact),
            (DataType::Bfloat16, Kind::Exact),
            (DataType::Float16, Kind::Rounding),
            (DataType::Uint8, Kind::Wild),
        ] {
            let request = Request::new(collective, dtype, ReduceOp::Sum, 3, count)
                .and_then(|request| request.with_root(rank(2)))
                .expect("a request");
            let data = Data { seed: 5, kind };
            let all = inputs(&request, &data);
            for rank in request.every_rank() {
                let mut output = expected(&request, rank, &all);
                assert_eq!(output.len() as u64, request.output_elements(rank) * dtype.size_bytes() as u64);
                assert_eq!(check(&request, &data, rank, &output).wrong, 0, "{collective} {dtype}");
                let Some(last) = output.last_mut() else { continue };
                *last ^= 0x55;
                let report = check(&request, &data, rank, &output);
                assert_eq!(report.wrong, 1, "{collective} {dtype}");
                assert_eq!(report.first[0].index + 1, request.output_elements(rank));
            }
        }
    }
}

#[test]
fn comparison_counts_all_and_keeps_the_first() {
    let (want, mut got) = (vec![0u8; 40_000], vec![0u8; 40_000]);
    for index in (4..40_000).step_by(400) {
        got[index] = 1;
    }
    let report = compare(&want, &got, DataType::Int32, Exactness::Bits);
    assert_eq!((report.wrong, report.first.len()), (100, MAX_REPORTED));
    assert_eq!(report.first[1].index, 101);
    assert_eq!(report.first[0].to_string(), "element 1: expected 0 (0x00000000), got 1 (0x00000001)");

    let nan = [0x7fu8, 0x7e];
    let other = [0xffu8, 0x7e];
    assert_eq!(compare(&nan, &other, DataType::Float8E4M3, Exactness::Values).wrong, 0);
    assert_eq!(compare(&nan, &other, DataType::Float8E4M3, Exactness::Bits).wrong, 1);
    assert_eq!(compare(&nan, &nan[..], DataType::Float8E4M3, Exactness::Within(&[0.0; 2])).wrong, 0);
    let near = [0x7fu8, 0x7d];
    assert_eq!(value_of(DataType::Float8E4M3, 0x7d), 416.0);
    assert_eq!(compare(&nan, &near, DataType::Float8E4M3, Exactness::Within(&[0.0, 32.0])).wrong, 0);
    assert_eq!(compare(&nan, &near, DataType::Float8E4M3, Exactness::Within(&[0.0, 31.0])).wrong, 1);
}

#[test]
fn impossible_requests_are_refused_by_reason() {
    let new =
        |ranks, count| Request::new(Collective::AllToAllV, DataType::Float64, ReduceOp::Sum, ranks, count);
    assert_eq!(new(0, 1), Err(RequestError::NoRanks));
    assert_eq!(new(3, u64::MAX / 2), Err(RequestError::TooLarge));
    assert_eq!(new(1, 1 << 60), Err(RequestError::TooLarge));
    let three = new(3, 1).expect("a request");
    let root = three.clone().with_root(rank(3)).expect_err("no such rank");
    assert_eq!(root.to_string(), "root r3 is none of the 3 ranks");
    let table = three.clone().with_sizes(Sizes::Table(vec![1; 8])).expect_err("not square");
    assert_eq!(table.to_string(), "a table of sizes for 3 ranks has 3 x 3 entries, not 8");
    assert_eq!(three.with_sizes(Sizes::Table(vec![u64::MAX; 9])), Err(RequestError::TooLarge));
}
