//! What holders of a run can do to it while it goes on.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::agent::Input;
use crate::agent::control::{Control, DeliveryPoint, SubAgentRun};
use crate::env::Ids;
use crate::error::{Error, ErrorKind};
use crate::event::UndeliveredInput;
#[cfg(feature = "hub")]
use crate::item::Item;
use crate::item::{History, PendingCall};
use crate::journal::Journal;
use crate::tool::Verdict;
use crate::usage::Usage;

/// Proof that something was taken in. Its id comes back in `appended`, or in the outcome's
/// `undelivered`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InputReceipt {
    /// The id.
    pub id: String,
}

/// Does to a run from elsewhere what its holder can do between two pulls. Cheap to clone.
///
/// It holds nothing that runs: dropping it cancels nothing. One thing only depends on it: an
/// [interactive](crate::Agent::interactive) run whose [`outcome`](crate::Run::outcome) is awaited waits
/// for verdicts while there is a handle, and ends as `pending` when the last one is dropped. A handle
/// counts wherever it is kept, also in the [data](crate::Run::with_data) of the run itself.
pub struct RunHandle {
    pub(super) control: Arc<Control>,
    pub(super) journal: Journal,
    pub(super) ids: Arc<dyn Ids>,
    /// `None` in the run's own handle, which does not count as one from which it can be answered.
    _external_handle: Option<ExternalHandle>,
}

/// Counts a handle outside the run.
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
    /// The run's own handle.
    pub(super) fn new(journal: Journal, ids: Arc<dyn Ids>) -> Self {
        Self { control: Arc::default(), journal, ids, _external_handle: None }
    }

    /// One that does not count as one from which the run can be answered.
    fn for_sub_agent(SubAgentRun { control, journal, ids }: SubAgentRun) -> Self {
        Self { control, journal, ids, _external_handle: None }
    }

    /// Takes a run as that of a sub-agent. It can be answered wherever this one can.
    pub(super) fn attach_sub_agent(&self, call_id: &str, child: &Self) {
        let Self { control, journal, ids, _external_handle: _outside } = child;
        let (control, ids) = (Arc::clone(control), Arc::clone(ids));
        self.control
            .attach_sub_agent(call_id, SubAgentRun { control, journal: journal.clone(), ids });
    }

    /// Says that from here on only handles can act on the run.
    pub(crate) fn require_external_handle(&self) {
        self.control.require_external_handle();
    }

    /// Ends the run: with its next poll it drops what streams or runs, answers the open calls as
    /// interrupted and finishes. A backoff, a hook, a compaction and a wait for a verdict are
    /// dropped like everything else. Done twice, or too late, it changes nothing.
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
        self.control.interrupt();
    }

    /// Ends the run behind the turn that streams or whose tools run: they are finished and
    /// recorded, and no further request is sent. The run ends as `stopped`, or as it would have
    /// anyway if the model is done by then. Between two turns, and before the first, it ends at
    /// once.
    pub fn stop_after_turn(&self) {
        self.control.stop_after_turn();
    }

    /// Says something before the next request, behind all results. If the model stops by itself
    /// first, it gets one more turn, unless a limit is reached. No call is skipped.
    ///
    /// # Errors
    ///
    /// Gives the items back if the run is over.
    pub fn steer(&self, input: impl Into<Input>) -> Result<InputReceipt, UndeliveredInput> {
        self.enqueue_input(DeliveryPoint::BeforeNextRequest, input.into())
    }

    /// Says something when the model stops by itself, and not before: it gets one more turn, unless
    /// a limit is reached. Several are said one after the other, each when the model has stopped.
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
    /// Gives the items back if the run is over.
    pub fn follow_up(&self, input: impl Into<Input>) -> Result<InputReceipt, UndeliveredInput> {
        self.enqueue_input(DeliveryPoint::AfterModelStops, input.into())
    }

    /// The turn whose request was the first to carry what the receipt is for, from 1. `None` while
    /// it waits, and for ever if it comes back undelivered.
    pub fn delivery_turn(&self, receipt: &InputReceipt) -> Option<u32> {
        self.control.delivery_turn(&receipt.id)
    }

    /// Makes items of the [history](Self::history) void, by their positions, counted from 0: they stay
    /// in it, marked as [tombstones](crate::Item::tombstone), and are not sent any more.
    ///
    /// It is done before the next request, after all results; if there is none, before the run ends.
    /// Each range is an event `rewritten` with the reason `tombstoned`. [`History::tombstone_edits`] lists what
    /// becomes void together. Items that are void already, or asked for twice, change nothing.
    /// If the history is compacted first, the items are followed to their new positions; those that a
    /// summary replaces are gone already, and the summary stays. Of equal items, the newest count as
    /// those that were kept. If the run is dropped first, nothing is done.
    ///
    /// Positions can change only by a compaction: the owner of the run, between two pulls, always has
    /// the current ones.
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
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if the run is over, or as
    /// [`History::tombstone_edits`]: a position that is not one of a completed item, which those of a turn that
    /// streams are not, or a call that would become void and has no result yet. Nothing is done then.
    pub fn tombstone(&self, positions: impl IntoIterator<Item = usize>) -> Result<(), Error> {
        let positions: Vec<usize> = positions.into_iter().collect();
        self.control.tombstone_queue().add(&self.journal, &positions)
    }

    /// Lets a call run that waits for a verdict.
    ///
    /// `call` is what `approval_requested` showed. The verdict holds for exactly this call, its
    /// arguments included. A call of a sub-agent needs the path to it:
    /// [`Event::approval_request`](crate::Event::approval_request) returns it with the path.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if no call like this waits: it has its verdict,
    /// or its siblings have ended, or the run is over; also if the call is one of an
    /// [external](crate::Tool::external) tool, which nothing here can run.
    pub fn approve(&self, call: impl Into<PendingCall>) -> Result<(), Error> {
        self.submit_verdict(call, Verdict::Approve)
    }

    /// Refuses a call that waits for a verdict. The model is told why.
    ///
    /// # Errors
    ///
    /// As [`approve`](Self::approve).
    pub fn deny(&self, call: impl Into<PendingCall>, why: impl Into<String>) -> Result<(), Error> {
        self.submit_verdict(call, Verdict::Deny(why.into()))
    }

    /// Gives any verdict on a call that waits for one; [`Verdict::Output`] is the result itself.
    ///
    /// # Errors
    ///
    /// As [`approve`](Self::approve).
    pub fn submit_verdict(
        &self,
        call: impl Into<PendingCall>,
        verdict: Verdict,
    ) -> Result<(), Error> {
        let call = call.into();
        let decided = match call.split_root() {
            None => self.control.submit_verdict(&call.to_tool_call(), verdict),
            Some((parent, inner)) => {
                let child = self.control.sub_agent(parent);
                child.is_some_and(|child| {
                    Self::for_sub_agent(child).submit_verdict(inner, verdict).is_ok()
                })
            }
        };
        match decided {
            true => Ok(()),
            false => {
                let message = "no call like this waits for a verdict";
                Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter(call.call_id))
            }
        }
    }

    /// The handle of the sub-agent that runs, or ran, as the call `call_id`.
    pub fn sub_agent_handle(&self, call_id: &str) -> Option<Self> {
        self.control.sub_agent(call_id).map(|child| Self::for_sub_agent(child).clone())
    }

    /// The journal that the run writes.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The history as it is now: an open turn is shown as interrupted. It stays open when the run is
    /// dropped or interrupted; [`settled`](History::settled) returns what can be sent, and
    /// [`run_from`](crate::Agent::run_from) does that on its own.
    pub fn history(&self) -> History {
        self.journal.history()
    }

    /// The tokens that the run has used so far.
    pub fn usage(&self) -> Usage {
        self.journal.usage()
    }

    /// Hands a value to the tools of the run.
    pub(crate) fn insert_run_data<T: Any + Send + Sync>(&self, value: T) {
        self.control.update_run_data(|data| data.insert(value));
    }

    /// Says something under this id; see [`steer`](Self::steer) and [`follow_up`](Self::follow_up).
    #[cfg(feature = "hub")]
    pub(crate) fn enqueue_as(
        &self,
        id: String,
        is_follow_up: bool,
        items: Vec<Item>,
    ) -> Result<(), UndeliveredInput> {
        let when = match is_follow_up {
            true => DeliveryPoint::AfterModelStops,
            false => DeliveryPoint::BeforeNextRequest,
        };
        self.control.enqueue_input(when, UndeliveredInput { id, items })
    }

    fn enqueue_input(
        &self,
        when: DeliveryPoint,
        input: Input,
    ) -> Result<InputReceipt, UndeliveredInput> {
        let id = self.ids.next_id();
        self.control.enqueue_input(when, UndeliveredInput { id: id.clone(), items: input.0 })?;
        Ok(InputReceipt { id })
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("interrupted", &self.control.is_interrupted())
            .field("stopping", &self.control.is_stop_requested())
            .finish_non_exhaustive()
    }
}
