//! The agents and settings of a worker, which its services share.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use turnstream::durable::Attempt;
use turnstream::hub::Hub;
use turnstream::session::Store;
use turnstream::tool::RunData;
use turnstream::{Agent, Error, ErrorKind};
#[cfg(feature = "testing")]
use turnstream_testing::durable_suite::SuiteRuns;

/// The parts of a worker that its services need. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct WorkerSettings {
    pub(crate) agents: Arc<HashMap<String, Agent>>,
    pub(crate) hub: Option<Hub>,
    pub(crate) data: Option<DataSource>,
    /// The store for copies of the sessions.
    pub(crate) copy: Option<Arc<dyn Store>>,
    pub(crate) on_attempt: Option<AttemptObserver>,
    #[cfg(feature = "testing")]
    pub(crate) suite: SuiteRuns,
}

pub(crate) type DataSource = Arc<dyn Fn(&str) -> RunData + Send + Sync>;
pub(crate) type AttemptObserver = Arc<dyn Fn(&str, &str) + Send + Sync>;

impl WorkerSettings {
    pub(crate) fn agent(&self, name: &str) -> Result<Agent, Error> {
        #[cfg(feature = "testing")]
        if let Some(run) = self.suite.get(name) {
            return Ok(run.agent);
        }
        self.agents.get(name).cloned().ok_or_else(|| {
            let message = format!("no agent `{name}` is registered with this worker");
            Error::new(ErrorKind::Unsupported, message).with_parameter(name)
        })
    }

    pub(crate) fn hub(&self) -> Option<&Hub> {
        self.hub.as_ref()
    }

    pub(crate) fn data(&self, session: &str) -> Result<RunData, Error> {
        match &self.data {
            Some(data) => catch_panic("the source of run data", || data(session)),
            None => Ok(RunData::new()),
        }
    }

    /// Configures an attempt with this worker's data, hub and observer.
    pub(crate) fn prepare(
        &self,
        attempt: Attempt,
        session: &str,
        run: &str,
    ) -> Result<Attempt, Error> {
        if let Some(observe) = &self.on_attempt {
            catch_panic("the observer of attempts", || observe(session, run))?;
        }
        let attempt = attempt.with_data(self.data(session)?);
        Ok(match &self.hub {
            Some(hub) => attempt.with_hub(hub, run),
            None => attempt,
        })
    }
}

/// Runs a closure supplied by the user, and converts a panic to an error. Without this conversion,
/// Restate would keep retrying after a panic.
fn catch_panic<T>(what: &str, f: impl FnOnce() -> T) -> Result<T, Error> {
    std::panic::catch_unwind(AssertUnwindSafe(f))
        .map_err(|_| Error::new(ErrorKind::Panic, format!("{what} panicked")))
}
