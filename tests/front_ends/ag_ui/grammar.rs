//! The grammar of an AG-UI 1.0 stream, from its schema and its ordering rules.
//!
//! It is stricter than the client, which accepts a missing end event.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// The fields of an event: the name, the type of its value, and whether it is required.
type Fields = &'static [(&'static str, Kind, bool)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Object,
    List,
    Any,
    /// A text or a list of parts.
    Content,
}

use Kind::{Any, Content, List, Object, Text};

fn fields(kind: &str) -> Option<Fields> {
    Some(match kind {
        "RUN_STARTED" => &[
            ("threadId", Text, true),
            ("runId", Text, true),
            ("protocolVersion", Text, true),
            ("parentRunId", Text, false),
        ],
        "RUN_FINISHED" => &[
            ("threadId", Text, true),
            ("runId", Text, true),
            ("outcome", Object, false),
            ("result", Object, false),
            ("usage", List, true),
        ],
        "RUN_ERROR" => &[("message", Text, true), ("code", Text, true), ("usage", List, true)],
        "STEP_STARTED" | "STEP_FINISHED" => &[("stepName", Text, true)],
        "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START" => {
            &[("messageId", Text, true), ("role", Text, true)]
        }
        "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => {
            &[("messageId", Text, true), ("delta", Text, true)]
        }
        "TEXT_MESSAGE_END" | "REASONING_MESSAGE_END" | "REASONING_START" | "REASONING_END" => {
            &[("messageId", Text, true)]
        }
        "TOOL_CALL_START" => &[
            ("toolCallId", Text, true),
            ("toolCallName", Text, true),
            ("parentMessageId", Text, true),
        ],
        "TOOL_CALL_ARGS" => &[("toolCallId", Text, true), ("delta", Text, true)],
        "TOOL_CALL_END" => &[("toolCallId", Text, true)],
        "TOOL_CALL_RESULT" => &[
            ("messageId", Text, true),
            ("toolCallId", Text, true),
            ("content", Content, true),
            ("role", Text, true),
            ("metadata", Object, false),
        ],
        "STATE_SNAPSHOT" => &[("snapshot", Object, true)],
        "STATE_DELTA" => &[("delta", List, true)],
        "MESSAGES_SNAPSHOT" => &[("messages", List, true)],
        "ACTIVITY_SNAPSHOT" => {
            &[("messageId", Text, true), ("activityType", Text, true), ("content", Object, true)]
        }
        "SUBAGENT_STARTED" => &[
            ("name", Text, true),
            ("parentToolCallId", Text, true),
            ("parentSubagentRunId", Text, false),
        ],
        "SUBAGENT_FINISHED" => &[("outcome", Object, true)],
        "SUBAGENT_ERROR" => &[("message", Text, true)],
        "CUSTOM" => &[("name", Text, true), ("value", Any, true)],
        _ => return None,
    })
}

/// Parses the frames of a body. Each frame is a comment or one line of data.
pub(crate) fn events(body: &str) -> Result<Vec<Map<String, Value>>, String> {
    if body.contains('\r') {
        return Err("a carriage return".into());
    }
    let Some(body) = body.strip_suffix("\n\n") else {
        return Err("no empty line at the end".into());
    };
    let frames = body.split("\n\n").filter(|frame| !frame.starts_with(':'));
    let read = |frame: &str| {
        let data = frame.strip_prefix("data: ").ok_or_else(|| format!("not data: {frame}"))?;
        serde_json::from_str(data).map_err(|error| format!("{error}: {data}"))
    };
    frames.map(read).collect()
}

/// Checks a body.
pub(crate) fn check(body: &str) -> Result<(), String> {
    let mut state = State::default();
    let events = events(body)?;
    for (at, event) in events.iter().enumerate() {
        state.read(event, at == 0).map_err(|why| format!("event {at}, {event:?}: {why}"))?;
    }
    match state.has_ended {
        true => Ok(()),
        false => Err("the run does not end".into()),
    }
}

/// The open messages, calls and steps. A key has the kind, the id, and the sub-agent that it
/// belongs to.
#[derive(Default)]
struct State {
    has_ended: bool,
    open: HashSet<(&'static str, String, String)>,
    ended_sub_agents: HashSet<String>,
    /// The ids of results, which must be unique.
    results: HashSet<String>,
    /// The run's own calls that have no result yet.
    unanswered_calls: HashSet<String>,
}

impl State {
    fn read(&mut self, event: &Map<String, Value>, is_first: bool) -> Result<(), String> {
        let kind = event.get("type").and_then(Value::as_str).ok_or("no type")?;
        check_fields(event, fields(kind).ok_or("not known")?)?;
        let text =
            |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        if is_first != (kind == "RUN_STARTED") {
            return Err("a run is started once, first".into());
        }
        if self.has_ended {
            return Err("something follows the end".into());
        }
        let owner = text("subagentRunId");
        let is_sub_agent = !kind.starts_with("SUBAGENT") && !owner.is_empty();
        if is_sub_agent && !self.open.contains(&("sub-agent", owner.clone(), String::new())) {
            return Err("the sub-agent does not run".into());
        }
        let message = || ("text", text("messageId"), owner.clone());
        let reasoning = || ("reasoning", text("messageId"), owner.clone());
        let span = || ("span", text("messageId"), owner.clone());
        let call = || ("call", text("toolCallId"), owner.clone());
        let sub_agent = || ("sub-agent", text("subagentRunId"), String::new());
        match kind {
            "STEP_STARTED" => self.begin(("step", text("stepName"), owner.clone()))?,
            "STEP_FINISHED" => self.end(&("step", text("stepName"), owner.clone()))?,
            "TEXT_MESSAGE_START" => self.begin(message())?,
            "TEXT_MESSAGE_CONTENT" => self.is_open(&message())?,
            "TEXT_MESSAGE_END" => self.end(&message())?,
            "REASONING_START" => self.begin(span())?,
            "REASONING_END" => {
                self.is_closed(&reasoning())?;
                self.end(&span())?;
            }
            "REASONING_MESSAGE_START" => {
                self.is_open(&span())?;
                if text("role") != "reasoning" {
                    return Err("the role is not `reasoning`".into());
                }
                self.begin(reasoning())?;
            }
            "REASONING_MESSAGE_CONTENT" => self.is_open(&reasoning())?,
            "REASONING_MESSAGE_END" => self.end(&reasoning())?,
            "TOOL_CALL_START" => {
                self.begin(call())?;
                if owner.is_empty() {
                    self.unanswered_calls.insert(text("toolCallId"));
                }
            }
            "TOOL_CALL_ARGS" => self.is_open(&call())?,
            "TOOL_CALL_END" => self.end(&call())?,
            "TOOL_CALL_RESULT" => {
                self.is_closed(&call())?;
                self.unanswered_calls.remove(&text("toolCallId"));
                if !self.results.insert(text("messageId")) || text("role") != "tool" {
                    return Err("the message of a result is a new one of a tool".into());
                }
            }
            "MESSAGES_SNAPSHOT" => check_messages(&event["messages"])?,
            "SUBAGENT_STARTED" => {
                if self.ended_sub_agents.contains(&owner) {
                    return Err("it has ended".into());
                }
                self.begin(sub_agent())?;
            }
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => {
                if self.open.iter().any(|(_, _, of)| *of == owner) {
                    return Err("something of it is open".into());
                }
                self.end(&sub_agent())?;
                self.ended_sub_agents.insert(owner);
            }
            "RUN_FINISHED" => {
                let outcome = event.get("outcome");
                outcome.map_or(Ok(()), check_outcome)?;
                let is_success = outcome.is_some_and(|outcome| outcome["type"] == "success");
                if is_success && !self.unanswered_calls.is_empty() {
                    return Err(format!("calls are pending: {:?}", self.unanswered_calls));
                }
                if !self.open.is_empty() {
                    return Err(format!("open: {:?}", self.open));
                }
                self.has_ended = true;
            }
            "RUN_ERROR" => self.has_ended = true,
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, key: (&'static str, String, String)) -> Result<(), String> {
        match self.open.insert(key) {
            true => Ok(()),
            false => Err("it is open already".into()),
        }
    }

    fn end(&mut self, key: &(&'static str, String, String)) -> Result<(), String> {
        match self.open.remove(key) {
            true => Ok(()),
            false => Err("it is not open".into()),
        }
    }

    fn is_open(&self, key: &(&'static str, String, String)) -> Result<(), String> {
        match self.open.contains(key) {
            true => Ok(()),
            false => Err("it is not open".into()),
        }
    }

    fn is_closed(&self, key: &(&'static str, String, String)) -> Result<(), String> {
        match self.open.contains(key) {
            true => Err("it is open".into()),
            false => Ok(()),
        }
    }
}

fn check_outcome(outcome: &Value) -> Result<(), String> {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let is_right = match outcome["type"].as_str() {
        Some("success" | "cancelled") => true,
        Some("interrupt") => outcome["interrupts"].as_array().is_some_and(|all| {
            let is_right = |it: &Value| {
                is_text(&it["id"])
                    && is_text(&it["reason"])
                    && is_text(&it["toolCallId"])
                    && it["responseSchema"].is_object()
            };
            !all.is_empty() && all.iter().all(is_right)
        }),
        _ => false,
    };
    match is_right {
        true => Ok(()),
        false => Err(format!("not an outcome: {outcome}")),
    }
}

/// Checks that the messages of a snapshot have unique ids, and that each result has its call.
fn check_messages(messages: &Value) -> Result<(), String> {
    let mut ids = HashSet::new();
    let mut calls = HashSet::new();
    for message in messages.as_array().ok_or("it is not a list")? {
        let id = message["id"].as_str().ok_or("a message has no id")?;
        if !ids.insert(id) {
            return Err(format!("two messages have the id {id}"));
        }
        for call in message["toolCalls"].as_array().into_iter().flatten() {
            calls.insert(call["id"].as_str().ok_or("a call has no id")?);
        }
        let is_known = match message["role"].as_str() {
            Some("tool") => message["toolCallId"].as_str().is_some_and(|id| calls.contains(id)),
            Some("assistant") => message["content"].is_string() || message["toolCalls"].is_array(),
            Some("user" | "reasoning" | "developer" | "system") => !message["content"].is_null(),
            _ => false,
        };
        if !is_known {
            return Err(format!("not a message: {message}"));
        }
    }
    Ok(())
}

fn check_fields(event: &Map<String, Value>, fields: Fields) -> Result<(), String> {
    for &(name, kind, is_required) in fields {
        let is_right = match event.get(name) {
            None => !is_required,
            Some(Value::Null) => false,
            Some(Value::String(_)) => matches!(kind, Text | Any | Content),
            Some(Value::Array(_)) => matches!(kind, List | Any | Content),
            Some(Value::Object(_)) => matches!(kind, Object | Any),
            Some(_) => kind == Any,
        };
        if !is_right {
            return Err(format!("`{name}` is missing or not what it has to be"));
        }
    }
    let is_known = |name: &str| {
        name == "type"
            || name == "subagentRunId" && event["subagentRunId"].is_string()
            || fields.iter().any(|field| field.0 == name)
    };
    match event.keys().find(|name| !is_known(name)) {
        Some(name) => Err(format!("`{name}` is not known")),
        None => Ok(()),
    }
}
