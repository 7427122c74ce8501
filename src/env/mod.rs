//! External inputs that tests can replace: ids, the date and time, and randomness.

mod timer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

pub(crate) use timer::{Deadline, DeadlineOutcome, TimeLimit, instant_after};

/// Generates new ids for histories and for the items appended to them.
///
/// All code that needs a new id takes an id generator as an argument, so that a test with the same
/// ids produces the same bytes.
///
/// ```
/// use turnstream::env::{CountingIds, Ids};
///
/// let ids = CountingIds::new("test");
/// assert_eq!(ids.next_id(), "test-1");
/// assert_eq!(ids.next_id(), "test-2");
/// ```
pub trait Ids: Send + Sync {
    /// Returns an id that this generator has never returned before.
    fn next_id(&self) -> String;
}

/// Generates random ids of 32 hexadecimal digits, using the operating system's random number
/// generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemIds;

impl Ids for SystemIds {
    fn next_id(&self) -> String {
        format!("{:016x}{:016x}", next_system_u64(), next_system_u64())
    }
}

/// Generates ids for tests. Each id consists of a prefix and a number that counts up from 1.
#[derive(Debug, Default)]
pub struct CountingIds {
    prefix: String,
    last_number: AtomicU64,
}

impl CountingIds {
    /// Creates a generator whose first id is `{prefix}-1`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), last_number: AtomicU64::new(0) }
    }
}

impl Ids for CountingIds {
    fn next_id(&self) -> String {
        let n = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{}-{n}", self.prefix)
    }
}

/// Provides the current date and time. Durations, on the other hand, are measured with the tokio
/// runtime's clock, which a test can pause.
pub trait Clock: Send + Sync {
    /// Returns the current date and time. The clock may be set back, so the time between two calls
    /// is not a duration.
    fn now(&self) -> SystemTime;
}

/// Provides the current date and time from the system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// A clock that always returns this time, for example for tests.
impl Clock for SystemTime {
    fn now(&self) -> SystemTime {
        *self
    }
}

/// Generates random numbers for jitter. The numbers must not be used for secrets.
pub trait Random: Send + Sync {
    /// Returns 64 random bits.
    fn next_u64(&self) -> u64;

    /// Returns a random number from 0 (inclusive) to 1 (exclusive).
    fn next_f64(&self) -> f64 {
        // A 64-bit float represents integers of up to 53 bits exactly.
        #[expect(clippy::cast_precision_loss)]
        let fraction = (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        fraction
    }
}

/// Generates random numbers using the operating system's random number generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        next_system_u64()
    }
}

/// Returns 64 random bits from the operating system.
fn next_system_u64() -> u64 {
    // This call does not fail in practice: on a system without a source of randomness, std could
    // not seed a hash map either, and would panic as well.
    getrandom::u64().expect("the operating system provides random numbers")
}

/// Generates random numbers for tests, using `SplitMix64`. The same seed always produces the same
/// numbers.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// Creates a generator with the given seed.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(INCREMENT, Ordering::Relaxed).wrapping_add(INCREMENT);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
pub(crate) mod draw;
#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn system_ids_do_not_repeat() {
        let drawn: HashSet<_> = (0..10_000).map(|_| SystemIds.next_id()).collect();
        assert_eq!(drawn.len(), 10_000);
        assert!(drawn.iter().all(|id| id.len() == 32));
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers_between_0_and_1() {
        let draw = || {
            let random = SeededRandom::new(7);
            std::array::from_fn::<_, 1000, _>(|_| random.next_f64())
        };
        let drawn = draw();
        assert_eq!(drawn.map(f64::to_bits), draw().map(f64::to_bits));
        assert!(drawn.iter().all(|x| (0.0..1.0).contains(x)));
        assert!(drawn.iter().any(|x| *x < 0.1) && drawn.iter().any(|x| *x > 0.9));
    }
}
