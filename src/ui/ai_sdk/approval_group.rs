//! Requests for approval that share a tool part.

use serde_json::Value;

use crate::item::PendingCall;

/// Returns the id under which the approval of all calls with the given root call is requested.
///
/// A tool part has room for a single request. The calls of a sub-agent are approved on the part of
/// the call that runs the sub-agent, so the id names exactly the requests that the client was
/// shown: an answer does not hold for a request that was added later. The id of a single request is
/// its approval id. The id of several requests is a JSON array of their approval ids, in ascending
/// order.
pub(super) fn approval_group_id<'a>(
    root: &str,
    calls: impl IntoIterator<Item = &'a PendingCall>,
) -> String {
    let calls = calls.into_iter().filter(|call| call.root_call_id() == root);
    let mut ids: Vec<&str> = calls.map(|call| call.approval_id.as_str()).collect();
    ids.sort_unstable();
    match ids.as_slice() {
        [id] => (*id).to_owned(),
        ids => Value::from(ids).to_string(),
    }
}
