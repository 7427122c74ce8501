//! The numbers of events.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The number of an event in the log of its run: `{run}.{epoch}-{number}`.
///
/// A reader that reconnects sends the number of its last event, for example as the id of a
/// server-sent event, and treats the number as opaque. The numbers of a run increase with each
/// event, and each new attempt at the run has a higher epoch.
///
/// ```
/// use turnstream::hub::EventNumber;
///
/// let number: EventNumber = "5f0c.1-42".parse().unwrap();
/// assert_eq!(number.run(), "5f0c");
/// assert_eq!(number.to_string(), "5f0c.1-42");
/// assert!("42".parse::<EventNumber>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventNumber {
    run: Arc<str>,
    epoch: u64,
    number: u64,
}

impl EventNumber {
    /// Creates the number of an event of this run.
    pub fn new(run: impl Into<Arc<str>>, epoch: u64, number: u64) -> Self {
        Self { run: run.into(), epoch, number }
    }

    /// Returns the id of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the epoch, which is the number of the attempt at the run, counted from 1.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the number of the entry within this attempt, counted from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether this entry directly follows `last` in the same attempt.
    pub(super) fn is_next_after(&self, last: &Self) -> bool {
        (self.epoch, Some(self.number)) == (last.epoch, last.number.checked_add(1))
    }

    /// Returns the epoch and the number, which are the position in the log of the run.
    pub(super) fn position(&self) -> (u64, u64) {
        (self.epoch, self.number)
    }
}

impl fmt::Display for EventNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}-{}", self.run, self.epoch, self.number)
    }
}

/// The error for a text that is not a valid event number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the number of an event")]
pub struct ParseEventNumberError;

impl FromStr for EventNumber {
    type Err = ParseEventNumberError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (run, position) = text.rsplit_once('.')?;
            let (epoch, number) = position.split_once('-')?;
            (!run.is_empty()).then_some(())?;
            Some(Self::new(run, parse_digits(epoch)?, parse_digits(number)?))
        };
        parse().ok_or(ParseEventNumberError)
    }
}

/// Parses decimal digits in the form that `Display` writes for a number.
fn parse_digits(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}
