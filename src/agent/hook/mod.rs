//! Hooks: your own code at fixed points in the agent's loop.
//!
//! Every hook point is a method of one trait, [`Hook`], and does nothing by default. Some methods
//! make decisions, and the run waits for these decisions; other methods only observe, and do not
//! delay the run. A hook that implements a single method can be a closure: [`before_tool`],
//! [`before_stop`] and the other functions in this module turn a closure into a hook for
//! [`Agent::with_hook`](crate::Agent::with_hook). The [label](crate::agent::StateFields::label) in
//! the state distinguishes agents that share a hook.
//!
//! These hooks mask a secret in the results, progress reports and evidence of tools. They keep only
//! the text of a result, without images:
//!
//! ```
//! use turnstream::agent::hook;
//! use turnstream::item::RawJson;
//! use turnstream::provider::Provider;
//! use turnstream::Agent;
//!
//! fn mask(data: &mut RawJson) {
//!     if let Ok(masked) = RawJson::parse(&data.as_str().replace("hunter2", "***")) {
//!         *data = masked;
//!     }
//! }
//!
//! fn discreet(model: impl Provider + 'static) -> Agent {
//!     Agent::new(model)
//!         .with_hook(hook::after_tool(|_state, _call, result| {
//!             result.content = result.content.text().replace("hunter2", "***").into();
//!         }))
//!         .with_hook(hook::redact_progress(|_state, _call, data| mask(data)))
//!         .with_hook(hook::redact_evidence(|_state, _call, evidence| mask(evidence)))
//! }
//! # drop(discreet(turnstream::provider::Scripted::new(["Hi"])));
//! ```

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
