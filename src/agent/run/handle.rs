//! Defines the handle through which other code controls a run.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::agent::run::control::RefusedInput;
use crate::agent::run::control::{
    Control, DeliveryPoint, RevocationError, SubAgentRun, VerdictRejection,
};
use crate::agent::{Input, RunObserver};
use crate::env::Ids;
use crate::error::{Error, ErrorKind};
use crate::event::UndeliveredInput;
use crate::item::Item;
use crate::item::{Grant, History, PendingCall, truncate_middle};
use crate::journal::Journal;
use crate::tool::{OpenPoll, Verdict};
#[cfg(feature = "tracing")]
use crate::trace::RunDescription;
use crate::usage::Usage;

/// The maximum length of the reason for an interrupt, in bytes.
const MAX_INTERRUPT_REASON_BYTES: usize = 2_000;

/// Returns the reason for an interrupt as the history contains it: without surrounding white space,
/// and shortened. Returns `None` if the reason is blank.
pub(crate) fn shorten_interrupt_reason(reason: &str) -> Option<String> {
    let reason = reason.trim();
    (!reason.is_empty()).then(|| truncate_middle(reason.to_owned(), MAX_INTERRUPT_REASON_BYTES))
}

/// A receipt confirming that input was accepted. The `appended` event that later delivers the input
/// contains the same id as the receipt. If the input is never delivered, the outcome's
/// `undelivered` field contains that id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InputReceipt {
    /// The id of the input.
    pub id: String,
}

/// A handle to a run. Other code can use the handle to do everything that the run's owner can do
/// between two polls. Handles are cheap to clone.
///
/// Dropping a handle does not cancel the run. However, an [interactive](crate::Agent::interactive)
/// run whose [`outcome`](crate::Run::outcome) is awaited waits for verdicts only while a handle
/// exists; when the last handle is dropped, the run ends with the reason `pending`. A handle that
/// is stored in the run's own [data](crate::Run::with_data) also keeps such a run waiting.
///
/// ```
/// use futures::StreamExt;
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let mut run = Agent::new(Scripted::new(["Oslo is one.", "Bergen."])).run("Name a city");
/// let handle = run.handle();
/// // While the model writes, any other code may use the handle.
/// while run.next().await.expect("the run continues")?.text_delta().is_none() {}
/// handle.steer("Name another one").expect("the run continues");
/// assert_eq!(run.outcome().await.text, "Bergen.");
/// # Ok(())
/// # }
/// ```
pub struct RunHandle {
    pub(in crate::agent) control: Arc<Control>,
    pub(in crate::agent) journal: Journal,
    pub(in crate::agent) ids: Arc<dyn Ids>,
    /// `None` for the run's own handle, which does not count as a source of verdicts.
    _external_handle: Option<ExternalHandle>,
}

/// A guard that is counted as one external handle until the guard is dropped.
struct ExternalHandle(Arc<Control>);

impl ExternalHandle {
    fn new(control: &Arc<Control>) -> Self {
        control.on_handle_created();
        Self(Arc::clone(control))
    }
}

impl Drop for ExternalHandle {
    fn drop(&mut self) {
        self.0.on_handle_dropped();
    }
}

impl Clone for RunHandle {
    fn clone(&self) -> Self {
        Self {
            control: Arc::clone(&self.control),
            journal: self.journal.clone(),
            ids: Arc::clone(&self.ids),
            _external_handle: Some(ExternalHandle::new(&self.control)),
        }
    }
}

impl RunHandle {
    /// Creates the run's own handle, which does not count as a source of verdicts.
    pub(in crate::agent) fn new(journal: Journal, ids: Arc<dyn Ids>) -> Self {
        Self { control: Arc::default(), journal, ids, _external_handle: None }
    }

    /// Creates a handle to a sub-agent's run. The handle does not count as a source of verdicts.
    fn for_sub_agent(SubAgentRun { control, journal, ids }: SubAgentRun) -> Self {
        Self { control, journal, ids, _external_handle: None }
    }

    /// Registers a sub-agent's run, so that the sub-agent can receive a verdict whenever this run
    /// can.
    pub(in crate::agent) fn attach_sub_agent(&self, call_id: &str, child: &Self) {
        let Self { control, journal, ids, _external_handle: _outside } = child;
        let (control, ids) = (Arc::clone(control), Arc::clone(ids));
        self.control
            .attach_sub_agent(call_id, SubAgentRun { control, journal: journal.clone(), ids });
    }

    /// Sets the observer of a run that has not been polled, unless its agent has set one.
    pub(crate) fn set_default_observer(&self, observer: &Arc<dyn RunObserver>) {
        self.control.observer.set_if_unset(observer);
    }

    /// Records that, from now on, verdicts can come only from handles.
    pub(crate) fn require_external_handle(&self) {
        self.control.verdicts.requires_external_handle.set(true);
    }

    /// Returns the information about the run that its events do not contain.
    #[cfg(feature = "tracing")]
    pub(crate) fn description(&self) -> RunDescription {
        RunDescription {
            agent_name: self.control.sub_agents.label().to_owned(),
            conversation_id: self.journal.history().id().to_owned(),
        }
    }

    /// Interrupts the run. When the run is next polled, it drops the open request and the running
    /// tools, gives each open call a result saying that it was interrupted, and finishes. Any retry
    /// delay, hook call, compaction or wait for a verdict is cancelled as well. If the run has
    /// already been interrupted or has ended, this method has no effect.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::Agent;
    /// use turnstream::event::EndReason;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let mut run = Agent::new(Scripted::new(["Once upon a time"])).run("A story, please");
    /// let handle = run.handle();
    /// while let Some(Ok(event)) = run.next().await {
    ///     if event.text_delta().is_some() {
    ///         handle.interrupt();
    ///     }
    /// }
    /// let outcome = run.outcome().await;
    /// assert!(matches!(outcome.reason, EndReason::Interrupted(_)));
    /// # }
    /// ```
    pub fn interrupt(&self) {
        self.control.signals.interrupt(None);
    }

    /// Interrupts the model, unless the command with this id has already done so.
    pub(crate) fn interrupt_turn_once(&self, id: String) {
        self.control.signals.interrupt_turn_once(id);
    }

    /// Interrupts the model if it is answering. If it is not, a durable run takes the command from
    /// its engine at the next step.
    pub(crate) fn interrupt_open_turn_once(&self, id: String) {
        if self.control.work.request_in_flight.get() {
            self.interrupt_turn_once(id);
        }
    }

    /// Interrupts the model so that it receives this input, unless the command with this id has
    /// already done so.
    pub(crate) fn interrupt_turn_for_once(&self, id: String, input_id: &str) {
        self.control.inbox.if_queued(input_id, || self.interrupt_turn_once(id));
    }

    /// Like [`interrupt_open_turn_once`](Self::interrupt_open_turn_once), unless the model has
    /// received this input. The input may still be in the engine's queue.
    pub(crate) fn interrupt_open_turn_for_once(&self, id: String, input_id: &str) {
        self.control.inbox.if_undelivered(input_id, || self.interrupt_open_turn_once(id));
    }

    /// Lets [`open_poll`](Self::open_poll) return the polls of the run's tools.
    pub(crate) fn observe_polls(&self) {
        self.control.tools.current_poll.get_or_init(Arc::default);
    }

    /// Returns the poll of one of the run's tools that has not returned yet, if any.
    pub(crate) fn open_poll(&self) -> Option<OpenPoll> {
        self.control.tools.current_poll.get()?.open_poll()
    }

    /// Waits until the run is interrupted. The run and the caller must be polled by the same task,
    /// because only one task is woken.
    pub(crate) fn poll_interrupted(&self, cx: &Context<'_>) -> Poll<()> {
        self.control.signals.register_waker(cx.waker());
        if self.control.signals.interrupted.get() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Interrupts the run, like [`interrupt`](Self::interrupt), and states the reason. The user and
    /// the model read it, so it must not contain anything that they must not know.
    ///
    /// The reason is in [`Outcome::why`](crate::Outcome::why), and the model reads it in the next
    /// request: the result of each call that was cut off contains the reason. If no call was cut
    /// off, the run appends a user message that contains the reason, in an
    /// [`Appended`](crate::Event::Appended) event. A reason of only whitespace is ignored. A reason
    /// of more than 2,000 bytes is shortened in the middle. If a run is interrupted several times
    /// before it ends, the first reason counts. The reason is not masked: it must not contain
    /// secrets.
    ///
    /// The runs of sub-agents are dropped. The call that ran a sub-agent gets the reason as well.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let mut run = Agent::new(Scripted::new(["Once upon a time"])).run("A story, please");
    /// while let Some(Ok(event)) = run.next().await {
    ///     if event.text_delta().is_some() {
    ///         run.interrupt_with_reason("the user left the page");
    ///     }
    /// }
    /// let outcome = run.outcome().await;
    /// assert_eq!(outcome.why.as_deref(), Some("the user left the page"));
    /// let last = outcome.history.last().unwrap().as_user().unwrap().text();
    /// assert_eq!(last, "The run was interrupted: the user left the page");
    /// # }
    /// ```
    pub fn interrupt_with_reason(&self, reason: impl Into<String>) {
        self.control.signals.interrupt(shorten_interrupt_reason(&reason.into()));
    }

    /// Interrupts the model, but not the tools.
    ///
    /// If the model is answering, the answer ends at the next poll. The part of the answer that has
    /// arrived stays in the history, marked as interrupted, and the calls in it are void. The
    /// [`TurnComplete`](crate::TurnEvent::TurnComplete) event contains this part, with the stop
    /// reason [`Interrupted`](crate::turn::StopReason::Interrupted). Token counts that the provider
    /// has not reported are [estimated](Usage::estimated_tokens). The connection to the provider is
    /// closed.
    ///
    /// If tools are running, nothing is dropped: the tools finish, and calls that await a verdict
    /// continue to wait.
    ///
    /// If input is queued when the answer or the tools have ended, the run continues with this
    /// input. Otherwise, the run ends with the reason `interrupted`. To redirect the model, first
    /// queue the input with [`steer`](Self::steer), and then call
    /// [`interrupt_turn_for`](Self::interrupt_turn_for). Once the input is delivered, the interrupt
    /// has no further effect. A wait for a [pool](crate::agent::Pool) or for a retry ends, whereas
    /// a hook or a compaction that is running finishes first.
    ///
    /// Sub-agents are tools of this run, and so they finish. To interrupt the model of a sub-agent,
    /// use [its handle](Self::sub_agent_handle).
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let model = Scripted::new(["Once upon a time there was a king", "A poem, then."]);
    /// let mut run = Agent::new(model).run("A story, please");
    /// let handle = run.handle();
    /// while let Some(Ok(event)) = run.next().await {
    ///     if event.text_delta().is_some_and(|text| text.contains("Once")) {
    ///         handle.steer("Rather a poem").unwrap();
    ///         handle.interrupt_turn();
    ///     }
    /// }
    /// let outcome = run.outcome().await;
    /// assert!(outcome.history.iter().any(|item| item.interrupted));
    /// assert_eq!(outcome.text, "A poem, then.");
    /// # }
    /// ```
    pub fn interrupt_turn(&self) {
        self.control.signals.interrupt_turn();
    }

    /// Interrupts the model, like [`interrupt_turn`](Self::interrupt_turn), so that it receives
    /// this queued input. If the input has been delivered meanwhile, this method has no effect, so
    /// an answer to the input is never cut off.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::event::Event;
    /// use turnstream::provider::Scripted;
    /// use turnstream::{Agent, TurnEvent};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new(["A long answer about something else.", "A poem, then."]);
    /// let mut run = Agent::new(model).run("Hi");
    /// let receipt = loop {
    ///     if let Some(Event::Turn(TurnEvent::TextDelta { .. })) = run.next().await.transpose()? {
    ///         break run.steer("Write a poem instead.").expect("the run continues");
    ///     }
    /// };
    /// run.interrupt_turn_for(&receipt);
    /// assert_eq!(run.outcome().await.text, "A poem, then.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn interrupt_turn_for(&self, receipt: &InputReceipt) {
        self.control.inbox.if_queued(&receipt.id, || self.interrupt_turn());
    }

    /// Ends the run after the current turn. The turn's response and tool calls are completed and
    /// recorded, but no further request is sent. The run ends with the reason `stopped`, unless the
    /// turn itself ends the run, for example with the reason `completed`. If no turn is in progress
    /// when this method is called, the run ends immediately.
    pub fn stop_after_turn(&self) {
        self.control.signals.stop_after_turn();
    }

    /// Adds input to the next request, after all tool results. Steering does not skip any calls. If
    /// the model stops on its own before the input is delivered, the run continues with one more
    /// turn for the input, unless a limit has been reached.
    ///
    /// # Errors
    ///
    /// If the run is over, or if 1,000 inputs or 16 MiB of input already wait for it, returns an
    /// [`UndeliveredInput`] that contains the input's items.
    pub fn steer(&self, input: impl Into<Input>) -> Result<InputReceipt, UndeliveredInput> {
        self.enqueue_input(DeliveryPoint::BeforeNextRequest, input.into())
    }

    /// Adds input that is delivered only after the model has stopped on its own. The run continues
    /// with one more turn for the input, unless a limit has been reached. Several follow-ups are
    /// delivered one at a time, each after the model has stopped again.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let run = Agent::new(Scripted::new(["Hello!", "You are welcome."])).run("Hi");
    /// let handle = run.handle();
    /// let receipt = handle.follow_up("Thanks").unwrap();
    /// assert_eq!(run.outcome().await.text, "You are welcome.");
    /// assert_eq!(handle.delivery_turn(&receipt), Some(2));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the run is over, or if 1,000 inputs or 16 MiB of input already wait for it, returns an
    /// [`UndeliveredInput`] that contains the input's items.
    pub fn follow_up(&self, input: impl Into<Input>) -> Result<InputReceipt, UndeliveredInput> {
        self.enqueue_input(DeliveryPoint::AfterModelStops, input.into())
    }

    /// Returns the number of the first turn whose request contained the input; the run's first turn
    /// is number 1. Returns `None` if the input is still queued, or was returned as undelivered.
    pub fn delivery_turn(&self, receipt: &InputReceipt) -> Option<u32> {
        self.control.inbox.delivery_turn(&receipt.id)
    }

    /// Turns the items at the zero-based `positions` in the [history](Self::history) into
    /// [tombstones](crate::Item::tombstone). Tombstones stay in the history, but are not sent in
    /// later requests.
    ///
    /// The history is changed once all calls have results: before the next request is sent or, if
    /// no request follows, before the run ends. For each range of items that become tombstones, the
    /// run yields a `rewritten` event with the reason `tombstoned`. [`History::tombstone_edits`]
    /// describes which items become tombstones together. Items that are already tombstones, and
    /// repeated positions, are ignored. If the history is compacted before the items become
    /// tombstones, the positions are updated so that they refer to the same items. Items that have
    /// been replaced by a summary are ignored, and the summary is not changed. If a compaction
    /// keeps only some of several equal items, it is assumed to have kept the last of the equal
    /// items. If the run is dropped before the items become tombstones, no item is changed.
    ///
    /// Positions change only when the history is compacted, which happens only during a poll.
    /// Between two polls, the run's owner therefore always sees the current positions.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::{Agent, History, Item};
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let said = [Item::user("My key is 1234."), Item::text("Do not send me keys.")];
    /// let model = Scripted::new(["Something that opens a lock."]);
    /// let run = Agent::new(model.clone())
    ///     .run_from(History::from_items("h", said), "What is a key?");
    /// run.tombstone([0])?;
    /// let outcome = run.outcome().await;
    /// assert_eq!(outcome.history.len(), 4);
    /// let sent = &model.requests()[0].context;
    /// assert!(sent.iter().next().unwrap().tombstone);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error, and changes no item, if the
    /// run is over or if [`History::tombstone_edits`] fails. `tombstone_edits` fails if there is no
    /// completed item at a position, for example because a turn is still streaming, or if the items
    /// include a call that has no result yet.
    pub fn tombstone(&self, positions: impl IntoIterator<Item = usize>) -> Result<(), Error> {
        let positions: Vec<usize> = positions.into_iter().collect();
        self.control.inbox.tombstone_queue.add(&self.journal, &positions)
    }

    /// Approves a call that is waiting for a verdict, so that the call runs.
    ///
    /// `call` is the call from the `approval_requested` event. The approval applies only if `call`
    /// is identical to the waiting call, including its approval id and its arguments. For a call
    /// made by a sub-agent, `call` must contain the path to the call;
    /// [`Event::approval_request`](crate::Event::approval_request) returns the call together with
    /// its path.
    ///
    /// # Errors
    ///
    /// Returns a [`Conflict`](ErrorKind::Conflict) error if `call` is not waiting for a verdict,
    /// for example because the call already has a verdict, the other calls in its turn have ended,
    /// or the run is over. Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if the
    /// call's tool is [external](crate::Tool::external), since an external tool cannot run in this
    /// process. After an error, the call still waits if it waited before.
    pub fn approve(&self, call: impl Into<PendingCall>) -> Result<(), Error> {
        self.submit_verdict(call, Verdict::Approve)
    }

    /// Denies a call that is waiting for a verdict. The model receives `why` as the reason.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`approve`](Self::approve).
    pub fn deny(&self, call: impl Into<PendingCall>, why: impl Into<String>) -> Result<(), Error> {
        self.submit_verdict(call, Verdict::Deny(why.into()))
    }

    /// Submits a verdict of any kind on a call that is waiting for a verdict. Use
    /// [`Verdict::Output`] to provide the call's result. Unlike an approval, a denial or a result
    /// may name a call without its [approval id](PendingCall::approval_id), as
    /// `PendingCall::from(call)` does: no event contains the request for the result of an
    /// [external](crate::Tool::external) call.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`approve`](Self::approve).
    pub fn submit_verdict(
        &self,
        call: impl Into<PendingCall>,
        verdict: Verdict,
    ) -> Result<(), Error> {
        let call = call.into();
        let accepted = match call.split_root() {
            None => self.control.submit_verdict(&call, verdict),
            Some((parent, inner)) => match self.control.sub_agents.run(parent) {
                Some(child) => return Self::for_sub_agent(child).submit_verdict(inner, verdict),
                None => Err(VerdictRejection::NotAwaited),
            },
        };
        accepted.map_err(|rejection| {
            let (kind, message) = match rejection {
                VerdictRejection::NotAwaited => {
                    (ErrorKind::Conflict, "no such call is waiting for a verdict")
                }
                VerdictRejection::ExternalTool => (
                    ErrorKind::InvalidRequest,
                    "an external tool cannot run here: its result is needed",
                ),
            };
            Error::new(kind, message).with_parameter(call.call_id)
        })
    }

    /// Returns the grants that the run and its sub-agents have, at all levels of nesting: those
    /// that [were passed](crate::Run::with_grants) to the run, and those that were given since. A
    /// grant's [`agent_path`](Grant::agent_path) shows the agent to which it belongs.
    ///
    /// To store a grant that holds [until it is revoked](crate::item::GrantDuration::UntilRevoked),
    /// store the grant from the [`GrantAdded`](crate::event::ToolEvent::GrantAdded) event, or from
    /// this list.
    pub fn grants(&self) -> Vec<Grant> {
        self.control.grants.list()
    }

    /// Revokes a grant in this run and in its sub-agents' runs. The revocation holds at once for
    /// all calls that have not started: a call that the grant would have allowed needs an approval.
    /// Running calls continue.
    ///
    /// The run reports the revocation with a
    /// [`GrantRevoked`](crate::event::ToolEvent::GrantRevoked) event: in its next poll while tools
    /// run, otherwise before its next request or its end. A session stores the revocation with this
    /// event. If the run is dropped before, the session still has the grant;
    /// [`Session::revoke_grant`](crate::session::Session::revoke_grant) revokes it there.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use serde_json::json;
    /// use turnstream::item::{GrantDuration, GrantScope};
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec, Verdict};
    /// use turnstream::{Agent, Error};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let schema = json!({ "type": "object", "properties": {} });
    /// let post = Tool::raw(ToolSpec::new("post", "Posts a message", schema), |_args, _cx| async { "posted" })?.requires_approval();
    /// let model = Scripted::from_fn(|_request, n| match n {
    ///     0..3 => Reply::new().call("post", json!({})),
    ///     _ => Reply::text("Posted."),
    /// });
    /// let mut run = Agent::new(model).with_tool(post).interactive().run("Post it three times");
    /// let handle = run.handle();
    ///
    /// let (mut questions, mut results) = (0, 0);
    /// while let Some(event) = run.next().await {
    ///     let event = event?;
    ///     if let Some(call) = event.approval_request() {
    ///         questions += 1;
    ///         let always = Verdict::approve_always(GrantScope::AnyArguments, GrantDuration::Run);
    ///         handle.submit_verdict(call, always)?;
    ///     }
    ///     // The user changes their mind when the second call has run.
    ///     if event.tool_output().is_some() {
    ///         results += 1;
    ///         if results == 2 {
    ///             handle.revoke_grant(&handle.grants()[0].id)?;
    ///         }
    ///     }
    /// }
    /// assert_eq!(questions, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if there is no grant with
    /// this id, or if the run is over.
    pub fn revoke_grant(&self, grant_id: &str) -> Result<(), Error> {
        self.try_revoke_grant(grant_id).map_err(|error| error.into_error(grant_id))
    }

    /// Like [`revoke_grant`](Self::revoke_grant), with the reason if the grant was not revoked.
    pub(crate) fn try_revoke_grant(&self, grant_id: &str) -> Result<(), RevocationError> {
        self.control.grants.revoke(grant_id)?;
        self.control.wake_outermost();
        Ok(())
    }

    /// Returns a handle to the sub-agent that the call with the id `call_id` started, even if the
    /// sub-agent's run is over, for example to steer or interrupt only the sub-agent. Returns
    /// `None` if the call has started no sub-agent.
    pub fn sub_agent_handle(&self, call_id: &str) -> Option<Self> {
        self.control.sub_agents.run(call_id).map(|child| Self::for_sub_agent(child).clone())
    }

    /// Returns the run's journal, which contains the run's history and usage so far, and the
    /// [journals of its sub-agents](Journal::nested_journal).
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the current history. If a turn is open, the returned history marks the turn as
    /// interrupted. If the run is dropped or interrupted, the calls in the open turn remain
    /// unanswered. To get a history that can be sent, call [`settled`](History::settled).
    /// [`run_from`](crate::Agent::run_from) settles the history automatically.
    pub fn history(&self) -> History {
        self.journal.history()
    }

    /// Returns the tokens used by the run's requests so far, without those of its sub-agents. While
    /// a turn streams, the value grows with the provider's reports.
    pub fn usage(&self) -> Usage {
        self.journal.usage()
    }

    /// Adds grants to those of the run.
    pub(crate) fn add_grants(&self, grants: impl IntoIterator<Item = Grant>) {
        self.control.grants.add(grants);
    }

    /// Makes a value available to the run's tools.
    pub(crate) fn insert_run_data<T: Any + Send + Sync>(&self, value: T) {
        self.control.tools.update_data(|data| data.insert(value));
    }

    /// Queues input with the given id; see [`steer`](Self::steer) and
    /// [`follow_up`](Self::follow_up).
    pub(crate) fn enqueue_as(
        &self,
        id: String,
        is_follow_up: bool,
        items: Vec<Item>,
    ) -> Result<(), RefusedInput> {
        let when = DeliveryPoint::of_input(is_follow_up);
        self.control.inbox.enqueue(when, UndeliveredInput { id, items })
    }

    /// Queues input that another queue has already accepted, so that the limits of the run's own
    /// queue do not apply.
    pub(crate) fn enqueue_accepted(
        &self,
        id: String,
        is_follow_up: bool,
        items: Vec<Item>,
    ) -> Result<(), RefusedInput> {
        let when = DeliveryPoint::of_input(is_follow_up);
        self.control.inbox.enqueue_accepted(when, UndeliveredInput { id, items })
    }

    fn enqueue_input(
        &self,
        when: DeliveryPoint,
        input: Input,
    ) -> Result<InputReceipt, UndeliveredInput> {
        let id = self.ids.next_id();
        self.control.inbox.enqueue(when, UndeliveredInput { id: id.clone(), items: input.0 })?;
        Ok(InputReceipt { id })
    }
}

/// Defines the methods of [`RunHandle`] that a run's owner can call directly on the run. The
/// argument is the field of the run that contains its handle.
macro_rules! forward_handle_methods {
    ($($handle:tt)+) => {
        /// Interrupts the run; see [`RunHandle::interrupt`].
        pub fn interrupt(&self) {
            self.$($handle)+.interrupt();
        }

        /// Interrupts the run and states the reason; see [`RunHandle::interrupt_with_reason`].
        pub fn interrupt_with_reason(&self, reason: impl Into<String>) {
            self.$($handle)+.interrupt_with_reason(reason);
        }

        /// Interrupts the model, but not the tools; see [`RunHandle::interrupt_turn`].
        pub fn interrupt_turn(&self) {
            self.$($handle)+.interrupt_turn();
        }

        /// Interrupts the model so that it receives this queued input; see
        /// [`RunHandle::interrupt_turn_for`].
        pub fn interrupt_turn_for(&self, receipt: &$crate::agent::InputReceipt) {
            self.$($handle)+.interrupt_turn_for(receipt);
        }

        /// Ends the run after the current turn; see [`RunHandle::stop_after_turn`].
        pub fn stop_after_turn(&self) {
            self.$($handle)+.stop_after_turn();
        }

        /// Adds input to the next request; see [`RunHandle::steer`].
        ///
        /// # Errors
        ///
        /// Returns the same errors as [`RunHandle::steer`].
        pub fn steer(
            &self,
            input: impl Into<$crate::agent::Input>,
        ) -> Result<$crate::agent::InputReceipt, $crate::event::UndeliveredInput> {
            self.$($handle)+.steer(input)
        }

        /// Adds input that is delivered after the model has stopped on its own; see
        /// [`RunHandle::follow_up`].
        ///
        /// # Errors
        ///
        /// Returns the same errors as [`RunHandle::follow_up`].
        pub fn follow_up(
            &self,
            input: impl Into<$crate::agent::Input>,
        ) -> Result<$crate::agent::InputReceipt, $crate::event::UndeliveredInput> {
            self.$($handle)+.follow_up(input)
        }

        /// Turns items of the history into tombstones; see [`RunHandle::tombstone`].
        ///
        /// # Errors
        ///
        /// Returns the same errors as [`RunHandle::tombstone`].
        pub fn tombstone(
            &self,
            positions: impl IntoIterator<Item = usize>,
        ) -> Result<(), $crate::error::Error> {
            self.$($handle)+.tombstone(positions)
        }

        /// Approves a call that is waiting for a verdict; see [`RunHandle::approve`].
        ///
        /// # Errors
        ///
        /// Returns the same errors as [`RunHandle::approve`].
        pub fn approve(
            &self,
            call: impl Into<$crate::item::PendingCall>,
        ) -> Result<(), $crate::error::Error> {
            self.$($handle)+.approve(call)
        }

        /// Denies a call that is waiting for a verdict; see [`RunHandle::deny`].
        ///
        /// # Errors
        ///
        /// Returns the same errors as [`RunHandle::approve`].
        pub fn deny(
            &self,
            call: impl Into<$crate::item::PendingCall>,
            why: impl Into<String>,
        ) -> Result<(), $crate::error::Error> {
            self.$($handle)+.deny(call, why)
        }

        /// Returns the run's journal.
        pub fn journal(&self) -> &$crate::journal::Journal {
            self.$($handle)+.journal()
        }

        /// Returns the history up to the last event that the run has yielded, as
        /// [`RunHandle::history`] does.
        pub fn history(&self) -> $crate::item::History {
            self.$($handle)+.history()
        }

        /// Returns the run's token usage so far.
        pub fn usage(&self) -> $crate::usage::Usage {
            self.$($handle)+.usage()
        }
    };
}

pub(crate) use forward_handle_methods;

impl_debug!(
    RunHandle(it),
    interrupted = it.control.signals.interrupted.get(),
    stopping = it.control.signals.stop_requested.get()
);
