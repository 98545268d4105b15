//! Stand-ins for the bootstrap: an exchange between threads, and one between processes through a hub.

use ringsmith_runtime::transport::{Alarm, Exchange, ExchangeError, LinkFault};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// An alarm that remembers.
#[derive(Default)]
pub(crate) struct Bell {
    fault: Mutex<Option<LinkFault>>,
}

impl Bell {
    /// The first fault.
    pub(crate) fn fault(&self) -> Option<LinkFault> {
        self.fault.lock().expect("no panic while locked").clone()
    }
}

impl Alarm for Bell {
    fn raised(&self) -> bool {
        self.fault().is_some()
    }

    fn culprit(&self) -> Option<u32> {
        match self.fault()? {
            LinkFault::PeerLost { peer, .. } | LinkFault::Protocol { peer, .. } => Some(peer),
            LinkFault::Progress { .. } => None,
        }
    }

    fn raise(&self, fault: LinkFault) {
        self.fault.lock().expect("no panic while locked").get_or_insert(fault);
    }
}

#[derive(Default)]
struct Round {
    words: Vec<Option<Vec<u8>>>,
    done: Vec<Vec<u8>>,
    number: u64,
    arrived: usize,
    gone: bool,
}

/// A meeting place of threads.
pub(crate) struct Meeting {
    round: Mutex<Round>,
    met: Condvar,
    world: u32,
}

impl Meeting {
    pub(crate) fn new(world: u32) -> Arc<Self> {
        let round = Round { words: vec![None; world as usize], ..Round::default() };
        Arc::new(Self { round: Mutex::new(round), met: Condvar::new(), world })
    }
}

/// One thread's access to it.
pub(crate) struct Thread {
    pub(crate) meeting: Arc<Meeting>,
    pub(crate) rank: u32,
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.meeting.round.lock().expect("no panic while locked").gone = true;
        self.meeting.met.notify_all();
    }
}

impl Exchange for Thread {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn world(&self) -> u32 {
        self.meeting.world
    }

    fn all_gather(&self, _: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mut round = self.meeting.round.lock().expect("no panic while locked");
        let number = round.number;
        round.words[self.rank as usize] = Some(bytes.to_vec());
        round.arrived += 1;
        if round.arrived == self.meeting.world as usize {
            round.done = round.words.iter_mut().map(|word| word.take().expect("all arrived")).collect();
            round.arrived = 0;
            round.number += 1;
            self.meeting.met.notify_all();
        }
        while round.number == number {
            if round.gone {
                return Err("a rank has gone".into());
            }
            round = self.meeting.met.wait(round).expect("no panic while locked");
        }
        Ok(round.done.clone())
    }
}

/// Serves `world` processes that connect to the abstract name, until they leave.
pub(crate) fn hub(name: &str, world: u32) -> std::thread::JoinHandle<()> {
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    let listener = UnixListener::bind_addr(&address).expect("a fresh name");
    std::thread::spawn(move || {
        let mut streams: Vec<Option<UnixStream>> = (0..world).map(|_| None).collect();
        for _ in 0..world {
            let (mut stream, _) = listener.accept().expect("accept");
            let mut rank = [0; 4];
            stream.read_exact(&mut rank).expect("a rank");
            streams[u32::from_le_bytes(rank) as usize] = Some(stream);
        }
        let mut streams: Vec<UnixStream> = streams.into_iter().map(|s| s.expect("all ranks")).collect();
        loop {
            let words: Result<Vec<_>, _> = streams.iter_mut().map(read_word).collect();
            let Ok(words) = words else { return };
            let all: Vec<u8> = words
                .iter()
                .flat_map(|word| (word.len() as u32).to_le_bytes().into_iter().chain(word.iter().copied()))
                .collect();
            for stream in &mut streams {
                let _ = stream.write_all(&all);
            }
        }
    })
}

fn read_word(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut word = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut word)?;
    Ok(word)
}

/// One process's access to the hub.
pub(crate) struct Process {
    stream: Mutex<UnixStream>,
    rank: u32,
    world: u32,
}

impl Process {
    pub(crate) fn new(name: &str, rank: u32, world: u32) -> Self {
        let address = SocketAddr::from_abstract_name(name).expect("a short name");
        let mut stream = UnixStream::connect_addr(&address).expect("the hub listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream.write_all(&rank.to_le_bytes()).expect("the hub reads");
        Self { stream: Mutex::new(stream), rank, world }
    }
}

impl Exchange for Process {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn world(&self) -> u32 {
        self.world
    }

    fn all_gather(&self, _: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mut stream = self.stream.lock().expect("no panic while locked");
        stream.write_all(&(bytes.len() as u32).to_le_bytes())?;
        stream.write_all(bytes)?;
        (0..self.world).map(|_| read_word(&mut stream).map_err(Into::into)).collect()
    }
}
