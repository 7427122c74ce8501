//! The grants that a run shares with its sub-agents' runs.

use std::sync::{Arc, Mutex, OnceLock};

use crate::error::{Error, ErrorKind};
use crate::event::GrantChange;
use crate::item::{Grant, PendingCall};
use crate::lock::lock_ignoring_poison;

/// The grants of a run and of its sub-agents, at all levels of nesting, from the view of one of
/// these runs.
#[derive(Default)]
pub(in crate::agent) struct RunGrants(OnceLock<GrantView>);

#[derive(Clone, Default)]
struct GrantView {
    /// The names of the tools that lead from the outermost run to the run that has this view.
    agent_path: Vec<String>,
    list: Arc<Mutex<GrantList>>,
}

#[derive(Default)]
struct GrantList {
    grants: Vec<Arc<Grant>>,
    /// The ids of revoked grants whose revocation the outermost run has not reported yet.
    unreported: Vec<String>,
    /// Whether the outermost run is over, so that it cannot report a revocation.
    is_closed: bool,
}

/// The reason why a grant was not revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevocationError {
    UnknownGrant,
    RunIsOver,
}

impl RevocationError {
    pub(crate) fn into_error(self, grant_id: &str) -> Error {
        let message = match self {
            Self::UnknownGrant => "there is no grant with this id",
            Self::RunIsOver => "the run is over",
        };
        Error::new(ErrorKind::InvalidRequest, message).with_parameter(grant_id)
    }
}

impl RunGrants {
    /// Shares the grants of the parent's run with the run of the sub-agent that the parent's tool
    /// `tool` starts. Must be called before the sub-agent's run is polled.
    pub(in crate::agent) fn join_parent(&self, parent: &Self, tool: &str) {
        let mut view = parent.view().clone();
        view.agent_path.push(tool.to_owned());
        let _ = self.0.set(view);
    }

    /// Adds grants, without those whose ids are already in the list.
    pub(in crate::agent) fn add(&self, grants: impl IntoIterator<Item = Grant>) {
        let mut list = lock_ignoring_poison(&self.view().list);
        for grant in grants {
            list.add(grant);
        }
    }

    /// Applies a change that this run, or one of its sub-agents, has reported. `change` is from the
    /// view of this run.
    pub(in crate::agent) fn apply(&self, change: GrantChange) {
        let view = self.view();
        let mut list = lock_ignoring_poison(&view.list);
        match change {
            GrantChange::Added(mut grant) => {
                grant.agent_path.splice(..0, view.agent_path.iter().cloned());
                list.add(*grant);
            }
            GrantChange::Revoked { grant_id } => {
                list.grants.retain(|known| known.id != grant_id);
                list.unreported.retain(|id| *id != grant_id);
            }
        }
    }

    /// Returns all grants, with their paths from the outermost run.
    pub(in crate::agent) fn list(&self) -> Vec<Grant> {
        let list = lock_ignoring_poison(&self.view().list);
        list.grants.iter().map(|grant| Grant::clone(grant)).collect()
    }

    /// Revokes a grant. The outermost run reports the revocation later.
    pub(in crate::agent) fn revoke(&self, grant_id: &str) -> Result<(), RevocationError> {
        let mut list = lock_ignoring_poison(&self.view().list);
        if list.is_closed {
            return Err(RevocationError::RunIsOver);
        }
        let before = list.grants.len();
        list.grants.retain(|known| known.id != grant_id);
        if list.grants.len() == before {
            return Err(RevocationError::UnknownGrant);
        }
        list.unreported.push(grant_id.to_owned());
        Ok(())
    }

    /// Removes and returns the id of a revoked grant whose revocation has not been reported.
    /// Always returns `None` in a sub-agent's run.
    pub(in crate::agent) fn take_revoked(&self) -> Option<String> {
        self.take_unreported(|_| {})
    }

    /// Returns the next revocation to report at the end of the run. If no revocation is left,
    /// rejects all further revocations.
    pub(in crate::agent) fn take_revoked_or_close(&self) -> Option<String> {
        self.take_unreported(|list| list.is_closed = true)
    }

    /// Rejects all further revocations, if this is the outermost run.
    pub(in crate::agent) fn close(&self) {
        let view = self.view();
        if view.agent_path.is_empty() {
            lock_ignoring_poison(&view.list).is_closed = true;
        }
    }

    fn take_unreported(&self, if_empty: impl FnOnce(&mut GrantList)) -> Option<String> {
        let view = self.view();
        if !view.agent_path.is_empty() {
            return None;
        }
        let mut list = lock_ignoring_poison(&view.list);
        if list.unreported.is_empty() {
            if_empty(&mut list);
            return None;
        }
        Some(list.unreported.remove(0))
    }

    /// Returns the first grant that allows the call, which this run's agent has made to a tool from
    /// `source`. `holds` returns whether the predicate with a name holds for the call's arguments.
    pub(in crate::agent) fn find(
        &self,
        call: &PendingCall,
        source: impl FnOnce() -> String,
        mut holds: impl FnMut(&str) -> bool,
    ) -> Option<String> {
        let view = self.view();
        // Predicates are user code, which must not run while the list is locked.
        let candidates: Vec<Arc<Grant>> = {
            let list = lock_ignoring_poison(&view.list);
            let is_candidate = |grant: &&Arc<Grant>| {
                grant.tool == call.name && grant.holds_for_agent(&view.agent_path)
            };
            list.grants.iter().filter(is_candidate).cloned().collect()
        };
        if candidates.is_empty() {
            return None;
        }
        let source = source();
        let found = candidates.iter().find(|grant| grant.covers(call, &source, &mut holds))?;
        Some(found.id.clone())
    }

    fn view(&self) -> &GrantView {
        self.0.get_or_init(GrantView::default)
    }
}

impl GrantList {
    fn add(&mut self, grant: Grant) {
        if self.grants.iter().all(|known| known.id != grant.id) {
            self.grants.push(Arc::new(grant));
        }
    }
}
