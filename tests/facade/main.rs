//! The facade as programs use it: typed calls, groups, mistakes, and ranks that leave in all ways.
//!
//! Ranks are threads with a communicator each. Every job has a deadline, after which its test fails
//! instead of hanging.

mod ends;
mod mistakes;
mod typed;

use ringsmith::{Communicator, Config, Error, UniqueId};
use std::sync::Barrier;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Ours: many times what the slowest job takes on two busy cores.
const DEADLINE: Duration = Duration::from_secs(100);

/// Runs something that must come to an end.
fn in_time<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        let value = body();
        // A receiver that has given up has failed the test already.
        let _ = sender.send(value);
    });
    match receiver.recv_timeout(DEADLINE) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("no end within {} s", DEADLINE.as_secs()),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the thread sends before it ends"),
        },
    }
}

/// Runs ranks as threads to their end, and returns what each came to: its value, or its panic's words.
fn each_rank<R: Send + 'static>(
    world: u32,
    rank_main: impl Fn(Communicator) -> R + Send + Sync + 'static,
) -> Vec<Result<R, String>> {
    each_rank_with(world, Config::default(), rank_main)
}

/// The same with settings.
fn each_rank_with<R: Send + 'static>(
    world: u32,
    config: Config,
    rank_main: impl Fn(Communicator) -> R + Send + Sync + 'static,
) -> Vec<Result<R, String>> {
    in_time(move || {
        let id = UniqueId::create_with(&config).expect("a root");
        let everybody = Barrier::new(world as usize);
        let run = |rank| {
            let comm = Communicator::connect_with(&id, rank, world, &config).expect("every rank comes");
            // A rank that breaks the communicator at once must not disturb those that still connect.
            everybody.wait();
            rank_main(comm)
        };
        thread::scope(|scope| {
            let ranks: Vec<_> = (0..world).map(|rank| scope.spawn(move || run(rank))).collect();
            ranks.into_iter().map(|rank| rank.join().map_err(|panic| words(&*panic))).collect()
        })
    })
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    owned.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Runs ranks that must all do well.
fn all_well(world: u32, rank_main: impl Fn(&Communicator) -> Result<(), Error> + Send + Sync + 'static) {
    in_time(move || ringsmith::on_threads(world, rank_main).map(drop).expect("every rank does well"));
}
