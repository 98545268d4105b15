//! The bootstrap over real sockets on loopback: joins, refusals, losses, aborts, strangers. One
//! thread is one rank; `bootstrap_processes.rs` has what needs processes.

use ringsmith_runtime::bootstrap::Bootstrap;
use ringsmith_runtime::bootstrap::refusal::Refusal;
use ringsmith_runtime::bootstrap::root::Root;
use ringsmith_runtime::config::Config;
use ringsmith_runtime::error::{Error, Result};
use ringsmith_runtime::fault::{Fault, Reason};
use ringsmith_runtime::unique_id::UniqueId;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Barrier, mpsc};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// Long enough for any machine; reached only when something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings for one host, with the given variables.
fn config(vars: &[(&str, &str)]) -> Config {
    let base = [("RINGSMITH_SOCKET_IFNAME", "=lo"), ("RINGSMITH_INIT_TIMEOUT_S", "30")];
    // Later ones win.
    let mut all: Vec<(String, String)> = Vec::new();
    for (name, value) in base.iter().chain(vars) {
        all.retain(|(n, _)| n != name);
        all.push(((*name).to_owned(), (*value).to_owned()));
    }
    Config::from_vars(all).expect("settings of the test").0
}

fn create(config: &Config) -> (UniqueId, Root) {
    UniqueId::create(config).expect("a root on loopback")
}

/// Runs one thread per rank; gives what each made of its place, in the order of ranks.
fn all_ranks<T: Send>(
    id: &UniqueId,
    world: u32,
    config: &Config,
    body: impl Fn(Result<Bootstrap>) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let start = |rank| scope.spawn(move || body(Bootstrap::connect(id, rank, world, config)));
        let threads: Vec<ScopedJoinHandle<'_, T>> = (0..world).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic in a rank")).collect()
    })
}

/// Ranks that join one after the other and fail: what each is told.
///
/// The next starts once the root knows the one before, so the order is certain.
fn told(claims: &[(u32, u32)]) -> Vec<Error> {
    let config = config(&[]);
    let (id, _root) = create(&config);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for &(rank, world) in claims {
            let (id, config) = (&id, &config);
            threads.push(scope.spawn(move || {
                Bootstrap::connect(id, rank, world, config).expect_err("the job cannot start")
            }));
            // There is no sign outside that the root has seen a rank, so the order is made likely
            // only. Every order gives the same kind of refusal.
            std::thread::sleep(Duration::from_millis(60));
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic in a rank")).collect()
    })
}

fn refusal(error: &Error) -> &Refusal {
    match error {
        Error::Refused { refusal, .. } => refusal,
        other => panic!("a refusal was expected, not: {other}"),
    }
}

/// Waits for a fault and gives its reason.
fn fault_of(fault: &Fault) -> Reason {
    let (sender, receiver) = mpsc::channel();
    fault.on_raise(move |reason| sender.send(reason.clone()).expect("the test waits"));
    receiver.recv_timeout(PATIENCE).expect("the fault is raised")
}

#[test]
fn ranks_join_and_gather() {
    let config = config(&[]);
    for world in [1, 2, 8] {
        let (id, _root) = create(&config);
        all_ranks(&id, world, &config, |place| {
            let place = place.expect("every rank is here");
            assert_eq!(place.local_ranks(), (0..world).collect::<Vec<_>>());
            assert!(place.own_address().is_some_and(|address| address.is_loopback()));
            for round in 0..3u8 {
                let part = vec![place.rank() as u8; round as usize * 70_000 + place.rank() as usize];
                let all = place.all_gather("parts", &part).expect("every rank gives its part");
                for (rank, part) in all.iter().enumerate() {
                    assert_eq!(part.len(), round as usize * 70_000 + rank);
                    assert!(part.iter().all(|&b| b as usize == rank));
                }
            }
            place.barrier("end").expect("every rank comes");
            let too_long = place.all_gather("big", &vec![0; (1 << 20) + 1]).expect_err("above the bound");
            assert_eq!(too_long.exit_status().code(), 2);
        });
    }
}

#[test]
fn a_largest_part_fits() {
    let config = config(&[]);
    let (id, _root) = create(&config);
    all_ranks(&id, 3, &config, |place| {
        let all = place
            .expect("every rank is here")
            .all_gather("big", &vec![5; 1 << 20])
            .expect("within the bound");
        assert!(all.iter().all(|part| part.len() == 1 << 20 && part.iter().all(|&b| b == 5)));
    });
}

#[test]
fn pretended_hosts_part_the_ranks() {
    let hosts = [config(&[("RINGSMITH_HOST_ID", "a")]), config(&[("RINGSMITH_HOST_ID", "b")])];
    let (id, _root) = create(&hosts[0]);
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let (id, config) = (&id, &hosts[rank as usize % 2]);
            scope.spawn(move || {
                let place = Bootstrap::connect(id, rank, 4, config).expect("every rank is here");
                assert_eq!(place.local_ranks(), [rank % 2, rank % 2 + 2]);
            });
        }
    });
}

#[test]
fn missing_ranks_are_named_to_all() {
    let config = config(&[("RINGSMITH_INIT_TIMEOUT_S", "0.5")]);
    let (id, _root) = create(&config);
    std::thread::scope(|scope| {
        for rank in [0, 2] {
            let (id, config) = (&id, &config);
            scope.spawn(move || {
                let error = Bootstrap::connect(id, rank, 6, config).expect_err("four ranks are missing");
                let text = error.to_string();
                assert!(text.contains("ranks 1, 3-5 did not come within 0.5 s"), "{text}");
                assert_eq!(error.exit_status().code(), 3);
            });
        }
    });
}

#[test]
fn a_rank_claimed_twice_is_told_to_all() {
    let errors = told(&[(0, 3), (1, 3), (1, 3)]);
    for error in &errors {
        assert!(matches!(refusal(error), Refusal::DuplicateRank { rank: 1, .. }), "{error}");
        assert_eq!(error.exit_status().code(), 2);
    }
}

#[test]
fn a_rank_out_of_range_is_told_to_all() {
    for error in told(&[(0, 2), (2, 2)]) {
        assert!(matches!(refusal(&error), Refusal::RankOutOfRange { rank: 2, world: 2, .. }), "{error}");
    }
    for world in [0, u32::MAX] {
        let errors = told(&[(0, world)]);
        assert!(matches!(refusal(&errors[0]), Refusal::RankOutOfRange { .. }), "{}", errors[0]);
    }
}

#[test]
fn another_number_of_ranks_is_told_to_all() {
    for error in told(&[(0, 2), (1, 3)]) {
        assert!(matches!(refusal(&error), Refusal::WorldMismatch { .. }), "{error}");
    }
}

#[test]
fn a_used_id_is_refused_and_its_job_goes_on() {
    let config = config(&[]);
    let (id, _root) = create(&config);
    all_ranks(&id, 2, &config, |place| {
        let place = place.expect("every rank is here");
        if place.rank() == 0 {
            let late = Bootstrap::connect(&id, 1, 2, &config).expect_err("all have joined");
            assert!(matches!(refusal(&late), Refusal::Finished { rank: 1, world: 2 }), "{late}");
        }
        place.barrier("after").expect("the job is not disturbed");
    });
}

#[test]
fn another_secret_is_named_to_both_sides() {
    let ours = config(&[("RINGSMITH_JOB_SECRET", "one"), ("RINGSMITH_INIT_TIMEOUT_S", "1")]);
    let theirs = config(&[("RINGSMITH_JOB_SECRET", "two")]);
    let (id, _root) = create(&ours);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| Bootstrap::connect(&id, 0, 2, &ours).expect_err("rank 1 cannot come"));
        let foreign = Bootstrap::connect(&id, 1, 2, &theirs).expect_err("the secret differs");
        assert!(matches!(foreign, Error::ForeignRoot { rank: 1, .. }), "{foreign}");
        assert!(foreign.to_string().contains("RINGSMITH_JOB_SECRET"), "{foreign}");
        let missing = waiting.join().expect("no panic in a rank").to_string();
        assert!(missing.contains("rank 1 did not come"), "{missing}");
        assert!(missing.contains("does not hold the secret"), "{missing}");
    });
}

#[test]
fn a_dead_root_is_named_with_what_was_tried() {
    let config = config(&[("RINGSMITH_INIT_TIMEOUT_S", "0.3")]);
    let (id, root) = create(&config);
    drop(root);
    let error = Bootstrap::connect(&id, 0, 1, &config).expect_err("nobody listens");
    let text = error.to_string();
    assert!(matches!(error, Error::Connect { .. }), "{text}");
    assert!(text.contains(&id.addresses()[0].to_string()) && text.contains("nobody listens"), "{text}");
}

#[test]
fn a_silent_listener_is_not_waited_for_beyond_the_deadline() {
    let config = config(&[("RINGSMITH_INIT_TIMEOUT_S", "0.4")]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let comm_id = [("RINGSMITH_COMM_ID", address.as_str()), ("RINGSMITH_INIT_TIMEOUT_S", "0.4")];
    let address = self::config(&comm_id).comm_id.expect("it was set");
    let id = UniqueId::from_address(&address, "RINGSMITH_COMM_ID", "", &config).expect("an address");
    let error = Bootstrap::connect(&id, 0, 2, &config).expect_err("no answer");
    assert!(error.to_string().contains("nothing came") && error.to_string().contains("ulimit -n"), "{error}");
}

#[test]
fn a_fixed_address_serves_without_an_id() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let config = config(&[("NCCL_COMM_ID", &free.to_string()), ("RINGSMITH_JOB_SECRET", "s")]);
    let address = config.comm_id.clone().expect("it was set");
    let (id, _root) = UniqueId::create(&config).expect("the port is free");
    assert_eq!(id.addresses(), [free]);
    assert!(id.is_open());
    let again = UniqueId::create(&config).expect_err("the port is taken");
    assert!(matches!(again, Error::Listen { .. }), "{again}");
    let same = UniqueId::from_address(&address, "RINGSMITH_COMM_ID", "", &config).expect("an address");
    assert_eq!(same, id);
    all_ranks(&same, 2, &config, |place| place.expect("every rank is here").barrier("b").expect("all come"));
}

#[test]
fn gatherings_that_fail_say_why() {
    let config = config(&[]);
    let (id, _root) = create(&config);
    let given_up = Barrier::new(3);
    all_ranks(&id, 3, &config, |place| {
        let place = place.expect("every rank is here");
        let rank = place.rank();
        let limit = Duration::from_millis(400);
        if rank != 2 {
            let error = place.all_gather_within("plans", &[], limit).expect_err("rank 2 does not come");
            let text = error.to_string();
            assert!(text.contains("plans: rank 2 did not come within 0.4 s"), "{text}");
            given_up.wait();
        } else {
            given_up.wait();
            let late = place.all_gather_within("plans", &[], limit).expect_err("the others have left");
            assert!(matches!(refusal(&late), Refusal::Missing { .. }), "{late}");
        }
        // The next one is whole again.
        place.barrier("again").expect("all come");
        let tag = if rank == 1 { "results" } else { "checks" };
        let error = place.all_gather(tag, &[]).expect_err("ranks are at different steps");
        assert!(matches!(refusal(&error), Refusal::TagMismatch { .. }), "{error}");
        assert_eq!(error.exit_status().code(), 2);
    });
}

#[test]
fn who_has_left_is_named() {
    let config = config(&[]);
    let (id, _root) = create(&config);
    all_ranks(&id, 3, &config, |place| {
        let place = place.expect("every rank is here");
        if place.rank() == 1 {
            return place.goodbye();
        }
        let error = place.barrier("late").expect_err("rank 1 has left");
        assert!(matches!(refusal(&error), Refusal::Left { rank: 1, .. }), "{error}");
        assert!(!place.fault().is_raised());
    });
}

#[test]
fn leaving_in_good_order_is_no_fault() {
    let config = config(&[]);
    // Many times, since the root may be quick or slow to close its end.
    for _ in 0..30 {
        let (id, root) = create(&config);
        let faults = all_ranks(&id, 2, &config, |place| {
            let place = place.expect("every rank is here");
            place.barrier("end").expect("all come");
            place.fault().clone()
        });
        drop(root);
        assert!(faults.iter().all(|fault| !fault.is_raised()), "{faults:?}");
    }
}

#[test]
fn an_abort_ends_every_wait() {
    let config = config(&[]);
    let (id, _root) = create(&config);
    all_ranks(&id, 3, &config, |place| {
        let place = place.expect("every rank is here");
        if place.rank() == 2 {
            place.abort("the disk is full");
            assert!(matches!(place.fault().reason(), Some(Reason::AbortedLocally { .. })));
            return;
        }
        let error = place.barrier("never").expect_err("rank 2 aborts");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("rank {}: exchange of `never`, number 0: ", place.rank())),
            "{text}"
        );
        assert!(text.ends_with("rank 2 aborted: the disk is full; mend that, then make a new communicator"));
        assert_eq!(fault_of(place.fault()), Reason::AbortedBy { rank: 2, reason: "the disk is full".into() });
        assert!(place.barrier("later").is_err(), "a fault stays");
    });
}

#[test]
fn a_fault_of_a_transport_reaches_all() {
    let config = config(&[]);
    let (id, _root) = create(&config);
    all_ranks(&id, 2, &config, |place| {
        let place = place.expect("every rank is here");
        if place.rank() == 0 {
            place.fault().raise(Reason::Transport { rank: 1, detail: "checksum".into() });
            assert!(place.barrier("never").is_err());
        } else {
            let reason = fault_of(place.fault()).to_string();
            assert_eq!(reason, "rank 0 aborted: the connection to rank 1 failed: checksum");
        }
    });
}

#[test]
fn a_rank_that_panics_is_lost() {
    let config = config(&[]);
    let (id, _root) = create(&config);
    std::thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _place = Bootstrap::connect(&id, 1, 2, &config).expect("every rank is here");
            panic!("a panic that this test wants");
        });
        let place = Bootstrap::connect(&id, 0, 2, &config).expect("every rank is here");
        let reason = fault_of(place.fault());
        assert!(matches!(reason, Reason::PeerLost { rank: 1, .. }), "{reason}");
        assert!(panics.join().is_err());
    });
}

#[test]
fn settings_that_differ_are_named() {
    let settings = [
        config(&[("NCCL_ALGO", "ring")]),
        config(&[("NCCL_ALGO", "ring")]),
        config(&[("RINGSMITH_ALGO", "^ring")]),
    ];
    let (id, _root) = create(&settings[0]);
    std::thread::scope(|scope| {
        for (rank, config) in (0..).zip(&settings) {
            let id = &id;
            scope.spawn(move || {
                let place = Bootstrap::connect(id, rank, 3, config).expect("every rank is here");
                let error = place.agree("settings", &config.agreement()).expect_err("rank 2 differs");
                let text = error.to_string();
                assert!(text.contains("rank 2 has ALGO = ^ring, but rank 0 has ALGO = ring"), "{text}");
                place.agree("version", &[("version", "1")]).expect("all the same");
            });
        }
    });
}

/// Numbers that look random and come back with the seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// What strangers do on a port: nothing, noise, other protocols, half a handshake.
fn disturb<'scope>(scope: &'scope Scope<'scope, '_>, address: SocketAddr, seed: u64, count: u64) {
    for number in 0..count {
        scope.spawn(move || {
            let mut random = Random(seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut stream = TcpStream::connect(address).expect("the root listens");
            stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
            let mut sent = match random.next() % 5 {
                0 => Vec::new(),
                1 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
                2 => b"RSBOOT1\n".to_vec(),
                // A whole hello, and a proof that is noise, with a frame of impossible length.
                3 => [b"RSBOOT1\n".as_slice(), &[7; 64], &[0xff; 64]].concat(),
                _ => Vec::new(),
            };
            let noise = if random.next().is_multiple_of(2) { 0 } else { random.next() % 5000 };
            sent.extend((0..noise).map(|_| random.next() as u8));
            // The root may close at any byte; whatever happens here is no failure of the test.
            let _ = stream.write_all(&sent);
            if !random.next().is_multiple_of(3) {
                let _ = stream.read(&mut [0; 256]);
            }
        });
    }
}

#[test]
fn strangers_do_not_disturb() {
    let seed = std::env::var("RINGSMITH_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed);
    println!("RINGSMITH_TEST_SEED={seed}");
    let config = config(&[]);
    let (id, _root) = create(&config);
    let address = id.addresses()[0];
    std::thread::scope(|scope| {
        // Some are there before the first rank and stay, saying nothing.
        let _silent: Vec<TcpStream> =
            (0..50).map(|_| TcpStream::connect(address).expect("the root listens")).collect();
        disturb(scope, address, seed, 60);
        let places = all_ranks(&id, 4, &config, |place| place.expect("strangers are no hindrance"));
        disturb(scope, address, seed + 1, 60);
        std::thread::scope(|ranks| {
            for place in &places {
                ranks.spawn(move || place.barrier("among strangers").expect("all come"));
            }
        });
        assert!(places.iter().all(|place| !place.fault().is_raised()));
    });
}
