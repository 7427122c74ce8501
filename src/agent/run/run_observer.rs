//! The interface through which telemetry observes each run of an agent or of a hub.

use crate::error::Error;
use crate::event::Event;
use crate::item::History;
use crate::propagation::TraceContext;
use crate::request::Options;
use crate::tool::RunData;

/// Observes the runs of an [agent](crate::Agent::with_run_observer) or of a
/// [hub](crate::hub::HubBuilder::with_run_observer), for example to record their telemetry. It
/// cannot change a run; a [hook](crate::agent::hook) can.
///
/// ```
/// use turnstream::agent::{EventObserver, ObservedRun, RunObserver};
/// use turnstream::provider::Scripted;
/// use turnstream::{Agent, Event};
///
/// /// Prints the number of each run's events.
/// struct Counting;
///
/// struct Counter(usize);
///
/// impl RunObserver for Counting {
///     fn start(&self, _run: &ObservedRun<'_>) -> Option<Box<dyn EventObserver>> {
///         Some(Box::new(Counter(0)))
///     }
/// }
///
/// impl EventObserver for Counter {
///     fn observe(&mut self, _event: &Event) {
///         self.0 += 1;
///     }
/// }
///
/// impl Drop for Counter {
///     fn drop(&mut self) {
///         println!("{} events", self.0);
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let agent = Agent::new(Scripted::new(["Hello!"])).with_run_observer(Counting);
/// assert_eq!(agent.run("Hi").outcome().await.text, "Hello!");
/// # }
/// ```
pub trait RunObserver: Send + Sync {
    /// Called when a run is first polled, before its first event. Returns the observer of the run's
    /// events, or `None` if the run is not observed. If this method panics, the run is not
    /// observed.
    ///
    /// The events of a sub-agent are also events of its parent's run. To observe them once, return
    /// `None` for a [sub-agent](ObservedRun::is_sub_agent) whose parent's run is observed.
    fn start(&self, run: &ObservedRun<'_>) -> Option<Box<dyn EventObserver>>;
}

/// Observes the events of a single run. If the run is dropped, its observer is dropped after the
/// run's request and tools. If a method panics, the observer is dropped, and the run continues.
pub trait EventObserver: Send {
    /// Observes an event before the run yields it. This method runs within a poll of the run, so it
    /// must not block.
    fn observe(&mut self, event: &Event);

    /// Observes an event that repeats a step which an earlier attempt at a
    /// [durable](crate::durable) run has recorded. By default, such an event is ignored.
    fn observe_repeated(&mut self, _event: &Event) {}

    /// Observes the end of the stream of events. `error` is the error that ended a hand-written
    /// loop. The error of an agent's run is part of its [outcome](crate::Outcome::error).
    fn observe_end(&mut self, _error: Option<&Error>) {}

    /// Returns values that are added to the [run's data](crate::Run::with_data) when the run
    /// starts. A value replaces the value of the same type that the program has set. By default, no
    /// values are added.
    fn run_data(&self) -> RunData {
        RunData::new()
    }

    /// Returns the trace context of the run's span, which is recorded with a durable run, so that
    /// later attempts can link to it. This method is called once: right after
    /// [`start`](RunObserver::start) or, if the run first repeats the recorded steps of an earlier
    /// attempt, right after the first new event.
    fn trace_context(&self) -> Option<TraceContext> {
        None
    }
}

/// The start of a run that may be observed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObservedRun<'a> {
    /// The agent's [label](crate::Agent::with_label), including the labels of its parents. Empty if
    /// the agent has no label.
    pub label: &'a str,
    /// The history before the input is appended to it.
    pub history: &'a History,
    /// The options of the agent's requests.
    pub options: &'a Options,
    /// The [run's data](crate::Run::with_data).
    pub data: &'a RunData,
    /// Whether the run is that of a sub-agent, whose events its parent's run yields as well.
    pub is_sub_agent: bool,
    /// Whether the run starts with events that repeat the recorded steps of an earlier attempt.
    pub is_repeating: bool,
    /// The trace context that the first observed attempt at a durable run has recorded. `None` if
    /// the run is not durable, or if no earlier attempt is known. The context is read together with
    /// the first recorded step, when the run is first polled; a context that was recorded with a
    /// later step, because no earlier attempt was observed until then, is not found.
    pub first_trace_context: Option<TraceContext>,
}
