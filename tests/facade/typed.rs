//! Every call for every element type, against arithmetic written out here.
//!
//! Values are small whole numbers, which every type holds exactly and in every partial sum.

use crate::all_well;
use ringsmith::{Communicator, Element, Error, F8E4M3, F8E5M2, Op, bf16, f16};

/// Enough for blocks that differ, few enough that sums stay below 8.
const WORLD: u32 = 3;

/// An element type with small numbers.
trait Number: Element {
    fn of(value: u8) -> Self;
}

macro_rules! numbers {
    ($($type:ty: $from:expr;)*) => {$(
        impl Number for $type {
            fn of(value: u8) -> Self {
                let from: fn(u8) -> $type = $from;
                from(value)
            }
        }
    )*};
}

numbers! {
    i8: |v| v as i8;
    u8: |v| v;
    i32: |v| v.into();
    u32: |v| v.into();
    i64: |v| v.into();
    u64: |v| v.into();
    f16: |v| f16::from_f32(v.into());
    bf16: |v| bf16::from_f32(v.into());
    f32: |v| v.into();
    f64: |v| v.into();
    F8E4M3: |v| F8E4M3::from_f32(v.into());
    F8E5M2: |v| F8E5M2::from_f32(v.into());
}

/// What rank `rank` puts at `index`: 0, 1 or 2, differently on each rank.
fn own(rank: u32, index: usize) -> u8 {
    ((rank as usize * 2 + index + index / 3) % 3) as u8
}

fn filled<T: Number>(len: usize, value: impl Fn(usize) -> u8) -> Vec<T> {
    (0..len).map(|index| T::of(value(index))).collect()
}

/// The values of all ranks at an index.
fn everybody(index: usize) -> [u8; WORLD as usize] {
    [0, 1, 2].map(|rank| own(rank, index))
}

/// How three values become one.
type Combine = fn([u8; 3]) -> u8;

/// Operations with exact results here.
const OPERATIONS: [(Op, Combine); 6] = [
    (Op::Sum, |v| v.iter().sum()),
    (Op::Prod, |v| v.iter().product()),
    (Op::Max, |v| v[0].max(v[1]).max(v[2])),
    (Op::Min, |v| v[0].min(v[1]).min(v[2])),
    // own() makes the three values 0, 1 and 2 in some order, so their mean is whole.
    (Op::Avg, |v| v.iter().sum::<u8>() / 3),
    (Op::PremulSum(2.0), |v| 2 * v.iter().sum::<u8>()),
];

fn reductions<T: Number>(comm: &Communicator, n: usize) -> Result<(), Error> {
    let rank = comm.rank();
    for (op, combine) in OPERATIONS {
        let input = filled::<T>(n, |i| own(rank, i));
        let whole = filled::<T>(n, |i| combine(everybody(i)));
        let mut output = filled::<T>(n, |_| 7);
        comm.all_reduce(&input, &mut output, op)?;
        assert_eq!(output, whole, "all_reduce {op}");
        let mut buffer = input.clone();
        comm.all_reduce_in_place(&mut buffer, op)?;
        assert_eq!(buffer, whole, "all_reduce in place {op}");

        for root in 0..WORLD {
            let mut output = filled::<T>(if rank == root { n } else { 0 }, |_| 7);
            comm.reduce(&input, &mut output, op, root)?;
            assert!(rank != root || output == whole, "reduce {op} to {root}: {output:?}");
            let mut buffer = input.clone();
            comm.reduce_in_place(&mut buffer, op, root)?;
            assert!(rank != root || buffer == whole, "reduce in place {op} to {root}: {buffer:?}");
        }

        let input = filled::<T>(3 * n, |i| own(rank, i));
        let start = n * rank as usize;
        let block = filled::<T>(n, |i| combine(everybody(start + i)));
        let mut output = filled::<T>(n, |_| 7);
        comm.reduce_scatter(&input, &mut output, op)?;
        assert_eq!(output, block, "reduce_scatter {op}");
        let mut buffer = input;
        comm.reduce_scatter_in_place(&mut buffer, op)?;
        assert_eq!(buffer[start..start + n], block, "reduce_scatter in place {op}");
    }
    Ok(())
}

fn movements<T: Number>(comm: &Communicator, n: usize) -> Result<(), Error> {
    let rank = comm.rank();
    let here = n * rank as usize;
    let input = filled::<T>(n, |i| own(rank, i));
    let all = filled::<T>(3 * n, |i| own((i / n.max(1)) as u32, i % n.max(1)));
    let with_own_block = || {
        let mut buffer = filled::<T>(3 * n, |_| 7);
        buffer[here..here + n].copy_from_slice(&input);
        buffer
    };

    let mut output = filled::<T>(3 * n, |_| 7);
    comm.all_gather(&input, &mut output)?;
    assert_eq!(output, all, "all_gather");
    let mut buffer = with_own_block();
    comm.all_gather_in_place(&mut buffer)?;
    assert_eq!(buffer, all, "all_gather in place");

    for root in 0..WORLD {
        let is_root = rank == root;
        let at_root = |len| if is_root { len } else { 0 };
        let roots = filled::<T>(n, |i| own(root, i));
        let mut output = filled::<T>(n, |_| 7);
        comm.broadcast(&input[..at_root(n)], &mut output, root)?;
        assert_eq!(output, roots, "broadcast from {root}");
        let mut buffer = input.clone();
        comm.broadcast_in_place(&mut buffer, root)?;
        assert_eq!(buffer, roots, "broadcast in place from {root}");

        let mut output = filled::<T>(at_root(3 * n), |_| 7);
        comm.gather(&input, &mut output, root)?;
        assert!(!is_root || output == all, "gather to {root}: {output:?}");
        let mut buffer = with_own_block();
        comm.gather_in_place(&mut buffer, root)?;
        assert!(!is_root || buffer == all, "gather in place to {root}: {buffer:?}");

        let mut output = filled::<T>(n, |_| 7);
        comm.scatter(&all[..at_root(3 * n)], &mut output, root)?;
        assert_eq!(output, input, "scatter from {root}");
        let mut buffer = if is_root { all.clone() } else { filled::<T>(3 * n, |_| 7) };
        comm.scatter_in_place(&mut buffer, root)?;
        assert_eq!(buffer[here..here + n], input, "scatter in place from {root}");
        assert!(!is_root || buffer == all, "scatter in place leaves the root's buffer");
    }

    // Block r of rank s holds own(s, r n + i).
    let input = filled::<T>(3 * n, |i| own(rank, i));
    let turned = filled::<T>(3 * n, |i| own((i / n.max(1)) as u32, here + i % n.max(1)));
    let mut output = filled::<T>(3 * n, |_| 7);
    comm.all_to_all(&input, &mut output)?;
    assert_eq!(output, turned, "all_to_all");
    let mut buffer = input;
    comm.all_to_all_in_place(&mut buffer)?;
    assert_eq!(buffer, turned, "all_to_all in place");
    comm.barrier()
}

/// Messages, and an exchange in which rank s sends s + r elements to rank r.
fn messages<T: Number>(comm: &Communicator, n: usize) -> Result<(), Error> {
    let rank = comm.rank();
    let mut got = filled::<T>(n, |_| 7);
    match rank {
        0 => comm.send(&filled::<T>(n, |i| own(0, i)), 2)?,
        2 => {
            comm.recv(&mut got, 0)?;
            assert_eq!(got, filled::<T>(n, |i| own(0, i)));
        }
        _ => {}
    }
    let counts: Vec<usize> = (0..3).map(|peer| rank as usize + peer).collect();
    let total = counts.iter().sum();
    let input = filled::<T>(total, |_| rank as u8);
    let mut output = filled::<T>(total, |_| 7);
    comm.all_to_all_v(&input, &counts, &mut output, &counts)?;
    let expected: Vec<T> =
        (0..3u8).flat_map(|from| vec![T::of(from); usize::from(from) + rank as usize]).collect();
    assert_eq!(output, expected, "all_to_all_v");
    Ok(())
}

fn every_call<T: Number>() {
    all_well(WORLD, |comm| {
        for n in [0, 1, 7] {
            reductions::<T>(comm, n)?;
            movements::<T>(comm, n)?;
            messages::<T>(comm, n)?;
        }
        Ok(())
    });
}

macro_rules! test_each_type {
    ($($name:ident: $type:ty;)*) => {$(
        #[test]
        fn $name() {
            every_call::<$type>();
        }
    )*};
}

test_each_type! {
    every_call_of_int8: i8;
    every_call_of_uint8: u8;
    every_call_of_int32: i32;
    every_call_of_uint32: u32;
    every_call_of_int64: i64;
    every_call_of_uint64: u64;
    every_call_of_float16: f16;
    every_call_of_bfloat16: bf16;
    every_call_of_float32: f32;
    every_call_of_float64: f64;
    every_call_of_float8e4m3: F8E4M3;
    every_call_of_float8e5m2: F8E5M2;
}

#[test]
fn large_and_odd_counts() {
    all_well(2, |comm| {
        let n = 1_000_003;
        let mut values: Vec<i32> = (0..n).map(|i| i * (1 + comm.rank() as i32)).collect();
        comm.all_reduce_in_place(&mut values, Op::Sum)?;
        let wrong = (0..n).zip(&values).find(|(i, value)| **value != 3 * i);
        assert_eq!(wrong, None);
        Ok(())
    });
}

#[test]
fn ranks_bring_their_own_factors() {
    all_well(3, |comm| {
        let mut values = [1.0f64, 10.0];
        comm.all_reduce_in_place(&mut values, Op::PremulSum(f64::from(comm.rank())))?;
        assert_eq!(values, [3.0, 30.0]);
        let mut whole = [5u8];
        let error = comm.all_reduce_in_place(&mut whole, Op::PremulSum(0.5)).expect_err("no whole number");
        assert!(error.to_string().contains("premulsum") && error.exit_status().code() == 2, "{error}");
        comm.all_reduce_in_place(&mut whole, Op::PremulSum(2.0))?;
        assert_eq!(whole, [30]);
        Ok(())
    });
}

#[test]
fn a_group_of_everything() {
    all_well(WORLD, |comm| {
        let (rank, world) = (comm.rank(), comm.world());
        let own = [rank as f32];
        let (mut sum, mut all, mut flags) = ([0.0f32], [0u64; 3], [rank as u8]);
        let mut from = [[9u32; 1]; 3];
        let mut block = [0i64];
        let table = [10i64, 20, 30];
        let mut exchanged = [0u8; 9];
        comm.group(|g| {
            g.all_reduce(&own, &mut sum, Op::Sum);
            // Messages in an order of each rank's own.
            for (peer, slot) in (0..).zip(&mut from) {
                g.recv(slot, peer);
            }
            g.all_gather(&[7u64], &mut all);
            for step in 0..world {
                g.send(&[42u32], (rank + step) % world);
            }
            g.reduce_scatter(&table, &mut block, Op::Max);
            g.all_reduce_in_place(&mut flags, Op::Max);
            g.barrier();
            g.all_to_all_v(
                &[1, 2, 2, 3, 3, 3],
                &[1, 2, 3],
                &mut exchanged[..3 * (rank as usize + 1)],
                &[rank as usize + 1; 3],
            );
        })?;
        assert_eq!((sum, all, flags), ([3.0], [7; 3], [2]));
        assert_eq!((from, block), ([[42]; 3], [table[rank as usize]]));
        assert_eq!(exchanged[0], rank as u8 + 1);
        comm.group(|_| ())
    });
}

#[test]
fn messages_between_two_ranks_match_in_order() {
    all_well(2, |comm| {
        let peer = 1 - comm.rank();
        let sent: Vec<Vec<u32>> = (0..10).map(|k| vec![k + 100 * comm.rank(); k as usize]).collect();
        let mut got: Vec<Vec<u32>> = (0..10).map(|k| vec![0; k]).collect();
        comm.group(|g| {
            got.iter_mut().for_each(|data| g.recv(data, peer));
            sent.iter().for_each(|data| g.send(data, peer));
        })?;
        for (k, data) in (0..).zip(got) {
            assert_eq!(data, vec![k + 100 * peer; k as usize]);
        }
        Ok(())
    });
}
