//! How executor threads and the progress thread share the work on socket links.
//!
//! An executor thread that publishes sets a bit, without a system call. Who takes it from there depends
//! on the cores. *With cores to spare*, the progress thread polls and does everything. *In a crowd*,
//! where every hand-over costs a turn of the scheduler, executor threads help: they send messages as
//! they publish them, and look at the network while they wait; the progress thread naps as long as they
//! are at it.
//!
//! | word | written by | read by | order |
//! | --- | --- | --- | --- |
//! | `pending`, one bit a link end | executor sets a bit after its counter; whoever makes a round clears words | whoever makes a round, then the counters | sequentially consistent |
//! | `rest` | progress thread, before its last look at `pending`; whoever clears it writes `wake` | executor, after setting its bit | sequentially consistent |
//! | `moves` | whoever makes a round | progress thread | relaxed: a hint whether others are at it |
//! | `active` | executor, around a collective | progress thread | relaxed: a hint how long to poll |
//! | `stop` | whoever closes the connections | progress thread | sequentially consistent |
//! | the helper's lock | whoever makes a round | whoever wants to | see below |
//!
//! No bit is forgotten. Either an executor sees `rest` and rings, or the progress thread's last look
//! sees the bit: both sides write their word before they read the other's, in one total order.
//! Likewise an executor that finds the lock taken has set its bit before, and whoever holds the lock
//! looks at the bits again after letting go of it, both with a fence between.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The progress thread runs.
const AWAKE: u32 = 0;
/// It sleeps until there is anything to do.
const ASLEEP: u32 = 1;
/// It sleeps for a short time, unless there is something that others should not do.
const NAPPING: u32 = 2;

/// Rounds that a helper makes in a row for others' bits before it returns to its own work.
const MOST_ROUNDS: u32 = 4;

/// Rounds that catch up with the network. Ours: what one round takes in is bounded by the slots of all
/// links, so that more bring nothing unless peers keep sending.
const CATCH_UP_ROUNDS: u32 = 16;

/// What makes a round: sends and receives what can be without waiting.
pub(crate) trait Helper: Send + Sync {
    /// Makes a round and says whether anything moved; none if somebody else is at it. Without `look` it
    /// only sends.
    fn try_round(&self, board: &Board, look: bool) -> Option<bool>;

    /// Makes a round with a look, after whoever is at it, and says whether anything moved.
    fn round(&self, board: &Board) -> bool;
}

/// What executor threads and the progress thread share.
pub(crate) struct Board {
    pending: Box<[AtomicU64]>,
    rest: AtomicU32,
    active: AtomicUsize,
    moves: AtomicU64,
    stop: AtomicBool,
    wake: OwnedFd,
    crowded: bool,
    helper: OnceLock<Arc<dyn Helper>>,
}

impl Board {
    /// A board for `ends` link ends. `crowded` says that executor threads help.
    pub(crate) fn new(ends: usize, crowded: bool) -> Result<Self, Errno> {
        Ok(Self {
            pending: (0..ends.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            rest: AtomicU32::new(AWAKE),
            active: AtomicUsize::new(0),
            moves: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            crowded,
            helper: OnceLock::new(),
        })
    }

    /// Says who makes rounds, once.
    pub(crate) fn set_helper(&self, helper: Arc<dyn Helper>) {
        assert!(self.helper.set(helper).is_ok(), "a board has one helper");
    }

    /// Whether executor threads help.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Makes a round, and more until no bit is set, as long as nobody else is at it. True if anything
    /// moved.
    fn help(&self, look: bool) -> bool {
        let Some(helper) = self.helper.get() else { return false };
        let mut any = false;
        for round in 0..MOST_ROUNDS {
            let Some(moved) = helper.try_round(self, look && round == 0) else { return any };
            any |= moved;
            // Orders the lock's release before the look at the bits; see the top.
            fence(Ordering::SeqCst);
            if !self.has_news() {
                return any;
            }
        }
        self.wake(ASLEEP | NAPPING);
        any
    }

    /// Takes in all that has come by now.
    pub(crate) fn catch_up(&self) {
        let Some(helper) = self.helper.get() else { return };
        let _ = (0..CATCH_UP_ROUNDS).find(|_| !helper.round(self));
        // For the bits that were set meanwhile.
        self.help(false);
    }

    /// Wakes the progress thread if it rests in one of these ways.
    fn wake(&self, ways: u32) {
        let rest = self.rest.load(Ordering::SeqCst);
        if rest & ways != 0 && self.rest.swap(AWAKE, Ordering::SeqCst) != AWAKE {
            // A full counter (EAGAIN) wakes as well; nothing else can go wrong with our own eventfd.
            while rustix::io::write(&self.wake, &1u64.to_ne_bytes()) == Err(Errno::INTR) {}
        }
    }

    /// Whether any bit is set.
    fn has_news(&self) -> bool {
        self.pending.iter().any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Takes the news: calls `each` with every end whose bit was set.
    pub(crate) fn take(&self, mut each: impl FnMut(usize)) -> bool {
        let mut any = false;
        for (index, word) in self.pending.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                any = true;
                each(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        any
    }

    /// Announces that the progress thread is about to sleep. Returns false, and takes it back, if there
    /// is news.
    pub(crate) fn doze(&self) -> bool {
        self.rest.store(ASLEEP, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let news = self.stopping() || self.has_news();
        if news {
            self.awake();
        }
        !news
    }

    /// Sleeps for `time`, and again as long as executor threads moved something meanwhile: they are at
    /// it, and a round of this thread would only keep them from theirs. Bits that are set wait for one
    /// of them, or for the end of the nap.
    pub(crate) fn nap(&self, time: Duration) {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        loop {
            let before = self.moves.load(Ordering::Relaxed);
            self.rest.store(NAPPING, Ordering::SeqCst);
            if self.stopping() {
                return self.awake();
            }
            let rung = poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&timeout)) != Ok(0);
            self.awake();
            if rung {
                return self.drain();
            }
            if !self.is_active() || self.moves.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    /// Says that a round moved something.
    pub(crate) fn count_move(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Rounds that moved something, whoever made them.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Called by the progress thread when it is awake again, whatever woke it.
    pub(crate) fn awake(&self) {
        self.rest.store(AWAKE, Ordering::SeqCst);
    }

    /// Empties the eventfd. A ringer may fill it after somebody else woke the thread: that costs one
    /// look for nothing.
    pub(crate) fn drain(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }

    /// Whether any thread is inside a collective.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) != 0
    }

    /// A thread enters a collective.
    pub(crate) fn enter(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
        if !self.crowded {
            self.wake(ASLEEP);
        }
    }

    /// It leaves.
    pub(crate) fn leave(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks the progress thread to finish.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake(ASLEEP | NAPPING);
    }

    /// Whether it was asked to.
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

impl AsFd for Board {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board")
            .field("pending", &self.pending)
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}

/// One link end's place on the board.
#[derive(Clone, Debug)]
pub(crate) struct Doorbell {
    board: Arc<Board>,
    end: usize,
}

impl Doorbell {
    /// The doorbell of link end `end`.
    pub(crate) fn new(board: &Arc<Board>, end: usize) -> Self {
        assert!(end / 64 < board.pending.len(), "link end {end} has no bit on the board");
        Self { board: Arc::clone(board), end }
    }

    fn set(&self) {
        self.board.pending[self.end / 64].fetch_or(1 << (self.end % 64), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Says that the end's counter has advanced. In a crowd this thread sees to it itself.
    pub(crate) fn ring(&self) {
        self.set();
        if self.board.crowded {
            self.board.help(false);
        } else {
            self.board.wake(ASLEEP | NAPPING);
        }
    }

    /// The same where it has a little time: in a crowd it may wait for the next round.
    pub(crate) fn ring_later(&self) {
        self.set();
        self.board.wake(if self.board.crowded { ASLEEP } else { ASLEEP | NAPPING });
    }

    /// In a crowd, makes a round for a thread that would only wait, or lets others run if nothing moves:
    /// they may be what it waits for.
    pub(crate) fn help(&self) {
        if self.board.crowded && !self.board.help(true) {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn rung(board: &Board) -> bool {
        poll(&mut [PollFd::new(board, PollFlags::IN)], Some(&rustix::time::Timespec::default())) == Ok(1)
    }

    #[test]
    fn a_ring_is_taken_once_and_by_its_own_end() {
        let board = Arc::new(Board::new(130, false).expect("eventfd"));
        Doorbell::new(&board, 3).ring();
        Doorbell::new(&board, 129).ring();
        let mut ends = Vec::new();
        assert!(board.take(|end| ends.push(end)));
        assert_eq!(ends, [3, 129]);
        assert!(!board.take(|_| ()));
        assert!(!rung(&board), "nobody sleeps, so nobody is woken");
    }

    #[test]
    fn news_prevents_sleep_and_a_sleeper_is_woken() {
        let board = Arc::new(Board::new(1, false).expect("eventfd"));
        let bell = Doorbell::new(&board, 0);
        bell.ring();
        assert!(!board.doze());
        board.take(|_| ());
        assert!(board.doze());
        bell.ring();
        assert!(rung(&board));
        board.awake();
        board.drain();
        assert!(!rung(&board));
        assert!(board.take(|_| ()));
    }

    #[test]
    fn in_a_crowd_what_can_wait_wakes_a_sleeper_but_no_napper() {
        let board = Arc::new(Board::new(1, true).expect("eventfd"));
        let bell = Doorbell::new(&board, 0);
        board.rest.store(NAPPING, Ordering::SeqCst);
        bell.ring_later();
        assert!(!rung(&board));
        board.stop();
        assert!(rung(&board));
        board.drain();
        board.rest.store(ASLEEP, Ordering::SeqCst);
        bell.ring_later();
        assert!(rung(&board));
    }

    #[test]
    fn a_nap_ends_when_nobody_moves_anything() {
        let board = Board::new(1, true).expect("eventfd");
        board.enter();
        board.nap(Duration::from_micros(1));
        assert_eq!(board.rest.load(Ordering::SeqCst), AWAKE);
        board.stop();
        board.nap(Duration::from_millis(999));
        assert_eq!(board.rest.load(Ordering::SeqCst), AWAKE);
    }

    /// Takes bits under a lock, as the real one does, and counts them.
    #[derive(Default)]
    struct Counting(Mutex<u64>);

    impl Helper for Counting {
        fn try_round(&self, board: &Board, _: bool) -> Option<bool> {
            let mut taken = self.0.try_lock().ok()?;
            Some(board.take(|_| *taken += 1))
        }

        fn round(&self, board: &Board) -> bool {
            let mut taken = self.0.lock().expect("no panic");
            board.take(|_| *taken += 1)
        }
    }

    /// Several threads publish and ring, each in turn waiting until its ring was seen: a forgotten bit
    /// would leave one waiting, since nobody else rings any more.
    #[test]
    fn no_ring_of_helpers_is_forgotten() {
        const RINGS: u64 = 20_000;
        let board = Arc::new(Board::new(3, true).expect("eventfd"));
        let helper = Arc::new(Counting::default());
        board.set_helper(helper.clone());
        std::thread::scope(|scope| {
            for end in 0..3 {
                let bell = Doorbell::new(&board, end);
                scope.spawn(move || {
                    for _ in 0..RINGS {
                        bell.ring();
                        let bit = 1 << end;
                        while bell.board.pending[0].load(Ordering::SeqCst) & bit != 0 {
                            std::hint::spin_loop();
                        }
                    }
                });
            }
        });
        assert_eq!(*helper.0.lock().expect("no panic"), 3 * RINGS);
    }
}
