//! Determines the id of the message that a run produces.

use crate::event::Event;
use crate::session::Session;

/// Determines the id of a message.
///
/// A message in a session has the id `{session}:{number}`. The number is the session's entry count
/// when the message starts. Because entries are never removed, the id stays the same when a client
/// reconnects, when the history is compacted, and after a restart.
#[derive(Clone, Debug, Default)]
pub(super) enum MessageName {
    /// The client generates the id.
    #[default]
    None,
    Given(String),
    OfSession {
        session: Session,
        begins_at: u64,
    },
}

impl MessageName {
    pub(super) fn of_session(session: &Session) -> Self {
        Self::OfSession { session: session.clone(), begins_at: session.version() }
    }

    /// Observes an event that precedes the message. The message starts after the run's input.
    pub(super) fn observe(&mut self, event: &Event) {
        if let (Self::OfSession { session, begins_at }, Event::Appended { .. }) = (self, event) {
            *begins_at = session.version();
        }
    }

    pub(super) fn to_id(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Given(id) => Some(id.clone()),
            Self::OfSession { session, begins_at } => Some(message_id(session.id(), *begins_at)),
        }
    }
}

/// Returns the id of the message that starts with this entry.
pub(super) fn message_id(session_id: &str, entry: u64) -> String {
    format!("{session_id}:{entry}")
}

/// Returns the number of a message's first entry, if the message belongs to this session.
pub(super) fn entry_of_message(id: &str, session_id: &str) -> Option<u64> {
    let number = id.strip_prefix(session_id)?.strip_prefix(':')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| number.parse().ok()).flatten()
}
