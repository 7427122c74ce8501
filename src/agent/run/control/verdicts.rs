//! The verdicts on a run's calls.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::agent::ResumeVerdicts;
use crate::agent::run::control::flag::Flag;
use crate::item::PendingCall;
use crate::lock::lock_ignoring_poison;
use crate::tool::Verdict;

/// The calls that wait for a verdict, and who can give one.
#[derive(Default)]
pub(in crate::agent) struct Verdicts {
    /// The calls that are waiting for a verdict, by call id.
    awaited: Mutex<HashMap<String, AwaitedVerdict>>,
    /// The verdicts on the calls of suspended sub-agents; kept until the sub-agents continue.
    of_sub_agents: Mutex<ResumeVerdicts>,
    /// The number of handles that exist outside the run.
    handle_count: AtomicUsize,
    /// Whether only handles, not the owner, can control the run between two polls.
    pub(in crate::agent) requires_external_handle: Flag,
    /// Whether this run, or its parent's run, waits for verdicts in
    /// [`World::suspend`](crate::world::World::suspend), rather than through its handle while its
    /// other calls run.
    pub(in crate::agent) suspends: Flag,
}

/// A call that is waiting for a verdict.
struct AwaitedVerdict {
    request: PendingCall,
    /// Whether the call's tool is external, in which case the call cannot be approved.
    is_external: bool,
    verdict: Option<Verdict>,
}

/// The reason why a verdict was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agent) enum VerdictRejection {
    /// No call waits for this verdict: the request is unknown, belongs to another call, or has a
    /// verdict already.
    NotAwaited,
    /// The call's tool is external, so the call cannot be approved.
    ExternalTool,
}

impl Verdicts {
    pub(in crate::agent) fn register(&self, request: &PendingCall, external: bool) {
        let (call_id, request) = (request.call_id.clone(), request.clone());
        let awaited = AwaitedVerdict { request, is_external: external, verdict: None };
        lock_ignoring_poison(&self.awaited).insert(call_id, awaited);
    }

    /// Submits a verdict on a call, from the view of the agent that made the call. The verdict is
    /// accepted only if it [answers](Verdict::answers) a request that has no verdict yet.
    pub(in crate::agent) fn submit(
        &self,
        call: &PendingCall,
        verdict: Verdict,
    ) -> Result<(), VerdictRejection> {
        let mut awaited = lock_ignoring_poison(&self.awaited);
        let waiting = awaited.get_mut(&call.call_id);
        let waiting = waiting
            .filter(|it| it.verdict.is_none() && verdict.answers(&it.request, call))
            .ok_or(VerdictRejection::NotAwaited)?;
        if waiting.is_external && verdict.is_approval() {
            return Err(VerdictRejection::ExternalTool);
        }
        waiting.verdict = Some(verdict);
        Ok(())
    }

    /// Takes the verdict that answers this request. The request then no longer accepts a verdict.
    pub(in crate::agent) fn take(&self, request: &PendingCall) -> Option<Verdict> {
        let mut awaited = lock_ignoring_poison(&self.awaited);
        let waiting = awaited.get(&request.call_id).filter(|it| it.request == *request)?;
        let verdict = waiting.verdict.clone()?;
        awaited.remove(&request.call_id);
        Some(verdict)
    }

    /// Rejects all further verdicts that answer this request, because the call no longer waits for
    /// one. Returns false if a verdict has already been accepted.
    pub(in crate::agent) fn withdraw(&self, request: &PendingCall) -> bool {
        let mut awaited = lock_ignoring_poison(&self.awaited);
        match awaited.get(&request.call_id).filter(|it| it.request == *request) {
            Some(AwaitedVerdict { verdict: Some(_), .. }) => false,
            Some(_) => awaited.remove(&request.call_id).is_some(),
            None => true,
        }
    }

    /// Returns true if an accepted verdict has not been retrieved yet. Otherwise, rejects all
    /// further verdicts and returns false.
    pub(in crate::agent) fn has_verdict_or_stop_accepting(&self) -> bool {
        let mut awaited = lock_ignoring_poison(&self.awaited);
        let holds = awaited.values().any(|it| it.verdict.is_some());
        if !holds {
            awaited.clear();
        }
        holds
    }

    /// Rejects all further verdicts.
    pub(in crate::agent) fn stop_accepting(&self) {
        lock_ignoring_poison(&self.awaited).clear();
    }

    pub(in crate::agent) fn set_of_sub_agents(&self, verdicts: ResumeVerdicts) {
        let before = std::mem::replace(&mut *lock_ignoring_poison(&self.of_sub_agents), verdicts);
        drop(before);
    }

    /// Returns the verdicts on the calls made by the suspended sub-agent that the call `call_id`
    /// started.
    pub(in crate::agent) fn of_sub_agent(&self, call_id: &str) -> ResumeVerdicts {
        lock_ignoring_poison(&self.of_sub_agents)
            .for_sub_agent(call_id)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn add_handle(&self) {
        self.handle_count.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether the removed handle was the last one.
    pub(super) fn remove_handle(&self) -> bool {
        self.handle_count.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns whether a verdict can arrive from the owner of the polled stream or from a handle.
    pub(super) fn can_arrive(&self) -> bool {
        !self.requires_external_handle.get() || self.handle_count.load(Ordering::Acquire) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_verdict_is_used_and_late_ones_are_rejected() {
        let json = r#"{"approval_id":"a","call_id":"c","name":"t","arguments":"{}"}"#;
        let call: PendingCall = serde_json::from_str(json).unwrap();
        let approve = |verdicts: &Verdicts| verdicts.submit(&call, Verdict::Approve);
        for in_time in [true, false] {
            let verdicts = Verdicts::default();
            verdicts.register(&call, false);
            // A check found no verdict; then, in one case, another thread submits one.
            assert_eq!(verdicts.take(&call), None);
            assert!(!in_time || approve(&verdicts).is_ok());
            assert_eq!(verdicts.has_verdict_or_stop_accepting(), in_time);
            assert_eq!(verdicts.take(&call), in_time.then_some(Verdict::Approve));
            assert_eq!(approve(&verdicts), Err(VerdictRejection::NotAwaited));
        }
    }
}
