//! `run --one-gpu`: all ranks in this process, on one GPU.
//!
//! The same cases, data and table as between processes. A call is one launch for all ranks; calls are timed
//! as a replayed CUDA graph, between two events, so that what is timed is the GPU.

use super::arguments::RunArguments;
use super::cases::{Case, SEED};
use super::job::Job;
use super::report::{self, Measured, Report};
use crate::outcome::{Failure, Outcome, Result};
use ringsmith_ir::entity::Rank;
use ringsmith_ir::types::{Collective, ReduceOp};
use ringsmith_runtime::device::cpu::arith::Scalar;
use ringsmith_runtime::device::cuda::{
    Collectives, CudaError, Device, DeviceMemory, DeviceSlice, Event, GpuError, GpuRequest, Prepared, Stream,
};
use ringsmith_runtime::jit::Jit;
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
        GpuError::Cuda(CudaError::Missing | CudaError::NoDevice { .. }) | GpuError::Plan(_) => {
            Failure::unusable(format_args!("--one-gpu: {error}"))
        }
        other => Failure::Message { outcome: Outcome::WorldFailed, text: other.to_string() },
    }
}

/// Runs every case on the first GPU.
pub(super) fn run(job: &Job<'_>, ranks: u32) -> Result {
    let arguments = job.arguments();
    if job.own().is_some() {
        return Err(Failure::unusable("--one-gpu runs planned schedules; leave --schedule out"));
    }
    if matches!(arguments.collective, Collective::AllToAllV | Collective::SendRecv) {
        let text = format!("--one-gpu: `{}` does not run on GPUs yet", arguments.collective);
        return Err(Failure::unusable(text));
    }
    let cases = job.cases(ranks)?;
    let device = Device::open(0).map_err(|e| failure(e.into()))?;
    let jit = Arc::new(Jit::new(job.config()));
    let mut bench = Bench::new(arguments, &device, ranks, jit, &cases).map_err(failure)?;
    let mut report = Report::new(arguments, &bench.heading().map_err(failure)?)?;
    let mut wrong = 0;
    for case in &cases {
        let mut measured = Vec::new();
        for &in_place in arguments.inplace.kinds() {
            if in_place && !case.has_in_place() {
                continue;
            }
            measured.push(bench.measure(case, in_place).map_err(failure)?);
        }
        wrong += measured.iter().filter_map(|m| m.wrong).sum::<u64>();
        report.row(case, &measured)?;
    }
    report.close()?;
    Ok(if wrong == 0 { Outcome::Done } else { Outcome::No })
}

struct Bench<'a> {
    arguments: &'a RunArguments,
    device: Arc<Device>,
    ranks: u32,
    collectives: Collectives,
    stream: Stream,
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

type Gpu<T> = std::result::Result<T, GpuError>;

impl<'a> Bench<'a> {
    fn new(
        arguments: &'a RunArguments,
        device: &Arc<Device>,
        ranks: u32,
        jit: Arc<Jit>,
        cases: &[Case],
    ) -> Gpu<Self> {
        let largest = cases.iter().map(Case::bytes).max().unwrap_or(0).next_multiple_of(ALIGNMENT);
        let memory =
            || (0..ranks).map(|_| DeviceMemory::new(device, largest)).collect::<std::result::Result<_, _>>();
        Ok(Self {
            arguments,
            device: Arc::clone(device),
            ranks,
            collectives: Collectives::new(device, ranks, jit)?,
            stream: Stream::new(device)?,
            send: memory()?,
            receive: memory()?,
            named: false,
        })
    }

    fn heading(&self) -> Gpu<Vec<String>> {
        let purposes = self.collectives.gpu().layout().purposes();
        let memory: Vec<String> =
            purposes.iter().map(|(what, bytes)| format!("{what} {:.1}", *bytes as f64 / 1e6)).collect();
        Ok(vec![
            report::title(self.arguments, self.ranks),
            format!("  all ranks on GPU 0, {}, in one process", self.device.name()?),
            format!("  MB of GPU memory a rank: {}", memory.join(", ")),
        ])
    }

    fn request(case: &Case) -> GpuRequest {
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
        }
    }

    fn measure(&mut self, case: &Case, in_place: bool) -> Gpu<Measured> {
        let prepared = self.collectives.prepare(&Self::request(case), ALIGNMENT)?;
        let buffers = self.buffers(case, in_place);
        let mut wrong = 0;
        if self.arguments.check {
            self.fill(case, in_place)?;
            self.call(&prepared, &buffers)?;
            self.wait(&prepared)?;
            wrong = self.check(case, in_place)?;
        }
        for _ in 0..self.arguments.warmup {
            self.call(&prepared, &buffers)?;
        }
        self.wait(&prepared)?;
        let time_us = self.time(&prepared, &buffers)? * 1e6;
        Ok(Measured {
            in_place,
            time_us,
            wrong: self.arguments.check.then_some(wrong),
            plan: prepared.name(),
        })
    }

    /// Seconds a call, in replays of a graph.
    fn time(&mut self, prepared: &Prepared, buffers: &[(Place, Place)]) -> Gpu<f64> {
        let calls = self.arguments.iters.min(GRAPH_CALLS);
        let replays = self.arguments.iters.div_ceil(calls);
        let mut launched = Ok(());
        let slices = slices(&self.send, &self.receive, buffers);
        let collectives = &mut self.collectives;
        let graph = self.stream.capture(|stream| {
            launched = (0..calls).try_for_each(|_| collectives.run(prepared, &slices, stream));
            Ok(())
        })?;
        launched?;
        graph.launch(&self.stream)?;
        let (begin, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        begin.record(&self.stream)?;
        for _ in 0..replays {
            graph.launch(&self.stream)?;
        }
        end.record(&self.stream)?;
        self.wait(prepared)?;
        Ok(end.seconds_since(&begin)? / (calls * replays) as f64)
    }

    fn call(&mut self, prepared: &Prepared, buffers: &[(Place, Place)]) -> Gpu<()> {
        let slices = slices(&self.send, &self.receive, buffers);
        self.collectives.run(prepared, &slices, &self.stream)
    }

    /// Waits for the stream; a launch that takes for ever is aborted, and what it waited for told.
    fn wait(&self, prepared: &Prepared) -> Gpu<()> {
        let started = Instant::now();
        while !self.stream.is_done()? {
            if started.elapsed() > PATIENCE * self.arguments.iters.max(1).try_into().unwrap_or(u32::MAX) {
                self.collectives.gpu().abort();
                self.stream.synchronize()?;
                let waited = self.collectives.waited_for(prepared);
                let first: Vec<String> = waited.into_iter().take(8).collect();
                return Err(GpuError::Argument(format!(
                    "{}: the GPU made no progress and was stopped: {}",
                    prepared.name(),
                    first.join("; ")
                )));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Each rank's input and output.
    fn buffers(&self, case: &Case, in_place: bool) -> Vec<(Place, Place)> {
        (0..self.ranks).map(|rank| self.places(case, rank, in_place)).collect()
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
    fn fill(&self, case: &Case, in_place: bool) -> Gpu<()> {
        let reference = case.reference();
        for rank in 0..self.ranks {
            let (input, _) = self.places(case, rank, in_place);
            self.receive[rank as usize].fill(0, case.bytes(), 0xa5)?;
            let data = reference::input(&reference, &Data::exact(SEED), Rank::from_u32(rank));
            let memory = if input.0 { &self.receive } else { &self.send };
            memory[rank as usize].write(input.1, &data)?;
        }
        Ok(())
    }

    /// Compares every rank's output with what it should be.
    fn check(&mut self, case: &Case, in_place: bool) -> Gpu<u64> {
        let reference = case.reference();
        let mut wrong = 0;
        for rank in 0..self.ranks {
            let id = Rank::from_u32(rank);
            let (_, output) = self.places(case, rank, in_place);
            let bytes = reference.output_elements(id) * case.dtype.size_bytes() as u64;
            let mut got = vec![0; bytes as usize];
            self.receive[rank as usize].read(output.1, &mut got)?;
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
