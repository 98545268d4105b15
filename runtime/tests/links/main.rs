//! Links between threads and between processes, over every transport.
//!
//! A trial that needs processes starts this program again with `RINGSMITH_LINKS_CHILD` set. Random
//! trials take their seed from `RINGSMITH_TEST_SEED` and print it when they fail.

mod children;
mod exchange;
mod traffic;

use children::Scenario;
use exchange::{Bell, Meeting, Thread};
use libtest_mimic::{Arguments, Trial};
use ringsmith_runtime::memory::segment::Backing;
use ringsmith_runtime::transport::{
    Connections, Direction, Geometry, LinkError, MemoryUse, Movers, Options, SharedMemory, TransportKind,
    Zone,
};
use std::os::unix::process::ExitStatusExt;
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

fn traffic_between_processes(scenario: Scenario, world: u32) {
    for (rank, output) in children::run(scenario, world).iter().enumerate() {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {}, rank {rank}: {:?} {errors}", seed(), output.status);
    }
}

fn a_killed_process_is_missed_by_all_others() {
    let outputs = children::run(Scenario::Killed, 3);
    assert!(!outputs[2].status.success());
    for (rank, output) in outputs[..2].iter().enumerate() {
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.contains("lost 2"), "rank {rank}: {said} {errors}");
    }
}

fn killed_processes_leave_nothing_in_dev_shm() {
    for output in children::run(Scenario::AllKilled, 3) {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.signal() == Some(9), "{:?} {errors}", output.status);
    }
    assert_eq!(children::names_in_shm(), Vec::<String>::new());
}

/// Many communicators start at once and carry their own traffic only.
fn fifty_communicators_at_once() {
    std::thread::scope(|scope| {
        for number in 0..50 {
            scope.spawn(move || {
                let geometry = Geometry { ranks: 2, channels: 1, ..GEOMETRY };
                let only = Options { shared_memory: SharedMemory::Only, ..Options::default() };
                threads(
                    geometry,
                    |_| only.clone(),
                    |links, bell, _| {
                        traffic::everybody_to_everybody(
                            &links.expect("connected"),
                            bell,
                            seed() + number,
                            10,
                        );
                    },
                );
            });
        }
    });
}

fn bytes(uses: &[MemoryUse]) -> (u64, u64) {
    let resident = |memory: &MemoryUse| memory.resident_bytes.expect("the kernel says");
    (uses.iter().map(|memory| memory.reserved_bytes).sum(), uses.iter().map(resident).sum())
}

/// Links take addresses, and no memory until they are used.
fn unused_links_take_no_memory(shared_memory: SharedMemory) {
    let geometry = Geometry {
        ranks: 8,
        channels: 16,
        slots: 8,
        slot_bytes: 1 << 19,
        zone_cells: 64,
        zone_cell_bytes: 16 << 10,
    };
    let options = Options { shared_memory, ..Options::default() };
    let uses = threads(geometry, |_| options.clone(), |links, _, _| links.expect("connected").memory());
    for uses in uses {
        let (reserved, resident) = bytes(&uses);
        assert!(reserved > 900 << 20, "{uses:?}");
        // The page of the pattern, in every region of a neighbour and of this rank.
        assert!(resident <= 15 * 4096, "{resident} bytes are resident: {uses:?}");
    }
}

fn a_rank_alone_costs_next_to_nothing() {
    let geometry = Geometry { ranks: 1, ..GEOMETRY };
    threads(
        geometry,
        |_| Options::default(),
        |links, bell, _| {
            let links = links.expect("connected");
            assert_eq!(bytes(&links.memory()).1, 0);
            traffic::everybody_to_everybody(&links, bell, seed(), 100);
        },
    );
}

fn too_little_space_is_an_error_on_every_rank_that_names_the_size() {
    let geometry = Geometry { ranks: 2, channels: 128, slots: 64, slot_bytes: 1 << 26, ..GEOMETRY };
    let options = Options { backing: Backing::Directory("/dev/shm".into()), ..Options::default() };
    let needed = (128u64 * 64) << 26;
    for error in threads(geometry, |_| options.clone(), |links, _, _| links.expect_err("half a TiB")) {
        let text = match &error {
            LinkError::Segment { source, .. } => source.to_string(),
            other => other.to_string(),
        };
        let size =
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<u64>().ok()).max();
        assert!(size.is_some_and(|size| size >= needed), "{text}");
    }
}

fn different_settings_are_refused_by_all() {
    let geometry = Geometry { ranks: 3, ..GEOMETRY };
    let options = |rank| Options { sockets_per_pair: 1 + rank / 2, ..Options::default() };
    for error in threads(geometry, options, |links, _, _| links.expect_err("rank 2 differs")) {
        assert!(matches!(error, LinkError::Mismatch { peer: 2, .. }), "{error}");
    }
}

fn a_rank_that_cannot_listen_is_named_by_all() {
    let geometry = Geometry { ranks: 2, ..GEOMETRY };
    let options = |rank| {
        // 192.0.2.0/24 is set aside for documentation: no machine has it.
        let listen = if rank == 0 { "192.0.2.1" } else { "127.0.0.1" };
        let listen = vec![listen.parse().expect("an address")];
        Options { shared_memory: SharedMemory::Off, listen, ..Options::default() }
    };
    // Which of a pair dials is the transport's choice; when it is rank 0, all is well.
    let results = threads(geometry, options, |links, _, _| links.map(drop));
    let swapped = threads(geometry, |rank| options(1 - rank), |links, _, _| links.map(drop));
    let failed: Vec<_> = [(0, results), (1, swapped)]
        .into_iter()
        .filter(|(_, results)| results.iter().any(Result::is_err))
        .collect();
    let [(silent, results)] = &failed[..] else { panic!("{failed:?}") };
    for result in results {
        let text = result.as_ref().expect_err("neither connects").to_string();
        assert!(text.contains(&format!("rank {silent} listens nowhere")), "{text}");
    }
}

/// A rank that has finished leaves; what it sent last still arrives, and nobody calls that a loss.
fn leaving_early_loses_nothing(shared_memory: SharedMemory, sockets_per_pair: u32) {
    let geometry =
        Geometry { ranks: 2, channels: sockets_per_pair, slots: 4, slot_bytes: 1 << 20, ..GEOMETRY };
    let options = Options { shared_memory, sockets_per_pair, ..Options::default() };
    // On the last connection, so that the goodbyes of the others come long before it.
    let channel = sockets_per_pair - 1;
    threads(
        geometry,
        |_| options.clone(),
        |links, bell, rank| {
            let links = links.expect("connected");
            if rank == 0 {
                for n in 0..4 {
                    links.outbound(1, channel).publish(n, 1 << 20);
                }
                return;
            }
            while !links.has_left(0) {
                std::thread::yield_now();
            }
            assert!(links.inbound(0, channel).has(3));
            let states = links.describe();
            let [state] = &states[..] else { panic!("{states:?}") };
            assert_eq!((state.peer, state.direction, state.peer_left), (0, Direction::In, true));
            assert_eq!((state.posted, state.sent, state.done), (4, 4, 0));
            for n in 0..4 {
                links.inbound(0, channel).release(n);
            }
            assert_eq!(bell.fault(), None);
        },
    );
}

/// A zone's cells carry epochs both ways between ranks that share memory.
fn zones_carry_messages() {
    let geometry = Geometry { ranks: 2, ..GEOMETRY };
    threads(
        geometry,
        |_| Options::default(),
        |links, _, rank| {
            let links = links.expect("connected");
            let zone = |zone: Option<&Zone>| zone.expect("neighbours have zones").clone();
            let (out, inward) = (zone(links.zone_out(1 - rank)), zone(links.zone_in(1 - rank)));
            for epoch in 1..2000u64 {
                for (index, bytes) in (0..4).zip([8, 56, 57, 256]) {
                    traffic::cell_send(out.cell(epoch, index), epoch, bytes);
                }
                for (index, bytes) in (0..4).zip([8, 56, 57, 256]) {
                    traffic::cell_receive(inward.cell(epoch, index), epoch, bytes);
                }
            }
        },
    );
}

fn main() {
    children::play_if_asked();
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let mut trial = |name: String, run: Box<dyn FnOnce() + Send>| {
        trials.push(Trial::test(name, move || {
            run();
            Ok(())
        }));
    };
    for slots in 1..=4 {
        let geometry = Geometry { ranks: 3, slots, ..GEOMETRY };
        let options = Options { shared_memory: SharedMemory::Only, ..Options::default() };
        let run = move || traffic_between_threads(geometry, options, TransportKind::Shm, 200);
        trial(format!("threads_shm_slots_{slots}"), Box::new(run));
        for (name, sockets_per_pair, movers) in [
            ("everybody", 1, Movers::Everybody),
            ("thread", 1, Movers::Thread),
            ("everybody_two", 2, Movers::Everybody),
            ("thread_two", 2, Movers::Thread),
        ] {
            let geometry = Geometry { slot_bytes: 640 * 64, ..geometry };
            let options =
                Options { shared_memory: SharedMemory::Off, sockets_per_pair, movers, ..Options::default() };
            let run = move || traffic_between_threads(geometry, options, TransportKind::Socket, 60);
            trial(format!("threads_socket_slots_{slots}_{name}"), Box::new(run));
        }
    }
    for (name, scenario, world) in [
        ("processes_shm", Scenario::Shm, 3),
        ("processes_shm_files", Scenario::ShmFiles, 3),
        ("processes_socket", Scenario::Socket, 3),
        ("processes_mixed", Scenario::Mixed, 4),
        ("processes_forked", Scenario::Forked, 4),
    ] {
        trial(name.to_owned(), Box::new(move || traffic_between_processes(scenario, world)));
    }
    for (name, shared_memory) in [("shm", SharedMemory::Only), ("socket", SharedMemory::Off)] {
        trial(
            format!("leaving_early_loses_nothing_{name}"),
            Box::new(move || leaving_early_loses_nothing(shared_memory, 1)),
        );
        trial(
            format!("unused_links_take_no_memory_{name}"),
            Box::new(move || unused_links_take_no_memory(shared_memory)),
        );
    }
    let others: [(&str, fn()); 9] = [
        ("leaving_early_loses_nothing_four_sockets", || leaving_early_loses_nothing(SharedMemory::Off, 4)),
        ("a_killed_process_is_missed_by_all_others", a_killed_process_is_missed_by_all_others),
        ("killed_processes_leave_nothing_in_dev_shm", killed_processes_leave_nothing_in_dev_shm),
        ("fifty_communicators_at_once", fifty_communicators_at_once),
        ("a_rank_alone_costs_next_to_nothing", a_rank_alone_costs_next_to_nothing),
        (
            "too_little_space_is_an_error_on_every_rank_that_names_the_size",
            too_little_space_is_an_error_on_every_rank_that_names_the_size,
        ),
        ("different_settings_are_refused_by_all", different_settings_are_refused_by_all),
        ("a_rank_that_cannot_listen_is_named_by_all", a_rank_that_cannot_listen_is_named_by_all),
        ("zones_carry_messages", zones_carry_messages),
    ];
    for (name, run) in others {
        trial(name.to_owned(), Box::new(run));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
