//! What a model was asked.

use serde_json::Value;

use crate::testing::Wire;
use crate::testing::http::HttpRequest;

/// A request to a [`ModelServer`](crate::testing::ModelServer), as its script sees it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReceivedRequest {
    /// How many requests came to the script before, on all wires.
    pub index: usize,
    /// The wire that the request came over.
    pub wire: Wire,
    /// The model that was asked for.
    pub model: String,
    /// The body.
    pub body: Value,
    /// The request as it came, with its headers.
    pub http: HttpRequest,
}

impl ReceivedRequest {
    /// Reads a request by its path. The error is what is wrong with it.
    pub(super) fn parse(wire: Wire, http: HttpRequest) -> Result<Self, String> {
        let body: Value = match serde_json::from_slice(&http.body) {
            Ok(body @ Value::Object(_)) => body,
            Ok(_) => return Err("the body is not a JSON object".to_owned()),
            Err(error) => return Err(format!("the body is not JSON: {error}")),
        };
        let model = (wire.server_wire().model)(&http.path, &body).unwrap_or_default().to_owned();
        Ok(Self { index: 0, wire, model, body, http })
    }

    /// A request of which only the wire is known.
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
