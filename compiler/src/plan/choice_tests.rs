//! The chooser: what it picks can run, its stretches have no gaps, its errors name their causes.

use super::{
    Algorithm, Choice, Costs, Filter, Instances, Machine, Measurement, NothingLeft, Options, Request,
    Verdict, candidates, choose, choose_range, explain, instantiate, prove_instances, schedule, stretch_at,
};
use crate::lower;
use ringsmith_ir::expand::expand;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::Collective;
use ringsmith_ir::verify;
use ringsmith_ir::verify::{MAX_STEPS, MAX_WORK};

fn request(collective: Collective, bytes: u64) -> Request {
    Request { collective, root: 0, bytes }
}

fn planned() -> impl Iterator<Item = Collective> {
    Collective::ALL.into_iter().filter(|c| !candidates(*c).is_empty())
}

/// One host with plenty of cores, one with too few, and two hosts.
fn machines(ranks: u32) -> [Machine; 3] {
    let one = vec![0; ranks as usize];
    let two = (0..ranks).map(|r| u32::from(r >= ranks.div_ceil(2))).collect();
    [Machine::cpu(one.clone(), 64), Machine::cpu(one, 2), Machine::cpu(two, 4)]
}

#[test]
fn what_is_chosen_can_be_proved_and_lowered() {
    for collective in planned() {
        for ranks in [1, 2, 3, 5, 8] {
            for machine in machines(ranks) {
                for bytes in [0, 8, 20_000, 3 << 20] {
                    let choice = choose(request(collective, bytes), &machine, &Options::default())
                        .expect("something can always run");
                    let (program, arguments) = instantiate(
                        choice.algorithm,
                        choice.rank_order.shape(Some(0)),
                        choice.channels,
                        None,
                    );
                    let schedule = expand(&program, &arguments).expect("built-in programs expand");
                    assert_eq!(schedule.chunks, choice.chunks, "{}", choice.algorithm.name);
                    let schedule = verify::schedule(schedule).expect("built-in programs are right");
                    let options = lower::Options {
                        protocol: choice.protocol,
                        slots: machine.slots,
                        slot_bytes: machine.slot_bytes,
                    };
                    let plan = lower::lower(&schedule, options).expect("a choice can be lowered");
                    assert_eq!(plan.protocol, choice.protocol);
                }
            }
        }
    }
}

#[test]
fn stretches_have_no_gaps_and_hold_what_a_single_choice_would_be() {
    for collective in planned() {
        for ranks in [1, 2, 4, 7, 16] {
            for machine in machines(ranks) {
                let stretches =
                    choose_range(collective, 0, &machine, &Options::default()).expect("something runs");
                let mut next = Some(0);
                for stretch in &stretches {
                    assert_eq!(Some(stretch.first_bytes), next, "{collective} on {ranks} ranks");
                    assert!(stretch.first_bytes <= stretch.last_bytes);
                    next = stretch.last_bytes.checked_add(1);
                    let choice =
                        choose(request(collective, stretch.first_bytes), &machine, &Options::default())
                            .expect("something runs");
                    assert_eq!(
                        (choice.algorithm, choice.protocol, choice.channels),
                        (stretch.algorithm, stretch.protocol, stretch.channels)
                    );
                }
                assert_eq!(next, None, "the last stretch reaches the largest size");
                for pair in stretches.windows(2) {
                    let what = |i: usize| (pair[i].algorithm, pair[i].protocol, pair[i].channels);
                    assert_ne!(what(0), what(1), "{collective} on {ranks} ranks");
                }
                assert!(stretches.len() <= 12, "{collective} on {ranks} ranks: {stretches:?}");
            }
        }
    }
}

#[test]
fn sizes_that_nothing_passes_for_are_in_no_stretch() {
    let machine = Machine::cpu(vec![0; 4], 64);
    let options = Options { protocols: Filter::Only(vec!["ll".into()]), ..Options::default() };
    let stretches = choose_range(Collective::AllReduce, 0, &machine, &options).expect("small sizes pass");
    assert_eq!(stretch_at(&stretches, 8).map(|s| s.protocol), Some(Protocol::Ll));
    assert_eq!(stretch_at(&stretches, 1 << 30), None);
    let last = stretches.last().expect("there is one").last_bytes;
    assert!(stretch_at(&stretches, last).is_some() && stretch_at(&stretches, last + 1).is_none());
    assert!(choose(request(Collective::AllReduce, last), &machine, &options).is_ok());
    assert!(choose(request(Collective::AllReduce, last + 1), &machine, &options).is_err());
    assert!(choose_range(Collective::Broadcast, 0, &machine, &options).is_err());
}

#[test]
fn more_bytes_never_take_less_time() {
    for collective in planned() {
        for machine in machines(6) {
            let mut last: Vec<(&str, Protocol, f64)> = Vec::new();
            for exponent in 0..40 {
                let options = Options { max_channels: 1, ..Options::default() };
                let choice =
                    choose(request(collective, 1 << exponent), &machine, &options).expect("something runs");
                for candidate in &choice.candidates {
                    let Some(predicted) = candidate.predicted else { continue };
                    let (name, protocol) = (candidate.algorithm.name, candidate.protocol);
                    match last.iter_mut().find(|l| (l.0, l.1) == (name, protocol)) {
                        Some(known) => {
                            assert!(predicted.us >= known.2, "{name} {collective} at 2^{exponent}");
                            known.2 = predicted.us;
                        }
                        None => last.push((name, protocol, predicted.us)),
                    }
                }
            }
        }
    }
}

#[test]
fn small_messages_take_few_steps_and_large_ones_few_bytes() {
    let machine = Machine::cpu(vec![0; 4], 64);
    let algorithm = |bytes| {
        let choice = choose(request(Collective::AllReduce, bytes), &machine, &Options::default());
        choice.expect("something runs")
    };
    let small = algorithm(8);
    assert_eq!((small.algorithm.name, small.protocol), ("one_shot", Protocol::Ll));
    let large = algorithm(64 << 20);
    assert!(["two_shot", "ring"].contains(&large.algorithm.name), "{}", large.algorithm.name);
    let one_shot = large.candidates.iter().filter(|c| c.algorithm.name == "one_shot");
    for candidate in one_shot.filter(|c| c.protocol == Protocol::Simple) {
        let us = candidate.predicted.expect("it can run").us;
        assert!(us > 1.5 * large.predicted.us, "one-shot moves n - 1 times the data");
    }
}

#[test]
fn zones_need_shared_memory_between_all_ranks() {
    for machine in
        [Machine::cpu(vec![0, 0, 1, 1], 4), Machine { shared_memory: false, ..Machine::cpu(vec![0; 4], 4) }]
    {
        for collective in planned() {
            let choice =
                choose(request(collective, 8), &machine, &Options::default()).expect("something runs");
            assert_eq!(choice.protocol, Protocol::Simple, "{collective}");
        }
    }
}

#[test]
fn filters_are_obeyed_and_named_when_nothing_is_left() {
    let machine = Machine::cpu(vec![0; 4], 4);
    let only = |names: &[&str]| Filter::Only(names.iter().map(|n| (*n).to_owned()).collect());
    let ring = Options { algorithms: only(&["ring"]), ..Options::default() };
    let choose = |collective, options: &Options| choose(request(collective, 1024), &machine, options);
    assert_eq!(choose(Collective::AllReduce, &ring).expect("there is a ring").algorithm.name, "ring");
    assert_eq!(choose(Collective::Broadcast, &ring).expect("a chain is half a ring").algorithm.name, "chain");
    let error = choose(Collective::Barrier, &ring).expect_err("there is no ring barrier").to_string();
    assert!(error.contains("with algorithms ring"), "{error}");
    assert!(error.contains("dissemination over simple: the filter of algorithms `ring`"), "{error}");

    let no_ring = Options {
        algorithms: Filter::Except(vec!["ring".into(), "two_shot".into()]),
        protocols: only(&["simple"]),
        ..Options::default()
    };
    let choice = choose(Collective::AllReduce, &no_ring).expect("others are left");
    assert!(!["ring", "two_shot"].contains(&choice.algorithm.name));
    assert_eq!(choice.protocol, Protocol::Simple);

    let zones = Options { protocols: only(&["ll"]), ..Options::default() };
    let large = super::choose(request(Collective::AllReduce, 1 << 30), &machine, &zones);
    let error = large.expect_err("a gigabyte fits into no cell").to_string();
    assert!(
        error.contains("with protocols ll") && error.contains("do not fit into a zone's cells"),
        "{error}"
    );
    let channels = Options { min_channels: 3, max_channels: 2, ..Options::default() };
    assert_eq!(
        choose(Collective::AllReduce, &channels),
        Err(NothingLeft::Channels { min_channels: 3, max_channels: 2 })
    );
}

#[test]
fn channels_stay_within_their_bounds() {
    let machine = Machine { channels: 8, ..Machine::cpu(vec![0; 4], 64) };
    for (min, max) in [(1, 1), (2, 2), (3, 8), (8, 100)] {
        let options = Options { min_channels: min, max_channels: max, ..Options::default() };
        for bytes in [8, 1 << 16, 1 << 26] {
            let choice = choose(request(Collective::AllReduce, bytes), &machine, &options).expect("it fits");
            if choice.algorithm.has_channels {
                assert!((min..=max.min(8)).contains(&choice.channels), "{min} to {max}: {}", choice.channels);
            }
        }
    }
}

#[test]
fn senseless_requests_are_refused_by_name() {
    let machine = Machine::cpu(vec![0; 4], 4);
    let options = Options::default();
    let rooted = Request { collective: Collective::Broadcast, root: 4, bytes: 8 };
    assert_eq!(choose(rooted, &machine, &options), Err(NothingLeft::Root { root: 4, ranks: 4 }));
    let unplanned = choose(request(Collective::SendRecv, 8), &machine, &options);
    assert_eq!(unplanned, Err(NothingLeft::Unplanned(Collective::SendRecv)));
    let broken = [
        ("ranks", Machine::cpu(Vec::new(), 4)),
        ("cores_per_host", Machine::cpu(vec![0; 4], 0)),
        ("hosts", Machine::cpu(vec![0, 4_000_000_000], 4)),
        ("slot_bytes", Machine { slot_bytes: 0, ..machine.clone() }),
        ("switch_ns", Machine { costs: Costs { switch_ns: f64::NAN, ..Costs::CPU }, ..machine.clone() }),
    ];
    for (field, machine) in broken {
        match choose(request(Collective::AllReduce, 8), &machine, &options) {
            Err(NothingLeft::Machine(error)) => assert_eq!(error.field, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[test]
fn a_fifo_too_short_for_batches_leaves_them_out() {
    let machine = Machine { slots: 2, ..Machine::cpu(vec![0; 8], 8) };
    let choice = choose(request(Collective::AllGather, 1 << 20), &machine, &Options::default());
    let candidates = choice.expect("others run").candidates;
    let bruck = candidates.iter().find(|c| c.algorithm.name == "bruck" && c.protocol == Protocol::Simple);
    match &bruck.expect("it is listed").verdict {
        Verdict::Excluded(reason) => assert!(reason.contains("a FIFO has 2 slots"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_largest_communicators_are_planned_too() {
    let machine = Machine::cpu((0..16_384).map(|r| r / 8).collect(), 64);
    let choice = choose(request(Collective::AllReduce, 1 << 20), &machine, &Options::default());
    let choice = choice.expect("a tree can be proved");
    assert_eq!(choice.hosts, 2048);
    let extremes = Request { collective: Collective::Broadcast, root: 16_383, bytes: u64::MAX };
    choose(extremes, &machine, &Options::default()).expect("the largest request");
}

#[test]
fn interleaved_hosts_cost_no_more_than_neighbours() {
    let options = Options::default();
    let apart = Machine::cpu(vec![0, 1, 0, 1, 0, 1, 0, 1], 8);
    let together = Machine::cpu(vec![0, 0, 0, 0, 1, 1, 1, 1], 8);
    for collective in planned() {
        let choice =
            |machine| choose(request(collective, 4 << 20), machine, &options).expect("something runs");
        let (apart, together) = (choice(&apart), choice(&together));
        assert_eq!(apart.rank_order.ranks, [0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!((apart.algorithm, apart.predicted), (together.algorithm, together.predicted));
        let root = collective.rooted().then_some(0);
        let schedule = schedule(apart.algorithm, &apart.rank_order, root, apart.channels, None);
        verify::schedule(schedule.expect("it applies")).expect("renaming ranks changes nothing");
    }
}

#[test]
fn an_explanation_lists_the_choice_and_every_alternative() {
    let machine = Machine::cpu(vec![0, 0, 1, 1], 2);
    let options = Options { algorithms: Filter::Except(vec!["tree".into()]), ..Options::default() };
    let request = Request { collective: Collective::Broadcast, root: 1, bytes: 1 << 20 };
    let text = explain(&choose(request, &machine, &options).expect("something runs"));
    let expected = "\
request     broadcast of 1048576 bytes from rank 1, 4 ranks, 2 hosts
";
    assert!(text.starts_with(expected), "{text}");
    for words in
        ["rank order  0 1 2 3, on every channel", "the filter of algorithms `^tree`", " times as long"]
    {
        assert!(text.contains(words), "no {words:?} in:\n{text}");
    }
    for algorithm in candidates(Collective::Broadcast) {
        assert!(text.contains(algorithm.name), "{}", algorithm.name);
    }
}

#[test]
fn plans_may_be_as_large_as_the_verifier_takes() {
    let ring = Options {
        algorithms: Filter::Only(vec!["ring".into()]),
        protocols: Filter::Only(vec!["simple".into()]),
        ..Options::default()
    };
    let machine = |ranks: usize| Machine { channels: 64, ..Machine::cpu(vec![0; ranks], 4) };
    let choose = |ranks: usize, options: &Options| {
        choose(request(Collective::AllReduce, 1 << 20), &machine(ranks), options)
    };
    assert_eq!(choose(300, &ring).expect("its proof is within the bounds").algorithm.name, "ring");
    let steps = choose(2000, &ring).expect_err("too many ops").to_string();
    assert!(steps.contains(&MAX_STEPS.to_string()), "{steps}");
    let words = choose(200, &Options { min_channels: 16, ..ring }).expect_err("too many lanes").to_string();
    assert!(words.contains(&MAX_WORK.to_string()), "{words}");
}

#[test]
fn measured_calls_outweigh_the_model() {
    let plain = Machine::cpu(vec![0; 4], 4);
    let asked = request(Collective::AllReduce, 1 << 20);
    let before = choose(asked, &plain, &Options::default()).expect("a choice");
    let measured = |bytes, us| Measurement {
        collective: Collective::AllReduce,
        algorithm: before.algorithm,
        protocol: before.protocol,
        channels: before.channels,
        ranks: 4,
        cores: 4,
        shared_memory: true,
        bytes,
        us,
    };
    // What was the best is ten times as slow as was thought, from some size on.
    let us = before.predicted.us;
    let calls = [measured(1 << 10, 1.0), measured(1 << 20, 10.0 * us)];
    let machine = Machine { measured: calls.into_iter().collect(), ..plain.clone() };
    let after = choose(asked, &machine, &Options::default()).expect("a choice");
    assert!(
        (after.algorithm, after.protocol, after.channels)
            != (before.algorithm, before.protocol, before.channels)
    );
    let again =
        Options { algorithms: Filter::Only(vec![before.algorithm.name.into()]), ..Options::default() };
    let options = Options { min_channels: before.channels, max_channels: before.channels, ..again };
    let corrected = choose(asked, &machine, &options).expect("a choice");
    assert!((corrected.predicted.us / (10.0 * us) - 1.0).abs() < 1e-9, "{:?}", corrected.predicted);
    assert!((corrected.predicted.correction - 10.0).abs() < 1e-9);
    assert!(explain(&corrected).contains("us, 10.00 times what the model says, as measured\n"));
    // It says nothing about other ranks, cores or transports.
    for other in [
        Machine { hosts: vec![0; 3], ..machine.clone() },
        Machine { hosts: vec![0, 0, 1, 1], ..machine.clone() },
        Machine { cores_per_host: 2, ..machine.clone() },
        Machine { shared_memory: false, ..machine.clone() },
    ] {
        let unmeasured = Machine { measured: Default::default(), ..other.clone() };
        let price = |machine| choose(asked, machine, &Options::default()).expect("a choice").predicted.us;
        assert_eq!(price(&other), price(&unmeasured));
    }
}

#[test]
fn large_plans_are_proved_by_instances() {
    let options = |name: &str| Options { algorithms: Filter::Only(vec![name.into()]), ..Options::default() };
    let proved = |hosts: u32, per_host: u32, name: &str| {
        let machine = Machine::cpu((0..hosts * per_host).map(|r| r / per_host).collect(), 64);
        let choice = choose(request(Collective::AllReduce, 1 << 20), &machine, &options(name));
        prove_instances(&choice.expect("a choice")).expect("built-in programs are right")
    };
    assert_eq!(proved(9, 8, "hierarchical"), Instances { small: 16, hosts: Some((9, 3)) });
    assert_eq!(proved(1, 100, "ring"), Instances { small: 16, hosts: None });
    let large = proved(1500, 4, "double_tree");
    assert_eq!(large.hosts, Some((1500, 1)));
    let said = "by instances: the same program, whole, for 1 to 16 ranks, and for 1500 hosts of 1 rank";
    assert_eq!(large.to_string(), said);
    // Instances of a program that is wrong from three ranks on are refuted.
    let text =
        include_str!("ring_all_reduce.sched").replace("(r - k - 1) % n * channels", "(r - 1) % n * channels");
    static WRONG: std::sync::OnceLock<Algorithm> = std::sync::OnceLock::new();
    let ring = candidates(Collective::AllReduce).iter().find(|a| a.name == "ring").expect("a ring");
    let wrong = WRONG.get_or_init(|| Algorithm { text: String::leak(text), ..*ring });
    let machine = Machine::cpu(vec![0; 100], 64);
    let choice =
        choose(request(Collective::AllReduce, 1 << 20), &machine, &options("ring")).expect("a choice");
    assert!(prove_instances(&Choice { algorithm: wrong, ..choice }).is_err());
}
