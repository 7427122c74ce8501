//! The state of a suspended sub-agent.

use crate::item::{History, PendingCall};

/// The state of a sub-agent that ended without a result because its own calls are waiting for a
/// verdict or an external result. Only tools created by [`Agent::as_tool`](crate::Agent::as_tool)
/// create a suspension.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspension {
    pub(crate) pending_calls: Vec<PendingCall>,
    pub(crate) sub_agent_history: History,
}
