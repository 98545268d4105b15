//! Averages tensors: each rank reads its own shard, a `.npy` or `.safetensors` file, all_reduces every
//! tensor in one group, and rank 0 writes the mean.
//!
//! `cargo run --release --example 03_average_tensors -- --ranks 4 shards/`
//!
//! Rank r reads the r-th file of the folder by name, so there must be as many files as ranks; without
//! `--ranks` there are as many ranks as files. Without a folder it averages the sample shards beside it
//! and only prints. A mistake in one rank's file ends all ranks, and each says whose file it was.

mod ranks;
mod tensors;

use ranks::{UNUSABLE, WORLD_FAILED, complain};
use ringsmith::{Communicator, Error, Op};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tensors::Tensor;

const USAGE: &str = "03_average_tensors [--ranks N] [--out FILE] [SHARDS]";
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/shards");
/// Exit status for shards that do not belong together.
const MISMATCH: u8 = 1;
/// Longest list of tensors that ranks compare: what `all_gather_info` takes.
const MAX_LIST_BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    match Job::from_arguments() {
        Ok(job) => {
            // A folder that cannot be read is for the ranks to report: one of them is enough for it.
            let files = tensors::shards(&job.folder).map_or(0, |files| files.len());
            let default = u32::try_from(files.max(1)).unwrap_or(u32::MAX);
            ranks::run(job.ranks, default, |comm| average(comm, &job))
        }
        Err(mistake) => ranks::usage(USAGE, &mistake),
    }
}

/// What is asked for.
struct Job {
    ranks: Option<u32>,
    folder: PathBuf,
    /// Where the mean goes, if it was said.
    out: Option<PathBuf>,
    is_sample: bool,
}

impl Job {
    fn from_arguments() -> Result<Self, String> {
        let (ranks, others) = ranks::arguments()?;
        let (mut folder, mut out) = (None, None);
        let mut others = others.into_iter();
        while let Some(argument) = others.next() {
            if argument == "--out" {
                let path = PathBuf::from(others.next().ok_or("--out needs a file")?);
                if !matches!(tensors::ending(&path), "npy" | "safetensors") {
                    return Err(format!("--out {}: must end with .npy or .safetensors", path.display()));
                }
                out = Some(path);
            } else if argument.to_string_lossy().starts_with('-') || folder.is_some() {
                return Err(format!("{argument:?} is not understood"));
            } else {
                folder = Some(PathBuf::from(argument));
            }
        }
        let is_sample = folder.is_none();
        Ok(Self { ranks, folder: folder.unwrap_or_else(|| SAMPLE.into()), out, is_sample })
    }

    /// Where the mean of such a shard goes.
    fn out(&self, shard: &Path) -> Option<PathBuf> {
        let beside = || (!self.is_sample).then(|| format!("mean.{}", tensors::ending(shard)).into());
        self.out.clone().or_else(beside)
    }
}

/// What a rank tells the others about its shard.
#[derive(Serialize, Deserialize)]
enum Report {
    /// Its file, and name and description of every tensor.
    Tensors(String, Vec<(String, String)>),
    /// Why it has none.
    Failed(String),
}

/// One rank's work. Returns the exit status, which is the same on all.
fn average(comm: &Communicator, job: &Job) -> Result<u8, Error> {
    let shard = read_shard(comm, &job.folder);
    if let Some(status) = compare(comm, &shard)? {
        return Ok(status);
    }
    let (file, mut tensors) = shard.expect("a rank without a shard is told by compare");
    // One group: everything is checked before anything moves.
    comm.group(|group| {
        for tensor in &mut tensors {
            tensor.values.all_reduce(group, Op::Avg);
        }
    })?;
    let outcome = match comm.rank() {
        0 => finish(comm, job.out(&file).as_deref(), &tensors),
        _ => Ok(()),
    };
    tell(comm, outcome)
}

/// The shard that is this rank's.
fn read_shard(comm: &Communicator, folder: &Path) -> Result<(PathBuf, Vec<Tensor>), String> {
    let files = tensors::shards(folder)?;
    if files.len() != comm.world() as usize {
        let (found, world) = (files.len(), comm.world());
        return Err(format!(
            "{}: {found} {} for {world} ranks; there must be one each",
            folder.display(),
            if found == 1 { "shard" } else { "shards" }
        ));
    }
    let file = files.into_iter().nth(comm.rank() as usize).expect("there is one for each rank");
    tensors::read(&file).map(|tensors| (file, tensors))
}

/// Compares all shards, so that every rank comes to the same end. Returns the status if that is now.
fn compare(comm: &Communicator, shard: &Result<(PathBuf, Vec<Tensor>), String>) -> Result<Option<u8>, Error> {
    let report = match shard {
        Ok((file, tensors)) => {
            let rows = tensors.iter().map(|tensor| (tensor.name.clone(), tensor.describe())).collect();
            Report::Tensors(file.display().to_string(), rows)
        }
        Err(what) => Report::Failed(what.clone()),
    };
    let encode = |report: &Report| serde_json::to_vec(report).expect("a report has a JSON form");
    let mut bytes = encode(&report);
    if bytes.len() > MAX_LIST_BYTES {
        bytes = encode(&Report::Failed("the list of its tensors is longer than a MiB".to_owned()));
    }
    let (mut lists, mut failures) = (Vec::new(), Vec::new());
    for (rank, bytes) in comm.all_gather_info("shards", &bytes)?.iter().enumerate() {
        match serde_json::from_slice(bytes).expect("ranks of one program send reports") {
            Report::Tensors(file, rows) => lists.push((rank, file, rows)),
            Report::Failed(what) => failures.push((rank, what)),
        }
    }
    if let Some((rank, what)) = failures.first() {
        let more = match failures.len() {
            1 => String::new(),
            2 => " (and 1 more rank failed)".to_owned(),
            count => format!(" (and {} more ranks failed)", count - 1),
        };
        complain(&format_args!("rank {} stops: rank {rank}: {what}{more}", comm.rank()));
        return Ok(Some(UNUSABLE));
    }
    let ((_, first_file, first), others) = lists.split_first().expect("there is a rank");
    for (rank, file, rows) in others {
        if let Some((name, here, there)) = difference(rows, first) {
            complain(&format_args!(
                "rank {} stops: tensor {name:?} is {here} on rank {rank} ({file}), and {there} on rank 0 ({first_file})",
                comm.rank()
            ));
            return Ok(Some(MISMATCH));
        }
    }
    Ok(None)
}

/// The first tensor in which two lists differ, and what it is in each.
fn difference<'a>(
    here: &'a [(String, String)],
    there: &'a [(String, String)],
) -> Option<(&'a str, &'a str, &'a str)> {
    let find = |rows: &'a [(String, String)], name: &str| {
        rows.binary_search_by(|(found, _)| found.as_str().cmp(name))
            .map_or("missing", |at| rows[at].1.as_str())
    };
    let names = there.iter().chain(here).map(|(name, _)| name.as_str());
    names.map(|name| (name, find(here, name), find(there, name))).find(|(_, here, there)| here != there)
}

/// Rank 0's part: prints the mean and writes it.
///
/// Errors: the exit status, and why.
fn finish(comm: &Communicator, out: Option<&Path>, tensors: &[Tensor]) -> Result<(), (u8, String)> {
    if let Some(out) = out {
        let bytes = tensors::encode(out, tensors).map_err(|what| (UNUSABLE, what))?;
        tensors::store(out, &bytes).map_err(|what| (WORLD_FAILED, what))?;
    }
    println!("mean of {} shards", comm.world());
    for tensor in tensors {
        println!("  {:?}  {}  {}", tensor.name, tensor.describe(), tensor.values);
    }
    if let Some(out) = out {
        println!("written to {}", out.display());
    }
    Ok(())
}

/// Tells every rank how rank 0's part went. Returns the exit status.
fn tell(comm: &Communicator, outcome: Result<(), (u8, String)>) -> Result<u8, Error> {
    let (status, what) = outcome.err().unwrap_or_default();
    let told = [&[status], what.as_bytes()].concat();
    let all = comm.all_gather_info("mean", &told[..told.len().min(MAX_LIST_BYTES)])?;
    let (status, what) = all[0].split_first().expect("rank 0 sends a status");
    if *status != 0 {
        let what = String::from_utf8_lossy(what);
        complain(&format_args!("rank {} stops: rank 0: {what}", comm.rank()));
    }
    Ok(*status)
}
