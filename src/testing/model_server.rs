//! A model on the loopback device.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::lock::lock_ignoring_poison;
use crate::testing::fault::Fault;
use crate::testing::http::{HttpRequest, HttpResponse, LoopbackServer};
use crate::testing::signatures::Signatures;
use crate::testing::{Answer, ReceivedRequest, Wire};

/// A server on 127.0.0.1 that speaks the wires of the providers and says what a function tells it
/// to.
///
/// [`start`](Self::start) speaks all wires at once, by the path of a request, so that one test runs
/// over every wire; the others speak one. The function gives an [`Answer`] or what makes one: a
/// [`Reply`](crate::provider::Reply), a text.
///
/// It is strict: what the vendor would refuse with status 400 is refused, in the vendor's shape,
/// and the function is not asked; see [`lint`](crate::testing::lint). So is a signature that it never gave, or that comes
/// back on other words. [`lenient`](Self::lenient) turns that off.
///
/// It keeps a record of every request. Dropping it closes all connections.
///
/// ```
/// use turnstream::testing::ModelServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let server = ModelServer::start(|_asked| "Hello!").await?;
/// # #[cfg(feature = "http")] {
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
/// # }
/// # Ok(())
/// # }
/// ```
pub struct ModelServer {
    server: LoopbackServer,
    state: Arc<ServerState>,
}

/// What the server and its connections share. No lock in here is held while the script is asked.
#[derive(Default)]
struct ServerState {
    lenient: AtomicBool,
    received_count: AtomicUsize,
    faults: Mutex<Vec<Fault>>,
    signatures: Mutex<Signatures>,
    violations: Mutex<Vec<String>>,
}

impl ModelServer {
    /// Starts a server that speaks all wires, each on its own path, with anything before it:
    /// `/v1/messages`, `/v1/chat/completions`, `/v1/responses`,
    /// `/v1beta/models/{model}:streamGenerateContent`, `/api/chat`.
    ///
    /// The function gets what is known of each request.
    ///
    /// # Errors
    ///
    /// If no port of 127.0.0.1 can be had.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time.
    pub async fn start<A: Into<Answer>>(
        script: impl Fn(&ReceivedRequest) -> A + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        Self::start_for_wire(None, move |asked| script(asked).into()).await
    }

    /// Takes any request whose body is a JSON object.
    pub fn lenient(self) -> Self {
        self.state.lenient.store(true, Ordering::Relaxed);
        self
    }

    /// Lets something go wrong with every answer from here on, also with those that are refusals
    /// of the script.
    pub fn with_fault(self, mishap: Fault) -> Self {
        lock_ignoring_poison(&self.state.faults).push(mishap);
        self
    }

    /// The base URL for a provider of any wire that is spoken, without a slash at the end. With
    /// `/v1` or anything else behind it, it serves as well.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The bodies of all requests, in order, those that were refused included; `null` for one
    /// that was not JSON.
    pub fn requests(&self) -> Vec<Value> {
        let requests = self.server.requests();
        requests.iter().map(|r| serde_json::from_slice(&r.body).unwrap_or_default()).collect()
    }

    /// What was wrong with the requests that were refused for not being lawful. A test whose agent
    /// recovers from a refusal sees here that there was one.
    pub fn violations(&self) -> Vec<String> {
        lock_ignoring_poison(&self.state.violations).clone()
    }

    /// The server below, with the connections and the requests as they came.
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
            /// The function gets the body of each request and how many came before.
            ///
            /// # Errors
            ///
            /// As [`start`](Self::start).
            ///
            /// # Panics
            ///
            /// As [`start`](Self::start).
            pub async fn $name<A: Into<Answer>>(
                script: impl Fn(&Value, usize) -> A + Send + Sync + 'static,
            ) -> std::io::Result<Self> {
                let script = move |asked: &ReceivedRequest| script(&asked.body, asked.index).into();
                Self::start_for_wire(Some(Wire::$wire), script).await
            }
        )*}
    };
}

servers_of_one_wire! {
    anthropic: Anthropic, "Anthropic Messages.";
    openai_chat: OpenAiChat, "Chat Completions.";
    openai_responses: OpenAiResponses, "Responses.";
    gemini: Gemini, "Gemini. A model whose name holds `gemini-3` gives its calls ids and signs them, \
                     and wants the signatures back.";
    ollama: Ollama, "Ollama's own wire. A call has an id only if the function gives it one.";
}

impl ServerState {
    fn respond(
        &self,
        only: Option<Wire>,
        request: HttpRequest,
        script: &dyn Fn(&ReceivedRequest) -> Answer,
    ) -> HttpResponse {
        let wire = Wire::from_path(&request.path);
        let spoken = wire.filter(|wire| only.is_none_or(|only| only == *wire));
        let Some(wire) = spoken.filter(|_| request.method == "POST") else {
            let message = format!("no such path: {} {}", request.method, request.path);
            let error = Error::new(ErrorKind::InvalidRequest, message).with_status(404);
            let wire = only.or(wire).unwrap_or(Wire::OpenAiChat);
            return Answer::from(error)
                .into_response(&ReceivedRequest::for_wire(wire), &mut Signatures::default());
        };
        let mut asked = match ReceivedRequest::parse(wire, request) {
            Ok(asked) => asked,
            Err(what) => {
                return self.error_response(&ReceivedRequest::for_wire(wire), vec![what]);
            }
        };
        if !self.lenient.load(Ordering::Relaxed) {
            let complaints = self.check_request(&asked);
            if !complaints.is_empty() {
                return self.error_response(&asked, complaints);
            }
        }
        asked.index = self.received_count.fetch_add(1, Ordering::Relaxed);
        let answer = script(&asked).with_faults(&lock_ignoring_poison(&self.faults));
        answer.into_response(&asked, &mut lock_ignoring_poison(&self.signatures))
    }

    fn check_request(&self, asked: &ReceivedRequest) -> Vec<String> {
        let vendor = asked.wire.profile();
        let mut complaints = (vendor.lint)(&asked.model, &asked.body);
        if let Some(name) = vendor.required_header.filter(|name| asked.http.header(name).is_none())
        {
            complaints.push(format!("{name}: header is required"));
        }
        // The vendors answer with one document then; this server only streams.
        if !(vendor.server_wire.wants_stream)(&asked.body) {
            complaints.push("this server only streams, and `stream` is not true".to_owned());
        }
        complaints.extend((vendor.check_signatures)(
            &lock_ignoring_poison(&self.signatures),
            &asked.body,
        ));
        complaints
    }

    fn error_response(&self, asked: &ReceivedRequest, complaints: Vec<String>) -> HttpResponse {
        let message = complaints.join("; ");
        lock_ignoring_poison(&self.violations).extend(complaints);
        let error = Error::new(ErrorKind::InvalidRequest, message).with_status(400);
        Answer::from(error).into_response(asked, &mut Signatures::default())
    }
}

impl fmt::Debug for ModelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelServer").field("url", &self.url()).finish_non_exhaustive()
    }
}
