//! Emission: every planned algorithm becomes a kernel's text, the same text every time, and the text grows
//! with the shapes of ops, not with ranks that do the same.

use ringsmith_compiler::emit::{Access, Capacity, EmitError, Kernel, Options, emit, exchange};
use ringsmith_compiler::lower;
use ringsmith_compiler::plan::{Shape, candidates, gpu, instantiate};
use ringsmith_ir::expand::expand;
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_ir::verify::{self, Verified};

fn options(plan: &KernelPlan, dtype: DataType, op: ReduceOp) -> Options {
    Options {
        dtype,
        op: plan.collective.reduces().then_some(op),
        access: Access::Vector,
        threads: 256,
        unroll: 2,
        resident: 1,
        local_ranks: plan.ranks,
        max_blocks: 256,
        parity_bytes: 1 << 20,
        slot_bytes: 32 << 10,
    }
}

fn lowered(
    program: &ringsmith_ir::program::Program,
    arguments: &ringsmith_ir::expand::Arguments,
    protocol: Protocol,
) -> Verified<KernelPlan> {
    let schedule = verify::schedule(expand(program, arguments).expect("it expands")).expect("it is right");
    let options = lower::Options { protocol, slots: 4, slot_bytes: 8 << 10 };
    lower::lower_direct(&schedule, options).expect("it lowers")
}

fn all_reduce(name: &str, ranks: u32, protocol: Protocol) -> Verified<KernelPlan> {
    let request = gpu::Request {
        collective: Collective::AllReduce,
        op: Some(ReduceOp::Sum),
        root: None,
        ranks,
        bytes: 1 << 20,
        maps_buffers: true,
    };
    let plan = gpu::make(&request, name, protocol).expect("the algorithm exists");
    lowered(&plan.program, &plan.arguments, protocol)
}

fn kernel(plan: &Verified<KernelPlan>) -> Kernel {
    emit(plan, &options(plan, DataType::Float32, ReduceOp::Sum)).expect("it emits")
}

#[test]
fn every_algorithm_has_a_kernel_in_every_protocol() {
    let mut kernels = 0;
    for collective in Collective::ALL {
        for algorithm in candidates(collective) {
            for ranks in [2, 3, 4, 8] {
                for &protocol in algorithm.protocols() {
                    if !algorithm.applies.holds(ranks) {
                        continue;
                    }
                    let op = collective.reduces().then_some(ReduceOp::Sum);
                    let per_node = if ranks.is_multiple_of(2) { 2 } else { 1 };
                    let shape = Shape { ranks, per_node, root: ranks - 1 };
                    let (program, arguments) = instantiate(algorithm, shape, 1, op);
                    let plan = lowered(&program, &arguments, protocol);
                    let made = kernel(&plan);
                    let what = format!("{collective} {} {protocol} {ranks}", algorithm.name);
                    assert!(
                        made.source.contains(&format!("void __launch_bounds__(THREADS, 1) {}(", made.name)),
                        "{what}"
                    );
                    assert!(!made.source.contains("#include"), "{what}");
                    assert_eq!(made.tables.len(), ranks as usize, "{what}");
                    // Every op of every role says where it comes from.
                    let addresses: usize = made.addresses.iter().map(Vec::len).sum();
                    assert!(addresses > 0, "{what}");
                    assert_eq!(made, kernel(&plan), "{what}: the same plan gives the same text");
                    kernels += 1;
                }
            }
        }
    }
    assert!(kernels > 150, "{kernels} kernels");
}

#[test]
fn one_text_speaks_for_all_ranks() {
    for (name, protocol) in [
        ("one_shot", Protocol::Ll),
        ("one_shot", Protocol::Ll128),
        ("two_shot", Protocol::Ll128),
        ("split_two_shot", Protocol::Simple),
        ("ring", Protocol::Simple),
    ] {
        let made = kernel(&all_reduce(name, 8, protocol));
        let lanes = made.lanes as usize;
        // Rank 0 may start a sum in another way than the others; no more than that.
        assert!(
            (lanes..=lanes + 1).contains(&made.addresses.len()),
            "{name}: {} roles",
            made.addresses.len()
        );
        let rows: Vec<usize> = made.tables.iter().flatten().map(|t| t.columns.len()).collect();
        assert!(rows.iter().all(|len| *len <= made.columns as usize));
    }
}

#[test]
fn large_sums_are_written_straight_into_the_peers_output() {
    let made = kernel(&all_reduce("split_two_shot", 2, Protocol::Simple));
    assert!(made.uses_peers);
    assert!(made.source.contains("a.peer[t["), "{}", made.source);
    // The news that a lane is done waits for the last tile.
    assert!(made.source.contains("Messages without payload speak for all tiles at once."));
    let zone = kernel(&all_reduce("one_shot", 3, Protocol::Ll));
    assert!(!zone.uses_peers);
}

#[test]
fn zero_copy_waits_for_peers_once_and_touches_no_slot() {
    let request = gpu::Request {
        collective: Collective::AllGather,
        op: None,
        root: None,
        ranks: 4,
        bytes: 1 << 20,
        maps_buffers: true,
    };
    let plan = gpu::make(&request, "zero_copy", Protocol::Simple).expect("there is one");
    let plan = lowered(&plan.program, &plan.arguments, Protocol::Simple);
    let made = emit(&plan, &Options { op: None, ..options(&plan, DataType::Uint8, ReduceOp::Sum) })
        .expect("it emits");
    assert!(made.uses_peers);
    let (before, after) = made.source.split_once("for (u32 tile = block;").expect("a loop over tiles");
    let (tile, after) = after.split_once("\n  }\n").expect("its end");
    let waits = |text: &str| text.matches("wait_full(a, t").count();
    assert!(before.contains("Messages that say that a rank has begun speak for all tiles at once."));
    assert_eq!((waits(before), waits(tile), waits(after)), (3, 0, 3), "{}", made.source);
    assert!(!tile.contains("slot(t"), "{tile}");
    let request = gpu::Request { maps_buffers: false, ..request };
    assert!(gpu::make(&request, "zero_copy", Protocol::Simple).is_none());
}

#[test]
fn an_end_is_waited_for_and_counted_by_one_thread() {
    // Else a thread could look at the number of a message before another has raised it.
    let mut ends = 0;
    for name in ["ring", "two_shot", "split_two_shot", "tree", "rabenseifner"] {
        let source = kernel(&all_reduce(name, 4, Protocol::Simple)).source;
        let steps = source.lines().filter(|line| line.trim_start().starts_with("if (threadIdx.x == "));
        for line in steps.filter(|line| line.contains("wait_f") || line.contains("++sequence[")) {
            let after = |text: &str| {
                let rest = line.split_once(text).map_or("", |(_, rest)| rest);
                rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().to_owned()
            };
            assert_eq!(after("threadIdx.x == "), after("sequence["), "{name}: {line}");
            ends += 1;
        }
    }
    assert!(ends > 50, "{ends} lines");
}

#[test]
fn types_and_operations_differ_in_their_arithmetic_only() {
    let plan = all_reduce("one_shot", 2, Protocol::Ll);
    let sum = emit(&plan, &options(&plan, DataType::Float32, ReduceOp::Sum)).expect("it emits");
    for dtype in DataType::ALL {
        let made = emit(&plan, &options(&plan, dtype, ReduceOp::Sum)).expect("it emits");
        assert_eq!(made.tables, sum.tables, "{dtype}");
        assert!(made.source.contains(&format!("#define ELEMENTS {}\n", 8 / dtype.size_bytes())), "{dtype}");
    }
}

#[test]
fn what_no_kernel_can_be_made_with_is_refused() {
    let plan = all_reduce("one_shot", 2, Protocol::Ll);
    let good = options(&plan, DataType::Float32, ReduceOp::Sum);
    let name = |options: Options| match emit(&plan, &options) {
        Err(EmitError::Option(name, _)) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(name(Options { threads: 33, ..good }), "threads");
    assert_eq!(name(Options { threads: 2048, ..good }), "threads");
    assert_eq!(name(Options { unroll: 0, ..good }), "unroll");
    assert_eq!(name(Options { resident: 0, ..good }), "resident");
    assert_eq!(name(Options { local_ranks: 3, ..good }), "local_ranks");
    assert_eq!(name(Options { max_blocks: 0, ..good }), "max_blocks");
    assert_eq!(name(Options { op: None, ..good }), "op");
    let fifo = all_reduce("split_two_shot", 2, Protocol::Simple);
    let narrow = Options { slot_bytes: 4096, ..options(&fifo, DataType::Float32, ReduceOp::Sum) };
    assert!(matches!(emit(&fifo, &narrow), Err(EmitError::Option("slot_bytes", _))), "a tile has 8 KiB");
    let mesh = all_reduce("split_two_shot", 16, Protocol::Simple);
    let few = Options { threads: 32, ..options(&mesh, DataType::Float32, ReduceOp::Sum) };
    assert!(matches!(emit(&mesh, &few), Err(EmitError::Plan(_))), "every end of a link has a thread");
    let maximum = emit(&plan, &Options { op: Some(ReduceOp::Max), ..good });
    assert!(matches!(maximum, Err(EmitError::Plan(_))), "the plan is written for sums");
}

#[test]
fn the_exchange_kernel_is_written_from_its_plan() {
    let proved = |slots| {
        let plan = ringsmith_compiler::exchange::exchange(2, slots, 8 << 10);
        verify::kernel_plan(plan).expect("the exchange plan is right")
    };
    let plan = proved(4);
    let options = options(&plan, DataType::Uint8, ReduceOp::Sum);
    let capacity = Capacity { fifos: 8, messages: 64 };
    let made = exchange(&plan, &options, capacity).expect("it emits");
    assert_eq!(made, exchange(&plan, &options, capacity).expect("it emits"), "the same text every time");
    assert!(!made.source.contains("#include"));
    // Every op of the two lanes of a pair, and the copy of a rank's own, has left its address.
    for address in ["// r0.0#0", "// r0.1#1", "// r0.3#1"] {
        assert!(made.source.contains(address), "{address} is not in:\n{}", made.source);
    }
    let refused = |plan: &Verified<KernelPlan>, capacity| exchange(plan, &options, capacity).unwrap_err();
    assert!(refused(&proved(8), capacity).to_string().contains("8 slots"));
    assert!(refused(&plan, Capacity { fifos: 0, ..capacity }).to_string().contains("fifos"));
    let other = all_reduce("ring", 2, Protocol::Simple);
    let options = Options { op: Some(ReduceOp::Sum), ..options };
    assert!(exchange(&other, &options, capacity).is_err(), "a ring is no exchange");
}
