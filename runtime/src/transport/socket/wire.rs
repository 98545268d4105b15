//! One connection: what is to be sent on it, what is being received, and the ends of the links it
//! carries. Used by the progress thread alone; waits for nothing.
//!
//! Messages go straight from the sender's slot into the socket and from the socket into the receiver's
//! slot, except that up to [`STASH_BYTES`] behind a frame are read along with it and copied once: that
//! halves the system calls of small messages. Credits ride on data of the same channel; they travel
//! alone when half of the slots are due, or when there is nothing else to do.

use super::super::fifo::Fifo;
use super::frame::{FRAME_BYTES, Frame, Kind};
use super::handshake::Made;
use super::listener;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut, readv};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is read at once beyond a known message.
const STASH_BYTES: usize = 64 * 1024;
/// From this many missing bytes on, a message is read without what comes behind its next frame.
const LARGE_BYTES: usize = 32 * 1024;
/// Pieces handed to one system call. The kernel takes 1024; more than this gains nothing.
const PIECES: usize = 64;
/// Bytes received from one connection before the others have their turn.
const TURN_BYTES: usize = 4 << 20;

/// Why a connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WireError {
    /// It has ended.
    Lost(String),
    /// The peer's communicator is broken, and this rank is to blame, it says.
    Told(u32),
    /// The peer sent what it may not.
    Protocol(String),
    /// This process did what it may not.
    Own(String),
}

/// What reports about stalls want to know of one link end, written by the progress thread, read by
/// anybody, relaxed: each word tells something by itself.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Messages wholly handed to the kernel, or received from it.
    pub(crate) moved: AtomicU64,
    /// When the last one was, in milliseconds since the progress thread began.
    pub(crate) moved_ms: AtomicU64,
}

/// The two link ends of one channel.
#[derive(Debug)]
pub(crate) struct Channel {
    number: u32,
    out: Fifo,
    inward: Fifo,
    /// Messages of `out` that are in the wire's queue or sent.
    queued: u64,
    /// Messages of `out` that are sent.
    sent: u64,
    /// Messages of `inward` that have arrived.
    received: u64,
    /// What the peer has been told of `inward.free`.
    credited: u64,
    /// Whether the wire remembers that there is something to tell.
    due: bool,
}

impl Channel {
    pub(crate) fn new(number: u32, out: Fifo, inward: Fifo) -> Self {
        Self { number, out, inward, queued: 0, sent: 0, received: 0, credited: 0, due: false }
    }
}

/// A frame to be sent, and its payload.
struct Output {
    header: [u8; FRAME_BYTES],
    payload: *const u8,
    bytes: usize,
    /// The channel whose message it is.
    data: Option<usize>,
}

/// A message that is being received.
#[derive(Clone, Copy)]
struct Input {
    channel: usize,
    bytes: usize,
    done: usize,
}

/// A connection.
pub(crate) struct Wire {
    made: Made,
    /// Distance between the numbers of its channels.
    stride: u32,
    channels: Vec<Channel>,
    output: VecDeque<Output>,
    /// Bytes of the first output that are sent.
    written: usize,
    due: Vec<usize>,
    stash: Box<[u8]>,
    stash_start: usize,
    stash_end: usize,
    input: Option<Input>,
    bye: Bye,
    /// Whether the kernel takes no more at the moment.
    pub(crate) blocked: bool,
}

// SAFETY: the payload pointers point into slots of the wire's own FIFOs, which may be used from any
// thread, and which the wire's owner keeps mapped.
unsafe impl Send for Wire {}

/// How far closing has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bye {
    /// This side has said it.
    pub(crate) said: bool,
    /// The peer has confirmed it.
    pub(crate) confirmed: bool,
    /// The peer has said it.
    pub(crate) heard: bool,
    /// The connection has ended.
    pub(crate) over: bool,
}

impl Wire {
    /// Takes a made connection for the given channels, whose numbers are `stride` apart.
    pub(crate) fn new(made: Made, stride: u32, channels: Vec<Channel>) -> Result<Self, Errno> {
        listener::tune(&made.socket)?;
        Ok(Self {
            made,
            stride,
            channels,
            output: VecDeque::new(),
            written: 0,
            due: Vec::new(),
            stash: vec![0; STASH_BYTES].into_boxed_slice(),
            stash_start: 0,
            stash_end: 0,
            input: None,
            bye: Bye::default(),
            blocked: false,
        })
    }

    pub(crate) fn peer(&self) -> u32 {
        self.made.peer
    }

    pub(crate) fn address(&self) -> &str {
        &self.made.address
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.made.socket.as_fd()
    }

    pub(crate) fn bye(&self) -> Bye {
        self.bye
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Ends it: nothing is sent or received any more.
    pub(crate) fn give_up(&mut self) {
        self.bye.over = true;
        self.output.clear();
        let _ = rustix::net::shutdown(&self.made.socket, rustix::net::Shutdown::Both);
    }

    /// Queues what the executor has published on a channel.
    pub(crate) fn notice_out(&mut self, index: usize) -> Result<(), WireError> {
        let key = self.made.key;
        let channel = &mut self.channels[index];
        let full = channel.out.full().load(Ordering::Acquire);
        if full.wrapping_sub(channel.queued) > channel.out.slots() {
            return Err(WireError::Own(format!(
                "channel {} to rank {} has {full} messages in after {}, with {} slots",
                channel.number,
                self.made.peer,
                channel.queued,
                channel.out.slots()
            )));
        }
        while channel.queued != full {
            let sequence = channel.queued;
            let bytes = channel.out.bytes(sequence);
            if bytes > channel.out.slot_bytes() {
                let (number, peer) = (channel.number, self.made.peer);
                return Err(WireError::Own(format!(
                    "message {sequence} of channel {number} to rank {peer} has {bytes} bytes, more than a slot"
                )));
            }
            channel.credited = channel.inward.free().load(Ordering::Acquire);
            let frame = Frame {
                kind: Kind::Data,
                channel: channel.number as u16,
                sequence,
                credit: channel.credited,
                bytes: bytes as u32,
            };
            self.output.push_back(Output {
                header: frame.encode(key),
                payload: channel.out.payload(sequence),
                bytes: bytes as usize,
                data: Some(index),
            });
            channel.queued = sequence.wrapping_add(1);
        }
        Ok(())
    }

    /// Looks at what the executor has given back on a channel; tells the peer at once if that is much.
    pub(crate) fn notice_in(&mut self, index: usize) -> Result<(), WireError> {
        let channel = &mut self.channels[index];
        let free = channel.inward.free().load(Ordering::Acquire);
        let due = free.wrapping_sub(channel.credited);
        if due > channel.received.wrapping_sub(channel.credited) {
            return Err(WireError::Own(format!(
                "{free} messages of channel {} from rank {} were given back, and {} have arrived",
                channel.number, self.made.peer, channel.received
            )));
        }
        if due >= channel.inward.slots().div_ceil(2) {
            self.push_credit(index, free);
        } else if due > 0 && !channel.due {
            channel.due = true;
            self.due.push(index);
        }
        Ok(())
    }

    /// Queues the credits that were held back. True if there were any.
    pub(crate) fn queue_credits(&mut self) -> bool {
        let before = self.output.len();
        if self.bye.said {
            return false;
        }
        for index in std::mem::take(&mut self.due) {
            let channel = &mut self.channels[index];
            channel.due = false;
            let free = channel.inward.free().load(Ordering::Acquire);
            if free != channel.credited {
                self.push_credit(index, free);
            }
        }
        self.output.len() != before
    }

    fn push_credit(&mut self, index: usize, free: u64) {
        let channel = &mut self.channels[index];
        channel.credited = free;
        let number = channel.number as u16;
        let frame = Frame { kind: Kind::Credit, channel: number, sequence: 0, credit: free, bytes: 0 };
        self.push_plain(frame);
    }

    fn push_plain(&mut self, frame: Frame) {
        let header = frame.encode(self.made.key);
        self.output.push_back(Output { header, payload: std::ptr::null(), bytes: 0, data: None });
    }

    /// Queues the last word of this side, behind every credit that the peer may still wait for.
    pub(crate) fn say_bye(&mut self) {
        if !self.bye.said {
            self.queue_credits();
            self.bye.said = true;
            self.push_plain(Frame::plain(Kind::Bye));
        }
    }

    /// Tells the peer, as far as that needs no waiting, that the communicator is broken and by whom.
    pub(crate) fn say_broken(&mut self, culprit: u32) {
        // What has been begun must be finished first; the rest is of no use to anybody.
        self.output.truncate(usize::from(self.written > 0));
        self.push_plain(Frame { sequence: culprit.into(), ..Frame::plain(Kind::Broken) });
        let _ = self.send(|_, _| ());
    }

    /// Sends what the kernel takes. True if anything was sent; `moved` hears of each message.
    pub(crate) fn send(&mut self, mut moved: impl FnMut(u32, u64)) -> Result<bool, WireError> {
        let mut any = false;
        while !self.output.is_empty() {
            let (result, wanted) = self.send_once();
            match result {
                Ok(bytes) => {
                    any |= bytes > 0;
                    self.sent(bytes, &mut moved);
                    // A short write means a full buffer: asking again would only be told so.
                    self.blocked = bytes < wanted;
                    if self.blocked {
                        return Ok(any);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.blocked = true;
                    return Ok(any);
                }
                Err(errno) => {
                    // A peer that has said goodbye needs nothing more; whoever waits for it is told so.
                    if self.bye.heard {
                        self.output.clear();
                        self.written = 0;
                        self.blocked = false;
                        return Ok(any);
                    }
                    return Err(WireError::Lost(format!("sending failed: {errno}")));
                }
            }
        }
        self.blocked = false;
        Ok(any)
    }

    fn send_once(&self) -> (Result<usize, Errno>, usize) {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let (mut count, mut wanted, mut skip) = (0, 0, self.written);
        for output in &self.output {
            if count + 2 > PIECES {
                break;
            }
            // SAFETY: a queued message's slot belongs to the wire until the peer's credit, and is
            // mapped; without payload the length is 0 and the pointer is not used.
            let payload = unsafe { slice(output.payload, output.bytes) };
            for part in [&output.header[..], payload] {
                let rest = part.get(skip..).unwrap_or_default();
                skip = skip.saturating_sub(part.len());
                if !rest.is_empty() {
                    pieces[count] = IoSlice::new(rest);
                    count += 1;
                    wanted += rest.len();
                }
            }
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let result = sendmsg(&self.made.socket, &pieces[..count], &mut SendAncillaryBuffer::default(), flags);
        (result, wanted)
    }

    fn sent(&mut self, bytes: usize, moved: &mut impl FnMut(u32, u64)) {
        self.written += bytes;
        while let Some(first) = self.output.front() {
            let len = FRAME_BYTES + first.bytes;
            if self.written < len {
                return;
            }
            self.written -= len;
            if let Some(index) = first.data {
                let channel = &mut self.channels[index];
                channel.sent = channel.sent.wrapping_add(1);
                moved(channel.number, channel.sent);
            }
            self.output.pop_front();
        }
    }

    /// Receives what is there, up to a turn. True if anything was; `moved` hears of each message.
    pub(crate) fn receive(&mut self, mut moved: impl FnMut(u32, u64)) -> Result<bool, WireError> {
        let mut total = 0;
        while total < TURN_BYTES && !self.bye.over {
            let (result, wanted) = self.receive_once();
            match result {
                Ok(0) => {
                    self.end()?;
                    return Ok(true);
                }
                Ok(bytes) => {
                    total += bytes;
                    self.received(bytes, &mut moved)?;
                    // A short read means an empty buffer; so does the next event, without a call.
                    if bytes < wanted {
                        return Ok(true);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(total > 0),
                Err(_) if self.bye.heard || self.bye.said => {
                    self.bye.over = true;
                    return Ok(true);
                }
                Err(errno) => return Err(WireError::Lost(format!("receiving failed: {errno}"))),
            }
        }
        Ok(total > 0)
    }

    /// The peer sends nothing more.
    fn end(&mut self) -> Result<(), WireError> {
        if self.bye.heard || self.bye.said {
            self.bye.over = true;
            return Ok(());
        }
        let place = match self.input {
            Some(Input { channel, bytes, done }) => {
                let channel = &self.channels[channel];
                let (number, received) = (channel.number, channel.received);
                format!(" within message {received} of channel {number}, after {done} of {bytes} bytes")
            }
            None if self.stash_start < self.stash_end => " within a frame".to_owned(),
            None => String::new(),
        };
        Err(WireError::Lost(format!("it closed the connection{place} without saying goodbye")))
    }

    fn receive_once(&mut self) -> (Result<usize, Errno>, usize) {
        if self.stash_start == self.stash_end {
            (self.stash_start, self.stash_end) = (0, 0);
        } else if self.stash.len() - self.stash_end < FRAME_BYTES {
            self.stash.copy_within(self.stash_start..self.stash_end, 0);
            self.stash_end -= self.stash_start;
            self.stash_start = 0;
        }
        let spare = &mut self.stash[self.stash_end..];
        match self.input {
            Some(Input { channel, bytes, done }) => {
                let channel = &self.channels[channel];
                // SAFETY: the slot of a message that has not been published belongs to the wire, is
                // mapped, and has at least `bytes` bytes.
                let slot = unsafe {
                    let start = channel.inward.payload(channel.received).add(done);
                    std::slice::from_raw_parts_mut(start, bytes - done)
                };
                // Behind a large message comes a large message, of which little should be copied.
                let spare_bytes = if slot.len() >= LARGE_BYTES { FRAME_BYTES } else { spare.len() };
                let spare = &mut spare[..spare_bytes];
                let wanted = slot.len() + spare.len();
                let mut pieces = [IoSliceMut::new(slot), IoSliceMut::new(spare)];
                (readv(&self.made.socket, &mut pieces), wanted)
            }
            None => {
                let wanted = spare.len();
                (readv(&self.made.socket, &mut [IoSliceMut::new(spare)]), wanted)
            }
        }
    }

    fn received(&mut self, bytes: usize, moved: &mut impl FnMut(u32, u64)) -> Result<(), WireError> {
        let mut into_stash = bytes;
        if let Some(input) = &mut self.input {
            let direct = bytes.min(input.bytes - input.done);
            input.done += direct;
            into_stash -= direct;
            self.publish_if_complete(moved);
        }
        self.stash_end += into_stash;
        while self.stash_start < self.stash_end {
            if self.input.is_some() {
                self.copy_from_stash(moved);
            } else if !self.parse(moved)? {
                break;
            }
        }
        Ok(())
    }

    /// Copies payload that came along with its frame.
    fn copy_from_stash(&mut self, moved: &mut impl FnMut(u32, u64)) {
        let Some(input) = &mut self.input else { return };
        let channel = &self.channels[input.channel];
        let there = &self.stash[self.stash_start..self.stash_end];
        let bytes = there.len().min(input.bytes - input.done);
        // SAFETY: as in `receive_once`; the stash is other memory.
        unsafe {
            let start = channel.inward.payload(channel.received).add(input.done);
            std::ptr::copy_nonoverlapping(there.as_ptr(), start, bytes);
        }
        self.stash_start += bytes;
        input.done += bytes;
        self.publish_if_complete(moved);
    }

    fn publish_if_complete(&mut self, moved: &mut impl FnMut(u32, u64)) {
        let Some(input) = self.input.filter(|input| input.done == input.bytes) else { return };
        let channel = &mut self.channels[input.channel];
        channel.received = channel.received.wrapping_add(1);
        channel.inward.full().store(channel.received, Ordering::Release);
        moved(channel.number, channel.received);
        self.input = None;
    }

    /// Takes one frame from the stash; false if there is no whole one.
    fn parse(&mut self, moved: &mut impl FnMut(u32, u64)) -> Result<bool, WireError> {
        let there = &self.stash[self.stash_start..self.stash_end];
        let Some(bytes) = there.first_chunk::<FRAME_BYTES>() else { return Ok(false) };
        let frame =
            Frame::decode(bytes, self.made.key).map_err(|error| WireError::Protocol(format!("{error}")))?;
        self.stash_start += FRAME_BYTES;
        if self.bye.heard && !matches!(frame.kind, Kind::ByeHeard | Kind::Broken) {
            return Err(WireError::Protocol(format!("a frame of kind {:?} after its goodbye", frame.kind)));
        }
        match frame.kind {
            Kind::Data => {
                let index = self.channel_of(&frame)?;
                self.credit(index, &frame)?;
                self.begin(index, &frame)?;
                self.publish_if_complete(moved);
            }
            Kind::Credit => {
                let index = self.channel_of(&frame)?;
                self.credit(index, &frame)?;
            }
            Kind::Bye => {
                self.bye.heard = true;
                self.push_plain(Frame::plain(Kind::ByeHeard));
            }
            Kind::Broken => {
                let culprit = u32::try_from(frame.sequence).unwrap_or(self.made.peer);
                return Err(WireError::Told(culprit));
            }
            Kind::ByeHeard if self.bye.said => self.bye.confirmed = true,
            Kind::ByeHeard => {
                return Err(WireError::Protocol("it heard a goodbye that was not said".to_owned()));
            }
        }
        Ok(true)
    }

    fn channel_of(&self, frame: &Frame) -> Result<usize, WireError> {
        let number = u32::from(frame.channel);
        let index = (number / self.stride) as usize;
        match self.channels.get(index) {
            Some(channel) if channel.number == number => Ok(index),
            _ => Err(WireError::Protocol(format!("channel {number} does not travel on this connection"))),
        }
    }

    fn credit(&mut self, index: usize, frame: &Frame) -> Result<(), WireError> {
        let channel = &mut self.channels[index];
        let known = channel.out.free().load(Ordering::Relaxed);
        // Compared as distances, so that counters may wrap.
        if frame.credit.wrapping_sub(known) > channel.sent.wrapping_sub(known) {
            return Err(WireError::Protocol(format!(
                "it took {} messages out of channel {}, after {known}, and {} were sent",
                frame.credit, channel.number, channel.sent
            )));
        }
        if frame.credit != known {
            channel.out.free().store(frame.credit, Ordering::Release);
        }
        Ok(())
    }

    fn begin(&mut self, index: usize, frame: &Frame) -> Result<(), WireError> {
        let channel = &mut self.channels[index];
        let problem = |what: String| WireError::Protocol(format!("channel {}: {what}", frame.channel));
        if frame.sequence != channel.received {
            return Err(problem(format!("message {} instead of {}", frame.sequence, channel.received)));
        }
        if u64::from(frame.bytes) > channel.inward.slot_bytes() {
            return Err(problem(format!(
                "message {} has {} bytes, a slot has {}",
                frame.sequence,
                frame.bytes,
                channel.inward.slot_bytes()
            )));
        }
        if !channel.inward.has_room(frame.sequence) {
            return Err(problem(format!("message {} came before its slot was free", frame.sequence)));
        }
        channel.inward.set_bytes(frame.sequence, frame.bytes.into());
        self.input = Some(Input { channel: index, bytes: frame.bytes as usize, done: 0 });
        Ok(())
    }
}

/// A slice that may be of no memory at all.
///
/// # Safety
/// Unless `bytes` is 0, `start` points to that many readable bytes that nobody writes meanwhile.
unsafe fn slice<'a>(start: *const u8, bytes: usize) -> &'a [u8] {
    // SAFETY: the caller vouches for it.
    if bytes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, bytes) } }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
