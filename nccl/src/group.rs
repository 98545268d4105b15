//! Groups: what a thread calls between start and end is collected, checked, and then begun together.
//!
//! Calls of one communicator keep their order; communicators, and initialisations, run at once. A call
//! outside any group is a group of one. A mistake inside keeps the whole group from beginning.

use crate::communicator::{Comm, Done};
use crate::operation::Operation;
use crate::outcome::Failure;
use crate::process;
use std::cell::RefCell;
use std::sync::Arc;

/// Something to do for a communicator.
pub(crate) type Job = Box<dyn FnOnce() -> Result<(), Failure> + Send>;

/// What a thread has called since the outermost start.
#[derive(Default)]
struct Group {
    depth: usize,
    /// Initialisations, splits and farewells.
    jobs: Vec<(Arc<Comm>, Job)>,
    /// Calls that move data, by communicator.
    calls: Vec<(Arc<Comm>, Vec<Operation>)>,
    mistake: Option<Failure>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Begins a group, inside another or not.
pub(crate) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Whether this thread is inside a group.
pub(crate) fn is_open() -> bool {
    GROUP.with_borrow(|group| group.depth > 0)
}

/// Keeps the first mistake of an open group, which ends with it.
pub(crate) fn spoil(failure: &Failure) {
    GROUP.with_borrow_mut(|group| {
        if group.depth > 0 {
            group.mistake.get_or_insert_with(|| failure.clone());
        }
    });
}

/// Adds a job: begun at the end of the group, or now.
pub(crate) fn job(
    comm: &Arc<Comm>,
    job: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<Done, Failure> {
    let job: Job = Box::new(job);
    if is_open() {
        GROUP.with_borrow_mut(|group| group.jobs.push((comm.clone(), job)));
        return Ok(Done::Now);
    }
    begin(vec![(comm.clone(), job)])
}

/// Adds jobs that must be begun at once, group or not.
pub(crate) fn jobs(all: Vec<(Arc<Comm>, Job)>) -> Result<Done, Failure> {
    if is_open() {
        GROUP.with_borrow_mut(|group| group.jobs.extend(all));
        return Ok(Done::Now);
    }
    begin(all)
}

/// Adds a call that moves data.
///
/// Errors: the communicator is not ready; outside a group those of the call.
pub(crate) fn call(comm: &Arc<Comm>, operation: Operation) -> Result<Done, Failure> {
    let ranks = comm.ready()?;
    operation.tell(comm);
    if is_open() {
        GROUP.with_borrow_mut(|group| {
            match group.calls.iter_mut().find(|(other, _)| other.handle == comm.handle) {
                Some((_, calls)) => calls.push(operation),
                None => group.calls.push((comm.clone(), vec![operation])),
            }
        });
        return Ok(Done::Now);
    }
    if comm.blocking || !ranks.waits() {
        ranks.run(&[operation])?;
        return Ok(Done::Now);
    }
    begin(vec![(comm.clone(), running(comm, vec![operation]))])
}

fn running(comm: &Arc<Comm>, operations: Vec<Operation>) -> Job {
    let comm = comm.clone();
    Box::new(move || Ok(comm.ready_inside()?.run(&operations)?))
}

/// Ends a group; at the outermost end begins what it holds.
///
/// Errors: no group; the first mistake inside; the first failure, where calls block.
pub(crate) fn end() -> Result<Done, Failure> {
    let Some(group) = close()? else { return Ok(Done::Now) };
    if let Some(mistake) = group.mistake {
        return Err(Failure {
            text: format!("nothing of the group was begun, because of a call inside it: {}", mistake.text),
            ..mistake
        });
    }
    let first = begin(group.jobs)?;
    // Calls that wait for nobody begin here, in their order: streams may be the calling thread's.
    let mut waiting = Vec::new();
    for (comm, operations) in group.calls {
        match comm.ready_inside() {
            Ok(ranks) if !ranks.waits() => {
                ranks.run(&operations).map_err(Failure::from).inspect_err(|f| comm.remember(f))?;
            }
            _ => {
                let job = running(&comm, operations);
                waiting.push((comm, job));
            }
        }
    }
    let then = begin(waiting)?;
    Ok(if first == Done::Later { first } else { then })
}

/// Ends a group without beginning anything. What its collectives should take, in microseconds.
///
/// Errors: no group, or inside another; the first mistake inside.
pub(crate) fn simulate() -> Result<f64, Failure> {
    let Some(group) = close()? else {
        return Err(Failure::usage("ncclGroupSimulateEnd must end the outermost group"));
    };
    if let Some(mistake) = group.mistake {
        return Err(mistake);
    }
    let mut total_us = 0.0;
    for (comm, operations) in &group.calls {
        let ranks = comm.ready()?;
        for operation in operations {
            if let Operation::Collective { request, .. } = operation {
                total_us += ranks.predict_us(request)?;
            }
        }
    }
    Ok(total_us)
}

/// Takes one level off; the group, if it was the outermost.
fn close() -> Result<Option<Group>, Failure> {
    GROUP.with_borrow_mut(|group| match group.depth {
        0 => Err(Failure::usage("there is no group to end; ncclGroupStart comes first")),
        1 => Ok(Some(std::mem::take(group))),
        _ => {
            group.depth -= 1;
            Ok(None)
        }
    })
}

/// One job for each communicator, which does all of its jobs in their order.
fn in_order(jobs: Vec<(Arc<Comm>, Job)>) -> Vec<(Arc<Comm>, Job)> {
    let mut all: Vec<(Arc<Comm>, Job)> = Vec::new();
    for (comm, job) in jobs {
        match all.iter().position(|(other, _)| other.handle == comm.handle) {
            None => all.push((comm, job)),
            Some(at) => {
                let (comm, before) = all.remove(at);
                all.insert(at, (comm, Box::new(move || before().and_then(|()| job()))));
            }
        }
    }
    all
}

/// Begins jobs: those of communicators that block run at once with each other and end here, the others in
/// the background.
fn begin(jobs: Vec<(Arc<Comm>, Job)>) -> Result<Done, Failure> {
    let (blocking, others): (Vec<_>, Vec<_>) =
        in_order(jobs).into_iter().partition(|(comm, _)| comm.blocking);
    let mut done = Done::Now;
    for (comm, job) in others {
        comm.begin();
        let worker = comm.clone();
        let run = move || worker.end(process::without_panic(job));
        if let Err(error) = std::thread::Builder::new().name("ringsmith-call".into()).spawn(run) {
            let failure = Failure::usage(format!("{}: cannot start a thread: {error}", comm.name()));
            comm.end(Err(failure.clone()));
            return Err(failure);
        }
        done = Done::Later;
    }
    let told = |comm: &Comm, outcome: Result<(), Failure>| outcome.inspect_err(|f| comm.remember(f));
    let outcomes: Vec<Result<(), Failure>> = match blocking.len() {
        0 => Vec::new(),
        1 => blocking.into_iter().map(|(comm, job)| told(&comm, job())).collect(),
        _ => std::thread::scope(|scope| {
            let run =
                |(comm, job): (Arc<Comm>, Job)| scope.spawn(move || told(&comm, process::without_panic(job)));
            let threads: Vec<_> = blocking.into_iter().map(run).collect();
            let joined = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err(process::panicked()))
            };
            threads.into_iter().map(joined).collect()
        }),
    };
    // A rank that tells its own failure is better than one that tells another's.
    let failures: Vec<Failure> = outcomes.into_iter().filter_map(Result::err).collect();
    let own = failures.iter().find(|f| f.code != crate::abi::Code::RemoteError);
    match own.or(failures.first()) {
        None => Ok(done),
        Some(failure) => Err(failure.clone()),
    }
}
