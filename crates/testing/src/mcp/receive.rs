//! Receives the messages that need no answer: notifications and the client's responses.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::mcp::fault::McpFault;
use crate::mcp::message::Request;
use crate::mcp::peer::Peer;
use crate::mcp::state::State;

impl State {
    pub(super) fn receive_notification(
        &self,
        peer: &Peer,
        method: &str,
        params: &Map<String, Value>,
    ) {
        match method {
            "notifications/initialized" => match peer.legacy_version() {
                Some(_) => peer.set_initialized(),
                None => self.log.record_violation(format!("`{method}` came before `initialize`")),
            },
            "notifications/cancelled" => match params.get("requestId") {
                Some(id) => peer.cancel(id),
                None => self.log.record_violation(format!("`{method}` has no `requestId`")),
            },
            // All other notifications, even those with unknown methods, are allowed and have no
            // effect.
            _ => {}
        }
    }

    pub(super) fn receive_response(&self, peer: &Peer, id: &Value, outcome: Result<Value, Value>) {
        if !peer.take_response(id, outcome) {
            let violation =
                format!("a response came for {id}, which is not a request of the server");
            self.log.record_violation(violation);
        }
    }

    /// Returns whether a fault prevents the server from answering the request.
    pub(super) fn is_silent_on(&self, request: &Request) -> bool {
        let is_first = matches!(request.method.as_str(), "server/discover" | "initialize");
        self.has_fault(McpFault::Silent)
            || (self.has_fault(McpFault::SilentAfterDiscover) && !is_first)
    }

    /// Returns the delay before each byte, if a fault sets a delay.
    pub(super) fn drip(&self) -> Option<Duration> {
        self.faults().into_iter().find_map(|fault| match fault {
            McpFault::SlowDrip(wait) => Some(wait),
            _ => None,
        })
    }
}
