//! The contexts of a run's operations, shared by telemetry code and the run.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::error::ErrorKind;
use crate::item::History;
use crate::lock::lock_ignoring_poison;
use crate::propagation::TraceContext;

/// The trace contexts of an operation and of the operations below it. Clones share the same
/// contexts.
///
/// Telemetry code sets the contexts, and the run reads them: a request reads its context when it is
/// sent, after the event [`TurnStarted`](crate::Event::TurnStarted), and a tool reads the context
/// of its call while it runs, after the event
/// [`ToolStarted`](crate::event::ToolEvent::Started). Code that sets a context when it receives one
/// of these events is therefore always in time.
///
/// In the other direction, the run stores facts that its events do not contain, and that telemetry
/// code [takes](Self::take_request_error).
///
/// ```
/// use turnstream::propagation::{TraceContext, TraceContexts};
///
/// let value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let contexts = TraceContexts::new();
/// contexts.set_current(TraceContext::parse(value, None));
/// // A call that has no context of its own has the context of its run.
/// assert_eq!(contexts.of_call("call_1").current().unwrap().traceparent(), value);
/// ```
#[derive(Clone, Debug, Default)]
pub struct TraceContexts(Arc<Mutex<Operation>>);

#[derive(Debug, Default)]
struct Operation {
    /// Whether this is a call, rather than a run that the program has started.
    is_call: bool,
    /// Whether telemetry code records the run.
    is_recorded: bool,
    /// The context of the run or the call.
    current: Option<TraceContext>,
    /// The context of the request that is in progress.
    request: Option<TraceContext>,
    /// The kind of the error with which the last request failed.
    request_error: Option<ErrorKind>,
    /// The time for which the last request waited for capacity of a pool.
    pool_wait: Option<Duration>,
    /// How the run was interrupted.
    interrupt_lane: Option<InterruptLane>,
    request_input: RequestInput,
    /// The ids and the contexts of the calls that are in progress.
    calls: Vec<(String, TraceContexts)>,
}

/// How a run was interrupted, if its end reason is
/// [`Interrupted`](crate::event::EndReason::Interrupted).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InterruptLane {
    /// The whole run was interrupted, with [`interrupt`](crate::RunHandle::interrupt) or
    /// [`interrupt_with_reason`](crate::RunHandle::interrupt_with_reason).
    Run,
    /// Only the model was interrupted, with [`interrupt_turn`](crate::RunHandle::interrupt_turn),
    /// and no input was waiting.
    Turn,
}

/// The items of the next request, for telemetry code that records them.
#[derive(Default)]
enum RequestInput {
    #[default]
    Ignored,
    /// `None` if no request is about to be sent, or if its items were taken.
    Stored(Option<History>),
}

/// Prints no content.
impl fmt::Debug for RequestInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ignored => "Ignored",
            Self::Stored(_) => "Stored",
        })
    }
}

impl TraceContexts {
    /// Creates an empty set of contexts for one run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty set of contexts for a run that telemetry code records. The set, and those
    /// of its calls, are marked as [recorded](Self::is_recorded).
    pub fn of_recorded_run() -> Self {
        Self(Arc::new(Mutex::new(Operation { is_recorded: true, ..Operation::default() })))
    }

    /// Asks the runs of this set and of its calls to store the items of each request, which
    /// [`take_request_input`](Self::take_request_input) returns.
    pub fn with_request_input(self) -> Self {
        self.lock().request_input = RequestInput::Stored(None);
        self
    }

    /// Returns the context of the run or the call to which this set belongs.
    pub fn current(&self) -> Option<TraceContext> {
        self.lock().current.clone()
    }

    /// Sets the context of the run or the call to which this set belongs.
    pub fn set_current(&self, context: Option<TraceContext>) {
        self.lock().current = context;
    }

    /// Returns the context of the request that is in progress, or else the context of its run.
    pub fn request(&self) -> Option<TraceContext> {
        let operation = self.lock();
        operation.request.as_ref().or(operation.current.as_ref()).cloned()
    }

    /// Sets the context of the request that is in progress.
    pub fn set_request(&self, context: Option<TraceContext>) {
        self.lock().request = context;
    }

    /// Takes the kind of the error with which the last request failed. A run stores the kind before
    /// the event that reports the failure, such as
    /// [`Retracted`](crate::TurnEvent::Retracted) or [`Continued`](crate::Event::Continued).
    pub fn take_request_error(&self) -> Option<ErrorKind> {
        self.lock().request_error.take()
    }

    pub(crate) fn set_request_error(&self, kind: ErrorKind) {
        self.lock().request_error = Some(kind);
    }

    /// Takes the time for which the last request waited for tokens, money or a slot of the agent's
    /// [pool](crate::agent::Pool), if it waited. A run stores the time before the event
    /// [`TurnStarted`](crate::Event::TurnStarted), or before the event that follows if the wait
    /// ends in another way.
    pub fn take_pool_wait(&self) -> Option<Duration> {
        self.lock().pool_wait.take()
    }

    pub(crate) fn add_pool_wait(&self, wait: Duration) {
        let total = &mut self.lock().pool_wait;
        *total = Some(total.unwrap_or_default() + wait);
    }

    /// Takes how the run was interrupted. A run stores it before the event
    /// [`Finished`](crate::Event::Finished).
    pub fn take_interrupt_lane(&self) -> Option<InterruptLane> {
        self.lock().interrupt_lane.take()
    }

    pub(crate) fn set_interrupt_lane(&self, lane: InterruptLane) {
        self.lock().interrupt_lane = Some(lane);
    }

    /// Takes the items of the next request, as the agent's hooks have changed them. A run stores
    /// them before the event [`TurnStarted`](crate::Event::TurnStarted), if it was
    /// [asked](Self::with_request_input) to.
    pub fn take_request_input(&self) -> Option<History> {
        match &mut self.lock().request_input {
            RequestInput::Ignored => None,
            RequestInput::Stored(items) => items.take(),
        }
    }

    pub(crate) fn set_request_input(&self, items: &History) {
        if let RequestInput::Stored(stored) = &mut self.lock().request_input {
            *stored = Some(items.clone());
        }
    }

    /// Returns the set that belongs to a call of the run, and to the sub-agent that the call runs.
    /// A call that is not known yet is added with the context of its run.
    pub fn of_call(&self, call_id: &str) -> Self {
        let mut operation = self.lock();
        if let Some((_, call)) = operation.calls.iter().find(|(id, _)| id == call_id) {
            return call.clone();
        }
        let current = operation.current.clone();
        let is_recorded = operation.is_recorded;
        let request_input = match operation.request_input {
            RequestInput::Ignored => RequestInput::Ignored,
            RequestInput::Stored(_) => RequestInput::Stored(None),
        };
        let is_call = true;
        let call =
            Operation { is_call, is_recorded, current, request_input, ..Operation::default() };
        let call = Self(Arc::new(Mutex::new(call)));
        operation.calls.push((call_id.to_owned(), call.clone()));
        call
    }

    /// Returns whether this set belongs to a call, and was not [created](Self::new) for a run.
    /// Telemetry code records a run that a tool starts with its call's set, unless it is a
    /// sub-agent's, even if the set [is recorded](Self::is_recorded). With a recorded set of a run,
    /// that run is already recorded.
    pub fn is_of_call(&self) -> bool {
        self.lock().is_call
    }

    /// Returns whether telemetry code records the run to which this set belongs, so that other
    /// telemetry code does not record the run again.
    pub fn is_recorded(&self) -> bool {
        self.lock().is_recorded
    }

    /// Removes a call that has ended. If its set is requested again, [`of_call`](Self::of_call)
    /// creates a new one.
    pub fn remove_call(&self, call_id: &str) {
        self.lock().calls.retain(|(id, _)| id != call_id);
    }

    fn lock(&self) -> MutexGuard<'_, Operation> {
        lock_ignoring_poison(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(span: u8) -> Option<TraceContext> {
        TraceContext::parse(&format!("00-{:032x}-{span:016x}-01", 7), None)
    }

    #[test]
    fn a_call_of_a_sub_agent_has_a_context_of_its_own() {
        let run = TraceContexts::new();
        run.of_call("c1").set_current(context(1));
        run.of_call("c1").of_call("c1").set_current(context(2));
        assert_eq!(run.of_call("c1").current(), context(1));
        assert_eq!(run.of_call("c1").of_call("c1").current(), context(2));
        run.remove_call("c1");
        assert_eq!(run.of_call("c1").current(), None);
    }

    #[test]
    fn a_request_without_a_context_has_the_context_of_its_run() {
        let run = TraceContexts::new();
        run.set_current(context(1));
        assert_eq!(run.request(), context(1));
        run.set_request(context(2));
        assert_eq!(run.request(), context(2));
    }
}
