//! `compile`: kernels for GPUs that need not be there, into a bundle that needs no compiler where it runs.
//!
//! Which kernels those are says the runtime, by the same choice that ranks make; here shapes are counted out,
//! NVRTC is asked, and the folder is written.

use crate::input::name_of;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, Progress, remark};
use crate::values::{self, OneOrAll, Ranks, print_size};
use crate::verify::counted;
use clap::Args;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::config::selection::Selection;
use ringsmith_runtime::device::cuda::offline::{self, Purpose, Wanted, usual_multiprocessors};
use ringsmith_runtime::device::cuda::{GpuError, Terms};
use ringsmith_runtime::jit::bundle::{Contents, WriteError};
use ringsmith_runtime::jit::{Architecture, Jit, JitError, Nvrtc};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most ranks. Ours: GPUs of a host, several times over.
const MAX_RANKS: u32 = 64;
/// The most multiprocessors. Ours: several times what any GPU has.
const MAX_MULTIPROCESSORS: u32 = 1024;

/// Arguments of `compile`.
#[derive(Args, Debug)]
pub(crate) struct CompileArguments {
    /// What ranks will compute
    #[arg(required = true, value_name = "COLLECTIVE", value_parser = values::name::<Collective>())]
    collectives: Vec<Collective>,
    /// The folder to write; a bundle that is there is replaced
    #[arg(short = 'o', long, allow_negative_numbers = true, value_name = "DIR")]
    output: PathBuf,
    /// Architectures of GPUs
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "sm_80,sm_90,sm_100"
    )]
    arch: Vec<Architecture>,
    /// Numbers of ranks, both ends included
    #[arg(long, allow_hyphen_values = true, value_name = "N|A..B", default_value = "2..8")]
    ranks: Ranks,
    /// Smallest size of the larger side of the data
    #[arg(short = 'b', long, allow_hyphen_values = true, value_name = "SIZE", default_value = "8", value_parser = values::size)]
    min: u64,
    /// Largest size
    #[arg(short = 'e', long, allow_hyphen_values = true, value_name = "SIZE", default_value = "1G", value_parser = values::size)]
    max: u64,
    /// Element type
    #[arg(short = 'd', long, allow_hyphen_values = true, value_name = "TYPE|all", default_value = "float32", value_parser = values::name::<OneOrAll<DataType>>())]
    dtype: OneOrAll<DataType>,
    /// Reduction
    #[arg(long, allow_hyphen_values = true, value_name = "OP|all", default_value = "sum", value_parser = values::name::<OneOrAll<ReduceOp>>())]
    op: OneOrAll<ReduceOp>,
    /// Root of a rooted collective
    #[arg(short = 'r', long, allow_hyphen_values = true, value_name = "R|all", default_value = "0", value_parser = values::root)]
    root: OneOrAll<u32>,
    /// What buffers' addresses are multiples of, in bytes: 16, 8, 4, 2 or 1
    #[arg(long, allow_hyphen_values = true, value_name = "BYTES", default_value_t = 16, value_parser = alignment)]
    alignment: u64,
    /// For ranks that are all in one process and on one GPU
    #[arg(long)]
    one_gpu: bool,
    /// How many processes share a GPU
    #[arg(long, allow_hyphen_values = true, value_name = "N", default_value_t = 1, conflicts_with = "one_gpu", value_parser = values::whole(1, MAX_RANKS))]
    ranks_per_gpu: u32,
    /// Multiprocessors of the GPU [default: those of the architecture's usual one]
    #[arg(long, allow_hyphen_values = true, value_name = "N", value_parser = values::whole(1, MAX_MULTIPROCESSORS))]
    multiprocessors: Option<u32>,
    /// Writes plans and sources alone, which needs no NVRTC
    #[arg(long)]
    sources: bool,
}

fn alignment(text: &str) -> std::result::Result<u64, String> {
    match text {
        "16" => Ok(16),
        "8" => Ok(8),
        "4" => Ok(4),
        "2" => Ok(2),
        "1" => Ok(1),
        _ => Err("expected 16, 8, 4, 2 or 1".to_owned()),
    }
}

/// Runs `compile`.
pub(crate) fn run(arguments: &CompileArguments) -> Result {
    if arguments.output == Path::new("-") {
        return Err(Failure::unusable(
            "--output -: a bundle is a folder, which standard output cannot hold; name one",
        ));
    }
    check(arguments)?;
    let (mut config, warnings) = Config::from_env().map_err(Failure::unusable)?;
    warnings.iter().for_each(|warning| remark(format_args!("warning: {warning}")));
    // What is made does not come from what was made before.
    config.bundle = None;
    let selection = Selection::of(&config);
    let jit = Jit::new(&config);
    let nvrtc = if arguments.sources { None } else { Some(compiler(&jit, &arguments.arch)?) };
    Contents::check_place(&arguments.output).map_err(unwritten)?;
    let mut contents = Contents::new();
    let mut progress = Progress::new();
    for (purpose, ranks) in purposes(arguments) {
        for architecture in &arguments.arch {
            let terms = terms(arguments, ranks, *architecture);
            let make = |wanted: Wanted<'_>| {
                let Wanted { name, plan_text, source } = wanted;
                let Some(nvrtc) = nvrtc else {
                    contents.add_texts(name, plan_text, source);
                    return Ok(None);
                };
                let made = counted(contents.kernels(), "kernel");
                progress.show(format_args!("{made} made; {name} for {architecture}, {ranks} ranks"));
                let cubin = jit
                    .kernel(plan_text, name, source, *architecture)
                    .map_err(|error| GpuError::Compile(error.to_string()))?;
                contents.add(name, plan_text, source, &cubin, nvrtc.version());
                Ok(Some(Arc::clone(&cubin)))
            };
            offline::kernels(&terms, &selection, &purpose, *architecture, make).map_err(|error| {
                let text = format!("{} of {ranks} ranks: {error}", purpose.collective);
                if error.is_misuse() { Failure::unusable(text) } else { Failure::world(text) }
            })?;
        }
    }
    progress.clear();
    said(arguments).into_iter().for_each(|purpose| contents.purpose(&purpose));
    contents.write(&arguments.output).map_err(unwritten)?;
    let mut output = Output::new();
    let (files, bytes) = contents.size();
    let kernels = counted(contents.kernels(), "kernel");
    output.line(format_args!(
        "{}: {kernels} for {}, {}, {bytes} bytes",
        name_of(&arguments.output),
        listed(&arguments.arch),
        counted(files, "file")
    ))?;
    output.flush()?;
    if arguments.sources {
        remark("no kernel was compiled (--sources): no run can use this bundle");
    }
    Ok(Outcome::Done)
}

/// What can be refused without looking further.
fn check(arguments: &CompileArguments) -> Result<()> {
    let refuse = |text: String| Err(Failure::unusable(text));
    let CompileArguments { ranks, min, max, root, ranks_per_gpu, .. } = arguments;
    if ranks.last > MAX_RANKS {
        return refuse(format!("--ranks {ranks}: kernels are for at most {MAX_RANKS} ranks"));
    }
    if min > max {
        let (min, max) = (print_size(*min), print_size(*max));
        return refuse(format!("--min {min} is larger than --max {max}"));
    }
    if let OneOrAll::One(root) = root
        && *root >= ranks.first
    {
        return refuse(format!("--root {root}: of --ranks {ranks}, ranks are 0 to {}", ranks.first - 1));
    }
    if *ranks_per_gpu > ranks.first {
        return refuse(format!("--ranks-per-gpu {ranks_per_gpu}: --ranks {ranks} are fewer"));
    }
    Ok(())
}

/// NVRTC, which knows every architecture.
fn compiler<'a>(jit: &'a Jit, architectures: &[Architecture]) -> Result<&'a Nvrtc> {
    let nvrtc = jit.nvrtc().map_err(|error| match error {
        JitError::Missing(_) => Failure::world(format_args!(
            "{error}; without it, --sources writes plans and sources, which another host can compile"
        )),
        other => Failure::world(other),
    })?;
    let known = nvrtc.architectures();
    match architectures.iter().find(|wanted| !known.contains(wanted)) {
        None => Ok(nvrtc),
        Some(unknown) => Err(Failure::unusable(format_args!(
            "--arch {unknown}: NVRTC {} compiles for {}; RINGSMITH_NVRTC names the folder of another",
            nvrtc.version(),
            listed(known)
        ))),
    }
}

fn listed(architectures: &[Architecture]) -> String {
    architectures.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn unwritten(error: WriteError) -> Failure {
    Failure::unusable(error)
}

fn terms(arguments: &CompileArguments, ranks: u32, architecture: Architecture) -> Terms {
    let multiprocessors = arguments.multiprocessors.unwrap_or_else(|| usual_multiprocessors(architecture));
    let ranks_on_gpu = if arguments.one_gpu { ranks } else { arguments.ranks_per_gpu };
    Terms::new(ranks, ranks_on_gpu, arguments.one_gpu || ranks == 1, multiprocessors)
}

/// Every call that kernels are for, with its number of ranks.
fn purposes(arguments: &CompileArguments) -> Vec<(Purpose, u32)> {
    let mut all = Vec::new();
    for ranks in arguments.ranks.first..=arguments.ranks.last {
        for &collective in &arguments.collectives {
            let ops: Vec<Option<ReduceOp>> = match arguments.op {
                _ if !collective.reduces() => vec![None],
                OneOrAll::One(op) => vec![Some(op)],
                OneOrAll::All => ReduceOp::ALL.into_iter().map(Some).collect(),
            };
            let roots: Vec<Option<u32>> = match arguments.root {
                _ if !collective.rooted() => vec![None],
                OneOrAll::One(root) => vec![Some(root)],
                OneOrAll::All => (0..ranks).map(Some).collect(),
            };
            let dtypes = match arguments.dtype {
                OneOrAll::One(dtype) => vec![dtype],
                OneOrAll::All => DataType::ALL.to_vec(),
            };
            for op in ops {
                for &root in &roots {
                    for &dtype in &dtypes {
                        let bytes = arguments.min..=arguments.max;
                        let alignment = arguments.alignment;
                        all.push((Purpose { collective, dtype, op, root, bytes, alignment }, ranks));
                    }
                }
            }
        }
    }
    all
}

/// The same in words, a line a collective.
fn said(arguments: &CompileArguments) -> Vec<String> {
    let CompileArguments { ranks, min, max, dtype, op, root, .. } = arguments;
    let place = match (arguments.one_gpu, arguments.ranks_per_gpu) {
        (true, _) => "all on one GPU and in one process".to_owned(),
        (false, 1) => "a GPU each".to_owned(),
        (false, share) => format!("{share} processes to a GPU"),
    };
    let said = |collective: &Collective| {
        let op = if collective.reduces() { format!(" {op}") } else { String::new() };
        let root = if collective.rooted() { format!(", root {root}") } else { String::new() };
        let (min, max) = (print_size(*min), print_size(*max));
        let alignment = arguments.alignment;
        format!(
            "{collective} {dtype}{op}, {ranks} ranks, {place}{root}, {min} to {max} bytes, buffers at multiples of {alignment}"
        )
    };
    arguments.collectives.iter().map(said).collect()
}
