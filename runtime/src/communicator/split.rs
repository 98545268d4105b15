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
pub struct Part<C> {
    /// The communicator.
    pub communicator: C,
    /// The root, in the process of the part's first rank: to be kept until the communicator is gone.
    pub root: Option<Root>,
}

/// What a rank says of itself: colour or none, and key.
type Wish = (Option<u32>, i32);

/// See [`Communicator::split`]. The new communicator is of any kind: `init` joins it with an id, a rank and the
/// number of ranks, and its settings.
pub(super) fn split<C>(
    bootstrap: &Bootstrap,
    color: Option<u32>,
    key: i32,
    config: &Config,
    init: impl FnOnce(&UniqueId, u32, u32, &Config) -> Result<C, Error>,
) -> Result<Option<Part<C>>, Error> {
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
    let rank = position(&members, bootstrap.rank());
    let communicator = init(&id, rank, members.len() as u32, &config)?;
    Ok(Some(Part { communicator, root }))
}

/// See [`Communicator::shrink`].
pub(super) fn shrink(
    communicator: &Communicator,
    without: &[u32],
    config: &Config,
) -> Result<Part<Communicator>, Error> {
    let (rank, world) = (communicator.rank, communicator.world);
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
    let init =
        |id: &UniqueId| Communicator::init(id, position(&members, rank), members.len() as u32, &config);
    // Zeros are no id: they say that there is none, and why stands in the leader's own error.
    let mut bytes = [0; UNIQUE_ID_BYTES];
    if rank != leader {
        communicator.recv(leader, &mut bytes)?;
        let id = UniqueId::from_bytes(&bytes).map_err(|_| no_id("shrink", leader, "its error says why"))?;
        return Ok(Part { communicator: init(&id)?, root: None });
    }
    let made = UniqueId::create(&config);
    if let Ok((id, _)) = &made {
        bytes = *id.as_bytes();
    }
    let mut calls: Vec<Call<'_>> =
        members[1..].iter().map(|peer| Call::Send { peer: *peer, data: &bytes }).collect();
    communicator.run_group(&mut calls)?;
    let (id, root) = made?;
    Ok(Part { communicator: init(&id)?, root: Some(root) })
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

/// The rank that a member has in the new communicator.
fn position(members: &[u32], rank: u32) -> u32 {
    let position = members.iter().position(|member| *member == rank);
    position.expect("a rank is a member of its own part") as u32
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
