//! Calls that have been made before: planned, cut and ready but for their pointers.

use super::Request;
use crate::device::cpu::arith::Kernel;
use crate::device::cpu::execute::Sizes;
use crate::device::cpu::local::LocalPlan;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use std::collections::HashMap;
use std::sync::Arc;

/// Calls that are kept. Ours: a training step has some hundred different ones; beyond that all are
/// forgotten and made again.
const MAX_KEPT: usize = 4096;

/// What makes two calls run the same launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    collective: Collective,
    dtype: DataType,
    op: ReduceOp,
    scalar_bits: u64,
    root: u32,
    count: u64,
}

impl Key {
    /// The key of a request, with what does not matter to its collective left out.
    pub(super) fn new(request: &Request) -> Self {
        let op = if request.collective.reduces() { request.op } else { ReduceOp::Sum };
        Self {
            collective: request.collective,
            dtype: request.dtype,
            op,
            scalar_bits: if op == ReduceOp::PremulSum { request.scalar.to_bits() } else { 0 },
            root: if request.collective.rooted() { request.root } else { 0 },
            count: request.count,
        }
    }
}

/// A call, but for its pointers.
pub(super) struct Ready {
    pub(super) plan: Arc<LocalPlan>,
    pub(super) sizes: Sizes,
    pub(super) kernel: Kernel,
}

/// Where a call is kept.
#[derive(Clone, Copy)]
pub(super) struct Place(usize);

/// All that is kept.
#[derive(Default)]
pub(super) struct Shelf {
    made: Vec<Ready>,
    places: HashMap<Key, Place>,
    /// The last call: a loop over one call looks nothing up.
    last: Option<(Key, Place)>,
}

impl Shelf {
    /// Makes room when there is too much. Places found before are no longer valid.
    pub(super) fn tidy(&mut self) {
        if self.made.len() > MAX_KEPT {
            self.clear();
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Where a call is kept, if it has been made before.
    #[inline]
    pub(super) fn find(&mut self, key: Key) -> Option<Place> {
        if let Some((last, place)) = self.last
            && last == key
        {
            return Some(place);
        }
        let place = *self.places.get(&key)?;
        self.last = Some((key, place));
        Some(place)
    }

    /// Keeps a call.
    pub(super) fn keep(&mut self, key: Key, ready: Ready) -> Place {
        let place = Place(self.made.len());
        self.made.push(ready);
        self.places.insert(key, place);
        place
    }

    /// The call of a place.
    pub(super) fn get(&self, place: Place) -> &Ready {
        &self.made[place.0]
    }
}
