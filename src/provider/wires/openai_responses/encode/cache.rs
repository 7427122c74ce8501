//! The encoder's state after the cached prefix.

use super::client_tools::OpenClientCall;
use crate::provider::codec::portable_values::{IssuedCallIds, ServerKind};
use crate::request::ToolNames;

/// The settings that determine, together with the items, how an item is encoded.
pub(super) type EncodingKey = (ServerKind, ToolNames);

/// The encoder state at a point in the input where no reasoning is pending.
#[derive(Clone, Default)]
pub(super) struct EncodedPrefix {
    /// The id of the last reasoning item sent in the current turn.
    pub(super) last_reasoning_id: Option<String>,
    /// Whether the previous item was interrupted.
    pub(super) was_interrupted: bool,
    /// The open calls whose ids are sent back unchanged.
    pub(super) issued_ids: IssuedCallIds,
    /// The open calls whose answers are items of their own types.
    pub(super) open_client_calls: Vec<OpenClientCall>,
    /// The ids of the requests for the approval of an MCP server's call that were sent as items of
    /// their own type.
    pub(super) approval_requests: Vec<String>,
}
