//! A handle that lets tests observe and change a running server.

use std::fmt;
use std::sync::Arc;

use crate::mcp::log::McpReceived;
use crate::mcp::state::State;
use crate::mcp::tool::McpTool;

/// A handle for reading the log of a running [`McpServer`](crate::mcp::McpServer) and making
/// changes to the server. Cloning the handle is cheap. Dropping a handle does not stop the server.
#[derive(Clone)]
pub struct McpServerHandle(pub(super) Arc<State>);

impl McpServerHandle {
    /// Returns a copy of all messages received so far, over all connections and in order. The list
    /// never shrinks.
    pub fn received(&self) -> Vec<McpReceived> {
        self.0.log.received()
    }

    /// Returns the methods of the messages received so far, excluding responses, which have no
    /// method.
    pub fn methods(&self) -> Vec<String> {
        let received = self.received();
        let methods = received.iter().map(McpReceived::method);
        methods.filter(|method| !method.is_empty()).map(str::to_owned).collect()
    }

    /// Returns a one-sentence description of each protocol violation by a client. A test of a
    /// client asserts that the list is empty.
    pub fn violations(&self) -> Vec<String> {
        self.0.log.violations()
    }

    /// Waits until `reached` returns `true` for the received messages. If `reached` returns `true`
    /// for the messages received so far, this method returns immediately. `reached` is called again
    /// after each change to the log, and must not use the handle.
    ///
    /// A test can await this method instead of sleeping. Dropping the returned future only ends the
    /// wait.
    pub async fn wait_until(&self, reached: impl FnMut(&[McpReceived]) -> bool) {
        self.0.log.wait_until(reached).await;
    }

    /// Replaces the tools and notifies clients. In the legacy era, each client is notified on its
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
