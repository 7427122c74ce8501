//! The timeouts of requests.

use std::time::Duration;

/// The maximum time spent reading the rest of a body after the end-of-stream marker. If the body
/// ends within this time and within the maximum number of bytes, the connection can be reused.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
pub(crate) const MAX_DRAIN_BYTES: usize = 64 << 10;

/// Limits how long a provider waits for the server in each phase of a request. The limits apply
/// separately to each attempt at a request;
/// [`Budget::with_time_limit`](crate::agent::Budget::with_time_limit) applies to a whole run. Set
/// only the limits that should differ from the defaults:
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
/// If a limit is exceeded, the turn fails with an [`ErrorKind::Timeout`](crate::ErrorKind::Timeout)
/// error whose message names the limit. If the `connect` limit is exceeded, the error is an
/// [`ErrorKind::Connect`](crate::ErrorKind::Connect) error instead. If the turn has produced an
/// event, the error contains the [`PartialTurn`](crate::turn::PartialTurn). A timeout after the
/// stop reason has arrived is not an error; the turn completes.
///
/// The `first_byte`, `first_output` and `turn` limits are measured from when the request is sent.
/// The `idle` and `idle_output` limits are measured only while the consumer waits, so the time it
/// takes to handle an event is not counted. All limits use tokio's clock, which tests can pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The maximum time to open a connection; 10 seconds if not set. Providers that use the same
    /// client and the same limit share connections.
    pub connect: Option<Duration>,
    /// The maximum time from sending the request to the first byte of the response body; 5 minutes
    /// by default. The limit includes the time that the server takes to process the prompt before
    /// sending anything.
    pub first_byte: Duration,
    /// The maximum time from sending the request to the model's first output, which is text,
    /// reasoning, a refusal or a tool call; 15 minutes by default. Pings and comments do not count
    /// as output.
    ///
    /// Models may reason for minutes without sending anything.
    pub first_output: Duration,
    /// The maximum time between two chunks of the body, regardless of their content; 5 minutes by
    /// default. A ping restarts this timeout, but some vendors send no pings while the model
    /// reasons.
    pub idle: Duration,
    /// The maximum time between two pieces of the model's output; 15 minutes by default. A ping
    /// does not restart this timeout.
    pub idle_output: Duration,
    /// The maximum time from sending the request to the end of the turn; [`NEVER`](Self::NEVER) by
    /// default.
    pub turn: Duration,
}

impl Timeouts {
    /// A duration that disables a timeout.
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
