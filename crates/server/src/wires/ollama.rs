//! Ollama's `/api/chat`, <https://docs.ollama.com/api/chat>.

use serde_json::{Value, json};
use turnstream::Error;
use turnstream::item::{Part, ToolCall};
use turnstream::request::{Options, Output};
use turnstream::ui::ClientLimits;

use crate::conversation::file_part;
use crate::fields::{Fields, invalid};
use crate::model_request::{ModelRequest, check_count};
use crate::wires::openai_chat::{append, read_functions};

pub(crate) fn read(
    fields: &mut Fields,
    request: &mut ModelRequest,
    limits: &ClientLimits,
) -> Result<(), Error> {
    request.is_streamed = fields.bool("stream")?.unwrap_or(true);
    fields.ignore(&["keep_alive", "think", "truncate"]);
    if let Some(mut options) = fields.object("options")? {
        request.options = Options {
            // A negative number asks for an answer of any length.
            max_output_tokens: options
                .take("num_predict")
                .and_then(|count| count.as_u64())
                .and_then(|count| u32::try_from(count).ok()),
            temperature: options.number("temperature")?,
            top_p: options.number("top_p")?,
            top_k: options.integer("top_k")?,
            seed: options.integer("seed")?,
            frequency_penalty: options.penalty("frequency_penalty")?,
            presence_penalty: options.penalty("presence_penalty")?,
            stop_sequences: options.texts("stop")?,
            ..Options::default()
        };
        // All further options are about how a local model is loaded.
    }
    match fields.take("format") {
        None => {}
        Some(Value::String(format)) if format.is_empty() => {}
        Some(Value::String(format)) if format == "json" => request.options.output = Output::Json,
        Some(schema @ Value::Object(_)) => request.set_schema(None, schema),
        Some(_) => return Err(fields.refuse("format")),
    }
    read_functions(fields, request)?;
    let messages = fields.objects("messages")?;
    check_count(messages.len(), limits, "messages")?;
    messages.into_iter().try_for_each(|message| read_message(message, request, limits))
}

fn read_message(
    mut message: Fields,
    request: &mut ModelRequest,
    limits: &ClientLimits,
) -> Result<(), Error> {
    let role = message.required_text("role")?;
    let text = message.text("content")?.unwrap_or_default();
    let images = message.texts("images")?;
    let conversation = &mut request.conversation;
    match role.as_str() {
        "system" => conversation.push_system(text),
        "user" => {
            let mut parts = vec![Part::from(text.as_str())];
            let path = message.path("images");
            for image in images {
                parts.push(file_part(image_type(&image), &image, limits, &path)?);
            }
            conversation.push_user(parts);
        }
        "assistant" => {
            conversation.push_assistant(text);
            for mut call in message.objects("tool_calls")? {
                let path = call.path("function");
                let function = call.object("function")?;
                let mut function =
                    function.ok_or_else(|| invalid(&path, "this field is missing"))?;
                let call_id = call.text("id")?.unwrap_or_else(|| conversation.new_call_id());
                let name = function.required_text("name")?;
                let arguments = function.take("arguments").unwrap_or_else(|| json!({})).to_string();
                let call_path = call.path("id");
                conversation.push_call(ToolCall { call_id, name, arguments }, &call_path)?;
            }
        }
        "tool" => {
            let name = message.text("tool_name")?.or(message.text("name")?).unwrap_or_default();
            let id =
                message.text("tool_call_id")?.or_else(|| conversation.take_unnamed_call(&name));
            let path = message.path("tool_name");
            let id = id.ok_or_else(|| invalid(&path, "no call of this tool is open"))?;
            conversation.push_result(id, text.into(), false);
        }
        _ => return Err(message.refuse("role")),
    }
    Ok(())
}

/// Returns the type of an image, which its first bytes show.
fn image_type(data: &str) -> &'static str {
    let types = [("iVBORw", "image/png"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp")];
    let found = types.iter().find(|(start, _)| data.starts_with(start));
    found.map_or("image/jpeg", |(_, media_type)| media_type)
}

/// Converts the lines of a stream to the response that is not streamed.
pub(crate) fn document(lines: &[Value]) -> Value {
    let mut document = lines.last().cloned().unwrap_or_default();
    for line in lines {
        for name in ["content", "thinking"] {
            if let Some(piece) = line["message"][name].as_str().filter(|it| !it.is_empty()) {
                append(&mut document["message"][name], piece);
            }
        }
        if let Some(calls) = line["message"]["tool_calls"].as_array() {
            let message = &mut document["message"];
            let mut all = message["tool_calls"].as_array().cloned().unwrap_or_default();
            all.extend(calls.iter().cloned());
            message["tool_calls"] = all.into();
        }
    }
    document
}
