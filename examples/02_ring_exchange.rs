//! Messages between pairs of ranks: a ring in which everybody sends and receives at once, and an
//! exchange in which every pair has a size of its own.
//!
//! `cargo run --release --example 02_ring_exchange -- --ranks 3`

mod ranks;

use ringsmith::{Communicator, Error};
use std::process::ExitCode;

const USAGE: &str = "02_ring_exchange [--ranks N]";

fn main() -> ExitCode {
    match ranks::arguments() {
        Ok((count, others)) if others.is_empty() => ranks::run(count, 3, exchange),
        Ok((_, others)) => ranks::usage(USAGE, &format!("{:?} is not understood", others[0])),
        Err(mistake) => ranks::usage(USAGE, &mistake),
    }
}

fn exchange(comm: &Communicator) -> Result<u8, Error> {
    let seen = around_the_ring(comm)?;
    let words = words_for_everybody(comm)?;
    if comm.rank() == 0 {
        println!("rank 0 saw the tokens of ranks {seen:?}");
        println!("and was told: {words}");
    }
    Ok(0)
}

/// Passes each rank's token on to the right until all have seen it.
fn around_the_ring(comm: &Communicator) -> Result<Vec<u32>, Error> {
    let (rank, world) = (comm.rank(), comm.world());
    let (left, right) = ((rank + world - 1) % world, (rank + 1) % world);
    let mut held = [rank];
    let mut seen = vec![rank];
    for _ in 1..world {
        let mut next = [0];
        // In a group both run at once. One after the other, everybody would wait in `send` for a
        // neighbour that waits in its own, as soon as the messages are long.
        comm.group(|g| {
            g.send(&held, right);
            g.recv(&mut next, left);
        })?;
        held = next;
        seen.push(held[0]);
    }
    let expected: Vec<u32> = (0..world).map(|step| (rank + world - step) % world).collect();
    assert_eq!(seen, expected, "the tokens come in the order of the ring");
    Ok(seen)
}

/// Writes to every rank as many letters as that rank's number tells.
fn words_for_everybody(comm: &Communicator) -> Result<String, Error> {
    let (rank, world) = (comm.rank() as usize, comm.world() as usize);
    let letter = b'a' + (rank % 26) as u8;
    let send_counts: Vec<usize> = (1..=world).collect();
    let letters = vec![letter; send_counts.iter().sum()];

    // The receivers must know the sizes: one number from everybody to everybody.
    let sizes: Vec<u64> = send_counts.iter().map(|count| *count as u64).collect();
    let mut coming = vec![0; world];
    comm.all_to_all(&sizes, &mut coming)?;
    let recv_counts: Vec<usize> = coming.iter().map(|count| *count as usize).collect();

    let mut received = vec![0; recv_counts.iter().sum()];
    comm.all_to_all_v(&letters, &send_counts, &mut received, &recv_counts)?;
    let expected: String =
        (0..world).map(|from| char::from(b'a' + (from % 26) as u8).to_string().repeat(rank + 1)).collect();
    let received = String::from_utf8(received).expect("only letters are sent");
    assert_eq!(received, expected, "every rank writes its own letter");
    Ok(received)
}
