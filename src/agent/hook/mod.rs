//! Hooks: your own code at fixed points in the agent's loop.
//!
//! Every hook point is a method of one trait, [`Hook`], and does nothing by default. Some methods
//! make decisions, and the run waits for these decisions; other methods only observe, and do not
//! delay the run. A hook that implements a single method can be a closure: [`before_tool`],
//! [`before_stop`] and the other functions in this module turn a closure into a hook for
//! [`Agent::with_hook`](crate::Agent::with_hook). The [label](crate::agent::StateFields::label) in
//! the state distinguishes agents that share a hook.

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
// The module `closures` has one function for each hook point.
pub use closures::*;
pub(in crate::agent) use combined_decision::CombinedDecision;
pub use hook::Hook;
pub(in crate::agent) use hooks::Hooks;
pub(in crate::agent) use observer::Observer;
pub use unwrap_json_string::unwrap_json_string;

#[cfg(test)]
mod tests;
