//! The verifier against damage: correct schedules and kernel plans lose one op, or one op names another
//! chunk, and every damage must be refused.
//!
//! Every program that the planner has is damaged, for two, three and four ranks. A deletion that the
//! verifier accepts means that the op was redundant; there is no list of exceptions.

use ringsmith_compiler::lower::{self, Options};
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::kernel_plan::{KernelOpKind, KernelPlan, Place};
use ringsmith_ir::schedule::{OpKind, Protocol, Schedule, Slice};
use ringsmith_ir::types::Collective;
use ringsmith_ir::verify::{self, Verified};
use ringsmith_ir::{program::Program, text};
use std::path::Path;

/// Every program of the planner, by file name.
fn programs() -> Vec<(String, Program)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan");
    let mut programs: Vec<(String, Program)> = std::fs::read_dir(folder)
        .expect("the planner's folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "sched"))
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let source = std::fs::read_to_string(&path).expect("a readable program");
            let program = text::parse_program(&source).unwrap_or_else(|d| panic!("{name}: {d:?}"));
            (name, program)
        })
        .collect();
    programs.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(programs.len() > 20, "the planner has a program or more for every collective");
    programs
}

/// The schedules of a program for a number of ranks, every root, and every way to deal them out to hosts; none
/// where it does not apply.
fn schedules(program: &Program, ranks: u32) -> Vec<Verified<Schedule>> {
    let by_node = program.parameters.iter().any(|parameter| parameter.name.text == "per_node");
    let hosts: Vec<Arguments> = if by_node {
        let even = (1..=ranks).filter(|per_node| ranks.is_multiple_of(*per_node));
        even.map(|per_node| Arguments::ranks(ranks).set("per_node", i64::from(per_node))).collect()
    } else {
        vec![Arguments::ranks(ranks)]
    };
    let rooted = expand(program, &hosts[0]).is_err();
    let roots: Vec<Option<u32>> = if rooted { (0..ranks).map(Some).collect() } else { vec![None] };
    let all =
        hosts.iter().flat_map(|host| roots.iter().map(|root| Arguments { root: *root, ..host.clone() }));
    all.filter_map(|arguments| expand(program, &arguments).ok())
        .map(|schedule| verify::schedule(schedule).unwrap_or_else(|d| panic!("{ranks} ranks: {d:#?}")))
        .collect()
}

fn options(protocol: Protocol) -> Options {
    // Few slots keep the many proofs of this test short; the number changes no ordering.
    Options { protocol, slots: 2, slot_bytes: 4096 }
}

fn plans(schedule: &Verified<Schedule>) -> Vec<Verified<KernelPlan>> {
    let simple = lower::lower(schedule, options(Protocol::Simple))
        .unwrap_or_else(|d| panic!("@{} for {} ranks: {d:#?}", schedule.name, schedule.ranks));
    // Programs that leave a rank unheard may not use a zone, and are refused there.
    let zone = lower::lower(schedule, options(Protocol::Ll));
    if let Err(diagnostics) = &zone {
        assert!(diagnostics.iter().all(|d| d.code.0 == "V0602"), "@{}: {diagnostics:#?}", schedule.name);
    }
    std::iter::once(simple).chain(zone).collect()
}

#[test]
fn every_deleted_op_of_a_schedule_is_missed() {
    let mut tried = 0;
    let mut accepted = Vec::new();
    for (name, program) in programs() {
        for ranks in 2..=4 {
            for whole in schedules(&program, ranks) {
                for (lane, decl) in whole.lanes.iter() {
                    for op in 0..decl.ops.len() {
                        let mut damaged = Schedule::clone(&whole);
                        damaged.lanes[lane].ops.remove(op);
                        tried += 1;
                        if verify::schedule(damaged).is_ok() {
                            accepted.push(format!("{name}, {ranks} ranks: {}", whole.address(lane, op)));
                        }
                    }
                }
            }
        }
    }
    assert!(accepted.is_empty(), "redundant ops:\n{}", accepted.join("\n"));
    println!("{tried} damaged schedules, all refused");
    assert!(tried > 2000);
}

/// What is checked of schedules that are too large for a proof finds a missing op too.
#[test]
fn every_deleted_op_is_missed_by_an_outline() {
    let mut accepted = Vec::new();
    for (name, program) in programs() {
        for ranks in 2..=4 {
            for whole in schedules(&program, ranks) {
                verify::outline(&whole).unwrap_or_else(|d| panic!("{name} for {ranks} ranks: {d:#?}"));
                for (lane, decl) in whole.lanes.iter() {
                    for op in 0..decl.ops.len() {
                        let mut damaged = Schedule::clone(&whole);
                        damaged.lanes[lane].ops.remove(op);
                        if verify::outline(&damaged).is_ok() {
                            accepted.push(format!("{name}, {ranks} ranks: {}", whole.address(lane, op)));
                        }
                    }
                }
            }
        }
    }
    assert!(accepted.is_empty(), "ops that nobody misses:\n{}", accepted.join("\n"));
}

#[test]
fn every_deleted_op_of_a_kernel_plan_is_missed() {
    let mut tried = 0;
    let mut accepted = Vec::new();
    for (name, program) in programs() {
        for ranks in 2..=4 {
            for plan in schedules(&program, ranks).iter().take(2).flat_map(plans) {
                for (lane, decl) in plan.lanes.iter() {
                    for op in 0..decl.ops.len() {
                        let mut damaged = KernelPlan::clone(&plan);
                        damaged.lanes[lane].ops.remove(op);
                        tried += 1;
                        if verify::kernel_plan(damaged).is_ok() {
                            accepted.push(format!(
                                "{name} ({}), {ranks} ranks: {}: {:?}",
                                plan.protocol,
                                plan.address(lane, op),
                                decl.ops[op].kind
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(accepted.is_empty(), "redundant ops:\n{}", accepted.join("\n"));
    println!("{tried} damaged kernel plans, all refused");
    assert!(tried > 2000);
}

#[test]
fn every_dropped_operand_of_a_kernel_plan_is_missed() {
    let mut tried = 0;
    let mut accepted = Vec::new();
    for (name, program) in programs() {
        for plan in schedules(&program, 3).iter().take(1).flat_map(plans) {
            for (lane, decl) in plan.lanes.iter() {
                for (op, kernel_op) in decl.ops.iter().enumerate() {
                    let KernelOpKind::Move { dst, src, .. } = &kernel_op.kind else { continue };
                    for operand in 0..dst.len() + src.len() {
                        let mut damaged = KernelPlan::clone(&plan);
                        let KernelOpKind::Move { dst: d, src: s, .. } = &mut damaged.lanes[lane].ops[op].kind
                        else {
                            unreachable!("the op is a move")
                        };
                        if operand < dst.len() {
                            d.remove(operand);
                        } else {
                            s.remove(operand - dst.len());
                        }
                        tried += 1;
                        if verify::kernel_plan(damaged).is_ok() {
                            accepted.push(format!(
                                "{name} ({}): {} operand {operand}",
                                plan.protocol,
                                plan.address(lane, op)
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(accepted.is_empty(), "redundant operands:\n{}", accepted.join("\n"));
    println!("{tried} damaged moves, all refused");
    assert!(tried > 300);
}

/// Turns a chunk into the next one of its buffer.
fn shift(schedule: &Schedule, slice: &mut Slice) -> bool {
    let chunks = schedule.buffers[slice.buffer].chunks;
    slice.chunk = (slice.chunk + 1) % chunks;
    chunks > 1
}

#[test]
fn every_shifted_chunk_of_a_schedule_is_missed() {
    let mut tried = 0;
    let mut accepted = Vec::new();
    for (name, program) in programs() {
        for whole in schedules(&program, 3).into_iter().take(1) {
            for (lane, decl) in whole.lanes.iter() {
                for op in 0..decl.ops.len() {
                    for side in 0..2 {
                        let mut damaged = Schedule::clone(&whole);
                        let slice = match &mut damaged.lanes[lane].ops[op].kind {
                            OpKind::Put { src, dst, .. }
                            | OpKind::Get { src, dst, .. }
                            | OpKind::Reduce { dst, src }
                            | OpKind::Copy { src, dst } => {
                                if side == 0 {
                                    src
                                } else {
                                    dst
                                }
                            }
                            OpKind::Signal { .. } | OpKind::Wait { .. } => continue,
                        };
                        if !shift(&whole, slice) {
                            continue;
                        }
                        tried += 1;
                        if verify::schedule(damaged).is_ok() {
                            accepted.push(format!("{name}: {} side {side}", whole.address(lane, op)));
                        }
                    }
                }
            }
        }
    }
    assert!(accepted.is_empty(), "damage that was not seen:\n{}", accepted.join("\n"));
    println!("{tried} shifted chunks, all refused");
    assert!(tried > 100);
}

#[test]
fn swapped_neighbours_are_refused_or_give_the_same_result() {
    // A swap that is accepted must leave the postcondition proved, which `verify` has done by accepting
    // it; what is left to show is that it caught those that matter: a read before its wait.
    let mut refused = 0;
    for (_, program) in programs() {
        for whole in schedules(&program, 3).into_iter().take(1) {
            for (lane, decl) in whole.lanes.iter() {
                for op in 1..decl.ops.len() {
                    let waits = matches!(decl.ops[op - 1].kind, OpKind::Wait { .. });
                    let uses = matches!(decl.ops[op].kind, OpKind::Reduce { .. } | OpKind::Copy { .. });
                    if !(waits && uses)
                        || decl.ops[..op - 1].iter().any(|o| matches!(o.kind, OpKind::Wait { .. }))
                    {
                        continue;
                    }
                    let mut damaged = Schedule::clone(&whole);
                    damaged.lanes[lane].ops.swap(op - 1, op);
                    // The first wait of a lane stands before the use of what it waited for, except where
                    // the use is of the lane's own data.
                    let (OpKind::Reduce { src, .. } | OpKind::Copy { src, .. }) = decl.ops[op].kind else {
                        unreachable!("the op is a use")
                    };
                    let own = !matches!(
                        whole.place(decl.name.rank, src),
                        ringsmith_ir::schedule::Place::Scratch(..)
                    );
                    match verify::schedule(damaged) {
                        Err(_) => refused += 1,
                        Ok(_) => assert!(own, "{} of @{}", whole.address(lane, op), whole.name),
                    }
                }
            }
        }
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn moves_of_a_broadcast_stay_within_user_memory() {
    for (_, program) in programs() {
        for plan in schedules(&program, 4).iter().flat_map(plans) {
            let reads_input_of = |rank: u32| {
                plan.lanes.values().filter(move |l| l.name.rank.as_u32() == rank).any(|l| {
                    l.ops.iter().any(|op| match &op.kind {
                        KernelOpKind::Move { src, .. } => {
                            src.iter().any(|s| matches!(s.place, Place::Input(_)))
                        }
                        KernelOpKind::Wait(_) | KernelOpKind::Signal(_) => false,
                    })
                })
            };
            if plan.collective == Collective::Broadcast {
                let root = plan.root.expect("a broadcast has a root").as_u32();
                assert!((0..4).all(|rank| reads_input_of(rank) == (rank == root)), "@{}", plan.name);
            }
        }
    }
}
