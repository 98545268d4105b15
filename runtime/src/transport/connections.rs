//! A communicator's links: made once, all together, and closed once.
//!
//! How they are made is told in `connect.rs`. What the executor sees is here: links by
//! peer and channel, and what a report about a stall or about memory needs.

use super::departure::Departure;
use super::doorbell::{Board, Doorbell};
use super::error::LinkError;
use super::fifo::Fifo;
use super::geometry::{Geometry, Layout, RECEIVER_LEFT_OFFSET, SENDER_LEFT_OFFSET};
use super::options::Options;
use super::socket::handshake::Made;
use super::socket::progress::{Plan, Progress, Shared};
use super::socket::wire::{Channel, Wire};
use super::zone::Zone;
use super::{Alarm, Exchange, TransportKind};
use crate::memory::mapping::Mapping;
use crate::memory::segment::Segment;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SELF_PURPOSE: &str = "links of a rank to itself";
pub(super) const OWN_PURPOSE: &str = "shared memory that ranks of this host send to";
pub(super) const PEER_PURPOSE: &str = "views of shared memory of ranks of this host";
pub(super) const MIRROR_PURPOSE: &str = "ends of socket links";

/// Where the two regions of a pair start: what this rank writes into, and what it reads from.
#[derive(Clone, Copy, Debug)]
struct Regions {
    out: NonNull<u8>,
    inward: NonNull<u8>,
}

/// All links of one rank of a communicator.
#[derive(Debug)]
pub struct Connections {
    rank: u32,
    geometry: Geometry,
    kinds: Vec<TransportKind>,
    outbound: Vec<Fifo>,
    inbound: Vec<Fifo>,
    zones_out: Vec<Option<Zone>>,
    zones_in: Vec<Option<Zone>>,
    regions: Vec<Regions>,
    board: Arc<Board>,
    /// Place of each peer among those reached by sockets.
    places: Vec<Option<usize>>,
    activity: Arc<Shared>,
    progress: Option<Progress>,
    alarm: Arc<dyn Alarm>,
    closed: bool,
    /// The process that connected.
    process: u32,
    seen: Mutex<Seen>,
    // Last, so that nothing above outlives the memory it points into.
    memory: Vec<(&'static str, Arc<Mapping>)>,
    segment: Option<Segment>,
}

// SAFETY: the raw addresses in `regions` point into `memory`, which the value owns, and are only used
// for atomics.
unsafe impl Send for Connections {}
// SAFETY: as above.
unsafe impl Sync for Connections {}

/// Memory that links take, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// What it is for.
    pub purpose: &'static str,
    /// Addresses set aside; costs nothing by itself.
    pub reserved_bytes: u64,
    /// Bytes with memory behind them, if the kernel says. Views of other ranks' memory count what this
    /// process has touched; the memory itself is counted by its owner.
    pub resident_bytes: Option<u64>,
}

/// Which end of a link this rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// This rank sends.
    Out,
    /// This rank receives.
    In,
}

/// The state of one link, for reports about stalls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The rank at the other end.
    pub peer: u32,
    /// The channel.
    pub channel: u32,
    /// Which end this is.
    pub direction: Direction,
    /// What carries it.
    pub transport: TransportKind,
    /// Messages that the sender has put in (as far as this end knows).
    pub posted: u64,
    /// Messages that have left this host, or that need not.
    pub sent: u64,
    /// Messages that the receiver has taken out (as far as this end knows).
    pub done: u64,
    /// Time since a counter was seen to move: for sockets by the progress thread, else between calls.
    pub idle: Duration,
    /// Whether the peer has closed in good order.
    pub peer_left: bool,
}

/// Counters at the last look, to tell how long they have stood still.
#[derive(Debug)]
struct Seen {
    connected: Instant,
    links: BTreeMap<(u32, u32, bool), (u64, u64, Instant)>,
}

/// Says that a thread is inside a collective, as long as it lives: the progress thread then polls
/// before it sleeps.
#[derive(Debug)]
pub struct InCollective<'a> {
    board: &'a Board,
}

impl Drop for InCollective<'_> {
    fn drop(&mut self) {
        self.board.leave();
    }
}

impl Connections {
    /// Connects this rank to all ranks of the exchange. Collective: every rank calls it with the same
    /// geometry.
    ///
    /// Errors: the same failure is told to every rank; each names the rank where it happened.
    pub fn connect(
        exchange: &dyn Exchange,
        options: &Options,
        geometry: Geometry,
        alarm: Arc<dyn Alarm>,
    ) -> Result<Self, LinkError> {
        let (rank, world) = (exchange.rank(), exchange.world());
        geometry.check()?;
        options.check()?;
        assert!(rank < world, "rank {rank} of {world}");
        if geometry.ranks != world {
            let (field, value) = ("ranks", geometry.ranks.into());
            return Err(LinkError::GeometryField { field, value, least: world.into(), most: world.into() });
        }
        if world == 1 {
            return Builder::new(rank, geometry)?.finish(options, alarm);
        }
        super::connect::connect(exchange, options, geometry, alarm)
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The sizes of the links.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What carries the links to `peer`.
    ///
    /// Panics: beyond the number of ranks; so do the functions below, and beyond that of channels.
    pub fn transport(&self, peer: u32) -> TransportKind {
        self.kinds[peer as usize]
    }

    /// The link that this rank sends to `peer` on.
    pub fn outbound(&self, peer: u32, channel: u32) -> &Fifo {
        &self.outbound[self.index(peer, channel)]
    }

    /// The link that this rank receives from `peer` on.
    pub fn inbound(&self, peer: u32, channel: u32) -> &Fifo {
        &self.inbound[self.index(peer, channel)]
    }

    /// The zone that this rank sends to `peer` through, if they share memory.
    pub fn zone_out(&self, peer: u32) -> Option<&Zone> {
        self.zones_out[peer as usize].as_ref()
    }

    /// The zone that this rank receives from `peer` through, if they share memory.
    pub fn zone_in(&self, peer: u32) -> Option<&Zone> {
        self.zones_in[peer as usize].as_ref()
    }

    /// Enters a collective; leaving is dropping the guard.
    pub fn enter(&self) -> InCollective<'_> {
        self.board.enter();
        InCollective { board: &self.board }
    }

    /// Whether `peer` has closed its connections in good order. A rank that still waits for one that
    /// has left waits in vain.
    pub fn has_left(&self, peer: u32) -> bool {
        self.departure(peer) == Departure::InOrder
    }

    /// Whether and how `peer` has gone.
    ///
    /// Ordering: once it has, every message and every credit of it is in the counters, over sockets too:
    /// a counter that is looked at afterwards and has not moved will not move any more.
    pub fn departure(&self, peer: u32) -> Departure {
        let word = match self.places[peer as usize] {
            Some(place) => self.activity.left[place].load(Ordering::Acquire),
            None => {
                let regions = self.regions[peer as usize];
                let left = |region, offset| left_word(region, offset).load(Ordering::Acquire);
                left(regions.out, RECEIVER_LEFT_OFFSET).max(left(regions.inward, SENDER_LEFT_OFFSET))
            }
        };
        Departure::of(word, peer, self.geometry.ranks)
    }

    /// Takes in what has come over sockets by now, so that the counters tell it. Waits for nothing but
    /// whoever is at it already.
    pub fn catch_up(&self) {
        self.board.catch_up();
    }

    /// Closes the links: what was published is sent, and the peers are told that this rank has left, or
    /// whom it blames if the alarm has been raised. Dropping does the same.
    ///
    /// Waits for the peers' confirmation over sockets, at most the closing timeout of the options; not at
    /// all once the alarm has been raised. Nothing may be sent or awaited afterwards.
    pub fn close(&mut self) {
        // First, since the thread works on the memory that goes next.
        self.progress = None;
        // A forked child that drops its copy has not left: its parent lives on.
        if std::mem::replace(&mut self.closed, true) || self.process != std::process::id() {
            return;
        }
        let departure = if self.alarm.raised() {
            Departure::GaveUp { culprit: self.alarm.culprit().unwrap_or(self.rank) }
        } else {
            Departure::InOrder
        };
        for peer in 0..self.geometry.ranks {
            let regions = self.regions[peer as usize];
            if self.kinds[peer as usize] == TransportKind::Shm {
                left_word(regions.out, SENDER_LEFT_OFFSET).store(departure.word(), Ordering::Release);
                left_word(regions.inward, RECEIVER_LEFT_OFFSET).store(departure.word(), Ordering::Release);
            }
        }
    }

    /// The state of every link that has carried a message, for reports about stalls.
    pub fn describe(&self) -> Vec<LinkState> {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut states = Vec::new();
        for peer in 0..self.geometry.ranks {
            for channel in 0..self.geometry.channels {
                for direction in [Direction::Out, Direction::In] {
                    let state = self.describe_link(&mut seen, peer, channel, direction, now);
                    states.extend(state);
                }
            }
        }
        states
    }

    fn describe_link(
        &self,
        seen: &mut Seen,
        peer: u32,
        channel: u32,
        direction: Direction,
        now: Instant,
    ) -> Option<LinkState> {
        let fifo = match direction {
            Direction::Out => self.outbound(peer, channel),
            Direction::In => self.inbound(peer, channel),
        };
        let done = fifo.free().load(Ordering::Acquire);
        let posted = fifo.full().load(Ordering::Acquire);
        if posted == 0 && done == 0 {
            return None;
        }
        let connected = seen.connected;
        let last = seen
            .links
            .entry((peer, channel, direction == Direction::In))
            .or_insert((posted, done, connected));
        if (last.0, last.1) != (posted, done) {
            *last = (posted, done, now);
        }
        let mut idle = now.saturating_duration_since(last.2);
        let mut sent = posted;
        if let Some(place) = self.places[peer as usize] {
            let end = (place as u32 * self.geometry.channels + channel) * 2;
            let end = &self.activity.ends[(end + u32::from(direction == Direction::In)) as usize];
            sent = end.moved.load(Ordering::Relaxed);
            let moved_ms = end.moved_ms.load(Ordering::Relaxed);
            let moved = self.activity.began + Duration::from_millis(moved_ms);
            idle = idle.min(now.saturating_duration_since(moved));
        }
        Some(LinkState {
            peer,
            channel,
            direction,
            transport: self.transport(peer),
            posted,
            sent,
            done,
            idle,
            peer_left: self.has_left(peer),
        })
    }

    /// Memory by purpose. Asks the kernel page by page: for reports, not for loops.
    pub fn memory(&self) -> Vec<MemoryUse> {
        let mut uses: Vec<MemoryUse> = Vec::new();
        for (purpose, mapping) in &self.memory {
            let own = self.segment.as_ref().filter(|_| *purpose == OWN_PURPOSE);
            let resident = own.map_or_else(|| mapping.resident_bytes(), Segment::resident_bytes);
            let reserved_bytes = mapping.len_bytes();
            match uses.iter_mut().find(|known| known.purpose == *purpose) {
                Some(known) => {
                    known.reserved_bytes += reserved_bytes;
                    known.resident_bytes = known.resident_bytes.zip(resident).map(|(a, b)| a + b);
                }
                None => uses.push(MemoryUse { purpose, reserved_bytes, resident_bytes: resident }),
            }
        }
        uses
    }

    fn index(&self, peer: u32, channel: u32) -> usize {
        assert!(channel < self.geometry.channels, "channel {channel} of {}", self.geometry.channels);
        peer as usize * self.geometry.channels as usize + channel as usize
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.close();
    }
}

/// A word of a region that says how one side has gone ([`Departure`]).
fn left_word<'a>(region: NonNull<u8>, offset: u64) -> &'a AtomicU32 {
    // SAFETY: the callers pass regions of a live `Connections`, whose memory outlives the reference
    // they drop at once; the word is aligned and only accessed as an atomic.
    unsafe { AtomicU32::from_ptr(region.as_ptr().add(offset as usize).cast()) }
}

/// Collects what each pair got, until all have something.
#[derive(Debug)]
pub(super) struct Builder {
    rank: u32,
    geometry: Geometry,
    pairs: BTreeMap<u32, (TransportKind, Regions)>,
    memory: Vec<(&'static str, Arc<Mapping>)>,
    segment: Option<Segment>,
    sockets: Vec<Made>,
    /// Whether executor threads help the progress thread.
    pub(super) crowded: bool,
}

impl Builder {
    /// Starts with the links of the rank to itself.
    pub(super) fn new(rank: u32, geometry: Geometry) -> Result<Self, LinkError> {
        let mut builder = Self {
            rank,
            geometry,
            pairs: BTreeMap::new(),
            memory: Vec::new(),
            segment: None,
            sockets: Vec::new(),
            crowded: false,
        };
        let own = map_private(rank, SELF_PURPOSE, Layout::new(&geometry).region_bytes)?;
        let start = own.start();
        builder.keep(SELF_PURPOSE, own);
        builder.pair(rank, TransportKind::Local, start, start);
        Ok(builder)
    }

    /// Keeps memory as long as the connections.
    pub(super) fn keep(&mut self, purpose: &'static str, mapping: Arc<Mapping>) {
        self.memory.push((purpose, mapping));
    }

    /// Keeps this rank's own shared memory.
    pub(super) fn keep_segment(&mut self, segment: Segment, mapping: Arc<Mapping>) {
        self.keep(OWN_PURPOSE, mapping);
        self.segment = Some(segment);
    }

    /// Joins this rank with `peer` by two regions that lie in memory kept here.
    pub(super) fn pair(&mut self, peer: u32, kind: TransportKind, out: NonNull<u8>, inward: NonNull<u8>) {
        self.pairs.insert(peer, (kind, Regions { out, inward }));
    }

    /// Joins this rank with peers by connections: every peer by the same number of them, in order.
    pub(super) fn pair_sockets(&mut self, made: Vec<Made>) -> Result<(), LinkError> {
        let bytes = Layout::new(&mirror(&self.geometry)).region_bytes;
        for made in &made {
            if made.index == 0 {
                let out = map_private(self.rank, MIRROR_PURPOSE, bytes)?;
                let inward = map_private(self.rank, MIRROR_PURPOSE, bytes)?;
                self.pair(made.peer, TransportKind::Socket, out.start(), inward.start());
                self.keep(MIRROR_PURPOSE, out);
                self.keep(MIRROR_PURPOSE, inward);
            }
        }
        self.sockets = made;
        Ok(())
    }

    /// Makes the links of all pairs, and starts moving what goes over sockets.
    pub(super) fn finish(self, options: &Options, alarm: Arc<dyn Alarm>) -> Result<Connections, LinkError> {
        let Self { rank, geometry, pairs, memory, segment, sockets, crowded } = self;
        assert_eq!(pairs.len(), geometry.ranks as usize, "every rank must have been paired");
        let count = pairs.values().filter(|(kind, _)| *kind == TransportKind::Socket).count();
        let board = Board::new(count * 2 * geometry.channels as usize, crowded)
            .map_err(|errno| LinkError::Progress { rank, call: "eventfd", source: errno.into() })?;
        let mut made = Connections {
            rank,
            geometry,
            kinds: Vec::new(),
            outbound: Vec::new(),
            inbound: Vec::new(),
            zones_out: Vec::new(),
            zones_in: Vec::new(),
            regions: Vec::new(),
            board: Arc::new(board),
            places: Vec::new(),
            activity: Arc::new(Shared::new(count, geometry.channels)),
            progress: None,
            alarm: Arc::clone(&alarm),
            closed: false,
            process: std::process::id(),
            seen: Mutex::new(Seen { connected: Instant::now(), links: BTreeMap::new() }),
            memory,
            segment,
        };
        let mut places = 0..;
        for (expected, (peer, (kind, regions))) in (0..).zip(pairs) {
            assert_eq!(expected, peer, "every rank must have been paired");
            made.push_peer(kind, regions, places.by_ref());
        }
        if !sockets.is_empty() {
            made.start_progress(sockets, options, alarm)?;
        }
        Ok(made)
    }
}

impl Connections {
    /// Adds the links to the next rank. `places` counts those reached by sockets.
    fn push_peer(&mut self, kind: TransportKind, regions: Regions, mut places: impl Iterator<Item = usize>) {
        let place = if kind == TransportKind::Socket { places.next() } else { None };
        let geometry = if place.is_some() { mirror(&self.geometry) } else { self.geometry };
        for channel in 0..geometry.channels {
            let end = |place| (place * geometry.channels as usize + channel as usize) * 2;
            let bell = |offset| place.map(|place| Doorbell::new(&self.board, end(place) + offset));
            // SAFETY: the regions lie in `memory`, which lives as long as the FIFOs.
            let (out, inward) = unsafe {
                (
                    Fifo::new(regions.out, &geometry, channel, bell(0)),
                    Fifo::new(regions.inward, &geometry, channel, bell(1)),
                )
            };
            self.outbound.push(out);
            self.inbound.push(inward);
        }
        // SAFETY: as above; regions of a geometry with cells have a zone.
        let zone = |region| (geometry.zone_cells > 0).then(|| unsafe { Zone::new(region, &geometry) });
        self.zones_out.push(zone(regions.out));
        self.zones_in.push(zone(regions.inward));
        self.kinds.push(kind);
        self.places.push(place);
        self.regions.push(regions);
    }

    fn start_progress(
        &mut self,
        sockets: Vec<Made>,
        options: &Options,
        alarm: Arc<dyn Alarm>,
    ) -> Result<(), LinkError> {
        let rank = self.rank;
        let stride = options.sockets_per_pair;
        let mut wires = Vec::with_capacity(sockets.len());
        for made in sockets {
            let numbers = (made.index..self.geometry.channels).step_by(stride as usize);
            let channels = numbers
                .map(|number| {
                    let (out, inward) = (self.outbound(made.peer, number), self.inbound(made.peer, number));
                    Channel::new(number, out.without_bell(), inward.without_bell())
                })
                .collect();
            let wire = Wire::new(made, stride, channels);
            wires.push(wire.map_err(|errno| LinkError::Progress {
                rank,
                call: "setsockopt",
                source: errno.into(),
            })?);
        }
        let plan = Plan {
            rank,
            wires,
            channels: self.geometry.channels,
            stride,
            activity: Arc::clone(&self.activity),
            alarm,
            close_timeout: options.close_timeout,
            memory: self.memory.iter().map(|(_, mapping)| Arc::clone(mapping)).collect(),
        };
        self.progress = Some(Progress::start(plan, &self.board)?);
        Ok(())
    }
}

/// The geometry of one end of a socket link: without a zone.
fn mirror(geometry: &Geometry) -> Geometry {
    Geometry { zone_cells: 0, ..*geometry }
}

/// Reserves private memory for links.
pub(super) fn map_private(rank: u32, purpose: &'static str, bytes: u64) -> Result<Arc<Mapping>, LinkError> {
    Mapping::private(bytes).map(Arc::new).map_err(|source| LinkError::Map { rank, bytes, purpose, source })
}

/// Maps a part of shared memory for links.
pub(super) fn map_shared(
    rank: u32,
    purpose: &'static str,
    segment: &Segment,
    offset_bytes: u64,
    bytes: u64,
) -> Result<Arc<Mapping>, LinkError> {
    Mapping::shared(segment, offset_bytes, bytes).map(Arc::new).map_err(|source| LinkError::Map {
        rank,
        bytes,
        purpose,
        source,
    })
}
