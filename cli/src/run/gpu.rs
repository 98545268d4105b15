//! `run` on GPUs: one rank a process (`--device cuda`), or all ranks in this one on one GPU (`--one-gpu`).
//!
//! The same cases, data and table as on CPUs. Calls are timed as a replayed CUDA graph, between two events,
//! so that what is timed is the GPU.

use super::arguments::RunArguments;
use super::cases::{self, Case, Message, Messages, SEED};
use super::job::Job;
use super::rank::{self, compared, place, shared};
use super::report::{self, Measured};
use crate::outcome::{Failure, Result};
use ringsmith_ir::entity::Rank;
use ringsmith_ir::types::ReduceOp;
use ringsmith_runtime::bootstrap::Bootstrap;
use ringsmith_runtime::communicator::GpuCommunicator;
use ringsmith_runtime::config::selection::Selection;
use ringsmith_runtime::device::cpu::arith::Scalar;
use ringsmith_runtime::device::cuda::{
    Budget, Collectives, CudaError, Device, DeviceMemory, DeviceMessage, DeviceSlice, Event, GpuError,
    GpuRanks, GpuRequest, Prepared, Stream,
};
use ringsmith_runtime::jit::{Bundle, Jit};
use ringsmith_runtime::reference::{self, Data};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a check may take before its launch is aborted and told of. Ours: far above any collective of
/// one GPU's memory.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most calls that one graph holds; more are replayed.
const GRAPH_CALLS: u64 = 64;
/// From one rank's buffers to the next within the allocation: what kernels like best.
const ALIGNMENT: u64 = 256;

fn failure(error: GpuError) -> Failure {
    match error {
        GpuError::Plan(reason) => Failure::unusable(format_args!("--one-gpu: {reason}")),
        other => Failure::world(other),
    }
}

/// Refuses what does not run on GPUs; `asked` is the argument that asks for them.
pub(super) fn check(job: &Job<'_>, asked: &str) -> Result<()> {
    let arguments = job.arguments();
    if job.own().is_some() {
        return Err(Failure::unusable(format_args!("{asked} runs planned schedules; leave --schedule out")));
    }
    if arguments.transport.is_some() {
        return Err(Failure::unusable(format_args!("{asked} does not heed --transport yet; leave it out")));
    }
    // Every rank reads the bundle itself; here, what is wrong with it is told before any is started.
    if let Some(folder) = &job.config().bundle {
        let setting = if arguments.bundle.is_some() { "--bundle" } else { "RINGSMITH_BUNDLE" };
        Bundle::open(folder).map_err(|error| Failure::unusable(format_args!("{setting}: {error}")))?;
    }
    Ok(())
}

/// Runs every case with all ranks on the first GPU.
pub(super) fn one_gpu(job: &Job<'_>, ranks: u32) -> Result {
    check(job, "--one-gpu")?;
    let cases = job.cases(ranks)?;
    let device = Device::open(0).map_err(|e| failure(e.into()))?;
    let jit = Arc::new(Jit::new(job.config()));
    let budget = Budget::ALL.within(job.config().channels());
    let gpu = GpuRanks::one_gpu(&device, ranks, budget).map_err(failure)?;
    let collectives = Collectives::new(gpu, jit, Selection::of(job.config())).map_err(failure)?;
    let name = device.name().map_err(|e| failure(e.into()))?;
    let places = vec![format!("  all ranks on GPU 0, {name}, in one process")];
    Bench::new(job.arguments(), Ranks::All(Box::new(collectives)), &cases)?.every_case(&cases, &places)
}

/// Is one rank of several, on a GPU.
pub(super) fn member(job: &Job<'_>, bootstrap: Bootstrap) -> Result {
    let jit = Arc::new(Jit::new(job.config()));
    let communicator = GpuCommunicator::over(bootstrap, None, job.config(), jit).map_err(rank::failure)?;
    let cases = job.cases(communicator.world())?;
    communicator.bootstrap().agree("arguments of `run`", &compared(job)?).map_err(rank::failure)?;
    let device = communicator.collectives().gpu().device();
    let own =
        format!("{}, GPU {} ({})", place(), device.ordinal(), device.name().map_err(|e| failure(e.into()))?);
    let places = communicator.bootstrap().all_gather("places", own.as_bytes()).map_err(rank::failure)?;
    let mut bench = Bench::new(job.arguments(), Ranks::One(Box::new(communicator)), &cases)?;
    let outcome = bench.every_case(&cases, &rank::listed(&places));
    let Ranks::One(communicator) = bench.ranks else { return outcome };
    rank::leave(outcome, *communicator, GpuCommunicator::abort, GpuCommunicator::finish)
}

/// The ranks of this process.
enum Ranks {
    /// All there are.
    All(Box<Collectives>),
    /// One among processes.
    One(Box<GpuCommunicator>),
}

impl Ranks {
    fn collectives(&self) -> &Collectives {
        match self {
            Self::All(collectives) => collectives,
            Self::One(communicator) => communicator.collectives(),
        }
    }

    fn prepare(&mut self, case: &Case, in_place: bool) -> Result<Work> {
        if cases::is_exchange(case.collective) {
            return Ok(Work::Exchange);
        }
        let request = &request(case, in_place);
        let prepared = match self {
            Self::All(collectives) => collectives.prepare(request, ALIGNMENT).map_err(failure),
            Self::One(communicator) => communicator.prepare(request, ALIGNMENT).map_err(rank::failure),
        };
        prepared.map(Work::Collective)
    }

    fn run(
        &mut self,
        case: &Case,
        work: &Work,
        buffers: &[(DeviceSlice<'_>, DeviceSlice<'_>)],
        stream: &Stream,
    ) -> Result<()> {
        let Work::Collective(prepared) = work else { return self.exchange(case, buffers, stream) };
        match self {
            Self::All(collectives) => collectives.run(prepared, buffers, stream).map_err(failure),
            Self::One(communicator) => {
                let (input, output) = buffers[0];
                communicator.run(prepared, input, output, stream).map_err(rank::failure)
            }
        }
    }

    fn exchange(
        &mut self,
        case: &Case,
        buffers: &[(DeviceSlice<'_>, DeviceSlice<'_>)],
        stream: &Stream,
    ) -> Result<()> {
        let own = self.collectives().gpu().own();
        let mut all = own.zip(buffers).map(|(rank, (input, output))| {
            let Messages { sends, receives } = case.messages(rank);
            (within(*input, sends), within(*output, receives))
        });
        match self {
            Self::All(collectives) => {
                collectives.send_receive(&all.collect::<Vec<_>>(), stream).map_err(failure)
            }
            Self::One(communicator) => {
                let (sends, receives) = all.next().expect("the process has a rank");
                communicator.send_receive(sends, receives, stream).map_err(rank::failure)
            }
        }
    }

    /// Waits for the stream. A launch of all ranks that takes for ever is aborted, and what it waited for
    /// told; one of several waits as settings say.
    fn wait(&self, stream: &Stream, patience: Duration) -> Result<()> {
        let collectives = match self {
            Self::All(collectives) => collectives,
            Self::One(communicator) => return communicator.wait(stream).map_err(rank::failure),
        };
        let started = Instant::now();
        let failed = |e: CudaError| failure(e.into());
        while !stream.is_done().map_err(failed)? {
            if started.elapsed() > patience {
                collectives.gpu().abort();
                stream.synchronize().map_err(failed)?;
                let waits = collectives.waits().into_iter().take(8);
                let lines = waits.map(|w| format!("rank {}, block {}: waited at {}", w.rank, w.block, w.op));
                return Err(failure(GpuError::Argument(format!(
                    "{}: the GPU made no progress and was stopped: {}",
                    collectives.last_call(),
                    lines.collect::<Vec<_>>().join("; ")
                ))));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Makes every process start at about the same time.
    fn line_up(&self) -> Result<()> {
        match self {
            Self::All(_) => Ok(()),
            Self::One(communicator) => {
                communicator.bootstrap().all_gather("line up", &[]).map(drop).map_err(rank::failure)
            }
        }
    }

    /// The slowest process's time and the wrong elements of all.
    fn share(&self, seconds: f64, wrong: u64) -> Result<(f64, u64)> {
        match self {
            Self::All(_) => Ok((seconds, wrong)),
            Self::One(communicator) => {
                shared(seconds, wrong, |own| communicator.bootstrap().all_gather("results", own))
            }
        }
    }

    /// Whether this process prints.
    fn prints(&self) -> bool {
        match self {
            Self::All(_) => true,
            Self::One(communicator) => communicator.rank() == 0,
        }
    }
}

/// What is called again and again.
enum Work {
    Collective(Prepared),
    /// Messages between pairs, whose kernel is the same for all.
    Exchange,
}

impl Work {
    fn name(&self) -> String {
        match self {
            Self::Collective(prepared) => prepared.name(),
            Self::Exchange => "exchange".to_owned(),
        }
    }
}

/// Messages as parts of a rank's memory.
fn within(memory: DeviceSlice<'_>, messages: Vec<Message>) -> Vec<DeviceMessage<'_>> {
    let part = |message: Message| {
        let offset = memory.offset + message.offset;
        DeviceMessage {
            peer: message.peer,
            at: DeviceSlice { memory: memory.memory, offset },
            bytes: message.bytes,
        }
    };
    messages.into_iter().map(part).collect()
}

fn request(case: &Case, in_place: bool) -> GpuRequest {
    let op = case.op.unwrap_or(ReduceOp::Sum);
    let scalar = match op {
        // The case's scalar is a power of two that every type has.
        ReduceOp::PremulSum => Scalar::from_f64(case.dtype, case.request().scalar),
        _ => Ok(Scalar::one(case.dtype)),
    };
    GpuRequest {
        collective: case.collective,
        dtype: case.dtype,
        op: case.op,
        scalar_bits: scalar.map_or(0, Scalar::acc_bits),
        root: case.root,
        count: case.count,
        is_apart: !in_place,
    }
}

struct Bench<'a> {
    arguments: &'a RunArguments,
    ranks: Ranks,
    stream: Stream,
    /// Of the own ranks, in order.
    send: Vec<DeviceMemory>,
    receive: Vec<DeviceMemory>,
    named: bool,
}

/// Whether in the receive memory, and the offset there in bytes.
type Place = (bool, u64);

/// Places of all ranks as memory.
fn slices<'m>(
    send: &'m [DeviceMemory],
    receive: &'m [DeviceMemory],
    places: &[(Place, Place)],
) -> Vec<(DeviceSlice<'m>, DeviceSlice<'m>)> {
    let slice = |rank: usize, (in_receive, offset): Place| DeviceSlice {
        memory: if in_receive { &receive[rank] } else { &send[rank] },
        offset,
    };
    places
        .iter()
        .enumerate()
        .map(|(rank, (input, output))| (slice(rank, *input), slice(rank, *output)))
        .collect()
}

impl<'a> Bench<'a> {
    fn new(arguments: &'a RunArguments, ranks: Ranks, cases: &[Case]) -> Result<Self> {
        let largest = cases.iter().map(Case::bytes).max().unwrap_or(0).next_multiple_of(ALIGNMENT);
        let gpu = ranks.collectives().gpu();
        let failed = |e: CudaError| failure(e.into());
        let memory = || gpu.own().map(|_| DeviceMemory::new(gpu.device(), largest).map_err(failed)).collect();
        let (send, receive): (Result<Vec<_>>, Result<Vec<_>>) = (memory(), memory());
        let (send, receive) = (send?, receive?);
        let stream = Stream::new(gpu.device()).map_err(failed)?;
        Ok(Self { arguments, stream, send, receive, ranks, named: false })
    }

    fn heading(&self, places: &[String]) -> Vec<String> {
        let layout = self.ranks.collectives().gpu().layout();
        let memory: Vec<String> = layout
            .purposes()
            .iter()
            .map(|(what, bytes)| format!("{what} {:.1}", *bytes as f64 / 1e6))
            .collect();
        let mut lines = vec![report::title(self.arguments, layout.geometry().ranks)];
        lines.extend(report::last_size(self.arguments));
        lines.extend_from_slice(places);
        lines.push(format!("  MB of GPU memory a rank: {}", memory.join(", ")));
        lines
    }

    fn every_case(&mut self, cases: &[Case], places: &[String]) -> Result {
        let heading = self.ranks.prints().then(|| self.heading(places));
        report::table(self.arguments, heading, cases, |case, in_place| self.measure(case, in_place))
    }

    fn measure(&mut self, case: &Case, in_place: bool) -> Result<Measured> {
        let work = self.ranks.prepare(case, in_place)?;
        let buffers = self.buffers(case, in_place);
        let mut wrong = 0;
        if self.arguments.check {
            self.fill(case, in_place).map_err(failure)?;
            self.call(case, &work, &buffers)?;
            self.wait()?;
            wrong = self.check(case, in_place).map_err(failure)?;
        }
        for _ in 0..self.arguments.warmup {
            self.call(case, &work, &buffers)?;
        }
        self.wait()?;
        let seconds = self.time(case, &work, &buffers)?;
        let (seconds, wrong) = self.ranks.share(seconds, wrong)?;
        let wrong = self.arguments.check.then_some(wrong);
        Ok(Measured { in_place, time_us: seconds * 1e6, wrong, plan: work.name() })
    }

    /// Seconds a call, in replays of a graph.
    fn time(&mut self, case: &Case, work: &Work, buffers: &[(Place, Place)]) -> Result<f64> {
        let calls = self.arguments.iters.min(GRAPH_CALLS);
        let replays = self.arguments.iters.div_ceil(calls);
        let mut launched = Ok(());
        let slices = slices(&self.send, &self.receive, buffers);
        let ranks = &mut self.ranks;
        let failed = |e: CudaError| failure(e.into());
        let graph = self
            .stream
            .capture(|stream| {
                launched = (0..calls).try_for_each(|_| ranks.run(case, work, &slices, stream));
                Ok(())
            })
            .map_err(failed)?;
        launched?;
        graph.launch(&self.stream).map_err(failed)?;
        self.wait()?;
        let device = Arc::clone(self.ranks.collectives().gpu().device());
        let event = || Event::new(&device).map_err(failed);
        let (begin, end) = (event()?, event()?);
        self.ranks.line_up()?;
        begin.record(&self.stream).map_err(failed)?;
        for _ in 0..replays {
            graph.launch(&self.stream).map_err(failed)?;
        }
        end.record(&self.stream).map_err(failed)?;
        self.wait()?;
        Ok(end.seconds_since(&begin).map_err(failed)? / (calls * replays) as f64)
    }

    fn call(&mut self, case: &Case, work: &Work, buffers: &[(Place, Place)]) -> Result<()> {
        let slices = slices(&self.send, &self.receive, buffers);
        self.ranks.run(case, work, &slices, &self.stream)
    }

    fn wait(&self) -> Result<()> {
        let rounds = self.arguments.iters.max(1).try_into().unwrap_or(u32::MAX);
        self.ranks.wait(&self.stream, PATIENCE.saturating_mul(rounds))
    }

    /// The own ranks' inputs and outputs.
    fn buffers(&self, case: &Case, in_place: bool) -> Vec<(Place, Place)> {
        self.own().map(|rank| self.places(case, rank, in_place)).collect()
    }

    fn own(&self) -> std::ops::Range<u32> {
        self.ranks.collectives().gpu().own()
    }

    /// Where a rank's input and output start.
    fn places(&self, case: &Case, rank: u32, in_place: bool) -> (Place, Place) {
        if !in_place {
            return ((false, 0), (true, 0));
        }
        let (input, output) = case.in_place_offsets(rank);
        ((true, input), (true, output))
    }

    /// Puts every rank's input where the call finds it, and something else where the output will be.
    fn fill(&self, case: &Case, in_place: bool) -> std::result::Result<(), GpuError> {
        let reference = case.reference();
        for (place, rank) in self.own().enumerate() {
            let (input, _) = self.places(case, rank, in_place);
            self.receive[place].fill(0, case.bytes(), 0xa5)?;
            let data = reference::input(&reference, &Data::exact(SEED), Rank::from_u32(rank));
            let memory = if input.0 { &self.receive } else { &self.send };
            memory[place].write(input.1, &data)?;
        }
        Ok(())
    }

    /// Compares every rank's output with what it should be.
    fn check(&mut self, case: &Case, in_place: bool) -> std::result::Result<u64, GpuError> {
        let reference = case.reference();
        let mut wrong = 0;
        for (place, rank) in self.own().enumerate() {
            let id = Rank::from_u32(rank);
            let (_, output) = self.places(case, rank, in_place);
            let bytes = reference.output_elements(id) * case.dtype.size_bytes() as u64;
            let mut got = vec![0; bytes as usize];
            self.receive[place].read(output.1, &mut got)?;
            let found = reference::check(&reference, &Data::exact(SEED), id, &got);
            wrong += found.wrong;
            if found.wrong > 0 && !std::mem::replace(&mut self.named, true) {
                report::tell_wrong(rank, case, in_place, &found);
            }
        }
        Ok(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringsmith_ir::types::DataType;

    #[test]
    fn every_types_scalar_is_known() {
        for dtype in DataType::ALL {
            assert!(Scalar::from_f64(dtype, 2.0).is_ok(), "{dtype}");
        }
    }
}
