//! A request that a scripted server received.

use serde_json::Value;
use turnstream::provider::server::Wire;

use crate::http::HttpRequest;
use crate::wire::profile;

/// A request that a [`ModelServer`](crate::ModelServer) has received and passes to its
/// script.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReceivedRequest {
    /// The number of requests, in any wire format, that the script received before this one.
    pub index: usize,
    /// The wire format that the request uses.
    pub wire: Wire,
    /// The name of the requested model.
    pub model: String,
    /// The request's body, as JSON.
    pub body: Value,
    /// The raw request, including its headers.
    pub http: HttpRequest,
}

impl ReceivedRequest {
    /// Parses a request in this wire format. An `Err` contains the reason why the request is
    /// invalid.
    pub(super) fn parse(wire: Wire, http: HttpRequest) -> Result<Self, String> {
        let body: Value = match serde_json::from_slice(&http.body) {
            Ok(body @ Value::Object(_)) => body,
            Ok(_) => return Err("the body is not a JSON object".to_owned()),
            Err(error) => return Err(format!("the body is not JSON: {error}")),
        };
        let model = (profile(wire).model)(&http.path, &body).unwrap_or_default().to_owned();
        Ok(Self { index: 0, wire, model, body, http })
    }

    /// Creates a placeholder request in this wire format.
    pub(super) fn for_wire(wire: Wire) -> Self {
        let model = String::from("scripted");
        let body = serde_json::json!({
            "model": model,
            "stream_options": { "include_usage": true },
            "include": ["reasoning.encrypted_content"],
        });
        let path = "/?alt=sse".to_owned();
        Self { index: 0, wire, model, body, http: HttpRequest { path, ..HttpRequest::default() } }
    }
}
