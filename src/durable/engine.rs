//! The traits that a durable engine implements.

use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, ErrorKind};
use crate::hub::backend::{command_from_json, command_to_json};
use crate::hub::{AlreadyRunning, Command, LogUnavailable, StaleEpoch};
use crate::item::{PendingCall, RawJson, ResultKind, ToolCall, ToolResult, join_call_id};
use crate::session::Entry;

/// The future that performs a step. The engine polls it only if the step's value has not been
/// recorded yet.
pub type StepFuture = BoxFuture<'static, RawJson>;

/// A trait for performing each step once and recording its value. This trait covers the part of an
/// engine that performs individual steps.
pub trait StepRunner: Send {
    /// Performs a step by polling its future, and records the step's value before returning it. If
    /// the value is already recorded, the engine drops the future without polling it.
    ///
    /// `name` identifies the step for people who inspect the engine's journal. The step's value is
    /// limited to 24 MiB: 8 MiB for a turn or for the results of its calls, and 16 MiB for
    /// everything else that the step records, such as delivered input. Dropping the returned future
    /// cancels the step, although the step's value may already have been recorded.
    ///
    /// # Errors
    ///
    /// Returns the engine's error. The step itself cannot fail.
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>>;
}

/// A trait for the engine operations that a durable run requires. The engine performs each
/// operation once and records its result.
///
/// An engine value belongs to a single attempt at a run. The attempt calls one operation at a time
/// and waits for it to complete. A later attempt calls the same operations in the same order with
/// the same arguments, and receives the recorded results.
///
/// If an operation fails, the attempt ends with the operation's error. The engine decides whether
/// to make another attempt. Use [`is_attempt_lost`](crate::durable::is_attempt_lost) to determine
/// whether an error calls for another attempt.
///
/// The package `turnstream-restate` contains an engine for Restate. The crate `turnstream-testing`
/// contains an engine in memory for tests, and `durable_suite!`, which tests an engine.
///
/// Dropping an attempt drops the future of its current operation. The operation may or may not have
/// been performed: the next attempt receives its recorded result, or performs it.
pub trait Engine: StepRunner {
    /// Takes all commands from the session's queue, in order of arrival. Each command is returned
    /// only once.
    ///
    /// `undelivered_bytes` is the size of the commands that the run has taken earlier and not
    /// delivered to the model. Pass it to
    /// [`CommandQueue::take`](crate::durable::storage::CommandQueue::take), so that the queue
    /// refuses input for which the run's next step has no place.
    ///
    /// # Errors
    ///
    /// Returns the engine's error, with which the attempt ends.
    fn take_commands(
        &mut self,
        undelivered_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>>;

    /// Waits until `is_enough` returns `true` for the list of all commands that have arrived, or
    /// until `limit` has elapsed. Returns the commands that have arrived by the end of the wait.
    ///
    /// The run waits for verdicts on the calls in `awaited`. While it waits, in this attempt or
    /// between two attempts, the engine must report these calls as
    /// [`awaited_calls`](crate::durable::storage::SessionStatus::awaited_calls) in the session's
    /// status, because a verdict must name a call's [request](PendingCall::approval_id).
    ///
    /// # Errors
    ///
    /// Returns the engine's error, with which the attempt ends. An elapsed `limit` is not an error.
    fn wait_for_commands<'a>(
        &'a mut self,
        awaited: &'a [PendingCall],
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>>;

    /// Returns whether [`call_tools`](Self::call_tools) can execute calls separately from the run,
    /// possibly in another process. If this method returns `false`, all calls are executed in a
    /// step of the run itself.
    fn can_call_tools(&self) -> bool {
        false
    }

    /// Executes calls concurrently, separately from the run and possibly in other processes, and
    /// returns a result for each call. To perform a call, use [`ToolCallRequest::perform`].
    ///
    /// If a call is no longer needed, for example because the run was interrupted, return
    /// [`ToolCallRequest::interrupted_result`] as the call's result.
    ///
    /// # Errors
    ///
    /// Returns the engine's error, with which the attempt ends. A call that fails, or that no
    /// worker can execute, is not an error: it has a result, such as
    /// [`ToolCallRequest::failed_result`].
    fn call_tools(
        &mut self,
        calls: Vec<ToolCallRequest>,
    ) -> BoxFuture<'_, Result<Vec<ToolResult>, Error>> {
        let results = calls.iter().map(ToolCallRequest::interrupted_result).collect();
        Box::pin(async { Ok(results) })
    }

    /// Appends entries to the session, which currently contains `from` entries. The engine must
    /// store them before it performs the operations that follow.
    ///
    /// # Errors
    ///
    /// Returns the engine's error, with which the attempt ends.
    fn save(&mut self, from: u64, entries: Vec<Entry>) -> BoxFuture<'_, Result<(), Error>>;

    /// Ends the run, and returns the commands in `put_back`, which have not reached the model, to
    /// the front of the session's queue.
    ///
    /// # Errors
    ///
    /// Returns the engine's error, with which the attempt ends.
    fn finish(&mut self, put_back: Vec<StoredCommand>) -> BoxFuture<'_, Result<(), Error>>;
}

/// A command that an engine stores until a run takes it.
///
/// The JSON of a stored command is `{"v":1,"id":"…","command":{"type":"steer","items":[…]}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredCommand {
    /// The id of the command's receipt. The [`Appended`](crate::Event::Appended) event reports this
    /// id once the command's input is in the history.
    pub id: String,
    /// The command itself.
    pub command: Command,
}

impl Serialize for StoredCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        let json = command_to_json(&self.id, self.command.clone()).map_err(S::Error::custom)?;
        let json: RawJson = serde_json::from_str(&json).map_err(S::Error::custom)?;
        json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for StoredCommand {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let json = RawJson::deserialize(deserializer)?;
        let (id, command) = command_from_json(json.as_str().as_bytes())
            .ok_or_else(|| D::Error::custom("not a command, or one of a later version"))?;
        Ok(Self { id, command })
    }
}

/// A request to perform a tool call outside the steps of its run, possibly in another process. Such
/// a call is *executed separately* from its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallRequest {
    /// The id of the session to which the run belongs.
    pub session: String,
    /// The run's id in its [hub](crate::durable::Attempt::with_hub). The call's progress is sent to
    /// this hub, and the call is stopped if the hub reports that the run has ended. `None` if the
    /// run has no hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The call, with its final arguments.
    #[serde(flatten)]
    pub call: ToolCall,
}

impl ToolCallRequest {
    /// Returns the result for a call that no worker could execute. The result contains the error's
    /// message.
    pub fn failed_result(&self, error: &Error) -> ToolResult {
        let text = format!("Error: {}", error.message());
        ToolResult::for_call(&self.call, ResultKind::Error, text)
    }

    /// Returns a key that is the same each time the call is performed: `{session id}/{call id}`, as
    /// in [`ToolContext::idempotency_key`](crate::tool::ToolContext::idempotency_key).
    pub fn key(&self) -> String {
        join_call_id(&self.session, &self.call.call_id)
    }

    /// Returns the address of the call's inbox in the hub of its run. `None` if the run has no hub.
    pub(super) fn address(&self) -> Option<String> {
        self.run.as_ref().map(|run| join_call_id(run, &self.call.call_id))
    }
}

/// The source of the error that is returned if the engine has lost the current attempt. The next
/// attempt continues the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the attempt at the run was lost")]
pub struct AttemptLost;

impl From<AttemptLost> for Error {
    fn from(lost: AttemptLost) -> Self {
        Self::new(ErrorKind::Other, lost.to_string()).with_source(lost)
    }
}

/// Returns whether another attempt may succeed after this error. Another attempt may succeed if the
/// failed attempt was [lost](AttemptLost), if its events cannot currently be written, if another
/// attempt at the run is still active, or if this program differs from the program that started the
/// run. All other errors end the run, including the [`Conflict`](ErrorKind::Conflict) error for a
/// verdict that does not answer an open request. An engine should start another attempt if this
/// function returns `true`, and otherwise report the error as the run's.
pub fn is_attempt_lost(error: &Error) -> bool {
    error.find_source::<AttemptLost>().is_some()
        || error.kind() == ErrorKind::ReplayMismatch
        || error.find_source::<LogUnavailable>().is_some()
        || error.find_source::<StaleEpoch>().is_some()
        || error.find_source::<AlreadyRunning>().is_some()
}

impl<T: StepRunner + ?Sized> StepRunner for &mut T {
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>> {
        (**self).step(name, step)
    }
}

impl<T: Engine + ?Sized> Engine for &mut T {
    fn take_commands(
        &mut self,
        undelivered_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>> {
        (**self).take_commands(undelivered_bytes)
    }

    fn wait_for_commands<'a>(
        &'a mut self,
        awaited: &'a [PendingCall],
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>> {
        (**self).wait_for_commands(awaited, limit, is_enough)
    }

    fn can_call_tools(&self) -> bool {
        (**self).can_call_tools()
    }

    fn call_tools(
        &mut self,
        calls: Vec<ToolCallRequest>,
    ) -> BoxFuture<'_, Result<Vec<ToolResult>, Error>> {
        (**self).call_tools(calls)
    }

    fn save(&mut self, from: u64, entries: Vec<Entry>) -> BoxFuture<'_, Result<(), Error>> {
        (**self).save(from, entries)
    }

    fn finish(&mut self, put_back: Vec<StoredCommand>) -> BoxFuture<'_, Result<(), Error>> {
        (**self).finish(put_back)
    }
}
