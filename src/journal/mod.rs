//! The journal of a run: the history, usage and outcome that result from the run's events.

mod event_stream_ext;
mod finish_with;
mod journal;
mod journal_to;
mod open_call;
mod run_fold;

pub use event_stream_ext::EventStreamExt;
pub use finish_with::FinishWith;
pub use journal::Journal;
pub use journal_to::JournalTo;
pub(crate) use open_call::Interruption;
