//! Finds the tool of a call.

use crate::item::ToolCall;
use crate::tool::{Tool, Toolkit};

/// Returns the tool in the toolkit that a call executes, if any.
pub(super) fn called_tool<'a>(toolkit: &'a Toolkit, call: &ToolCall) -> Option<&'a Tool> {
    toolkit.get(&toolkit.unwrapped_call(call).name)
}
