//! The server.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use axum::routing::{get, post};
use serde_json::{Value, json};
use turnstream::agent::Input;
use turnstream::env::{Ids, SystemIds};
use turnstream::provider::server::{ErrorDocument, Wire};
use turnstream::tool::{ToolOutput, Verdict};
use turnstream::ui::ClientLimits;
use turnstream::{Agent, Error, ErrorKind, History, Run};

use crate::access::{Access, AllowedSites};
use crate::answer::{Answer, AnswerSettings};
use crate::answer_body::AnswerBody;
use crate::authorize::{Authorize, Principal, header_text};
use crate::body::{Bodies, HeldBody};
use crate::call_ids::client_call_id;
use crate::failure::Failure;
use crate::fields::invalid;
use crate::model_request::{ModelRequest, ensure_message};
use crate::slots::{Slot, Slots};
use crate::stored_responses::StoredResponses;
use crate::wires::parse_request;

/// How long a stream may be silent before bytes keep its connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long an answer that is not streamed may take: as long as the vendors' own clients wait.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);

/// Serves agents as models, so that any client of a model can call them.
///
/// | wire | routes |
/// |---|---|
/// | OpenAI Chat Completions | `POST /v1/chat/completions` |
/// | OpenAI Responses | `POST /v1/responses` |
/// | Anthropic Messages | `POST /v1/messages`, `POST /v1/messages/count_tokens` |
/// | Gemini | `POST /v1beta/models/{name}:generateContent`, `…:streamGenerateContent` (with and without `alt=sse`), `…:countTokens`; also with `/v1` |
/// | Ollama | `POST /api/chat`, `POST /api/show`, `GET /api/tags`, `GET /api/version` |
///
/// `GET /v1/models` and `GET /v1/models/{name}` describe the models, in the form of Anthropic if
/// the request has the header `anthropic-version`, in that of Gemini if it has `x-goog-api-key`,
/// and else in that of OpenAI.
///
/// All routes answer as the vendor's server does, streamed or not. For what a client can send and
/// what it sees, read the [crate's docs](crate).
///
/// ```no_run
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream_server::AgentServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// let server = AgentServer::new().with_model("assistant", agent);
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// axum::serve(listener, server.router()).await
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct AgentServer(Arc<Settings>);

#[derive(Clone)]
struct Settings {
    models: BTreeMap<String, Agent>,
    access: Access,
    limits: ClientLimits,
    shows_work: bool,
    detaches_runs: bool,
    keep_alive: Duration,
    answer_timeout: Duration,
    responses: StoredResponses,
    active_runs: Slots,
    bodies: Bodies,
}

impl Default for AgentServer {
    fn default() -> Self {
        Self::new()
    }
}

impl AgentServer {
    /// Creates a server without models. Until [`with_authorize`](Self::with_authorize) is called,
    /// it accepts only requests to the names of this machine, such as `localhost`.
    pub fn new() -> Self {
        Self(Arc::new(Settings {
            models: BTreeMap::new(),
            access: Access::default(),
            limits: ClientLimits { allow_instructions: true, ..ClientLimits::default() },
            shows_work: false,
            detaches_runs: false,
            keep_alive: KEEP_ALIVE,
            answer_timeout: ANSWER_TIMEOUT,
            responses: StoredResponses::default(),
            active_runs: Slots::default(),
            bodies: Bodies::default(),
        }))
    }

    fn update(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Adds an agent that answers as the model with this name. An agent with the same name is
    /// replaced.
    pub fn with_model(self, name: impl Into<String>, agent: Agent) -> Self {
        self.update(|settings| drop(settings.models.insert(name.into(), agent)))
    }

    /// Sets the [`Authorize`] that decides from which principal each request comes, and whether it
    /// is accepted. It is called for every route. Requests to all host names and from pages of all
    /// sites are then accepted, so it has to require a key that other sites do not have.
    pub fn with_authorize(self, authorize: impl Authorize + 'static) -> Self {
        let access =
            Access { authorize: Some(Arc::new(authorize)), sites: Some(AllowedSites::any()) };
        self.update(|settings| settings.access = access)
    }

    /// Sets the limits on requests. By default, they are [`ClientLimits::default`]; system and
    /// developer messages are always allowed, and follow the agent's own instructions.
    pub fn with_limits(self, limits: ClientLimits) -> Self {
        self.update(|settings| settings.limits = limits)
    }

    /// Shows the agent's work to clients as reasoning: the reasoning of its model, and a line for
    /// each call of its tools, with the name and the arguments. By default, both are hidden.
    /// Results of tools are never shown.
    pub fn with_shown_work(self) -> Self {
        self.update(|settings| settings.shows_work = true)
    }

    /// Lets a run whose client has closed its connection continue to its end. It counts as one of
    /// the principal's runs until then. With Responses, the client can then continue the response
    /// by its id. By default, the run is dropped.
    pub fn with_detached_runs(self) -> Self {
        self.update(|settings| settings.detaches_runs = true)
    }

    /// Sets how long a stream may be silent before bytes keep its connection alive. The default is
    /// 15 seconds.
    pub fn with_keep_alive(self, every: Duration) -> Self {
        self.update(|settings| settings.keep_alive = every)
    }

    /// Sets how long an answer that is not streamed may take. Then the run is dropped, unless runs
    /// are [detached](Self::with_detached_runs), and the status is 504. The default is ten minutes.
    pub fn with_answer_timeout(self, limit: Duration) -> Self {
        self.update(|settings| settings.answer_timeout = limit)
    }

    /// Returns a router with all routes. It is also a function from requests to responses for other
    /// servers, since a router is a `tower` service. To serve a [`ChatServer`](crate::ChatServer)
    /// as well, [nest](crate::ChatServer::router) one of the two routers.
    pub fn router(self) -> Router {
        let wire = |wire| {
            post(move |State(server): State<Self>, request: Request| async move {
                server.answer(wire, None, request).await
            })
        };
        Router::new()
            .route("/v1/chat/completions", wire(Wire::OpenAiChat))
            .route("/v1/responses", wire(Wire::OpenAiResponses))
            .route("/v1/messages", wire(Wire::Anthropic))
            .route("/v1/messages/count_tokens", post(count_anthropic))
            .route("/v1/models", get(list_models))
            .route("/v1/models/{*name}", get(show_model).post(call_gemini))
            .route("/v1beta/models", get(list_models))
            .route("/v1beta/models/{*name}", get(show_model).post(call_gemini))
            .route("/api/chat", wire(Wire::Ollama))
            .route("/api/tags", get(list_ollama))
            .route("/api/show", post(show_ollama))
            .route("/api/version", get(ollama_version))
            .with_state(self)
    }

    /// Answers a request to a model.
    async fn answer(
        self,
        wire: Wire,
        model: Option<(String, bool)>,
        request: Request,
    ) -> Response<Body> {
        match self.try_answer(wire, model, request).await {
            Ok(response) => response,
            Err(failure) => error_response(wire, &failure),
        }
    }

    async fn try_answer(
        self,
        wire: Wire,
        model: Option<(String, bool)>,
        request: Request,
    ) -> Result<Response<Body>, Failure> {
        let Received { parts, principal, active_run, body } = self.read(wire, request).await?;
        let mut body = self.parse(&body.bytes)?;
        self.replace_references(&mut body, &principal)?;
        let (name, is_streamed) = model.unzip();
        let mut request = parse_request(wire, body, name, &self.0.limits)?;
        if let Some(is_streamed) = is_streamed {
            request.is_streamed = is_streamed;
        }
        let agent = request.agent(self.agent(wire, &request.model)?)?;
        let agent = match principal.budget() {
            Some(budget) => agent.with_budget(budget.clone()),
            None => agent,
        };
        let (run, earlier_bytes) = self.start(&agent, &mut request, &principal)?;
        let run = match principal.trace_parent() {
            Some(parent) => run.with_data(parent.clone()),
            None => run,
        };
        let store = (self.0.responses.clone(), principal.id().to_owned(), earlier_bytes);
        let settings = AnswerSettings {
            wire,
            id: SystemIds.next_id(),
            path: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
            shows_work: self.0.shows_work,
            store: request.is_stored.then_some(store),
        };
        let request_id = wire.request_id_header().map(|name| (name, settings.id.clone()));
        let is_streamed = request.is_streamed;
        let answer = Answer::new(settings, request, run, active_run);
        let builder = Response::builder().header(header::CACHE_CONTROL, "no-cache");
        let builder = request_id.into_iter().fold(builder, |it, (name, id)| it.header(name, id));
        let response = if is_streamed {
            let builder = builder
                .header(header::CONTENT_TYPE, answer.content_type())
                .header("x-accel-buffering", "no");
            let Settings { detaches_runs, keep_alive, .. } = *self.0;
            let body = AnswerBody::start(answer, detaches_runs, keep_alive).await?;
            builder.body(Body::from_stream(body))
        } else {
            let builder = builder.header(header::CONTENT_TYPE, "application/json");
            builder.body(self.complete(answer).await?.to_string().into())
        };
        response.map_err(|error| {
            let message = "the response cannot be sent";
            Error::new(ErrorKind::Other, message).with_source(error).into()
        })
    }

    /// Waits for an answer that is not streamed.
    async fn complete(&self, answer: Answer) -> Result<Value, Failure> {
        let limit = self.0.answer_timeout;
        let completed = match self.0.detaches_runs {
            // Dropping the handle of a task does not end the task.
            true => tokio::time::timeout(limit, tokio::spawn(answer.complete())).await.map(
                |completed| {
                    completed.unwrap_or_else(|error| {
                        let message = "the answer was lost";
                        Err(Error::new(ErrorKind::Other, message).with_source(error).into())
                    })
                },
            ),
            false => tokio::time::timeout(limit, answer.complete()).await,
        };
        completed.unwrap_or_else(|_| {
            let error = Error::new(ErrorKind::Timeout, "the answer took too long");
            // A tool may have started.
            Err(Failure::new(error.with_status(504), true))
        })
    }

    /// Replaces the references to items of kept responses by the items.
    fn replace_references(&self, body: &mut Value, principal: &Principal) -> Result<(), Error> {
        let items = body.get_mut("input").and_then(Value::as_array_mut);
        for (n, item) in items.into_iter().flatten().enumerate() {
            if item["type"] == "item_reference" {
                let id = item["id"].as_str().unwrap_or_default();
                let stored = self.0.responses.item(id, principal.id());
                let message = "no item with this id is kept for you";
                *item = stored.ok_or_else(|| invalid(&format!("input[{n}].id"), message))?;
            }
        }
        Ok(())
    }

    /// Starts the run of a request. Also returns the size of the history that it continues.
    fn start(
        &self,
        agent: &Agent,
        request: &mut ModelRequest,
        principal: &Principal,
    ) -> Result<(Run, usize), Error> {
        let Some(previous) = &request.previous_response else {
            let history = History::from_items(SystemIds.next_id(), request.items()?);
            return Ok((agent.run_from(history, Input::default()), 0));
        };
        let path = "previous_response_id";
        let unknown = || invalid(path, "no response with this id is kept for you");
        let earlier = self.0.responses.get(previous, principal.id());
        let earlier = earlier.filter(|earlier| earlier.model == request.model);
        let earlier = earlier.ok_or_else(unknown)?;
        // Several requests may continue the same response.
        let history = earlier.history.fork(&SystemIds);
        let mut results = HashMap::new();
        for (id, content, is_error) in request.conversation.take_other_results() {
            if results.insert(id.clone(), (content, is_error)).is_some() {
                return Err(invalid("input", &format!("the call {id} has two outputs")));
            }
        }
        let items = std::mem::take(&mut request.conversation);
        let items = items.into_items(&request.tool_names())?;
        let mut verdicts = Vec::new();
        for call in history.pending_calls() {
            let seen = client_call_id(&call.call_id, previous.trim_start_matches("resp_"));
            let Some((content, is_error)) = results.remove(&seen) else {
                let message = format!("no output for the call {seen}");
                return Err(invalid("input", &message));
            };
            let output =
                if is_error { ToolOutput::error(content) } else { ToolOutput::ok(content) };
            verdicts.push((call, Verdict::output(output)));
        }
        if let Some(id) = results.keys().next() {
            let message = format!("the call {id} does not wait for an output");
            return Err(invalid("input", &message));
        }
        if verdicts.is_empty() {
            ensure_message(&items)?;
            return Ok((agent.run_from(history, Input::from(items)), earlier.bytes));
        }
        let run = agent.resume(history, verdicts)?;
        if !items.is_empty() {
            // The run has just been created, and its queue is empty.
            let _ = run.steer(Input::from(items));
        }
        Ok((run, earlier.bytes))
    }

    /// Decides from whom a request comes, counts it, and receives its body.
    async fn read(&self, wire: Wire, request: Request) -> Result<Received, Error> {
        let (parts, body) = request.into_parts();
        let principal = self.0.access.admit(&parts).await?;
        let active_run = self.0.active_runs.start_run(&principal)?;
        let media_type = header_text(&parts.headers, header::CONTENT_TYPE.as_str());
        let media_type = media_type.and_then(|header| header.split(';').next());
        let is = |name: &str| media_type.is_some_and(|it| it.trim().eq_ignore_ascii_case(name));
        // Ollama's docs call the server with `curl -d`, which sends the content type of a form. A
        // browser that sends a form of another site also sends its origin.
        let is_curl = wire == Wire::Ollama && !parts.headers.contains_key(header::ORIGIN);
        let is_accepted =
            is("application/json") || is_curl && is("application/x-www-form-urlencoded");
        if !is_accepted {
            return Err(invalid("", "the content type must be application/json").with_status(415));
        }
        let max = self.0.limits.max_bytes;
        let body = self.0.bodies.receive(&principal, &parts, body, max).await?;
        Ok(Received { parts, principal, active_run, body })
    }

    /// Parses a body of JSON.
    fn parse(&self, body: &[u8]) -> Result<Value, Error> {
        let parsed = self.0.limits.parse_json(Some("application/json"), body);
        parsed.map_err(|error| {
            let kind = match error.status() {
                413 => ErrorKind::TooLarge,
                _ => ErrorKind::InvalidRequest,
            };
            Error::new(kind, error.to_string()).with_status(error.status())
        })
    }

    fn agent(&self, wire: Wire, model: &str) -> Result<&Agent, Error> {
        // Ollama's clients may name the version of a model.
        let name = model.strip_suffix(":latest").filter(|_| wire == Wire::Ollama);
        let found = self.0.models.get(model).or_else(|| self.0.models.get(name?));
        found.ok_or_else(|| {
            let message = format!("the model {model:?} does not exist");
            Error::new(ErrorKind::InvalidRequest, message).with_status(404).with_parameter("model")
        })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.models.keys().map(String::as_str)
    }

    /// Answers a request without a body.
    async fn get(
        &self,
        wire: Wire,
        request: Request,
        document: impl FnOnce(&Self) -> Result<Value, Error>,
    ) -> Response<Body> {
        let (parts, _) = request.into_parts();
        let document = self.0.access.admit(&parts).await.and_then(|_| document(self));
        json_response(wire, document)
    }

    /// Answers a request with a body of JSON by a document.
    async fn post(
        &self,
        wire: Wire,
        request: Request,
        document: impl FnOnce(&Self, &[u8]) -> Result<Value, Error>,
    ) -> Response<Body> {
        let received = self.read(wire, request).await;
        let document = received.and_then(|received| document(self, &received.body.bytes));
        json_response(wire, document)
    }
}

impl fmt::Debug for AgentServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models: Vec<&str> = self.names().collect();
        f.debug_struct("AgentServer").field("models", &models).finish_non_exhaustive()
    }
}

/// A request that has been authorized and received.
struct Received {
    parts: Parts,
    principal: Principal,
    active_run: Slot,
    body: HeldBody,
}

fn error_response(wire: Wire, failure: &Failure) -> Response<Body> {
    let ErrorDocument { status, headers, body, .. } = failure.document(wire);
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

fn json_response(wire: Wire, document: Result<Value, Error>) -> Response<Body> {
    match document {
        Ok(document) => {
            let mut response = Response::new(Body::from(document.to_string()));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(error) => error_response(wire, &error.into()),
    }
}

// The routes that describe models.

/// Returns the wire of a request for a description, whose path several vendors share.
fn described_wire(request: &Request) -> Wire {
    let has = |name| request.headers().contains_key(name);
    let is_gemini = request.uri().path().starts_with("/v1beta/");
    match () {
        () if has("anthropic-version") => Wire::Anthropic,
        () if is_gemini || has("x-goog-api-key") || has("x-goog-api-client") => Wire::Gemini,
        () => Wire::OpenAiChat,
    }
}

fn describe_model(wire: Wire, name: &str) -> Value {
    match wire {
        Wire::Anthropic => json!({
            "type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z",
        }),
        Wire::Gemini => json!({
            "name": format!("models/{name}"),
            "displayName": name,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        }),
        _ => json!({ "id": name, "object": "model", "created": 0, "owned_by": "turnstream" }),
    }
}

async fn list_models(State(server): State<AgentServer>, request: Request) -> Response<Body> {
    let wire = described_wire(&request);
    server
        .get(wire, request, |server| {
            let models = server.names().map(|name| describe_model(wire, name));
            let models: Vec<Value> = models.collect();
            Ok(match wire {
                Wire::Anthropic => {
                    let (first, last) = (server.names().next(), server.names().last());
                    json!({ "data": models, "has_more": false, "first_id": first, "last_id": last })
                }
                Wire::Gemini => json!({ "models": models }),
                _ => json!({ "object": "list", "data": models }),
            })
        })
        .await
}

async fn show_model(
    State(server): State<AgentServer>,
    Path(name): Path<String>,
    request: Request,
) -> Response<Body> {
    let wire = described_wire(&request);
    let describe = |server: &AgentServer| {
        server.agent(wire, &name)?;
        Ok(describe_model(wire, &name))
    };
    server.get(wire, request, describe).await
}

async fn count_anthropic(State(server): State<AgentServer>, request: Request) -> Response<Body> {
    server
        .post(Wire::Anthropic, request, |server, body| {
            server.count(Wire::Anthropic, body, None).map(|count| json!({ "input_tokens": count }))
        })
        .await
}

async fn call_gemini(
    State(server): State<AgentServer>,
    Path(call): Path<String>,
    request: Request,
) -> Response<Body> {
    let wire = Wire::Gemini;
    let (model, method) = call.rsplit_once(':').unwrap_or((&call, ""));
    let model = model.to_owned();
    match method {
        "generateContent" => server.answer(wire, Some((model, false)), request).await,
        "streamGenerateContent" => server.answer(wire, Some((model, true)), request).await,
        "countTokens" => {
            server
                .post(wire, request, |server, body| {
                    let count = server.count(wire, body, Some(model));
                    count.map(|count| json!({ "totalTokens": count }))
                })
                .await
        }
        _ => {
            let message = format!("there is no method {method:?}");
            json_response(wire, Err(invalid("", &message).with_status(404)))
        }
    }
}

async fn list_ollama(State(server): State<AgentServer>, request: Request) -> Response<Body> {
    server
        .get(Wire::Ollama, request, |server| {
            let model = |name: &str| {
                json!({
                    "name": name,
                    "model": name,
                    "modified_at": "1970-01-01T00:00:00Z",
                    "size": 0,
                    "digest": "",
                    "details": {},
                })
            };
            Ok(json!({ "models": server.names().map(model).collect::<Vec<_>>() }))
        })
        .await
}

async fn show_ollama(State(server): State<AgentServer>, request: Request) -> Response<Body> {
    server
        .post(Wire::Ollama, request, |server, body| {
            let body = server.parse(body)?;
            let name = body["model"].as_str().or(body["name"].as_str()).unwrap_or_default();
            server.agent(Wire::Ollama, name)?;
            Ok(json!({
                "details": {}, "model_info": {}, "capabilities": ["completion", "tools"],
            }))
        })
        .await
}

async fn ollama_version(State(server): State<AgentServer>, request: Request) -> Response<Body> {
    // Clients compare the version with the first one that streams calls of tools.
    server.get(Wire::Ollama, request, |_| Ok(json!({ "version": "0.12.0" }))).await
}

impl AgentServer {
    /// Estimates the tokens of a request: a quarter of its bytes.
    fn count(&self, wire: Wire, bytes: &[u8], model: Option<String>) -> Result<usize, Error> {
        let mut body = self.parse(bytes)?;
        // Gemini's clients can send the request inside another one.
        if let Some(inner) = body.get_mut("generateContentRequest") {
            body = inner.take();
        }
        let request = parse_request(wire, body, model, &self.0.limits)?;
        self.agent(wire, &request.model)?;
        Ok(bytes.len().div_ceil(4))
    }
}
