//! The limits of a chat server.

use turnstream::ui::ClientLimits;

/// The limits of a [`ChatServer`](crate::ChatServer). A request beyond a limit is refused, with the
/// status 429 unless stated otherwise.
///
/// A principal has further limits of its own: see [`Principal`](crate::Principal).
///
/// ```
/// use turnstream_server::ChatLimits;
///
/// let limits = ChatLimits { max_runs: 64, ..ChatLimits::default() };
/// assert_eq!(limits.max_queued_messages, 8);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatLimits {
    /// The limits on each request. The default is [`ClientLimits::default`].
    pub requests: ClientLimits,
    /// The maximum number of active runs of all principals, beyond which the status is 503. The
    /// default is 1,000.
    pub max_runs: usize,
    /// The maximum number of active runs of each principal that has no
    /// [number of its own](crate::Principal::with_max_runs). The default is 32.
    pub max_runs_per_principal: usize,
    /// The maximum number of runs and forks that each principal starts within a minute. The default
    /// is 120. A queued message waits until its run may start.
    pub max_starts_per_minute: usize,
    /// The maximum number of a session's messages that wait while a run is active. The default is
    /// 8.
    pub max_queued_messages: usize,
    /// The maximum size of all waiting messages of each principal, in bytes. The default is 16 MiB.
    pub max_queued_bytes_per_principal: usize,
    /// The maximum number of sessions of each principal, forks included. The default is 10,000. It
    /// has no effect on [shared sessions](crate::ChatServer::with_shared_sessions).
    pub max_sessions_per_principal: usize,
    /// The maximum number of sessions in the store, forks included. The default is 100,000.
    pub max_sessions: usize,
    /// The maximum number of clients of each principal that read events at once, in any protocol.
    /// The default is 512.
    pub max_readers_per_principal: usize,
    /// The maximum number of clients that read events at once. The default is 10,000.
    pub max_readers: usize,
}

impl Default for ChatLimits {
    fn default() -> Self {
        Self {
            requests: ClientLimits::default(),
            max_runs: 1_000,
            max_runs_per_principal: 32,
            max_starts_per_minute: 120,
            max_queued_messages: 8,
            max_queued_bytes_per_principal: 16 << 20,
            max_sessions_per_principal: 10_000,
            max_sessions: 100_000,
            max_readers_per_principal: 512,
            max_readers: 10_000,
        }
    }
}
