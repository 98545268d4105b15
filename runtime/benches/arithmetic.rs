//! How fast the CPU combines elements, per type, operation and instruction set, in destination
//! bytes per second.
//!
//! `cargo bench -p ringsmith-runtime --bench arithmetic [WORD]` measures what WORD is part of, such
//! as `Avx2` or `bfloat16 sum`: two sources and four into one destination of 128 KiB, which with its
//! sources fits a second-level cache of 1 MiB, and the time of a call for 8 bytes.

use ringsmith_ir::types::{DataType, ReduceOp};
use ringsmith_runtime::device::cpu::arith::{Kernel, Level, Scalar};
use ringsmith_runtime::reference::{Data, Request, input};
use std::hint::black_box;
use std::time::Instant;

const LARGE_BYTES: usize = 128 * 1024;

/// Seconds a call takes: the best of five rounds.
fn seconds(calls: u32, mut call: impl FnMut()) -> f64 {
    let mut round = || {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_secs_f64() / f64::from(calls)
    };
    round();
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn measure(level: Level, dtype: DataType, op: ReduceOp) {
    let elements = (LARGE_BYTES / dtype.size_bytes()) as u64;
    let request = Request::new(ringsmith_ir::types::Collective::AllReduce, dtype, op, 4, elements)
        .expect("a request that can be made");
    let data = Data::exact(1);
    let sources: Vec<Vec<u8>> =
        (0..4).map(|rank| input(&request, &data, ringsmith_ir::entity::Rank::from_u32(rank))).collect();
    let scalar = Scalar::from_element_bits(dtype, request.scalar);
    let kernel = Kernel::at_level(level, dtype, op, 4, scalar);
    let mut dst = vec![0; LARGE_BYTES];
    let mut time = |bytes: usize, count: usize, calls| {
        let sources: Vec<&[u8]> = sources[..count].iter().map(|source| &source[..bytes]).collect();
        seconds(calls, || kernel.combine(black_box(&mut dst[..bytes]), black_box(&sources)))
    };
    let gbs = |seconds: f64| LARGE_BYTES as f64 / seconds / 1e9;
    let (two, four) = (gbs(time(LARGE_BYTES, 2, 200)), gbs(time(LARGE_BYTES, 4, 100)));
    let small_ns = time(8, 2, 100_000) * 1e9;
    println!("{level:?} {dtype} {op}: two {two:.1} GB/s, four {four:.1} GB/s, 8 bytes {small_ns:.1} ns");
}

fn main() {
    let word = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    for level in Level::available() {
        for dtype in DataType::ALL {
            for op in ReduceOp::ALL {
                if format!("{level:?} {dtype} {op}").contains(&word) {
                    measure(level, dtype, op);
                }
            }
        }
    }
}
