//! A single attempt at a durable run.

use std::sync::Arc;

use futures::future::FutureExt;

use crate::agent::{Agent, Input, RunObserver};
use crate::durable::bridge::Bridge;
use crate::durable::driver::{Driver, RunStage};
use crate::durable::engine::{Engine, is_attempt_lost};
use crate::durable::journaled_world::JournaledWorld;
use crate::durable::publisher::{EventObserver, Publisher};
use crate::durable::run_commands::RunCommands;
use crate::durable::run_entries::RunEntries;
use crate::env::{Ids, SystemIds};
use crate::error::Error;
use crate::event::{Event, Outcome};
use crate::hub::Hub;
use crate::item::{Grant, PendingCall};
use crate::session::{Entry, MemoryStore, Session, SessionRun, Store};
use crate::tool::{RunData, Verdict};

/// A single attempt to start or continue a durable run in a session.
///
/// Each time an engine calls its handler, the handler creates an attempt and [drives](Self::drive)
/// it. The first attempt starts the run. If that attempt is lost, the next attempt receives the
/// values that the engine has recorded, skips the recorded operations, and continues with the first
/// operation that has not been recorded.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::durable::Attempt;
/// use turnstream::provider::Scripted;
/// use turnstream_testing::durable_suite::MemoryEngine;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// let mut engine = MemoryEngine::new();
/// let outcome = Attempt::run(&agent, "chat-1", Vec::new(), "Hi").drive(&mut engine).await?;
/// assert_eq!(outcome.text, "Hello!");
///
/// // The next attempt performs nothing, because the engine has recorded every step.
/// let again = Attempt::run(&agent, "chat-1", Vec::new(), "Hi").drive(&mut engine.next_attempt()).await?;
/// assert_eq!(again, outcome);
/// # Ok(())
/// # }
/// ```
#[must_use = "an attempt does nothing unless it is driven"]
pub struct Attempt {
    agent: Agent,
    session: String,
    entries: Vec<Entry>,
    start: Start,
    data: RunData,
    grants: Vec<Grant>,
    ids: Arc<dyn Ids>,
    hub: Option<(Hub, String)>,
    observer: Option<EventObserver>,
}

/// Specifies how a run starts.
#[derive(Clone)]
enum Start {
    Input(Input),
    Verdicts(Vec<(PendingCall, Verdict)>),
}

impl Attempt {
    /// Creates an attempt at a run with new input. This is the durable counterpart of
    /// [`Session::run`]. `entries` must contain all entries that the session had when the run
    /// started. Each attempt must pass the same entries.
    pub fn run(
        agent: &Agent,
        session: impl Into<String>,
        entries: Vec<Entry>,
        input: impl Into<Input>,
    ) -> Self {
        Self::new(agent, session.into(), entries, Start::Input(input.into()))
    }

    /// Creates an attempt at a run that continues pending calls or an unfinished run. This is the
    /// durable counterpart of [`Session::resume`]. `entries` must contain all entries that the
    /// session had when the run started. Each attempt must pass the same entries.
    pub fn resume(
        agent: &Agent,
        session: impl Into<String>,
        entries: Vec<Entry>,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Self {
        let verdicts = Start::Verdicts(verdicts.into_iter().collect());
        Self::new(agent, session.into(), entries, verdicts)
    }

    fn new(agent: &Agent, session: String, entries: Vec<Entry>, start: Start) -> Self {
        Self {
            agent: agent.clone(),
            session,
            entries,
            start,
            data: RunData::new(),
            grants: Vec::new(),
            ids: Arc::new(SystemIds),
            hub: None,
            observer: None,
        }
    }

    /// Passes data to the run's tools; see [`Run::with_data`](crate::Run::with_data).
    pub fn with_data(mut self, data: RunData) -> Self {
        self.data = data;
        self
    }

    /// Gives the run grants in addition to those of its session; see
    /// [`Run::with_grants`](crate::Run::with_grants). Each attempt must pass the same grants.
    pub fn with_grants(mut self, grants: impl IntoIterator<Item = Grant>) -> Self {
        self.grants.extend(grants);
        self
    }

    /// Makes the run visible in a hub, under the session's id. The current step ends if the run is
    /// interrupted through the hub or reaches a time limit. While the engine waits for verdicts,
    /// only a command in the engine's queue can end the run. While it executes calls separately
    /// from the run, an interrupt through the hub drops the calls, and the run ends once they have
    /// ended.
    ///
    /// Progress from calls that are executed separately is shown, and an interrupt through the hub
    /// reaches them, only if the workers that
    /// [perform](crate::durable::ToolCallRequest::perform) these calls also use the hub.
    ///
    /// `run_id` must be the same in each attempt, so that a later attempt replaces the earlier one
    /// in the hub's log. Readers of a later attempt first receive a snapshot of the recorded
    /// events, then the [`Retracted`](crate::TurnEvent::Retracted) event, whose reason says that
    /// the earlier attempt's process was lost, and then the new events.
    pub fn with_hub(mut self, hub: &Hub, run_id: impl Into<String>) -> Self {
        self.hub = Some((hub.clone(), run_id.into()));
        self
    }

    /// Calls `observer` with each event that the attempt publishes. The observer also receives the
    /// replayed events, which an earlier attempt may already have published.
    pub fn inspect(mut self, observer: impl FnMut(&Event) + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Sets the id generator used to create the attempt's name. The default is [`SystemIds`]. Each
    /// attempt must have a different name.
    pub fn with_ids(mut self, ids: impl Ids + 'static) -> Self {
        self.ids = Arc::new(ids);
        self
    }

    /// Drives the run to completion. Dropping the returned future cancels all work in progress, and
    /// the attempt is lost.
    ///
    /// If the run failed, the outcome contains the [`error`](Outcome::error). Input that arrived
    /// too late for the run is listed in [`undelivered`](Outcome::undelivered), and is returned to
    /// the engine's queue for the next run.
    ///
    /// # Errors
    ///
    /// If [`is_attempt_lost`] returns `true` for the error, another attempt can continue the run.
    /// All other errors end the run: the errors from [`Session::run`] and [`Session::resume`], the
    /// engine's errors, and [`TooLarge`](crate::ErrorKind::TooLarge) if a turn or the results of
    /// its calls exceed 8 MiB.
    pub async fn drive(self, engine: &mut dyn Engine) -> Result<Outcome, Error> {
        let Self { agent, session, entries, start, data, grants, ids, hub, observer } = self;
        let run_observer = hub.as_ref().and_then(|(hub, _)| hub.run_observer());
        let extras = RunExtras { data, grants, observer: run_observer };
        let hub = hub.map(|(hub, run_id)| (hub, session.clone(), run_id));
        let bridge = Arc::new(Bridge::new(ids.next_id(), agent.toolkit().clone()));
        let world = JournaledWorld(Arc::clone(&bridge));
        let agent = agent.with_world(move |_, _| world.clone());
        let store = MemoryStore::new();
        let saved = entries.len() as u64;
        store.append(&session, 0, entries).await?;
        let mut driver = Driver {
            bridge,
            entries: RunEntries::new(store.clone(), session.clone(), saved),
            commands: RunCommands::default(),
            run: RunStage::Opening(open_run(store, session, agent, start, extras).boxed()),
            begin: None,
            publisher: Publisher::new(hub, observer),
        };
        match driver.drive(engine).await {
            Err(error) if !is_attempt_lost(&error) => {
                engine.finish(driver.commands.take_undelivered()).await?;
                driver.publisher.fail(&error).await;
                Err(error)
            }
            done => done,
        }
    }
}

/// The values that a run receives besides its input.
struct RunExtras {
    data: RunData,
    grants: Vec<Grant>,
    /// The observer of the hub in which the run is visible.
    observer: Option<Arc<dyn RunObserver>>,
}

/// Opens the session and creates its run.
async fn open_run(
    store: MemoryStore,
    session: String,
    agent: Agent,
    start: Start,
    RunExtras { data, grants, observer }: RunExtras,
) -> Result<(Session, SessionRun), Error> {
    let session = Session::open(store, session).await?;
    let run = match start {
        Start::Input(input) => session.run(&agent, input).await?,
        Start::Verdicts(verdicts) => session.resume(&agent, verdicts).await?,
    };
    if let Some(observer) = observer {
        run.internal_handle().set_default_observer(&observer);
    }
    Ok((session, run.with_data(data).with_grants(grants)))
}

impl_debug!(Attempt(it), session = it.session, entries = it.entries.len());
