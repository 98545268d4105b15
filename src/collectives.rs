//! The calls that move data, on slices.
//!
//! Each checks its lengths, then hands bytes to the runtime. The variants `_in_place` work in one buffer
//! of the larger side's length, in which a rank's own block lies at its place.

use crate::communicator::{Communicator, request};
use crate::element::Element;
use crate::group::Group;
use crate::lengths::{Lengths, Side};
use crate::op::Op;
use bytemuck::{cast_slice, cast_slice_mut};
use ringsmith_ir::types::Collective;
use ringsmith_runtime::communicator::{Buffers, Request};
use ringsmith_runtime::error::Result;

/// A call whose lengths have been checked.
pub(crate) type Checked<'a> = Result<(Request, Buffers<'a>)>;

/// Which rank makes a call, of how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) rank: u32,
    pub(crate) world: u32,
}

/// Input and output apart.
fn apart<'a, T: Element>(input: &'a [T], output: &'a mut [T]) -> Buffers<'a> {
    Buffers::Apart { send: cast_slice(input), recv: cast_slice_mut(output) }
}

impl Place {
    pub(crate) fn lengths<T: Element>(self, operation: &'static str) -> Lengths {
        Lengths { operation, dtype: T::TYPE, rank: self.rank, world: self.world }
    }

    fn side(self, root: u32) -> Side {
        if self.rank == root { Side::Present } else { Side::Absent }
    }

    pub(crate) fn all_reduce<'a, T: Element>(
        self,
        input: &'a [T],
        output: &'a mut [T],
        op: Op,
    ) -> Checked<'a> {
        let count = self.lengths::<T>("all_reduce").same(input.len(), output.len())?;
        Ok((request::<T>(Collective::AllReduce, op, 0, count), apart(input, output)))
    }

    pub(crate) fn all_gather<'a, T: Element>(self, input: &'a [T], output: &'a mut [T]) -> Checked<'a> {
        let count = self.lengths::<T>("all_gather").blocks(
            ("output", output.len()),
            ("input", input.len()),
            Side::Present,
        )?;
        Ok((request::<T>(Collective::AllGather, Op::Sum, 0, count), apart(input, output)))
    }

    pub(crate) fn reduce_scatter<'a, T: Element>(
        self,
        input: &'a [T],
        output: &'a mut [T],
        op: Op,
    ) -> Checked<'a> {
        let count = self.lengths::<T>("reduce_scatter").blocks(
            ("input", input.len()),
            ("output", output.len()),
            Side::Present,
        )?;
        Ok((request::<T>(Collective::ReduceScatter, op, 0, count), apart(input, output)))
    }

    pub(crate) fn broadcast<'a, T: Element>(
        self,
        input: &'a [T],
        output: &'a mut [T],
        root: u32,
    ) -> Checked<'a> {
        let count = self.lengths::<T>("broadcast").same_or_absent(
            ("output", output.len()),
            ("input", input.len()),
            self.side(root),
        )?;
        Ok((request::<T>(Collective::Broadcast, Op::Sum, root, count), apart(input, output)))
    }

    pub(crate) fn reduce<'a, T: Element>(
        self,
        input: &'a [T],
        output: &'a mut [T],
        op: Op,
        root: u32,
    ) -> Checked<'a> {
        let count = self.lengths::<T>("reduce").same_or_absent(
            ("input", input.len()),
            ("output", output.len()),
            self.side(root),
        )?;
        Ok((request::<T>(Collective::Reduce, op, root, count), apart(input, output)))
    }

    pub(crate) fn gather<'a, T: Element>(
        self,
        input: &'a [T],
        output: &'a mut [T],
        root: u32,
    ) -> Checked<'a> {
        let count = self.lengths::<T>("gather").blocks(
            ("output", output.len()),
            ("input", input.len()),
            self.side(root),
        )?;
        Ok((request::<T>(Collective::Gather, Op::Sum, root, count), apart(input, output)))
    }

    pub(crate) fn scatter<'a, T: Element>(
        self,
        input: &'a [T],
        output: &'a mut [T],
        root: u32,
    ) -> Checked<'a> {
        let count = self.lengths::<T>("scatter").blocks(
            ("input", input.len()),
            ("output", output.len()),
            self.side(root),
        )?;
        Ok((request::<T>(Collective::Scatter, Op::Sum, root, count), apart(input, output)))
    }

    pub(crate) fn all_to_all<'a, T: Element>(self, input: &'a [T], output: &'a mut [T]) -> Checked<'a> {
        let lengths = self.lengths::<T>("all_to_all");
        lengths.same(input.len(), output.len())?;
        let count = lengths.divided("input", input.len())?;
        Ok((request::<T>(Collective::AllToAll, Op::Sum, 0, count), apart(input, output)))
    }

    /// A call in one buffer.
    pub(crate) fn in_place<'a, T: Element>(
        self,
        collective: Collective,
        op: Op,
        root: u32,
        buffer: &'a mut [T],
    ) -> Checked<'a> {
        let count = if collective.blocked() {
            self.lengths::<T>(collective.name()).divided("buffer", buffer.len())?
        } else {
            buffer.len() as u64
        };
        Ok((request::<T>(collective, op, root, count), Buffers::InPlace(cast_slice_mut(buffer))))
    }
}

impl Communicator {
    pub(crate) fn place(&self) -> Place {
        Place { rank: self.rank(), world: self.world() }
    }

    fn run(&self, call: Checked<'_>) -> Result<()> {
        let (request, buffers) = call?;
        self.inner.run(&request, buffers)
    }
}

/// Collectives.
impl Communicator {
    /// Combines every rank's `input`, element by element, into every rank's `output`.
    ///
    /// Shapes: both have n elements on every rank.
    /// Ordering: additions go in the order of the plan; every rank gets the same bits.
    /// Errors: as in [`Communicator`].
    ///
    /// ```
    /// use ringsmith::Op;
    ///
    /// ringsmith::on_threads(3, |comm| {
    ///     let input = [comm.rank() as i64, 5];
    ///     let mut output = [0; 2];
    ///     comm.all_reduce(&input, &mut output, Op::Sum)?;
    ///     assert_eq!(output, [3, 15]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn all_reduce<T: Element>(&self, input: &[T], output: &mut [T], op: Op) -> Result<()> {
        self.run(self.place().all_reduce(input, output, op))
    }

    /// [`Communicator::all_reduce`] with the result in place of the input.
    ///
    /// Each rank may bring a factor of its own:
    /// ```
    /// use ringsmith::Op;
    ///
    /// let weights = [0.25, 0.75];
    /// ringsmith::on_threads(2, |comm| {
    ///     let mut values = [4.0f32, 8.0];
    ///     comm.all_reduce_in_place(&mut values, Op::PremulSum(weights[comm.rank() as usize]))?;
    ///     assert_eq!(values, [4.0, 8.0]);
    ///     comm.all_reduce_in_place(&mut values, Op::Avg)?;
    ///     assert_eq!(values, [4.0, 8.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn all_reduce_in_place<T: Element>(&self, buffer: &mut [T], op: Op) -> Result<()> {
        self.run(self.place().in_place(Collective::AllReduce, op, 0, buffer))
    }

    /// Gives every rank every rank's `input`, in rank order.
    ///
    /// Shapes: `input` has n elements on every rank, `output` n times the number of ranks.
    /// Errors: as in [`Communicator`].
    ///
    /// ```
    /// ringsmith::on_threads(3, |comm| {
    ///     let mut output = [0u8; 6];
    ///     comm.all_gather(&[b'a' + comm.rank() as u8; 2], &mut output)?;
    ///     assert_eq!(&output, b"aabbcc");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.run(self.place().all_gather(input, output))
    }

    /// [`Communicator::all_gather`] in one buffer of n times the number of ranks, with this rank's block
    /// at rank times n.
    ///
    /// ```
    /// ringsmith::on_threads(3, |comm| {
    ///     let mut buffer = [0u8; 3];
    ///     buffer[comm.rank() as usize] = b'a' + comm.rank() as u8;
    ///     comm.all_gather_in_place(&mut buffer)?;
    ///     assert_eq!(&buffer, b"abc");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn all_gather_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        self.run(self.place().in_place(Collective::AllGather, Op::Sum, 0, buffer))
    }

    /// Combines every rank's `input` and gives block r of the result to rank r.
    ///
    /// Shapes: `output` has n elements on every rank, `input` n times the number of ranks.
    /// Errors: as in [`Communicator`].
    ///
    /// ```
    /// use ringsmith::Op;
    ///
    /// let blocks = ringsmith::on_threads(2, |comm| {
    ///     let mut output = [0; 2];
    ///     comm.reduce_scatter(&[1, 2, 3, 4], &mut output, Op::Sum)?;
    ///     Ok(output)
    /// })?;
    /// assert_eq!(blocks, [[2, 4], [6, 8]]);
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: Op) -> Result<()> {
        self.run(self.place().reduce_scatter(input, output, op))
    }

    /// [`Communicator::reduce_scatter`] in one buffer of n times the number of ranks. The result is at
    /// rank times n; what the rest holds afterwards is unspecified.
    ///
    /// ```
    /// use ringsmith::Op;
    ///
    /// ringsmith::on_threads(2, |comm| {
    ///     let mut buffer = [1, 2];
    ///     comm.reduce_scatter_in_place(&mut buffer, Op::Sum)?;
    ///     let own = comm.rank() as usize;
    ///     assert_eq!(buffer[own], [2, 4][own]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn reduce_scatter_in_place<T: Element>(&self, buffer: &mut [T], op: Op) -> Result<()> {
        self.run(self.place().in_place(Collective::ReduceScatter, op, 0, buffer))
    }

    /// Gives every rank the root's `input`, the root among them.
    ///
    /// Shapes: `output` has n elements on every rank, `input` n at the root; elsewhere it is not read,
    /// and has none or n.
    /// Errors: as in [`Communicator`].
    ///
    /// ```
    /// ringsmith::on_threads(3, |comm| {
    ///     let input = if comm.rank() == 2 { &[7.5, 8.5][..] } else { &[] };
    ///     let mut output = [0.0; 2];
    ///     comm.broadcast(input, &mut output, 2)?;
    ///     assert_eq!(output, [7.5, 8.5]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn broadcast<T: Element>(&self, input: &[T], output: &mut [T], root: u32) -> Result<()> {
        self.run(self.place().broadcast(input, output, root))
    }

    /// [`Communicator::broadcast`] of the root's buffer into everybody's.
    ///
    /// ```
    /// ringsmith::on_threads(3, |comm| {
    ///     let mut buffer = [100 + comm.rank()];
    ///     comm.broadcast_in_place(&mut buffer, 1)?;
    ///     assert_eq!(buffer, [101]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn broadcast_in_place<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        self.run(self.place().in_place(Collective::Broadcast, Op::Sum, root, buffer))
    }

    /// Combines every rank's `input` into the root's `output`.
    ///
    /// Shapes: `input` has n elements on every rank, `output` n at the root; elsewhere none or n, and
    /// what those hold afterwards is unspecified.
    /// Errors: as in [`Communicator`].
    ///
    /// ```
    /// use ringsmith::Op;
    ///
    /// ringsmith::on_threads(3, |comm| {
    ///     let mut output = vec![0; if comm.rank() == 0 { 2 } else { 0 }];
    ///     comm.reduce(&[1, comm.rank()], &mut output, Op::Sum, 0)?;
    ///     assert!(comm.rank() != 0 || output == [3, 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn reduce<T: Element>(&self, input: &[T], output: &mut [T], op: Op, root: u32) -> Result<()> {
        self.run(self.place().reduce(input, output, op, root))
    }

    /// [`Communicator::reduce`] with the result in place of the root's input. What the other ranks'
    /// buffers hold afterwards is unspecified.
    ///
    /// ```
    /// use ringsmith::Op;
    ///
    /// ringsmith::on_threads(3, |comm| {
    ///     let mut buffer = [1 + comm.rank()];
    ///     comm.reduce_in_place(&mut buffer, Op::Prod, 1)?;
    ///     assert!(comm.rank() != 1 || buffer == [6]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn reduce_in_place<T: Element>(&self, buffer: &mut [T], op: Op, root: u32) -> Result<()> {
        self.run(self.place().in_place(Collective::Reduce, op, root, buffer))
    }

    /// Gives the root every rank's `input`, in rank order.
    ///
    /// Shapes: `input` has n elements on every rank, `output` n times the number of ranks at the root;
    /// elsewhere none or as many, and what those hold afterwards is unspecified.
    /// Errors: as in [`Communicator`].
    ///
    /// ```
    /// ringsmith::on_threads(3, |comm| {
    ///     let mut output = vec![0; if comm.rank() == 0 { 3 } else { 0 }];
    ///     comm.gather(&[10 * comm.rank()], &mut output, 0)?;
    ///     assert!(comm.rank() != 0 || output == [0, 10, 20]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn gather<T: Element>(&self, input: &[T], output: &mut [T], root: u32) -> Result<()> {
        self.run(self.place().gather(input, output, root))
    }

    /// [`Communicator::gather`] in one buffer of n times the number of ranks on every rank, with a
    /// rank's block at rank times n. What the buffers of other ranks than the root hold afterwards is
    /// unspecified.
    ///
    /// ```
    /// ringsmith::on_threads(3, |comm| {
    ///     let mut buffer = [0; 3];
    ///     buffer[comm.rank() as usize] = 10 * comm.rank();
    ///     comm.gather_in_place(&mut buffer, 2)?;
    ///     assert!(comm.rank() != 2 || buffer == [0, 10, 20]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn gather_in_place<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        self.run(self.place().in_place(Collective::Gather, Op::Sum, root, buffer))
    }

    /// Gives block r of the root's `input` to rank r, the root among them.
    ///
    /// Shapes: `output` has n elements on every rank, `input` n times the number of ranks at the root;
    /// elsewhere it is not read, and has none or as many.
    /// Errors: as in [`Communicator`].
    ///
    /// ```
    /// ringsmith::on_threads(3, |comm| {
    ///     let input = if comm.rank() == 1 { vec![5, 6, 7] } else { Vec::new() };
    ///     let mut output = [0];
    ///     comm.scatter(&input, &mut output, 1)?;
    ///     assert_eq!(output, [5 + comm.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn scatter<T: Element>(&self, input: &[T], output: &mut [T], root: u32) -> Result<()> {
        self.run(self.place().scatter(input, output, root))
    }

    /// [`Communicator::scatter`] in one buffer of n times the number of ranks on every rank. A rank's
    /// block arrives at rank times n; what the rest holds afterwards is unspecified, but at the root it
    /// is as it was.
    ///
    /// ```
    /// ringsmith::on_threads(3, |comm| {
    ///     let mut buffer = if comm.rank() == 0 { [5, 6, 7] } else { [0; 3] };
    ///     comm.scatter_in_place(&mut buffer, 0)?;
    ///     assert_eq!(buffer[comm.rank() as usize], 5 + comm.rank());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn scatter_in_place<T: Element>(&self, buffer: &mut [T], root: u32) -> Result<()> {
        self.run(self.place().in_place(Collective::Scatter, Op::Sum, root, buffer))
    }

    /// Gives block r of every rank's `input` to rank r, in rank order: a transposition.
    ///
    /// Shapes: both have n times the number of ranks on every rank.
    /// Errors: as in [`Communicator`].
    ///
    /// ```
    /// ringsmith::on_threads(2, |comm| {
    ///     let mine = 10 * comm.rank();
    ///     let mut output = [0; 2];
    ///     comm.all_to_all(&[mine, mine + 1], &mut output)?;
    ///     assert_eq!(output, [comm.rank(), 10 + comm.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.run(self.place().all_to_all(input, output))
    }

    /// [`Communicator::all_to_all`] with the result in place of the input.
    ///
    /// ```
    /// ringsmith::on_threads(2, |comm| {
    ///     let mut buffer = [10 * comm.rank(), 10 * comm.rank() + 1];
    ///     comm.all_to_all_in_place(&mut buffer)?;
    ///     assert_eq!(buffer, [comm.rank(), 10 + comm.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn all_to_all_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        self.run(self.place().in_place(Collective::AllToAll, Op::Sum, 0, buffer))
    }

    /// As [`Communicator::all_to_all`], with blocks of any size: see [`Group::all_to_all_v`].
    ///
    /// Shapes: `input` has `send_counts[r]` elements for rank r, one after the other; `output` takes
    /// `recv_counts[r]` from rank r. What r receives from s must be what s sends to r.
    /// Errors: as in [`Communicator`]; `MessageSize` when two ranks' counts differ.
    ///
    /// ```
    /// ringsmith::on_threads(2, |comm| {
    ///     // Rank 0 sends one element to everybody, rank 1 two.
    ///     let each = 1 + comm.rank() as usize;
    ///     let input = vec![comm.rank(); 2 * each];
    ///     let mut output = [9; 3];
    ///     comm.all_to_all_v(&input, &[each, each], &mut output, &[1, 2])?;
    ///     assert_eq!(output, [0, 1, 1]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn all_to_all_v<T: Element>(
        &self,
        input: &[T],
        send_counts: &[usize],
        output: &mut [T],
        recv_counts: &[usize],
    ) -> Result<()> {
        self.group(|g| g.all_to_all_v(input, send_counts, output, recv_counts))
    }

    /// Returns when every rank has called it.
    ///
    /// Errors: as in [`Communicator`].
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    ///
    /// let arrived = AtomicU32::new(0);
    /// ringsmith::on_threads(3, |comm| {
    ///     arrived.fetch_add(1, SeqCst);
    ///     comm.barrier()?;
    ///     assert_eq!(arrived.load(SeqCst), 3);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn barrier(&self) -> Result<()> {
        self.run(self.place().in_place::<u8>(Collective::Barrier, Op::Sum, 0, &mut []))
    }
}

/// Messages.
impl Communicator {
    /// Sends `data` to rank `peer`, which must receive as many elements.
    ///
    /// Ordering: messages to one peer match its receives in the order of the calls. The call returns
    /// when `data` may be used again, and may wait for the receiver until then: two ranks that send to
    /// each other first wait for ever. Messages in both directions belong into one
    /// [`Communicator::group`], and so does a message to oneself.
    /// Errors: as in [`Communicator`]; `MessageSize` when the receiver expects another length.
    ///
    /// ```
    /// ringsmith::on_threads(2, |comm| {
    ///     let mut word = *b"....";
    ///     match comm.rank() {
    ///         0 => comm.send(b"ping", 1)?,
    ///         _ => comm.recv(&mut word, 0)?,
    ///     }
    ///     assert!(comm.rank() == 0 || &word == b"ping");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn send<T: Element>(&self, data: &[T], peer: u32) -> Result<()> {
        self.inner.send(peer, cast_slice(data))
    }

    /// Receives as many elements as `data` has from rank `peer`.
    ///
    /// Ordering: as [`Communicator::send`].
    /// Errors: as in [`Communicator`]; `MessageSize` when the message has another length.
    ///
    /// ```
    /// let received = ringsmith::on_threads(2, |comm| {
    ///     let mut numbers = [0.0f64; 2];
    ///     match comm.rank() {
    ///         0 => comm.recv(&mut numbers, 1)?,
    ///         _ => comm.send(&[0.5, 0.25], 0)?,
    ///     }
    ///     Ok(numbers)
    /// })?;
    /// assert_eq!(received[0], [0.5, 0.25]);
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn recv<T: Element>(&self, data: &mut [T], peer: u32) -> Result<()> {
        self.inner.recv(peer, cast_slice_mut(data))
    }

    /// Runs several calls together: see [`Group`].
    ///
    /// Errors: as in [`Communicator`]; the first mistake of any call of the group, with its number, before
    /// any of them has moved anything.
    ///
    /// ```
    /// use ringsmith::Op;
    ///
    /// ringsmith::on_threads(3, |comm| {
    ///     let (rank, world) = (comm.rank(), comm.world());
    ///     let own = [rank];
    ///     let (mut from_left, mut sum) = ([0], [1u64]);
    ///     comm.group(|g| {
    ///         g.send(&own, (rank + 1) % world);
    ///         g.recv(&mut from_left, (rank + world - 1) % world);
    ///         g.all_reduce_in_place(&mut sum, Op::Sum);
    ///     })?;
    ///     assert_eq!((from_left, sum), ([(rank + 2) % 3], [3]));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn group<'a>(&self, build: impl FnOnce(&mut Group<'a>)) -> Result<()> {
        let mut group = Group::new(self.place());
        build(&mut group);
        self.inner.run_group(&mut group.into_calls()?)
    }
}
