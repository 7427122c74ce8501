//! Telemetry as a setting of an agent or of a hub, which records each of their runs.

use turnstream::agent::{EventObserver, ObservedRun, RunObserver};
use turnstream::error::Error;
use turnstream::event::Event;
use turnstream::propagation::{TraceContext, TraceContexts};
use turnstream::tool::RunData;

use crate::run_telemetry::RunTelemetry;
use crate::telemetry::Telemetry;

/// Records each run of an agent, with
/// [`Agent::with_run_observer`](turnstream::Agent::with_run_observer), or of a hub, with
/// [`HubBuilder::with_run_observer`](turnstream::hub::HubBuilder::with_run_observer).
///
/// - The agent's name is the agent's label, and the id of the conversation is the history's id.
/// - The parent of the run's span is the [`TraceContext`] in the run's data, if any, or else the
///   current context of [`TraceContexts`] that the program has created. The run's own contexts
///   replace them. The parent of a run to which a tool passes
///   [its data](turnstream::tool::ToolContext::run_data) is the tool's span.
/// - The run's requests and tools continue the trace.
/// - A sub-agent's run is recorded as part of its parent's run. If the parent's run is not
///   recorded, the sub-agent's run is, if its agent has this setting.
/// - A tool that runs an agent either passes its data to that run, or forwards the run's events to
///   its own run. If a tool does both, the run is recorded twice, and so are its tokens.
/// - A run whose data contains [`RunTelemetry::contexts`] is already recorded by
///   [`with_telemetry`](crate::TelemetryExt::with_telemetry), and is not recorded again.
/// - The span of an attempt that continues a [durable](turnstream::durable) run starts with the
///   first new event, and is linked to the span with which the run began.
impl RunObserver for Telemetry {
    fn start(&self, run: &ObservedRun<'_>) -> Option<Box<dyn EventObserver>> {
        let parent = match run.data.get::<TraceContexts>() {
            Some(contexts) if contexts.is_recorded() => {
                if run.is_sub_agent || !contexts.is_of_call() {
                    return None;
                }
                contexts.current()
            }
            contexts => {
                let given = run.data.get::<TraceContext>();
                let given = given.map(|context| TraceContext::clone(&context));
                given.or_else(|| contexts?.current())
            }
        };
        let mut telemetry = self
            .start_run()
            .with_conversation_id(run.history.id())
            .with_options(run.options)
            .with_history(run.history.clone());
        if !run.label.is_empty() {
            telemetry = telemetry.with_agent_name(run.label);
        }
        if let Some(parent) = parent {
            telemetry = telemetry.with_parent(&parent);
        }
        if let Some(first) = &run.first_trace_context {
            telemetry = telemetry.with_link(first);
        }
        if !run.is_repeating {
            telemetry.start();
        }
        Some(Box::new(telemetry))
    }
}

impl EventObserver for RunTelemetry {
    fn observe(&mut self, event: &Event) {
        Self::observe(self, event);
    }

    fn observe_repeated(&mut self, event: &Event) {
        Self::observe_repeated(self, event);
    }

    fn observe_end(&mut self, error: Option<&Error>) {
        if let Some(error) = error {
            self.fail(error);
        }
        self.end_of_events();
    }

    fn run_data(&self) -> RunData {
        RunData::new().insert(self.contexts())
    }

    fn trace_context(&self) -> Option<TraceContext> {
        self.context()
    }
}
