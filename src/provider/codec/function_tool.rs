//! A tool declaration in the format that Chat Completions and Ollama use.

use std::borrow::Cow;

use serde::Serialize;

use crate::item::RawJson;
use crate::provider::codec::cache_control::CacheControl;
use crate::request::{ToolNames, ToolSpec};

#[derive(Serialize)]
pub(in crate::provider) struct FunctionTool<'a> {
    r#type: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::provider) cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: Cow<'a, RawJson>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
}

impl<'a> FunctionTool<'a> {
    /// Creates a tool declaration. `parameters` is the tool's parameter schema, rewritten for the
    /// wire.
    pub(in crate::provider) fn new(
        tool: &'a ToolSpec,
        names: &ToolNames,
        parameters: Cow<'a, RawJson>,
    ) -> Self {
        let name = names.sent_name(&tool.name);
        let (description, strict) = (tool.description.as_str(), tool.strict);
        let function = Function { name, description, parameters, strict };
        Self { r#type: "function", function, cache_control: None }
    }
}
