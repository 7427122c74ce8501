//! Runs that outlive their readers.
//!
//! A run is a stream: dropping it cancels it. That is right for a page that is closed, and wrong for a page that is
//! loaded again. In a [`Hub`] a run continues however many consumers it has: the hub pulls each run in a task of its
//! own and writes the events into a [log](EventLog). Any number of readers read from the log, each at its own place.
//! Commands reach the run through its [inbox](CommandInbox).
//!
//! | to read | use |
//! |---|---|
//! | a session, whether or not a run is active, and all runs that follow: a page | [`Hub::read_session`] |
//! | the active run of a session, up to its end | [`Hub::read`] |
//! | one run by its id | [`Hub::read_run`], or [`Hub::read_any_run`] if it may be one of another machine |
//! | the run that this code has started, from its first event | [`RunOwner::read`] |
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
//! // One request of a page starts a run, and leaves it to the hub.
//! let session = Session::open(MemoryStore::new(), "chat-1").await?;
//! let place = hub.reserve(session.id())?;
//! let run_id = place.start(session.run(&agent, "Hi").await?).await?.detach();
//!
//! // Another one reads it, and loses its connection.
//! let mut reader = hub.read("chat-1", None)?;
//! let first = reader.next().await.unwrap()?;
//! drop(reader);
//!
//! // It connects again with the number of the last event that it has.
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
//! With the feature `ui`, [`Sse::respond_to_reader`](crate::ui::sse::Sse::respond_to_reader) sends what a reader gets
//! as server-sent events; the other protocols of [`ui`](crate::ui) take [`Reader::into_events`]. The example `web` is a
//! whole server. Its route for a page:
//!
//! ```
//! # #[cfg(feature = "ui")]
//! # mod example {
//! use futures::Stream;
//! use turnstream::Error;
//! use turnstream::hub::{EventNumber, Hub, HubEvent};
//! use turnstream::session::Session;
//! use turnstream::ui::sse::Sse;
//! use turnstream::ui::{Response, ResponseBody};
//!
//! fn events(
//!     hub: &Hub,
//!     session: &Session,
//!     last_event_id: Option<&str>,
//! ) -> Response<ResponseBody<impl Stream<Item = Result<HubEvent, Error>> + use<>, HubEvent>> {
//!     // An id that cannot be parsed is like none: the reader begins with a snapshot.
//!     let after: Option<EventNumber> = last_event_id.and_then(|id| id.parse().ok());
//!     Sse::new().respond_to_reader(hub.read_session(session, after.as_ref()))
//! }
//! # }
//! ```
//!
//! # On many machines
//!
//! A hub knows its own runs. With the feature `redis`, hubs whose logs and inboxes are on one Redis or Valkey server
//! (`hub::redis::RedisEvents`) know those of all, and any of them serves a page: [`Hub::read_session`],
//! [`Hub::find_run`], [`Hub::read_any_run`] and [`Hub::send`] reach a run wherever it runs. The sessions have to be in
//! one store that all machines use.
//!
//! | question | answered by |
//! |---|---|
//! | who may run a session | the [lease](crate::session::Lease) in its store |
//! | what was said | the session in its store |
//! | what is being said now | the log |
//!
//! So a log may lose everything at any time, and no session loses anything. While it is
//! [unavailable](LogUnavailable), a run continues or waits, as [`Hub::with_log_outage`] says; commands fail at once;
//! and readers of sessions show the finished turns from the store, until a snapshot of the run follows.
//!
//! When a process dies, its runs are [lost](RunLost) within five seconds. Readers elsewhere get what the store has and
//! wait; [`Hub::lost_runs`] lists the runs, and one process of those that [claim](Hub::claim_lost_run) a run resumes
//! its session:
//!
//! ```
//! # use turnstream::hub::Hub;
//! # use turnstream::session::{Session, Store};
//! # use turnstream::{Agent, Error};
//! # use std::sync::Arc;
//! async fn resume_lost_runs(hub: &Hub, store: Arc<dyn Store>, agent: &Agent) -> Result<(), Error> {
//!     for lost in hub.lost_runs().await? {
//!         if hub.claim_lost_run(&lost).await? {
//!             let session = Session::open(Arc::clone(&store), &lost.key).await?;
//!             hub.start(&lost.key, session.resume(agent, Vec::new()).await?).await?.detach();
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! A hub keeps to its own runs in [`Hub::run_id`], [`Hub::read`], [`Hub::reserve_when_free`], [`Hub::stats`],
//! [`Hub::shut_down`] and in what counts as a reader for [`Unattended`].
//!
//! # Dropping
//!
//! | dropped | effect |
//! |---|---|
//! | a [`Reader`] or a [`SessionReader`] | reading stops, the run continues |
//! | a [`RunOwner`] that was not [detached](RunOwner::detach) | the run is dropped before the call returns |
//! | the last clone of the [`Hub`] | all runs are dropped before the call returns |
//! | the runtime | all of its runs are dropped |
//!
//! A run that another thread polls at that moment is dropped when its poll returns. The turn that streams is lost with a run that is dropped, and the readers of the run end with an error.
//! [`Command::Interrupt`] ends a run and keeps the part of the turn that has arrived.

mod all_hubs_reader;
mod command_inbox;
#[cfg(any(feature = "redis", feature = "durable"))]
pub(crate) mod command_json;
mod compact_events;
mod event_log;
mod event_number;
mod hub;
mod logs;
mod memory_inbox;
mod memory_log;
mod one_hub_reader;
mod reader;
#[cfg(feature = "redis")]
pub mod redis;
mod registry;
mod run_directory;
mod run_log;
mod runner;
mod session_reader;
mod settings;
mod snapshot;
mod source;

pub use command_inbox::{Command, CommandInbox, SentCommand};
pub use event_log::{
    EventLog, LogContent, LogEntry, LogStats, LogUnavailable, NotRunning, RunLost, StaleEpoch,
    TooSlow,
};
pub use event_number::{EventNumber, ParseEventNumberError};
pub use hub::{Hub, HubStats, Reservation, RunOwner};
pub use memory_inbox::MemoryInbox;
pub use memory_log::MemoryLog;
pub use reader::{HubEvent, Reader};
pub use registry::{AlreadyRunning, ShuttingDown};
pub use run_directory::{AnnouncedRun, LostRun, RunDirectory};
pub use session_reader::SessionReader;
pub use settings::{LogOutage, SlowReaders, Unattended};
pub use snapshot::Snapshot;
#[cfg(feature = "durable")]
pub(crate) use source::CallProgress;
pub use source::RunSource;
