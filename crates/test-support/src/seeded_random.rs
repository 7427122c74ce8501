//! Random numbers that depend only on a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A xorshift generator that can be shared.
pub struct Dice(AtomicU64);

impl Dice {
    /// Creates a generator; the same seed gives the same numbers.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)))
    }

    /// Returns a number in `0..sides`.
    pub fn roll(&self, sides: u64) -> u64 {
        let mut x = self.0.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.store(x, Ordering::Relaxed);
        (x >> 11) % sides
    }

    /// Returns true in one of this many cases.
    pub fn one_in(&self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    /// Returns a number in `0..sides`, which must fit into a `u32`.
    pub fn roll_u32(&self, sides: u64) -> u32 {
        u32::try_from(self.roll(sides)).unwrap()
    }
}
