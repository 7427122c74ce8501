//! Records and replays runs, and the turns of a provider.
//!
//! A [`Recorder`] records each run of an agent: the run's events and requests, and any external
//! inputs that the events do not contain. A [`Recording`] is a run parsed from recorded lines.
//! [`Recording::replay`] runs the agent's own loop on the recording, without accessing the network
//! or running tools, and compares every event and request with the recording.
//! [`Recording::at_step`] selects a step from which a new run can continue.
//!
//! The recorder and the replay are both implemented as [worlds](crate::world). The recorder's world
//! wraps the live world, and the replay's world takes the results of effects from the recording.
//!
//! [`Record`] is a provider that records only turns, with the same lines, for any code that calls a
//! provider. [`Replay`] is a provider that replays recorded turns, while tools actually run:
//!
//! ```
//! use turnstream::Agent;
//! use turnstream::provider::Scripted;
//! use turnstream::replay::{Recorder, Replay};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnstream::Error> {
//! let path = std::env::temp_dir().join(format!("turnstream-both-{}.jsonl", std::process::id()));
//! let agent = Agent::new(Scripted::new(["Hello!"])).with_recorder(&Recorder::to_file(&path)?);
//! agent.run("Hi").outcome().await;
//!
//! // The turns of a recorded run, as a provider.
//! let replay = Replay::from_file(&path)?;
//! assert_eq!(Agent::new(replay).run("Hi").outcome().await.text, "Hello!");
//! # std::fs::remove_file(&path).unwrap();
//! # Ok(())
//! # }
//! ```

mod effect_counter;
mod line_sink;
mod masker;
mod pending_events;
mod record;
mod recorded_request;
mod recorded_turns;
mod recorder;
mod recording;
mod recording_entry;
mod recording_line;
mod replay;
mod replay_mismatch;
mod replay_point;
mod replay_run;
mod run_player;
mod run_recorder;

pub use record::Record;
pub use recorder::{RecordedRun, Recorder};
pub use recording::Recording;
pub use replay::Replay;
pub use replay_mismatch::ReplayMismatch;
pub use replay_point::ReplayPoint;
pub use replay_run::ReplayRun;
