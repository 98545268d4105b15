//! Ranks on CPUs: threads, cores, memory and networks, with the constants of the planner's machine.
//!
//! Parts cost here what the planner's cost model (`plan/cost.rs`) counts for them. What differs is what is
//! simulated here and summed up there, and copies within a rank, which the model leaves out.

use super::network::{Part, Resource, Take, Unit};
use crate::plan::Machine;
use ringsmith_ir::schedule::Protocol;

/// Resources of a host, after the threads of all ranks.
const PER_HOST: usize = 4;

/// A thread for each rank, then cores, memory and both directions of the network for each host.
pub(super) fn resources(machine: &Machine) -> Vec<Resource> {
    let work = |name, count: u32| Resource { name, unit: Unit::Work, per_ns: f64::from(count) };
    let bytes = |name, per_s: f64| Resource { name, unit: Unit::Bytes, per_ns: per_s / 1e9 };
    let threads = (0..machine.ranks()).map(|rank| work(format!("r{rank} thread"), machine.threads_per_rank));
    let hosts = machine.hosts.iter().max().map_or(0, |last| last + 1);
    let of_host = |host| {
        [
            work(format!("host {host} cores"), machine.cores_per_host),
            bytes(format!("host {host} memory"), machine.costs.memory_bytes_per_s),
            bytes(format!("host {host} sends"), machine.costs.network_bytes_per_s),
            bytes(format!("host {host} receives"), machine.costs.network_bytes_per_s),
        ]
    };
    threads.chain((0..hosts).flat_map(of_host)).collect()
}

/// What one part of an op of `rank` takes.
pub(super) fn takes(machine: &Machine, protocol: Protocol, rank: u32, part: Part) -> Vec<Take> {
    let near = if protocol == Protocol::Simple { machine.costs.shm } else { machine.costs.zone };
    let is_local = |peer| machine.is_local(rank, peer);
    let host = machine.ranks() as usize + machine.hosts[rank as usize] as usize * PER_HOST;
    let (cores, memory, sends, receives) = (host, host + 1, host + 2, host + 3);
    let work = |fixed: f64, per_byte: f64| {
        [rank as usize, cores].into_iter().map(move |resource| Take { resource, fixed, per_byte })
    };
    let moved = |bytes_per_s: f64, resources: &[usize]| {
        let byte = |&resource: &usize| Take { resource, fixed: 0.0, per_byte: 1.0 };
        work(0.0, 1e9 / bytes_per_s).chain(resources.iter().map(byte)).collect()
    };
    match part {
        Part::Message(peer) => {
            work(if is_local(peer) { near.message_ns } else { machine.costs.socket.message_ns }, 0.0)
                .collect()
        }
        Part::Send(peer) if is_local(peer) => moved(near.bytes_per_s, &[memory]),
        Part::Send(_) => moved(machine.costs.socket.bytes_per_s, &[memory, sends]),
        // The copy or reduction that takes it out is a part of its own.
        Part::Receive(peer) if is_local(peer) => Vec::new(),
        Part::Receive(_) => moved(machine.costs.socket.bytes_per_s, &[memory, receives]),
        Part::Read(_) | Part::Store => moved(near.bytes_per_s, &[memory]),
        Part::Combine => moved(machine.costs.reduce_bytes_per_s, &[memory]),
    }
}

/// From a signal to the first look at it; where ranks outnumber cores, somebody has to make room first.
pub(super) fn latency_ns(machine: &Machine, protocol: Protocol, from: u32, to: u32) -> f64 {
    let host = machine.hosts[to as usize];
    let ranks = machine.hosts.iter().filter(|other| **other == host).count();
    let room = if ranks > machine.cores_per_host as usize { machine.costs.switch_ns } else { 0.0 };
    let class = match protocol {
        _ if !machine.is_local(from, to) => machine.costs.socket,
        Protocol::Simple => machine.costs.shm,
        Protocol::Ll | Protocol::Ll128 => machine.costs.zone,
    };
    class.latency_ns + room
}
