//! The first program: every rank adds up the numbers of all, and rank 0 prints the sum and the plan.
//!
//! `cargo run --release --example 01_hello -- --ranks 4`, or under mpirun, torchrun, srun.

mod ranks;

use ringsmith::{Collective, Communicator, Error, Op};
use std::process::ExitCode;

const USAGE: &str = "01_hello [--ranks N]";

fn main() -> ExitCode {
    match ranks::arguments() {
        Ok((count, others)) if others.is_empty() => ranks::run(count, 4, hello),
        Ok((_, others)) => ranks::usage(USAGE, &format!("{:?} is not understood", others[0])),
        Err(mistake) => ranks::usage(USAGE, &mistake),
    }
}

fn hello(comm: &Communicator) -> Result<u8, Error> {
    // A rank and its square, as floats: any slice of numbers will do.
    let own = [comm.rank() as f32, (comm.rank() * comm.rank()) as f32];
    let mut sums = [0.0; 2];
    comm.all_reduce(&own, &mut sums, Op::Sum)?;
    // Each rank has the sums now; one of them is enough to tell.
    if comm.rank() == 0 {
        let last = comm.world() - 1;
        println!("{} ranks: 0 + ... + {last} = {}, 0 + ... + {last}^2 = {}", comm.world(), sums[0], sums[1]);
        println!("ran as {}", comm.plan::<f32>(Collective::AllReduce, Op::Sum, sums.len())?);
        println!("{}", comm.explain::<f32>(Collective::AllReduce, Op::Sum, sums.len())?.trim_end());
    }
    Ok(0)
}
