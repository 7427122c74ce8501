//! What the agent's loop goes over.

use std::borrow::Cow;
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

/// The state between two turns: a plain value, replaced whole.
#[derive(Clone, Debug)]
pub struct State {
    /// Which agent of a tree it is: the [labels](crate::Agent::with_label) from the first one that has
    /// one down to this one, such as `researcher/reader`. Empty for an agent that is no sub-agent and
    /// was given none.
    pub label: Arc<str>,
    /// All that was said: the history of the run's journal when the iteration began, when the request was
    /// made, and when the calls were answered.
    pub history: History,
    /// How many requests were sent. The cap counts these.
    pub model_calls: u32,
    /// How many turns led to a next turn by their tools.
    pub turn_count: u32,
    /// How many calls were run.
    pub tool_calls: u32,
    /// How many calls of the last turn were not run because no more may be started.
    pub limited_calls: usize,
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
    /// Which of the agent's providers is asked: 0 is the first, the others are its fallbacks.
    pub provider: usize,
    /// How many iterations in a row had the same calls and the same results.
    pub repeats: Repeats,
    /// What the run has changed and checked.
    pub standing: Standing,
    /// Whether a claim without evidence was sent back, and nothing came that lets it be once more.
    pub sent_back: bool,
    /// How many turns in a row had no call, though the model was told to go on.
    pub idle: u32,
    /// How the model gets on towards its token target.
    pub target: Tracker,
    /// Why the run ends behind this turn, which is the last one and has no tools.
    pub wrapping_up: Option<Reason>,
    /// Whether a follow-up is to be said before the next request.
    pub follow_up: bool,
    /// The model that was asked last; empty before the first request.
    pub model: Arc<str>,
    /// The verdicts on the calls that were pending, if the run begins with these.
    pub resuming: Option<Verdicts>,
    /// The calls that wait for a verdict or a result from outside, with the arguments that would run.
    pub pending: Vec<PendingCall>,
    /// What is remembered of the requests that near the window.
    pub room: Room,
    /// What the last request offered, where a hook has changed the tools.
    pub offered: Option<Arc<[ToolSpec]>>,
    /// Why the loop went on last.
    pub transition: Option<Transition>,
    /// Why the loop is over.
    pub ending: Option<Reason>,
    /// What the stop hook, or the policy on evidence, said that ended it.
    pub why: Option<String>,
    /// Which budget was spent.
    pub exceeded: Option<Exceeded>,
}

impl State {
    /// Begins with a history.
    pub fn new(history: History) -> Self {
        Self {
            label: Arc::default(),
            history,
            model_calls: 0,
            turn_count: 0,
            tool_calls: 0,
            limited_calls: 0,
            malformed: 0,
            asked_again: false,
            recovery_count: 0,
            cut_calls: 0,
            retries: 0,
            provider: 0,
            repeats: Repeats::default(),
            standing: Standing::default(),
            sent_back: false,
            idle: 0,
            target: Tracker::default(),
            wrapping_up: None,
            follow_up: false,
            model: Arc::default(),
            resuming: None,
            pending: Vec::new(),
            room: Room::default(),
            offered: None,
            transition: None,
            ending: None,
            why: None,
            exceeded: None,
        }
    }

    /// The state when the calls of a turn have their answers. `turn` is unknown where they were
    /// resumed.
    pub fn answered(mut self, turn: Option<&Turn>, answered: Answered) -> Self {
        self.standing.note(&answered.results);
        let kinds = || answered.results.iter().map(|result| result.kind);
        let ran = kinds().filter(|kind| kind.has_run()).count();
        // A reply without calls is judged by what comes of it.
        let malformed = match answered.results.is_empty() {
            true => self.malformed,
            false if kinds().all(ResultKind::is_models_fault) => self.malformed + 1,
            false => 0,
        };
        let repeats = match turn {
            Some(turn) => self.repeats.and(turn, &answered.results, &answered.polls),
            None => self.repeats,
        };
        Self {
            repeats,
            tool_calls: self.tool_calls.saturating_add(u32::try_from(ran).unwrap_or(u32::MAX)),
            limited_calls: answered.limited,
            malformed,
            retries: 0,
            resuming: None,
            history: answered.history,
            pending: answered.pending,
            ..self
        }
    }

    /// The state of a run whose body was dropped in the middle, so that a last turn can begin.
    /// `results` are those that came since the body began.
    pub(super) fn cut_short(
        mut self,
        history: History,
        requests: u32,
        results: &[ToolResult],
        exceeded: Exceeded,
    ) -> Self {
        self.standing.note(results);
        let ran = results.iter().filter(|result| result.kind.has_run()).count();
        Self {
            history,
            model_calls: requests.max(self.model_calls),
            tool_calls: self.tool_calls.saturating_add(u32::try_from(ran).unwrap_or(u32::MAX)),
            exceeded: Some(exceeded),
            resuming: None,
            pending: Vec::new(),
            // A last turn begins nothing new.
            follow_up: false,
            ..self
        }
    }

    /// What comes of a decision: the events that tell it, and the step. `id` names what is said. The next
    /// iteration begins with the history that these events lead to.
    pub(super) fn then(
        self,
        next: Next,
        id: impl FnOnce() -> String,
    ) -> (Vec<Event>, Step<Event, Self>) {
        let mut wrapping_up = self.wrapping_up;
        let (transition, said) = match next {
            Next::Finish(reason) => return (Vec::new(), Step::StopWith(self.ended(reason))),
            Next::Continue(transition) => (transition, None),
            Next::Say { transition, why, text } => (transition, Some((why, text))),
            Next::WrapUp(reason) => {
                wrapping_up = Some(reason);
                (Transition::WrapUp, Some((AppendedWhy::WrapUp, words::WRAP_UP.into())))
            }
            // Behind its own words, which were cut off, the model is asked to go on.
            Next::Compact => {
                let speaks = self.history.newest_live().next().is_some_and(Item::is_models_words);
                let said = speaks.then(|| (AppendedWhy::Continuation, words::CUT_OFF.into()));
                (Transition::ReactiveCompactRetry, said)
            }
        };
        let state = Self { wrapping_up, ..self.counted(transition, said.is_some()) };
        let mut events = Vec::with_capacity(2);
        if let Some((why, text)) = said {
            let item = Item::user(Cow::into_owned(text));
            events.push(Event::Appended { why, id: id(), items: vec![item] });
        }
        events.push(Event::Continued { reason: transition });
        (events, Step::Next(state))
    }

    /// The state at the end.
    pub fn ended(self, reason: Reason) -> Self {
        Self { ending: Some(self.wrapping_up.unwrap_or(reason)), ..self }
    }

    /// What each transition counts, resets and keeps.
    fn counted(self, transition: Transition, said: bool) -> Self {
        let next = Self { transition: Some(transition), ..self };
        match transition {
            // One good reply resets what counts in a row; only its results tell whether it is one.
            Transition::NextTurn => Self {
                turn_count: next.turn_count + 1,
                idle: 0,
                recovery_count: 0,
                cut_calls: 0,
                asked_again: false,
                ..next
            },
            Transition::MaxOutputTokensRecovery if said => {
                Self { recovery_count: next.recovery_count + 1, malformed: 0, ..next }
            }
            Transition::MaxOutputTokensRecovery => {
                Self { cut_calls: next.cut_calls + 1, malformed: 0, ..next }
            }
            Transition::Corrective if said => Self { malformed: next.malformed + 1, ..next },
            Transition::Corrective => Self { asked_again: true, malformed: 0, ..next },
            Transition::Retry => Self { retries: next.retries + 1, ..next },
            Transition::Fallback => Self { provider: next.provider + 1, retries: 0, ..next },
            // No turn came, so that nothing that counts turns changes.
            Transition::ReactiveCompactRetry => next,
            // The model had finished what it said: no row goes on behind it.
            Transition::FollowUp => Self { follow_up: true, idle: 0, ..next.anew() },
            Transition::Steering => Self { idle: 0, ..next.anew() },
            Transition::Nudge => Self { idle: next.idle + 1, ..next.anew() },
            Transition::StopHookBlocking => Self { idle: next.idle + 1, malformed: 0, ..next },
            Transition::WrapUp | Transition::PauseResumed | Transition::Other => {
                Self { malformed: 0, ..next }
            }
        }
    }

    /// Nothing is counted in a row any more.
    fn anew(self) -> Self {
        Self { recovery_count: 0, cut_calls: 0, asked_again: false, malformed: 0, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Mark;

    /// The counters: turns, continuations, calls cut off, malformed, retries, provider.
    fn counters(state: &State) -> [u32; 6] {
        let provider = u32::try_from(state.provider).unwrap();
        let State { turn_count, recovery_count, cut_calls, malformed, retries, .. } = *state;
        [turn_count, recovery_count, cut_calls, malformed, retries, provider]
    }

    fn after(next: Next) -> State {
        let state = State {
            turn_count: 7,
            recovery_count: 2,
            cut_calls: 1,
            malformed: 1,
            retries: 1,
            ..State::new(History::with_id("h"))
        };
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
        let state = State::new(History::with_id("h"));
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
        assert_eq!(says(Item::text("half a").marked(Mark::Tombstone)), 1);
    }

    #[test]
    fn the_run_ends_for_the_reason_that_the_last_turn_was_announced_for() {
        let wrapping = after(Next::WrapUp(Reason::MaxTurns));
        assert_eq!(wrapping.ended(Reason::Truncated).ending, Some(Reason::MaxTurns));
        assert_eq!(after(Next::Finish(Reason::Refused)).ending, Some(Reason::Refused));
    }
}
