//! Between a run's first process and the local ranks that it starts: how a rank learns its place, and
//! how it tells what became of it.
//!
//! A rank is the same program with a hidden flag that says which rank it is. Its standard input is one
//! end of a socket: the first process writes the job's id into it and the text of `--schedule`, which
//! may have come from a pipe, the rank its last word. Nothing secret stands on a command line or in an
//! environment.
//!
//! A rank dies with the first process, whatever kills that one: the kernel sends it a signal.

use crate::outcome::{Failure, Outcome};
use ringsmith_runtime::unique_id::{UNIQUE_ID_BYTES, UniqueId};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The longest last word that is listened to. Ours: an error with room to spare.
const MAX_WORD_BYTES: u64 = 64 << 10;

/// Which rank a child is. Written `PARENT:RANK:WORLD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first process.
    pub(crate) parent: i32,
    /// The rank.
    pub(crate) rank: u32,
    /// The number of ranks.
    pub(crate) world: u32,
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let wrong = "only `ringsmith run` itself passes this";
        let parts: Vec<&str> = text.split(':').collect();
        let [parent, rank, world] = parts[..] else { return Err(wrong) };
        let number = |text: &str| text.parse::<u32>().map_err(|_| wrong);
        let place =
            Self { parent: parent.parse().map_err(|_| wrong)?, rank: number(rank)?, world: number(world)? };
        if place.rank < place.world && place.parent > 0 { Ok(place) } else { Err(wrong) }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.parent, self.rank, self.world)
    }
}

/// A rank's last word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LastWord {
    /// Something to tell the user.
    Text(String),
    /// Nobody reads standard output any more.
    OutputClosed,
}

impl LastWord {
    /// Listens until the rank has closed its end.
    pub(crate) fn listen(socket: &UnixStream) -> Option<Self> {
        let mut bytes = Vec::new();
        // A rank that was killed has said nothing, or half of it.
        socket.take(MAX_WORD_BYTES).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

/// What the first process tells every rank: the job's id, and how long the text is, with the text of
/// `--schedule`, if there is one.
pub(crate) fn briefing(id: &UniqueId, schedule: Option<&str>) -> Vec<u8> {
    let text = schedule.unwrap_or_default();
    [id.as_bytes().as_slice(), &(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// A child's way back to the first process.
pub(crate) struct Parent {
    socket: UnixStream,
}

/// What a rank has been told.
pub(crate) struct Briefed {
    /// The way back.
    pub(crate) parent: Parent,
    /// The job's id.
    pub(crate) id: UniqueId,
    /// The text of `--schedule`, if there is one.
    pub(crate) schedule: Option<String>,
}

impl Parent {
    /// Binds this process to the first one and learns the job's id and schedule from it.
    ///
    /// Errors: a first process that is gone, or was none.
    pub(crate) fn meet(place: Place) -> crate::outcome::Result<Briefed> {
        let failed = |e: io::Error| {
            Failure::world(format_args!("rank {}: the first process is gone: {e}", place.rank))
        };
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| failed(e.into()))?;
        // It may have died before the kernel was asked.
        if getppid() != Pid::from_raw(place.parent) {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        }
        // An interrupt from the terminal reaches all processes; the first one ends the others.
        let unread = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, unread).map_err(failed)?;
        let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
        let mut id = [0; UNIQUE_ID_BYTES];
        socket.read_exact(&mut id).map_err(failed)?;
        let id = UniqueId::from_bytes(&id)
            .map_err(|e| Failure::unusable(format_args!("rank {}: {e}", place.rank)))?;
        let mut len = [0; 8];
        socket.read_exact(&mut len).map_err(failed)?;
        let len = u64::from_le_bytes(len);
        let mut text = String::new();
        let read = (&socket).take(len).read_to_string(&mut text).map_err(failed)?;
        if read as u64 != len {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let schedule = (len > 0).then_some(text);
        Ok(Briefed { parent: Self { socket }, id, schedule })
    }

    /// Tells what became of this rank. The first process says it for all ranks that say the same.
    pub(crate) fn tell(mut self, failure: Failure) -> Outcome {
        let (outcome, word) = match failure {
            Failure::Message { outcome, text } => (outcome, LastWord::Text(text)),
            Failure::OutputClosed => (Outcome::WorldFailed, LastWord::OutputClosed),
        };
        let word = serde_json::to_vec(&word).expect("a text has a JSON form");
        // If the first process is gone, nobody is left to tell.
        let _ = self.socket.write_all(&word);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_back() {
        let place = Place { parent: 71, rank: 2, world: 4 };
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in ["", "1:2", "1:2:2", "0:0:1", "-4:0:1", "1:0:1:1", "a:0:1"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_last_word_is_heard_whole_or_not_at_all() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(br#"{"Text":"no"}"#).unwrap();
        drop(near);
        assert_eq!(LastWord::listen(&far), Some(LastWord::Text("no".to_owned())));
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(br#"{"Te"#).unwrap();
        drop(near);
        assert_eq!(LastWord::listen(&far), None);
    }
}
