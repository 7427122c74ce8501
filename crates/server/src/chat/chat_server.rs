//! The settings of a chat server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use serde_json::Value;
use turnstream::hub::Hub;
use turnstream::partial::PartialValues;
use turnstream::session::{MemoryStore, Store};
use turnstream::ui::ErrorTexts;
use turnstream::{Agent, Error};

use super::failure::{ErrorForm, Failure};
use super::limits::ChatLimits;
use super::open_sessions::{OpenSessions, SessionOwners, StoreWriters};
use super::queue_tasks::QueueTasks;
use super::start_rate::StartRate;
use crate::access::{Access, AllowedSites};
use crate::authorize::Authorize;
use crate::body::Bodies;
use crate::slots::Slots;

/// A chat back end for a page or an app: its users talk to an agent in sessions.
///
/// A run continues when its page is closed, and any number of readers can follow it. A client may
/// choose the id of a session, of 1 to 100 letters, digits and `-_.`; an id that the principal has
/// not used names a new, empty session. Bodies are JSON. An error is `{"error": "…"}`, except in
/// the last two groups, which have the form of their protocol. An AI SDK client of version 7 that
/// resumes a chat receives its active run from the start. One of version 5 or 6 would show the text
/// twice: it receives the status 204, and can load the messages when the run has ended.
///
/// | route | purpose |
/// |---|---|
/// | `POST /sessions/{id}/runs` | starts a run with the message `text`, or continues an unfinished run. While a run is active, the message is [queued or refused](Busy). The header `idempotency-key` makes it safe to send the request again. While calls wait for approval, the request is refused unless `waiting_calls` is `"give_up"` |
/// | `GET /sessions/{id}/events` | the session's events across all its runs, as [server-sent events](turnstream::ui::sse), from the start or after the number in `last-event-id` or `?after=` |
/// | `POST /sessions/{id}/stop` | interrupts the run, with a `reason` for the model. With `after_turn`, the current turn and its tools finish first. With `answer_only`, the model's answer ends but not its tools, unless it already answers the message `answer_next` |
/// | `POST /sessions/{id}/steer` | sends the message `text` while the model works; the event `appended` has the returned `id` |
/// | `POST /sessions/{id}/approve`, `…/deny` | a verdict on the waiting `call`, with a `reason`, the terms `always` on which it holds for further calls, and `earlier` verdicts. Once no verdict is `missing`, the run continues |
/// | `GET /sessions/{id}/grants`, `POST …/grants/revoke` | the calls that run without a question; revokes the one with this `grant_id` |
/// | `POST /sessions/{id}/fork` | creates a new session from the first `at` entries, up to 100 times in a row |
/// | `POST /sessions/{id}/regenerate` | requests another answer to the last message, which replaces the existing one. While calls wait for approval, the request is refused unless `waiting_calls` is `"give_up"` |
/// | `GET /sessions/{id}/messages` | at most `?limit=` entries before the number `?before=`, and how their runs ended |
/// | `GET /sessions/{id}/trace` | the traces of the session's last runs in this process |
/// | `GET /sessions` | the sessions, the last written one first, 50 at a time; `?after=` takes the `next` of the previous page |
/// | `GET /health` | the status `ok`, and the [load](Self::with_shown_load) if it is shown |
/// | `POST /api/chat`, `GET /api/chat/{id}/stream`, `POST …/stop`, `GET …/messages` | [AI SDK](turnstream::ui::ai_sdk) clients of version 6, or `?version=5` or `7` |
/// | `POST /ag-ui` | [AG-UI](turnstream::ui::ag_ui) clients |
///
/// ```no_run
/// use std::time::Duration;
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::session::JsonLinesStore;
/// use turnstream_server::{ChatServer, listen};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// let server = ChatServer::new(agent).with_store(JsonLinesStore::open("chats")?);
/// let listener = listen(([127, 0, 0, 1], 8080).into())?;
/// server.serve(listener, Duration::from_secs(10)).await;
/// # Ok(())
/// # }
/// ```
///
/// Clones share their sessions and runs. Dropping the last clone and the router drops the runs.
#[derive(Clone)]
#[must_use]
pub struct ChatServer(pub(super) Arc<Settings>);

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) agent: Agent,
    pub(super) hub: Hub,
    hub_owner: HubOwner,
    pub(super) sessions: OpenSessions,
    pub(super) access: Access,
    pub(super) limits: ChatLimits,
    pub(super) busy: Busy,
    error_texts: ErrorTexts,
    pub(super) partials: Option<PartialValues<Value>>,
    shows_load: bool,
    log: Option<Arc<LogFn>>,
    /// Routes of the app.
    pub(super) app_routes: Router,
    pub(super) usage: Usage,
    /// They end when the last clone of the settings is dropped.
    pub(super) queue_tasks: Arc<QueueTasks>,
}

/// Who has created the hub.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HubOwner {
    /// The server, for the sessions of its store.
    Server,
    App,
}

type LogFn = dyn Fn(&Error) + Send + Sync;

/// The runs and readers of the principals.
#[derive(Clone, Default)]
pub(super) struct Usage {
    pub(super) runs: Slots,
    pub(super) readers: Slots,
    /// The bytes of messages that wait.
    pub(super) queued_bytes: Slots,
    pub(super) bodies: Bodies,
    pub(super) starts: Arc<StartRate>,
}

/// The handling of a message to a session whose run is active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Busy {
    /// The message waits in memory until the run has ended and no call waits for approval.
    #[default]
    Queue,
    /// The message is refused with the status 409.
    Refuse,
}

impl ChatServer {
    /// Creates a server whose sessions are in memory. Until
    /// [`with_authorize`](Self::with_authorize) is called, it accepts only requests to the names of
    /// this machine, such as `localhost`, and all of them come from one principal.
    pub fn new(agent: Agent) -> Self {
        Self(Arc::new(Settings {
            agent,
            hub: Hub::new(),
            hub_owner: HubOwner::Server,
            sessions: OpenSessions::new(Arc::new(MemoryStore::new())),
            access: Access::default(),
            limits: ChatLimits::default(),
            busy: Busy::default(),
            error_texts: ErrorTexts::hidden(),
            partials: None,
            shows_load: false,
            log: None,
            app_routes: Router::new(),
            usage: Usage::default(),
            queue_tasks: Arc::default(),
        }))
    }

    fn update(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Sets where the sessions are stored. The session `id` of the principal `ada` is stored as
    /// `ada/id`.
    ///
    /// On a clone of another server, it creates a server whose sessions and runs are its own,
    /// unless the [hub](Self::with_hub) was set.
    pub fn with_store(self, store: impl Store + 'static) -> Self {
        self.update(|settings| {
            settings.sessions = settings.sessions.with_store(Arc::new(store));
            settings.queue_tasks = Arc::default();
            if settings.hub_owner == HubOwner::Server {
                settings.hub = Hub::new();
                settings.usage = Usage::default();
            }
        })
    }

    /// Declares that other processes write to the store too, so that each request first reads what
    /// they have written.
    pub fn with_shared_store(self) -> Self {
        self.update(|settings| settings.sessions.writers = StoreWriters::Several)
    }

    /// Sets the hub that performs the runs, for example one that several processes share. To resume
    /// the runs of a killed process, call [`resume_lost_runs`](Self::resume_lost_runs), as
    /// [`serve`](Self::serve) does.
    pub fn with_hub(self, hub: Hub) -> Self {
        self.update(|settings| (settings.hub, settings.hub_owner) = (hub, HubOwner::App))
    }

    /// Sets the [`Authorize`] that decides from which principal each request comes, and whether it
    /// is accepted. It is called for every route.
    ///
    /// Each principal has its own sessions. For another principal, they do not exist: their ids
    /// name new sessions.
    pub fn with_authorize(self, authorize: impl Authorize + 'static) -> Self {
        self.update(|settings| settings.access.authorize = Some(Arc::new(authorize)))
    }

    /// Sets the host names of the server and the pages that may use it. By default, a server with
    /// [`with_authorize`](Self::with_authorize) accepts `localhost` and all IP addresses, and one
    /// without it accepts the [names of this machine](AllowedSites::loopback). A server that
    /// clients reach by another name needs [that name](AllowedSites::of_hosts), because a name that
    /// an attacker has pointed to the server is refused with the status 421. By default, only pages
    /// of the server's own origin may use it.
    pub fn with_sites(self, sites: AllowedSites) -> Self {
        self.update(|settings| settings.access.sites = Some(sites))
    }

    /// Lets all principals use all sessions, which are stored under their own ids. Limits and
    /// budgets still hold for each principal.
    pub fn with_shared_sessions(self) -> Self {
        self.update(|settings| settings.sessions.owners = SessionOwners::Everyone)
    }

    /// Stores the history of each sub-agent that ends beside the entries of its session, so that a
    /// page that is opened later shows it: the same as
    /// [`Session::with_sub_agent_histories`](turnstream::session::Session::with_sub_agent_histories).
    /// By default, it is not stored.
    pub fn with_sub_agent_histories(self) -> Self {
        self.update(|settings| settings.sessions.keeps_sub_agents = true)
    }

    /// Sets the limits on requests, runs, queued messages, sessions and readers, in place of the
    /// [defaults](ChatLimits).
    pub fn with_limits(self, limits: ChatLimits) -> Self {
        self.update(|settings| settings.limits = limits)
    }

    /// Sets how a message to a session whose run is active is handled. By default, it is queued.
    pub fn with_busy(self, busy: Busy) -> Self {
        self.update(|settings| settings.busy = busy)
    }

    /// Sets what clients read about errors of models, tools and the store. By default, the messages
    /// are [hidden](ErrorTexts::hidden): in the events, the stored messages, the ends of runs, the
    /// traces and the list of sessions. The text of a hidden message is logged once for each
    /// failure in a run of this process, with the id that its
    /// [readers](ErrorTexts::for_readers) receive.
    pub fn with_error_texts(self, texts: ErrorTexts) -> Self {
        self.update(|settings| settings.error_texts = texts)
    }

    /// Also sends each structured answer, or the arguments of calls, while the model writes them,
    /// in the form of each protocol: as [server-sent
    /// events](turnstream::ui::sse::Sse::with_partials), to [AI SDK
    /// clients](turnstream::ui::ai_sdk::AiSdk::with_partials) and to [AG-UI
    /// clients](turnstream::ui::ag_ui::AgUi::with_partials). Off by default.
    pub fn with_partials(self, values: PartialValues<Value>) -> Self {
        self.update(|settings| settings.partials = Some(values))
    }

    /// Shows the number of runs and readers, and how full the logs of events are, at `GET /health`,
    /// to everyone who may call this route. By default, only the status is shown.
    pub fn with_shown_load(self) -> Self {
        self.update(|settings| settings.shows_load = true)
    }

    /// Calls `log` with each error that a client does not see, such as a failure of the store.
    /// `log` should not block.
    pub fn with_error_log(self, log: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.update(|settings| settings.log = Some(Arc::new(log)))
    }

    /// Adds routes of the app, such as the files of its page. The same checks hold for them as for
    /// the server's own routes. A handler receives the principal as
    /// `axum::Extension<Principal>`.
    ///
    /// Responses have the header `cache-control: no-store`, and headers that restrict what a
    /// browser does with them, unless a handler has set these headers. A fallback of `routes` is
    /// not used: the server answers unknown paths with the status 404. For a page at all other
    /// paths, add a route such as `/{*path}`.
    pub fn with_routes(self, routes: Router) -> Self {
        self.update(|settings| {
            let earlier = std::mem::take(&mut settings.app_routes);
            settings.app_routes = earlier.merge(routes.reset_fallback());
        })
    }

    /// Shuts down the server: refuses new runs with the status 503, and waits up to `limit` for the
    /// active runs to end. The remaining runs are then interrupted, so that the parts of their
    /// turns are stored. All readers get the event that says so, and their responses end. Queued
    /// messages are lost.
    ///
    /// Call it before the connections are closed: in the future that stops `serve`. Dropping the
    /// returned future only ends the wait.
    pub async fn shut_down(&self, limit: Duration) {
        self.0.hub.shut_down(limit).await;
    }

    /// How the messages of errors are hidden in the events of a run, before any reader sees them.
    pub(super) fn run_texts(&self) -> ErrorTexts {
        self.0.error_texts.clone()
    }

    /// How the messages of errors are hidden in a response.
    pub(super) fn reader_texts(&self) -> ErrorTexts {
        self.0.error_texts.for_readers()
    }

    pub(super) fn shows_load(&self) -> bool {
        self.0.shows_load
    }

    /// Returns the response of a refused request, and logs the error that the client does not see.
    pub(super) fn refuse(&self, failure: Failure, form: ErrorForm) -> Response {
        if let Some(cause) = failure.cause() {
            self.log(cause);
        }
        failure.respond(form)
    }

    pub(super) fn log(&self, error: &Error) {
        if let Some(log) = &self.0.log {
            log(error);
        }
    }

    pub(super) fn log_with_context(&self, what: &str, error: &Error) {
        let message = format!("{what}: {error}");
        self.log(&Error::new(error.kind(), message).with_source(error.clone()));
    }
}

impl fmt::Debug for ChatServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { hub, limits, .. } = &*self.0;
        f.debug_struct("ChatServer")
            .field("hub", hub)
            .field("limits", limits)
            .finish_non_exhaustive()
    }
}
