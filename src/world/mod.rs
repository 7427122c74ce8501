//! The one seam between a run and the outside.
//!
//! A run that asks a model, calls tools, waits or looks at the clock does so through its [`World`]. The
//! world of an ordinary run is [`LiveWorld`]: it performs each effect. A recording stands around another world
//! and keeps what it answered; a replay answers from a recording and performs nothing; a durable engine
//! performs each effect once, keeps its value, and answers with the kept value when the run is made
//! again on another machine.
//!
//! # What goes through the seam
//!
//! | | method | what it is |
//! |---|---|---|
//! | effect | [`step`](World::step) | a future whose value can be kept: a hook, a compaction, a list of tools, a body's own step |
//! | | [`turn`](World::turn) | a request to the model, and its stream of events |
//! | | [`fan_out`](World::fan_out) | the tool calls of one turn |
//! | | [`suspend`](World::suspend) | a wait for verdicts from outside |
//! | drawn value | [`draw`](World::draw) | what is there without waiting: ids, what holders of the run want, which limits are reached, what observing hooks noted |
//! | notice | [`observe`](World::observe), [`on_end`](World::on_end) | an event that was given out; an end from outside |
//!
//! # The contract
//!
//! - **Keys.** Each effect has a [`EffectKey`]: the run, the iteration, the kind, a name, and a count. A run
//!   that is made again from the same history and input asks for the same keys in the same order, as long as
//!   each answer is the same.
//! - **Effects are lazy.** An effect does nothing before it is polled. A world that knows the value of a key
//!   drops the effect without a poll.
//! - **Which effects may run twice.** An effect that was begun and whose value was not kept is performed
//!   again by the next attempt. Tools can tell by their
//!   [idempotency key](crate::tool::ToolContext::idempotency_key), which is the same in each attempt.
//! - **What is deterministic between two effects.** The loop itself: it decides from its state and the values
//!   that it was answered, and from nothing else. A body of your own has to keep to that: what it reads
//!   besides is not kept. Put it into a step.
//! - **Drawn values** are never effects of their own. An engine keeps them with the next effect whose value it
//!   keeps; values that were drawn after that are drawn again.
//! - **One effect at a time.** The loop waits for an effect before it asks for the next. Several calls of a
//!   turn are one effect.
//! - **What may suspend.** Only `suspend`; every other effect ends by itself or is dropped.
//! - **Hooks that observe** are told of each attempt, also of a turn whose value was kept.
//! - **Values or events.** A durable world keeps the final value of a turn ([`SavedTurn`]) or of calls
//!   ([`SavedCalls`](crate::tool::SavedCalls)) and gives no deltas when it answers with it. A recording keeps the events as well, and
//!   its replay gives every delta.
//! - **Drop is cancel.** Dropping the run drops the effect that is performed.

mod effect_key;
mod effect_value;
mod effects;
mod live_world;
mod saved_turn;

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

pub use effect_key::{EffectKey, EffectKind};
pub use effect_value::EffectValue;
pub(crate) use effects::Effects;
pub use live_world::LiveWorld;
pub use saved_turn::SavedTurn;

use crate::error::Error;
use crate::event::{BudgetExceeded, Event};
use crate::item::PendingCall;
use crate::request::Request;
use crate::stream::TurnStream;
use crate::tool::{ToolRun, Verdict};

/// An effect whose value can be kept. It does nothing before it is polled.
pub type Effect = BoxFuture<'static, Result<EffectValue, Error>>;

/// What sends a request, when it is called with it, and gives the stream of its turn.
pub type SendRequest = Box<dyn FnOnce(Request) -> TurnStream + Send>;

/// Everything that one run asks of the outside; see the [module](self) for the contract.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::request::Request;
/// use turnstream::stream::TurnStream;
/// use turnstream::tool::ToolRun;
/// use turnstream::world::{SendRequest, Effect, EffectKey, LiveWorld, EffectValue, World};
///
/// /// Prints the key of each effect.
/// #[derive(Debug)]
/// struct Printing;
///
/// impl World for Printing {
///     fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
///         LiveWorld.draw(key, live)
///     }
///
///     fn step(&self, key: &EffectKey, effect: Effect) -> Effect {
///         println!("{key}");
///         LiveWorld.step(key, effect)
///     }
///
///     fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream {
///         println!("{key}");
///         LiveWorld.turn(key, request, ask)
///     }
///
///     fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun {
///         println!("{key}");
///         LiveWorld.fan_out(key, calls)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let agent = Agent::new(Scripted::new(["Hello!"])).with_world(|_, _| Printing);
/// assert_eq!(agent.run("Hi").outcome().await.text, "Hello!");
/// # }
/// ```
pub trait World: fmt::Debug + Send + Sync {
    /// A value that is there without waiting: `live` draws it. A world that knows what was drawn for the
    /// key in an earlier attempt gives that, and does not call `live`.
    ///
    /// [`EffectValue::empty`] stands for the value that says nothing: no id, no note, no limit.
    fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue;

    /// Performs an effect, or gives its value and drops it without a poll.
    ///
    /// [`EffectValue::empty`] stands for the value that says nothing: no change, no objection.
    fn step(&self, key: &EffectKey, effect: Effect) -> Effect;

    /// Sends a request by calling `ask` with it, or gives the turn that it had. The stream is
    /// [sealed](crate::stream::seal) for the request.
    ///
    /// `ask` makes no request itself; the first poll of its stream does. Retries of a provider and the
    /// deadlines of a request are inside its stream.
    fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream;

    /// Runs the calls of one turn, or gives [what they came to](ToolRun::with_saved_calls).
    ///
    /// No call has begun before the first poll. Hooks on calls and the sub-agents that run as calls are
    /// inside.
    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun;

    /// Whether [`suspend`](Self::suspend) waits for verdicts. Otherwise an interactive run waits for those
    /// of its holders, while its other calls run.
    fn can_suspend(&self) -> bool {
        false
    }

    /// Waits for a verdict on each of these calls, for at most `limit`. Calls that have no verdict then
    /// stay pending, and the run ends as such. Called only if the world [suspends](Self::can_suspend), for
    /// [interactive](crate::Agent::interactive) agents.
    fn suspend(
        &self,
        _key: &EffectKey,
        _calls: Vec<PendingCall>,
        _limit: Option<Duration>,
    ) -> BoxFuture<'static, Result<Vec<(PendingCall, Verdict)>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The run gives an event out.
    fn observe(&self, _event: &Event) {}

    /// Whether the loop has yet to take a value that is kept. Until it has, nothing ends it from outside, neither an
    /// interrupt nor the end of its time.
    fn has_untaken_value(&self) -> bool {
        false
    }

    /// How the loop of the run ends here from outside, if it does. It is asked before each poll of the loop.
    fn forced_end(&self) -> Option<LoopEnd> {
        None
    }

    /// The loop of the run was ended from outside.
    fn on_end(&self, _ending: &LoopEnd) {}

    /// The run is dropped.
    fn on_drop(&self) {}
}

/// How the loop of a run was ended from outside, or by its own error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoopEnd {
    /// Whether the loop was polled since the last event.
    pub polled_since_last_event: bool,
    /// The error; `None` if the run was interrupted or its time was over.
    pub error: Option<Error>,
    /// The end of a time; `None` for an interrupt and an error.
    pub time_limit_reached: Option<TimeLimitReached>,
}

/// What the end of the time of a run does to its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TimeLimitReached {
    /// Its last turn begins.
    WrapUp(BudgetExceeded),
    /// It ends.
    End(BudgetExceeded),
}
