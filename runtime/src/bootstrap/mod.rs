//! The bootstrap: how ranks find each other, exchange small facts, and learn of each other's death.
//!
//! Every rank holds one connection to the root, in a star. It is for the cold path: joining, facts
//! of initialisation, results and checks; data never goes this way. After the join a thread per rank
//! watches the connection and raises the job's [`Fault`] when a rank dies or aborts.
//!
//! ```text
//! UniqueId::create ── root thread: root (sockets) ── hub (decides)
//! Bootstrap::connect ── handshake ── frame ── monitor thread ── Fault
//! ```
//! It sends nothing in secret and resists nobody who can read the network: see `handshake`.

pub mod frame;
mod handshake;
pub mod host;
mod hub;
pub mod interface;
mod join;
mod monitor;
pub mod refusal;
pub mod root;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::fault::{Fault, Reason};
use crate::shown::differing;
use crate::unique_id::UniqueId;
use frame::{Frame, MAX_PART_BYTES, MAX_TAG_BYTES};
use monitor::{Gathered, Session};
use refusal::Process;
use root::Root;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much longer than its deadline a rank waits for the root's word on who is missing.
const ROOT_GRACE: Duration = Duration::from_secs(3);

/// One of the ranks that joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its rank.
    pub rank: u32,
    /// Its host and process.
    pub process: Process,
    /// Equal on ranks that share a host.
    pub host_key: [u8; 16],
}

/// A rank's place in a job that has come together.
///
/// Dropping it leaves in good order, unless the thread is panicking: then the others are told that
/// this rank is lost.
pub struct Bootstrap {
    rank: u32,
    members: Arc<[Member]>,
    session: Arc<Session>,
    init_timeout: Duration,
    on_loopback: bool,
    owner: u32,
    /// Number of the next gathering. Held during one, so that threads of a rank take turns.
    sequence: Mutex<u64>,
    monitor: Option<JoinHandle<()>>,
    /// Dropped last: the root may live in this process.
    _root: Option<Root>,
}

impl Bootstrap {
    /// Joins the job as `rank` of `world` and waits until every rank has.
    ///
    /// Errors: `Connect` and `ForeignRoot` when the root cannot be reached or is another's;
    /// `Refused` with the reason, among them the ranks that did not come within
    /// `config.init_timeout`; `RootSilent`; `Fault` when a rank dies meanwhile.
    pub fn connect(id: &UniqueId, rank: u32, world: u32, config: &Config) -> Result<Self> {
        let started = Instant::now();
        let host_key = host::key(config);
        let (stream, root) = join::join(id, rank, world, host_key, config, started)?;
        let session = Arc::new(Session::new(rank, world, stream, root, Fault::new())?);
        session.spread_faults();
        let monitor = monitor::start(session.clone())?;
        let welcomed = session.wait_for_welcome(started, config.init_timeout, ROOT_GRACE);
        let members = match welcomed {
            Ok(members) => members,
            Err(error) => {
                session.close();
                join_thread(monitor);
                return Err(error);
            }
        };
        tracing::info!(
            target: "ringsmith::bootstrap",
            "rank {rank} of {world} joined {id} in {:.3} s", started.elapsed().as_secs_f64()
        );
        Ok(Self {
            rank,
            members: members.into(),
            session,
            init_timeout: config.init_timeout,
            on_loopback: id.addresses().iter().all(|address| address.ip().is_loopback()),
            owner: std::process::id(),
            sequence: Mutex::new(0),
            monitor: Some(monitor),
            _root: None,
        })
    }

    /// Ties the root to this rank, in whose process it lives: it goes when this rank has left.
    pub fn keep(mut self, root: Root) -> Self {
        self._root = Some(root);
        self
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn world(&self) -> u32 {
        self.members.len() as u32
    }

    /// Every rank, in order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The ranks on this rank's host, ascending, this one among them.
    pub fn local_ranks(&self) -> Vec<u32> {
        let own = &self.members[self.rank as usize].host_key;
        self.members.iter().filter(|member| &member.host_key == own).map(|member| member.rank).collect()
    }

    /// The address from which this rank reaches the root: of the interface that leads to the other
    /// hosts, or loopback where the root is on this one. `None` once the connection has ended.
    pub fn own_address(&self) -> Option<IpAddr> {
        self.session.own_address()
    }

    /// Whether the root listens on loopback alone, so that all ranks are on one host, whatever they call it.
    pub fn is_on_loopback(&self) -> bool {
        self.on_loopback
    }

    /// The fault that ends every wait of this job. Clones share it.
    pub fn fault(&self) -> &Fault {
        &self.session.fault
    }

    /// Gives every rank the bytes of every rank, in the order of ranks.
    ///
    /// All ranks call it in the same order with the same `tag`, which names the step in messages.
    /// Bounds: 64 bytes of tag, a MiB per rank, a GiB together.
    /// Errors: `Refused` after the initialisation timeout, naming the ranks that did not call it, or
    /// when ranks are at different steps; `Interrupted`; `RootLeft`; `RootSilent`; `Send`; `Argument`;
    /// `Forked`.
    pub fn all_gather(&self, tag: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.all_gather_within(tag, bytes, self.init_timeout)
    }

    /// As [`Bootstrap::all_gather`], with a deadline of its own. The earliest of all ranks counts.
    pub fn all_gather_within(&self, tag: &str, bytes: &[u8], limit: Duration) -> Result<Vec<Vec<u8>>> {
        self.check_fork("all_gather")?;
        let too_long = |what, len, max| Error::Argument {
            operation: "all_gather",
            detail: format!("a {what} of {len} bytes, at most {max} are allowed"),
        };
        if tag.len() > MAX_TAG_BYTES {
            return Err(too_long("tag", tag.len(), MAX_TAG_BYTES));
        }
        if bytes.len() > MAX_PART_BYTES {
            return Err(too_long("part", bytes.len(), MAX_PART_BYTES));
        }
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        let part = Frame::Part {
            sequence: *sequence,
            timeout_ms: limit.as_millis().try_into().unwrap_or(u64::MAX),
            tag: tag.to_owned(),
            bytes: bytes.to_owned(),
        };
        let gathering = Gathered::new(*sequence, self.members.len());
        *sequence += 1;
        self.session.gather(tag, gathering, &part, started, limit, ROOT_GRACE)
    }

    /// Waits until every rank has come to the barrier of this name.
    ///
    /// Errors: as [`Bootstrap::all_gather`].
    pub fn barrier(&self, tag: &str) -> Result<()> {
        self.all_gather(tag, &[]).map(drop)
    }

    /// Compares named values over all ranks, such as [`Config::agreement`] or the hash of a plan.
    ///
    /// Errors: `Mismatch` on every rank, with the first rank and name that differ from rank 0, and
    /// both values; else as [`Bootstrap::all_gather`].
    pub fn agree<N: AsRef<str>, V: AsRef<str>>(&self, what: &str, values: &[(N, V)]) -> Result<()> {
        let lines = values.iter().map(|(name, value)| format!("{}\0{}\0", name.as_ref(), value.as_ref()));
        let all = self.all_gather(what, lines.collect::<String>().as_bytes())?;
        let read = |bytes: &[u8]| -> Vec<(String, String)> {
            let text = String::from_utf8_lossy(bytes);
            let words: Vec<&str> = text.split_terminator('\0').collect();
            words
                .chunks(2)
                .map(|pair| (pair[0].to_owned(), pair.get(1).copied().unwrap_or("").to_owned()))
                .collect()
        };
        let first = read(&all[0]);
        for (rank, bytes) in (0..).zip(&all).filter(|(_, bytes)| **bytes != all[0]) {
            let theirs = read(bytes);
            let find = |values: &[(String, String)], name: &str| {
                values
                    .iter()
                    .find(|(n, _)| n == name)
                    .map_or("nothing".to_owned(), |(_, value)| value.clone())
            };
            let mut names = first.iter().chain(&theirs).map(|(name, _)| name.as_str());
            let differs = |name: &&str| find(&first, name) != find(&theirs, name);
            // Equal values in another order differ in bytes alone.
            if let Some(name) = names.find(differs) {
                let (value, value_of_first) = differing(&find(&theirs, name), &find(&first, name));
                let (what, name) = (what.to_owned(), name.to_owned());
                return Err(Error::Mismatch { what, name, rank, value, value_of_first });
            }
        }
        Ok(())
    }

    /// Gives up: this rank's fault is raised, and every other rank is told why.
    ///
    /// Never blocks on a peer and cannot fail: if the others can no longer be told, the end of this
    /// process's connection tells them.
    pub fn abort(&self, reason: &str) {
        if std::process::id() != self.owner {
            return;
        }
        self.session.fault.raise(Reason::AbortedLocally { reason: reason.to_owned() });
    }

    /// Fails when this process is not the one that joined.
    ///
    /// Errors: `Forked`, with both processes.
    pub fn check_fork(&self, operation: &'static str) -> Result<()> {
        let current = std::process::id();
        if current == self.owner {
            Ok(())
        } else {
            Err(Error::Forked { operation, owner: self.owner, current })
        }
    }

    /// Leaves in good order. The same as dropping it.
    pub fn goodbye(self) {}
}

impl Drop for Bootstrap {
    fn drop(&mut self) {
        // In a forked child the connection is the parent's, and the monitor does not exist.
        if std::process::id() != self.owner {
            return;
        }
        if std::thread::panicking() {
            self.session.close();
        } else {
            self.session.leave();
        }
        if let Some(monitor) = self.monitor.take() {
            join_thread(monitor);
        }
    }
}

impl std::fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bootstrap")
            .field("rank", &self.rank)
            .field("world", &self.world())
            .finish_non_exhaustive()
    }
}

fn join_thread(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!(target: "ringsmith::bootstrap", "the monitor thread panicked; this is a bug of Ringsmith");
    }
}

/// Makes the system notice a peer's host that vanished without a word.
fn keep_alive(socket: &impl AsFd) {
    // Dead after 10 s of silence and three unanswered probes 5 s apart: soon enough for a person who
    // waits, and beyond what a network loses in passing.
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let socket = socket2::SockRef::from(socket);
    // Without these a death is noticed later or not; everything else works.
    let outcome = socket
        .set_tcp_keepalive(&keepalive)
        .and_then(|()| socket.set_tcp_user_timeout(Some(Duration::from_secs(30))))
        .and_then(|()| socket.set_tcp_nodelay(true));
    if let Err(error) = outcome {
        tracing::warn!(target: "ringsmith::bootstrap", "cannot set keep-alive on a connection: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_of_the_process_is_told_and_changes_nothing() {
        let lo = [("RINGSMITH_SOCKET_IFNAME".to_owned(), "=lo".to_owned())];
        let config = Config::from_vars(lo).expect("settings of the test").0;
        let (id, root) = UniqueId::create(&config).expect("a root on loopback");
        let mut place = Bootstrap::connect(&id, 0, 1, &config).expect("alone").keep(root);
        let owner = std::mem::replace(&mut place.owner, 1);
        let error = place.barrier("in the child").expect_err("another process made it");
        let text = error.to_string();
        assert!(
            text.contains("belongs to process 1") && text.contains(&format!("process {owner}")),
            "{text}"
        );
        assert_eq!(error.exit_status().code(), 2);
        place.abort("in the child");
        assert!(!place.fault().is_raised());
        place.owner = owner;
        place.barrier("in the parent").expect("nothing was disturbed");
    }
}
