//! The ready-made agent: a loop over a provider, a toolkit and a history.
//!
//! It stands on the public parts below it and nothing else. `decide` is a pure table of what a
//! turn leads to, `body` performs it; a copy of the body is a loop of your own.

mod body;
mod budget;
mod control;
mod decide;
pub mod hook;
mod input;
mod run;
mod state;
mod validate;

use std::fmt;
use std::sync::Arc;

pub use budget::{Budget, Nudging, Pool, Spent, Target, Tracker};
pub use control::{Receipt, RunHandle};
pub use decide::{Answered, Decision, Limits, after_tools, after_validation, decide};
pub use input::Input;
pub use run::Run;
pub use state::State;

use crate::agent::validate::Checks;
use crate::env::{Ids, SystemIds};
use crate::item::History;
use crate::provider::Provider;
use crate::request::{Options, Request, System};
use crate::tool::{Tool, Toolkit};

/// A model, its tools and the rules of its loop. Cheap to clone.
///
/// ```
/// use serde_json::json;
/// use turnstream::provider::{Reply, Scripted};
/// use turnstream::tool::{Tool, ToolSpec};
/// use turnstream::{Agent, event::Reason};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let model = Scripted::new([
///     Reply::new().call("roll", json!({})),
///     Reply::text("It is a six."),
/// ]);
/// let spec = ToolSpec {
///     name: "roll".into(),
///     description: "Rolls a die".into(),
///     parameters: json!({ "type": "object" }),
/// };
/// let roll = Tool::raw(spec, |_args, _cx| async { 6 })?;
///
/// let agent = Agent::new(model).with_tools([roll]);
/// let outcome = agent.run("Roll a die").outcome().await;
/// assert_eq!(outcome.reason, Reason::Completed);
/// assert_eq!(outcome.text, "It is a six.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent {
    provider: Arc<dyn Provider>,
    kit: Toolkit,
    system: System,
    limits: Limits,
    options: Options,
    ids: Arc<dyn Ids>,
    checks: Checks,
}

impl Agent {
    /// Makes an agent without tools that sends at most 20 requests a run.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self {
            provider: Arc::new(provider),
            kit: Toolkit::default(),
            system: System::default(),
            limits: Limits::default(),
            options: Options::default(),
            ids: Arc::new(SystemIds),
            checks: Checks::default(),
        }
    }

    /// Sets the tools, at most 4 of which run at once.
    pub fn with_tools(self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.with_kit(Toolkit::new(tools))
    }

    /// Sets the tools as a kit.
    pub fn with_kit(mut self, kit: Toolkit) -> Self {
        self.kit = kit;
        self
    }

    /// Sets the part of the system prompt that stays the same.
    pub fn with_system(mut self, stable: impl Into<String>) -> Self {
        self.system.stable = stable.into();
        self
    }

    /// Sets the part of the system prompt that may change from run to run.
    pub fn with_volatile_system(mut self, volatile: impl Into<String>) -> Self {
        self.system.volatile = volatile.into();
        self
    }

    /// Sets how many requests a run may send; 20 unless set. With 0 it sends none.
    pub fn with_max_turns(mut self, max_turns: u32) -> Self {
        self.limits.max_turns = max_turns;
        self
    }

    /// Sets how the model is asked: limits, sampling, reasoning, the form of the answer.
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Sets how many tokens an answer may have.
    pub fn with_max_output_tokens(mut self, tokens: u32) -> Self {
        self.options.max_output_tokens = Some(tokens);
        self
    }

    /// Sets the temperature; see [`Options::temperature`].
    pub fn with_temperature(mut self, temperature: f32) -> Self {
        self.options.temperature = Some(temperature);
        self
    }

    /// Sets where ids come from; random ones unless set.
    pub fn with_ids(mut self, ids: impl Ids + 'static) -> Self {
        self.ids = Arc::new(ids);
        self
    }

    /// Runs on a new history. Nothing happens before the first poll.
    pub fn run(&self, input: impl Into<Input>) -> Run {
        self.run_from(History::new(&*self.ids), input)
    }

    /// Runs on a history, which is [settled](History::settled) first.
    ///
    /// Two runs on clones of one history may give their calls the same ids, and so their tools the
    /// same idempotency keys: [fork](History::fork) it to tell them apart.
    pub fn run_from(&self, history: impl Into<History>, input: impl Into<Input>) -> Run {
        Run::new(self.clone(), history.into().settled(), input.into())
    }

    fn request(&self, history: &History) -> Request {
        Request {
            system: self.system.clone(),
            tools: self.kit.specs(),
            options: self.options.clone(),
            ..Request::new(history.clone())
        }
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("model", &self.provider.model())
            .field("kit", &self.kit)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
