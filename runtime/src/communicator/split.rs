//! Communicators of some of the ranks of another one.
//!
//! The first rank of a new communicator makes an id and a root, and the others join there. In a split all ranks
//! tell each other colour, key and id through the old communicator's bootstrap. In a shrink the ranks that are
//! left out are not asked for anything, so the id goes from rank to rank as messages.

use super::{Call, Communicator};
use crate::bootstrap::Bootstrap;
use crate::bootstrap::root::Root;
use crate::config::Config;
use crate::error::Error;
use crate::unique_id::{UNIQUE_ID_BYTES, UniqueId};

/// A communicator of some ranks, as one of them has it.
#[derive(Debug)]
pub struct Part<C = Communicator> {
    /// The communicator.
    pub communicator: C,
    /// The root, in the process of the part's first rank: to be kept until the communicator is gone.
    pub root: Option<Root>,
}

/// Where the ranks of a new communicator meet, as one of them knows it.
pub(super) struct Meeting {
    id: UniqueId,
    rank: u32,
    world: u32,
    config: Config,
    root: Option<Root>,
}

impl Meeting {
    /// The communicator, once `join` has joined its ranks.
    pub(super) fn join<C>(
        self,
        join: impl FnOnce(&UniqueId, u32, u32, &Config) -> Result<C, Error>,
    ) -> Result<Part<C>, Error> {
        let communicator = join(&self.id, self.rank, self.world, &self.config)?;
        Ok(Part { communicator, root: self.root })
    }
}

/// What a rank says of itself: colour or none, and key.
type Wish = (Option<u32>, i32);

/// Divides ranks by colour: where those of this rank's meet; nowhere without one.
pub(super) fn split(
    bootstrap: &Bootstrap,
    color: Option<u32>,
    key: i32,
    config: &Config,
) -> Result<Option<Meeting>, Error> {
    let config = elsewhere(config);
    let wishes: Vec<Wish> =
        bootstrap.all_gather("split", &to_bytes((color, key)))?.iter().map(|b| from_bytes(b)).collect();
    let members = members(&wishes, color);
    let leads = members.first() == Some(&bootstrap.rank());
    let own = leads.then(|| UniqueId::create(&config));
    // The others must not wait for an id that cannot be made: they get the reason.
    let told = match &own {
        None => Vec::new(),
        Some(Ok((id, _))) => id.as_bytes().to_vec(),
        Some(Err(error)) => error.to_string().into_bytes(),
    };
    let all = bootstrap.all_gather("ids of a split", &told)?;
    let Some(&leader) = members.first() else { return Ok(None) };
    let (id, root) = match own {
        Some(made) => made.map(|(id, root)| (id, Some(root)))?,
        None => {
            let bytes = &all[leader as usize];
            let id = UniqueId::from_bytes(bytes)
                .map_err(|_| no_id("split", leader, &String::from_utf8_lossy(bytes)))?;
            (id, None)
        }
    };
    Ok(Some(meeting(id, bootstrap.rank(), &members, config, root)))
}

/// An id on its way between ranks; zeros are none.
pub(super) type IdBytes = [u8; UNIQUE_ID_BYTES];

/// Leaves out some ranks, who are not asked for anything: where the others meet. The first one's id goes to each
/// of the others as a message.
///
/// Errors: a list that names this rank or one that is not there; those of the messages.
pub(super) fn shrink(
    (rank, world): (u32, u32),
    without: &[u32],
    config: &Config,
    messages: &mut impl Messages,
) -> Result<Meeting, Error> {
    let refuse = |detail: String| Err(Error::Argument { operation: "shrink", detail });
    if let Some(stranger) = without.iter().find(|stranger| **stranger >= world) {
        return refuse(format!("rank {stranger} is to be left out; ranks are 0 to {}", world - 1));
    }
    if without.contains(&rank) {
        return refuse(format!("rank {rank} is to be left out itself; only ranks that stay make this call"));
    }
    let members: Vec<u32> = (0..world).filter(|member| !without.contains(member)).collect();
    let leader = members[0];
    let config = elsewhere(config);
    if rank != leader {
        let bytes = messages.receive(leader)?;
        let id = UniqueId::from_bytes(&bytes).map_err(|_| no_id("shrink", leader, "its error says why"))?;
        return Ok(meeting(id, rank, &members, config, None));
    }
    let made = UniqueId::create(&config);
    // Zeros are no id: they say that there is none, and why stands in the leader's own error.
    let bytes = made.as_ref().map_or([0; UNIQUE_ID_BYTES], |(id, _)| *id.as_bytes());
    messages.send(&members[1..], &bytes)?;
    let (id, root) = made?;
    Ok(meeting(id, rank, &members, config, Some(root)))
}

/// How an id goes from rank to rank.
pub(super) trait Messages {
    /// Sends it to each of some ranks.
    fn send(&mut self, peers: &[u32], bytes: &IdBytes) -> Result<(), Error>;
    /// Takes it from a rank.
    fn receive(&mut self, peer: u32) -> Result<IdBytes, Error>;
}

impl Messages for &Communicator {
    fn send(&mut self, peers: &[u32], bytes: &IdBytes) -> Result<(), Error> {
        let mut calls: Vec<Call<'_>> =
            peers.iter().map(|peer| Call::Send { peer: *peer, data: bytes }).collect();
        self.run_group(&mut calls)
    }

    fn receive(&mut self, peer: u32) -> Result<IdBytes, Error> {
        let mut bytes = [0; UNIQUE_ID_BYTES];
        self.recv(peer, &mut bytes)?;
        Ok(bytes)
    }
}

/// Settings without the place where the old communicator's ranks met, which is taken.
fn elsewhere(config: &Config) -> Config {
    let mut config = config.clone();
    (config.comm_id, config.id) = (None, None);
    config
}

fn no_id(operation: &str, leader: u32, why: &str) -> Error {
    let detail = format!("rank {leader} could not make an id: {why}");
    Error::Unsupported { operation: operation.to_owned(), detail }
}

/// Where the ranks meet that `members` names by their old numbers, for the one whose old number is `rank`.
fn meeting(id: UniqueId, rank: u32, members: &[u32], config: Config, root: Option<Root>) -> Meeting {
    let position = members.iter().position(|member| *member == rank);
    let rank = position.expect("a rank is a member of its own part") as u32;
    Meeting { id, rank, world: members.len() as u32, config, root }
}

/// The ranks of a colour, in the order of the new communicator.
fn members(wishes: &[Wish], color: Option<u32>) -> Vec<u32> {
    let Some(color) = color else { return Vec::new() };
    let mut members: Vec<(i32, u32)> = (0..)
        .zip(wishes)
        .filter(|(_, (theirs, _))| *theirs == Some(color))
        .map(|(rank, (_, key))| (*key, rank))
        .collect();
    members.sort_unstable();
    members.into_iter().map(|(_, rank)| rank).collect()
}

fn to_bytes((color, key): Wish) -> Vec<u8> {
    let mut bytes = key.to_le_bytes().to_vec();
    bytes.extend(color.iter().flat_map(|color| color.to_le_bytes()));
    bytes
}

fn from_bytes(bytes: &[u8]) -> Wish {
    let number = |at: usize| Some(*bytes.get(at..)?.first_chunk::<4>()?);
    (number(4).map(u32::from_le_bytes), number(0).map_or(0, i32::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_colour_are_ordered_by_key_and_rank() {
        let wishes = [(Some(1), 5), (None, 0), (Some(1), -2), (Some(0), 0), (Some(1), 5)];
        assert_eq!(members(&wishes, Some(1)), [2, 0, 4]);
        assert_eq!(members(&wishes, Some(0)), [3]);
        assert!(members(&wishes, None).is_empty());
        for wish in wishes {
            assert_eq!(from_bytes(&to_bytes(wish)), wish);
        }
    }
}
