//! Calls inside of calls: of a toolkit that is searched, most tools are called by `call_tool`.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::item::{Item, ToolCall, ToolResult};
#[cfg(feature = "tool-search")]
pub(crate) use crate::tool::search::unwrapped_call;

/// The call as it is: without the feature `tool-search` no call has another one inside.
#[cfg(not(feature = "tool-search"))]
pub(crate) fn unwrapped_call(call: &ToolCall) -> Cow<'_, ToolCall> {
    Cow::Borrowed(call)
}

/// The results among some items with the names of the tools that were called. A history has the names that
/// the model used.
pub(crate) fn unwrapped_results<'a>(
    items: impl IntoIterator<Item = &'a Item>,
) -> impl Iterator<Item = Cow<'a, ToolResult>> {
    let mut inner_names: HashMap<&str, String> = HashMap::new();
    items.into_iter().filter_map(move |item| {
        if let Some(call) = item.as_tool_call()
            && let Cow::Owned(inner) = unwrapped_call(call)
        {
            inner_names.insert(&call.call_id, inner.name);
        }
        let result = item.as_tool_result()?;
        Some(match inner_names.get(&*result.call_id) {
            Some(name) => Cow::Owned(ToolResult { name: name.clone(), ..result.clone() }),
            None => Cow::Borrowed(result),
        })
    })
}
