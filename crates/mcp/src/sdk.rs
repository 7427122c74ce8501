//! Connects to an MCP server with rmcp, the protocol's official SDK. Only this file and
//! `http_backend` use rmcp's types.
//!
//! rmcp spawns its own tasks on the runtime in which a connection was created. The tasks belong to
//! the connection, never to a run. The tasks pass messages to calls through [`ActiveCalls`], which
//! discards messages for dropped calls.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{FutureExt, future};
use rmcp::ErrorData;
use rmcp::model::{
    ClientConfig, ClientJsonRpcMessage, ClientRequest, ClientResult, CustomResult, ErrorCode,
    NumberOrString, ProtocolVersion, ServerJsonRpcMessage, ServerNotification, ServerRequest,
    ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, InboundStreamOrigin,
    NotificationContext, Peer, PeerRequestOptions, RequestContext, RequestHandle, RoleClient,
    RunningService, Service, ServiceError,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError,
    StreamableHttpClientTransportConfig, StreamableHttpError,
};
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport, Transport};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use turnstream::env::{Clock, SystemClock};
use turnstream::error::{Error, ErrorKind};
use turnstream::http::{self, RefusedRedirect, Secret, reqwest, secrets_in_url};

use crate::active_calls::{ActiveCallGuard, ActiveCalls, Arrived, Question};
use crate::connection_state::{ConnectionState, HttpFailure};
use crate::endpoint::Endpoint;
use crate::http_backend::HttpBackend;
use crate::http_events::{Resumptions, TOO_MANY_VALUES, answered_request_id};
use crate::json_values::{MAX_JSON_VALUES, has_too_many_values};
use crate::line_channel::{LineChannel, Mismatch, OutputReport, SendQueue};
use crate::lock::lock_ignoring_poison;
use crate::process::{ProcessReport, ServerProcess};
use crate::questions::declined_answer;
use crate::server_requests::{ServerRequests, UnsentAnswer};
use crate::truncate::truncate_middle;
use crate::{Era, Limits, ServerInfo};

/// The newest protocol version that this crate has been tested with.
const NEWEST_VERSION: ProtocolVersion = ProtocolVersion::V_2026_07_28;

/// The requests that only a client sends, one of which starts each connection.
const STARTING_REQUESTS: [&str; 2] = ["server/discover", "initialize"];

/// The maximum time to wait for the answer to `server/discover`. A server that does not respond
/// needs a new connection, whereas rmcp would send `initialize` on the same connection after 10
/// seconds.
const MAX_PROBE: Duration = Duration::from_secs(9);

/// How long to wait for a process to exit after it has closed its output, so that an error can
/// include the exit status.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(250);

/// The initial and the maximum delay before subscribing again to changes of the tool list.
const RESUBSCRIBE_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// The settings for a connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSettings {
    /// The server's name, for use in messages.
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) limits: Limits,
    /// The capabilities to declare to the server, as JSON.
    pub(crate) capabilities: Value,
    /// The answer to `roots/list`, or `None` if the server may not request the folders.
    pub(crate) roots: Option<Value>,
    /// The protocol to try first.
    pub(crate) first_era: Era,
}

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

/// Details for a connection's error messages.
#[derive(Clone)]
struct ErrorContext {
    server: String,
    endpoint: Endpoint,
    process: Option<Arc<ServerProcess>>,
    output: Arc<OutputReport>,
    connection: Arc<ConnectionState>,
}

/// A program's output, for an error's message.
struct ProgramOutput {
    process: Option<Arc<ProcessReport>>,
    output: Arc<OutputReport>,
}

impl ProgramOutput {
    /// Returns the process's exit status and its output, for use in a message. Returns an empty
    /// string if there is nothing to report.
    fn describe(&self) -> String {
        let about = self.process.as_ref().map(|process| process.describe()).unwrap_or_default();
        match self.output.noise.get() {
            Some(noise) => format!("{about}; it wrote to its standard output: {noise}"),
            None => about,
        }
    }
}

/// The output of the program that was started most recently, or `None` before one was started.
type LatestOutput = Mutex<Option<ProgramOutput>>;

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

/// A request that has been sent. Dropping this value cancels the request on the server, unless the
/// server has already answered it.
pub(crate) struct PendingRequest {
    method: String,
    /// The runtime on which the connection's tasks run.
    runtime: Handle,
    handle: Option<RequestHandle<RoleClient>>,
    call: Option<ActiveCallGuard>,
    answer: Option<Result<Value, RequestFailure>>,
}

/// An update on a pending request: progress or a question from the server, or the answer.
pub(crate) enum CallUpdate {
    Arrived(Arrived),
    Answered(Result<Value, RequestFailure>),
}

/// The reason why a request did not receive an answer.
pub(crate) struct RequestFailure(ServiceError);

impl RequestFailure {
    /// Returns whether the server rejected the request because it does not know the session any
    /// more. The server has not processed the request.
    pub(crate) fn is_session_end(&self) -> bool {
        let ServiceError::TransportSend(error) = &self.0 else { return false };
        matches!(
            error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>(),
            Some(StreamableHttpError::SessionExpired)
        )
    }
}

impl PendingRequest {
    /// Polls for the next update. Any progress and questions are returned before the answer. After
    /// the answer has been returned, every poll returns `Pending`.
    pub(crate) fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<CallUpdate> {
        if let Some(call) = &self.call
            && let Poll::Ready(arrived) = call.poll_arrived(cx)
        {
            return Poll::Ready(CallUpdate::Arrived(arrived));
        }
        match self.poll_is_answered(cx) {
            Poll::Ready(()) => match self.answer.take() {
                Some(answer) => Poll::Ready(CallUpdate::Answered(answer)),
                None => Poll::Pending,
            },
            Poll::Pending => Poll::Pending,
        }
    }

    /// Becomes ready once the answer has arrived.
    pub(crate) fn poll_is_answered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.answer.is_some() {
            return Poll::Ready(());
        }
        let Some(handle) = &mut self.handle else { return Poll::Pending };
        let Poll::Ready(answer) = Pin::new(&mut handle.rx).poll(cx) else { return Poll::Pending };
        (self.handle, self.call) = (None, None);
        let answer = answer.unwrap_or(Err(ServiceError::TransportClosed));
        let value = answer.and_then(|result: ServerResult| result_json(&self.method, result));
        self.answer = Some(value.map_err(RequestFailure));
        Poll::Ready(())
    }
}

/// Returns a result as JSON. Over HTTP, rmcp infers the kind of a result from the result's fields,
/// and drops the fields that belong to other kinds. Returns an error if the result of a `method`
/// request cannot have the inferred kind.
fn result_json(method: &str, result: ServerResult) -> Result<Value, ServiceError> {
    let is_of_call = matches!(
        result,
        ServerResult::CustomResult(_)
            | ServerResult::EmptyResult(_)
            | ServerResult::CallToolResult(_)
            | ServerResult::InputRequiredResult(_)
            | ServerResult::TaskAckResult(_)
            | ServerResult::CreateTaskResult(_)
    );
    let is_right = method != "tools/call" || is_of_call;
    if !is_right {
        return Err(ServiceError::UnexpectedResponse);
    }
    serde_json::to_value(result).map_err(|_| ServiceError::UnexpectedResponse)
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // A single poll is enough to pass the message to the connection's task, unless a
            // thousand other messages are queued. The poll is unconstrained, because the current
            // task may have used up its budget.
            let mut cancel = handle.cancel(Some("the caller no longer waits".to_owned())).boxed();
            if tokio::task::unconstrained(&mut cancel).now_or_never().is_none() {
                self.runtime.spawn(cancel);
            }
        }
    }
}

/// An error that the server sent in response to a request.
#[derive(Debug, thiserror::Error)]
#[error("the server answered with the error {code}")]
pub(crate) struct Refusal {
    /// The error's JSON-RPC code.
    pub(crate) code: i32,
}

/// Marks an error as caused by a session that the server does not know any more. The server has not
/// processed the request.
#[derive(Debug, thiserror::Error)]
#[error("the session has ended")]
pub(crate) struct SessionEnd;

/// A line that is not a message from a server.
enum OtherLine {
    /// A request of this client, which the program has sent back.
    RepeatedInput,
    Noise,
    /// A message that is not passed on.
    Ignored,
}

/// Transports messages as lines.
///
/// This transport replaces rmcp's own transport for three reasons:
///
/// - This transport queues each message as soon as rmcp hands it over, so a cancellation never
///   overtakes the request that it cancels.
/// - The queue is limited, so it cannot grow without bound if the server does not read.
/// - Results keep their original JSON, whereas rmcp infers the kind of a result from the result's
///   fields.
struct LineTransport<R, W> {
    /// The channel, or `None` after the transport has been closed.
    channel: Option<LineChannel<R, W>>,
    queue: SendQueue,
    requests: Arc<ServerRequests>,
    /// The ids of the requests that rmcp itself sent and whose results rmcp reads.
    own_requests: HashSet<String>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineTransport<R, W> {
    fn new(channel: LineChannel<R, W>, requests: Arc<ServerRequests>) -> Self {
        let queue = channel.queue();
        Self { channel: Some(channel), queue, requests, own_requests: HashSet::new() }
    }

    /// Parses a message for rmcp.
    fn read(&mut self, line: &[u8]) -> Result<ServerJsonRpcMessage, OtherLine> {
        if has_too_many_values(line) {
            return self.read_too_large(line);
        }
        let json: Value = serde_json::from_slice(line).map_err(|_| OtherLine::Noise)?;
        let id = serde_json::from_value::<NumberOrString>(json["id"].clone()).ok();
        if id.is_some() && STARTING_REQUESTS.iter().any(|method| json["method"] == *method) {
            return Err(OtherLine::RepeatedInput);
        }
        if let (Some(id), None) = (&id, json.get("method")) {
            self.requests.on_answer(&key(id));
        }
        if let Some(id) = id
            && json.get("method").is_none()
            && !self.own_requests.remove(&key(&id))
            && let Some(result) = json.get("result")
        {
            let result = ServerResult::CustomResult(CustomResult(result.clone()));
            return Ok(ServerJsonRpcMessage::response(result, id));
        }
        let message = serde_json::from_value(json).map_err(|_| OtherLine::Noise)?;
        if let ServerJsonRpcMessage::Request(request) = &message
            && !self.requests.begin(key(&request.id), line)
        {
            return Err(OtherLine::Ignored);
        }
        match is_withdrawal(&self.requests, &message) {
            true => Err(OtherLine::Ignored),
            false => Ok(message),
        }
    }

    /// Reads only the id of a message that has too many values. Returns an error in place of the
    /// answer to a request, and ignores any other message.
    fn read_too_large(&mut self, line: &[u8]) -> Result<ServerJsonRpcMessage, OtherLine> {
        let id = answered_request_id(line).map_err(|_| OtherLine::Noise)?;
        let id = id.and_then(|id| serde_json::from_value::<NumberOrString>(id).ok());
        let Some(id) = id else { return Err(OtherLine::Ignored) };
        self.requests.on_answer(&key(&id));
        self.own_requests.remove(&key(&id));
        let message = format!("the message has more than {MAX_JSON_VALUES} JSON values");
        let error = ErrorData::new(ErrorCode(TOO_MANY_VALUES), message, None);
        Ok(ServerJsonRpcMessage::error(error, Some(id)))
    }
}

/// Returns the id of a request of the handshake.
fn starting_request_id(message: &ClientJsonRpcMessage) -> Option<&NumberOrString> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    let is_start = matches!(
        request.request,
        ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
    );
    is_start.then_some(&request.id)
}

/// Returns whether a message withdraws an open request of the server. Such a message is not passed
/// to rmcp, which would not send the request's answer to the transport.
fn is_withdrawal(requests: &ServerRequests, message: &ServerJsonRpcMessage) -> bool {
    let ServerJsonRpcMessage::Notification(notification) = message else { return false };
    let ServerNotification::CancelledNotification(cancelled) = &notification.notification else {
        return false;
    };
    cancelled.params.request_id.as_ref().is_some_and(|id| requests.withdraw(&key(id)))
}

/// An outgoing message.
enum Outgoing {
    /// An answer to a request of the server.
    Answer(UnsentAnswer),
    /// An answer to a request that the server has withdrawn, which is not sent.
    Withdrawn,
    /// A request or a notification.
    Other,
}

impl Outgoing {
    fn new(requests: &Arc<ServerRequests>, message: &ClientJsonRpcMessage) -> Self {
        let id = match message {
            ClientJsonRpcMessage::Response(response) => Some(&response.id),
            ClientJsonRpcMessage::Error(error) => error.id.as_ref(),
            ClientJsonRpcMessage::Request(_) | ClientJsonRpcMessage::Notification(_) => None,
        };
        match id {
            Some(id) => requests.answer(key(id)).map_or(Self::Withdrawn, Self::Answer),
            None => Self::Other,
        }
    }
}

/// Limits the requests of a server over HTTP. A request that exceeds the limits is ignored: the
/// answers are sent by the same task that receives messages, so that task cannot wait for them.
struct HttpTransport<T> {
    inner: T,
    requests: Arc<ServerRequests>,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for HttpTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        if let Some(id) = starting_request_id(&message) {
            self.requests.on_start_sent(key(id));
        }
        let outgoing = Outgoing::new(&self.requests, &message);
        let is_sent = !matches!(outgoing, Outgoing::Withdrawn);
        let sending = is_sent.then(|| self.inner.send(message));
        async move {
            let sent = match sending {
                Some(sending) => sending.await,
                None => Ok(()),
            };
            drop(outgoing);
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let message = self.inner.receive().await?;
            let answered = match &message {
                ServerJsonRpcMessage::Response(response) => Some(&response.id),
                ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
                ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
            };
            if let Some(id) = answered {
                self.requests.on_answer(&key(id));
            }
            let is_ignored = match &message {
                ServerJsonRpcMessage::Request(request) => {
                    let json = serde_json::to_vec(&request.request).unwrap_or_default();
                    let id = key(&request.id);
                    !self.requests.has_capacity() || !self.requests.begin(id, &json)
                }
                message => is_withdrawal(&self.requests, message),
            };
            if !is_ignored {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

impl<R, W> Transport<RoleClient> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &message
            && matches!(
                request.request,
                ClientRequest::InitializeRequest(_)
                    | ClientRequest::DiscoverRequest(_)
                    | ClientRequest::SubscriptionsListenRequest(_)
            )
        {
            self.own_requests.insert(key(&request.id));
        }
        if let Some(id) = starting_request_id(&message) {
            self.requests.on_start_sent(key(id));
        }
        let answer = match Outgoing::new(&self.requests, &message) {
            Outgoing::Answer(answer) => Some(answer),
            Outgoing::Withdrawn => return future::ready(Ok(())),
            Outgoing::Other => None,
        };
        let sent = match (&self.channel, serde_json::to_vec(&message)) {
            (Some(_), Ok(line)) => {
                self.queue.push(line, answer);
                Ok(())
            }
            (Some(_), Err(error)) => Err(error.into()),
            (None, _) => Err(std::io::ErrorKind::NotConnected.into()),
        };
        future::ready(sent)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            // Reading a buffered line never waits, but the tasks that handle messages must run.
            tokio::task::consume_budget().await;
            let (requests, channel) = (&self.requests, self.channel.as_mut()?);
            let poll_capacity = |cx: &mut Context<'_>| requests.poll_capacity(cx);
            let line = future::poll_fn(|cx| channel.poll_line(cx, poll_capacity)).await?;
            let read = self.read(&line);
            let channel = self.channel.as_mut()?;
            match read {
                Ok(message) => {
                    channel.on_message();
                    return Some(message);
                }
                Err(OtherLine::RepeatedInput) => channel.on_repeated_input(&line),
                Err(OtherLine::Noise) => channel.on_noise(&line),
                Err(OtherLine::Ignored) => channel.on_message(),
            }
        }
    }

    async fn close(&mut self) -> std::io::Result<()> {
        self.channel = None;
        self.queue.clear();
        Ok(())
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

/// Converts a request id or a progress token into a string.
fn key(id: &NumberOrString) -> String {
    match id {
        NumberOrString::Number(number) => number.to_string(),
        NumberOrString::String(text) => format!("\"{text}"),
    }
}

fn server_info(peer: &Peer<RoleClient>) -> ServerInfo {
    let info = peer.peer_info();
    let json =
        info.map(|info| serde_json::to_value(&*info).unwrap_or_default()).unwrap_or_default();
    ServerInfo::from_json(&json)
}

/// Listens for changes to the tool list until the connection is closed. The connection owns the
/// task that runs this future, and aborts it when the connection closes.
async fn subscribe_to_tool_changes(peer: Peer<RoleClient>, state: Arc<ConnectionState>) {
    let filter: Result<SubscriptionFilter, _> =
        serde_json::from_value(json!({ "toolsListChanged": true }));
    let Ok(filter) = filter else { return };
    let (mut wait, longest) = RESUBSCRIBE_BACKOFF;
    while !peer.is_transport_closed() {
        if let Ok(mut subscription) = peer.listen(filter.clone()).await {
            // The tool list may have changed before the first subscription, or between two
            // subscriptions.
            state.on_tools_changed();
            wait = RESUBSCRIBE_BACKOFF.0;
            while let Ok(Some(_)) = subscription.next().await {
                state.on_tools_changed();
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(longest);
    }
}

/// Implements the client's side of the protocol. rmcp calls the methods of this type when it
/// receives a message from the server.
struct Handler {
    config: ClientConfig,
    roots: Option<Value>,
    calls: Arc<ActiveCalls>,
    state: Arc<ConnectionState>,
    requests: Arc<ServerRequests>,
}

impl Handler {
    fn new(
        settings: &ConnectionSettings,
        state: Arc<ConnectionState>,
        requests: Arc<ServerRequests>,
    ) -> Result<Self, Error> {
        let config = json!({
            "protocolVersion": ProtocolVersion::LATEST_WITH_INITIALIZE,
            "capabilities": settings.capabilities,
            "clientInfo": { "name": "turnstream", "version": env!("CARGO_PKG_VERSION") },
        });
        let config = serde_json::from_value(config).map_err(|error| {
            let message = format!("the capabilities cannot be written: {error}");
            Error::new(ErrorKind::InvalidRequest, message)
        })?;
        let (roots, calls) = (settings.roots.clone(), Arc::default());
        Ok(Self { config, roots, calls, state, requests })
    }

    /// Passes a request from the server to one of the active calls, and waits for the answer of
    /// that call.
    async fn ask(
        &self,
        request: &ServerRequest,
        context: &RequestContext<RoleClient>,
    ) -> Result<Value, ErrorData> {
        let mut request = serde_json::to_value(request).unwrap_or_default();
        let method = request["method"].as_str().unwrap_or_default().to_owned();
        let origin = context.extensions.get::<InboundStreamOrigin>();
        let request_id = origin.and_then(|origin| match origin {
            InboundStreamOrigin::OutboundRequest(id) => Some(key(id)),
            InboundStreamOrigin::Unassociated => None,
        });
        let (answer, answered) = oneshot::channel();
        let question =
            Question { method: method.clone(), params: request["params"].take(), answer };
        let declined = || {
            declined_answer(&method).ok_or_else(|| {
                ErrorData::new(ErrorCode::INVALID_REQUEST, "the client has declined", None)
            })
        };
        let Some(asking) = self.requests.begin_asking(&key(&context.id)) else {
            return declined();
        };
        if self.calls.on_question(request_id.as_deref(), question).is_err() {
            return declined();
        }
        tokio::select! {
            answer = answered => answer.or_else(|_| declined()),
            () = asking.withdrawn() => declined(),
            () = context.ct.cancelled() => declined(),
        }
    }
}

impl Service<RoleClient> for Handler {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let unreadable = |error: serde_json::Error| {
            ErrorData::new(ErrorCode::INTERNAL_ERROR, format!("no such answer: {error}"), None)
        };
        match &request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            ServerRequest::ListRootsRequest(_) => match &self.roots {
                Some(roots) => serde_json::from_value(roots.clone())
                    .map(ClientResult::ListRootsResult)
                    .map_err(unreadable),
                None => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "roots/list", None)),
            },
            ServerRequest::ElicitRequest(_) => {
                let answer = self.ask(&request, &context).await?;
                serde_json::from_value(answer).map(ClientResult::ElicitResult).map_err(unreadable)
            }
            ServerRequest::CreateMessageRequest(_) => {
                let answer = self.ask(&request, &context).await?;
                serde_json::from_value(answer)
                    .map(|result| ClientResult::CreateMessageResult(Box::new(result)))
                    .map_err(unreadable)
            }
            // rmcp cannot parse some requests, such as a form without fields.
            ServerRequest::CustomRequest(custom) if custom.method == "elicitation/create" => {
                let answer = self.ask(&request, &context).await?;
                serde_json::from_value(answer).map(ClientResult::ElicitResult).map_err(unreadable)
            }
            request => {
                let request = serde_json::to_value(request).unwrap_or_default();
                let method = request["method"].as_str().unwrap_or_default().to_owned();
                Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None))
            }
        }
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                let params = progress.params;
                let token = key(&params.progress_token.0);
                let mut shown = json!({ "progress": params.progress });
                if let Some(total) = params.total {
                    shown["total"] = json!(total);
                }
                if let Some(message) = params.message {
                    shown["message"] = shortened(&message).into();
                }
                self.calls.on_progress(&token, shown);
            }
            ServerNotification::ToolListChangedNotification(_) => {
                self.state.on_tools_changed();
            }
            _ => {}
        }
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }
}

impl ErrorContext {
    fn program_output(&self) -> ProgramOutput {
        let process = self.process.as_ref().map(|process| Arc::clone(&process.report));
        ProgramOutput { process, output: Arc::clone(&self.output) }
    }

    /// Masks the configured keys and the sent tokens in a string.
    fn mask(&self, text: &str) -> String {
        mask_secrets(&self.endpoint.secrets(), text)
    }

    async fn on_start_error(&self, error: ClientInitializeError) -> Error {
        let server = &self.server;
        match error {
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
                Box::pin(self.on_start_error(*fallback)).await
            }
            ClientInitializeError::ConnectionClosed(_) => self.on_closed().await,
            ClientInitializeError::TransportError { error, .. } => {
                self.on_transport_error(&*error.error).await
            }
            ClientInitializeError::JsonRpcError(error) => self.refused(&error),
            ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
                let versions: Vec<_> =
                    server_supported.iter().map(ProtocolVersion::as_str).collect();
                let message = format!(
                    "the MCP server `{server}` speaks none of the protocol's versions that this \
                     client does, but {}",
                    if versions.is_empty() { "names none".to_owned() } else { versions.join(", ") }
                );
                Error::new(ErrorKind::Unsupported, message)
            }
            other => {
                let what = self.mask(&shortened(&other.to_string()));
                let message =
                    format!("the MCP server `{server}` broke its protocol at the start: {what}");
                Error::new(ErrorKind::Protocol, message)
            }
        }
    }

    async fn on_service_error(&self, error: ServiceError) -> Error {
        let server = &self.server;
        match error {
            ServiceError::McpError(error) => self.refused(&error),
            ServiceError::TransportSend(error) => self.on_transport_error(&*error.error).await,
            ServiceError::TransportClosed => self.on_closed().await,
            ServiceError::Timeout { .. } => {
                let message = format!("the MCP server `{server}` did not answer in time");
                Error::new(ErrorKind::Timeout, message)
            }
            other => {
                let what = self.mask(&shortened(&other.to_string()));
                let message = format!("the MCP server `{server}` broke its protocol: {what}");
                Error::new(ErrorKind::Protocol, message)
            }
        }
    }

    fn refused(&self, error: &ErrorData) -> Error {
        if error.code.0 == TOO_MANY_VALUES {
            let message = format!(
                "the MCP server `{}` sent a message with more than {MAX_JSON_VALUES} JSON values",
                self.server
            );
            return Error::new(ErrorKind::TooLarge, message);
        }
        let kind = match error.code {
            ErrorCode::METHOD_NOT_FOUND => ErrorKind::Unsupported,
            ErrorCode::INVALID_PARAMS | ErrorCode::INVALID_REQUEST => ErrorKind::InvalidRequest,
            _ => ErrorKind::Server,
        };
        let text = self.mask(&shortened(&error.message));
        let message =
            format!("the MCP server `{}` refused: {text} (code {})", self.server, error.code.0);
        Error::new(kind, message).with_source(Refusal { code: error.code.0 })
    }

    /// Returns the error for a closed connection. The error message states whether the server
    /// exceeded a limit or closed the connection.
    async fn on_closed(&self) -> Error {
        let server = &self.server;
        if let Some(limit) = self.output.oversized_line.get() {
            let message =
                format!("the MCP server `{server}` sent a message of more than {limit} bytes");
            return Error::new(ErrorKind::TooLarge, message);
        }
        if let Some(bytes) = self.output.unread_bytes.get() {
            let message =
                format!("the MCP server `{server}` did not read {bytes} bytes that it was sent");
            return Error::new(ErrorKind::Connect, message);
        }
        if let Some(mismatch) = self.output.mismatch.get() {
            let about = self.mask(&self.program_output().describe());
            let message = format!(
                "the program of the MCP server `{server}` is not an MCP server: {mismatch}{about}"
            );
            let error = Error::new(ErrorKind::Protocol, message).with_source(*mismatch);
            return error.with_retryable(false);
        }
        if let Some(process) = &self.process {
            let _ = tokio::time::timeout(EXIT_STATUS_TIMEOUT, process.wait_exited()).await;
        }
        match self.connection.http_failure() {
            Some(HttpFailure::Status { status, retry_after }) => {
                return self.status_error(status, retry_after.as_deref());
            }
            Some(HttpFailure::CutOff) => return self.cut_off_error(),
            None => {}
        }
        let (address, about) = (self.address(), self.mask(&self.program_output().describe()));
        let message = format!("the MCP server `{server}`{address} closed its connection{about}");
        Error::new(ErrorKind::Connect, message)
    }

    async fn on_transport_error(&self, error: &(dyn StdError + Send + Sync + 'static)) -> Error {
        match self.transport_error(error) {
            Some(error) => error,
            // `None` means that a pipe was closed.
            None => self.on_closed().await,
        }
    }

    /// Returns the transport's error, or `None` if the connection was closed.
    fn transport_error(&self, error: &(dyn StdError + 'static)) -> Option<Error> {
        let server = &self.server;
        for source in source_chain(error) {
            if let Some(own) = source
                .downcast_ref::<std::io::Error>()
                .and_then(|error| error.get_ref())
                .and_then(|inner| inner.downcast_ref::<Error>())
            {
                return Some(own.clone());
            }
            if source.is::<AuthRequiredError>() || source.is::<InsufficientScopeError>() {
                let status = if source.is::<AuthRequiredError>() { 401 } else { 403 };
                return Some(self.auth_error(status));
            }
            if let Some(HttpStatusError { status, retry_after, .. }) = source.downcast_ref() {
                return Some(self.status_error(*status, retry_after.as_deref()));
            }
            if let Some(error) = source.downcast_ref::<reqwest::Error>() {
                return Some(self.on_http_error(error));
            }
            match source.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
                Some(StreamableHttpError::Client(error)) => return Some(self.on_http_error(error)),
                Some(StreamableHttpError::ResponseBodyTooLarge { max_size }) => {
                    let message = format!(
                        "the MCP server `{server}` sent a message of more than {max_size} bytes"
                    );
                    return Some(Error::new(ErrorKind::TooLarge, message));
                }
                Some(StreamableHttpError::TransportChannelClosed) => return None,
                Some(StreamableHttpError::SessionExpired) => {
                    let message = format!("the MCP server `{server}` has ended the session");
                    let error = Error::new(ErrorKind::Connect, message);
                    return Some(error.with_source(SessionEnd));
                }
                Some(StreamableHttpError::UnexpectedServerResponse(text))
                    if text.starts_with("HTTP 401") || text.starts_with("HTTP 403") =>
                {
                    return Some(self.auth_error(if text.starts_with("HTTP 401") {
                        401
                    } else {
                        403
                    }));
                }
                Some(
                    StreamableHttpError::UnexpectedServerResponse(_)
                    | StreamableHttpError::UnexpectedContentType(_)
                    | StreamableHttpError::Deserialize(_)
                    | StreamableHttpError::UnexpectedEndOfStream
                    | StreamableHttpError::Sse(_),
                ) => {
                    let (address, text) = (self.address(), source.to_string());
                    let what = self.mask(&shortened(&text));
                    let message =
                        format!("the MCP server `{server}`{address} broke its protocol: {what}");
                    let error = Error::new(ErrorKind::Protocol, message);
                    return Some(match status_in_text(&text) {
                        Some(status) => error.with_status(status),
                        None => error,
                    });
                }
                _ => {}
            }
        }
        None
    }

    /// Returns the server's address, for use in a message after the server's name. Returns an empty
    /// string for a server that is not at an address.
    fn address(&self) -> String {
        match &self.endpoint {
            Endpoint::Http(http) => format!(" at {}", http.address.host_and_port()),
            Endpoint::Stdio(_) | Endpoint::Streams(_) => String::new(),
        }
    }

    fn cut_off_error(&self) -> Error {
        let (server, address) = (&self.server, self.address());
        let message = format!(
            "the MCP server `{server}`{address} closed its connection in the middle of an answer"
        );
        Error::new(ErrorKind::Connect, message).with_source(RequestFailed)
    }

    fn auth_error(&self, status: u16) -> Error {
        let (server, address) = (&self.server, self.address());
        let message = format!(
            "the MCP server `{server}`{address} requires another authorization: status {status}"
        );
        Error::new(ErrorKind::Auth, message).with_status(status)
    }

    /// Returns the error for a response with the status 429 or 5xx.
    fn status_error(&self, status: u16, retry_after: Option<&str>) -> Error {
        let (kind, did) = match status {
            429 => (ErrorKind::RateLimited, "refused the request"),
            529 => (ErrorKind::Overloaded, "failed"),
            _ => (ErrorKind::Server, "failed"),
        };
        let header = |name: &str| retry_after.filter(|_| name == "retry-after");
        let wait = http::retry_after(header, SystemClock.now());
        let (server, address) = (&self.server, self.address());
        let message = format!("the MCP server `{server}`{address} {did}: status {status}");
        let error = |message| Error::new(kind, message).with_status(status);
        match wait {
            Some(wait) => error(format!("{message}, retry after {wait:?}")).with_retry_after(wait),
            None => error(message),
        }
    }

    fn on_http_error(&self, error: &reqwest::Error) -> Error {
        let redirect =
            source_chain(error).find_map(|source| source.downcast_ref::<RefusedRedirect>());
        if let Some(redirect) = redirect {
            return self.on_redirect(redirect);
        }
        let innermost = source_chain(error).last().map(ToString::to_string).unwrap_or_default();
        let what = self.mask(&shortened(&innermost));
        let status = error.status().map(|status| status.as_u16());
        let (kind, did) = match (status, error.is_timeout()) {
            (Some(401 | 403), _) => (ErrorKind::Auth, "refused the request"),
            (Some(404), _) => (ErrorKind::InvalidRequest, "was not found at its address"),
            (Some(400..=499), _) => (ErrorKind::InvalidRequest, "refused the request"),
            (Some(_), _) => (ErrorKind::Server, "failed"),
            (None, true) => (ErrorKind::Timeout, "did not answer in time"),
            (None, false) if error.is_body() || error.is_decode() => return self.cut_off_error(),
            (None, false) => (ErrorKind::Connect, "could not be reached"),
        };
        let what = status.map_or(what, |status| format!("status {status}"));
        let message = format!("the MCP server `{}`{} {did}: {what}", self.server, self.address());
        let error = Error::new(kind, message).with_source(RequestFailed);
        status.map_or_else(|| error.clone(), |status| error.clone().with_status(status))
    }

    fn on_redirect(&self, RefusedRedirect { status, location, .. }: &RefusedRedirect) -> Error {
        // A login page's address may contain secrets of its own.
        let location = mask_secrets(&secrets_in_url(location), location);
        let location = self.mask(&shortened(&location));
        let message = format!(
            "the MCP server `{}` redirects to {location} (status {status}), which is not followed: \
             if it is the server's address, use it in place of the configured one",
            self.server
        );
        let error = Error::new(ErrorKind::InvalidRequest, message).with_source(Redirected);
        error.with_status(*status).with_parameter("url")
    }
}

/// Returns the status in rmcp's text about a response, such as `HTTP 400 Bad Request: …`.
fn status_in_text(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("HTTP ")?;
    rest.split([' ', ':']).next()?.parse().ok()
}

/// Marks an error as caused by a redirect that was not followed.
#[derive(Debug, thiserror::Error)]
#[error("the server redirects to another address")]
struct Redirected;

/// Marks an error as coming from the HTTP transport.
#[derive(Debug, thiserror::Error)]
#[error("the request failed")]
struct RequestFailed;

/// Masks all of the given secrets in a string.
fn mask_secrets(secrets: &[Secret], text: &str) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| secret.mask_in(&text))
}

/// Returns an iterator over an error, its source, the source's source, and so on.
fn source_chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Returns text from a server, shortened for use in an error message.
fn shortened(text: &str) -> String {
    const MAX_TEXT: usize = 600;
    truncate_middle(text.to_owned(), MAX_TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_requests::MAX_UNANSWERED_REQUESTS;

    /// A server that sends requests without end, and never accepts an answer.
    struct Flood(i64);

    impl Transport<RoleClient> for Flood {
        type Error = std::io::Error;

        fn send(
            &mut self,
            _: ClientJsonRpcMessage,
        ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
            future::pending()
        }

        async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
            self.0 += 1;
            let message = match self.0 {
                1_000 => json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
                id => json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }),
            };
            serde_json::from_value(message).ok()
        }

        async fn close(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn requests_over_http_are_ignored_while_too_many_are_unanswered() {
        let requests = ServerRequests::new(16 << 20);
        let mut transport = HttpTransport { inner: Flood(0), requests };
        let mut unsent = Vec::new();
        let answered = loop {
            match transport.receive().await.unwrap() {
                ServerJsonRpcMessage::Request(request) => {
                    let answer = ClientResult::empty(());
                    let answer = ClientJsonRpcMessage::response(answer, request.id);
                    unsent.push(Box::pin(transport.send(answer)));
                }
                _ => break unsent.len(),
            }
        };
        assert_eq!(answered, MAX_UNANSWERED_REQUESTS);
        drop(unsent);
        assert!(matches!(transport.receive().await, Some(ServerJsonRpcMessage::Request(_))));
    }
}
