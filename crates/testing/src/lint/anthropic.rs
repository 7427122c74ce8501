//! Checks requests to Anthropic Messages, <https://docs.anthropic.com/en/api/messages>.

use serde_json::Value;

use super::options::check_foreign_fields;
use super::schema::{check_anthropic_output, check_anthropic_parameters};
use super::violations::{
    Violations, as_list, has_text, is_blank, is_given, is_plain_name, nested_elements,
    repeated_values, set_fields, text,
};
use crate::signatures::Signatures;

/// Returns the errors that Anthropic would report for a request's body.
///
/// This check is slightly stricter than Anthropic's own check. Anthropic merges consecutive
/// messages with the same role, but this check rejects them, as do some compatible servers.
pub(crate) fn anthropic(body: &Value) -> Vec<String> {
    let mut bad = Violations::default();
    check_options(body, &mut bad);
    check_tools(body, &mut bad);
    if let Value::Array(system) = &body["system"] {
        for (at, block) in system.iter().enumerate() {
            self::check_block(block, &format!("system.{at}"), &mut bad);
        }
    }
    let messages = as_list(&body["messages"]);
    bad.require(!messages.is_empty()).or_push("messages: at least one message is required");
    for (at, message) in messages.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| messages.get(at));
        self::check_message(message, before, at, at + 1 == messages.len(), &mut bad);
        check_calls_answered(message, messages.get(at + 1), at, &mut bad);
        check_results(message, before, at, &mut bad);
    }
    check_server_tool_results(body, messages, &mut bad);
    let ids = messages.iter().flat_map(|m| blocks_of_type(m, "tool_use")).map(|b| text(&b["id"]));
    for id in repeated_values(ids) {
        bad.push(format_args!("messages: `tool_use` ids must be unique: {id}"));
    }
    check_cache_marks(body, &mut bad);
    bad.into_list()
}

fn check_options(body: &Value, bad: &mut Violations) {
    bad.require(has_text(&body["model"])).or_push("model: Field required");
    let limit = body["max_tokens"].as_u64().unwrap_or(0);
    bad.require(limit > 0).or_push("max_tokens: Field required, greater than or equal to 1");
    let temperature = body["temperature"].as_f64();
    bad.require(temperature.is_none_or(|t| (0.0..=1.0).contains(&t)))
        .or_push("temperature: range: 0..1");
    for stop in as_list(&body["stop_sequences"]) {
        bad.require(!is_blank(text(stop)))
            .or_push("stop_sequences: each stop sequence must contain non-whitespace");
    }
    let thinking = &body["thinking"];
    if thinking["type"] == "enabled" {
        let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
        bad.require(budget >= 1024).or_push(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        );
        bad.require(budget < limit)
            .or_push("`max_tokens` must be greater than `thinking.budget_tokens`");
    }
    if matches!(text(&thinking["type"]), "enabled" | "adaptive") {
        bad.require(temperature.is_none_or(|t| (t - 1.0).abs() < f64::EPSILON))
            .or_push("`temperature` may only be set to 1 when thinking is enabled");
        bad.require(!is_given(body, "top_k"))
            .or_push("`top_k` must be unset when thinking is enabled");
        bad.require(!matches!(text(&body["tool_choice"]["type"]), "any" | "tool"))
            .or_push("Thinking may not be enabled when tool_choice forces tool use.");
    }
    for (field, _) in set_fields(&body["metadata"]).filter(|(field, _)| *field != "user_id") {
        bad.push(format_args!("metadata.{field}: Extra inputs are not permitted"));
    }
    let format = &body["output_config"]["format"];
    check_anthropic_output(&format["schema"], "output_config.format.schema", bad);
    check_foreign_fields("anthropic", body, bad);
}

/// Reports a missing required field.
fn check_required(is_there: bool, place: &str, bad: &mut Violations) {
    bad.require(is_there).or_push(format_args!("{place}: Field required"));
}

fn check_text(string: &str, place: &str, bad: &mut Violations) {
    bad.require(!is_blank(string))
        .or_push(format_args!("{place}: text content blocks must contain non-whitespace text"));
}

fn check_name(name: &str, place: &str, bad: &mut Violations) {
    bad.require(is_plain_name(name, 128))
        .or_push(format_args!("{place}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"));
}

fn is_deferred(tool: &Value) -> bool {
    tool["defer_loading"] == Value::Bool(true)
}

/// Returns whether a declaration stands for all tools of an MCP server.
fn is_mcp_toolset(tool: &Value) -> bool {
    tool["type"] == "mcp_toolset"
}

/// Checks that all tools found by a tool search are among the request's tools.
fn check_tool_references(body: &Value, bad: &mut Violations) {
    let messages = as_list(&body["messages"]).iter();
    let results = messages.flat_map(|message| blocks_of_type(message, "tool_search_tool_result"));
    let found = results.flat_map(|result| as_list(&result["content"]["tool_references"]));
    for name in found.map(|found| text(&found["tool_name"])) {
        let is_known = as_list(&body["tools"]).iter().any(|tool| tool["name"] == name);
        bad.require(is_known)
            .or_push(format_args!("Tool reference '{name}' has no corresponding tool definition"));
    }
}

fn check_tools(body: &Value, bad: &mut Violations) {
    let tools = as_list(&body["tools"]);
    for (at, tool) in tools.iter().enumerate() {
        if is_mcp_toolset(tool) {
            let server = &tool["mcp_server_name"];
            let is_known = as_list(&body["mcp_servers"]).iter().any(|it| it["name"] == *server);
            bad.require(is_known).or_push(format_args!(
                "tools.{at}: MCP server '{}' not found in mcp_servers",
                text(server)
            ));
            continue;
        }
        let name = text(&tool["name"]);
        check_name(name, &format!("tools.{at}.custom.name"), bad);
        // The vendor's own tools have a type and no schema.
        if tool.get("type").is_none_or(|kind| kind == "custom") {
            let is_object = tool["input_schema"]["type"] == "object";
            check_required(is_object, &format!("tools.{at}.custom.input_schema.type"), bad);
            let place = format!("tools.{at}.custom.input_schema");
            check_anthropic_parameters(&tool["input_schema"], &place, bad);
        }
        bad.require(!is_deferred(tool) || !is_given(tool, "cache_control")).or_push(format_args!(
            "tools.{at}: Tool '{name}' cannot have both defer_loading=true and cache_control set"
        ));
    }
    bad.require(tools.is_empty() || !tools.iter().all(is_deferred))
        .or_push("At least one tool must have defer_loading=false");
    check_tool_references(body, bad);
    let named = tools.iter().filter(|tool| !is_mcp_toolset(tool));
    for name in repeated_values(named.map(|tool| text(&tool["name"]))) {
        bad.push(format_args!("tools: Tool names must be unique: {name}"));
    }
    let choice = &body["tool_choice"];
    if is_given(body, "tool_choice") {
        bad.require(!tools.is_empty())
            .or_push("tool_choice: may only be specified while providing tools");
        let name = text(&choice["name"]);
        let known = tools.iter().any(|tool| tool["name"] == name);
        bad.require(choice["type"] != "tool" || known)
            .or_push(format_args!("Tool '{name}' not found in provided tools"));
    }
    let messages = as_list(&body["messages"]).iter();
    let mut used = messages
        .flat_map(|m| blocks_of_type(m, "tool_use").chain(blocks_of_type(m, "tool_result")));
    bad.require(!tools.is_empty() || used.next().is_none())
        .or_push("Requests which include `tool_use` or `tool_result` blocks must define tools");
}

fn check_message(
    message: &Value,
    before: Option<&Value>,
    at: usize,
    last: bool,
    bad: &mut Violations,
) {
    let role = text(&message["role"]);
    bad.require(matches!(role, "user" | "assistant"))
        .or_push(format_args!("messages.{at}.role: Input should be 'user' or 'assistant'"));
    match before {
        Some(before) => bad.require(before["role"] != role).or_push(format_args!(
            "messages.{at}: roles must alternate between \"user\" and \"assistant\", but found \
             multiple \"{role}\" roles in a row"
        )),
        None => {
            bad.require(role == "user")
                .or_push("messages: first message must use the \"user\" role");
        }
    }
    let content = &message["content"];
    let blocks = as_list(content);
    match content {
        Value::String(string) => check_text(string, &format!("messages.{at}"), bad),
        Value::Array(_) => {
            bad.require(!blocks.is_empty() || (last && role == "assistant")).or_push(format_args!(
                "messages.{at}: all messages must have non-empty content except for the optional \
                 final assistant message"
            ));
        }
        _ => bad.push(format_args!("messages.{at}.content: Field required")),
    }
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("messages.{at}.content.{index}");
        self::check_block(block, &place, bad);
        self::check_block_role(block, role, &place, bad);
    }
    if role == "assistant" {
        bad.require(blocks.last().is_none_or(|block| !is_thinking(block))).or_push(format_args!(
            "messages.{at}: The final block in an assistant message cannot be `thinking`."
        ));
        let end = content.as_str().or_else(|| blocks.last().and_then(|b| b["text"].as_str()));
        bad.require(!last || end.is_none_or(|end| end.trim_end() == end))
            .or_push("messages: final assistant content cannot end with trailing whitespace");
    }
}

/// Checks that a block is allowed in a message with this role.
fn check_block_role(block: &Value, role: &str, place: &str, bad: &mut Violations) {
    let kind = text(&block["type"]);
    let owner = match kind {
        "tool_use" | "thinking" | "redacted_thinking" => "assistant",
        "tool_result" | "image" | "document" => "user",
        _ => return,
    };
    bad.require(role == owner)
        .or_push(format_args!("{place}: `{kind}` blocks can only be in `{owner}` messages"));
}

fn check_block(block: &Value, place: &str, bad: &mut Violations) {
    match text(&block["type"]) {
        "text" => check_text(text(&block["text"]), place, bad),
        "thinking" => {
            check_required(block["thinking"].is_string(), &format!("{place}.thinking"), bad);
            check_required(
                has_text(&block["signature"]),
                &format!("{place}.thinking.signature"),
                bad,
            );
        }
        "redacted_thinking" => {
            check_required(
                has_text(&block["data"]),
                &format!("{place}.redacted_thinking.data"),
                bad,
            );
        }
        "tool_use" => {
            let id = text(&block["id"]);
            bad.require(is_plain_name(id, 64)).or_push(format_args!(
                "{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$': {id}"
            ));
            check_name(text(&block["name"]), &format!("{place}.tool_use.name"), bad);
            bad.require(block["input"].is_object()).or_push(format_args!(
                "{place}.tool_use.input: Input should be a valid dictionary"
            ));
        }
        "tool_result" => {
            let content = &block["content"];
            let empty = match content {
                Value::String(string) => string.is_empty(),
                content => as_list(content).is_empty(),
            };
            bad.require(!empty || block["is_error"] != Value::Bool(true))
                .or_push(format_args!("{place}: content cannot be empty if `is_error` is true"));
            for (index, inner) in as_list(content).iter().enumerate() {
                self::check_block(inner, &format!("{place}.content.{index}"), bad);
            }
        }
        "image" | "document" => {
            check_required(block["source"].is_object(), &format!("{place}.source"), bad);
        }
        "" => bad.push(format_args!("{place}.type: Field required")),
        // The vendor has many other types of blocks, which clients send back unchanged.
        _ => {}
    }
}

/// Checks that every tool call in a message is answered in the next message.
fn check_calls_answered(message: &Value, next: Option<&Value>, at: usize, bad: &mut Violations) {
    let calls = block_field_values(Some(message), "tool_use", "id");
    if calls.is_empty() {
        return;
    }
    let answered = block_field_values(next, "tool_result", "tool_use_id");
    let open: Vec<&str> = calls.into_iter().filter(|id| !answered.contains(id)).collect();
    bad.require(open.is_empty()).or_push(format_args!(
        "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: \
         {}. Each `tool_use` block must have a corresponding `tool_result` block in the next \
         message.",
        open.join(", ")
    ));
    // The vendor reportedly rejects text and thinking after a call.
    let kinds = as_list(&message["content"]).iter().map(|block| text(&block["type"]));
    let mut behind = kinds.skip_while(|kind| *kind != "tool_use");
    let late = behind.find(|kind| matches!(*kind, "text" | "thinking" | "redacted_thinking"));
    if let Some(late) = late {
        bad.push(format_args!("messages.{at}: a `{late}` block follows a `tool_use` block"));
    }
}

/// Checks that every result answers a call from the previous message, that no call is answered
/// twice, and that results come first in their message.
fn check_results(message: &Value, before: Option<&Value>, at: usize, bad: &mut Violations) {
    let results = block_field_values(Some(message), "tool_result", "tool_use_id");
    let called = block_field_values(before, "tool_use", "id");
    for id in results.iter().filter(|id| !called.contains(id)) {
        bad.push(format_args!(
            "messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each \
             `tool_result` block must have a corresponding `tool_use` block in the previous \
             message."
        ));
    }
    for id in repeated_values(results) {
        bad.push(format_args!(
            "messages.{at}: each tool_use must have a single result. Found multiple `tool_result` \
             blocks with id: {id}"
        ));
    }
    let blocks = as_list(&message["content"]).iter();
    bad.require(blocks.is_sorted_by_key(|block| block["type"] != "tool_result"))
        .or_push(format_args!("messages.{at}: `tool_result` blocks must come first in a message"));
}

/// Checks the results of server tools, which the vendor runs. A result may follow in a later
/// assistant message, provided that any user messages in between contain only results from other
/// tools. If the request offers no server tools, the vendor does not continue an unfinished server
/// tool use after the last message.
fn check_server_tool_results(body: &Value, messages: &[Value], bad: &mut Violations) {
    let kinds = as_list(&body["tools"]).iter().filter_map(|tool| tool["type"].as_str());
    let offered =
        kinds.filter(|kind| *kind != "custom").count() + as_list(&body["mcp_servers"]).len();
    let mut open: Vec<(usize, &str)> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let blocks = as_list(&message["content"]);
        if message["role"] == "user" {
            let is_result = |block: &Value| block["type"] == "tool_result";
            let ends = offered == 0 && at + 1 == messages.len();
            if ends || !message["content"].is_array() || !blocks.iter().all(is_result) {
                for (at, id) in open.drain(..) {
                    bad.push(format_args!(
                        "messages.{at}: server tool use with id '{id}' was found without a \
                         corresponding result block"
                    ));
                }
            }
            continue;
        }
        for block in blocks {
            let kind = text(&block["type"]);
            if kind.ends_with("_tool_use") {
                open.push((at, text(&block["id"])));
            } else if kind.ends_with("_tool_result") {
                let id = text(&block["tool_use_id"]);
                match open.iter().position(|(_, used)| *used == id) {
                    Some(used) => drop(open.remove(used)),
                    None => bad.push(format_args!(
                        "messages.{at}: unexpected `tool_use_id` found in `{kind}` blocks: {id}. \
                         Each `{kind}` block must have a corresponding `server_tool_use` block \
                         before it."
                    )),
                }
            }
        }
    }
}

fn check_cache_marks(body: &Value, bad: &mut Violations) {
    let messages =
        as_list(&body["messages"]).iter().flat_map(|message| as_list(&message["content"]));
    let nested = messages.clone().flat_map(|block| as_list(&block["content"]));
    let all = as_list(&body["tools"])
        .iter()
        .chain(as_list(&body["system"]))
        .chain(messages)
        .chain(nested);
    let marked: Vec<&Value> = all.filter(|block| is_given(block, "cache_control")).collect();
    bad.require(marked.len() <= 4).or_push(format_args!(
        "A maximum of 4 blocks with cache_control may be provided. Found {}.",
        marked.len()
    ));
    for block in &marked {
        bad.require(!is_thinking(block)).or_push("cache_control cannot be set for thinking blocks");
    }
    bad.require(marked.is_sorted_by_key(|block| block["cache_control"]["ttl"] != "1h")).or_push(
        "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block",
    );
}

fn blocks_of_type<'a>(message: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    as_list(&message["content"]).iter().filter(move |block| block["type"] == kind)
}

/// Returns the values of a field from all blocks of type `kind`.
fn block_field_values<'a>(
    message: Option<&'a Value>,
    kind: &'a str,
    field: &'a str,
) -> Vec<&'a str> {
    let blocks = message.into_iter().flat_map(|message| blocks_of_type(message, kind));
    blocks.map(|block| text(&block[field])).collect()
}

fn is_thinking(block: &Value) -> bool {
    matches!(text(&block["type"]), "thinking" | "redacted_thinking")
}

/// Returns the errors that the vendor would report for the signatures in a request.
pub(crate) fn check_signatures(known: &Signatures, body: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    for (at, index, block) in nested_elements(&body["messages"], "content") {
        let (proof, string) = match text(&block["type"]) {
            "thinking" => ("signature", text(&block["thinking"])),
            "redacted_thinking" => ("data", ""),
            _ => continue,
        };
        if !known.is_issued_for(text(&block[proof]), string) {
            let kind = text(&block["type"]);
            bad.push(format!("messages.{at}.content.{index}: Invalid `{proof}` in `{kind}` block"));
        }
    }
    bad
}
