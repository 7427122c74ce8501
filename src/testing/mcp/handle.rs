//! A handle that tests use to observe and change a running server.

use std::fmt;
use std::sync::Arc;

use crate::testing::mcp::log::McpReceived;
use crate::testing::mcp::state::State;
use crate::testing::mcp::tool::McpTool;

/// Reads the log of a running [`McpServer`](crate::testing::mcp::McpServer), and makes changes to
/// the server. The handle is cheap to clone.
#[derive(Clone)]
pub struct McpServerHandle(pub(super) Arc<State>);

impl McpServerHandle {
    /// Returns all messages received so far over all connections, in order.
    pub fn received(&self) -> Vec<McpReceived> {
        self.0.log.received()
    }

    /// Returns the methods of the messages received so far. Responses are left out, because a
    /// response has no method.
    pub fn methods(&self) -> Vec<String> {
        let received = self.received();
        let methods = received.iter().map(McpReceived::method);
        methods.filter(|method| !method.is_empty()).map(str::to_owned).collect()
    }

    /// Returns a one-sentence description of each protocol violation by a client.
    pub fn violations(&self) -> Vec<String> {
        self.0.log.violations()
    }

    /// Waits until `reached` returns `true` for the received messages. If `reached` already returns
    /// `true` for the current log, this method returns immediately. `reached` is called after each
    /// change to the log, and must not use the handle.
    ///
    /// A test can await this method instead of sleeping.
    pub async fn wait_until(&self, reached: impl FnMut(&[McpReceived]) -> bool) {
        self.0.log.wait_until(reached).await;
    }

    /// Replaces the tools and notifies clients. In the legacy era, clients are notified on their
    /// session's stream. In the modern era, only clients with a subscription are notified.
    pub fn set_tools(&self, tools: impl IntoIterator<Item = McpTool>) {
        self.0.set_tools(tools.into_iter().collect());
    }

    /// Ends all legacy-era HTTP sessions, as if the server had restarted. The next request in each
    /// session receives a response with status 404.
    pub fn expire_sessions(&self) {
        self.0.close_all_sessions();
    }
}

impl fmt::Debug for McpServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerHandle").finish_non_exhaustive()
    }
}
