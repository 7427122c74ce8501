//! Records and replays runs.
//!
//! A [`Recorder`] records each run of an agent: the run's events, a fingerprint of every request,
//! and those external inputs that no event contains. A [`Recording`] is a run that was parsed from
//! recorded lines. [`Recording::replay`] runs the agent's own loop on the recording, without
//! network access or tools, and checks every event and every request. [`Recording::at_step`]
//! selects a step from which a new run can continue.
//!
//! Recorder and replay are implemented as [worlds](crate::world). The recorder's world wraps the
//! live world, and the replay's world answers from the recording.

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
