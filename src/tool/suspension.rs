//! What a sub-agent leaves when it is suspended.

use crate::item::{History, PendingCall};

/// What a sub-agent leaves when it ends without a result, since calls of its own wait for a verdict or a
/// result from outside. Only tools made by [`Agent::as_tool`](crate::Agent::as_tool) make one.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspension {
    pub(crate) pending_calls: Vec<PendingCall>,
    pub(crate) sub_agent_history: History,
}
