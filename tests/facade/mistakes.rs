//! Wrong arguments: errors with the lengths in them, before anything moves, and a communicator that goes
//! on; and ranks whose right calls do not fit together.

use crate::{all_well, each_rank};
use ringsmith::{Communicator, Error, Op, Reason, UniqueId};

/// A call fails as a mistake of the caller, in words that hold all of these.
#[track_caller]
fn refused(outcome: Result<(), Error>, words: &[&str]) {
    let error = outcome.expect_err("a wrong call");
    assert!(matches!(error, Error::Argument { .. }), "{error:?}");
    assert_eq!(error.exit_status().code(), 2);
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text}: lacks {word}");
    }
}

/// Every call with a wrong length, on rank `me` of 3.
fn wrong_lengths(comm: &Communicator) {
    let me = format!("rank {} of 3", comm.rank());
    let (own, other) = (comm.rank(), (comm.rank() + 1) % 3);
    let (two, six) = ([1.0f32; 2], [1.0f32; 6]);
    let mut out = [7.0f32; 7];
    refused(comm.all_reduce(&two, &mut out[..3], Op::Sum), &["all_reduce", &me, "have 2 and 3", "float32"]);
    refused(comm.all_gather(&two, &mut out[..5]), &["all_gather", &me, "output has 5", "need 6"]);
    refused(comm.all_gather_in_place(&mut out), &["all_gather", &me, "7 elements", "3 ranks"]);
    refused(comm.reduce_scatter(&six, &mut out[..3], Op::Sum), &["reduce_scatter", "input has 6", "need 9"]);
    refused(comm.reduce_scatter_in_place(&mut out, Op::Sum), &["reduce_scatter", "7 elements"]);
    // At the root a side must be there, elsewhere it may be empty and nothing else.
    refused(comm.broadcast(&[], &mut out[..2], own), &["broadcast", "input has 0", "must have 2 ("]);
    refused(
        comm.broadcast(&six, &mut out[..2], other),
        &["broadcast", "input has 6", "must have 2 (or none"],
    );
    refused(comm.reduce(&two, &mut [], Op::Sum, own), &["reduce", "output has 0", "must have 2 ("]);
    refused(comm.reduce(&two, &mut out, Op::Sum, other), &["reduce", "output has 7", "(or none"]);
    refused(comm.gather(&two, &mut [], own), &["gather", "output has 0", "need 6 ("]);
    refused(comm.gather(&two, &mut out[..5], other), &["gather", "output has 5", "(or none"]);
    refused(comm.gather_in_place(&mut out, own), &["gather", "7 elements"]);
    refused(comm.scatter(&two, &mut out[..2], own), &["scatter", "input has 2", "need 6"]);
    refused(comm.scatter(&two, &mut out[..2], other), &["scatter", "input has 2", "(or none"]);
    refused(comm.scatter_in_place(&mut out, own), &["scatter", "7 elements"]);
    refused(comm.all_to_all(&six, &mut out), &["all_to_all", "have 6 and 7"]);
    refused(comm.all_to_all(&two, &mut out[..2]), &["all_to_all", "2 elements", "3 ranks"]);
    refused(comm.all_to_all_in_place(&mut out), &["all_to_all", "7 elements"]);
    let counts = comm.all_to_all_v(&six, &[2, 4], &mut out, &[3, 3, 1]);
    refused(counts, &["all_to_all_v", "2 counts", "input", "need 3"]);
    let counts = comm.all_to_all_v(&six, &[2, 2, 2], &mut out, &[3, 3, usize::MAX]);
    refused(counts, &["all_to_all_v", "output has 7", "add up to 18446744073709551621"]);
    assert_eq!(out, [7.0; 7], "nothing has moved");
}

#[test]
fn wrong_lengths_are_named_and_change_nothing() {
    all_well(3, |comm| {
        wrong_lengths(comm);
        let mut one = [1];
        comm.all_reduce_in_place(&mut one, Op::Sum)?;
        assert_eq!(one, [3], "the communicator goes on");
        Ok(())
    });
}

#[test]
fn wrong_roots_and_peers_are_named() {
    all_well(2, |comm| {
        let mut two = [1u8; 2];
        refused(comm.broadcast_in_place(&mut two, 2), &["broadcast", "root 2 of 2"]);
        refused(comm.reduce(&[1u8], &mut [], Op::Sum, u32::MAX), &["reduce", "root 4294967295"]);
        refused(comm.send(&two, 2), &["send", "peer 2 of 2"]);
        refused(comm.recv(&mut two, 7), &["receive", "peer 7 of 2"]);
        refused(comm.send(&two, comm.rank()), &["itself", "1 messages"]);
        assert_eq!(two, [1; 2]);
        comm.barrier()
    });
}

#[test]
fn one_wrong_call_stops_its_whole_group() {
    all_well(2, |comm| {
        let peer = 1 - comm.rank();
        let (mut sum, mut got) = ([1u64], [7u64]);
        let own = [5u64];
        let outcome = comm.group(|g| {
            g.all_reduce_in_place(&mut sum, Op::Sum);
            g.send(&own, peer);
            g.recv(&mut got, peer);
            g.all_gather(&own, &mut []);
            g.all_to_all_in_place::<u8>(&mut []);
        });
        refused(outcome, &["all_gather", "call 4 of a group", "output has 0", "need 2"]);
        let outcome = comm.group(|g| {
            g.all_reduce_in_place(&mut sum, Op::Sum);
            g.send(&own, 2);
        });
        refused(outcome, &["send", "peer 2 of 2"]);
        assert_eq!((sum, got), ([1], [7]), "nothing has moved");
        comm.all_reduce_in_place(&mut sum, Op::Sum)?;
        assert_eq!(sum, [2], "the communicator goes on");
        Ok(())
    });
}

#[test]
fn messages_of_different_lengths_break_both_ranks_by_name() {
    let outcomes = each_rank(2, |comm| {
        let outcome = match comm.rank() {
            0 => comm.send(&[1.0f32; 5], 1),
            _ => comm.recv(&mut [0.0f32; 4], 0),
        };
        // The sender may be done before the receiver looks: its next call tells.
        outcome.and_then(|()| comm.barrier()).expect_err("the messages do not fit")
    });
    let errors: Vec<Error> = outcomes.into_iter().map(|outcome| outcome.expect("no panic")).collect();
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.iter().any(|error| matches!(error, Error::MessageSize { .. })), "{texts:?}");
    for text in &texts {
        assert!(text.contains("20 bytes") && text.contains("16"), "{texts:?}");
    }
}

#[test]
fn ranks_and_ids_out_of_range_are_refused() {
    let id = UniqueId::create().expect("a root");
    refused(Communicator::connect(&id, 3, 3).map(drop), &["rank 3 of 3"]);
    refused(Communicator::connect(&id, 0, 0).map(drop), &["0 ranks"]);
    let mut bytes = *id.as_bytes();
    bytes[40] ^= 1;
    let damaged = UniqueId::from_bytes(&bytes).expect_err("damaged");
    assert!(damaged.to_string().contains("damaged"), "{damaged}");
    assert!(UniqueId::from_bytes(&bytes[..100]).is_err() && "12".parse::<UniqueId>().is_err());
}

#[test]
fn a_broken_program_is_refused_and_the_planned_one_stays() {
    all_well(2, |comm| {
        let error = comm.use_program("program @p(n: ranks) { collective all_reduce", &[]).expect_err("cut");
        assert!(matches!(error, Error::Rejected { .. }), "{error}");
        let racy =
            "program @racy(n: ranks) {\n  collective all_reduce\n  chunks 1\n  buffer data: inout[1]\n}";
        let error = comm.use_program(racy, &[]).expect_err("it reduces nothing");
        assert!(error.to_string().contains("@racy is refused"), "{error}");
        let mut one = [1];
        comm.all_reduce_in_place(&mut one, Op::Sum)?;
        assert_eq!(one, [2]);
        Ok(())
    });
}

#[test]
fn an_abort_ends_everybody_with_its_reason() {
    let outcomes = each_rank(3, |comm| {
        if comm.rank() == 1 {
            comm.abort("the disk is full");
        }
        let first = comm.barrier().expect_err("rank 1 has given up");
        let second = comm.barrier().expect_err("it stays so");
        assert_eq!(first.fault(), second.fault());
        first
    });
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.expect("no panic");
        assert!(error.to_string().contains("the disk is full"), "{error}");
        let reason = error.fault().expect("the job is broken");
        assert_eq!(matches!(reason, Reason::AbortedBy { rank: 1, .. }), rank != 1, "{reason}");
    }
}
