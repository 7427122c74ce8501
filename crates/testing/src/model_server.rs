//! A scripted model server on the loopback device.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use turnstream::error::{Error, ErrorKind};

use crate::fault::Fault;
use crate::http::{HttpRequest, HttpResponse, LoopbackServer};
use crate::lock::lock_ignoring_poison;
use crate::signatures::Signatures;
use crate::wire::{profile, wire_of_path};
use crate::{Answer, ReceivedRequest, Wire};

/// A server on 127.0.0.1 that supports the providers' wire formats and sends the answers that a
/// script function returns.
///
/// A server created with [`start`](Self::start) supports every wire format. A request's path
/// selects the wire format, so a single test can cover all of them. A server created with a
/// constructor that is named after a wire format supports only that format. The script returns an
/// [`Answer`], or a value that converts into an answer, such as a [`Reply`](turnstream::provider::Reply)
/// or a string.
///
/// The server is strict. If the vendor would reject a request with status 400, the server rejects
/// the request in the vendor's format without calling the script; see
/// [`lint`](crate::lint). The server also rejects a request if it contains a signature
/// that the server did not issue, or a signature whose text has changed. [`lenient`](Self::lenient)
/// disables these checks.
///
/// The server records every request. Dropping the server closes all connections.
///
/// ```
/// use turnstream_testing::ModelServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let server = ModelServer::start(|_asked| "Hello!").await?;
/// use turnstream::provider::{Anthropic, OpenAiChat};
/// use turnstream::Agent;
///
/// let anthropic = Anthropic::new("any").with_base_url(server.url()).expect("a URL");
/// let chat = OpenAiChat::new("any").with_base_url(server.url()).expect("a URL");
/// let outcome = Agent::new(anthropic).run("Hi").outcome().await;
/// assert_eq!(outcome.text, "Hello!");
/// let outcome = Agent::new(chat).run("Hi").outcome().await;
/// assert_eq!(outcome.text, "Hello!");
/// assert_eq!(server.requests()[0]["messages"][0]["role"], "user");
/// # Ok(())
/// # }
/// ```
pub struct ModelServer {
    server: LoopbackServer,
    state: Arc<ServerState>,
}

/// The state shared by the server and its connections. No lock is held while the script is called.
#[derive(Default)]
struct ServerState {
    lenient: AtomicBool,
    received_count: AtomicUsize,
    faults: Mutex<Vec<Fault>>,
    signatures: Mutex<Signatures>,
    violations: Mutex<Vec<String>>,
}

impl ModelServer {
    /// Starts a server that supports every wire format, each on its own path. The paths are
    /// `/v1/messages`, `/v1/chat/completions`, `/v1/responses`,
    /// `/v1beta/models/{model}:streamGenerateContent` and `/api/chat`, with any prefix.
    ///
    /// Each request is parsed and passed to `script`, which returns the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if no port of 127.0.0.1 is available.
    ///
    /// # Panics
    ///
    /// Panics if called outside a tokio runtime, or if the runtime's I/O or time driver is not
    /// enabled.
    pub async fn start<A: Into<Answer>>(
        script: impl Fn(&ReceivedRequest) -> A + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        Self::start_for_wire(None, move |request| script(request).into()).await
    }

    /// Disables the checks on requests, so that the server accepts any request whose body is a JSON
    /// object.
    pub fn lenient(self) -> Self {
        self.state.lenient.store(true, Ordering::Relaxed);
        self
    }

    /// Injects a fault into every later answer, including error responses.
    pub fn with_fault(self, fault: Fault) -> Self {
        lock_ignoring_poison(&self.state.faults).push(fault);
        self
    }

    /// Returns the server's base URL, without a trailing slash. The URL works for providers of
    /// every wire format that the server supports, with or without `/v1` or any other path
    /// appended.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Returns the bodies of all requests in order, including rejected requests. A body that is not
    /// JSON is returned as `null`.
    pub fn requests(&self) -> Vec<Value> {
        let requests = self.server.requests();
        requests.iter().map(|r| serde_json::from_slice(&r.body).unwrap_or_default()).collect()
    }

    /// Returns the violations in all requests that were rejected as invalid. With this method, a
    /// test can detect a rejected request even if the agent recovers from the rejection.
    pub fn violations(&self) -> Vec<String> {
        lock_ignoring_poison(&self.state.violations).clone()
    }

    /// Returns the underlying HTTP server, which gives access to the connections and the raw
    /// requests.
    pub fn http_server(&self) -> &LoopbackServer {
        &self.server
    }

    async fn start_for_wire(
        only: Option<Wire>,
        script: impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let house = Arc::new(ServerState::default());
        let served = Arc::clone(&house);
        let handler = move |request: HttpRequest| served.respond(only, request, &script);
        Ok(Self { server: LoopbackServer::start(handler).await?, state: house })
    }
}

macro_rules! servers_of_one_wire {
    ($($name:ident: $wire:ident, $what:literal;)*) => {
        impl ModelServer {$(
            #[doc = concat!("Starts a server that speaks ", $what)]
            ///
            /// `script` is called with each request's body and the number of earlier requests.
            ///
            /// # Errors
            ///
            /// Returns an error in the same cases as [`start`](Self::start).
            ///
            /// # Panics
            ///
            /// Panics in the same cases as [`start`](Self::start).
            pub async fn $name<A: Into<Answer>>(
                script: impl Fn(&Value, usize) -> A + Send + Sync + 'static,
            ) -> std::io::Result<Self> {
                let script = move |request: &ReceivedRequest| script(&request.body, request.index).into();
                Self::start_for_wire(Some(Wire::$wire), script).await
            }
        )*}
    };
}

servers_of_one_wire! {
    anthropic: Anthropic, "Anthropic Messages.";
    openai_chat: OpenAiChat, "Chat Completions.";
    openai_responses: OpenAiResponses, "Responses.";
    gemini: Gemini, "Gemini. A model whose name holds `gemini-3` gives its calls ids and signs \
    them, and requires the signatures back.";
    ollama: Ollama, "Ollama's own wire. A call has an id only if the function gives it one.";
}

impl ServerState {
    fn respond(
        &self,
        only: Option<Wire>,
        request: HttpRequest,
        script: &dyn Fn(&ReceivedRequest) -> Answer,
    ) -> HttpResponse {
        let wire = wire_of_path(&request.path);
        let spoken = wire.filter(|wire| only.is_none_or(|only| only == *wire));
        let Some(wire) = spoken.filter(|_| request.method == "POST") else {
            let message = format!("no such path: {} {}", request.method, request.path);
            let error = Error::new(ErrorKind::InvalidRequest, message).with_status(404);
            let wire = only.or(wire).unwrap_or(Wire::OpenAiChat);
            return Answer::from(error)
                .into_response(&ReceivedRequest::for_wire(wire), &mut Signatures::default());
        };
        let mut request = match ReceivedRequest::parse(wire, request) {
            Ok(request) => request,
            Err(what) => {
                return self.error_response(&ReceivedRequest::for_wire(wire), vec![what]);
            }
        };
        if !self.lenient.load(Ordering::Relaxed) {
            let violations = self.check_request(&request);
            if !violations.is_empty() {
                return self.error_response(&request, violations);
            }
        }
        request.index = self.received_count.fetch_add(1, Ordering::Relaxed);
        let answer = script(&request).with_faults(&lock_ignoring_poison(&self.faults));
        answer.into_response(&request, &mut lock_ignoring_poison(&self.signatures))
    }

    fn check_request(&self, request: &ReceivedRequest) -> Vec<String> {
        let vendor = profile(request.wire);
        let mut violations = (vendor.lint)(&request.model, &request.body);
        if let Some(name) =
            vendor.required_header.filter(|name| request.http.header(name).is_none())
        {
            violations.push(format!("{name}: header is required"));
        }
        // Vendors answer a request that does not ask for a stream with a single document, but this
        // server only streams.
        if !(vendor.wants_stream)(&request.body) {
            violations.push("this server only streams, and `stream` is not true".to_owned());
        }
        violations.extend((vendor.check_signatures)(
            &lock_ignoring_poison(&self.signatures),
            &request.body,
        ));
        violations
    }

    fn error_response(&self, request: &ReceivedRequest, violations: Vec<String>) -> HttpResponse {
        let message = violations.join("; ");
        lock_ignoring_poison(&self.violations).extend(violations);
        let error = Error::new(ErrorKind::InvalidRequest, message).with_status(400);
        Answer::from(error).into_response(request, &mut Signatures::default())
    }
}

impl fmt::Debug for ModelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelServer").field("url", &self.url()).finish_non_exhaustive()
    }
}
