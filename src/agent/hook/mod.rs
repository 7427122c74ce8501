//! Hooks: code of your own at the joints of the agent's loop.
//!
//! Everything is a method of one trait, [`Hook`], and every method does nothing unless you write
//! it. Some methods decide, and the run waits for their answers; some observe, and hold up nothing.
//! For a single method a closure is enough: [`before_tool`], [`before_stop`] and the other functions here
//! make a hook of one, and [`Agent::with_hook`](crate::Agent::with_hook) takes it. The
//! [label](crate::agent::StateFields::label) in the state tells the agents apart that share a hook.

mod closures;
mod combined_decision;
mod context_injector;
mod decisions;
mod hook;
mod hook_points;
mod hooks;
mod invoke;
mod observer;
mod unwrap_json_string;

pub use decisions::{CallDecision, HookFuture, IntoHookResult, StopDecision};
// A function for each hook point.
pub use closures::*;
pub(in crate::agent) use combined_decision::CombinedDecision;
pub use hook::Hook;
pub(in crate::agent) use hooks::Hooks;
pub(in crate::agent) use observer::Observer;
pub use unwrap_json_string::unwrap_json_string;

#[cfg(test)]
mod tests;
