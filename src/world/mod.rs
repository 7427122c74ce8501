//! The interface between a run and its environment.
//!
//! A run calls the model and the tools, waits, and reads the clock through its [`World`]. An
//! ordinary run uses [`LiveWorld`], which performs each effect. A recording wraps another world and
//! stores the values that this world returns. A replay returns the values from a recording and does
//! not perform any effects. A durable engine performs each effect once and stores its value. When
//! the run is repeated on another machine, the engine returns the stored value.
//!
//! # The methods
//!
//! | | method | purpose |
//! |---|---|---|
//! | effect | [`step`](World::step) | a future whose value is stored, such as a hook or a compaction |
//! | | [`turn`](World::turn) | a request to the model, and its stream of events |
//! | | [`fan_out`](World::fan_out) | the tool calls of one turn |
//! | | [`suspend`](World::suspend) | a wait for verdicts from outside |
//! | recorded value | [`draw`](World::draw) | a value available without waiting, such as an id or a reached limit |
//! | control | [`loop_control`](World::loop_control) | whether the loop may, must not or must end now |
//! | notice | [`observe`](World::observe), [`on_end`](World::on_end) | a yielded event; an early end of the loop |
//! | telemetry | [`is_repeating`](World::is_repeating), [`first_trace_context`](World::first_trace_context), [`record_trace_context`](World::record_trace_context) | whether an event is new; the span with which the run began |
//!
//! # The contract
//!
//! - **Keys.** Each effect is identified by an [`EffectKey`], which consists of the run, the
//!   iteration, the kind, a name and a count. If a run is repeated with the same history and input,
//!   it requests the same keys in the same order, provided that it receives the same values.
//! - **Effects are lazy.** An effect does nothing until it is polled. If a world has a stored value
//!   for a key, it drops the effect without polling it.
//! - **Effects that may run twice.** If an effect was started but its value was not stored, the
//!   next attempt performs the effect again. Tools can detect a repeated call by checking the
//!   [idempotency key](crate::tool::ToolContext::idempotency_key), which is the same in every
//!   attempt.
//! - **The loop is deterministic between effects.** The loop's decisions depend only on its state
//!   and on the values of its effects. A custom loop body must follow the same rule. If the body
//!   needs a value that no other effect provides, it must read the value in a step, because values
//!   that are read outside a step are not stored.
//! - **Recorded nondeterministic values** are returned by [`draw`](World::draw) and are never
//!   separate effects. An engine stores these values together with the next effect whose value it
//!   stores. Values drawn after the last stored effect are drawn again in the next attempt.
//! - **One effect at a time.** The loop waits for an effect to complete before it requests the next
//!   one. All of the tool calls in a turn form a single effect.
//! - **Suspension.** Only `suspend` may suspend the run. Every other effect ends on its own or is
//!   dropped.
//! - **Observing hooks** run in every attempt, even for a turn that was loaded from storage.
//! - **Values and events.** A durable world stores only the final value of a turn ([`SavedTurn`])
//!   or of its tool calls ([`SavedCalls`](crate::tool::SavedCalls)), and does not yield deltas when
//!   it returns a stored value. A recording also stores the events, so that its replay yields every
//!   delta.
//! - **Cancellation by drop.** Dropping the run also drops the active effect.

mod effect_key;
mod effect_value;
mod effects;
mod live_world;
mod rebuild_turn;
mod replayed_turn;
mod saved_turn;

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

pub use effect_key::{EffectKey, EffectKind};
pub use effect_value::EffectValue;
pub(crate) use effects::Effects;
pub use live_world::LiveWorld;
pub(crate) use replayed_turn::{
    ReplayedEvent, ReplayedTurn, TurnEnding, is_vetoed_event, replay_event,
};
pub use saved_turn::SavedTurn;

use crate::error::Error;
use crate::event::{BudgetExceeded, Event};
use crate::item::PendingCall;
use crate::propagation::TraceContext;
use crate::request::Request;
use crate::stream::TurnStream;
use crate::tool::{ToolRun, Verdict};

/// An effect, in the form of a future whose value can be stored. The future does nothing until it
/// is polled.
pub type Effect = BoxFuture<'static, Result<EffectValue, Error>>;

/// A function that sends the given request and returns the stream for the resulting turn.
pub type SendRequest = Box<dyn FnOnce(Request) -> TurnStream + Send>;

/// The environment of a run; see the [module documentation](self) for the contract.
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
    /// Returns whether the world only performs effects and stores none of their values. If it
    /// does, values are obtained without a key and without [`draw`](Self::draw). The default is
    /// `false`.
    fn is_live(&self) -> bool {
        false
    }

    /// Obtains a nondeterministic value without waiting, by calling `live`. If the world stored a
    /// value for this key in an earlier attempt, it returns the stored value instead and does not
    /// call `live`.
    ///
    /// [`EffectValue::empty`] represents the default value, such as no id, no note or no limit.
    fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue;

    /// Performs an effect. If the world has a stored value for this key, it returns the stored
    /// value instead and drops the effect without polling it.
    ///
    /// Dropping the returned effect must drop `effect`, so that nothing of it runs after the run
    /// has been dropped.
    ///
    /// [`EffectValue::empty`] represents the default value, such as no change or no objection.
    fn step(&self, key: &EffectKey, effect: Effect) -> Effect;

    /// Sends a request by passing it to `ask`, or returns the stored turn. The returned stream is
    /// [sealed](crate::stream::seal) for the request.
    ///
    /// Calling `ask` does not yet send anything: the request is sent when the returned stream is
    /// first polled. This stream also handles retries by the provider and the request's deadlines.
    /// Dropping it must drop the stream from `ask`, which cancels the request.
    fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream;

    /// Runs a turn's tool calls, or returns [their stored results](ToolRun::with_saved_calls).
    ///
    /// A world that must wait before it knows whether the calls run, or that stores which calls
    /// have started, adds a [journal](ToolRun::with_journal).
    ///
    /// No calls start before the first poll. The returned stream also executes the calls' hooks and
    /// sub-agents. Dropping it drops every running tool.
    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun;

    /// Returns whether [`suspend`](Self::suspend) waits for verdicts. If this method returns
    /// `false`, an interactive run continues to execute its other calls while it waits for verdicts
    /// to be sent through its handle.
    fn can_suspend(&self) -> bool {
        false
    }

    /// Waits for a verdict on each of the given calls, for at most `limit`. If any call has no
    /// verdict after that time, it stays pending, and the run ends with the reason `pending`. This
    /// method is called only for [interactive](crate::Agent::interactive) agents, and only if
    /// [`can_suspend`](Self::can_suspend) returns `true`.
    ///
    /// Dropping the returned future ends the wait, and the calls stay pending.
    ///
    /// # Errors
    ///
    /// Returns an error if the world cannot provide the verdicts, such as a
    /// [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch) error if the value stored for this key
    /// is not the result of a suspension. The error ends the run. The default implementation never
    /// fails.
    fn suspend(
        &self,
        _key: &EffectKey,
        _calls: Vec<PendingCall>,
        _limit: Option<Duration>,
    ) -> BoxFuture<'static, Result<Vec<(PendingCall, Verdict)>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Observes an event. This method is called for each event that the run yields, before the
    /// consumer receives it, and must not block.
    fn observe(&self, _event: &Event) {}

    /// Returns whether the loop may end early now. This method is called before each poll of the
    /// loop.
    ///
    /// A world that stored an early end of the loop repeats the end here and not through an effect,
    /// because the loop may have ended between two effects.
    fn loop_control(&self) -> LoopControl {
        LoopControl::MayEnd
    }

    /// Observes the end of the loop. This method is called if the loop was ended from outside or
    /// failed with an error.
    fn on_end(&self, _ending: &LoopEnd) {}

    /// Returns whether the event that the run yields next, or that was just observed, repeats a
    /// step that an earlier attempt has recorded.
    fn is_repeating(&self) -> bool {
        false
    }

    /// Returns the trace context that an earlier attempt has
    /// [recorded](Self::record_trace_context).
    fn first_trace_context(&self) -> Option<TraceContext> {
        None
    }

    /// Records the trace context of the span with which the run began, unless one is recorded.
    fn record_trace_context(&self, _context: &TraceContext) {}

    /// Called when the run is dropped, after its request and its tools have been dropped. A
    /// recording is then written to its end.
    fn on_drop(&self) {}
}

/// Specifies whether a run's loop may end early, and how.
#[derive(Clone, Debug)]
pub enum LoopControl {
    /// An interrupt or a time limit ends the loop.
    MayEnd,
    /// Neither an interrupt nor a time limit ends the loop, because the world has a stored value
    /// that the loop has not requested yet.
    MustContinue,
    /// The loop ends now, as it ended in an earlier attempt.
    MustEnd(LoopEnd),
}

/// Describes how a run's loop ended if it was ended from outside or failed with an error.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LoopEnd {
    /// Whether the loop has been polled since it yielded its last event.
    pub polled_since_last_event: bool,
    /// The error with which the loop failed, or `None` if the run was interrupted or reached its
    /// time limit.
    pub error: Option<Error>,
    /// The consequence of reaching the time limit, or `None` if the loop was ended by an interrupt
    /// or an error.
    pub time_limit_reached: Option<TimeLimitReached>,
    /// The reason for the interrupt that ended the loop, if one was given.
    pub interrupt_reason: Option<String>,
}

/// Specifies how a run proceeds after it has reached its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TimeLimitReached {
    /// The run starts its last turn, because this budget was exceeded.
    WrapUp(BudgetExceeded),
    /// The run ends, because this budget was exceeded.
    End(BudgetExceeded),
}
