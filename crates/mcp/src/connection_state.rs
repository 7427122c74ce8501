//! The facts about a connection that its transport and its tasks discover, apart from messages.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::lock_ignoring_poison;

/// The facts about a connection that its transport and its tasks discover.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    tools_revision: AtomicU64,
    session: Mutex<SessionStage>,
    http_failure: Mutex<Option<HttpFailure>>,
}

/// The failure of a request over HTTP.
#[derive(Clone, Debug)]
pub(crate) enum HttpFailure {
    /// The response had the status 429 or 5xx.
    Status { status: u16, retry_after: Option<String> },
    /// The response was cut off.
    CutOff,
}

/// The stage of a session over HTTP, which exists only in protocol versions before 2026-07-28.
/// Other connections stay in the first stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SessionStage {
    /// The server may have no stream of notifications.
    #[default]
    New,
    /// The server has opened the stream of the session's notifications.
    Streaming,
    /// The server does not know the session any more.
    Ended,
}

impl ConnectionState {
    /// Records whether the latest request over HTTP failed. After such a failure, rmcp often
    /// reports only that the connection was closed.
    pub(crate) fn set_http_failure(&self, failure: Option<HttpFailure>) {
        *lock_ignoring_poison(&self.http_failure) = failure;
    }

    /// Returns the failure of the latest request over HTTP, if it failed.
    pub(crate) fn http_failure(&self) -> Option<HttpFailure> {
        lock_ignoring_poison(&self.http_failure).clone()
    }

    /// Returns the tool list's revision. A list that was fetched at an earlier revision may have
    /// changed.
    pub(crate) fn tools_revision(&self) -> u64 {
        self.tools_revision.load(Ordering::Acquire)
    }

    /// Records that the tool list may have changed.
    pub(crate) fn on_tools_changed(&self) {
        self.tools_revision.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that the stream of notifications has been opened. Changes that happened before were
    /// not reported.
    pub(crate) fn on_stream_opened(&self) {
        let mut session = lock_ignoring_poison(&self.session);
        if *session == SessionStage::New {
            *session = SessionStage::Streaming;
        }
        drop(session);
        self.on_tools_changed();
    }

    /// Records that the server has no stream of notifications. If it had one before, it has ended
    /// the session.
    pub(crate) fn on_stream_not_found(&self) {
        let mut session = lock_ignoring_poison(&self.session);
        if *session == SessionStage::Streaming {
            *session = SessionStage::Ended;
        }
    }

    /// Records that the server does not know the session any more.
    pub(crate) fn on_session_ended(&self) {
        *lock_ignoring_poison(&self.session) = SessionStage::Ended;
    }

    /// Returns whether the server does not know the session any more.
    pub(crate) fn has_session_ended(&self) -> bool {
        *lock_ignoring_poison(&self.session) == SessionStage::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_if_its_stream_is_gone_but_not_if_it_never_had_one() {
        let state = ConnectionState::default();
        state.on_stream_not_found();
        assert!(!state.has_session_ended());
        state.on_stream_opened();
        assert!(!state.has_session_ended());
        state.on_stream_not_found();
        assert!(state.has_session_ended());
        state.on_stream_opened();
        assert!(state.has_session_ended(), "another session may have opened a stream");
    }

    #[test]
    fn an_opened_stream_makes_the_tool_list_outdated() {
        let state = ConnectionState::default();
        let before = state.tools_revision();
        state.on_stream_opened();
        assert_ne!(state.tools_revision(), before);
    }
}
