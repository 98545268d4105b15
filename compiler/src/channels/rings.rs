//! The search for rings.
//!
//! For each of a list of rates, rings that all carry it are laid over the machine one after the other
//! until its links carry no more; the rate with the greatest sum wins, and of equal ones the fewest
//! rings that one GPU can drive. Rates are fractions of what the machine's own paths carry, so that
//! links divide without rest.
//!
//! With several nodes, each ring belongs to a port. A round lays one ring over each port of a rate, and
//! is kept if that succeeds for all of them: so ports of one rate are crossed equally often.

use super::load::Left;
use super::walk::{End, walk};
use super::{Channel, MAX_CHANNELS, Within, channel, ring_shares};
use ringsmith_ir::topology::paths::{PathKind, Paths};
use ringsmith_ir::topology::{Kind, Machine, Rate};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The most steps of all walks of a machine: NCCL's `NCCL_SEARCH_GLOBAL_TIMEOUT`.
const MAX_STEPS: u32 = 1 << 19;

/// The same for all machines of a cluster that differ. Ours; beyond it, the rest have simple rings.
pub(super) const MAX_ALL_STEPS: u32 = 1 << 21;

/// The most rates that are tried. Ours: two or three win nearly always among the first.
const MAX_RATES: usize = 64;

/// By what rates are divided.
const PARTS: [u64; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 18, 24, 32, 72];

/// How many GPUs a ring's entry, and its exit, is tried at. Ours.
const ENDS: usize = 4;

/// What a channel of a GPU moves at most: the greatest rate that NCCL's search tries within a node
/// (`speedArrayIntra`, `sm90SpeedArrayIntra` and `sm100SpeedArrayIntra` in `src/graph/search.cc`).
fn most_per_channel(machine: &Machine) -> Rate {
    let sms = machine.devices.values().filter_map(|data| match &data.kind {
        Kind::Gpu(gpu) if gpu.gcn.is_none() => gpu.sm,
        Kind::Gpu(_) | Kind::Cpu(_) | Kind::Bridge | Kind::Nic(_) | Kind::Switch | Kind::Other => None,
    });
    Rate(match sms.min() {
        Some(100..) => 90_000,
        Some(90..100) => 60_000,
        Some(_) | None => 40_000,
    })
}

/// A set of rings.
struct Found {
    rings: Vec<Channel>,
    each: Rate,
}

impl Found {
    fn sum(&self) -> u64 {
        self.each.0.saturating_mul(self.rings.len() as u64)
    }
}

/// What each ring of a set carries.
pub(super) fn each(paths: &Paths, rings: &[Channel]) -> Rate {
    ring_shares(paths, rings).each()
}

/// The rings of a node.
pub(super) fn within(machine: &Machine, paths: &Paths, several: bool, all_steps: &mut u32) -> Within {
    let mut within = Within::default();
    if let Some(why) = impossible(paths, several) {
        within.unused.push(why);
        return within;
    }
    let classes = if several { port_classes(paths) } else { Vec::new() };
    let most = most_per_channel(machine);
    let allowed = MAX_STEPS.min(*all_steps);
    let mut steps = allowed;
    let mut best: Option<Found> = None;
    for strict in [true, false] {
        let enough = enough(paths, &classes);
        for rate in rates(paths, &classes) {
            let rings = if several {
                over_ports(paths, &classes, rate, strict, &mut steps)
            } else {
                inside(paths, rate, &mut steps)
            };
            let found = Found { each: each(paths, &rings), rings };
            if !found.rings.is_empty() && best.as_ref().is_none_or(|best| is_better(&found, best, most)) {
                best = Some(found);
            }
            let all = |best: &Found| best.each <= most && best.sum() >= enough.0 / 100 * 99;
            if steps == 0 || best.as_ref().is_some_and(all) {
                break;
            }
        }
        if best.is_some() || !several {
            break;
        }
    }
    *all_steps -= allowed - steps;
    within.rings = best.map_or_else(|| vec![simple(paths, &classes)], |best| best.rings);
    within
}

/// Whether one set of rings carries more than another; of two that carry the same to a hundredth, the
/// one whose rings a GPU can drive, then the one with fewer rings.
fn is_better(new: &Found, old: &Found, most: Rate) -> bool {
    let (gain, loss) = (new.sum() > old.sum() / 100 * 101, new.sum() < old.sum() / 100 * 99);
    let fits = |found: &Found| found.each <= most;
    if gain || loss {
        return gain;
    }
    (!fits(new), new.rings.len()) < (!fits(old), old.rings.len())
}

/// Why a machine can have no rings.
fn impossible(paths: &Paths, several: bool) -> Option<String> {
    let gpus = paths.gpus.len();
    if gpus == 0 {
        return Some("no GPU: nothing to join".to_owned());
    }
    if gpus == 1 && !several {
        return Some("one GPU: nothing to join".to_owned());
    }
    for from in 0..gpus {
        if let Some(to) = (0..gpus).find(|&to| paths.between(from, to).is_none()) {
            return Some(format!(
                "g{from} and g{to} are of different hosts, and nothing joins these: no ring can reach both"
            ));
        }
    }
    if several && !(0..paths.ports.len()).any(|port| best_of_port(paths, port).is_some()) {
        return Some("no network port: no ring can leave the node".to_owned());
    }
    None
}

/// The best that any GPU gets of a port, in and out.
pub(super) fn best_of_port(paths: &Paths, port: usize) -> Option<Rate> {
    let of = |gpu| Some(paths.to_port(gpu, port)?.rate.min(paths.from_port(port, gpu)?.rate));
    (0..paths.gpus.len()).filter_map(of).max()
}

/// Ports by what the best GPU gets of them, the fastest first.
fn port_classes(paths: &Paths) -> Vec<Vec<usize>> {
    let mut classes: BTreeMap<Reverse<Rate>, Vec<usize>> = BTreeMap::new();
    for port in 0..paths.ports.len() {
        if let Some(rate) = best_of_port(paths, port) {
            classes.entry(Reverse(rate)).or_default().push(port);
        }
    }
    classes.into_values().collect()
}

/// Rates to try, the greatest first.
fn rates(paths: &Paths, classes: &[Vec<usize>]) -> Vec<Rate> {
    let gpus = paths.gpus.len();
    let pairs = (0..gpus).flat_map(|from| (0..gpus).map(move |to| (from, to)));
    let between = pairs.filter_map(|(from, to)| paths.between(from, to));
    let mut whole: BTreeSet<Rate> =
        between.filter(|path| path.kind != PathKind::Loc).map(|path| path.rate).collect();
    for class in classes {
        whole.extend(class.first().and_then(|port| best_of_port(paths, *port)));
    }
    let parts = whole.iter().flat_map(|rate| PARTS.map(|part| Rate(rate.0 / part)));
    let all: BTreeSet<Rate> = parts.filter(|rate| rate.0 > 0).collect();
    // If there are too many, a few of all sizes.
    let stride = all.len().div_ceil(MAX_RATES).max(1);
    all.into_iter().rev().step_by(stride).collect()
}

/// What ends the search when rings carry it: each ring goes out of every GPU, and through a port. A ring
/// that leaves the node by another link than it goes round by can exceed it a little.
fn enough(paths: &Paths, classes: &[Vec<usize>]) -> Rate {
    let gpus = paths.gpus.len();
    let sum =
        |links: BTreeSet<_>| links.into_iter().map(|first: usize| paths.capacities[first].0).sum::<u64>();
    let out_of = |gpu: usize| {
        let others = (0..gpus).filter(|other| *other != gpu).filter_map(|other| paths.between(gpu, other));
        sum(others.filter_map(|path| path.uses.first()).map(|used| used.0 as usize).collect())
    };
    let inside = (0..gpus).map(out_of).filter(|_| gpus > 1).min().unwrap_or(u64::MAX);
    let ports: u64 =
        classes.iter().flatten().filter_map(|port| best_of_port(paths, *port)).map(|rate| rate.0).sum();
    Rate(if classes.is_empty() { inside } else { inside.min(ports) })
}

/// Rings of one rate within a node.
fn inside(paths: &Paths, rate: Rate, steps: &mut u32) -> Vec<Channel> {
    let mut left = Left::of(paths);
    let mut rings: Vec<Vec<usize>> = Vec::new();
    while rings.len() < MAX_CHANNELS {
        // Links carry both directions: what one ring leaves is often its own way back.
        let again = rings.last().and_then(|last| {
            let mut back = last.clone();
            back[1..].reverse();
            [back, last.clone()].into_iter().find(|order| lay(paths, &mut left, order, rate))
        });
        match again.or_else(|| walk(paths, &mut left, rate, 0, End::Closed, steps)) {
            Some(order) => rings.push(order),
            None => break,
        }
    }
    rings.into_iter().map(|order| channel(paths, order, None)).collect()
}

/// Takes what a closed ring needs. False, and nothing is taken, if it is not there.
fn lay(paths: &Paths, left: &mut Left, order: &[usize], rate: Rate) -> bool {
    let mut taken = Vec::with_capacity(order.len());
    for (at, &from) in order.iter().enumerate() {
        let to = order[(at + 1) % order.len()];
        match paths.between(from, to) {
            Some(path) if left.take(path, rate) => taken.push(path),
            _ => {
                for path in taken {
                    left.give_back(path, rate);
                }
                return false;
            }
        }
    }
    true
}

/// Rings of one rate, each with a port.
fn over_ports(
    paths: &Paths,
    classes: &[Vec<usize>],
    rate: Rate,
    strict: bool,
    steps: &mut u32,
) -> Vec<Channel> {
    let most = MAX_CHANNELS.max(paths.ports.len());
    let mut left = Left::of(paths);
    let mut rings: Vec<Channel> = Vec::new();
    let mut entered = vec![0u32; paths.gpus.len()];
    let mut open: Vec<&[usize]> = classes.iter().map(Vec::as_slice).collect();
    while !open.is_empty() {
        open.retain(|class| {
            if rings.len() + class.len() > most {
                return false;
            }
            let (before, entered_before, count) = (left.clone(), entered.clone(), rings.len());
            for &port in *class {
                match one(paths, &mut left, rate, port, &entered, steps) {
                    Some(order) => {
                        entered[order[0]] += 1;
                        rings.push(channel(paths, order, Some(port)));
                    }
                    None if strict => break,
                    None => (),
                }
            }
            let whole = rings.len() - count == class.len();
            if strict && !whole {
                rings.truncate(count);
                (left, entered) = (before, entered_before);
                return false;
            }
            rings.len() > count
        });
    }
    rings
}

/// One ring through a port, or nothing.
fn one(
    paths: &Paths,
    left: &mut Left,
    rate: Rate,
    port: usize,
    entered: &[u32],
    steps: &mut u32,
) -> Option<Vec<usize>> {
    let gpus = paths.gpus.len();
    let mut entries: Vec<(PathKind, u32, usize)> = (0..gpus)
        .filter_map(|gpu| {
            let path = paths.from_port(port, gpu).filter(|path| left.fits(path, rate))?;
            Some((path.kind, entered[gpu], gpu))
        })
        .collect();
    entries.sort_unstable();
    for (.., entry) in entries.into_iter().take(ENDS) {
        let into = paths.from_port(port, entry)?;
        if !left.take(into, rate) {
            continue;
        }
        // The GPU before the entry is a natural end: the ring goes round once.
        let mut exits: Vec<(PathKind, usize, usize)> = (0..gpus)
            .filter(|gpu| gpus == 1 || *gpu != entry)
            .filter_map(|gpu| {
                let path = paths.to_port(gpu, port).filter(|path| left.fits(path, rate))?;
                Some((path.kind, (entry + gpus - gpu) % gpus, gpu))
            })
            .collect();
        exits.sort_unstable();
        for (.., exit) in exits.into_iter().take(ENDS) {
            let out = paths.to_port(exit, port)?;
            if !left.take(out, rate) {
                continue;
            }
            match walk(paths, left, rate, entry, End::At(exit), steps) {
                Some(order) => return Some(order),
                None => left.give_back(out, rate),
            }
        }
        left.give_back(into, rate);
    }
    None
}

/// A ring in the order of the GPUs, where the search has found none: all share what there is.
fn simple(paths: &Paths, classes: &[Vec<usize>]) -> Channel {
    let port = classes.iter().flatten().copied().find(|&port| {
        let last = paths.gpus.len() - 1;
        paths.from_port(port, 0).is_some() && paths.to_port(last, port).is_some()
    });
    channel(paths, (0..paths.gpus.len()).collect(), port)
}
