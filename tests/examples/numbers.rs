//! Numbers for the shards, and their means by one process.

use ringsmith::DataType;
use ringsmith_ir::types::ReduceOp;
use ringsmith_runtime::reference::{error_bound, format_of, reduce};

/// A small random source (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// The bits of an element: any integer, or a float between -8 and 8 with all its digits.
    fn element(&mut self, dtype: DataType) -> u64 {
        let value = (self.next() >> 11) as f64 * (16.0 / (1u64 << 53) as f64) - 8.0;
        encode(dtype, value).unwrap_or_else(|| self.next())
    }

    /// Bytes of a tensor.
    pub(crate) fn bytes(&mut self, dtype: DataType, elements: usize) -> Vec<u8> {
        let element = |_| self.element(dtype).to_le_bytes()[..dtype.size_bytes()].to_vec();
        (0..elements).flat_map(element).collect()
    }
}

/// The bits of a float's nearest number; nothing for integers.
fn encode(dtype: DataType, value: f64) -> Option<u64> {
    match dtype {
        DataType::Float64 => Some(value.to_bits()),
        _ => format_of(dtype).map(|format| format.encode(value).into()),
    }
}

fn decode(dtype: DataType, bits: u64) -> Option<f64> {
    match dtype {
        DataType::Float64 => Some(f64::from_bits(bits)),
        _ => format_of(dtype).map(|format| format.decode(bits as u32)),
    }
}

/// The bits of the elements of a buffer.
fn elements(dtype: DataType, bytes: &[u8]) -> Vec<u64> {
    let of = |chunk: &[u8]| chunk.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    bytes.chunks_exact(dtype.size_bytes()).map(of).collect()
}

/// How a mean is compared.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// The ranks were added in their order: the bits must be equal.
    OfRanks,
    /// In an order that the plan has chosen: floats may be off by what docs/arithmetic.md derives,
    /// from the exact value on both sides.
    OfPlan,
}

/// Compares a mean with that of all ranks' bytes, worked out here one element at a time.
///
/// Panics: at the first wrong element.
#[track_caller]
pub(crate) fn check_mean(what: &str, dtype: DataType, inputs: &[&[u8]], got: &[u8], order: Order) {
    let inputs: Vec<Vec<u64>> = inputs.iter().map(|bytes| elements(dtype, bytes)).collect();
    let got = elements(dtype, got);
    assert_eq!(got.len(), inputs[0].len(), "{what}: as many elements");
    let ranks = inputs.len() as u32;
    for (index, have) in got.iter().enumerate() {
        let terms: Vec<u64> = inputs.iter().map(|input| input[index]).collect();
        let want = reduce(dtype, ReduceOp::Avg, ranks, 1, &terms);
        let near = || {
            let magnitude: Option<f64> = terms.iter().map(|bits| decode(dtype, *bits).map(f64::abs)).sum();
            let bound = error_bound(dtype, ReduceOp::Avg, ranks, magnitude? / f64::from(ranks));
            Some((decode(dtype, want)? - decode(dtype, *have)?).abs() <= 2.0 * bound)
        };
        let right = *have == want || (matches!(order, Order::OfPlan) && near() == Some(true));
        assert!(right, "{what}: {dtype}, element {index} of {terms:x?}: {have:#x}, expected {want:#x}");
    }
}

#[test]
fn the_mean_of_floats_is_the_plain_one() {
    let (a, b, c) = (0.1f32, -7.3f32, 2.9f32);
    let bytes = [a, b, c].map(f32::to_le_bytes);
    let inputs: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    check_mean("f32", DataType::Float32, &inputs, &((a + b + c) / 3.0).to_le_bytes(), Order::OfRanks);
    let (a, b) = (0.1f64, 1e10f64);
    let bytes = [a, b].map(f64::to_le_bytes);
    let inputs: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    check_mean("f64", DataType::Float64, &inputs, &((a + b) / 2.0).to_le_bytes(), Order::OfRanks);
    let bytes = [-7i32, 2].map(i32::to_le_bytes);
    let inputs: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
    check_mean("i32", DataType::Int32, &inputs, &(-2i32).to_le_bytes(), Order::OfRanks);
}
