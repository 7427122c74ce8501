//! What the agent's loop goes over.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use crate::agent::budget::Tracker;
use crate::agent::evidence::Standing;
use crate::agent::{Next, Repeats, Room, Verdicts, words};
use crate::event::{AppendedWhy, Event, Exceeded, Reason, Transition};
use crate::item::{History, Item, PendingCall, ResultKind, ToolResult};
use crate::request::ToolSpec;
use crate::stream::Step;
use crate::tool::Answered;
use crate::turn::Turn;

/// The state between two turns: a value that is replaced whole, and never changes while it is shared.
/// Cheap to clone. Its fields are those of [`StateFields`].
///
/// ```
/// use turnstream::History;
/// use turnstream::agent::State;
///
/// let state = State::new(History::from_id("h"));
/// let later = state.clone().with(|fields| fields.counts.model_calls = 3);
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
    pub counts: Counts,
    /// What happened several times in a row.
    pub streaks: Streaks,
    /// Which model is asked.
    pub asked: Asked,
    /// What the run can prove.
    pub claims: Claims,
    /// The calls that wait for a verdict.
    pub approvals: Approvals,
    /// How the model gets on towards its token target.
    pub target: Tracker,
    /// What is remembered of the requests that near the window.
    pub room: Room,
    /// Whether a follow-up is to be said before the next request.
    pub follow_up: bool,
    /// Why the loop went on last.
    pub transition: Option<Transition>,
    /// How the run ends.
    pub ending: Ending,
}

/// How much was done in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// How many requests were sent. The cap counts these.
    pub model_calls: u32,
    /// How many turns led to a next turn by their tools.
    pub turn_count: u32,
    /// How many calls were run.
    pub tool_calls: u32,
    /// How many calls of the last turn were not run because no more may be started.
    pub limited_calls: usize,
}

/// What happened several times in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Streaks {
    /// How many replies in a row could not be used.
    pub malformed: u32,
    /// Whether the model was asked again after a stop reason that is not understood.
    pub asked_again: bool,
    /// How often in a row the model was asked to go on with a text that was cut off.
    pub recovery_count: u32,
    /// How often in a row it was asked again for calls that were cut off.
    pub cut_calls: u32,
    /// How many turns in a row broke off and were asked for again.
    pub retries: u32,
    /// How many turns in a row had no call, though the model was told to go on.
    pub idle: u32,
    /// How many iterations in a row had the same calls and the same results.
    pub repeats: Repeats,
}

/// Which model is asked.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Asked {
    /// Which of the agent's providers is asked: 0 is the first, the others are its fallbacks.
    pub provider: usize,
    /// The model that was asked last; empty before the first request.
    pub model: Arc<str>,
    /// What the last request offered, where a hook has changed the tools.
    pub offered: Option<Arc<[ToolSpec]>>,
}

/// What a run can prove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claims {
    /// What the run has changed and checked.
    pub standing: Standing,
    /// Whether a claim without evidence was sent back, and nothing came that lets it be once more.
    pub sent_back: bool,
}

/// The calls of a run that wait for a verdict.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Approvals {
    /// The verdicts on the calls that were pending, if the run begins with these.
    pub resuming: Option<Verdicts>,
    /// The calls that wait for a verdict or a result from outside, with the arguments that would run.
    pub pending: Vec<PendingCall>,
}

/// How a run ends.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Ending {
    /// Why the run ends after this turn, which is the last one and has no tools.
    pub wrapping_up: Option<Reason>,
    /// Why the loop is over.
    pub reason: Option<Reason>,
    /// What the stop hook, or the policy on evidence, said that ended it.
    pub why: Option<String>,
    /// Which budget was spent.
    pub exceeded: Option<Exceeded>,
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
            counts: Counts::default(),
            streaks: Streaks::default(),
            asked: Asked::default(),
            claims: Claims::default(),
            approvals: Approvals::default(),
            target: Tracker::default(),
            room: Room::default(),
            follow_up: false,
            transition: None,
            ending: Ending::default(),
        }))
    }

    /// The same state but for what `change` changes.
    pub fn with(mut self, change: impl FnOnce(&mut StateFields)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The state when the calls of a turn have their answers. `turn` is unknown where they were
    /// resumed.
    pub fn answered(self, turn: Option<&Turn>, answered: Answered) -> Self {
        let Answered { history, results, pending, polls, limited } = answered;
        let mut kinds = results.iter().map(|result| result.kind);
        // A reply without calls is judged by what comes of it.
        let malformed = match results.is_empty() {
            true => self.streaks.malformed,
            false if kinds.all(ResultKind::is_model_error) => self.streaks.malformed + 1,
            false => 0,
        };
        self.with(|it| {
            it.history = history;
            it.counts = it.counts.and_ran(&results);
            it.counts.limited_calls = limited;
            (it.streaks.malformed, it.streaks.retries) = (malformed, 0);
            if let Some(turn) = turn {
                let repeats = std::mem::take(&mut it.streaks.repeats);
                it.streaks.repeats = repeats.and(turn, &results, &polls);
            }
            it.claims.standing.note(&results);
            it.approvals = Approvals { resuming: None, pending };
        })
    }

    /// The state of a run whose body was dropped in the middle, so that a last turn can begin.
    /// `results` are those that came since the body began.
    pub(super) fn cut_short(
        self,
        history: History,
        requests: u32,
        results: &[ToolResult],
        exceeded: Exceeded,
    ) -> Self {
        self.with(|it| {
            it.history = history;
            it.counts = it.counts.and_ran(results);
            it.counts.model_calls = requests.max(it.counts.model_calls);
            it.claims.standing.note(results);
            it.approvals = Approvals::default();
            // A last turn begins nothing new.
            it.follow_up = false;
            it.ending.exceeded = Some(exceeded);
        })
    }

    /// What comes of a decision: the events that tell it, and the step. `id` names what is said. The next
    /// iteration begins with the history that these events lead to.
    pub(super) fn then(
        self,
        next: Next,
        id: impl FnOnce() -> String,
    ) -> (Vec<Event>, Step<Event, Self>) {
        let mut wrapping_up = self.ending.wrapping_up;
        let (transition, said) = match next {
            Next::Finish(reason) => return (Vec::new(), Step::StopWith(self.ended(reason))),
            Next::Continue(transition) => (transition, None),
            Next::Say { transition, why, text } => (transition, Some((why, text))),
            Next::WrapUp(reason) => {
                wrapping_up = Some(reason);
                (Transition::WrapUp, Some((AppendedWhy::WrapUp, words::WRAP_UP.into())))
            }
            // After its own words, which were cut off, the model is asked to go on.
            Next::Compact => {
                let speaks =
                    self.history.live_newest_first().next().is_some_and(Item::is_model_output);
                let said = speaks.then(|| (AppendedWhy::Continuation, words::CUT_OFF.into()));
                (Transition::ReactiveCompactRetry, said)
            }
        };
        let state = self.with(|it| {
            it.counts.turn_count += u32::from(transition == Transition::NextTurn);
            it.streaks.count(transition, said.is_some());
            it.asked.provider += usize::from(transition == Transition::Fallback);
            it.follow_up |= transition == Transition::FollowUp;
            it.transition = Some(transition);
            it.ending.wrapping_up = wrapping_up;
        });
        let said = said.map(|(why, text)| {
            let items = vec![Item::user(Cow::into_owned(text))];
            Event::Appended { why, id: id(), items }
        });
        let events = said.into_iter().chain([Event::Continued { reason: transition }]);
        (events.collect(), Step::Next(state))
    }

    /// The state at the end.
    pub fn ended(self, reason: Reason) -> Self {
        let reason = self.ending.wrapping_up.unwrap_or(reason);
        self.with(|it| it.ending.reason = Some(reason))
    }
}

impl Counts {
    /// With the calls that have these results.
    fn and_ran(self, results: &[ToolResult]) -> Self {
        let ran = results.iter().filter(|result| result.kind.has_executed()).count();
        let ran = u32::try_from(ran).unwrap_or(u32::MAX);
        Self { tool_calls: self.tool_calls.saturating_add(ran), ..self }
    }
}

impl Streaks {
    /// What each transition counts, resets and keeps.
    fn count(&mut self, transition: Transition, said: bool) {
        match transition {
            // One good reply resets what counts in a row; only its results tell whether it is one.
            Transition::NextTurn => {
                let malformed = self.malformed;
                self.begin_anew();
                (self.malformed, self.idle) = (malformed, 0);
            }
            Transition::MaxOutputTokensRecovery => {
                let count = if said { &mut self.recovery_count } else { &mut self.cut_calls };
                *count += 1;
                self.malformed = 0;
            }
            Transition::Corrective if said => self.malformed += 1,
            Transition::Corrective => (self.asked_again, self.malformed) = (true, 0),
            Transition::Retry => self.retries += 1,
            Transition::Fallback => self.retries = 0,
            // No turn came, so that nothing that counts turns changes.
            Transition::ReactiveCompactRetry => {}
            // The model had finished what it said: no row goes on after it.
            Transition::FollowUp | Transition::Steering => {
                self.begin_anew();
                self.idle = 0;
            }
            Transition::Nudge => {
                self.begin_anew();
                self.idle += 1;
            }
            Transition::StopHookBlocking => {
                (self.idle, self.malformed) = (self.idle + 1, 0);
            }
            Transition::WrapUp | Transition::PauseResumed | Transition::Other => self.malformed = 0,
        }
    }

    /// Nothing is counted in a row any more.
    fn begin_anew(&mut self) {
        (self.recovery_count, self.cut_calls) = (0, 0);
        (self.asked_again, self.malformed) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Mark;

    /// The counters: turns, continuations, calls cut off, malformed, retries, provider.
    fn counters(state: &State) -> [u32; 6] {
        let provider = u32::try_from(state.asked.provider).unwrap();
        let Streaks { recovery_count, cut_calls, malformed, retries, .. } = state.streaks;
        [state.counts.turn_count, recovery_count, cut_calls, malformed, retries, provider]
    }

    fn after(next: Next) -> State {
        let state = State::new(History::from_id("h")).with(|it| {
            it.counts.turn_count = 7;
            it.streaks.recovery_count = 2;
            it.streaks.cut_calls = 1;
            it.streaks.malformed = 1;
            it.streaks.retries = 1;
        });
        match state.then(next, || "id".to_owned()).1 {
            Step::Next(state) | Step::StopWith(state) => state,
            Step::Value(_) | Step::Stop => panic!("no state"),
        }
    }

    fn said(transition: Transition) -> Next {
        Next::Say { transition, why: AppendedWhy::Hook, text: "so".into() }
    }

    #[track_caller]
    fn check(next: Next, expected: [u32; 6]) {
        assert_eq!(counters(&after(next)), expected);
    }

    #[test]
    fn what_each_transition_counts_resets_and_keeps() {
        use Transition as T;
        check(Next::Continue(T::NextTurn), [8, 0, 0, 1, 1, 0]);
        check(said(T::MaxOutputTokensRecovery), [7, 3, 1, 0, 1, 0]);
        check(Next::Continue(T::MaxOutputTokensRecovery), [7, 2, 2, 0, 1, 0]);
        check(said(T::StopHookBlocking), [7, 2, 1, 0, 1, 0]);
        check(Next::Compact, [7, 2, 1, 1, 1, 0]);
        check(said(T::Corrective), [7, 2, 1, 2, 1, 0]);
        check(Next::Continue(T::Corrective), [7, 2, 1, 0, 1, 0]);
        check(Next::Continue(T::Retry), [7, 2, 1, 1, 2, 0]);
        check(Next::Continue(T::Fallback), [7, 2, 1, 1, 0, 1]);
        check(Next::Continue(T::PauseResumed), [7, 2, 1, 0, 1, 0]);
        for transition in [T::Steering, T::FollowUp, T::Nudge] {
            check(Next::Continue(transition), [7, 0, 0, 0, 1, 0]);
        }
        check(Next::WrapUp(Reason::Budget), [7, 2, 1, 0, 1, 0]);
    }

    #[test]
    fn what_is_said_is_told_before_the_run_goes_on() {
        let state = State::new(History::from_id("h"));
        let (events, step) = state.then(said(Transition::StopHookBlocking), || "id".to_owned());
        assert!(matches!(step, Step::Next(_)), "it ended");
        assert!(matches!(&events[..], [
            Event::Appended { why: AppendedWhy::Hook, id, items },
            Event::Continued { reason: Transition::StopHookBlocking },
        ] if id == "id" && *items == [Item::user("so")]));
    }

    #[test]
    fn behind_its_own_words_a_compacted_model_is_asked_to_go_on() {
        let history = |item| History::from_items("h", [item]);
        let says = |item| State::new(history(item)).then(Next::Compact, String::new).0.len();
        assert_eq!(says(Item::text("half a")), 2);
        assert_eq!(says(Item::user("go")), 1);
        assert_eq!(says(Item::text("half a").with_mark(Mark::Tombstone)), 1);
    }

    #[test]
    fn the_run_ends_for_the_reason_that_the_last_turn_was_announced_for() {
        let wrapping = after(Next::WrapUp(Reason::MaxTurns));
        assert_eq!(wrapping.ended(Reason::Truncated).ending.reason, Some(Reason::MaxTurns));
        assert_eq!(after(Next::Finish(Reason::Refused)).ending.reason, Some(Reason::Refused));
    }
}
