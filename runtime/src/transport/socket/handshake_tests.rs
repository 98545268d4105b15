//! Ranks that connect among strangers, under wrong settings, and not at all.

use super::*;
use crate::transport::LinkFault;
use crate::transport::geometry::Geometry;
use crate::transport::offer::LINK_VERSION;
use std::io::{Read, Write};
use std::net::TcpStream;

/// An alarm that is as it was made.
struct Still(bool);

impl Alarm for Still {
    fn raised(&self) -> bool {
        self.0
    }

    fn culprit(&self) -> Option<u32> {
        None
    }

    fn raise(&self, fault: LinkFault) {
        panic!("nothing can fail yet: {fault}");
    }
}

fn options() -> Options {
    Options { sockets_per_pair: 2, connect_timeout: Duration::from_secs(30), ..Options::default() }
}

fn offer(addresses: Vec<SocketAddr>) -> Offer {
    Offer {
        version: LINK_VERSION,
        geometry: Geometry {
            ranks: 4,
            channels: 2,
            slots: 2,
            slot_bytes: 64,
            zone_cells: 0,
            zone_cell_bytes: 0,
        },
        sockets_per_pair: 2,
        machine: String::new(),
        host: None,
        only_shared_memory: false,
        handover: String::new(),
        token: [0; 16],
        addresses,
        no_addresses: String::new(),
        share: [5; 32],
    }
}

struct Ranks {
    listeners: Vec<Listener>,
    offers: Vec<Offer>,
}

fn ranks(count: u32) -> Ranks {
    let listeners: Vec<_> =
        (0..count).map(|rank| Listener::open(rank, &options()).expect("loopback")).collect();
    let offers = listeners.iter().map(|listener| offer(listener.addresses())).collect();
    Ranks { listeners, offers }
}

/// Connects rank `rank` to all others, as it sees `offers`.
fn connect_rank(
    ranks: &Ranks,
    rank: u32,
    offers: &[Offer],
    options: &Options,
) -> Result<Vec<Made>, LinkError> {
    let peers: Vec<u32> = (0..offers.len() as u32).filter(|peer| *peer != rank).collect();
    connect_all(&Task {
        rank,
        offers,
        peers: &peers,
        options,
        listener: Some(&ranks.listeners[rank as usize]),
        alarm: &Still(false),
    })
}

fn connect_everybody(ranks: &Ranks) -> Vec<Vec<Made>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks.offers.len() as u32)
            .map(|rank| scope.spawn(move || connect_rank(ranks, rank, &ranks.offers, &options())))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic").expect("connects")).collect()
    })
}

/// Every pair has its connections, with one key on both ends, and they lead to each other.
fn assert_connected(made: &[Vec<Made>]) {
    for (rank, own) in (0..).zip(made) {
        assert_eq!(own.len(), 2 * (made.len() - 1));
        for connection in own {
            let other = made[connection.peer as usize]
                .iter()
                .find(|other| (other.peer, other.index) == (rank, connection.index))
                .expect("the other end");
            assert_eq!(connection.key, other.key);
            let name = [rank as u8, connection.index as u8];
            rustix::io::write(&connection.socket, &name).expect("room for two bytes");
        }
    }
    for (rank, own) in (0..).zip(made) {
        for connection in own {
            let mut name = [0u8; 2];
            let mut fds = [PollFd::new(&connection.socket, PollFlags::IN)];
            let timeout = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
            poll(&mut fds, Some(&timeout)).expect("poll");
            rustix::io::read(&connection.socket, &mut name).expect("two bytes");
            assert_eq!(name, [connection.peer as u8, connection.index as u8], "rank {rank}");
        }
    }
}

#[test]
fn four_ranks_connect() {
    assert_connected(&connect_everybody(&ranks(4)));
}

#[test]
fn strangers_disturb_nobody() {
    let ranks = ranks(3);
    let mut strangers = Vec::new();
    for listener in &ranks.listeners {
        let address = listener.addresses()[0];
        let connect = || TcpStream::connect(address).expect("anybody may knock");
        // One that says nothing, one that is gone, one that talks of something else, one that stops
        // halfway, one with a good hello and no secret, one that claims to be a rank it cannot be.
        strangers.push(connect());
        drop(connect());
        let mut browser = connect();
        browser.write_all(&[b"GET / HTTP/1.1\r\n".as_slice(); 50].concat()).expect("sent");
        strangers.push(browser);
        let hello = |from, to| Hello { from, to, index: 0, nonce: [1; 32] }.encode();
        let mut slow = connect();
        slow.write_all(&hello(0, 1)[..40]).expect("sent");
        strangers.push(slow);
        for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2), (u32::MAX, 0), (0, 0)] {
            let mut liar = connect();
            liar.write_all(&hello(from, to)).expect("sent");
            liar.write_all(&[0x55; PROOF_BYTES]).expect("sent");
            strangers.push(liar);
        }
    }
    assert_connected(&connect_everybody(&ranks));
    // Whoever sent a complete wrong word has been shown the door by now or is when the listener goes.
    drop(ranks);
    for mut stranger in strangers {
        stranger.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let mut said = Vec::new();
        let _ = stranger.read_to_end(&mut said);
        assert!(!said.windows(8).any(|word| word == WELCOME), "a stranger was made welcome");
    }
}

#[test]
fn another_secret_is_refused_by_both() {
    let ranks = ranks(2);
    let mut foreign = ranks.offers.clone();
    foreign[1].share = [6; 32];
    let options = Options { connect_timeout: Duration::from_millis(300), ..options() };
    let errors = std::thread::scope(|scope| {
        let one = scope.spawn(|| connect_rank(&ranks, 0, &ranks.offers, &options));
        let two = scope.spawn(|| connect_rank(&ranks, 1, &foreign, &options));
        [one, two].map(|thread| thread.join().expect("no panic").expect_err("different secrets"))
    });
    let dialer = dialer(0, 1) as usize;
    let text = errors[dialer].to_string();
    assert!(text.contains("does not know the secret"), "{text}");
}

#[test]
fn a_deadline_names_rank_and_address_on_both_sides() {
    let ranks = ranks(2);
    let dialer = dialer(0, 1);
    let options = Options { connect_timeout: Duration::from_millis(200), ..options() };
    // The other rank has stopped: the kernel still completes connections to its listener.
    for rank in [dialer, 1 - dialer] {
        let error = connect_rank(&ranks, rank, &ranks.offers, &options).expect_err("nobody answers");
        let LinkError::Deadline { peer, address, .. } = &error else { panic!("{error}") };
        let listening = ranks.offers[1 - dialer as usize].addresses[0].to_string();
        assert_eq!((*peer, address), (1 - rank, &listening), "{error}");
    }
}

#[test]
fn a_dead_address_is_passed_over() {
    let mut ranks = ranks(2);
    let listening = 1 - dialer(0, 1) as usize;
    let closed = TcpStream::connect(ranks.offers[listening].addresses[0]).expect("connects");
    // The far end's own port takes no connections.
    let dead = closed.local_addr().expect("an address");
    ranks.offers[listening].addresses.insert(0, dead);
    assert_connected(&connect_everybody(&ranks));
}

#[test]
fn an_abort_ends_connecting() {
    let ranks = ranks(2);
    let options = options();
    let task = Task {
        rank: 0,
        offers: &ranks.offers,
        peers: &[1],
        options: &options,
        listener: Some(&ranks.listeners[0]),
        alarm: &Still(true),
    };
    assert!(matches!(connect_all(&task), Err(LinkError::Aborted { rank: 0 })));
}

#[test]
fn each_pair_has_one_dialer_and_dials_are_shared_out() {
    for rank in 0..16 {
        let dials = (0..16).filter(|peer| *peer != rank && dialer(rank, *peer) == rank).count();
        assert!((7..=8).contains(&dials), "rank {rank} dials {dials} of 15");
        for peer in 0..16 {
            assert_eq!(dialer(rank, peer), dialer(peer, rank));
        }
    }
}
