//! How fast links are between two processes of this machine: latency of 8 bytes there and back, and
//! bytes per second one way. `cargo bench -p ringsmith-runtime --bench links` prints a table; each
//! figure is the best and the median of several rounds, since other programs disturb them.

#![allow(unsafe_code)] // Reading and writing slots is what links are for.

#[allow(dead_code)] // Shared with the tests, which use more of it.
#[path = "../tests/links/exchange.rs"]
mod exchange;

use exchange::{Bell, Process, hub};
use ringsmith_runtime::transport::{Connections, Fifo, Geometry, Movers, Options, SharedMemory};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

const VARIABLE: &str = "RINGSMITH_LINKS_BENCH";
const ROUNDS: usize = 101;

/// Waits as an executor would: spinning, then giving the core away.
fn wait(ready: impl Fn() -> bool) {
    let mut turns = 0u32;
    while !ready() {
        turns += 1;
        if turns < 2000 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

/// The same with a core for two threads: the progress thread needs it more.
fn wait_politely(ready: impl Fn() -> bool) {
    while !ready() {
        std::thread::yield_now();
    }
}

fn put(fifo: &Fifo, n: u64, value: u64, polite: bool) {
    let ready = || fifo.has_room(n);
    if polite {
        wait_politely(ready)
    } else {
        wait(ready)
    }
    // SAFETY: the slot is free.
    unsafe { fifo.payload(n).cast::<u64>().write(value) };
    fifo.publish(n, 8);
}

fn take(fifo: &Fifo, n: u64, polite: bool) -> u64 {
    let ready = || fifo.has(n);
    if polite {
        wait_politely(ready)
    } else {
        wait(ready)
    }
    // SAFETY: the message is there.
    let value = unsafe { fifo.payload(n).cast::<u64>().read() };
    fifo.release(n);
    value
}

/// Times `hops` hops per round and gives (best, median) nanoseconds per hop.
fn times(hops: u64, mut round: impl FnMut(usize)) -> (f64, f64) {
    let mut figures: Vec<f64> = (0..ROUNDS)
        .map(|index| {
            let start = Instant::now();
            round(index);
            start.elapsed().as_nanos() as f64 / hops as f64
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    (figures[0], figures[ROUNDS / 2])
}

fn fifo_hops(links: &Connections, rank: u32, turns: u64, polite: bool) -> (f64, f64) {
    let (out, inward) = (links.outbound(1 - rank, 0), links.inbound(1 - rank, 0));
    times(2 * turns, |round| {
        for n in round as u64 * turns..(round as u64 + 1) * turns {
            if rank == 0 {
                put(out, n, n, polite);
                assert_eq!(take(inward, n, polite), n);
            } else {
                let value = take(inward, n, polite);
                put(out, n, value, polite);
            }
        }
    })
}

fn zone_hops(links: &Connections, rank: u32, turns: u64) -> Option<(f64, f64)> {
    let (out, inward) = (links.zone_out(1 - rank)?, links.zone_in(1 - rank)?);
    Some(times(2 * turns, |round| {
        for n in round as u64 * turns..(round as u64 + 1) * turns {
            let (out, inward) = (out.cell(n, 0), inward.cell(n, 0));
            let send = || {
                // SAFETY: the peer has answered this parity's last message.
                unsafe { out.payload(8).cast::<u64>().write(n) };
                out.flag().store(n + 1, Ordering::Release);
            };
            if rank == 0 {
                send();
            }
            wait(|| inward.flag().load(Ordering::Acquire) == n + 1);
            // SAFETY: the flag says that the message is there.
            assert_eq!(unsafe { inward.payload(8).cast::<u64>().read() }, n);
            if rank == 1 {
                send();
            }
        }
    }))
}

/// Copies into each slot and out of it, as a staged collective does.
fn stream(links: &Connections, rank: u32, messages: u64) -> (f64, f64) {
    let mut buffer = vec![rank as u8 + 1; links.geometry().slot_bytes as usize];
    let bytes = buffer.len();
    let channels = u64::from(links.geometry().channels);
    let (best, median) = times(messages * bytes as u64, |round| {
        for n in round as u64 * messages..(round as u64 + 1) * messages {
            let (channel, n) = ((n % channels) as u32, n / channels);
            if rank == 0 {
                let fifo = links.outbound(1, channel);
                wait_politely(|| fifo.has_room(n));
                // SAFETY: the slot is free and as large as the buffer.
                unsafe { fifo.payload(n).copy_from_nonoverlapping(buffer.as_ptr(), bytes) };
                fifo.publish(n, bytes as u64);
            } else {
                let fifo = links.inbound(0, channel);
                wait_politely(|| fifo.has(n));
                // SAFETY: the message is there and as large as the buffer.
                unsafe { fifo.payload(n).copy_to_nonoverlapping(buffer.as_mut_ptr(), bytes) };
                fifo.release(n);
            }
        }
    });
    (1.0 / best, 1.0 / median)
}

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    shared_memory: SharedMemory,
    sockets: u32,
    socket_buffer_bytes: Option<usize>,
    movers: Movers,
    slot_bytes: u64,
    messages: u64,
}

const SHM: Case = Case {
    name: "shm, slots of 64 KiB",
    shared_memory: SharedMemory::Only,
    sockets: 1,
    socket_buffer_bytes: None,
    movers: Movers::Everybody,
    slot_bytes: 64 << 10,
    messages: 500,
};
const SOCKET: Case = Case {
    name: "socket, slots of 64 KiB, 1 connection",
    shared_memory: SharedMemory::Off,
    messages: 100,
    ..SHM
};

const CASES: [Case; 7] = [
    SHM,
    SOCKET,
    Case { name: "the same, moved by the thread alone", movers: Movers::Thread, ..SOCKET },
    Case { name: "socket, slots of 64 KiB, 2 connections", sockets: 2, ..SOCKET },
    Case { name: "socket, slots of 512 KiB, 1 connection", slot_bytes: 512 << 10, messages: 60, ..SOCKET },
    Case {
        name: "socket, slots of 512 KiB, 1 connection, 4 MiB buffers",
        slot_bytes: 512 << 10,
        messages: 60,
        socket_buffer_bytes: Some(4 << 20),
        ..SOCKET
    },
    Case { name: "socket, slots of 4 KiB, 1 connection", slot_bytes: 4 << 10, messages: 800, ..SOCKET },
];

fn play(case: &Case, rank: u32, name: &str) {
    let exchange = Process::new(name, rank, 2);
    let options = Options {
        shared_memory: case.shared_memory,
        sockets_per_pair: case.sockets,
        socket_buffer_bytes: case.socket_buffer_bytes,
        movers: case.movers,
        ..Options::default()
    };
    let geometry = |channels, slot_bytes| Geometry {
        ranks: 2,
        channels,
        slots: 8,
        slot_bytes,
        zone_cells: 1,
        zone_cell_bytes: 64,
    };
    let connect = |geometry| {
        let bell = Arc::new(Bell::default());
        Connections::connect(&exchange, &options, geometry, bell).expect("two ranks of one machine connect")
    };
    let socket = case.shared_memory == SharedMemory::Off;
    let links = connect(geometry(1, 64));
    let guard = links.enter();
    let (best, median) = fifo_hops(&links, rank, if socket { 50 } else { 5000 }, socket);
    let zone = zone_hops(&links, rank, 5000);
    drop(guard);
    drop(links);
    let links = connect(geometry(2, case.slot_bytes));
    let guard = links.enter();
    let (most, usual) = stream(&links, rank, case.messages);
    drop(guard);
    // The receiver's figure: the sender may be ahead by all slots.
    if rank == 1 {
        let zone = zone.map_or_else(|| "-".to_owned(), |(best, median)| format!("{best:.0} / {median:.0}"));
        println!("| {} | {best:.0} / {median:.0} | {zone} | {most:.2} / {usual:.2} |", case.name);
    }
}

fn main() {
    if let Ok(text) = std::env::var(VARIABLE) {
        let words: Vec<&str> = text.split(' ').collect();
        let [case, rank, name] = words[..] else { panic!("{VARIABLE}={text}") };
        let case = &CASES[case.parse::<usize>().expect("a number")];
        return play(case, rank.parse().expect("a number"), name);
    }
    println!("| links | 8 B over a FIFO, ns a hop, best / median | 8 B over a cell | GB/s one way |");
    println!("| --- | --- | --- | --- |");
    for index in 0..CASES.len() {
        let name = format!("ringsmith-links-bench-{}-{index}", std::process::id());
        let hub = hub(&name, 2);
        let program = std::env::current_exe().expect("the path of this program");
        let start = |rank| {
            let text = format!("{index} {rank} {name}");
            Command::new(&program).env(VARIABLE, text).spawn().expect("this program starts again")
        };
        for mut child in [start(0), start(1)] {
            assert!(child.wait().expect("a child's end").success());
        }
        hub.join().expect("the hub");
    }
}
