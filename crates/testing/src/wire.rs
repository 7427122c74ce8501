//! The data that a test server needs for each wire.

use serde_json::Value;
use turnstream::provider::server::{Frame, Wire};

use crate::lint;
use crate::signatures::Signatures;

/// The data that a test server needs for a wire. Each wire also needs a [lint](crate::lint). Paths
/// include the query.
pub(crate) struct WireProfile {
    /// The suffix that a request's path must have, not counting the query.
    path_suffix: &'static str,
    /// Returns the name of the requested model, given the request's path and body.
    pub(crate) model: for<'a> fn(&'a str, &'a Value) -> Option<&'a str>,
    /// Returns whether the body requests a streamed response.
    pub(crate) wants_stream: fn(&Value) -> bool,
    /// Returns the errors that the vendor would report for a request's body. The first argument is
    /// the model.
    pub(crate) lint: fn(&str, &Value) -> Vec<String>,
    /// Returns the errors that the vendor would report for the signatures in a request.
    pub(crate) check_signatures: fn(&Signatures, &Value) -> Vec<String>,
    /// The name of a header that every request must contain.
    pub(crate) required_header: Option<&'static str>,
    /// The name and data of a frame of an unknown type.
    pub(crate) unknown_event: (Option<&'static str>, &'static str),
    /// Returns whether a frame completes the turn.
    pub(crate) is_terminal: fn(&Frame) -> bool,
    /// Returns whether a frame is the marker that follows the one that completes the turn.
    pub(crate) is_done_marker: fn(&Frame) -> bool,
}

/// Returns the wire for a request path, which may have any prefix.
pub(crate) fn wire_of_path(path: &str) -> Option<Wire> {
    let (path, _query) = path.split_once('?').unwrap_or((path, ""));
    Wire::ALL.into_iter().find(|wire| path.ends_with(profile(*wire).path_suffix))
}

/// The settings that most wires share.
const MOST: WireProfile = WireProfile {
    path_suffix: "",
    model: |_, body| body["model"].as_str(),
    wants_stream: |body| body["stream"] == Value::Bool(true),
    lint: |_, _| Vec::new(),
    check_signatures: |_, _| Vec::new(),
    required_header: None,
    unknown_event: (None, r#"{"weather":{"sky":["blue"]}}"#),
    is_terminal: |_| false,
    is_done_marker: |_| false,
};

/// Returns the data for a wire.
///
/// # Panics
///
/// Panics if the wire is newer than this crate.
pub(crate) fn profile(wire: Wire) -> &'static WireProfile {
    match wire {
        Wire::Anthropic => &WireProfile {
            path_suffix: "/messages",
            lint: |_, body| lint::anthropic(body),
            check_signatures: lint::anthropic::check_signatures,
            required_header: Some("anthropic-version"),
            unknown_event: (Some("weather"), r#"{"type":"weather","index":0,"sky":["blue"]}"#),
            is_terminal: |frame| frame.event.as_deref() == Some("message_delta"),
            is_done_marker: |frame| frame.event.as_deref() == Some("message_stop"),
            ..MOST
        },
        Wire::OpenAiChat => &WireProfile {
            path_suffix: "/chat/completions",
            lint: |_, body| lint::openai_chat(body),
            check_signatures: lint::openai_chat::check_signatures,
            unknown_event: (None, r#"{"choices":[],"weather":{"sky":["blue"]}}"#),
            is_terminal: |frame| json_at(frame, "/choices/0/finish_reason").is_some(),
            is_done_marker: |frame| frame.data == "[DONE]",
            ..MOST
        },
        Wire::OpenAiResponses => &WireProfile {
            path_suffix: "/responses",
            lint: |_, body| lint::openai_responses(body),
            check_signatures: lint::openai_responses::check_signatures,
            unknown_event: (
                Some("response.weather"),
                r#"{"type":"response.weather","sky":["blue"]}"#,
            ),
            is_terminal: |frame| {
                matches!(frame.event.as_deref(), Some("response.completed" | "response.incomplete"))
            },
            ..MOST
        },
        Wire::Gemini => &WireProfile {
            path_suffix: ":streamGenerateContent",
            // Returns `{model}` from `…/models/{model}:streamGenerateContent`.
            model: |path, _| {
                let (path, _query) = path.split_once('?').unwrap_or((path, ""));
                let (model, _method) = path.rsplit_once('/')?.1.split_once(':')?;
                Some(model)
            },
            wants_stream: |_| true,
            lint: |model, body| match model.contains("gemini-3") {
                true => lint::gemini_3(body),
                false => lint::gemini(body),
            },
            check_signatures: lint::gemini::check_signatures,
            is_terminal: |frame| json_at(frame, "/candidates/0/finishReason").is_some(),
            ..MOST
        },
        Wire::Ollama => &WireProfile {
            path_suffix: "/api/chat",
            // "stream: (default: true)"
            wants_stream: |body| body["stream"] != Value::Bool(false),
            // The wire has no signatures to check.
            lint: |_, body| lint::ollama(body),
            is_terminal: |frame| json_at(frame, "/done") == Some(Value::Bool(true)),
            ..MOST
        },
        other => unreachable!("the wire {other} is newer than this crate"),
    }
}

/// Returns a value of a frame's data, if it is there and not null.
fn json_at(frame: &Frame, pointer: &str) -> Option<Value> {
    let mut data: Value = serde_json::from_str(&frame.data).ok()?;
    data.pointer_mut(pointer).map(Value::take).filter(|value| !value.is_null())
}
