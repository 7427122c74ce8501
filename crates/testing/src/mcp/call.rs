//! A tool call, as passed to the tool's handler.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::mcp::answer::{McpAnswer, Outcome};
use crate::mcp::era::Protocol;
use crate::mcp::message::{MISSING_CAPABILITY, Request, notification};
use crate::mcp::outgoing::Outgoing;
use crate::mcp::peer::Peer;

/// A running `tools/call` request, which lets the tool's handler report progress and request input
/// from the client.
///
/// The handler's future is dropped when the client cancels the call. To cancel a call, the client
/// sends `notifications/cancelled` or, in the modern era over HTTP, closes the response. Cloning an
/// `McpCall` is cheap.
#[derive(Clone, Debug)]
pub struct McpCall {
    pub(super) protocol: Protocol,
    pub(super) request: Arc<Request>,
    pub(super) peer: Arc<Peer>,
    pub(super) out: mpsc::Sender<Outgoing>,
    /// The client's answers so far, keyed by question. The answers are used only in the modern era.
    pub(super) answered: Arc<Map<String, Value>>,
}

impl McpCall {
    /// Reports progress if the client requested it by sending a `progressToken`, and otherwise has
    /// no effect. `total` is the final value of `progress`, if it is known.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = self.meta().get("progressToken") else {
            return;
        };
        let mut params = json!({ "progressToken": token, "progress": progress });
        if let Some(total) = total {
            params["total"] = json!(total);
        }
        if let Some(message) = message {
            params["message"] = json!(message);
        }
        self.notify("notifications/progress", params).await;
    }

    /// Sends a notification to the client unchanged, even if it is invalid, for example a log
    /// message with the method `notifications/message`.
    pub async fn notify(&self, method: &str, params: Value) {
        self.send(notification(method, &params)).await;
    }

    /// Asks the client a question and returns the client's result. `method` must be
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    ///
    /// `key` must identify the question within the call.
    ///
    /// In the legacy era, `ask` sends a request and waits for the response. In the modern era, a
    /// call cannot wait for a response, so `ask` returns an `Err` that contains the question. The
    /// handler must return the value in this `Err`. The client then repeats the call and includes
    /// its answer to the question, and the handler runs again from the start.
    ///
    /// # Errors
    ///
    /// Returns a value that the handler must return. In the modern era, this value contains the
    /// question. If the client rejects the question or has not declared the required capability,
    /// the value is an error.
    pub async fn ask(&self, key: &str, method: &str, params: Value) -> Result<Value, McpAnswer> {
        let capability = method.split('/').next().unwrap_or_default();
        match self.protocol {
            Protocol::Modern => {
                if let Some(result) = self.answered.get(key) {
                    return Ok(result.clone());
                }
                let declared = self.meta().get("io.modelcontextprotocol/clientCapabilities");
                if declared.is_none_or(|declared| declared.get(capability).is_none()) {
                    let message = format!("the client has no capability `{capability}`");
                    let required = json!({ "requiredCapabilities": { capability: {} } });
                    return Err(McpAnswer::rpc_error(MISSING_CAPABILITY, message)
                        .with_field("data", required));
                }
                Err(McpAnswer(Outcome::InputRequired {
                    key: key.to_owned(),
                    request: json!({ "method": method, "params": params }),
                    answered: self.answered.as_ref().clone(),
                }))
            }
            Protocol::Legacy => {
                if !self.peer.has_capability(capability) {
                    let message = format!("the client has no capability `{capability}`");
                    return Err(McpAnswer::error(message));
                }
                let id = self.peer.next_request_id();
                let response = self.peer.expect_response(&id);
                let request =
                    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
                self.send(request).await;
                match response.await {
                    Ok(Ok(result)) => Ok(result),
                    Ok(Err(error)) => {
                        Err(McpAnswer::error(format!("the client refused `{method}`: {error}")))
                    }
                    Err(_) => Err(McpAnswer::error("the session ended before the client answered")),
                }
            }
        }
    }

    /// Asks the user for input that matches a schema, using `elicitation/create`; see
    /// [`ask`](Self::ask). The result contains an `action` and, if the action is `accept`, a
    /// `content`.
    ///
    /// # Errors
    ///
    /// Returns an `Err` in the same cases as [`ask`](Self::ask).
    pub async fn elicit(
        &self,
        key: &str,
        message: &str,
        schema: Value,
    ) -> Result<Value, McpAnswer> {
        let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
        self.ask(key, "elicitation/create", params).await
    }

    /// Returns the request's `_meta` field, or null if the request does not have this field.
    pub fn meta(&self) -> &Value {
        self.request.params.get("_meta").unwrap_or(&Value::Null)
    }
    async fn send(&self, message: Value) {
        // Sending fails only if the receiver was dropped because the client closed the response.
        let _ = self.out.send(Outgoing::Message(message)).await;
    }
}
