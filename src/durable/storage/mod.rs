//! The data that an engine stores for each session, in addition to the steps of its runs.
//!
//! These types are for authors of an [`Engine`](crate::durable::Engine), such as the one in the
//! package `turnstream-restate`. They decide nothing about where the data is stored: an engine
//! keeps them as values of a key-value store, of a virtual object or of a row.
//!
//! | type | content |
//! |---|---|
//! | [`SessionSegments`] | the entries, in small values |
//! | [`SessionStatus`] | the number of entries, the state after the last run, the active run and the calls it awaits |
//! | [`CommandQueue`] | the commands that wait for a run, and the waiters for commands |
//! | [`GivenVerdicts`] | the verdicts given so far on pending calls |
//!
//! [`copy_session`] copies a session to a [`Store`](crate::session::Store), so that sessions can be
//! listed and searched.
//!
//! In the following example, a map stands for the state of one session in a key-value store:
//!
//! ```
//! use std::collections::BTreeMap;
//! use turnstream::durable::storage::{SessionSegments, SessionStatus};
//! use turnstream::session::Entry;
//! use turnstream::{Error, Item};
//!
//! #[derive(Default)]
//! struct StoredSession(BTreeMap<String, String>);
//!
//! impl StoredSession {
//!     fn read(&self) -> Result<(SessionSegments, Vec<Entry>), Error> {
//!         let head = self.0.get(SessionSegments::head_key());
//!         let mut segments = SessionSegments::open(head.map(String::as_str))?;
//!         let values = segments.keys().into_iter().map(|key| self.0[&key].clone());
//!         let entries = segments.read(values)?;
//!         Ok((segments, entries))
//!     }
//!
//!     /// Called by the engine's `append` during a run.
//!     fn append(&mut self, entries: &[Entry], is_end_of_run: bool) -> Result<(), Error> {
//!         let (mut segments, _) = self.read()?;
//!         let mut writes = segments.append(entries)?;
//!         if is_end_of_run {
//!             writes.extend(segments.merge()?);
//!         }
//!         for write in writes {
//!             match write.value {
//!                 Some(value) => drop(self.0.insert(write.key, value)),
//!                 None => drop(self.0.remove(&write.key)),
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Error> {
//! let mut session = StoredSession::default();
//! session.append(&[Entry::from(Item::user("Hi"))], false)?;
//! session.append(&[Entry::from(Item::user("Are you there?"))], true)?;
//! let (_, entries) = session.read()?;
//! assert_eq!(SessionStatus::from_entries(entries, None).version, 2);
//! # Ok(())
//! # }
//! ```

mod command_queue;
mod copy_session;
mod given_verdicts;
mod session_segments;
mod session_status;

pub use command_queue::{CommandQueue, CommandWaiter, WaitAnswer};
pub(in crate::durable) use command_queue::{ends_run, json_bytes};
pub use copy_session::copy_session;
pub use given_verdicts::{AddedVerdict, GivenVerdicts};
pub use session_segments::{SegmentWrite, SessionSegments};
pub use session_status::SessionStatus;
