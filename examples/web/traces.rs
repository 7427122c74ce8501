//! The traces of a session's last runs, and the runs' ids for clients of other protocols.

use std::collections::VecDeque;

use serde::Serialize;
use turnstream::trace::{Trace, TraceEvent};

/// The number of a session's runs whose traces are kept.
const MAX_RUNS: usize = 8;

/// A session's last runs, the newest first.
#[derive(Default)]
pub(crate) struct RunRecords(VecDeque<RunRecord>);

#[derive(Clone)]
pub(crate) struct RunRecord {
    pub(crate) run_id: String,
    /// The id of the assistant's message that the run writes, for AI SDK clients.
    pub(crate) message_id: String,
    pub(crate) trace: Trace,
}

/// One step of a run, for the page.
#[derive(Serialize)]
pub(crate) struct TraceStep {
    #[serde(flatten)]
    event: TraceEvent,
    /// The step as text for people.
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
