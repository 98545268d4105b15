//! What is found without a GPU, held against what calls ask for: the very choice that ranks with a GPU make,
//! with kernels that are only written down.

use super::super::choice::{Kernels, Key, Prepared, Sizes};
use super::*;
use std::collections::BTreeMap;

const ARCHITECTURE: &str = "sm_90";

fn architecture() -> Architecture {
    ARCHITECTURE.parse().expect("an architecture")
}

/// A plan's text and a source: what a kernel is known by.
type Text = (String, String);

/// Code of so many registers as its source is long, modulo what a thread may have: kernels differ.
fn cubin(name: &str, source: &str) -> Cubin {
    let registers = 24 + source.len() % 100;
    let log = format!(
        "ptxas info    : Compiling entry function '{name}' for '{ARCHITECTURE}'\n\
         ptxas info    : Used {registers} registers, used 1 barriers, 528 bytes smem\n"
    );
    Cubin::new(source.as_bytes().to_vec(), architecture(), log)
}

/// A GPU that only writes down which kernels it was asked for.
#[derive(Default)]
struct Paper {
    asked: BTreeSet<Text>,
    loaded: BTreeMap<Key, (Sizes, u32)>,
}

impl Kernels for Paper {
    fn sizes(&self, key: &Key) -> Option<Sizes> {
        self.loaded.get(key).map(|(sizes, _)| *sizes)
    }

    fn load(&mut self, key: Key, source: Source, resident: Option<u32>) -> Result<(), GpuError> {
        let Source { canonical, kernel, sizes, .. } = source;
        let cubin = cubin(&kernel.name, &kernel.source);
        let entry = cubin.entry(&kernel.name).expect("it is in its own log");
        let most = resident_blocks(architecture(), kernel.threads, entry.registers, entry.shared_bytes);
        self.loaded.insert(key, (sizes, resident.unwrap_or(most)));
        self.asked.insert((canonical, kernel.source));
        Ok(())
    }

    fn resident(&self, key: &Key) -> u32 {
        self.loaded[key].1
    }

    fn lane_blocks(&self, key: &Key, wanted: u64) -> Result<u32, GpuError> {
        let most = u64::from(self.loaded[key].1 * 132);
        Ok(u32::try_from(wanted.clamp(1, most)).expect("few"))
    }
}

fn found(terms: &Terms, purpose: &Purpose) -> BTreeSet<Text> {
    let mut all = BTreeSet::new();
    let note = |wanted: Wanted<'_>| {
        all.insert((wanted.plan_text.to_owned(), wanted.source.to_owned()));
        Ok(Some(Arc::new(cubin(wanted.name, wanted.source))))
    };
    kernels(terms, &Selection::default(), purpose, architecture(), note)
        .unwrap_or_else(|e| panic!("{purpose:?}: {e}"));
    all
}

fn calls(collective: Collective, dtype: DataType, alignment: u64, bytes: RangeInclusive<u64>) -> Purpose {
    Purpose {
        collective,
        dtype,
        op: collective.reduces().then_some(ReduceOp::Sum),
        root: collective.rooted().then_some(1),
        bytes,
        alignment,
    }
}

fn prepared(terms: &Terms, purpose: &Purpose, bytes: u64, alignment: u64, paper: &mut Paper) -> Prepared {
    let Purpose { collective, dtype, op, root, .. } = *purpose;
    let parts = if collective.blocked() { u64::from(terms.ranks()) } else { 1 };
    let count = if collective == Collective::Barrier { 0 } else { bytes / parts / dtype.size_bytes() as u64 };
    let request = GpuRequest { collective, dtype, op, scalar_bits: 0, root, count, is_apart: true };
    terms
        .prepare(&request, alignment, &(Filter::Any, Filter::Any), paper)
        .unwrap_or_else(|e| panic!("{purpose:?}, {bytes} bytes: {e}"))
}

/// Sizes around everything that might be a limit.
fn sizes() -> impl Iterator<Item = u64> {
    let powers = (3..32).flat_map(|k| [(1_u64 << k) - 8, 1 << k, (1 << k) + 24, 3 << k]);
    powers.chain([100_000, 1_234_568, 9 << 20])
}

#[test]
fn every_kernel_that_a_call_asks_for_is_found_without_a_gpu() {
    let planned =
        Collective::ALL.into_iter().filter(|c| !matches!(c, Collective::SendRecv | Collective::AllToAllV));
    for collective in planned {
        for (ranks, ranks_on_gpu, is_one_process) in [(2, 1, false), (4, 2, false), (3, 3, true)] {
            let terms = Terms::new(ranks, ranks_on_gpu, is_one_process, 132);
            let bytes = 8 * u64::from(ranks)..=1 << 33;
            let purpose = calls(collective, DataType::Float32, 1, bytes.clone());
            let found = found(&terms, &purpose);
            let mut paper = Paper::default();
            for bytes in sizes().filter(|size| bytes.contains(size)) {
                for alignment in [256, 8, 4, 2, 1] {
                    prepared(&terms, &purpose, bytes, alignment, &mut paper);
                }
            }
            let missing = paper.asked.difference(&found).count();
            assert!(missing == 0, "{collective}, {ranks} ranks: {missing} of {}", paper.asked.len());
            // And little more than that: a plan in between sizes that were not drawn.
            assert!(found.len() <= 2 * paper.asked.len() + 9, "{collective}: {} found", found.len());
        }
    }
}

#[test]
fn buffers_that_are_aligned_need_fewer_kernels_and_a_small_range_fewer_still() {
    let terms = Terms::new(4, 1, false, 132);
    let number = |alignment, bytes| {
        found(&terms, &calls(Collective::AllReduce, DataType::Float32, alignment, bytes)).len()
    };
    let (all, aligned, small) = (number(1, 8..=1 << 30), number(16, 8..=1 << 30), number(16, 8..=1024));
    assert!(all == 3 * aligned && aligned > small && small == 1, "{all} {aligned} {small}");
    let mut paper = Paper::default();
    let purpose = calls(Collective::AllReduce, DataType::Float32, 16, 8..=1024);
    prepared(&terms, &purpose, 512, 256, &mut paper);
    assert_eq!(paper.asked, found(&terms, &purpose));
}

#[test]
fn a_plan_without_room_is_passed_over_before_it_is_compiled() {
    // 3 MB among eight ranks: one block is larger than LL's zone has room for.
    let terms = Terms::new(8, 1, false, 132);
    let purpose = calls(Collective::AllGather, DataType::Float32, 16, 8..=1 << 30);
    let mut paper = Paper::default();
    let name = prepared(&terms, &purpose, 1 << 20, 256, &mut paper).name();
    assert_eq!(paper.asked.len(), 1, "{name}");
}

#[test]
fn messages_have_kernels_for_every_access_and_number() {
    for collective in [Collective::SendRecv, Collective::AllToAllV] {
        let found =
            found(&Terms::new(4, 1, false, 132), &calls(collective, DataType::Float32, 16, 8..=1 << 30));
        assert_eq!(found.len(), 9, "{collective}");
    }
    // The FIFOs of ranks that share a GPU are fewer, and the kernel says so.
    let of = |ranks_on_gpu| {
        found(
            &Terms::new(4, ranks_on_gpu, false, 132),
            &calls(Collective::SendRecv, DataType::Float32, 16, 8..=8),
        )
    };
    assert_eq!(of(1), of(2));
    assert!(of(1).is_disjoint(&of(4)));
}

#[test]
fn sizes_that_no_plan_has_room_for_are_an_error_and_no_panic() {
    let terms = Terms::new(2, 1, false, 132);
    let all = calls(Collective::AllReduce, DataType::Float64, 1, 0..=u64::MAX);
    match kernels(&terms, &Selection::default(), &all, architecture(), |_| Ok(None)) {
        Ok(()) | Err(GpuError::Plan(_)) => {}
        Err(other) => panic!("{other}"),
    }
    let none = calls(Collective::AllReduce, DataType::Float64, 1, 9..=15);
    assert!(
        kernels(&terms, &Selection::default(), &none, architecture(), |_| panic!("there are no such sizes"))
            .is_ok()
    );
}

#[test]
fn resident_blocks_are_those_of_the_occupancy_calculator() {
    for (name, threads, registers, shared_bytes, blocks) in [
        ("sm_80", 256, 32, 0, 8),
        ("sm_80", 256, 33, 0, 6),
        ("sm_90", 512, 64, 0, 2),
        ("sm_90", 512, 40, 528, 3),
        ("sm_90", 256, 255, 0, 1),
        ("sm_90", 32, 16, 0, 32),
        ("sm_90", 256, 32, 100 << 10, 2),
        ("sm_75", 256, 32, 0, 4),
        ("sm_86", 256, 32, 0, 6),
        ("sm_89", 512, 255, 0, 0),
        ("sm_120", 64, 16, 0, 24),
    ] {
        let architecture = name.parse().expect("an architecture");
        assert_eq!(
            resident_blocks(architecture, threads, registers, shared_bytes),
            blocks,
            "{name} {threads} {registers}"
        );
    }
}
