//! Hooks: code of your own at the joints of the agent's loop.
//!
//! Everything is a method of one trait, [`Hook`], and every method does nothing unless you write
//! it. Some methods decide, and the run waits for their answers; some observe, and hold up nothing.
//! For a single method a closure is enough: [`before_tool`], [`stop`] and the other functions here
//! make a hook of one, and [`Agent::with_hook`](crate::Agent::with_hook) takes it. The
//! [label](crate::agent::StateFields::label) in the state tells the agents apart that share a hook.

mod answer;
mod ask;
mod closures;
mod definition;
mod hooks;
mod list;
mod narrow;
mod observer;
mod permitted;
mod unwrap;

pub use answer::{CallDecision, HookFuture, IntoHookResult, StopDecision};
// A function for each hook point.
pub use closures::*;
pub use definition::Hook;
pub(in crate::agent) use hooks::Hooks;
pub(in crate::agent) use observer::Observer;
pub(in crate::agent) use permitted::CombinedDecision;
pub use unwrap::unwrap_json_string;

#[cfg(test)]
mod tests;
