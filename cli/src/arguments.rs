//! The command line: every command, flag and example. docs/cli.md says the same at length.
//!
//! Only shapes: what a value means is checked by [`crate::values`], what values mean together by the
//! commands.

use crate::run::arguments::RunArguments;
use crate::values::{self, OneOrAll, Ranks};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ringsmith_ir::expand::MAX_RANKS;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::topology::MAX_NODES;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_runtime::config::Config;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Plans, proves and runs collective communication.
#[derive(Debug, Parser)]
#[command(name = "ringsmith", version, disable_help_subcommand = true)]
#[command(after_help = "Example:
  ringsmith run all_reduce --ranks 4

Exit status: 0 as asked; 1 the answer is no; 2 unusable input or arguments; 3 the world failed.")]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a collective between real processes, checks and times it
    #[command(after_help = crate::run::arguments::EXAMPLES)]
    Run(Box<RunArguments>),
    /// Plans a collective and prints the schedule
    #[command(after_help = "Examples:
  ringsmith plan all_reduce --ranks 8 --bytes 1M --explain
  ringsmith plan all_gather --ranks 6 --bytes 64K -o all_gather.sched
  ringsmith plan all_reduce --topo hgx-h100 --nodes 4 --bytes 64M --explain")]
    Plan(PlanArguments),
    /// Shows a machine: its devices, what joins them, and what every pair of them gets
    #[command(after_help = "Examples:
  ringsmith topo
  ringsmith topo --topo hgx-h100 --nodes 4
  ringsmith topo --topo system.xml --dump system.topo
  ringsmith topo --topo dgx1v --svg dgx1v.svg
  ringsmith topo --topo node0.xml --topo node1.xml --json")]
    Topo(TopoArguments),
    /// Predicts what a collective, program or kernel plan takes on a machine, and where the time goes
    #[command(after_help = "Examples:
  ringsmith simulate all_reduce --topo hgx-h100 --bytes 64M
  ringsmith simulate all_reduce --ranks 8 --bytes 1M --trace trace.json --html timeline.html
  ringsmith simulate ring_all_reduce.sched --ranks 4 --bytes 1M --seed 7")]
    Simulate(Box<SimulateArguments>),
    /// Measures this machine and stores what the planner can use of it
    #[command(after_help = "Examples:
  ringsmith tune -o here.json && RINGSMITH_TUNING=here.json ringsmith run all_reduce
  ringsmith tune all_reduce all_gather --transport shm --max 1M -o here.json
  ringsmith tune --show here.json")]
    Tune(Box<crate::tune::TuneArguments>),
    /// Expands a program to the flat schedule for a number of ranks
    #[command(after_help = "Example:
  ringsmith expand ring_all_reduce.sched --ranks 4 > ring4.sched")]
    Expand(ExpandArguments),
    /// Rewrites programs and schedules in their canonical form
    #[command(after_help = "Examples:
  ringsmith fmt ring_all_reduce.sched
  ringsmith fmt --check examples/*.sched
  ringsmith fmt - < ring_all_reduce.sched")]
    Fmt(FmtArguments),
    /// Proves programs and schedules, or shows what is wrong with them
    #[command(after_help = "Examples:
  ringsmith verify ring_all_reduce.sched --ranks 2..16
  ringsmith verify tree.sched --ranks 8 --root 3 --json")]
    Verify(VerifyArguments),
    /// Lowers a program or schedule to the kernel plan that would run
    #[command(after_help = "Example:
  ringsmith lower ring_all_reduce.sched --ranks 4 --bytes 1M --dtype float32")]
    Lower(LowerArguments),
    /// Compiles kernels for GPUs that need not be there, into a bundle that needs no compiler where it runs
    #[command(after_help = "Examples:
  ringsmith compile all_reduce -o kernels
  ringsmith compile all_reduce all_gather --ranks 8 --arch sm_90 --dtype bfloat16 -o kernels
  ringsmith compile all_reduce --ranks 8 --one-gpu --max 64M -o kernels")]
    Compile(Box<crate::compile::CompileArguments>),
    /// Shows what a file or bundle holds and what can be proved of it
    #[command(after_help = "Examples:
  ringsmith show ring_all_reduce.sched --ranks 4
  ringsmith show kernels")]
    Show(ShowArguments),
    /// Lists, checks or removes the compiled kernels that are kept on disk
    #[command(after_help = "Examples:
  ringsmith cache ls
  ringsmith cache verify
  ringsmith cache clear")]
    Cache(crate::cache::CacheArguments),
    /// Prints completions for a shell
    #[command(after_help = "Example:
  ringsmith completions bash > ~/.local/share/bash-completion/completions/ringsmith")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes the manual pages
    #[command(after_help = "Example:
  ringsmith man ~/.local/share/man/man1")]
    Man {
        /// The folder to write them to.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// Which plans may be chosen.
#[derive(Args, Debug)]
pub(crate) struct Selection {
    /// Algorithms to choose among: `ring`, `^tree`, `all_reduce:ring;tree`
    #[arg(long, allow_hyphen_values = true, value_name = "LIST")]
    pub(crate) algo: Option<String>,
    /// Protocols to choose among: `simple`, `ll,ll128`
    #[arg(long, allow_hyphen_values = true, value_name = "LIST")]
    pub(crate) proto: Option<String>,
    /// Channels [default: the best number]
    #[arg(long, allow_hyphen_values = true, value_name = "N", value_parser = values::whole(1, 64u32))]
    pub(crate) channels: Option<u32>,
}

/// Where the ranks of a plan are.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// GPUs of this machine, as `topo` takes it; several are the nodes of a cluster [default: CPU ranks]
    #[arg(long, value_name = "FILE|NAME|auto")]
    pub(crate) topo: Vec<PathBuf>,
    /// Number of ranks: on each host, or of GPUs in all [default: 2, or all GPUs]
    #[arg(long, allow_hyphen_values = true, value_parser = values::whole(1, MAX_RANKS))]
    pub(crate) ranks: Option<u32>,
    /// Number of hosts, or how many of the machine there are
    #[arg(long, allow_hyphen_values = true, default_value_t = 1, value_parser = values::whole(1, MAX_RANKS))]
    pub(crate) nodes: u32,
    /// Cores of a host [default: as many as this one has]
    #[arg(long, allow_hyphen_values = true, conflicts_with = "topo", value_parser = values::whole(1, u32::MAX))]
    pub(crate) cores: Option<u32>,
}

/// The data that a plan is made for.
#[derive(Args, Debug)]
pub(crate) struct Load {
    /// Size of the larger side of the data
    #[arg(long, allow_hyphen_values = true, value_name = "SIZE", default_value = "1M", value_parser = values::size)]
    pub(crate) bytes: u64,
    /// Element type
    #[arg(long, allow_hyphen_values = true, value_name = "TYPE", default_value = "float32", value_parser = values::name::<DataType>())]
    pub(crate) dtype: DataType,
    /// Reduction
    #[arg(long, allow_hyphen_values = true, default_value = "sum", value_parser = values::name::<ReduceOp>())]
    pub(crate) op: ReduceOp,
}

/// Values for the parameters of a program.
#[derive(Args, Debug)]
pub(crate) struct Parameters {
    /// Value of a parameter of the program; may be repeated
    #[arg(long = "set", allow_hyphen_values = true, value_name = "NAME=NUMBER", value_parser = values::setting)]
    pub(crate) set: Vec<(String, i64)>,
}

impl Parameters {
    /// The values by name.
    ///
    /// Errors: a name that is given twice.
    pub(crate) fn by_name(&self) -> crate::outcome::Result<BTreeMap<String, i64>> {
        let mut all = BTreeMap::new();
        for (name, value) in &self.set {
            if let Some(earlier) = all.insert(name.clone(), *value) {
                let text = format!("--set gives {name} twice: {earlier} and {value}");
                return Err(crate::outcome::Failure::unusable(text));
            }
        }
        Ok(all)
    }
}

/// What a kernel plan is proved for.
#[derive(Args, Debug)]
pub(crate) struct Fifos {
    /// Slots of a FIFO that the kernel plan is proved with
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = Config::default().slots, value_parser = values::whole(2, 64u32))]
    pub(crate) slots: u32,
}

/// How messages travel, as a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtocolName {
    /// Bulk stores, then one signal.
    Simple,
    /// 16-byte lines with flags.
    Ll,
    /// 128-byte lines with a flag.
    Ll128,
}

impl From<ProtocolName> for Protocol {
    fn from(name: ProtocolName) -> Self {
        match name {
            ProtocolName::Simple => Self::Simple,
            ProtocolName::Ll => Self::Ll,
            ProtocolName::Ll128 => Self::Ll128,
        }
    }
}

/// Arguments of `plan`.
#[derive(Args, Debug)]
pub(crate) struct PlanArguments {
    /// What the ranks compute together
    #[arg(value_parser = values::name::<Collective>())]
    pub(crate) collective: Collective,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) load: Load,
    /// Root of a rooted collective
    #[arg(long, allow_hyphen_values = true, default_value_t = 0, value_parser = values::whole(0, u32::MAX))]
    pub(crate) root: u32,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Says why: every plan considered, with its predicted time
    #[arg(long)]
    pub(crate) explain: bool,
    /// Writes the schedule here and not to standard output, which is `-`
    #[arg(short, long, allow_negative_numbers = true, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Arguments of `topo`.
#[derive(Args, Debug)]
pub(crate) struct TopoArguments {
    /// A file (NCCL's XML or .topo; `-` reads standard input), the name of a known machine, or `auto` for this host; several are the nodes of a cluster
    #[arg(long, default_value = "auto", value_name = "FILE|NAME|auto")]
    pub(crate) topo: Vec<PathBuf>,
    /// How many of it there are
    #[arg(long, allow_hyphen_values = true, default_value_t = 1, value_parser = values::whole(1, MAX_NODES))]
    pub(crate) nodes: u32,
    /// Writes the description here, as NCCL's XML if the name ends in .xml, else as .topo
    #[arg(long, value_name = "FILE")]
    pub(crate) dump: Option<PathBuf>,
    /// Draws it into this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `simulate`.
#[derive(Args, Debug)]
pub(crate) struct SimulateArguments {
    /// A collective, which is planned, or a file: a program, schedule or kernel plan (`-` reads standard input); a file runs over the one protocol that `--proto` names
    #[arg(value_name = "FILE|COLLECTIVE")]
    pub(crate) what: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) load: Load,
    /// Root of a rooted collective [default: 0]
    #[arg(long, allow_hyphen_values = true, value_parser = values::whole(0, u32::MAX))]
    pub(crate) root: Option<u32>,
    #[command(flatten)]
    pub(crate) parameters: Parameters,
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Has ranks enter the call at moments that are drawn with this number [default: all at once]
    #[arg(long, allow_hyphen_values = true, value_name = "N", value_parser = values::whole(0, u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Within how many microseconds they then enter
    #[arg(long, allow_hyphen_values = true, requires = "seed", value_name = "US", default_value_t = 10, value_parser = values::whole(0, 1_000_000_000u32))]
    pub(crate) skew: u32,
    /// Writes every op with its times, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub(crate) trace: Option<PathBuf>,
    /// Writes a page with the time line
    #[arg(long, value_name = "FILE.html")]
    pub(crate) html: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `expand`.
#[derive(Args, Debug)]
pub(crate) struct ExpandArguments {
    /// The program; `-` reads standard input
    pub(crate) file: PathBuf,
    /// Number of ranks
    #[arg(long, allow_hyphen_values = true, value_parser = values::whole(1, MAX_RANKS))]
    pub(crate) ranks: u32,
    /// Root of a rooted collective [default: 0]
    #[arg(long, allow_hyphen_values = true, value_parser = values::whole(0, u32::MAX))]
    pub(crate) root: Option<u32>,
    #[command(flatten)]
    pub(crate) parameters: Parameters,
}

/// Arguments of `fmt`.
#[derive(Args, Debug)]
pub(crate) struct FmtArguments {
    /// Files to rewrite; `-` reads standard input and writes standard output
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Changes nothing; names the files that are not in canonical form, with status 1 if there are any
    #[arg(long, conflicts_with = "stdout")]
    pub(crate) check: bool,
    /// Writes to standard output and leaves the files as they are
    #[arg(long)]
    pub(crate) stdout: bool,
}

/// Arguments of `verify`.
#[derive(Args, Debug)]
pub(crate) struct VerifyArguments {
    /// Programs and schedules; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Numbers of ranks to prove programs for, both ends included [default: 2..8]
    #[arg(long, allow_hyphen_values = true, value_name = "N|A..B")]
    pub(crate) ranks: Option<Ranks>,
    /// Root of rooted collectives
    #[arg(long, allow_hyphen_values = true, value_name = "R|all", default_value = "all", value_parser = values::root)]
    pub(crate) root: OneOrAll<u32>,
    #[command(flatten)]
    pub(crate) parameters: Parameters,
    #[command(flatten)]
    pub(crate) fifos: Fifos,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `lower`.
#[derive(Args, Debug)]
pub(crate) struct LowerArguments {
    /// The program or schedule; `-` reads standard input
    pub(crate) file: PathBuf,
    /// Number of ranks; may be left out for a schedule
    #[arg(long, allow_hyphen_values = true, value_parser = values::whole(1, MAX_RANKS))]
    pub(crate) ranks: Option<u32>,
    /// Size of the larger side of the data
    #[arg(long, allow_hyphen_values = true, value_name = "SIZE", value_parser = values::size)]
    pub(crate) bytes: u64,
    /// Element type
    #[arg(long, allow_hyphen_values = true, value_name = "TYPE", value_parser = values::name::<DataType>())]
    pub(crate) dtype: DataType,
    /// Root of a rooted collective [default: 0]
    #[arg(long, allow_hyphen_values = true, value_parser = values::whole(0, u32::MAX))]
    pub(crate) root: Option<u32>,
    #[command(flatten)]
    pub(crate) parameters: Parameters,
    /// How messages travel [default: as the text says]
    #[arg(long, allow_hyphen_values = true, value_enum)]
    pub(crate) proto: Option<ProtocolName>,
    #[command(flatten)]
    pub(crate) fifos: Fifos,
    /// Size of a slot
    #[arg(long, allow_hyphen_values = true, value_name = "SIZE", default_value = "64K", value_parser = values::size)]
    pub(crate) slot_bytes: u64,
}

/// Arguments of `show`.
#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    /// A program, schedule or kernel plan (`-` reads standard input), or the folder of a bundle
    #[arg(value_name = "FILE|DIR")]
    pub(crate) file: PathBuf,
    /// Numbers of ranks to prove a program for, both ends included [default: 2..8]
    #[arg(long, allow_hyphen_values = true, value_name = "N|A..B")]
    pub(crate) ranks: Option<Ranks>,
    #[command(flatten)]
    pub(crate) parameters: Parameters,
    #[command(flatten)]
    pub(crate) fifos: Fifos,
}
