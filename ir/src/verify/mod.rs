//! The verifier: the only maker of [`Verified`] values.
//!
//! It runs twice on one engine (`machine`): on the schedule (what the author meant) and on the
//! kernel plan (what will run). Both runs are exact, not heuristic: programs are deterministic, so
//! one run over symbolic values decides deadlock, races and results for all inputs and timings.
//!
//! # The rules of a schedule
//! | code | rule |
//! | --- | --- |
//! | V0101, V0102 | a link has one sending and one receiving lane |
//! | V0103, V0104 | puts and signals start at the link's first rank, waits and gets at its second; a put goes to the rank at the link's other end |
//! | V0105 | every signal is waited for within the launch |
//! | V0106 | every put is published by a later signal on its link |
//! | V0107 | a get follows a wait on its link |
//! | V0201 | a chunk exists in its buffer |
//! | V0202 | nobody writes an `input` buffer |
//! | V0203 | a rank writes only chunks that are part of its own result; the rest is scratch's |
//! | V0204 | `inout` stands alone: no `input` or `output` beside it |
//! | V0205 | an op's source and destination differ |
//! | V0206 | a chunk that is read is defined: part of the input, or written before |
//! | V0207 | ranks, root, sizes, links and lanes fit each other and the collective (texts cannot break this; programs that build schedules can) |
//! | V0301 | two writes of a chunk are ordered |
//! | V0302 | a read is ordered after the write that it expects |
//! | V0303 | a write is ordered after the reads of what it overwrites |
//! | V0304 | a peer's user buffer is touched only after some op of its owner |
//! | V0305 | and before the owner's last op |
//! | V0401 | every output chunk ends with each contribution exactly once, and no reduction combines what does not belong together |
//! | V0402 | every rank reduces an element in the same tree, unless `order = any` |
//! | V0403 | no rank leaves a barrier before all have entered |
//! | V0501 | no cycle of lanes that wait for each other |
//! | V0502 | every wait has its signal |
//!
//! Input and output may be the same memory: a schedule with separate buffers is run once with them
//! apart and once with them on top of each other, at the offsets the collective prescribes.
//!
//! # The rules of a kernel plan
//! The same, with slots of finite number, tiles and launches made real: one and two tiles per chunk
//! and two launches in a row (three where zones are used), which stand for any number of both
//! (docs/verifier.md). In addition:
//!
//! | code | rule |
//! | --- | --- |
//! | V0601 | a launch leaves every link as it found it: what was sent was taken, every credit is back |
//! | V0602 | epoch zones are used only by plans whose launches end after every rank has started |
//! | V0603 | links, lanes and counters are used at the right end, slots only in FIFO plans, cells only in zone plans |
//! | V0604 | the operation's first step applies once to every raw input and its last once to every complete result |
//! | V0605 | an expansion stays within the verifier's bound |
//! | V0606 | a move has the size of the chunk that it carries |
//! | V0607 | an end of a FIFO uses its messages one after the other: wait, use the slot, signal; a cell is sent and taken once a launch |

mod bounds;
mod kernel;
mod kernel_hearing;
mod kernel_rules;
mod machine;
mod outline;
mod postcondition;
mod report;
mod schedule;
mod schedule_rules;
mod value;

pub use bounds::{MAX_STEPS, MAX_WORK};
pub use kernel::{kernel_plan, passes};
pub use outline::outline;
pub use schedule::{Fact, schedule};

use std::fmt;
use std::ops::Deref;

/// A value that the verifier has proved, with what it learned on the way.
#[derive(Clone, Debug)]
pub struct Verified<T: Provable> {
    value: T,
    facts: T::Facts,
}

/// What can be proved.
pub trait Provable {
    /// What the proof learns, for the next stage.
    type Facts: Clone + fmt::Debug;
}

impl Provable for crate::schedule::Schedule {
    /// Per lane (in the schedule's order) and op.
    type Facts = Vec<Vec<Fact>>;
}

impl Provable for crate::kernel_plan::KernelPlan {
    type Facts = ();
}

impl<T: Provable> Verified<T> {
    /// What the proof learned.
    pub fn facts(&self) -> &T::Facts {
        &self.facts
    }

    /// The value, giving up the proof.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T: Provable> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// At most this many mistakes are listed; a note says how many more there are.
pub const MAX_DIAGNOSTICS: usize = 40;
