//! The way from a key or a number to a reader.

use std::sync::Arc;

use crate::hub::EventNumber;
use crate::hub::event_log::EventLog;
use crate::hub::reader::Reader;
use crate::hub::registry::{Registry, RunPlace};

/// The logs of a hub.
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

    /// Reads the run that has the key, or the last one, if it has ended and this is a number of it.
    pub(super) fn read(&self, key: &str, after: Option<&EventNumber>) -> Option<Reader> {
        let last = after.and_then(|number| self.registry.last_run(key, number.run()));
        let place = last.or_else(|| self.registry.current(key))?;
        Some(self.read_run(place, after))
    }

    pub(super) fn read_run(&self, place: Arc<RunPlace>, after: Option<&EventNumber>) -> Reader {
        Reader::new(&*self.log, place, after)
    }
}
