//! Runs every way to do a collective, as `ringsmith run` does, and reads what it took.

use super::TuneArguments;
use crate::outcome::{Failure, Result};
use crate::output::Progress;
use crate::run::sizes;
use clap::ValueEnum;
use ringsmith_compiler::plan::{self, Algorithm, Filter, Machine, Measurement, Options, Request, candidates};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, DataType};
use ringsmith_runtime::shown::shown;
use serde::Deserialize;
use std::process::{Command, Stdio};

/// The type of what is measured: what most calls have.
const DTYPE: DataType = DataType::Float32;

/// How ranks of one host talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Transport {
    /// Shared memory.
    Shm,
    /// TCP sockets.
    Socket,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Socket => "socket",
        }
    }
}

/// A way to do a collective, and calls of it that are timed alike.
struct Job {
    transport: Transport,
    way: Way,
    /// The first of its sizes, and the last.
    sizes: (u64, u64),
    /// Calls that are timed together.
    iters: u32,
}

/// What is used of a line that `run` prints.
#[derive(Deserialize)]
struct Row {
    bytes: u64,
    time_us: f64,
}

/// The fastest time of every call that can be made, over all rounds.
pub(super) fn all(arguments: &TuneArguments, plain: &Machine) -> Result<Vec<Measurement>> {
    let jobs = jobs(arguments, plain)?;
    let mut found: Vec<Measurement> = Vec::new();
    let mut progress = Progress::new();
    for round in 1..=arguments.rounds {
        for (at, job) in (1..).zip(&jobs) {
            progress.show(format_args!(
                "round {round} of {}, {at} of {}: {} {} over {}",
                arguments.rounds,
                jobs.len(),
                job.way.algorithm.name,
                job.way.collective,
                job.transport.name()
            ));
            for Row { bytes, time_us } in job.run(arguments, plain.ranks())? {
                let measured = job.measured(plain, bytes, time_us);
                let known =
                    found.iter_mut().find(|known| Measurement { us: known.us, ..measured } == **known);
                match known {
                    Some(known) => known.us = known.us.min(time_us),
                    None => found.push(measured),
                }
            }
        }
    }
    progress.clear();
    Ok(found)
}

/// What there is to measure, in an order that has alike calls one after the other.
fn jobs(arguments: &TuneArguments, plain: &Machine) -> Result<Vec<Job>> {
    let planned = |collective: &Collective| !candidates(*collective).is_empty();
    let collectives: Vec<Collective> = match &arguments.collectives[..] {
        [] => Collective::ALL.into_iter().filter(planned).collect(),
        named => named.to_vec(),
    };
    if let Some(unplanned) = collectives.iter().find(|collective| !planned(collective)) {
        return Err(Failure::unusable(format_args!(
            "{unplanned} is exchanged message by message: there is nothing to choose, and nothing to tune"
        )));
    }
    let transports = match arguments.transport {
        Some(one) => vec![one],
        None => vec![Transport::Shm, Transport::Socket],
    };
    let mut jobs = Vec::new();
    for transport in transports {
        let machine = Machine { shared_memory: transport == Transport::Shm, ..plain.clone() };
        for &collective in &collectives {
            for algorithm in candidates(collective) {
                for &protocol in algorithm.protocols() {
                    for channels in [1, 2, 4] {
                        let way = Way { collective, algorithm, protocol, channels };
                        jobs.extend(way.jobs(arguments, transport, &machine));
                    }
                }
            }
        }
    }
    Ok(jobs)
}

/// A way to do a collective.
#[derive(Clone, Copy)]
struct Way {
    collective: Collective,
    algorithm: &'static Algorithm,
    protocol: Protocol,
    channels: u32,
}

impl Way {
    /// Links from one rank to another: as many as there must be, so that no more channels fit.
    fn links(self) -> u32 {
        self.channels * self.algorithm.links_per_pair
    }

    /// Its calls, parted by how many of them have to be timed together; none if it cannot be gone.
    fn jobs(self, arguments: &TuneArguments, transport: Transport, machine: &Machine) -> Vec<Job> {
        let Self { collective, algorithm, protocol, channels } = self;
        // Channels of what has none, and of zones, which the planner gives no more than it must.
        if channels > 1 && (!algorithm.has_channels || protocol != Protocol::Simple) {
            return Vec::new();
        }
        let options = Options {
            algorithms: Filter::Only(vec![algorithm.name.to_owned()]),
            protocols: Filter::Only(vec![protocol.name().to_owned()]),
            min_channels: channels,
            max_channels: self.links(),
        };
        let machine = &Machine { channels: self.links(), ..machine.clone() };
        let sizes = match collective {
            Collective::Barrier => vec![0],
            _ => sizes::sweep(arguments.min, arguments.max, arguments.factor),
        };
        let mut jobs: Vec<Job> = Vec::new();
        for size in sizes {
            let count = sizes::elements(collective, DTYPE, machine.ranks(), size);
            let bytes = sizes::bytes(collective, DTYPE, machine.ranks(), count);
            let Ok(choice) = plan::choose(Request { collective, root: 0, bytes }, machine, &options) else {
                continue;
            };
            let iters = iterations(choice.predicted.us);
            match jobs.last_mut() {
                Some(last) if last.iters == iters => last.sizes.1 = size,
                _ => jobs.push(Job { transport, way: self, sizes: (size, size), iters }),
            }
        }
        jobs
    }
}

/// How many calls take long enough to be timed, and not longer than one likes to wait.
fn iterations(us: f64) -> u32 {
    match us {
        ..20.0 => 2000,
        20.0..500.0 => 100,
        _ => 10,
    }
}

impl Job {
    /// Runs it once.
    ///
    /// Errors: what `run` says.
    fn run(&self, arguments: &TuneArguments, ranks: u32) -> Result<Vec<Row>> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::unusable(format_args!("cannot find this program's file: {error}")))?;
        let mut command = Command::new(program);
        let Way { collective, algorithm, protocol, channels } = self.way;
        command.args(["run", collective.name(), "--json", "-c", "0", "--inplace", "no"]);
        command.args(["--transport", self.transport.name(), "--algo", algorithm.name]);
        command.args(["--proto", protocol.name()]);
        let numbers = [
            ("--ranks", u64::from(ranks)),
            ("-b", self.sizes.0),
            ("-e", self.sizes.1),
            ("-f", arguments.factor),
            ("-n", u64::from(self.iters)),
            ("-w", u64::from(self.iters / 10)),
        ];
        for (flag, number) in numbers {
            command.args([flag, &number.to_string()]);
        }
        // Tuning is measured without what was tuned before.
        command.env("RINGSMITH_TUNING", "").stdin(Stdio::null());
        command.env("RINGSMITH_MIN_CHANNELS", channels.to_string());
        command.env("RINGSMITH_MAX_CHANNELS", self.way.links().to_string());
        let done = command
            .output()
            .map_err(|error| Failure::unusable(format_args!("cannot start `ringsmith run`: {error}")))?;
        let said = String::from_utf8_lossy(&done.stderr);
        if !done.status.success() {
            let name = name(&self.measured_by(ranks));
            return Err(Failure::world(format_args!(
                "{name}: `ringsmith run` ended with {}: {said}",
                done.status
            )));
        }
        let read = |line: &str| {
            serde_json::from_str(line).map_err(|error| {
                Failure::world(format_args!("`ringsmith run` printed {}: {error}", shown(line)))
            })
        };
        String::from_utf8_lossy(&done.stdout).lines().map(read).collect()
    }

    fn measured(&self, machine: &Machine, bytes: u64, us: f64) -> Measurement {
        Measurement { bytes, us, cores: machine.cores_per_host, ..self.measured_by(machine.ranks()) }
    }

    fn measured_by(&self, ranks: u32) -> Measurement {
        let Way { collective, algorithm, protocol, channels } = self.way;
        let shared_memory = self.transport == Transport::Shm;
        Measurement {
            collective,
            algorithm,
            protocol,
            channels,
            ranks,
            cores: 1,
            shared_memory,
            bytes: self.sizes.0,
            us: 1.0,
        }
    }
}

/// A measured call in words.
pub(super) fn name(measured: &Measurement) -> String {
    let Measurement { collective, algorithm, protocol, channels, ranks, bytes, shared_memory, .. } = measured;
    let transport = if *shared_memory { Transport::Shm } else { Transport::Socket };
    format!(
        "{} {collective} of {bytes} bytes over {protocol}, {}, {ranks} ranks, {}",
        algorithm.name,
        crate::verify::counted(*channels as usize, "channel"),
        transport.name()
    )
}
