//! The ready-made agent: a loop over a provider, a toolkit and a history.
//!
//! It stands on the public parts below it and nothing else. [`decide()`] and its sisters are pure
//! tables of what a turn leads to, [`body()`] performs them on a plain [`State`]; each policy is a
//! value with a file of its own. A copy of the body is a loop of your own: hand it to
//! [`Agent::run_by`].

mod admission;
mod body;
mod budget;
mod control;
mod deadline;
mod decide;
pub mod detect;
mod ending;
pub mod evidence;
mod gate;
mod handle;
pub mod hook;
mod input;
mod limits;
mod observers;
mod outside;
mod prepared;
mod repeats;
mod resume;
mod room;
mod run;
mod run_context;
mod settings;
mod state;
mod subagent;
mod tombstone_queue;
mod validate;
mod verdicts;
mod within;
mod words;
mod worlds;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use body::body;
pub use budget::{
    Budget, Nudging, Pool, Reservation, Reserve, Slot, Spent, Target, Tracker, WaitForSlot,
};
pub use decide::{AtStop, Decision, Facts, Next, after_tools, at_stop, decide, on_error};
pub use handle::{Receipt, RunHandle};
pub use input::Input;
pub use limits::Limits;
pub use repeats::Repeats;
pub use room::Room;
pub use run::Run;
pub use run_context::RunContext;
pub use state::State;
pub use verdicts::Verdicts;
pub use worlds::RunStart;

use futures::Stream;

use crate::agent::evidence::RequireEvidence;
use crate::agent::hook::Hooks;
use crate::agent::run::Begin;
use crate::agent::validate::Checks;
use crate::agent::worlds::OpenWorld;
use crate::context::{Ageing, Compactor, Shorten, Window};
use crate::env::{Ids, SystemIds, TimeLimit};
use crate::error::Error;
use crate::event::Event;
use crate::item::History;
use crate::provider::Provider;
use crate::request::{Options, Request, System};
use crate::story::Trace;
use crate::story::trace::BudgetsLeft;
use crate::stream::Step;
use crate::tool::Toolkit;

/// How long the compactor may take, unless set.
const COMPACTOR_TIMEOUT: Duration = Duration::from_mins(2);

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
    fallbacks: Vec<Arc<dyn Provider>>,
    kit: Toolkit,
    system: System,
    options: Options,
    limits: Limits,
    /// Whether somebody has set the cap.
    capped: bool,
    budget: Budget,
    checks: Checks,
    hooks: Hooks,
    /// What tells it apart from others; empty if it is a sub-agent that is called by its tool's name.
    label: Arc<str>,
    evidence: Option<RequireEvidence>,
    /// When thoughts and inputs of old turns are shortened, whatever room is left.
    ageing: Option<Ageing>,
    compactor: Option<Arc<dyn Compactor>>,
    compactor_timeout: TimeLimit,
    /// What is kept free of, where somebody has said how large it is.
    window: Option<Window>,
    /// Calls without a verdict are waited for.
    interactive: bool,
    /// Its tools are audited, also those that it is given later.
    audited: bool,
    ids: Arc<dyn Ids>,
    world: OpenWorld,
}

impl Agent {
    /// Makes an agent without tools that sends at most 20 requests a run.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self {
            provider: Arc::new(provider),
            fallbacks: Vec::new(),
            kit: Toolkit::default(),
            system: System::default(),
            options: Options::default(),
            limits: Limits::default(),
            capped: false,
            budget: Budget::new(),
            checks: Checks::default(),
            hooks: Hooks::new(),
            label: Arc::default(),
            evidence: None,
            ageing: None,
            compactor: Some(Arc::new(Shorten::new())),
            compactor_timeout: TimeLimit::Default(COMPACTOR_TIMEOUT),
            window: None,
            interactive: false,
            audited: false,
            ids: Arc::new(SystemIds),
            world: worlds::live(),
        }
    }

    /// Runs on a new history. Nothing happens before the first poll.
    pub fn run(&self, input: impl Into<Input>) -> Run {
        self.run_from(History::new(&*self.ids), input)
    }

    /// Runs on a history, which is [settled](History::settled) first. With
    /// [`Input::default()`] nothing is said to begin with.
    ///
    /// Two runs on clones of one history may give their calls the same ids, and so their tools the
    /// same idempotency keys: [fork](History::fork) it to tell them apart.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Hello!", "See you."]));
    /// let first = agent.run("Hi").outcome().await;
    /// let second = agent.run_from(first.history, "Bye").outcome().await;
    /// assert_eq!(second.text, "See you.");
    /// assert_eq!((second.new_items().len(), second.history.len()), (2, 4));
    /// # }
    /// ```
    pub fn run_from(&self, history: impl Into<History>, input: impl Into<Input>) -> Run {
        self.run_by(body, history, input)
    }

    /// Runs on a history with a body of your own in the place of [`body()`]. All else stays: the
    /// journal, the holders' handle, the one ending.
    ///
    /// What a copy of [`body()`] needs besides this crate is `async-stream` and `futures`.
    ///
    /// A body that gives `Stop`, or no step at all, ends the run as `stopped`; `StopWith` ends it as
    /// the state's `ending` has it. A `Finished` that a body gives, such as that of another run, is
    /// left out: the run has its own.
    ///
    /// ```
    /// use turnstream::agent::{Agent, body};
    /// use turnstream::provider::Scripted;
    /// use turnstream::{History, env::SystemIds};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Hello!"]));
    /// let mut laps = 0;
    /// let run = agent.run_by(
    ///     move |cx, state| {
    ///         laps += 1;
    ///         println!("lap {laps} begins with {} items", state.history.len());
    ///         body(cx, state)
    ///     },
    ///     History::new(&SystemIds),
    ///     "Hi",
    /// );
    /// assert_eq!(run.outcome().await.text, "Hello!");
    /// # }
    /// ```
    pub fn run_by<B, St>(
        &self,
        body: B,
        history: impl Into<History>,
        input: impl Into<Input>,
    ) -> Run
    where
        B: FnMut(RunContext, State) -> St + Send + 'static,
        St: Stream<Item = Result<Step<Event, State>, Error>> + Send + 'static,
    {
        let history = history.into().settled();
        Run::new(self.clone(), Begin { history, input: input.into(), resuming: None }, body)
    }

    /// An empty trace that knows what a run of this agent may spend: requests, and the limits of its
    /// [`Budget`], but for a pool. Put it on a run with [`traced`](crate::Events::traced).
    pub fn trace(&self) -> Trace {
        let trace = Trace::with_budgets(BudgetsLeft {
            steps_remaining: Some(u64::from(self.limits.max_turns)),
            ..self.budget.left(&Spent::default())
        });
        trace.with_prices(self.budget.prices().cloned().unwrap_or_default())
    }

    /// The tools.
    pub fn kit(&self) -> &Toolkit {
        &self.kit
    }

    pub(crate) fn request(&self, history: &History) -> Request {
        let mut request = Request {
            system: self.system(),
            tools: self.kit.specs(),
            options: self.options.clone(),
            max_turn_bytes: Some(self.limits.max_turn_bytes),
            ..Request::new(history.clone())
        };
        if self.kit.is_single_action() {
            request.options.parallel_tool_calls = Some(false);
        }
        request
    }

    fn system(&self) -> System {
        let mut system = self.system.clone();
        if let Some(policy) = &self.evidence {
            let apart = if system.stable.is_empty() { "" } else { "\n\n" };
            if !policy.instructions().is_empty() {
                system.stable.push_str(apart);
                system.stable.push_str(policy.instructions());
            }
        }
        system
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
