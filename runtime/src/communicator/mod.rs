//! A communicator: ranks that compute collectives together.
//!
//! [`Communicator::init`] joins the ranks in four timed phases; [`Communicator::run`] runs one
//! collective and [`Communicator::run_group`] several calls together. Every call blocks until this
//! rank's part is done. Calls of one communicator are totally ordered: every rank makes the same ones
//! in the same order.
//!
//! After an error in a call the communicator is broken, the other ranks are told why, and every later
//! call returns the first reason.

mod gpu;
mod init;
mod planning;
mod ready;
mod request;
mod split;

pub use gpu::GpuCommunicator;
pub use init::{Timings, check_network, machine_of};
pub use request::{Buffers, Call, Request};
pub use split::Part;

use crate::bootstrap::Bootstrap;
use crate::config::Config;
use crate::config::selection::Selection;
use crate::device::cpu::arith::{Kernel, Scalar};
use crate::device::cpu::exchange::{Incoming, Lists, Outgoing};
use crate::device::cpu::execute::{Launch, Links, Sizes};
use crate::device::cpu::wait::{Policy, Watch};
use crate::device::cpu::{exchange, execute};
use crate::error::Error;
use crate::fault::{Fault, Reason};
use crate::memory::fork;
use crate::memory::scratch::Scratch;
use crate::transport::{Connections, MemoryUse};
use crate::unique_id::UniqueId;
use planning::{Plans, UserProgram};
use ready::{Key, Place, Ready, Shelf};
use ringsmith_compiler::plan::Machine;
use ringsmith_ir::program::Program;
use ringsmith_ir::schedule::{Protocol, Schedule};
use ringsmith_ir::types::ReduceOp;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A group of ranks and everything that joins them.
pub struct Communicator {
    rank: u32,
    world: u32,
    config: Config,
    machine: Machine,
    bootstrap: Bootstrap,
    fault: Fault,
    policy: Policy,
    timings: Timings,
    has_sockets: bool,
    state: Mutex<State>,
}

/// What calls change, one at a time.
struct State {
    links: Links,
    scratch: Scratch,
    plans: Plans,
    shelf: Shelf,
    /// Calls so far; the next one's number.
    number: u64,
    /// Whether messages between pairs have gone.
    has_exchanged: bool,
    // After everything that points into its memory.
    connections: Connections,
}

impl Communicator {
    /// Joins `world` ranks. Collective: every rank calls it with the same id and world, and its own
    /// rank.
    ///
    /// Errors: everything that can keep ranks from joining, named; within the deadline of the settings.
    pub fn init(id: &UniqueId, rank: u32, world: u32, config: &Config) -> Result<Self, Error> {
        init::init(id, rank, world, config)
    }

    /// The same over ranks that have already come together, such as those of a launcher
    /// ([`Launch::join`](crate::launcher::Launch::join)). Collective.
    ///
    /// Errors: as [`Self::init`].
    pub fn over(bootstrap: Bootstrap, config: &Config) -> Result<Self, Error> {
        init::init_over(bootstrap, config)
    }

    /// This rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// How long each phase of initialisation took.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// Memory that the communicator holds, by purpose.
    pub fn memory(&self) -> Vec<MemoryUse> {
        let state = self.lock();
        let mut all = state.connections.memory();
        let scratch = state.scratch.len_bytes();
        if scratch > 0 {
            all.push(MemoryUse {
                purpose: "scratch",
                reserved_bytes: scratch,
                resident_bytes: Some(scratch),
            });
        }
        all
    }

    /// Runs one collective and returns when this rank's part is done.
    ///
    /// Errors: `Argument` and `Unsupported` before anything moves (the communicator stays usable);
    /// `Interrupted`, `PeerLeft`, `Timeout` and `MessageSize` break it, and later calls return `Interrupted`.
    pub fn run(&self, request: &Request, mut buffers: Buffers<'_>) -> Result<(), Error> {
        let mut state = self.enter(request.collective.name())?;
        state.shelf.tidy();
        request.check(self.world)?;
        let pointers = buffers.pointers(request, self.rank, self.world)?;
        let ready = self.ready(&mut state, request)?;
        let outcome = self.launch(&mut state, ready, pointers);
        self.settle(&mut state, outcome)
    }

    /// Runs several calls together: its collectives in their order, then all its messages at once.
    ///
    /// Messages to and from one peer match in the order of the lists; the lists may be ordered
    /// differently on different ranks. Nothing moves unless every call of the group is acceptable.
    ///
    /// Errors: as [`Self::run`].
    pub fn run_group(&self, calls: &mut [Call<'_>]) -> Result<(), Error> {
        let mut state = self.enter("group")?;
        state.shelf.tidy();
        let mut launches = Vec::new();
        let mut lists = Lists::default();
        for call in calls {
            match call {
                Call::Collective(request, buffers) => {
                    request.check(self.world)?;
                    let pointers = buffers.pointers(request, self.rank, self.world)?;
                    launches.push((self.ready(&mut state, request)?, pointers));
                }
                Call::Send { peer, data } => {
                    self.check_peer("send", *peer)?;
                    lists.sends.push(Outgoing { peer: *peer, data: data.as_ptr(), bytes: data.len() as u64 });
                }
                Call::Recv { peer, data } => {
                    self.check_peer("receive", *peer)?;
                    let (data, bytes) = (data.as_mut_ptr(), data.len() as u64);
                    lists.receives.push(Incoming { peer: *peer, data, bytes });
                }
            }
        }
        exchange::check(self.rank, &lists)?;
        let outcome = launches
            .into_iter()
            .try_for_each(|(ready, pointers)| self.launch(&mut state, ready, pointers))
            .and_then(|()| self.exchange(&mut state, lists));
        self.settle(&mut state, outcome)
    }

    /// Sends a message and waits until it is on its way: for pairs of ranks of which one sends and the
    /// other receives. Messages in both directions at once belong into [`Self::run_group`].
    ///
    /// Errors: as [`Self::run`].
    pub fn send(&self, peer: u32, data: &[u8]) -> Result<(), Error> {
        self.run_group(&mut [Call::Send { peer, data }])
    }

    /// Receives a message.
    ///
    /// Errors: as [`Self::run`]; `MessageSize` when the sender's has another size.
    pub fn recv(&self, peer: u32, data: &mut [u8]) -> Result<(), Error> {
        self.run_group(&mut [Call::Recv { peer, data }])
    }

    /// The plan that a request would run, in words.
    ///
    /// Errors: as [`Self::run`] before anything moves.
    pub fn explain(&self, request: &Request) -> Result<String, Error> {
        request.check(self.world)?;
        planning::explain(&self.machine, &self.config, request)
    }

    /// What a request should take, in microseconds, by the planner's model.
    ///
    /// Errors: as [`Self::run`] before anything moves.
    pub fn predict_us(&self, request: &Request) -> Result<f64, Error> {
        request.check(self.world)?;
        planning::predict_us(&self.machine, &self.config, request)
    }

    /// The name of the plan that a request runs: algorithm, protocol and channels.
    ///
    /// Errors: as [`Self::run`] before anything moves.
    pub fn plan_name(&self, request: &Request) -> Result<String, Error> {
        let mut state = self.enter("plan_name")?;
        request.check(self.world)?;
        let ready = self.ready(&mut state, request)?;
        Ok(planning::name(&state.shelf.get(ready).plan))
    }

    /// From now on runs `program` for its collective instead of a planned one. Collective: every rank
    /// calls it with the same program and settings between the same two calls.
    ///
    /// Errors: `Rejected` with the diagnostics when it does not expand, is refuted, or needs more than
    /// the communicator has; `Mismatch` when ranks gave different programs.
    pub fn use_program(&self, program: &Program, set: BTreeMap<String, i64>) -> Result<(), Error> {
        self.use_own(UserProgram::new(program, set))
    }

    /// The same with a flat schedule, which is for exactly its number of ranks, and its root.
    ///
    /// Errors: as [`Self::use_program`]; `Unsupported` for another number of ranks, and from calls with
    /// another root.
    pub fn use_schedule(&self, schedule: &Schedule) -> Result<(), Error> {
        self.use_own(UserProgram::flat(schedule))
    }

    fn use_own(&self, user: UserProgram) -> Result<(), Error> {
        let mut state = self.enter("use_program")?;
        self.bootstrap.agree("schedule", &[("schedule", user.identity())])?;
        // Proved now rather than at its first call: a refusal belongs to this call.
        let geometry = state.links.geometry;
        state.plans.use_program(user, &self.machine, &geometry, self.rank)?;
        state.shelf.clear();
        Ok(())
    }

    /// Compares named values over all ranks: what each was asked to do, before it does it. Collective.
    ///
    /// Errors: `Mismatch` on every rank, with the first name and rank that differ from rank 0, and both
    /// values; else as [`Self::all_gather_info`].
    pub fn agree(&self, what: &str, values: &[(&str, String)]) -> Result<(), Error> {
        self.bootstrap.agree(what, values)
    }

    /// Gathers a few bytes of every rank through the bootstrap, in rank order: for results and
    /// agreements, not for data.
    ///
    /// Errors: `Refused` naming the ranks that did not come, `Interrupted`.
    pub fn all_gather_info(&self, tag: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.bootstrap.all_gather(tag, bytes)
    }

    /// Ends every wait of every rank with `reason`. Local and immediate; the communicator is broken.
    pub fn abort(&self, reason: &str) {
        self.bootstrap.abort(reason);
    }

    /// Leaves in good order once every rank has come here. A rank that still waits for something of this
    /// one is told at once that it does so in vain.
    ///
    /// Errors: `Interrupted` when a rank was lost before; `Refused` when one has left without coming here, or
    /// does not come before the deadline of initialisation.
    pub fn finish(self) -> Result<(), Error> {
        self.leave()
    }

    /// The same for a communicator that others still hold. What they ask of it afterwards fails.
    ///
    /// Errors: as [`Self::finish`].
    pub fn leave(&self) -> Result<(), Error> {
        self.lock().connections.close();
        self.bootstrap.barrier("finish")
    }

    /// Divides the ranks: those that give one colour become a communicator, in the order of their keys and
    /// then of their ranks here. Collective; a rank without colour takes part and gets none.
    ///
    /// Errors: as [`Self::init`], and those of the exchange on this communicator.
    pub fn split(&self, color: Option<u32>, key: i32, config: &Config) -> Result<Option<Part>, Error> {
        let meeting = split::split(&self.bootstrap, color, key, config)?;
        meeting.map(|meeting| meeting.join(Self::init)).transpose()
    }

    /// A communicator of the ranks that are not in `without`, in their order. Those that stay call it, with
    /// the same list; the others do not.
    ///
    /// Errors: `Argument` for a list that leaves this rank out or names a rank that is not there; those of
    /// messages between the ranks that stay; as [`Self::init`].
    pub fn shrink(&self, without: &[u32], config: &Config) -> Result<Part, Error> {
        split::shrink((self.rank, self.world), without, config, &mut { self })?.join(Self::init)
    }

    /// The word that breaks this communicator, for those who wait elsewhere.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, operation: &'static str) -> Result<std::sync::MutexGuard<'_, State>, Error> {
        if fork::is_forked() {
            self.bootstrap.check_fork(operation)?;
        }
        let state = self.lock();
        match self.fault.reason() {
            None => Ok(state),
            Some(reason) => Err(Error::Interrupted {
                rank: self.rank,
                operation: format!("{operation} number {}", state.number),
                detail: "not begun".to_owned(),
                reason: reason.clone(),
            }),
        }
    }

    fn check_peer(&self, operation: &'static str, peer: u32) -> Result<(), Error> {
        if peer < self.world {
            return Ok(());
        }
        let detail = format!("peer {peer} of {} ranks; ranks are 0 to {}", self.world, self.world - 1);
        Err(Error::Argument { operation, detail })
    }

    /// The launch of a request, made at its first call.
    fn ready(&self, state: &mut State, request: &Request) -> Result<Place, Error> {
        let key = Key::new(request);
        if let Some(place) = state.shelf.find(key) {
            return Ok(place);
        }
        let ready = self.prepare(&mut state.plans, &state.links, request)?;
        Ok(state.shelf.keep(key, ready))
    }

    fn prepare(&self, plans: &mut Plans, links: &Links, request: &Request) -> Result<Ready, Error> {
        let geometry = &links.geometry;
        let plan = plans.plan(&self.machine, &self.config, geometry, self.rank, request)?;
        let sizes = Sizes::new(plan.plan(), request.dtype, request.count, geometry.slot_bytes);
        let zone = plan.plan().protocol != Protocol::Simple;
        if zone && sizes.tile_bytes() > links.zone_bytes() {
            return Err(Error::Unsupported {
                operation: request.collective.to_string(),
                detail: format!(
                    "messages of {} bytes do not fit into the {} bytes of an epoch zone's cell; use protocol simple",
                    sizes.tile_bytes(),
                    links.zone_bytes()
                ),
            });
        }
        let op = if request.collective.reduces() { request.op } else { ReduceOp::Sum };
        let scalar = match op {
            ReduceOp::PremulSum => {
                Scalar::from_f64(request.dtype, request.scalar).map_err(|e| Error::Argument {
                    operation: request.collective.name(),
                    detail: format!("the factor of premulsum: {e}"),
                })?
            }
            _ => Scalar::one(request.dtype),
        };
        let kernel = Kernel::new(request.dtype, op, self.world, scalar);
        Ok(Ready { plan, sizes, kernel })
    }

    fn launch(&self, state: &mut State, place: Place, pointers: request::Pointers) -> Result<(), Error> {
        let State { shelf, links, scratch, connections, number, .. } = state;
        let ready = shelf.get(place);
        let launch = Launch {
            rank: self.rank,
            plan: &ready.plan,
            sizes: &ready.sizes,
            kernel: &ready.kernel,
            input: pointers.input,
            output: pointers.output,
            number: *number,
        };
        *number += 1;
        // Without sockets there is no progress thread to be told.
        let _inside = self.has_sockets.then(|| connections.enter());
        let watch = Watch { policy: &self.policy, fault: &self.fault, connections };
        execute::run(&launch, links, scratch, &watch)
    }

    fn exchange(&self, state: &mut State, lists: Lists) -> Result<(), Error> {
        if lists.sends.is_empty() && lists.receives.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut state.has_exchanged, true) {
            Selection::of(&self.config).tell_exchange();
        }
        let number = state.number;
        state.number += 1;
        let State { links, connections, .. } = state;
        let _inside = connections.enter();
        let watch = Watch { policy: &self.policy, fault: &self.fault, connections };
        exchange::run(self.rank, number, lists, links, &watch)
    }

    /// A failed call breaks the communicator, and everybody is told: through the root, and through the
    /// links, since the root may have gone.
    fn settle(&self, state: &mut State, outcome: Result<(), Error>) -> Result<(), Error> {
        if let Err(error) = &outcome {
            if error.fault().is_none() {
                let (culprit, reason) = (error.culprit().unwrap_or(self.rank), error.said_by(self.rank));
                self.fault.raise(Reason::GaveUp { culprit, reason });
            }
            state.connections.close();
        }
        outcome
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("the thread that held the communicator panicked");
        }
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank)
            .field("world", &self.world)
            .finish_non_exhaustive()
    }
}
