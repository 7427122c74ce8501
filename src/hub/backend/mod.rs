//! Parts for logs and inboxes: a run's log in memory, and the JSON of what is sent to other
//! machines.
//!
//! An [`EventLog`](super::EventLog) on a server writes the content of its entries with
//! [`content_to_json`]. A [`RunLog`] is the process's copy of a log, which all readers in the
//! process share:
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures::StreamExt;
//! use turnstream::Error;
//! use turnstream::hub::backend::{RunLog, content_from_json, content_to_json};
//! use turnstream::hub::{EventNumber, LogContent, LogEntry};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! // The process that has the run writes its last entry.
//! let json = content_to_json(&LogContent::End(None))?;
//!
//! // A process that reads the run adds the entry to its copy.
//! let copy = Arc::new(RunLog::default());
//! let mut reader = copy.read("run-1", None);
//! let content = content_from_json(json.as_bytes()).expect("this crate wrote it");
//! copy.append_new(vec![LogEntry { number: EventNumber::new("run-1", 1, 0), content }], None);
//! assert!(matches!(reader.next().await.unwrap()?.content, LogContent::End(None)));
//! assert!(reader.next().await.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! A [`CommandInbox`](super::CommandInbox) on a server writes commands with [`command_to_json`],
//! and the answers of their runs with [`answer_to_json`]. The formats are stable: later versions of
//! the crate read what earlier versions wrote. An [`OwnedTask`](crate::task::OwnedTask) is a
//! background task that ends when it is dropped.

mod command_json;
mod content_json;
mod run_log;

pub use command_json::{answer_from_json, answer_to_json, command_from_json, command_to_json};
pub use content_json::{content_from_json, content_to_json};
pub use run_log::RunLog;
