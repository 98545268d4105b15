//! A communicator whose ranks are processes, each with a GPU.
//!
//! Initialisation has the phases of the CPU's: arguments and device; who has which GPU; scratch allocated,
//! mapped by every peer and seen to carry what is written there; kernels. Calls are put on the caller's
//! stream. A fault raises a word that every waiting kernel looks at, so that streams go on.

use super::Timings;
use super::init::{self, Clock};
use super::planning;
use super::split::{self, IdBytes, Messages, Part};
use crate::bootstrap::{Bootstrap, Member};
use crate::config::Config;
use crate::config::selection::Selection;
use crate::device::cuda::{
    Budget, Collectives, CudaError, Device, DeviceMemory, DeviceMessage, DeviceSlice, GpuError, GpuRequest,
    Joining, Place, Prepared, Share, Stream, Waiting,
};
use crate::error::{Error, Ranks, Seconds};
use crate::jit::Jit;
use crate::unique_id::{UNIQUE_ID_BYTES, UniqueId};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long kernels that still wait are given to say where. They do so every few milliseconds.
const SAY_WHERE: Duration = Duration::from_millis(50);
/// How long a stream is looked at without a pause. Ours: many times a small collective.
const EAGER: Duration = Duration::from_millis(5);
/// A pause between looks thereafter.
const PAUSE: Duration = Duration::from_micros(100);
/// How long an aborted stream may take to end. Ours: kernels look for the abort every few milliseconds, and
/// those of other processes may have the GPU meanwhile.
const ABORT_GRACE: Duration = Duration::from_secs(5);

/// A rank on a GPU, and everything that joins it with the others.
pub struct GpuCommunicator {
    // Before the bootstrap: mappings go before this rank says that it has left.
    collectives: Collectives,
    bootstrap: Bootstrap,
    stall: Duration,
    timeout: Option<Duration>,
    timings: Timings,
    /// Calls so far; the next one's number.
    number: u64,
    /// Since when [`Self::look`] has found kernels waiting, and whether it has warned of it.
    waiting: Option<(Instant, bool)>,
}

/// What the others need to know of a rank's GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Card {
    uuid: [u8; 16],
    ordinal: u32,
    multiprocessors: u32,
    /// Such as 90 for 9.0.
    capability: u32,
}

impl Card {
    fn of(device: &Device) -> Result<Self, GpuError> {
        Ok(Self {
            uuid: device.uuid()?,
            ordinal: device.ordinal(),
            multiprocessors: device.multiprocessors()?,
            capability: device.capability()?,
        })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.ordinal, self.multiprocessors, self.capability].map(u32::to_le_bytes);
        [&self.uuid[..], numbers.as_flattened()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (uuid, rest) = bytes.split_first_chunk::<16>()?;
        let rest: &[u8; 12] = rest.try_into().ok()?;
        let number = |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        Some(Self { uuid: *uuid, ordinal: number(0), multiprocessors: number(4), capability: number(8) })
    }

    /// As `nvidia-smi -L` writes it.
    fn name(&self) -> String {
        let hex: String = self.uuid.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl GpuCommunicator {
    /// Joins ranks that have come together. Collective. `ordinal` is the GPU to use; `None`: the first rank
    /// of a host takes its first GPU, and so on around.
    ///
    /// Errors: everything that can keep ranks from joining, named: no driver or GPU, ranks of several hosts
    /// (which this version does not join), unlike GPUs, two ranks on one GPU without
    /// `RINGSMITH_MULTI_RANK_GPU_ENABLE`, memory that cannot be mapped or does not arrive. The other ranks
    /// are told.
    pub fn over(
        bootstrap: Bootstrap,
        ordinal: Option<u32>,
        config: &Config,
        jit: Arc<Jit>,
    ) -> Result<Self, Error> {
        match join(&bootstrap, ordinal, config, jit) {
            Ok((collectives, timings)) => {
                let abort = collectives.gpu().aborter();
                bootstrap.fault().on_raise(move |_| abort());
                let (stall, timeout) = (config.stall, config.timeout);
                Ok(Self { collectives, bootstrap, stall, timeout, timings, number: 0, waiting: None })
            }
            Err(error) => {
                if error.fault().is_none() {
                    bootstrap.abort(&error.said_by(bootstrap.rank()));
                }
                Err(error)
            }
        }
    }

    /// This rank, from 0.
    pub fn rank(&self) -> u32 {
        self.bootstrap.rank()
    }

    /// The number of ranks.
    pub fn world(&self) -> u32 {
        self.bootstrap.world()
    }

    /// How long each phase of initialisation took.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// The rank's collectives, for its memory and GPU.
    pub fn collectives(&self) -> &Collectives {
        &self.collectives
    }

    /// What brought the ranks together: for agreements and results, not for data.
    pub fn bootstrap(&self) -> &Bootstrap {
        &self.bootstrap
    }

    /// Makes a collective ready: every rank does so for the same request. `alignment` is what this rank's
    /// buffers have, in bytes.
    ///
    /// Errors: no plan fits; what the driver or the compiler says.
    pub fn prepare(&mut self, request: &GpuRequest, alignment: u64) -> Result<Prepared, Error> {
        let rank = self.rank();
        self.collectives.prepare(request, alignment).map_err(|source| Error::Device {
            rank,
            operation: format!("preparing {}", request.collective),
            source,
        })
    }

    /// Puts a prepared collective on a stream. Collective: every rank does so, in the same order.
    ///
    /// Errors: `Interrupted` on a broken communicator; buffers that are too short; the driver's.
    pub fn run(
        &mut self,
        prepared: &Prepared,
        input: DeviceSlice<'_>,
        output: DeviceSlice<'_>,
        stream: &Stream,
    ) -> Result<(), Error> {
        self.begin("run", prepared.collective().name())?;
        let outcome = self.collectives.run(prepared, &[(input, output)], stream);
        self.begun(prepared.collective().name(), outcome)
    }

    /// Puts messages on a stream, all at once: those that this rank sends, and those that it receives. Messages
    /// of a pair match in the order in which each end lists them.
    ///
    /// Errors: as [`Self::run`]; messages of a rank to itself that do not match. A message whose two ends differ
    /// in size is told by [`Self::wait`] of its receiver.
    pub fn send_receive(
        &mut self,
        sends: Vec<DeviceMessage<'_>>,
        receives: Vec<DeviceMessage<'_>>,
        stream: &Stream,
    ) -> Result<(), Error> {
        self.begin("send_receive", "exchange")?;
        let outcome = self.collectives.send_receive(&[(sends, receives)], stream);
        self.begun("exchange", outcome)
    }

    /// Counts a call, and refuses it on a broken communicator.
    fn begin(&mut self, function: &'static str, what: &str) -> Result<(), Error> {
        self.bootstrap.check_fork(function)?;
        self.number += 1;
        let Some(reason) = self.bootstrap.fault().reason() else { return Ok(()) };
        let (operation, detail) = (self.call(what), "not begun".to_owned());
        Err(Error::Interrupted { rank: self.rank(), operation, detail, reason: reason.clone() })
    }

    fn begun(&self, what: &str, outcome: Result<(), GpuError>) -> Result<(), Error> {
        let rank = self.rank();
        outcome.map_err(|source| Error::Device { rank, operation: self.call(what), source })
    }

    /// Waits until everything on the stream is done.
    ///
    /// Errors: `Interrupted` when the communicator breaks meanwhile, `MessageSize` when a message came with
    /// another size than this rank receives, `Timeout` at the limit of the settings (both break it): the stream
    /// has ended even so. After a while without an end one warning says where this rank waits and for whom.
    pub fn wait(&self, stream: &Stream) -> Result<(), Error> {
        let rank = self.rank();
        let device_error =
            |source: CudaError| Error::Device { rank, operation: self.last_call(), source: source.into() };
        let started = Instant::now();
        let mut warned = false;
        loop {
            let broken = self.bootstrap.fault().reason().cloned();
            if broken.is_none()
                && let Some(error) = self.wrong_size()
            {
                self.end(stream, device_error)?;
                return Err(error);
            }
            if stream.is_done().map_err(device_error)? {
                return match broken {
                    None => Ok(()),
                    Some(reason) => {
                        let operation = self.last_call();
                        let detail = describe(&self.collectives.waits());
                        Err(Error::Interrupted { rank, operation, detail, reason })
                    }
                };
            }
            let waited = started.elapsed();
            if broken.is_some() {
                self.end(stream, device_error)?;
                continue;
            }
            if waited >= self.stall && !warned {
                warned = true;
                self.warn(waited, &self.say_where());
            }
            if let Some(limit) = self.timeout
                && waited >= limit
            {
                let error = self.timed_out(waited, &self.say_where());
                self.end(stream, device_error)?;
                return Err(error);
            }
            if waited < EAGER { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
        }
    }

    /// Looks once at what kernels say, for callers who wait for their streams without [`Self::wait`]: to be called
    /// about once a second. Warns of a long wait, and breaks the communicator as [`Self::wait`] does.
    pub fn look(&mut self) {
        if self.bootstrap.fault().is_raised() || self.wrong_size().is_some() {
            return;
        }
        let waits = self.collectives.waits();
        // Whoever still waits says so again before the next look.
        self.collectives.gpu().forget_waits();
        if waits.is_empty() {
            self.waiting = None;
            return;
        }
        let (since, warned) = *self.waiting.get_or_insert((Instant::now(), false));
        let waited = since.elapsed();
        if waited >= self.stall && !warned {
            self.waiting = Some((since, true));
            self.warn(waited, &waits);
        }
        if self.timeout.is_some_and(|limit| waited >= limit) {
            self.timed_out(waited, &waits);
        }
    }

    /// A message that came with another size than this rank receives; the communicator is broken with it.
    fn wrong_size(&self) -> Option<Error> {
        let wrong = self.collectives.wrong_size()?;
        let error = Error::MessageSize {
            rank: self.rank(),
            peer: wrong.peer,
            operation: self.last_call(),
            expected_bytes: wrong.expected,
            found_bytes: wrong.found,
        };
        self.bootstrap.abort(&error.said_by(self.rank()));
        Some(error)
    }

    fn warn(&self, waited: Duration, waits: &[Waiting]) {
        tracing::warn!(
            target: "ringsmith::coll",
            "rank {}: {}: not done after {}: {}. Ranks that are waited for are late, stopped, or in another call: look \
             at them there; this rank goes on when they do",
            self.rank(), self.last_call(), Seconds(waited), describe(waits)
        );
    }

    /// The end of patience; the communicator is broken with it.
    fn timed_out(&self, waited: Duration, waits: &[Waiting]) -> Error {
        let rank = self.rank();
        let mut peers = waits.iter().flat_map(|wait| &wait.peers).copied();
        let (peer, others) = (peers.next().unwrap_or(rank), peers.collect());
        let (operation, detail) = (self.last_call(), describe(waits));
        let error = Error::Timeout { rank, peer, others, operation, detail, waited };
        self.bootstrap.abort(&error.said_by(rank));
        error
    }

    /// Waits for the end of a stream whose kernels leave, since the communicator is broken.
    fn end(&self, stream: &Stream, failed: impl Fn(CudaError) -> Error) -> Result<(), Error> {
        let Some(reason) = self.bootstrap.fault().reason() else { return Ok(()) };
        let since = Instant::now();
        while !stream.is_done().map_err(&failed)? {
            if since.elapsed() >= ABORT_GRACE {
                return Err(Error::Interrupted {
                    rank: self.rank(),
                    operation: "the end of the stream".to_owned(),
                    detail: format!("work on the GPU did not end within {}", Seconds(ABORT_GRACE)),
                    reason: reason.clone(),
                });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn call(&self, what: &str) -> String {
        format!("{what} number {}", self.number.saturating_sub(1))
    }

    fn last_call(&self) -> String {
        self.call(self.collectives.last_call())
    }

    /// Lets waiting kernels say where they are.
    fn say_where(&self) -> Vec<Waiting> {
        self.collectives.gpu().forget_waits();
        std::thread::sleep(SAY_WHERE);
        self.collectives.waits()
    }

    /// Ends every wait of every rank with `reason`. Immediate; the communicator is broken.
    pub fn abort(&self, reason: &str) {
        self.bootstrap.abort(reason);
    }

    /// Leaves in good order, once every rank has come here.
    ///
    /// Errors: `Interrupted` when a rank was lost before; `Refused` when one does not come before the
    /// deadline of initialisation; the driver's.
    pub fn finish(self) -> Result<(), Error> {
        self.leave()
    }

    /// The same for a communicator that others still hold. What they ask of it afterwards fails.
    ///
    /// Errors: as [`Self::finish`].
    pub fn leave(&self) -> Result<(), Error> {
        let rank = self.rank();
        let device = self.collectives.gpu().device();
        device.synchronize().map_err(|source| Error::Device {
            rank,
            operation: "finish".to_owned(),
            source: source.into(),
        })?;
        // No peer's memory goes while another may still write there.
        self.bootstrap.barrier("finish")
    }

    /// Divides the ranks, as [`Communicator::split`](super::Communicator::split) does.
    ///
    /// Errors: as [`Self::over`], and those of the exchange on this communicator.
    pub fn split(&self, color: Option<u32>, key: i32, config: &Config) -> Result<Option<Part<Self>>, Error> {
        let meeting = split::split(&self.bootstrap, color, key, config)?;
        meeting.map(|meeting| meeting.join(self.again())).transpose()
    }

    /// A communicator without some ranks, as [`Communicator::shrink`](super::Communicator::shrink) makes it.
    ///
    /// Errors: a list that leaves this rank out or names a rank that is not there; those of messages between
    /// the ranks that stay; as [`Self::over`].
    pub fn shrink(&mut self, without: &[u32], config: &Config) -> Result<Part<Self>, Error> {
        let place = (self.rank(), self.world());
        let meeting = split::shrink(place, without, config, self)?;
        meeting.join(self.again())
    }

    /// What joins ranks with this one's GPU and kernels.
    fn again(&self) -> impl FnOnce(&UniqueId, u32, u32, &Config) -> Result<Self, Error> {
        let (ordinal, jit) = (self.collectives.gpu().device().ordinal(), Arc::clone(self.collectives.jit()));
        move |id, rank, world, config| {
            Self::over(Bootstrap::connect(id, rank, world, config)?, Some(ordinal), config, jit)
        }
    }

    /// Brings the bytes of an id over the GPU, since its ranks have no other messages.
    fn exchange_id(
        &mut self,
        bytes: &IdBytes,
        (sends, receives): (&[u32], &[u32]),
    ) -> Result<IdBytes, Error> {
        let rank = self.rank();
        let failed =
            |source: CudaError| Error::Device { rank, operation: "shrink".to_owned(), source: source.into() };
        let device = Arc::clone(self.collectives.gpu().device());
        let memory = DeviceMemory::new(&device, bytes.len() as u64).map_err(failed)?;
        memory.write(0, bytes).map_err(failed)?;
        let stream = Stream::new(&device).map_err(failed)?;
        let messages = |peers: &[u32]| {
            let at = DeviceSlice { memory: &memory, offset: 0 };
            peers.iter().map(|peer| DeviceMessage { peer: *peer, at, bytes: memory.bytes() }).collect()
        };
        self.send_receive(messages(sends), messages(receives), &stream)?;
        self.wait(&stream)?;
        let mut found = *bytes;
        memory.read(0, &mut found).map_err(failed)?;
        Ok(found)
    }
}

impl Messages for GpuCommunicator {
    fn send(&mut self, peers: &[u32], bytes: &IdBytes) -> Result<(), Error> {
        self.exchange_id(bytes, (peers, &[])).map(drop)
    }

    fn receive(&mut self, peer: u32) -> Result<IdBytes, Error> {
        self.exchange_id(&[0; UNIQUE_ID_BYTES], (&[], &[peer]))
    }
}

impl Drop for GpuCommunicator {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("the thread that held the communicator panicked");
        }
    }
}

/// Where blocks wait, in a line: what most of them say comes first.
fn describe(waits: &[Waiting]) -> String {
    let Some(first) = waits.first() else { return "no block says where it waits".to_owned() };
    let like_it = waits.iter().filter(|w| w.op == first.op && w.peers == first.peers).count();
    let peers = match &first.peers[..] {
        [] => String::new(),
        peers => format!(" for rank {}", Ranks(peers)),
    };
    let rest = match waits.len() - like_it {
        0 => String::new(),
        others => format!("; {others} elsewhere"),
    };
    let blocks = if like_it == 1 { "1 block waits".to_owned() } else { format!("{like_it} blocks wait") };
    format!("{blocks} at {}{peers}{rest}", first.op)
}

/// The four phases.
fn join(
    bootstrap: &Bootstrap,
    ordinal: Option<u32>,
    config: &Config,
    jit: Arc<Jit>,
) -> Result<(Collectives, Timings), Error> {
    let mut clock = Clock::start();
    let mut timings = Timings::default();
    let (rank, world) = (bootstrap.rank(), bootstrap.world());
    let failed = |operation: &'static str| {
        move |source: GpuError| Error::Device { rank, operation: operation.to_owned(), source }
    };
    init::check_arguments(rank, world)?;
    let bundle = bundle(&jit, rank)?;
    let device = open(bootstrap, ordinal).map_err(failed("opening its GPU"))?;
    let card = Card::of(&device).map_err(failed("looking at its GPU"))?;
    timings.arguments = clock.lap();

    init::agree_on_settings(bootstrap, config, [("device", "cuda".to_owned()), bundle])?;
    let cards = gathered(bootstrap, "GPUs", &card.to_bytes(), Card::from_bytes)?;
    check_cards(bootstrap.members(), &cards, config)?;
    let ranks_on = |card: &Card| cards.iter().filter(|c| c.uuid == card.uuid).count() as u32;
    let multiprocessors = cards.iter().map(|c| c.multiprocessors).min().unwrap_or(1);
    let ranks_on_gpu = cards.iter().map(ranks_on).max().unwrap_or(1);
    let budget = Budget::new(multiprocessors, ranks_on_gpu, config.channels())
        .map_err(|detail| Error::Unsupported { operation: "init".to_owned(), detail })?;
    let share = Share { multiprocessors, ranks_on_gpu, budget };
    timings.topology = clock.lap();

    let (mut joining, place) =
        Joining::new(&device, rank, world, share).map_err(failed("allocating scratch"))?;
    let places = gathered(bootstrap, "GPU memory", &place.to_bytes(), Place::from_bytes)?;
    let peers = (1..world).map(|k| (rank + k) % world);
    let members = bootstrap.members();
    for peer in peers.clone() {
        let place = &places[peer as usize];
        let mapped = if members[peer as usize].process == members[rank as usize].process {
            let ordinal = cards[peer as usize].ordinal;
            Device::open(ordinal).map_err(GpuError::from).and_then(|d| joining.reach(peer, place, &d))
        } else {
            joining.map(peer, place)
        };
        mapped.map_err(|source| Error::Device {
            rank,
            operation: format!(
                "mapping the memory of rank {peer} ({}, {})",
                members[peer as usize].process,
                cards[peer as usize].name()
            ),
            source,
        })?;
    }
    for peer in peers.clone() {
        joining.mark(peer).map_err(failed("writing a pattern to a peer"))?;
    }
    bootstrap.barrier("GPU patterns")?;
    for peer in peers {
        if !joining.has_mark(peer).map_err(failed("reading a peer's pattern"))? {
            return Err(unseen(rank, peer, &cards));
        }
    }
    joining.clear().map_err(failed("clearing scratch"))?;
    bootstrap.barrier("GPU connections")?;
    timings.connections = clock.lap();

    bootstrap.agree("plans", &[(planning::PROGRAMS, planning::programs()), compiler(&jit)])?;
    let ranks = joining.finish().map_err(failed("finishing initialisation"))?;
    let collectives =
        Collectives::new(ranks, jit, Selection::of(config)).map_err(failed("finishing initialisation"))?;
    timings.proxies = clock.lap();
    timings.tell(rank, world);
    Ok((collectives, timings))
}

/// Which bundle a rank has, for the comparison with the others: ranks with unlike kernels might wait for each
/// other for ever. Where it lies may differ from host to host.
///
/// Errors: it is refused.
fn bundle(jit: &Jit, rank: u32) -> Result<(&'static str, String), Error> {
    let bundle = jit.bundle().map_err(|error| Error::Bundle { rank, source: Box::new(error) })?;
    let digest = bundle.map_or("none".to_owned(), |bundle| format!("a bundle with hash {}", bundle.digest()));
    Ok(("contents of RINGSMITH_BUNDLE", digest))
}

/// What compiles a rank's kernels, for the comparison with the others: each takes from its own kernel how many blocks
/// run side by side, and two versions may make that two numbers. Where all ranks have one bundle, its kernels are
/// the same, and no compiler is looked for.
fn compiler(jit: &Jit) -> (&'static str, String) {
    let version = match jit.bundle() {
        Ok(Some(_)) => "of no account beside a bundle".to_owned(),
        Ok(None) | Err(_) => jit.nvrtc().map_or("none".to_owned(), |nvrtc| nvrtc.version().to_string()),
    };
    ("version of NVRTC (RINGSMITH_NVRTC names its folder)", version)
}

/// A pattern did not arrive.
fn unseen(rank: u32, peer: u32, cards: &[Card]) -> Error {
    let (own, other) = (cards[rank as usize].name(), cards[peer as usize].name());
    let text = format!(
        "what rank {peer} ({other}) wrote did not arrive on {own}: the two GPUs do not reach each other's memory, \
         though the driver says so; look at ACS and IOMMU settings of the PCIe switches between them"
    );
    Error::Connections { rank, source: text.into() }
}

fn open(bootstrap: &Bootstrap, ordinal: Option<u32>) -> Result<Arc<Device>, GpuError> {
    let local = bootstrap.local_ranks();
    let own = local.iter().position(|r| *r == bootstrap.rank()).unwrap_or(0) as u32;
    let count = Device::count()?;
    // Of no GPU at all the driver's own refusal speaks.
    let ordinal = ordinal.unwrap_or(if count == 0 { 0 } else { own % count });
    Ok(Device::open(ordinal)?)
}

/// What every rank has sent, read.
fn gathered<T>(
    bootstrap: &Bootstrap,
    tag: &'static str,
    own: &[u8],
    read: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let all = bootstrap.all_gather(tag, own)?;
    let each = (0..).zip(&all).map(|(rank, bytes)| {
        read(bytes).ok_or_else(|| Error::Mismatch {
            what: tag.to_owned(),
            name: "form of the message".to_owned(),
            rank,
            value: format!("{} bytes", bytes.len()),
            value_of_first: format!("{} bytes", all[0].len()),
        })
    });
    each.collect()
}

/// Whether these GPUs can make a communicator.
fn check_cards(members: &[Member], cards: &[Card], config: &Config) -> Result<(), Error> {
    let refuse = |detail: String| Err(Error::Unsupported { operation: "init".to_owned(), detail });
    let who = |rank: usize| format!("rank {rank} ({}, {})", members[rank].process, cards[rank].name());
    if let Some(far) = members.iter().position(|m| m.host_key != members[0].host_key) {
        return refuse(format!(
            "{} and {} are on two hosts; this version joins GPUs of one host",
            who(0),
            who(far)
        ));
    }
    if let Some(unlike) = cards.iter().position(|c| c.capability != cards[0].capability) {
        let shown = |card: &Card| format!("{}.{}", card.capability / 10, card.capability % 10);
        return refuse(format!(
            "{} has compute capability {}, and {} has {}; GPUs of a communicator must be of one architecture",
            who(0),
            shown(&cards[0]),
            who(unlike),
            shown(&cards[unlike])
        ));
    }
    for (rank, card) in cards.iter().enumerate() {
        let Some(first) = cards[..rank].iter().position(|c| c.uuid == card.uuid) else { continue };
        if !config.multi_rank_gpu {
            return refuse(format!(
                "{} and {} are on one GPU; give each rank its own (LOCAL_RANK, CUDA_VISIBLE_DEVICES), or allow it \
                 with RINGSMITH_MULTI_RANK_GPU_ENABLE=1",
                who(first),
                who(rank)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::refusal::Process;

    fn card(uuid: u8) -> Card {
        Card { uuid: [uuid; 16], ordinal: 3, multiprocessors: 132, capability: 90 }
    }

    fn members(hosts: &[u8]) -> Vec<Member> {
        let member = |(rank, host): (u32, &u8)| Member {
            rank,
            process: Process { host: format!("node{host}"), pid: 100 + rank },
            host_key: [*host; 16],
        };
        (0..).zip(hosts).map(member).collect()
    }

    #[test]
    fn cards_survive_the_way_and_nothing_else_passes_for_one() {
        let card = card(7);
        let bytes = card.to_bytes();
        assert_eq!(Card::from_bytes(&bytes), Some(card));
        assert_eq!(Card::from_bytes(&bytes[1..]), None);
        assert_eq!(Card::from_bytes(&[]), None);
    }

    #[test]
    fn two_ranks_on_one_gpu_are_refused_by_name_unless_allowed() {
        let (members, cards) = (members(&[1, 1, 1]), [card(1), card(2), card(1)]);
        let mut config = Config::default();
        let error = check_cards(&members, &cards, &config).unwrap_err().to_string();
        for part in ["rank 0 (node1, pid 100", "rank 2 (node1, pid 102", "GPU-01010101-0101", "MULTI_RANK"] {
            assert!(error.contains(part), "{error}");
        }
        config.multi_rank_gpu = true;
        assert!(check_cards(&members, &cards, &config).is_ok());
    }

    #[test]
    fn unlike_gpus_and_several_hosts_are_refused_by_name() {
        let mut cards = [card(1), card(2)];
        cards[1].capability = 80;
        let error = check_cards(&members(&[1, 1]), &cards, &Config::default()).unwrap_err().to_string();
        assert!(error.contains("9.0") && error.contains("rank 1 (node1") && error.contains("8.0"), "{error}");
        let cards = [card(1), card(2)];
        let error = check_cards(&members(&[1, 2]), &cards, &Config::default()).unwrap_err().to_string();
        assert!(error.contains("rank 1 (node2") && error.contains("two hosts"), "{error}");
    }

    #[test]
    fn a_pattern_that_does_not_arrive_is_no_fault_of_the_caller() {
        let error = unseen(0, 1, &[card(1), card(2)]);
        assert_eq!(error.exit_status(), crate::error::ExitStatus::WorldFailed);
        for part in ["rank 0", "rank 1 (GPU-02020202", "GPU-01010101", "IOMMU"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn waits_are_described_in_a_line() {
        let wait =
            |op: &str, peers: &[u32]| Waiting { rank: 0, block: 0, peers: peers.to_vec(), op: op.to_owned() };
        assert_eq!(describe(&[]), "no block says where it waits");
        assert_eq!(describe(&[wait("op r0.0#1", &[1])]), "1 block waits at op r0.0#1 for rank 1");
        let many = [wait("op r0.0#1", &[1, 2]), wait("op r0.0#1", &[1, 2]), wait("op r0.1#4", &[3])];
        assert_eq!(describe(&many), "2 blocks wait at op r0.0#1 for rank 1, 2; 1 elsewhere");
    }

    /// A bundle of one kernel, and what compiles with it.
    fn jit_with(folder: &std::path::Path, source: &str) -> Jit {
        use crate::jit::{Cubin, Version, bundle::Contents};
        let cubin = Cubin::new(b"code".to_vec(), "sm_90".parse().expect("an architecture"), String::new());
        let mut contents = Contents::new();
        contents.add("ring", "kernel_plan @ring", source, &cubin, Version { major: 13, minor: 0 });
        contents.write(folder).expect("a bundle");
        jit_of(folder)
    }

    fn jit_of(bundle: &std::path::Path) -> Jit {
        let mut config = Config::default();
        config.bundle = Some(bundle.to_owned());
        Jit::new(&config)
    }

    #[test]
    fn unlike_bundles_are_refused_by_rank_and_refused_ones_at_once() {
        let folder = std::env::temp_dir().join(format!("ringsmith-test-unlike-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let vars = [("RINGSMITH_SOCKET_IFNAME", "=lo"), ("RINGSMITH_INIT_TIMEOUT_S", "30")];
        let (config, _) = Config::from_vars(vars.map(|(name, value)| (name.to_owned(), value.to_owned())))
            .expect("settings of the test");
        let jits = ["a", "a", "b"].iter().enumerate().map(|(rank, source)| {
            // The third rank has other kernels; where they lie is each host's own affair.
            jit_with(&folder.join(rank.to_string()), source)
        });
        let mut jits: Vec<Jit> = jits.collect();
        let agree = |jits: &[Jit]| -> Vec<Result<(), Error>> {
            let world = jits.len() as u32;
            let (id, _root) = UniqueId::create(&config).expect("a root on loopback");
            std::thread::scope(|scope| {
                let rank = |(rank, jit)| {
                    let (id, config) = (&id, &config);
                    scope.spawn(move || {
                        let bootstrap = Bootstrap::connect(id, rank, world, config)?;
                        init::agree_on_settings(&bootstrap, config, [bundle(jit, rank)?])
                    })
                };
                let ranks: Vec<_> = (0..).zip(jits).map(rank).collect();
                ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
            })
        };
        assert!(agree(&jits[..2]).iter().all(Result::is_ok));
        for outcome in agree(&jits) {
            let error = outcome.expect_err("rank 2 has another").to_string();
            for part in ["rank 2 has contents of RINGSMITH_BUNDLE = a bundle", "rank 0 has contents"] {
                assert!(error.contains(part), "{error}");
            }
        }
        jits[1] = Jit::new(&Config::default());
        let error = agree(&jits[..2]).swap_remove(0).expect_err("rank 1 has none").to_string();
        assert!(error.contains("rank 1 has contents of RINGSMITH_BUNDLE = none"), "{error}");

        // A damaged one is told before any GPU is looked for, and to the other ranks.
        std::fs::write(folder.join("0/manifest"), "ringsmith bundle 1").expect("a file");
        let jit = Arc::new(jit_of(&folder.join("0")));
        let (id, _root) = UniqueId::create(&config).expect("a root on loopback");
        let (own, other) = std::thread::scope(|scope| {
            let connect = |rank| Bootstrap::connect(&id, rank, 2, &config).expect("both are here");
            let other = scope.spawn(move || connect(1).barrier("kernels"));
            let own = GpuCommunicator::over(connect(0), None, &config, jit).err().expect("it is damaged");
            (own, other.join().expect("no panic").expect_err("rank 0 has left").to_string())
        });
        assert_eq!(own.exit_status(), crate::error::ExitStatus::Unusable);
        for text in [own.to_string(), other] {
            for part in ["rank 0", "RINGSMITH_BUNDLE", "manifest, byte 18"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        std::fs::remove_dir_all(&folder).expect("the test's folder");
    }
}
