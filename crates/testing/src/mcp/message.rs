//! JSON-RPC 2.0 messages, parsed without a library.

use serde_json::{Map, Value, json};

pub(super) const PARSE_ERROR: i64 = -32700;
pub(super) const INVALID_REQUEST: i64 = -32600;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;
pub(super) const INTERNAL_ERROR: i64 = -32603;
/// The first code in JSON-RPC's range for server errors, used for a missing session, an
/// unacceptable request, and similar errors.
pub(super) const SERVER_ERROR: i64 = -32000;
pub(super) const HEADER_MISMATCH: i64 = -32020;
pub(super) const MISSING_CAPABILITY: i64 = -32021;
pub(super) const UNSUPPORTED_VERSION: i64 = -32022;

/// A message from the client.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    Request(Request),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// The client's response to a request from the server: either a result or an error.
    Response {
        id: Value,
        outcome: Result<Value, Value>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
}

/// A message that violates JSON-RPC.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Malformed {
    /// The id for the error response, or null.
    pub(super) id: Value,
    pub(super) reason: String,
}

impl Request {
    pub(super) fn meta(&self) -> Option<&Map<String, Value>> {
        self.params.get("_meta")?.as_object()
    }

    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name)?.as_str()
    }

    pub(super) fn result(&self, result: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.id, "result": result })
    }

    pub(super) fn error(&self, code: i64, message: impl Into<String>) -> Value {
        error_message(&self.id, code, message, None)
    }
}

pub(super) fn error_message(
    id: &Value,
    code: i64,
    message: impl Into<String>,
    data: Option<Value>,
) -> Value {
    let mut error = json!({ "code": code, "message": message.into() });
    if let Some(data) = data {
        error["data"] = data;
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

pub(super) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

/// Parses a JSON value as a message.
pub(super) fn parse_message(value: &Value) -> Result<Message, Malformed> {
    let malformed = |id: &Value, reason: &str| Malformed { id: id.clone(), reason: reason.into() };
    let Some(message) = value.as_object() else {
        return Err(malformed(&Value::Null, "a message must be one JSON object"));
    };
    let id = message.get("id");
    if id.is_some_and(|id| !id.is_string() && !id.is_i64() && !id.is_u64()) {
        return Err(malformed(&Value::Null, "`id` must be a string or an integer"));
    }
    let answer_id = id.cloned().unwrap_or_default();
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(malformed(&answer_id, "`jsonrpc` must be \"2.0\""));
    }
    let params = match message.get("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params.clone(),
        Some(_) => return Err(malformed(&answer_id, "`params` must be an object")),
    };
    match (message.get("method"), id) {
        (Some(Value::String(method)), Some(id)) => {
            Ok(Message::Request(Request { id: id.clone(), method: method.clone(), params }))
        }
        (Some(Value::String(method)), None) => {
            Ok(Message::Notification { method: method.clone(), params })
        }
        (Some(_), _) => Err(malformed(&answer_id, "`method` must be a string")),
        (None, Some(id)) => match (message.get("result"), message.get("error")) {
            (Some(result), None) => {
                Ok(Message::Response { id: id.clone(), outcome: Ok(result.clone()) })
            }
            (None, Some(error)) => {
                Ok(Message::Response { id: id.clone(), outcome: Err(error.clone()) })
            }
            _ => Err(malformed(&answer_id, "a response must have a `result` or an `error`")),
        },
        (None, None) => Err(malformed(&answer_id, "a message must have a `method` or an `id`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_malformed(message: &Value, expected: &str) {
        let reason = parse_message(message).map_err(|malformed| malformed.reason);
        assert_eq!(reason, Err(expected.to_owned()), "{message}");
    }

    #[test]
    fn a_message_that_breaks_json_rpc_is_malformed() {
        check_malformed(&json!([]), "a message must be one JSON object");
        check_malformed(&json!({ "id": 1, "method": "m" }), "`jsonrpc` must be \"2.0\"");
        let with = |field: &str, value: Value| {
            let mut message = json!({ "jsonrpc": "2.0", "id": 1, "method": "m" });
            message[field] = value;
            message
        };
        check_malformed(&with("id", Value::Null), "`id` must be a string or an integer");
        check_malformed(&with("id", json!(1.5)), "`id` must be a string or an integer");
        check_malformed(&with("params", json!([])), "`params` must be an object");
        check_malformed(&with("method", json!(3)), "`method` must be a string");
        let both = json!({ "jsonrpc": "2.0", "id": 1, "result": {}, "error": {} });
        check_malformed(&both, "a response must have a `result` or an `error`");
        let neither = json!({ "jsonrpc": "2.0" });
        check_malformed(&neither, "a message must have a `method` or an `id`");
    }

    #[test]
    fn a_malformed_request_keeps_its_id_for_the_answer() {
        let message = json!({ "id": "a", "method": "m" });
        assert_eq!(parse_message(&message).unwrap_err().id, "a");
    }
}
