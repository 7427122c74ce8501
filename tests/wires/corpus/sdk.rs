//! Our result and the vendor SDK's result for the same bytes, in the same format.

use serde_json::{Map, Value, json};
use turnstream::Usage;
use turnstream::item::{Item, ItemKind, ToolCall};
use turnstream::turn::{ReasoningKind, Turn, TurnEvent};

use super::partial_args;
use super::recording::{DecodedStream, Recording, Wire};

/// The fields that differ, with their actual and expected values.
pub(crate) fn differing_fields(
    recording: &Recording,
    reading: &DecodedStream,
) -> Vec<(String, Value, Value)> {
    let (Value::Object(found), Value::Object(mut expected)) =
        (decoded_fields(recording.wire, reading), expected_fields(recording))
    else {
        unreachable!("both are written as objects")
    };
    found
        .into_iter()
        .filter_map(|(field, found)| {
            let expected = expected.shift_remove(&field).unwrap_or_default();
            (found != expected).then_some((field, found, expected))
        })
        .collect()
}

/// Our result, in the format of `expect.json`.
fn decoded_fields(wire: Wire, reading: &DecodedStream) -> Value {
    let (mut text, mut refusal) = (String::new(), String::new());
    let (mut reasoning, mut summary) = (String::new(), String::new());
    for event in reading.events() {
        match event {
            TurnEvent::TextDelta { text: piece, .. } => text.push_str(piece),
            TurnEvent::RefusalDelta { text: piece, .. } => refusal.push_str(piece),
            TurnEvent::ReasoningDelta { text: piece, kind, .. } => match kind {
                ReasoningKind::Trace => reasoning.push_str(piece),
                ReasoningKind::Summary => summary.push_str(piece),
            },
            TurnEvent::Retracted { .. } => {
                for said in [&mut text, &mut refusal, &mut reasoning, &mut summary] {
                    said.clear();
                }
            }
            _ => {}
        }
    }
    let fold = reading.to_partial_turn();
    let turn = reading.turn();
    let items = turn.map_or_else(|| fold.items(), |turn| turn.items().to_vec());
    let calls = items.iter().filter(|item| item.as_tool_call().is_some());
    let mut out = json!({
        "complete": turn.is_some(),
        "text": text,
        "reasoning": reasoning,
        "tool_calls": calls.map(|item| decoded_call(wire, item)).collect::<Vec<_>>(),
        "finish_reason": turn.and_then(Turn::raw_stop_reason),
        "usage": turn.map_or_else(|| fold.usage(), Turn::usage),
    });
    match wire {
        Wire::Anthropic => {
            out["server_tool_calls"] = items.iter().filter_map(server_tool_call).collect();
            out["signatures"] = count_provider_data(&items, |data| data["signature"].is_string());
            out["redacted_thinking"] =
                count_provider_data(&items, |data| data["type"] == "redacted_thinking");
        }
        Wire::OpenAiChat => out["refusal"] = refusal.into(),
        Wire::OpenAiResponses => {
            out["refusal"] = refusal.into();
            // Parts of a summary are separated by blank lines.
            out["reasoning_summary"] = summary.replace("\n\n", "").into();
            out["custom_tool_calls"] = items.iter().filter_map(custom_tool_call).collect();
            out["encrypted_reasoning"] =
                count_provider_data(&items, |data| data["encrypted_content"].is_string());
            out["item_types"] = items.iter().map(item_type).collect();
        }
        Wire::Gemini => {
            out["reasoning"] = (reasoning + &summary).into();
            let signed = |data: &Value| data.to_string().contains("\"thoughtSignature\"");
            out["thought_signatures"] = count_provider_data(&items, signed);
        }
    }
    out
}

/// The SDK's result. If the SDK fails with an error, it has no finished turn.
fn expected_fields(recording: &Recording) -> Value {
    let expect = &recording.expected;
    let whole = expect.get("stream_error").is_none();
    let words = |field: &str| expect[field].as_str().unwrap_or_default();
    let calls = |field: &str| match &expect[field] {
        Value::Array(calls) => calls.iter().cloned().map(without_nulls).collect(),
        _ => Vec::new(),
    };
    let number = |field: &str| expect[field].as_u64().unwrap_or_default();
    let mut out = json!({
        "complete": whole && expect["complete"] == true,
        "text": words("text"),
        "reasoning": words("reasoning"),
        "refusal": words("refusal"),
        "tool_calls": calls("tool_calls"),
        "server_tool_calls": calls("server_tool_calls"),
        "finish_reason": expect["finish_reason"].as_str().filter(|_| whole),
        "usage": expected_usage(recording.wire, &expect["usage"]),
    });
    match recording.wire {
        Wire::OpenAiChat => {}
        Wire::Anthropic => {
            out["signatures"] = number("signatures").into();
            out["redacted_thinking"] = number("redacted_thinking").into();
        }
        Wire::OpenAiResponses => {
            out["reasoning"] = words("reasoning_text").into();
            out["reasoning_summary"] = words("reasoning_summary").replace("\n\n", "").into();
            out["tool_calls"] = calls("tool_calls").into_iter().map(without_item_id).collect();
            out["custom_tool_calls"] = calls("custom_tool_calls").into();
            out["encrypted_reasoning"] = number("encrypted_reasoning").into();
            out["item_types"] = expect["item_types"].clone();
        }
        Wire::Gemini => {
            out["tool_calls"] = partial_args::assemble_calls(calls("tool_calls")).into();
            out["thought_signatures"] = number("thought_signatures").into();
        }
    }
    out
}

/// The expectations leave out null values, also inside arguments.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

fn without_item_id(mut call: Value) -> Value {
    if let Some(call) = call.as_object_mut() {
        call.shift_remove("item_id");
    }
    call
}

fn count_provider_data(items: &[Item], is: impl Fn(&Value) -> bool) -> Value {
    let data = items.iter().filter_map(|item| item.provider_data.as_ref());
    data.filter(|data| is(&data.value.to_value())).count().into()
}

/// Arguments that are not an object are left out, as the SDKs do.
fn decoded_call(wire: Wire, item: &Item) -> Value {
    let Some(call) = item.as_tool_call() else { return Value::Null };
    let data = item.provider_data.as_ref().map(|data| data.value.to_value()).unwrap_or_default();
    let wire_id = data["wire_id"].as_str().unwrap_or(&call.call_id);
    let mut out = json!({ "name": call.name });
    if !wire_id.is_empty() {
        out["id"] = wire_id.into();
    }
    let arguments = match wire {
        Wire::Anthropic | Wire::Gemini => call.arguments_or_empty_object(),
        Wire::OpenAiChat | Wire::OpenAiResponses => {
            out["arguments_raw"] = call.arguments.as_str().into();
            &call.arguments
        }
    };
    if let Ok(arguments) = serde_json::from_str::<Map<String, Value>>(arguments) {
        out["arguments"] = arguments.into();
    }
    without_nulls(out)
}

/// A call that the provider executes itself, kept verbatim.
fn server_tool_call(item: &Item) -> Option<Value> {
    let block = provider_item_value(item)?;
    let is_call = matches!(block["type"].as_str(), Some("server_tool_use" | "mcp_tool_use"));
    let call = json!({ "id": block["id"], "name": block["name"], "arguments": block["input"] });
    is_call.then(|| without_nulls(call))
}

/// A call of a tool that takes text, kept verbatim.
fn custom_tool_call(item: &Item) -> Option<Value> {
    let own = provider_item_value(item).filter(|own| own["type"] == "custom_tool_call")?;
    Some(without_nulls(json!({
        "id": own["call_id"], "item_id": own["id"], "name": own["name"], "input": own["input"],
    })))
}

fn item_type(item: &Item) -> Value {
    match &item.kind {
        ItemKind::Text { .. } => "message".into(),
        ItemKind::Reasoning { .. } => "reasoning".into(),
        ItemKind::ToolCall(ToolCall { .. }) => "function_call".into(),
        _ => provider_item_value(item).map(|own| own["type"].clone()).unwrap_or_default(),
    }
}

fn provider_item_value(item: &Item) -> Option<Value> {
    let data = item.provider_data.as_ref().filter(|_| item.kind == ItemKind::Other)?;
    Some(data.value.to_value())
}

/// The formulas are those of the documentation of [`Usage`].
fn expected_usage(wire: Wire, usage: &Value) -> Usage {
    let count = |pointer| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    match wire {
        Wire::Anthropic => {
            let cache_read_input_tokens = count("/cache_read_input_tokens");
            let cache_write_input_tokens = count("/cache_creation_input_tokens");
            Usage {
                input_tokens: count("/input_tokens")
                    + cache_read_input_tokens
                    + cache_write_input_tokens,
                output_tokens: count("/output_tokens"),
                cache_read_input_tokens,
                cache_write_input_tokens,
                reasoning_tokens: count("/output_tokens_details/thinking_tokens"),
                cache_write_1h_input_tokens: count("/cache_creation/ephemeral_1h_input_tokens"),
                ..Usage::default()
            }
        }
        Wire::OpenAiChat => Usage {
            input_tokens: count("/prompt_tokens"),
            // If text and reasoning tokens are counted separately and add up to the total, the
            // output is their sum.
            output_tokens: {
                let (said, reasoned) =
                    ("/completion_tokens", "/completion_tokens_details/reasoning_tokens");
                let apart = count("/prompt_tokens") + count(said) + count(reasoned);
                let is_apart = count("/total_tokens") == apart;
                count(said) + if is_apart { count(reasoned) } else { 0 }
            },
            cache_read_input_tokens: count("/prompt_tokens_details/cached_tokens"),
            cache_write_input_tokens: count("/prompt_tokens_details/cache_write_tokens"),
            reasoning_tokens: count("/completion_tokens_details/reasoning_tokens"),
            ..Usage::default()
        },
        Wire::OpenAiResponses => Usage {
            input_tokens: count("/input_tokens"),
            output_tokens: count("/output_tokens"),
            cache_read_input_tokens: count("/input_tokens_details/cached_tokens"),
            cache_write_input_tokens: count("/input_tokens_details/cache_write_tokens"),
            reasoning_tokens: count("/output_tokens_details/reasoning_tokens"),
            ..Usage::default()
        },
        Wire::Gemini => Usage {
            input_tokens: count("/prompt_token_count") + count("/tool_use_prompt_token_count"),
            output_tokens: count("/candidates_token_count") + count("/thoughts_token_count"),
            cache_read_input_tokens: count("/cached_content_token_count"),
            reasoning_tokens: count("/thoughts_token_count"),
            ..Usage::default()
        },
    }
}
