//! Who is timed: Ringsmith's program, OpenMPI, gloo's benchmark, and a plain add.

use crate::Load;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::time::Instant;

/// Somebody who can be timed.
pub(crate) trait Competitor {
    /// Its name in the table.
    fn name(&self) -> &'static str;

    /// Microseconds per call of one run; none if it is not there.
    fn time_us(&self, load: Load) -> Result<Option<f64>, String>;
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("{command:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

fn field(line: &str, name: &str) -> Option<f64> {
    serde_json::from_str::<serde_json::Value>(line).ok()?.get(name)?.as_f64()
}

/// `ringsmith run`, as a user would.
pub(crate) struct Ours;

impl Competitor for Ours {
    fn name(&self) -> &'static str {
        "ringsmith"
    }

    fn time_us(&self, load: Load) -> Result<Option<f64>, String> {
        let bytes = load.bytes.to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringsmith"));
        command.args([
            "run",
            "all_reduce",
            "--json",
            "-c",
            "0",
            "--inplace",
            "no",
            "-b",
            &bytes,
            "-e",
            &bytes,
        ]);
        command.args(["-n", &load.calls.to_string(), "-w", &load.warm_up().to_string()]);
        command.args(["--ranks", &load.ranks.to_string()]);
        let text = run(&mut command)?;
        let time = text.lines().find_map(|line| field(line, "time_us"));
        time.map(Some).ok_or_else(|| format!("{command:?} printed no time:\n{text}"))
    }
}

/// `MPI_Allreduce` of the MPI in `RINGSMITH_BENCH_MPI`.
pub(crate) struct Mpi {
    program: Option<(PathBuf, PathBuf)>,
}

impl Mpi {
    /// Compiles the little program that calls it.
    pub(crate) fn find() -> Result<Self, String> {
        let Ok(folder) = std::env::var("RINGSMITH_BENCH_MPI") else {
            eprintln!("OpenMPI is left out: RINGSMITH_BENCH_MPI names no folder of mpirun and mpicc");
            return Ok(Self { program: None });
        };
        let folder = Path::new(&folder);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/all_reduce/mpi_all_reduce.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi_all_reduce");
        run(Command::new(folder.join("mpicc")).arg("-O3").arg(source).arg("-o").arg(&program))?;
        Ok(Self { program: Some((folder.join("mpirun"), program)) })
    }
}

impl Competitor for Mpi {
    fn name(&self) -> &'static str {
        "OpenMPI"
    }

    fn time_us(&self, load: Load) -> Result<Option<f64>, String> {
        let Some((mpirun, program)) = &self.program else { return Ok(None) };
        let mut command = Command::new(mpirun);
        command.args([
            "--oversubscribe",
            "--allow-run-as-root",
            "--bind-to",
            "none",
            "-np",
            &load.ranks.to_string(),
        ]);
        command.arg(program).args([load.bytes, load.calls, load.warm_up()].map(|n| n.to_string()));
        let text = run(&mut command)?;
        let time = text.lines().find_map(|line| field(line, "time_us"));
        time.map(Some).ok_or_else(|| format!("{command:?} printed no time:\n{text}"))
    }
}

/// The fastest of gloo's all_reduce algorithms, over TCP on loopback: gloo has no shared memory.
pub(crate) struct Gloo {
    program: Option<PathBuf>,
}

const GLOO_ALGORITHMS: [&str; 3] =
    ["allreduce_ring_chunked", "allreduce_halving_doubling", "new_allreduce_ring"];

impl Gloo {
    /// Looks for gloo's benchmark in `RINGSMITH_BENCH_GLOO`.
    pub(crate) fn find() -> Self {
        let program =
            std::env::var("RINGSMITH_BENCH_GLOO").ok().map(|folder| Path::new(&folder).join("benchmark"));
        if program.is_none() {
            eprintln!("gloo is left out: RINGSMITH_BENCH_GLOO names no folder of its `benchmark`");
        }
        Self { program }
    }

    fn time_algorithm_us(&self, program: &Path, algorithm: &str, load: Load) -> Result<f64, String> {
        let meeting = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gloo-{}", std::process::id()));
        std::fs::create_dir_all(&meeting).map_err(|e| format!("{}: {e}", meeting.display()))?;
        // A hundredth of the calls: a call of gloo takes some hundred times as long at small sizes.
        let calls = load.calls.div_ceil(100).max(8).to_string();
        let ranks: Vec<_> = (0..load.ranks)
            .map(|rank| {
                let mut command = Command::new(program);
                command.args(["--size", &load.ranks.to_string(), "--rank", &rank.to_string()]);
                command.arg("--shared-path").arg(&meeting).args(["--prefix", "bench", "--transport", "tcp"]);
                command.args(["--tcp-device", "lo", "--no-verify", "--nanos"]);
                command.args(["--elements", &(load.bytes / 4).to_string(), "--iteration-count", &calls]);
                command.args(["--warmup-iters", "3", algorithm]);
                command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
                command.spawn().map_err(|e| format!("{command:?}: {e}"))
            })
            .collect::<Result<_, _>>()?;
        let outputs: Vec<_> = ranks.into_iter().map(|child| child.wait_with_output()).collect();
        let _ = std::fs::remove_dir_all(&meeting);
        let first = outputs.into_iter().next().ok_or("no rank of gloo ran")?.map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&first.stdout).into_owned();
        // Columns: bytes, elements, min, p50, p99, max, average bandwidth, samples; times in ns.
        let mut row = text.lines().filter_map(|line| {
            let numbers: Option<Vec<f64>> = line.split_whitespace().map(|w| w.parse().ok()).collect();
            numbers.filter(|n| n.len() >= 6)
        });
        row.next_back().map(|n| n[3] / 1000.0).ok_or_else(|| {
            format!("gloo's {algorithm} printed no times:\n{text}{}", String::from_utf8_lossy(&first.stderr))
        })
    }
}

impl Competitor for Gloo {
    fn name(&self) -> &'static str {
        "gloo"
    }

    fn time_us(&self, load: Load) -> Result<Option<f64>, String> {
        let Some(program) = &self.program else { return Ok(None) };
        let mut best = f64::INFINITY;
        for algorithm in GLOO_ALGORITHMS {
            best = best.min(self.time_algorithm_us(program, algorithm, load)?);
        }
        Ok(Some(best))
    }
}

/// Adding two buffers into a third, by as many threads as there are ranks, each with its own.
pub(crate) struct Add;

impl Competitor for Add {
    fn name(&self) -> &'static str {
        "plain add"
    }

    fn time_us(&self, load: Load) -> Result<Option<f64>, String> {
        let barrier = Barrier::new(load.ranks as usize);
        let times = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..load.ranks).map(|_| scope.spawn(|| add_us(load, &barrier))).collect();
            threads
                .into_iter()
                .map(|t| t.join().map_err(|_| "an adding thread panicked".to_owned()))
                .collect::<Result<Vec<f64>, String>>()
        })?;
        Ok(Some(times.into_iter().fold(0.0, f64::max)))
    }
}

fn add_us(load: Load, barrier: &Barrier) -> f64 {
    let count = (load.bytes / 4) as usize;
    let (a, b) = (vec![1.0f32; count], vec![2.0f32; count]);
    let mut sum = vec![0.0f32; count];
    let mut add = || {
        for ((sum, a), b) in sum.iter_mut().zip(&a).zip(&b) {
            *sum = a + b;
        }
        std::hint::black_box(&sum);
    };
    (0..load.warm_up()).for_each(|_| add());
    barrier.wait();
    let started = Instant::now();
    (0..load.calls).for_each(|_| add());
    started.elapsed().as_secs_f64() * 1e6 / load.calls as f64
}
