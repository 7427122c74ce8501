//! The grammar of a UI message stream, from the client's chunk schema and its documentation.
//!
//! It is stricter than the clients, which accept a missing end chunk.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use turnstream::ui::ai_sdk::Version;

/// The required and the optional fields of a chunk, with the types of their values.
type Fields = &'static [(&'static str, Kind, bool)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Flag,
    Any,
    List,
}

use Kind::{Any, Flag, List, Text};

/// The chunks that all releases of a version support, with only those fields that all of them
/// support.
fn fields(kind: &str, version: Version) -> Option<Fields> {
    let (v6, v7) = (version >= Version::V6, version >= Version::V7);
    Some(match kind {
        "start" => &[("messageId", Text, false), ("messageMetadata", Any, false)],
        "start-step" | "finish-step" | "abort" => &[],
        "text-start" | "text-end" | "reasoning-start" | "reasoning-end" => &[("id", Text, true)],
        "text-delta" | "reasoning-delta" => &[("id", Text, true), ("delta", Text, true)],
        "tool-input-start" => {
            &[("toolCallId", Text, true), ("toolName", Text, true), ("dynamic", Flag, false)]
        }
        "tool-input-delta" => &[("toolCallId", Text, true), ("inputTextDelta", Text, true)],
        "tool-input-available" => &[
            ("toolCallId", Text, true),
            ("toolName", Text, true),
            ("input", Any, true),
            ("dynamic", Flag, false),
        ],
        "tool-input-error" if v6 => &[
            ("toolCallId", Text, true),
            ("toolName", Text, true),
            ("input", Any, true),
            ("errorText", Text, true),
            ("dynamic", Flag, false),
        ],
        "tool-output-available" => {
            &[("toolCallId", Text, true), ("output", Any, true), ("dynamic", Flag, false)]
        }
        "tool-output-error" => {
            &[("toolCallId", Text, true), ("errorText", Text, true), ("dynamic", Flag, false)]
        }
        "tool-approval-request" if v6 => &[("approvalId", Text, true), ("toolCallId", Text, true)],
        "tool-output-denied" if v6 => &[("toolCallId", Text, true)],
        "tool-approval-response" if v7 => &[("approvalId", Text, true), ("approved", Flag, true)],
        "steering-message" if v7 => &[("id", Text, true), ("parts", List, true)],
        "reset-step" if v7 => &[],
        "source-url" => &[("sourceId", Text, true), ("url", Text, true), ("title", Text, false)],
        "message-metadata" => &[("messageMetadata", Any, true)],
        "error" => &[("errorText", Text, true)],
        "finish" if v6 => &[("finishReason", Text, false), ("messageMetadata", Any, false)],
        "finish" => &[("messageMetadata", Any, false)],
        kind if kind.starts_with("data-") => {
            &[("id", Text, false), ("data", Any, true), ("transient", Flag, false)]
        }
        _ => return None,
    })
}

/// Parses the frames of a body. Each frame is a comment or one line of data.
pub(crate) fn chunks(body: &str) -> Result<Vec<Map<String, Value>>, String> {
    if body.contains('\r') {
        return Err("a carriage return".into());
    }
    let Some(body) = body.strip_suffix("\n\n") else {
        return Err("no empty line at the end".into());
    };
    let mut frames: Vec<&str> =
        body.split("\n\n").filter(|frame| !frame.starts_with(':')).collect();
    if frames.pop() != Some("data: [DONE]") {
        return Err("the last frame is not [DONE]".into());
    }
    let read = |frame: &str| {
        let data = frame.strip_prefix("data: ").ok_or_else(|| format!("not data: {frame}"))?;
        serde_json::from_str(data).map_err(|error| format!("{error}: {data}"))
    };
    frames.into_iter().map(read).collect()
}

/// Checks a body. `known` are the calls that the message already has, with their approvals.
pub(crate) fn check(body: &str, version: Version, known: &[String]) -> Result<(), String> {
    let mut state = State {
        version,
        calls: known.iter().map(|id| (id.clone(), Call::default())).collect(),
        ..State::default()
    };
    let chunks = chunks(body)?;
    for (at, chunk) in chunks.iter().enumerate() {
        let is_last = at + 1 == chunks.len();
        state.read(chunk, is_last).map_err(|why| format!("chunk {at}, {chunk:?}: {why}"))?;
    }
    if state.phase != Phase::Finished {
        return Err("there is no finish".into());
    }
    Ok(())
}

#[derive(Default)]
struct State {
    version: Version,
    phase: Phase,
    is_in_step: bool,
    open: HashSet<(bool, String)>,
    calls: HashMap<String, Call>,
    /// The calls of the step.
    in_step: Vec<String>,
    is_dynamic: Option<bool>,
}

#[derive(Default, PartialEq, Eq)]
enum Phase {
    #[default]
    New,
    Started,
    Failed,
    Finished,
}

#[derive(Default)]
struct Call {
    /// Whether its arguments are still streaming.
    is_open: bool,
    has_result: bool,
}

impl State {
    fn read(&mut self, chunk: &Map<String, Value>, is_last: bool) -> Result<(), String> {
        let kind = chunk.get("type").and_then(Value::as_str).ok_or("no type")?;
        let fields = fields(kind, self.version).ok_or("not known to this version")?;
        check_fields(chunk, fields)?;
        let text =
            |name: &str| chunk.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        if (kind == "start") != (self.phase == Phase::New) {
            return Err("start is the first chunk, and comes once".into());
        }
        if self.phase == Phase::Failed && kind != "finish" {
            return Err("something follows an error".into());
        }
        match kind {
            "start" => self.phase = Phase::Started,
            "start-step" if self.is_in_step => return Err("a step is open".into()),
            "start-step" => {
                self.is_in_step = true;
                self.in_step.clear();
            }
            "finish-step" | "reset-step" if !self.is_in_step => {
                return Err("no step is open".into());
            }
            "finish-step" => {
                self.check_closed()?;
                self.is_in_step = false;
            }
            "reset-step" => {
                self.open.clear();
                for id in self.in_step.drain(..) {
                    self.calls.remove(&id);
                }
            }
            "text-start" | "reasoning-start" => {
                let is_new = self.open.insert((kind == "text-start", text("id")));
                if !is_new || !self.is_in_step {
                    return Err("the part is open already, or no step is".into());
                }
            }
            "text-delta" | "reasoning-delta" | "text-end" | "reasoning-end" => {
                let key = (kind.starts_with("text"), text("id"));
                let is_open = match kind.ends_with("end") {
                    true => self.open.remove(&key),
                    false => self.open.contains(&key),
                };
                if !is_open {
                    return Err("the part is not open".into());
                }
            }
            _ if kind.starts_with("tool-") => self.read_call(kind, chunk)?,
            "error" => {
                self.check_closed()?;
                self.phase = Phase::Failed;
            }
            "finish" => {
                self.check_closed()?;
                let reason = text("finishReason");
                let is_known = ["stop", "length", "content-filter", "tool-calls", "error", "other"]
                    .contains(&reason.as_str())
                    || self.version == Version::V5 && reason.is_empty()
                    || self.version >= Version::V7 && reason == "interrupted";
                if self.is_in_step || !is_last || !is_known {
                    return Err(
                        "it is not the last, its reason is not known, or a step is open".into()
                    );
                }
                if self.phase == Phase::Failed && !reason.is_empty() && reason != "error" {
                    return Err("the reason is not that of an error".into());
                }
                self.phase = Phase::Finished;
            }
            _ => {}
        }
        Ok(())
    }

    fn read_call(&mut self, kind: &str, chunk: &Map<String, Value>) -> Result<(), String> {
        let text =
            |name: &str| chunk.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        match kind {
            "tool-input-start" => {
                let id = text("toolCallId");
                // A retracted turn may be followed by one with the same ids, in a step of its own.
                let is_free = self.calls.get(&id).is_none_or(|call| call.has_result)
                    && !self.in_step.contains(&id);
                if !self.is_in_step || !is_free {
                    return Err("the call is there already, or no step is open".into());
                }
                self.calls.insert(id.clone(), Call { is_open: true, has_result: false });
                self.in_step.push(id);
                self.check_dynamic(chunk)?;
            }
            "tool-input-delta" | "tool-input-available" | "tool-input-error" => {
                let call = self.calls.get_mut(&text("toolCallId")).ok_or("an unknown call")?;
                if !call.is_open {
                    return Err("its arguments are whole".into());
                }
                call.is_open = kind == "tool-input-delta";
                call.has_result = kind == "tool-input-error";
                if kind != "tool-input-delta" {
                    self.check_dynamic(chunk)?;
                }
            }
            "tool-approval-request"
            | "tool-output-available"
            | "tool-output-error"
            | "tool-output-denied" => {
                let call = self.calls.get_mut(&text("toolCallId")).ok_or("an unknown call")?;
                let is_result = kind.starts_with("tool-output");
                // An error in the arguments is reported again as the result.
                let is_repeated = kind == "tool-output-error";
                if call.is_open || call.has_result && !is_repeated {
                    return Err("its arguments are not whole, or it has its result".into());
                }
                call.has_result = is_result;
                if is_result && kind != "tool-output-denied" {
                    self.check_dynamic(chunk)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_closed(&self) -> Result<(), String> {
        let is_call_open = self.calls.values().any(|call| call.is_open);
        match self.open.is_empty() && !is_call_open {
            true => Ok(()),
            false => Err("a part or a call is open".into()),
        }
    }

    /// The choice is the same for all chunks of a call.
    fn check_dynamic(&mut self, chunk: &Map<String, Value>) -> Result<(), String> {
        let is_dynamic = chunk.contains_key("dynamic");
        match *self.is_dynamic.get_or_insert(is_dynamic) == is_dynamic {
            true => Ok(()),
            false => Err("dynamic here and not there".into()),
        }
    }
}

fn check_fields(chunk: &Map<String, Value>, fields: Fields) -> Result<(), String> {
    for &(name, kind, is_required) in fields {
        let is_right = match chunk.get(name) {
            None => !is_required,
            Some(Value::String(_)) => matches!(kind, Text | Any),
            Some(Value::Bool(_)) => matches!(kind, Flag | Any),
            Some(Value::Array(_)) => matches!(kind, List | Any),
            Some(Value::Null) => kind == Any && is_required,
            Some(_) => kind == Any,
        };
        if !is_right {
            return Err(format!("`{name}` is missing or not what it has to be"));
        }
    }
    let is_known = |name: &String| name == "type" || fields.iter().any(|field| field.0 == name);
    match chunk.keys().find(|name| !is_known(name)) {
        Some(name) => Err(format!("`{name}` is not known to all releases")),
        None => Ok(()),
    }
}
