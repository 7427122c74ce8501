//! The shared state that results from a run's events.

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

/// Tracks the history, usage and state that result from a run's events so far. Clones of a journal
/// share the same state.
///
/// A journal is kept in memory and performs no I/O. A journal can be read at any time, even after
/// the stream was dropped. A turn that is still open appears as an interrupted turn, and the
/// results received so far are in the order of their calls. To send the history to a provider, call
/// [`History::settled`] first.
///
/// A sub-agent's events are recorded in a nested journal, one for each call that runs a sub-agent;
/// see [`nested_journal`](Self::nested_journal). A sub-agent's events do not change this journal's
/// history.
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

/// The state of a run, and the journals of its sub-agents.
#[derive(Debug)]
struct JournalState {
    fold: RunFold,
    /// The journals of the sub-agents, one for each call that runs a sub-agent, in the order of
    /// their first events. A nested journal's lock may be taken while its parent's lock is held,
    /// but never the other way round.
    nested_journals: Vec<(String, Journal)>,
}

impl Journal {
    /// Creates a journal that starts with `history`.
    pub fn new(history: History) -> Self {
        Self(Arc::new(Mutex::new(JournalState {
            fold: RunFold::new(history),
            nested_journals: Vec::new(),
        })))
    }

    /// Applies the next event to the journal. The stream returned by
    /// [`journal_to`](crate::EventStreamExt::journal_to) calls this method for each event. Call
    /// this method yourself only for events that do not pass through such a stream.
    pub fn observe(&self, event: &Event) {
        self.with_state(|book| book.observe(event));
    }

    /// Returns the current history.
    pub fn history(&self) -> History {
        self.with_state(|book| book.history())
    }

    /// Returns the items that were appended since this journal was created, in order and in the
    /// form in which they were appended; see [`Outcome::new_items`](crate::Outcome::new_items).
    pub fn new_items(&self) -> Vec<Item> {
        self.with_state(|book| book.fold.new_items())
    }

    /// Returns the tokens used by all requests so far, including retracted and unfinished attempts,
    /// but excluding sub-agents.
    pub fn usage(&self) -> Usage {
        self.with_state(|book| book.fold.usage())
    }

    /// Returns the run's current phase, which would be reported if the run were interrupted now;
    /// see [`InterruptedPhase`].
    pub fn phase(&self) -> InterruptedPhase {
        self.with_state(|book| book.fold.phase())
    }

    /// Returns whether every call from the completed turns has a result.
    pub fn all_calls_answered(&self) -> bool {
        self.with_state(|book| book.fold.all_calls_answered())
    }

    /// Returns whether a turn has started but is not complete yet.
    pub fn has_open_turn(&self) -> bool {
        self.with_state(|book| book.fold.has_open_turn())
    }

    /// Returns the journal for the sub-agent that the call `call_id` runs or ran, or `None` if the
    /// sub-agent has not yielded an event yet.
    ///
    /// A nested journal starts with an empty history, whose id consists of the parent history's id,
    /// a slash and the call id. A nested journal is kept if the run is dropped or interrupted, and
    /// continues when the sub-agent continues. The nested journal contains the journals of the
    /// sub-agent's own sub-agents.
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

    /// Returns the ids of the calls that run or ran sub-agents, in the order of the sub-agents'
    /// first events.
    pub fn nested_call_ids(&self) -> Vec<String> {
        self.with_state(|book| book.nested_journals.iter().map(|(id, _)| id.clone()).collect())
    }

    /// Returns the tokens used by all sub-agents so far, at all levels of nesting.
    pub fn nested_usage(&self) -> Usage {
        self.with_state(|book| book.nested_usage())
    }

    /// Returns the history, and the number of its items that are already in their final position.
    /// The number excludes the open turn, and results that have to wait for the results of other
    /// calls.
    pub(crate) fn history_and_final_len(&self) -> (History, usize) {
        self.with_state(|book| (book.history(), book.fold.final_history().len()))
    }

    /// Records the pending calls with the arguments with which the tools would run.
    pub(crate) fn set_effective_calls(&self, calls: impl IntoIterator<Item = ToolCall>) {
        self.with_state(|book| {
            calls.into_iter().for_each(|call| book.fold.set_effective_call(call));
        });
    }

    /// Records the effect report from a call that may end without a result of its own.
    pub(crate) fn set_effect_report(&self, call_id: &str, report: EffectReport) {
        self.with_state(|book| book.fold.set_effect_report(call_id, report));
    }

    /// Creates a result for the next call that has no result, and applies the result to the
    /// journal. Use this method if the calls were dropped and the run continues.
    pub(crate) fn next_missing_result(&self, cut: Interruption) -> Option<Event> {
        self.with_state(|book| {
            let event = Event::Tool(book.fold.next_missing_result(cut)?);
            book.observe(&event);
            Some(event)
        })
    }

    /// Returns the number of requests that were started.
    pub(crate) fn requests(&self) -> u32 {
        self.with_state(|book| book.fold.requests())
    }

    /// Creates the next ending event of the run, and applies the event to the journal. The ending
    /// events are a result for each call that has no result, unless the calls are pending, followed
    /// by `Finished`.
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

    /// Returns the outcome that the run would have if it ended now, with the given reason and
    /// error. The outcome lists pending calls only if the reason is `Pending`.
    pub fn outcome(&self, reason: EndReason, error: Option<Error>) -> Outcome {
        self.with_state(|book| book.outcome(reason, error, None, Vec::new()))
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut JournalState) -> T) -> T {
        // No user code runs while the lock is held, and only the locks of nested journals are taken
        // while this lock is held.
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

    /// Applies the next event of the sub-agent that runs as `call_id`. A suspended sub-agent
    /// continues with its earlier history.
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

    /// Looks up the journal of the sub-agent that runs as `call_id`. The search starts with the
    /// newest journal, because the newest sub-agent is running.
    fn nested_journal(&self, call_id: &str) -> Option<&Journal> {
        self.nested_journals.iter().rev().find(|(id, _)| id == call_id).map(|(_, child)| child)
    }

    /// Returns the total tokens used by all sub-agents, at all levels of nesting.
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

/// Returns whether the event, or an event nested in it, is of an unknown kind. Stores skip such
/// events, too.
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
