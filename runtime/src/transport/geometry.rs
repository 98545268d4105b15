//! How large links are, and where everything of one ordered pair of ranks lies.
//!
//! The geometry is fixed per communicator and the same on every rank. A *region* holds all that one
//! rank sends to another: one FIFO per channel and, between ranks that share memory, a zone.
//!
//! ```text
//! region of s -> d (each part starts on its own pages)
//! control   +0    greeting: 64 bytes of pattern, written by s while connecting
//!           +64   answer:   64 bytes of pattern, written by d while connecting
//!           +128  left:     u32 written by s, u32 written by d, when they close in good order
//!           +256  per channel, 256 + slots * 64 bytes rounded up to 128:
//!                   +0    full: u64     messages put in      written by s, read by d
//!                   +128  free: u64     messages taken out   written by d, read by s
//!                   +256  slots x { bytes: u64, 56 unused }  written by s, read by d
//! zone      2 parities x zone_cells x { flag: u64, 56 bytes inline; zone_cell_bytes }
//! payload   channels x slots x slot_bytes
//! ```
//!
//! Counters and slot headers lie apart from the payload, so that messages without payload touch no
//! payload page, and so that slots are as aligned as their size allows.
//!
//! Memory order, the same over every transport:
//!
//! | word | written by | with | read by | with |
//! | --- | --- | --- | --- | --- |
//! | payload, `bytes` of a slot | s, before `full` | plain, relaxed | d, after `full` | plain, relaxed |
//! | `full` | s | release | d | acquire |
//! | `free` | d, after its last read of the slot | release | s, before it writes the slot again | acquire |
//! | payload of a cell | s, before `flag` | plain | d, after `flag` | plain |
//! | `flag` | s | release | d | acquire |
//! | `greeting`, `answer` | s, d | plain | d, s | plain, after a barrier over the bootstrap |
//! | `left` | s, d | release | d, s | acquire |

use crate::memory::mapping::PAGE_ALIGN_BYTES;
use crate::transport::error::LinkError;
use serde::{Deserialize, Serialize};

/// Bytes of a message that fit into the first line of a cell, beside its flag.
pub const INLINE_BYTES: u64 = 56;

/// Largest number of ranks. Ours: what the planner is built for.
pub const MAX_RANKS: u32 = 16 * 1024;
/// Largest number of channels. Ours: a channel number has to fit into a frame's 16 bits with room.
pub const MAX_CHANNELS: u32 = 4096;
/// Largest number of slots per FIFO. Ours: more hide no latency that exists.
pub const MAX_SLOTS: u32 = 4096;
/// Largest slot. Ours.
pub const MAX_SLOT_BYTES: u64 = 1 << 30;
/// Largest number of cells per parity of a zone. Ours.
pub const MAX_ZONE_CELLS: u32 = 64 * 1024;
/// Largest region. Ours: 64 of them fit into the 47 bits of addresses that a process has.
pub const MAX_REGION_BYTES: u64 = 1 << 40;

/// Line that nothing else shares, on machines that prefetch lines in pairs.
const PAIR_OF_LINES: u64 = 128;
const LINE: u64 = 64;

pub(crate) const GREETING_OFFSET: u64 = 0;
pub(crate) const ANSWER_OFFSET: u64 = 64;
pub(crate) const SENDER_LEFT_OFFSET: u64 = 128;
pub(crate) const RECEIVER_LEFT_OFFSET: u64 = 132;
const FIFOS_OFFSET: u64 = 256;
pub(crate) const FREE_OFFSET: u64 = 128;
pub(crate) const HEADERS_OFFSET: u64 = 256;
pub(crate) const HEADER_BYTES: u64 = 64;

/// The sizes of a communicator's links, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Geometry {
    /// Number of ranks.
    pub ranks: u32,
    /// FIFOs per ordered pair of ranks.
    pub channels: u32,
    /// Slots per FIFO.
    pub slots: u32,
    /// Payload bytes per slot: the largest message. A multiple of 64.
    pub slot_bytes: u64,
    /// Cells per parity of a zone; 0 means no zones.
    pub zone_cells: u32,
    /// Payload bytes per cell beyond the first line.
    pub zone_cell_bytes: u64,
}

impl Geometry {
    /// Checks every field against its bounds and the whole against [`MAX_REGION_BYTES`].
    pub fn check(&self) -> Result<(), LinkError> {
        let within = |field, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(LinkError::GeometryField { field, value, least, most })
            }
        };
        within("ranks", self.ranks.into(), 1, MAX_RANKS.into())?;
        within("channels", self.channels.into(), 1, MAX_CHANNELS.into())?;
        within("slots", self.slots.into(), 1, MAX_SLOTS.into())?;
        within("slot_bytes", self.slot_bytes, LINE, MAX_SLOT_BYTES)?;
        within("slot_bytes modulo 64", self.slot_bytes % LINE, 0, 0)?;
        within("zone_cells", self.zone_cells.into(), 0, MAX_ZONE_CELLS.into())?;
        within("zone_cell_bytes", self.zone_cell_bytes, 0, MAX_SLOT_BYTES)?;
        let layout = Layout::new(self);
        within("bytes of all links from one rank to another", layout.region_bytes, 1, MAX_REGION_BYTES)
    }
}

/// Offsets within a region. None of the sums can overflow once [`Geometry::check`] has passed its
/// first seven bounds: the largest product is below 2^55.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    fifo_stride: u64,
    cell_stride: u64,
    zone_offset: u64,
    payload_offset: u64,
    channel_payload: u64,
    /// Bytes of a region with a zone, a multiple of [`PAGE_ALIGN_BYTES`].
    pub region_bytes: u64,
}

impl Layout {
    /// The layout of a checked geometry.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let channels = u64::from(geometry.channels);
        let slots = u64::from(geometry.slots);
        let fifo_stride = (HEADERS_OFFSET + slots * HEADER_BYTES).next_multiple_of(PAIR_OF_LINES);
        let zone_offset = (FIFOS_OFFSET + channels * fifo_stride).next_multiple_of(PAGE_ALIGN_BYTES);
        let cell_stride = LINE + geometry.zone_cell_bytes.next_multiple_of(LINE);
        let zone_bytes = 2 * u64::from(geometry.zone_cells) * cell_stride;
        let payload_offset = (zone_offset + zone_bytes).next_multiple_of(PAGE_ALIGN_BYTES);
        let channel_payload = slots * geometry.slot_bytes;
        let region_bytes = (payload_offset + channels * channel_payload).next_multiple_of(PAGE_ALIGN_BYTES);
        Self { fifo_stride, cell_stride, zone_offset, payload_offset, channel_payload, region_bytes }
    }

    /// Where the words of a channel's FIFO start.
    pub(crate) fn fifo(&self, channel: u32) -> u64 {
        FIFOS_OFFSET + u64::from(channel) * self.fifo_stride
    }

    /// Where the slots of a channel start.
    pub(crate) fn payload(&self, channel: u32) -> u64 {
        self.payload_offset + u64::from(channel) * self.channel_payload
    }

    /// Where the zone starts.
    pub(crate) fn zone(&self) -> u64 {
        self.zone_offset
    }

    /// Distance between neighbouring cells.
    pub(crate) fn cell_stride(&self) -> u64 {
        self.cell_stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Geometry = Geometry {
        ranks: 8,
        channels: 4,
        slots: 8,
        slot_bytes: 1 << 17,
        zone_cells: 64,
        zone_cell_bytes: 8192,
    };

    #[test]
    fn parts_follow_each_other_without_overlap() {
        for slots in [1, 2, 3, 8, 64] {
            let geometry = Geometry { slots, ..USUAL };
            geometry.check().expect("a usual geometry");
            let layout = Layout::new(&geometry);
            let last_header = layout.fifo(3) + HEADERS_OFFSET + u64::from(slots) * HEADER_BYTES;
            assert!(last_header <= layout.fifo(4));
            assert!(layout.fifo(4) <= layout.zone());
            assert!(layout.zone() + 128 * layout.cell_stride() <= layout.payload(0));
            assert_eq!(layout.payload(1) - layout.payload(0), u64::from(slots) << 17);
            assert!(layout.payload(4) <= layout.region_bytes);
        }
    }

    #[test]
    fn every_bound_is_enforced_and_named() {
        let cases = [
            ("ranks", Geometry { ranks: 0, ..USUAL }),
            ("ranks", Geometry { ranks: u32::MAX, ..USUAL }),
            ("channels", Geometry { channels: 0, ..USUAL }),
            ("slots", Geometry { slots: u32::MAX, ..USUAL }),
            ("slot_bytes", Geometry { slot_bytes: 0, ..USUAL }),
            ("slot_bytes modulo 64", Geometry { slot_bytes: 100, ..USUAL }),
            ("slot_bytes", Geometry { slot_bytes: u64::MAX, ..USUAL }),
            ("zone_cells", Geometry { zone_cells: u32::MAX, ..USUAL }),
            ("zone_cell_bytes", Geometry { zone_cell_bytes: u64::MAX, ..USUAL }),
            (
                "bytes of all links from one rank to another",
                Geometry { channels: MAX_CHANNELS, slots: MAX_SLOTS, slot_bytes: MAX_SLOT_BYTES, ..USUAL },
            ),
        ];
        for (expected, geometry) in cases {
            match geometry.check() {
                Err(LinkError::GeometryField { field, .. }) => assert_eq!(field, expected, "{geometry:?}"),
                other => panic!("{geometry:?}: {other:?}"),
            }
        }
    }
}
