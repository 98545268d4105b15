//! What a rank may take of its GPU: the number of thread blocks of one launch, whatever it computes or sends.
//!
//! What settings and callers call channels or CTAs means this on GPUs. Everything that launches asks here.

/// The thread blocks that a launch of a rank may have: the same on every rank of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The fewest, where they run side by side; a message that is too short for them leaves some idle.
    least: u32,
    /// The most, whatever the GPU would hold.
    most: u32,
}

/// Blocks of an exchange: one that sends and one that receives, which wait for each other's peers.
const EXCHANGE_BLOCKS: u32 = 2;

impl Budget {
    /// No limit but the GPU's: for ranks of one process that has the GPU to itself.
    pub const ALL: Self = Self { least: 1, most: u32::MAX };

    /// The budget of ranks in processes of their own, up to `ranks_on_gpu` of them on a GPU, within the fewest and
    /// the most that are asked for.
    ///
    /// Where processes share a GPU, blocks that wait must leave whole multiprocessors to what else the processes
    /// compute: a rank may be waited for that cannot go on before a kernel of its own has run, which needs more
    /// than half a multiprocessor. So all waiting ranks together take half of them.
    ///
    /// Errors: ranks that share a GPU cannot have as many as asked for; in words, with how many they can.
    pub fn new(
        multiprocessors: u32,
        ranks_on_gpu: u32,
        (least, most): (Option<u32>, Option<u32>),
    ) -> Result<Self, String> {
        let room = if ranks_on_gpu <= 1 { u32::MAX } else { (multiprocessors / (2 * ranks_on_gpu)).max(2) };
        let least = least.unwrap_or(1);
        if least > room {
            return Err(format!(
                "at least {least} thread blocks a launch are asked for (RINGSMITH_MIN_CHANNELS, RINGSMITH_MIN_CTAS, \
                 minCTAs), and {ranks_on_gpu} ranks that share a GPU of {multiprocessors} multiprocessors have {room} \
                 each; ask for {room} at most, or give every rank a GPU of its own"
            ));
        }
        Ok(Self::ALL.within((Some(least), Some(most.unwrap_or(u32::MAX).min(room)))))
    }

    /// The same within the fewest and the most that are asked for.
    #[must_use]
    pub fn within(self, (least, most): (Option<u32>, Option<u32>)) -> Self {
        let most = most.unwrap_or(u32::MAX).min(self.most).max(1);
        Self { least: least.unwrap_or(1).max(self.least).min(most), most }
    }

    /// Blocks of a launch where `side_by_side` of them run at once.
    pub(super) fn blocks(self, side_by_side: u32) -> u32 {
        side_by_side.min(self.most)
    }

    /// The same for an exchange, which takes one for each way at least.
    pub(super) fn exchange_blocks(self, side_by_side: u32) -> u32 {
        side_by_side.min(self.most.max(EXCHANGE_BLOCKS))
    }

    /// Blocks for each of `lanes` lanes, of which `wanted` would have work and at most `most` fit.
    pub(super) fn lane_blocks(self, wanted: u64, lanes: u32, most: u32) -> u32 {
        let least = self.least.div_ceil(lanes).min(most);
        u32::try_from(wanted).unwrap_or(u32::MAX).clamp(least.max(1), most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMITS: (Option<u32>, Option<u32>) = (None, None);

    #[test]
    fn ranks_that_share_a_gpu_leave_half_of_it_free() {
        let most = |ranks| Budget::new(132, ranks, NO_LIMITS).expect("nothing is asked for").most;
        assert_eq!(most(1), u32::MAX);
        for ranks in 2..=33 {
            assert!(ranks * most(ranks) <= 66, "{ranks} ranks");
        }
        assert_eq!(most(100), 2);
    }

    #[test]
    fn limits_bound_every_launch() {
        let budget = Budget::new(132, 1, (Some(8), Some(16))).expect("there is room");
        assert_eq!([4, 16, 200].map(|room| budget.blocks(room)), [4, 16, 16]);
        assert_eq!(budget.exchange_blocks(200), 16);
        // Of one lane, of two, and of more lanes than blocks are asked for.
        assert_eq!([0, 1, 12, 1 << 40].map(|wanted| budget.lane_blocks(wanted, 1, 16)), [8, 8, 12, 16]);
        assert_eq!([0, 1, 12, 1 << 40].map(|wanted| budget.lane_blocks(wanted, 2, 8)), [4, 4, 8, 8]);
        assert_eq!(budget.lane_blocks(1, 16, 1), 1);
        // As many as asked for, where they run side by side.
        assert_eq!(budget.lane_blocks(1, 1, 4), 4);
        let narrow = Budget::new(132, 4, (None, Some(3))).expect("there is room");
        assert_eq!((narrow.blocks(200), Budget::new(132, 4, NO_LIMITS).map(|b| b.blocks(200))), (3, Ok(16)));
        assert_eq!(Budget::ALL.within((None, Some(64))).blocks(200), 64);
        assert_eq!(Budget::ALL.within(NO_LIMITS), Budget::ALL);
    }

    #[test]
    fn an_exchange_has_a_block_for_each_way() {
        let budget = Budget::new(132, 1, (None, Some(1))).expect("there is room");
        assert_eq!((budget.blocks(200), budget.exchange_blocks(200), budget.exchange_blocks(1)), (1, 2, 1));
    }

    #[test]
    fn more_than_a_shared_gpu_has_is_refused_with_what_it_has() {
        let refused = Budget::new(132, 8, (Some(32), None)).unwrap_err();
        for part in ["at least 32", "8 ranks", "132", "have 8 each", "RINGSMITH_MIN_CHANNELS"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(Budget::new(132, 8, (Some(8), None)).is_ok());
    }
}
