//! The trace of a run, which is shared by writers and readers.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;
use tokio::time::Instant;

use crate::env::Clock;
use crate::error::Error;
use crate::event::{AppendReason, Event};
use crate::item::{History, RawJson};
use crate::lock::lock_ignoring_poison;
use crate::trace::step_time::Moment;
use crate::trace::trace_fold::TraceFold;
use crate::trace::trace_line::LineRef;
use crate::trace::trace_writers::TraceWriters;
use crate::trace::{IterationSpan, RemainingBudget, TraceEvent};
use crate::usage::Prices;

/// Collects the steps in a run. Clones of a `Trace` share the same steps.
///
/// [`trace_to`](crate::EventStreamExt::trace_to) adds steps to the trace, which can be read at any
/// time. A step is the result of a call, a turn without calls after which the run continued, or the
/// end of the run. Results are listed in the order in which they arrive. If a run is dropped, no
/// end step is recorded for it. If a trace is used for several runs in succession, step numbers
/// continue across the runs, and the budgets are reset at the start of each run. A new run starts
/// with the event that appends its input, or with the first event after the end of the previous
/// run.
///
/// A sub-agent's steps also appear in the trace, in the order in which they happened. Each of the
/// sub-agent's steps contains the id of the call that runs the sub-agent. A sub-agent's steps are
/// numbered separately, and do not affect the numbers and budgets in the parent's steps.
///
/// ```
/// use futures::StreamExt;
/// use turnstream::provider::{Reply, Scripted};
/// use turnstream::tool::{Tool, ToolSpec};
/// use turnstream::{Agent, EventStreamExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let model = Scripted::new([
///     Reply::new().call("touch", serde_json::json!({ "file": "a.md" })),
///     Reply::text("Done."),
/// ]);
/// let schema = serde_json::json!({ "type": "object", "properties": {} });
/// let spec = ToolSpec::new("touch", "Makes a file", schema);
/// let touch = Tool::raw(spec, |args, cx| async move {
///     cx.record_change(args["file"].as_str().unwrap_or_default());
///     "done"
/// })?;
/// let agent = Agent::new(model).with_tools([touch]);
///
/// let trace = agent.new_trace();
/// agent.run("Make a.md").trace_to(&trace).for_each(|_| async {}).await;
/// let steps = trace.events();
/// assert_eq!(steps.len(), 2);
/// assert_eq!(steps[0].result.changed_files, ["a.md"]);
/// assert_eq!(steps[0].budgets.steps_remaining, Some(19));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<TraceShared>);

#[derive(Debug, Default)]
struct TraceShared {
    /// The lock on the writers is taken before the lock on `state`, so that lines are written in
    /// order and readers of the trace never wait for a writer.
    writers: Mutex<TraceWriters>,
    state: Mutex<TraceState>,
}

#[derive(Default)]
struct TraceState {
    fold: TraceFold,
    /// The time at which the run's first event was observed.
    started_at: Option<Instant>,
    /// The clock for the times of the steps, if the steps have times.
    clock: Option<Arc<dyn Clock>>,
    steps: Vec<TraceEvent>,
    iterations: Vec<EndedIteration>,
}

/// An iteration, and the number of steps that were recorded before its end.
#[derive(Clone)]
struct EndedIteration {
    span: IterationSpan,
    steps_before: usize,
}

impl Trace {
    /// Creates a trace for runs that have no budgets. For an agent with budgets, use
    /// [`Agent::new_trace`](crate::Agent::new_trace).
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a trace for runs that start with the given budgets.
    pub fn from_budgets(budgets: RemainingBudget) -> Self {
        let trace = Self::default();
        trace.lock_state().fold.initial_budget = budgets;
        trace
    }

    /// Sets the token prices that are used to compute [`RemainingBudget::cost_remaining`].
    pub fn with_prices(self, prices: Prices) -> Self {
        self.lock_state().fold.prices = prices;
        self
    }

    /// Adds to each step the [time](TraceEvent::time) at which it began and ended, as read from
    /// `clock`. The clock is read for each event.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::env::SystemClock;
    /// use turnstream::provider::Scripted;
    /// use turnstream::{Agent, EventStreamExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Hello!"]));
    /// let trace = agent.new_trace().with_clock(SystemClock);
    /// agent.run("Hi").trace_to(&trace).for_each(|_| async {}).await;
    /// let time = trace.last_event().unwrap().time.unwrap();
    /// assert!(time.began_at_ms <= time.ended_at_ms);
    /// # }
    /// ```
    pub fn with_clock(self, clock: impl Clock + 'static) -> Self {
        self.lock_state().clock = Some(Arc::new(clock));
        self
    }

    /// Adds the open calls from a history, so that the trace also contains the arguments of these
    /// calls when a run [resumes](crate::Agent::resume) them.
    pub fn with_resumed_history(self, history: &History) -> Self {
        self.lock_state().fold.resume_from(history);
        self
    }

    /// Writes each new step to `out` as a single line of JSON, as soon as it is recorded, and a
    /// line at the end of each [iteration](Self::iterations). Lines that have already been recorded
    /// are written first. Each line is written in full and then flushed.
    ///
    /// Write errors never affect the run. After a write error, nothing more is written to the
    /// writer that failed, and [`failure`](Self::failure) returns the first write error.
    pub fn write_to(&self, out: impl Write + Send + 'static) {
        let mut sink = self.lock_writers();
        let (steps, iterations) = {
            let state = self.lock_state();
            (state.steps.clone(), state.iterations.clone())
        };
        let mut so_far = Vec::with_capacity(steps.len() + iterations.len());
        let mut written = 0;
        for EndedIteration { span, steps_before } in &iterations {
            so_far.extend(steps[written..*steps_before].iter().map(LineRef::from));
            so_far.push(LineRef::from(span));
            written = *steps_before;
        }
        so_far.extend(steps[written..].iter().map(LineRef::from));
        sink.add(Box::new(out), &so_far);
    }

    /// Returns the first write error, if any. The trace itself is still complete.
    pub fn failure(&self) -> Option<Error> {
        self.lock_writers().failure.clone()
    }

    /// Records an input for the next step. For example, an input can state which context was
    /// selected for the step's request, and why. A value that cannot be serialized to JSON is
    /// stored as `null`.
    pub fn add_input(&self, input: impl Serialize) {
        let json = RawJson::new(&input).unwrap_or_else(|_| serde_json::Value::Null.into());
        self.lock_state().fold.add_input(json);
    }

    /// Adds the next event of a run to the trace. [`trace_to`](crate::EventStreamExt::trace_to)
    /// calls `observe` for each event in its stream, so call `observe` directly only for events
    /// from elsewhere.
    pub fn observe(&self, event: &Event) {
        let mut sink = self.lock_writers();
        let mut steps = Vec::new();
        let iterations = {
            let book = &mut *self.lock_state();
            if matches!(event, Event::Appended { why: AppendReason::Input, .. }) {
                // The previous run may have been dropped before it ended.
                book.started_at = None;
            }
            let now = book.now();
            book.fold.observe(event, now, &mut steps);
            if event.outcome().is_some() {
                book.started_at = None;
            }
            book.steps.extend_from_slice(&steps);
            // The steps of an event precede the end of the iteration.
            let (steps_before, ended) = (book.steps.len(), book.fold.take_iterations());
            let ended_at =
                |span: &IterationSpan| EndedIteration { span: span.clone(), steps_before };
            book.iterations.extend(ended.iter().map(ended_at));
            ended
        };
        let lines = steps.iter().map(LineRef::from).chain(iterations.iter().map(LineRef::from));
        sink.write_lines(&lines.collect::<Vec<_>>());
    }

    /// Returns a copy of the steps recorded so far, in order, from all runs that this trace has
    /// observed.
    pub fn events(&self) -> Vec<TraceEvent> {
        self.lock_state().steps.clone()
    }

    /// Returns the iterations that have ended, with the times at which they began and ended if the
    /// trace [has a clock](Self::with_clock). The last iteration of a run that was dropped is not
    /// included.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::env::SystemClock;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::{Agent, EventStreamExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let model = Scripted::new([Reply::new().call("look", serde_json::json!({})), "Done.".into()]);
    /// let agent = Agent::new(model);
    /// let trace = agent.new_trace().with_clock(SystemClock);
    /// agent.run("Look").trace_to(&trace).for_each(|_| async {}).await;
    /// let [first, second] = &trace.iterations()[..] else { panic!() };
    /// assert_eq!((first.turn, second.turn), (1, 2));
    /// assert_eq!(first.time.unwrap().ended_at_ms, second.time.unwrap().began_at_ms);
    /// # }
    /// ```
    pub fn iterations(&self) -> Vec<IterationSpan> {
        self.lock_state().iterations.iter().map(|iteration| iteration.span.clone()).collect()
    }

    /// Returns the last recorded step, if any, without copying the others.
    pub fn last_event(&self) -> Option<TraceEvent> {
        self.lock_state().steps.last().cloned()
    }

    fn lock_state(&self) -> MutexGuard<'_, TraceState> {
        lock_ignoring_poison(&self.0.state)
    }

    fn lock_writers(&self) -> MutexGuard<'_, TraceWriters> {
        lock_ignoring_poison(&self.0.writers)
    }
}

impl TraceState {
    /// Returns the current moment of the run. The time since the run's first event is measured only
    /// if the run has a time budget, or if the steps have times.
    fn now(&mut self) -> Moment {
        let is_measured = self.fold.initial_budget.time_remaining_ms.is_some();
        let date = self.clock.as_ref().map(|clock| clock.now());
        if !is_measured && date.is_none() {
            return Moment::default();
        }
        let elapsed = self.started_at.get_or_insert_with(Instant::now).elapsed();
        Moment { elapsed, date }
    }
}

impl_debug!(TraceState(it), steps = it.steps.len(), fold = it.fold);
