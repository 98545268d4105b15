//! Groups: calls that are collected first and run together.
//!
//! A group borrows every slice until it has run, so that none can be changed meanwhile. It checks
//! lengths as it collects and keeps the first mistake, which the whole group then fails with.

use crate::collectives::{Checked, Place};
use crate::element::Element;
use crate::op::Op;
use bytemuck::{cast_slice, cast_slice_mut};
use ringsmith_ir::types::Collective;
use ringsmith_runtime::communicator::Call;
use ringsmith_runtime::error::{Error, Result};

/// Calls that run together, made by [`Communicator::group`](crate::Communicator::group).
///
/// Collectives run first, in the order of the group, which must be the same on every rank; then all
/// messages at once. Messages to and from one peer match in the order of the group; otherwise their
/// order may differ from rank to rank. An empty message is one: it must be received.
///
/// Nothing moves unless every call of the group is right. The methods return nothing: a wrong length is
/// an error of the whole group.
///
/// ```
/// // Everybody sends something to everybody, in any order.
/// ringsmith::on_threads(3, |comm| {
///     let own = [comm.rank()];
///     let mut all = [0; 3];
///     comm.group(|g| {
///         for (peer, slot) in (0..).zip(all.chunks_mut(1)) {
///             g.recv(slot, peer);
///         }
///         for peer in (0..comm.world()).rev() {
///             g.send(&own, peer);
///         }
///     })?;
///     assert_eq!(all, [0, 1, 2]);
///     Ok(())
/// })?;
/// # Ok::<(), ringsmith::Error>(())
/// ```
#[derive(Debug)]
pub struct Group<'a> {
    place: Place,
    calls: Vec<Call<'a>>,
    /// How many calls were asked for.
    asked: usize,
    /// The first that is wrong.
    mistake: Option<Error>,
}

impl<'a> Group<'a> {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, calls: Vec::new(), asked: 0, mistake: None }
    }

    pub(crate) fn into_calls(self) -> Result<Vec<Call<'a>>> {
        match self.mistake {
            None => Ok(self.calls),
            Some(mistake) => Err(mistake),
        }
    }

    fn add(&mut self, call: Checked<'a>) {
        self.asked += 1;
        match call {
            Ok((request, buffers)) => self.calls.push(Call::Collective(request, buffers)),
            Err(error) => self.refuse(error),
        }
    }

    fn refuse(&mut self, error: Error) {
        let number = self.asked;
        self.mistake.get_or_insert_with(|| match error {
            Error::Argument { operation, detail } => {
                Error::Argument { operation, detail: format!("call {number} of a group: {detail}") }
            }
            other => other,
        });
    }

    /// A message to rank `peer`: [`Communicator::send`](crate::Communicator::send).
    pub fn send<T: Element>(&mut self, data: &'a [T], peer: u32) {
        self.asked += 1;
        self.calls.push(Call::Send { peer, data: cast_slice(data) });
    }

    /// A message from rank `peer`: [`Communicator::recv`](crate::Communicator::recv).
    pub fn recv<T: Element>(&mut self, data: &'a mut [T], peer: u32) {
        self.asked += 1;
        self.calls.push(Call::Recv { peer, data: cast_slice_mut(data) });
    }

    /// A message to and one from every rank, each of its own length.
    ///
    /// Shapes: `input` has `send_counts[r]` elements for rank r, one after the other, this rank among
    /// them; `output` takes `recv_counts[r]` from rank r. Zeros are ordinary.
    ///
    /// ```
    /// use ringsmith::Communicator;
    ///
    /// let comm = Communicator::alone()?;
    /// let mut output = [0; 2];
    /// comm.group(|g| g.all_to_all_v(&[1, 2], &[2], &mut output, &[2]))?;
    /// assert_eq!(output, [1, 2]);
    /// let error = comm.group(|g| g.all_to_all_v(&[1, 2], &[3], &mut output, &[2])).unwrap_err();
    /// assert!(error.to_string().contains("has 2 elements, and its counts add up to 3"), "{error}");
    /// # Ok::<(), ringsmith::Error>(())
    /// ```
    pub fn all_to_all_v<T: Element>(
        &mut self,
        input: &'a [T],
        send_counts: &[usize],
        output: &'a mut [T],
        recv_counts: &[usize],
    ) {
        self.asked += 1;
        let lengths = self.place.lengths::<T>("all_to_all_v");
        let checked = lengths
            .shares("input", input.len(), send_counts)
            .and_then(|()| lengths.shares("output", output.len(), recv_counts));
        if let Err(error) = checked {
            return self.refuse(error);
        }
        let mut rest = input;
        for (peer, count) in (0..).zip(send_counts) {
            let (data, next) = rest.split_at(*count);
            rest = next;
            self.calls.push(Call::Send { peer, data: cast_slice(data) });
        }
        let mut rest = output;
        for (peer, count) in (0..).zip(recv_counts) {
            let (data, next) = rest.split_at_mut(*count);
            rest = next;
            self.calls.push(Call::Recv { peer, data: cast_slice_mut(data) });
        }
    }

    /// [`Communicator::all_reduce`](crate::Communicator::all_reduce).
    pub fn all_reduce<T: Element>(&mut self, input: &'a [T], output: &'a mut [T], op: Op) {
        self.add(self.place.all_reduce(input, output, op));
    }

    /// [`Communicator::all_reduce_in_place`](crate::Communicator::all_reduce_in_place).
    pub fn all_reduce_in_place<T: Element>(&mut self, buffer: &'a mut [T], op: Op) {
        self.add(self.place.in_place(Collective::AllReduce, op, 0, buffer));
    }

    /// [`Communicator::all_gather`](crate::Communicator::all_gather).
    pub fn all_gather<T: Element>(&mut self, input: &'a [T], output: &'a mut [T]) {
        self.add(self.place.all_gather(input, output));
    }

    /// [`Communicator::all_gather_in_place`](crate::Communicator::all_gather_in_place).
    pub fn all_gather_in_place<T: Element>(&mut self, buffer: &'a mut [T]) {
        self.add(self.place.in_place(Collective::AllGather, Op::Sum, 0, buffer));
    }

    /// [`Communicator::reduce_scatter`](crate::Communicator::reduce_scatter).
    pub fn reduce_scatter<T: Element>(&mut self, input: &'a [T], output: &'a mut [T], op: Op) {
        self.add(self.place.reduce_scatter(input, output, op));
    }

    /// [`Communicator::reduce_scatter_in_place`](crate::Communicator::reduce_scatter_in_place).
    pub fn reduce_scatter_in_place<T: Element>(&mut self, buffer: &'a mut [T], op: Op) {
        self.add(self.place.in_place(Collective::ReduceScatter, op, 0, buffer));
    }

    /// [`Communicator::broadcast`](crate::Communicator::broadcast).
    pub fn broadcast<T: Element>(&mut self, input: &'a [T], output: &'a mut [T], root: u32) {
        self.add(self.place.broadcast(input, output, root));
    }

    /// [`Communicator::broadcast_in_place`](crate::Communicator::broadcast_in_place).
    pub fn broadcast_in_place<T: Element>(&mut self, buffer: &'a mut [T], root: u32) {
        self.add(self.place.in_place(Collective::Broadcast, Op::Sum, root, buffer));
    }

    /// [`Communicator::reduce`](crate::Communicator::reduce).
    pub fn reduce<T: Element>(&mut self, input: &'a [T], output: &'a mut [T], op: Op, root: u32) {
        self.add(self.place.reduce(input, output, op, root));
    }

    /// [`Communicator::reduce_in_place`](crate::Communicator::reduce_in_place).
    pub fn reduce_in_place<T: Element>(&mut self, buffer: &'a mut [T], op: Op, root: u32) {
        self.add(self.place.in_place(Collective::Reduce, op, root, buffer));
    }

    /// [`Communicator::gather`](crate::Communicator::gather).
    pub fn gather<T: Element>(&mut self, input: &'a [T], output: &'a mut [T], root: u32) {
        self.add(self.place.gather(input, output, root));
    }

    /// [`Communicator::gather_in_place`](crate::Communicator::gather_in_place).
    pub fn gather_in_place<T: Element>(&mut self, buffer: &'a mut [T], root: u32) {
        self.add(self.place.in_place(Collective::Gather, Op::Sum, root, buffer));
    }

    /// [`Communicator::scatter`](crate::Communicator::scatter).
    pub fn scatter<T: Element>(&mut self, input: &'a [T], output: &'a mut [T], root: u32) {
        self.add(self.place.scatter(input, output, root));
    }

    /// [`Communicator::scatter_in_place`](crate::Communicator::scatter_in_place).
    pub fn scatter_in_place<T: Element>(&mut self, buffer: &'a mut [T], root: u32) {
        self.add(self.place.in_place(Collective::Scatter, Op::Sum, root, buffer));
    }

    /// [`Communicator::all_to_all`](crate::Communicator::all_to_all).
    pub fn all_to_all<T: Element>(&mut self, input: &'a [T], output: &'a mut [T]) {
        self.add(self.place.all_to_all(input, output));
    }

    /// [`Communicator::all_to_all_in_place`](crate::Communicator::all_to_all_in_place).
    pub fn all_to_all_in_place<T: Element>(&mut self, buffer: &'a mut [T]) {
        self.add(self.place.in_place(Collective::AllToAll, Op::Sum, 0, buffer));
    }

    /// [`Communicator::barrier`](crate::Communicator::barrier).
    pub fn barrier(&mut self) {
        self.add(self.place.in_place::<u8>(Collective::Barrier, Op::Sum, 0, &mut []));
    }
}
