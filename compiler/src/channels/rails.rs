//! Which port serves each GPU towards other nodes: what plans across nodes send over, one rail for each
//! GPU of a node.

use ringsmith_ir::topology::Rate;
use ringsmith_ir::topology::paths::{PathKind, Paths};
use std::cmp::Reverse;

/// A GPU and its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rail {
    /// The GPU, by number.
    pub gpu: usize,
    /// The ports, by number, none of which another GPU is closer to.
    pub ports: Vec<usize>,
    /// How close they are.
    pub kind: PathKind,
    /// What the GPU gets of them if all GPUs use theirs.
    pub rate: Rate,
}

/// The rails of a machine, one for each GPU that reaches a port.
pub(super) fn of(paths: &Paths) -> Vec<Rail> {
    let (gpus, ports) = (paths.gpus.len(), paths.ports.len());
    let mut rails: Vec<Rail> = Vec::new();
    for gpu in 0..gpus {
        let mut near: Vec<(PathKind, Reverse<Rate>, usize)> = (0..ports)
            .filter_map(|port| paths.to_port(gpu, port).map(|path| (path.kind, Reverse(path.rate), port)))
            .collect();
        near.sort_unstable();
        let Some(&(kind, rate, _)) = near.first() else { continue };
        let equal: Vec<usize> =
            near.iter().filter(|(k, r, _)| (*k, *r) == (kind, rate)).map(|(.., port)| *port).collect();
        rails.push(Rail { gpu, ports: equal, kind, rate: Rate(0) });
    }
    // GPUs that are equally close to the same ports divide them.
    for at in 0..rails.len() {
        let group: Vec<usize> =
            (0..rails.len()).filter(|other| rails[*other].ports == rails[at].ports).collect();
        if group[0] != at {
            continue;
        }
        let shared = rails[at].ports.clone();
        for (index, &member) in group.iter().enumerate() {
            rails[member].ports = if shared.len() >= group.len() {
                shared.iter().copied().skip(index).step_by(group.len()).collect()
            } else {
                vec![shared[index % shared.len()]]
            };
        }
    }
    let mut shares = super::load::Shares::of(paths);
    for rail in &rails {
        for path in rail.ports.iter().filter_map(|port| paths.to_port(rail.gpu, *port)) {
            shares.add(path, 1);
        }
    }
    let each = shares.each();
    for rail in &mut rails {
        rail.rate = Rate(each.0.saturating_mul(rail.ports.len() as u64));
    }
    rails
}
