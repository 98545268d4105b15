//! Trees: within a node a chain in a ring's order, across nodes two trees that complement each other.
//!
//! The first GPU of a chain talks to the network for its node. Reductions go up the chain towards it
//! and results come down at the same time. Across nodes, half of a channel's data goes over a binary
//! tree and half over a second one, in which the leaves of the first are inside: NCCL's double binary
//! tree (`src/graph/trees.cc`; Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth
//! broadcast, reduction and scan", 2009).

use super::Channel;
use super::load::Shares;
use ringsmith_ir::topology::Rate;
use ringsmith_ir::topology::paths::Paths;
use std::collections::BTreeSet;

/// A node's neighbours in a tree of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Neighbours {
    /// Where sums go; none for the root.
    pub parent: Option<u32>,
    /// Where they come from.
    pub children: [Option<u32>; 2],
}

/// A node's neighbours in the binary tree over `nodes` nodes whose root is node 0: the number of zeros
/// that end its number is its height.
pub fn first_tree(nodes: u32, node: u32) -> Neighbours {
    if node == 0 {
        // The highest power of two below the number of nodes.
        let child = (nodes > 1).then(|| 1 << (31 - (nodes - 1).leading_zeros()));
        return Neighbours { parent: None, children: [child, None] };
    }
    let bit = 1 << node.trailing_zeros();
    let above = (node ^ bit) | (bit << 1);
    let parent = if above >= nodes { node ^ bit } else { above };
    let half = bit >> 1;
    let left = (half > 0).then(|| node - half);
    // What is beyond the last node is reached through smaller steps.
    let mut step = half;
    while step > 0 && node + step >= nodes {
        step >>= 1;
    }
    let right = (step > 0).then(|| node + step);
    Neighbours { parent: Some(parent), children: [left, right] }
}

/// A node's neighbours in the second tree: the first one mirrored where nodes are even in number, and
/// shifted by one where they are odd, so that what was a leaf is none.
pub fn second_tree(nodes: u32, node: u32) -> Neighbours {
    let there =
        |node: u32| if nodes.is_multiple_of(2) { nodes - 1 - node } else { (node + nodes - 1) % nodes };
    let back = |node: u32| if nodes.is_multiple_of(2) { nodes - 1 - node } else { (node + 1) % nodes };
    let Neighbours { parent, children } = first_tree(nodes, there(node));
    Neighbours { parent: parent.map(back), children: children.map(|child| child.map(back)) }
}

/// What each of a machine's tree channels carries if all of them carry the same.
pub(super) fn each(paths: &Paths, trees: &[Channel], nodes: u32) -> Rate {
    let mut shares = Shares::of(paths);
    // A node inside one tree is a leaf of the other: of each half it hears from two children and one
    // parent here, and from one parent there. Two nodes have one link in each tree.
    let crossings = if nodes > 2 { 2 } else { 1 };
    for Channel { gpus, port, .. } in trees {
        for pair in gpus.windows(2) {
            let both = [paths.between(pair[0], pair[1]), paths.between(pair[1], pair[0])];
            for path in both.into_iter().flatten() {
                shares.add(path, 1);
            }
        }
        if let Some(port) = port {
            for path in [paths.from_port(*port, gpus[0]), paths.to_port(gpus[0], *port)].into_iter().flatten()
            {
                shares.add(path, crossings);
            }
        }
    }
    shares.each()
}

/// Which rings are worth having as trees: all of them, unless those that are no other one run backwards
/// carry more by themselves.
pub(super) fn worth_keeping(machines: &[(&Paths, &[Channel])], nodes: u32) -> Vec<usize> {
    let count = machines.first().map_or(0, |(_, rings)| rings.len());
    let all: Vec<usize> = (0..count).collect();
    let mut seen = BTreeSet::new();
    let distinct: Vec<usize> = all
        .iter()
        .copied()
        .filter(|&ring| {
            let ways: Vec<_> = machines
                .iter()
                .map(|(_, rings)| {
                    let Channel { gpus, port, .. } = &rings[ring];
                    let back: Vec<usize> =
                        std::iter::once(gpus[0]).chain(gpus[1..].iter().rev().copied()).collect();
                    (gpus.clone().min(if port.is_none() { back } else { gpus.clone() }), *port)
                })
                .collect();
            seen.insert(ways)
        })
        .collect();
    let sum = |kept: &[usize]| {
        let one = |(paths, rings): &(&Paths, &[Channel])| {
            let trees: Vec<Channel> = kept.iter().map(|ring| rings[*ring].clone()).collect();
            each(paths, &trees, nodes).0
        };
        machines.iter().map(one).min().unwrap_or(0).saturating_mul(kept.len() as u64)
    };
    if sum(&distinct) / 100 * 99 > sum(&all) { distinct } else { all }
}
