//! Configures a scripted server.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::mcp::era::McpEra;
use crate::mcp::fault::McpFault;
use crate::mcp::handle::McpServerHandle;
use crate::mcp::http::McpHttpServer;
use crate::mcp::resource::{Contents, Prompt, Resource};
use crate::mcp::state::{Settings, State};
use crate::mcp::stdio;
use crate::mcp::tool::McpTool;

/// A scripted MCP server, for tests and examples.
///
/// The server supports both eras of the protocol, over a pair of streams ([`serve`](Self::serve))
/// or over HTTP on the loopback device ([`start_http`](Self::start_http)). The server is strict: it
/// records protocol violations in [`violations`](McpServerHandle::violations), and rejects invalid
/// messages where the protocol requires it to reject them. An [`McpFault`] makes the server
/// misbehave.
///
/// Clones share the tools, the settings and the log.
///
/// For an example, see the [module](crate::mcp).
#[derive(Clone, Default)]
pub struct McpServer {
    state: Arc<State>,
}

impl McpServer {
    /// Creates a server that has no tools and supports both eras.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets which forms of the protocol the server supports. The default is both.
    pub fn with_era(self, era: McpEra) -> Self {
        self.with(|settings| settings.era = era)
    }

    /// Sets the instructions that the server sends in response to `server/discover` or
    /// `initialize`.
    pub fn with_instructions(self, instructions: impl Into<String>) -> Self {
        self.with(|settings| settings.instructions = Some(instructions.into()))
    }

    /// Adds a tool to the end of the tool list, without notifying clients. To change the tools of a
    /// running server, use [`McpServerHandle::set_tools`].
    pub fn with_tool(self, tool: McpTool) -> Self {
        self.with(|settings| settings.tools.push(tool))
    }

    /// Adds a text resource, which `resources/list` lists and `resources/read` returns.
    pub fn with_resource(self, uri: &str, name: &str, mime_type: &str, text: &str) -> Self {
        self.with_contents(uri, name, mime_type, Contents::Text(text.to_owned()))
    }

    /// Adds a binary resource, whose bytes are sent as base64.
    pub fn with_binary_resource(
        self,
        uri: &str,
        name: &str,
        mime_type: &str,
        bytes: impl Into<Bytes>,
    ) -> Self {
        self.with_contents(uri, name, mime_type, Contents::Blob(bytes.into()))
    }

    /// Adds a prompt that consists of one user message. The template contains each argument as
    /// `{name}`, and all arguments are required.
    pub fn with_prompt(
        self,
        name: &str,
        description: &str,
        arguments: &[&str],
        template: &str,
    ) -> Self {
        let prompt = Prompt {
            name: name.to_owned(),
            description: description.to_owned(),
            arguments: arguments.iter().map(|&name| name.to_owned()).collect(),
            template: template.to_owned(),
        };
        self.with(|settings| settings.prompts.push(prompt))
    }

    /// Sets the number of entries on each page of a list. A value of 0 is treated as 1. By default,
    /// each list has only one page.
    pub fn with_page_size(self, entries: usize) -> Self {
        self.with(|settings| settings.page_size = Some(entries))
    }

    /// Adds a fault, with which the server misbehaves. The faults of one server add up.
    pub fn with_fault(self, fault: McpFault) -> Self {
        self.with(|settings| settings.faults.push(fault))
    }

    /// Requires HTTP requests to contain this header with this value. A request that lacks this
    /// header or has another value receives a response with status 401. This method has no effect
    /// on [`serve`](Self::serve).
    pub fn with_required_header(self, name: &str, value: &str) -> Self {
        let header = (name.to_owned(), value.to_owned());
        self.with(|settings| settings.required_headers.push(header))
    }

    /// Returns a handle for reading the log and changing the tools, even while the server is
    /// running.
    pub fn handle(&self) -> McpServerHandle {
        McpServerHandle(Arc::clone(&self.state))
    }

    /// Serves a single client over a pair of streams, such as stdin and stdout or the halves of a
    /// [`tokio::io::duplex`] stream. The returned future completes when the reader ends.
    ///
    /// This method does not spawn tasks. When the reader ends, any handlers that are still running
    /// are dropped. Dropping the returned future drops the streams and all running handlers.
    ///
    /// # Errors
    ///
    /// Returns an error if reading or writing fails.
    pub async fn serve(self, reader: impl AsyncRead, writer: impl AsyncWrite) -> io::Result<()> {
        stdio::serve(self.state, reader, writer).await
    }

    /// Starts the server on a free port of 127.0.0.1. Dropping the returned [`McpHttpServer`] stops
    /// it and closes its connections.
    ///
    /// # Errors
    ///
    /// Returns an error if no port of 127.0.0.1 is available.
    ///
    /// # Panics
    ///
    /// Panics if called outside a tokio runtime, or if the runtime's I/O or time driver is not
    /// enabled.
    pub async fn start_http(self) -> io::Result<McpHttpServer> {
        McpHttpServer::start(self.state).await
    }

    fn with_contents(self, uri: &str, name: &str, mime_type: &str, contents: Contents) -> Self {
        let resource = Resource {
            uri: uri.to_owned(),
            name: name.to_owned(),
            mime_type: mime_type.to_owned(),
            contents,
        };
        self.with(|settings| settings.resources.push(resource))
    }

    fn with(self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.state.settings());
        self
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("era", &self.state.era()).finish_non_exhaustive()
    }
}
