//! The exchange kernel on a CPU: ranks with lists of messages in orders of their own, several calls in a row,
//! and collectives over the same FIFOs between them.

use crate::device::{Communicator, Machine};
use crate::kernels::{self, Candidate, Folder, Made, Shape, Text, Threads, geometry};
use crate::random::Random;
use crate::{Outcome, STARTS};
use ringsmith_compiler::emit::{self, Access, Capacity, Exchange};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, DataType};
use ringsmith_ir::verify;
use ringsmith_runtime::device::cuda::Lists;
use ringsmith_runtime::device::cuda::exchange::{self, Ends, Message, Report};

/// Bytes of a tile here: 32 threads with an access each.
const TILE_BYTES: usize = 512;
/// Messages of a launch here: few, so that most calls take several.
const MESSAGES: u32 = 6;
/// Between what is sent and received.
const GUARD: usize = 48;

/// The kernel for one rank a launch, and for all.
fn kernel(access: Access, local_ranks: u32) -> Exchange {
    let g = geometry(4);
    let plan = ringsmith_compiler::exchange::exchange(2, g.slots, TILE_BYTES as u64);
    let plan = verify::kernel_plan(plan).expect("the exchange plan is right");
    let options = emit::Options {
        dtype: if access == Access::Element { DataType::Uint32 } else { DataType::Uint8 },
        op: None,
        access,
        threads: 32,
        unroll: 1,
        resident: 1,
        local_ranks,
        max_blocks: g.max_blocks,
        parity_bytes: 0,
        slot_bytes: g.slot_bytes,
    };
    emit::exchange(&plan, &options, Capacity { fifos: g.fifo_blocks, messages: MESSAGES }).expect("it emits")
}

const ACCESSES: [Access; 3] = [Access::Vector, Access::Element, Access::Byte];

/// A message from a rank to another: its place in the memory of both.
#[derive(Clone, Copy, Debug)]
struct Pair {
    from: u32,
    to: u32,
    bytes: usize,
    source: usize,
    target: usize,
}

/// What ranks exchange in a call, and what it leaves in the memory of each.
struct Call {
    lists: Vec<Lists>,
    before: Vec<Vec<u8>>,
    after: Vec<Vec<u8>>,
    address: Vec<u64>,
}

fn draw(machine: &mut Machine, ranks: u32, access: Access, random: &mut Random) -> Call {
    let step = match access {
        Access::Vector => 16,
        Access::Element => 4,
        Access::Byte => 1,
    };
    let mut ends = vec![GUARD; ranks as usize];
    let mut place = |rank: u32, bytes: usize, random: &mut Random| {
        let at = ends[rank as usize].next_multiple_of(16) + step * random.below(16 / step);
        ends[rank as usize] = at + bytes + GUARD;
        at
    };
    let mut pairs = Vec::new();
    for from in 0..ranks {
        for to in 0..ranks {
            for _ in 0..random.of(&[0, 0, 1, 1, 1, 2, 3]) {
                let bytes = match random.below(4) {
                    0 => random.of(&[0, 1, TILE_BYTES - 1, TILE_BYTES, TILE_BYTES + 1, 3 * TILE_BYTES]),
                    1 => random.below(40),
                    _ => random.below(9 * TILE_BYTES),
                };
                let bytes = if access == Access::Element { bytes / 4 * 4 } else { bytes };
                let (source, target) = (place(from, bytes, random), place(to, bytes, random));
                pairs.push(Pair { from, to, bytes, source, target });
            }
        }
    }
    let before: Vec<Vec<u8>> =
        ends.iter().map(|end| (0..*end).map(|_| random.next() as u8).collect()).collect();
    let mut after = before.clone();
    for pair in &pairs {
        let data = &before[pair.from as usize][pair.source..pair.source + pair.bytes];
        after[pair.to as usize][pair.target..pair.target + pair.bytes].copy_from_slice(data);
    }
    let address: Vec<u64> = before.iter().map(|memory| machine.take(memory.len() as u64)).collect();
    let mut lists = vec![Lists::default(); ranks as usize];
    for (own, lists) in (0u32..).zip(&mut lists) {
        let at = |offset: usize| address[own as usize] + offset as u64;
        let end = |peer, offset, bytes: usize| Message { peer, address: at(offset), bytes: bytes as u64 };
        let sent = pairs.iter().filter(|p| p.from == own).map(|p| end(p.to, p.source, p.bytes));
        lists.sends = shuffled(sent.collect(), random);
        let received = pairs.iter().filter(|p| p.to == own).map(|p| end(p.from, p.target, p.bytes));
        lists.receives = shuffled(received.collect(), random);
    }
    Call { lists, before, after, address }
}

/// Any order that keeps those of a peer in theirs.
fn shuffled(messages: Vec<Message>, random: &mut Random) -> Vec<Message> {
    let mut left = messages;
    let mut found = Vec::new();
    while !left.is_empty() {
        let peer = random.of(&left).peer;
        let first = left.iter().position(|m| m.peer == peer).expect("it was just drawn");
        found.push(left.remove(first));
    }
    found
}

impl Communicator {
    /// Says the launches of a call, of each rank or of all together.
    fn say(
        &self,
        machine: &mut Machine,
        (index, kernel): (usize, &Exchange),
        lists: &[Lists],
        is_together: bool,
        random: &mut Random,
    ) -> Result<(), String> {
        let max_blocks = self.layout.geometry().max_blocks;
        let groups: Vec<(u32, Vec<exchange::Parts>)> = if is_together {
            vec![(0, exchange::together(lists, MESSAGES).map_err(|error| error.to_string())?)]
        } else {
            let each = (0u32..).zip(lists).map(|(rank, lists)| {
                let parts = exchange::apart(rank, self.ranks, lists, MESSAGES);
                parts.map(|parts| (rank, parts)).map_err(|error| error.to_string())
            });
            each.collect::<Result<_, _>>()?
        };
        for (first, launches) in groups {
            for parts in launches {
                let ends = Ends {
                    layout: &self.layout,
                    scratch: &self.scratch,
                    abort: self.abort,
                    reports: self.reports + 8 * u64::from(first * max_blocks),
                    most_blocks: 2 + random.below(6) as u32,
                };
                let launch = parts.launch(kernel, &ends, first).map_err(|error| error.to_string())?;
                let bytes = launch.words.len() as u64 * 8;
                let at = machine.take(bytes);
                machine.write_words(at, &launch.words);
                let (x, y) = (launch.blocks, if is_together { self.ranks } else { 1 });
                machine.say(&format!("launch {first} {index} {x} {y} {} {at} {bytes}", kernel.threads));
            }
        }
        Ok(())
    }

    fn reports(&self, machine: &Machine) -> Vec<(u32, Report)> {
        let max_blocks = self.layout.geometry().max_blocks;
        let word = |place: u32| {
            let bytes = machine.read(self.reports + 8 * u64::from(place), 8);
            u64::from_le_bytes(bytes.try_into().expect("8 bytes were read"))
        };
        let all = 0..self.ranks * max_blocks;
        all.filter_map(|place| Report::of(word(place)).map(|report| (place / max_blocks, report))).collect()
    }

    /// Calls back to back, in any order on one communicator.
    fn exchange(
        &self,
        machine: &mut Machine,
        kernels: &[(usize, Access, &Exchange)],
        is_together: bool,
        random: &mut Random,
    ) -> Outcome {
        machine.end = self.free;
        let mut calls = Vec::new();
        for _ in 0..1 + random.below(3) {
            let (index, access, kernel) = random.of(kernels);
            let call = draw(machine, self.ranks, access, random);
            for (address, memory) in call.address.iter().zip(&call.before) {
                machine.write(*address, memory);
            }
            self.say(machine, (index, kernel), &call.lists, is_together, random)?;
            calls.push(call);
        }
        let lists = || calls.iter().map(|c| format!("{:?}", c.lists)).collect::<Vec<_>>().join("\n  then ");
        machine.say(&format!("go {} {}", random.next(), self.abort));
        let answer = machine.answer();
        if answer != "ok" {
            return Err(format!("{answer}: {:?}\n  {}", self.reports(machine), lists()));
        }
        for call in &calls {
            for ((address, after), rank) in call.address.iter().zip(&call.after).zip(0..) {
                let got = machine.read(*address, after.len());
                if let Some(at) = (0..got.len()).find(|at| got[*at] != after[*at]) {
                    return Err(format!("rank {rank}: byte {at} is wrong\n  {}", lists()));
                }
            }
        }
        Ok(())
    }
}

fn text(kernel: &Exchange) -> Text<'_> {
    Text { name: &kernel.name, source: &kernel.source }
}

/// A ring through the same FIFOs.
fn ring(ranks: u32) -> Made {
    let collective = Collective::AllReduce;
    let candidate = Candidate { name: "ring".to_owned(), collective, ranks, protocol: Protocol::Simple };
    kernels::make(&candidate, false, &Shape::plain()).expect("there is a ring")
}

/// Ranks in launches of their own, ranks in one, and rings between.
pub(crate) fn by_fibers(seed: u64) -> Outcome {
    let mut random = Random(seed);
    for ranks in 2..=4 {
        let apart: Vec<Exchange> = ACCESSES.iter().map(|access| kernel(*access, 1)).collect();
        let together: Vec<Exchange> = ACCESSES.iter().map(|access| kernel(*access, ranks)).collect();
        let ring = ring(ranks);
        let mut texts: Vec<Text<'_>> = apart.iter().chain(&together).map(text).collect();
        texts.push(ring.text());
        let folder = Folder::new(&format!("exchange-{:x}", random.next()));
        let program = kernels::program(&folder, &texts, Threads::Fibers)?;
        let mut machine = Machine::start(&program, &folder, Threads::Fibers);
        let own = with_index(&apart, 0);
        let all = with_index(&together, ACCESSES.len());
        for start in STARTS {
            let communicator = Communicator::new(&mut machine, ranks, start);
            for _ in 0..30 {
                communicator.exchange(&mut machine, &own, false, &mut random)?;
                if random.below(3) == 0 {
                    communicator.exchange(&mut machine, &all, true, &mut random)?;
                }
                if random.below(3) == 0 {
                    communicator.run(&mut machine, &[(2 * ACCESSES.len(), &ring)], &mut random)?;
                }
            }
        }
    }
    sizes(&mut random)
}

fn with_index(kernels: &[Exchange], first: usize) -> Vec<(usize, Access, &Exchange)> {
    (first..).zip(ACCESSES).zip(kernels).map(|((index, access), kernel)| (index, access, kernel)).collect()
}

/// Under ThreadSanitizer, two ranks.
pub(crate) fn by_threads(seed: u64) -> Outcome {
    let mut random = Random(seed);
    let kernels: Vec<Exchange> = ACCESSES.iter().map(|access| kernel(*access, 1)).collect();
    let texts: Vec<Text<'_>> = kernels.iter().map(text).collect();
    let folder = Folder::new(&format!("exchange-{:x}", random.next()));
    let program = kernels::program(&folder, &texts, Threads::System)?;
    let mut machine = Machine::start(&program, &folder, Threads::System);
    for start in STARTS {
        let communicator = Communicator::new(&mut machine, 2, start);
        for _ in 0..5 {
            communicator.exchange(&mut machine, &with_index(&kernels, 0), false, &mut random)?;
        }
    }
    Ok(())
}

/// Faults planted into the kernel's text are found.
pub(crate) fn faults(seed: u64) -> Outcome {
    let faults = [
        ("nobody waits for room", "wait_until(a, end, block, sequence + 1 - SLOTS, op, stop);", ""),
        ("a FIFO's number is not kept", "*kept(t, block) = *sequence;", ";"),
        ("one word holds the sizes of all messages", "sequence & 2 * SLOTS - 1", "sequence & 0"),
        (
            "a message is there before it is written",
            "__syncthreads();\n        if (threadIdx.x == 0) store_release",
            "if (threadIdx.x == 0) store_release",
        ),
        ("sends and receives take turns in one block", "blockIdx.x < me.sends.blocks", "blockIdx.x < 1"),
    ];
    let mut random = Random(seed);
    let kernel = kernel(Access::Byte, 1);
    let mut sources = Vec::new();
    for (what, from, to) in faults {
        if !kernel.source.contains(from) {
            return Err(format!("{what}: {from:?} stands nowhere in\n{}", kernel.source));
        }
        sources.push(kernel.source.replace(from, to));
    }
    let texts: Vec<Text<'_>> = sources.iter().map(|source| Text { name: &kernel.name, source }).collect();
    let folder = Folder::new(&format!("exchange-{:x}", random.next()));
    let program = kernels::program(&folder, &texts, Threads::Fibers)?;
    for (index, (what, ..)) in faults.iter().enumerate() {
        let mut machine = Machine::start(&program, &folder, Threads::Fibers);
        let communicator = Communicator::new(&mut machine, 3, STARTS[0]);
        let kernels = [(index, Access::Byte, &kernel)];
        let found = (0..200).any(|_| {
            let outcome = communicator.exchange(&mut machine, &kernels, false, &mut random);
            outcome.is_err() || !communicator.reports(&machine).is_empty()
        });
        if !found {
            return Err(format!("{what}: nobody notices"));
        }
    }
    Ok(())
}

/// Messages whose two ends differ in size are found by their receiver, whatever has gone before.
fn sizes(random: &mut Random) -> Outcome {
    let kernels = [kernel(Access::Byte, 1)];
    let folder = Folder::new(&format!("exchange-{:x}", random.next()));
    let program = kernels::program(&folder, &[text(&kernels[0])], Threads::Fibers)?;
    for (sent, received) in [(600, 500), (500, 600), (0, 1), (1, 0), (512, 511), (5000, 3)] {
        let mut machine = Machine::start(&program, &folder, Threads::Fibers);
        let communicator = Communicator::new(&mut machine, 2, STARTS[1]);
        let before = [(0, Access::Byte, &kernels[0])];
        communicator.exchange(&mut machine, &before, false, random)?;
        machine.end = communicator.free;
        let at = [machine.take(8192), machine.take(8192)];
        machine.write(at[0], &[7; 8192]);
        machine.write(at[1], &[9; 8192]);
        let message = |peer, address, bytes| vec![Message { peer, address, bytes }];
        let lists = [
            Lists { sends: message(1, at[0], sent), receives: Vec::new() },
            Lists { sends: Vec::new(), receives: message(0, at[1], received) },
        ];
        communicator.say(&mut machine, (0, &kernels[0]), &lists, false, random)?;
        machine.say(&format!("go {} {}", random.next(), communicator.abort));
        let answer = machine.answer();
        let reports = communicator.reports(&machine);
        let expected = (1, Report::Size { peer: 0, found: sent });
        if !reports.contains(&expected) {
            return Err(format!("{sent} bytes sent, {received} received: {answer}, {reports:?}"));
        }
        let beyond = machine.read(at[1] + received, 8192 - received as usize);
        if beyond.iter().any(|byte| *byte != 9) {
            return Err(format!("{sent} bytes sent, {received} received: written beyond the end"));
        }
    }
    Ok(())
}
