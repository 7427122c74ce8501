//! Runs that are written down, and played again.
//!
//! A [`Recorder`] writes each run of an agent: its events, a fingerprint of every request, and what
//! the world outside answered where no event tells it. A [`Recording`] is one run, read.
//! [`Recording::replay`] runs the agent's own loop over it, with no network and no tool, and checks
//! every event and every request; [`Recording::at_step`] goes to a step of it and on from there.
//!
//! Both are [worlds](crate::world): the recorder's stands around the live one, and that of a replay answers
//! from the recording.

mod effect_counter;
mod fingerprint;
mod recorder;
mod recording;
mod recording_entry;
mod recording_line;
mod replay_point;
mod replay_run;
mod run_player;
mod run_recorder;
mod version1;

pub use fingerprint::ReplayMismatch;
pub use recorder::{RecordedRun, Recorder};
pub use recording::Recording;
pub use replay_point::ReplayPoint;
pub use replay_run::ReplayRun;
