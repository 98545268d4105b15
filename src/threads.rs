//! Ranks as threads of one process.

use crate::communicator::{Communicator, settings};
use crate::id::UniqueId;
use ringsmith_runtime::error::Result;
use std::thread;

/// Runs `world` ranks as threads, each with a communicator of its own, and returns what they return, in
/// rank order. For tests, examples, and programs that are one process anyway.
///
/// When a rank fails or panics the others are told, and end too.
///
/// Errors: the first rank's error that is not about another rank.
/// Panics: a rank's panic goes on here.
///
/// ```
/// use ringsmith::Op;
///
/// let maxima = ringsmith::on_threads(4, |comm| {
///     let mut value = [10 * comm.rank()];
///     comm.all_reduce_in_place(&mut value, Op::Max)?;
///     Ok(value[0])
/// })?;
/// assert_eq!(maxima, [30; 4]);
/// # Ok::<(), ringsmith::Error>(())
/// ```
pub fn on_threads<R: Send>(
    world: u32,
    rank_main: impl Fn(&Communicator) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let config = settings()?;
    let id = UniqueId::create_with(&config)?;
    let run = |rank| {
        let comm = Communicator::connect_with(&id, rank, world, &config)?;
        match rank_main(&comm) {
            Ok(value) => comm.finish().map(|()| value),
            Err(error) => {
                comm.abort(&error.to_string());
                Err(error)
            }
        }
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let ranks: Vec<_> = (0..world).map(|rank| scope.spawn(move || run(rank))).collect();
        ranks.into_iter().map(|rank| rank.join()).collect()
    });
    let mut values = Vec::new();
    let mut errors = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(Ok(value)) => values.push(value),
            Ok(Err(error)) => errors.push(error),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    let own = errors.iter().position(|error| error.fault().is_none());
    if errors.is_empty() { Ok(values) } else { Err(errors.swap_remove(own.unwrap_or(0))) }
}
