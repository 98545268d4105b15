//! What ranks tell each other while connecting, and what follows from it for a pair.
//!
//! Everything a rank sends is JSON in one all-gather of the bootstrap. A rank that failed says so in
//! the same place, so that the others stop with its reason and not at their deadline. The decision
//! which transport a pair uses is made from both ranks' words, by the same function on both.

use super::error::LinkError;
use super::geometry::Geometry;
use super::{Exchange, Options, SharedMemory};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Raised whenever a message between ranks or the layout of a region changes.
pub(crate) const LINK_VERSION: u32 = 1;

/// First word of every rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// [`LINK_VERSION`].
    pub(crate) version: u32,
    /// Sizes of links.
    pub(crate) geometry: Geometry,
    /// Connections per pair.
    pub(crate) sockets_per_pair: u32,
    /// The machine that this rank runs on, whatever it pretends to be; empty if unknown.
    pub(crate) machine: String,
    /// Ranks with the same word can share memory; none if this one cannot or may not.
    pub(crate) host: Option<String>,
    /// Whether this rank refuses anything but shared memory.
    pub(crate) only_shared_memory: bool,
    /// Where this rank takes files of its peers: a name in the abstract socket namespace.
    pub(crate) handover: String,
    /// What a peer must show there.
    pub(crate) token: [u8; 16],
    /// Where this rank listens, the best address first; empty with a reason if it cannot.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Why `addresses` is empty.
    pub(crate) no_addresses: String,
    /// Its share of the secret that connections prove.
    pub(crate) share: [u8; 32],
}

/// Second word: what shared memory came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mapped {
    /// Peers whose memory this rank has mapped.
    pub(crate) peers: Vec<u32>,
    /// Peers of this host whose memory it could not map, and why.
    pub(crate) failed: Vec<(u32, String)>,
}

/// Gathers one word of every rank, or the reason why a rank has none. What came with the own word and
/// is not for others is handed back.
///
/// Errors: this rank's own error if it brought one; else the first other rank's; else what is wrong
/// with the exchange.
pub(crate) fn gather<T: Serialize + DeserializeOwned, K>(
    exchange: &dyn Exchange,
    tag: &'static str,
    word: Result<(T, K), LinkError>,
) -> Result<(Vec<T>, K), LinkError> {
    let rank = exchange.rank();
    let said: Result<&T, String> = match &word {
        Ok((word, _)) => Ok(word),
        Err(error) => Err(crate::error::reason(error)),
    };
    let bytes = serde_json::to_vec(&said).expect("words between ranks have no map keys and no cycles");
    let gathered = exchange.all_gather(tag, &bytes);
    let (_, kept) = word?;
    let gathered = gathered.map_err(|source| LinkError::Exchange { rank, tag, source })?;
    if gathered.len() != exchange.world() as usize {
        let source = format!("{} words for {} ranks", gathered.len(), exchange.world()).into();
        return Err(LinkError::Exchange { rank, tag, source });
    }
    let mut words = Vec::with_capacity(gathered.len());
    for (peer, bytes) in (0..).zip(&gathered) {
        match serde_json::from_slice::<Result<T, String>>(bytes) {
            Ok(Ok(word)) => words.push(word),
            Ok(Err(reason)) => return Err(LinkError::Peer { rank, peer, reason }),
            Err(error) => return Err(LinkError::Unreadable { rank, peer, tag, reason: error.to_string() }),
        }
    }
    Ok((words, kept))
}

/// Checks that all ranks were given the same settings, against rank 0's.
pub(crate) fn compare(offers: &[Offer]) -> Result<(), LinkError> {
    let first = &offers[0];
    for (peer, offer) in (0..).zip(offers) {
        let settings = [
            ("the version of the link protocol", first.version.to_string(), offer.version.to_string()),
            ("the geometry of links", format!("{:?}", first.geometry), format!("{:?}", offer.geometry)),
            (
                "the number of connections per pair",
                first.sockets_per_pair.to_string(),
                offer.sockets_per_pair.to_string(),
            ),
        ];
        for (setting, mine, theirs) in settings {
            if mine != theirs {
                return Err(LinkError::Mismatch { rank: 0, peer, setting, mine, theirs });
            }
        }
    }
    Ok(())
}

/// The word by which this host is known, or why its ranks cannot share memory.
///
/// The boot id tells machines apart. The network namespace is part of it because files are handed over
/// through a socket of the abstract namespace, which ends there. The IPC and mount namespaces are not:
/// nameless files need neither.
pub(crate) fn host(options: &Options) -> Result<String, String> {
    if options.shared_memory == SharedMemory::Off {
        return Err("shared memory is switched off".to_owned());
    }
    if let Some(word) = &options.host_id {
        return Ok(format!("named {word}"));
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_err(|error| format!("the boot id is unreadable: {error}"))?;
    let network = std::fs::read_link("/proc/self/ns/net")
        .map_err(|error| format!("the network namespace is unreadable: {error}"))?;
    Ok(format!("boot {} {}", boot.trim(), network.display()))
}

/// The machine, by its boot. Empty if the kernel does not say.
pub(crate) fn machine() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or(String::new(), |boot| boot.trim().to_owned())
}

/// Whether ranks of this machine leave less than two cores for each: one for an executor thread, one
/// for its progress thread.
pub(crate) fn is_crowded(offers: &[Offer], rank: u32) -> bool {
    let machine = &offers[rank as usize].machine;
    let ranks = offers.iter().filter(|offer| offer.machine == *machine).count();
    // What this process may use, which a container or an affinity may have narrowed.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores < 2 * ranks
}

/// Ranks that may share memory with `rank`, itself included, in ascending order.
pub(crate) fn neighbours(offers: &[Offer], rank: u32) -> Vec<u32> {
    let Some(host) = &offers[rank as usize].host else { return vec![rank] };
    (0..).zip(offers).filter(|(_, offer)| offer.host.as_ref() == Some(host)).map(|(peer, _)| peer).collect()
}

/// Whether ranks `a` and `b` use shared memory: both could map the other's. Else why not.
pub(crate) fn shares_memory(offers: &[Offer], mapped: &[Mapped], a: u32, b: u32) -> Result<(), String> {
    let (offer_a, offer_b) = (&offers[a as usize], &offers[b as usize]);
    match (&offer_a.host, &offer_b.host) {
        (None, _) => return Err(format!("rank {a} has no shared memory")),
        (_, None) => return Err(format!("rank {b} has no shared memory")),
        (Some(host_a), Some(host_b)) if host_a != host_b => {
            return Err(format!("rank {a} is on host `{host_a}`, rank {b} on `{host_b}`"));
        }
        _ => {}
    }
    for (from, to) in [(a, b), (b, a)] {
        let word = &mapped[from as usize];
        if !word.peers.contains(&to) {
            let why = word.failed.iter().find(|(peer, _)| *peer == to);
            let why = why.map_or("no reason given", |(_, why)| why.as_str());
            return Err(format!("rank {from} could not map memory of rank {to}: {why}"));
        }
    }
    Ok(())
}

/// Random bytes for tokens and shares.
pub(crate) fn random<const N: usize>(rank: u32) -> Result<[u8; N], LinkError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| LinkError::Random { rank, reason: error.to_string() })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(host: Option<&str>) -> Offer {
        Offer {
            version: LINK_VERSION,
            geometry: Geometry {
                ranks: 3,
                channels: 1,
                slots: 2,
                slot_bytes: 64,
                zone_cells: 0,
                zone_cell_bytes: 0,
            },
            sockets_per_pair: 1,
            machine: String::new(),
            host: host.map(str::to_owned),
            only_shared_memory: false,
            handover: String::new(),
            token: [0; 16],
            addresses: Vec::new(),
            no_addresses: String::new(),
            share: [0; 32],
        }
    }

    #[test]
    fn a_pair_decides_alike_on_both_sides() {
        let offers = [offer(Some("x")), offer(Some("x")), offer(Some("x")), offer(Some("y")), offer(None)];
        let all = |peers: &[u32]| Mapped { peers: peers.to_vec(), failed: Vec::new() };
        let mut mapped = [all(&[1, 2]), all(&[0]), all(&[0, 1]), all(&[]), all(&[])];
        mapped[1].failed.push((2, "no descriptor came".to_owned()));
        for a in 0..5u32 {
            for b in 0..5u32 {
                let forth = shares_memory(&offers, &mapped, a, b).is_ok();
                let back = shares_memory(&offers, &mapped, b, a).is_ok();
                assert_eq!(forth, back, "{a} and {b}");
            }
        }
        assert_eq!(shares_memory(&offers, &mapped, 0, 1), Ok(()));
        let why = shares_memory(&offers, &mapped, 2, 1).expect_err("rank 1 could not");
        assert!(why.contains("rank 1") && why.contains("no descriptor came"), "{why}");
        assert_eq!(neighbours(&offers, 1), [0, 1, 2]);
        assert_eq!(neighbours(&offers, 4), [4]);
    }

    #[test]
    fn different_settings_name_rank_setting_and_both_values() {
        let mut other = offer(None);
        other.geometry.slots = 7;
        let error = compare(&[offer(None), offer(None), other]).expect_err("slots differ");
        let text = error.to_string();
        assert!(text.contains("rank 2") && text.contains("slots: 2") && text.contains("slots: 7"), "{text}");
    }

    #[test]
    fn switched_off_or_named_hosts_ask_no_kernel() {
        let off = Options { shared_memory: SharedMemory::Off, ..Options::default() };
        assert!(host(&off).is_err());
        let named = Options { host_id: Some("a".to_owned()), ..Options::default() };
        assert_eq!(host(&named).as_deref(), Ok("named a"));
        host(&Options::default()).expect("this machine has a boot id");
    }
}
