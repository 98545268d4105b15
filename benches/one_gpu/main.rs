//! Generated kernels with all ranks on one GPU, beside kernels that were written by hand, in the same run.
//!
//! float32 sum all_reduce of two ranks on one communicator that is never reset, sizes in random order, calls
//! timed as replayed CUDA graphs. Each round runs the hand-written program once, whose best kernel of each
//! size counts, then ours with the planner's choice. Then, of ours alone: other collectives, other types,
//! eight ranks, and what a launch costs the CPU.
//!
//! ```text
//! RINGSMITH_BENCH_HANDWRITTEN=handwritten  a program that prints {"kernel":..,"bytes":..,"us":..} lines
//! RINGSMITH_BENCH_JSON=one_gpu.json        where the figures go
//! RINGSMITH_BENCH_SEED=1                   repeats an order of sizes
//! cargo bench --bench one_gpu
//! ```
//! Without a GPU, and for a peer that is not given, it says so and skips.

use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::device::cuda::{
    Collectives, CudaError, Device, DeviceMemory, DeviceSlice, Empty, Event, GpuError, GpuRanks, GpuRequest,
    Prepared, Stream,
};
use ringsmith_runtime::jit::Jit;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const ROUNDS: usize = 7;
const SIZES: [u64; 12] = [
    8,
    1 << 10,
    8 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
    1 << 30,
];
/// How the buffers of every rank start.
const ALIGNMENT: u64 = 256;
/// Bytes of the pattern that inputs repeat.
const PATTERN: usize = 4 << 20;

type Result<T> = std::result::Result<T, GpuError>;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(GpuError::Cuda(error @ (CudaError::Missing | CudaError::NoDevice { .. }))) => {
            println!("skipped: {error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(3)
        }
    }
}

fn run() -> Result<ExitCode> {
    let device = Device::open(0)?;
    let seed =
        std::env::var("RINGSMITH_BENCH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
        });
    let jit = Arc::new(Jit::new(&Config::default()));
    println!("{}, RINGSMITH_BENCH_SEED={seed}", device.name()?);
    let started = Instant::now();
    let mut pair = Ranks::new(&device, 2, Arc::clone(&jit))?;
    let made_s = started.elapsed().as_secs_f64();
    let request = all_reduce(8, DataType::Float32);
    let started = Instant::now();
    pair.once(&request)?;
    let first_s = started.elapsed().as_secs_f64();

    let mut by_hand: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut ours: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut other_lines = Vec::new();
    let mut random = seed;
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        let (times, others) = handwritten();
        times.into_iter().for_each(|(bytes, us)| by_hand.entry(bytes).or_default().push(us));
        other_lines = others;
        let mut order = SIZES;
        shuffle(&mut order, &mut random);
        for bytes in order {
            let request = all_reduce(bytes, DataType::Float32);
            if round == 1 && !pair.is_right(&request)? {
                println!("wrong sums at {bytes} bytes");
                return Ok(ExitCode::FAILURE);
            }
            ours.entry(bytes).or_default().push(pair.graph_us(&request)?);
        }
    }
    println!("all_reduce, float32 sum, 2 ranks on one GPU, medians of {ROUNDS} rounds in us (least to most)");
    println!("{:>11} {:>28} {:>28} {:>7}  plan", "bytes", "by hand", "generated", "ratio");
    let mut rows = Vec::new();
    for (bytes, times) in &ours {
        let hand = by_hand.get(bytes);
        let ratio = hand.map(|hand| median(times) / median(hand));
        let plan = pair.name(&all_reduce(*bytes, DataType::Float32))?;
        println!(
            "{bytes:>11} {:>28} {:>28} {:>7}  {plan}",
            hand.map_or_else(String::new, |hand| spread(hand)),
            spread(times),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"))
        );
        rows.push(json!({"bytes": bytes, "by_hand_us": hand, "us": times, "ratio": ratio, "plan": plan}));
    }

    let mut others = Vec::new();
    println!("\nother collectives and types, us");
    use Collective::{AllGather, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    for collective in [AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Gather, Scatter] {
        for bytes in SIZES {
            others.push(pair.other(&Ranks::request(collective, DataType::Float32, bytes, 2))?);
        }
    }
    for dtype in [DataType::Bfloat16, DataType::Float16, DataType::Float8E4M3] {
        for bytes in [1 << 20, 16 << 20, 256 << 20] {
            others.push(pair.other(&all_reduce(bytes, dtype))?);
        }
    }
    let launch = pair.launch_ns()?;
    drop(pair);
    let mut eight = Ranks::new(&device, 8, jit)?;
    for bytes in [8, 64 << 10, 1 << 20, 64 << 20] {
        others.push(eight.other(&all_reduce(bytes, DataType::Float32))?);
    }
    println!(
        "\nCPU time of a stream launch: {:.0} ns; of an empty kernel's: {:.0} ns\n\
         making a communicator: {made_s:.3} s; its first call: {first_s:.3} s",
        launch.0, launch.1
    );
    for line in &other_lines {
        println!("by hand: {line}");
    }
    if let Ok(path) = std::env::var("RINGSMITH_BENCH_JSON") {
        let all = json!({
            "gpu": device.name()?, "seed": seed, "all_reduce": rows, "others": others,
            "launch_ns": launch.0, "empty_launch_ns": launch.1, "make_s": made_s, "first_call_s": first_s,
            "by_hand_others": other_lines,
        });
        if let Err(error) = std::fs::write(&path, format!("{all:#}\n")) {
            eprintln!("{path}: {error}");
            return Ok(ExitCode::from(3));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Ranks on a GPU, with buffers.
struct Ranks {
    device: Arc<Device>,
    ranks: u32,
    collectives: Collectives,
    stream: Stream,
    buffers: Vec<(DeviceMemory, DeviceMemory)>,
}

impl Ranks {
    fn new(device: &Arc<Device>, ranks: u32, jit: Arc<Jit>) -> Result<Self> {
        let collectives = Collectives::new(GpuRanks::one_gpu(device, ranks)?, jit)?;
        let bytes = if ranks == 2 { SIZES[SIZES.len() - 1] } else { 64 << 20 };
        let mut buffers = Vec::new();
        for rank in 0..ranks {
            let input = DeviceMemory::new(device, bytes)?;
            let pattern: Vec<u8> = (0..PATTERN / 4).flat_map(|i| element(rank, i).to_le_bytes()).collect();
            for at in (0..bytes).step_by(PATTERN) {
                input.write(at, &pattern)?;
            }
            buffers.push((input, DeviceMemory::new(device, bytes)?));
        }
        let (device, stream) = (Arc::clone(device), Stream::new(device)?);
        Ok(Self { device, ranks, collectives, stream, buffers })
    }

    /// A collective whose larger side has `bytes`.
    fn request(collective: Collective, dtype: DataType, bytes: u64, ranks: u32) -> GpuRequest {
        let parts = if collective.blocked() { u64::from(ranks) } else { 1 };
        GpuRequest {
            collective,
            dtype,
            op: collective.reduces().then_some(ReduceOp::Sum),
            scalar_bits: 0,
            root: collective.rooted().then_some(0),
            count: bytes / parts / dtype.size_bytes() as u64,
        }
    }

    fn put(&mut self, prepared: &Prepared) -> Result<()> {
        put(&mut self.collectives, &self.buffers, prepared, &self.stream)
    }

    fn once(&mut self, request: &GpuRequest) -> Result<()> {
        let prepared = self.collectives.prepare(request, ALIGNMENT)?;
        self.put(&prepared)?;
        Ok(self.stream.synchronize()?)
    }

    fn name(&mut self, request: &GpuRequest) -> Result<String> {
        Ok(self.collectives.prepare(request, ALIGNMENT)?.name())
    }

    /// Whether a sum's first and last four MiB are what they should be, on every rank.
    fn is_right(&mut self, request: &GpuRequest) -> Result<bool> {
        let bytes = request.count * 4;
        for (_, output) in &self.buffers {
            output.fill(0, bytes, 0xee)?;
        }
        self.once(request)?;
        let look = bytes.min(PATTERN as u64);
        let mut found = vec![0; look as usize];
        for (_, output) in &self.buffers {
            for start in [0, bytes - look] {
                output.read(start, &mut found)?;
                let right = found.chunks_exact(4).enumerate().all(|(i, word)| {
                    let at = (start as usize / 4 + i) % (PATTERN / 4);
                    let sum: f32 = (0..self.ranks).map(|rank| element(rank, at)).sum();
                    word == sum.to_le_bytes()
                });
                if !right {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Microseconds of a call: the median replay of a graph that holds several.
    fn graph_us(&mut self, request: &GpuRequest) -> Result<f64> {
        let prepared = self.collectives.prepare(request, ALIGNMENT)?;
        let bytes = request.count * request.dtype.size_bytes() as u64;
        let calls = match bytes {
            0..=0x10_0000 => 20,
            0x10_0001..=0x400_0000 => 5,
            _ => 2,
        };
        let (collectives, buffers) = (&mut self.collectives, &self.buffers);
        let mut put_all = Ok(());
        let graph = self.stream.capture(|stream| {
            put_all = (0..calls).try_for_each(|_| put(collectives, buffers, &prepared, stream));
            Ok(())
        })?;
        put_all?;
        let (begin, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        let mut times = Vec::new();
        for replay in 0..8 {
            begin.record(&self.stream)?;
            graph.launch(&self.stream)?;
            end.record(&self.stream)?;
            self.stream.synchronize()?;
            if replay > 0 {
                times.push(end.seconds_since(&begin)? * 1e6 / f64::from(calls));
            }
        }
        Ok(median(&times))
    }

    /// Measures and prints one call.
    fn other(&mut self, request: &GpuRequest) -> Result<Value> {
        let (us, plan) = (self.graph_us(request)?, self.name(request)?);
        let parts = if request.collective.blocked() { u64::from(self.ranks) } else { 1 };
        let bytes = request.count * parts * request.dtype.size_bytes() as u64;
        let (collective, dtype, ranks) = (request.collective.name(), request.dtype.name(), self.ranks);
        println!("{collective:>15} {dtype:>11} {ranks} ranks {bytes:>11} {us:>9.2}  {plan}");
        Ok(json!({
            "collective": collective, "dtype": dtype, "ranks": ranks, "bytes": bytes, "us": us, "plan": plan
        }))
    }

    /// Nanoseconds of the CPU for a launch of 8 bytes, and for one of an empty kernel.
    fn launch_ns(&mut self) -> Result<(f64, f64)> {
        let prepared = self.collectives.prepare(&all_reduce(8, DataType::Float32), ALIGNMENT)?;
        let empty = Empty::new(&self.collectives)?;
        let (mut own, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS * 10 {
            let started = Instant::now();
            for _ in 0..100 {
                self.put(&prepared)?;
            }
            own.push(started.elapsed().as_secs_f64() * 1e7);
            self.stream.synchronize()?;
            let started = Instant::now();
            for _ in 0..100 {
                empty.launch(&self.stream)?;
            }
            bare.push(started.elapsed().as_secs_f64() * 1e7);
            self.stream.synchronize()?;
        }
        Ok((median(&own), median(&bare)))
    }
}

fn put(
    collectives: &mut Collectives,
    buffers: &[(DeviceMemory, DeviceMemory)],
    prepared: &Prepared,
    stream: &Stream,
) -> Result<()> {
    let slice = |memory| DeviceSlice { memory, offset: 0 };
    let slices: Vec<_> = buffers.iter().map(|(input, output)| (slice(input), slice(output))).collect();
    collectives.run(prepared, &slices, stream)
}

fn all_reduce(bytes: u64, dtype: DataType) -> GpuRequest {
    Ranks::request(Collective::AllReduce, dtype, bytes, 2)
}

/// Sums of these are exact.
fn element(rank: u32, index: usize) -> f32 {
    ((index * 2_654_435_761 + rank as usize * 97) % 1009) as f32 * 0.25
}

/// The hand-written program's best time of each size, and its other lines.
fn handwritten() -> (BTreeMap<u64, f64>, Vec<Value>) {
    let Ok(program) = std::env::var("RINGSMITH_BENCH_HANDWRITTEN") else {
        eprintln!("the hand-written kernels are left out: RINGSMITH_BENCH_HANDWRITTEN is not set");
        return (BTreeMap::new(), Vec::new());
    };
    let printed = match Command::new(&program).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => {
            eprintln!("the hand-written kernels are left out: {program}: {error}");
            String::new()
        }
    };
    let (mut best, mut others) = (BTreeMap::new(), Vec::new());
    for line in printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        match (line["bytes"].as_u64(), line["us"].as_f64()) {
            (Some(bytes), Some(us)) => {
                let known = best.entry(bytes).or_insert(us);
                *known = us.min(*known);
            }
            _ => others.push(line),
        }
    }
    (best, others)
}

/// Fisher-Yates, with splitmix64.
fn shuffle(order: &mut [u64], state: &mut u64) {
    for last in (1..order.len()).rev() {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        order.swap(last, ((z ^ (z >> 31)) % (last as u64 + 1)) as usize);
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({least:.2} to {most:.2})", median(values))
}
