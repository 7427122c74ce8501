//! Runs that outlive their readers.
//!
//! A run is a stream: dropping it cancels it. That is right for a page that is closed, and wrong for a page that is
//! loaded again. A [`Hub`] is the one place of this crate where a run continues without a consumer. It pulls each run
//! in a task of its own and writes the events into a [log](EventLog). Any number of readers read from the log, each at
//! its own place. Commands reach the run through its [inbox](CommandInbox).
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
//! # Dropping
//!
//! | dropped | effect |
//! |---|---|
//! | a [`Reader`] or a [`SessionReader`] | reading stops, the run continues |
//! | a [`RunOwner`] that was not [detached](RunOwner::detach) | the run is dropped synchronously |
//! | the last clone of the [`Hub`] | all runs are dropped synchronously |
//! | the runtime | all of its runs are dropped |
//!
//! The turn that streams is lost with a run that is dropped, and the readers of the run end with an error.
//! [`Command::Interrupt`] ends a run and keeps the part of the turn that has arrived.

mod command_inbox;
mod compact_events;
mod event_log;
mod event_number;
mod hub;
mod logs;
mod memory_inbox;
mod memory_log;
mod reader;
mod registry;
mod runner;
mod session_reader;
mod settings;
mod snapshot;
mod source;

pub use command_inbox::{Command, CommandInbox, SentCommand};
pub use event_log::{EventLog, LogContent, LogEntry, LogStats, NotRunning, StaleEpoch, TooSlow};
pub use event_number::{EventNumber, ParseEventNumberError};
pub use hub::{Hub, HubStats, Reservation, RunOwner};
pub use memory_inbox::MemoryInbox;
pub use memory_log::MemoryLog;
pub use reader::{HubEvent, Reader};
pub use registry::{AlreadyRunning, ShuttingDown};
pub use session_reader::SessionReader;
pub use settings::{SlowReaders, Unattended};
pub use snapshot::Snapshot;
pub use source::RunSource;
