//! The session entries of an attempt's run.

use crate::durable::engine::Engine;
use crate::durable::step_record::BegunCalls;
use crate::error::Error;
use crate::item::ToolCall;
use crate::session::{Entry, MemoryStore, Store};

/// The entries that a run appends to its session, and the number of them that the engine has saved.
pub(super) struct RunEntries {
    store: MemoryStore,
    pub(super) session: String,
    /// The number of the run's session entries that the engine has saved.
    saved: u64,
    resumed: ResumedEntry,
    /// The ids of the calls to idempotent tools in the calls that were last allowed to start, as
    /// recorded when they started.
    idempotent_calls: Vec<String>,
}

/// Tracks whether the engine has saved the [`Entry::Resumed`] of a run that starts with open calls.
#[derive(Debug, PartialEq)]
enum ResumedEntry {
    /// The run started without open calls, or the entry has been saved in its place.
    NotDue,
    /// None of the calls has been allowed to start, and the entry has not been saved. These calls
    /// have not been started by a tool that was not idempotent.
    Due { repeatable: Vec<ToolCall> },
    /// The entry was saved before the run wrote it.
    SavedEarly,
}

impl RunEntries {
    /// Creates the entries of a run whose session contains `saved` entries.
    pub(super) fn new(store: MemoryStore, session: String, saved: u64) -> Self {
        let (resumed, idempotent_calls) = (ResumedEntry::NotDue, Vec::new());
        Self { store, session, saved, resumed, idempotent_calls }
    }

    /// The run starts with open calls. The `repeatable` calls have not been started by a tool that
    /// was not idempotent.
    pub(super) fn begin_with_open_calls(&mut self, repeatable: Vec<ToolCall>) {
        self.resumed = ResumedEntry::Due { repeatable };
    }

    /// The engine has recorded that these calls may start.
    pub(super) fn set_started_calls(&mut self, begun: &BegunCalls) {
        let idempotent = begun.calls.iter().filter(|begun| begun.is_idempotent);
        self.idempotent_calls =
            idempotent.map(|begun| begun.admitted.call.call_id.clone()).collect();
    }

    /// Makes the engine append the entries whose steps have been recorded.
    pub(super) async fn save(
        &mut self,
        engine: &mut dyn Engine,
        version: u64,
    ) -> Result<(), Error> {
        if version <= self.saved {
            return Ok(());
        }
        let mut entries = self.store.load(&self.session, self.saved).await?.unwrap_or_default();
        entries.truncate(usize::try_from(version - self.saved).unwrap_or(usize::MAX));
        for entry in &mut entries {
            set_idempotent_calls(entry, &self.idempotent_calls);
        }
        // The engine has one entry more if it has saved an entry early.
        let from = self.saved + u64::from(self.resumed == ResumedEntry::SavedEarly);
        self.saved = version;
        let is_resumed = |entry: &Entry| matches!(entry, Entry::Resumed { .. });
        if let Some(resumed) = entries.iter().position(is_resumed) {
            if self.resumed == ResumedEntry::SavedEarly {
                // The first entry of this kind is the one that was saved early.
                entries.remove(resumed);
            }
            self.resumed = ResumedEntry::NotDue;
        }
        engine.save(from, entries).await
    }

    /// If the run continues calls that were open when it started, saves the entry that records that
    /// these calls may have started. The run itself writes this entry with the calls' first event,
    /// and the engine saves the run's entries only once the calls' results have been recorded. If
    /// the run is ended before then, no later run may start the calls again.
    pub(super) async fn save_resumed(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        if let ResumedEntry::Due { repeatable } = &self.resumed {
            let mut idempotent = self.idempotent_calls.clone();
            idempotent.retain(|id| repeatable.iter().any(|call| call.call_id == *id));
            engine.save(self.saved, vec![Entry::Resumed { idempotent }]).await?;
            self.resumed = ResumedEntry::SavedEarly;
        }
        Ok(())
    }
}

/// Sets which calls are to idempotent tools. A later version of the program may declare its tools
/// differently, but must save the same entries when it replays the run.
fn set_idempotent_calls(entry: &mut Entry, recorded: &[String]) {
    match entry {
        Entry::Item(item) => {
            let call = item.as_tool_call();
            item.idempotent = call.is_some_and(|call| recorded.contains(&call.call_id));
        }
        Entry::Resumed { idempotent } => *idempotent = recorded.to_vec(),
        Entry::Rewritten { .. }
        | Entry::Appended { .. }
        | Entry::Pending { .. }
        | Entry::Nested { .. }
        | Entry::GrantAdded { .. }
        | Entry::GrantRevoked { .. } => {}
    }
}
