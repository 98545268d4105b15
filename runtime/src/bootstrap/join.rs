//! A rank's way to the root: connect, prove, say who it is. Tried again until the deadline.
//!
//! The addresses of the id are tried in turn, loopback first when the root seems to be on this
//! host. Everything that can pass (a refusal before the root listens, a dropped packet, a full
//! queue) is tried again; what cannot (another secret everywhere) ends it at once.

use super::frame::{Frame, Join, encode};
use super::handshake::{CHALLENGE_BYTES, Key, RankHandshake, Stranger};
use super::refusal::Process;
use super::{host, keep_alive};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::unique_id::UniqueId;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long one address may take to answer, at first and later. A quick first round finds the
/// address that works when another swallows packets; later rounds have patience.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(8);
/// Pauses between rounds: doubling from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why an attempt on one address failed.
enum Failure {
    /// It may work later.
    Passing(io::Error),
    /// Somebody took the connection and said nothing. It may work later.
    Silent(io::Error),
    /// Someone else is there.
    Stranger(Stranger),
}

impl Failure {
    /// Whether nobody listens there.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Passing(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    fn into_io(self) -> io::Error {
        match self {
            Self::Passing(error) | Self::Silent(error) => error,
            Self::Stranger(stranger) => io::Error::new(io::ErrorKind::InvalidData, stranger),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Passing(error)
    }
}

/// How long every address of an id may refuse until the root is taken for gone. It listens before the
/// id exists, so this allows only for networks that are still being set up.
const REFUSED_PATIENCE: Duration = Duration::from_secs(10);

/// Gives a connection on which the root knows this rank, or is about to, and the root's address.
pub(crate) fn join(
    id: &UniqueId,
    rank: u32,
    world: u32,
    host_key: [u8; 16],
    config: &Config,
    started: Instant,
) -> Result<(TcpStream, SocketAddr)> {
    let key = id.handshake_key(config);
    let tried = candidates(id, &host_key);
    let deadline = started + config.init_timeout;
    let introduction = introduction(rank, world, host_key, config.init_timeout);
    let mut answers: Vec<Option<Failure>> = tried.iter().map(|_| None).collect();
    let mut patience = FIRST_PATIENCE;
    let mut pause = FIRST_PAUSE;
    let mut refused_since = None;
    loop {
        for (&address, answer) in tried.iter().zip(&mut answers) {
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = left.min(patience);
            if limit.is_zero() {
                break;
            }
            match attempt(address, &key, &introduction, limit) {
                Ok(stream) => return Ok((stream, address)),
                Err(failure) => *answer = Some(failure),
            }
        }
        tracing::debug!(target: "ringsmith::bootstrap", "rank {rank}: {}", Answers(&tried, &answers));
        if root_is_foreign(id, &answers) {
            return Err(Error::ForeignRoot { rank, tried, id: id.to_string() });
        }
        let all_refused = answers.iter().all(|answer| answer.as_ref().is_some_and(Failure::is_refusal));
        refused_since = refused_since.filter(|_| all_refused).or(all_refused.then(Instant::now));
        let root_is_gone =
            !id.is_open() && refused_since.is_some_and(|since| since.elapsed() >= REFUSED_PATIENCE);
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || root_is_gone {
            let (waited, attempts) = (started.elapsed(), Answers(&tried, &answers).to_string());
            let source =
                answers.into_iter().flatten().last().map_or(io::ErrorKind::TimedOut.into(), Failure::into_io);
            return Err(Error::Connect { rank, world, waited, tried, attempts, source });
        }
        std::thread::sleep(spread(pause, rank).min(left));
        pause = (2 * pause).min(LONGEST_PAUSE);
        patience = PATIENCE;
    }
}

/// Whether it makes no sense to go on: where anybody answers, the secret is another.
fn root_is_foreign(id: &UniqueId, answers: &[Option<Failure>]) -> bool {
    let foreign = |answer: &Option<Failure>| matches!(answer, Some(Failure::Stranger(Stranger::Secret)));
    // The root of an id listens before the id exists, so where it is refused it will not come. At a
    // fixed address it may still come.
    let conclusive = |answer: &Option<Failure>| match answer {
        Some(failure) if failure.is_refusal() => !id.is_open(),
        answer => foreign(answer),
    };
    answers.iter().any(foreign) && answers.iter().all(conclusive)
}

/// What each address answered last, in words for someone who may not know sockets.
struct Answers<'a>(&'a [SocketAddr], &'a [Option<Failure>]);

impl fmt::Display for Answers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (address, answer)) in self.0.iter().zip(self.1).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{address}: ")?;
            match answer {
                None => f.write_str("not tried")?,
                Some(Failure::Stranger(stranger)) => write!(f, "{stranger}")?,
                Some(Failure::Silent(_)) => f.write_str(
                    "the connection was made and nothing came: the root's process is stopped, or may open no more \
                     files (ulimit -n there)",
                )?,
                Some(Failure::Passing(error)) => match error.kind() {
                    io::ErrorKind::ConnectionRefused => f.write_str("nobody listens there")?,
                    io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => f.write_str("no answer")?,
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                        f.write_str("the connection was closed at once")?
                    }
                    _ => write!(f, "{error}")?,
                },
            }
        }
        Ok(())
    }
}

/// The addresses to try, in order.
fn candidates(id: &UniqueId, host_key: &[u8; 16]) -> Vec<SocketAddr> {
    let mut candidates = id.addresses();
    if id.is_on_host(host_key) {
        let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), candidates[0].port());
        candidates.retain(|address| *address != loopback);
        candidates.insert(0, loopback);
    }
    candidates
}

/// Ranks that failed together must not come back together.
fn spread(pause: Duration, rank: u32) -> Duration {
    let share = rank.wrapping_mul(2_654_435_769) >> 24;
    pause + pause * share / 256
}

fn introduction(rank: u32, world: u32, host_key: [u8; 16], timeout: Duration) -> Vec<u8> {
    let mut bytes = Vec::new();
    let join = Join {
        rank,
        world,
        timeout_ms: timeout.as_millis().try_into().unwrap_or(u64::MAX),
        process: Process { host: host::name(), pid: std::process::id() },
        host_key,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    encode(&Frame::Join(join), &mut bytes);
    bytes
}

fn attempt(
    address: SocketAddr,
    key: &Key,
    introduction: &[u8],
    limit: Duration,
) -> Result<TcpStream, Failure> {
    let deadline = Instant::now() + limit;
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    keep_alive(&stream);
    let handshake = RankHandshake::new().map_err(io::Error::other)?;
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(&handshake.hello())?;
    let mut challenge = [0; CHALLENGE_BYTES];
    read_before(&mut stream, &mut challenge, deadline).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Failure::Silent(error),
        _ => Failure::Passing(error),
    })?;
    let (proof, verdict) = handshake.answer(key, &challenge).map_err(Failure::Stranger)?;
    let mut answer = proof.to_vec();
    if verdict.is_ok() {
        answer.extend(introduction);
    }
    let sent = stream.write_all(&answer);
    verdict.map_err(Failure::Stranger)?;
    sent?;
    stream.set_read_timeout(None)?;
    Ok(stream)
}

/// Fills `buffer`, however slowly the bytes trickle in, or fails at the deadline.
fn read_before(stream: &mut TcpStream, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !buffer.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => buffer = &mut std::mem::take(&mut buffer)[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
