//! A FIFO link as the executor sees it, whatever transport is behind it.
//!
//! See [`geometry`](super::geometry) for where its words lie, who writes them and with which memory
//! order. Each end keeps its own sequence number; this file keeps none and waits for nothing.

use super::doorbell::Doorbell;
use super::geometry::{FREE_OFFSET, Geometry, HEADER_BYTES, HEADERS_OFFSET, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// One end of a FIFO. Borrowed from [`Connections`](super::Connections), which keeps the memory.
///
/// To send message number `n` (the first is 0): wait until [`has_room(n)`](Self::has_room), write
/// [`payload(n)`](Self::payload), then [`publish(n, bytes)`](Self::publish). To receive it: wait until
/// [`has(n)`](Self::has), read, then [`release(n)`](Self::release). The two steps of publishing can
/// also be done by hand: store to [`full`](Self::full) or [`free`](Self::free), then
/// [`ring`](Self::ring).
#[derive(Clone, Debug)]
pub struct Fifo {
    words: NonNull<u8>,
    slots_start: NonNull<u8>,
    slots: u64,
    slot_bytes: u64,
    doorbell: Option<Doorbell>,
}

// SAFETY: the words behind a FIFO are atomics, and its payload is only touched by whom the protocol
// lets; the addresses themselves may be used from any thread.
unsafe impl Send for Fifo {}
// SAFETY: as above.
unsafe impl Sync for Fifo {}

impl Fifo {
    /// The FIFO of `channel` in the region that starts at `region`.
    ///
    /// # Safety
    /// `region` points to a zero-initialised or live region of this geometry that stays mapped as
    /// long as the value or a clone of it is used.
    pub(crate) unsafe fn new(
        region: NonNull<u8>,
        geometry: &Geometry,
        channel: u32,
        doorbell: Option<Doorbell>,
    ) -> Self {
        assert!(channel < geometry.channels, "channel {channel} is beyond the geometry");
        let layout = Layout::new(geometry);
        // SAFETY: both offsets lie within a region of this geometry, since the channel does.
        let (words, slots_start) = unsafe {
            (region.add(layout.fifo(channel) as usize), region.add(layout.payload(channel) as usize))
        };
        Self { words, slots_start, slots: geometry.slots.into(), slot_bytes: geometry.slot_bytes, doorbell }
    }

    /// How many messages the sender has put in, since the communicator began. Written by the sender
    /// with release, read by the receiver with acquire.
    pub fn full(&self) -> &AtomicU64 {
        // SAFETY: the word is aligned, lives as long as the FIFO, and is only accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.words.as_ptr().cast()) }
    }

    /// How many messages the receiver has taken out, since the communicator began. Written by the
    /// receiver with release, read by the sender with acquire.
    pub fn free(&self) -> &AtomicU64 {
        // SAFETY: as for `full`; the offset lies within the FIFO's words.
        unsafe { AtomicU64::from_ptr(self.words.as_ptr().add(FREE_OFFSET as usize).cast()) }
    }

    /// How many messages can be under way.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// The largest message.
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// The slot of message `sequence`: [`slot_bytes`](Self::slot_bytes) bytes, aligned to 64.
    ///
    /// Ordering: the sender may write it once [`has_room`](Self::has_room), until it publishes; the
    /// receiver may read it once it [`has`](Self::has) the message, until it releases.
    pub fn payload(&self, sequence: u64) -> *mut u8 {
        let offset = (sequence % self.slots) * self.slot_bytes;
        // SAFETY: the remainder keeps the offset within the channel's slots.
        unsafe { self.slots_start.as_ptr().add(offset as usize) }
    }

    /// Says how many bytes of the slot message `sequence` uses. Only the sender may, before it
    /// publishes.
    pub fn set_bytes(&self, sequence: u64, bytes: u64) {
        self.header(sequence).store(bytes, Ordering::Relaxed);
    }

    /// What the sender said of message `sequence`. Over shared memory this is the peer's word: compare
    /// it with what the plan expects before using it as a length.
    pub fn bytes(&self, sequence: u64) -> u64 {
        self.header(sequence).load(Ordering::Relaxed)
    }

    /// Whether message `sequence` has arrived. Acquire. If not, and if cores are scarce, the thread may
    /// move some messages of socket links meanwhile: it would only wait.
    #[inline]
    pub fn has(&self, sequence: u64) -> bool {
        let arrived = || is_ahead(self.full().load(Ordering::Acquire), sequence);
        arrived() || (self.doorbell.is_some() && self.help() && arrived())
    }

    /// Whether message `sequence` has a free slot. Acquire. If not, the thread may help as in
    /// [`has`](Self::has).
    #[inline]
    pub fn has_room(&self, sequence: u64) -> bool {
        let free = || is_ahead(self.free().load(Ordering::Acquire).wrapping_add(self.slots), sequence);
        free() || (self.doorbell.is_some() && self.help() && free())
    }

    /// Hands message `sequence` of `bytes` to the receiver. Release.
    ///
    /// Panics: if the message is larger than a slot.
    #[inline]
    pub fn publish(&self, sequence: u64, bytes: u64) {
        assert!(bytes <= self.slot_bytes, "{bytes} bytes do not fit into a slot of {}", self.slot_bytes);
        self.set_bytes(sequence, bytes);
        self.full().store(sequence.wrapping_add(1), Ordering::Release);
        self.ring();
    }

    /// Gives the slot of message `sequence` back to the sender. Release.
    #[inline]
    pub fn release(&self, sequence: u64) {
        self.free().store(sequence.wrapping_add(1), Ordering::Release);
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring_later();
        }
    }

    /// Tells the transport that `full` or `free` has advanced. Nothing to do over shared memory, where
    /// the peer sees the word itself; over a network it wakes the progress thread if that sleeps, or
    /// sends from this thread if cores are scarce.
    #[inline]
    pub fn ring(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }

    #[cold]
    fn help(&self) -> bool {
        if let Some(doorbell) = &self.doorbell {
            doorbell.help();
        }
        true
    }

    /// The same FIFO for the progress thread, which needs no bell.
    pub(crate) fn without_bell(&self) -> Self {
        Self { doorbell: None, ..self.clone() }
    }

    fn header(&self, sequence: u64) -> &AtomicU64 {
        let offset = HEADERS_OFFSET + (sequence % self.slots) * HEADER_BYTES;
        // SAFETY: the remainder keeps the offset within the headers; the word is aligned and only
        // accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.words.as_ptr().add(offset as usize).cast()) }
    }
}

/// Whether a counter has passed `sequence`, as a signed distance: right for counters that wrap as long
/// as they are less than half their range apart.
pub(crate) fn is_ahead(counter: u64, sequence: u64) -> bool {
    counter.wrapping_sub(sequence) as i64 > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::mapping::Mapping;

    const GEOMETRY: Geometry =
        Geometry { ranks: 2, channels: 3, slots: 3, slot_bytes: 128, zone_cells: 0, zone_cell_bytes: 0 };

    fn with_fifo(channel: u32, test: impl FnOnce(&Fifo)) {
        let region = Mapping::private(Layout::new(&GEOMETRY).region_bytes).expect("a region");
        // SAFETY: the mapping is a zeroed region of this geometry and outlives the call.
        test(&unsafe { Fifo::new(region.start(), &GEOMETRY, channel, None) });
    }

    #[test]
    fn messages_take_turns_over_the_slots_and_credits_bound_them() {
        with_fifo(2, |fifo| {
            for n in 0..3 {
                assert!(fifo.has_room(n) && !fifo.has(n));
                fifo.publish(n, n + 1);
                assert!(fifo.has(n));
            }
            assert!(!fifo.has_room(3));
            assert_eq!((fifo.bytes(0), fifo.bytes(1), fifo.bytes(2)), (1, 2, 3));
            fifo.release(0);
            assert!(fifo.has_room(3) && !fifo.has_room(4));
            assert_eq!(fifo.payload(3), fifo.payload(0));
            assert_ne!(fifo.payload(3), fifo.payload(1));
        });
    }

    #[test]
    fn channels_do_not_share_words_or_slots() {
        with_fifo(0, |first| {
            // SAFETY: the same region, still mapped.
            let second = unsafe {
                let region = first.words.sub(Layout::new(&GEOMETRY).fifo(0) as usize);
                Fifo::new(region, &GEOMETRY, 1, None)
            };
            first.publish(0, 5);
            assert!(!second.has(0));
            assert_eq!(second.payload(0) as usize - first.payload(2) as usize, 128);
        });
    }

    #[test]
    fn counters_compare_right_across_the_wrap() {
        assert!(is_ahead(0, u64::MAX));
        assert!(!is_ahead(u64::MAX, 0));
        assert!(!is_ahead(7, 7));
    }
}
