//! What the body of the agent's loop works with.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent::budget::BudgetUsage;
use crate::agent::decide::is_incomplete_turn;
use crate::agent::run_shared::RunShared;
use crate::agent::{
    Decision, Facts, NextAction, RunHandle, State, compaction, deliver_input, external_facts,
    prompts, refresh_tools, run_tools, send_request, stop_review,
};
use crate::error::Error;
use crate::event::{EndReason, Event};
use crate::item::History;
use crate::provider::Provider;
use crate::request::Request;
use crate::stream::{Step, TurnStream};
use crate::tool::{RunData, ToolRun, Toolkit};
use crate::turn::{PartialTurn, Turn, TurnEvent};
use crate::usage::Usage;
use crate::world::EffectKind;

/// What the body of the agent's loop works with: the agent, and what the holders of its run want.
/// Cheap to clone.
///
/// Each method is one sentence of [`loop_body`](super::loop_body); a body of your own uses those it needs. What they ask
/// of the outside goes through the run's [world](crate::world), so that it can be recorded, replayed or kept by
/// a durable engine. [`step`](Self::step) does the same for what your body asks itself; whatever it does besides is
/// not replayed.
#[derive(Clone)]
pub struct RunContext(RunShared);

impl RunContext {
    pub(super) fn new(shared: RunShared) -> Self {
        Self(shared)
    }

    /// The tools of the agent, and those of its [sources](crate::Agent::with_tool_source) as they were listed
    /// last.
    pub fn toolkit(&self) -> Toolkit {
        self.0.toolkit().into_owned()
    }

    /// What the holders of the run hold.
    pub fn handle(&self) -> &RunHandle {
        &self.0.handle
    }

    /// Performs a step of a body of your own, whose value is kept where the run's [world](crate::world)
    /// keeps values: a replay of the run, or its next attempt, has the same value, and the step is not
    /// performed again. Whatever a body asks of the outside in another way is asked each time.
    ///
    /// Steps of one name are told apart by their order in the iteration. The future does nothing before it
    /// is polled. Dropping it drops the step.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::agent::{Agent, loop_body};
    /// use turnstream::provider::Scripted;
    /// use turnstream::{History, env::SystemIds};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Hello!"]));
    /// let run = agent.run_with_body(
    ///     |cx, state| {
    ///         async_stream::try_stream! {
    ///             let weather: String = cx.step("weather", async { Ok("rain".to_owned()) }).await?;
    ///             println!("There is {weather}.");
    ///             let mut lap = Box::pin(loop_body(cx, state));
    ///             while let Some(step) = lap.next().await {
    ///                 yield step?;
    ///             }
    ///         }
    ///     },
    ///     History::new(&SystemIds),
    ///     "Hi",
    /// );
    /// assert_eq!(run.outcome().await.text, "Hello!");
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What the step fails with; [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch) if a recording has no
    /// such step, and [`Store`](crate::ErrorKind::Store) if its value cannot be read.
    pub fn step<T, F>(
        &self,
        name: &str,
        step: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        self.0.effects.step(name, step)
    }

    /// What [`Run::with_data`](crate::Run::with_data) handed to the run.
    pub fn run_data(&self) -> RunData {
        self.0.control().run_data()
    }

    /// All that the events which the body has yielded so far tell. A snapshot: making it copies no item.
    pub fn history(&self) -> History {
        self.0.history()
    }

    /// Draws an id.
    pub fn new_id(&self) -> String {
        self.0.new_id()
    }

    /// What is known besides the state, and the state with the budget that is spent.
    pub fn gather_facts(&self, state: State) -> (State, Facts) {
        external_facts::gather_facts(&self.0, state)
    }

    /// What the run has used. What came on top since the last time is drawn from the pool.
    pub fn budget_usage(&self, state: &State) -> BudgetUsage {
        self.0.budget_usage(state)
    }

    /// Lists the tools of the agent's [sources](crate::Agent::with_tool_source), once in an iteration. If
    /// they have changed, the next [`deliver_next_input`](Self::deliver_next_input) says so. Without sources
    /// it does nothing.
    ///
    /// Call it before `deliver_next_input`, and before the calls of a run are resumed.
    /// [`next_request`](Self::next_request) calls it if the body has not, and the model then reads of a
    /// change one request later.
    ///
    /// # Errors
    ///
    /// If the first listing of a run fails, the error of the source, whose name is in the message;
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if two tools of first lists have one name.
    pub fn refresh_tools(&self, state: &State) -> impl Future<Output = Result<(), Error>> + Send {
        // Boxed, as in `next_request`, where there is something to list.
        let listing = refresh_tools::needs_listing(&self.0, state)
            .then(|| Box::pin(refresh_tools::refresh_tools(&self.0, state)));
        async move {
            match listing {
                Some(listing) => listing.await,
                None => Ok(()),
            }
        }
    }

    /// The next thing that is done to the history before a request: what hooks noted is said, what is to
    /// become [void](RunHandle::tombstone) does, what was steered is said, and a follow-up if it is its
    /// turn. Yield each event, and call it until it returns none: the state's history has all of them
    /// then.
    pub fn deliver_next_input(&self, state: State) -> (State, Option<Event>) {
        if self.0.control().has_unobserved_changes() {
            return (state, None);
        }
        let (state, event) = deliver_input::deliver_next_input(&self.0, state);
        (state, self.track_unobserved_change(event))
    }

    /// Makes the history shorter before a request: [old turns](crate::Agent::with_ageing), and then
    /// for a request that nears the [window](crate::Agent::with_window). Call it until it
    /// returns no event, which says that the request is to be sent.
    ///
    /// Once a request was too long, the compactor is asked until it is a quarter below the limit, so
    /// that not every request changes what stands in front of it. Hooks are told of a compaction
    /// that came to nothing; it is tried again when the request has grown by a twentieth of the window.
    pub fn compact_if_needed(
        &self,
        state: State,
    ) -> impl Future<Output = (State, Option<Event>)> + Send {
        // Boxed, as in `request`.
        Box::pin(async move {
            if self.0.control().has_unobserved_changes() {
                return (state, None);
            }
            let (state, event) = compaction::compact_if_needed(&self.0, state).await;
            (state, self.track_unobserved_change(event))
        })
    }

    /// Makes a history shorter that did not fit, which then [says so](crate::context::was_reactively_compacted). No
    /// event, or one that [replaces nothing](Event::is_rewrite), says that it cannot be; hooks are told
    /// why.
    pub fn compact(&self, state: State) -> impl Future<Output = (State, Option<Event>)> + Send {
        // Boxed, as in `request`.
        Box::pin(async move {
            if self.0.control().has_unobserved_changes() {
                return (state, None);
            }
            let (state, event) = compaction::compact(&self.0, state).await;
            (state, self.track_unobserved_change(event))
        })
    }

    /// The request of the state, as hooks want it, once the [pool](crate::agent::Pool) of the run has
    /// tokens and a slot for it. It counts as a model call.
    ///
    /// `None` says that it is not to be sent: the pool is spent, or something has come up while the
    /// run waited that is to be looked at first, such as words of a holder. It does not count then,
    /// and what comes next is looked for again, from [`gather_facts`](Self::gather_facts) on; the run keeps its place
    /// in the order. Dropping the future gives the place up.
    ///
    /// # Errors
    ///
    /// [`Hook`](crate::ErrorKind::Hook) if a hook fails, and
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if two tools have one name, money is limited and
    /// the model has no price, or an event of [`deliver_next_input`](Self::deliver_next_input), [`compact_if_needed`](Self::compact_if_needed) or
    /// [`compact`](Self::compact) has not come to the run: the body did not yield it, or is polled ahead.
    pub fn next_request(
        &self,
        state: State,
    ) -> impl Future<Output = Result<(State, Option<Box<Request>>), Error>> + Send {
        // Boxed, so that it takes no room in the body for all of the lap, nor on the stack of the runs
        // above a sub-agent.
        Box::pin(send_request::next_request(&self.0, state))
    }

    /// The run has to have the event before the history is looked at again.
    fn track_unobserved_change(&self, event: Option<Event>) -> Option<Event> {
        event.inspect(|event| self.0.control().track_unobserved_change(event))
    }

    /// The event that tells of a request.
    pub fn turn_started_event(&self, state: &State) -> Event {
        Event::TurnStarted {
            turn: state.counts.model_calls,
            model: state.model_selection.model.to_string(),
            transition: state.transition,
        }
    }

    /// Sends a request when the turn is polled, and begins to tell hooks of it.
    ///
    /// In a replay a turn fails with [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch) if its request is
    /// not that of the run that is played.
    pub fn send_request(&self, state: &State, request: Box<Request>) -> TurnStream {
        send_request::send_request(&self.0, state, *request)
    }

    /// Starts the hooks that observe a turn. The run polls them from then on, and nothing waits for them.
    /// [`deliver_next_input`](Self::deliver_next_input) delivers their notes once they have returned.
    pub fn notify_turn(&self, state: &State, turn: &Arc<Turn>) {
        let hooks = self.0.hooks();
        if !hooks.is_empty() {
            let (state, observers) = (Arc::new(state.clone()), self.0.control().observers());
            observers.start(hooks, hooks.assistant_message(&state, turn));
            observers.start(hooks, hooks.after_sampling(&state, turn));
        }
    }

    /// Tells hooks of a failure. Gives what takes the open turn back, if anything of it came.
    pub fn report_error(&self, state: &State, error: &Error) -> Option<Event> {
        let control = self.0.control();
        control.set_last_failure(error);
        self.0.finish_request();
        control.set_incomplete_turn(is_incomplete_turn(error));
        self.0.hooks().on_failure(state, error);
        let usage = PartialTurn::from_error(error).map_or_else(Usage::default, PartialTurn::usage);
        let why = prompts::retraction_reason(error);
        self.0.handle.journal.has_open_turn().then(|| TurnEvent::Retracted { why, usage }.into())
    }

    /// The answers of a turn's calls: what runs, or what they are answered with instead.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if nothing can be resumed: without a turn, it
    /// is the calls that were pending which run.
    pub fn run_tools(
        &self,
        state: &State,
        turn: Option<&Arc<Turn>>,
        decision: &Decision,
    ) -> Result<Box<ToolRun>, Error> {
        // Boxed, since a body has it in its own state, also while it waits for the model.
        run_tools::run_tools(&self.0, state, turn, decision).map(Box::new)
    }

    /// The calls that are pending, with the verdicts that the run's [world](crate::world) has waited for;
    /// `None` if none is pending, the agent is not interactive, the world does not
    /// [suspend](crate::world::World::can_suspend), or a verdict is missing.
    ///
    /// # Errors
    ///
    /// What the world fails with, and [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if a verdict is
    /// not one on a pending call.
    pub fn resume_pending_calls(
        &self,
        state: &State,
    ) -> impl Future<Output = Result<Option<Box<ToolRun>>, Error>> + Send {
        // Boxed, as in `request`.
        Box::pin(run_tools::resume_pending_calls(&self.0, state))
    }

    /// No verdict on these calls counts any more.
    pub fn stop_accepting_verdicts(&self) {
        self.0.control().stop_accepting_verdicts();
    }

    /// Asks all who may object when the model has stopped by itself.
    ///
    /// # Errors
    ///
    /// [`Hook`](crate::ErrorKind::Hook) if a stop hook or a validation fails.
    pub fn review_stop(
        &self,
        state: State,
        turn: &Arc<Turn>,
    ) -> impl Future<Output = Result<(State, NextAction), Error>> + Send {
        // Boxed, as in `request`.
        Box::pin(stop_review::review_stop(&self.0, state, turn))
    }

    /// The same, unless the model is to be asked again and a hook wants the run to stop here.
    ///
    /// # Errors
    ///
    /// [`Hook`](crate::ErrorKind::Hook) if one fails.
    pub fn check_should_stop(
        &self,
        state: &State,
        next: NextAction,
    ) -> impl Future<Output = Result<NextAction, Error>> + Send {
        // Boxed, as in `request`.
        Box::pin(async move {
            if !next.sends_request() {
                return Ok(next);
            }
            let (hooks, state) = (self.0.hooks().clone(), state.clone());
            let ask = async move { hooks.should_stop(&state).await };
            Ok(match self.0.effects.perform(EffectKind::ShouldStop, ask).await? {
                true => NextAction::Finish(EndReason::Stopped),
                false => next,
            })
        })
    }

    /// What comes of a decision: the events that tell it, and the step. Yield them in this order.
    pub fn apply_next_action(
        &self,
        state: State,
        next: NextAction,
    ) -> (Vec<Event>, Step<Event, State>) {
        state.update(|it| it.history = self.history()).apply_next_action(next, || self.new_id())
    }

    /// The provider that the state is at.
    pub fn provider(&self, state: &State) -> &dyn Provider {
        self.0.provider(state)
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("handle", &self.0.handle).finish_non_exhaustive()
    }
}
