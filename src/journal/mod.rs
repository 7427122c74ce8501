//! The journal of a run: the history, usage and outcome that result from the run's events.
//!
//! A [`Journal`] applies one event at a time and performs no I/O, so it is up to date after every
//! event. An agent's run has its own journal, which [`RunHandle`](crate::RunHandle) reads. In a
//! hand-written loop, [`EventStreamExt::journal_to`] applies the loop's events to a journal, and
//! [`EventStreamExt::finish_with`] ends the loop as an agent ends a run. See the
//! [guide](crate::guide::own_loop).

mod dropped_calls;
mod event_stream_ext;
mod finish_with;
mod journal;
mod journal_to;
mod open_call;
mod run_fold;

pub(crate) use dropped_calls::DroppedCalls;
pub use event_stream_ext::EventStreamExt;
pub use journal::Journal;
pub(crate) use open_call::Interruption;
pub(crate) use run_fold::RunEnd;
