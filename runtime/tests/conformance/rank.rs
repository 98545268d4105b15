//! What a rank of a job does: it makes the calls and compares every result with the reference.

use crate::cases::{Case, Draw, Random, table};
use crate::job::{ID_FILE, RANK, WORK, WORLD};
use ringsmith_ir::entity::Rank;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_runtime::communicator::{Buffers, Call, Communicator, Request};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::reference::{self, Data};
use ringsmith_runtime::unique_id::UniqueId;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes around every output that nobody may touch.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xA5;

/// Plays the rank that the environment names, if it names one.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let rank = std::env::var(RANK).ok()?;
    let outcome = run(&rank);
    if let Err(message) = &outcome {
        eprintln!("{message}");
    }
    Some(if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|e| format!("{name}: {e}"))
}

fn number<T: std::str::FromStr>(text: Option<&str>) -> Result<T, String> {
    text.and_then(|t| t.parse().ok()).ok_or_else(|| format!("{text:?} is no number"))
}

fn run(rank: &str) -> Result<(), String> {
    let rank: u32 = number(Some(rank))?;
    let world: u32 = number(Some(&variable(WORLD)?))?;
    let (config, warnings) = Config::from_env().map_err(|e| e.to_string())?;
    if let Some(warning) = warnings.first() {
        return Err(warning.to_string());
    }
    let file = variable(ID_FILE)?;
    let (id, root) = if rank == 0 {
        let (id, root) = UniqueId::create(&config).map_err(|e| e.to_string())?;
        publish(Path::new(&file), &id)?;
        (id, Some(root))
    } else {
        (await_id(Path::new(&file))?, None)
    };
    let comm = Communicator::init(&id, rank, world, &config).map_err(|e| e.to_string())?;
    let work = variable(WORK)?;
    let mut words = work.split(' ');
    let kind = words.next().unwrap_or_default();
    let draw = Draw { seed: number(words.next())?, whole: number::<u8>(words.next())? == 1 };
    let outcome = match kind {
        "table" => run_table(&comm, draw),
        "algorithm" => {
            let collective: Collective =
                words.next().unwrap_or_default().parse().map_err(|e| format!("{e}"))?;
            run_algorithm(&comm, draw, collective)
        }
        "mixture" => run_mixture(&comm, draw, number(words.next())?),
        other => Err(format!("no work is called {other}")),
    };
    if let Err(message) = &outcome {
        comm.abort(message);
        return outcome;
    }
    comm.finish().map_err(|e| e.to_string())?;
    drop(root);
    Ok(())
}

fn publish(path: &Path, id: &UniqueId) -> Result<(), String> {
    let half = path.with_extension("half");
    std::fs::write(&half, id.to_hex()).and_then(|()| std::fs::rename(&half, path)).map_err(|e| e.to_string())
}

fn await_id(path: &Path) -> Result<UniqueId, String> {
    let started = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text.parse().map_err(|e| format!("{e}"));
        }
        if started.elapsed() > Duration::from_secs(60) {
            return Err("rank 0 wrote no id".to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn run_table(comm: &Communicator, draw: Draw) -> Result<(), String> {
    for (number, case) in (0..).zip(table()) {
        if draw.takes(comm.world(), number) {
            let mut random = Random::new(draw.seed ^ number);
            check_case(comm, case, &mut random, draw.seed ^ number)?;
        }
    }
    Ok(())
}

fn run_algorithm(comm: &Communicator, draw: Draw, collective: Collective) -> Result<(), String> {
    let kinds = [
        (DataType::Float32, ReduceOp::Sum),
        (DataType::Bfloat16, ReduceOp::Avg),
        (DataType::Int8, ReduceOp::PremulSum),
    ];
    // Messages of one cell for the zone protocols, which refuse larger ones.
    let zone = std::env::var("RINGSMITH_PROTO").is_ok_and(|p| p != "simple");
    let counts: &[u64] = if zone { &[0, 1, 3, 14, 15, 1000] } else { &[0, 1, 3, 1000, 65_537, 300_001] };
    for (index, &count) in (0..).zip(counts) {
        for &(dtype, op) in &kinds {
            let mut random = Random::new(draw.seed ^ index);
            check_case(comm, Case { collective, dtype, op, count }, &mut random, draw.seed ^ index)?;
        }
    }
    Ok(())
}

/// Makes one call out of place and one in place, at odd addresses too, and compares.
fn check_case(comm: &Communicator, case: Case, random: &mut Random, seed: u64) -> Result<(), String> {
    let root = random.below(comm.world().into()) as u32;
    let misalign = random.below(16) as usize;
    let reference = reference::Request::new(case.collective, case.dtype, case.op, comm.world(), case.count)
        .and_then(|r| r.with_root(Rank::from_u32(root)))
        .map_err(|e| e.to_string())?;
    if matches!(case.collective, Collective::AllToAllV | Collective::SendRecv) {
        return check_messages(comm, case, random, seed);
    }
    let request = Request {
        collective: case.collective,
        dtype: case.dtype,
        op: case.op,
        scalar: 2.0,
        root,
        count: case.count,
    };
    let data = Data::exact(seed);
    let rank = Rank::from_u32(comm.rank());
    let size = case.dtype.size_bytes();
    let input = reference::input(&reference, &data, rank);
    let output_bytes = reference.output_elements(rank) as usize * size;
    let fail = |place: &str, what: String| format!("{case:?}, root {root}, {place}, rank {rank}: {what}");

    let mut send = Guarded::new(input.len(), misalign);
    send.bytes().copy_from_slice(&input);
    let mut recv = Guarded::new(output_bytes, misalign / 2);
    let buffers = Buffers::Apart { send: send.bytes(), recv: recv.bytes() };
    comm.run(&request, buffers).map_err(|e| fail("out of place", e.to_string()))?;
    verdict(&reference, &data, rank, recv.bytes()).map_err(|e| fail("out of place", e))?;
    recv.check().map_err(|e| fail("out of place", e))?;
    if send.bytes() != input {
        return Err(fail("out of place", "the input was changed".to_owned()));
    }

    let whole_bytes = request.whole_bytes(comm.world()).map_err(|e| e.to_string())? as usize;
    let mut whole = Guarded::new(whole_bytes, misalign);
    let own = comm.rank() as usize * case.count as usize * size;
    let input_at = match case.collective {
        Collective::AllGather | Collective::Gather => own,
        _ => 0,
    };
    let output_at = match case.collective {
        Collective::ReduceScatter | Collective::Scatter => own,
        _ => 0,
    };
    whole.bytes()[input_at..input_at + input.len()].copy_from_slice(&input);
    comm.run(&request, Buffers::InPlace(whole.bytes())).map_err(|e| fail("in place", e.to_string()))?;
    let output = &whole.bytes()[output_at..output_at + output_bytes];
    verdict(&reference, &data, rank, output).map_err(|e| fail("in place", e))?;
    whole.check().map_err(|e| fail("in place", e))
}

fn verdict(request: &reference::Request, data: &Data, rank: Rank, got: &[u8]) -> Result<(), String> {
    let report = reference::check(request, data, rank, got);
    match report.first.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} wrong elements, the first: {first:?}", report.wrong)),
    }
}

/// all_to_all_v and send_recv: a table of sizes, all messages in one group.
fn check_messages(comm: &Communicator, case: Case, random: &mut Random, seed: u64) -> Result<(), String> {
    let world = comm.world();
    let mut request = reference::Request::new(case.collective, case.dtype, case.op, world, case.count)
        .map_err(|e| e.to_string())?;
    if case.collective == Collective::AllToAllV {
        let sizes = (0..world * world).map(|_| random.below(case.count + 1)).collect();
        request = request.with_sizes(reference::Sizes::Table(sizes)).map_err(|e| e.to_string())?;
    }
    exchange(comm, &request, &Data::exact(seed), seed).map_err(|e| format!("{case:?}: {e}"))
}

/// Runs the messages of a reference request, in an order of this rank's own.
fn exchange(comm: &Communicator, request: &reference::Request, data: &Data, seed: u64) -> Result<(), String> {
    let (world, rank) = (comm.world(), Rank::from_u32(comm.rank()));
    let size = request.dtype.size_bytes();
    let input = reference::input(request, data, rank);
    let mut output = Guarded::new(request.output_elements(rank) as usize * size, 3);
    let mut calls: Vec<Call<'_>> = Vec::new();
    let mut rest = &input[..];
    for peer in 0..world {
        let bytes = request.size(rank, Rank::from_u32(peer)) as usize * size;
        let (data, next) = rest.split_at(bytes);
        rest = next;
        calls.push(Call::Send { peer, data });
    }
    let mut rest = output.bytes();
    for peer in 0..world {
        let bytes = request.size(Rank::from_u32(peer), rank) as usize * size;
        let (data, next) = rest.split_at_mut(bytes);
        rest = next;
        calls.push(Call::Recv { peer, data });
    }
    let mut random = Random::new(seed ^ u64::from(comm.rank()) << 32);
    for last in (1..calls.len()).rev() {
        calls.swap(last, random.below(last as u64 + 1) as usize);
    }
    comm.run_group(&mut calls).map_err(|e| e.to_string())?;
    drop(calls);
    verdict(request, data, rank, output.bytes())?;
    output.check()
}

/// Random calls in a row on one communicator: sizes, types, roots, groups, messages.
fn run_mixture(comm: &Communicator, draw: Draw, calls: u64) -> Result<(), String> {
    let mut random = Random::new(draw.seed);
    for number in 0..calls {
        let seed = random.next();
        let step = |e: String| format!("call {number} of the mixture with seed {}: {e}", draw.seed);
        match random.below(8) {
            0 => mixed_messages(comm, &mut random, seed).map_err(step)?,
            1 => mixed_group(comm, &mut random, seed).map_err(step)?,
            _ => {
                let case = mixed_case(&mut random);
                check_case(comm, case, &mut random, seed).map_err(step)?;
            }
        }
    }
    Ok(())
}

fn mixed_count(random: &mut Random) -> u64 {
    let bits = random.below(14);
    random.below(1 << bits)
}

fn mixed_case(random: &mut Random) -> Case {
    let planned = &Collective::ALL.map(|c| {
        if matches!(c, Collective::AllToAllV | Collective::SendRecv) { Collective::AllReduce } else { c }
    });
    Case {
        collective: random.pick(planned),
        dtype: random.pick(&DataType::ALL),
        op: random.pick(&ReduceOp::ALL),
        count: mixed_count(random),
    }
}

fn mixed_messages(comm: &Communicator, random: &mut Random, seed: u64) -> Result<(), String> {
    let largest = mixed_count(random);
    let dtype = random.pick(&DataType::ALL);
    let case = Case { collective: Collective::AllToAllV, dtype, op: ReduceOp::Sum, count: largest };
    check_messages(comm, case, random, seed)
}

/// A group of an all_reduce, a message around the ring and an all_gather.
fn mixed_group(comm: &Communicator, random: &mut Random, seed: u64) -> Result<(), String> {
    let (world, rank) = (comm.world(), Rank::from_u32(comm.rank()));
    let make = |collective, dtype, count| {
        reference::Request::new(collective, dtype, ReduceOp::Sum, world, count).map_err(|e| e.to_string())
    };
    let sum = make(Collective::AllReduce, DataType::Float32, mixed_count(random))?;
    let gather = make(Collective::AllGather, DataType::Int32, mixed_count(random))?;
    let message = make(Collective::SendRecv, DataType::Uint8, mixed_count(random))?;
    let data = Data::exact(seed);
    let inputs = [&sum, &gather, &message].map(|r| reference::input(r, &data, rank));
    let mut outputs =
        [&sum, &gather, &message].map(|r| vec![0; r.output_elements(rank) as usize * r.dtype.size_bytes()]);
    let [sum_out, gather_out, message_out] = &mut outputs;
    let request = |r: &reference::Request| Request::new(r.collective, r.dtype, r.count);
    let mut calls = vec![
        Call::Collective(request(&sum), Buffers::Apart { send: &inputs[0], recv: sum_out }),
        Call::Send { peer: (comm.rank() + 1) % world, data: &inputs[2] },
        Call::Collective(request(&gather), Buffers::Apart { send: &inputs[1], recv: gather_out }),
        Call::Recv { peer: (comm.rank() + world - 1) % world, data: message_out },
    ];
    comm.run_group(&mut calls).map_err(|e| e.to_string())?;
    drop(calls);
    for (request, output) in [&sum, &gather, &message].into_iter().zip(&outputs) {
        verdict(request, &data, rank, output)?;
    }
    Ok(())
}

/// A buffer between two guards, at any alignment.
struct Guarded {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Guarded {
    fn new(len: usize, misalign: usize) -> Self {
        let start = GUARD + misalign;
        Self { memory: vec![GUARD_BYTE; start + len + GUARD], start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    fn check(&self) -> Result<(), String> {
        let around = self.memory[..self.start].iter().chain(&self.memory[self.start + self.len..]);
        if around.into_iter().all(|b| *b == GUARD_BYTE) {
            Ok(())
        } else {
            Err("memory beside the buffer was written".to_owned())
        }
    }
}
