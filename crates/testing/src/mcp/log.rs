//! Records every message that the server receives.

use serde_json::Value;
use tokio::sync::watch;

/// A message that the server received. If the message is a request, its state is also recorded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct McpReceived {
    /// The message as the client sent it. A line that is not JSON is recorded as a string.
    pub message: Value,
    /// The HTTP headers sent with the message, with lower-case names. Over stdio, this list is
    /// empty.
    pub headers: Vec<(String, String)>,
    /// The request's state, or `None` if the message is a notification, a response, or a message
    /// that could not be parsed.
    pub status: Option<McpRequestStatus>,
}

/// The state of a request that the server received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpRequestStatus {
    /// The request has not been answered yet.
    Running,
    /// The request was answered with a result or an error.
    Answered,
    /// The client cancelled the request or the connection ended, and the request's handler was
    /// dropped.
    Cancelled,
}

impl McpReceived {
    /// Returns the message's method, or an empty string for a response.
    pub fn method(&self) -> &str {
        self.message.get("method").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the message's parameters, or null if it has none.
    pub fn params(&self) -> &Value {
        self.message.get("params").unwrap_or(&Value::Null)
    }

    /// Returns the first value of the header with this name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns whether this message is a `tools/call` request for the tool `name`. A test counts
    /// the calls of a tool with it.
    pub fn is_call(&self, name: &str) -> bool {
        self.method() == "tools/call" && self.params().get("name").is_some_and(|n| n == name)
    }
}

/// The contents of the log.
#[derive(Debug, Default)]
pub(super) struct LogEntries {
    pub(super) received: Vec<McpReceived>,
    pub(super) violations: Vec<String>,
}

/// The log, which notifies waiting futures when it changes.
#[derive(Debug, Default)]
pub(super) struct Log(watch::Sender<LogEntries>);

impl Log {
    pub(super) fn record(
        &self,
        message: Value,
        headers: &[(String, String)],
        status: Option<McpRequestStatus>,
    ) -> usize {
        let mut index = 0;
        self.0.send_modify(|log| {
            index = log.received.len();
            log.received.push(McpReceived { message, headers: headers.to_vec(), status });
        });
        index
    }

    pub(super) fn record_violation(&self, violation: impl Into<String>) {
        self.0.send_modify(|log| log.violations.push(violation.into()));
    }

    /// Sets the status of the request with this index, if the request is still running.
    pub(super) fn end(&self, index: usize, status: McpRequestStatus) {
        self.0.send_modify(|log| {
            if let Some(entry) = log.received.get_mut(index)
                && entry.status == Some(McpRequestStatus::Running)
            {
                entry.status = Some(status);
            }
        });
    }

    pub(super) fn received(&self) -> Vec<McpReceived> {
        self.0.borrow().received.clone()
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.0.borrow().violations.clone()
    }

    pub(super) async fn wait_until(&self, mut reached: impl FnMut(&[McpReceived]) -> bool) {
        let mut log = self.0.subscribe();
        // Waiting cannot fail, because `self` owns the sender.
        let _ = log.wait_for(|log| reached(&log.received)).await;
    }
}
