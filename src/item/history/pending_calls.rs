//! The open calls that are waiting for a verdict.

use std::collections::{BTreeMap, HashSet};

use crate::item::history::History;
use crate::item::history::history::HistoryIndex;
use crate::item::{PendingCall, ToolCall};

impl History {
    /// Returns the calls that are waiting for a verdict or an external result, in order. A call
    /// from a completed turn counts as waiting until it has a result. A call whose sub-agent was
    /// suspended is not listed; instead, the sub-agent's pending calls are listed, each with its
    /// path.
    ///
    /// After a run that ended with the reason `pending`, the calls are those in
    /// [`Outcome::pending`](crate::Outcome::pending): each has the
    /// [id](PendingCall::approval_id) of the request for a verdict, and the arguments that its tool
    /// would receive. A call for which no verdict was requested, for example because its run was
    /// dropped, has no approval id, and contains the arguments as written by the model.
    ///
    /// Requests for verdicts are serialized in the history's `pending` field, and are never sent to
    /// a model.
    pub fn pending_calls(&self) -> Vec<PendingCall> {
        let mut pending = Vec::new();
        for call in self.unanswered_calls() {
            match self.nested_history(&call.call_id) {
                Some(nested) => {
                    let calls = nested.pending_calls().into_iter();
                    pending.extend(calls.map(|inner| inner.with_parent_call(&call.call_id)));
                }
                None => pending.push(self.pending_call(call)),
            }
        }
        pending
    }

    /// Returns the open call as it was shown to the approver, or without an approval id if no
    /// verdict was requested.
    pub(crate) fn pending_call(&self, call: ToolCall) -> PendingCall {
        let request = self.index.verdict_requests.get(&call.call_id).cloned();
        request.unwrap_or_else(|| call.into())
    }

    /// Records the requests for verdicts with which a run ended, including those on the calls of
    /// suspended sub-agents. Requests on calls that are not open are ignored.
    pub(crate) fn set_pending_calls<'a>(
        &mut self,
        calls: impl IntoIterator<Item = &'a PendingCall>,
    ) {
        let requested = |call: &&PendingCall| !call.approval_id.is_empty();
        let mut calls = calls.into_iter().filter(requested).peekable();
        if calls.peek().is_none() {
            return;
        }
        let open = self.unanswered_calls();
        let open: HashSet<&str> = open.iter().map(|call| call.call_id.as_str()).collect();
        let mut inner: BTreeMap<String, Vec<PendingCall>> = BTreeMap::new();
        for call in calls {
            if let Some((parent, call)) = call.split_root() {
                inner.entry(parent.to_owned()).or_default().push(call);
            } else if open.contains(call.call_id.as_str()) {
                let requests = &mut self.index_mut().verdict_requests;
                requests.insert(call.call_id.clone(), call.clone());
            }
        }
        for (call_id, calls) in inner {
            if let Some(mut nested) = self.nested_history(&call_id).cloned() {
                nested.set_pending_calls(&calls);
                self.index_mut().nested_histories.insert(call_id, nested);
            }
        }
    }

    /// Voids all requests for verdicts, including those on the calls of suspended sub-agents.
    pub(crate) fn void_verdict_requests(&mut self) {
        if !self.has_verdict_requests() {
            return;
        }
        let index = self.index_mut();
        index.verdict_requests.clear();
        index.nested_histories.values_mut().for_each(Self::void_verdict_requests);
    }

    /// Updates all requests for verdicts, including those on the calls of suspended sub-agents.
    pub(crate) fn update_verdict_requests(&mut self, update: &dyn Fn(&mut PendingCall)) {
        if !self.has_verdict_requests() {
            return;
        }
        let index = self.index_mut();
        index.verdict_requests.values_mut().for_each(update);
        let nested = index.nested_histories.values_mut();
        nested.for_each(|nested| nested.update_verdict_requests(update));
    }

    /// Returns whether a verdict was requested on an open call, or on a call of a suspended
    /// sub-agent.
    pub(crate) fn has_verdict_requests(&self) -> bool {
        !self.index.verdict_requests.is_empty()
            || self.index.nested_histories.values().any(Self::has_verdict_requests)
    }

    /// Removes the data that is stored only for an open call: the request for a verdict, and the
    /// history of the suspended sub-agent that the call runs.
    pub(super) fn close_call(&mut self, call_id: &str) {
        let HistoryIndex { nested_histories, verdict_requests, .. } = &*self.index;
        if nested_histories.contains_key(call_id) || verdict_requests.contains_key(call_id) {
            let index = self.index_mut();
            index.nested_histories.remove(call_id);
            index.verdict_requests.remove(call_id);
        }
    }

    /// Restores the data of those calls that are still open.
    pub(super) fn restore_open_call_data(
        &mut self,
        mut nested: BTreeMap<String, Self>,
        mut requests: BTreeMap<String, PendingCall>,
    ) {
        if nested.is_empty() && requests.is_empty() {
            return;
        }
        let open = self.unanswered_calls();
        let open: HashSet<&str> = open.iter().map(|call| call.call_id.as_str()).collect();
        let is_open = |call_id: &String| open.contains(call_id.as_str());
        nested.retain(|call_id, _| is_open(call_id));
        requests.retain(|call_id, _| is_open(call_id));
        let index = self.index_mut();
        (index.nested_histories, index.verdict_requests) = (nested, requests);
    }
}
