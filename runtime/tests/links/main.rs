//! Links between threads and between processes, over every transport.
//!
//! A trial that needs processes starts this program again with `RINGSMITH_LINKS_CHILD` set. Random
//! trials take their seed from `RINGSMITH_TEST_SEED` and print it when they fail.

mod exchange;
mod traffic;

use exchange::{Bell, Meeting, Thread};
use libtest_mimic::{Arguments, Trial};
use ringsmith_runtime::transport::{Connections, Geometry, LinkError, Options, SharedMemory, TransportKind};
use std::sync::Arc;

const GEOMETRY: Geometry =
    Geometry { ranks: 0, channels: 3, slots: 2, slot_bytes: 4096, zone_cells: 4, zone_cell_bytes: 256 };

fn seed() -> u64 {
    std::env::var("RINGSMITH_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_260_801)
}

/// Connects `geometry.ranks` threads and runs `each` on every one.
fn threads<R: Send>(
    geometry: Geometry,
    options: impl Fn(u32) -> Options + Sync,
    each: impl Fn(Result<Connections, LinkError>, &Bell, u32) -> R + Sync,
) -> Vec<R> {
    let meeting = Meeting::new(geometry.ranks);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..geometry.ranks)
            .map(|rank| {
                let (meeting, options, each) = (Arc::clone(&meeting), &options, &each);
                scope.spawn(move || {
                    let exchange = Thread { meeting, rank };
                    let bell = Arc::new(Bell::default());
                    let links = Connections::connect(&exchange, &options(rank), geometry, bell.clone());
                    each(links, &bell, rank)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank panicked")).collect()
    })
}

fn traffic_between_threads(geometry: Geometry, options: Options, kind: TransportKind, messages: u64) {
    threads(
        geometry,
        |_| options.clone(),
        |links, bell, rank| {
            let links = links.expect("connected");
            for peer in (0..geometry.ranks).filter(|peer| *peer != rank) {
                assert_eq!(links.transport(peer), kind);
            }
            traffic::everybody_to_everybody(&links, bell, seed(), messages);
            assert_eq!(bell.fault(), None);
        },
    );
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for slots in 1..=4 {
        trials.push(Trial::test(format!("shm_threads_slots_{slots}"), move || {
            let geometry = Geometry { ranks: 3, slots, ..GEOMETRY };
            let options = Options { shared_memory: SharedMemory::Only, ..Options::default() };
            traffic_between_threads(geometry, options, TransportKind::Shm, 200);
            Ok(())
        }));
    }
    for slots in 1..=4 {
        for sockets_per_pair in 1..=2 {
            let name = format!("socket_threads_slots_{slots}_connections_{sockets_per_pair}");
            trials.push(Trial::test(name, move || {
                let geometry = Geometry { ranks: 3, slots, slot_bytes: 40_000 / 64 * 64, ..GEOMETRY };
                let options =
                    Options { shared_memory: SharedMemory::Off, sockets_per_pair, ..Options::default() };
                traffic_between_threads(geometry, options, TransportKind::Socket, 100);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
