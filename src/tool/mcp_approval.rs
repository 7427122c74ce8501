//! The tool that approves the calls of an MCP server to which a provider connects.

use crate::error::Error;
use crate::request::ClientTool;
use crate::tool::Tool;

impl Tool {
    /// Creates the tool that approves calls to the MCP server named `server`, to which the provider
    /// connects and whose calls [need an approval](crate::request::McpServer::require_approval).
    ///
    /// A call to the server is a call of this tool, whose arguments are the `name` of the server's
    /// tool and its `arguments`. The call waits for an approval like any other call that
    /// [requires one](Self::requires_approval). If it is approved, the provider runs the server's
    /// tool. If it is denied, or if the run ends before, the provider does not run it, and the
    /// model sees the reason.
    ///
    /// The provider runs the call with the arguments that the model wrote. If a hook
    /// [rewrites](crate::agent::hook::CallDecision::RewriteArguments) them, the call is not
    /// approved.
    ///
    /// An approval is sent once: if the model continues without the call's result, for example
    /// after an interrupted turn, the approval is not sent again. Nor is a request with a new
    /// approval repeated by [`Retry`](crate::provider::Retry), by an HTTP provider or by
    /// [`Limits::max_turn_retries`](crate::agent::Limits::max_turn_retries) after an error after
    /// which the call may have run: unless nothing was sent, or the server refused the request with
    /// a status from 400 to 499 other than 408 and 409, the run ends with the error. If you then
    /// continue the history, or if a crashed durable run resumes, the approval is sent again, and
    /// the call may run twice. So it may with a [fallback](crate::Agent::with_fallback) to the same
    /// model; another model does not receive the approval.
    ///
    /// A [`Verdict::ApproveAlways`](crate::tool::Verdict::ApproveAlways) for all calls of this tool
    /// approves all calls to the server.
    ///
    /// ```
    /// use turnstream::Tool;
    /// use turnstream::request::{McpServer, Options};
    ///
    /// let wiki = McpServer {
    ///     name: "wiki".into(),
    ///     url: "https://mcp.example".into(),
    ///     require_approval: true,
    ///     ..McpServer::default()
    /// };
    /// let options = Options { server_tools: vec![wiki.into()], ..Options::default() };
    /// let approval = Tool::mcp_approval("wiki")?;
    /// assert!(approval.is_approval_required());
    /// # let _ = options;
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if the server's name
    /// has more than 51 characters or a character that a tool's name must not contain.
    pub fn mcp_approval(server: impl Into<String>) -> Result<Self, Error> {
        let spec = ClientTool::McpApproval { server: server.into() }.spec();
        let tool = Self::raw(spec, |_, _| async { ClientTool::APPROVED })?;
        // The approval itself changes nothing, so it may be repeated after a crash.
        Ok(tool.requires_approval().idempotent())
    }
}
