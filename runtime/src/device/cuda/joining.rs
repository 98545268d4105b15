//! How ranks of several processes come to one communicator on GPUs: each allocates its scratch, maps that of
//! all others, and sees that what it writes there arrives.
//!
//! Pure of communication: who calls this carries addresses and handles from rank to rank, and lets every
//! rank finish a step before any begins the next.

use super::GpuError;
use super::driver::{Device, DeviceMemory, HANDLE_BYTES, PeerMemory};
use super::layout::{Geometry, Layout};
use super::ranks::{GpuRanks, Share};
use std::sync::Arc;

/// Where a rank's scratch is, for the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its address in its own process.
    pub address: u64,
    /// What another process needs to map it.
    pub handle: [u8; HANDLE_BYTES],
}

impl Place {
    /// As bytes, for the way.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.address.to_le_bytes()[..], &self.handle].concat()
    }

    /// From bytes that have come; `None` if they are no place.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (address, handle) = bytes.split_first_chunk::<8>()?;
        Some(Self { address: u64::from_le_bytes(*address), handle: handle.try_into().ok()? })
    }
}

/// A rank that is joining others.
pub struct Joining {
    device: Arc<Device>,
    layout: Layout,
    share: Share,
    rank: u32,
    scratch: DeviceMemory,
    base: Vec<u64>,
    peers: Vec<PeerMemory>,
}

impl Joining {
    /// Allocates the rank's scratch.
    ///
    /// Errors: too little memory, and whatever the driver says.
    pub fn new(device: &Arc<Device>, rank: u32, ranks: u32, share: Share) -> Result<(Self, Place), GpuError> {
        let layout = Layout::new(Geometry::for_ranks(ranks, share.ranks_on_gpu, share.multiprocessors));
        let scratch = DeviceMemory::new(device, layout.bytes())?;
        let place = Place { address: scratch.address(), handle: scratch.handle()? };
        let mut base = vec![0; ranks as usize];
        base[rank as usize] = scratch.address();
        let device = Arc::clone(device);
        Ok((Self { device, layout, share, rank, scratch, base, peers: Vec::new() }, place))
    }

    /// Maps the scratch of a rank in another process of this host.
    ///
    /// Errors: the driver's, where the two GPUs cannot reach each other's memory.
    pub fn map(&mut self, peer: u32, place: &Place) -> Result<(), GpuError> {
        let memory = PeerMemory::map(&self.device, &place.handle)?;
        self.base[peer as usize] = memory.address();
        self.peers.push(memory);
        Ok(())
    }

    /// Reaches the scratch of a rank of this process, on its GPU.
    ///
    /// Errors: the driver's, where the two GPUs cannot reach each other's memory.
    pub fn reach(&mut self, peer: u32, place: &Place, device: &Device) -> Result<(), GpuError> {
        self.device.reach(device)?;
        self.base[peer as usize] = place.address;
        Ok(())
    }

    /// Where rank `from` leaves its mark in any rank's scratch.
    fn mark_at(&self, base: u64, from: u32) -> u64 {
        base + self.layout.marks() + 8 * u64::from(from)
    }

    /// Writes this rank's mark into a peer's scratch, over the way that kernels take.
    ///
    /// Errors: the driver's.
    pub fn mark(&self, peer: u32) -> Result<(), GpuError> {
        let at = self.mark_at(self.base[peer as usize], self.rank);
        // SAFETY: a peer's scratch has the layout of this one, and is mapped as long as `self` lives.
        unsafe { self.device.put(at, &mark(self.rank, peer).to_le_bytes())? };
        Ok(())
    }

    /// Whether a peer's mark has arrived here.
    ///
    /// Errors: the driver's.
    pub fn has_mark(&self, peer: u32) -> Result<bool, GpuError> {
        let at = self.mark_at(self.scratch.address(), peer) - self.scratch.address();
        let mut found = [0; 8];
        self.scratch.read(at, &mut found)?;
        Ok(u64::from_le_bytes(found) == mark(peer, self.rank))
    }

    /// Takes the marks away.
    ///
    /// Errors: the driver's.
    pub fn clear(&self) -> Result<(), GpuError> {
        Ok(self.scratch.fill(self.layout.marks(), 8 * self.base.len() as u64, 0)?)
    }

    /// The rank, once every peer's scratch is mapped and every rank has cleared its marks.
    ///
    /// Errors: the driver's.
    pub fn finish(self) -> Result<GpuRanks, GpuError> {
        let Self { device, layout, share, rank, scratch, base, peers } = self;
        GpuRanks::new(&device, layout, share, rank..rank + 1, base, (peers, vec![scratch]))
    }
}

/// What one rank writes to another: no other pair's, and nothing that lies in memory by chance.
fn mark(from: u32, to: u32) -> u64 {
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    ((u64::from(from) << 32 | u64::from(to)) + 1).wrapping_mul(SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_the_way_and_nothing_else_passes_for_one() {
        let place = Place { address: 0x7f00_dead_0000, handle: std::array::from_fn(|i| i as u8) };
        let bytes = place.to_bytes();
        assert_eq!(Place::from_bytes(&bytes), Some(place));
        assert_eq!(Place::from_bytes(&bytes[1..]), None);
        assert_eq!(Place::from_bytes(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Place::from_bytes(&[]), None);
    }

    #[test]
    fn every_pairs_mark_is_its_own() {
        let marks: std::collections::BTreeSet<u64> =
            (0..50).flat_map(|from| (0..50).map(move |to| mark(from, to))).collect();
        assert_eq!(marks.len(), 2500);
        assert!(!marks.contains(&0));
    }
}
