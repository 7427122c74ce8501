//! Defines the state of the agent's loop.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use crate::agent::budget::TargetProgress;
use crate::agent::evidence::EvidenceLog;
use crate::agent::helper_reports::{HelperReport, HelperReports};
use crate::agent::phase::compaction_state::CompactionState;
use crate::agent::repeat_counter::RepeatCounter;
use crate::agent::{Decision, NextAction, ResumeVerdicts, prompts};
use crate::error::Error;
use crate::event::{AppendReason, BudgetExceeded, EndReason, Event, StopAction, Transition};
use crate::item::{History, Item, PendingCall, ResultKind, ToolResult};
use crate::propagation::TraceContext;
use crate::request::ToolSpecs;
use crate::stream::Step;
use crate::tool::ToolRunOutcome;
use crate::turn::Turn;
use crate::usage::Usage;

/// The state of a run between two turns. A state is immutable: each iteration replaces the whole
/// state. `State` dereferences to [`StateFields`] and is cheap to clone.
///
/// ```
/// use turnstream::History;
/// use turnstream::agent::State;
///
/// let state = State::new(History::empty("h"));
/// let later = state.clone().update(|fields| fields.counts.model_calls = 3);
/// assert_eq!((state.counts.model_calls, later.counts.model_calls), (0, 3));
/// ```
#[derive(Clone, Debug)]
pub struct State(Arc<StateFields>);

/// The fields of a [`State`], which reads them through `Deref` and changes them with
/// [`update`](State::update).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StateFields {
    /// The agent's position in the tree of agents, such as `researcher/reader`. The position
    /// consists of the [labels](crate::Agent::with_label) from the outermost labeled agent down to
    /// this agent. For an outermost agent without a label, this field is empty.
    pub label: Arc<str>,
    /// A snapshot of the history in the run's journal. The snapshot is updated at the start of an
    /// iteration, when a request is built, and after the calls in a turn have been answered.
    pub history: History,
    /// Counts the run's requests, turns and calls so far.
    pub counts: RunCounts,
    /// Counts how many times in a row something has happened, such as the number of consecutive
    /// unusable replies.
    pub streaks: Streaks,
    /// The provider and model that are currently selected.
    pub model_selection: ModelSelection,
    /// The evidence that the run has recorded.
    pub evidence: EvidenceState,
    /// The calls that are waiting for a verdict.
    pub approvals: Approvals,
    /// The action by which the model ends the run, if the latest turn contains a valid call to
    /// [`Tool::stop`](crate::Tool::stop).
    pub stop_action: Option<Arc<StopAction>>,
    /// The run's progress toward the token target.
    pub(in crate::agent) target_progress: TargetProgress,
    /// The data that determines when the history is compacted.
    pub(in crate::agent) compaction: CompactionState,
    /// Whether a follow-up must be delivered before the next request.
    pub follow_up_due: bool,
    /// The reason that the loop continued after the previous iteration.
    pub transition: Option<Transition>,
    /// Information about the end of the run.
    pub(in crate::agent) end: EndState,
    /// The usage that hooks have reported to the run.
    pub(in crate::agent) helpers: HelperReports,
}

/// Counts the requests, turns and calls in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunCounts {
    /// The number of requests sent so far. `max_turns` limits this number.
    pub model_calls: u32,
    /// The number of turns whose tool calls led to another turn.
    pub tool_turns: u32,
    /// The number of calls that were run.
    pub tool_calls: u32,
    /// The number of calls in the last turn that were not run because the limit on tool calls was
    /// reached.
    pub calls_over_limit: usize,
}

/// Counts how many times in a row something has happened, such as the number of consecutive
/// unusable replies.
///
/// Below, *new input* means the transitions [`Steering`](crate::event::Transition::Steering),
/// [`FollowUp`](crate::event::Transition::FollowUp) and [`Nudge`](crate::event::Transition::Nudge).
/// A message from a stop hook is not new input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Streaks {
    /// The number of consecutive unusable replies: empty, rejected, unreadable, or with calls none
    /// of which could start. Any usable reply resets it.
    pub malformed_replies: u32,
    /// Whether the model was asked again because a turn ended with an unknown stop reason. A turn
    /// whose calls have results and new input reset it.
    pub retried_unknown_stop: bool,
    /// The number of consecutive times that the model was asked to continue truncated text. A turn
    /// whose calls have results and new input reset it.
    pub continuations: u32,
    /// The number of consecutive times that the model was asked again because its calls were
    /// truncated. A turn whose calls have results and new input reset it.
    pub truncated_calls: u32,
    /// The number of consecutive incomplete turns that were requested again. A complete turn or a
    /// fallback resets it.
    pub turn_retries: u32,
    /// The number of consecutive turns that contained no call and after which the model was
    /// prompted to continue. A turn whose calls have results, steering input and follow-ups reset
    /// it.
    pub idle_turns: u32,
    /// Counts consecutive iterations with the same calls and the same results.
    pub(in crate::agent) repeats: RepeatCounter,
}

/// The provider and model that are currently selected.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ModelSelection {
    /// The index of the selected provider. Index 0 refers to the agent's first provider, and higher
    /// indices refer to the agent's fallbacks.
    pub provider_index: usize,
    /// The name of the model in the last request; empty before the first request.
    pub model: Arc<str>,
    /// The tools offered in the last request, if a hook has changed them.
    pub offered_tools: Option<ToolSpecs>,
}

/// The evidence that a run has recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvidenceState {
    /// The changes and checks that the run has recorded.
    pub log: EvidenceLog,
    /// Whether the model's claim to be done was rejected for lack of evidence, and no new input has
    /// been delivered since then.
    pub claim_rejected: bool,
    /// Whether the agent [requires evidence](crate::Agent::with_evidence).
    pub is_required: bool,
}

/// The calls in a run that are waiting for a verdict.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Approvals {
    /// The verdicts passed when the run was resumed; kept until they are used.
    pub resume_verdicts: Option<ResumeVerdicts>,
    /// The calls that are waiting for a verdict or an external result. Each call contains the
    /// arguments to pass to its tool.
    pub pending: Vec<PendingCall>,
}

/// Information about the end of a run.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub(crate) struct EndState {
    /// The reason that the run will report when it ends after the wrap-up turn; set only during the
    /// wrap-up turn.
    pub wrap_up_reason: Option<EndReason>,
    /// The reason why the loop ended.
    pub reason: Option<EndReason>,
    /// The message from the stop hook or evidence policy that ended the run.
    pub message: Option<String>,
    /// The budget limit that was exceeded.
    pub exceeded_budget: Option<BudgetExceeded>,
}

impl Deref for State {
    type Target = StateFields;

    fn deref(&self) -> &StateFields {
        &self.0
    }
}

impl State {
    /// Creates the initial state for a run with the given history.
    pub fn new(history: History) -> Self {
        Self(Arc::new(StateFields {
            label: Arc::default(),
            history,
            counts: RunCounts::default(),
            streaks: Streaks::default(),
            model_selection: ModelSelection::default(),
            evidence: EvidenceState::default(),
            approvals: Approvals::default(),
            stop_action: None,
            target_progress: TargetProgress::default(),
            compaction: CompactionState::default(),
            follow_up_due: false,
            transition: None,
            end: EndState::default(),
            helpers: HelperReports::default(),
        }))
    }

    /// Applies `change` to the fields, and returns the resulting state.
    pub fn update(mut self, change: impl FnOnce(&mut StateFields)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Reports the tokens that a request of a hook has used, so that the run counts them. A hook
    /// that asks a model, such as a judge of the answer, calls this method once for each request,
    /// also for one that failed after it used tokens.
    ///
    /// `purpose` is a short name for the request, and `model` is the name of the model that
    /// answered, if it is known. The run reports the usage as a
    /// [`HelperUsage`](Event::HelperUsage) event before its next request or at its end, and adds
    /// it to its [usage](crate::Outcome::usage), cost and budgets. All hooks and all clones of the
    /// state report to the same run. Reports are ignored if they are empty or come after the last
    /// [`before_stop`](crate::agent::hook::Hook::before_stop) hook has returned, and in a state
    /// that was created with [`new`](Self::new).
    ///
    /// A recorded or durable run stores the reports of deciding hooks with the value of the effect
    /// in which they decide. The reports of observing hooks are not stored with an effect.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use turnstream::agent::hook::{self, StopDecision};
    /// use turnstream::provider::{Provider, Reply, Scripted};
    /// use turnstream::{Agent, History, Item, Request, TurnStreamExt, Usage};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let used = Usage { input_tokens: 50, output_tokens: 1, ..Usage::default() };
    /// let judge = Arc::new(Scripted::new([Reply::text("yes").usage(used)]));
    /// let polite = hook::before_stop(move |state, turn| {
    ///     let judge = Arc::clone(&judge);
    ///     async move {
    ///         let question = format!("Is this text polite? {}", turn.text());
    ///         let mut request = Request::new(History::from_items("judge", [Item::user(question)]));
    ///         request.trace_context = state.trace_context();
    ///         let verdict = judge.stream_turn(request).into_turn().await?;
    ///         state.report_helper("judge", verdict.model(), verdict.usage());
    ///         Ok(match verdict.text().as_ref() {
    ///             "yes" => StopDecision::Allow,
    ///             _ => StopDecision::Continue("Please be polite.".into()),
    ///         })
    ///     }
    /// });
    /// let agent = Agent::new(Scripted::new(["Good morning!"])).with_hook(polite);
    /// let outcome = agent.run("Greet me").outcome().await;
    /// assert_eq!(outcome.text, "Good morning!");
    /// assert!(outcome.usage.input_tokens >= 50);
    /// # }
    /// ```
    pub fn report_helper(&self, purpose: &str, model: Option<&str>, usage: Usage) {
        let (purpose, model) = (purpose.to_owned(), model.map(str::to_owned));
        self.helpers.push(HelperReport { purpose, model, usage });
    }

    /// Returns the trace context of the run's span, if telemetry code records the run. A hook that
    /// sends requests sets it as their [`trace_context`](crate::Request::trace_context), so that
    /// they are part of the run's trace.
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.helpers.trace_context()
    }

    /// Reports an error of a hook that prepares a request, without ending the run.
    pub(in crate::agent) fn report_failure(&self, error: Error) {
        self.helpers.push_failure(error);
    }

    /// Returns the state after the calls in a turn have been answered. `turn` is `None` if the
    /// calls were resumed.
    pub fn with_tool_results(self, turn: Option<&Turn>, answered: ToolRunOutcome) -> Self {
        let ToolRunOutcome {
            history,
            results,
            pending,
            pollable_call_ids: polls,
            calls_over_limit: limited,
            stop_action,
        } = answered;
        let mut kinds = results.iter().map(|result| result.kind);
        // For a turn without calls, the next action updates the counter.
        let malformed = match results.is_empty() {
            true => self.streaks.malformed_replies,
            false if kinds.all(ResultKind::is_model_error) => self.streaks.malformed_replies + 1,
            false => 0,
        };
        self.update(|it| {
            it.history = history;
            it.counts = it.counts.with_results(&results);
            it.counts.calls_over_limit = limited;
            (it.streaks.malformed_replies, it.streaks.turn_retries) = (malformed, 0);
            if let Some(turn) = turn {
                let repeats = std::mem::take(&mut it.streaks.repeats);
                it.streaks.repeats = repeats.with_iteration(turn, &results, &polls);
            }
            it.evidence.log.record_batch(&results);
            it.approvals = Approvals { resume_verdicts: None, pending };
            // The calls beside a stop action may be resumed, and their results keep the action.
            it.stop_action = stop_action.or(it.stop_action.take().filter(|_| turn.is_none()));
        })
    }

    /// Returns whether the model has stopped on its own, either with a turn without calls or with a
    /// [stop action](crate::Tool::stop) beside which no call is pending. The state must include the
    /// results of the turn's calls. The agent's loop then lets the stop hooks decide.
    pub fn has_stopped(&self, decision: &Decision) -> bool {
        match decision {
            Decision::Stop => true,
            Decision::RunTools => {
                let is_complete =
                    self.approvals.pending.is_empty() && self.counts.calls_over_limit == 0;
                self.stop_action.is_some() && is_complete
            }
            Decision::RefuseTools { .. } | Decision::Continue(_) | Decision::Fail(_) => false,
        }
    }

    /// Returns the state for a wrap-up turn that starts because the loop body was dropped before it
    /// had finished. `results` contains the results received since the body started.
    pub(super) fn after_interruption(
        self,
        history: History,
        requests: u32,
        results: &[ToolResult],
        exceeded: BudgetExceeded,
    ) -> Self {
        self.update(|it| {
            it.history = history;
            it.counts = it.counts.with_results(results);
            it.counts.model_calls = requests.max(it.counts.model_calls);
            it.evidence.log.record_batch(results);
            it.approvals = Approvals::default();
            // The wrap-up turn must not start new work, so no follow-up may be delivered.
            it.follow_up_due = false;
            it.end.exceeded_budget = Some(exceeded);
        })
    }

    /// Applies an action to the state, and returns the events that report the action, along with
    /// the step that follows the events. `id` creates the id for an appended message. The next
    /// iteration starts with the history that includes these events.
    pub(super) fn apply_next_action(
        self,
        next: NextAction,
        id: impl FnOnce() -> String,
    ) -> (Vec<Event>, Step<Event, Self>) {
        let mut wrapping_up = self.end.wrap_up_reason;
        let (transition, message) = match next {
            NextAction::Finish(reason) => {
                return (Vec::new(), Step::StopWith(self.with_end_reason(reason)));
            }
            NextAction::Continue(transition) => (transition, None),
            NextAction::SendMessage { transition, append_reason: why, text } => {
                (transition, Some((why, text)))
            }
            NextAction::WrapUp(reason) => {
                wrapping_up = Some(reason);
                (Transition::WrapUp, Some((AppendReason::WrapUp, prompts::WRAP_UP.into())))
            }
            // If the history ends with text from the model, this text was truncated, so the model
            // is asked to continue it.
            NextAction::Compact => {
                let speaks =
                    self.history.live_newest_first().next().is_some_and(Item::is_model_output);
                let message = speaks
                    .then(|| (AppendReason::Continuation, prompts::CONTINUE_TRUNCATED.into()));
                (Transition::ReactiveCompactRetry, message)
            }
        };
        let state = self.update(|it| {
            it.counts.tool_turns += u32::from(transition == Transition::NextTurn);
            it.streaks.update(transition, message.is_some());
            it.model_selection.provider_index += usize::from(transition == Transition::Fallback);
            it.follow_up_due |= transition == Transition::FollowUp;
            it.transition = Some(transition);
            it.end.wrap_up_reason = wrapping_up;
        });
        let message = message.map(|(why, text)| {
            let items = vec![Item::user(Cow::into_owned(text))];
            Event::Appended { why, id: id(), items }
        });
        let events = message.into_iter().chain([Event::Continued { reason: transition }]);
        (events.collect(), Step::Next(state))
    }

    /// Sets the end reason to `reason` or, in a wrap-up turn, to the reason for the wrap-up turn,
    /// and returns the resulting state.
    pub fn with_end_reason(self, reason: EndReason) -> Self {
        let reason = self.end.wrap_up_reason.unwrap_or(reason);
        self.update(|it| it.end.reason = Some(reason))
    }
}

impl RunCounts {
    /// Returns the counts, with `tool_calls` increased by the number of `results` whose calls were
    /// executed.
    fn with_results(self, results: &[ToolResult]) -> Self {
        let ran = results.iter().filter(|result| result.kind.has_executed()).count();
        let ran = u32::try_from(ran).unwrap_or(u32::MAX);
        Self { tool_calls: self.tool_calls.saturating_add(ran), ..self }
    }
}

impl Streaks {
    /// Updates the counters for a transition to the next iteration.
    fn update(&mut self, transition: Transition, has_message: bool) {
        match transition {
            // A valid reply resets the counters. The results of its calls have already set
            // `malformed_replies`.
            Transition::NextTurn => {
                let malformed = self.malformed_replies;
                self.reset();
                (self.malformed_replies, self.idle_turns) = (malformed, 0);
            }
            Transition::MaxOutputTokensRecovery => {
                let count =
                    if has_message { &mut self.continuations } else { &mut self.truncated_calls };
                *count += 1;
                self.malformed_replies = 0;
            }
            Transition::Corrective if has_message => self.malformed_replies += 1,
            Transition::Corrective => {
                (self.retried_unknown_stop, self.malformed_replies) = (true, 0);
            }
            Transition::Retry => self.turn_retries += 1,
            Transition::Fallback => self.turn_retries = 0,
            // No turn was received, so the counters for turns do not change.
            Transition::ReactiveCompactRetry | Transition::ReasoningRefused => {}
            // The model had finished, so the truncation and correction counters are reset.
            Transition::FollowUp | Transition::Steering => {
                self.reset();
                self.idle_turns = 0;
            }
            Transition::Nudge => {
                self.reset();
                self.idle_turns += 1;
            }
            Transition::StopHookBlocking => {
                (self.idle_turns, self.malformed_replies) = (self.idle_turns + 1, 0);
            }
            Transition::WrapUp | Transition::PauseResumed | Transition::Other => {
                self.malformed_replies = 0;
            }
        }
    }

    /// Resets the counters for truncated and unusable replies.
    fn reset(&mut self) {
        (self.continuations, self.truncated_calls) = (0, 0);
        (self.retried_unknown_stop, self.malformed_replies) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ItemFlag;

    /// Returns the counters: turns, continuations, truncated calls, malformed replies, retries,
    /// provider.
    fn counters(state: &State) -> [u32; 6] {
        let provider = u32::try_from(state.model_selection.provider_index).unwrap();
        let Streaks {
            continuations: recovery_count,
            truncated_calls: cut_calls,
            malformed_replies: malformed,
            turn_retries: retries,
            ..
        } = state.streaks;
        [state.counts.tool_turns, recovery_count, cut_calls, malformed, retries, provider]
    }

    fn after(next: NextAction) -> State {
        let state = State::new(History::empty("h")).update(|it| {
            it.counts.tool_turns = 7;
            it.streaks.continuations = 2;
            it.streaks.truncated_calls = 1;
            it.streaks.malformed_replies = 1;
            it.streaks.turn_retries = 1;
        });
        match state.apply_next_action(next, || "id".to_owned()).1 {
            Step::Next(state) | Step::StopWith(state) => state,
            Step::Value(_) | Step::Stop => panic!("no state"),
        }
    }

    fn with_message(transition: Transition) -> NextAction {
        NextAction::SendMessage { transition, append_reason: AppendReason::Hook, text: "so".into() }
    }

    #[track_caller]
    fn check(next: NextAction, expected: [u32; 6]) {
        assert_eq!(counters(&after(next)), expected);
    }

    #[test]
    fn each_transition_updates_the_run_counters_and_streaks() {
        use Transition as T;
        check(NextAction::Continue(T::NextTurn), [8, 0, 0, 1, 1, 0]);
        check(with_message(T::MaxOutputTokensRecovery), [7, 3, 1, 0, 1, 0]);
        check(NextAction::Continue(T::MaxOutputTokensRecovery), [7, 2, 2, 0, 1, 0]);
        check(with_message(T::StopHookBlocking), [7, 2, 1, 0, 1, 0]);
        check(NextAction::Compact, [7, 2, 1, 1, 1, 0]);
        check(NextAction::Continue(T::ReasoningRefused), [7, 2, 1, 1, 1, 0]);
        check(with_message(T::Corrective), [7, 2, 1, 2, 1, 0]);
        check(NextAction::Continue(T::Corrective), [7, 2, 1, 0, 1, 0]);
        check(NextAction::Continue(T::Retry), [7, 2, 1, 1, 2, 0]);
        check(NextAction::Continue(T::Fallback), [7, 2, 1, 1, 0, 1]);
        check(NextAction::Continue(T::PauseResumed), [7, 2, 1, 0, 1, 0]);
        for transition in [T::Steering, T::FollowUp, T::Nudge] {
            check(NextAction::Continue(transition), [7, 0, 0, 0, 1, 0]);
        }
        check(NextAction::WrapUp(EndReason::Budget), [7, 2, 1, 0, 1, 0]);
    }

    #[test]
    fn a_message_to_the_model_is_emitted_before_continued() {
        let state = State::new(History::empty("h"));
        let (events, step) =
            state.apply_next_action(with_message(Transition::StopHookBlocking), || "id".to_owned());
        assert!(matches!(step, Step::Next(_)), "it ended");
        assert!(matches!(&events[..], [
            Event::Appended { why: AppendReason::Hook, id, items },
            Event::Continued { reason: Transition::StopHookBlocking },
        ] if id == "id" && *items == [Item::user("so")]));
    }

    #[test]
    fn after_compaction_a_truncated_text_is_continued() {
        let history = |item| History::from_items("h", [item]);
        let says = |item| {
            State::new(history(item)).apply_next_action(NextAction::Compact, String::new).0.len()
        };
        assert_eq!(says(Item::text("half a")), 2);
        assert_eq!(says(Item::user("go")), 1);
        assert_eq!(says(Item::text("half a").with_flag(ItemFlag::Tombstone)), 1);
    }

    #[test]
    fn a_wrap_up_turn_ends_the_run_with_the_announced_reason() {
        let wrapping = after(NextAction::WrapUp(EndReason::MaxTurns));
        assert_eq!(
            wrapping.with_end_reason(EndReason::Truncated).end.reason,
            Some(EndReason::MaxTurns)
        );
        assert_eq!(
            after(NextAction::Finish(EndReason::Refused)).end.reason,
            Some(EndReason::Refused)
        );
    }
}
