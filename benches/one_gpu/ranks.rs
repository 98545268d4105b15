//! Our ranks on the GPU: their buffers, and how a call is checked and timed.

use crate::{Result, Stop, median};
use ringsmith_runtime::config::selection::Selection;
use ringsmith_runtime::device::cuda::{
    Budget, Collectives, Device, DeviceMemory, DeviceSlice, Empty, Event, GpuError, GpuRanks, GpuRequest,
    Stream,
};
use ringsmith_runtime::jit::Jit;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the buffers of every rank start.
const ALIGNMENT: u64 = 256;
/// Elements after which inputs repeat: no power of two, so that no chunk looks like another.
const PERIOD: u64 = 1009;
/// Bytes that are written at once.
const PATTERN_BYTES: u64 = PERIOD * 1024 * 4;
/// Bytes that are compared at either end of a result.
const COMPARED_BYTES: u64 = 4 << 20;
/// Timed replays of a graph.
const REPLAYS: usize = 7;
/// How long a wait may take before the launch is aborted and told of. Ours: far above any call here.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ranks on a GPU, with buffers.
pub(crate) struct Ranks {
    device: Arc<Device>,
    collectives: Collectives,
    stream: Stream,
    /// Every rank's input and output.
    buffers: Vec<(DeviceMemory, DeviceMemory)>,
}

/// How long a call took.
pub(crate) struct Timed {
    /// What the planner chose.
    pub(crate) plan: String,
    /// Microseconds a call, of each replay.
    pub(crate) replays_us: Vec<f64>,
}

impl Timed {
    /// The median replay.
    pub(crate) fn us(&self) -> f64 {
        median(&self.replays_us)
    }
}

impl Ranks {
    /// A communicator of all ranks.
    pub(crate) fn communicator(device: &Arc<Device>, ranks: u32, jit: &Arc<Jit>) -> Result<Collectives> {
        let ranks = GpuRanks::one_gpu(device, ranks, Budget::ALL)?;
        Ok(Collectives::new(ranks, Arc::clone(jit), Selection::default())?)
    }

    /// Buffers of `bytes` for its ranks, inputs filled.
    pub(crate) fn new(device: &Arc<Device>, collectives: Collectives, bytes: u64) -> Result<Self> {
        let mut buffers = Vec::new();
        for rank in collectives.gpu().own() {
            let input = DeviceMemory::new(device, bytes)?;
            let pattern: Vec<u8> =
                (0..PATTERN_BYTES / 4).flat_map(|i| element(rank, i).to_le_bytes()).collect();
            for at in (0..bytes).step_by(PATTERN_BYTES as usize) {
                input.write(at, &pattern[..(bytes - at).min(PATTERN_BYTES) as usize])?;
            }
            buffers.push((input, DeviceMemory::new(device, bytes)?));
        }
        Ok(Self { device: Arc::clone(device), stream: Stream::new(device)?, collectives, buffers })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.collectives.gpu().layout().geometry().ranks
    }

    /// Bytes of a request's larger side.
    pub(crate) fn bytes(&self, request: &GpuRequest) -> u64 {
        let parts = if request.collective.blocked() { u64::from(self.count()) } else { 1 };
        request.count * parts * request.dtype.size_bytes() as u64
    }

    /// Calls once, from planning to the end.
    pub(crate) fn once(&mut self, request: &GpuRequest) -> Result<()> {
        let prepared = self.collectives.prepare(request, ALIGNMENT)?;
        self.collectives.run(&prepared, &slices(&self.buffers), &self.stream)?;
        self.wait()
    }

    /// Waits for the stream; a launch that takes for ever is aborted, and what it waited for told.
    fn wait(&self) -> Result<()> {
        let started = Instant::now();
        while !self.stream.is_done()? {
            if started.elapsed() > PATIENCE {
                self.collectives.gpu().abort();
                self.stream.synchronize()?;
                let waits = self.collectives.waits();
                return Err(Stop::Failed(format!(
                    "{} made no progress and was stopped: {:?}",
                    self.collectives.last_call(),
                    waits.iter().take(8).collect::<Vec<_>>()
                )));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Calls a float32 sum all_reduce once and compares both ends of every rank's result, all of it if it is
    /// small.
    pub(crate) fn check(&mut self, request: &GpuRequest) -> Result<()> {
        let bytes = self.bytes(request);
        for (_, output) in &self.buffers {
            output.fill(0, bytes, 0xee)?;
        }
        self.once(request)?;
        let compared = bytes.min(COMPARED_BYTES);
        // One range where the two are the same.
        let mut ends = vec![0..compared, bytes - compared..bytes];
        ends.dedup();
        let mut mistakes = Vec::new();
        for (rank, (_, output)) in self.buffers.iter().enumerate() {
            for end in &ends {
                if let Some(mistake) = wrong_sums(self.count(), output, end)? {
                    mistakes.push(format!("all_reduce of {bytes} bytes, rank {rank}: {mistake}"));
                }
            }
        }
        if mistakes.is_empty() { Ok(()) } else { Err(Stop::Wrong(mistakes.join("\n"))) }
    }

    /// Times a call as replays of a graph that holds several.
    pub(crate) fn time(&mut self, request: &GpuRequest) -> Result<Timed> {
        const MI: u64 = 1 << 20;
        let calls = match self.bytes(request) {
            bytes if bytes <= MI => 20,
            bytes if bytes <= 64 * MI => 5,
            _ => 2,
        };
        let prepared = self.collectives.prepare(request, ALIGNMENT)?;
        let slices = slices(&self.buffers);
        let collectives = &mut self.collectives;
        let mut put = Ok(());
        let graph = self.stream.capture(|stream| {
            put = (0..calls).try_for_each(|_| collectives.run(&prepared, &slices, stream));
            Ok(())
        })?;
        put?;
        graph.launch(&self.stream)?;
        self.wait()?;
        let (begin, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        let mut replays_us = Vec::new();
        for _ in 0..REPLAYS {
            begin.record(&self.stream)?;
            graph.launch(&self.stream)?;
            end.record(&self.stream)?;
            self.wait()?;
            replays_us.push(end.seconds_since(&begin)? * 1e6 / f64::from(calls));
        }
        Ok(Timed { plan: prepared.name(), replays_us })
    }

    /// Nanoseconds of the CPU for a launch on the stream, and for one of an empty kernel: means of 1000
    /// launches each, none of which waits for more than a hundred.
    pub(crate) fn launch_ns(&mut self, request: &GpuRequest) -> Result<(Vec<f64>, Vec<f64>)> {
        let prepared = self.collectives.prepare(request, ALIGNMENT)?;
        let empty = Empty::new(&self.collectives)?;
        let (mut own_ns, mut empty_ns) = (Vec::new(), Vec::new());
        let slices = slices(&self.buffers);
        let (collectives, stream) = (&mut self.collectives, &self.stream);
        let mut own = || collectives.run(&prepared, &slices, stream);
        let mut bare = || empty.launch(stream);
        // The first ones only warm up.
        thousand_ns(&mut own, stream)?;
        thousand_ns(&mut bare, stream)?;
        for _ in 0..REPLAYS {
            own_ns.push(thousand_ns(&mut own, stream)?);
            empty_ns.push(thousand_ns(&mut bare, stream)?);
        }
        Ok((own_ns, empty_ns))
    }
}

/// Nanoseconds a launch, of a thousand; the stream is waited for after every hundred, which is not timed.
fn thousand_ns(
    launch: &mut impl FnMut() -> std::result::Result<(), GpuError>,
    stream: &Stream,
) -> Result<f64> {
    let mut spent = Duration::ZERO;
    for _ in 0..10 {
        let started = Instant::now();
        for _ in 0..100 {
            launch()?;
        }
        spent += started.elapsed();
        stream.synchronize()?;
    }
    Ok(spent.as_nanos() as f64 / 1000.0)
}

/// Every rank's input and output.
fn slices(buffers: &[(DeviceMemory, DeviceMemory)]) -> Vec<(DeviceSlice<'_>, DeviceSlice<'_>)> {
    let slice = |memory| DeviceSlice { memory, offset: 0 };
    buffers.iter().map(|(input, output)| (slice(input), slice(output))).collect()
}

/// A rank's input: small integers, whose sums are exact. Seen as
/// bfloat16 or float16, none of them is a NaN.
fn element(rank: u32, index: u64) -> f32 {
    ((index * (2 * u64::from(rank) + 3) + 97 * u64::from(rank)) % PERIOD) as f32
}

/// What is wrong with a range of a result, given in bytes.
fn wrong_sums(ranks: u32, output: &DeviceMemory, range: &Range<u64>) -> Result<Option<String>> {
    let mut found = vec![0; (range.end - range.start) as usize];
    output.read(range.start, &mut found)?;
    let sum = |index| (0..ranks).map(|rank| element(rank, index)).sum::<f32>();
    let mut wrong = (range.start / 4..).zip(found.as_chunks::<4>().0).filter_map(|(index, bytes)| {
        let (is, should) = (f32::from_le_bytes(*bytes), sum(index));
        (is.to_bits() != should.to_bits()).then_some((index, is, should))
    });
    Ok(wrong.next().map(|(index, is, should)| {
        format!(
            "{} elements from byte {} to {} are wrong, the first of them element {index}: {is} instead of {should}",
            1 + wrong.count(),
            range.start,
            range.end
        )
    }))
}
