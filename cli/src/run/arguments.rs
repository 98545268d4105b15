//! The command line of `run`, after nccl-tests where it has the same thing.

use super::child::Place;
use crate::arguments::{Parameters, Selection};
use crate::outcome::{Failure, Result};
use crate::values::{self, OneOrAll, Root};
use clap::{ArgAction, Args, ValueEnum};
use ringsmith_compiler::plan::MAX_RANKS;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use std::path::PathBuf;

/// Shown below the help of `run`.
pub(crate) const EXAMPLES: &str = "Examples:
  ringsmith run all_reduce --ranks 4
  ringsmith run all_gather --ranks 3 -b 1K -e 1M -f 2 -d bfloat16 --json
  ringsmith run all_reduce --schedule ring_all_reduce.sched --ranks 8
  mpirun -np 4 ringsmith run all_reduce
  ringsmith run all_reduce --ranks 8 --one-gpu
  ringsmith run broadcast --rank 0 --world 2 --root node0:4000 -r 1   # and --rank 1 on another host";

/// The most ranks that are started on one host. Ours: each is a process with several threads.
pub(crate) const MAX_LOCAL_RANKS: u32 = 512;
/// The most calls that are timed, or run before timing.
const MAX_ITERS: u64 = 1_000_000_000;

/// Arguments of `run`.
#[derive(Args, Debug)]
pub(crate) struct RunArguments {
    /// What the ranks compute together
    #[arg(value_parser = values::name::<Collective>())]
    pub(crate) collective: Collective,

    /// Smallest size of the larger side of the data
    #[arg(short = 'b', long, allow_hyphen_values = true, value_name = "SIZE", default_value = "8", value_parser = values::size)]
    pub(crate) min: u64,
    /// Largest size
    #[arg(short = 'e', long, allow_hyphen_values = true, value_name = "SIZE", default_value = "64M", value_parser = values::size)]
    pub(crate) max: u64,
    /// From one size to the next
    #[arg(short = 'f', long, allow_hyphen_values = true, value_name = "TIMES", default_value_t = 8, value_parser = values::whole(2, u64::MAX))]
    pub(crate) factor: u64,
    /// Calls that are timed together
    #[arg(short = 'n', long, allow_hyphen_values = true, default_value_t = 20, value_parser = values::whole(1, MAX_ITERS))]
    pub(crate) iters: u64,
    /// Calls before timing starts
    #[arg(short = 'w', long, allow_hyphen_values = true, default_value_t = 5, value_parser = values::whole(0, MAX_ITERS))]
    pub(crate) warmup: u64,
    /// Whether results are checked
    #[arg(short = 'c', long, allow_hyphen_values = true, value_name = "0|1", default_value = "1", action = ArgAction::Set, value_parser = zero_or_one)]
    pub(crate) check: bool,
    /// Element type
    #[arg(short = 'd', long, allow_hyphen_values = true, value_name = "TYPE|all", default_value = "float32", value_parser = values::name::<OneOrAll<DataType>>())]
    pub(crate) dtype: OneOrAll<DataType>,
    /// Reduction
    #[arg(short = 'o', long, allow_hyphen_values = true, value_name = "OP|all", default_value = "sum", value_parser = values::name::<OneOrAll<ReduceOp>>())]
    pub(crate) op: OneOrAll<ReduceOp>,
    /// Root of a rooted collective [default: 0]; with a colon in it, where the ranks of several hosts meet. May be given once for each
    #[arg(short = 'r', long, allow_hyphen_values = true, value_name = "R|all|HOST:PORT", action = ArgAction::Append)]
    pub(crate) root: Vec<Root>,
    /// Whether input and output share memory
    #[arg(long, allow_hyphen_values = true, value_enum, default_value_t = InPlace::Both)]
    pub(crate) inplace: InPlace,

    /// Local processes to start [default: 2, what the launcher started, or what the schedule is for]
    #[arg(long, allow_hyphen_values = true, value_parser = values::whole(1, MAX_LOCAL_RANKS), conflicts_with_all = ["rank", "world"])]
    pub(crate) ranks: Option<u32>,
    /// Which rank this process is, where several hosts take part without a launcher
    #[arg(long, allow_hyphen_values = true, value_name = "R", requires = "world", value_parser = values::whole(0, MAX_RANKS - 1))]
    pub(crate) rank: Option<u32>,
    /// How many ranks there are on all hosts together
    #[arg(long, allow_hyphen_values = true, value_name = "N", requires = "rank", value_parser = values::whole(1, MAX_RANKS))]
    pub(crate) world: Option<u32>,
    /// File on a shared file system through which rank 0 passes the job's id to the others
    #[arg(long, allow_negative_numbers = true, value_name = "FILE", requires = "rank")]
    pub(crate) id_file: Option<PathBuf>,

    /// Where the data lies
    #[arg(long, allow_hyphen_values = true, value_enum, default_value_t = Device::Auto)]
    pub(crate) device: Device,
    /// Puts all ranks on the first GPU, in this process
    #[arg(long, conflicts_with_all = ["rank", "world", "transport", "timeout"])]
    pub(crate) one_gpu: bool,
    /// How ranks of one host talk [default: shm]
    #[arg(long, allow_hyphen_values = true, value_enum)]
    pub(crate) transport: Option<Transport>,
    /// Runs this program or schedule, once proved, in place of a planned one; `-` reads standard input, for local ranks
    #[arg(long, allow_negative_numbers = true, value_name = "FILE", conflicts_with_all = ["algo", "proto", "channels"])]
    pub(crate) schedule: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) parameters: Parameters,
    /// Kernels that `compile` has made, used before the cache and NVRTC; for ranks on GPUs
    #[arg(long, allow_negative_numbers = true, value_name = "DIR")]
    pub(crate) bundle: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// How long a call may wait for another rank [default: for ever]
    #[arg(long, allow_hyphen_values = true, value_name = "SECONDS")]
    pub(crate) timeout: Option<String>,
    /// One JSON object a row
    #[arg(long)]
    pub(crate) json: bool,

    /// Which rank this process is, said by the process that started it
    #[arg(long, hide = true)]
    pub(crate) child: Option<Place>,
}

/// Whether input and output share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InPlace {
    /// Each in turn.
    Both,
    /// They do.
    Yes,
    /// They do not.
    No,
}

impl InPlace {
    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Yes => "yes",
            Self::No => "no",
        }
    }

    /// The kinds of memory to run with: false apart, true in place.
    pub(crate) fn kinds(self) -> &'static [bool] {
        match self {
            Self::Both => &[false, true],
            Self::Yes => &[true],
            Self::No => &[false],
        }
    }
}

/// Where the data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// Host memory, in this version.
    Auto,
    /// Host memory.
    Cpu,
    /// A GPU for each rank.
    Cuda,
}

/// How ranks of one host talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Shared memory.
    Shm,
    /// TCP sockets.
    Socket,
}

fn zero_or_one(text: &str) -> std::result::Result<bool, &'static str> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("expected 0 or 1"),
    }
}

impl RunArguments {
    /// The root of rooted collectives, and where the ranks meet, as far as `--root` gave them.
    ///
    /// Errors: either given twice.
    pub(crate) fn roots(&self) -> Result<(Option<OneOrAll<u32>>, Option<&str>)> {
        let (mut rank, mut address) = (None, None);
        for root in &self.root {
            let again = match root {
                Root::Rank(given) => rank.replace(*given).is_some(),
                Root::Address(given) => address.replace(given.as_str()).is_some(),
            };
            if again {
                return Err(Failure::unusable(
                    "--root is given twice; it can name one root rank and one HOST:PORT",
                ));
            }
        }
        Ok((rank, address))
    }
}
