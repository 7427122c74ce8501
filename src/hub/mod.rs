//! Runs that outlive their readers.
//!
//! A run is a stream, and dropping the stream cancels the run. Cancelling the run is right if the
//! user closes the page, but not if the user reloads it. In a [`Hub`], a run continues regardless
//! of how many readers it has, even if it has none. The hub polls each run in its own task and
//! writes the events to a [log](EventLog). Any number of readers can read the log, each from its
//! own position. Commands reach a run through its [inbox](CommandInbox).
//!
//! | to read | use |
//! |---|---|
//! | a session with its active run, if any, and all later runs, for a page | [`Hub::read_session`] |
//! | the active run of a session, up to its end | [`Hub::read`] |
//! | one run by its id | [`Hub::read_run`], or [`Hub::read_any_run`] if it may be on another machine |
//! | the run that this code started, from its first event | [`RunOwner::read`] |
//!
//! ```
//! use futures::StreamExt;
//! use turnstream::Agent;
//! use turnstream::hub::{Hub, HubEvent};
//! use turnstream::provider::Scripted;
//! use turnstream::session::{MemoryStore, Session};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnstream::Error> {
//! let agent = Agent::new(Scripted::new(["Hello!"]));
//! let hub = Hub::new();
//!
//! // One request of a page starts a run and leaves it to the hub.
//! let session = Session::open(MemoryStore::new(), "chat-1").await?;
//! let place = hub.reserve(session.id())?;
//! let run_id = place.start(session.run(&agent, "Hi").await?).await?.detach();
//!
//! // Another request reads the run and loses its connection.
//! let mut reader = hub.read("chat-1", None)?;
//! let first = reader.next().await.unwrap()?;
//! drop(reader);
//!
//! // It reconnects with the number of the last event that it received.
//! let mut reader = hub.read("chat-1", first.number())?;
//! while let Some(event) = reader.next().await {
//!     if let HubEvent::Event { event, .. } = event? {
//!         print!("{}", event.text_delta().map_or("", |text| text));
//!     }
//! }
//! assert_eq!(hub.run_id("chat-1"), None, "{run_id} is over");
//! # Ok(())
//! # }
//! ```
//!
//! # For a browser
//!
//! [`Sse::respond_to_reader`](crate::ui::sse::Sse::respond_to_reader) sends a reader's items as
//! server-sent events. The other protocols in [`ui`](crate::ui) take the stream returned by
//! [`Reader::into_events`]. The `web` example is a complete server. This one starts, shows,
//! approves and stops the runs of a chat:
//!
//! ```
//! use axum::body::Body;
//! use axum::extract::{Path, State};
//! use axum::http::{HeaderMap, StatusCode};
//! use axum::response::{IntoResponse, Response};
//! use axum::routing::{get, post};
//! use axum::{Json, Router};
//! use turnstream::hub::{Command, EventNumber, Hub, NotRunning, ShuttingDown};
//! use turnstream::item::PendingCall;
//! use turnstream::session::{Entry, JsonLinesStore, Session, SessionState};
//! use turnstream::tool::Verdict;
//! use turnstream::ui::sse::Sse;
//! use turnstream::{Agent, Error, ErrorKind};
//!
//! #[derive(Clone)]
//! struct App {
//!     agent: Agent,
//!     hub: Hub,
//!     store: JsonLinesStore,
//! }
//!
//! async fn start(
//!     State(app): State<App>,
//!     Path(chat): Path<String>,
//!     text: String,
//! ) -> Result<StatusCode, Failure> {
//!     let reservation = app.hub.reserve(&chat)?;
//!     let session = Session::open(app.store, &chat).await?;
//!     if let SessionState::Pending { .. } = session.state() {
//!         return Ok(StatusCode::CONFLICT); // New input would discard the pending calls.
//!     }
//!     reservation.start(session.run(&app.agent, text).await?).await?.detach();
//!     Ok(StatusCode::ACCEPTED)
//! }
//!
//! /// The page loads the stored entries, and then the events.
//! async fn entries(
//!     State(app): State<App>,
//!     Path(chat): Path<String>,
//! ) -> Result<Json<Vec<Entry>>, Failure> {
//!     Ok(Json(Session::open(app.store, &chat).await?.entries().await?))
//! }
//!
//! async fn events(
//!     State(app): State<App>,
//!     Path(chat): Path<String>,
//!     headers: HeaderMap,
//! ) -> Result<Response, Failure> {
//!     let last_event_id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
//!     let after: Option<EventNumber> = last_event_id.and_then(|id| id.parse().ok());
//!     let session = Session::open(app.store, &chat).await?;
//!     let response = Sse::new().respond_to_reader(app.hub.read_session(&session, after.as_ref()));
//!     let mut builder = Response::builder().status(response.status);
//!     for (name, value) in response.headers {
//!         builder = builder.header(name, value);
//!     }
//!     Ok(builder.body(Body::from_stream(response.body)).expect("the headers are valid"))
//! }
//!
//! /// Each pending call needs a verdict: `[[{"approval_id":"…","call_id":"…", …}, true]]`.
//! async fn verdicts(
//!     State(app): State<App>,
//!     Path(chat): Path<String>,
//!     Json(verdicts): Json<Vec<(PendingCall, bool)>>,
//! ) -> Result<StatusCode, Failure> {
//!     let verdicts = verdicts.into_iter().map(|(call, approved)| match approved {
//!         true => (call, Verdict::Approve),
//!         false => (call, Verdict::Deny("the user said no".to_owned())),
//!     });
//!     let reservation = app.hub.reserve(&chat)?;
//!     let session = Session::open(app.store, &chat).await?;
//!     reservation.start(session.resume(&app.agent, verdicts).await?).await?.detach();
//!     Ok(StatusCode::ACCEPTED)
//! }
//!
//! async fn stop(State(app): State<App>, Path(chat): Path<String>) -> Result<StatusCode, Failure> {
//!     let Some(run) = app.hub.find_run(&chat).await? else { return Ok(StatusCode::NOT_FOUND) };
//!     app.hub.send(&run, Command::Interrupt).await?;
//!     Ok(StatusCode::NO_CONTENT)
//! }
//!
//! fn router(app: App) -> Router {
//!     Router::new()
//!         .route("/chats/{chat}", post(start))
//!         .route("/chats/{chat}/entries", get(entries))
//!         .route("/chats/{chat}/events", get(events))
//!         .route("/chats/{chat}/verdicts", post(verdicts))
//!         .route("/chats/{chat}/stop", post(stop))
//!         .with_state(app)
//! }
//!
//! struct Failure(Error);
//!
//! impl From<Error> for Failure {
//!     fn from(error: Error) -> Self {
//!         Self(error)
//!     }
//! }
//!
//! impl IntoResponse for Failure {
//!     fn into_response(self) -> Response {
//!         let status = match self.0.kind() {
//!             _ if self.0.find_source::<NotRunning>().is_some() => StatusCode::NOT_FOUND,
//!             _ if self.0.find_source::<ShuttingDown>().is_some() => StatusCode::SERVICE_UNAVAILABLE,
//!             // The chat has an active run, or no call is waiting for this verdict.
//!             ErrorKind::Conflict | ErrorKind::InvalidRequest => StatusCode::CONFLICT,
//!             _ => StatusCode::INTERNAL_SERVER_ERROR,
//!         };
//!         (status, self.0.kind().to_string()).into_response()
//!     }
//! }
//! ```
//!
//! # On many machines
//!
//! Without a shared log, a hub knows only about its own runs. With the crate `turnstream-redis`,
//! several hubs can keep their logs and inboxes on one Redis or Valkey server and know about each
//! other's runs. Any of these hubs can serve a page, because [`Hub::read_session`],
//! [`Hub::find_run`], [`Hub::read_any_run`] and [`Hub::send`] reach runs on all machines. The
//! sessions must be kept in a single store that all machines use. For another server, implement
//! [`EventLog`], [`CommandInbox`] and [`RunDirectory`]; [`backend`] contains parts for them.
//!
//! | question | answered by |
//! |---|---|
//! | which process may run a session | the [lease](crate::session::Lease) in its store |
//! | the finished part of the conversation | the session in its store |
//! | the events of the active run | the log |
//!
//! Even if a log loses all its data, no session loses data. While the log is
//! [unavailable](LogUnavailable), a run continues or pauses, depending on the
//! [`HubBuilder::with_log_outage`] setting. Meanwhile, commands fail immediately, and session
//! readers yield the finished turns from the store until a snapshot of the run is available again.
//!
//! When a process dies, its runs are considered [lost](RunLost) within five seconds. Readers on
//! other machines yield the session's state from the store, and then wait for the session's next
//! run. [`Hub::lost_runs`] lists the lost runs, and the process that [claims](Hub::claim_lost_run)
//! a run resumes its session; the [guide](crate::guide::many_machines) contains the code.
//!
//! [`Hub::run_id`], [`Hub::read`], [`Hub::reserve`], [`Hub::reserve_when_free`], [`Hub::stats`],
//! [`Hub::shut_down`] and the number of readers for [`Unattended`] take only the hub's own runs
//! into account.
//!
//! # Dropping
//!
//! | dropped | effect |
//! |---|---|
//! | a [`Reader`] or a [`SessionReader`] | reading stops, but the run continues |
//! | a [`RunOwner`] that was not [detached](RunOwner::detach) | the run is dropped synchronously |
//! | the last clone of the [`Hub`] | all runs are dropped synchronously |
//! | the runtime | all of its runs are dropped |
//!
//! A run that another thread is currently polling is dropped once that poll returns. When a run is
//! dropped, the turn that is currently streaming is lost, and the run's readers end with an error.
//! [`Command::Interrupt`], on the other hand, ends a run and keeps the part of the turn that has
//! already arrived.
//!
//! # Limits
//!
//! These limits have no setter. [The guide](crate::guide::defaults) lists those that have one.
//!
//! | limit | value | when it is reached |
//! |---|---|---|
//! | removed logs whose attempts a [`MemoryLog`] remembers | 1,024 | the attempts of the run are numbered from 1 again |
//! | commands queued for a run | 1,000 | further commands are rejected, except one more interrupt |
//! | size of the commands queued for a run | 16 MiB; a single command may be larger | further commands are rejected, except interrupts |
//! | delay before a run retries an unavailable log | 100 ms, doubled up to 5 s | |
//! | delay before a session reader retries an unavailable log | 250 ms | |
//! | how often a session reader checks the store while the log is unavailable | every second | if the session has changed, the reader yields a snapshot |
//! | time to store partial turns on shutdown, after the limit of [`Hub::shut_down`] | 10 s | the runs are dropped |

pub mod backend;
mod builder;
mod hub;
mod inbox;
mod log;
mod read;
mod run;
mod settings;

pub use builder::HubBuilder;
pub use hub::{Hub, HubStats, Reservation, RunOwner};
pub(crate) use inbox::command_inbox::ensure_short_id;
pub use inbox::command_inbox::{Command, CommandInbox, SentCommand};
pub use inbox::memory_inbox::MemoryInbox;
pub use log::event_log::{
    EventLog, LogContent, LogEntry, LogStats, LogUnavailable, NotRunning, RunLost, StaleEpoch,
    TooSlow,
};
pub use log::event_number::EventNumber;
pub use log::memory_log::MemoryLog;
pub use log::snapshot::Snapshot;
pub use read::reader::{HubEvent, Reader};
pub use read::session_reader::SessionReader;
pub use run::blocking_tools::BlockingTool;
pub use run::registry::{AlreadyRunning, ShuttingDown};
pub use run::run_directory::{AnnouncedRun, LostRun, RunDirectory};
pub(crate) use run::source::CallProgress;
pub use run::source::RunSource;
pub use settings::{LogOutage, SlowReaders, Unattended};
