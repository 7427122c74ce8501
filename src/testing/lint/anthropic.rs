//! Anthropic Messages, <https://docs.anthropic.com/en/api/messages>.

use serde_json::Value;

use super::options::of_other_wires;
use super::violations::{
    Complaints, given, has_text, inner, is_blank, is_given, is_plain, list, repeated, text,
};
use crate::testing::signatures::Signatures;

/// What Anthropic objects to in the body of a request.
///
/// It is a little stricter than the vendor: two messages of one role in a row are refused, too,
/// which the vendor joins, and others that speak its wire refuse.
pub(in crate::testing) fn anthropic(body: &Value) -> Vec<String> {
    let mut bad = Complaints::default();
    options(body, &mut bad);
    tools(body, &mut bad);
    if let Value::Array(system) = &body["system"] {
        for (at, block) in system.iter().enumerate() {
            self::block(block, &format!("system.{at}"), &mut bad);
        }
    }
    let messages = list(&body["messages"]);
    bad.unless(!messages.is_empty()).add("messages: at least one message is required");
    for (at, message) in messages.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| messages.get(at));
        self::message(message, before, at, at + 1 == messages.len(), &mut bad);
        calls(message, messages.get(at + 1), at, &mut bad);
        results(message, before, at, &mut bad);
    }
    native(body, messages, &mut bad);
    let ids = messages.iter().flat_map(|m| blocks(m, "tool_use")).map(|b| text(&b["id"]));
    for id in repeated(ids) {
        bad.add(format_args!("messages: `tool_use` ids must be unique: {id}"));
    }
    caches(body, &mut bad);
    bad.into_list()
}

fn options(body: &Value, bad: &mut Complaints) {
    bad.unless(has_text(&body["model"])).add("model: Field required");
    let limit = body["max_tokens"].as_u64().unwrap_or(0);
    bad.unless(limit > 0).add("max_tokens: Field required, greater than or equal to 1");
    let temperature = body["temperature"].as_f64();
    bad.unless(temperature.is_none_or(|t| (0.0..=1.0).contains(&t)))
        .add("temperature: range: 0..1");
    for stop in list(&body["stop_sequences"]) {
        bad.unless(!is_blank(text(stop)))
            .add("stop_sequences: each stop sequence must contain non-whitespace");
    }
    let thinking = &body["thinking"];
    if thinking["type"] == "enabled" {
        let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
        bad.unless(budget >= 1024)
            .add("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024");
        bad.unless(budget < limit)
            .add("`max_tokens` must be greater than `thinking.budget_tokens`");
    }
    if matches!(text(&thinking["type"]), "enabled" | "adaptive") {
        bad.unless(temperature.is_none_or(|t| (t - 1.0).abs() < f64::EPSILON))
            .add("`temperature` may only be set to 1 when thinking is enabled");
        bad.unless(!is_given(body, "top_k")).add("`top_k` must be unset when thinking is enabled");
        bad.unless(!matches!(text(&body["tool_choice"]["type"]), "any" | "tool"))
            .add("Thinking may not be enabled when tool_choice forces tool use.");
    }
    for (field, _) in given(&body["metadata"]).filter(|(field, _)| *field != "user_id") {
        bad.add(format_args!("metadata.{field}: Extra inputs are not permitted"));
    }
    of_other_wires("anthropic", body, bad);
}

/// Complains of a field that must be there, and is not.
fn required(is_there: bool, place: &str, bad: &mut Complaints) {
    bad.unless(is_there).add(format_args!("{place}: Field required"));
}

fn check_text(said: &str, place: &str, bad: &mut Complaints) {
    bad.unless(!is_blank(said))
        .add(format_args!("{place}: text content blocks must contain non-whitespace text"));
}

fn check_name(name: &str, place: &str, bad: &mut Complaints) {
    bad.unless(is_plain(name, 128))
        .add(format_args!("{place}: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"));
}

fn tools(body: &Value, bad: &mut Complaints) {
    let tools = list(&body["tools"]);
    for (at, tool) in tools.iter().enumerate() {
        let name = text(&tool["name"]);
        check_name(name, &format!("tools.{at}.custom.name"), bad);
        // Tools of the vendor have a type and no schema.
        if tool.get("type").is_none_or(|kind| kind == "custom") {
            let is_object = tool["input_schema"]["type"] == "object";
            required(is_object, &format!("tools.{at}.custom.input_schema.type"), bad);
        }
    }
    for name in repeated(tools.iter().map(|tool| text(&tool["name"]))) {
        bad.add(format_args!("tools: Tool names must be unique: {name}"));
    }
    let choice = &body["tool_choice"];
    if is_given(body, "tool_choice") {
        bad.unless(!tools.is_empty())
            .add("tool_choice: may only be specified while providing tools");
        let name = text(&choice["name"]);
        let known = tools.iter().any(|tool| tool["name"] == name);
        bad.unless(choice["type"] != "tool" || known)
            .add(format_args!("Tool '{name}' not found in provided tools"));
    }
    let messages = list(&body["messages"]).iter();
    let mut used = messages.flat_map(|m| blocks(m, "tool_use").chain(blocks(m, "tool_result")));
    bad.unless(!tools.is_empty() || used.next().is_none())
        .add("Requests which include `tool_use` or `tool_result` blocks must define tools");
}

fn message(message: &Value, before: Option<&Value>, at: usize, last: bool, bad: &mut Complaints) {
    let role = text(&message["role"]);
    bad.unless(matches!(role, "user" | "assistant"))
        .add(format_args!("messages.{at}.role: Input should be 'user' or 'assistant'"));
    match before {
        Some(before) => bad.unless(before["role"] != role).add(format_args!(
            "messages.{at}: roles must alternate between \"user\" and \"assistant\", but found \
             multiple \"{role}\" roles in a row"
        )),
        None => {
            bad.unless(role == "user").add("messages: first message must use the \"user\" role");
        }
    }
    let content = &message["content"];
    let blocks = list(content);
    match content {
        Value::String(said) => check_text(said, &format!("messages.{at}"), bad),
        Value::Array(_) => {
            bad.unless(!blocks.is_empty() || (last && role == "assistant")).add(format_args!(
                "messages.{at}: all messages must have non-empty content except for the optional \
                 final assistant message"
            ));
        }
        _ => bad.add(format_args!("messages.{at}.content: Field required")),
    }
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("messages.{at}.content.{index}");
        self::block(block, &place, bad);
        self::belongs(block, role, &place, bad);
    }
    if role == "assistant" {
        bad.unless(blocks.last().is_none_or(|block| !is_thinking(block))).add(format_args!(
            "messages.{at}: The final block in an assistant message cannot be `thinking`."
        ));
        let end = content.as_str().or_else(|| blocks.last().and_then(|b| b["text"].as_str()));
        bad.unless(!last || end.is_none_or(|end| end.trim_end() == end))
            .add("messages: final assistant content cannot end with trailing whitespace");
    }
}

/// A block stands in a message of the right role.
fn belongs(block: &Value, role: &str, place: &str, bad: &mut Complaints) {
    let kind = text(&block["type"]);
    let owner = match kind {
        "tool_use" | "thinking" | "redacted_thinking" => "assistant",
        "tool_result" | "image" | "document" => "user",
        _ => return,
    };
    bad.unless(role == owner)
        .add(format_args!("{place}: `{kind}` blocks can only be in `{owner}` messages"));
}

fn block(block: &Value, place: &str, bad: &mut Complaints) {
    match text(&block["type"]) {
        "text" => check_text(text(&block["text"]), place, bad),
        "thinking" => {
            required(block["thinking"].is_string(), &format!("{place}.thinking"), bad);
            required(has_text(&block["signature"]), &format!("{place}.thinking.signature"), bad);
        }
        "redacted_thinking" => {
            required(has_text(&block["data"]), &format!("{place}.redacted_thinking.data"), bad);
        }
        "tool_use" => {
            let id = text(&block["id"]);
            bad.unless(is_plain(id, 64)).add(format_args!(
                "{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$': {id}"
            ));
            check_name(text(&block["name"]), &format!("{place}.tool_use.name"), bad);
            bad.unless(block["input"].is_object())
                .add(format_args!("{place}.tool_use.input: Input should be a valid dictionary"));
        }
        "tool_result" => {
            let content = &block["content"];
            let empty = match content {
                Value::String(said) => said.is_empty(),
                content => list(content).is_empty(),
            };
            bad.unless(!empty || block["is_error"] != Value::Bool(true))
                .add(format_args!("{place}: content cannot be empty if `is_error` is true"));
            for (index, inner) in list(content).iter().enumerate() {
                self::block(inner, &format!("{place}.content.{index}"), bad);
            }
        }
        "image" | "document" => {
            required(block["source"].is_object(), &format!("{place}.source"), bad);
        }
        "" => bad.add(format_args!("{place}.type: Field required")),
        // The vendor's own blocks are many, and come back as they were.
        _ => {}
    }
}

/// Every call is answered in the next message.
fn calls(message: &Value, next: Option<&Value>, at: usize, bad: &mut Complaints) {
    let calls = ids(Some(message), "tool_use", "id");
    if calls.is_empty() {
        return;
    }
    let answered = ids(next, "tool_result", "tool_use_id");
    let open: Vec<&str> = calls.into_iter().filter(|id| !answered.contains(id)).collect();
    bad.unless(open.is_empty()).add(format_args!(
        "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: \
         {}. Each `tool_use` block must have a corresponding `tool_result` block in the next \
         message.",
        open.join(", ")
    ));
    // "text and thinking behind a call": reported to be refused.
    let kinds = list(&message["content"]).iter().map(|block| text(&block["type"]));
    let mut behind = kinds.skip_while(|kind| *kind != "tool_use");
    let late = behind.find(|kind| matches!(*kind, "text" | "thinking" | "redacted_thinking"));
    if let Some(late) = late {
        bad.add(format_args!("messages.{at}: a `{late}` block stands behind a `tool_use` block"));
    }
}

/// Every result answers a call of the message before, once, and stands in front.
fn results(message: &Value, before: Option<&Value>, at: usize, bad: &mut Complaints) {
    let results = ids(Some(message), "tool_result", "tool_use_id");
    let called = ids(before, "tool_use", "id");
    for id in results.iter().filter(|id| !called.contains(id)) {
        bad.add(format_args!(
            "messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each \
             `tool_result` block must have a corresponding `tool_use` block in the previous \
             message."
        ));
    }
    for id in repeated(results) {
        bad.add(format_args!(
            "messages.{at}: each tool_use must have a single result. Found multiple `tool_result` \
             blocks with id: {id}"
        ));
    }
    let blocks = list(&message["content"]).iter();
    bad.unless(blocks.is_sorted_by_key(|block| block["type"] != "tool_result"))
        .add(format_args!("messages.{at}: `tool_result` blocks must come first in a message"));
}

/// The result of a tool that the vendor runs may come in a later message of the assistant, if only
/// results of other tools stand between; while the vendor offers none, it does not come any more.
fn native(body: &Value, messages: &[Value], bad: &mut Complaints) {
    let kinds = list(&body["tools"]).iter().filter_map(|tool| tool["type"].as_str());
    let offered = kinds.filter(|kind| *kind != "custom").count() + list(&body["mcp_servers"]).len();
    let mut open: Vec<(usize, &str)> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let blocks = list(&message["content"]);
        if message["role"] == "user" {
            let is_result = |block: &Value| block["type"] == "tool_result";
            let ends = offered == 0 && at + 1 == messages.len();
            if ends || !message["content"].is_array() || !blocks.iter().all(is_result) {
                for (at, id) in open.drain(..) {
                    bad.add(format_args!(
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
                    None => bad.add(format_args!(
                        "messages.{at}: unexpected `tool_use_id` found in `{kind}` blocks: {id}. \
                         Each `{kind}` block must have a corresponding `server_tool_use` block \
                         before it."
                    )),
                }
            }
        }
    }
}

fn caches(body: &Value, bad: &mut Complaints) {
    let messages = list(&body["messages"]).iter().flat_map(|message| list(&message["content"]));
    let nested = messages.clone().flat_map(|block| list(&block["content"]));
    let all =
        list(&body["tools"]).iter().chain(list(&body["system"])).chain(messages).chain(nested);
    let marked: Vec<&Value> = all.filter(|block| is_given(block, "cache_control")).collect();
    bad.unless(marked.len() <= 4).add(format_args!(
        "A maximum of 4 blocks with cache_control may be provided. Found {}.",
        marked.len()
    ));
    for block in &marked {
        bad.unless(!is_thinking(block)).add("cache_control cannot be set for thinking blocks");
    }
    bad.unless(marked.is_sorted_by_key(|block| block["cache_control"]["ttl"] != "1h"))
        .add("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block");
}

fn blocks<'a>(message: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    list(&message["content"]).iter().filter(move |block| block["type"] == kind)
}

/// A field of all blocks of a kind.
fn ids<'a>(message: Option<&'a Value>, kind: &'a str, field: &'a str) -> Vec<&'a str> {
    let blocks = message.into_iter().flat_map(|message| blocks(message, kind));
    blocks.map(|block| text(&block[field])).collect()
}

fn is_thinking(block: &Value) -> bool {
    matches!(text(&block["type"]), "thinking" | "redacted_thinking")
}

/// What the vendor objects to in the signatures that a request brings back.
pub(in crate::testing) fn signatures(known: &Signatures, body: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    for (at, index, block) in inner(&body["messages"], "content") {
        let (proof, said) = match text(&block["type"]) {
            "thinking" => ("signature", text(&block["thinking"])),
            "redacted_thinking" => ("data", ""),
            _ => continue,
        };
        if !known.hold(text(&block[proof]), said) {
            let kind = text(&block["type"]);
            bad.push(format!("messages.{at}.content.{index}: Invalid `{proof}` in `{kind}` block"));
        }
    }
    bad
}
