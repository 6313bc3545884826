//! Random numbers from a seed.

use std::{ops::RangeInclusive, time::Duration};

/// A pseudorandom number generator, SplitMix64.
#[derive(Debug)]
pub struct Rng(u64);

impl Rng {
    /// Returns the generator of one participant in the simulation of a seed. Each participant has its own generator.
    #[must_use]
    pub fn new(seed: u64, participant: &str) -> Self {
        let mut rng = Self(seed);
        for byte in participant.bytes() {
            rng.0 = rng.number() ^ u64::from(byte);
        }
        rng
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// Returns true with a probability of one in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns a duration whose milliseconds are in the range.
    pub fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        let (least, most) = range.into_inner();
        Duration::from_millis(least + self.below(most - least + 1))
    }

    /// Returns one element.
    ///
    /// # Panics
    ///
    /// If `from` is empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let index = self.below(from.len() as u64);
        from[usize::try_from(index).unwrap()]
    }
}
