//! Defines the context that a loop body uses to act on its run.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent::decide::is_incomplete_turn;
use crate::agent::phase::{
    compaction, deliver_input, external_facts, list_tools, review_stop, run_tools, send_request,
};
use crate::agent::run::run_shared::RunShared;
use crate::agent::{Decision, Facts, NextAction, RunHandle, State, prompts};
use crate::error::Error;
use crate::event::{EndReason, Event};
use crate::item::History;
use crate::propagation::TraceContexts;
use crate::provider::Provider;
use crate::request::Request;
use crate::stream::{Step, TurnStream};
use crate::tool::{RunData, ToolRun, Toolkit};
use crate::turn::{PartialTurn, Turn, TurnEvent};
use crate::usage::Usage;
use crate::world::EffectKind;

/// Gives a loop body access to the agent and the run's handle. `RunContext` is cheap to clone.
///
/// Each method carries out one step of [`loop_body`](crate::agent::loop_body). A custom body calls
/// only the methods that it needs. The methods perform their external effects through the run's
/// [world](crate::world), so that the effects can be recorded, replayed or stored by a durable
/// engine. A custom body's own effects are recorded and replayed only if the body performs them
/// with [`step`](Self::step).
///
/// Dropping a future that a method returns cancels the work that it performs: a listing, a
/// compaction, a hook or a wait. The state and the history stay as they were before the call.
#[derive(Clone)]
pub struct RunContext(RunShared);

impl RunContext {
    pub(in crate::agent) fn new(shared: RunShared) -> Self {
        Self(shared)
    }

    /// Returns a toolkit that contains the agent's own tools and the tools that its
    /// [sources](crate::Agent::with_tool_source) returned in the last listing.
    pub fn toolkit(&self) -> Toolkit {
        self.0.toolkit().into_owned()
    }

    /// Returns the run's handle.
    pub fn handle(&self) -> &RunHandle {
        &self.0.handle
    }

    /// Performs an effect for a custom body. The run's [world](crate::world) may store the
    /// resulting value. If the value is stored, a replay or the next attempt at the run gets the
    /// stored value without performing the effect again. Effects that a body performs without this
    /// method are performed again in each replay and each attempt.
    ///
    /// Within an iteration, steps with the same name are distinguished by their order. The returned
    /// future does nothing until it is polled. Dropping the returned future drops the `step`
    /// future.
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
    ///             let mut iteration = Box::pin(loop_body(cx, state));
    ///             while let Some(step) = iteration.next().await {
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
    /// Returns any error from the `step` future, a
    /// [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch) error if a recording contains no step
    /// with this name, or a [`Store`](crate::ErrorKind::Store) error if the stored value cannot be
    /// decoded.
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

    /// Returns the data that [`Run::with_data`](crate::Run::with_data) added to the run, with which
    /// a body can reach values of the program, such as a connection.
    pub fn run_data(&self) -> RunData {
        self.0.control().tools.data()
    }

    /// Returns a snapshot of the history that includes all events that the body has yielded so far.
    /// Creating the snapshot does not copy any items.
    pub fn history(&self) -> History {
        self.0.history()
    }

    /// Creates an id with the agent's [generator](crate::Agent::with_ids). The run's world records
    /// the id, so a replay or a later attempt gets the same one.
    pub fn new_id(&self) -> String {
        self.0.new_id()
    }

    /// Returns the state, along with the additional facts needed to choose the next action. If a
    /// limit was reached, the returned state contains the exceeded budget.
    pub fn gather_facts(&self, state: State) -> (State, Facts) {
        external_facts::gather_facts(&self.0, state)
    }

    /// Lists the tools from the agent's [sources](crate::Agent::with_tool_source), once per
    /// iteration. If the tools have changed, the next call to
    /// [`deliver_next_input`](Self::deliver_next_input) returns an event that reports the change to
    /// the model. If the agent has no sources, this method does nothing.
    ///
    /// Call `refresh_tools` before `deliver_next_input`, and before resuming a run's calls. If the
    /// body has not called `refresh_tools`, [`next_request`](Self::next_request) does so, and
    /// changes to the tools are reported to the model one request later.
    ///
    /// Dropping the future drops the listings that are in progress, and the run keeps the tools of
    /// the last listing.
    ///
    /// # Errors
    ///
    /// If a run's first listing fails, returns the source's error, with the name of the source in
    /// the message. Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if two
    /// tools in the first listing have the same name.
    pub fn refresh_tools(&self, state: &State) -> impl Future<Output = Result<(), Error>> + Send {
        // As in `next_request`, the future is boxed, but only if there are sources to list.
        let listing = list_tools::needs_listing(&self.0, state)
            .then(|| Box::pin(list_tools::refresh_tools(&self.0, state)));
        let run = &self.0;
        async move {
            match listing {
                Some(listing) => listing.await,
                None => {
                    list_tools::restore_removed_catalogs(run);
                    Ok(())
                }
            }
        }
    }

    /// Applies the next pending change to the history before a request is sent. The changes are
    /// applied in this order: a report of changed tools, items that hooks returned,
    /// [tombstones](RunHandle::tombstone), steered input, and a follow-up if one is due. Call this
    /// method repeatedly, yielding each returned event, until it returns `None` instead of an
    /// event. The state returned along with `None` has a history that contains all of the changes.
    pub fn deliver_next_input(&self, state: State) -> (State, Option<Event>) {
        if self.0.control().work.has_unobserved_changes() {
            return (state, None);
        }
        let (state, event) = deliver_input::deliver_next_input(&self.0, state);
        (state, self.track_unobserved_change(event))
    }

    /// Shortens the history before a request. [Old turns](crate::Agent::with_ageing) are shortened
    /// first; then, the compactor is called if the request is close to filling the
    /// [window](crate::Agent::with_window). Call this method repeatedly until it returns no event;
    /// after that, the request can be sent.
    ///
    /// Once a request exceeds the compaction threshold, the compactor is called repeatedly until
    /// the request is at least 25% below the threshold. Without this margin, every request might
    /// need a compaction, which changes the provider's cached prefix. A failed compaction is
    /// reported to hooks, and is attempted again once the request has grown by 5% of the window.
    /// Dropping the future drops the compactor's future, and the history stays as it is.
    pub fn compact_if_needed(
        &self,
        state: State,
    ) -> impl Future<Output = (State, Option<Event>)> + Send {
        // The future is boxed for the same reasons as in `next_request`.
        Box::pin(async move {
            if self.0.control().work.has_unobserved_changes() {
                return (state, None);
            }
            let (state, event) = compaction::compact_if_needed(&self.0, state).await;
            (state, self.track_unobserved_change(event))
        })
    }

    /// Compacts the history. A body calls this method after a request was rejected because the
    /// history exceeds the model's context window. The compacted history carries a mark that
    /// [`was_reactively_compacted`](crate::context::was_reactively_compacted) detects. If the
    /// history cannot be compacted, this method returns no event, or an event that [replaces
    /// nothing](Event::is_rewrite), and hooks receive the error. Dropping the future drops the
    /// compactor's future, and the history stays as it is.
    pub fn compact(&self, state: State) -> impl Future<Output = (State, Option<Event>)> + Send {
        // The future is boxed for the same reasons as in `next_request`.
        Box::pin(async move {
            if self.0.control().work.has_unobserved_changes() {
                return (state, None);
            }
            let (state, event) = compaction::compact(&self.0, state).await;
            (state, self.track_unobserved_change(event))
        })
    }

    /// Builds the next request from the state, lets hooks change the request, and waits until the
    /// run's [pool](crate::agent::Pool) has enough tokens and a slot for the request. A returned
    /// request counts as a model call.
    ///
    /// Returns `None` instead of a request if the pool is exhausted, or if something that must be
    /// handled first, such as steered input, arrived while the run was waiting. If `None` is
    /// returned, no model call is counted, and the body must start again from
    /// [`gather_facts`](Self::gather_facts). The run keeps its position in the pool's queue unless
    /// the returned future is dropped.
    ///
    /// # Errors
    ///
    /// Returns a [`Hook`](crate::ErrorKind::Hook) error if a hook fails. Returns an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if two tools have the same name,
    /// or if a cost limit is set but the model's price is unknown. Also returns an `InvalidRequest`
    /// error if the run has not received an event from
    /// [`deliver_next_input`](Self::deliver_next_input),
    /// [`compact_if_needed`](Self::compact_if_needed) or [`compact`](Self::compact), because the
    /// body did not yield the event or is being polled ahead of the run.
    pub fn next_request(
        &self,
        state: State,
    ) -> impl Future<Output = Result<(State, Option<Box<Request>>), Error>> + Send {
        // Boxing the future keeps the body's future small, and saves stack space in nested
        // sub-agents.
        Box::pin(send_request::next_request(&self.0, state))
    }

    /// Records that the run must receive `event`, if it is `Some`, before the history is used
    /// again.
    fn track_unobserved_change(&self, event: Option<Event>) -> Option<Event> {
        event.inspect(|event| self.0.control().work.track_change(event))
    }

    /// Returns the `turn_started` event, which the body must yield before sending a request.
    pub fn turn_started_event(&self, state: &State) -> Event {
        Event::TurnStarted {
            turn: state.counts.model_calls,
            model: state.model_selection.model.to_string(),
            transition: state.transition,
        }
    }

    /// Returns a stream that sends the request when first polled, and then yields the turn's
    /// events. Also starts the hooks that observe the start of a turn. Dropping the stream cancels
    /// the request.
    ///
    /// In a replay, the turn fails with [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch) if the
    /// request differs from the recorded run's request.
    pub fn send_request(&self, state: &State, request: Box<Request>) -> TurnStream {
        send_request::send_request(&self.0, state, *request)
    }

    /// Starts the hooks that observe completed turns. The run polls these hooks' futures, but does
    /// not wait for them to complete. If the hooks return items,
    /// [`deliver_next_input`](Self::deliver_next_input) delivers them.
    pub fn notify_turn(&self, state: &State, turn: &Arc<Turn>) {
        let hooks = self.0.hooks();
        if !hooks.is_empty() {
            let (state, observers) = (Arc::new(state.clone()), &self.0.control().observers);
            observers.start(hooks, hooks.assistant_message(&state, turn));
            observers.start(hooks, hooks.after_sampling(&state, turn));
        }
    }

    /// Reports a failed turn to hooks. If any of the turn's events were yielded, returns the event
    /// that retracts the unfinished turn.
    pub fn report_error(&self, state: &State, error: &Error) -> Option<Event> {
        let control = self.0.control();
        control.set_last_failure(error);
        if let Some(contexts) = control.tools.data().get::<TraceContexts>() {
            contexts.set_request_error(error.kind());
        }
        self.0.finish_request();
        control.work.has_incomplete_turn.set(is_incomplete_turn(error));
        self.0.hooks().on_failure(state, error);
        let usage =
            error.find_source::<PartialTurn>().map_or_else(Usage::default, PartialTurn::usage);
        let why = prompts::retraction_reason(error);
        let has_open_turn = self.0.handle.journal.has_open_turn();
        has_open_turn.then(|| TurnEvent::Retracted { why, usage: usage.into() }.into())
    }

    /// Returns a stream that provides a result for each call in a turn, either by running the call
    /// or by using the result that `decision` requires instead.
    ///
    /// Dropping the returned stream drops every running tool.
    ///
    /// If `turn` is `None`, the stream resumes the pending calls in the history.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error if `turn` is `None`
    /// and the history contains no calls that can be resumed.
    pub fn run_tools(
        &self,
        state: &State,
        turn: Option<&Arc<Turn>>,
        decision: &Decision,
    ) -> Result<Box<ToolRun>, Error> {
        // The tool run is boxed because a body stores it in its own state, even while waiting for
        // the model.
        run_tools::run_tools(&self.0, state, turn, decision).map(Box::new)
    }

    /// Waits until the run's [world](crate::world) provides verdicts on the pending calls, and then
    /// resumes these calls. Returns `None` if no call is pending, if the agent is not interactive,
    /// if the world cannot [suspend](crate::world::World::can_suspend), or if a verdict is missing.
    ///
    /// Dropping the future ends the wait, and the calls stay pending.
    ///
    /// # Errors
    ///
    /// Returns the error from the world, or an [`InvalidRequest`](crate::ErrorKind::InvalidRequest)
    /// error if a verdict does not refer to a pending call.
    pub fn resume_pending_calls(
        &self,
        state: &State,
    ) -> impl Future<Output = Result<Option<Box<ToolRun>>, Error>> + Send {
        // The future is boxed for the same reasons as in `next_request`.
        Box::pin(run_tools::resume_pending_calls(&self.0, state))
    }

    /// Rejects all further verdicts on the calls in the current turn.
    pub fn stop_accepting_verdicts(&self) {
        self.0.control().verdicts.stop_accepting();
    }

    /// Decides the next action after the model has stopped on its own. The decision depends on the
    /// validations, the stop hooks, the evidence policy, and whether the token target has been
    /// reached.
    ///
    /// Dropping the future drops the validation or the hook that is running.
    ///
    /// # Errors
    ///
    /// Returns a [`Hook`](crate::ErrorKind::Hook) error if a hook or a validation fails.
    pub fn review_stop(
        &self,
        state: State,
        turn: &Arc<Turn>,
    ) -> impl Future<Output = Result<(State, NextAction), Error>> + Send {
        // The future is boxed for the same reasons as in `next_request`.
        Box::pin(review_stop::review_stop(&self.0, state, turn))
    }

    /// If `next` would send a request but a hook stops the run, returns an action that ends the
    /// run. Otherwise, returns `next`.
    ///
    /// Dropping the future drops the hook's future.
    ///
    /// # Errors
    ///
    /// Returns a [`Hook`](crate::ErrorKind::Hook) error if a hook fails.
    pub fn check_should_stop(
        &self,
        state: &State,
        next: NextAction,
    ) -> impl Future<Output = Result<NextAction, Error>> + Send {
        // The future is boxed for the same reasons as in `next_request`.
        Box::pin(async move {
            if !next.sends_request() {
                return Ok(next);
            }
            let (hooks, state) = (self.0.hooks().clone(), state.clone());
            let ask = async move { hooks.should_stop(&state).await };
            Ok(match self.0.perform_hooks(EffectKind::ShouldStop, ask).await? {
                true => NextAction::Finish(EndReason::Stopped),
                false => next,
            })
        })
    }

    /// Applies an action to the state. Returns the events that report the action, and the step that
    /// the body must yield after these events.
    pub fn apply_next_action(
        &self,
        state: State,
        next: NextAction,
    ) -> (Vec<Event>, Step<Event, State>) {
        state.update(|it| it.history = self.history()).apply_next_action(next, || self.new_id())
    }

    /// Returns the provider that the next request is sent to: the agent's own or, if the state has
    /// selected one, a fallback.
    pub fn provider(&self, state: &State) -> &dyn Provider {
        self.0.provider(state)
    }
}

impl_debug!(RunContext(it), handle = it.0.handle);
