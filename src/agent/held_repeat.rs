//! Holds back a call whose earlier attempt may have taken effect.

use std::collections::HashMap;

use crate::agent::evidence::has_unknown_effects;
use crate::agent::same_call::is_same_call;
use crate::item::{History, INTERRUPTED_BEFORE_START, ResultKind, ToolCall, ToolResult};
use crate::tool::{Tool, unwrapped_call};

/// Returns the reason why a call is held back, or `None` if it may run.
///
/// A call is held back if the latest identical call that ran was interrupted, timed out or
/// panicked, and no later result contains evidence.
pub(in crate::agent) fn hold_reason(
    history: &History,
    tool: &Tool,
    call: &ToolCall,
) -> Option<String> {
    let mut results: HashMap<&str, &ToolResult> = HashMap::new();
    for item in history.live_newest_first() {
        if let Some(result) = item.as_tool_result() {
            // This result is later than all calls that are still to be compared, or it is the
            // result of one of them, whose own evidence then decides.
            if result.report.as_deref().is_some_and(|report| !report.evidence.is_empty()) {
                return None;
            }
            results.insert(&result.call_id, result);
        }
        let Some(earlier) = item.as_tool_call() else { continue };
        let Some(result) = results.get(&*earlier.call_id) else { continue };
        let has_run = (result.kind.has_executed() || has_unknown_effects(result.kind))
            && !is_interrupted_before_start(result);
        let earlier = unwrapped_call(earlier);
        if !has_run || earlier.name != call.name {
            continue;
        }
        // The tool has read the new call's arguments as its schema describes them.
        let arguments = tool.read_arguments(&earlier.arguments).into_owned();
        let as_read = ToolCall { arguments, ..earlier.clone().into_owned() };
        if !is_same_call(&earlier, call) && !is_same_call(&as_read, call) {
            continue;
        }
        return has_unknown_effects(result.kind).then(|| {
            format!(
                "Not run: the same call was made before and ended as `{}`, so it may have taken \
                 effect. Find out whether it did. The call runs again once another call has \
                 recorded evidence.",
                result.kind
            )
        });
    }
    None
}

/// Returns whether a call was interrupted before its tool started.
fn is_interrupted_before_start(result: &ToolResult) -> bool {
    result.kind == ResultKind::Interrupted
        && result.content.text().starts_with(INTERRUPTED_BEFORE_START)
}
