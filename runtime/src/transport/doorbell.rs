//! How executor threads tell the progress thread that a link has news, without a system call while it
//! is awake.
//!
//! | word | written by | read by | order |
//! | --- | --- | --- | --- |
//! | `pending`, one bit a link end | executor sets a bit after its counter; progress thread clears words | progress thread, then the counters | sequentially consistent |
//! | `asleep` | progress thread sets before its last look at `pending`; whoever clears it writes `wake` | executor, after setting its bit | sequentially consistent |
//! | `active` | executor, around a collective | progress thread | relaxed: a hint how long to poll |
//! | `stop` | whoever closes the connections | progress thread | release, acquire |
//!
//! Either the executor sees `asleep` and rings, or the progress thread's last look sees the bit: both
//! sides write their word before they read the other's, in one total order.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What executor threads and the progress thread share.
#[derive(Debug)]
pub(crate) struct Board {
    pending: Box<[AtomicU64]>,
    asleep: AtomicBool,
    active: AtomicUsize,
    stop: AtomicBool,
    wake: OwnedFd,
}

impl Board {
    /// A board for `ends` link ends.
    pub(crate) fn new(ends: usize) -> Result<Self, Errno> {
        Ok(Self {
            pending: (0..ends.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            asleep: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Wakes the progress thread if it sleeps.
    pub(crate) fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            loop {
                // A full counter (EAGAIN) wakes as well; nothing else can go wrong with our own eventfd.
                match rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
                    Err(Errno::INTR) => {}
                    _ => break,
                }
            }
        }
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

    /// Announces that the progress thread is about to sleep. Returns false, and takes it back, if
    /// there is news.
    pub(crate) fn doze(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let news = self.stopping() || self.pending.iter().any(|word| word.load(Ordering::SeqCst) != 0);
        if news {
            self.asleep.store(false, Ordering::SeqCst);
        }
        !news
    }

    /// Called by the progress thread when it is awake again, whatever woke it.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
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
        self.wake();
    }

    /// It leaves.
    pub(crate) fn leave(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks the progress thread to finish.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
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

    /// Says that the end's counter has advanced.
    pub(crate) fn ring(&self) {
        self.board.pending[self.end / 64].fetch_or(1 << (self.end % 64), Ordering::SeqCst);
        self.board.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn rung(board: &Board) -> bool {
        poll(&mut [PollFd::new(board, PollFlags::IN)], Some(&rustix::time::Timespec::default())) == Ok(1)
    }

    #[test]
    fn a_ring_is_taken_once_and_by_its_own_end() {
        let board = Arc::new(Board::new(130).expect("eventfd"));
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
        let board = Arc::new(Board::new(1).expect("eventfd"));
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
}
