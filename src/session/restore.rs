//! Restores the history from a session's entries.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::GrantChange;
use crate::item::{Grant, History, Item, ItemKind, OpenCalls, PendingCall, ToolCall};
use crate::session::Entry;

/// Restores a session's history from its entries. `id` must be the session's id, and is used as the
/// history's id.
///
/// The result is the history in the journal of the session's last run, without the turn that had
/// not ended yet, if any. Results are placed in the order of their calls, and rewrites are applied.
/// The call ids of compacted items stay reserved. Inconsistent entries, such as a second result for
/// a call, are kept unchanged; [`settled`](History::settled) repairs the history.
///
/// ```
/// use turnstream::Item;
/// use turnstream::session::{Entry, restore_history};
///
/// let entries = [Item::user("Hi"), Item::text("Hello!")].map(Entry::from);
/// assert_eq!(restore_history("s", entries).len(), 2);
/// ```
pub fn restore_history(
    id: impl Into<Arc<str>>,
    entries: impl IntoIterator<Item = Entry>,
) -> History {
    let mut restored = EntryFold::new(id);
    restored.extend(entries);
    restored.history()
}

/// The state of a session, as determined by its entries. A session is idle, is waiting for
/// verdicts, or has unfinished work.
///
/// In JSON, a session state is an object with a `type`: `idle`, `pending` with a list of `calls`,
/// or `unfinished` with a list of `open_calls`.
///
/// ```
/// use turnstream::session::{Session, SessionState};
/// use turnstream::tool::Verdict;
/// use turnstream::{Agent, Error};
///
/// async fn proceed(session: &Session, agent: &Agent, input: &str) -> Result<String, Error> {
///     let run = match session.state() {
///         SessionState::Pending { calls } => {
///             let mut verdicts = Vec::new();
///             for call in calls {
///                 println!("May `{}` run with {}?", call.name, call.arguments);
///                 verdicts.push((call, Verdict::Approve)); // or Verdict::Deny("not this one".into())
///             }
///             session.resume(agent, verdicts).await?
///         }
///         SessionState::Unfinished { .. } => session.resume(agent, []).await?,
///         SessionState::Idle => session.run(agent, input).await?,
///     };
///     Ok(run.outcome().await?.text)
/// }
/// # drop(proceed);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionState {
    /// The session is not waiting for anything, because it is empty or the model has answered.
    #[default]
    Idle,
    /// A run ended while calls were waiting for a verdict or an external result. None of these
    /// calls has started, unless an earlier crash left the call open and its tool, or the tool of
    /// the sub-agent that made the call, is [idempotent](crate::Tool::idempotent). Pass the
    /// verdicts to [`Session::resume`](crate::session::Session::resume).
    Pending {
        /// The pending calls. Each call contains the arguments that its tool would receive. A call
        /// from a sub-agent also includes the path to that call.
        calls: Vec<PendingCall>,
    },
    /// A run was interrupted, or ended before the model answered.
    Unfinished {
        /// The calls without a result. Open calls may have started, and may even have completed.
        open_calls: Vec<ToolCall>,
    },
}

impl SessionState {
    /// Determines a session's state from its entries. `entries` must contain all of the session's
    /// entries.
    ///
    /// ```
    /// use turnstream::Item;
    /// use turnstream::session::SessionState;
    ///
    /// let asked = SessionState::from_entries([Item::user("Hi").into()]);
    /// assert_eq!(asked, SessionState::Unfinished { open_calls: Vec::new() });
    /// ```
    pub fn from_entries(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut restored = EntryFold::new("");
        restored.extend(entries);
        restored.session_state()
    }
}

/// Folds entries into a history.
#[derive(Clone, Debug)]
pub(super) struct EntryFold {
    /// The history, without the buffered results.
    history: History,
    /// The ids of the calls read so far from a turn whose last item has not been read yet.
    turn_call_ids: Vec<String>,
    /// The open calls, along with their results that have been read but not added to the history
    /// yet. Results are buffered because a history contains them in call order, whereas a store
    /// contains them in order of arrival.
    buffered_calls: OpenCalls<String, Item>,
    /// The calls from the last `Pending` entry. The list is empty if calls were resumed after the
    /// last `Pending` entry.
    pending_calls: Arc<[PendingCall]>,
    /// The ids of the calls that may be started again if they are open, because their tools were
    /// idempotent each time they were started.
    idempotent_calls: Vec<String>,
    /// The grants that have not been revoked.
    grants: Vec<Grant>,
}

impl EntryFold {
    pub(super) fn new(id: impl Into<Arc<str>>) -> Self {
        let history = History::empty(id);
        let (turn, calls) = (Vec::new(), OpenCalls::default());
        Self {
            history,
            turn_call_ids: turn,
            buffered_calls: calls,
            pending_calls: Arc::default(),
            idempotent_calls: Vec::new(),
            grants: Vec::new(),
        }
    }

    /// Returns a copy of the fold with a different history id.
    pub(super) fn fork(&self, id: &str) -> Self {
        Self { history: self.history.fork_with_id(id), ..self.clone() }
    }

    pub(super) fn push(&mut self, entry: Entry) {
        match entry {
            Entry::Item(mut item) => {
                if std::mem::take(&mut item.idempotent)
                    && let ItemKind::ToolCall(call) = &item.kind
                {
                    self.push_idempotent_call(call.call_id.clone());
                }
                if let Some(item) = self.buffer_result(item) {
                    self.flush_results();
                    self.track_item(&item);
                    self.history.push(item);
                } else if self.buffered_calls.all_answered() {
                    self.flush_results();
                }
            }
            Entry::Rewritten { why: _, from, to, items } => {
                self.flush_results();
                self.history.rewrite(from..to, items);
                self.turn_call_ids.clear();
                if !self.buffered_calls.all_answered() {
                    let open = self.history.unanswered_calls();
                    self.buffered_calls.retain(|id| open.iter().any(|call| call.call_id == *id));
                }
            }
            Entry::Appended { .. } => {}
            Entry::Pending { calls } => {
                self.start_result_batch();
                self.history.set_pending_calls(&calls);
                self.pending_calls = calls.into();
            }
            Entry::Nested { call_id, history, reason: _ } => {
                self.history.set_nested_history(&call_id, history);
            }
            Entry::Resumed { idempotent } => {
                self.start_result_batch();
                self.idempotent_calls = idempotent;
                self.history.void_verdict_requests();
                self.pending_calls = Arc::default();
            }
            Entry::GrantAdded { grant } => GrantChange::Added(grant).apply_to(&mut self.grants),
            Entry::GrantRevoked { grant_id } => {
                GrantChange::Revoked { grant_id }.apply_to(&mut self.grants);
            }
        }
    }

    /// Starts a new batch of results. Later results for the open calls are placed after the results
    /// received so far.
    fn start_result_batch(&mut self) {
        self.flush_results();
        for ToolCall { call_id, .. } in self.open_calls() {
            if self.call_position(&call_id).is_none() {
                self.buffered_calls.extend([call_id]);
            }
        }
    }

    /// Adds a call that may be started again, and removes the calls of earlier turns.
    fn push_idempotent_call(&mut self, call_id: String) {
        let mut calls = std::mem::take(&mut self.idempotent_calls);
        calls.retain(|id| self.call_position(id).is_some() || self.turn_call_ids.contains(id));
        calls.push(call_id);
        self.idempotent_calls = calls;
    }

    /// Returns the ids of the calls that may be started again. The list may contain calls that are
    /// no longer open.
    pub(super) fn idempotent_calls(&self) -> &[String] {
        &self.idempotent_calls
    }

    /// Updates the state after an item was appended directly to the history.
    fn track_item(&mut self, item: &Item) {
        if item.tombstone {
            return;
        }
        match &item.kind {
            ItemKind::ToolCall(call) if !item.interrupted => {
                self.turn_call_ids.push(call.call_id.clone());
            }
            ItemKind::User { .. } | ItemKind::System { .. } | ItemKind::ToolResult(_) => {
                self.turn_call_ids.clear();
            }
            ItemKind::ToolCall(_)
            | ItemKind::Text { .. }
            | ItemKind::Reasoning { .. }
            | ItemKind::Other => {}
        }
        if item.turn.is_some() {
            self.buffered_calls.extend(self.turn_call_ids.drain(..));
        }
    }

    /// Buffers a result. Returns the item if it is not a result for an open call.
    fn buffer_result(&mut self, item: Item) -> Option<Item> {
        let result = item.as_tool_result().filter(|_| !item.tombstone);
        let Some(call_id) = result.map(|result| result.call_id.clone()) else { return Some(item) };
        self.buffered_calls.buffer_result(|id| *id == call_id, item)
    }

    fn flush_results(&mut self) {
        self.history.extend(self.buffered_calls.take_buffered_results());
    }

    /// Returns the position of the open call with the given call id, if any.
    pub(super) fn call_position(&self, call_id: &str) -> Option<usize> {
        self.buffered_calls.position(|id| id == call_id)
    }

    /// Returns the position of the last call (in call order) whose result is buffered.
    pub(super) fn last_buffered_position(&self) -> Option<usize> {
        self.buffered_calls.last_buffered_position()
    }

    /// Returns the grants that have not been revoked.
    pub(super) fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns the calls without a result.
    pub(super) fn open_calls(&self) -> Vec<ToolCall> {
        self.history().unanswered_calls()
    }

    pub(super) fn history(&self) -> History {
        let mut history = self.history.clone();
        history.extend(self.buffered_calls.buffered_results().cloned());
        history
    }

    pub(super) fn session_state(&self) -> SessionState {
        let open = self.open_calls();
        let is_of = |call: &PendingCall, open: &ToolCall| call.root_call_id() == open.call_id;
        let is_open = |call: &&PendingCall| open.iter().any(|open| is_of(call, open));
        let calls: Vec<PendingCall> = self.pending_calls.iter().filter(is_open).cloned().collect();
        let is_pending = |open: &ToolCall| calls.iter().any(|call| is_of(call, open));
        if !open.is_empty() && open.iter().all(is_pending) {
            return SessionState::Pending { calls };
        }
        match open.is_empty() && !awaits_model(&self.history()) {
            true => SessionState::Idle,
            false => SessionState::Unfinished { open_calls: open },
        }
    }
}

impl Extend<Entry> for EntryFold {
    fn extend<T: IntoIterator<Item = Entry>>(&mut self, entries: T) {
        for entry in entries {
            self.push(entry);
        }
    }
}

/// Returns whether the model must answer next for the conversation to continue.
fn awaits_model(history: &History) -> bool {
    // The notice of an interrupt is not a prompt, so the model need not answer it.
    let is_notice = |item: &&Item| item.interrupted && item.as_user().is_some();
    let last = history.live_newest_first().find(|item| !is_notice(item));
    last.is_some_and(|item: &Item| {
        matches!(item.kind, ItemKind::User { .. } | ItemKind::ToolResult(_))
    })
}
