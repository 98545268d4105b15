//! Ranks that are processes: this program, started again with a scenario to play.

#![allow(unsafe_code)] // One scenario forks.

use super::exchange::{Bell, Process, hub};
use super::{GEOMETRY, seed, traffic};
use ringsmith_runtime::memory::segment::Backing;
use ringsmith_runtime::transport::{
    Alarm, Connections, Exchange, Geometry, LinkFault, Options, SharedMemory, TransportKind,
};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const VARIABLE: &str = "RINGSMITH_LINKS_CHILD";

/// What a process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// Traffic over shared memory.
    Shm,
    /// Traffic over shared memory behind nameless files of /dev/shm.
    ShmFiles,
    /// Traffic over sockets.
    Socket,
    /// Ranks 0 and 1 on one pretended host, the rest on another.
    Mixed,
    /// The last rank kills itself amid traffic over sockets; the others must be told.
    Killed,
    /// Like `Mixed`; every rank forks a child that drops its copy of the links.
    Forked,
    /// All ranks map files of /dev/shm and kill themselves.
    AllKilled,
}

const ALL: [Scenario; 7] = [
    Scenario::Shm,
    Scenario::ShmFiles,
    Scenario::Socket,
    Scenario::Mixed,
    Scenario::Killed,
    Scenario::Forked,
    Scenario::AllKilled,
];

impl Scenario {
    fn options(self, rank: u32) -> Options {
        let options = Options::default();
        match self {
            Self::Shm => Options { shared_memory: SharedMemory::Only, ..options },
            Self::ShmFiles | Self::AllKilled => Options {
                shared_memory: SharedMemory::Only,
                backing: Backing::Directory("/dev/shm".into()),
                ..options
            },
            Self::Socket | Self::Killed => {
                Options { shared_memory: SharedMemory::Off, sockets_per_pair: 2, ..options }
            }
            Self::Mixed | Self::Forked => Options { host_id: Some((rank / 2).to_string()), ..options },
        }
    }

    fn kind(self, rank: u32, peer: u32) -> TransportKind {
        match self {
            _ if rank == peer => TransportKind::Local,
            Self::Mixed | Self::Forked if rank / 2 == peer / 2 => TransportKind::Shm,
            Self::Shm | Self::ShmFiles | Self::AllKilled => TransportKind::Shm,
            Self::Socket | Self::Killed | Self::Mixed | Self::Forked => TransportKind::Socket,
        }
    }
}

/// Kills what is left when a test fails.
struct Family(Vec<Child>);

impl Drop for Family {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a scenario in `world` processes and returns what became of them.
pub(crate) fn run(scenario: Scenario, world: u32) -> Vec<Output> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("ringsmith-links-test-{}-{number}", std::process::id());
    let hub = hub(&name, world);
    let program = std::env::current_exe().expect("the path of this program");
    let index = ALL.iter().position(|known| *known == scenario).expect("ALL has every scenario");
    let start = |rank| {
        Command::new(&program)
            .env(VARIABLE, format!("{index} {rank} {world} {name}"))
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again")
    };
    let mut family = Family((0..world).map(start).collect());
    let outputs = std::mem::take(&mut family.0)
        .into_iter()
        .map(|child| child.wait_with_output().expect("a child's end"))
        .collect();
    hub.join().expect("the hub");
    outputs
}

/// Plays a scenario if this process was started for one.
pub(crate) fn play_if_asked() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let [index, rank, world, name] = words[..] else { panic!("{VARIABLE}={text}") };
    let number = |word: &str| word.parse::<u32>().expect("a number");
    play(ALL[number(index) as usize], number(rank), number(world), name);
    std::process::exit(0);
}

fn play(scenario: Scenario, rank: u32, world: u32, name: &str) {
    let exchange = Process::new(name, rank, world);
    let bell = Arc::new(Bell::default());
    let geometry = Geometry { ranks: world, ..GEOMETRY };
    let links = Connections::connect(&exchange, &scenario.options(rank), geometry, bell.clone());
    let links = links.unwrap_or_else(|error| panic!("rank {rank}: {error:?}"));
    for peer in 0..world {
        assert_eq!(links.transport(peer), scenario.kind(rank, peer), "rank {rank} to {peer}");
    }
    match scenario {
        Scenario::Killed => {
            if rank == world - 1 {
                traffic::everybody_to_everybody_until(&links, seed(), u64::MAX, |sent| sent >= 50);
                die();
            }
            traffic::everybody_to_everybody_until(&links, seed(), u64::MAX, |_| bell.raised());
            let Some(LinkFault::PeerLost { peer, .. }) = bell.fault() else { panic!("{:?}", bell.fault()) };
            println!("lost {peer}");
        }
        Scenario::AllKilled => {
            traffic::everybody_to_everybody(&links, &bell, seed(), 20);
            assert_eq!(names_in_shm(), Vec::<String>::new());
            die();
        }
        Scenario::Forked => {
            let links = fork_and_drop_in_child(links);
            traffic::everybody_to_everybody(&links, &bell, seed(), 100);
            assert!((0..world).all(|peer| !links.has_left(peer)), "rank {rank} was left");
            // So that nobody leaves while another still looks.
            exchange.all_gather("looked", &[]).expect("all looked");
            drop(links);
            assert_eq!(bell.fault(), None);
        }
        Scenario::Shm | Scenario::ShmFiles | Scenario::Socket | Scenario::Mixed => {
            traffic::everybody_to_everybody(&links, &bell, seed(), 300);
            drop(links);
            assert_eq!(bell.fault(), None);
        }
    }
}

/// Lets a child drop the links before the parent uses them.
fn fork_and_drop_in_child(links: Connections) -> Connections {
    // SAFETY: the child only unmaps, closes, and ends, none of which needs a lock that another thread
    // could have held.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        drop(links);
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, and the status is a valid place.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child ended in good order");
    links
}

/// As if the kernel had run out of memory.
fn die() -> ! {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .expect("a process may kill itself");
    unreachable!("it is dead");
}

/// What Ringsmith has left in /dev/shm.
pub(crate) fn names_in_shm() -> Vec<String> {
    let entries = std::fs::read_dir("/dev/shm").expect("a readable /dev/shm");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.contains("ringsmith")).collect()
}
