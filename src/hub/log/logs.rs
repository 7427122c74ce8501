//! Creates a reader for a run, given the run's key or id.

use std::sync::Arc;

use crate::hub::EventNumber;
use crate::hub::log::event_log::EventLog;
use crate::hub::read::reader::Reader;
use crate::hub::run::registry::{HubRun, Registry};
use crate::hub::run::run_directory::RunDirectory;

/// Creates readers for the runs whose events a hub has logged.
#[derive(Clone)]
pub(in crate::hub) struct Logs {
    log: Arc<dyn EventLog>,
    registry: Arc<Registry>,
}

impl Logs {
    pub(in crate::hub) fn new(log: Arc<dyn EventLog>, registry: Arc<Registry>) -> Self {
        Self { log, registry }
    }

    pub(in crate::hub) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Creates a reader for the key's active run. If `after` is an event number from the key's last
    /// run, the reader reads that run even if it has ended.
    pub(in crate::hub) fn read(&self, key: &str, after: Option<&EventNumber>) -> Option<Reader> {
        let last = after.and_then(|number| self.registry.last_run(key, number.run()));
        let hub_run = last.or_else(|| self.registry.current(key))?;
        Some(self.read_run(hub_run, after))
    }

    pub(in crate::hub) fn read_run(
        &self,
        hub_run: Arc<HubRun>,
        after: Option<&EventNumber>,
    ) -> Reader {
        let entries = self.log.read(&hub_run.run, after);
        Reader::new(Arc::clone(&hub_run.run), entries, Some(hub_run))
    }

    /// Creates a reader for a run that may belong to another hub.
    pub(in crate::hub) fn read_foreign_run(
        &self,
        run: &str,
        after: Option<&EventNumber>,
    ) -> Reader {
        Reader::new(run.into(), self.log.read(run, after), None)
    }

    /// Creates a reader for a run in this hub or in another hub.
    pub(in crate::hub) fn read_any_run(&self, run: &str, after: Option<&EventNumber>) -> Reader {
        match self.registry.run(run) {
            Some(hub_run) => self.read_run(hub_run, after),
            None => self.read_foreign_run(run, after),
        }
    }

    pub(in crate::hub) fn directory(&self) -> Option<Arc<dyn RunDirectory>> {
        self.log.directory()
    }
}
