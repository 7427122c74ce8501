//! Messages, <https://platform.claude.com/docs/en/api/messages>.

use serde_json::{Value, json};
use turnstream::Error;
use turnstream::item::{Part, ToolCall};
use turnstream::request::{Options, ToolChoice};
use turnstream::ui::ClientLimits;

use crate::conversation::{file_part, result_content, text_of, url_part};
use crate::fields::{Fields, invalid};
use crate::model_request::{ModelRequest, check_count};
use crate::wires::openai_chat::append;

/// Fields without an effect: the agent decides how it reasons and who uses it.
const IGNORED: &[&str] =
    &["betas", "cache_control", "metadata", "service_tier", "thinking", "context_management"];

pub(crate) fn read(
    fields: &mut Fields,
    request: &mut ModelRequest,
    limits: &ClientLimits,
) -> Result<(), Error> {
    request.is_streamed = fields.bool("stream")?.unwrap_or_default();
    fields.ignore(IGNORED);
    let (tool_choice, parallel_tool_calls) = read_tool_choice(fields)?;
    request.options = Options {
        max_output_tokens: fields.integer("max_tokens")?,
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        top_k: fields.integer("top_k")?,
        stop_sequences: fields.texts("stop_sequences")?,
        tool_choice,
        parallel_tool_calls,
        ..Options::default()
    };
    let format = match fields.object("output_config")? {
        Some(mut config) => config.object("format")?,
        None => fields.object("output_format")?,
    };
    if let Some(mut format) = format {
        if format.required_text("type")? != "json_schema" {
            return Err(format.refuse("type"));
        }
        request.set_schema(None, format.take("schema").unwrap_or_else(|| json!({})));
    }
    for mut tool in fields.objects("tools")? {
        if tool.text("type")?.is_some_and(|kind| kind != "custom") {
            return Err(tool.refuse("type"));
        }
        let name = tool.required_text("name")?;
        request.add_tool(name, tool.text("description")?, tool.take("input_schema"));
    }
    match fields.take("system") {
        Some(Value::String(text)) => request.conversation.push_system(text),
        Some(blocks) => {
            let blocks = read_blocks(blocks, "system", limits, request)?;
            request.conversation.push_system(text_of(&blocks));
        }
        None => {}
    }
    let messages = fields.objects("messages")?;
    check_count(messages.len(), limits, "messages")?;
    messages.into_iter().try_for_each(|message| read_message(message, request, limits))
}

/// Reads whether the model must call a tool, and whether it may call several.
fn read_tool_choice(fields: &mut Fields) -> Result<(ToolChoice, Option<bool>), Error> {
    let Some(mut choice) = fields.object("tool_choice")? else {
        return Ok((ToolChoice::Auto, None));
    };
    let parallel = choice.bool("disable_parallel_tool_use")?.map(|disabled| !disabled);
    let choice = match choice.required_text("type")?.as_str() {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "any" => ToolChoice::Required,
        "tool" => ToolChoice::Tool(choice.required_text("name")?),
        _ => return Err(choice.refuse("type")),
    };
    Ok((choice, parallel))
}

fn read_message(
    mut message: Fields,
    request: &mut ModelRequest,
    limits: &ClientLimits,
) -> Result<(), Error> {
    let role = message.required_text("role")?;
    let path = message.path("content");
    let content = message.take("content").unwrap_or_default();
    let parts = match role.as_str() {
        "user" | "assistant" | "system" => read_blocks(content, &path, limits, request)?,
        _ => return Err(message.refuse("role")),
    };
    match role.as_str() {
        "user" => request.conversation.push_user(parts),
        "system" => request.conversation.push_system(text_of(&parts)),
        // Calls follow the text that they stand beside.
        _ => request.conversation.push_assistant(text_of(&parts)),
    }
    Ok(())
}

/// Reads content blocks. Calls and results are added to the conversation.
fn read_blocks(
    content: Value,
    path: &str,
    limits: &ClientLimits,
    request: &mut ModelRequest,
) -> Result<Vec<Part>, Error> {
    let blocks = match content {
        Value::String(text) => return Ok(vec![text.as_str().into()]),
        Value::Array(blocks) => blocks,
        _ => return Err(invalid(path, "this must be a string or a list")),
    };
    if blocks.len() > limits.max_parts {
        let message = format!("a message may have at most {} parts", limits.max_parts);
        return Err(invalid(path, &message));
    }
    let mut parts = Vec::new();
    for (n, block) in blocks.into_iter().enumerate() {
        let mut block = Fields::of(block, format!("{path}[{n}]"))?;
        match block.required_text("type")?.as_str() {
            "text" => parts.push(block.required_text("text")?.as_str().into()),
            "image" | "document" => parts.push(read_source(&mut block, limits)?),
            "tool_use" => {
                request.conversation.push_assistant(text_of(&std::mem::take(&mut parts)));
                let id_path = block.path("id");
                let call = ToolCall {
                    call_id: block.required_text("id")?,
                    name: block.required_text("name")?,
                    arguments: block.take("input").unwrap_or_else(|| json!({})).to_string(),
                };
                request.conversation.push_call(call, &id_path)?;
            }
            "tool_result" => {
                let call_id = block.required_text("tool_use_id")?;
                let is_error = block.bool("is_error")?.unwrap_or_default();
                let path = block.path("content");
                let content = match block.take("content") {
                    Some(content) => read_blocks(content, &path, limits, request)?,
                    None => Vec::new(),
                };
                let content = result_content(content);
                request.conversation.push_result(call_id, content, is_error);
            }
            // Reasoning is never taken from a client.
            "thinking" | "redacted_thinking" => {}
            _ => return Err(block.refuse("type")),
        }
    }
    Ok(parts)
}

fn read_source(block: &mut Fields, limits: &ClientLimits) -> Result<Part, Error> {
    let path = block.path("source");
    let source = block.object("source")?;
    let mut source = source.ok_or_else(|| invalid(&path, "this field is missing"))?;
    let part = match source.required_text("type")?.as_str() {
        "base64" => {
            let media_type = source.required_text("media_type")?;
            file_part(&media_type, &source.required_text("data")?, limits, &path)?
        }
        "url" => url_part(None, &source.required_text("url")?, limits, &path)?,
        "text" => source.required_text("data")?.as_str().into(),
        _ => return Err(source.refuse("type")),
    };
    Ok(match block.text("title")? {
        Some(title) if part.as_text().is_none() => part.with_name(title),
        _ => part,
    })
}

/// Converts the events of a stream to the response that is not streamed.
pub(crate) fn document(events: &[Value]) -> Value {
    let mut message = Value::Null;
    let mut blocks: Vec<Value> = Vec::new();
    let mut arguments = String::new();
    for event in events {
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => blocks.push(event["content_block"].clone()),
            "content_block_delta" => {
                let (delta, Some(block)) = (&event["delta"], blocks.last_mut()) else { continue };
                for name in ["text", "thinking", "signature"] {
                    if let Some(piece) = delta[name].as_str() {
                        append(&mut block[name], piece);
                    }
                }
                arguments.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" => {
                let written = std::mem::take(&mut arguments);
                if let (Some(block), Ok(input)) = (blocks.last_mut(), written.parse::<Value>()) {
                    block["input"] = input;
                }
            }
            "message_delta" => {
                for name in ["stop_reason", "stop_sequence"] {
                    message[name] = event["delta"][name].clone();
                }
                for (name, count) in event["usage"].as_object().into_iter().flatten() {
                    message["usage"][name] = count.clone();
                }
            }
            _ => {}
        }
    }
    message["content"] = blocks.into();
    message
}
