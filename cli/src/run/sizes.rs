//! How many elements a size means, and how fast a time is: nccl-tests' definitions.
//!
//! A size is that of the larger side of a collective's data. Bus bandwidth is what the busiest link
//! carries if every rank has one: the algorithm's bandwidth times a factor of the collective and the
//! number of ranks, so that it can be held against hardware whatever that number.

use ringsmith_ir::types::{Collective, DataType};

/// Whether a count is one rank's share of the larger side.
fn shared_out(collective: Collective) -> bool {
    collective.blocked() || collective == Collective::AllToAllV
}

/// The count that a request for `bytes` has: of the whole, or of one rank's share. Rounded down.
pub(crate) fn elements(collective: Collective, dtype: DataType, ranks: u32, bytes: u64) -> u64 {
    let elements = bytes / dtype.size_bytes() as u64;
    match collective {
        Collective::Barrier => 0,
        _ if shared_out(collective) => elements / u64::from(ranks),
        _ => elements,
    }
}

/// Bytes of the larger side for a count: what was asked for, or a little less.
pub(crate) fn bytes(collective: Collective, dtype: DataType, ranks: u32, count: u64) -> u64 {
    let parts = if shared_out(collective) { u64::from(ranks) } else { 1 };
    count * parts * dtype.size_bytes() as u64
}

/// Bus bandwidth over algorithm bandwidth.
pub(crate) fn bus_factor(collective: Collective, ranks: u32) -> f64 {
    let n = f64::from(ranks);
    match collective {
        Collective::AllReduce => 2.0 * (n - 1.0) / n,
        Collective::AllGather
        | Collective::ReduceScatter
        | Collective::Gather
        | Collective::Scatter
        | Collective::AllToAll
        | Collective::AllToAllV => (n - 1.0) / n,
        Collective::Broadcast | Collective::Reduce | Collective::SendRecv => 1.0,
        Collective::Barrier => 0.0,
    }
}

/// Gigabytes (10^9) a second.
pub(crate) fn bandwidth_gbs(bytes: u64, time_us: f64) -> f64 {
    if time_us > 0.0 { bytes as f64 / time_us / 1e3 } else { 0.0 }
}

/// Every size from `min` to `max`, each `factor` times the one before. A zero is followed by 8.
pub(crate) fn sweep(min: u64, max: u64, factor: u64) -> Vec<u64> {
    let next = |&size: &u64| if size == 0 { Some(8) } else { size.checked_mul(factor) };
    std::iter::successors(Some(min), next).take_while(|&size| size <= max).collect()
}

/// How many elements each rank sends to each other in `all_to_all_v`, row by row: uneven, and
/// together at most `count` for every pair.
pub(crate) fn uneven(count: u64, ranks: u32) -> Vec<u64> {
    let n = u64::from(ranks);
    // Weights 1 to n go round, so that every row and every column has each of them once; their mean
    // is (n + 1) / 2.
    let share = |weight: u64| (u128::from(count) * u128::from(weight) * 2 / u128::from(n + 1)) as u64;
    (0..n).flat_map(|from| (0..n).map(move |to| share(1 + (from + to) % n))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_of_the_whole_or_of_a_share() {
        let f32s = |collective, bytes| elements(collective, DataType::Float32, 4, bytes);
        assert_eq!(f32s(Collective::AllReduce, 1024), 256);
        assert_eq!(f32s(Collective::AllGather, 1024), 64);
        assert_eq!(f32s(Collective::AllToAllV, 1023), 63);
        assert_eq!(f32s(Collective::Barrier, 1024), 0);
        assert_eq!(bytes(Collective::ReduceScatter, DataType::Float32, 4, 64), 1024);
        assert_eq!(bytes(Collective::SendRecv, DataType::Float64, 4, 64), 512);
    }

    #[test]
    fn sweeps_end_at_the_largest_size() {
        assert_eq!(sweep(8, 64 << 20, 8).len(), 8);
        assert_eq!(sweep(8, 100, 2), [8, 16, 32, 64]);
        assert_eq!(sweep(0, 64, 8), [0, 8, 64]);
        assert_eq!(sweep(0, 0, 2), [0]);
        assert_eq!(sweep(u64::MAX, u64::MAX, 2), [u64::MAX]);
    }

    #[test]
    fn uneven_sizes_fill_the_buffers_and_no_more() {
        for ranks in 1..10 {
            let n = ranks as usize;
            let table = uneven(1000, ranks);
            for i in 0..n {
                let row: u64 = table[i * n..][..n].iter().sum();
                let column: u64 = (0..n).map(|from| table[from * n + i]).sum();
                assert_eq!(row, column);
                assert!(row <= 1000 * u64::from(ranks) && row + u64::from(ranks) > 1000 * u64::from(ranks));
            }
            assert!(ranks == 1 || table[0] != table[1]);
        }
    }

    #[test]
    fn bandwidths_follow_nccl_tests() {
        assert_eq!(bus_factor(Collective::AllReduce, 4), 1.5);
        assert_eq!(bus_factor(Collective::AllGather, 4), 0.75);
        assert_eq!(bus_factor(Collective::AllReduce, 1), 0.0);
        assert_eq!(bandwidth_gbs(1_000_000, 1000.0), 1.0);
        assert_eq!(bandwidth_gbs(0, 0.0), 0.0);
    }
}
