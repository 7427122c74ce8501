//! Shared state that is computed from a run's events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::event::{
    BudgetExceeded, EndReason, Event, InterruptedPhase, Outcome, ToolEvent, UndeliveredInput,
};
use crate::item::{History, Item, PendingCall, ToolResult, join_call_id};
use crate::journal::dropped_calls::DroppedCalls;
use crate::journal::open_call::Interruption;
use crate::journal::run_fold::{RunEnd, RunFold};
use crate::lock::lock_ignoring_poison;
use crate::usage::{CostGap, Usage, add_gap};

/// Tracks the history, usage and state that result from a run's events so far. Clones of a journal
/// share the same state.
///
/// A journal is kept in memory and performs no I/O. The journal can be read at any time, even after
/// the event stream has been dropped. A turn that is still open appears as an interrupted turn, and
/// the results received so far appear in the order of their calls. To send the history to a
/// provider, call [`History::settled`] first.
///
/// Each call that runs a sub-agent has its own [nested journal](Self::nested_journal), which
/// records the sub-agent's events. The events of sub-agents do not change this journal's history.
///
/// ```
/// use turnstream::{Event, History, Item, Journal, event::AppendReason};
///
/// let journal = Journal::new(History::empty("h"));
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
    /// The journals of the sub-agents, by the ids of the calls that run them. A nested journal may
    /// be locked while its parent journal is locked, but never vice versa.
    nested_journals: HashMap<String, NestedJournal>,
}

/// The journal of a sub-agent.
#[derive(Debug)]
struct NestedJournal {
    /// The position of this sub-agent's first event among the first events of all sub-agents.
    position: usize,
    journal: Journal,
}

impl Journal {
    /// Creates a journal that starts with `history`. The usage and the new items are those of the
    /// events that follow.
    pub fn new(history: History) -> Self {
        Self(Arc::new(Mutex::new(JournalState {
            fold: RunFold::new(history),
            nested_journals: HashMap::new(),
        })))
    }

    /// Applies the next event to the journal. The stream returned by
    /// [`journal_to`](crate::EventStreamExt::journal_to) calls this method for each event. Call
    /// this method yourself only for events that do not pass through a `journal_to` stream.
    pub fn observe(&self, event: &Event) {
        self.with_state(|book| book.observe(event));
    }

    /// Returns the current history, including finished results of a turn whose other calls are
    /// still running, and the items of an open turn, marked as interrupted. Before you send it,
    /// call [`History::settled`].
    pub fn history(&self) -> History {
        self.with_state(|book| book.history())
    }

    /// Returns the items that have been appended since this journal was created, in order and in
    /// their original form; see [`Outcome::new_items`](crate::Outcome::new_items).
    pub fn new_items(&self) -> Vec<Item> {
        self.with_state(|book| book.fold.new_items())
    }

    /// Returns the number of tokens used by all requests so far. Retracted and unfinished attempts
    /// are included, but sub-agents are not.
    pub fn usage(&self) -> Usage {
        self.with_state(|book| book.fold.usage())
    }

    /// Returns the run's current phase. If the run were interrupted now, this phase would be the
    /// [`InterruptedPhase`] in the run's end reason.
    pub fn phase(&self) -> InterruptedPhase {
        self.with_state(|book| book.fold.phase())
    }

    /// Returns whether every tool call in the completed turns has a result.
    pub(crate) fn all_calls_answered(&self) -> bool {
        self.with_state(|book| book.fold.all_calls_answered())
    }

    /// Returns whether a turn has yielded output or usage but is not complete yet. The
    /// [history](Self::history) then ends with the turn's items so far, marked as interrupted, and
    /// a page can show that the model is still writing.
    pub fn has_open_turn(&self) -> bool {
        self.with_state(|book| book.fold.has_open_turn())
    }

    /// Returns whether a turn was cut off, or would be if the run ended now.
    pub(crate) fn has_cut_off_turn(&self) -> bool {
        self.with_state(|book| book.fold.has_cut_off_turn())
    }

    /// Returns the journal of the sub-agent that was started by the call `call_id`, or `None` if
    /// this sub-agent has not yielded an event yet.
    ///
    /// A nested journal starts with an empty history, whose id is `{parent history id}/{call id}`.
    /// The nested journal is kept if the run is dropped or interrupted, and continues when the
    /// sub-agent continues. A nested journal contains the journals of the sub-agent's own
    /// sub-agents.
    ///
    /// ```
    /// use turnstream::{Event, History, Item, Journal, event::AppendReason};
    ///
    /// let journal = Journal::new(History::empty("h"));
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

    /// Returns the ids of the calls that have started sub-agents, in the order of the sub-agents'
    /// first events.
    pub fn nested_call_ids(&self) -> Vec<String> {
        self.with_state(|book| {
            let mut nested: Vec<_> = book.nested_journals.iter().collect();
            nested.sort_unstable_by_key(|(_, nested)| nested.position);
            nested.into_iter().map(|(id, _)| id.clone()).collect()
        })
    }

    /// Returns the number of tokens used so far by all sub-agents, at all levels of nesting.
    pub fn nested_usage(&self) -> Usage {
        self.with_state(|book| book.nested_usage())
    }

    /// Returns the history, and the number of its items whose positions are final. The number
    /// excludes the items of the open turn and all results that must wait for the results of other
    /// calls.
    pub(crate) fn history_and_final_len(&self) -> (History, usize) {
        self.with_state(|book| (book.history(), book.fold.final_history().len()))
    }

    /// Returns the current history of the suspended sub-agent that the call `call_id` runs, without
    /// building this journal's own history.
    pub(crate) fn suspended_history(&self, call_id: &str) -> Option<History> {
        self.with_state(|book| {
            let suspended = book.fold.final_history().nested_history(call_id)?;
            let continued = book.nested_journal(call_id).map(Journal::history);
            Some(continued.unwrap_or_else(|| suspended.clone()))
        })
    }

    /// Records the pending calls with the arguments that their tools would receive.
    pub(crate) fn set_pending_calls(&self, calls: impl IntoIterator<Item = PendingCall>) {
        self.with_state(|book| {
            calls.into_iter().for_each(|call| book.fold.set_verdict_request(call));
        });
    }

    /// Records whether the tool of a call that was open at the start may have started in an earlier
    /// run.
    pub(crate) fn set_may_have_started(&self, call_id: &str, may_have_started: bool) {
        self.with_state(|book| book.fold.set_may_have_started(call_id, may_have_started));
    }

    /// Records the reports and results of calls that were dropped.
    pub(crate) fn set_dropped_calls(&self, dropped: DroppedCalls) {
        self.with_state(|book| {
            for (call_id, report) in dropped.reports {
                book.fold.set_effect_report(&call_id, report);
            }
            dropped.known_results.iter().for_each(|result| book.fold.set_known_result(result));
        });
    }

    /// Records the result of a call whose `Output` event has not been observed yet. If the call is
    /// dropped before this event, this result is used.
    pub(crate) fn set_known_result(&self, result: &ToolResult) {
        self.with_state(|book| book.fold.set_known_result(result));
    }

    /// Returns the results that are [known](Self::set_known_result), but whose `Output` events have
    /// not been observed yet.
    pub(crate) fn known_results(&self) -> Vec<ToolResult> {
        self.with_state(|book| book.fold.known_results().cloned().collect())
    }

    /// Creates a result for the next unanswered call, and applies the result to the journal. Call
    /// this method if a run continues after its calls were dropped.
    pub(crate) fn next_missing_result(&self, cut: Interruption) -> Option<Event> {
        self.with_state(|book| {
            let event = Event::Tool(book.fold.next_missing_result(cut, None)?);
            book.observe(&event);
            Some(event)
        })
    }

    /// Returns the number of requests started so far.
    pub(crate) fn requests(&self) -> u32 {
        self.with_state(|book| book.fold.requests())
    }

    /// Creates the next of the events that end the run, and applies the event to the journal.
    /// First, each unanswered call gets a result, unless the calls stay open. The last event is
    /// `Finished`.
    pub(crate) fn next_ending_event(
        &self,
        end: &RunEnd<'_>,
        undelivered: impl FnOnce() -> Vec<UndeliveredInput>,
    ) -> Event {
        self.with_state(|book| {
            let event = match book.fold.missing_result_before_end(end) {
                Some(output) => Event::Tool(output),
                None => {
                    let RunEnd { reason, error, budget, .. } = *end;
                    let outcome = book.outcome(reason, error.cloned(), budget, undelivered());
                    Event::Finished(Box::new(outcome))
                }
            };
            book.observe(&event);
            event
        })
    }

    /// Returns the outcome that the run would have if it ended now with the given reason and error.
    /// The outcome lists pending calls only if the reason is `Pending`.
    pub fn outcome(&self, reason: EndReason, error: Option<Error>) -> Outcome {
        self.with_state(|book| book.outcome(reason, error, None, Vec::new()))
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut JournalState) -> T) -> T {
        // While this journal is locked, no user code runs, and no locks are acquired except the
        // locks of nested journals.
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

    /// Applies the next event from the sub-agent that runs as the call `call_id`. A suspended
    /// sub-agent continues with its earlier history.
    fn observe_nested(&mut self, call_id: &str, event: &Event) {
        if is_ignored_event(event) {
            return;
        }
        if let Some(child) = self.nested_journal(call_id) {
            return child.observe(event);
        }
        let parent = self.fold.final_history();
        let begins = || History::empty(join_call_id(parent.id(), call_id));
        let child = Journal::new(parent.nested_history(call_id).cloned().unwrap_or_else(begins));
        child.observe(event);
        let nested = NestedJournal { position: self.nested_journals.len(), journal: child };
        self.nested_journals.insert(call_id.to_owned(), nested);
    }

    /// Looks up the journal of the sub-agent that runs as the call `call_id`.
    fn nested_journal(&self, call_id: &str) -> Option<&Journal> {
        self.nested_journals.get(call_id).map(|nested| &nested.journal)
    }

    /// Returns the total number of tokens used by all sub-agents, at all levels of nesting.
    fn nested_usage(&self) -> Usage {
        let journals = self.nested_journals.values().map(|nested| &nested.journal);
        journals.map(|journal| journal.usage() + journal.nested_usage()).sum()
    }

    /// Returns the total cost of all sub-agents, at all levels of nesting, if it is known.
    fn nested_cost(&self) -> Option<u64> {
        let journals = self.nested_journals.values().map(|nested| &nested.journal);
        let costs = journals.map(|journal| {
            journal.with_state(|book| Some(book.fold.cost()?.saturating_add(book.nested_cost()?)))
        });
        costs.reduce(|sum, cost| Some(sum?.saturating_add(cost?))).unwrap_or(Some(0))
    }

    /// Adds to `gaps` the reasons why the costs of all sub-agents, at all levels of nesting, are
    /// not exact.
    fn add_nested_cost_gaps(&self, gaps: &mut Vec<CostGap>) {
        for nested in self.nested_journals.values() {
            nested.journal.with_state(|book| {
                for gap in book.fold.cost_gaps() {
                    add_gap(gaps, gap.clone());
                }
                book.add_nested_cost_gaps(gaps);
            });
        }
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
        let mut gaps = Vec::new();
        self.add_nested_cost_gaps(&mut gaps);
        let nested = (self.nested_usage(), self.nested_cost(), gaps);
        self.fold.outcome(self.history(), nested, reason, error, budget, undelivered)
    }
}

/// Returns whether the event is of an unknown kind, or wraps an event of an unknown kind. Stores
/// also skip events of unknown kinds.
fn is_ignored_event(event: &Event) -> bool {
    match event {
        // A change of grants does not change a history.
        Event::Unknown
        | Event::Tool(ToolEvent::GrantAdded { .. } | ToolEvent::GrantRevoked { .. }) => true,
        Event::Nested { event, .. } | Event::Tool(ToolEvent::Nested { event, .. }) => {
            is_ignored_event(event)
        }
        Event::Appended { .. }
        | Event::Rewritten { .. }
        | Event::TurnStarted { .. }
        | Event::Turn(_)
        | Event::Tool(_)
        | Event::HelperUsage { .. }
        | Event::Continued { .. }
        | Event::Finished(_) => false,
    }
}
