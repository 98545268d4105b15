//! Traffic whose every byte is known to both ends.
#![allow(unsafe_code)] // Reading and writing slots is what links are for.

use super::exchange::Bell;
use ringsmith_runtime::transport::{Alarm, Cell, Connections, Fifo};
use std::sync::atomic::Ordering;

/// A small generator, so that a seed replays a test.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A size up to `most`, with the ends favoured.
    pub(crate) fn size(&mut self, most: u64) -> u64 {
        match self.next() % 6 {
            0 => 0,
            1 => most,
            2 => 1 + self.next() % 64.min(most),
            _ => self.next() % (most + 1),
        }
    }
}

fn seed_of(seed: u64, from: u32, to: u32, channel: u32) -> u64 {
    seed ^ (u64::from(from) << 40) ^ (u64::from(to) << 20) ^ u64::from(channel).wrapping_mul(0x9E37_79B9)
}

struct Stream {
    random: Random,
    sequence: u64,
}

fn byte(sequence: u64, index: u64) -> u8 {
    (sequence.wrapping_mul(31) ^ index.wrapping_mul(7) ^ (index >> 8)) as u8
}

fn send(fifo: &Fifo, stream: &mut Stream) -> bool {
    let n = stream.sequence;
    if !fifo.has_room(n) {
        return false;
    }
    let bytes = stream.random.size(fifo.slot_bytes());
    // SAFETY: the slot is free, and has at least that many bytes.
    let slot = unsafe { std::slice::from_raw_parts_mut(fifo.payload(n), bytes as usize) };
    for (index, place) in slot.iter_mut().enumerate() {
        *place = byte(n, index as u64);
    }
    fifo.publish(n, bytes);
    stream.sequence += 1;
    true
}

fn receive(fifo: &Fifo, stream: &mut Stream) -> bool {
    let n = stream.sequence;
    if !fifo.has(n) {
        return false;
    }
    let bytes = stream.random.size(fifo.slot_bytes());
    assert_eq!(fifo.bytes(n), bytes, "size of message {n}");
    // SAFETY: the message has arrived, with that many bytes.
    let slot = unsafe { std::slice::from_raw_parts(fifo.payload(n), bytes as usize) };
    for (index, found) in slot.iter().enumerate() {
        assert_eq!(*found, byte(n, index as u64), "byte {index} of message {n}");
    }
    fifo.release(n);
    stream.sequence += 1;
    true
}

/// Sends `messages` on every link of this rank and receives as many on every other end.
pub(crate) fn everybody_to_everybody(links: &Connections, bell: &Bell, seed: u64, messages: u64) {
    let stop = |_| {
        assert!(!bell.raised(), "seed {seed}: {:?}", bell.fault());
        false
    };
    everybody_to_everybody_until(links, seed, messages, stop);
}

/// The same, until `stop` says so; it hears how many messages this rank has sent.
pub(crate) fn everybody_to_everybody_until(
    links: &Connections,
    seed: u64,
    messages: u64,
    stop: impl Fn(u64) -> bool,
) {
    let geometry = *links.geometry();
    let ends = || (0..geometry.ranks).flat_map(|peer| (0..geometry.channels).map(move |c| (peer, c)));
    let rank = links.rank();
    let stream =
        |from, to, channel| Stream { random: Random::new(seed_of(seed, from, to, channel)), sequence: 0 };
    let mut out: Vec<_> = ends().map(|(peer, c)| stream(rank, peer, c)).collect();
    let mut inward: Vec<_> = ends().map(|(peer, c)| stream(peer, rank, c)).collect();
    let mut total = 0;
    let _guard = links.enter();
    loop {
        let mut moved = false;
        for ((peer, channel), (out, inward)) in ends().zip(out.iter_mut().zip(&mut inward)) {
            let sent = out.sequence < messages && send(links.outbound(peer, channel), out);
            total += u64::from(sent);
            moved |= sent;
            moved |= inward.sequence < messages && receive(links.inbound(peer, channel), inward);
        }
        if stop(total) || out.iter().chain(&inward).all(|stream| stream.sequence == messages) {
            return;
        }
        if !moved {
            std::thread::yield_now();
        }
    }
}

/// Puts a message into a cell, then its flag.
pub(crate) fn cell_send(cell: Cell<'_>, epoch: u64, bytes: u64) {
    // SAFETY: the receiver has read this parity's last message, since it has sent its own after that.
    let payload = unsafe { std::slice::from_raw_parts_mut(cell.payload(bytes), bytes as usize) };
    for (index, place) in (0..).zip(payload) {
        *place = byte(epoch, index);
    }
    cell.flag().store(epoch, Ordering::Release);
}

/// Waits for a message in a cell and checks it.
pub(crate) fn cell_receive(cell: Cell<'_>, epoch: u64, bytes: u64) {
    while cell.flag().load(Ordering::Acquire) != epoch {
        std::thread::yield_now();
    }
    // SAFETY: the flag says that the message is there; it stays until this rank sends its next one.
    let payload = unsafe { std::slice::from_raw_parts(cell.payload(bytes), bytes as usize) };
    for (index, found) in (0..).zip(payload) {
        assert_eq!(*found, byte(epoch, index), "byte {index} of epoch {epoch}");
    }
}
