//! The Responses API, <https://platform.openai.com/docs/api-reference/responses>.

use serde_json::{Value, json};
use turnstream::Error;
use turnstream::item::{Part, ToolCall};
use turnstream::request::{Options, Output};
use turnstream::ui::ClientLimits;

use crate::conversation::{read_parts, result_content, text_of, url_part};
use crate::fields::{Fields, invalid};
use crate::model_request::{ModelRequest, check_count};
use crate::wires::openai_chat::read_tool_choice;

/// Fields without an effect: the agent decides how it reasons and who uses it.
const IGNORED: &[&str] = &[
    "include",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "stream_options",
    "truncation",
    "user",
];

pub(crate) fn read(
    fields: &mut Fields,
    request: &mut ModelRequest,
    limits: &ClientLimits,
) -> Result<(), Error> {
    request.is_streamed = fields.bool("stream")?.unwrap_or_default();
    request.previous_response = fields.text("previous_response_id")?;
    request.is_stored = fields.bool("store")?.unwrap_or(true);
    fields.ignore(IGNORED);
    request.options = Options {
        max_output_tokens: fields.integer("max_output_tokens")?,
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        parallel_tool_calls: fields.bool("parallel_tool_calls")?,
        tool_choice: read_tool_choice(fields, request)?,
        ..Options::default()
    };
    if let Some(mut text) = fields.object("text")?
        && let Some(mut format) = text.object("format")?
    {
        match format.required_text("type")?.as_str() {
            "text" => {}
            "json_object" => request.options.output = Output::Json,
            "json_schema" => {
                let name = format.text("name")?;
                request.set_schema(name, format.take("schema").unwrap_or_else(|| json!({})));
            }
            _ => return Err(format.refuse("type")),
        }
    }
    for mut tool in fields.objects("tools")? {
        if tool.required_text("type")? != "function" {
            return Err(tool.refuse("type"));
        }
        let name = tool.required_text("name")?;
        request.add_tool(name, tool.text("description")?, tool.take("parameters"));
    }
    request.instructions = fields.text("instructions")?.filter(|text| !text.trim().is_empty());
    match fields.take("input") {
        None => Ok(()),
        Some(Value::String(text)) => {
            request.conversation.push_user(vec![text.as_str().into()]);
            Ok(())
        }
        Some(Value::Array(items)) => {
            check_count(items.len(), limits, "input")?;
            items.into_iter().enumerate().try_for_each(|(n, item)| {
                read_item(Fields::of(item, format!("input[{n}]"))?, request, limits)
            })
        }
        Some(_) => Err(invalid("input", "this must be a string or a list")),
    }
}

fn read_item(
    mut item: Fields,
    request: &mut ModelRequest,
    limits: &ClientLimits,
) -> Result<(), Error> {
    let conversation = &mut request.conversation;
    match item.text("type")?.as_deref() {
        None | Some("message") => {
            let role = item.required_text("role")?;
            let parts = read_parts(&mut item, "content", limits, read_part)?;
            match role.as_str() {
                "system" | "developer" => conversation.push_system(text_of(&parts)),
                "user" => conversation.push_user(parts),
                "assistant" => conversation.push_assistant(text_of(&parts)),
                _ => return Err(item.refuse("role")),
            }
        }
        Some("function_call") => {
            let path = item.path("call_id");
            let call = ToolCall {
                call_id: item.required_text("call_id")?,
                name: item.required_text("name")?,
                arguments: item.text("arguments")?.unwrap_or_default(),
            };
            conversation.push_call(call, &path)?;
        }
        Some("function_call_output") => {
            let call_id = item.required_text("call_id")?;
            let parts = read_parts(&mut item, "output", limits, read_part)?;
            conversation.push_result(call_id, result_content(parts), false);
        }
        // Reasoning is never taken from a client.
        Some("reasoning") => {}
        Some(_) => return Err(item.refuse("type")),
    }
    Ok(())
}

fn read_part(mut part: Fields, limits: &ClientLimits) -> Result<Part, Error> {
    match part.required_text("type")?.as_str() {
        "input_text" | "output_text" | "text" => Ok(part.required_text("text")?.as_str().into()),
        "refusal" => Ok(part.required_text("refusal")?.as_str().into()),
        "input_image" => {
            let url = part.required_text("image_url")?;
            url_part(None, &url, limits, &part.path("image_url"))
        }
        "input_file" => {
            let path = part.path("file_data");
            let file = match part.text("file_data")? {
                Some(data) => url_part(None, &data, limits, &path)?,
                None => {
                    let url = part.required_text("file_url")?;
                    url_part(Some("application/pdf"), &url, limits, &part.path("file_url"))?
                }
            };
            Ok(match part.text("filename")? {
                Some(name) => file.with_name(name),
                None => file,
            })
        }
        _ => Err(part.refuse("type")),
    }
}

/// The response that is not streamed: the last event contains it.
pub(crate) fn document(events: &[Value]) -> Value {
    events.last().map(|event| event["response"].clone()).unwrap_or_default()
}
