//! Reads the body of an error response, in all formats that servers use.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::error::ContextLimits;
use crate::item::from_bounded_json;
use crate::sse::FrameReader;

/// The maximum length of the displayed message, in bytes.
const MAX_MESSAGE_BYTES: usize = 500;

/// The maximum length of the part of a message that is searched for phrases, in bytes. This length
/// exceeds the maximum length of the displayed message, because gateways put their own text before
/// the failed server's message.
const MAX_EXAMINED_BYTES: usize = 4 * MAX_MESSAGE_BYTES;

/// The maximum nesting depth of an error. Errors are nested because gateways wrap the errors that
/// they receive.
const MAX_DEPTH: usize = 8;

#[derive(Debug, Default)]
pub(super) struct ErrorBody {
    /// The human-readable message, as a single line.
    pub(super) message: String,
    /// All human-readable text, in lower case, to be searched for phrases.
    pub(super) text: String,
    /// All machine-readable codes in the error, including types and reasons, in lower case.
    pub(super) codes: Vec<String>,
    /// The HTTP error status in the body, if any.
    pub(super) status: Option<u16>,
    pub(super) parameter: Option<String>,
    pub(super) context_limits: Option<ContextLimits>,
    pub(super) request_id: Option<String>,
    /// The value of Google's `retryDelay` field, or of a `retry-after` header that a gateway
    /// received.
    pub(super) retry_delay: Option<String>,
    pub(super) reset_delay: Option<String>,
}

/// Returns whether a JSON body reports an error.
#[cfg(feature = "http")]
pub(in crate::provider) fn is_error_object(json: &str) -> bool {
    let value: Value = from_bounded_json(json).unwrap_or_default();
    let object = match &value {
        Value::Array(list) => list.first().and_then(Value::as_object),
        value => value.as_object(),
    };
    object.is_some_and(|object| {
        let error = object.get("error").is_some_and(|error| !error.is_null());
        error || object.get("object").or_else(|| object.get("type")) == Some(&"error".into())
    })
}

/// The names of fields that contain a message or an object with a message.
const MESSAGE_FIELDS: [&str; 8] =
    ["message", "error", "detail", "errors", "Message", "msg", "error_msg", "error_description"];

impl ErrorBody {
    /// Reads the body of an error response, or an error in a stream.
    pub(super) fn from_body(body: &str) -> Self {
        if let Some(parsed) = Self::from_json(body) {
            return parsed;
        }
        if let Some(data) = sse_error_data(body) {
            return Self::from_json(&data).unwrap_or_else(|| Self::from_text(&data));
        }
        match body.trim_start().chars().next() {
            // A proxy's HTML page contains no information about the server that failed, and
            // truncated JSON is not a readable message.
            None | Some('<' | '{' | '[') => Self::default(),
            Some(_) => Self::from_text(body),
        }
    }

    fn from_text(text: &str) -> Self {
        let mut parsed = Self::default();
        parsed.add_message(text);
        parsed
    }

    /// Reads an error object, or an object that contains an error object. Returns `None` if the
    /// string is not JSON.
    pub(super) fn from_json(json: &str) -> Option<Self> {
        let mut parsed = Self::default();
        parsed.read_value(&from_bounded_json(json).ok()?, 0);
        Some(parsed)
    }

    fn read_value(&mut self, value: &Value, depth: usize) {
        match value {
            _ if depth > MAX_DEPTH => {}
            Value::String(text) => self.read_text(text, depth),
            // Some servers wrap the error in a list. Only the first element of the list is read.
            Value::Array(list) => {
                if let Some(first) = list.first() {
                    self.read_value(first, depth + 1);
                }
            }
            Value::Object(object) => self.read_object(object, depth),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Reads a message, which may itself be a serialized error object.
    fn read_text(&mut self, text: &str, depth: usize) {
        let begins = text.trim_start().starts_with(['{', '[']);
        match from_bounded_json::<Value>(text) {
            Ok(inner) if begins => self.read_value(&inner, depth + 1),
            _ => self.add_message(text),
        }
    }

    fn read_object(&mut self, object: &Map<String, Value>, depth: usize) {
        let text = |name: &str| object.get(name).and_then(Value::as_str);
        for name in ["type", "code", "status", "reason", "error_type", "__type"] {
            self.codes.extend(text(name).map(str::to_ascii_lowercase));
        }
        // A code may be a word, or an HTTP status as a number or as a string.
        for name in ["code", "status", "status_code", "statusCode"] {
            let number = match object.get(name) {
                Some(Value::Number(number)) => number.as_u64(),
                Some(Value::String(text)) => text.parse().ok(),
                _ => None,
            };
            let status = number.and_then(|number| u16::try_from(number).ok());
            self.status = self.status.or(status.filter(|status| (400..600).contains(status)));
        }
        for name in ["request_id", "requestId"] {
            self.request_id = self.request_id.take().or_else(|| text(name).map(str::to_owned));
        }
        let param = ["param", "parameter"].iter().find_map(|name| text(name));
        // LiteLLM passes on Python's `None` for a missing parameter.
        let param = param.filter(|name| !matches!(*name, "" | "None"));
        self.parameter = self.parameter.take().or_else(|| param.map(str::to_owned));
        let number = |name: &str| object.get(name).and_then(Value::as_u64);
        // Only llama.cpp sends this field.
        if number("n_ctx").is_some() {
            self.context_limits =
                Some(ContextLimits::new(number("n_ctx"), number("n_prompt_tokens")));
        }
        // Only Groq sends this field.
        if object.contains_key("failed_generation") {
            self.codes.push("failed_generation".to_owned());
        }
        for name in MESSAGE_FIELDS {
            match (name, object.get(name)) {
                ("detail" | "errors", Some(Value::Array(list))) => {
                    self.read_validation_errors(list, depth);
                }
                (_, Some(value)) => self.read_value(value, depth + 1),
                (_, None) => {}
            }
        }
        // The fields in which the Responses wire and Azure wrap errors.
        for name in ["response", "innererror", "inner_error"] {
            if let Some(Value::Object(inner)) = object.get(name) {
                self.read_object(inner, depth + 1);
            }
        }
        if let Some(Value::Array(details)) = object.get("details") {
            details
                .iter()
                .filter_map(Value::as_object)
                .for_each(|detail| self.read_google_detail(detail));
        }
        if let Some(Value::Object(metadata)) = object.get("metadata") {
            self.read_openrouter_metadata(metadata, depth);
        }
    }

    /// Reads validation errors, such as `{"loc": ["body", "messages"], "msg": "field required"}`,
    /// in the format used by Mistral and by servers built with `FastAPI`.
    fn read_validation_errors(&mut self, list: &[Value], depth: usize) {
        let Some(Value::Object(first)) = list.first() else {
            return list.first().map_or((), |first| self.read_value(first, depth + 1));
        };
        if let Some(Value::Array(place)) = first.get("loc") {
            let place = place.iter().map(|part| match part {
                Value::String(name) => name.clone(),
                part => part.to_string(),
            });
            let place: Vec<_> = place.skip_while(|name| name == "body").collect();
            self.parameter = self.parameter.take().or(Some(place.join(".")));
        }
        if let Some(Value::String(message)) = first.get("msg") {
            self.add_message(message);
        }
    }

    /// Reads an error detail in Google's format,
    /// <https://cloud.google.com/apis/design/errors#error_details>.
    fn read_google_detail(&mut self, detail: &Map<String, Value>) {
        let text = |object: &Map<String, Value>, name: &str| {
            object.get(name).and_then(Value::as_str).map(str::to_owned)
        };
        self.codes.extend(text(detail, "reason").map(|reason| reason.to_ascii_lowercase()));
        self.retry_delay = self.retry_delay.take().or_else(|| text(detail, "retryDelay"));
        for name in ["violations", "fieldViolations"] {
            let Some(Value::Array(violations)) = detail.get(name) else { continue };
            for violation in violations.iter().filter_map(Value::as_object) {
                self.parameter = self.parameter.take().or_else(|| text(violation, "field"));
                let quota = [text(violation, "quotaId"), text(violation, "quotaMetric")];
                self.text.extend(quota.iter().flatten().map(|id| id.to_lowercase() + " "));
            }
        }
    }

    /// Reads the fields added by `OpenRouter`: the message and the headers from the upstream
    /// provider.
    fn read_openrouter_metadata(&mut self, metadata: &Map<String, Value>, depth: usize) {
        if let Some(raw) = metadata.get("raw") {
            self.read_value(raw, depth + 1);
        }
        for name in ["error_type", "reason"] {
            let word = metadata.get(name).and_then(Value::as_str);
            self.codes.extend(word.map(str::to_ascii_lowercase));
        }
        // `OpenRouter` sends this field if the prompt was flagged.
        if metadata.contains_key("flagged_input") {
            self.codes.push("flagged_input".to_owned());
        }
        let Some(Value::Object(headers)) = metadata.get("headers") else { return };
        for (name, value) in headers {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match name.to_ascii_lowercase().as_str() {
                "retry-after" => self.retry_delay = Some(value),
                "x-ratelimit-reset" => self.reset_delay = Some(value),
                _ => {}
            }
        }
    }

    fn add_message(&mut self, text: &str) {
        let whole = to_single_line(text, MAX_EXAMINED_BYTES);
        let line = to_single_line(text, MAX_MESSAGE_BYTES);
        if line.is_empty() || self.message.contains(&line) {
            return;
        }
        self.codes.extend(exception_names(&whole).map(str::to_ascii_lowercase));
        self.text.push_str(&whole.to_lowercase());
        self.text.push(' ');
        // Two messages are more informative than a single message, if both fit in the line.
        if self.message.is_empty() {
            self.message = line;
        } else if self.message.len() + line.len() < MAX_MESSAGE_BYTES {
            self.message = format!("{}: {line}", self.message);
        }
    }
}

/// Returns the error data from a response that has an error status although its body is a stream of
/// server-sent events. The result is the data of the first event of type `error` or, without such
/// an event, the first data that is not blank.
fn sse_error_data(body: &str) -> Option<String> {
    let begins = ["data:", "event:", "error:", "id:", "retry:", ":"];
    if !begins.iter().any(|field| body.trim_start().starts_with(field)) {
        return None;
    }
    let mut frames = FrameReader::new();
    frames.feed(Bytes::copy_from_slice(body.as_bytes()));
    let mut data = None;
    while let Some(Ok(frame)) = frames.finish() {
        let text = frame.data.trim();
        if frame.event == "error" {
            return Some(text.to_owned());
        }
        if data.is_none() && !text.is_empty() {
            data = Some(text.to_owned());
        }
    }
    data
}

/// Iterates over the exception names in a message. An exception's name is followed by a colon.
fn exception_names(message: &str) -> impl Iterator<Item = &str> {
    let names = message.split(' ').filter_map(|word| word.strip_suffix(':'));
    let names = names.filter_map(|name| name.rsplit('.').next());
    names.filter(|name| name.ends_with("Error") || name.ends_with("Exception"))
}

/// Converts a message to a single human-readable line of at most `longest` bytes.
fn to_single_line(text: &str, longest: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().filter(|c| !c.is_control()));
        if line.len() > longest {
            truncate_message(&mut line, longest);
            line.push('…');
            break;
        }
    }
    line
}

/// Truncates a line between two words. If the last word is longer than half of the line, the line
/// is truncated within the word, since some languages do not use spaces.
fn truncate_message(line: &mut String, longest: usize) {
    let end = line.floor_char_boundary(longest);
    let space = line[..end].rfind(' ').filter(|at| *at >= longest / 2);
    line.truncate(space.unwrap_or(end));
}
