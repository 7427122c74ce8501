//! Serves clients over MCP's Streamable HTTP transport.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, future, stream};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::http::{BodyPart, BodyStream, HttpRequest, HttpResponse, LoopbackServer};
use crate::lock::lock_ignoring_poison;
use crate::mcp::dispatch::{Reaction, VERSION_KEY, react};
use crate::mcp::era::{LEGACY_VERSIONS, MODERN_VERSIONS, McpEra, Protocol};
use crate::mcp::fault::McpFault;
use crate::mcp::handle::McpServerHandle;
use crate::mcp::http_checks::{accepts, check_modern_headers, is_json, is_origin_local};
use crate::mcp::log::McpRequestStatus;
use crate::mcp::message::{
    HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, MISSING_CAPABILITY,
    Message, PARSE_ERROR, Request, SERVER_ERROR, UNSUPPORTED_VERSION, error_message, notification,
    parse_message,
};
use crate::mcp::outgoing::{MessageFraming, Outgoing};
use crate::mcp::peer::Peer;
use crate::mcp::run::{RunningRequest, answer_with_faults};
use crate::mcp::state::State;

/// The endpoint's path.
const PATH: &str = "/mcp";

/// The maximum number of messages that can be queued for the client. When the queue is full, a call
/// that sends a message waits for free space.
const OUT_CAPACITY: usize = 16;

/// A scripted MCP server on a free port of 127.0.0.1. The server runs until it is dropped, which
/// closes all connections and drops all running handlers.
///
/// To create an `McpHttpServer`, call
/// [`McpServer::start_http`](crate::mcp::McpServer::start_http).
pub struct McpHttpServer {
    server: LoopbackServer,
    state: Arc<State>,
}

impl McpHttpServer {
    pub(super) async fn start(state: Arc<State>) -> io::Result<Self> {
        let endpoint = Endpoint { state: Arc::clone(&state), tasks: Mutex::default() };
        let server = LoopbackServer::start(move |request| endpoint.respond(&request)).await?;
        Ok(Self { server, state })
    }

    /// Returns the URL for clients to connect to, `http://127.0.0.1:PORT/mcp`.
    pub fn url(&self) -> String {
        format!("{}{PATH}", self.server.url())
    }

    /// Returns a handle for reading the log and changing the tools.
    pub fn handle(&self) -> McpServerHandle {
        McpServerHandle(Arc::clone(&self.state))
    }

    /// Returns the underlying HTTP server, which gives access to the connections and the raw
    /// requests.
    pub fn http_server(&self) -> &LoopbackServer {
        &self.server
    }
}

impl fmt::Debug for McpHttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpHttpServer").field("url", &self.url()).finish_non_exhaustive()
    }
}

/// The endpoint that answers requests. Dropping the endpoint aborts its legacy-era calls.
struct Endpoint {
    state: Arc<State>,
    /// The tasks of calls made through the legacy protocol. A call may keep running after the HTTP
    /// response that would contain its result has been closed.
    tasks: Mutex<JoinSet<()>>,
}

impl Endpoint {
    fn respond(&self, http: &HttpRequest) -> HttpResponse {
        let missing = {
            let settings = self.state.settings();
            let mut required = settings.required_headers.iter();
            required.any(|(name, value)| http.header(name) != Some(value))
        };
        if missing {
            let mut response = HttpResponse::text(401, "a header is missing or wrong");
            response.headers.push(("www-authenticate".into(), "Bearer".into()));
            return response;
        }
        if !is_origin_local(http) {
            return self.refuse_http(403, "the origin is not allowed");
        }
        if http.path.split('?').next() != Some(PATH) {
            return self.refuse_http(404, "there is only /mcp");
        }
        match http.method.as_str() {
            "POST" => self.post(http),
            "GET" if self.state.era().is_legacy_spoken() => self.get(http),
            "DELETE" if self.state.era().is_legacy_spoken() => self.delete(http),
            _ => {
                let mut response = self.refuse_http(405, "the method is not allowed");
                response.headers.push(("allow".into(), "POST".into()));
                response
            }
        }
    }

    fn post(&self, http: &HttpRequest) -> HttpResponse {
        if !is_json(http) {
            return self.refuse_http(415, "the content type is not application/json");
        }
        if !accepts(http, "application/json") || !accepts(http, "text/event-stream") {
            return self
                .refuse_http(406, "the client must accept application/json and text/event-stream");
        }
        let log = &self.state.log;
        let Ok(value) = serde_json::from_slice::<Value>(&http.body) else {
            log.record(json!(String::from_utf8_lossy(&http.body)), &http.headers, None);
            log.record_violation("a body is not JSON");
            return json_response(
                400,
                &error_message(&Value::Null, PARSE_ERROR, "Parse error", None),
            );
        };
        let message = parse_message(&value);
        let is_request = matches!(message, Ok(Message::Request(_)));
        let index =
            log.record(value, &http.headers, is_request.then_some(McpRequestStatus::Running));
        let number = self.state.next_http_message();
        let faults = self.state.faults();
        if faults.iter().any(|fault| matches!(fault, McpFault::DiesAt(at) if *at <= number)) {
            log.end(index, McpRequestStatus::Cancelled);
            return HttpResponse { body: vec![BodyPart::Cut], ..empty_response(200) };
        }
        match message {
            Ok(Message::Request(request)) => self.post_request(http, request, index),
            Ok(Message::Notification { method, params }) => {
                self.post_notification(http, &method, &params)
            }
            Ok(Message::Response { id, outcome }) => match self.session(http) {
                Ok(Some(peer)) => {
                    self.state.receive_response(&peer, &id, outcome);
                    empty_response(202)
                }
                Ok(None) => self.refuse_http(400, "a response came without a session"),
                Err(refusal) => refusal,
            },
            Err(malformed) => {
                log.record_violation(malformed.reason.as_str());
                let answer = error_message(&malformed.id, INVALID_REQUEST, malformed.reason, None);
                json_response(400, &answer)
            }
        }
    }

    fn post_request(&self, http: &HttpRequest, request: Request, index: usize) -> HttpResponse {
        let era = self.state.era();
        if self.state.is_silent_on(&request)
            || self.state.has_fault(McpFault::NeverReads)
            || (era == McpEra::LegacySilentOnDiscover && request.method == "server/discover")
        {
            return silence();
        }
        let protocol = protocol_of(era, http, &request);
        let (peer, session_id) = match self.peer_of(http, &request, protocol) {
            Ok(found) => found,
            Err(refusal) => {
                self.state.log.end(index, McpRequestStatus::Answered);
                return refusal;
            }
        };
        let reaction = react(&self.state, &peer, protocol, &request);
        let running = RunningRequest {
            state: Arc::clone(&self.state),
            peer,
            protocol,
            request: Arc::new(request),
            index,
        };
        let mut response = match reaction {
            Reaction::Answer(answer) => self.respond_at_once(&running, answer),
            Reaction::Silence => silence(),
            reaction => self.respond_as_stream(running, reaction),
        };
        if let Some(id) = session_id {
            response.headers.push(("mcp-session-id".into(), id));
        }
        response
    }

    /// Returns a request's session, opening a session if necessary. The modern era has no sessions,
    /// so a modern-era request gets its own `Peer`.
    fn peer_of(
        &self,
        http: &HttpRequest,
        request: &Request,
        protocol: Protocol,
    ) -> Result<(Arc<Peer>, Option<String>), HttpResponse> {
        match protocol {
            Protocol::Modern => {
                if let Err(reason) = check_modern_headers(&self.state, http, request) {
                    self.state.log.record_violation(reason.as_str());
                    return Err(json_response(400, &request.error(HEADER_MISMATCH, reason)));
                }
                Ok((Arc::default(), None))
            }
            Protocol::Legacy => match self.session(http)? {
                Some(peer) => Ok((peer, None)),
                None if request.method == "initialize" => {
                    let (id, peer) = self.state.open_session();
                    Ok((peer, Some(id)))
                }
                None => {
                    // A client may send `server/discover` as a probe, so a `server/discover`
                    // request without a session is not recorded as a violation. Old servers reject
                    // the probe with this error.
                    if request.method != "server/discover" {
                        let violation = format!("`{}` came without a session", request.method);
                        self.state.log.record_violation(violation);
                    }
                    let reason = "Bad Request: Server not initialized";
                    Err(json_response(400, &request.error(SERVER_ERROR, reason)))
                }
            },
        }
    }

    /// Returns the session that the headers name, or `None` if the headers name no session. An
    /// `Err` contains the response to send if the session is unknown, or if the version in the
    /// headers differs from the session's version.
    fn session(&self, http: &HttpRequest) -> Result<Option<Arc<Peer>>, HttpResponse> {
        let Some(id) = http.header("mcp-session-id") else {
            return Ok(None);
        };
        let Some(peer) = self.state.session(id) else {
            // An expired session is not a violation, since a client cannot know that its session
            // has expired.
            let answer = error_message(&Value::Null, SERVER_ERROR, "Session not found", None);
            return Err(json_response(404, &answer));
        };
        let agreed = peer.legacy_version();
        let sent = http.header("mcp-protocol-version");
        // Protocol versions before 2025-06-18 do not have this header.
        let is_required = LEGACY_VERSIONS[..2].iter().any(|known| agreed.as_deref() == Some(known));
        if (is_required || sent.is_some()) && sent != agreed.as_deref() {
            return Err(self.refuse_http(
                400,
                "MCP-Protocol-Version is not the version that `initialize` agreed on",
            ));
        }
        Ok(Some(peer))
    }

    fn post_notification(
        &self,
        http: &HttpRequest,
        method: &str,
        params: &Map<String, Value>,
    ) -> HttpResponse {
        match self.session(http) {
            Ok(Some(peer)) => {
                self.state.receive_notification(&peer, method, params);
                empty_response(202)
            }
            // In the modern era, client notifications over HTTP have no effect.
            Ok(None) if self.state.era().is_modern_spoken() && names_modern_version(http) => {
                empty_response(202)
            }
            Ok(None) => self.refuse_http(400, "a notification came without a session"),
            Err(refusal) => refusal,
        }
    }

    /// Opens the stream over which a legacy-era session receives notifications.
    fn get(&self, http: &HttpRequest) -> HttpResponse {
        if !accepts(http, "text/event-stream") {
            return self.refuse_http(406, "the client must accept text/event-stream");
        }
        let peer = match self.session(http) {
            Ok(Some(peer)) => peer,
            Ok(None) => return self.refuse_http(400, "a stream was opened without a session"),
            Err(refusal) => return refusal,
        };
        let version = self.state.tools_version();
        let notices = stream::unfold(version, async |mut version| {
            version.changed().await.ok()?;
            let message = notification("notifications/tools/list_changed", &json!({}));
            Some((Outgoing::Message(message), version))
        });
        let notices = notices.take_until(async move { peer.wait_until_closed().await });
        self.sse_response(notices)
    }

    fn delete(&self, http: &HttpRequest) -> HttpResponse {
        match http.header("mcp-session-id") {
            Some(id) if self.state.close_session(id) => empty_response(204),
            Some(_) => HttpResponse::text(404, "Session not found"),
            None => self.refuse_http(400, "DELETE came without a session"),
        }
    }

    /// Answers with a single JSON document, unless a fault requires a stream.
    fn respond_at_once(&self, running: &RunningRequest, answer: Value) -> HttpResponse {
        let status = match running.protocol {
            Protocol::Modern => status_of(&answer),
            Protocol::Legacy => 200,
        };
        let outgoing = answer_with_faults(&self.state, &running.peer, answer);
        self.state.log.end(running.index, McpRequestStatus::Answered);
        match (&outgoing[..], self.state.drip()) {
            ([Outgoing::Message(message)], None) => json_response(status, message),
            ([Outgoing::Message(_)], Some(_)) => {
                let pieces = self.pieces(stream::iter(outgoing), MessageFraming::Document);
                HttpResponse {
                    status,
                    headers: vec![("content-type".into(), "application/json".into())],
                    body: vec![BodyPart::Stream(BodyStream::new(pieces))],
                }
            }
            _ => self.sse_response(stream::iter(outgoing)),
        }
    }

    fn respond_as_stream(&self, running: RunningRequest, reaction: Reaction) -> HttpResponse {
        let (out, queue) = mpsc::channel(OUT_CAPACITY);
        let (protocol, request) = (running.protocol, Arc::clone(&running.request));
        let Some(run) = running.start(reaction, out) else {
            let reason = format!("the id {} is in use", request.id);
            self.state.log.record_violation(reason.as_str());
            return json_response(400, &request.error(INVALID_REQUEST, reason));
        };
        let queue = stream::unfold(queue, async |mut queue| Some((queue.recv().await?, queue)));
        match protocol {
            // Closing the response drops the running request.
            Protocol::Modern => {
                let run = run.into_stream().filter_map(|()| future::ready(None));
                self.sse_response(stream::select(queue, run))
            }
            // Closing the response does not cancel the request.
            Protocol::Legacy => {
                lock_ignoring_poison(&self.tasks).spawn(run);
                self.sse_response(queue)
            }
        }
    }

    fn sse_response(
        &self,
        outgoing: impl Stream<Item = Outgoing> + Send + 'static,
    ) -> HttpResponse {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        HttpResponse {
            status: 200,
            headers: vec![
                header("content-type", "text/event-stream"),
                header("cache-control", "no-cache"),
                header("x-accel-buffering", "no"),
            ],
            body: vec![BodyPart::Stream(BodyStream::new(
                self.pieces(outgoing, MessageFraming::Sse),
            ))],
        }
    }

    fn pieces(
        &self,
        outgoing: impl Stream<Item = Outgoing> + Send + 'static,
        framing: MessageFraming,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let pieces = outgoing.flat_map(move |outgoing| stream::iter(outgoing.pieces(framing)));
        match self.state.drip() {
            None => pieces.map(Ok).boxed(),
            Some(wait) => {
                let bytes = pieces.flat_map(|piece| {
                    stream::iter((0..piece.len()).map(move |at| piece.slice(at..=at)))
                });
                bytes.then(move |byte| sleep(wait).map(|()| Ok(byte))).boxed()
            }
        }
    }

    /// Rejects a request that violates the transport's rules and records the violation.
    fn refuse_http(&self, status: u16, reason: &str) -> HttpResponse {
        self.state.log.record_violation(reason);
        json_response(status, &error_message(&Value::Null, SERVER_ERROR, reason, None))
    }
}

/// Returns the era that a request belongs to.
fn protocol_of(era: McpEra, http: &HttpRequest, request: &Request) -> Protocol {
    let is_modern = names_modern_version(http)
        || request.method == "server/discover"
        || request.meta().is_some_and(|meta| meta.contains_key(VERSION_KEY));
    match (era.is_modern_spoken(), era.is_legacy_spoken()) {
        (true, false) => Protocol::Modern,
        (true, true) if is_modern => Protocol::Modern,
        _ => Protocol::Legacy,
    }
}

/// Returns whether the request's version header names a modern-era version.
fn names_modern_version(http: &HttpRequest) -> bool {
    http.header("mcp-protocol-version").is_some_and(|sent| MODERN_VERSIONS.contains(&sent))
}

/// Returns the HTTP status to send with a modern-era answer.
fn status_of(answer: &Value) -> u16 {
    match answer["error"]["code"].as_i64() {
        Some(METHOD_NOT_FOUND) => 404,
        Some(INVALID_PARAMS | INVALID_REQUEST | MISSING_CAPABILITY | UNSUPPORTED_VERSION) => 400,
        _ => 200,
    }
}

fn json_response(status: u16, message: &Value) -> HttpResponse {
    HttpResponse {
        status,
        headers: vec![("content-type".into(), "application/json".into())],
        body: vec![BodyPart::Bytes(message.to_string().into())],
    }
}

fn empty_response(status: u16) -> HttpResponse {
    HttpResponse { status, headers: Vec::new(), body: Vec::new() }
}

fn silence() -> HttpResponse {
    HttpResponse { body: vec![BodyPart::Silence], ..empty_response(200) }
}
