//! An epoch zone: cells that carry a message and its flag together, for the shortest path there is.
//!
//! Only between ranks that share memory. A cell's flag is the communicator's epoch; two parities
//! alternate, so a plan whose end on any rank lies after its start on every other never meets a flag
//! of its own parity that it would have to clear. See [`geometry`](super::geometry) for the words.

use super::geometry::{Geometry, INLINE_BYTES, Layout};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The cells of one ordered pair of ranks. Borrowed from [`Connections`](super::Connections).
#[derive(Clone, Debug)]
pub struct Zone {
    start: NonNull<u8>,
    cells: u32,
    cell_stride: usize,
    cell_bytes: u64,
}

// SAFETY: flags are atomics, and payload is only touched by whom the epoch protocol lets; the
// addresses themselves may be used from any thread.
unsafe impl Send for Zone {}
// SAFETY: as above.
unsafe impl Sync for Zone {}

/// One cell of a zone: a flag, and room for a message.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    start: NonNull<u8>,
    cell_bytes: u64,
    zone: PhantomData<&'a Zone>,
}

impl Zone {
    /// The zone in the region that starts at `region`.
    ///
    /// # Safety
    /// As for [`Fifo::new`](super::Fifo): the region stays mapped as long as the value is used.
    pub(crate) unsafe fn new(region: NonNull<u8>, geometry: &Geometry) -> Self {
        let layout = Layout::new(geometry);
        Self {
            // SAFETY: the zone lies within a region of this geometry.
            start: unsafe { region.add(layout.zone() as usize) },
            cells: geometry.zone_cells,
            cell_stride: layout.cell_stride() as usize,
            cell_bytes: geometry.zone_cell_bytes,
        }
    }

    /// Cells per parity.
    pub fn cells(&self) -> u32 {
        self.cells
    }

    /// The largest message: what fits inline or beyond the first line.
    pub fn largest_bytes(&self) -> u64 {
        self.cell_bytes.max(INLINE_BYTES)
    }

    /// Cell `index` of parity `epoch & 1`.
    ///
    /// Panics: beyond the number of cells.
    pub fn cell(&self, parity: u64, index: u32) -> Cell<'_> {
        assert!(index < self.cells, "cell {index} of a zone of {}", self.cells);
        let number = (parity & 1) as usize * self.cells as usize + index as usize;
        // SAFETY: the zone has 2 * cells cells, and the number is below that.
        let start = unsafe { self.start.add(number * self.cell_stride) };
        Cell { start, cell_bytes: self.cell_bytes, zone: PhantomData }
    }
}

impl<'a> Cell<'a> {
    /// The epoch of the message in the cell. Written by the sender with release after the payload,
    /// read by the receiver with acquire before it.
    pub fn flag(&self) -> &'a AtomicU64 {
        // SAFETY: the first word of a cell is aligned, lives as long as the zone, and is only accessed
        // as an atomic: it is never payload.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast()) }
    }

    /// Where a message of `bytes` lies: up to [`INLINE_BYTES`] beside the flag, aligned to 8; more
    /// behind the first line, aligned to 64.
    ///
    /// Panics: if it does not fit.
    pub fn payload(&self, bytes: u64) -> *mut u8 {
        let offset = if bytes <= INLINE_BYTES {
            8
        } else {
            assert!(bytes <= self.cell_bytes, "{bytes} bytes do not fit into a cell of {}", self.cell_bytes);
            64
        };
        // SAFETY: a cell has 64 + cell_bytes bytes.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::mapping::Mapping;
    use std::sync::atomic::Ordering;

    #[test]
    fn cells_do_not_overlap_and_flags_are_never_payload() {
        let geometry =
            Geometry { ranks: 2, channels: 1, slots: 1, slot_bytes: 64, zone_cells: 3, zone_cell_bytes: 100 };
        let region = Mapping::private(Layout::new(&geometry).region_bytes).expect("a region");
        // SAFETY: the mapping is a region of this geometry and outlives the zone.
        let zone = unsafe { Zone::new(region.start(), &geometry) };
        let all = || (0..2).flat_map(|parity| (0..3).map(move |index| (parity, index)));
        for (parity, index) in all() {
            let cell = zone.cell(parity, index);
            // SAFETY: both areas belong to the cell.
            unsafe {
                cell.payload(56).write_bytes(0xFF, 56);
                cell.payload(100).write_bytes(0xFF, 100);
            }
        }
        for (number, (parity, index)) in (1..).zip(all()) {
            assert_eq!(zone.cell(parity, index).flag().swap(number, Ordering::Relaxed), 0);
        }
        for (parity, index) in all() {
            let cell = zone.cell(parity, index);
            // SAFETY: both areas belong to the cell, and nobody writes them any more.
            let (inline, beyond) = unsafe {
                (
                    std::slice::from_raw_parts(cell.payload(56), 56),
                    std::slice::from_raw_parts(cell.payload(57), 100),
                )
            };
            assert!(inline.iter().chain(beyond).all(|byte| *byte == 0xFF));
        }
    }
}
