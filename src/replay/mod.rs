//! Runs that are written down, and played again.
//!
//! A [`Recorder`] writes each run of an agent: its events, a fingerprint of every request, and what
//! the world outside answered where no event tells it. A [`Recording`] is one run, read.
//! [`Recording::replay`] runs the agent's own loop over it, with no network and no tool, and checks
//! every event and every request; [`Recording::at_step`] goes to a step of it and on from there.
//!
//! Both are [worlds](crate::world): the recorder's stands around the live one, and that of a replay answers
//! from the recording.

mod counts;
mod entry;
mod line;
mod moment;
mod playing;
mod print;
mod recorder;
mod recording;
mod rerun;
mod version1;
mod writing;

pub use moment::ReplayPoint;
pub use print::ReplayMismatch;
pub use recorder::{RecordedRun, Recorder};
pub use recording::Recording;
pub use rerun::ReplayRun;
