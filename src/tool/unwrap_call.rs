//! Unwraps calls that are made inside other calls. With tool search, most tools are called through
//! `call_tool`.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::item::{Item, ToolResult};
pub(crate) use crate::tool::search::unwrapped_call;

/// Maps the id of each outer call to the name of the tool that was called inside it. The history
/// itself contains only the tool names that the model used.
#[derive(Debug, Default)]
pub(crate) struct InnerToolNames<'a>(HashMap<&'a str, String>);

impl<'a> InnerToolNames<'a> {
    /// Processes the next item in a history. If the item is a result, returns the result under the
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
