//! The communicator: how ranks come together, what they can ask, how they part.
//!
//! Thin over `ringsmith_runtime::communicator`: types and lengths are checked here, everything else
//! there. The calls that move data are in `collectives` and `group`.

use crate::element::Element;
use crate::id::UniqueId;
use crate::op::Op;
use ringsmith_ir::text;
use ringsmith_ir::types::Collective;
use ringsmith_runtime::bootstrap::root::Root;
use ringsmith_runtime::communicator::{self as runtime, Request, Timings};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::error::{Error, Result};
use ringsmith_runtime::launcher::Launch;
use std::fmt;
use std::sync::Arc;

/// A group of ranks that compute collectives together.
///
/// A rank is a process, or a thread with a communicator of its own. Every rank makes the same calls in
/// the same order; a call blocks until this rank's part is done. Counts are in elements, never bytes.
/// Calls from several threads on one communicator take turns.
///
/// **Errors.** A wrong length, root or peer is an error (`Argument`) before anything moves, and the
/// communicator stays usable; the other ranks wait meanwhile for the right call. When something fails
/// on the way (a rank is lost, a deadline passes, ranks made different calls) the communicator is
/// broken: every rank gets an error that names the culprit, and so does every later call.
/// [`Error::exit_status`] tells whose mistake it was.
///
/// **Parting.** [`Communicator::finish`] waits for every rank. Dropping leaves at once, which is no
/// fault; dropping while the thread panics breaks the communicator for the others.
///
/// ```
/// use ringsmith::{Communicator, Op};
///
/// // Three ranks as threads; from_env and connect join processes in the same way.
/// let sums = ringsmith::on_threads(3, |comm| {
///     let mut values = [comm.rank() as f32, 1.0];
///     comm.all_reduce_in_place(&mut values, Op::Sum)?;
///     Ok(values)
/// })?;
/// assert_eq!(sums, [[3.0, 3.0]; 3]);
/// # Ok::<(), ringsmith::Error>(())
/// ```
pub struct Communicator {
    pub(crate) inner: runtime::Communicator,
    config: Config,
    /// Goes after this rank has left.
    _root: Option<Arc<Root>>,
}

/// The settings of the environment, with warnings in the log.
pub(crate) fn settings() -> Result<Config> {
    let (config, warnings) = Config::from_env()?;
    for warning in warnings {
        tracing::warn!(target: "ringsmith::env", "{warning}");
    }
    Ok(config)
}

/// Starting.
impl Communicator {
    /// Joins the job that the launcher started: torchrun, mpirun, srun, or whoever sets
    /// `RINGSMITH_RANK`, `RINGSMITH_WORLD` and `RINGSMITH_ID`. docs/launchers.md has the rules.
    ///
    /// Collective: every rank's process calls it, once. [`Communicator::duplicate`] makes more
    /// communicators of the same ranks.
    ///
    /// Errors: `Argument` when no launcher started this process; variables that are partial, contradict
    /// each other or cannot be read; ranks that do not come within `RINGSMITH_INIT_TIMEOUT_S`, by name.
    ///
    /// ```no_run
    /// let comm = ringsmith::Communicator::from_env()?;
    /// println!("rank {} of {}", comm.rank(), comm.world());
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn from_env() -> Result<Self> {
        Self::launched()?.ok_or_else(|| Error::Argument {
            operation: "from_env",
            detail: "no launcher started this process; start it with torchrun, mpirun or srun, or set RINGSMITH_RANK, \
                     RINGSMITH_WORLD and RINGSMITH_ID on every rank"
                .to_owned(),
        })
    }

    /// As [`Communicator::from_env`], and `None` when no launcher started this process: for programs
    /// that then start ranks of their own.
    ///
    /// Errors: as [`Communicator::from_env`].
    ///
    /// ```
    /// use ringsmith::Communicator;
    ///
    /// let comm = match Communicator::launched()? {
    ///     Some(comm) => comm,
    ///     None => Communicator::alone()?,
    /// };
    /// assert!(comm.rank() < comm.world());
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn launched() -> Result<Option<Self>> {
        let config = settings()?;
        let Some(launch) = Launch::detect(&config)? else { return Ok(None) };
        let bootstrap = launch.join(&config)?;
        let inner = runtime::Communicator::over(bootstrap, &config)?;
        Ok(Some(Self { inner, config, _root: None }))
    }

    /// Joins `world` ranks as `rank`, with the settings of the environment.
    ///
    /// Collective: every rank calls it with the same id and world, and its own rank.
    ///
    /// Errors: settings that cannot be used; a rank out of range or taken; ranks that differ in `world`
    /// or settings, or do not come within `RINGSMITH_INIT_TIMEOUT_S` (120 s), by name.
    ///
    /// ```
    /// use ringsmith::{Communicator, Op, UniqueId};
    ///
    /// let id = UniqueId::create()?; // on one rank; the others get the bytes
    /// std::thread::scope(|scope| {
    ///     for rank in 0..2 {
    ///         let id = &id;
    ///         scope.spawn(move || {
    ///             let comm = Communicator::connect(id, rank, 2)?;
    ///             let mut value = [rank];
    ///             comm.all_reduce_in_place(&mut value, Op::Max)?;
    ///             assert_eq!(value, [1]);
    ///             comm.finish()
    ///         });
    ///     }
    /// });
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn connect(id: &UniqueId, rank: u32, world: u32) -> Result<Self> {
        Self::connect_with(id, rank, world, &settings()?)
    }

    /// The same with settings of the caller's.
    ///
    /// Errors: as [`Communicator::connect`].
    ///
    /// ```
    /// use ringsmith::{Communicator, Config, UniqueId};
    /// use std::time::Duration;
    ///
    /// let mut config = Config::default();
    /// config.timeout = Some(Duration::from_secs(60));
    /// let id = UniqueId::create_with(&config)?;
    /// let comm = Communicator::connect_with(&id, 0, 1, &config)?;
    /// assert_eq!(comm.world(), 1);
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn connect_with(id: &UniqueId, rank: u32, world: u32, config: &Config) -> Result<Self> {
        let inner = runtime::Communicator::init(&id.id, rank, world, config)?;
        Ok(Self { inner, config: config.clone(), _root: id.root.clone() })
    }

    /// A communicator of this rank alone: every call works, and none needs anybody.
    ///
    /// Errors: settings that cannot be used; a host without even a loopback interface.
    ///
    /// ```
    /// let comm = ringsmith::Communicator::alone()?;
    /// assert_eq!((comm.rank(), comm.world()), (0, 1));
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn alone() -> Result<Self> {
        let config = without_meeting(settings()?);
        let id = UniqueId::create_with(&config)?;
        Self::connect_with(&id, 0, 1, &config)
    }

    /// Another communicator of the same ranks, whose calls do not wait for this one's.
    ///
    /// Collective: every rank calls it between the same two calls. Calls of two communicators may be in
    /// progress at once, from two threads; one thread must interleave them in the same order on every
    /// rank.
    ///
    /// Errors: as [`Communicator::connect`].
    ///
    /// ```
    /// use ringsmith::Op;
    ///
    /// ringsmith::on_threads(2, |comm| {
    ///     let other = comm.duplicate()?;
    ///     let mut value = [1u64];
    ///     other.all_reduce_in_place(&mut value, Op::Sum)?;
    ///     assert_eq!(value, [2]);
    ///     other.finish()
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn duplicate(&self) -> Result<Self> {
        // The place where this communicator's ranks met is taken.
        let config = without_meeting(self.config.clone());
        let own = if self.rank() == 0 { Some(UniqueId::create_with(&config)) } else { None };
        // The others must not wait for an id that cannot be made: they get the reason.
        let told = match &own {
            None => Vec::new(),
            Some(Ok(id)) => id.as_bytes().to_vec(),
            Some(Err(error)) => error.to_string().into_bytes(),
        };
        let all = self.all_gather_info("duplicate", &told)?;
        let id = match own {
            Some(own) => own?,
            None => UniqueId::from_bytes(&all[0]).map_err(|_| Error::Unsupported {
                operation: "duplicate".to_owned(),
                detail: format!("rank 0 could not make an id: {}", String::from_utf8_lossy(&all[0])),
            })?,
        };
        Self::connect_with(&id, self.rank(), self.world(), &config)
    }
}

/// Settings that lead to no place where ranks of another communicator meet.
fn without_meeting(mut config: Config) -> Config {
    config.comm_id = None;
    config.id = None;
    config
}

/// Asking and parting.
impl Communicator {
    /// This rank, from 0.
    ///
    /// ```
    /// let ranks = ringsmith::on_threads(3, |comm| Ok(comm.rank()))?;
    /// assert_eq!(ranks, [0, 1, 2]);
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// The number of ranks.
    ///
    /// ```
    /// assert_eq!(ringsmith::Communicator::alone()?.world(), 1);
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn world(&self) -> u32 {
        self.inner.world()
    }

    /// How long each phase of initialisation took.
    ///
    /// ```
    /// let comm = ringsmith::Communicator::alone()?;
    /// assert!(comm.timings().total() >= comm.timings().topology);
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn timings(&self) -> &Timings {
        self.inner.timings()
    }

    /// The name of the plan that a call of `count` elements runs: algorithm, protocol and channels. `count` is
    /// that of the whole, or of one rank's block where the collective has blocks.
    ///
    /// Local: nobody is waited for.
    /// Errors: `Unsupported` when the settings leave no algorithm, or for point-to-point calls.
    ///
    /// ```
    /// use ringsmith::{Collective, Op};
    ///
    /// let names = ringsmith::on_threads(2, |comm| comm.plan::<f32>(Collective::AllReduce, Op::Sum, 1 << 20))?;
    /// assert_eq!(names[0], names[1]);
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn plan<T: Element>(&self, collective: Collective, op: Op, count: usize) -> Result<String> {
        self.inner.plan_name(&request::<T>(collective, op, 0, count as u64))
    }

    /// Why that plan is chosen: what every algorithm would cost, in several lines.
    ///
    /// Local. Errors: as [`Communicator::plan`].
    ///
    /// ```
    /// use ringsmith::{Collective, Communicator, Op};
    ///
    /// let text = Communicator::alone()?.explain::<f32>(Collective::AllReduce, Op::Sum, 1000)?;
    /// assert!(!text.is_empty());
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn explain<T: Element>(&self, collective: Collective, op: Op, count: usize) -> Result<String> {
        self.inner.explain(&request::<T>(collective, op, 0, count as u64))
    }

    /// From now on runs a schedule of the caller's for its collective. `text` is a `program` of
    /// docs/language.md, `values` sets its named integers. It is proved first.
    ///
    /// Collective: every rank calls it with the same text and values between the same two calls.
    ///
    /// Errors: `Rejected` with every mistake of the text, or when the program is refuted; `Mismatch` when
    /// ranks gave different programs. Nothing changes then.
    ///
    /// ```
    /// use ringsmith::Op;
    ///
    /// let text = "
    /// program @by_way_of_rank_0(n: ranks) {
    ///   collective all_reduce
    ///   chunks 1
    ///   buffer data: inout[1]
    ///   buffer inbox: scratch[n]
    ///   link up[r]: r -> 0 for r in 1..n
    ///   link down[r]: 0 -> r for r in 1..n
    ///   lane 0.0 {
    ///     for r in 1..n {
    ///       wait up[r]
    ///       reduce data[0] += inbox[r]
    ///     }
    ///     for r in 1..n {
    ///       put data[0] -> r.data[0] via down[r]
    ///       signal down[r]
    ///     }
    ///   }
    ///   lane r.0 for r in 1..n {
    ///     put data[0] -> 0.inbox[r] via up[r]
    ///     signal up[r]
    ///     wait down[r]
    ///   }
    /// }";
    /// ringsmith::on_threads(3, |comm| {
    ///     comm.use_program(text, &[])?;
    ///     let mut value = [1i32 << comm.rank()];
    ///     comm.all_reduce_in_place(&mut value, Op::Sum)?;
    ///     assert_eq!(value, [7]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn use_program(&self, text: &str, values: &[(&str, i64)]) -> Result<()> {
        let program = text::parse_program(text)
            .map_err(|diagnostics| Error::Rejected { schedule: "the program".to_owned(), diagnostics })?;
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self.inner.use_program(&program, values)
    }

    /// Gives every rank a few bytes of every rank, in rank order: for facts, names and results, not for
    /// data. Lengths may differ. `tag` names the step in messages.
    ///
    /// Collective. Bounds: 64 bytes of tag, a MiB per rank.
    /// Errors: after `RINGSMITH_INIT_TIMEOUT_S`, with the ranks that did not come; a lost rank, by name.
    ///
    /// ```
    /// let all = ringsmith::on_threads(2, |comm| {
    ///     comm.all_gather_info("shape", format!("rank {}", comm.rank()).as_bytes())
    /// })?;
    /// assert_eq!(all[0], [b"rank 0", b"rank 1"]);
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn all_gather_info(&self, tag: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.inner.all_gather_info(tag, bytes)
    }

    /// Ends every wait of every rank with `reason`, and breaks the communicator for good. Local and
    /// immediate.
    ///
    /// ```
    /// let comm = ringsmith::Communicator::alone()?;
    /// comm.abort("the disk is full");
    /// assert!(comm.barrier().unwrap_err().to_string().contains("the disk is full"));
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn abort(&self, reason: &str) {
        self.inner.abort(reason);
    }

    /// Leaves in good order once every rank has come here.
    ///
    /// Errors: a rank that was lost before, or does not come within `RINGSMITH_INIT_TIMEOUT_S`.
    ///
    /// ```
    /// let comm = ringsmith::Communicator::alone()?;
    /// comm.finish()?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn finish(self) -> Result<()> {
        self.inner.finish()
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A call as the runtime takes it.
pub(crate) fn request<T: Element>(collective: Collective, op: Op, root: u32, count: u64) -> Request {
    let (op, scalar) = op.parts();
    Request { collective, dtype: T::TYPE, op, scalar, root, count }
}
