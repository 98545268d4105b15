//! The exchange plan: point to point at run time.
//!
//! Sends, receives and all_to_all_v have sizes that only the call knows, so their plan is one for all
//! calls: every ordered pair of ranks has a link with a lane at each end, and a lane has as many tiles as
//! its pair's messages. Lanes of different pairs share nothing, so the proof with equal numbers of tiles
//! holds for unequal ones, zero included; both ends of a pair have the same number, since a message ends
//! with its first tile that is not full.
//!
//! Chunk d of a rank's input is what it sends to rank d; chunk s of its output is what it receives from
//! rank s.

use ringsmith_ir::entity::{LaneName, Link, Rank};
use ringsmith_ir::kernel_plan::{
    Counter, KernelLane, KernelLink, KernelOp, KernelOpKind, KernelPlan, Place, Source,
};
use ringsmith_ir::schedule::{Order, Protocol};
use ringsmith_ir::types::Collective;

use cranelift_entity::PrimaryMap;

/// The exchange plan of `ranks` ranks.
pub fn exchange(ranks: u32, slots: u32, slot_bytes: u64) -> KernelPlan {
    let sender = |from: u32, to: u32| LaneName { rank: Rank::from_u32(from), index: to };
    let receiver = |from: u32, to: u32| LaneName { rank: Rank::from_u32(to), index: ranks + from };
    let mut links: PrimaryMap<Link, KernelLink> = PrimaryMap::new();
    let mut lanes = Vec::new();
    for from in 0..ranks {
        lanes.push(copy_lane(sender(from, from)));
        for to in (1..ranks).map(|round| (from + round) % ranks) {
            let ends = KernelLink { from: sender(from, to), to: receiver(from, to), messages: 1 };
            let link = links.push(ends);
            lanes.push(send_lane(ends.from, link, to));
            lanes.push(receive_lane(ends.to, link, from));
        }
    }
    lanes.sort_by_key(|lane: &KernelLane| lane.name);
    KernelPlan {
        name: "exchange".to_owned(),
        ranks,
        collective: Collective::AllToAllV,
        op: None,
        order: Order::Same,
        root: None,
        chunks: ranks,
        lanes_per_lane: 1,
        protocol: Protocol::Simple,
        slots,
        slot_bytes,
        scratch: PrimaryMap::new(),
        links,
        lanes: lanes.into_iter().collect(),
    }
}

fn lane(name: LaneName, ops: impl IntoIterator<Item = KernelOpKind>) -> KernelLane {
    let ops = ops.into_iter().map(|kind| KernelOp { kind, origin: Vec::new() }).collect();
    KernelLane { name, ops }
}

fn copy(dst: Place, src: Place, chunk: u32) -> KernelOpKind {
    KernelOpKind::Move { dst: vec![dst], src: vec![Source { place: src, pre: false }], post: false, chunk }
}

fn copy_lane(name: LaneName) -> KernelLane {
    let own = name.index;
    lane(name, [copy(Place::Output(own), Place::Input(own), own)])
}

fn send_lane(name: LaneName, link: Link, to: u32) -> KernelLane {
    lane(
        name,
        [
            KernelOpKind::Wait(Counter::Free(link)),
            copy(Place::Slot(link), Place::Input(to), to),
            KernelOpKind::Signal(Counter::Full(link)),
        ],
    )
}

fn receive_lane(name: LaneName, link: Link, from: u32) -> KernelLane {
    lane(
        name,
        [
            KernelOpKind::Wait(Counter::Full(link)),
            copy(Place::Output(from), Place::Slot(link), from),
            KernelOpKind::Signal(Counter::Free(link)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringsmith_ir::verify;

    #[test]
    fn is_proved_for_any_number_of_ranks_and_slots() {
        for ranks in 1..=8 {
            for slots in [1, 2, 8] {
                let plan = exchange(ranks, slots, 4096);
                let lanes = plan.lanes.len() as u32;
                assert_eq!(lanes, ranks + 2 * ranks * (ranks - 1));
                verify::kernel_plan(plan).unwrap_or_else(|d| panic!("{ranks} ranks, {slots} slots: {d:#?}"));
            }
        }
    }

    #[test]
    fn needs_its_credits() {
        let mut plan = exchange(2, 2, 4096);
        let name = LaneName { rank: Rank::from_u32(0), index: 1 };
        let (lane, _) = plan.lanes.iter().find(|(_, l)| l.name == name).expect("rank 0 sends to rank 1");
        plan.lanes[lane].ops.remove(0);
        let codes: Vec<&str> =
            verify::kernel_plan(plan).expect_err("a slot is overwritten").iter().map(|d| d.code.0).collect();
        assert_eq!(codes, ["V0607", "V0607"], "the slot is written, and published, without a credit");
    }
}
