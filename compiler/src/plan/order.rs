//! Which rank takes which position of a program: ranks of one host side by side, so that rings and trees
//! cross from host to host as seldom as they can.
//!
//! Programs count ranks from 0 and know nothing of hosts. Where hosts are dealt out in turn (0 1 0 1), a
//! ring of ranks in order crosses at every hop; of positions, at as many as there are hosts. Ranks and,
//! where each has a block, blocks are renamed together after expansion, so the collective stays the same;
//! the verifier sees what comes out.

use super::{Algorithm, Machine, Shape, instantiate};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::entity::Rank;
use ringsmith_ir::expand::expand;
use ringsmith_ir::schedule::{BufferKind, OpKind, Schedule, Slice};
use ringsmith_ir::types::ReduceOp;

/// Which rank takes which position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The rank at each position.
    pub ranks: Vec<u32>,
    /// How many positions in a row each host has; 1 where hosts differ.
    pub per_node: u32,
}

/// Ranks of which nothing more is known.
impl From<Vec<u32>> for Order {
    fn from(ranks: Vec<u32>) -> Self {
        Self { ranks, per_node: 1 }
    }
}

impl Order {
    /// The same as programs see it, with a root rank's position.
    ///
    /// Panics: the root is not one of the ranks.
    pub(super) fn shape(&self, root: Option<u32>) -> Shape {
        let root = root.map_or(0, |r| position(&self.ranks, r).expect("the root is one of the ranks"));
        Shape { ranks: self.ranks.len() as u32, per_node: self.per_node, root }
    }
}

/// Host by host, in the order of the hosts' first ranks.
pub fn rank_order(machine: &Machine) -> Order {
    let mut first_of_host: Vec<u32> = Vec::new();
    for (rank, &host) in machine.hosts.iter().enumerate() {
        if first_of_host.len() <= host as usize {
            first_of_host.resize(host as usize + 1, u32::MAX);
        }
        let first = &mut first_of_host[host as usize];
        *first = (*first).min(rank as u32);
    }
    let mut order: Vec<u32> = (0..machine.ranks()).collect();
    order.sort_by_key(|r| (first_of_host[machine.hosts[*r as usize] as usize], *r));
    let host = |r: &u32| machine.hosts[*r as usize];
    let mut sizes = order.chunk_by(|a, b| host(a) == host(b)).map(<[u32]>::len);
    let first = sizes.next().unwrap_or(1);
    let per_node = if sizes.all(|size| size == first) { first as u32 } else { 1 };
    Order { ranks: order, per_node }
}

/// The position of a rank in an order.
pub(super) fn position(order: &[u32], rank: u32) -> Option<u32> {
    order.iter().position(|r| *r == rank).map(|p| p as u32)
}

/// The schedule of an algorithm with its ranks in an order, as [`rank_order`] gives.
///
/// `root` is a rank; see [`instantiate`] for it, `channels` and `op`.
/// Errors: those of expansion, when the algorithm does not apply.
/// Panics: `order` lists a rank twice, or the root is not in it.
pub fn schedule(
    algorithm: &Algorithm,
    order: &Order,
    root: Option<u32>,
    channels: u32,
    op: Option<ReduceOp>,
) -> Result<Schedule, Vec<Diagnostic>> {
    let (program, arguments) = instantiate(algorithm, order.shape(root), channels, op);
    expand(&program, &arguments).map(|schedule| rename(schedule, &order.ranks))
}

/// Gives position `p` of a schedule to rank `order[p]`.
fn rename(mut schedule: Schedule, order: &[u32]) -> Schedule {
    if order.iter().enumerate().all(|(position, rank)| position as u32 == *rank) {
        return schedule;
    }
    assert_eq!(schedule.ranks as usize, order.len(), "an order lists every rank");
    let rank = |r: Rank| Rank::from_u32(order[r.as_u32() as usize]);
    let block = if schedule.collective.blocked() { schedule.chunks_per_block() } else { 0 };
    let whole: Vec<bool> = schedule
        .buffers
        .values()
        .map(|b| b.kind != BufferKind::Scratch && block > 0 && b.chunks == schedule.chunks)
        .collect();
    let slice = |s: Slice| {
        if whole[s.buffer.as_u32() as usize] {
            Slice { chunk: order[(s.chunk / block) as usize] * block + s.chunk % block, ..s }
        } else {
            s
        }
    };
    schedule.root = schedule.root.map(rank);
    for link in schedule.links.values_mut() {
        (link.from, link.to) = (rank(link.from), rank(link.to));
    }
    for lane in schedule.lanes.values_mut() {
        lane.name.rank = rank(lane.name.rank);
        for op in &mut lane.ops {
            op.kind = match op.kind {
                OpKind::Put { src, peer, dst, link } => {
                    OpKind::Put { src: slice(src), peer: rank(peer), dst: slice(dst), link }
                }
                OpKind::Get { peer, src, dst, link } => {
                    OpKind::Get { peer: rank(peer), src: slice(src), dst: slice(dst), link }
                }
                OpKind::Reduce { dst, src } => OpKind::Reduce { dst: slice(dst), src: slice(src) },
                OpKind::Copy { src, dst } => OpKind::Copy { src: slice(src), dst: slice(dst) },
                OpKind::Signal { .. } | OpKind::Wait { .. } => op.kind,
            };
        }
    }
    let mut lanes: Vec<_> = schedule.lanes.values().cloned().collect();
    lanes.sort_by_key(|l| l.name);
    schedule.lanes = lanes.into_iter().collect();
    schedule
}

#[cfg(test)]
mod tests {
    use super::super::candidates;
    use super::{Machine, Order, rank_order, schedule};
    use ringsmith_ir::types::Collective;
    use ringsmith_ir::verify;

    #[test]
    fn ranks_of_a_host_stand_side_by_side() {
        assert_eq!(
            rank_order(&Machine::cpu(vec![0, 0, 1, 1], 2)),
            Order { ranks: vec![0, 1, 2, 3], per_node: 2 }
        );
        assert_eq!(
            rank_order(&Machine::cpu(vec![0, 1, 0, 1], 2)),
            Order { ranks: vec![0, 2, 1, 3], per_node: 2 }
        );
        assert_eq!(
            rank_order(&Machine::cpu(vec![2, 0, 1, 0, 2], 2)),
            Order { ranks: vec![0, 4, 1, 3, 2], per_node: 1 }
        );
        assert!(rank_order(&Machine::cpu(Vec::new(), 2)).ranks.is_empty());
    }

    #[test]
    fn every_program_is_proved_in_another_order() {
        for order in [vec![1, 0], vec![2, 0, 1], vec![0, 3, 1, 4, 2], vec![7, 2, 5, 0, 3, 6, 1, 4]] {
            let ranks = order.len() as u32;
            for algorithm in Collective::ALL.into_iter().flat_map(candidates) {
                if !algorithm.applies.holds(ranks) {
                    continue;
                }
                let root = algorithm.collective.rooted().then_some(ranks / 2);
                let channels = if algorithm.has_channels { 2 } else { 1 };
                let order = Order { ranks: order.clone(), per_node: if ranks == 8 { 2 } else { 1 } };
                let renamed = schedule(algorithm, &order, root, channels, None).expect("it applies");
                assert_eq!(renamed.root.map(|r| r.as_u32()), root);
                assert!(renamed.lanes.values().is_sorted_by_key(|l| l.name));
                if let Err(found) = verify::schedule(renamed) {
                    panic!("{} {} in order {order:?}: {}", algorithm.name, algorithm.collective, found[0]);
                }
            }
        }
    }

    #[test]
    fn a_ring_crosses_hosts_as_often_as_there_are_hosts() {
        let hosts = vec![0, 1, 2, 0, 1, 2, 0, 1, 2];
        let order = rank_order(&Machine::cpu(hosts.clone(), 4));
        let ring = candidates(Collective::AllReduce).iter().find(|a| a.name == "ring").expect("a ring");
        let crossings = |order: &Order| {
            let schedule = schedule(ring, order, None, 1, None).expect("it applies");
            let host = |rank: ringsmith_ir::entity::Rank| hosts[rank.as_u32() as usize];
            schedule.links.values().filter(|l| host(l.from) != host(l.to)).count()
        };
        assert_eq!(crossings(&order), 3);
        assert_eq!(crossings(&Order::from((0..9).collect::<Vec<u32>>())), 9);
    }
}
