//! The operations of an engine.

use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, ErrorKind};
use crate::hub::{Command, command_json};
use crate::item::{RawJson, ResultKind, ToolCall, ToolResult};
use crate::session::Entry;

/// The future of a step. It is polled only if the value of the step was not kept before.
pub type StepFuture = BoxFuture<'static, RawJson>;

/// The steps of an engine: it performs each once, and keeps what it came to.
pub trait StepRunner: Send {
    /// Performs a step by polling its future, and keeps the value before it returns it. If the value was kept before,
    /// the future is dropped without a poll.
    ///
    /// `name` is for people who look at the engine's journal. The value has at most 8 MiB. Dropping the future drops
    /// the step; whether it was kept is open then.
    ///
    /// # Errors
    ///
    /// The error of the engine; a step itself does not fail.
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>>;
}

/// The operations that a durable run calls on an engine, which performs each once and keeps its result.
///
/// An engine belongs to one attempt at a run. The attempt calls one operation at a time and waits for its end. A later
/// attempt calls the same operations in the same order, with the same arguments, and gets the same answers for those
/// that were kept.
///
/// An operation that fails ends the attempt with that error. Whether another attempt follows is the engine's decision:
/// [`is_attempt_lost`](crate::durable::is_attempt_lost) tells which errors are worth one.
///
/// [`MemoryEngine`](crate::durable::MemoryEngine) is an engine for tests. The package `turnstream-restate` has one on
/// Restate. With the feature `testing`, `durable::suite` tests an engine.
pub trait Engine: StepRunner {
    /// Takes the commands that wait for the run from its queue, in the order in which they came. Each is returned
    /// once.
    fn take_commands(&mut self) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>>;

    /// Waits for commands until `is_enough` returns `true` for all that came, or for `limit`. Returns all that came.
    fn wait_for_commands<'a>(
        &'a mut self,
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>>;

    /// Whether [`call_tools`](Self::call_tools) runs calls elsewhere. If not, all calls run in a step of the run.
    fn can_call_tools(&self) -> bool {
        false
    }

    /// Runs calls elsewhere, all at once, and returns a result for each. They are performed by
    /// [`ToolCallRequest::perform`].
    ///
    /// A call that is not run any more, for example since the run was interrupted, is answered by
    /// [`ToolCallRequest::interrupted_result`].
    fn call_tools(
        &mut self,
        calls: Vec<ToolCallRequest>,
    ) -> BoxFuture<'_, Result<Vec<ToolResult>, Error>> {
        let results = calls.iter().map(ToolCallRequest::interrupted_result).collect();
        Box::pin(async { Ok(results) })
    }

    /// Appends entries to the session, after the first `from` ones.
    fn save(&mut self, from: u64, entries: Vec<Entry>) -> BoxFuture<'_, Result<(), Error>>;

    /// The run has ended. Commands that have not reached the model go back to the front of the queue.
    fn finish(&mut self, put_back: Vec<StoredCommand>) -> BoxFuture<'_, Result<(), Error>>;
}

/// A command that an engine keeps until a run takes it.
///
/// As JSON it is `{"v":1,"id":"…","command":{"type":"steer","items":[…]}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredCommand {
    /// The id of its receipt. For input, the event [`Appended`](crate::Event::Appended) has it once the input is in
    /// the history.
    pub id: String,
    /// The command.
    pub command: Command,
}

impl Serialize for StoredCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error as _;
        let json =
            command_json::encode(&self.id, self.command.clone()).map_err(S::Error::custom)?;
        let json: RawJson = serde_json::from_str(&json).map_err(S::Error::custom)?;
        json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for StoredCommand {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let json = RawJson::deserialize(deserializer)?;
        let (id, command) = command_json::decode(json.as_str().as_bytes())
            .ok_or_else(|| D::Error::custom("not a command, or one of a later version"))?;
        Ok(Self { id, command })
    }
}

/// A tool call that runs apart from its run, in a service of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallRequest {
    /// The session of the run.
    pub session: String,
    /// The id of the run in its [hub](crate::durable::Attempt::with_hub), which takes the progress of the call and
    /// says when the run has ended. `None` if the run is in no hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The call, with the arguments that run.
    #[serde(flatten)]
    pub call: ToolCall,
}

impl ToolCallRequest {
    /// The result of a call that no worker could run.
    pub fn failed_result(&self, error: &Error) -> ToolResult {
        let text = format!("Error: {}", error.message());
        ToolResult::for_call(&self.call, ResultKind::Error, text)
    }

    /// The key that is the same each time the call is asked for: `{session id}/{call id}`, as
    /// [`ToolContext::idempotency_key`](crate::tool::ToolContext::idempotency_key) has it.
    pub fn key(&self) -> String {
        format!("{}/{}", self.session, self.call.call_id)
    }
}

/// The source of an error: the engine has lost the attempt, and the next one continues the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the attempt at the run was lost")]
pub struct AttemptLost;

impl AttemptLost {
    /// Finds it in an error.
    pub fn from_error(error: &Error) -> Option<&Self> {
        error.find_source()
    }
}

impl From<AttemptLost> for Error {
    fn from(lost: AttemptLost) -> Self {
        Self::new(ErrorKind::Other, lost.to_string()).with_source(lost)
    }
}

/// Whether another attempt may get further than the one that ended with this error: it was [lost](AttemptLost), its
/// events cannot be written at the moment, another attempt has not ended yet, or its program is not the one that began
/// the run. All other errors end the run.
pub fn is_attempt_lost(error: &Error) -> bool {
    AttemptLost::from_error(error).is_some()
        || matches!(error.kind(), ErrorKind::ReplayMismatch | ErrorKind::Conflict)
        || crate::hub::LogUnavailable::from_error(error).is_some()
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
    fn take_commands(&mut self) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>> {
        (**self).take_commands()
    }

    fn wait_for_commands<'a>(
        &'a mut self,
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>> {
        (**self).wait_for_commands(limit, is_enough)
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
