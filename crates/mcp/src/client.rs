//! Connects to an MCP server and offers its tools to agents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, ready};
use std::io;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use turnstream::error::{Error, ErrorKind};
use turnstream::tool::{
    PreparedCall, Tool, ToolHandler, ToolList, ToolOutput, ToolSource, ToolSpec, ToolUpdate,
    Toolkit,
};

use crate::call::call_tool;
use crate::client_builder::ClientBuilder;
use crate::content::MediaRules;
use crate::endpoint::{Endpoint, HttpEndpoint, Streams};
#[cfg(doc)]
use crate::limits::Limits;
use crate::listing::{ListedTool, Listing};
use crate::lock::lock_ignoring_poison;
use crate::shared_client::{Settings, SharedClient};
use crate::{ServerCommand, ServerInfo};

/// A client for one MCP server, which gives access to the server's tools, resources and prompts.
/// Cloning a client is cheap, and all clones share one connection.
///
/// To give the tools to an agent, pass the client to
/// [`Agent::with_tool_source`](turnstream::Agent::with_tool_source). The agent then lists the tools
/// before each request, so it detects changes. [`toolkit`](Self::toolkit) returns a snapshot of the
/// current tools.
///
/// # The connection
///
/// The client connects on first use: it starts the server's process, or sends a first request to
/// the server's address, and detects which version of the protocol the server uses. If the
/// connection breaks or the server ends the session, the next use of the client reconnects, lists
/// the tools again, and compares their definitions. The connection requires a tokio runtime, on
/// which it spawns its tasks. If the runtime shuts down, the server's process is also terminated.
///
/// The connection is closed when the last clone of the client and the last of its tools are
/// dropped. Closing the connection closes the standard input of the server's process, which must
/// then exit within [`Limits::close`]. If the process does not exit in time, the process and its
/// entire process group are killed. Processes that have left the group keep running. On Windows,
/// only the process itself is killed. [`close`](Self::close) waits until the killed processes are
/// gone.
///
/// Dropping the future of a method cancels the method's request on the server. An attempt to
/// connect, including the process that it started, ends once no method is waiting for it. If the
/// future of `close` is dropped after its first poll, the connection is still closed.
///
/// [`allow`](Self::allow), [`trusted`](Self::trusted), [`only`](Self::only) and
/// [`without`](Self::without) return a client that shares the existing connection, so two agents
/// can use different tools from the same server.
///
/// # Trust
///
/// Each call requires [approval](turnstream::Tool::requires_approval), unless the called tool is
/// [allowed](Self::allow) or the server is [trusted](Self::trusted). A server's hints about its
/// tools never change whether a call requires approval. If a tool's description, schema or hints
/// change after the tool was first listed, calls to the tool require approval again, until a call
/// to the changed tool is approved. A call that the model made before it received the changed
/// definition does not run. [`ClientBuilder::with_fingerprints`] extends this check across restarts
/// of your program.
///
/// A call that requires approval ends the run with the reason
/// [`Pending`](turnstream::event::EndReason::Pending). To continue the run, call
/// [`Agent::resume`](turnstream::Agent::resume). An [interactive](turnstream::Agent::interactive) run waits
/// for the approval instead.
///
/// ```no_run
/// use turnstream_mcp::{Client, ServerCommand};
/// use turnstream::provider::Anthropic;
/// use turnstream::Agent;
///
/// # async fn run() -> Result<(), turnstream::Error> {
/// let command = ServerCommand::new("npx").args(["-y", "@modelcontextprotocol/server-filesystem", "."]);
/// let files = Client::stdio(command).build().allow(["read_text_file", "list_directory"]);
/// let agent = Agent::new(Anthropic::new("claude-sonnet-4-5")).with_tool_source(files.clone());
/// let outcome = agent.run("What is in this folder?").outcome().await;
/// println!("{}", outcome.text);
/// files.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<SharedClient>,
    view: Arc<View>,
}

/// Selects which of the server's tools to use, and which of them may be called without approval.
#[derive(Default)]
struct View {
    trusts_all: bool,
    allowed: BTreeSet<String>,
    only: Option<BTreeSet<String>>,
    without: BTreeSet<String>,
    /// The tools built from the most recent listing.
    built: Mutex<Option<BuiltTools>>,
}

#[derive(Clone)]
struct BuiltTools {
    listing: Arc<Listing>,
    accepted_revision: u64,
    tools: Arc<[Tool]>,
    /// Why tools were left out. The model receives these notes.
    left_out: Arc<[String]>,
    /// Which allowed tools require approval because their definitions have changed or were never
    /// accepted.
    untrusted: Arc<[String]>,
}

impl ClientBuilder {
    /// Creates the client, which connects on first use. Each client that is created with this
    /// method has a connection of its own.
    pub fn build(self) -> Client {
        Client::from_shared(self.into_shared())
    }
}

impl Client {
    /// Configures a client for a server that runs as a process on this machine.
    pub fn stdio(command: ServerCommand) -> ClientBuilder {
        ClientBuilder::new(Endpoint::Stdio(command))
    }

    /// Configures a client that connects over streamable HTTP to the server at `url`, for example
    /// `https://mcp.example.com/mcp`. Neither the older transport with two addresses (`sse`) nor
    /// interactive login is supported. For a server that requires OAuth, pass a token to
    /// [`with_credential`](ClientBuilder::with_credential).
    ///
    /// A redirect with status 307 or 308 is followed within the origin of `url`. Any other redirect
    /// results in an [`InvalidRequest`](ErrorKind::InvalidRequest) error that contains the address.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if `url` is not an `http` or
    /// `https` address.
    pub fn http(url: &str) -> Result<ClientBuilder, Error> {
        Ok(ClientBuilder::new(Endpoint::Http(Arc::new(HttpEndpoint::new(url)?))))
    }

    /// Configures a client for a server that reads and writes lines on a pair of streams, such as a
    /// socket or an SSH channel. The client calls `open` for each connection attempt. If a server
    /// does not respond to the newer version of the protocol, the client calls `open` again to try
    /// the older version.
    ///
    /// ```
    /// use turnstream_mcp::Client;
    /// use turnstream_testing::mcp::McpServer;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let server = McpServer::new();
    /// let client = Client::streams(move || {
    ///     let server = server.clone();
    ///     async move {
    ///         let (here, there) = tokio::io::duplex(1024);
    ///         let (reader, writer) = tokio::io::split(there);
    ///         tokio::spawn(server.serve(reader, writer));
    ///         Ok(tokio::io::split(here))
    ///     }
    /// });
    /// let client = client.build();
    /// assert_eq!(client.server_info().await?.protocol_version, "2026-07-28");
    /// # Ok(())
    /// # }
    /// ```
    pub fn streams<F, Fut, R, W>(open: F) -> ClientBuilder
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<(R, W)>> + Send + 'static,
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let open = move || {
            let opening = open();
            async move {
                let (reader, writer) = opening.await?;
                Ok::<Streams, io::Error>((Box::new(reader), Box::new(writer)))
            }
            .boxed()
        };
        ClientBuilder::new(Endpoint::Streams(Arc::new(open)))
    }

    pub(crate) fn from_shared(shared: SharedClient) -> Self {
        Self { shared: Arc::new(shared), view: Arc::default() }
    }

    /// Lets all calls to the server's tools run without approval. Use it only for a server that you
    /// run or have read.
    pub fn trusted(self) -> Self {
        self.update_view(|view| view.trusts_all = true)
    }

    /// Lets calls to these tools run without approval. As in [`only`](Self::only) and
    /// [`without`](Self::without), use the server's own tool names. Names that the server does not
    /// list are ignored.
    pub fn allow<T: Into<String>>(self, tools: impl IntoIterator<Item = T>) -> Self {
        self.update_view(|view| view.allowed.extend(tools.into_iter().map(Into::into)))
    }

    /// Restricts the client to these tools, in place of an earlier restriction. Other tools are not
    /// listed.
    pub fn only<T: Into<String>>(self, tools: impl IntoIterator<Item = T>) -> Self {
        self.update_view(|view| view.only = Some(tools.into_iter().map(Into::into).collect()))
    }

    /// Excludes these tools from the client, in addition to those already excluded.
    pub fn without<T: Into<String>>(self, tools: impl IntoIterator<Item = T>) -> Self {
        self.update_view(|view| view.without.extend(tools.into_iter().map(Into::into)))
    }

    /// Returns the server's name, used as the prefix for its tool names.
    pub fn name(&self) -> &str {
        &self.shared.settings.name
    }

    /// Lists the server's tools and returns them as a toolkit.
    ///
    /// An agent that uses the returned toolkit keeps the definitions from this listing. If a tool's
    /// definition changes later, calls to the tool do not run. For tools that may change, use
    /// [`Agent::with_tool_source`](turnstream::Agent::with_tool_source).
    ///
    /// # Errors
    ///
    /// If a server's process fails, the error message includes the last lines of its standard error
    /// output.
    ///
    /// - [`Connect`](ErrorKind::Connect) if the process or the address cannot be reached or the
    ///   connection breaks, and [`Timeout`](ErrorKind::Timeout) if the connection is not ready in
    ///   time.
    /// - [`Auth`](ErrorKind::Auth) if the server requires authorization or rejects the
    ///   authorization that was sent.
    /// - [`Unsupported`](ErrorKind::Unsupported) if the server uses a version of the protocol that
    ///   this client does not support, and [`Protocol`](ErrorKind::Protocol) if the server violates
    ///   the protocol.
    /// - [`TooLarge`](ErrorKind::TooLarge) if the server's list exceeds the [limits](Limits).
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest) if a key would be sent over plain HTTP.
    pub async fn toolkit(&self) -> Result<Toolkit, Error> {
        Ok(Toolkit::new(self.list().await?.tools.iter().cloned()))
    }

    /// Calls a tool directly from your program, without a model. `tool` is the server's own name
    /// for the tool. The arguments are sent unchanged, no approval is required, and the call's
    /// progress is not reported. The server may ask the user questions, but may not send requests
    /// to a model.
    ///
    /// Dropping the future cancels the call on the server.
    ///
    /// ```
    /// use serde_json::json;
    /// # use turnstream_mcp::Client;
    /// # async fn run(clock: Client) -> Result<(), turnstream::Error> {
    /// let output = clock.call_tool("get_current_time", json!({ "timezone": "Europe/Oslo" })).await?;
    /// println!("{}", output.content.text());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the server does not have
    /// the tool, or any error that [`toolkit`](Self::toolkit) returns. A failure after the call has
    /// started is not returned as an error, but is described in the output.
    pub async fn call_tool(&self, tool: &str, arguments: Value) -> Result<ToolOutput, Error> {
        let listing = self.shared.listing().await?;
        let known = listing.tools.iter().find(|known| known.original_name == tool);
        let Some(listed) = known.filter(|_| self.view.shows(tool)) else {
            let message = format!("the MCP server `{}` has no tool `{tool}`", self.name());
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter(tool));
        };
        let (shared, listed) = (Arc::clone(&self.shared), Arc::new(listed.clone()));
        let mut updates = call_tool(shared, listed, &arguments, self.media(), None);
        let limit = self.shared.settings.limits.call_total;
        let ended = tokio::time::timeout(limit, async {
            while let Some(update) = updates.next().await {
                if let ToolUpdate::Output(output) = update {
                    return output;
                }
            }
            // A missing output is impossible, because a call always ends with its output.
            ToolOutput::error("Error: the call ended without an output.")
        });
        Ok(ended.await.unwrap_or_else(|_| {
            let text = "The call may have taken effect in part: check before you repeat it.";
            ToolOutput::error(format!("Timed out after {limit:?}. {text}"))
        }))
    }

    /// Returns notes about the most recent listings: which tools were left out and why, which
    /// allowed tools require approval because their definitions have changed or were never
    /// accepted, and which lists of tools, resources or prompts may be incomplete, because the
    /// server did not mark their end. The list of notes is empty if nothing has been listed yet.
    pub fn notes(&self) -> Vec<String> {
        let built = lock_ignoring_poison(&self.view.built);
        let of_tools = built.iter().flat_map(|built| {
            built.left_out.iter().chain(&*built.untrusted).chain(&built.listing.end_note)
        });
        of_tools.cloned().chain(self.shared.end_notes()).collect()
    }

    /// Returns the server's description of itself, connecting to the server first if necessary.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`toolkit`](Self::toolkit).
    pub async fn server_info(&self) -> Result<ServerInfo, Error> {
        Ok(self.shared.connection().await?.info.clone())
    }

    /// Returns the fingerprints of the accepted tool definitions, keyed by the server's own tool
    /// names. Store the fingerprints to pass them to [`ClientBuilder::with_fingerprints`] later. A
    /// tool's accepted definition is the first definition that the server listed, or the definition
    /// used by the last approved call to the tool. If necessary, this method lists the tools first.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`toolkit`](Self::toolkit).
    pub async fn fingerprints(&self) -> Result<BTreeMap<String, String>, Error> {
        self.shared.listing().await?;
        let accepted = self.shared.accepted();
        let as_text = |(name, fingerprint)| (name, format!("{fingerprint:032x}"));
        Ok(accepted.by_name.into_iter().map(as_text).collect())
    }

    /// Returns the last [`Limits::stderr_bytes`] bytes of the server process's standard error
    /// output. Returns `None` if the client did not start the server as a process.
    pub fn stderr(&self) -> Option<String> {
        self.shared.last_connection()?.stderr()
    }

    /// Closes the connection and waits until the server's process and its process group are gone.
    /// Calls in progress fail. The next use of the client reconnects.
    pub async fn close(&self) {
        self.shared.close().await;
    }

    pub(crate) fn shared(&self) -> &SharedClient {
        &self.shared
    }

    pub(crate) fn media(&self) -> MediaRules {
        let Settings { media, limits, .. } = &self.shared.settings;
        MediaRules { parts: *media, max_bytes: limits.media_bytes }
    }

    /// Returns those of the server's tools that this client selects. The tools are built only once
    /// for each listing.
    async fn list(&self) -> Result<BuiltTools, Error> {
        let listing = self.shared.listing().await?;
        let accepted_revision = self.shared.accepted_revision();
        let mut built = lock_ignoring_poison(&self.view.built);
        if let Some(built) = &*built
            && Arc::ptr_eq(&built.listing, &listing)
            && built.accepted_revision == accepted_revision
        {
            return Ok(built.clone());
        }
        let made = self.build_tools(listing);
        *built = Some(made.clone());
        Ok(made)
    }

    fn build_tools(&self, listing: Arc<Listing>) -> BuiltTools {
        let accepted = self.shared.accepted();
        let (mut left_out, mut untrusted) = (listing.left_out.clone(), Vec::new());
        let mut tools = Vec::new();
        for tool in listing.tools.iter().filter(|tool| self.view.shows(&tool.original_name)) {
            let is_accepted = accepted.by_name.get(&tool.original_name) == Some(&tool.fingerprint);
            let is_trusted = self.view.trusts(&tool.original_name);
            if is_trusted && !is_accepted {
                untrusted.push(format!(
                    "the definition of `{}` is not the one that was trusted: its calls need approval",
                    tool.spec.name
                ));
            }
            match self.build_tool(tool, is_trusted && is_accepted) {
                Ok(tool) => tools.push(tool),
                Err(error) => {
                    left_out.push(format!("`{}` cannot be called: {error}", tool.spec.name));
                }
            }
        }
        let accepted_revision = accepted.revision;
        BuiltTools {
            listing,
            accepted_revision,
            tools: tools.into(),
            left_out: left_out.into(),
            untrusted: untrusted.into(),
        }
    }

    fn build_tool(&self, listed: &ListedTool, runs_freely: bool) -> Result<Tool, Error> {
        // The closure must not capture the view, because the view owns the tools.
        let (shared, listed) = (Arc::clone(&self.shared), Arc::new(listed.clone()));
        let (media, is_read_only) = (self.media(), listed.is_read_only);
        let fingerprint = listed.fingerprint;
        let (recording, recorded) = (Arc::clone(&shared), Arc::clone(&listed));
        let tool = Tool::raw(listed.spec.clone(), move |arguments, cx| {
            let (shared, listed) = (Arc::clone(&shared), Arc::clone(&listed));
            ready(call_tool(shared, listed, &arguments, media, Some(cx)))
        })?;
        let tool = Tool::from_handler(Recorded { tool, shared: recording, listed: recorded });
        let settings = &self.shared.settings;
        let tool = tool.with_fingerprint(&format!("{fingerprint:032x}"));
        let mut tool = tool.with_timeout(settings.limits.call_total);
        if !is_read_only {
            tool = tool.exclusive();
        }
        if !runs_freely {
            tool = tool.requires_approval();
        }
        if settings.answerers.sampling.is_some() {
            tool = tool.running_sub_agents();
        }
        Ok(tool)
    }

    fn update_view(self, update: impl FnOnce(&mut View)) -> Self {
        let mut view = self.view.with_nothing_built();
        update(&mut view);
        Self { view: Arc::new(view), ..self }
    }
}

/// Lists the tools before each request in a run. The full list is fetched again only after the
/// server has reported a change or the client has reconnected. If fetching the list fails, the run
/// keeps the previous list and adds a note about the failure; the first listing of a run has no
/// previous list, so the run ends.
impl ToolSource for Client {
    fn name(&self) -> &str {
        self.name()
    }

    fn list_tools(&self) -> BoxFuture<'static, Result<ToolList, Error>> {
        let client = self.clone();
        async move {
            let BuiltTools { tools, left_out, .. } = client.list().await?;
            let notes = left_out.to_vec();
            Ok(ToolList { notes, ..ToolList::new(tools.to_vec()) })
        }
        .boxed()
    }
}

/// Records which definition of a tool each call was prepared with.
struct Recorded {
    tool: Tool,
    shared: Arc<SharedClient>,
    listed: Arc<ListedTool>,
}

impl ToolHandler for Recorded {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
        let prepared = self.tool.prepare(arguments)?;
        self.shared.remember_prepared(&self.listed, arguments);
        Ok(prepared)
    }
}

impl View {
    fn shows(&self, tool: &str) -> bool {
        let is_chosen = self.only.as_ref().is_none_or(|only| only.contains(tool));
        is_chosen && !self.without.contains(tool)
    }

    fn trusts(&self, tool: &str) -> bool {
        self.trusts_all || self.allowed.contains(tool)
    }

    fn with_nothing_built(&self) -> Self {
        Self {
            trusts_all: self.trusts_all,
            allowed: self.allowed.clone(),
            only: self.only.clone(),
            without: self.without.clone(),
            built: Mutex::default(),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name())
            .field("endpoint", &self.shared.settings.endpoint)
            .finish_non_exhaustive()
    }
}
