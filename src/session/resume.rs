//! Going on with a session.

use std::collections::HashMap;

use crate::agent::{Agent, Input, ResumeVerdicts};
use crate::error::{Error, ErrorKind};
use crate::item::{History, PendingCall, ToolCall};
use crate::session::restore::EntryFold;
use crate::session::settle_entries::SettleEntries;
use crate::session::{Lease, Session, SessionRun, SessionState};
use crate::tool::{Tool, Verdict};

impl Session {
    /// Goes on with something said, as [`Agent::run_from`] does, and writes what comes of it.
    ///
    /// What a crash left open is settled first, and that is durable before anything runs. A call
    /// that has no result is answered as interrupted, and the event of this comes first. Only if its
    /// tool is [idempotent](Tool::idempotent) it runs again instead, under its old key; what is said
    /// is then [steered](crate::RunHandle::steer) in behind the results. If the run ends before, because
    /// somebody has to approve the call, it comes back as undelivered. Calls that were pending are
    /// answered as interrupted; [`resume`](Self::resume) runs them. So are calls that were open where
    /// this session was [forked](Self::fork_at): they are the other one's, whatever their tool.
    ///
    /// It takes the [lease](Lease) of the session first, which the run keeps. So what is settled here runs nowhere.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict), with [`AlreadyLeased`](crate::session::AlreadyLeased) as its source, if
    /// another run has the lease, else if others have written meanwhile; [`Store`](ErrorKind::Store) if the store
    /// fails. Nothing runs then.
    pub async fn run(&self, agent: &Agent, input: impl Into<Input>) -> Result<SessionRun, Error> {
        let lease = self.lease().await?;
        let (version, restored) = self.current_fold().await?;
        let reruns = match restored.session_state() {
            SessionState::Idle | SessionState::Pending { .. } => HashMap::new(),
            SessionState::Unfinished { open_calls: open } => {
                self.calls_to_rerun(agent, &restored.history(), open, HashMap::new()).await
            }
        };
        self.continue_run(agent, lease, version, restored, reruns, input.into()).await
    }

    /// Goes on without anything said: with calls that were left pending or open, or with a question
    /// that has no answer yet.
    ///
    /// Calls that are [pending](SessionState::Pending) run with their verdicts, as
    /// [`Agent::resume`] does it. That they may have begun is durable before the first of them
    /// begins, so that none that is not idempotent is ever begun twice.
    ///
    /// Calls that a crash left [open](SessionState::Unfinished) need no verdict. Those whose tool is
    /// [idempotent](Tool::idempotent) run again under their old key, and hooks and approvals are
    /// asked again; the others are answered as interrupted, and the events of this come first. A
    /// [result](Verdict::Output) that is given for one answers it, and a verdict for one that runs
    /// again counts. Then the model is asked.
    ///
    /// It takes the [lease](Lease) of the session, as [`run`](Self::run).
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::Agent;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::session::{MemoryStore, Session, SessionState};
    /// use turnstream::tool::{Tool, ToolSpec, Verdict};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([
    ///     Reply::new().call("delete", json!({ "file": "notes" })),
    ///     Reply::text("It is gone."),
    /// ]);
    /// let spec = ToolSpec::new("delete", "Deletes a file", json!({ "type": "object" }));
    /// let delete = Tool::raw(spec, |_args, _cx| async { "deleted" })?.requires_approval();
    /// let agent = Agent::new(model).with_tools([delete]);
    ///
    /// let store = MemoryStore::new();
    /// let session = Session::open(store.clone(), "s").await?;
    /// session.run(&agent, "Delete my notes").await?.outcome().await?;
    ///
    /// // Days later, in another process.
    /// let session = Session::open(store, "s").await?;
    /// let SessionState::Pending { calls } = session.state() else { panic!("nothing is pending") };
    /// let verdicts = calls.into_iter().map(|call| (call, Verdict::Approve));
    /// let outcome = session.resume(&agent, verdicts).await?.outcome().await?;
    /// assert_eq!(outcome.text, "It is gone.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if nothing is left to go on with, as
    /// [`Agent::resume`] for calls that are pending, and if a verdict is for a call that is not open
    /// or is doubled; [`Store`](ErrorKind::Store) and [`Conflict`](ErrorKind::Conflict) as for
    /// [`run`](Self::run). Nothing runs then.
    pub async fn resume(
        &self,
        agent: &Agent,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<SessionRun, Error> {
        let verdicts: Vec<(PendingCall, Verdict)> = verdicts.into_iter().collect();
        let lease = self.lease().await?;
        let (version, restored) = self.current_fold().await?;
        match restored.session_state() {
            SessionState::Idle => {
                let message = "nothing is left to go on with";
                Err(Error::new(ErrorKind::InvalidRequest, message))
            }
            SessionState::Pending { .. } => {
                let run = agent.resume(restored.history(), verdicts)?;
                Ok(SessionRun::new(self, lease, version, restored, Vec::new(), run))
            }
            SessionState::Unfinished { open_calls: open } => {
                let given = verdicts_by_call_id(agent, &open, verdicts)?;
                let reruns = self.calls_to_rerun(agent, &restored.history(), open, given).await;
                self.continue_run(agent, lease, version, restored, reruns, Input::default()).await
            }
        }
    }

    /// Settles all but the calls that run again, and goes on.
    async fn continue_run(
        &self,
        agent: &Agent,
        lease: Lease,
        version: u64,
        restored: EntryFold,
        reruns: HashMap<String, (ToolCall, Option<Verdict>)>,
        input: Input,
    ) -> Result<SessionRun, Error> {
        let SettleEntries { entries, events } = match reruns.is_empty() {
            true => SettleEntries::for_history(&restored.history()),
            false => {
                let open = restored.open_calls();
                let dead = open.iter().filter(|call| !reruns.contains_key(&call.call_id));
                SettleEntries::for_interrupted_calls(&restored.history(), dead)
            }
        };
        let (version, restored) =
            self.append_and_fold(Some(&lease), version, restored, entries).await?;
        let history = restored.history();
        let run = match reruns.is_empty() {
            true => agent.run_from(history, input),
            false => {
                let judged = |(call, verdict)| Some((call, verdict?));
                let verdicts =
                    ResumeVerdicts::for_own_calls(reruns.into_values().filter_map(judged));
                let run = agent.resume_with_checked_verdicts(history, verdicts);
                // A run that was not polled yet takes it.
                let _ = run.steer(input);
                run
            }
        };
        Ok(SessionRun::new(self, lease, version, restored, events, run))
    }

    /// The open calls that may run again, and those that somebody has the result of, with the
    /// verdicts on them.
    async fn calls_to_rerun(
        &self,
        agent: &Agent,
        history: &History,
        open: Vec<ToolCall>,
        mut given: HashMap<String, (ToolCall, Verdict)>,
    ) -> HashMap<String, (ToolCall, Option<Verdict>)> {
        // A history whose open calls are not at its end is settled as it is.
        if agent.toolkit().resume(history).is_err() {
            return HashMap::new();
        }
        let is_idempotent =
            |call: &ToolCall| agent.toolkit().get(&call.name).is_some_and(Tool::is_idempotent);
        let open: Vec<ToolCall> =
            open.iter().map(|call| agent.toolkit().unwrapped_call(call).into_owned()).collect();
        let foreign = match open.iter().any(is_idempotent) {
            // If the store cannot tell whose they are, they are not guessed about.
            true => self.inherited_open_calls().await.unwrap_or_else(|_| open.clone()),
            false => Vec::new(),
        };
        let is_own = |call: &ToolCall| foreign.iter().all(|other| other.call_id != call.call_id);
        let rerun = |call: ToolCall| {
            let (judged, verdict) = given.remove(&call.call_id).unzip();
            let has_result = matches!(verdict, Some(Verdict::Output(_)));
            (has_result || is_idempotent(&call) && is_own(&call))
                .then(|| (call.call_id.clone(), (judged.unwrap_or(call), verdict)))
        };
        open.into_iter().filter_map(rerun).collect()
    }
}

/// Verdicts by call, each for one that is open. A call is the one that runs, which may be inside of that of the
/// history.
fn verdicts_by_call_id(
    agent: &Agent,
    open: &[ToolCall],
    verdicts: Vec<(PendingCall, Verdict)>,
) -> Result<HashMap<String, (ToolCall, Verdict)>, Error> {
    let mut given = HashMap::new();
    let unwrapped = |call: &ToolCall| agent.toolkit().unwrapped_call(call).into_owned();
    for (PendingCall { path, call_id, name, arguments }, verdict) in verdicts {
        let call = unwrapped(&ToolCall { call_id: call_id.clone(), name, arguments });
        let is_it = |it: &ToolCall| it.call_id == call_id && unwrapped(it).name == call.name;
        let is_open = path.is_empty() && open.iter().any(is_it);
        if !is_open || given.insert(call_id.clone(), (call, verdict)).is_some() {
            let message =
                format!("a verdict is doubled or for a call that is not open (`{call_id}`)");
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter(call_id));
        }
    }
    Ok(given)
}
