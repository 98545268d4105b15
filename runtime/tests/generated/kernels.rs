//! Kernels for the tests: generated, compiled by g++ against the shim, and linked into one program.

use crate::random::Random;
use ringsmith_compiler::emit::{Access, Kernel, Options, emit};
use ringsmith_compiler::lower;
use ringsmith_compiler::plan::{self, gpu};
use ringsmith_ir::expand::expand;
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::schedule::{Protocol, Schedule};
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_ir::verify::{self, Verified};
use ringsmith_runtime::device::cuda::Geometry;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// A kernel, and what it was made from.
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) plan: Verified<KernelPlan>,
    pub(crate) kernel: Kernel,
    pub(crate) dtype: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) access: Access,
    pub(crate) ranks: u32,
    pub(crate) root: u32,
    /// Whether all ranks share a launch; else each has its own.
    pub(crate) together: bool,
}

/// A program of the planner's for a number of ranks.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) collective: Collective,
    pub(crate) ranks: u32,
    pub(crate) protocol: Protocol,
}

/// What every communicator of these tests has: small, so that counts of a few hundred elements fill tiles,
/// slots and cells many times over.
pub(crate) fn geometry(ranks: u32) -> Geometry {
    Geometry {
        ranks,
        max_blocks: 24,
        fifo_blocks: 3,
        channels: 4,
        slot_channels: 2,
        slots: 4,
        slot_bytes: 2048,
        ll_bytes: 4096,
        ll128_bytes: 4096,
        scratch_bytes: 256 << 10,
    }
}

/// Every algorithm of every collective, those for GPUs only among them, for 2, 3 and 4 ranks, with each
/// protocol that it allows.
pub(crate) fn candidates() -> Vec<Candidate> {
    let mut found = Vec::new();
    for ranks in 2..=4 {
        for collective in Collective::ALL {
            for algorithm in
                plan::candidates(collective).iter().filter(|a| a.applies.holds(ranks) && !a.by_node)
            {
                let name = algorithm.name.to_owned();
                let made = |protocol: &Protocol| Candidate {
                    name: name.clone(),
                    collective,
                    ranks,
                    protocol: *protocol,
                };
                found.extend(algorithm.protocols().iter().map(made));
            }
            for (name, protocols) in gpu::special_names(collective) {
                let made = |protocol: &Protocol| Candidate {
                    name: name.to_owned(),
                    collective,
                    ranks,
                    protocol: *protocol,
                };
                found.extend(protocols.iter().map(made));
            }
        }
    }
    found
}

fn schedule(candidate: &Candidate, root: u32, op: ReduceOp) -> Verified<Schedule> {
    let Candidate { collective, ranks, protocol, .. } = *candidate;
    let request = gpu::Request {
        collective,
        op: collective.reduces().then_some(op),
        root: collective.rooted().then_some(root),
        ranks,
        bytes: 0,
        maps_buffers: true,
    };
    let plan = gpu::make(&request, &candidate.name, protocol).expect("it was listed");
    let schedule = expand(&plan.program, &plan.arguments).expect("planned programs expand");
    verify::schedule(schedule).expect("planned programs are right")
}

/// What a candidate leaves open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) dtype: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) access: Access,
    pub(crate) threads: u32,
    pub(crate) unroll: u32,
    pub(crate) root: u32,
    /// Whether ranks use each other's buffers where they can.
    pub(crate) is_direct: bool,
}

impl Shape {
    /// The plainest: what speed is measured with, but for the small tiles.
    pub(crate) fn plain() -> Self {
        Self {
            dtype: DataType::Float32,
            op: ReduceOp::Sum,
            access: Access::Vector,
            threads: 32,
            unroll: 1,
            root: 0,
            is_direct: true,
        }
    }

    pub(crate) fn draw(candidate: &Candidate, random: &mut Random) -> Self {
        let (threads, unroll) = random.of(&[(32, 1), (32, 1), (32, 2), (64, 1)]);
        let is_rooted = candidate.collective.rooted();
        Self {
            dtype: if random.below(3) == 0 { DataType::Float32 } else { random.of(&DataType::ALL) },
            op: match candidate.collective.reduces() && random.below(3) != 0 {
                true => random.of(&ReduceOp::ALL),
                false => ReduceOp::Sum,
            },
            access: random.of(&[Access::Vector, Access::Vector, Access::Element, Access::Byte]),
            threads,
            unroll,
            root: if is_rooted { random.below(candidate.ranks as usize) as u32 } else { 0 },
            is_direct: random.below(4) != 0,
        }
    }
}

/// Generates a kernel; `None` if the plan has none.
pub(crate) fn make(candidate: &Candidate, together: bool, shape: &Shape) -> Option<Made> {
    let Shape { dtype, op, access, threads, unroll, root, is_direct } = *shape;
    let geometry = geometry(candidate.ranks);
    let tile_bytes = u64::from(threads) * u64::from(unroll) * 16;
    let options =
        lower::Options { protocol: candidate.protocol, slots: geometry.slots, slot_bytes: tile_bytes };
    let schedule = schedule(candidate, root, op);
    let lowered =
        if is_direct { lower::lower_direct(&schedule, options) } else { lower::lower(&schedule, options) };
    let plan = lowered.ok()?;
    let options = Options {
        dtype,
        op: candidate.collective.reduces().then_some(op),
        access,
        threads,
        unroll,
        resident: 1,
        local_ranks: if together { candidate.ranks } else { 1 },
        max_blocks: geometry.max_blocks,
        parity_bytes: geometry.parity_bytes(candidate.protocol),
        slot_bytes: geometry.slot_bytes,
    };
    let kernel = emit(&plan, &options).ok()?;
    let way = if is_direct { "direct" } else { "staged" };
    let name = format!(
        "{} {} {} {} ranks, root {root}, {op} of {dtype}, {access:?}, {threads} x {unroll}, {way}",
        candidate.name, candidate.collective, candidate.protocol, candidate.ranks
    );
    Some(Made { name, plan, kernel, dtype, op, access, ranks: candidate.ranks, root, together })
}

/// Who runs threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    Fibers,
    /// Threads of the system, under ThreadSanitizer.
    System,
}

/// A folder that goes with its owner.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringsmith-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for tests can be made");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn shim() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generated/shim")
}

/// Whether g++ can be started.
pub(crate) fn has_compiler() -> bool {
    Command::new("g++").arg("--version").output().is_ok_and(|output| output.status.success())
}

fn compile(arguments: &[&str], threads: Threads) -> Result<(), String> {
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-I"]).arg(shim()).args(arguments);
    if threads == Threads::System {
        command.args(["-DSHIM_THREADS", "-g"]);
    }
    let output = command.output().map_err(|error| format!("g++: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("g++ {}\n{}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
}

/// A kernel's name and text.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) name: &'a str,
    pub(crate) source: &'a str,
}

impl Made {
    pub(crate) fn text(&self) -> Text<'_> {
        Text { name: &self.kernel.name, source: &self.kernel.source }
    }
}

/// A kernel's text as a file of C++: with names of its own, and with a note where a warp's threads may part.
fn wrapped(index: usize, kernel: &Text<'_>) -> String {
    let mut source = kernel.source.to_owned();
    for head in [
        "DEVICE u64 load_rest(const u8* at, u32 bytes) {",
        "DEVICE void store_rest(u8* at, u64 word, u32 bytes) {",
    ] {
        assert_eq!(source.matches(head).count(), 1, "`{head}` stands in every kernel");
        source = source.replace(head, &format!("{head}\n  shim::apart();"));
    }
    let place = "// The CPU: what stands above in C++ is put here by the tests that run this text.\n";
    assert_eq!(source.matches(place).count(), 1, "there is a place for the shim");
    source = source.replace(place, "#include \"shim.h\"\n");
    let name = kernel.name;
    format!(
        "#include \"device.h\"\n#define {name} kernel_{index}\nnamespace {{\n{source}\nvoid run(const void* argument) {{ {name}(*(const Launch*)argument); }}\nshim::Kernel kernel({index}, run, sizeof(Launch));\n}}\n"
    )
}

/// Compiles kernels into one program.
///
/// Errors: what the compiler says.
pub(crate) fn program(folder: &Folder, kernels: &[Text<'_>], threads: Threads) -> Result<PathBuf, String> {
    let path = |name: String| folder.0.join(name).to_string_lossy().into_owned();
    let common = ["-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-w", "-c"];
    let mut jobs: Vec<Vec<String>> = Vec::new();
    let mut objects = Vec::new();
    let runner = if threads == Threads::Fibers { "fibers" } else { "threads" };
    for name in ["main", runner] {
        let source = shim().join(format!("{name}.cpp")).to_string_lossy().into_owned();
        let object = path(format!("{name}.o"));
        let options = ["-O2", "-Wall", "-Wextra", "-Werror", "-c"];
        jobs.push(
            options
                .iter()
                .map(ToString::to_string)
                .chain([source, "-o".to_owned(), object.clone()])
                .collect(),
        );
        objects.push(object);
    }
    for (index, kernel) in kernels.iter().enumerate() {
        let (source, object) = (path(format!("kernel{index}.cpp")), path(format!("kernel{index}.o")));
        std::fs::write(&source, wrapped(index, kernel)).map_err(|error| error.to_string())?;
        let sanitized = (threads == Threads::System).then_some("-fsanitize=thread".to_owned());
        let options = common.iter().map(ToString::to_string).chain(sanitized);
        jobs.push(options.chain([source, "-o".to_owned(), object.clone()]).collect());
        objects.push(object);
    }
    let queue = Mutex::new(jobs.into_iter());
    let failures = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some(job) = queue.lock().expect("no worker panics").next() else { return };
                    let arguments: Vec<&str> = job.iter().map(String::as_str).collect();
                    if let Err(text) = compile(&arguments, threads) {
                        failures.lock().expect("no worker panics").push(text);
                    }
                }
            });
        }
    });
    if let Some(text) = failures.into_inner().expect("no worker panics").into_iter().next() {
        return Err(text);
    }
    let program = folder.0.join(format!("{threads:?}"));
    let mut link: Vec<&str> = objects.iter().map(String::as_str).collect();
    let target = program.to_string_lossy().into_owned();
    link.extend(["-o", &target]);
    if threads == Threads::System {
        link.extend(["-fsanitize=thread", "-pthread"]);
    }
    compile(&link, threads)?;
    Ok(program)
}
