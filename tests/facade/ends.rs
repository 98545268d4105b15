//! How ranks part: in order, by dropping, by a panic; and many communicators at once.

use crate::{all_well, each_rank, in_time};
use ringsmith::{Communicator, Config, Error, Op, UniqueId};
use std::sync::Barrier;
use std::thread;

/// Communicators can be given to another thread, and be shared.
const _: () = {
    const fn can_be_shared<T: Send + Sync>() {}
    can_be_shared::<Communicator>();
    can_be_shared::<UniqueId>();
    can_be_shared::<Error>();
};

#[test]
fn dropping_without_finish_is_no_fault() {
    let outcomes = each_rank(3, |comm| {
        let mut value = [comm.rank()];
        comm.all_reduce_in_place(&mut value, Op::Sum).map(|()| value)
        // Dropped here, at a time of each rank's own.
    });
    for outcome in outcomes {
        assert_eq!(outcome.expect("no panic").expect("a right call"), [3]);
    }
}

#[test]
fn a_rank_that_has_left_is_named_at_once() {
    let outcomes = each_rank(2, |comm| {
        comm.barrier().expect("everybody is here");
        if comm.rank() == 1 {
            return None;
        }
        Some(comm.all_reduce_in_place(&mut [1], Op::Sum).expect_err("rank 1 has left"))
    });
    let error = outcomes.into_iter().next().expect("rank 0").expect("no panic").expect("an error");
    assert_eq!(error.exit_status().code(), 3);
    assert!(error.to_string().contains("rank 1 has left"), "{error}");
}

#[test]
fn finishing_without_a_rank_that_has_left_names_it() {
    let outcomes = each_rank(2, |comm| {
        comm.barrier().expect("everybody is here");
        if comm.rank() == 1 { None } else { Some(comm.finish()) }
    });
    let outcome = outcomes.into_iter().next().expect("rank 0").expect("no panic").expect("it finishes");
    let error = outcome.expect_err("rank 1 has left");
    assert!(error.to_string().contains("rank 1"), "{error}");
}

#[test]
fn a_panic_ends_the_other_ranks_with_its_rank_named() {
    let outcomes = each_rank(3, |comm| {
        assert!(comm.rank() != 2, "an index out of bounds, say");
        comm.barrier().expect_err("rank 2 is gone")
    });
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(error) => {
                assert_eq!(error.exit_status().code(), 3);
                let text = error.to_string();
                assert!(text.contains("rank 2") && text.contains("panicked"), "{text}");
            }
            Err(words) => assert_eq!((rank, words.as_str()), (2, "an index out of bounds, say")),
        }
    }
}

#[test]
fn a_panic_goes_through_on_threads() {
    let outcome = in_time(|| {
        std::panic::catch_unwind(|| {
            ringsmith::on_threads(2, |comm| {
                assert!(comm.rank() != 0, "a bug in rank 0");
                comm.barrier()
            })
        })
    });
    let panic = outcome.expect_err("it goes on");
    assert_eq!(crate::words(&*panic), "a bug in rank 0");
}

#[test]
fn an_error_of_one_rank_is_what_on_threads_returns() {
    let error = in_time(|| {
        ringsmith::on_threads(3, |comm| match comm.rank() {
            2 => comm.broadcast_in_place(&mut [0u8], 9),
            _ => comm.barrier(),
        })
    })
    .expect_err("rank 2 makes a mistake");
    assert!(matches!(error, Error::Argument { operation: "broadcast", .. }), "{error}");
}

#[test]
fn two_communicators_of_the_same_ranks_work_at_once() {
    all_well(3, |comm| {
        let other = comm.duplicate()?;
        let sum_up = |comm: &Communicator, step: u64| -> Result<(), Error> {
            for round in 0..200 {
                let mut value = [step + round + u64::from(comm.rank())];
                comm.all_reduce_in_place(&mut value, Op::Sum)?;
                assert_eq!(value, [3 * (step + round) + 3]);
            }
            Ok(())
        };
        // In an order that no two ranks share.
        thread::scope(|scope| {
            let second = scope.spawn(|| sum_up(&other, 1000));
            sum_up(comm, 1)?;
            second.join().expect("no panic")
        })?;
        // And in turns, from one thread.
        for _ in 0..20 {
            sum_up(comm, 5)?;
            sum_up(&other, 6)?;
        }
        other.finish()
    });
}

#[test]
fn breaking_one_communicator_leaves_the_other() {
    all_well(2, |comm| {
        let other = comm.duplicate()?;
        other.abort("only this one");
        assert!(other.barrier().is_err());
        drop(other);
        comm.barrier()
    });
}

#[test]
fn threads_of_one_rank_take_turns() {
    all_well(1, |comm| {
        thread::scope(|scope| {
            for step in 0..4u32 {
                scope.spawn(move || {
                    for round in 0..100 {
                        let mut value = [step + round];
                        comm.all_reduce_in_place(&mut value, Op::Avg).expect("alone");
                        assert_eq!(value, [step + round]);
                    }
                });
            }
        });
        Ok(())
    });
}

#[test]
fn fifty_communicators_live_at_once() {
    const PAIRS: usize = 50;
    in_time(|| {
        let config = Config::default();
        let everybody = Barrier::new(2 * PAIRS);
        let ids: Vec<UniqueId> =
            (0..PAIRS).map(|_| UniqueId::create_with(&config).expect("a root")).collect();
        let pair = |number: usize, rank: u32| -> Result<(), Error> {
            let comm = Communicator::connect_with(&ids[number], rank, 2, &config)?;
            everybody.wait();
            let mut value = [number as u32 + rank];
            comm.all_reduce_in_place(&mut value, Op::Sum)?;
            assert_eq!(value, [2 * number as u32 + 1]);
            // A slice longer than a slot, too.
            let mut values = vec![rank; 100_000];
            comm.all_reduce_in_place(&mut values, Op::Max)?;
            assert!(values.iter().all(|value| *value == 1));
            comm.finish()
        };
        thread::scope(|scope| {
            let ranks: Vec<_> = (0..2 * PAIRS)
                .map(|index| {
                    let pair = &pair;
                    scope.spawn(move || pair(index / 2, (index % 2) as u32))
                })
                .collect();
            for rank in ranks {
                rank.join().expect("no panic").expect("every pair does well");
            }
        });
    });
}

#[test]
fn fifty_communicators_one_after_the_other() {
    all_well(2, |comm| {
        for _ in 0..50 {
            let other = comm.duplicate()?;
            other.barrier()?;
        }
        comm.barrier()
    });
}

#[test]
fn alone_needs_nobody() {
    in_time(|| {
        let comm = Communicator::alone().expect("one rank");
        let mut values = [1.5f32, -2.0];
        for op in [Op::Sum, Op::Prod, Op::Max, Op::Min, Op::Avg] {
            comm.all_reduce_in_place(&mut values, op).expect("alone");
        }
        assert_eq!(values, [1.5, -2.0]);
        comm.all_reduce_in_place(&mut values, Op::PremulSum(2.0)).expect("alone");
        assert_eq!(values, [3.0, -4.0]);
        let mut got = [0.0f32];
        comm.group(|g| {
            g.send(&values[..1], 0);
            g.recv(&mut got, 0);
        })
        .expect("a message to oneself");
        assert_eq!(got, [3.0]);
        comm.finish().expect("alone");
    });
}
