//! What is run: the table of cases, and which of them a draw takes.

use ringsmith_compiler::plan;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use std::fmt;

/// Counts of the table: nothing, a single element, less than a unit, and sizes that leave odd ends of
/// units, tiles and slots.
pub(crate) const COUNTS: [u64; 6] = [0, 1, 3, 1000, 65_537, 1_048_579];

/// One case: a call, made out of place and in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) collective: Collective,
    pub(crate) dtype: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) count: u64,
}

/// Which cases are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draw {
    pub(crate) seed: u64,
    pub(crate) whole: bool,
}

impl Draw {
    /// From `RINGSMITH_TEST_SEED` and `RINGSMITH_TEST_WHOLE`; a seed of the moment where none is given.
    pub(crate) fn from_environment() -> Self {
        let seed = match std::env::var("RINGSMITH_TEST_SEED") {
            Ok(text) => text.parse().expect("RINGSMITH_TEST_SEED must be a number"),
            Err(_) => u64::from(std::process::id()) ^ moment() << 20,
        };
        Self { seed, whole: std::env::var("RINGSMITH_TEST_WHOLE").is_ok_and(|v| v == "1") }
    }

    /// Whether case `number` runs. One in ten does.
    pub(crate) fn takes(&self, world: u32, number: u64) -> bool {
        self.whole || Random::new(self.seed ^ u64::from(world) << 48 ^ number).below(10) == 0
    }
}

fn moment() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| d.subsec_nanos().into())
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = if self.whole { "every case" } else { "a tenth of the cases" };
        write!(f, "{share}, RINGSMITH_TEST_SEED={}", self.seed)
    }
}

/// A small random source (splitmix64): the same on every rank.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Operations that matter to a collective.
fn operations(collective: Collective) -> &'static [ReduceOp] {
    if collective.reduces() { &ReduceOp::ALL } else { &[ReduceOp::Sum] }
}

/// Every case, in a fixed order.
pub(crate) fn table() -> Vec<Case> {
    let mut cases = Vec::new();
    for collective in Collective::ALL {
        let types: &[DataType] =
            if collective == Collective::Barrier { &[DataType::Uint8] } else { &DataType::ALL };
        let counts: &[u64] = if collective == Collective::Barrier { &[0] } else { &COUNTS };
        for &dtype in types {
            for &op in operations(collective) {
                cases.extend(counts.iter().map(|&count| Case { collective, dtype, op, count }));
            }
        }
    }
    cases
}

/// Every algorithm of every collective with every protocol that it can run with: name, algorithm, protocol.
pub(crate) fn algorithms() -> Vec<(String, &'static plan::Algorithm, Protocol)> {
    let all = Collective::ALL.into_iter().flat_map(plan::candidates);
    // On this device LL128 is LL: one of them stands for both.
    all.flat_map(|a| a.protocols().iter().filter(|p| **p != Protocol::Ll128).map(move |p| (a, *p)))
        .map(|(a, protocol)| (format!("{}::{}::{protocol}", a.collective, a.name), a, protocol))
        .collect()
}
