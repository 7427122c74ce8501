//! Gemini, <https://ai.google.dev/api/generate-content>.

use serde_json::{Map, Value, json};
use turnstream::Error;
use turnstream::item::{Part, ToolCall};
use turnstream::request::{Options, Output, ToolChoice};
use turnstream::ui::ClientLimits;

use crate::conversation::{file_part, text_of, url_part};
use crate::fields::{Fields, invalid};
use crate::model_request::{ModelRequest, check_count};
use crate::wires::openai_chat::append;

pub(crate) fn read(
    fields: &mut Fields,
    request: &mut ModelRequest,
    limits: &ClientLimits,
) -> Result<(), Error> {
    // The agent decides who uses it, and what its model may say.
    fields.ignore(&["labels", "model", "safetySettings", "serviceTier", "store"]);
    let choice = read_tool_choice(fields, request)?;
    if let Some(mut config) = fields.object("generationConfig")? {
        read_options(&mut config, request)?;
        config.finish()?;
    }
    request.options.tool_choice = choice;
    for mut tool in fields.objects("tools")? {
        for mut function in tool.objects("functionDeclarations")? {
            function.ignore(&["behavior", "response", "responseJsonSchema"]);
            let name = function.required_text("name")?;
            let description = function.text("description")?;
            let schema = function.take("parametersJsonSchema");
            let parameters = schema.or_else(|| function.take("parameters").map(to_json_schema));
            request.add_tool(name, description, parameters);
            function.finish()?;
        }
        tool.finish()?;
    }
    if let Some(mut system) = fields.object("systemInstruction")? {
        let parts = system.objects("parts")?;
        let texts: Result<Vec<_>, _> = parts.into_iter().map(|mut it| it.text("text")).collect();
        request.conversation.push_system(texts?.into_iter().flatten().collect());
    }
    let contents = fields.objects("contents")?;
    check_count(contents.len(), limits, "contents")?;
    contents.into_iter().try_for_each(|content| read_content(content, request, limits))
}

fn read_options(config: &mut Fields, request: &mut ModelRequest) -> Result<(), Error> {
    config.ignore(&["mediaResolution", "thinkingConfig"]);
    if config.integer::<u32>("candidateCount")?.is_some_and(|count| count != 1) {
        return Err(config.refuse("candidateCount"));
    }
    if config.texts("responseModalities")?.iter().any(|kind| !kind.eq_ignore_ascii_case("text")) {
        return Err(config.refuse("responseModalities"));
    }
    request.options = Options {
        max_output_tokens: config.integer("maxOutputTokens")?,
        temperature: config.number("temperature")?,
        top_p: config.number("topP")?,
        // The vendor's clients send a number with a fraction.
        top_k: config.number("topK")?.map(whole_number),
        seed: config.integer("seed")?,
        frequency_penalty: config.penalty("frequencyPenalty")?,
        presence_penalty: config.penalty("presencePenalty")?,
        stop_sequences: config.texts("stopSequences")?,
        ..Options::default()
    };
    let media_type = config.text("responseMimeType")?;
    let schema = config.take("responseJsonSchema");
    match schema.or_else(|| config.take("responseSchema").map(to_json_schema)) {
        Some(schema) => request.set_schema(None, schema),
        None if media_type.as_deref() == Some("application/json") => {
            request.options.output = Output::Json;
        }
        None if media_type.is_none_or(|it| it == "text/plain") => {}
        None => return Err(config.refuse("responseMimeType")),
    }
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion that would overflow stops at the limit"
)]
fn whole_number(number: f32) -> u32 {
    number as u32
}

fn read_tool_choice(fields: &mut Fields, request: &mut ModelRequest) -> Result<ToolChoice, Error> {
    let Some(mut config) = fields.object("toolConfig")? else { return Ok(ToolChoice::Auto) };
    let Some(mut calling) = config.object("functionCallingConfig")? else {
        return Ok(ToolChoice::Auto);
    };
    let allowed = calling.texts("allowedFunctionNames")?;
    match calling.text("mode")?.unwrap_or_default().to_ascii_uppercase().as_str() {
        "" | "AUTO" | "VALIDATED" | "MODE_UNSPECIFIED" => Ok(ToolChoice::Auto),
        "NONE" => Ok(ToolChoice::None),
        "ANY" => match &allowed[..] {
            [name] => Ok(ToolChoice::Tool(name.clone())),
            names => {
                request.allowed_tools = (!names.is_empty()).then(|| names.to_vec());
                Ok(ToolChoice::Required)
            }
        },
        _ => Err(calling.refuse("mode")),
    }
}

fn read_content(
    mut content: Fields,
    request: &mut ModelRequest,
    limits: &ClientLimits,
) -> Result<(), Error> {
    let is_model = match content.text("role")?.as_deref() {
        Some("model") => true,
        None | Some("user" | "function") => false,
        Some(_) => return Err(content.refuse("role")),
    };
    let parts = content.objects("parts")?;
    if parts.len() > limits.max_parts {
        let message = format!("a message may have at most {} parts", limits.max_parts);
        return Err(invalid(&content.path("parts"), &message));
    }
    let mut message_parts = Vec::new();
    for mut part in parts {
        // Reasoning is never taken from a client.
        if part.bool("thought")?.unwrap_or_default() {
            continue;
        }
        if let Some(text) = part.text("text")? {
            message_parts.push(Part::from(text.as_str()));
        } else if let Some(mut call) = part.object("functionCall")? {
            request.conversation.push_assistant(text_of(&std::mem::take(&mut message_parts)));
            let path = call.path("id");
            let call_id = call.text("id")?.unwrap_or_else(|| request.conversation.new_call_id());
            let name = call.required_text("name")?;
            let arguments = call.take("args").unwrap_or_else(|| json!({})).to_string();
            request.conversation.push_call(ToolCall { call_id, name, arguments }, &path)?;
        } else if let Some(mut response) = part.object("functionResponse")? {
            let name = response.required_text("name")?;
            let id = response.text("id")?.or_else(|| request.conversation.take_unnamed_call(&name));
            let path = response.path("name");
            let id = id.ok_or_else(|| invalid(&path, "no call of this tool is open"))?;
            let output = response.take("response").unwrap_or_else(|| json!({}));
            let is_error = output.get("error").is_some();
            let text = result_text(&output);
            request.conversation.push_result(id, text.into(), is_error);
        } else if let Some(mut data) = part.object("inlineData")? {
            let media_type = data.required_text("mimeType")?;
            let path = part.path("inlineData.data");
            message_parts.push(file_part(
                &media_type,
                &data.required_text("data")?,
                limits,
                &path,
            )?);
        } else if let Some(mut file) = part.object("fileData")? {
            let media_type = file.text("mimeType")?;
            let path = part.path("fileData.fileUri");
            let url = file.required_text("fileUri")?;
            message_parts.push(url_part(media_type.as_deref(), &url, limits, &path)?);
        } else {
            part.ignore(&["thoughtSignature"]);
            part.finish()?;
        }
    }
    match is_model {
        true => request.conversation.push_assistant(text_of(&message_parts)),
        false => request.conversation.push_user(message_parts),
    }
    Ok(())
}

/// Returns the text of a result: "Use "output" key to specify function output and "error" key to
/// specify error details", <https://ai.google.dev/api/caching#FunctionResponse>. The vendor's
/// client for Python writes `result`. A result with other keys is JSON.
fn result_text(output: &Value) -> String {
    let fields = output.as_object().filter(|fields| fields.len() == 1);
    let field = fields.and_then(|fields| fields.iter().next());
    match field.filter(|(name, _)| ["output", "error", "result"].contains(&name.as_str())) {
        Some((_, Value::String(text))) => text.clone(),
        Some((_, value)) => value.to_string(),
        None => output.to_string(),
    }
}

/// The fields whose values contain names of users, or a schema of the usual form.
const KEPT_FIELDS: [&str; 8] = [
    "args",
    "default",
    "enum",
    "example",
    "parametersJsonSchema",
    "required",
    "response",
    "responseJsonSchema",
];

/// Converts the names of all fields to camel case. The vendor accepts both, and its client for
/// Python mixes them. Names that belong to users are kept.
pub(crate) fn with_camel_case(value: Value) -> Value {
    match value {
        Value::Array(list) => list.into_iter().map(with_camel_case).collect(),
        Value::Object(map) => {
            let convert = |(name, value): (String, Value)| {
                let name = camel_case(&name);
                let value = match (name.as_str(), value) {
                    (name, value) if KEPT_FIELDS.contains(&name) => value,
                    ("properties", Value::Object(properties)) => {
                        let inner = |(name, value)| (name, with_camel_case(value));
                        Value::Object(properties.into_iter().map(inner).collect())
                    }
                    (_, value) => with_camel_case(value),
                };
                (name, value)
            };
            Value::Object(map.into_iter().map(convert).collect())
        }
        other => other,
    }
}

fn camel_case(name: &str) -> String {
    let mut parts = name.trim_start_matches('_').split('_');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        out.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        out.push_str(letters.as_str());
    }
    out
}

/// Converts the vendor's own form of a schema, in which types are upper-case words.
fn to_json_schema(schema: Value) -> Value {
    match schema {
        Value::Array(list) => list.into_iter().map(to_json_schema).collect(),
        Value::Object(mut map) => {
            let is_nullable = map.shift_remove("nullable") == Some(Value::Bool(true));
            let mut out = Map::new();
            for (name, value) in map {
                match (name.as_str(), value) {
                    ("type", Value::String(kind)) => {
                        let kind = kind.to_ascii_lowercase();
                        let kind = if is_nullable { json!([kind, "null"]) } else { json!(kind) };
                        out.insert(name, kind);
                    }
                    ("properties", Value::Object(properties)) => {
                        let convert = |(name, value)| (name, to_json_schema(value));
                        let properties: Map<_, _> = properties.into_iter().map(convert).collect();
                        out.insert(name, properties.into());
                    }
                    ("items" | "anyOf", value) => drop(out.insert(name, to_json_schema(value))),
                    ("propertyOrdering" | "example", _) => {}
                    (_, value) => drop(out.insert(name, value)),
                }
            }
            out.into()
        }
        other => other,
    }
}

/// Converts the chunks of a stream to the response that is not streamed.
pub(crate) fn document(chunks: &[Value]) -> Value {
    let mut parts: Vec<Value> = Vec::new();
    let mut document = Value::Null;
    for chunk in chunks {
        let first = &chunk["candidates"][0];
        for part in first["content"]["parts"].as_array().into_iter().flatten() {
            let Some(text) = part["text"].as_str() else {
                parts.push(part.clone());
                continue;
            };
            let is_same =
                |last: &&mut Value| last["text"].is_string() && last["thought"] == part["thought"];
            match parts.last_mut().filter(is_same) {
                Some(last) => append(&mut last["text"], text),
                None if !text.is_empty() => parts.push(part.clone()),
                None => {}
            }
        }
        document = chunk.clone();
    }
    document["candidates"][0]["content"]["parts"] = parts.into();
    document
}
