//! Checkpoints and forks.

use std::collections::HashSet;
use std::ops::Range;

use crate::context::{Compaction, Compactor, preserve_reactive_note, record_stale_usage};
use crate::error::Error;
use crate::event::RewriteReason;
use crate::item::{Item, PendingCall, ResultKind, TombstoneEdit, ToolCall};
use crate::session::restore::EntryFold;
use crate::session::session::catch_store_panic;
use crate::session::settle_entries::SettleEntries;
use crate::session::{Entry, Session, SessionState};
use crate::usage::Usage;

impl Session {
    /// Replaces a range of the history with the items that the compactor proposes. Returns the
    /// number of tokens that the compactor used (zero if no model was called). If the proposed
    /// items would not make the history shorter, nothing is replaced, and `None` is returned.
    ///
    /// The replaced items stay in the store (see [`entries`](Self::entries)), and their call ids
    /// stay reserved. As during an agent's run, a [record](crate::context::record_stale_usage) of
    /// the compaction is added, and the note from an earlier
    /// [reactive](crate::context::mark_reactive_compaction) compaction is kept. If a run is active,
    /// either the run or this call fails with a [`Conflict`](crate::ErrorKind::Conflict).
    ///
    /// # Errors
    ///
    /// Returns the compactor's errors, and the errors that [`checkpoint`](Self::checkpoint)
    /// returns.
    pub async fn compact(
        &self,
        compactor: &(impl Compactor + ?Sized),
    ) -> Result<Option<Usage>, Error> {
        let (version, restored) = self.current_fold().await?;
        let history = restored.history();
        match compactor.compact(&history).await? {
            Some(compaction) => {
                let usage = compaction.usage;
                let compaction = record_stale_usage(compaction, &history);
                self.append_compaction(version, restored, compaction).await.map(|()| Some(usage))
            }
            None => Ok(None),
        }
    }

    /// Replaces a range of the [history](Self::history) with `items`, for example with a summary.
    ///
    /// If the range contains the note from an earlier
    /// [reactive](crate::context::mark_reactive_compaction) compaction, the note is kept and placed
    /// after `items`.
    ///
    /// ```
    /// use turnstream::Item;
    /// use turnstream::item::ItemFlag;
    /// use turnstream::provider::Scripted;
    /// use turnstream::session::{MemoryStore, Session};
    /// use turnstream::Agent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let session = Session::open(MemoryStore::new(), "s").await?;
    /// let agent = Agent::new(Scripted::new(["Hello!", "Hello again!"]));
    /// session.run(&agent, "Hi").await?.outcome().await?;
    ///
    /// let summary = Item::user("We have greeted each other.").with_flag(ItemFlag::Compacted);
    /// session.checkpoint(0..2, [summary]).await?;
    /// session.run(&agent, "Hi").await?.outcome().await?;
    /// assert_eq!(session.history().len(), 3);
    /// assert_eq!(session.entries().await?.len(), 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if the range cannot be replaced with
    /// these items (see [`Compaction::validate`]), or if the range contains a call that is still
    /// waiting for its result. [`Store`](crate::ErrorKind::Store) and
    /// [`Conflict`](crate::ErrorKind::Conflict) if the checkpoint cannot be written. After an
    /// error, the history is unchanged.
    pub async fn checkpoint(
        &self,
        range: Range<usize>,
        items: impl IntoIterator<Item = Item>,
    ) -> Result<(), Error> {
        let (version, restored) = self.current_fold().await?;
        let items = items.into_iter().collect();
        let (from, to) = (range.start, range.end);
        let compaction = Compaction { from, to, items, ..Compaction::default() };
        let compaction = preserve_reactive_note(compaction, &restored.history());
        self.append_compaction(version, restored, compaction).await
    }

    async fn append_compaction(
        &self,
        version: u64,
        restored: EntryFold,
        compaction: Compaction,
    ) -> Result<(), Error> {
        let history = restored.history();
        compaction.validate(&history)?;
        // The compaction is also checked against the settled history, in which the pending calls at
        // the end have results.
        let settled = history.settled();
        if settled.iter().take(history.len()).eq(history.iter()) {
            compaction.validate(&settled)?;
        }
        let Compaction { from, to, items, .. } = compaction;
        let why = RewriteReason::Compacted;
        let entry = Entry::Rewritten { why, from, to, items };
        self.append_and_fold(None, version, restored, vec![entry]).await.map(drop)
    }

    /// Marks items in the [history](Self::history) as [tombstones](Item::tombstone), which stay in
    /// the history but are no longer sent to the model. `positions` contains the zero-based indices
    /// of the items. [`History::tombstone_edits`](crate::History::tombstone_edits) describes which
    /// items are marked together.
    ///
    /// The change is durable once the returned future completes. Nothing is written if the items
    /// are already tombstones. While a run is active, use
    /// [`RunHandle::tombstone`](crate::RunHandle::tombstone) instead; otherwise, either the run or
    /// this call fails with a [`Conflict`](crate::ErrorKind::Conflict). [Token
    /// estimates](crate::context::estimate_request_tokens()) still count the marked items until the
    /// next turn is complete.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    /// use turnstream::session::{MemoryStore, Session};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let session = Session::open(MemoryStore::new(), "s").await?;
    /// let agent = Agent::new(Scripted::new(["Do not send me keys."]));
    /// session.run(&agent, "My key is 1234.").await?.outcome().await?;
    ///
    /// session.tombstone([0]).await?;
    /// assert_eq!(session.history().len(), 2);
    /// assert!(session.history().iter().next().unwrap().tombstone);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) in the same cases as
    /// [`History::tombstone_edits`](crate::History::tombstone_edits), for example if an item to
    /// mark is a call that is [pending](SessionState::Pending) or was left open.
    /// [`Store`](crate::ErrorKind::Store) and [`Conflict`](crate::ErrorKind::Conflict) if the
    /// change cannot be written. After an error, the history is unchanged.
    pub async fn tombstone(&self, positions: impl IntoIterator<Item = usize>) -> Result<(), Error> {
        let positions: Vec<usize> = positions.into_iter().collect();
        let (version, restored) = self.current_fold().await?;
        let made = restored.history().tombstone_edits(positions)?;
        let why = RewriteReason::Tombstoned;
        let entry = |TombstoneEdit { from, to, items }| Entry::Rewritten { why, from, to, items };
        self.append_and_fold(None, version, restored, made.into_iter().map(entry).collect())
            .await
            .map(drop)
    }

    /// Creates another session that starts with the first `at` entries of this session. No entries
    /// are copied. To fork at the latest entry, pass the current [`version`](Self::version).
    ///
    /// The fork has its own id, so the idempotency keys for its tool calls differ from those in
    /// this session. Calls that are open at the fork point belong to this session, and get an
    /// interrupted result in the fork. Calls that are [pending](SessionState::Pending) at the fork
    /// point are also pending in the fork, unless this session has since resumed them. They have
    /// other [approval ids](PendingCall::approval_id) there, so each session needs verdicts of its
    /// own. Calls whose results have the kind [`Denied`](crate::item::ResultKind::Denied) count as
    /// not started. If both sessions later resume the pending calls, each session starts them.
    ///
    /// # Errors
    ///
    /// If the store fails after it has created the fork, the fork remains, and its calls are still
    /// pending; delete it.
    ///
    /// [`Conflict`](crate::ErrorKind::Conflict) if a session with this id already exists.
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if this session contains fewer than
    /// `at` entries or is not in the store yet. [`Store`](crate::ErrorKind::Store) if the fork
    /// cannot be written.
    pub async fn fork_at(&self, at: u64, id: impl Into<String>) -> Result<Self, Error> {
        let id = id.into();
        // The calls are examined first, so that the fork can be settled immediately.
        let gives_up_calls = self.has_started_calls_of(at).await?;
        catch_store_panic(async { self.store().fork(self.id(), at, &id).await }).await?;
        let (version, restored) = self.cached_fold();
        let fork = match version == at {
            true => Self::from_parts(self.store().clone(), restored.fork(&id), version),
            false => Self::open(self.store().clone(), id).await?,
        };
        let fork = if self.keeps_sub_agents() { fork.with_sub_agent_histories() } else { fork };
        let (version, restored) = fork.cached_fold();
        let entries = match (gives_up_calls, restored.session_state()) {
            (true, _) => SettleEntries::for_history(&restored.history(), &HashSet::new()).entries,
            (false, SessionState::Pending { calls }) => {
                vec![Entry::Pending { calls: requests_of_fork(calls, fork.id()) }]
            }
            (false, SessionState::Idle | SessionState::Unfinished { .. }) => Vec::new(),
        };
        if !entries.is_empty() {
            fork.append_and_fold(None, version, restored, entries).await?;
        }
        Ok(fork)
    }

    /// Returns whether a call that has no result at version `at` may have started in this session.
    async fn has_started_calls_of(&self, at: u64) -> Result<bool, Error> {
        // Another process may have resumed the calls, so the entries are read from the store.
        let (version, restored) = self.cached_fold();
        let (state, later) = if version == at {
            (restored.session_state(), self.read_entries_from(at).await?.unwrap_or_default())
        } else {
            let mut entries = self.read_entries_from(0).await?.unwrap_or_default();
            let later =
                entries.split_off(entries.len().min(usize::try_from(at).unwrap_or(usize::MAX)));
            (SessionState::from_entries(entries), later)
        };
        Ok(match state {
            SessionState::Idle => false,
            SessionState::Unfinished { .. } => true,
            SessionState::Pending { calls } => {
                calls.iter().any(|call| may_have_started(call, &later))
            }
        })
    }

    /// Creates another session that starts with the entries before the user's latest prompt. Use
    /// this method, for example, to rephrase the prompt after a refusal. Some providers keep
    /// refusing requests for as long as the refused prompt is in the context.
    ///
    /// This method calls [`fork_at`](Self::fork_at) with the position of the prompt that
    /// [`History::before_last_prompt`] also finds. The position counts the session's entries, not
    /// the items in the history, so the fork restores items that were compacted after the prompt
    /// was added. A session without a prompt is forked after its latest entry.
    ///
    /// [`History::before_last_prompt`]: crate::History::before_last_prompt
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::event::EndReason;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::session::{MemoryStore, Session};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new(["Hello!".into(), Reply::new().refuse("No."), "Gladly.".into()]);
    /// let agent = Agent::new(model);
    /// let session = Session::open(MemoryStore::new(), "s").await?;
    /// session.run(&agent, "Hi").await?.outcome().await?;
    /// let refused = session.run(&agent, "Do it").await?.outcome().await?;
    /// assert_eq!(refused.reason, EndReason::Refused);
    ///
    /// let fork = session.fork_before_last_prompt("other").await?;
    /// assert_eq!(fork.history().len(), 2);
    /// let outcome = fork.run(&agent, "Explain it").await?.outcome().await?;
    /// assert_eq!(outcome.text, "Gladly.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors that [`fork_at`](Self::fork_at) returns, and
    /// [`Store`](crate::ErrorKind::Store) if the entries cannot be read.
    pub async fn fork_before_last_prompt(&self, id: impl Into<String>) -> Result<Self, Error> {
        let is_prompt = |entry: &Entry| matches!(entry, Entry::Item(item) if item.is_prompt());
        let entries = self.entries().await?;
        let last = entries.iter().rposition(is_prompt).map_or(entries.len(), |last| last + 1);
        let prompt = entries.iter().take(last).rev().take_while(|entry| is_prompt(entry)).count();
        self.fork_at((last - prompt) as u64, id).await
    }

    /// If this session is a fork, returns the calls that were open in the original session at the
    /// fork point. These calls belong to the original session.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot list or load sessions.
    pub(super) async fn inherited_open_calls(&self) -> Result<Vec<ToolCall>, Error> {
        let listed = catch_store_panic(async { self.store().list().await }).await?;
        let listed = listed.into_iter().find(|listed| listed.id == self.id());
        let Some(fork) = listed.and_then(|listed| listed.origin) else { return Ok(Vec::new()) };
        let mut entries = self.entries().await?;
        entries.truncate(usize::try_from(fork.at).unwrap_or(usize::MAX));
        let mut inherited = EntryFold::new(self.id());
        inherited.extend(entries);
        Ok(match inherited.session_state() {
            SessionState::Unfinished { open_calls: open } => open,
            // The original session had started none of these calls at the fork point.
            SessionState::Idle | SessionState::Pending { .. } => Vec::new(),
        })
    }
}

/// Gives each pending call of a fork an approval id of its own, so that a verdict on a call of the
/// original session does not hold for the fork.
fn requests_of_fork(calls: Vec<PendingCall>, fork: &str) -> Vec<PendingCall> {
    let request = |call: PendingCall| match call.approval_id.is_empty() {
        true => call,
        false => PendingCall { approval_id: format!("{}@{fork}", call.approval_id), ..call },
    };
    calls.into_iter().map(request).collect()
}

/// Returns whether a call that was pending before the entries `later` may have started in the
/// meantime. New input that gives up a call answers the call without an [`Entry::Resumed`].
fn may_have_started(call: &PendingCall, later: &[Entry]) -> bool {
    let answer = later.iter().enumerate().find_map(|(position, entry)| {
        let Entry::Item(item) = entry else { return None };
        let result = item.as_tool_result().filter(|it| it.call_id == call.root_call_id())?;
        Some((position, result.kind))
    });
    let before = &later[..answer.map_or(later.len(), |(position, _)| position)];
    match before.iter().filter(|entry| matches!(entry, Entry::Resumed { .. })).count() {
        0 => false,
        // The denial is the verdict with which the call was resumed.
        1 => !call.path.is_empty() || answer.is_none_or(|(_, kind)| kind != ResultKind::Denied),
        _ => true,
    }
}
