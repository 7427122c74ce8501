//! Computes the delays between the attempts at a request.

use std::time::Duration;

use crate::env::Random;

/// Specifies the maximum number of attempts at a request and the delays between them.
///
/// The delay before attempt `n + 1` is random, between zero and `base_delay · factor^(n-1)`, but at
/// most `max_delay`. The randomization, called "full jitter", spreads out the retries of clients
/// that failed at the same time. If the provider requests a longer delay, the requested delay is
/// used instead.
///
/// ```
/// use std::time::Duration;
/// use turnstream::provider::Backoff;
///
/// let patient = Backoff { max_attempts: 8, max_delay: Duration::from_secs(60), ..Backoff::default() };
/// assert_eq!(patient.base_delay, Duration::from_millis(500));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The maximum number of times to send the request, including the first time; 3 by default. 0
    /// is treated as 1.
    pub max_attempts: u32,
    /// The maximum delay before the second attempt; 500 ms by default.
    pub base_delay: Duration,
    /// The factor by which the maximum delay grows with each attempt; 2 by default. A factor that
    /// is NaN or less than 1 is treated as 1.
    pub factor: f64,
    /// The maximum delay before any attempt, unless the provider requests a longer delay; 30 s by
    /// default.
    pub max_delay: Duration,
    /// The maximum delay that the provider may request; 60 s by default. If the provider requests a
    /// longer delay, the error is returned immediately, with the requested delay as its
    /// [`retry_after`](crate::Error::retry_after).
    pub max_retry_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            base_delay: Duration::from_millis(500),
            factor: 2.0,
            max_delay: Duration::from_secs(30),
            max_retry_after: Duration::from_mins(1),
        }
    }
}

impl Backoff {
    /// Returns the maximum delay after `failed` failed attempts, where `failed` is at least 1. The
    /// maximum does not apply if the provider requests a longer delay.
    pub(crate) fn max_delay_after(&self, failed: u32) -> Duration {
        let factor = if self.factor >= 1.0 { self.factor } else { 1.0 };
        let power = i32::try_from(failed.saturating_sub(1)).unwrap_or(i32::MAX);
        if self.base_delay.is_zero() {
            return Duration::ZERO;
        }
        let seconds = self.base_delay.as_secs_f64() * factor.powi(power);
        // A value that overflows `Duration` is replaced with the maximum delay.
        Duration::try_from_secs_f64(seconds).unwrap_or(self.max_delay).min(self.max_delay)
    }

    /// Returns the delay after `failed` failed attempts, or `None` if no further attempt is made
    /// and the error is returned.
    pub(super) fn delay_after(
        &self,
        failed: u32,
        retry_after: Option<Duration>,
        random: &dyn Random,
    ) -> Option<Duration> {
        if failed >= self.max_attempts.max(1) {
            return None;
        }
        let requested_wait = retry_after.unwrap_or_default();
        if requested_wait > self.max_retry_after {
            return None;
        }
        let ceiling = self.max_delay_after(failed);
        let seconds = ceiling.as_secs_f64() * random.next_f64().clamp(0.0, 1.0);
        // If the random fraction is NaN, the delay is the maximum.
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or(ceiling).min(ceiling);
        Some(wait.max(requested_wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SeededRandom;

    #[test]
    fn no_settings_or_retry_after_cause_a_panic_or_exceed_the_maximum_delay() {
        let random = SeededRandom::new(1);
        for factor in [f64::NAN, -1.0, 0.0, 1.0, 2.0, f64::INFINITY, f64::MAX] {
            for base in [Duration::ZERO, Duration::from_secs(1), Duration::MAX] {
                for failed in [0, 1, 2, 40, 2_000, u32::MAX - 1] {
                    let backoff = Backoff {
                        max_attempts: u32::MAX,
                        base_delay: base,
                        factor,
                        ..Backoff::default()
                    };
                    let wait = backoff.delay_after(failed, None, &random).unwrap();
                    assert!(wait <= backoff.max_delay, "{backoff:?} waits {wait:?}");
                    assert_eq!(backoff.delay_after(failed, Some(Duration::MAX), &random), None);
                }
            }
        }
    }

    #[test]
    fn the_maximum_delay_grows_by_the_factor_up_to_the_limit() {
        let backoff = Backoff { max_delay: Duration::from_mins(1), ..Backoff::default() };
        assert_eq!(backoff.max_delay_after(1), Duration::from_millis(500));
        assert_eq!(backoff.max_delay_after(3), Duration::from_secs(2));
        assert_eq!(backoff.max_delay_after(20), Duration::from_mins(1));
    }

    #[derive(Debug)]
    struct Odd(f64);

    impl Random for Odd {
        fn next_u64(&self) -> u64 {
            0
        }

        fn next_f64(&self) -> f64 {
            self.0
        }
    }

    #[test]
    fn no_random_fraction_causes_a_panic() {
        for cap in [Duration::ZERO, Duration::from_secs(3), Duration::MAX] {
            let backoff =
                Backoff { max_delay: cap, base_delay: Duration::MAX, ..Backoff::default() };
            for fraction in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1.0, 2.0] {
                assert!(backoff.delay_after(1, None, &Odd(fraction)).unwrap() <= cap);
            }
        }
    }

    #[test]
    fn a_base_delay_of_zero_never_waits() {
        for factor in [1.0, 2.0, f64::INFINITY] {
            let backoff = Backoff { base_delay: Duration::ZERO, factor, ..Backoff::default() };
            for failed in [1, 2, 3, 2_000] {
                assert_eq!(backoff.max_delay_after(failed), Duration::ZERO, "{factor} {failed}");
            }
        }
    }

    #[test]
    fn the_jitter_covers_the_full_range() {
        let random = SeededRandom::new(1);
        let draw = || Backoff::default().delay_after(2, None, &random).unwrap();
        let drawn: Vec<Duration> = (0..200).map(|_| draw()).collect();
        assert!(drawn.iter().all(|wait| *wait <= Duration::from_secs(1)));
        assert!(drawn.iter().any(|wait| *wait < Duration::from_millis(100)));
        assert!(drawn.iter().any(|wait| *wait > Duration::from_millis(900)));
    }
}
