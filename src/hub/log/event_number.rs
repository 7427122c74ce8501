//! The numbers that identify events in logs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};

/// Identifies an event in its run's log, in the form `{run}.{epoch}-{number}`.
///
/// When a client reconnects, it sends the number of the last event that it received, for example in
/// the `last-event-id` header of a request for server-sent events. Clients should treat event
/// numbers as opaque. Within a run, the number increases with each event, and each new attempt at
/// the run has a higher epoch.
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
    /// Creates an event number from a run's id, an attempt's epoch, and an entry's number within
    /// that attempt.
    pub fn new(run: impl Into<Arc<str>>, epoch: u64, number: u64) -> Self {
        Self { run: run.into(), epoch, number }
    }

    /// Returns the id of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the epoch, which is the number of the attempt at the run, starting from 1.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the number of the entry within its attempt, starting from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number that is greater by `count` in the same attempt.
    pub(in crate::hub) fn plus(&self, count: u64) -> Self {
        Self { run: Arc::clone(&self.run), epoch: self.epoch, number: self.number + count }
    }

    /// Returns whether this number directly follows `last` in the same attempt.
    pub(in crate::hub) fn is_next_after(&self, last: &Self) -> bool {
        (self.epoch, Some(self.number)) == (last.epoch, last.number.checked_add(1))
    }

    /// Returns the entry's position in the run's log: the epoch, and the number within that epoch.
    /// Later entries have greater positions.
    pub fn position(&self) -> (u64, u64) {
        (self.epoch, self.number)
    }
}

impl fmt::Display for EventNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}-{}", self.run, self.epoch, self.number)
    }
}

impl FromStr for EventNumber {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (run, position) = text.rsplit_once('.')?;
            let (epoch, number) = position.split_once('-')?;
            (!run.is_empty()).then_some(())?;
            Some(Self::new(run, parse_digits(epoch)?, parse_digits(number)?))
        };
        let message = "not the number of an event";
        parse().ok_or_else(|| Error::new(ErrorKind::InvalidRequest, message))
    }
}

/// Parses a number from decimal digits, accepting only the form that `Display` writes.
fn parse_digits(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}
