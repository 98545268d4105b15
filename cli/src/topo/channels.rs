//! Rings and trees as people read them.

use super::text::counted;
use ringsmith_compiler::channels::{Channel, Channels};
use ringsmith_ir::topology::{Machine, Topology};
use ringsmith_runtime::shown::escaped;
use std::fmt::Write;

/// The most ways of a machine that are listed. Ours: half a screen.
const SHOWN: usize = 16;

/// The channels of a cluster.
pub(super) fn of(text: &mut String, topology: &Topology, channels: &Channels) {
    text.push_str("\nchannels\n");
    let (rings, trees) = (channels.ring_count(), channels.tree_count());
    if rings > 0 {
        let _ = writeln!(
            text,
            "  {} of {}, {} in all; {} of {} up and down, {} in all",
            counted(rings as u64, "ring"),
            channels.ring_rate,
            channels.ring_sum(),
            counted(trees as u64, "tree"),
            channels.tree_rate,
            channels.tree_sum()
        );
    }
    for (index, (within, machine)) in channels.machines.iter().zip(&topology.machines).enumerate() {
        let of = if topology.machines.len() > 1 { format!("m{index}: ") } else { String::new() };
        // Rings that go the same way are one line.
        let mut ways: Vec<(&Channel, usize, bool)> = Vec::new();
        for ring in &within.rings {
            let is_tree = within.trees.contains(ring);
            match ways.iter_mut().find(|(way, ..)| *way == ring) {
                Some((_, count, _)) => *count += 1,
                None => ways.push((ring, 1, is_tree)),
            }
        }
        for (way, count, is_tree) in ways.iter().take(SHOWN) {
            let times = if *count > 1 { format!(", {count} times") } else { String::new() };
            let only = if *is_tree { "" } else { ", no tree" };
            let line = format!("{of}{}: {}{times}{only}", kinds(way), way_of(machine, way));
            let _ = writeln!(text, "    {}", escaped(&line));
        }
        if ways.len() > SHOWN {
            let _ = writeln!(text, "    {of}and {} more", ways.len() - SHOWN);
        }
        for why in &within.unused {
            let _ = writeln!(text, "  {of}{}", escaped(why));
        }
    }
}

/// How far a ring's steps are.
fn kinds(way: &Channel) -> String {
    match way.port_kind {
        Some(port) => format!("{}, {port} to its port", way.kind),
        None => way.kind.to_string(),
    }
}

/// A ring's way through a node, GPUs that follow each other as one word.
pub(super) fn way_of(machine: &Machine, way: &Channel) -> String {
    let mut words = Vec::new();
    let port = way.port.map(|port| machine.port_name(machine.ports()[port]));
    words.extend(port.clone());
    let mut at = 0;
    while let Some(&first) = way.gpus.get(at) {
        let run = way.gpus[at..].iter().zip(first..).take_while(|(gpu, next)| **gpu == *next).count();
        if run > 2 {
            words.push(format!("g{first}..g{}", first + run - 1));
        } else {
            words.extend((first..first + run).map(|gpu| format!("g{gpu}")));
        }
        at += run;
    }
    words.extend(port);
    words.join(" ")
}
