//! The traces and the ends of a session's last runs, and the runs' ids for clients of other
//! protocols.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use turnstream::trace::{Trace, TraceEvent};

use super::ended_runs::EndedRun;

/// The number of a session's runs whose traces are kept.
const MAX_RUNS: usize = 8;

/// A session's last runs, the newest first.
#[derive(Default)]
pub(super) struct RunRecords(VecDeque<RunRecord>);

#[derive(Clone)]
pub(super) struct RunRecord {
    pub(super) run_id: String,
    /// The id of the assistant's message that the run writes, for AI SDK clients.
    pub(super) message_id: String,
    pub(super) trace: Trace,
    pub(super) end: RunEnd,
}

/// How a run has ended, once it has.
#[derive(Clone, Default)]
pub(super) struct RunEnd(Arc<Mutex<Option<EndedRun>>>);

impl RunEnd {
    pub(super) fn set(&self, run: EndedRun) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
    }

    fn get(&self) -> Option<EndedRun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One step of a run, for the page.
#[derive(Serialize)]
pub(super) struct TraceStep {
    #[serde(flatten)]
    event: TraceEvent,
    /// The step as text for people.
    text: String,
}

/// The trace of a run.
#[derive(Serialize)]
pub(super) struct RunTrace {
    run: String,
    steps: Vec<TraceStep>,
}

impl RunRecords {
    pub(super) fn add(&mut self, record: RunRecord) {
        self.0.truncate(MAX_RUNS - 1);
        self.0.push_front(record);
    }

    pub(super) fn get(&self, run_id: &str) -> Option<&RunRecord> {
        self.0.iter().find(|record| record.run_id == run_id)
    }

    /// The runs that have ended, in order.
    pub(super) fn to_ended_runs(&self) -> Vec<EndedRun> {
        self.0.iter().rev().filter_map(|record| record.end.get()).collect()
    }

    pub(super) fn to_traces(&self) -> Vec<RunTrace> {
        let step = |event: TraceEvent| TraceStep { text: event.to_string(), event };
        let run = |record: &RunRecord| RunTrace {
            run: record.run_id.clone(),
            steps: record.trace.events().into_iter().map(step).collect(),
        };
        self.0.iter().map(run).collect()
    }
}
