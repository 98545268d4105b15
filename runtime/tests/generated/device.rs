//! A communicator whose GPUs are a program of the shim: memory in a file, launches as lines of text.

use crate::expected::{self, Call, Image};
use crate::kernels::{Folder, Made, Threads, geometry};
use crate::random::Random;
use ringsmith_compiler::emit::Access;
use ringsmith_ir::entity::Rank;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, ReduceOp};
use ringsmith_runtime::device::cpu::arith::Scalar;
use ringsmith_runtime::device::cuda::{Argument, Layout, Memory};
use ringsmith_runtime::reference::{Data, Exactness, Kind, Request, compare, input};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Where the program maps the file.
const MEMORY: u64 = 0x10_0000_0000;
/// Bytes of the file.
const MEMORY_BYTES: u64 = 64 << 20;
/// Bytes in front of and behind each buffer, which nobody may write.
const GUARD_BYTES: usize = 64;

/// A program of kernels at work.
pub(crate) struct Machine {
    child: Child,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
    file: File,
    /// Where the program complains.
    said: PathBuf,
    threads: Threads,
    /// The first byte that nobody has.
    pub(crate) end: u64,
}

impl Machine {
    pub(crate) fn start(program: &Path, folder: &Folder, threads: Threads) -> Self {
        let path = folder.0.join("memory");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .expect("a file for memory");
        file.set_len(MEMORY_BYTES).expect("a file that is long enough");
        let said = folder.0.join("said");
        let complaints = File::create(&said).expect("a file for what the program says");
        let mut child = Command::new(program)
            .arg(&path)
            .env("TSAN_OPTIONS", "halt_on_error=1 report_signal_unsafe=0")
            .stderr(complaints)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program that was just linked starts");
        let lines = child.stdin.take().expect("it is piped");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, lines, answers, file, said, threads, end: MEMORY }
    }

    pub(crate) fn take(&mut self, bytes: u64) -> u64 {
        let start = self.end;
        self.end = (start + bytes).next_multiple_of(1024);
        assert!(self.end <= MEMORY + MEMORY_BYTES, "the tests' memory is large enough");
        start
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, address - MEMORY).expect("the file can be written");
    }

    pub(crate) fn write_words(&self, address: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(address, &bytes);
    }

    pub(crate) fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        self.file.read_exact_at(&mut found, address - MEMORY).expect("the file can be read");
        found
    }

    pub(crate) fn say(&mut self, line: &str) {
        // Whoever has died says why when it is asked for an answer.
        let _ = writeln!(self.lines, "{line}");
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        let _ = self.answers.read_line(&mut line);
        if line.is_empty() {
            let status = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
            let said = std::fs::read_to_string(&self.said).unwrap_or_default();
            let head: Vec<&str> = said.lines().take(40).collect();
            return format!("died: {status}\n{}", head.join("\n"));
        }
        line.trim().to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where counters and epochs begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) epoch: u32,
    pub(crate) counter: u64,
}

/// Ranks with scratch that is never cleared.
pub(crate) struct Communicator {
    pub(crate) ranks: u32,
    pub(crate) layout: Layout,
    pub(crate) scratch: Vec<u64>,
    pub(crate) abort: u64,
    pub(crate) reports: u64,
    /// The first byte behind all of these.
    pub(crate) free: u64,
}

/// A launch that has been prepared, and what it must leave in memory.
struct Pending<'a> {
    made: &'a Made,
    call: Call,
    title: String,
    /// Each rank's memory: where it lies, and what must be there afterwards.
    regions: Vec<(u64, Image)>,
}

impl Communicator {
    pub(crate) fn new(machine: &mut Machine, ranks: u32, start: Start) -> Self {
        machine.end = MEMORY;
        let layout = Layout::new(geometry(ranks));
        let abort = machine.take(4);
        let reports = machine.take(8 * u64::from(ranks * layout.geometry().max_blocks));
        let scratch: Vec<u64> = (0..ranks).map(|_| machine.take(layout.bytes())).collect();
        let counters = layout.purposes()[0].1;
        let epochs = 4 * u64::from(layout.geometry().max_blocks);
        machine.write(abort, &[0; 4]);
        for base in &scratch {
            machine.write(*base, &vec![0; layout.bytes() as usize]);
            machine.write_words(*base, &vec![start.counter; counters as usize / 8]);
            machine.write(*base, &start.epoch.to_le_bytes().repeat(epochs as usize / 4));
        }
        Self { ranks, layout, scratch, abort, reports, free: machine.end }
    }

    /// Runs launches back to back and compares what they leave.
    ///
    /// Errors: what went wrong, with all that repeats it.
    pub(crate) fn run(
        &self,
        machine: &mut Machine,
        kernels: &[(usize, &Made)],
        random: &mut Random,
    ) -> Result<(), String> {
        machine.end = self.free;
        let mut pending = Vec::new();
        for (index, made) in kernels {
            pending.push(self.prepare(machine, *index, made, random)?);
        }
        let titles = || pending.iter().map(|p| p.title.as_str()).collect::<Vec<_>>().join("\n  then ");
        let seed = random.next();
        machine.say(&format!("go {seed} {}", self.abort));
        let answer = machine.answer();
        if answer == "stuck" {
            let waits = self.waits(machine, &pending);
            return Err(format!("{}\n  never ends: {waits}", titles()));
        }
        if answer != "ok" {
            return Err(format!("{}\n  {answer}", titles()));
        }
        for launch in &pending {
            for (rank, (address, image)) in launch.regions.iter().enumerate() {
                let got = machine.read(*address, image.bytes.len());
                if let Some(text) = difference(launch, image, &got) {
                    return Err(format!("{}\n  rank {rank} of {}: {text}", titles(), launch.title));
                }
            }
        }
        Ok(())
    }

    /// What the blocks of the last launch waited for.
    fn waits(&self, machine: &Machine, pending: &[Pending<'_>]) -> String {
        let blocks = self.layout.geometry().max_blocks;
        let mut found = Vec::new();
        for rank in 0..self.ranks {
            for block in 0..blocks {
                let word = machine.read(self.reports + 8 * u64::from(rank * blocks + block), 8);
                let word = u64::from_le_bytes(word.try_into().expect("8 bytes were read")) as usize;
                let Some(last) = pending.last().filter(|_| word > 0) else { continue };
                let kernel = &last.made.kernel;
                let table = &kernel.tables[rank as usize][(block % kernel.lanes) as usize];
                let role = table.role.unwrap_or(0) as usize;
                let op = kernel.addresses.get(role).and_then(|ops| ops.get(word - 1));
                found.push(format!("rank {rank} block {block} at {}", op.map_or("?", String::as_str)));
            }
        }
        found.join(", ")
    }

    fn prepare<'a>(
        &self,
        machine: &mut Machine,
        index: usize,
        made: &'a Made,
        random: &mut Random,
    ) -> Result<Pending<'a>, String> {
        let g = self.layout.geometry();
        let (plan, kernel) = (&made.plan, &made.kernel);
        let collective = plan.collective;
        let size = made.dtype.size_bytes() as u64;
        let memory = |first: u32| Memory {
            scratch: &self.scratch,
            abort: self.abort,
            reports: self.reports + 8 * u64::from(first * g.max_blocks),
        };
        let in_a_launch = if made.together { self.ranks } else { 1 };
        let groups: Vec<_> =
            (0..self.ranks / in_a_launch).map(|g| g * in_a_launch..(g + 1) * in_a_launch).collect();
        let arguments: Result<Vec<Argument>, _> = groups
            .iter()
            .map(|ranks| Argument::new(plan, kernel, &self.layout, &memory(ranks.start), ranks.clone()))
            .collect();
        let mut arguments = arguments.map_err(|error| format!("{}: {error}", made.name))?;

        let most = g.max_blocks / kernel.lanes;
        let most = if plan.protocol == Protocol::Simple { most.min(g.fifo_blocks) } else { most.min(3) };
        let blocks = 1 + random.below(most as usize) as u32;
        let parts = u64::from(plan.chunks_per_block().max(1));
        let room = arguments[0].largest_chunk().min(4096) / 16 * 16;
        let mut count = match random.below(8) {
            0 => random.of(&[0, 1, 2, 3, 5]),
            1 => 16 / size * parts,
            2 => room * parts / size,
            3 | 4 => random.below((room * parts / size) as usize + 1) as u64,
            _ => random.below((room * parts / size / 8) as usize + 2) as u64,
        };
        if made.access == Access::Vector && collective.blocked() {
            count = (count * size).next_multiple_of(16) / size;
        }
        while (count * size).div_ceil(parts * 16) * 16 > room || count * size > room * parts {
            count = count.saturating_sub(16 / size);
        }
        if collective == Collective::Barrier {
            count = 0;
        }

        let kind =
            if made.op == ReduceOp::PremulSum || random.below(2) == 0 { Kind::Exact } else { Kind::Wild };
        let data = Data { seed: random.next(), kind };
        let request = Request::new(collective, made.dtype, made.op, self.ranks, count)
            .and_then(|r| r.with_root(Rank::from_u32(made.root)))
            .map_err(|error| error.to_string())?;
        // Lines carry no order of memory, only data. What is written over an input has come from it, which
        // is order enough, but ThreadSanitizer does not know.
        let is_told = machine.threads == Threads::Fibers || plan.protocol == Protocol::Simple;
        let in_place = is_told && collective != Collective::AllToAll && random.below(3) == 0;
        let call = Call { dtype: made.dtype, op: made.op, scalar: request.scalar, count };
        let title = format!(
            "{}: {count} elements, {blocks} blocks a lane, {kind:?}{}",
            made.name,
            if in_place { ", in place" } else { "" }
        );

        let mut images = Vec::new();
        let mut addresses = Vec::new();
        for rank in 0..self.ranks {
            let image = self.image(&request, &data, rank, in_place, made.access, random);
            let address = machine.take(image.bytes.len() as u64);
            machine.write(address, &image.bytes);
            addresses.push(address);
            images.push(image);
        }
        let buffers: Vec<(u64, u64)> = images
            .iter()
            .zip(&addresses)
            .map(|(image, at)| (at + image.input as u64, at + image.output as u64))
            .collect();
        expected::run(plan, &call, &mut images);
        for (stream, argument) in arguments.iter_mut().enumerate() {
            let own = &buffers[groups[stream].start as usize..groups[stream].end as usize];
            argument.set_call(made.dtype, count, blocks, own, &buffers);
            argument.set_scalar(Scalar::from_element_bits(made.dtype, request.scalar).acc_bits());
            let bytes = argument.words().len() as u64 * 8;
            let at = machine.take(bytes);
            machine.write_words(at, argument.words());
            let (x, y) = (kernel.lanes * blocks, groups[stream].len());
            machine.say(&format!("launch {stream} {index} {x} {y} {} {at} {bytes}", kernel.threads));
        }
        let regions = addresses.into_iter().zip(images).collect();
        Ok(Pending { made, call, title, regions })
    }

    /// A rank's buffers with guards around them, before the call.
    fn image(
        &self,
        request: &Request,
        data: &Data,
        rank: u32,
        in_place: bool,
        access: Access,
        random: &mut Random,
    ) -> Image {
        let size = request.dtype.size_bytes();
        let own = Rank::from_u32(rank);
        let contents = input(request, data, own);
        let output_bytes = request.output_elements(own) as usize * size;
        let mut shift = || match access {
            Access::Vector => 0,
            Access::Element => size * random.below(16 / size),
            Access::Byte => random.below(16),
        };
        let block = rank as usize * request.count as usize * size;
        let both = !contents.is_empty() && output_bytes > 0;
        let input_at = GUARD_BYTES + shift();
        let mut image = if in_place && both {
            match request.collective {
                Collective::AllGather | Collective::Gather => {
                    Image { bytes: Vec::new(), input: input_at + block, output: input_at }
                }
                Collective::ReduceScatter | Collective::Scatter => {
                    Image { bytes: Vec::new(), input: input_at, output: input_at + block }
                }
                _ => Image { bytes: Vec::new(), input: input_at, output: input_at },
            }
        } else {
            let output = (input_at + contents.len() + GUARD_BYTES).next_multiple_of(16) + shift();
            Image { bytes: Vec::new(), input: input_at, output }
        };
        let end = (image.input + contents.len()).max(image.output + output_bytes) + GUARD_BYTES;
        image.bytes = (0..end).map(|at| (at * 7 + 3) as u8).collect();
        image.bytes[image.input..image.input + contents.len()].copy_from_slice(&contents);
        image
    }
}

/// What is wrong with a rank's memory.
fn difference(launch: &Pending<'_>, image: &Image, got: &[u8]) -> Option<String> {
    if image.bytes == got {
        return None;
    }
    let size = launch.call.dtype.size_bytes();
    let from = image.output % size;
    let end = from + (got.len() - from) / size * size;
    // Bits of a NaN are nobody's business.
    let collective = launch.made.plan.collective;
    let exactness = if collective.reduces() { Exactness::Values } else { Exactness::Bits };
    let report = compare(&image.bytes[from..end], &got[from..end], launch.call.dtype, exactness);
    let outside = image.bytes[..from] != got[..from] || image.bytes[end..] != got[end..];
    let first = report.first.first();
    match first {
        None if outside => Some("bytes beside the buffers have changed".to_owned()),
        None => None,
        Some(first) => {
            let place = first.index as i64 * size as i64 + from as i64 - image.output as i64;
            Some(format!("{} wrong elements; {first} (byte {place} of the output)", report.wrong))
        }
    }
}
