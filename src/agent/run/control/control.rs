//! Defines the state that a run shares with its handles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::agent::helper_reports::HelperReports;
use crate::agent::run::control::grants::RunGrants;
use crate::agent::run::control::inbox::Inbox;
use crate::agent::run::control::signals::Signals;
use crate::agent::run::control::tool_state::ToolState;
use crate::agent::run::control::usage_account::UsageAccount;
use crate::agent::run::control::verdicts::{VerdictRejection, Verdicts};
use crate::agent::run::control::work_state::WorkState;
use crate::agent::run::observation::ObserverSetting;
use crate::agent::run::observers::Observers;
use crate::env::Ids;
use crate::error::Error;
use crate::event::UndeliveredInput;
use crate::item::PendingCall;
use crate::journal::Journal;
use crate::lock::lock_ignoring_poison;
use crate::tool::{RunData, Verdict};

/// All that a run shares with its handles, its sub-agents and its tools:
///
/// | field | who writes | who reads |
/// |---|---|---|
/// | `signals` | handles | the run, at each poll |
/// | `inbox` | handles | the body, before a request and after the model stops |
/// | `verdicts` | handles, and the parent's run | the tool run of the waiting calls |
/// | `grants` | handles, the run and its sub-agents' runs | the tool runs of all of them |
/// | `helpers` | hooks | the body before a request, and the run at its end |
/// | `usage` | the body | the run and the body, before they spend more |
/// | `work` | the body | the run, when its body is dropped |
/// | `sub_agents` | the sub-agents' tools | handles |
/// | `mail` | the tools of other agents | the run, at its end |
/// | `tools` | handles, and the body | the tools |
/// | `observers`, `last_failure` | the body | the run |
/// | `observer` | the run, and its hub | the run, at its first poll |
///
/// No lock is ever held across an `.await`, and no events pass through this type.
#[derive(Default)]
pub(in crate::agent) struct Control {
    pub(in crate::agent) signals: Signals,
    pub(in crate::agent) inbox: Inbox,
    pub(in crate::agent) verdicts: Verdicts,
    pub(in crate::agent) grants: RunGrants,
    pub(in crate::agent) helpers: HelperReports,
    pub(in crate::agent) usage: UsageAccount,
    pub(in crate::agent) work: WorkState,
    pub(in crate::agent) sub_agents: SubAgents,
    pub(super) mail: Mail,
    pub(in crate::agent) tools: ToolState,
    /// The observing hooks that are currently running.
    pub(in crate::agent) observers: Observers,
    /// The observer of the run.
    pub(in crate::agent) observer: ObserverSetting,
    /// The most recent request error that was reported to hooks.
    last_failure: Mutex<Option<Error>>,
}

/// The place of a run in its tree of agents.
#[derive(Default)]
pub(in crate::agent) struct SubAgents {
    /// The sub-agents' runs, by the id of the call that started them.
    runs: Mutex<HashMap<String, SubAgentRun>>,
    /// The agent's label, including the labels of the agent's ancestors in the tree of agents.
    label: OnceLock<Arc<str>>,
    /// The `Control` of the parent's run, if this is a sub-agent's run.
    parent: OnceLock<Weak<Control>>,
}

/// The messages of other agents that wait in a run's inbox.
#[derive(Default)]
pub(in crate::agent) struct Mail {
    /// The senders of the messages, by the ids of the messages. A message that came back has no
    /// sender.
    pub(super) senders: Mutex<HashMap<String, Option<Weak<Control>>>>,
}

/// The parts of a sub-agent's run that the parent's run needs.
#[derive(Clone)]
pub(in crate::agent) struct SubAgentRun {
    pub(in crate::agent) control: Arc<Control>,
    pub(in crate::agent) journal: Journal,
    pub(in crate::agent) ids: Arc<dyn Ids>,
}

impl SubAgents {
    /// Returns the run of the sub-agent that a call started.
    pub(in crate::agent) fn run(&self, call_id: &str) -> Option<SubAgentRun> {
        lock_ignoring_poison(&self.runs).get(call_id).cloned()
    }

    /// Returns the state of the parent's run, if this is a sub-agent's run and the parent's run
    /// exists.
    pub(super) fn parent(&self) -> Option<Arc<Control>> {
        self.parent.get().and_then(Weak::upgrade)
    }

    /// Returns the states of the sub-agents' runs.
    pub(super) fn children(&self) -> Vec<Arc<Control>> {
        lock_ignoring_poison(&self.runs).values().map(|run| Arc::clone(&run.control)).collect()
    }

    pub(in crate::agent) fn set_label(&self, label: Arc<str>) {
        let _ = self.label.set(label);
    }

    /// Returns the agent's label, or an empty string if the agent has no label.
    pub(in crate::agent) fn label(&self) -> &str {
        self.label.get().map_or("", |label| label)
    }
}

impl Control {
    /// Submits a verdict on a call, from the view of the agent that made the call, and wakes the
    /// run. The verdict is accepted only if it [answers](Verdict::answers) a request that has no
    /// verdict yet.
    pub(in crate::agent) fn submit_verdict(
        &self,
        call: &PendingCall,
        verdict: Verdict,
    ) -> Result<(), VerdictRejection> {
        self.verdicts.submit(call, verdict)?;
        self.signals.wake();
        Ok(())
    }

    /// Returns whether a verdict can arrive from the owner of the polled stream, from a handle, or
    /// through the parent's run.
    pub(in crate::agent) fn can_receive_verdict(&self) -> bool {
        let parent = || self.sub_agents.parent();
        self.verdicts.can_arrive() || parent().is_some_and(|parent| parent.can_receive_verdict())
    }

    pub(in crate::agent) fn on_handle_created(&self) {
        self.verdicts.add_handle();
    }

    /// Records that a handle was dropped. If the dropped handle was the last handle, wakes the run,
    /// which may be waiting for a verdict that can no longer arrive.
    pub(in crate::agent) fn on_handle_dropped(&self) {
        if self.verdicts.remove_handle() {
            self.wake_all();
        }
    }

    /// Wakes the outermost run, which polls all of its sub-agents' runs.
    pub(in crate::agent) fn wake_outermost(&self) {
        match self.sub_agents.parent.get().and_then(Weak::upgrade) {
            Some(parent) => parent.wake_outermost(),
            None => self.signals.wake(),
        }
    }

    /// Wakes the run and its sub-agents' runs.
    fn wake_all(&self) {
        self.signals.wake();
        let children: Vec<_> =
            lock_ignoring_poison(&self.sub_agents.runs).values().cloned().collect();
        for child in children {
            child.control.wake_all();
        }
    }

    /// Registers a sub-agent's run, so that the sub-agent can receive a verdict whenever this run
    /// can.
    pub(in crate::agent) fn attach_sub_agent(self: &Arc<Self>, call_id: &str, child: SubAgentRun) {
        child.control.verdicts.requires_external_handle.set(true);
        let _ = child.control.sub_agents.parent.set(Arc::downgrade(self));
        let before = lock_ignoring_poison(&self.sub_agents.runs).insert(call_id.to_owned(), child);
        drop(before);
    }

    /// Stores a request error that is being reported to hooks.
    pub(in crate::agent) fn set_last_failure(&self, error: &Error) {
        let before = lock_ignoring_poison(&self.last_failure).replace(error.clone());
        drop(before);
    }

    /// Returns the most recent request error that was reported to hooks.
    pub(in crate::agent) fn last_failure(&self) -> Option<Error> {
        lock_ignoring_poison(&self.last_failure).clone()
    }

    /// Accepts no more input and verdicts, and returns the input that is still queued. Messages of
    /// other agents also go back to their senders.
    pub(in crate::agent) fn close(&self) -> Vec<UndeliveredInput> {
        self.signals.discard_waker();
        self.verdicts.stop_accepting();
        self.grants.close();
        drop(self.tools.take_started_calls());
        self.tools.update_data(|_| RunData::new());
        let undelivered = self.inbox.close_and_drain();
        self.return_mail(&undelivered);
        undelivered
    }
}
