//! How long to wait for what.

use std::time::Duration;

/// How long the rest of a body is read after its last word, and how much of it: at its end, the
/// connection can be used again.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
pub(crate) const MAX_DRAIN_BYTES: usize = 64 << 10;

/// How long a provider waits for the server, for each thing apart. They hold for each attempt at a
/// request; [`Budget::with_time_limit`](crate::agent::Budget::with_time_limit) holds for a whole run. Set what is to differ:
///
/// ```
/// use std::time::Duration;
/// use turnstream::http::Timeouts;
///
/// let timeouts = Timeouts { turn: Duration::from_mins(3), ..Timeouts::default() };
/// assert_eq!(timeouts.idle, Duration::from_mins(5));
/// let patient = Timeouts { idle: Timeouts::NEVER, ..timeouts };
/// # let _ = patient;
/// ```
///
/// Each that runs out is an [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) that says which it
/// was, but for a connection that does not come about, an
/// [`ErrorKind::Connect`](crate::ErrorKind::Connect). Behind the first event of a turn it carries the
/// [`PartialTurn`](crate::turn::PartialTurn); behind its stop reason there is no error any more,
/// and the turn completes.
///
/// The limits on a first and on the whole are counted from the sending of the request, the others
/// only while a consumer waits: how long it takes with an event is its own affair. They are by
/// tokio's clock, which a test can pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection: 10 seconds unless set.
    /// Providers with the same client and limit share their connections.
    pub connect: Option<Duration>,
    /// From sending the request to the first byte of the answer's body; 5 minutes unless set. A
    /// server that reads the prompt before it says anything takes its time here.
    pub first_byte: Duration,
    /// From sending the request to the first piece of the model's answer: text, reasoning, a
    /// refusal, a call; 15 minutes unless set. Pings and comments are none.
    ///
    /// Models may think for minutes without a word of it on the wire.
    pub first_output: Duration,
    /// Between two pieces of the body, whatever they hold; 5 minutes unless set. A ping is enough,
    /// but some vendors send none while the model thinks.
    pub idle: Duration,
    /// Between two pieces of the model's answer; 15 minutes unless set. A ping is not enough.
    pub idle_output: Duration,
    /// From sending the request to the end of the turn; [never](Self::NEVER) unless set.
    pub turn: Duration,
}

impl Timeouts {
    /// For what may take any time.
    pub const NEVER: Duration = Duration::MAX;
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: None,
            first_byte: Duration::from_mins(5),
            first_output: Duration::from_mins(15),
            idle: Duration::from_mins(5),
            idle_output: Duration::from_mins(15),
            turn: Self::NEVER,
        }
    }
}
