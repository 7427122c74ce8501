//! The traces of the last runs of a session, and their names for the clients of other protocols.

use std::collections::VecDeque;

use serde::Serialize;
use turnstream::trace::{Trace, TraceEvent};

/// So many runs of a session have a trace.
const MAX_RUNS: usize = 8;

/// The last runs of a session, the newest first.
#[derive(Default)]
pub(crate) struct RunRecords(VecDeque<RunRecord>);

#[derive(Clone)]
pub(crate) struct RunRecord {
    pub(crate) run_id: String,
    /// The message that the run writes, for clients of the AI SDK.
    pub(crate) message_id: String,
    pub(crate) trace: Trace,
}

/// One step, for the page.
#[derive(Serialize)]
pub(crate) struct TraceStep {
    #[serde(flatten)]
    event: TraceEvent,
    /// The same for people.
    text: String,
}

/// The trace of a run.
#[derive(Serialize)]
pub(crate) struct RunTrace {
    run: String,
    steps: Vec<TraceStep>,
}

impl RunRecords {
    pub(crate) fn add(&mut self, record: RunRecord) {
        self.0.truncate(MAX_RUNS - 1);
        self.0.push_front(record);
    }

    pub(crate) fn get(&self, run_id: &str) -> Option<&RunRecord> {
        self.0.iter().find(|record| record.run_id == run_id)
    }

    pub(crate) fn to_traces(&self) -> Vec<RunTrace> {
        let step = |event: TraceEvent| TraceStep { text: event.to_string(), event };
        let run = |record: &RunRecord| RunTrace {
            run: record.run_id.clone(),
            steps: record.trace.events().into_iter().map(step).collect(),
        };
        self.0.iter().map(run).collect()
    }
}
