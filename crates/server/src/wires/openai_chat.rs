//! Chat Completions, <https://platform.openai.com/docs/api-reference/chat>.

use serde_json::{Map, Value, json};
use turnstream::Error;
use turnstream::item::{Part, ToolCall};
use turnstream::request::{Options, Output, ToolChoice};
use turnstream::ui::ClientLimits;

use crate::conversation::{file_part, read_parts, result_content, text_of, url_part};
use crate::fields::{Fields, invalid};
use crate::model_request::{ModelRequest, check_count};

/// Fields without an effect: the agent decides how it reasons and who uses it.
const IGNORED: &[&str] = &[
    "cache_prompt",
    "function_call",
    "metadata",
    "min_p",
    "moderation",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "provider",
    "reasoning",
    "reasoning_effort",
    "repetition_penalty",
    "safety_identifier",
    "service_tier",
    "store",
    "top_k",
    "usage",
    "user",
    "verbosity",
];

pub(crate) fn read(
    fields: &mut Fields,
    request: &mut ModelRequest,
    limits: &ClientLimits,
) -> Result<(), Error> {
    request.is_streamed = fields.bool("stream")?.unwrap_or_default();
    // The writer of the response reads it from the body.
    fields.ignore(&["stream_options"]);
    fields.ignore(IGNORED);
    if fields.integer::<u32>("n")?.is_some_and(|count| count != 1) {
        return Err(fields.refuse("n"));
    }
    if fields.texts("modalities")?.iter().any(|kind| kind != "text") {
        return Err(fields.refuse("modalities"));
    }
    let max_tokens = fields.integer("max_tokens")?;
    request.options = Options {
        max_output_tokens: fields.integer("max_completion_tokens")?.or(max_tokens),
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        seed: fields.integer("seed")?,
        frequency_penalty: fields.penalty("frequency_penalty")?,
        presence_penalty: fields.penalty("presence_penalty")?,
        stop_sequences: fields.texts("stop")?,
        parallel_tool_calls: fields.bool("parallel_tool_calls")?,
        tool_choice: read_tool_choice(fields, request)?,
        ..Options::default()
    };
    if let Some(mut format) = fields.object("response_format")? {
        match format.required_text("type")?.as_str() {
            "text" => {}
            "json_object" => request.options.output = Output::Json,
            "json_schema" => {
                if let Some(mut schema) = format.object("json_schema")? {
                    let name = schema.text("name")?;
                    request.set_schema(name, schema.take("schema").unwrap_or_else(|| json!({})));
                }
            }
            _ => return Err(format.refuse("type")),
        }
    }
    read_functions(fields, request)?;
    let messages = fields.objects("messages")?;
    check_count(messages.len(), limits, "messages")?;
    messages.into_iter().try_for_each(|message| read_message(message, request, limits))
}

/// Reads the tools of a client, which are functions.
pub(super) fn read_functions(fields: &mut Fields, request: &mut ModelRequest) -> Result<(), Error> {
    for mut tool in fields.objects("tools")? {
        if tool.text("type")?.is_some_and(|kind| kind != "function") {
            return Err(tool.refuse("type"));
        }
        let path = tool.path("function");
        let function = tool.object("function")?;
        let mut function = function.ok_or_else(|| invalid(&path, "this field is missing"))?;
        let name = function.required_text("name")?;
        request.add_tool(name, function.text("description")?, function.take("parameters"));
    }
    Ok(())
}

/// Reads whether the model must call a tool, and which tools it may call.
pub(super) fn read_tool_choice(
    fields: &mut Fields,
    request: &mut ModelRequest,
) -> Result<ToolChoice, Error> {
    let Some(choice) = fields.take("tool_choice") else { return Ok(ToolChoice::Auto) };
    if choice["type"] == "allowed_tools" {
        let allowed = if choice["tools"].is_array() { &choice } else { &choice["allowed_tools"] };
        let name = |tool: &Value| {
            let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
            name.map(str::to_owned).ok_or_else(|| fields.refuse("tool_choice"))
        };
        let tools = allowed["tools"].as_array().into_iter().flatten();
        request.allowed_tools = Some(tools.map(name).collect::<Result<_, _>>()?);
        return Ok(match allowed["mode"] == "required" {
            true => ToolChoice::Required,
            false => ToolChoice::Auto,
        });
    }
    let name = choice["function"]["name"].as_str().or(choice["name"].as_str());
    match (choice.as_str(), name) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("required"), _) => Ok(ToolChoice::Required),
        (None, Some(name)) if choice["type"] == "function" => Ok(ToolChoice::Tool(name.to_owned())),
        _ => Err(fields.refuse("tool_choice")),
    }
}

fn read_message(
    mut message: Fields,
    request: &mut ModelRequest,
    limits: &ClientLimits,
) -> Result<(), Error> {
    let role = message.required_text("role")?;
    let parts = read_parts(&mut message, "content", limits, read_part)?;
    let conversation = &mut request.conversation;
    match role.as_str() {
        "system" | "developer" => conversation.push_system(text_of(&parts)),
        "user" => conversation.push_user(parts),
        "assistant" => {
            conversation.push_assistant(text_of(&parts));
            for mut call in message.objects("tool_calls")? {
                let call_id = call.required_text("id")?;
                let path = call.path("function");
                let function = call.object("function")?;
                let mut function = function
                    .ok_or_else(|| invalid(&path, "only calls of functions are supported"))?;
                let name = function.required_text("name")?;
                let arguments = function.text("arguments")?.unwrap_or_default();
                let call_path = call.path("id");
                conversation.push_call(ToolCall { call_id, name, arguments }, &call_path)?;
            }
        }
        "tool" => {
            let call_id = message.required_text("tool_call_id")?;
            conversation.push_result(call_id, result_content(parts), false);
        }
        _ => return Err(message.refuse("role")),
    }
    Ok(())
}

fn read_part(mut part: Fields, limits: &ClientLimits) -> Result<Part, Error> {
    let kind = part.required_text("type")?;
    let missing = |part: &Fields| invalid(&part.path(&kind), "this field is missing");
    match kind.as_str() {
        "text" => Ok(part.required_text("text")?.as_str().into()),
        "refusal" => Ok(part.required_text("refusal")?.as_str().into()),
        "image_url" => {
            let mut image = part.object("image_url")?.ok_or_else(|| missing(&part))?;
            url_part(None, &image.required_text("url")?, limits, &part.path("image_url.url"))
        }
        "file" => {
            let mut file = part.object("file")?.ok_or_else(|| missing(&part))?;
            let data = file.required_text("file_data")?;
            let file_part = url_part(None, &data, limits, &part.path("file.file_data"))?;
            Ok(match file.text("filename")? {
                Some(name) => file_part.with_name(name),
                None => file_part,
            })
        }
        "input_audio" => {
            let mut audio = part.object("input_audio")?.ok_or_else(|| missing(&part))?;
            let media_type = format!("audio/{}", audio.required_text("format")?);
            file_part(&media_type, &audio.required_text("data")?, limits, &part.path("input_audio"))
        }
        _ => Err(part.refuse("type")),
    }
}

/// Converts the chunks of a stream to the response that is not streamed.
pub(crate) fn document(chunks: &[Value]) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    message.insert("content".into(), Value::Null);
    message.insert("refusal".into(), Value::Null);
    let mut calls: Vec<Value> = Vec::new();
    let mut finish = Value::Null;
    for choice in chunks.iter().filter_map(|chunk| chunk["choices"].as_array()).flatten() {
        if !choice["finish_reason"].is_null() {
            finish = choice["finish_reason"].clone();
        }
        for name in ["content", "refusal", "reasoning_content"] {
            if let Some(piece) = choice["delta"][name].as_str().filter(|piece| !piece.is_empty()) {
                append(message.entry(name).or_insert(Value::Null), piece);
            }
        }
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            if call["id"].is_string() {
                let mut call = call.clone();
                call.as_object_mut().map(|call| call.shift_remove("index"));
                calls.push(call);
            } else if let (Some(open), Some(piece)) =
                (calls.last_mut(), call["function"]["arguments"].as_str())
            {
                append(&mut open["function"]["arguments"], piece);
            }
        }
    }
    if !calls.is_empty() {
        message.insert("tool_calls".into(), calls.into());
    }
    let first = chunks.first().cloned().unwrap_or_default();
    let usage = chunks.iter().rev().map(|chunk| &chunk["usage"]).find(|usage| usage.is_object());
    json!({
        "id": first["id"],
        "object": "chat.completion",
        "created": first["created"],
        "model": first["model"],
        "service_tier": first["service_tier"],
        "system_fingerprint": first["system_fingerprint"],
        "choices": [{
            "index": 0, "message": message, "logprobs": null, "finish_reason": finish,
        }],
        "usage": usage,
    })
}

/// Appends a piece to a text, which is `null` before its first piece.
pub(super) fn append(text: &mut Value, piece: &str) {
    match text {
        Value::String(text) => text.push_str(piece),
        empty => *empty = piece.into(),
    }
}
