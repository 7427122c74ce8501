//! An open connection to a server, and how it is opened.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use rmcp::model::{ClientRequest, ProtocolVersion};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions, RoleClient, RunningService,
    ServiceError,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use turnstream::error::{Error, ErrorKind};

use crate::active_calls::ActiveCalls;
use crate::connection_state::ConnectionState;
use crate::endpoint::Endpoint;
use crate::http_events::Resumptions;
use crate::line_channel::{LineChannel, Mismatch, OutputReport};
use crate::lock::lock_ignoring_poison;
use crate::process::ServerProcess;
use crate::sdk::connection_settings::ConnectionSettings;
use crate::sdk::error_context::{
    ErrorContext, LatestOutput, ProgramOutput, Redirected, Refusal, RequestFailed, mask_secrets,
};
use crate::sdk::handler::Handler;
use crate::sdk::http_backend::HttpBackend;
use crate::sdk::http_transport::HttpTransport;
use crate::sdk::line_transport::LineTransport;
use crate::sdk::messages::key;
use crate::sdk::pending_request::{CallUpdate, PendingRequest, RequestFailure};
use crate::sdk::tool_changes::subscribe_to_tool_changes;
use crate::server_requests::ServerRequests;
use crate::{Era, Limits, ServerInfo};

/// The newest protocol version that this crate has been tested with.
const NEWEST_VERSION: ProtocolVersion = ProtocolVersion::V_2026_07_28;

/// The maximum time to wait for the answer to `server/discover`. A server that does not respond
/// needs a new connection, whereas rmcp would send `initialize` on the same connection after 10
/// seconds.
const MAX_PROBE: Duration = Duration::from_secs(9);

/// An open connection to a server. Dropping the connection closes it, and kills the server's
/// process if the process does not exit in time.
pub(crate) struct Connection {
    pub(crate) info: ServerInfo,
    peer: Peer<RoleClient>,
    /// The running service, or `None` after the connection has been closed.
    service: Mutex<Option<RunningService<RoleClient, Handler>>>,
    calls: Arc<ActiveCalls>,
    state: Arc<ConnectionState>,
    context: ErrorContext,
    limits: Limits,
    subscription: Option<tokio::task::AbortHandle>,
    /// The runtime on which the connection's tasks run.
    runtime: Handle,
}

/// Specifies how a connection is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    /// Sends `server/discover`, followed by `initialize` if the server answers with an error.
    Probe,
    /// Sends only `server/discover`.
    Modern,
    /// Sends only `initialize`.
    Legacy,
}

impl Connection {
    /// Connects to the server. Dropping the returned future stops the attempt to connect.
    ///
    /// The method `server/discover`, introduced with protocol version 2026-07-28, is sent first,
    /// unless the connection replaces an ended session of the older protocol. If
    /// the server answers with an error, `initialize` is sent on the same connection. If the server
    /// does not respond or closes the connection, `initialize` is sent to a new process or over a
    /// new connection.
    pub(crate) async fn open(settings: &ConnectionSettings) -> Result<Self, Error> {
        if Handle::try_current().is_err() {
            let message = "an MCP server needs a tokio runtime, and it was polled outside of any";
            return Err(Error::new(ErrorKind::Connect, message).with_retryable(false));
        }
        let (start, latest) = (settings.limits.start, LatestOutput::default());
        match tokio::time::timeout(start, Self::probe(settings, &latest)).await {
            Ok(connected) => connected,
            Err(_) => {
                let latest = lock_ignoring_poison(&latest);
                let about = latest.as_ref().map(ProgramOutput::describe).unwrap_or_default();
                let about = mask_secrets(&settings.endpoint.secrets(), &about);
                let message = format!(
                    "the MCP server `{}` was not ready after {start:?}{about}",
                    settings.name
                );
                Err(Error::new(ErrorKind::Timeout, message))
            }
        }
    }

    async fn probe(settings: &ConnectionSettings, latest: &LatestOutput) -> Result<Self, Error> {
        let limit = MAX_PROBE.min(settings.limits.start / 3);
        if settings.first_era == Era::Legacy {
            let legacy = Self::begin(settings, Lifecycle::Legacy, latest);
            if let Ok(Ok(connection)) = tokio::time::timeout(limit, legacy).await {
                return Ok(connection);
            }
        }
        let probe = Self::begin(settings, Lifecycle::Probe, latest);
        let probe = tokio::time::timeout(limit, probe).await;
        let probe_error = match probe {
            Ok(Ok(connection)) => return Ok(connection),
            // Another version of the protocol would result in the same error.
            Ok(Err(error)) if is_final(&error) => return Err(error),
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        let legacy = match Self::begin(settings, Lifecycle::Legacy, latest).await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        if probe_error.is_none() && legacy.find_source::<Refusal>().is_some() {
            // The server was slow to start, and rejects the methods of versions before 2026-07-28.
            return Self::begin(settings, Lifecycle::Modern, latest).await;
        }
        Err(legacy)
    }

    /// Connects using the given lifecycle. Dropping the returned future stops the attempt to
    /// connect.
    async fn begin(
        settings: &ConnectionSettings,
        lifecycle: Lifecycle,
        latest: &LatestOutput,
    ) -> Result<Self, Error> {
        let limits = &settings.limits;
        let (output, state) = (Arc::<OutputReport>::default(), Arc::<ConnectionState>::default());
        let requests = ServerRequests::new(limits.message_bytes);
        let (server, endpoint) = (settings.name.clone(), settings.endpoint.clone());
        let connection = Arc::clone(&state);
        let mut context = ErrorContext { server, endpoint, process: None, output, connection };
        match &settings.endpoint {
            Endpoint::Stdio(command) => {
                let (process, stdout, stdin) = ServerProcess::start(command, limits)?;
                let report = Arc::clone(&context.output);
                let channel = LineChannel::new(stdout, stdin, limits.message_bytes, report)
                    .ending_with(process.wait_exited());
                context.process = Some(Arc::new(process));
                *lock_ignoring_poison(latest) = Some(context.program_output());
                let transport = LineTransport::new(channel, Arc::clone(&requests));
                Self::serve(settings, lifecycle, transport, context, state, requests).await
            }
            Endpoint::Streams(open) => {
                let (reader, writer) = open().await.map_err(|error| {
                    let message =
                        format!("the MCP server `{}` could not be reached: {error}", settings.name);
                    Error::new(ErrorKind::Connect, message).with_source(error)
                })?;
                let report = Arc::clone(&context.output);
                let channel = LineChannel::new(reader, writer, limits.message_bytes, report);
                *lock_ignoring_poison(latest) = Some(context.program_output());
                let transport = LineTransport::new(channel, Arc::clone(&requests));
                Self::serve(settings, lifecycle, transport, context, state, requests).await
            }
            Endpoint::Http(http) => {
                let backend = HttpBackend {
                    client: http.http_client.reqwest_client(http.address.as_str())?,
                    endpoint: Arc::clone(http),
                    state: Arc::clone(&state),
                    resumptions: Arc::<Resumptions>::default(),
                };
                let mut config =
                    StreamableHttpClientTransportConfig::with_uri(http.address.as_str());
                config.max_sse_event_size = limits.message_bytes;
                config.max_json_response_size = limits.message_bytes;
                // rmcp would send a call again in a new session without listing the tools first.
                config.reinit_on_expired_session = false;
                let transport = HttpTransport {
                    inner: StreamableHttpClientTransport::with_client(backend, config),
                    requests: Arc::clone(&requests),
                };
                Self::serve(settings, lifecycle, transport, context, state, requests).await
            }
        }
    }

    async fn serve<T, E, A>(
        settings: &ConnectionSettings,
        lifecycle: Lifecycle,
        transport: T,
        context: ErrorContext,
        state: Arc<ConnectionState>,
        requests: Arc<ServerRequests>,
    ) -> Result<Self, Error>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: StdError + Send + Sync + 'static,
    {
        let handler = Handler::new(settings, Arc::clone(&state), requests)?;
        let calls = Arc::clone(&handler.calls);
        let preferred_versions = vec![NEWEST_VERSION];
        let mode = match lifecycle {
            Lifecycle::Probe => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Lifecycle::Modern => ClientLifecycleMode::Discover { preferred_versions },
            Lifecycle::Legacy => ClientLifecycleMode::Initialize,
        };
        let service = match handler.serve_with_lifecycle(transport, mode).await {
            Ok(service) => service,
            Err(error) => return Err(context.on_start_error(error).await),
        };
        let peer = service.peer().clone();
        let info = server_info(&peer);
        let subscription = (info.era == Era::Modern && info.reports_tool_changes).then(|| {
            tokio::spawn(subscribe_to_tool_changes(peer.clone(), Arc::clone(&state))).abort_handle()
        });
        let (service, limits) = (Mutex::new(Some(service)), settings.limits);
        let runtime = Handle::current();
        Ok(Self { info, peer, service, calls, state, context, limits, subscription, runtime })
    }

    /// Returns whether requests can be sent over this connection.
    pub(crate) fn is_open(&self) -> bool {
        let has_ended = self.context.process.as_ref().is_some_and(|process| process.has_exited());
        !has_ended && !self.peer.is_transport_closed() && !self.has_session_ended()
    }

    /// Returns whether the server has ended the connection's session.
    pub(crate) fn has_session_ended(&self) -> bool {
        self.state.has_session_ended()
    }

    /// Returns the tool list's revision, which increases with each change that the server reports,
    /// and whenever the server may have been replaced.
    pub(crate) fn tools_revision(&self) -> u64 {
        self.state.tools_revision()
    }

    /// Returns the end of the server process's standard error output.
    pub(crate) fn stderr(&self) -> Option<String> {
        let text = self.context.process.as_ref()?.report.stderr();
        Some(self.context.mask(&text))
    }

    /// Sends a request that is not a tool call, and waits at most [`Limits::request`] for the
    /// answer.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Result<Value, Error> {
        let limit = self.limits.request;
        let answered = async {
            let mut pending = self.send(method, params).await;
            std::future::poll_fn(|cx| {
                loop {
                    match pending.poll_update(cx) {
                        Poll::Ready(CallUpdate::Answered(answer)) => return Poll::Ready(answer),
                        // Only tool calls report progress and ask for input.
                        Poll::Ready(CallUpdate::Arrived(_)) => {}
                        Poll::Pending => return Poll::Pending,
                    }
                }
            })
            .await
        };
        match tokio::time::timeout(limit, answered).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(failure)) => Err(self.describe(failure).await),
            Err(_) => {
                let message = format!(
                    "the MCP server `{}` did not answer `{method}` within {limit:?}",
                    self.context.server
                );
                Err(Error::new(ErrorKind::Timeout, message))
            }
        }
    }

    /// Sends a request. Dropping the returned `PendingRequest` before the answer arrives cancels
    /// the request on the server. If the request cannot be sent, the answer is the failure.
    pub(crate) async fn send(&self, method: &str, params: Value) -> PendingRequest {
        let request: Result<ClientRequest, _> =
            serde_json::from_value(json!({ "method": method, "params": params }));
        let sending = (method == "tools/call").then(|| self.calls.begin_sending());
        let sent = match request {
            Ok(request) => {
                self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await
            }
            Err(_) => Err(ServiceError::UnexpectedResponse),
        };
        let (method, runtime) = (method.to_owned(), self.runtime.clone());
        match sent {
            Ok(handle) => {
                let call = sending
                    .as_ref()
                    .map(|_| self.calls.register(key(&handle.id), key(&handle.progress_token.0)));
                PendingRequest { method, runtime, handle: Some(handle), call, answer: None }
            }
            Err(error) => {
                let answer = Some(Err(RequestFailure(error)));
                PendingRequest { method, runtime, handle: None, call: None, answer }
            }
        }
    }

    /// Converts the reason for a failed request into this crate's error type.
    pub(crate) async fn describe(&self, failure: RequestFailure) -> Error {
        if matches!(failure.0, ServiceError::TransportSend(_) | ServiceError::TransportClosed) {
            // The server may have been replaced. Over HTTP, the connection stays open.
            self.state.on_tools_changed();
        }
        self.context.on_service_error(failure.0).await
    }

    /// Closes the connection and waits until the server's process and its process group are gone.
    pub(crate) async fn close(&self) {
        let service = lock_ignoring_poison(&self.service).take();
        if let Some(process) = &self.context.process {
            process.stop();
        }
        if let Some(mut service) = service {
            let _ = service.close_with_timeout(self.limits.close).await;
        }
        if let Some(process) = &self.context.process {
            process.wait_ended().await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(subscription) = &self.subscription {
            subscription.abort();
        }
    }
}

/// Returns whether connecting with any other lifecycle would result in the same error.
fn is_final(error: &Error) -> bool {
    let is_unreachable = || {
        error.find_source::<RequestFailed>().is_some()
            || error.find_source::<std::io::Error>().is_some()
    };
    matches!(error.kind(), ErrorKind::Auth | ErrorKind::RateLimited)
        || error.kind() == ErrorKind::Connect && is_unreachable()
        || error.find_source::<Mismatch>().is_some()
        || error.find_source::<Redirected>().is_some()
}

fn server_info(peer: &Peer<RoleClient>) -> ServerInfo {
    let info = peer.peer_info();
    let json =
        info.map(|info| serde_json::to_value(&*info).unwrap_or_default()).unwrap_or_default();
    ServerInfo::from_json(&json)
}
