//! What the agent's loop goes over.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use crate::agent::budget::TargetProgress;
use crate::agent::evidence::EvidenceLog;
use crate::agent::{CompactionState, NextAction, RepeatCounter, ResumeVerdicts, prompts};
use crate::event::{AppendReason, BudgetExceeded, EndReason, Event, Transition};
use crate::item::{History, Item, PendingCall, ResultKind, ToolResult};
use crate::request::ToolSpec;
use crate::stream::Step;
use crate::tool::ToolRunOutcome;
use crate::turn::Turn;

/// The state between two turns: a value that is replaced whole, and never changes while it is shared.
/// Cheap to clone. Its fields are those of [`StateFields`].
///
/// ```
/// use turnstream::History;
/// use turnstream::agent::State;
///
/// let state = State::new(History::from_id("h"));
/// let later = state.clone().update(|fields| fields.counts.model_calls = 3);
/// assert_eq!((state.counts.model_calls, later.counts.model_calls), (0, 3));
/// ```
#[derive(Clone, Debug)]
pub struct State(Arc<StateFields>);

/// The fields of a [`State`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StateFields {
    /// Which agent of a tree it is: the [labels](crate::Agent::with_label) from the first one that has
    /// one down to this one, such as `researcher/reader`. Empty for an agent that is no sub-agent and
    /// was given none.
    pub label: Arc<str>,
    /// All that was said: the history of the run's journal when the iteration began, when the request was
    /// made, and when the calls were answered.
    pub history: History,
    /// How much was done so far.
    pub counts: RunCounts,
    /// What happened several times in a row.
    pub streaks: Streaks,
    /// Which model is asked.
    pub model_selection: ModelSelection,
    /// What the run can prove.
    pub evidence: EvidenceState,
    /// The calls that wait for a verdict.
    pub approvals: Approvals,
    /// How the model gets on towards its token target.
    pub target_progress: TargetProgress,
    /// What is remembered of the requests that near the window.
    pub compaction: CompactionState,
    /// Whether a follow-up is to be said before the next request.
    pub follow_up_due: bool,
    /// Why the loop went on last.
    pub transition: Option<Transition>,
    /// How the run ends.
    pub end: EndState,
}

/// How much was done in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunCounts {
    /// How many requests were sent. The cap counts these.
    pub model_calls: u32,
    /// How many turns led to a next turn by their tools.
    pub tool_turns: u32,
    /// How many calls were run.
    pub tool_calls: u32,
    /// How many calls of the last turn were not run because no more may be started.
    pub calls_over_limit: usize,
}

/// What happened several times in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Streaks {
    /// How many replies in a row could not be used.
    pub malformed_replies: u32,
    /// Whether the model was asked again after a stop reason that is not understood.
    pub retried_unknown_stop: bool,
    /// How often in a row the model was asked to go on with a text that was cut off.
    pub continuations: u32,
    /// How often in a row it was asked again for calls that were cut off.
    pub truncated_calls: u32,
    /// How many turns in a row broke off and were asked for again.
    pub turn_retries: u32,
    /// How many turns in a row had no call, though the model was told to go on.
    pub idle_turns: u32,
    /// How many iterations in a row had the same calls and the same results.
    pub repeats: RepeatCounter,
}

/// Which model is asked.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ModelSelection {
    /// Which of the agent's providers is asked: 0 is the first, the others are its fallbacks.
    pub provider_index: usize,
    /// The model that was asked last; empty before the first request.
    pub model: Arc<str>,
    /// What the last request offered, where a hook has changed the tools.
    pub offered_tools: Option<Arc<[ToolSpec]>>,
}

/// What a run can prove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvidenceState {
    /// What the run has changed and checked.
    pub log: EvidenceLog,
    /// Whether a claim without evidence was sent back, and nothing came that lets it be once more.
    pub claim_rejected: bool,
}

/// The calls of a run that wait for a verdict.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Approvals {
    /// The verdicts on the calls that were pending, if the run begins with these.
    pub resume_verdicts: Option<ResumeVerdicts>,
    /// The calls that wait for a verdict or a result from outside, with the arguments that would run.
    pub pending: Vec<PendingCall>,
}

/// How a run ends.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct EndState {
    /// Why the run ends after this turn, which is the last one and has no tools.
    pub wrap_up_reason: Option<EndReason>,
    /// Why the loop is over.
    pub reason: Option<EndReason>,
    /// What the stop hook, or the policy on evidence, said that ended it.
    pub message: Option<String>,
    /// Which budget was spent.
    pub exceeded_budget: Option<BudgetExceeded>,
}

impl Deref for State {
    type Target = StateFields;

    fn deref(&self) -> &StateFields {
        &self.0
    }
}

impl State {
    /// Begins with a history.
    pub fn new(history: History) -> Self {
        Self(Arc::new(StateFields {
            label: Arc::default(),
            history,
            counts: RunCounts::default(),
            streaks: Streaks::default(),
            model_selection: ModelSelection::default(),
            evidence: EvidenceState::default(),
            approvals: Approvals::default(),
            target_progress: TargetProgress::default(),
            compaction: CompactionState::default(),
            follow_up_due: false,
            transition: None,
            end: EndState::default(),
        }))
    }

    /// The same state but for what `change` changes.
    pub fn update(mut self, change: impl FnOnce(&mut StateFields)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The state when the calls of a turn have their answers. `turn` is unknown where they were
    /// resumed.
    pub fn with_tool_results(self, turn: Option<&Turn>, answered: ToolRunOutcome) -> Self {
        let ToolRunOutcome {
            history,
            results,
            pending,
            pollable_call_ids: polls,
            calls_over_limit: limited,
        } = answered;
        let mut kinds = results.iter().map(|result| result.kind);
        // A reply without calls is judged by what comes of it.
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
        })
    }

    /// The state of a run whose body was dropped in the middle, so that a last turn can begin.
    /// `results` are those that came since the body began.
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
            // A last turn begins nothing new.
            it.follow_up_due = false;
            it.end.exceeded_budget = Some(exceeded);
        })
    }

    /// What comes of a decision: the events that tell it, and the step. `id` names what is said. The next
    /// iteration begins with the history that these events lead to.
    pub(super) fn apply_next_action(
        self,
        next: NextAction,
        id: impl FnOnce() -> String,
    ) -> (Vec<Event>, Step<Event, Self>) {
        let mut wrapping_up = self.end.wrap_up_reason;
        let (transition, said) = match next {
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
            // After its own words, which were cut off, the model is asked to go on.
            NextAction::Compact => {
                let speaks =
                    self.history.live_newest_first().next().is_some_and(Item::is_model_output);
                let said = speaks
                    .then(|| (AppendReason::Continuation, prompts::CONTINUE_TRUNCATED.into()));
                (Transition::ReactiveCompactRetry, said)
            }
        };
        let state = self.update(|it| {
            it.counts.tool_turns += u32::from(transition == Transition::NextTurn);
            it.streaks.update(transition, said.is_some());
            it.model_selection.provider_index += usize::from(transition == Transition::Fallback);
            it.follow_up_due |= transition == Transition::FollowUp;
            it.transition = Some(transition);
            it.end.wrap_up_reason = wrapping_up;
        });
        let said = said.map(|(why, text)| {
            let items = vec![Item::user(Cow::into_owned(text))];
            Event::Appended { why, id: id(), items }
        });
        let events = said.into_iter().chain([Event::Continued { reason: transition }]);
        (events.collect(), Step::Next(state))
    }

    /// The state at the end.
    pub fn with_end_reason(self, reason: EndReason) -> Self {
        let reason = self.end.wrap_up_reason.unwrap_or(reason);
        self.update(|it| it.end.reason = Some(reason))
    }
}

impl RunCounts {
    /// With the calls that have these results.
    fn with_results(self, results: &[ToolResult]) -> Self {
        let ran = results.iter().filter(|result| result.kind.has_executed()).count();
        let ran = u32::try_from(ran).unwrap_or(u32::MAX);
        Self { tool_calls: self.tool_calls.saturating_add(ran), ..self }
    }
}

impl Streaks {
    /// What each transition counts, resets and keeps.
    fn update(&mut self, transition: Transition, said: bool) {
        match transition {
            // One good reply resets what counts in a row; only its results tell whether it is one.
            Transition::NextTurn => {
                let malformed = self.malformed_replies;
                self.reset();
                (self.malformed_replies, self.idle_turns) = (malformed, 0);
            }
            Transition::MaxOutputTokensRecovery => {
                let count = if said { &mut self.continuations } else { &mut self.truncated_calls };
                *count += 1;
                self.malformed_replies = 0;
            }
            Transition::Corrective if said => self.malformed_replies += 1,
            Transition::Corrective => {
                (self.retried_unknown_stop, self.malformed_replies) = (true, 0);
            }
            Transition::Retry => self.turn_retries += 1,
            Transition::Fallback => self.turn_retries = 0,
            // No turn came, so that nothing that counts turns changes.
            Transition::ReactiveCompactRetry => {}
            // The model had finished what it said: no row goes on after it.
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

    /// Nothing is counted in a row any more.
    fn reset(&mut self) {
        (self.continuations, self.truncated_calls) = (0, 0);
        (self.retried_unknown_stop, self.malformed_replies) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Mark;

    /// The counters: turns, continuations, calls cut off, malformed, retries, provider.
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
        let state = State::new(History::from_id("h")).update(|it| {
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

    fn said(transition: Transition) -> NextAction {
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
        check(said(T::MaxOutputTokensRecovery), [7, 3, 1, 0, 1, 0]);
        check(NextAction::Continue(T::MaxOutputTokensRecovery), [7, 2, 2, 0, 1, 0]);
        check(said(T::StopHookBlocking), [7, 2, 1, 0, 1, 0]);
        check(NextAction::Compact, [7, 2, 1, 1, 1, 0]);
        check(said(T::Corrective), [7, 2, 1, 2, 1, 0]);
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
        let state = State::new(History::from_id("h"));
        let (events, step) =
            state.apply_next_action(said(Transition::StopHookBlocking), || "id".to_owned());
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
        assert_eq!(says(Item::text("half a").with_mark(Mark::Tombstone)), 1);
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
