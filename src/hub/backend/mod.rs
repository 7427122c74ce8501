//! A part for logs on a server: a run's log in memory.
//!
//! An [`EventLog`](super::EventLog) on a server writes the [content](super::LogContent) of its
//! entries as JSON. A [`RunLog`] is the process's copy of a log, which all readers in the process
//! share:
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures::StreamExt;
//! use turnstream::Error;
//! use turnstream::hub::backend::RunLog;
//! use turnstream::hub::{EventNumber, LogContent, LogEntry};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! // The process that has the run writes its last entry.
//! let json = serde_json::to_string(&LogContent::End(None)).expect("it has no keys but strings");
//!
//! // A process that reads the run adds the entry to its copy.
//! let copy = Arc::new(RunLog::default());
//! let mut reader = copy.read("run-1", None);
//! let content = serde_json::from_str(&json).expect("this crate wrote it");
//! copy.append_new(vec![LogEntry { number: EventNumber::new("run-1", 1, 0), content }], None);
//! assert!(matches!(reader.next().await.unwrap()?.content, LogContent::End(None)));
//! assert!(reader.next().await.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! A [`CommandInbox`](super::CommandInbox) on a server writes commands as
//! [`StoredCommand`](crate::durable::StoredCommand)s. Both formats are stable: later versions of
//! the crate read what earlier versions wrote. An [`OwnedTask`](crate::task::OwnedTask) is a
//! background task that ends when it is dropped.

mod command_json;
mod content_json;
mod run_log;

pub(crate) use command_json::{command_from_json, command_to_json};
pub use run_log::RunLog;
