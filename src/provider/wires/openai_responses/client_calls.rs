//! Calls in a response's output that the client must answer, although they are not function calls.

use std::collections::HashSet;

use serde::Deserialize;

use crate::item::{Item, ItemKind, ProviderData};
use crate::provider::codec::lenient::LenientStr;
use crate::provider::wires::openai_responses::passthrough::PROVIDER_NAME;

/// The types of output items that the client must answer,
/// <https://platform.openai.com/docs/api-reference/responses/object>.
const CLIENT_CALL_TYPES: [&str; 7] = [
    "computer_call",
    // The server itself answers a call that runs in a container, in the same response.
    "shell_call",
    "local_shell_call",
    "apply_patch_call",
    "custom_tool_call",
    "mcp_approval_request",
    // The server itself answers a search, unless `execution` is `client`.
    "tool_search_call",
];

/// The fields of an output item that determine whether it is a call for the client, or an answer to
/// such a call.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct OutputItem<'a> {
    r#type: LenientStr<'a>,
    id: LenientStr<'a>,
    call_id: LenientStr<'a>,
    approval_request_id: LenientStr<'a>,
    execution: LenientStr<'a>,
}

impl<'a> OutputItem<'a> {
    fn from_provider_data(data: &'a ProviderData) -> Option<Self> {
        (data.provider == PROVIDER_NAME).then(|| data.value.deserialize_as().ok()).flatten()
    }

    fn is_client_call(&self) -> bool {
        match self.r#type.or_empty() {
            "tool_search_call" => self.execution.or_empty() == "client",
            kind => CLIENT_CALL_TYPES.contains(&kind),
        }
    }

    /// Returns the id by which an answer refers to this call.
    fn id_for_answer(&self) -> &str {
        match (self.r#type.or_empty(), self.call_id.or_empty()) {
            ("mcp_approval_request", _) | (_, "") => self.id.or_empty(),
            (_, call_id) => call_id,
        }
    }

    /// Returns the ids of the calls that this item may answer.
    fn answered_ids(&self) -> Vec<&str> {
        let ids = match self.r#type.or_empty() {
            "mcp_approval_response" | "mcp_call" => vec![self.approval_request_id.or_empty()],
            kind if kind.ends_with("_output") => vec![self.call_id.or_empty(), self.id.or_empty()],
            _ => Vec::new(),
        };
        ids.into_iter().filter(|id| !id.is_empty()).collect()
    }
}

/// An item of the provider that is a request for the approval of an MCP server's call, or refers to
/// one by its id.
pub(super) enum McpApprovalItem {
    Request(String),
    Response(String),
    Call(String),
}

impl McpApprovalItem {
    /// Reads an item. Returns `None` for any other item, and for a call that needed no approval.
    pub(super) fn read(data: &ProviderData) -> Option<Self> {
        // This cheap check limits the number of items that have to be parsed.
        if !data.value.as_str().contains("approval_request") {
            return None;
        }
        let item = OutputItem::from_provider_data(data)?;
        let id = item.approval_request_id.or_empty();
        match item.r#type.or_empty() {
            "mcp_approval_request" => Some(Self::Request(item.id.or_empty().to_owned())),
            "mcp_approval_response" => Some(Self::Response(id.to_owned())),
            "mcp_call" if !id.is_empty() => Some(Self::Call(id.to_owned())),
            _ => None,
        }
    }
}

/// The ids of the calls for the client that are answered.
#[derive(Debug, Default)]
pub(super) struct AnsweredCalls(HashSet<String>);

impl AnsweredCalls {
    pub(super) fn of<'a>(items: impl Iterator<Item = &'a Item>) -> Self {
        let own = items.filter(|item| matches!(item.kind, ItemKind::Other));
        let data = own.filter_map(|item| item.provider_data.as_deref());
        let mut answered = HashSet::new();
        for item in data.filter_map(OutputItem::from_provider_data) {
            answered.extend(item.answered_ids().into_iter().map(str::to_owned));
        }
        Self(answered)
    }

    /// Returns whether the call with this id is answered.
    pub(super) fn contains(&self, id: &str) -> bool {
        self.0.contains(id)
    }

    /// Returns whether an item is a call for the client that is not answered.
    pub(super) fn leave_open(&self, data: &ProviderData) -> bool {
        OutputItem::from_provider_data(data)
            .is_some_and(|item| item.is_client_call() && !self.0.contains(item.id_for_answer()))
    }
}

/// Returns the type of the first call in a turn that the client must answer and that the turn
/// itself does not answer.
pub(in crate::provider) fn unanswered_client_call(items: &[Item]) -> Option<String> {
    let own = || items.iter().filter(|item| matches!(item.kind, ItemKind::Other));
    // Most turns contain no provider-specific item.
    own().next()?;
    let answered = AnsweredCalls::of(own());
    let data = own().filter_map(|item| item.provider_data.as_deref());
    let mut open = data.filter(|data| answered.leave_open(data));
    Some(OutputItem::from_provider_data(open.next()?)?.r#type.or_empty().to_owned())
}
