//! Implements `call_tool`, the tool that calls other tools, and extracts the inner calls from its
//! arguments.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::item::ToolCall;
use crate::tool::search::settings::{CALL_TOOL, SEARCH_TOOLS};
use crate::tool::{Tool, ToolSpec};

/// The arguments of `call_tool`, as described in its schema.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallToolArgs<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    /// The rationale for the call. Only the inner tool's schema asks for a rationale, but some
    /// models also write the rationale in this field.
    #[serde(rename = "_why", default)]
    _rationale: serde::de::IgnoredAny,
}

/// Creates the `call_tool` tool. Valid calls to this tool are [unwrapped](unwrapped_call) before
/// they reach the tool, so the tool itself only reports the errors in invalid calls.
pub(super) fn call_tool() -> Tool {
    let spec = ToolSpec::new(
        CALL_TOOL,
        "Calls a tool that `search_tools` has found. `arguments` has to fit the `parameters` of that tool.",
        json!({
            "type": "object",
            "properties": {
                "name": {
                    "type": "string",
                    "description": "The name of the tool, exactly as `search_tools` returned it",
                },
                "arguments": {
                    "type": "object",
                    "description": "The arguments of the tool",
                },
            },
            "required": ["name", "arguments"],
            "additionalProperties": false,
        }),
    );
    Tool::from_prepare_fn(spec, |_, arguments| match parse(arguments) {
        Ok((name, _)) => {
            Err(format!("`{name}` is not called through `{CALL_TOOL}`: call it directly"))
        }
        Err(why) => Err(why),
    })
}

/// If `call` is a call to `call_tool` whose arguments name a tool, returns the inner call, which
/// has the same id. Otherwise, returns `call` unchanged.
pub(crate) fn unwrapped_call(call: &ToolCall) -> Cow<'_, ToolCall> {
    if call.name != CALL_TOOL {
        return Cow::Borrowed(call);
    }
    match parse(&call.arguments) {
        Ok((name, arguments)) if name != CALL_TOOL && name != SEARCH_TOOLS => {
            Cow::Owned(ToolCall { call_id: call.call_id.clone(), name, arguments })
        }
        Ok(_) | Err(_) => Cow::Borrowed(call),
    }
}

/// Returns the name of the inner tool, along with its arguments as the model wrote them.
fn parse(arguments: &str) -> Result<(String, String), String> {
    let read = serde_json::from_str::<CallToolArgs<'_>>(arguments);
    let CallToolArgs { name, arguments, .. } = read.map_err(|error| {
        format!(
            "{error}. `name` is the tool's name, and `arguments` is an object with its arguments"
        )
    })?;
    if name.is_empty() {
        return Err("`name` is empty: it must be the name of the tool to call".to_owned());
    }
    let written = arguments.map_or("", RawValue::get);
    // Some models write the arguments as a string that contains JSON, rather than as an object.
    let arguments = match serde_json::from_str::<String>(written) {
        Ok(text) => text,
        Err(_) => written.to_owned(),
    };
    Ok((name, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(arguments: &str) -> ToolCall {
        ToolCall { call_id: "c".into(), name: CALL_TOOL.into(), arguments: arguments.into() }
    }

    #[track_caller]
    fn check(arguments: &str, name: &str, inner: &str) {
        let call = wrapped(arguments);
        let unwrapped = unwrapped_call(&call);
        assert_eq!((&*unwrapped.name, &*unwrapped.arguments), (name, inner));
        assert_eq!(unwrapped.call_id, "c");
    }

    #[test]
    fn inner_arguments_are_kept_verbatim() {
        check(
            r#"{"name":"t","arguments":{"z": 1.50, "a":12345678901234567890123}}"#,
            "t",
            r#"{"z": 1.50, "a":12345678901234567890123}"#,
        );
        check(r#"{"arguments":"{\"a\":1}","name":"t"}"#, "t", r#"{"a":1}"#);
        check(r#"{"name":"t"}"#, "t", "");
        check(r#"{"name":"t","arguments":null,"_why":{"risk":"low"}}"#, "t", "");
        check(r#"{"name":"t","arguments":"not json"}"#, "t", "not json");
        check(r#"{"name":"t","arguments":[1]}"#, "t", "[1]");
    }

    #[test]
    fn a_call_without_a_tool_name_is_unchanged() {
        for arguments in [
            "",
            "{",
            "{}",
            "[]",
            r#"{"name":7,"arguments":{}}"#,
            r#"{"name":"","arguments":{}}"#,
            r#"{"arguments":{}}"#,
            r#"{"name":"t","city":"Rome"}"#,
            r#"{"name":"call_tool","arguments":{"name":"t"}}"#,
            r#"{"name":"search_tools","arguments":{"query":"t"}}"#,
        ] {
            check(arguments, CALL_TOOL, arguments);
        }
    }

    #[test]
    fn calls_of_other_tools_are_not_unwrapped() {
        let call = ToolCall { name: "t".into(), ..wrapped(r#"{"name":"x","arguments":{}}"#) };
        assert_eq!(*unwrapped_call(&call), call);
    }
}
