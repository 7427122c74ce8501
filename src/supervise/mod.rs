//! Supervises many runs as one stream.
//!
//! A [`Supervisor`] is a stream of the events of all its runs, each with the run's key. It starts
//! failed runs again, reports runs that have become silent, and reports the end of each run. It
//! spawns no task: the runs advance only while the supervisor is polled, and dropping it drops all
//! of them.
//!
//! ```
//! use futures::StreamExt;
//! use turnstream::Agent;
//! use turnstream::provider::Scripted;
//! use turnstream::supervise::{SupervisedEnd, Supervised, Supervisor};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnstream::Error> {
//! let mut supervisor = Supervisor::new();
//! for name in ["Ada", "Grace"] {
//!     let agent = Agent::new(Scripted::new([format!("Hello, {name}!")]));
//!     supervisor.insert(name, move |_attempt| agent.run("Greet me"))?;
//! }
//! let mut texts = Vec::new();
//! while let Some((name, event)) = supervisor.next().await {
//!     match event {
//!         Supervised::Event(event) => {
//!             texts.extend(event.outcome().map(|outcome| outcome.text.clone()));
//!         }
//!         Supervised::Ended(end) => assert!(matches!(end, SupervisedEnd::Finished), "{name}: {end:?}"),
//!         _ => {}
//!     }
//! }
//! texts.sort();
//! assert_eq!(texts, ["Hello, Ada!", "Hello, Grace!"]);
//! # Ok(())
//! # }
//! ```
//!
//! The events of each run keep their order, and the supervisor polls runs that are ready in turn.
//! The order of events from different runs is not specified, and a replay does not reproduce it.

mod activity;
mod restart;
mod restarting_run;
mod silence_clock;
mod slot;
mod supervised;
mod supervised_stream;
mod supervisor;
mod supervisor_handle;

pub use restart::Restart;
pub use supervised::{Supervised, SupervisedEnd};
pub use supervised_stream::SupervisedStream;
pub use supervisor::{OnSilence, Supervisor};
pub use supervisor_handle::SupervisorHandle;
