//! Generated kernels with all ranks on one GPU, beside kernels that were written by hand, in the same run.
//!
//! float32 sum all_reduce of two ranks, out of place, on one communicator that is never reset, sizes in
//! random order, calls timed as replayed CUDA graphs. Each round runs the hand-written program once, whose
//! best kernel of each size counts, then ours with the planner's choice of plan and blocks. Then, of ours
//! alone: other collectives, other types, eight ranks, and what a launch costs the CPU.
//!
//! ```text
//! RINGSMITH_BENCH_HANDWRITTEN=handwritten  a program that prints {"kernel":..,"bytes":..,"us":..} lines
//! RINGSMITH_BENCH_JSON=one_gpu.json        where the figures go, as --json
//! cargo bench --bench one_gpu [-- --rounds N --seed N --json FILE]
//! ```
//! Settings of Ringsmith count, such as where NVRTC is. A program that is not given is left out by name, and
//! without a driver or a GPU all of it is skipped. Statuses: 1 wrong elements, 2 wrong arguments, 3 a failing
//! GPU or program.

mod handwritten;
mod ranks;

use handwritten::Handwritten;
use ranks::{Ranks, Timed};
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::device::cuda::{CudaError, Device, GpuError, GpuRequest};
use ringsmith_runtime::jit::Jit;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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
const EIGHT_RANKS_SIZES: [u64; 4] = [8, 64 << 10, 1 << 20, 64 << 20];
const TYPES_SIZES: [u64; 3] = [1 << 20, 16 << 20, 256 << 20];

/// Why a run ends before its end.
enum Stop {
    /// There is nothing to measure with.
    Skipped(CudaError),
    /// A result is wrong.
    Wrong(String),
    /// The arguments or settings are.
    Misused(String),
    /// No plan fits a call.
    Unfit(String),
    /// The GPU, or the hand-written program.
    Failed(String),
}

type Result<T> = std::result::Result<T, Stop>;

impl From<GpuError> for Stop {
    fn from(error: GpuError) -> Self {
        let text = error.to_string();
        if error.is_misuse() { Self::Unfit(text) } else { Self::Failed(text) }
    }
}

impl From<CudaError> for Stop {
    fn from(error: CudaError) -> Self {
        Self::Failed(error.to_string())
    }
}

fn main() -> ExitCode {
    let (text, status) = match run() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Stop::Skipped(reason)) => {
            println!("one_gpu is skipped: {reason}");
            return ExitCode::SUCCESS;
        }
        Err(Stop::Wrong(text)) => (text, 1),
        Err(Stop::Misused(text)) => (text, 2),
        Err(Stop::Unfit(text) | Stop::Failed(text)) => (text, 3),
    };
    eprintln!("{text}");
    ExitCode::from(status)
}

struct Options {
    rounds: usize,
    seed: u64,
    json: Option<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> std::result::Result<Self, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut options = Self {
            rounds: 7,
            seed: now.map_or(1, |since| since.as_nanos() as u64),
            json: std::env::var("RINGSMITH_BENCH_JSON").ok(),
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
            match argument.as_str() {
                "--rounds" => options.rounds = number(value()?)?.max(1) as usize,
                "--seed" => options.seed = number(value()?)?,
                "--json" => options.json = Some(value()?),
                // What `cargo bench` passes to every benchmark.
                "--bench" => {}
                other => {
                    return Err(format!(
                        "unknown argument {other}; there are --rounds N, --seed N and --json FILE"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// The settings, without the variables of benchmarks.
fn config() -> Result<Config> {
    let vars = std::env::vars().filter(|(name, _)| !name.starts_with("RINGSMITH_BENCH_"));
    let (config, warnings) = Config::from_vars(vars).map_err(|e| Stop::Misused(e.to_string()))?;
    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    Ok(config)
}

/// Opens the GPU; whatever says that there is none is no failure.
fn open() -> Result<Arc<Device>> {
    match Device::open(0) {
        Ok(device) => Ok(device),
        Err(error @ (CudaError::Missing | CudaError::NoDevice { .. })) => Err(Stop::Skipped(error)),
        // A driver that finds no GPU says so when it starts.
        Err(error @ CudaError::Call { .. }) if error.to_string().contains("CUDA_ERROR_NO_DEVICE") => {
            Err(Stop::Skipped(error))
        }
        Err(error) => Err(error.into()),
    }
}

fn run() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1)).map_err(Stop::Misused)?;
    let config = config()?;
    let device = open()?;
    let handwritten = Handwritten::find();
    // Made first: minutes of measuring should not end with a folder that is not there.
    let file = match &options.json {
        Some(path) => Some(File::create(path).map_err(|e| Stop::Misused(format!("{path}: {e}")))?),
        None => None,
    };
    let mut figures = Map::new();
    let outcome = measure(&options, &config, &device, &handwritten, &mut figures);
    // What was measured before a failure is kept.
    if let Some(mut file) = file {
        let written = writeln!(file, "{:#}", Value::Object(figures));
        written.map_err(|e| Stop::Failed(format!("{}: {e}", options.json.unwrap_or_default())))?;
    }
    outcome
}

fn measure(
    options: &Options,
    config: &Config,
    device: &Arc<Device>,
    handwritten: &Handwritten,
    figures: &mut Map<String, Value>,
) -> Result<()> {
    let jit = Arc::new(Jit::new(config));
    let nvrtc = jit.nvrtc().map_or_else(|_| "none".to_owned(), |nvrtc| nvrtc.version().to_string());
    let (name, seed) = (device.name()?, options.seed);
    println!("{name}, NVRTC {nvrtc}, --seed {seed}");
    figures.insert("gpu".into(), json!(name));
    figures.insert("nvrtc".into(), json!(nvrtc));
    figures.insert("seed".into(), json!(seed));
    figures.insert("rounds".into(), json!(options.rounds));

    let started = Instant::now();
    let collectives = Ranks::communicator(device, 2, &jit)?;
    let make_s = started.elapsed().as_secs_f64();
    let mut pair = Ranks::new(device, collectives, SIZES[SIZES.len() - 1])?;
    let started = Instant::now();
    pair.once(&all_reduce(8, DataType::Float32))?;
    let first_call_s = started.elapsed().as_secs_f64();
    println!("making a communicator: {make_s:.4} s; its first all_reduce of 8 bytes: {first_call_s:.4} s");
    figures.insert("make_s".into(), json!(make_s));
    figures.insert("first_call_s".into(), json!(first_call_s));

    beside(options, handwritten, &mut pair, figures)?;
    let mut others = Vec::new();
    let outcome = alone(device, &jit, pair, figures, &mut others);
    figures.insert("others".into(), Value::Array(others));
    outcome
}

/// The rounds of all_reduce beside the hand-written program, and their table.
fn beside(
    options: &Options,
    handwritten: &Handwritten,
    pair: &mut Ranks,
    figures: &mut Map<String, Value>,
) -> Result<()> {
    let mut by_hand: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut ours: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut plans: BTreeMap<u64, String> = BTreeMap::new();
    let mut last = handwritten::Figures::default();
    let mut random = options.seed;
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        last = handwritten.run().map_err(Stop::Failed)?;
        for (bytes, best) in &last.best {
            by_hand.entry(*bytes).or_default().push(best.us);
        }
        let mut order = SIZES;
        shuffle(&mut order, &mut random);
        let requests = order.map(|bytes| (bytes, all_reduce(bytes, DataType::Float32)));
        if round == 1 {
            requests.iter().try_for_each(|(_, request)| pair.check(request))?;
        }
        for (bytes, request) in requests {
            let timed = pair.time(&request)?;
            ours.entry(bytes).or_default().push(timed.us());
            plans.insert(bytes, timed.plan);
        }
    }
    println!(
        "\nall_reduce, float32 sum, 2 ranks on one GPU, medians of {} rounds in us (least to most)",
        options.rounds
    );
    println!("{:>11} {:>28} {:>28} {:>9}  plan", "bytes", "by hand", "ours", "ours/hand");
    let mut rows = Vec::new();
    for (bytes, times) in &ours {
        let hand = by_hand.get(bytes);
        let ratio = hand.map(|hand| median(times) / median(hand));
        let plan = &plans[bytes];
        println!(
            "{bytes:>11} {:>28} {:>28} {:>9}  {plan}",
            hand.map_or_else(|| "-".to_owned(), |hand| spread(hand)),
            spread(times),
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"))
        );
        let kernel = last.best.get(bytes).map(|best| &best.kernel);
        rows.push(json!({
            "bytes": bytes, "by_hand_us": hand, "by_hand_kernel": kernel, "us": times, "ratio": ratio,
            "plan": plan,
        }));
    }
    last.others.iter().for_each(|line| println!("by hand: {line}"));
    figures.insert("all_reduce".into(), Value::Array(rows));
    figures.insert("by_hand_others".into(), Value::Array(last.others));
    Ok(())
}

/// What only ours is measured at.
fn alone(
    device: &Arc<Device>,
    jit: &Arc<Jit>,
    mut pair: Ranks,
    figures: &mut Map<String, Value>,
    others: &mut Vec<Value>,
) -> Result<()> {
    use Collective::{AllGather, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    println!("\nours alone, us");
    for collective in [AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Gather, Scatter] {
        for bytes in SIZES {
            others.push(row(&mut pair, &request(collective, DataType::Float32, bytes, 2))?);
        }
    }
    for dtype in [DataType::Bfloat16, DataType::Float16, DataType::Float8E4M3] {
        for bytes in TYPES_SIZES {
            others.push(row(&mut pair, &all_reduce(bytes, dtype))?);
        }
    }
    let (launch_ns, empty_launch_ns) = pair.launch_ns(&all_reduce(8, DataType::Float32))?;
    figures.insert("launch_ns".into(), json!(launch_ns));
    figures.insert("empty_launch_ns".into(), json!(empty_launch_ns));
    drop(pair);
    let most = EIGHT_RANKS_SIZES[EIGHT_RANKS_SIZES.len() - 1];
    let mut eight = Ranks::new(device, Ranks::communicator(device, 8, jit)?, most)?;
    for bytes in EIGHT_RANKS_SIZES {
        let request = all_reduce(bytes, DataType::Float32);
        eight.check(&request)?;
        others.push(row(&mut eight, &request)?);
    }
    println!(
        "\nCPU time of a launch on a stream, ns: all_reduce of 8 bytes {}; an empty kernel {}",
        spread(&launch_ns),
        spread(&empty_launch_ns)
    );
    Ok(())
}

/// Measures, prints and describes a call. That no plan fits one is no reason to leave the others out.
fn row(ranks: &mut Ranks, request: &GpuRequest) -> Result<Value> {
    let (collective, dtype) = (request.collective.name(), request.dtype.name());
    let (count, bytes) = (ranks.count(), ranks.bytes(request));
    let begin = format!("{collective:>15} {dtype:>11} {count} ranks {bytes:>11}");
    let mut row = json!({"collective": collective, "dtype": dtype, "ranks": count, "bytes": bytes});
    match ranks.time(request) {
        Ok(timed) => {
            let Timed { plan, replays_us } = &timed;
            println!("{begin} {:>28}  {plan}", spread(replays_us));
            row["us"] = json!(timed.us());
            row["replays_us"] = json!(replays_us);
            row["plan"] = json!(plan);
        }
        Err(Stop::Unfit(reason)) => {
            println!("{begin} {:>28}  {reason}", "-");
            row["error"] = json!(reason);
        }
        Err(stop) => return Err(stop),
    }
    Ok(row)
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
        is_apart: true,
    }
}

fn all_reduce(bytes: u64, dtype: DataType) -> GpuRequest {
    request(Collective::AllReduce, dtype, bytes, 2)
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
