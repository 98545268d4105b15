//! Jobs over several hosts: pretended ones, which share a kernel and refuse to share memory, and two
//! network namespaces, which really cannot reach each other but by their wire.

use crate::job::{Job, free_port, ringsmith, with_clean_environment};
use crate::{Outcome, job};
use libtest_mimic::{Completion, Failed};
use std::process::{Command, Stdio};

/// Two ranks on each of two hosts that are one.
pub(crate) fn two_pretended() -> Outcome {
    let port = free_port()?;
    for collective in ["all_reduce", "all_to_all", "broadcast"] {
        let rank = |rank: u32| {
            let mut command = ringsmith(&format!(
                "run {collective} --rank {rank} --world 4 --root 127.0.0.1:{port} -e 256K -n 5 -w 1"
            ));
            command.env("RINGSMITH_HOST_ID", if rank < 2 { "one" } else { "two" });
            Job::start(command)
        };
        end([rank(0)?, rank(1)?, rank(2)?, rank(3)?])?;
    }
    Ok(Completion::Completed)
}

/// Ranks of one job end well, and the first of them tells that all is right.
fn end(jobs: [Job; 4]) -> Result<(), Failed> {
    let mut ends = Vec::new();
    for job in jobs {
        ends.push(job.end()?);
    }
    ends[0].right()?;
    ends[1..].iter().try_for_each(|end| end.failed(0, &[]))
}

/// Two namespaces joined by a virtual wire, gone when the trial ends.
struct Namespaces {
    names: [String; 2],
}

impl Namespaces {
    /// Makes them; none where this process may not.
    fn new() -> Option<Self> {
        let names = ["a", "b"].map(|side| format!("ringsmith-{}-{side}", std::process::id()));
        let made = Self { names };
        let [a, b] = &made.names;
        // Names of interfaces have at most 15 characters.
        let (wire_a, wire_b) = (format!("ra{}", std::process::id()), format!("rb{}", std::process::id()));
        let steps = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add {wire_a} netns {a} type veth peer name {wire_b} netns {b}"),
            format!("-n {a} addr add 10.83.7.1/24 dev {wire_a}"),
            format!("-n {b} addr add 10.83.7.2/24 dev {wire_b}"),
            format!("-n {a} link set {wire_a} up"),
            format!("-n {b} link set {wire_b} up"),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
        ];
        steps.iter().all(|step| ip(step)).then_some(made)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> bool {
    Command::new("ip")
        .args(arguments.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Two ranks in each of two namespaces, which meet and move data over the wire between them.
pub(crate) fn two_namespaces() -> Outcome {
    let Some(namespaces) = Namespaces::new() else {
        return Ok(Completion::ignored_with("network namespaces cannot be made here"));
    };
    for (number, collective) in ["all_reduce", "reduce_scatter", "send_recv"].into_iter().enumerate() {
        let port = 4100 + number;
        let rank = |rank: usize| {
            let inside = format!("netns exec {} {} run", namespaces.names[rank / 2], job::program());
            let rest =
                format!("{collective} --rank {rank} --world 4 --root 10.83.7.1:{port} -e 256K -n 5 -w 1");
            let mut command = with_clean_environment(Command::new("ip"), &format!("{inside} {rest}"));
            command.env_remove("RINGSMITH_SOCKET_IFNAME");
            command.env("RINGSMITH_HOST_ID", if rank < 2 { "a" } else { "b" });
            Job::start(command)
        };
        end([rank(0)?, rank(1)?, rank(2)?, rank(3)?])?;
    }
    Ok(Completion::Completed)
}
