//! Checks requests to `OpenAI` Responses,
//! <https://platform.openai.com/docs/api-reference/responses/create>.

use std::collections::HashSet;

use serde_json::Value;

use super::openai::{
    MAX_RESPONSES_ID_BYTES, check_call, check_id, check_mentions_json, check_needs_tools,
    check_not_empty, check_output_schema, check_required, check_sampling, check_text, check_tools,
};
use super::options::{check_at_least, check_foreign_fields};
use super::violations::{Violations, as_list, has_text, is_given, repeated_values, text};
use crate::signatures::{SIGNATURE_PREFIX, Signatures};

/// Returns the errors that `OpenAI` would report for the body of a Responses request.
pub(crate) fn openai_responses(body: &Value) -> Vec<String> {
    let mut bad = Violations::default();
    check_options(body, &mut bad);
    // The Responses wire accepts an empty list of tools.
    if !as_list(&body["tools"]).is_empty() || !is_given(body, "tools") {
        check_needs_tools(body, &mut bad);
    }
    check_tools(body, None, &mut bad);
    match &body["input"] {
        Value::String(input) => bad.require(!input.is_empty()).or_push("'input' is empty."),
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                self::check_item(item, body, at, &mut bad);
            }
            // If the vendor stores the conversation, the calls may be in the stored part.
            if !is_given(body, "previous_response_id") && !is_given(body, "conversation") {
                check_call_pairs(items, &mut bad);
            }
            check_reasoning_items(items, &mut bad);
        }
        _ => check_required(false, "input", &mut bad),
    }
    bad.into_list()
}

fn check_options(body: &Value, bad: &mut Violations) {
    check_required(has_text(&body["model"]), "model", bad);
    check_sampling(body, bad);
    check_at_least(body, "max_output_tokens", 16, bad);
    let format = &body["text"]["format"];
    match text(&format["type"]) {
        "json_schema" => check_output_schema(format, "text.format", bad),
        "json_object" => check_mentions_json(&body["input"], "input", bad),
        _ => {}
    }
    check_foreign_fields("openai_responses", body, bad);
    bad.require(!is_given(&body["stream_options"], "include_usage"))
        .or_push("Unknown parameter: 'stream_options.include_usage'.");
}

fn check_item(item: &Value, body: &Value, at: usize, bad: &mut Violations) {
    let place = format!("input[{at}]");
    let kind = match text(&item["type"]) {
        "" if item["role"].is_string() => "message",
        kind => kind,
    };
    let begins = match kind {
        "message" if item["role"] == "assistant" => "msg",
        "function_call" => "fc",
        "reasoning" => "rs",
        _ => "",
    };
    if is_given(item, "id") {
        check_id(&item["id"], MAX_RESPONSES_ID_BYTES, &format!("{place}.id"), bad);
        let id = text(&item["id"]);
        bad.require(id.starts_with(begins)).or_push(format_args!(
            "Invalid '{place}.id': '{id}'. Expected an ID that begins with '{begins}'."
        ));
    }
    // An item without content refers to an item that the vendor has stored.
    let check_stored = |by_itself: bool, bad: &mut Violations| {
        bad.require(by_itself || body["store"] != Value::Bool(false)).or_push(format_args!(
            "Item with id '{}' not found. Items are not persisted when `store` is set to false. \
             Try again with `store` set to true, or remove this item from your input.",
            text(&item["id"])
        ));
    };
    match kind {
        "message" => check_message(item, &place, bad),
        "function_call" => {
            check_id(&item["call_id"], MAX_RESPONSES_ID_BYTES, &format!("{place}.call_id"), bad);
            check_call(item, &place, bad);
        }
        "function_call_output" => {
            check_id(&item["call_id"], MAX_RESPONSES_ID_BYTES, &format!("{place}.call_id"), bad);
            let output = &item["output"];
            check_required(
                output.is_string() || output.is_array(),
                &format!("{place}.output"),
                bad,
            );
        }
        "computer_call" => {
            for field in ["id", "status", "pending_safety_checks"] {
                check_required(is_given(item, field), &format!("{place}.{field}"), bad);
            }
        }
        "mcp_approval_request" => {
            check_required(is_given(item, "id"), &format!("{place}.id"), bad);
        }
        "computer_call_output" => {
            let output = &item["output"];
            let has_screen = is_given(output, "image_url") || is_given(output, "file_id");
            bad.require(output["type"] == "computer_screenshot" && has_screen)
                .or_push(format_args!("Invalid '{place}.output': expected a screenshot."));
        }
        "shell_call_output" => {
            check_required(item["output"].is_array(), &format!("{place}.output"), bad);
        }
        "apply_patch_call_output" => {
            let status = text(&item["status"]);
            bad.require(matches!(status, "completed" | "failed")).or_push(format_args!(
                "Invalid value: '{status}'. Supported values are: 'completed' and 'failed'. \
                 ({place}.status)"
            ));
        }
        "mcp_approval_response" => {
            check_required(item["approve"].is_boolean(), &format!("{place}.approve"), bad);
        }
        "reasoning" => {
            check_required(item["summary"].is_array(), &format!("{place}.summary"), bad);
            check_stored(is_given(item, "encrypted_content"), bad);
        }
        "item_reference" => check_stored(false, bad),
        "" => check_required(false, &format!("{place}.type"), bad),
        // The vendor has many other types of items, which clients send back unchanged.
        _ => {}
    }
}

fn check_message(item: &Value, place: &str, bad: &mut Violations) {
    let role = text(&item["role"]);
    bad.require(matches!(role, "user" | "assistant" | "system" | "developer")).or_push(format_args!(
        "Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and \
         'user'. ({place}.role)"
    ));
    let known: &[&str] = match role {
        "assistant" => &["output_text", "refusal"],
        _ => &["input_text", "input_image", "input_file", "input_audio"],
    };
    match &item["content"] {
        Value::String(_) => {}
        Value::Array(parts) => {
            check_not_empty(!parts.is_empty(), &format!("{place}.content"), bad);
            for (index, part) in parts.iter().enumerate() {
                let kind = text(&part["type"]);
                let place = format!("{place}.content[{index}]");
                bad.require(known.contains(&kind)).or_push(format_args!(
                    "Invalid value: '{kind}'. Supported values are: {known:?}. ({place}.type)"
                ));
                if kind == "input_text" {
                    check_text(part, &place, bad);
                }
            }
        }
        _ => check_required(false, &format!("{place}.content"), bad),
    }
}

/// Checks that every call is followed by exactly one output, and that every output follows its
/// call.
fn check_call_pairs(items: &[Value], bad: &mut Violations) {
    let mut called = HashSet::new();
    let mut answered = HashSet::new();
    for item in items {
        let id = text(&item["call_id"]);
        match text(&item["type"]) {
            "function_call" => bad
                .require(called.insert(id))
                .or_push(format_args!("Duplicate function call found with call_id {id}.")),
            "function_call_output" => {
                bad.require(called.contains(id)).or_push(format_args!(
                    "No tool call found for function call output with call_id {id}."
                ));
                bad.require(answered.insert(id)).or_push(format_args!(
                    "Duplicate function call output found with call_id {id}."
                ));
            }
            _ => {}
        }
    }
    let calls = items.iter().filter(|item| item["type"] == "function_call");
    for id in calls.map(|call| text(&call["call_id"])).filter(|id| !answered.contains(id)) {
        bad.push(format_args!("No tool output found for function call {id}."));
    }
    check_client_calls(items, bad);
    let ids = items.iter().filter_map(|item| item["id"].as_str());
    for id in repeated_values(ids) {
        bad.push(format_args!(
            "Duplicate item found with id {id}. Remove duplicate items from your input and try \
             again."
        ));
    }
}

/// Checks that every call that the client must answer, other than a function call, is followed by
/// exactly one answer, and that every answer follows its call.
fn check_client_calls(items: &[Value], bad: &mut Violations) {
    let mut open: Vec<(&str, &str)> = Vec::new();
    let mut approval_requests = HashSet::new();
    for item in items {
        let kind = text(&item["type"]);
        match kind {
            "mcp_approval_request" => drop(approval_requests.insert(text(&item["id"]))),
            "mcp_call" => {
                let id = text(&item["approval_request_id"]);
                bad.require(id.is_empty() || approval_requests.contains(id)).or_push(format_args!(
                    "No mcp_approval_request found for mcp_call with id {id}."
                ));
            }
            _ => {}
        }
        let id = match kind {
            "mcp_approval_request" => text(&item["id"]),
            "mcp_approval_response" => text(&item["approval_request_id"]),
            _ => text(&item["call_id"]),
        };
        let answered = match kind {
            "shell_call" if item["environment"]["type"] == "container_reference" => continue,
            "shell_call" | "apply_patch_call" | "computer_call" | "mcp_approval_request" => {
                open.push((kind, id));
                continue;
            }
            "shell_call_output" | "apply_patch_call_output" | "computer_call_output" => {
                (kind.trim_end_matches("_output"), id)
            }
            "mcp_approval_response" => ("mcp_approval_request", id),
            _ => continue,
        };
        match open.iter().position(|call| *call == answered) {
            Some(at) => drop(open.swap_remove(at)),
            // The server answers the calls in its own container.
            None if kind == "shell_call_output" && is_given(item, "id") => {}
            None => {
                let (call, id) = answered;
                bad.push(format_args!("No {call} found for {kind} with id {id}."));
            }
        }
    }
    for (kind, id) in open {
        bad.push(format_args!("No tool output found for {kind} {id}."));
    }
}

/// Checks that every reasoning item is followed by an item of another kind from the model.
fn check_reasoning_items(items: &[Value], bad: &mut Violations) {
    for (at, item) in items.iter().enumerate().filter(|(_, item)| item["type"] == "reasoning") {
        let next = items[at + 1..].iter().find(|next| next["type"] != "reasoning");
        let followed = next.is_some_and(|next| match text(&next["type"]) {
            "" | "message" => next["role"] == "assistant",
            "function_call_output"
            | "shell_call_output"
            | "apply_patch_call_output"
            | "computer_call_output"
            | "mcp_approval_response" => false,
            _ => true,
        });
        bad.require(followed).or_push(format_args!(
            "Item '{}' of type 'reasoning' was provided without its required following item. \
             (input[{at}])",
            text(&item["id"])
        ));
    }
}

/// Returns the errors that the vendor would report for the signatures in a request.
pub(crate) fn check_signatures(known: &Signatures, body: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    let items = as_list(&body["input"]);
    for item in items {
        let id = text(&item["id"]);
        if let Some(encrypted) = item["encrypted_content"].as_str()
            && item["type"] == "reasoning"
            && !known.is_issued_for(encrypted, id)
            // Encrypted content without an item id is checked on its own.
            && !(id.is_empty() && (encrypted.starts_with(SIGNATURE_PREFIX) || known.was_issued(encrypted)))
        {
            bad.push(format!(
                "The encrypted content {encrypted:.12}... could not be verified. Reason: Encrypted \
                 content could not be decrypted or parsed."
            ));
        }
        if let Some(reasoning) = known.signed_reasoning_before(id)
            && !items.iter().any(|item| {
                item["type"] == "reasoning" && (item["id"].is_null() || item["id"] == *reasoning)
            })
        {
            bad.push(format!(
                "Item '{id}' of type '{}' was provided without its required 'reasoning' item: \
                 '{reasoning}'.",
                text(&item["type"])
            ));
        }
    }
    bad
}
