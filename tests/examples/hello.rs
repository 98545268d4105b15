//! The first two examples, and the ways to start ranks.

use crate::{program, run, run_all};
use std::net::TcpListener;

#[test]
fn hello_prints_the_sums_and_the_plan() {
    for ranks in [1u32, 2, 5] {
        let done = run(program("01_hello").args(["--ranks", &ranks.to_string()])).well();
        let sum: u32 = (0..ranks).sum();
        let squares: u32 = (0..ranks).map(|rank| rank * rank).sum();
        let heading = format!("{ranks} ranks: 0 + ... + {} = {sum}, ", ranks - 1);
        assert!(done.stdout.starts_with(&heading), "{}", done.stdout);
        assert!(done.stdout.contains(&format!("^2 = {squares}\n")), "{}", done.stdout);
        assert!(done.stdout.contains("\nran as ") && done.stdout.contains("predicted"), "{}", done.stdout);
        assert_eq!(done.stdout.matches("ranks: ").count(), 1, "one rank speaks for all");
    }
}

#[test]
fn ring_exchange_tells_what_came() {
    for (ranks, tokens, letters) in [("1", "[0]", "a"), ("2", "[0, 1]", "ab"), ("4", "[0, 3, 2, 1]", "abcd")]
    {
        let done = run(program("02_ring_exchange").args(["--ranks", ranks])).well();
        let expected = format!("rank 0 saw the tokens of ranks {tokens}\nand was told: {letters}\n");
        assert_eq!(done.stdout, expected);
    }
}

#[test]
fn examples_run_without_arguments() {
    for name in ["01_hello", "02_ring_exchange", "03_average_tensors"] {
        run(&mut program(name)).well();
    }
}

#[test]
fn ranks_that_a_launcher_started_join() {
    let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).expect("a port").port();
    let rank = |rank: u32, wanted: &str| {
        let mut command = program("01_hello");
        command.args(["--ranks", wanted]);
        // As torchrun sets them.
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "3").env("LOCAL_RANK", rank.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command
    };
    let mut ranks = [0, 1, 2].map(|number| rank(number, "3"));
    let done = run_all(&mut ranks);
    let printed: Vec<&str> = done.iter().map(|done| done.stdout.lines().next().unwrap_or("")).collect();
    assert_eq!(printed, ["3 ranks: 0 + ... + 2 = 3, 0 + ... + 2^2 = 5", "", ""]);
    done.into_iter().for_each(|done| drop(done.well()));

    let mut ranks = [0, 1, 2].map(|number| rank(number, "4"));
    for done in run_all(&mut ranks) {
        assert_eq!(done.status, Some(2));
        assert!(done.stderr.contains("--ranks 4, but the launcher started 3"), "{}", done.stderr);
    }
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).expect("a port").port();
    let rank = |rank: u32| {
        let mut command = program("02_ring_exchange");
        command.env("RINGSMITH_RANK", rank.to_string()).env("RINGSMITH_WORLD", "3");
        command.env("RINGSMITH_COMM_ID", format!("127.0.0.1:{port}")).env("RINGSMITH_INIT_TIMEOUT_S", "1");
        command
    };
    for done in run_all(&mut [rank(0), rank(2)]) {
        assert_eq!(done.status, Some(3), "{}", done.stderr);
        assert!(done.stderr.contains("rank 1"), "{}", done.stderr);
    }
}

#[test]
fn arguments_that_are_not_understood_are_named() {
    let cases: [(&str, &[&str], &str); 9] = [
        ("01_hello", &["--ranks", "0"], "--ranks 0: a number from 1"),
        ("01_hello", &["--ranks", "1000000"], "--ranks 1000000: a number from 1"),
        ("01_hello", &["--ranks"], "--ranks : a number from 1"),
        ("01_hello", &["shards"], "\"shards\" is not understood"),
        ("02_ring_exchange", &["-x"], "\"-x\" is not understood"),
        ("03_average_tensors", &["a", "b"], "\"b\" is not understood"),
        ("03_average_tensors", &["--fast"], "\"--fast\" is not understood"),
        ("03_average_tensors", &["--out"], "--out needs a file"),
        ("03_average_tensors", &["--out", "mean.txt"], "--out mean.txt: must end with .npy"),
    ];
    for (name, arguments, words) in cases {
        let done = run(program(name).args(arguments));
        assert_eq!(done.status, Some(2), "{name} {arguments:?}");
        assert!(done.stderr.contains(words) && done.stderr.contains("usage: 0"), "{}", done.stderr);
    }
}

#[test]
fn settings_that_cannot_be_used_are_named_before_anything_starts() {
    let done = run(program("01_hello").env("RINGSMITH_TIMEOUT_S", "soon"));
    assert_eq!(done.status, Some(2));
    assert!(done.stderr.contains("RINGSMITH_TIMEOUT_S=soon"), "{}", done.stderr);
}
