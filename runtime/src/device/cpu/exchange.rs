//! Point to point on the CPU: lists of sends and receives, all pairs at once.
//!
//! Runs the exchange plan (`ringsmith_compiler::plan::exchange`): one lane for each direction of each
//! pair, on the pair's first channel, each with as many tiles as its own messages have. Lanes go by
//! pair, so lists in different orders on different ranks match; messages to one peer match in issue
//! order.
//!
//! A message ends with the first tile that is not full, so one that fills its last tile is followed by
//! an empty one, and an empty message is one empty tile. Each end notices at once when the other's
//! message has another size.

use super::arith::copy;
use super::execute::Links;
use super::local::{Port, port};
use super::wait::{Awaited, Pending, Wait, Watch};
use crate::error::Error;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// A message as its sender sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) peer: u32,
    pub(crate) data: *const u8,
    pub(crate) bytes: u64,
}

/// A message as its receiver sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    pub(crate) peer: u32,
    pub(crate) data: *mut u8,
    pub(crate) bytes: u64,
}

/// The lists of one call.
#[derive(Default)]
pub(crate) struct Lists {
    pub(crate) sends: Vec<Outgoing>,
    pub(crate) receives: Vec<Incoming>,
}

struct SendLane {
    port: Port,
    queue: VecDeque<Outgoing>,
    done_bytes: u64,
}

struct ReceiveLane {
    port: Port,
    queue: VecDeque<Incoming>,
    done_bytes: u64,
}

/// Checks what can be checked before anything moves: messages of a rank to itself.
///
/// Errors: `Argument` when their number differs, `MessageSize` when a size does.
pub(crate) fn check(rank: u32, lists: &Lists) -> Result<(), Error> {
    let own_sends = || lists.sends.iter().filter(|m| m.peer == rank);
    let own_receives = || lists.receives.iter().filter(|m| m.peer == rank);
    let (sends, receives) = (own_sends().count(), own_receives().count());
    if sends != receives {
        return Err(Error::Argument {
            operation: "send and receive",
            detail: format!(
                "rank {rank} sends {sends} messages to itself and receives {receives} from itself; they must match within one group"
            ),
        });
    }
    match own_sends().zip(own_receives()).find(|(from, to)| from.bytes != to.bytes) {
        None => Ok(()),
        Some((from, to)) => Err(Error::MessageSize {
            rank,
            peer: rank,
            operation: "send to itself".to_owned(),
            expected_bytes: to.bytes,
            found_bytes: from.bytes,
        }),
    }
}

/// Runs the lists to their end. The communicator is the only caller: slices back every message, and
/// [`check`] has passed.
///
/// Errors: as [`exchange`].
pub(crate) fn run(
    rank: u32,
    number: u64,
    lists: Lists,
    links: &mut Links,
    watch: &Watch<'_>,
) -> Result<(), Error> {
    // SAFETY: the caller borrows every message for the whole call, incoming ones exclusively.
    unsafe { exchange(rank, number, lists, links, watch) }
}

/// Runs the lists to their end.
///
/// # Safety
/// Every outgoing message is readable, every incoming one writable, for its bytes, and no incoming one
/// overlaps another message of the lists.
///
/// Errors: as the executor's.
unsafe fn exchange(
    rank: u32,
    number: u64,
    lists: Lists,
    links: &mut Links,
    watch: &Watch<'_>,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let lists = unsafe { copy_own(rank, lists) };
    let ranks = links.geometry.ranks;
    let mut run = Run { rank, number, links, sends: Vec::new(), receives: Vec::new() };
    for round in 1..ranks {
        let to = (rank + round) % ranks;
        let from = (rank + ranks - round) % ranks;
        let queue: VecDeque<Outgoing> = lists.sends.iter().filter(|m| m.peer == to).copied().collect();
        if !queue.is_empty() {
            run.sends.push(SendLane { port: port(&run.links.geometry, true, to, 0), queue, done_bytes: 0 });
        }
        let queue: VecDeque<Incoming> = lists.receives.iter().filter(|m| m.peer == from).copied().collect();
        if !queue.is_empty() {
            run.receives.push(ReceiveLane {
                port: port(&run.links.geometry, false, from, 0),
                queue,
                done_bytes: 0,
            });
        }
    }
    let mut wait = Wait::new();
    while !run.is_done() {
        // SAFETY: the caller's promise.
        if unsafe { run.round()? } {
            wait.reset();
        } else {
            wait.pause(watch, &run)?;
        }
    }
    Ok(())
}

/// Messages of a rank to itself are copies, matched in order.
///
/// # Safety
/// As for [`exchange`], and [`check`] has passed.
unsafe fn copy_own(rank: u32, mut lists: Lists) -> Lists {
    let own_sends = lists.sends.iter().filter(|m| m.peer == rank);
    let own_receives = lists.receives.iter().filter(|m| m.peer == rank);
    for (from, to) in own_sends.zip(own_receives) {
        // SAFETY: both are valid for the bytes by the caller's promise; `copy` allows them to overlap.
        unsafe { std::ptr::copy(from.data, to.data, from.bytes as usize) };
    }
    lists.sends.retain(|m| m.peer != rank);
    lists.receives.retain(|m| m.peer != rank);
    lists
}

struct Run<'a> {
    rank: u32,
    number: u64,
    links: &'a mut Links,
    sends: Vec<SendLane>,
    receives: Vec<ReceiveLane>,
}

impl Run<'_> {
    fn is_done(&self) -> bool {
        self.sends.iter().all(|l| l.queue.is_empty()) && self.receives.iter().all(|l| l.queue.is_empty())
    }

    /// Moves what can be moved; false when nothing can.
    ///
    /// # Safety
    /// As for [`exchange`].
    unsafe fn round(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        for index in 0..self.sends.len() {
            // SAFETY: the caller's promise.
            moved |= unsafe { self.send(index) };
        }
        for index in 0..self.receives.len() {
            // SAFETY: the caller's promise.
            moved |= unsafe { self.receive(index)? };
        }
        Ok(moved)
    }

    /// # Safety
    /// As for [`exchange`].
    unsafe fn send(&mut self, index: usize) -> bool {
        let lane = &mut self.sends[index];
        let slot_bytes = self.links.geometry.slot_bytes;
        let mut moved = false;
        while let Some(message) = lane.queue.front() {
            let sequence = self.links.ports[lane.port.0 as usize].sequence;
            let fifo = self.links.fifo(lane.port);
            if !fifo.has_room(sequence) {
                break;
            }
            let bytes = (message.bytes - lane.done_bytes).min(slot_bytes);
            // SAFETY: the range lies within the message; the slot has room and is as large as a tile.
            unsafe {
                let from = message.data.wrapping_add(lane.done_bytes as usize);
                copy(fifo.payload(sequence), from, bytes as usize);
            }
            fifo.publish(sequence, bytes);
            self.links.ports[lane.port.0 as usize].sequence = sequence.wrapping_add(1);
            lane.done_bytes += bytes;
            moved = true;
            if bytes < slot_bytes {
                lane.queue.pop_front();
                lane.done_bytes = 0;
            }
        }
        moved
    }

    /// # Safety
    /// As for [`exchange`].
    unsafe fn receive(&mut self, index: usize) -> Result<bool, Error> {
        let lane = &mut self.receives[index];
        let slot_bytes = self.links.geometry.slot_bytes;
        let mut moved = false;
        while let Some(message) = lane.queue.front() {
            let sequence = self.links.ports[lane.port.0 as usize].sequence;
            let fifo = self.links.fifo(lane.port);
            if !fifo.has(sequence) {
                break;
            }
            let expected = (message.bytes - lane.done_bytes).min(slot_bytes);
            let found = fifo.bytes(sequence);
            if found != expected {
                return Err(Error::MessageSize {
                    rank: self.rank,
                    peer: message.peer,
                    operation: format!("receive in exchange number {}", self.number),
                    expected_bytes: message.bytes,
                    found_bytes: lane.done_bytes.saturating_add(found),
                });
            }
            // SAFETY: the range lies within the message; the slot holds `found` bytes until released.
            unsafe {
                let to = message.data.wrapping_add(lane.done_bytes as usize);
                copy(to, fifo.payload(sequence).cast_const(), found as usize);
            }
            fifo.release(sequence);
            self.links.ports[lane.port.0 as usize].sequence = sequence.wrapping_add(1);
            lane.done_bytes += found;
            moved = true;
            if found < slot_bytes {
                lane.queue.pop_front();
                lane.done_bytes = 0;
            }
        }
        Ok(moved)
    }
}

impl Pending for Run<'_> {
    fn peers(&self) -> SmallVec<[u32; 8]> {
        let receives = self.receives.iter().filter_map(|lane| lane.queue.front()).map(|m| m.peer);
        receives.chain(self.sends.iter().filter_map(|lane| lane.queue.front()).map(|m| m.peer)).collect()
    }

    fn awaited(&self, peer: u32) -> Awaited {
        let receive = self.receives.iter().find_map(|lane| {
            let message = lane.queue.front().filter(|m| m.peer == peer)?;
            let (bytes, done) = (message.bytes, lane.done_bytes);
            Some(format!("a message of {bytes} bytes from rank {peer} is awaited, {done} of them have come"))
        });
        let send = || {
            self.sends.iter().find_map(|lane| {
                let message = lane.queue.front().filter(|m| m.peer == peer)?;
                let (bytes, done) = (message.bytes, lane.done_bytes);
                Some(format!(
                    "a message of {bytes} bytes to rank {peer} is not taken, {done} of them have been sent"
                ))
            })
        };
        let detail = receive.or_else(send).expect("a message to or from this rank is under way");
        Awaited { rank: self.rank, operation: format!("exchange number {}", self.number), detail }
    }
}
