//! Ranks that leave while others still wait for them: the others are told at once, by name, whatever
//! carries the links; and what a rank had sent before it left still arrives.
//!
//! Ranks are threads. Nothing here waits for a time to pass, but for a deadline that tells a hang.

use ringsmith_ir::types::{Collective, DataType};
use ringsmith_runtime::communicator::{Buffers, Communicator, Request};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::error::Error;
use ringsmith_runtime::fault::Reason;
use ringsmith_runtime::unique_id::UniqueId;
use std::io::Write;
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Ours: many times what the slowest test takes on two busy cores.
const DEADLINE: Duration = Duration::from_secs(100);

/// How ranks are joined: shared memory, sockets, two sockets a pair.
const JOINED: [&[(&str, &str)]; 3] =
    [&[], &[("SHM_DISABLE", "1")], &[("SHM_DISABLE", "1"), ("SOCKET_NCONNS", "2")]];

fn config(joined: &[(&str, &str)]) -> Config {
    let settings = joined.iter().chain(&[("SOCKET_IFNAME", "=lo")]);
    let vars = settings.map(|(name, value)| (format!("RINGSMITH_{name}"), (*value).to_owned()));
    Config::from_vars(vars).expect("settings of the test").0
}

/// Runs ranks as threads to their end and returns what each came to.
fn ranks<R: Send + 'static>(
    world: u32,
    config: Config,
    rank_main: impl Fn(Communicator) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (id, _root) = UniqueId::create(&config).expect("a root");
        let everybody = Barrier::new(world as usize);
        let run = |rank| {
            let comm = Communicator::init(&id, rank, world, &config).expect("every rank comes");
            // A rank that leaves at once must not disturb those that still connect.
            everybody.wait();
            rank_main(comm)
        };
        let outcomes: Vec<R> = thread::scope(|scope| {
            let ranks: Vec<_> = (0..world).map(|rank| scope.spawn(move || run(rank))).collect();
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        });
        // A receiver that has given up has failed the test already.
        let _ = sender.send(outcomes);
    });
    receiver.recv_timeout(DEADLINE).expect("an end in time, and no panic")
}

fn barrier(comm: &Communicator) -> Result<(), Error> {
    let request = Request::new(Collective::Barrier, DataType::Int8, 0);
    comm.run(&request, Buffers::Apart { send: &[], recv: &mut [] })
}

fn all_reduce(comm: &Communicator, bytes: usize) -> Result<(), Error> {
    let request = Request::new(Collective::AllReduce, DataType::Uint8, bytes as u64);
    comm.run(&request, Buffers::InPlace(&mut vec![1; bytes]))
}

/// The failure of a rank that waited, in vain, for one that has left: told once, with all that is needed.
fn check_names_rank_2(rank: u32, error: &Error) {
    let text = error.to_string();
    assert_eq!(text.matches("rank 2 has left").count(), 1, "{text}");
    assert_eq!(text.matches(&format!("rank {rank}: ")).count(), 1, "{text}");
    assert!(text.starts_with(&format!("rank {rank}: all_reduce number 1: op r{rank}.")), "{text}");
    assert!(text.contains("let all ranks make the same calls"), "{text}");
    assert_eq!(error.exit_status().code(), 3);
}

#[test]
fn whoever_waits_for_a_rank_that_has_left_is_told() {
    for joined in JOINED {
        for (bytes, finishes) in [(8, false), (3 << 20, true)] {
            let outcomes = ranks(3, config(joined), move |comm| {
                barrier(&comm).expect("everybody is here");
                if comm.rank() < 2 {
                    return all_reduce(&comm, bytes);
                }
                if finishes { comm.finish() } else { Ok(()) }
            });
            let errors: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
            for (rank, error) in (0..2).zip(&errors) {
                check_names_rank_2(rank, error);
            }
            assert!(
                errors.iter().any(|error| matches!(error, Error::PeerLeft { peer: 2, .. })),
                "{errors:?}"
            );
            assert_eq!(errors.len(), if finishes { 3 } else { 2 }, "{errors:?}");
        }
    }
}

#[test]
fn what_was_sent_before_leaving_arrives() {
    const BYTES: usize = 300_000;
    for joined in JOINED {
        let gone = Arc::new(Barrier::new(2));
        let outcomes = ranks(2, config(joined), move |comm| {
            let rank = comm.rank();
            if rank == 0 {
                comm.send(1, &vec![7; BYTES]).expect("it fits into the slots");
                drop(comm);
                gone.wait();
                return None;
            }
            gone.wait();
            let mut data = vec![0; BYTES];
            comm.recv(0, &mut data).expect("it was sent before rank 0 left");
            assert!(data.iter().all(|byte| *byte == 7));
            Some(comm.recv(0, &mut data).expect_err("rank 0 has left"))
        });
        let error = outcomes.into_iter().flatten().next().expect("rank 1's error");
        assert!(matches!(error, Error::PeerLeft { rank: 1, peer: 0, .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("exchange number 1") && text.contains("300000 bytes from rank 0"), "{text}");
    }
}

/// Sending into the void is found out when a slot is needed that nobody frees.
#[test]
fn a_sender_is_told_too() {
    for joined in JOINED {
        let gone = Arc::new(Barrier::new(2));
        let outcomes = ranks(2, config(joined), move |comm| {
            if comm.rank() == 0 {
                drop(comm);
                gone.wait();
                return None;
            }
            gone.wait();
            Some(comm.send(0, &vec![0; 64 << 20]).expect_err("rank 0 has left"))
        });
        let error = outcomes.into_iter().flatten().next().expect("rank 1's error");
        assert!(matches!(error, Error::PeerLeft { rank: 1, peer: 0, .. }), "{error:?}");
    }
}

/// A rank that waits for one that has given up blames the first fault, even where the root has gone and
/// cannot bring its words.
#[test]
fn the_first_fault_is_blamed_through_those_that_gave_up() {
    for joined in [JOINED[0], JOINED[1]] {
        let (id, root) = UniqueId::create(&config(joined)).expect("a root");
        let (sender, receiver) = mpsc::channel();
        let (id, root, everybody) = (Arc::new(id), Mutex::new(Some(root)), Barrier::new(3));
        let shared = Arc::new((root, everybody));
        for rank in 0..3 {
            let (sender, shared, id, config) = (sender.clone(), shared.clone(), id.clone(), config(joined));
            thread::spawn(move || {
                let (root, everybody) = &*shared;
                let comm = Communicator::init(&id, rank, 3, &config).expect("every rank comes");
                everybody.wait();
                if rank == 0 {
                    // Goes without waiting for anybody but its own grace.
                    drop(root.lock().expect("no panic").take());
                    everybody.wait();
                    drop(comm);
                    return;
                }
                everybody.wait();
                let error = comm.recv(rank - 1, &mut [0; 8]).expect_err("rank 0 has left");
                // The communicator stays: a rank need not drop it for others to learn of its failure.
                let _ = sender.send((rank, error, comm));
            });
        }
        for _ in 0..2 {
            let (rank, error, comm) = receiver.recv_timeout(DEADLINE).expect("an end in time, and no panic");
            assert_eq!(error.culprit(), Some(0), "rank {rank}: {error}");
            match &error {
                Error::PeerLeft { .. } => assert_eq!(rank, 1),
                Error::Interrupted { reason, .. } => {
                    assert_eq!((rank, reason), (2, &Reason::PeerGaveUp { rank: 1, culprit: 0 }));
                    let text = error.to_string();
                    assert!(text.contains("from rank 1") && text.contains("because of rank 0"), "{text}");
                }
                other => panic!("rank {rank}: {other:?}"),
            }
            if rank == 2 {
                drop(comm);
            } else {
                std::mem::forget(comm);
            }
        }
    }
}

/// What a rank's log holds, and a way to wait for it.
#[derive(Clone, Default)]
struct Log(Arc<(Mutex<String>, Condvar)>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.0.lock().expect("no panic").push_str(&String::from_utf8_lossy(bytes));
        self.0.1.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stall_is_told_once_with_what_the_sockets_hold() {
    for joined in [JOINED[0], JOINED[1]] {
        let mut config = config(joined);
        config.stall = Duration::from_millis(1);
        let log = Log::default();
        let written = log.clone();
        ranks(2, config, move |comm| {
            barrier(&comm).expect("everybody is here");
            let text = &written.0;
            if comm.rank() == 1 {
                let guard = text.0.lock().expect("no panic");
                // Until rank 0 has warned. Then it goes on.
                drop(text.1.wait_while(guard, |text| !text.contains("nothing has come")).expect("no panic"));
                return all_reduce(&comm, 1 << 20).expect("both are here");
            }
            let writer = written.clone();
            let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false);
            tracing::subscriber::with_default(subscriber.finish(), || {
                all_reduce(&comm, 1 << 20).expect("both are here");
            });
        });
        let text = log.0.0.lock().expect("no panic").clone();
        let first = text.lines().find(|line| line.contains("nothing has come")).expect("a warning");
        assert!(first.contains("WARN") && first.contains("rank 0: all_reduce number 1"), "{text}");
        assert!(first.contains("from rank 1") && first.contains("op r0."), "{text}");
        assert_eq!(first.contains("sockets:"), !joined.is_empty(), "{text}");
        assert_eq!(first.contains("sent but not taken"), !joined.is_empty(), "{text}");
        assert_eq!(first.matches("rank 0").count(), 1, "{text}");
    }
}
