//! The members of a link family, found by their indices.

use super::resolve::MAX_INDICES;
use crate::entity::Link;
use cranelift_entity::EntityRef;

/// Indices of a member; those beyond the family's number of indices are 0.
pub(super) type Key = [i64; MAX_INDICES];

/// The links of one family.
#[derive(Debug)]
pub(super) struct Family {
    arity: usize,
    /// How many links came before the first member.
    first: usize,
    /// How many members there are: a message about one that is missing may be made very often.
    count: usize,
    members: Members,
}

#[derive(Debug)]
enum Members {
    /// A box of all indices between the smallest and the largest; `None` where there is no member.
    Dense { low: Key, extent: [u64; MAX_INDICES], links: Vec<Option<u32>> },
    /// Sorted by key.
    Sparse(Vec<(Key, u32)>),
}

impl Family {
    /// A family of `keys`, whose members are the links from `first` on. Fails with the positions of
    /// members that were there already.
    pub(super) fn new(arity: usize, first: usize, keys: &[Key]) -> Result<Self, Vec<usize>> {
        let mut sorted: Vec<(Key, u32)> = keys.iter().copied().zip(0..).collect();
        if !sorted.is_sorted() {
            sorted.sort_unstable();
        }
        let doubles: Vec<usize> =
            sorted.windows(2).filter(|w| w[0].0 == w[1].0).map(|w| w[1].1 as usize).collect();
        if !doubles.is_empty() {
            return Err(doubles);
        }
        let count = sorted.len();
        Ok(Self { arity, first, count, members: dense(arity, &sorted).unwrap_or(Members::Sparse(sorted)) })
    }

    /// The member with these indices.
    pub(super) fn get(&self, key: &Key) -> Option<Link> {
        let position = match &self.members {
            Members::Dense { low, extent, links } => {
                let mut place = 0u64;
                for i in 0..self.arity {
                    // Two's complement: a number below `low` becomes a huge one.
                    let offset = key[i].wrapping_sub(low[i]) as u64;
                    if offset >= extent[i] {
                        return None;
                    }
                    place = place * extent[i] + offset;
                }
                (*links.get(place as usize)?)?
            }
            Members::Sparse(members) => members[members.binary_search_by_key(key, |(k, _)| *k).ok()?].1,
        };
        Some(Link::new(self.first + position as usize))
    }

    /// What members there are, for a message.
    pub(super) fn describe(&self, name: &str) -> String {
        match &self.members {
            Members::Dense { links, .. } if links.is_empty() => format!("`{name}` has no members"),
            Members::Dense { low, extent, links } if self.arity == 1 && links.len() == self.count => {
                let last = low[0] + extent[0] as i64 - 1;
                format!("`{name}` has the members {} to {last}", low[0])
            }
            Members::Dense { .. } | Members::Sparse(_) => {
                format!("`{name}` has {} members, not this one", self.count)
            }
        }
    }
}

/// A box for `sorted`, unless most of it would be empty.
fn dense(arity: usize, sorted: &[(Key, u32)]) -> Option<Members> {
    let Some((mut low, _)) = sorted.first().copied() else {
        return Some(Members::Dense { low: [0; MAX_INDICES], extent: [0; MAX_INDICES], links: Vec::new() });
    };
    let mut high = low;
    for (key, _) in sorted {
        for i in 0..arity {
            low[i] = low[i].min(key[i]);
            high[i] = high[i].max(key[i]);
        }
    }
    let mut extent = [1u64; MAX_INDICES];
    let mut size = 1u64;
    for i in 0..arity {
        extent[i] = (high[i].wrapping_sub(low[i]) as u64).checked_add(1)?;
        size = size.checked_mul(extent[i])?;
    }
    if size > 4 * sorted.len() as u64 + 64 {
        return None;
    }
    let mut links = vec![None; size as usize];
    for (key, position) in sorted {
        let place = (0..arity).fold(0, |p, i| p * extent[i] + key[i].wrapping_sub(low[i]) as u64);
        links[place as usize] = Some(*position);
    }
    Some(Members::Dense { low, extent, links })
}

#[cfg(test)]
mod tests {
    use super::{Family, Key};
    use crate::entity::Link;
    use cranelift_entity::EntityRef;

    fn key(indices: &[i64]) -> Key {
        let mut key = Key::default();
        key[..indices.len()].copy_from_slice(indices);
        key
    }

    #[test]
    fn members_are_found_and_others_are_not() {
        let mesh: Vec<Key> =
            (0..5).flat_map(|s| (0..5).filter(move |d| *d != s).map(move |d| key(&[s, d]))).collect();
        let far = [key(&[i64::MIN, 3]), key(&[i64::MAX, -2]), key(&[0, 0])];
        for keys in [&mesh[..], &far[..]] {
            let family = Family::new(2, 10, keys).unwrap();
            for (i, k) in keys.iter().enumerate() {
                assert_eq!(family.get(k), Some(Link::new(10 + i)));
            }
            for absent in [[1, 1], [-1, 0], [5, 0], [0, 5], [i64::MIN, i64::MAX], [i64::MAX, i64::MIN]] {
                assert_eq!(family.get(&key(&absent)), None, "{absent:?}");
            }
        }
    }

    #[test]
    fn a_single_link_has_the_empty_key() {
        let family = Family::new(0, 3, &[Key::default()]).unwrap();
        assert_eq!(family.get(&Key::default()), Some(Link::new(3)));
        assert_eq!(Family::new(1, 0, &[]).unwrap().get(&key(&[0])), None);
        assert_eq!(Family::new(0, 0, &[]).unwrap().get(&Key::default()), None);
    }

    #[test]
    fn doubles_are_refused() {
        let keys = [key(&[2]), key(&[1]), key(&[2]), key(&[2])];
        assert_eq!(Family::new(1, 0, &keys).unwrap_err(), [2, 3]);
    }
}
