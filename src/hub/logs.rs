//! Creates a reader for a run, given the run's key or id.

use std::sync::Arc;

use crate::hub::EventNumber;
use crate::hub::event_log::EventLog;
use crate::hub::reader::Reader;
use crate::hub::registry::{Registry, RunPlace};
use crate::hub::run_directory::RunDirectory;

/// Creates readers for the runs whose events a hub has logged.
#[derive(Clone)]
pub(super) struct Logs {
    log: Arc<dyn EventLog>,
    registry: Arc<Registry>,
}

impl Logs {
    pub(super) fn new(log: Arc<dyn EventLog>, registry: Arc<Registry>) -> Self {
        Self { log, registry }
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Creates a reader for the key's active run. If `after` is an event number from the key's last
    /// run, the reader reads that run even if it has ended.
    pub(super) fn read(&self, key: &str, after: Option<&EventNumber>) -> Option<Reader> {
        let last = after.and_then(|number| self.registry.last_run(key, number.run()));
        let place = last.or_else(|| self.registry.current(key))?;
        Some(self.read_run(place, after))
    }

    pub(super) fn read_run(&self, place: Arc<RunPlace>, after: Option<&EventNumber>) -> Reader {
        let entries = self.log.read(&place.run, after);
        Reader::new(Arc::clone(&place.run), entries, Some(place))
    }

    /// Creates a reader for a run that may belong to another hub.
    pub(super) fn read_foreign_run(&self, run: &str, after: Option<&EventNumber>) -> Reader {
        Reader::new(run.into(), self.log.read(run, after), None)
    }

    /// Creates a reader for a run in this hub or in another hub.
    pub(super) fn read_any_run(&self, run: &str, after: Option<&EventNumber>) -> Reader {
        match self.registry.run(run) {
            Some(place) => self.read_run(place, after),
            None => self.read_foreign_run(run, after),
        }
    }

    pub(super) fn directory(&self) -> Option<Arc<dyn RunDirectory>> {
        self.log.directory()
    }
}
