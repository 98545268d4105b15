//! A way through all GPUs of a machine, each once, over links that can carry a given rate.
//!
//! Depth first, without recursion, the closest and least used neighbour first; a GPU that could no
//! longer be entered or left ends a branch at once. Bounded in steps: what is not found within them is
//! taken not to be there, and a lower rate is tried.

use super::load::Left;
use ringsmith_ir::topology::paths::{Path, PathKind, Paths};
use ringsmith_ir::topology::{MAX_GPUS, Rate};
use std::cmp::Reverse;

/// The most steps of one walk: NCCL's `NCCL_SEARCH_TIMEOUT` (`src/graph/search.cc`).
const MAX_STEPS: u32 = 1 << 14;

/// Where a walk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Back at its beginning.
    Closed,
    /// At this GPU.
    At(usize),
}

/// GPUs as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set([u64; MAX_GPUS / 64]);

impl Set {
    fn none() -> Self {
        Self([0; MAX_GPUS / 64])
    }

    fn put(&mut self, gpu: usize) {
        self.0[gpu / 64] |= 1 << (gpu % 64);
    }

    fn remove(&mut self, gpu: usize) {
        self.0[gpu / 64] &= !(1 << (gpu % 64));
    }

    fn has(&self, gpu: usize) -> bool {
        self.0[gpu / 64] >> (gpu % 64) & 1 == 1
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }
}

/// A walk in progress.
struct Walk<'p> {
    paths: &'p Paths,
    rate: Rate,
    end: End,
    /// GPUs that can send to, and hear from, each GPU.
    into: Vec<Set>,
    out_of: Vec<Set>,
    unvisited: Set,
    order: Vec<usize>,
    /// What is still to be tried behind each GPU of `order`, the best last.
    options: Vec<Vec<usize>>,
}

/// Finds an order of all GPUs from `start`, and takes `rate` of the links it goes over. None if there is
/// no way, or none was found within bounds; then nothing is taken. `steps` is what is left of the whole
/// search's bound.
pub(super) fn walk(
    paths: &Paths,
    left: &mut Left,
    rate: Rate,
    start: usize,
    end: End,
    steps: &mut u32,
) -> Option<Vec<usize>> {
    let mut walk = Walk::new(paths, left, rate, start, end);
    let bound = MAX_STEPS.min(*steps);
    let mut spent = 0;
    let found = loop {
        if walk.order.len() == paths.gpus.len() {
            let closing = (end == End::Closed).then(|| walk.path(*walk.order.last()?, start)).flatten();
            match closing {
                None if end != End::Closed => break true,
                Some(path) if left.take(path, rate) => break true,
                _ => (),
            }
            walk.options.push(Vec::new());
        } else if walk.options.len() < walk.order.len() {
            let options = walk.options(left);
            walk.options.push(options);
        }
        match walk.options.last_mut().and_then(Vec::pop) {
            Some(next) if spent < bound => {
                spent += 1;
                walk.forward(left, next);
            }
            Some(_) => break false,
            None if walk.order.len() > 1 => walk.back(left),
            None => break false,
        }
    };
    *steps -= spent;
    if found {
        return Some(walk.order);
    }
    while walk.order.len() > 1 {
        walk.back(left);
    }
    None
}

impl<'p> Walk<'p> {
    fn new(paths: &'p Paths, left: &Left, rate: Rate, start: usize, end: End) -> Self {
        let gpus = paths.gpus.len();
        let (mut into, mut out_of) = (vec![Set::none(); gpus], vec![Set::none(); gpus]);
        let mut unvisited = Set::none();
        for (from, out_of) in out_of.iter_mut().enumerate() {
            if from != start {
                unvisited.put(from);
            }
            for to in (0..gpus).filter(|to| *to != from) {
                if paths.between(from, to).is_some_and(|path| left.fits(path, rate)) {
                    out_of.put(to);
                    into[to].put(from);
                }
            }
        }
        Self { paths, rate, end, into, out_of, unvisited, order: vec![start], options: Vec::new() }
    }

    fn path(&self, from: usize, to: usize) -> Option<&'p Path> {
        self.paths.between(from, to)
    }

    fn here(&self) -> usize {
        self.order[self.order.len() - 1]
    }

    /// Whether every GPU to come can still be entered and left, as far as single links tell.
    fn is_open(&self) -> bool {
        let (mut from, mut to) = (self.unvisited, self.unvisited);
        from.put(self.here());
        if self.end == End::Closed {
            to.put(self.order[0]);
        }
        let gpus = self.paths.gpus.len();
        (0..gpus).filter(|gpu| self.unvisited.has(*gpu)).all(|gpu| {
            self.into[gpu].meets(&from) && (self.end == End::At(gpu) || self.out_of[gpu].meets(&to))
        })
    }

    /// Where the walk can go from here, the best last.
    fn options(&self, left: &Left) -> Vec<usize> {
        if !self.is_open() {
            return Vec::new();
        }
        let (here, gpus) = (self.here(), self.paths.gpus.len());
        let is_last = self.order.len() + 1 == gpus;
        let mut options: Vec<(PathKind, Reverse<u64>, usize, usize)> = (0..gpus)
            .filter(|next| self.unvisited.has(*next) && self.out_of[here].has(*next))
            .filter(|next| is_last || self.end != End::At(*next))
            .filter_map(|next| {
                let path = self.path(here, next).filter(|path| left.fits(path, self.rate))?;
                Some((path.kind, Reverse(left.of_path(path)), (next + gpus - here) % gpus, next))
            })
            .collect();
        options.sort_unstable_by_key(|option| Reverse(*option));
        options.into_iter().map(|(.., next)| next).collect()
    }

    fn forward(&mut self, left: &mut Left, next: usize) {
        let Some(path) = self.path(self.here(), next) else { return };
        if left.take(path, self.rate) {
            self.order.push(next);
            self.unvisited.remove(next);
        }
    }

    fn back(&mut self, left: &mut Left) {
        self.options.truncate(self.order.len() - 1);
        let Some(last) = self.order.pop() else { return };
        self.unvisited.put(last);
        if let Some(path) = self.path(self.here(), last) {
            left.give_back(path, self.rate);
        }
    }
}
