//! The interface between a run and its environment.
//!
//! A run calls the model and the tools, waits, and reads the clock through its [`World`]. The world of an ordinary run
//! is [`LiveWorld`], which performs each effect. A recording wraps another world and stores the answers of that world.
//! A replay answers from a recording and performs no effect. A durable engine performs each effect once and stores its
//! value. When the run is repeated on another machine, the engine answers with the stored value.
//!
//! # The methods
//!
//! | | method | purpose |
//! |---|---|---|
//! | effect | [`step`](World::step) | a future with a value to store, such as a hook or a compaction |
//! | | [`turn`](World::turn) | a request to the model, and its stream of events |
//! | | [`fan_out`](World::fan_out) | the tool calls of one turn |
//! | | [`suspend`](World::suspend) | a wait for verdicts from outside |
//! | drawn value | [`draw`](World::draw) | a value that needs no waiting, such as an id or a reached limit |
//! | notice | [`observe`](World::observe), [`on_end`](World::on_end) | a yielded event; a forced end of the loop |
//!
//! # The contract
//!
//! - **Keys.** Each effect has an [`EffectKey`]: the run, the iteration, the kind, a name, and a count. A run that is
//!   repeated from the same history and input requests the same keys in the same order, as long as it gets the same
//!   answers.
//! - **Effects are lazy.** An effect does nothing before it is polled. A world that has stored the value of a key drops
//!   the effect without polling it.
//! - **Effects that may run twice.** If an effect was started and its value was not stored, the next attempt performs
//!   the effect again. Tools can detect such a repetition by their [idempotency
//!   key](crate::tool::ToolContext::idempotency_key), which is the same in each attempt.
//! - **The loop is deterministic between effects.** The loop decides only from its state and from the values of its
//!   effects. Your own loop body must follow the same rule, because any other value that the body reads is not stored.
//!   Read such a value in a step instead.
//! - **Drawn values** are never separate effects. An engine stores drawn values with the next effect whose value it
//!   stores. Values that were drawn after the last stored effect are drawn again.
//! - **One effect at a time.** The loop waits for an effect before it requests the next effect. All calls of a turn
//!   together are one effect.
//! - **Suspension.** Only `suspend` may suspend the run; every other effect ends on its own or is dropped.
//! - **Observing hooks** run in each attempt, even for a turn whose value was stored.
//! - **Values and events.** A durable world stores only the final value of a turn ([`SavedTurn`]) or of calls
//!   ([`SavedCalls`](crate::tool::SavedCalls)), and yields no deltas when it answers with the stored value. A recording
//!   stores the events as well, and its replay yields every delta.
//! - **Cancellation by drop.** Dropping the run drops the active effect.

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

/// An effect whose value can be stored. The future does nothing before it is polled.
pub type Effect = BoxFuture<'static, Result<EffectValue, Error>>;

/// A function that sends the given request, and returns the stream of the request's turn.
pub type SendRequest = Box<dyn FnOnce(Request) -> TurnStream + Send>;

/// The environment of a run; see the [module](self) for the contract.
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
    /// Returns a value that is available without waiting, by calling `live`. A world that stored the value of this key
    /// in an earlier attempt returns the stored value instead, and does not call `live`.
    ///
    /// [`EffectValue::empty`] stands for the default of the value, such as no id, no note or no limit.
    fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue;

    /// Performs an effect, or drops the effect without a poll and returns its stored value.
    ///
    /// [`EffectValue::empty`] stands for the default of the value, such as no change or no objection.
    fn step(&self, key: &EffectKey, effect: Effect) -> Effect;

    /// Sends a request by calling `ask` with the request, or returns the stored turn. The stream is
    /// [sealed](crate::stream::seal) for the request.
    ///
    /// Calling `ask` sends nothing; the first poll of the returned stream sends the request. The stream includes the
    /// retries of a provider and the deadlines of a request.
    fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream;

    /// Runs the calls of one turn, or returns [their stored results](ToolRun::with_saved_calls).
    ///
    /// No call starts before the first poll. The stream includes the hooks on calls and the sub-agents that run as
    /// calls.
    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun;

    /// Returns whether [`suspend`](Self::suspend) waits for verdicts. If the result is `false`, an interactive run
    /// waits for verdicts that are sent through its handle, while its other calls run.
    fn can_suspend(&self) -> bool {
        false
    }

    /// Waits for a verdict on each of these calls, for at most `limit`. Calls without a verdict after that time stay
    /// pending, and the run ends as `pending`. This method is called only if [`can_suspend`](Self::can_suspend) returns
    /// `true`, for [interactive](crate::Agent::interactive) agents.
    fn suspend(
        &self,
        _key: &EffectKey,
        _calls: Vec<PendingCall>,
        _limit: Option<Duration>,
    ) -> BoxFuture<'static, Result<Vec<(PendingCall, Verdict)>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Observes an event. A run calls this method for each event that it yields.
    fn observe(&self, _event: &Event) {}

    /// Returns whether a stored value exists that the loop has not taken yet. As long as such a value exists, neither
    /// an interrupt nor a time limit ends the loop.
    fn has_untaken_value(&self) -> bool {
        false
    }

    /// Returns how the loop must end now; `None` if the loop may continue. A run calls this method before each poll of
    /// the loop.
    fn forced_end(&self) -> Option<LoopEnd> {
        None
    }

    /// Observes the end of the loop. A run calls this method when its loop was ended from outside, or by its own error.
    fn on_end(&self, _ending: &LoopEnd) {}

    /// Observes that the run is dropped.
    fn on_drop(&self) {}
}

/// The way in which the loop of a run was ended from outside, or by its own error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoopEnd {
    /// Whether the loop was polled since the last event.
    pub polled_since_last_event: bool,
    /// The error of the loop; `None` if the run was interrupted or reached its time limit.
    pub error: Option<Error>,
    /// The effect of the time limit; `None` if the loop was ended by an interrupt or an error.
    pub time_limit_reached: Option<TimeLimitReached>,
}

/// The effect of a run's time limit on its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TimeLimitReached {
    /// The run starts its last turn, because this budget was exceeded.
    WrapUp(BudgetExceeded),
    /// The run ends, because this budget was exceeded.
    End(BudgetExceeded),
}
