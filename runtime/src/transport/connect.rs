//! Connecting all pairs of ranks, in three all-gathers of the bootstrap.
//!
//! 1. *Offers*: sizes, host, where descriptors are handed over, where this rank listens.
//! 2. *Memory*: neighbours on a host have handed each other their memory, mapped it, and written a
//!    pattern into it. From this follows which transport a pair uses, on both sides alike.
//! 3. *Ready*: patterns were found and answered, and the remaining pairs have connected sockets.
//!
//! A rank that fails between two of them says so in the next, so that all stop with its reason. A rank
//! alone needs none of this and does not come here.

use super::connections::{Builder, Connections, OWN_PURPOSE, PEER_PURPOSE, map_shared};
use super::error::LinkError;
use super::geometry::{Geometry, Layout};
use super::offer::{self, LINK_VERSION, Mapped, Offer, gather, random};
use super::options::{Movers, Options, SharedMemory};
use super::shm::{Check, Counter, hand_over};
use super::socket::handshake::{Task, connect_all, dialer};
use super::socket::listener::Listener;
use super::{Alarm, Exchange, TransportKind};
use crate::error::{reason, without_rank};
use crate::memory::mapping::Mapping;
use crate::memory::segment::Segment;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

/// Connects a rank of two or more.
pub(super) fn connect(
    exchange: &dyn Exchange,
    options: &Options,
    geometry: Geometry,
    alarm: Arc<dyn Alarm>,
) -> Result<Connections, LinkError> {
    let rank = exchange.rank();
    // More connections than channels would carry nothing.
    let sockets_per_pair = options.sockets_per_pair.min(geometry.channels);
    let options = &Options { sockets_per_pair, ..options.clone() };
    let (offers, start) = gather(exchange, "links: offers", start(rank, options, geometry))?;
    offer::compare(&offers)?;

    let shared = share(rank, &geometry, start.counter.as_ref(), &offers, options, &*alarm);
    let (mapped, sharing) = gather(exchange, "links: memory", shared)?;

    let task = Task {
        rank,
        offers: &offers,
        peers: &[],
        options,
        listener: start.listener.as_ref(),
        alarm: &*alarm,
    };
    let joined = join(start.builder, sharing, &mapped, task);
    let (_, (builder, checks)) = gather(exchange, "links: ready", joined)?;

    for (peer, check) in checks {
        if !check.answered() {
            return Err(LinkError::Pattern { rank, peer });
        }
    }
    builder.finish(options, alarm)
}

/// What a rank holds while it makes its offer.
struct Start {
    builder: Builder,
    /// None if this rank cannot share memory.
    counter: Option<Counter>,
    /// None if this rank cannot listen, which only matters to pairs that need sockets.
    listener: Option<Listener>,
}

fn start(rank: u32, options: &Options, geometry: Geometry) -> Result<(Offer, Start), LinkError> {
    let builder = Builder::new(rank, geometry)?;
    let name = random(rank)?;
    let counter = offer::host(options).and_then(|host| match Counter::open(name) {
        Ok(counter) => Ok((host, counter)),
        Err(errno) => Err(format!("no socket to hand descriptors over: {errno}")),
    });
    let (host, counter) = match counter {
        Ok((host, counter)) => (Some(host), Some(counter)),
        Err(why) => {
            tracing::info!(target: "ringsmith::net", rank, %why, "no shared memory with other ranks");
            (None, None)
        }
    };
    let (listener, addresses, no_addresses) = match Listener::open(rank, options) {
        Ok(listener) if listener.addresses().is_empty() => {
            (None, Vec::new(), "it was given no address to listen on".to_owned())
        }
        Ok(listener) => {
            let addresses = listener.addresses();
            (Some(listener), addresses, String::new())
        }
        Err(error) => (None, Vec::new(), reason(&error)),
    };
    let offer = Offer {
        version: LINK_VERSION,
        geometry,
        sockets_per_pair: options.sockets_per_pair,
        machine: offer::machine(),
        host,
        only_shared_memory: options.shared_memory == SharedMemory::Only,
        handover: counter.as_ref().map_or_else(String::new, |counter| counter.name().to_owned()),
        token: random(rank)?,
        addresses,
        no_addresses,
        share: random(rank)?,
    };
    Ok((offer, Start { builder, counter, listener }))
}

/// Shared memory of one rank and its neighbours, before it is known which pairs use it.
struct Sharing {
    /// This rank's segment, and all of it mapped.
    own: Option<(Segment, Arc<Mapping>)>,
    /// Ranks of this host, this one included. A rank's place in it without the owner is the place of
    /// its region in the owner's segment.
    neighbours: Vec<u32>,
    /// Where this rank's region in a peer's segment is mapped.
    peers: BTreeMap<u32, Arc<Mapping>>,
}

/// Where the region of `from` lies in the segment of `owner`.
fn region_offset(neighbours: &[u32], owner: u32, from: u32, region_bytes: u64) -> u64 {
    let place = neighbours.iter().filter(|rank| **rank != owner).position(|rank| *rank == from);
    place.expect("only neighbours have regions") as u64 * region_bytes
}

fn share(
    rank: u32,
    geometry: &Geometry,
    counter: Option<&Counter>,
    offers: &[Offer],
    options: &Options,
    alarm: &dyn Alarm,
) -> Result<(Mapped, Sharing), LinkError> {
    let neighbours = offer::neighbours(offers, rank);
    let mut sharing = Sharing { own: None, neighbours, peers: BTreeMap::new() };
    let mut word = Mapped { peers: Vec::new(), failed: Vec::new() };
    let peers = sharing.neighbours.len() - 1;
    let Some(counter) = counter.filter(|_| peers > 0) else { return Ok((word, sharing)) };

    let region_bytes = Layout::new(geometry).region_bytes;
    let segment_bytes = region_bytes * peers as u64;
    let own = Segment::create(segment_bytes, &options.backing);
    let handed = hand_over(counter, offers, &sharing.neighbours, rank, &own, segment_bytes, alarm)?;
    let own = own.map_err(|source| LinkError::Segment { rank, peers, source })?;
    let mapping = map_shared(rank, OWN_PURPOSE, &own, 0, segment_bytes)?;
    sharing.own = Some((own, mapping));
    for (peer, segment) in handed {
        let offset = region_offset(&sharing.neighbours, peer, rank, region_bytes);
        let mapping = segment.and_then(|segment| {
            map_shared(rank, PEER_PURPOSE, &segment, offset, region_bytes)
                .map_err(|error| without_rank(&reason(&error), rank).to_owned())
        });
        match mapping {
            Ok(mapping) => {
                // SAFETY: the mapping is the region and outlives the check.
                unsafe { Check::new(mapping.start(), &offers[peer as usize].token, rank, peer) }.greet();
                sharing.peers.insert(peer, mapping);
                word.peers.push(peer);
            }
            Err(why) => word.failed.push((peer, why)),
        }
    }
    Ok((word, sharing))
}

type Joined = (Builder, Vec<(u32, Check)>);

fn join(
    mut builder: Builder,
    mut sharing: Sharing,
    mapped: &[Mapped],
    task: Task<'_>,
) -> Result<((), Joined), LinkError> {
    let (rank, offers) = (task.rank, task.offers);
    everybody_is_reached(rank, offers, mapped)?;
    let mut checks = Vec::new();
    let mut remote = Vec::new();
    let own = sharing.own.take();
    for peer in (0..offers.len() as u32).filter(|peer| *peer != rank) {
        match (offer::shares_memory(offers, mapped, rank, peer), &own) {
            (Ok(()), Some((_, own))) => {
                let theirs = sharing.peers.remove(&peer).expect("a peer that was mapped");
                let inward = inward_region(&sharing.neighbours, rank, peer, own, offers);
                checks.push((peer, check(rank, peer, inward, theirs.start(), offers)?));
                builder.pair(peer, TransportKind::Shm, theirs.start(), inward);
                builder.keep(PEER_PURPOSE, theirs);
            }
            (Ok(()), None) => unreachable!("a pair shares memory only if both have some"),
            (Err(reason), _) => {
                let only = |rank: u32| offers[rank as usize].only_shared_memory;
                if only(rank) || only(peer) {
                    return Err(LinkError::NoTransport { rank, peer, reason });
                }
                let neighbours = sharing.neighbours.contains(&peer);
                if neighbours {
                    tracing::warn!(target: "ringsmith::net", rank, peer, %reason, "sockets between ranks of one host");
                } else {
                    tracing::debug!(target: "ringsmith::net", rank, peer, %reason, "sockets");
                }
                remote.push(peer);
            }
        }
    }
    if let Some((segment, mapping)) = own {
        builder.keep_segment(segment, mapping);
    }
    let shared = checks.len();
    tracing::info!(target: "ringsmith::net", rank, "links to {shared} ranks over shared memory, to {} over sockets", remote.len());
    builder.crowded = match task.options.movers {
        Movers::Auto => offer::is_crowded(offers, rank),
        Movers::Thread => false,
        Movers::Everybody => true,
    };
    builder.pair_sockets(connect_all(&Task { peers: &remote, ..task })?)?;
    Ok(((), (builder, checks)))
}

/// Refuses a job in which a rank that must be dialed listens nowhere: the same on every rank, so that none
/// waits for one that has given up.
fn everybody_is_reached(rank: u32, offers: &[Offer], mapped: &[Mapped]) -> Result<(), LinkError> {
    let ranks = 0..offers.len() as u32;
    for deaf in ranks.clone().filter(|deaf| offers[*deaf as usize].addresses.is_empty()) {
        let needed = |peer: &u32| {
            dialer(deaf, *peer) == *peer && offer::shares_memory(offers, mapped, deaf, *peer).is_err()
        };
        if ranks.clone().filter(|peer| *peer != deaf).any(|peer| needed(&peer)) {
            let reason = format!("rank {deaf} listens nowhere: {}", offers[deaf as usize].no_addresses);
            return Err(LinkError::NoTransport { rank, peer: deaf, reason });
        }
    }
    Ok(())
}

/// Looks for the peer's pattern in the region that it sends to, and answers it. Returns the check of
/// its answer to this rank's, due after the next barrier.
fn check(
    rank: u32,
    peer: u32,
    inward: NonNull<u8>,
    out: NonNull<u8>,
    offers: &[Offer],
) -> Result<Check, LinkError> {
    let token = |rank: u32| &offers[rank as usize].token;
    // SAFETY: both regions are mapped, and are kept until the answer is looked for.
    let (greeting, answer) =
        unsafe { (Check::new(inward, token(rank), peer, rank), Check::new(out, token(peer), rank, peer)) };
    if greeting.answer() { Ok(answer) } else { Err(LinkError::Pattern { rank, peer }) }
}

/// The region of this rank's segment that `peer` sends to.
fn inward_region(neighbours: &[u32], rank: u32, peer: u32, own: &Mapping, offers: &[Offer]) -> NonNull<u8> {
    let region_bytes = Layout::new(&offers[rank as usize].geometry).region_bytes;
    let offset = region_offset(neighbours, rank, peer, region_bytes);
    assert!(offset + region_bytes <= own.len_bytes(), "the segment has a region for every neighbour");
    // SAFETY: the assertion keeps the offset within the mapping.
    unsafe { own.start().add(offset as usize) }
}
