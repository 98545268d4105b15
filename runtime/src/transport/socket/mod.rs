//! Links over TCP: connections between two ranks, and the thread that moves their messages.
//!
//! Each end of a socket link is a FIFO in private memory, so the executor sees what it sees over shared
//! memory. The sender's progress thread sends a message when `full` advances; the receiver's reads it
//! into the slot and advances its own `full`; when `free` advances there, a credit travels back.
//! [`handshake`] makes connections, [`frame`] is what travels on them, [`wire`] is one connection's
//! state, [`progress`] the thread that serves all of them.

pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod listener;
pub(crate) mod progress;
pub(crate) mod talk;
pub(crate) mod wire;
