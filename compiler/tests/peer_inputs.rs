//! Kernel plans that read peers' inputs where they lie: as text and back, and refuted once their owner might
//! not be there.

use ringsmith_compiler::lower;
use ringsmith_compiler::plan::gpu;
use ringsmith_ir::expand::expand;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, ReduceOp};
use ringsmith_ir::{text, verify};

/// The kernel plan of a reduce to rank 0 of two ranks, as text.
fn reduce() -> String {
    let request = gpu::Request {
        collective: Collective::Reduce,
        op: Some(ReduceOp::Sum),
        root: Some(0),
        ranks: 2,
        bytes: 1 << 28,
        maps_buffers: true,
    };
    let plan = gpu::make(&request, "zero_copy", Protocol::Simple).expect("it exists");
    let schedule = expand(&plan.program, &plan.arguments).expect("planned programs expand");
    let schedule = verify::schedule(schedule).expect("planned programs are right");
    let options = lower::Options { protocol: Protocol::Simple, slots: 4, slot_bytes: 32 << 10 };
    text::print_kernel_plan(&lower::lower_direct(&schedule, options).expect("it is proved"))
}

/// The codes that a text earns.
fn codes(text: &str) -> Vec<&'static str> {
    let plan = text::parse_kernel_plan(text).expect("it is a kernel plan");
    let found = verify::kernel_plan(plan).err().unwrap_or_default();
    found.iter().map(|d| d.code.0).collect()
}

/// The text without the lines of both ends of a link, and without its declaration's messages.
fn without_link(text: &str, link: &str) -> String {
    let uses = |line: &&str| [".full", ".free"].iter().any(|c| line.contains(&format!("{link}{c}")));
    let silent = |line: &str| match line.trim_start().starts_with(&format!("link {link}:")) {
        true => line.replace("messages = 1", "messages = 0"),
        false => line.to_owned(),
    };
    text.lines().filter(|line| !uses(line)).map(silent).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn the_text_of_a_peers_input_is_read_back() {
    let text = reduce();
    assert!(text.contains("+ pre(r1.input[0])"), "{text}");
    let plan = text::parse_kernel_plan(&text).expect("what is printed is read");
    assert_eq!(text::print_kernel_plan(&plan), text);
    assert_eq!(codes(&text), [""; 0]);
}

#[test]
fn a_peers_input_is_read_only_while_its_owner_is_there() {
    let text = reduce();
    // l0 says that rank 1 has begun, l1 that rank 0 has read.
    let early = codes(&without_link(&text, "l0"));
    assert!(early.contains(&"V0304"), "{early:?}\n{text}");
    let late = codes(&without_link(&text, "l1"));
    assert!(late.contains(&"V0305"), "{late:?}\n{text}");
}

#[test]
fn a_peers_input_is_never_written_and_has_bounds() {
    let text = reduce();
    let written = text.replace("move   output[0] <-", "move   output[0], r1.input[0] <-");
    assert!(codes(&written).contains(&"V0603"), "{written}");
    let own = text.replace("r1.input[0]", "r0.input[0]");
    assert!(codes(&own).contains(&"V0603"), "{own}");
    let beyond = text.replace("r1.input[0]", "r1.input[7]");
    let found = text::parse_kernel_plan(&beyond).expect_err("there is one chunk");
    assert!(found[0].message.contains('7') && found[0].message.contains("input"), "{:?}", found[0]);
}
