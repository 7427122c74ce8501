//! Records and replays runs.
//!
//! A [`Recorder`] records each run of an agent: the run's events, a fingerprint of every request,
//! and any external inputs that the events do not contain. A [`Recording`] is a run parsed from
//! recorded lines. [`Recording::replay`] runs the agent's own loop on the recording, without
//! accessing the network or running tools, and compares every event and request with the recording.
//! [`Recording::at_step`] selects a step from which a new run can continue.
//!
//! The recorder and the replay are both implemented as [worlds](crate::world). The recorder's world
//! wraps the live world, and the replay's world takes the results of effects from the recording.

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

pub use fingerprint::ReplayMismatch;
pub use recorder::{RecordedRun, Recorder};
pub use recording::Recording;
pub use replay_point::ReplayPoint;
pub use replay_run::ReplayRun;
