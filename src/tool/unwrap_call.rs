//! Calls inside other calls. With tool search, most tools are called through `call_tool`.

use std::borrow::Cow;
use std::collections::HashMap;

#[cfg(not(feature = "tool-search"))]
use crate::item::ToolCall;
use crate::item::{Item, ToolResult};
#[cfg(feature = "tool-search")]
pub(crate) use crate::tool::search::unwrapped_call;

/// Returns the call unchanged, since without the feature `tool-search` no call contains another
/// call.
#[cfg(not(feature = "tool-search"))]
pub(crate) fn unwrapped_call(call: &ToolCall) -> Cow<'_, ToolCall> {
    Cow::Borrowed(call)
}

/// Maps the ids of calls to the names of the tools that were called inside these calls. The history
/// itself contains only the names that the model used.
#[derive(Debug, Default)]
pub(crate) struct InnerToolNames<'a>(HashMap<&'a str, String>);

impl<'a> InnerToolNames<'a> {
    /// Processes the next item in a history. If the item is a result, returns the result with the
    /// name of the tool that actually ran.
    pub(crate) fn next_result(&mut self, item: &'a Item) -> Option<Cow<'a, ToolResult>> {
        if let Some(call) = item.as_tool_call()
            && let Cow::Owned(inner) = unwrapped_call(call)
        {
            self.0.insert(&call.call_id, inner.name);
        }
        let result = item.as_tool_result()?;
        Some(match self.0.get(&*result.call_id) {
            Some(name) => Cow::Owned(ToolResult { name: name.clone(), ..result.clone() }),
            None => Cow::Borrowed(result),
        })
    }
}
