//! Runs with known answers, and what holds of every run.

use super::sharing::Sharing;
use super::{Failure, Launch, Network, Start, Timeline, simulate};
use crate::lower::{self, Options};
use crate::machines;
use crate::plan::{self, Costs, LinkClass, Machine, candidates};
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, DataType};
use ringsmith_ir::{text, verify};

/// Rank 0 hands its input to rank 1, in tiles of 1000 bytes.
const HANDED_OVER: &str = "
kernel_plan @handed_over {
  ranks 2
  collective broadcast
  root r0
  chunks 1
  protocol simple
  slots 1
  slot_bytes 1000
  link l0: r0.0 -> r1.0 { messages = 1 }
  lane r0.0 {
    wait   l0.free
    move   l0.slot <- input[0]
    signal l0.full
  }
  lane r1.0 {
    wait   l0.full
    move   output[0] <- l0.slot
    signal l0.free
  }
}
";

fn read(text: &str) -> KernelPlan {
    text::parse_kernel_plan(text).expect("a kernel plan")
}

fn bytes(count: u64) -> Launch {
    Launch { dtype: DataType::Uint8, count, calls: 1 }
}

/// Threads and wires move a byte in a nanosecond; nothing else is short.
fn plain(hosts: &[u32]) -> Machine {
    let class = |latency_ns| LinkClass { latency_ns, message_ns: 100.0, bytes_per_s: 1e9 };
    let costs = Costs {
        shm: class(300.0),
        zone: class(200.0),
        socket: class(1000.0),
        reduce_bytes_per_s: 1e9,
        memory_bytes_per_s: 1e18,
        network_bytes_per_s: 1e18,
        launch_ns: 50.0,
        ..Costs::CPU
    };
    Machine { costs, ..Machine::cpu(hosts.to_vec(), 64) }
}

fn on(machine: &Machine, plan: &KernelPlan, launch: Launch) -> Timeline {
    simulate(plan, launch, &Network::of_hosts(machine, 0), Start::default()).expect("it ends")
}

#[test]
fn a_message_takes_both_ends_and_the_way_between() {
    let plan = read(HANDED_OVER);
    // The call, a copy, the signal, its way, the wait, and a copy.
    let near = on(&plain(&[0, 0]), &plan, bytes(1000));
    assert_eq!(near.total_ns, 50.0 + 1000.0 + 100.0 + 300.0 + 100.0 + 1000.0);
    // Out of a socket first, and then into the output.
    let far = on(&plain(&[0, 1]), &plan, bytes(1000));
    assert_eq!(far.total_ns, 50.0 + 1000.0 + 100.0 + 1000.0 + 100.0 + 2000.0);
    let sent = far.usage.iter().find(|usage| usage.name == "host 0 sends").expect("the bytes went out");
    assert_eq!((sent.carried, sent.share), (1000.0, 1000.0 / (1e9 * far.total_ns)));
    assert!(near.usage.iter().all(|usage| usage.name != "host 0 sends"));
}

#[test]
fn a_sender_without_a_free_slot_waits_for_the_credit() {
    let mut plan = read(HANDED_OVER);
    // With one slot, a tile follows when the one before has been taken out and the credit is back.
    let (there, back) = (1000.0 + 100.0 + 300.0 + 100.0 + 1000.0, 300.0);
    let one = on(&plain(&[0, 0]), &plan, bytes(3000));
    assert_eq!((one.tiles, one.total_ns), (3, 50.0 + 3.0 * there + 2.0 * back));
    // With enough of them, tiles follow each other as fast as an end is through with one.
    plan.slots = 4;
    let four = on(&plain(&[0, 0]), &plan, bytes(3000));
    assert_eq!(four.total_ns, 50.0 + there + 2.0 * 1100.0);
}

#[test]
fn two_messages_share_a_wire() {
    let lanes = HANDED_OVER.replace("r1.0", "r2.0").replace("ranks 2", "ranks 4");
    let (head, rest) = lanes.split_once("  lane r0.0").expect("it has lanes");
    let (first, second) = rest.split_once("  lane r2.0").expect("it has two");
    let second = second.trim_end().trim_end_matches('}');
    let other = |lane: &str| lane.replace("l0", "l1");
    let text = format!(
        "{head}  link l1: r1.0 -> r3.0 {{ messages = 1 }}\n  lane r0.0{first}  lane r1.0{}  lane r2.0{second}  lane r3.0{}}}\n",
        other(first),
        other(second)
    );
    let plan = read(&text);
    let mut machine = plain(&[0, 0, 1, 1]);
    machine.costs.network_bytes_per_s = 1e9;
    let shared = on(&machine, &plan, bytes(1000));
    // 2000 bytes leave, and 2000 enter, at one a nanosecond; the threads' copies on top of what enters hide behind it.
    assert_eq!(shared.total_ns, 50.0 + 2000.0 + 100.0 + 1000.0 + 100.0 + 2000.0);
    let sent = shared.usage.iter().find(|usage| usage.name == "host 0 sends").expect("the bytes went out");
    assert_eq!(sent.carried, 2000.0);
}

#[test]
fn what_is_short_slows_all_alike_and_leaves_the_rest_to_others() {
    let mut sharing = Sharing::new(3, 2);
    sharing.begin(0, [(0, 1.0)].into_iter(), 100.0, 0.0);
    assert_eq!(sharing.next_end(), Some((100.0, 0)));
    // At 50 another comes for both resources: half the speed for each.
    sharing.begin(1, [(0, 1.0), (1, 1.0)].into_iter(), 100.0, 50.0);
    assert_eq!((sharing.next_end(), sharing.limit(1)), (Some((150.0, 0)), Some(0)));
    // The third has what the second leaves of the other resource: half of it, which is all that it wants.
    sharing.begin(2, [(1, 0.5)].into_iter(), 10.0, 50.0);
    assert_eq!(sharing.next_end(), Some((60.0, 2)));
    sharing.end(2, 60.0);
    assert_eq!(sharing.next_end(), Some((150.0, 0)));
    // The first is over: the second goes on at full speed with the 50 that are left.
    sharing.end(0, 150.0);
    assert_eq!(sharing.next_end(), Some((200.0, 1)));
    sharing.end(1, 200.0);
    assert_eq!(sharing.next_end(), None);
}

#[test]
fn nobody_could_be_faster_without_slowing_somebody_slower() {
    // Many lanes with parts of few resources, which come and go.
    let (lanes, resources) = (12, 5);
    let mut sharing = Sharing::new(lanes, resources);
    let mut state = 1u32;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    let mut wants: Vec<Vec<(usize, f64)>> = vec![Vec::new(); lanes];
    for step in 0..2000 {
        let (lane, now_ns) = (draw(lanes as u32) as usize, f64::from(step));
        if wants[lane].is_empty() {
            let first = draw(resources as u32) as usize;
            let other = (first + 1 + draw(resources as u32 - 1) as usize) % resources;
            wants[lane] = vec![(first, 1.0), (other, f64::from(1 + draw(9)) / 10.0)];
            sharing.begin(lane, wants[lane].clone().into_iter(), 1e9, now_ns);
        } else {
            sharing.end(lane, now_ns);
            wants[lane].clear();
        }
        let full = |resource: usize| {
            let users = (0..lanes).flat_map(|lane| wants[lane].iter().map(move |want| (lane, *want)));
            let used: f64 =
                users.filter(|user| user.1.0 == resource).map(|user| user.1.1 * sharing.speed(user.0)).sum();
            assert!(used < 1.0 + 1e-6, "step {step}: {used}");
            used > 1.0 - 1e-6
        };
        for lane in (0..lanes).filter(|lane| !wants[*lane].is_empty()) {
            let speed = sharing.speed(lane);
            let fastest_on = |resource: usize| {
                let on = |other: &usize| wants[*other].iter().any(|want| want.0 == resource);
                (0..lanes).filter(on).map(|other| sharing.speed(other)).fold(0.0, f64::max)
            };
            let held = wants[lane].iter().any(|want| full(want.0) && fastest_on(want.0) <= speed + 1e-9);
            assert!(speed == 1.0 || held, "step {step}: lane {lane} at {speed}");
        }
    }
}

#[test]
fn gpus_have_the_rates_of_their_links() {
    let known = |name| machines::known(name).expect("a known machine");
    let plan = read(HANDED_OVER);
    let plan = KernelPlan { slot_bytes: 1 << 20, ..plan };
    let network = Network::of_topology(&known("hgx-h100"), 2).expect("they are joined");
    let run =
        |plan: &KernelPlan| simulate(plan, bytes(1 << 20), &network, Start::default()).expect("it ends");
    // 18 NVLinks of 20.6 GB/s, 600 ns, and the own memory at 5000 GB/s twice: out of the slot, into the output.
    let million = f64::from(1 << 20);
    let expected = million / 370.8 + 600.0 + 2.0 * million / 5000.0;
    assert!((run(&plan).total_ns - expected).abs() < 1e-6, "{}", run(&plan).total_ns);
    // LL sends as many bytes of flags as of payload.
    let cells = HANDED_OVER.lines().filter(|l| !l.contains("wait") && !l.contains("signal"));
    let cells: Vec<String> =
        cells.map(|l| l.replace("l0.slot", "l0.cell[0]").replace("simple", "ll")).collect();
    let expected = 2.0 * million / 370.8 + 600.0 + 2.0 * million / 5000.0;
    let ll = run(&read(&cells.join("\n")));
    assert!((ll.total_ns - expected).abs() < 1e-6, "{}", ll.total_ns);
    // Between nodes: a port of 400 Gbit/s, behind PCIe 5.
    let two = known("hgx-h100").times(2).expect("two nodes");
    let network = Network::of_topology(&two, 16).expect("they are joined");
    let text = HANDED_OVER.replace("r1.0", "r8.0").replace("ranks 2", "ranks 16");
    let plan = KernelPlan { slot_bytes: 1 << 20, ..read(&text) };
    let far = simulate(&plan, bytes(1 << 20), &network, Start::default()).expect("it ends");
    let expected = million / 48.0 + 2700.0 + 2.0 * million / 5000.0;
    assert!((far.total_ns - expected).abs() < 1e-6, "{}", far.total_ns);
    let busiest = far.usage.iter().map(|usage| usage.name.as_str()).collect::<Vec<_>>();
    assert!(busiest.iter().any(|name| name.starts_with("n0 ") && name.ends_with(" sends")), "{busiest:?}");
}

#[test]
fn a_hang_names_who_waits_for_whom() {
    let network = Network::of_hosts(&plain(&[0, 0]), 0);
    let hang = |text: &str| match simulate(&read(text), bytes(3000), &network, Start::default()) {
        Err(Failure::Hang(hang)) => hang.to_string(),
        other => panic!("no hang: {other:?}"),
    };
    let no_credit = HANDED_OVER.replace("    signal l0.free\n", "");
    let said = hang(&no_credit);
    assert!(said.starts_with("the plan hangs after 2.550 us: 2 lanes wait for what never comes\n"), "{said}");
    assert!(
        said.contains("rank 0, op r0.0#0, tile 2: waits for rank 1 to signal a free slot of l0"),
        "{said}"
    );
    assert!(said.contains("; rank 1 waits itself at r1.0#0\n"), "{said}");
    let no_signal = HANDED_OVER.replace("    wait   l0.free\n", "").replace("    signal l0.full\n", "");
    let said = hang(&no_signal);
    assert!(said.contains("rank 1, op r1.0#0, tile 1: waits for rank 0 to signal a message on l0"), "{said}");
    assert!(said.contains("lane r0.0 of rank 0 has ended and signals no more"), "{said}");
}

#[test]
fn too_many_ops_are_refused() {
    let network = Network::of_hosts(&plain(&[0, 0]), 0);
    let run = simulate(&read(HANDED_OVER), bytes(u64::MAX), &network, Start::default());
    assert!(matches!(run, Err(Failure::TooLong { ops: 6, .. })), "{run:?}");
    assert!(run.unwrap_err().to_string().contains("fewer bytes"));
}

/// The plan of an algorithm as it would run.
fn lowered(algorithm: &plan::Algorithm, ranks: u32, channels: u32, protocol: Protocol) -> KernelPlan {
    let order =
        plan::Order { ranks: (0..ranks).collect(), per_node: if ranks.is_multiple_of(2) { 2 } else { 1 } };
    let root = algorithm.collective.rooted().then_some(ranks / 2);
    let schedule = plan::schedule(algorithm, &order, root, channels, None).expect("it applies");
    let schedule = verify::schedule(schedule).expect("it is right");
    let options = Options { protocol, slots: 8, slot_bytes: 4096 };
    lower::lower(&schedule, options).expect("so is its kernel plan").into_inner()
}

#[test]
fn every_planned_algorithm_runs_and_adds_up() {
    for ranks in [2, 5, 8] {
        let hosts: Vec<u32> = (0..ranks).map(|rank| rank / 4).collect();
        for algorithm in Collective::ALL.into_iter().flat_map(candidates).filter(|a| a.applies.holds(ranks)) {
            let channels = if algorithm.has_channels { 2 } else { 1 };
            let plan = lowered(algorithm, ranks, channels, Protocol::Simple);
            let topology = machines::known("dgx1v").expect("a known machine");
            let gpus = Network::of_topology(&topology, ranks).expect("they are joined");
            for network in [Network::of_hosts(&Machine::cpu(hosts.clone(), 2), 0), gpus] {
                let what = format!("{} {} of {ranks} ranks", algorithm.name, algorithm.collective);
                let launch = Launch { dtype: DataType::Float32, count: 10_000, calls: 1 };
                let run = |start| simulate(&plan, launch, &network, start).expect("proved plans end");
                let timeline = run(Start::default());
                assert_eq!(timeline, run(Start::default()), "{what}: the same twice");
                let ops: u64 = plan.lanes.values().map(|lane| lane.ops.len() as u64).sum();
                assert_eq!(timeline.records.len() as u64, ops * timeline.tiles, "{what}");
                assert!(
                    timeline.usage.iter().all(|usage| usage.share < 1.0 + 1e-6),
                    "{what}: {:?}",
                    timeline.usage
                );
                let parts: f64 = timeline.parts.iter().map(|part| part.ns).sum();
                assert!(
                    (parts - timeline.total_ns).abs() < 1e-6 * timeline.total_ns,
                    "{what}: {parts} of {}",
                    timeline.total_ns
                );
                let late = |seed| run(Start { within_ns: 1000.0, seed }).total_ns;
                assert_eq!(late(7), late(7), "{what}");
                assert!(late(7) >= timeline.total_ns * 0.9, "{what}");
            }
        }
    }
}

#[test]
fn seeds_make_ranks_enter_at_other_moments() {
    let (network, plan) = (Network::of_hosts(&plain(&[0, 0]), 0), read(HANDED_OVER));
    let late = |seed| {
        let run = simulate(&plan, bytes(1000), &network, Start { within_ns: 1e6, seed }).expect("it ends");
        run.total_ns
    };
    assert_ne!(late(1), late(2));
    assert!((1..100).all(|seed| late(seed) < 1e6 + 3000.0));
}

#[test]
fn the_ring_is_as_fast_as_its_links() {
    // Each GPU sends 2 (n - 1) / n of the data over its NVLinks; with channels and slots enough that is all.
    let ring = candidates(Collective::AllReduce).iter().find(|a| a.name == "ring").expect("a ring");
    let plan = KernelPlan { slot_bytes: 512 << 10, ..lowered(ring, 8, 2, Protocol::Simple) };
    let network = Network::of_topology(&machines::known("hgx-h100").expect("known"), 8).expect("joined");
    let launch = Launch { dtype: DataType::Float32, count: 64 << 20, calls: 1 };
    let run = simulate(&plan, launch, &network, Start::default()).expect("it ends");
    let least = 1.75 * f64::from(256 << 20) / 370.8;
    assert!(run.total_ns > least && run.total_ns < 1.35 * least, "{} of {least}", run.total_ns);
}

#[test]
fn a_ring_over_nodes_is_as_fast_as_what_joins_them() {
    // p4d: 100 Gbit/s a port, behind PCIe 3, which carries 12 GB/s; one ring crosses one port of each node.
    let ring = candidates(Collective::AllReduce).iter().find(|a| a.name == "ring").expect("a ring");
    let plan = KernelPlan { slot_bytes: 128 << 10, ..lowered(ring, 16, 1, Protocol::Simple) };
    let two = machines::known("aws-p4d").expect("known").times(2).expect("two nodes");
    let network = Network::of_topology(&two, 16).expect("joined");
    let launch = Launch { dtype: DataType::Float32, count: 16 << 20, calls: 1 };
    let run = simulate(&plan, launch, &network, Start::default()).expect("it ends");
    let least = 1.875 * f64::from(64 << 20) / 12.0;
    assert!(run.total_ns > least && run.total_ns < 1.5 * least, "{} of {least}", run.total_ns);
    let busiest = run.usage.iter().max_by(|a, b| a.share.total_cmp(&b.share)).expect("something is used");
    assert!(busiest.share > 0.66 && run.parts[0].ns > 0.5 * run.total_ns, "{busiest:?} {:?}", run.parts);
}

#[test]
fn a_call_begins_when_all_lanes_have_ended_the_one_before() {
    let plan = read(HANDED_OVER);
    let total = |calls| on(&plain(&[0, 0]), &plan, Launch { calls, ..bytes(1000) });
    // The receiver is the slower one: it calls again at once, and its credit lets the sender go on.
    let (one, two) = (total(1), total(2));
    let (send, receive, way, enter) = (1100.0, 1100.0, 300.0, 50.0);
    assert_eq!(one.total_ns, enter + send + way + receive);
    assert_eq!(two.total_ns, one.total_ns + way + send + way + receive);
    assert_eq!(two.records.iter().filter(|record| record.tile == 1).count(), 6);
    let sum: f64 = two.parts.iter().map(|part| part.ns).sum();
    assert_eq!(sum, two.total_ns);
    // With slots enough, calls follow each other as fast as an end is through with one.
    let plan = KernelPlan { slots: 8, ..plan };
    let total = |calls| on(&plain(&[0, 0]), &plan, Launch { calls, ..bytes(1000) }).total_ns;
    assert_eq!(total(5) - total(4), 1100.0 + enter);
}
