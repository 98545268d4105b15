//! all_reduce between local processes, beside OpenMPI and gloo in the same run.
//!
//! float32 sums, 8 B to 64 MB, out of place. Every round times each competitor once, one after the other,
//! and the table shows medians over the rounds. Beside them stands what adding two buffers of the same
//! size takes when as many threads as there are ranks do it at once: no all_reduce of out-of-cache data
//! can be much faster.
//!
//! ```text
//! RINGSMITH_BENCH_MPI=/usr/bin                    folder of mpirun and mpicc
//! RINGSMITH_BENCH_GLOO=gloo/build/gloo/benchmark  folder of gloo's `benchmark`
//! RINGSMITH_BENCH_JSON=all_reduce.json            where the figures go
//! cargo bench --bench all_reduce [-- --rounds N --ranks 2,4]
//! ```
//! A competitor whose folder is not given is left out by name.

mod peers;

use peers::{Add, Competitor, Gloo, Mpi, Ours};
use std::fmt::Write as _;
use std::process::ExitCode;

const SIZES: [u64; 10] = [8, 64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// What is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Processes.
    pub(crate) ranks: u32,
    /// Bytes of the buffer.
    pub(crate) bytes: u64,
    /// Timed calls.
    pub(crate) calls: u64,
}

impl Load {
    fn new(ranks: u32, bytes: u64) -> Self {
        let calls: u64 = match bytes {
            0..=8_192 => 20_000,
            8_193..=262_144 => 2_000,
            262_145..=1_048_576 => 500,
            1_048_577..=4_194_304 => 100,
            4_194_305..=16_777_216 => 20,
            _ => 8,
        };
        // More ranks than cores take turns, at some microseconds each.
        Self { ranks, bytes, calls: if ranks > 2 { calls.div_ceil(4) } else { calls } }
    }

    /// Calls before the timed ones.
    pub(crate) fn warm_up(&self) -> u64 {
        self.calls / 10 + 2
    }
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let mut json = String::new();
    for &ranks in &options.ranks {
        match table(ranks, options.rounds, &mut json) {
            Ok(text) => println!("{text}"),
            Err(message) => {
                eprintln!("{message}");
                return ExitCode::from(3);
            }
        }
    }
    if let Ok(path) = std::env::var("RINGSMITH_BENCH_JSON")
        && let Err(error) = std::fs::write(&path, json)
    {
        eprintln!("{path}: {error}");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}

struct Options {
    rounds: usize,
    ranks: Vec<u32>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { rounds: 7, ranks: vec![2, 4] };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            let number = |text: &str| {
                text.parse::<u32>().ok().filter(|n| *n > 0).ok_or_else(|| format!("{text} is no count"))
            };
            match argument.as_str() {
                "--rounds" => options.rounds = number(&value()?)? as usize,
                "--ranks" => options.ranks = value()?.split(',').map(number).collect::<Result<_, _>>()?,
                // What `cargo bench` passes to every benchmark.
                "--bench" => {}
                other => {
                    return Err(format!("unknown argument {other}; there are --rounds N and --ranks N,N"));
                }
            }
        }
        Ok(options)
    }
}

/// Times everybody at every size and draws the table.
fn table(ranks: u32, rounds: usize, json: &mut String) -> Result<String, String> {
    let competitors: Vec<Box<dyn Competitor>> =
        vec![Box::new(Ours), Box::new(Mpi::find()?), Box::new(Gloo::find()), Box::new(Add)];
    let mut times = vec![vec![Vec::new(); SIZES.len()]; competitors.len()];
    for round in 0..rounds {
        for (size, &bytes) in SIZES.iter().enumerate() {
            for (who, competitor) in competitors.iter().enumerate() {
                if let Some(us) = competitor.time_us(Load::new(ranks, bytes))? {
                    times[who][size].push(us);
                }
            }
        }
        eprintln!("{ranks} ranks: round {} of {rounds}", round + 1);
    }
    let cell = |who: usize, size: usize| median(&times[who][size]);
    let mut text = format!(
        "all_reduce, float32 sum, {ranks} processes, medians of {rounds} rounds in us (least to most)\n"
    );
    let _ = write!(text, "{:>10}", "bytes");
    for competitor in &competitors {
        let _ = write!(text, "{:>32}", competitor.name());
    }
    let _ = writeln!(text, "{:>16}{:>12}", "best peer/ours", "ours/add");
    for (size, bytes) in SIZES.iter().enumerate() {
        let _ = write!(text, "{bytes:>10}");
        for own in &times {
            let _ = write!(text, "{:>32}", show(&own[size]));
        }
        let ours = cell(0, size).ok_or("Ringsmith's own time is missing")?;
        let best = [cell(1, size), cell(2, size)].into_iter().flatten().reduce(f64::min);
        let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
        let _ = writeln!(
            text,
            "{:>16}{:>12}",
            ratio(best.map(|b| b / ours)),
            ratio(cell(3, size).map(|a| ours / a))
        );
        for (who, competitor) in competitors.iter().enumerate() {
            if let Some(us) = cell(who, size) {
                let _ = writeln!(
                    json,
                    "{{\"who\":\"{}\",\"ranks\":{ranks},\"bytes\":{bytes},\"median_us\":{us:.3},\"runs\":{:?}}}",
                    competitor.name(),
                    times[who][size]
                );
            }
        }
    }
    Ok(text)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn show(values: &[f64]) -> String {
    let Some(middle) = median(values) else { return "-".to_owned() };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{middle:.2} ({least:.2} to {most:.2})")
}
