//! Chance that a seed decides.

use std::{ops::RangeInclusive, time::Duration};

/// A row of numbers that looks random and is a function of its seed: SplitMix64.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Returns the dice of one participant in the simulation of that seed. Each participant has separate dice.
    pub fn new(seed: u64, whose: &str) -> Self {
        let mut dice = Self(seed);
        for byte in whose.bytes() {
            dice.0 = dice.number() ^ u64::from(byte);
        }
        dice
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// Whether something happens that happens once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A span of so many milliseconds.
    pub fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        let (least, most) = range.into_inner();
        Duration::from_millis(least + self.below(most - least + 1))
    }

    /// One of these; there must be some.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let place = self.below(from.len() as u64);
        from[usize::try_from(place).unwrap()]
    }
}
