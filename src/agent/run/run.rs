//! Defines a single run of an agent.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{FusedStream, StreamExt};

use crate::agent::evidence::EvidenceLog;
use crate::agent::phase::deliver_input::apply_final_owner_change;
use crate::agent::phase::external_facts::failed_fixes;
use crate::agent::phase::review_stop::{completion_evidence, unproven_reason};
use crate::agent::run::checked_input::{check_input, must_be_checked};
use crate::agent::run::deadline::{DeadlineEvent, RunDeadline};
use crate::agent::run::handle::forward_handle_methods;
use crate::agent::run::observation::{Observation, ObservedParts, RunOrigin};
use crate::agent::run::run_policy::redacted_report;
use crate::agent::run::run_shared::RunShared;
use crate::agent::run::run_stage::{LoopStream, PendingEnd, Stage};
use crate::agent::settings::AgentSettings;
use crate::agent::{Input, ResumeVerdicts, RunContext, RunHandle, RunStart, State, prompts};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::event::{AppendReason, BudgetExceeded, BudgetKind, EndReason, Event, Outcome};
use crate::item::{Grant, History, Item, StopReason, ToolResult};
use crate::journal::{DroppedCalls, Interruption, Journal, RunEnd};
use crate::propagation::InterruptLane;
use crate::stream::{StateCell, Step, loop_with_state};
use crate::tool::{RunData, ToolContext};
#[cfg(feature = "tracing")]
use crate::trace::WithTracing;
use crate::turn::TurnEvent;
use crate::world::{EffectKind, Effects, LoopControl, LoopEnd, TimeLimitReached};

/// The arguments for creating a run.
pub(in crate::agent) struct RunArgs {
    /// The history, in which calls may be open.
    pub(in crate::agent) history: History,
    pub(in crate::agent) input: Input,
    pub(in crate::agent) resume_verdicts: Option<ResumeVerdicts>,
}

/// A single run of an agent: a stream of events that ends with `Finished`.
///
/// If the run fails, [`Outcome::error`] is set, and the stream yields the same error as an `Err`
/// after `Finished`, before the stream ends. A loop that uses `run.try_next().await?` therefore
/// returns the error. A run that ends with a reason such as `max_turns`, `budget`, `stopped` or
/// `pending` has not failed, and its outcome contains no error. [`outcome`](Self::outcome) returns
/// the outcome of any run, even a failed one. [`Outcome::into_result`] returns the error if the run
/// failed.
///
/// Between two polls, the run's owner can inspect and control the run: [`steer`](Self::steer),
/// [`follow_up`](Self::follow_up), [`approve`](Self::approve), [`deny`](Self::deny),
/// [`interrupt`](Self::interrupt), [`history`](Self::history) and more. The run's
/// [`handle`](Self::handle) has all of the methods.
///
/// Dropping the run cancels the open request and the running tools. After the run has been dropped,
/// its history can still be read from a [`handle`](Self::handle).
///
/// A run may be moved to another tokio runtime between two turns. During a turn, a run may be moved
/// to another runtime only if the runtime it started on is multi-threaded; see
/// [`stream_turn`](crate::Provider::stream_turn).
///
/// ```
/// use futures::StreamExt;
/// use turnstream::Agent;
/// use turnstream::provider::{Reply, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut run = Agent::new(Scripted::new(["Hello, world!"])).run("Hi");
/// while let Some(Ok(event)) = run.next().await {
///     if let Some(text) = event.text_delta() {
///         print!("{text}");
///     }
/// }
/// assert_eq!(run.history().len(), 2);
/// # }
/// ```
#[must_use = "streams do nothing unless polled"]
#[repr(C)]
pub struct Run {
    // The fields that each poll uses come first, so that they share cache lines.
    stage: Stage,
    shared: RunShared,
    deadline: RunDeadline,
    /// Whether the loop has been polled since the last event was yielded.
    polled_since_last_event: bool,
    observation: Observation,
    state: StateCell<State>,
    /// The results received since the active loop body started; collected only if a wrap-up turn
    /// may need them.
    iteration_results: Vec<ToolResult>,
    /// The outcome of the run; set once `Finished` has been yielded.
    outcome: Option<Box<Outcome>>,
}

impl Run {
    pub(in crate::agent) fn new<B, St>(
        settings: Arc<AgentSettings>,
        begin: RunArgs,
        mut body: B,
    ) -> Self
    where
        B: FnMut(RunContext, State) -> St + Send + 'static,
        St: Stream<Item = Result<Step<Event, State>, Error>> + Send + 'static,
    {
        let RunArgs { history, input: Input(mut items), resume_verdicts: resuming } = begin;
        let start = RunStart { history: &history, input: &items, is_resuming: resuming.is_some() };
        let effects = Effects::new((settings.world)(&settings, &start), &history);
        let ids = Arc::clone(&settings.ids);
        let refused_input = match must_be_checked(&settings, &items) {
            true => effects.draw(EffectKind::RefusedInput, || check_input(&settings, &items).err()),
            false => None,
        };
        if refused_input.is_some() {
            items.clear();
        }
        // A run that resumes calls, or refuses its input, gives open calls no results here.
        let mut history = match resuming.is_some() || refused_input.is_some() {
            true => history,
            false => history.settled(),
        };
        let journal = Journal::new(history.clone());
        history.extend(items.iter().cloned());
        // If a run's input contains no user message, the run continues its history, so the evidence
        // in the history counts.
        let standing = match items.iter().any(|item| item.as_user().is_some()) {
            true => EvidenceLog::from_items(&items),
            false => EvidenceLog::from_items(&history),
        };
        let input = (!items.is_empty()).then(|| Event::Appended {
            why: AppendReason::Input,
            id: effects.draw(EffectKind::Id, || ids.next_id()),
            items,
        });
        let handle = RunHandle::new(journal, ids);
        let label = Arc::clone(&settings.label);
        handle.control.sub_agents.set_label(Arc::clone(&label));
        if effects.world().can_suspend() {
            handle.control.verdicts.suspends.set(true);
        }
        if let Some(verdicts) = &resuming {
            handle.control.verdicts.set_of_sub_agents(verdicts.clone());
        }
        if let Some(observer) = &settings.observer {
            handle.set_default_observer(observer);
        }
        let requires_evidence = settings.hooks.evidence_policy().is_some();
        let shared = RunShared { settings, handle: Arc::new(handle), effects };
        let state = State::new(history).update(|it| {
            it.label = label;
            it.evidence.log = standing;
            it.evidence.is_required = requires_evidence;
            it.approvals.resume_verdicts = resuming;
            it.helpers = shared.control().helpers.clone();
        });
        let given = shared.clone();
        let (events, state) = loop_with_state(state, move |state| {
            given.effects.begin_iteration();
            let state = state.update(|it| it.history = given.history());
            body(RunContext::new(given.clone()), state)
        });
        let events: LoopStream = Box::pin(events);
        let first = match (refused_input, input) {
            (Some(error), _) => Stage::Refused { error, events },
            (None, Some(event)) => Stage::Input { event: Box::new(event), events },
            (None, None) => Stage::Looping(events),
        };
        Self {
            stage: first,
            shared,
            deadline: RunDeadline::new(),
            polled_since_last_event: false,
            observation: Observation::NotStarted(RunOrigin::Program),
            state,
            iteration_results: Vec::new(),
            outcome: None,
        }
    }

    /// Makes a value, such as the current user or a connection, available to the run's tools. A
    /// tool looks up the value by type with [`ToolContext::data`](crate::tool::ToolContext::data).
    /// Call `with_data` before the run is first polled, since calls that have already started do
    /// not receive the value.
    ///
    /// Sub-agents' tools also receive the data, but hooks and providers do not. A custom loop body
    /// gets the data from [`RunContext::run_data`](crate::agent::RunContext::run_data). If `value`
    /// is a [`RunData`], all of the values in it are added. The data is not stored in the history,
    /// so a resumed run must be given the data again.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::{Agent, Tool};
    ///
    /// struct User(&'static str);
    ///
    /// # #[cfg(feature = "schemars")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let greet = Tool::new("greet", "Greets the user", |(), cx| async move {
    ///     match cx.data::<User>() {
    ///         Some(user) => format!("Hello, {}!", user.0),
    ///         None => "Hello!".to_owned(),
    ///     }
    /// });
    /// let model = Scripted::from_fn(|request, n| match n {
    ///     0 => Reply::new().call("greet", json!({})),
    ///     _ => Reply::text(&request.history.last().unwrap().as_tool_result().unwrap().content.text()),
    /// });
    /// let agent = Agent::new(model).with_tools([greet]);
    /// let outcome = agent.run("Hi").with_data(User("Ada")).outcome().await;
    /// assert_eq!(outcome.text, "Hello, Ada!");
    /// # }
    /// # #[cfg(not(feature = "schemars"))]
    /// # fn main() {}
    /// ```
    pub fn with_data<T: Any + Send + Sync>(self, value: T) -> Self {
        self.shared.control().tools.update_data(|data| data.insert(value));
        self
    }

    /// Gives the run [grants](crate::item::Grant), which allow calls without an approval. Grants
    /// with an [`agent_path`](crate::item::Grant::agent_path) are for the sub-agents at this path.
    /// Call `with_grants` before the run is first polled.
    ///
    /// A grant is valid whatever its [duration](crate::item::GrantDuration): what an application
    /// passes to a run holds in this run. A run of a [session](crate::session::Session) already has
    /// the grants of the session.
    pub fn with_grants(self, grants: impl IntoIterator<Item = Grant>) -> Self {
        self.shared.handle.add_grants(grants);
        self
    }

    /// Makes this run a sub-agent's run, with the data of its parent's run.
    pub(in crate::agent) fn with_parent_run_data(mut self, data: RunData) -> Self {
        self.observation = Observation::NotStarted(RunOrigin::ParentRun);
        self.shared.control().tools.update_data(|_| data);
        self
    }

    /// Polls the run until it ends, and returns its outcome. If `Finished` has already been
    /// yielded, the returned future is ready immediately. Dropping the returned future cancels the
    /// run.
    ///
    /// If the run failed, the outcome's [`error`](Outcome::error) field is set, and
    /// [`into_result`](Outcome::into_result) converts the outcome into an `Err`.
    ///
    /// This method consumes the run, so verdicts can come only from a [handle](Self::handle). An
    /// [interactive](crate::Agent::interactive) run therefore waits for a verdict only while a
    /// handle exists; if there is no handle, the run ends with the reason `pending`.
    pub async fn outcome(mut self) -> Outcome {
        self.shared.handle.require_external_handle();
        loop {
            if let Some(outcome) = self.outcome.take() {
                return *outcome;
            }
            // Invariant: a run ends with `Finished`, which sets the outcome.
            if self.next().await.is_none() && self.outcome.is_none() {
                return self.handle().journal.outcome(EndReason::Stopped, None);
            }
        }
    }

    /// Reports the run to the subscriber of the crate `tracing`, like
    /// [`EventStreamExt::with_tracing`](crate::EventStreamExt::with_tracing). The run's span also
    /// has the agent's [label](crate::Agent::with_label) and the id of the history.
    #[cfg(feature = "tracing")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
    pub fn with_tracing(self) -> impl Stream<Item = Result<Event, Error>> {
        let description = self.shared.handle.description();
        WithTracing::new(self, description)
    }

    /// Returns a handle through which other code can control the run, even while an adapter owns
    /// the run.
    pub fn handle(&self) -> RunHandle {
        RunHandle::clone(&self.shared.handle)
    }

    forward_handle_methods!(shared.handle);

    /// Returns the run's own handle, which does not count as a source of verdicts.
    pub(crate) fn internal_handle(&self) -> Arc<RunHandle> {
        Arc::clone(&self.shared.handle)
    }

    /// Returns whether the run failed and has only its final `Err` left to yield.
    pub(crate) fn has_pending_error(&self) -> bool {
        matches!(self.stage, Stage::Failed(_))
    }

    /// Returns the changes and checks that the run has recorded so far.
    pub(in crate::agent) fn evidence_log(&self) -> EvidenceLog {
        self.state.get().evidence.log.clone()
    }

    /// Ends the run from outside its loop, or because of an error, and drops the loop.
    fn end_loop(
        &mut self,
        reason: EndReason,
        error: Option<Error>,
        time_up: Option<BudgetExceeded>,
    ) {
        if error.is_some() || time_up.is_some() || matches!(reason, EndReason::Interrupted(_)) {
            self.record_interrupt(reason, InterruptLane::Run);
            self.notify_world_ended(LoopEnd {
                error: error.clone(),
                time_limit_reached: time_up.map(TimeLimitReached::End),
                interrupt_reason: self.interrupt_reason(reason).as_deref().map(str::to_owned),
                ..LoopEnd::default()
            });
        }
        self.drop_loop(reason, error, time_up);
    }

    /// Ends the run and drops its loop, including the open request and any running calls.
    fn drop_loop(
        &mut self,
        reason: EndReason,
        error: Option<Error>,
        time_up: Option<BudgetExceeded>,
    ) {
        if reason == EndReason::Pending {
            // No event contains the request for the result of an external tool.
            let state = self.state.get();
            let pending = &state.approvals.pending;
            let own = pending.iter().filter(|call| call.path.is_empty());
            self.shared.handle.journal.set_pending_calls(own.cloned());
        }
        let interrupt_reason = self.interrupt_reason(reason);
        let input_refused = matches!(self.stage, Stage::Refused { .. });
        let events = self.stage.end_loop(PendingEnd {
            reason,
            input_refused,
            error,
            time_limit_exceeded: time_up,
            unreported_interrupt_reason: interrupt_reason.clone(),
            interrupt_reason,
        });
        self.shared.control().verdicts.stop_accepting();
        // `Finished` must be yielded even if a `Drop` implementation panics.
        let _ = catch_panic(|| drop(events));
        self.shared.control().observers.cancel_all(self.shared.hooks());
        self.shared.finish_request();
        self.record_dropped_calls();
    }

    /// Stores for telemetry code how the run was interrupted, if it ends with an interrupt.
    fn record_interrupt(&self, reason: EndReason, lane: InterruptLane) {
        if let (EndReason::Interrupted(_), Some(contexts)) = (reason, self.shared.trace_contexts())
        {
            contexts.set_interrupt_lane(lane);
        }
    }

    /// Returns the reason for the interrupt, if the run ends with an interrupt.
    fn interrupt_reason(&self, reason: EndReason) -> Option<Arc<str>> {
        match reason {
            EndReason::Interrupted(_) => self.shared.control().signals.interrupt_reason(),
            _ => None,
        }
    }

    /// Records the effect reports of calls that were dropped, and the results that were known when
    /// their calls were dropped.
    fn record_dropped_calls(&self) {
        let handle = &self.shared.handle;
        let dropped = self.shared.effects.draw(EffectKind::DroppedCalls, || {
            let started = handle.control.tools.take_started_calls().into_iter();
            let reported = |context: ToolContext| {
                let report = redacted_report(&self.shared, &self.state.get(), &context);
                (context.call_id().to_owned(), report)
            };
            let reports = started.map(reported).collect();
            DroppedCalls { reports, known_results: handle.journal.known_results() }
        });
        handle.journal.set_dropped_calls(dropped);
    }

    /// Notifies the run's `World` that the loop has ended because of an error, a time limit or an
    /// interrupt.
    fn notify_world_ended(&self, end: LoopEnd) {
        let polled_since_last_event = self.polled_since_last_event;
        self.shared.effects.world().on_end(&LoopEnd { polled_since_last_event, ..end });
    }

    /// Notifies the run's `World` and its observer of an event that is about to be yielded.
    fn notify_world(&mut self, event: &Event) {
        self.polled_since_last_event = false;
        let world = self.shared.effects.world();
        world.observe(event);
        self.observation.observe(event, world);
    }

    /// Starts the run's observer, whose values become part of the run's data.
    fn start_observer(&mut self) {
        let Self { observation, shared, .. } = self;
        let control = shared.control();
        let describe = || ObservedParts {
            label: control.sub_agents.label().into(),
            history: shared.handle.journal.history(),
            options: shared.settings.prompt.options.clone(),
            data: control.tools.data(),
        };
        let added = observation.start(&control.observer, shared.effects.world(), describe);
        if let Some(added) = added {
            control.tools.update_data(|data| data.insert(added));
        }
        control.helpers.set_trace_contexts(shared.trace_contexts());
    }

    /// Ends a replayed loop at the point where the recorded run's loop ended.
    fn apply_forced_end(&mut self, ending: LoopEnd, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let LoopEnd {
            polled_since_last_event: polled,
            mut error,
            time_limit_reached: time_up,
            interrupt_reason,
        } = ending;
        if let (true, Some(events)) = (polled, self.stage.running_loop()) {
            let polled = catch_panic(|| events.poll_next_unpin(cx));
            // The replayed error contains more detail than the recorded one.
            if let Ok(Poll::Ready(Some(Err(own)))) = polled
                && error.as_ref() == Some(&own)
            {
                error = Some(own);
            }
        }
        if let Some(reason) = interrupt_reason {
            self.shared.control().signals.set_interrupt_reason(reason);
        }
        let phase = self.handle().journal.phase();
        match (time_up, error) {
            (Some(TimeLimitReached::WrapUp(exceeded)), _) => self.interrupt_for_wrap_up(exceeded),
            (Some(TimeLimitReached::End(exceeded)), _) => {
                self.end_loop(EndReason::Budget, None, Some(exceeded));
            }
            (None, Some(error)) => self.end_loop(EndReason::from_error(&error), Some(error), None),
            (None, None) => self.end_loop(EndReason::Interrupted(phase), None, None),
        }
        Poll::Ready(None)
    }

    /// Handles the expiry of one of the run's timers.
    fn on_deadline(&mut self, due: DeadlineEvent, cx: &Context<'_>) -> Poll<Option<Event>> {
        let elapsed = self.shared.control().usage.started_at().elapsed();
        match (due, self.shared.settings.limits.budget.time_limit_exceeded(elapsed)) {
            // No wrap-up turn can follow, so the running work may use the reserved time as well.
            (DeadlineEvent::WrapUp, _) if !self.shared.can_wrap_up(&self.state.get()) => {
                self.deadline.begin_wrap_up();
                self.shared.control().work.wrap_up_time_released.set(true);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            (DeadlineEvent::WrapUp, Some(exceeded)) => self.interrupt_for_wrap_up(exceeded),
            (DeadlineEvent::TimeUp, exceeded @ Some(_)) => {
                self.end_loop(EndReason::Budget, None, exceeded);
            }
            (
                DeadlineEvent::TimerUnavailable | DeadlineEvent::WrapUp | DeadlineEvent::TimeUp,
                _,
            ) => {
                let message = "the time limit of the budget needs a tokio runtime with its time \
                     enabled";
                let error = Error::new(ErrorKind::InvalidRequest, message);
                self.shared.report_final_error(&self.state.get(), &error);
                self.end_loop(EndReason::from_error(&error), Some(error), None);
            }
        }
        Poll::Ready(None)
    }

    /// Drops all running work so that the wrap-up turn can start.
    fn interrupt_for_wrap_up(&mut self, exceeded: BudgetExceeded) {
        self.notify_world_ended(LoopEnd {
            time_limit_reached: Some(TimeLimitReached::WrapUp(exceeded)),
            ..LoopEnd::default()
        });
        self.deadline.begin_wrap_up();
        self.shared.control().verdicts.stop_accepting();
        self.restart_loop(self.state.get());
        self.shared.finish_request();
        self.record_dropped_calls();
        self.stage.begin_wrap_up(exceeded);
    }

    /// Restarts the loop body for the wrap-up turn. The loop body detects that the time limit is
    /// exceeded, and yields the events that lead to the wrap-up turn.
    fn begin_wrap_up_turn(&mut self, exceeded: BudgetExceeded) {
        let journal = &self.shared.handle.journal;
        let (history, requests) = (journal.history(), journal.requests());
        let state = self.state.get();
        let state = state.after_interruption(history, requests, &self.iteration_results, exceeded);
        self.iteration_results.clear();
        self.shared.control().work.clear_unobserved_changes();
        self.restart_loop(state);
        self.stage.continue_loop();
    }

    fn restart_loop(&mut self, state: State) {
        let Some(events) = self.stage.running_loop() else { return };
        // A panic in a `Drop` implementation must not prevent the wrap-up turn.
        let events = events.as_mut();
        let _ = catch_panic(|| events.restart(state));
    }

    /// Collects a result from the active loop body if a wrap-up turn may need it.
    fn collect_result(&mut self, event: &Event) {
        if !self.deadline.can_wrap_up() {
            return;
        }
        match event {
            Event::Continued { .. } => self.iteration_results.clear(),
            event => self.iteration_results.extend(event.tool_output().cloned()),
        }
    }

    /// Returns `true` if there is no open request or running call that a timer's expiry could
    /// interrupt.
    fn is_between_turns(&self) -> bool {
        let handle = &self.shared.handle;
        let (journal, control) = (&handle.journal, &handle.control);
        journal.all_calls_answered()
            && !journal.has_open_turn()
            && !control.work.request_in_flight.get()
    }

    /// Starts the run's clock at the first poll and, once the input is appended, its timer, and
    /// polls the observing hooks.
    fn start(&mut self, cx: &mut Context<'_>) {
        if matches!(self.stage, Stage::Input { .. } | Stage::Refused { .. }) {
            // The time limit is measured from the first poll.
            self.shared.control().usage.started_at();
            return;
        }
        if !self.deadline.has_started() {
            let started = self.shared.control().usage.started_at();
            self.deadline.start(&self.shared.settings.limits.budget, started);
        }
        if self.stage.running_loop().is_some() {
            self.shared.control().observers.poll(self.shared.hooks(), cx);
        }
    }

    /// Records an event of the loop that is about to be yielded.
    fn on_loop_event(&mut self, event: &Event) {
        let control = self.shared.control();
        control.inbox.tombstone_queue.observe(self.journal(), event);
        control.work.mark_change_observed(event);
        self.notify_world(event);
        let control = self.shared.control();
        if let Event::Tool(_) | Event::Nested { .. } = event
            && let Some(change) = event.grant_change()
        {
            control.grants.apply(change);
        }
        match event {
            Event::Turn(TurnEvent::TurnComplete { turn }) => {
                if *turn.stop_reason() == StopReason::Interrupted {
                    control.signals.turn_interrupted.set(false);
                }
                self.shared.finish_turn(turn);
            }
            Event::Turn(TurnEvent::Retracted { .. }) => self.shared.finish_retracted_attempt(),
            _ => {}
        }
        if let Event::Appended {
            why: AppendReason::Steer | AppendReason::FollowUp | AppendReason::Message,
            ..
        } = event
        {
            // The next turn answers the input, and is not interrupted.
            control.signals.turn_interrupted.set(false);
        }
        self.collect_result(event);
    }

    fn poll_loop(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.shared.control().signals.register_waker(cx.waker());
        let can_end = match self.shared.effects.world().loop_control() {
            LoopControl::MayEnd => true,
            LoopControl::MustContinue => false,
            LoopControl::MustEnd(ending) => return self.apply_forced_end(ending, cx),
        };
        if can_end && self.shared.control().signals.interrupted.get() {
            self.end_loop(EndReason::Interrupted(self.handle().journal.phase()), None, None);
            return Poll::Ready(None);
        }
        if can_end
            && self.deadline.is_over()
            && !self.is_between_turns()
            && let Poll::Ready(due) = self.deadline.poll(cx)
        {
            return self.on_deadline(due, cx);
        }
        self.polled_since_last_event = true;
        let Some(events) = self.stage.running_loop() else { return Poll::Ready(None) };
        let error = match catch_panic(|| events.poll_next_unpin(cx)) {
            Ok(Poll::Pending) => {
                let due = ready!(self.deadline.poll(cx));
                // If the value that the loop is waiting for arrived during this poll, the loop is
                // polled again before the timer is handled.
                return match self.shared.effects.world().loop_control() {
                    LoopControl::MayEnd => self.on_deadline(due, cx),
                    LoopControl::MustContinue | LoopControl::MustEnd(_) => Poll::Pending,
                };
            }
            Ok(Poll::Ready(polled)) => match polled {
                // The body forwarded a `Finished` event from another run; this run emits its own
                // `Finished` event.
                Some(Ok(Event::Finished(_))) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(Ok(event)) => return Poll::Ready(Some(event)),
                Some(Err(error)) => Some(error),
                None => None,
            },
            Err(message) => Some(Error::from_panic("the provider", &message)),
        };
        if let Some(error) = &error {
            self.shared.report_final_error(&self.state.get(), error);
        }
        match error {
            // If a hook or a tool interrupted the run during this poll, the run ends with the
            // reason `interrupted`.
            _ if self.shared.control().signals.interrupted.get() => {
                self.end_loop(EndReason::Interrupted(self.handle().journal.phase()), None, None);
            }
            Some(error) => self.end_loop(EndReason::from_error(&error), Some(error), None),
            None => {
                let reason = self.state.get().end.reason.unwrap_or(EndReason::Stopped);
                self.record_interrupt(reason, InterruptLane::Turn);
                self.drop_loop(reason, None, None);
            }
        }
        Poll::Ready(None)
    }
}

/// Returns the next final event.
fn next_final_event(shared: &RunShared, state: &StateCell<State>, end: &mut PendingEnd) -> Event {
    if let Some(notice) = interrupt_notice(shared, end) {
        return notice;
    }
    // An exceeded limit is reported only if it ended the run or is the token target.
    let counts =
        |it: &BudgetExceeded| end.reason == EndReason::Budget || it.kind == BudgetKind::Target;
    let exceeded = || state.get().end.exceeded_budget.filter(counts);
    let budget = end.time_limit_exceeded.or_else(exceeded);
    let handle = &shared.handle;
    // If the run ends with the reason `pending`, a call that is waiting for a verdict has no
    // result. If the run refused its input, it changes nothing.
    let leaves_calls_open = end.reason == EndReason::Pending || end.input_refused;
    if (leaves_calls_open || handle.journal.all_calls_answered())
        && let Some(event) = apply_final_owner_change(shared, &state.get())
    {
        return event;
    }
    let undelivered = || {
        let undelivered = handle.control.close();
        shared.effects.draw(EffectKind::UndeliveredInput, || undelivered)
    };
    let run_end = RunEnd {
        reason: end.reason,
        error: end.error.as_ref(),
        budget,
        interrupt_reason: end.interrupt_reason.as_deref(),
        leaves_calls_open,
    };
    let mut event = handle.journal.next_ending_event(&run_end, undelivered);
    match &mut event {
        Event::Finished(outcome) => {
            complete_outcome(shared, state, outcome, end.interrupt_reason.as_deref());
        }
        // The result contains the reason.
        _ => end.unreported_interrupt_reason = None,
    }
    event
}

/// Returns the event that appends the reason for the interrupt, unless a result contains it.
fn interrupt_notice(shared: &RunShared, end: &mut PendingEnd) -> Option<Event> {
    let journal = &shared.handle.journal;
    if !journal.all_calls_answered() {
        return None;
    }
    let reason = end.unreported_interrupt_reason.take()?;
    let items = vec![prompts::interrupt_notice(&reason)];
    let event = Event::Appended { why: AppendReason::Interrupt, id: shared.new_id(), items };
    journal.observe(&event);
    Some(event)
}

/// Returns the reason for the end of a run in which too many fixes in a row have failed.
fn failed_fixes_reason(shared: &RunShared, state: &State) -> Option<String> {
    let max = shared.settings.limits.limits.end_after_failed_fixes;
    let fixes = failed_fixes(shared, state);
    let noun = if fixes == 1 { "fix" } else { "fixes" };
    (max > 0 && fixes >= max).then(|| format!("a check still fails after {fixes} {noun}"))
}

/// Adds to the outcome what the journal does not know, and reports the outcome to hooks.
fn complete_outcome(
    shared: &RunShared,
    state: &StateCell<State>,
    outcome: &mut Outcome,
    interrupt_reason: Option<&str>,
) {
    let mut state = state.get();
    // The results of an iteration that the end has cut short.
    let late = outcome.history.iter().skip(state.history.len()).filter_map(Item::as_tool_result);
    let late: Vec<ToolResult> = late.cloned().collect();
    state = state.update(|it| {
        it.history = outcome.history.clone();
        it.evidence.log.record_batch(&late);
    });
    // Reports that come later are ignored.
    shared.control().helpers.close();
    let (cost, gaps) = shared.charge_final_usage();
    (outcome.cost, outcome.cost_gaps) = (cost, gaps.into());
    // The message may be outdated, since steered input may have caused the run to continue after a
    // hook set the message.
    let ended_by_hook = matches!(
        outcome.reason,
        EndReason::StopHookPrevented | EndReason::Blocked | EndReason::Unproven
    );
    match outcome.reason {
        EndReason::Completed => outcome.proof = completion_evidence(shared, &state),
        EndReason::Unproven => {
            let reason = unproven_reason(shared, &state).or_else(|| state.end.message.clone());
            outcome.unproven = reason.map(Into::into);
        }
        _ => outcome.unproven = unproven_reason(shared, &state).map(Into::into),
    }
    if ended_by_hook || outcome.reason == EndReason::Completed {
        outcome.stop_action = state.stop_action.as_deref().cloned().map(Box::new);
    }
    if let Some(action) = &outcome.stop_action
        && outcome.text.trim().is_empty()
    {
        outcome.text.clone_from(&action.summary);
    }
    outcome.why = match ended_by_hook || outcome.reason == EndReason::Malformed {
        true => state.end.message.clone(),
        false if outcome.reason == EndReason::Repeating => failed_fixes_reason(shared, &state),
        false => interrupt_reason.map(str::to_owned),
    };
    shared.hooks().on_finished(&state, outcome);
}

impl Stream for Run {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Observation::NotStarted(_) = this.observation {
            this.start_observer();
        }
        this.start(cx);
        loop {
            let event = match &mut this.stage {
                Stage::Looping(_) => {
                    let Some(event) = ready!(this.poll_loop(cx)) else { continue };
                    this.on_loop_event(&event);
                    return Poll::Ready(Some(Ok(event)));
                }
                Stage::Input { .. } => {
                    let Some(event) = this.stage.start_loop() else { continue };
                    this.shared.handle.journal.observe(&event);
                    event
                }
                Stage::Refused { error, .. } => {
                    let error = error.clone();
                    this.shared.report_final_error(&this.state.get(), &error);
                    this.end_loop(EndReason::from_error(&error), Some(error), None);
                    continue;
                }
                &mut Stage::WrappingUp { exceeded, .. } => {
                    let journal = &this.shared.handle.journal;
                    let Some(event) = journal.next_missing_result(Interruption::TimedOut) else {
                        this.begin_wrap_up_turn(exceeded);
                        continue;
                    };
                    this.iteration_results.extend(event.tool_output().cloned());
                    event
                }
                Stage::Ending(end) => {
                    let event = next_final_event(&this.shared, &this.state, end);
                    if let Event::Finished(outcome) = &event {
                        this.stage.finish(outcome.error.clone());
                        this.outcome = Some(outcome.clone());
                    }
                    event
                }
                // `Finished` contains the same error, so the world does not receive this `Err`.
                Stage::Failed(_) => return Poll::Ready(this.stage.take_error().map(Err)),
                Stage::Over => {
                    this.observation.end(None);
                    return Poll::Ready(None);
                }
            };
            this.notify_world(&event);
            return Poll::Ready(Some(Ok(event)));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The statements below must be executed even if a user's `Drop` implementation panics.
        let _ = catch_panic(|| self.stage.clear());
        self.shared.control().observers.drop_all();
        // If the run is dropped before it has ended, its usage is charged, and no more input is
        // accepted.
        let control = self.shared.control();
        for report in control.helpers.close() {
            let event = report.into();
            self.shared.handle.journal.observe(&event);
            self.observation.observe(&event, self.shared.effects.world());
        }
        self.shared.charge_final_usage();
        self.shared.control().close();
        self.shared.effects.world().on_drop();
        self.observation.stop();
    }
}

impl FusedStream for Run {
    fn is_terminated(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }
}

impl_debug!(Run(it), finished = it.outcome.is_some(), usage = it.usage());
