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
    /// Someone else is there.
    Stranger(Stranger),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Passing(error)
    }
}

/// Gives a connection on which the root knows this rank.
pub(crate) fn join(
    id: &UniqueId,
    rank: u32,
    world: u32,
    host_key: [u8; 16],
    config: &Config,
    started: Instant,
) -> Result<TcpStream> {
    let key = id.handshake_key(config);
    let tried = candidates(id, &host_key);
    let deadline = started + config.init_timeout;
    let introduction = introduction(rank, world, host_key, config.init_timeout);
    let mut patience = FIRST_PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        let mut answers = Vec::with_capacity(tried.len());
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        let mut strangers = 0;
        for &address in &tried {
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = left.min(patience);
            if limit.is_zero() {
                answers.push(format!("{address}: not tried again"));
                continue;
            }
            match attempt(address, &key, &introduction, limit) {
                Ok(stream) => return Ok(stream),
                Err(Failure::Passing(error)) => {
                    answers.push(format!("{address}: {}", plain(&error)));
                    last = error;
                }
                Err(Failure::Stranger(stranger)) => {
                    answers.push(format!("{address}: {stranger}"));
                    last = io::Error::new(io::ErrorKind::InvalidData, stranger);
                    strangers += u32::from(stranger == Stranger::Secret);
                }
            }
        }
        tracing::debug!(target: "ringsmith::bootstrap", "rank {rank}: {}", answers.join("; "));
        if strangers as usize == tried.len() {
            return Err(Error::ForeignRoot { rank, tried, id: id.to_string() });
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let waited = started.elapsed();
            return Err(Error::Connect {
                rank,
                world,
                waited,
                tried,
                attempts: answers.join("; "),
                source: last,
            });
        }
        std::thread::sleep(spread(pause, rank).min(left));
        pause = (2 * pause).min(LONGEST_PAUSE);
        patience = PATIENCE;
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
    read_before(&mut stream, &mut challenge, deadline)?;
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

/// What happened, in words for someone who may not know sockets.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nobody listens there".into(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "no answer".into(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            "the connection was closed at once".into()
        }
        _ => error.to_string(),
    }
}
