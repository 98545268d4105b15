//! Handing a rank's shared memory to its neighbours on the same host.
//!
//! Every rank has one segment, with a region for each neighbour that sends to it, and gives its
//! descriptor to each of them: one datagram with `SCM_RIGHTS` to the neighbour's socket in the abstract
//! namespace. The name is random and per communicator, the datagram shows the token that its receiver
//! told over the bootstrap, and everything is nonblocking under a deadline: any number of communicators
//! may start at once, and strangers' datagrams are dropped. After mapping, sender and receiver of each
//! region show each other a pattern.
//!
//! | word | written by | read by | with which order |
//! | --- | --- | --- | --- |
//! | greeting | sender of the region, before an all-gather | receiver, after it | plain: the all-gather orders them |
//! | answer | receiver, before the next all-gather | sender, after it | plain: likewise |
//!
//! The words of FIFOs and zones are in [`geometry`](super::geometry).

use super::Alarm;
use super::error::LinkError;
use super::geometry::{ANSWER_OFFSET, GREETING_OFFSET};
use super::offer::Offer;
use crate::error::reason;
use crate::memory::segment::{Segment, SegmentError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendmsg_addr,
    socket_with,
};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

const MAGIC: [u8; 8] = *b"rsmithfd";
const MESSAGE_BYTES: usize = 48;
/// Longest that neighbours wait for each other's descriptors before they use sockets instead. Ours: the
/// exchange takes milliseconds; a host that stalls longer is in trouble anyway.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(20);

/// Where this rank takes descriptors. Open from before the first all-gather until after the second.
#[derive(Debug)]
pub(crate) struct Counter {
    socket: OwnedFd,
    name: String,
}

impl Counter {
    /// Opens the socket under a random name.
    pub(crate) fn open(name_bytes: [u8; 16]) -> Result<Self, Errno> {
        let name = format!("ringsmith-{:032x}", u128::from_ne_bytes(name_bytes));
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        Ok(Self { socket, name })
    }

    /// The name peers send to.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// What neighbours' segments came to: mapped or not, and why.
pub(crate) type Handover = BTreeMap<u32, Result<Segment, String>>;

/// Gives `own` to every neighbour and takes theirs. A neighbour that fails does not fail the rest.
pub(crate) fn hand_over(
    counter: &Counter,
    offers: &[Offer],
    neighbours: &[u32],
    rank: u32,
    own: &Result<Segment, SegmentError>,
    expected_bytes: u64,
    alarm: &dyn Alarm,
) -> Result<Handover, LinkError> {
    let mut unsent: Vec<u32> = neighbours.iter().copied().filter(|peer| *peer != rank).collect();
    let mut awaited = unsent.clone();
    let mut result = Handover::new();
    let deadline = Instant::now() + HANDOVER_TIMEOUT;
    while !(unsent.is_empty() && awaited.is_empty()) {
        if alarm.raised() {
            return Err(LinkError::Aborted { rank });
        }
        while let Some((peer, taken)) = take(counter, &offers[rank as usize].token, expected_bytes) {
            if let Some(place) = awaited.iter().position(|awaited| *awaited == peer) {
                awaited.swap_remove(place);
                result.insert(peer, taken);
            }
        }
        unsent.retain(|peer| match give(counter, &offers[*peer as usize], rank, own) {
            Ok(()) => false,
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::TOOMANYREFS) => true,
            Err(errno) => {
                // A namespace that this rank cannot reach cannot reach this rank either.
                awaited.retain(|awaited| awaited != peer);
                result.insert(*peer, Err(format!("its socket for descriptors is out of reach: {errno}")));
                false
            }
        });
        if Instant::now() >= deadline {
            for peer in awaited.drain(..).chain(unsent.drain(..)) {
                let why = format!("no descriptor came within {} s", HANDOVER_TIMEOUT.as_secs());
                result.entry(peer).or_insert(Err(why));
            }
        }
        if !(unsent.is_empty() && awaited.is_empty()) {
            let millis = if unsent.is_empty() { 50 } else { 1 };
            let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 };
            // Whatever poll says, the loop looks again.
            let _ = poll(&mut [PollFd::new(&counter.socket, PollFlags::IN)], Some(&timeout));
        }
    }
    Ok(result)
}

/// Sends this rank's descriptor, or word that there is none.
fn give(counter: &Counter, to: &Offer, rank: u32, own: &Result<Segment, SegmentError>) -> Result<(), Errno> {
    let mut message = [0; MESSAGE_BYTES];
    message[..8].copy_from_slice(&MAGIC);
    message[8..12].copy_from_slice(&rank.to_le_bytes());
    message[12..16].copy_from_slice(&u32::from(own.is_ok()).to_le_bytes());
    message[16..32].copy_from_slice(&to.token);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files;
    if let Ok(segment) = own {
        files = [segment.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)), "the space is for one descriptor");
    }
    let address = SocketAddrUnix::new_abstract_name(to.handover.as_bytes())?;
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg_addr(&counter.socket, &address, &[IoSlice::new(&message)], &mut control, flags).map(|_| ())
}

/// Takes one datagram that shows the token; none if nothing is there. Others are dropped.
fn take(counter: &Counter, token: &[u8; 16], expected_bytes: u64) -> Option<(u32, Result<Segment, String>)> {
    loop {
        let mut message = [0; MESSAGE_BYTES + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&counter.socket, &mut [IoSliceMut::new(&mut message)], &mut control, flags);
        let bytes = match received {
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        };
        // Draining owns every descriptor that came along, so that a stranger's are closed.
        let mut file = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                file = files.last().or(file);
            }
        }
        if bytes != MESSAGE_BYTES || message[..8] != MAGIC || !same(&message[16..32], token) {
            tracing::debug!(target: "ringsmith::shm", bytes, "a stranger's datagram where descriptors are handed over; dropped");
            continue;
        }
        let peer = u32::from_le_bytes(message[8..12].try_into().expect("four bytes"));
        let taken = match file {
            Some(file) => Segment::adopt(file, expected_bytes).map_err(|error| reason(&error)),
            None => Err("it has no shared memory to give".to_owned()),
        };
        return Some((peer, taken));
    }
}

/// Compares secrets without telling by the time it takes how far they agree.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// The pattern that the sender of a region writes into it: differs in every byte between pairs and
/// communicators.
fn pattern(token: &[u8; 16], from: u32, to: u32) -> [u64; 8] {
    let (low, high) = token.split_at(8);
    let mut state = u64::from_le_bytes(low.try_into().expect("eight bytes"))
        ^ u64::from_le_bytes(high.try_into().expect("eight bytes")).rotate_left(32)
        ^ (u64::from(from) << 32 | u64::from(to));
    std::array::from_fn(|_| {
        // A step of Weyl's sequence and a finaliser in the manner of splitmix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    })
}

/// One side of a region's check. `token` is the receiver's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    region: NonNull<u8>,
    pattern: [u64; 8],
}

impl Check {
    /// Of the region `from -> to` that starts at `region`.
    ///
    /// # Safety
    /// `region` points to a mapped region that stays mapped while the value is used.
    pub(crate) unsafe fn new(region: NonNull<u8>, token: &[u8; 16], from: u32, to: u32) -> Self {
        Self { region, pattern: pattern(token, from, to) }
    }

    /// The sender writes the pattern.
    pub(crate) fn greet(&self) {
        self.write(GREETING_OFFSET, self.pattern);
    }

    /// The receiver, after a barrier, looks for it and answers with its complement.
    pub(crate) fn answer(&self) -> bool {
        let found = self.read(GREETING_OFFSET) == self.pattern;
        self.write(ANSWER_OFFSET, self.pattern.map(|word| !word));
        found
    }

    /// The sender, after another barrier, looks for the answer.
    pub(crate) fn answered(&self) -> bool {
        self.read(ANSWER_OFFSET) == self.pattern.map(|word| !word)
    }

    fn write(&self, offset: u64, words: [u64; 8]) {
        // SAFETY: the line lies at the start of a mapped region; until the barrier only this side
        // touches it. Volatile, since the reader is outside what the compiler sees.
        unsafe { self.region.as_ptr().add(offset as usize).cast::<[u64; 8]>().write_volatile(words) };
    }

    fn read(&self, offset: u64) -> [u64; 8] {
        // SAFETY: as for `write`; the other side wrote before the barrier.
        unsafe { self.region.as_ptr().add(offset as usize).cast::<[u64; 8]>().read_volatile() }
    }
}
