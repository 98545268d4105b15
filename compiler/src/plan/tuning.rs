//! What `ringsmith tune` has found out about a machine: its costs, and what calls took.
//!
//! Costs take the place of the model's constants, for any number of ranks. Measurements go further, and not as far:
//! where a call is predicted with the algorithm, protocol, channels and ranks of measured ones, the prediction is
//! corrected by how far the model was off there. Between two measured sizes the correction is that of both, by the
//! logarithm of the size; beyond them it is that of the last.

use super::{Algorithm, Costs, Machine, candidates};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::Collective;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The version of the form that a [`Tuning`] is stored in.
const FORM: u32 = 1;

/// The most calls that a tuning holds. Ours: ten times what `tune` measures.
const MAX_MEASUREMENTS: usize = 20_000;

/// What calls are measured with, at most. Ours: what one host has.
const MAX_MEASURED_RANKS: u64 = 512;
const MAX_MEASURED_CHANNELS: u64 = 64;
const MAX_MEASURED_BYTES: u64 = 1 << 40;

/// What a call took between ranks of one host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Row", into = "Row")]
pub struct Measurement {
    /// The collective; float32, and sums where it reduces.
    pub collective: Collective,
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Channels.
    pub channels: u32,
    /// How many ranks there were.
    pub ranks: u32,
    /// How many cores they shared.
    pub cores: u32,
    /// Whether they shared memory; they used sockets otherwise.
    pub shared_memory: bool,
    /// Bytes of the larger side of one rank.
    pub bytes: u64,
    /// The time of a call, microseconds.
    pub us: f64,
}

/// A measurement as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    collective: String,
    algorithm: String,
    protocol: String,
    channels: u32,
    ranks: u32,
    cores: u32,
    transport: String,
    bytes: u64,
    us: f64,
}

impl From<Measurement> for Row {
    fn from(measured: Measurement) -> Self {
        let Measurement { collective, algorithm, protocol, channels, ranks, cores, shared_memory, bytes, us } =
            measured;
        Self {
            collective: collective.name().to_owned(),
            algorithm: algorithm.name.to_owned(),
            protocol: protocol.name().to_owned(),
            channels,
            ranks,
            cores,
            transport: if shared_memory { "shm" } else { "socket" }.to_owned(),
            bytes,
            us,
        }
    }
}

impl TryFrom<Row> for Measurement {
    type Error = String;

    fn try_from(row: Row) -> Result<Self, String> {
        let collective = Collective::ALL.into_iter().find(|known| known.name() == row.collective);
        let collective = collective.ok_or_else(|| format!("there is no collective {:?}", row.collective))?;
        let algorithm = candidates(collective).iter().find(|known| known.name == row.algorithm);
        let algorithm =
            algorithm.ok_or_else(|| format!("{collective} has no algorithm {:?}", row.algorithm))?;
        let protocol = algorithm.protocols().iter().find(|known| known.name() == row.protocol);
        let protocol = *protocol
            .ok_or_else(|| format!("{} {collective} has no protocol {:?}", algorithm.name, row.protocol))?;
        let shared_memory = match row.transport.as_str() {
            "shm" => true,
            "socket" => false,
            other => return Err(format!("a transport is shm or socket, not {other:?}")),
        };
        let Row { channels, ranks, cores, bytes, us, .. } = row;
        let within = [
            ("ranks", u64::from(ranks), 2, MAX_MEASURED_RANKS),
            ("cores", u64::from(cores), 1, u64::from(u32::MAX)),
            ("channels", u64::from(channels), 1, MAX_MEASURED_CHANNELS),
            ("bytes", bytes, 0, MAX_MEASURED_BYTES),
        ];
        if let Some((field, value, least, most)) = within.iter().find(|(_, v, l, m)| v < l || v > m) {
            return Err(format!("{field} is {value}, and measured calls have {least} to {most}"));
        }
        if !(us.is_finite() && us > 0.0) {
            return Err(format!("no call takes {us} us"));
        }
        Ok(Self { collective, algorithm, protocol, channels, ranks, cores, shared_memory, bytes, us })
    }
}

impl Measurement {
    /// Whether it says something about calls on this machine.
    fn is_of(&self, machine: &Machine) -> bool {
        let one_host = machine.hosts.iter().all(|host| *host == machine.hosts[0]);
        one_host
            && self.ranks == machine.ranks()
            && self.cores == machine.cores_per_host
            && self.shared_memory == machine.shared_memory
    }

    /// Whether it is of the same way to do the same collective.
    pub fn is_like(&self, collective: Collective, way: (&Algorithm, Protocol, u32)) -> bool {
        self.collective == collective && (self.algorithm, self.protocol, self.channels) == way
    }
}

/// Many of them, shared by the machines that planning makes of one.
#[derive(Clone, Default, PartialEq)]
pub struct Measurements(Arc<[Measurement]>);

impl Measurements {
    /// Those that say something about calls on a machine.
    pub(super) fn of<'a>(&'a self, machine: &'a Machine) -> impl Iterator<Item = &'a Measurement> {
        self.0.iter().filter(|measured| measured.is_of(machine))
    }

    /// All.
    pub fn all(&self) -> &[Measurement] {
        &self.0
    }
}

impl FromIterator<Measurement> for Measurements {
    fn from_iter<I: IntoIterator<Item = Measurement>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

/// How many there are and a number that is another for others: ranks compare their machines by this.
impl fmt::Debug for Measurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.iter().fold(0, |sum, measured| {
            let Measurement { collective, algorithm, protocol, channels, .. } = measured;
            let Measurement { ranks, cores, shared_memory, bytes, us, .. } = measured;
            let way = format!("{collective} {} {protocol} {channels} {ranks} {cores}", algorithm.name);
            fnv(sum, &format!("{way} {shared_memory} {bytes} {us}"))
        });
        write!(f, "{} calls, {all:016x}", self.0.len())
    }
}

/// FNV-1a with 64 bits, going on from the hash of what came before: no secret is kept, and every build has to find the
/// same.
fn fnv(before: u64, text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(before ^ 0xcbf2_9ce4_8422_2325, step)
}

/// What is known of a machine, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Tuning {
    /// What things cost there.
    pub costs: Costs,
    /// What calls took there.
    pub measured: Measurements,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    ringsmith_tuning: u32,
    costs: Costs,
    measured: Vec<Measurement>,
}

impl From<Tuning> for Stored {
    fn from(tuning: Tuning) -> Self {
        Self { ringsmith_tuning: FORM, costs: tuning.costs, measured: tuning.measured.0.to_vec() }
    }
}

impl TryFrom<Stored> for Tuning {
    type Error = String;

    fn try_from(stored: Stored) -> Result<Self, String> {
        if stored.ringsmith_tuning != FORM {
            return Err(format!(
                "it has form {} and this version reads form {FORM}; run `ringsmith tune` again",
                stored.ringsmith_tuning
            ));
        }
        if stored.measured.len() > MAX_MEASUREMENTS {
            return Err(format!("it holds {} calls, more than {MAX_MEASUREMENTS}", stored.measured.len()));
        }
        stored.costs.check().map_err(|error| error.to_string())?;
        Ok(Self { costs: stored.costs, measured: stored.measured.into_iter().collect() })
    }
}

/// How many calls were measured, and a number that is another for other contents: ranks compare this.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = format!("{:?} {:?}", self.costs, self.measured);
        write!(f, "{} measured calls, {:016x}", self.measured.0.len(), fnv(0, &contents))
    }
}

impl Tuning {
    /// The same machine with what is known of it.
    pub fn applied_to(&self, machine: Machine) -> Machine {
        Machine { costs: self.costs, measured: self.measured.clone(), ..machine }
    }
}

/// How far the model is off for one way to do a collective: by what to multiply at which size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Correction(Vec<(f64, f64)>);

impl Correction {
    /// Of sizes with factors, in any order.
    pub(super) fn new(points: impl Iterator<Item = (u64, f64)>) -> Self {
        let mut points: Vec<(f64, f64)> =
            points.map(|(bytes, factor)| (logarithm(bytes), factor.ln())).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by_key(|(bytes, _)| *bytes);
        Self(points)
    }

    /// The factor at a size; 1 where nothing is known.
    pub(super) fn at(&self, bytes: u64) -> f64 {
        let at = logarithm(bytes);
        let after = self.0.partition_point(|(known, _)| *known < at);
        let below = after.checked_sub(1).map(|below| self.0[below]);
        match (below, self.0.get(after)) {
            (None, None) => 1.0,
            (Some((_, factor)), None) | (None, Some(&(_, factor))) => factor.exp(),
            (Some((from, low)), Some(&(to, high))) => (low + (high - low) * (at - from) / (to - from)).exp(),
        }
    }
}

fn logarithm(bytes: u64) -> f64 {
    (bytes.max(1) as f64).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_lie_between_those_of_their_neighbours() {
        assert_eq!(Correction::default().at(1000), 1.0);
        let correction = Correction::new([(1 << 20, 8.0), (1 << 10, 2.0)].into_iter());
        let near = |bytes, factor: f64| {
            let found = correction.at(bytes);
            assert!((found / factor - 1.0).abs() < 1e-12, "{bytes} bytes: {found}, not {factor}");
        };
        near(0, 2.0);
        near(1 << 10, 2.0);
        near(1 << 15, 4.0);
        near(1 << 20, 8.0);
        near(u64::MAX, 8.0);
    }

    #[test]
    fn what_exceeds_the_caches_is_slower() {
        let costs = Costs { cached_bytes: 1e6, cold: 3.0, ..Costs::CPU };
        assert_eq!(costs.touching(1e6), costs);
        let at = |bytes| costs.memory_bytes_per_s / costs.touching(bytes).memory_bytes_per_s;
        assert_eq!((at(1.5e6), at(2e6), at(1e12)), (2.0, 3.0, 3.0));
        assert_eq!(costs.touching(1e12).socket, costs.socket);
    }
}
