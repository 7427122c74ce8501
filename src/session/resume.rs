//! Starts and resumes runs in a session.

use std::collections::{HashMap, HashSet};

use crate::agent::{Agent, Input, ResumeVerdicts};
use crate::error::{Error, ErrorKind};
use crate::event::RewriteReason;
use crate::item::{PendingCall, TombstoneEdit, ToolCall};
use crate::session::called_tool::called_tool;
use crate::session::restore::EntryFold;
use crate::session::settle_entries::SettleEntries;
use crate::session::{Entry, Lease, Session, SessionRun, SessionState};
use crate::tool::{Tool, Verdict};

impl Session {
    /// Starts a run with new input, as [`Agent::run_from`] does, and writes the run's events to the
    /// session.
    ///
    /// Calls that a crash left open are settled first: their results are durable before the run
    /// starts. A call without a result gets an interrupted result, which the run's first events
    /// report. If the call's tool is [idempotent](Tool::idempotent), the call gets no interrupted
    /// result, but is executed again with the same idempotency key. The input then follows the
    /// results of these calls, as if the run had been [steered](crate::RunHandle::steer). If the
    /// run ends early because such a call needs an approval, the input is returned as
    /// undelivered. Pending calls also get an interrupted result; to run pending calls, use
    /// [`resume`](Self::resume). If this session is a [fork](Self::fork_at), calls that were
    /// already open at the fork point always get an interrupted result, because these calls belong
    /// to the original session.
    ///
    /// This method first acquires the session's [lease](Lease), which the run then keeps. As a
    /// result, the calls that this method settles cannot be running anywhere else.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ErrorKind::Conflict) if another process has written to the session since this
    /// handle last read the session. [`Conflict`](ErrorKind::Conflict), with
    /// [`AlreadyLeased`](crate::session::AlreadyLeased) as its source, if another run holds the
    /// session's lease. [`Store`](ErrorKind::Store) if the store fails. The error of
    /// [`Provider::check_parts`](crate::Provider::check_parts) if the provider cannot send the
    /// input. If this method returns an error, no run is started.
    pub async fn run(&self, agent: &Agent, input: impl Into<Input>) -> Result<SessionRun, Error> {
        let input = input.into();
        // Refused input must not settle the pending calls.
        agent.check_input(&input)?;
        let lease = self.lease().await?;
        let (version, restored) = self.current_fold().await?;
        let plan = match restored.session_state() {
            SessionState::Idle => OpenCallPlan::default(),
            SessionState::Pending { calls } => {
                OpenCallPlan::without_verdicts(agent, &restored, calls)
            }
            SessionState::Unfinished { open_calls: open } => {
                self.plan_open_calls(agent, &restored, open, HashMap::new()).await
            }
        };
        self.continue_run(agent, lease, version, restored, plan, input).await
    }

    /// Starts a run whose answer replaces the end of the [history](Self::history): all items from
    /// the zero-based position `from` on become [tombstones](crate::Item::tombstone), and the input
    /// is appended. With [`Input::default()`], the model answers the remaining history again.
    ///
    /// Open and pending calls at the end of the history are not executed: each gets an interrupted
    /// result, which also becomes a tombstone.
    ///
    /// Like [`run`](Self::run), this method acquires the session's [lease](Lease) first. The
    /// tombstones are durable before the run starts.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::agent::Input;
    /// use turnstream::provider::Scripted;
    /// use turnstream::session::{MemoryStore, Session};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let agent = Agent::new(Scripted::new(["Hello!", "Good morning!"]));
    /// let session = Session::open(MemoryStore::new(), "s").await?;
    /// session.run(&agent, "Greet me").await?.outcome().await?;
    ///
    /// let run = session.run_replacing(&agent, 1, Input::default()).await?;
    /// assert_eq!(run.outcome().await?.text, "Good morning!");
    /// assert!(session.history().iter().nth(1).unwrap().tombstone);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors that [`run`](Self::run) returns, and
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) in the same cases as
    /// [`History::tombstone_edits`](crate::History::tombstone_edits). If the input cannot be sent,
    /// or if another run holds the lease, the history is unchanged.
    pub async fn run_replacing(
        &self,
        agent: &Agent,
        from: usize,
        input: impl Into<Input>,
    ) -> Result<SessionRun, Error> {
        let input = input.into();
        agent.check_input(&input)?;
        let lease = self.lease().await?;
        let (version, restored) = self.current_fold().await?;
        let plan = match restored.session_state() {
            SessionState::Pending { calls } => {
                OpenCallPlan::without_verdicts(agent, &restored, calls)
            }
            SessionState::Idle | SessionState::Unfinished { .. } => OpenCallPlan::default(),
        };
        let settled = SettleEntries::for_history(&restored.history(), &plan.not_started);
        let mut entries = settled.entries;
        let mut settled = restored.clone();
        settled.extend(entries.iter().cloned());
        let history = settled.history();
        let why = RewriteReason::Tombstoned;
        let edits = history.tombstone_edits(from..history.len())?.into_iter();
        entries.extend(edits.map(|TombstoneEdit { from, to, items }| Entry::Rewritten {
            why,
            from,
            to,
            items,
        }));
        let has_replaced = !entries.is_empty();
        let (version, restored) =
            self.append_and_fold(Some(&lease), version, restored, entries).await?;
        let plan = OpenCallPlan::default();
        let mut run = self.continue_run(agent, lease, version, restored, plan, input).await?;
        run.set_replaced(has_replaced);
        Ok(run)
    }

    /// Continues a session without new input. The returned run starts with the session's pending or
    /// open calls, or with a user message that the model has not answered yet.
    ///
    /// [Pending](SessionState::Pending) calls are resumed with their verdicts, as in
    /// [`Agent::resume`]. Before the first pending call starts, an entry is stored durably to
    /// record that the pending calls may have started. The entry ensures that a call that is not
    /// idempotent never starts twice.
    ///
    /// Calls that a crash left [open](SessionState::Unfinished) do not need a verdict. If an open
    /// call's tool is [idempotent](Tool::idempotent), the call is executed again with the same
    /// idempotency key: hooks are called for the call again, and the call may need another
    /// approval. All other open calls get an interrupted result, which the run's first events
    /// report. A [`Verdict::Output`] for an open call becomes the call's result. Any other verdict
    /// for an open call applies only if the call is executed again, and must not name a request
    /// from before the crash: the call, and the calls of a sub-agent that it runs, may need another
    /// approval. Once all open calls have results, the model is called.
    ///
    /// Like [`run`](Self::run), this method acquires the session's [lease](Lease).
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
    /// let schema = json!({ "type": "object", "properties": { "file": { "type": "string" } } });
    /// let spec = ToolSpec::new("delete", "Deletes a file", schema);
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
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if the session has nothing to continue, or if
    /// two verdicts are for the same call. [`Conflict`](ErrorKind::Conflict) if a verdict does not
    /// answer an open request: its call is not open, or it names a request from before a crash.
    /// After a crash, only a result may still name such a request, because nothing runs. If calls
    /// are pending, this method also returns the errors that [`Agent::resume`] returns.
    /// [`Store`](ErrorKind::Store) and [`Conflict`](ErrorKind::Conflict) in the same cases as
    /// [`run`](Self::run). If this method returns an error, no run is started.
    pub async fn resume(
        &self,
        agent: &Agent,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<SessionRun, Error> {
        let verdicts: Vec<(PendingCall, Verdict)> = verdicts.into_iter().collect();
        let lease = self.lease().await?;
        let (version, restored) = self.current_fold().await?;
        match restored.session_state() {
            SessionState::Idle => Err(match verdicts.is_empty() {
                true => Error::new(ErrorKind::InvalidRequest, "there is nothing to resume"),
                false => Error::new(ErrorKind::Conflict, "no call is waiting for a verdict"),
            }),
            SessionState::Pending { calls } => {
                let run = agent.resume(restored.history(), verdicts)?;
                // An earlier crash may have left open a call to an idempotent tool.
                for call in calls.iter().filter(|call| call.path.is_empty()) {
                    if restored.idempotent_calls().contains(&call.call_id) {
                        run.journal().set_may_have_started(&call.call_id, true);
                    }
                }
                let toolkit = agent.toolkit();
                Ok(SessionRun::new(self, lease, version, restored, Vec::new(), run, toolkit))
            }
            SessionState::Unfinished { open_calls: open } => {
                let given = verdicts_by_call_id(agent, &open, verdicts)?;
                let plan = self.plan_open_calls(agent, &restored, open, given).await;
                self.continue_run(agent, lease, version, restored, plan, Input::default()).await
            }
        }
    }

    /// Starts the run after settling all open calls that the plan does not execute again.
    async fn continue_run(
        &self,
        agent: &Agent,
        lease: Lease,
        version: u64,
        restored: EntryFold,
        OpenCallPlan { reruns, not_started }: OpenCallPlan,
        input: Input,
    ) -> Result<SessionRun, Error> {
        let SettleEntries { entries, events } = match reruns.is_empty() {
            true => SettleEntries::for_history(&restored.history(), &not_started),
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
                let open: Vec<String> = reruns.keys().cloned().collect();
                let answered = |(call, verdict)| Some((call, verdict?));
                let verdicts =
                    ResumeVerdicts::for_own_calls(reruns.into_values().filter_map(answered));
                let run = agent.resume_with_checked_verdicts(history, verdicts);
                for call_id in &open {
                    run.journal().set_may_have_started(call_id, true);
                }
                // A run that has not been polled yet always accepts steering.
                let _ = run.steer(input);
                run
            }
        };
        Ok(SessionRun::new(self, lease, version, restored, events, run, agent.toolkit()))
    }

    /// Returns a plan that executes a call again if the call's tool is idempotent and was
    /// idempotent when the call started, or if its verdict contains a result.
    async fn plan_open_calls(
        &self,
        agent: &Agent,
        restored: &EntryFold,
        open: Vec<ToolCall>,
        mut given: HashMap<String, (PendingCall, Verdict)>,
    ) -> OpenCallPlan {
        // If the open calls are not at the end of the history, all of them are settled.
        if agent.toolkit().resume(&restored.history()).is_err() {
            return OpenCallPlan::default();
        }
        let is_idempotent = |call: &ToolCall| {
            restored.idempotent_calls().contains(&call.call_id)
                && called_tool(agent.toolkit(), call).is_some_and(Tool::is_idempotent)
        };
        let open: Vec<ToolCall> =
            open.iter().map(|call| agent.toolkit().unwrapped_call(call).into_owned()).collect();
        let foreign = match open.iter().any(is_idempotent) {
            // If the store fails to report which calls are inherited, no open call is executed
            // again.
            true => self.inherited_open_calls().await.unwrap_or_else(|_| open.clone()),
            false => Vec::new(),
        };
        let is_own = |call: &ToolCall| foreign.iter().all(|other| other.call_id != call.call_id);
        let rerun = |call: ToolCall| {
            let (answered, verdict) = given.remove(&call.call_id).unzip();
            let has_result = matches!(verdict, Some(Verdict::Output(_)));
            (has_result || is_idempotent(&call) && is_own(&call))
                .then(|| (call.call_id.clone(), (answered.unwrap_or_else(|| call.into()), verdict)))
        };
        let reruns = open.into_iter().filter_map(rerun).collect();
        OpenCallPlan { reruns, ..OpenCallPlan::default() }
    }
}

/// Determines how a run that continues a session treats the session's open calls. A call that the
/// plan does not execute again gets an interrupted result.
#[derive(Default)]
struct OpenCallPlan {
    /// The calls to execute again, by call id, with the verdicts that were given on them.
    reruns: HashMap<String, (PendingCall, Option<Verdict>)>,
    /// The ids of calls whose tools have certainly not started.
    not_started: HashSet<String>,
}

impl OpenCallPlan {
    /// Creates a plan for pending calls that are given up. A sub-agent's call is pending only after
    /// the call that runs the sub-agent has started. A call to an idempotent tool may have started
    /// before a crash. A call to an external tool may have been executed elsewhere. Nothing is
    /// known about a tool that is not in the agent's toolkit.
    fn without_verdicts(agent: &Agent, restored: &EntryFold, pending: Vec<PendingCall>) -> Self {
        let history = restored.history();
        let cannot_have_started = |call: &PendingCall| {
            call.path.is_empty()
                && history.nested_history(&call.call_id).is_none()
                && !restored.idempotent_calls().contains(&call.call_id)
                && called_tool(agent.toolkit(), &call.to_tool_call())
                    .is_some_and(|tool| !tool.is_external())
        };
        let not_started = pending.into_iter().filter(cannot_have_started);
        Self { not_started: not_started.map(|call| call.call_id).collect(), ..Self::default() }
    }
}

/// Returns the verdicts by call id. Each verdict must be for an open call. If a call wraps another
/// call, the verdict is for the inner call, because that is the call that is executed.
fn verdicts_by_call_id(
    agent: &Agent,
    open: &[ToolCall],
    verdicts: Vec<(PendingCall, Verdict)>,
) -> Result<HashMap<String, (PendingCall, Verdict)>, Error> {
    let mut given = HashMap::new();
    let unwrapped = |call: &ToolCall| agent.toolkit().unwrapped_call(call).into_owned();
    for (call, verdict) in verdicts {
        let inner = unwrapped(&call.to_tool_call());
        let PendingCall { approval_id, path, call_id, .. } = call;
        let is_it = |it: &ToolCall| it.call_id == call_id && unwrapped(it).name == inner.name;
        let error = |kind: ErrorKind, why: &str| {
            Error::new(kind, format!("{why} (`{call_id}`)")).with_parameter(call_id.as_str())
        };
        let is_of_sub_agent =
            path.first().is_some_and(|parent| open.iter().any(|it| it.call_id == *parent));
        if !is_of_sub_agent && (!path.is_empty() || !open.iter().any(is_it)) {
            return Err(error(ErrorKind::Conflict, "a verdict is for a call that is not open"));
        }
        // After a crash, the earlier requests for verdicts are void. A result is accepted, because
        // nothing runs.
        if !approval_id.is_empty() && !matches!(verdict, Verdict::Output(_)) {
            let why = "a verdict answers a request from before a crash";
            return Err(error(ErrorKind::Conflict, why));
        }
        if is_of_sub_agent {
            // A crash ended the resumed sub-agent. If it runs again, its calls ask for approval
            // again.
            continue;
        }
        if given.insert(call_id.clone(), (inner.into(), verdict)).is_some() {
            return Err(error(ErrorKind::InvalidRequest, "a call has two verdicts"));
        }
    }
    Ok(given)
}
