//! The fold of a run's events, for everybody who wants to look.

use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::event::{
    BudgetExceeded, EndReason, Event, InterruptedPhase, Outcome, ToolEvent, UndeliveredInput,
};
use crate::item::{EffectReport, History, Item, ToolCall};
use crate::journal::open_call::Interruption;
use crate::journal::run_fold::RunFold;
use crate::lock::lock_ignoring_poison;
use crate::usage::Usage;

/// What the events so far have made of the history they began with. Clones share it.
///
/// It is in memory and does no I/O. Whoever holds it can look at any time, also after the stream
/// was dropped: a turn that is still open is shown as interrupted, and results that are there
/// stand in call order. What it shows can be sent after [`History::settled`].
///
/// Events of sub-agents go into journals of their own, one a call: see [`nested_journal`](Self::nested_journal).
/// They change nothing here.
///
/// ```
/// use turnstream::{Event, History, Item, Journal, event::AppendReason};
///
/// let journal = Journal::new(History::from_id("h"));
/// journal.observe(&Event::Appended {
///     why: AppendReason::Input,
///     id: "i".to_owned(),
///     items: vec![Item::user("hello")],
/// });
/// assert_eq!(journal.history().len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Journal(Arc<Mutex<JournalState>>);

/// The story of a run, and those of its sub-agents.
#[derive(Debug)]
struct JournalState {
    fold: RunFold,
    /// One journal a call that a sub-agent ran as, in the order of their first events. A child's lock
    /// is taken below its parent's and never the other way.
    nested_journals: Vec<(String, Journal)>,
}

impl Journal {
    /// Begins with what is there.
    pub fn new(history: History) -> Self {
        Self(Arc::new(Mutex::new(JournalState {
            fold: RunFold::new(history),
            nested_journals: Vec::new(),
        })))
    }

    /// Takes the next event. Taps do this; call it for events that pass no tap.
    pub fn observe(&self, event: &Event) {
        self.with_state(|book| book.observe(event));
    }

    /// The history as it is now.
    pub fn history(&self) -> History {
        self.with_state(|book| book.history())
    }

    /// The items that were appended since the beginning, in order, as they were appended: see
    /// [`Outcome::new_items`](crate::Outcome::new_items).
    pub fn new_items(&self) -> Vec<Item> {
        self.with_state(|book| book.fold.new_items())
    }

    /// The tokens of all requests so far, void and unfinished attempts included, those of sub-agents
    /// not.
    pub fn usage(&self) -> Usage {
        self.with_state(|book| book.fold.usage())
    }

    /// Where an interrupt would find the run; see [`InterruptedPhase`].
    pub fn phase(&self) -> InterruptedPhase {
        self.with_state(|book| book.fold.phase())
    }

    /// Whether every call of a completed turn has its result.
    pub fn all_calls_answered(&self) -> bool {
        self.with_state(|book| book.fold.all_calls_answered())
    }

    /// Whether a turn has begun and is not complete.
    pub fn has_open_turn(&self) -> bool {
        self.with_state(|book| book.fold.has_open_turn())
    }

    /// The journal of the sub-agent that runs, or ran, as the call `call_id`; `None` before its
    /// first event.
    ///
    /// It begins with an empty history whose id is this one's, a slash and the call id. It stays
    /// when the run is dropped or interrupted, and goes on when the sub-agent does. What the
    /// sub-agent's own sub-agents did is in the nested journals of that journal.
    ///
    /// ```
    /// use turnstream::{Event, History, Item, Journal, event::AppendReason};
    ///
    /// let journal = Journal::new(History::from_id("h"));
    /// let asked = Event::Appended {
    ///     why: AppendReason::Input,
    ///     id: "i".to_owned(),
    ///     items: vec![Item::user("read all files")],
    /// };
    /// journal.observe(&Event::Nested {
    ///     call_id: "c1".to_owned(),
    ///     name: "reader".to_owned(),
    ///     event: Box::new(asked),
    /// });
    /// assert!(journal.history().is_empty());
    /// assert_eq!(journal.nested_call_ids(), ["c1"]);
    /// let reader = journal.nested_journal("c1").unwrap().history();
    /// assert_eq!((reader.id(), reader.len()), ("h/c1", 1));
    /// ```
    pub fn nested_journal(&self, call_id: &str) -> Option<Journal> {
        self.with_state(|book| book.nested_journal(call_id).cloned())
    }

    /// The calls that sub-agents ran as, in the order of their first events.
    pub fn nested_call_ids(&self) -> Vec<String> {
        self.with_state(|book| book.nested_journals.iter().map(|(id, _)| id.clone()).collect())
    }

    /// The tokens of the sub-agents so far, with those of their own sub-agents and so on.
    pub fn nested_usage(&self) -> Usage {
        self.with_state(|book| book.nested_usage())
    }

    /// The history, and how many of its entries have their final position: the turn that is open and
    /// the results that wait for those of other calls are not among them.
    pub(crate) fn history_and_final_len(&self) -> (History, usize) {
        self.with_state(|book| (book.history(), book.fold.final_history().len()))
    }

    /// Notes with what arguments calls are pending.
    pub(crate) fn set_effective_calls(&self, calls: impl IntoIterator<Item = ToolCall>) {
        self.with_state(|book| {
            calls.into_iter().for_each(|call| book.fold.set_effective_call(call));
        });
    }

    /// Notes what a call put on record that may end without a result of its own.
    pub(crate) fn set_effect_report(&self, call_id: &str, report: EffectReport) {
        self.with_state(|book| book.fold.set_effect_report(call_id, report));
    }

    /// A result for the next call that has none, already observed: the calls were dropped, and the
    /// run continues.
    pub(crate) fn next_missing_result(&self, cut: Interruption) -> Option<Event> {
        self.with_state(|book| {
            let event = Event::Tool(book.fold.next_missing_result(cut)?);
            book.observe(&event);
            Some(event)
        })
    }

    /// How many requests were begun.
    pub(crate) fn requests(&self) -> u32 {
        self.with_state(|book| book.fold.requests())
    }

    /// The next event of an ending, already observed: a made-up result for each call that has
    /// none, unless they are pending, then `Finished`.
    pub(crate) fn next_ending_event(
        &self,
        reason: EndReason,
        error: Option<&Error>,
        budget: Option<BudgetExceeded>,
        undelivered: impl FnOnce() -> Vec<UndeliveredInput>,
    ) -> Event {
        self.with_state(|book| {
            let event = match book.fold.missing_result_before_end(reason, budget) {
                Some(output) => Event::Tool(output),
                None => {
                    let outcome = book.outcome(reason, error.cloned(), budget, undelivered());
                    Event::Finished(Box::new(outcome))
                }
            };
            book.observe(&event);
            event
        })
    }

    /// How it would end now. Open calls are shown where the reason is `Pending`.
    pub fn outcome(&self, reason: EndReason, error: Option<Error>) -> Outcome {
        self.with_state(|book| book.outcome(reason, error, None, Vec::new()))
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut JournalState) -> T) -> T {
        // Nothing of a user runs while the lock is held, and below it only those of children are
        // taken.
        f(&mut lock_ignoring_poison(&self.0))
    }
}

impl JournalState {
    fn observe(&mut self, event: &Event) {
        match event {
            Event::Tool(ToolEvent::Nested { call_id, event, .. })
            | Event::Nested { call_id, event, .. } => self.observe_nested(call_id, event),
            event => self.fold.observe(event),
        }
    }

    /// Takes the next event of the sub-agent that runs as `call_id`. One that was suspended continues
    /// with its history.
    fn observe_nested(&mut self, call_id: &str, event: &Event) {
        if is_ignored_event(event) {
            return;
        }
        if let Some(child) = self.nested_journal(call_id) {
            return child.observe(event);
        }
        let parent = self.fold.final_history();
        let begins = || History::from_id(format!("{}/{call_id}", parent.id()));
        let child = Journal::new(parent.nested_history(call_id).cloned().unwrap_or_else(begins));
        child.observe(event);
        self.nested_journals.push((call_id.to_owned(), child));
    }

    /// The newest is looked at first: it is the one that runs.
    fn nested_journal(&self, call_id: &str) -> Option<&Journal> {
        self.nested_journals.iter().rev().find(|(id, _)| id == call_id).map(|(_, child)| child)
    }

    /// Of all levels.
    fn nested_usage(&self) -> Usage {
        self.nested_journals.iter().map(|(_, child)| child.usage() + child.nested_usage()).sum()
    }

    fn history(&self) -> History {
        self.fold.history(|call_id| self.nested_journal(call_id).map(Journal::history))
    }

    fn outcome(
        &self,
        reason: EndReason,
        error: Option<Error>,
        budget: Option<BudgetExceeded>,
        undelivered: Vec<UndeliveredInput>,
    ) -> Outcome {
        let (history, usage) = (self.history(), self.nested_usage());
        self.fold.outcome(history, usage, reason, error, budget, undelivered)
    }
}

/// Whether it is an event that nobody knows, in however many wrappings: a store does not keep it.
fn is_ignored_event(event: &Event) -> bool {
    match event {
        Event::Unknown => true,
        Event::Nested { event, .. } | Event::Tool(ToolEvent::Nested { event, .. }) => {
            is_ignored_event(event)
        }
        Event::Appended { .. }
        | Event::Rewritten { .. }
        | Event::TurnStarted { .. }
        | Event::Turn(_)
        | Event::Tool(_)
        | Event::Continued { .. }
        | Event::Finished(_) => false,
    }
}
