//! The runs of the suite of engines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use turnstream::Agent;
use turnstream::durable::suite::SuiteRun;

/// The runs of the [suite](turnstream::durable::suite), by their sessions. Clones are the same.
#[derive(Clone, Default)]
pub struct SuiteRuns(Arc<Mutex<HashMap<String, SuiteRun>>>);

impl SuiteRuns {
    /// Has the next run of its session performed so. The name of its agent is the session's id.
    pub fn insert(&self, run: SuiteRun) {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.insert(run.session.clone(), run);
    }

    pub(crate) fn run(&self, session: &str) -> Option<SuiteRun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    pub(crate) fn agent(&self, session: &str) -> Option<Agent> {
        self.run(session).map(|run| run.agent)
    }
}
