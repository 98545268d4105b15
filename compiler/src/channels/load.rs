//! What is left of a machine's links while channels are laid over them.

use ringsmith_ir::topology::Rate;
use ringsmith_ir::topology::paths::{Path, Paths};

/// What each direction of every link still carries.
#[derive(Clone, Debug)]
pub(super) struct Left {
    /// In MB/s, by resource.
    left: Vec<u64>,
}

impl Left {
    /// Of a machine that carries nothing yet.
    pub(super) fn of(paths: &Paths) -> Self {
        Self { left: paths.capacities.iter().map(|rate| rate.0).collect() }
    }

    /// What one more user of a path would get.
    pub(super) fn of_path(&self, path: &Path) -> u64 {
        let least = path.uses.iter().map(|used| self.left[used.0 as usize]).min();
        least.map_or(u64::MAX, |least| {
            u64::try_from(u128::from(least) * 100 / u128::from(path.cost_percent)).unwrap_or(u64::MAX)
        })
    }

    /// Whether a path can carry so much more.
    pub(super) fn fits(&self, path: &Path, rate: Rate) -> bool {
        let amount = amount(path, rate);
        path.uses.iter().all(|used| self.left[used.0 as usize] >= amount)
    }

    /// Takes so much of a path. False, and nothing is taken, if there is not so much left.
    ///
    /// A link that a path crosses twice is paid for twice.
    pub(super) fn take(&mut self, path: &Path, rate: Rate) -> bool {
        let amount = amount(path, rate);
        for (index, used) in path.uses.iter().enumerate() {
            match self.left[used.0 as usize].checked_sub(amount) {
                Some(left) => self.left[used.0 as usize] = left,
                None => {
                    for taken in &path.uses[..index] {
                        self.left[taken.0 as usize] += amount;
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&mut self, path: &Path, rate: Rate) {
        let amount = amount(path, rate);
        for used in &path.uses {
            self.left[used.0 as usize] += amount;
        }
    }
}

/// What a path takes of each of its links.
fn amount(path: &Path, rate: Rate) -> u64 {
    (rate.0 * path.cost_percent).div_ceil(100)
}

/// How often each link is used by channels that all carry the same, and so what each of them gets.
#[derive(Clone, Debug)]
pub(super) struct Shares<'p> {
    paths: &'p Paths,
    /// In hundredths of what a channel carries, by resource.
    percent: Vec<u64>,
}

impl<'p> Shares<'p> {
    /// Nothing is used yet.
    pub(super) fn of(paths: &'p Paths) -> Self {
        Self { paths, percent: vec![0; paths.capacities.len()] }
    }

    /// A channel sends all it carries along a path, `times` over.
    pub(super) fn add(&mut self, path: &Path, times: u64) {
        for used in &path.uses {
            self.percent[used.0 as usize] += path.cost_percent * times;
        }
    }

    /// What each channel carries if all carry the same.
    pub(super) fn each(&self) -> Rate {
        let shares = self.paths.capacities.iter().zip(&self.percent).filter(|(_, percent)| **percent > 0);
        let least = shares.map(|(rate, percent)| u128::from(rate.0) * 100 / u128::from(*percent)).min();
        Rate(u64::try_from(least.unwrap_or(0)).unwrap_or(u64::MAX))
    }
}
