//! A reader of a session, across its runs.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use turnstream::Journal;
use turnstream::hub::{EventNumber, Hub, HubEvent, SessionReader};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, Session};
use turnstream::tool::{Tool, ToolSpec};

use super::backend;
use crate::support::seeded_random::Dice;
use turnstream::{Agent, Error, ErrorKind, Item};

fn agent() -> Agent {
    Agent::new(Scripted::from_fn(|_, n| {
        // Its readers have the time to attach.
        backend::begin_reply().say(format!("Answer {n}."))
    }))
}

async fn start(hub: &Hub, session: &Session, agent: &Agent) {
    let place = hub.reserve_when_free(session.id()).await.unwrap();
    place.start(session.run(agent, "Hi").await.unwrap()).await.unwrap().detach();
}

async fn read_to_end_of_run(reader: &mut SessionReader) -> Vec<HubEvent> {
    let mut read = Vec::new();
    while !matches!(read.last(), Some(HubEvent::Ended { .. })) {
        read.push(reader.next().await.unwrap().unwrap());
    }
    read
}

async fn a_reader_of_a_session_follows_it_from_run_to_run() {
    let (hub, agent) = (backend::hub().await, agent());
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let mut reader = hub.read_session(&session, None);
    let Some(Ok(HubEvent::Snapshot { number: None, snapshot })) = reader.next().await else {
        panic!("no run is there: it begins with what is stored");
    };
    assert_eq!(
        (snapshot.run(), snapshot.starts_at(), snapshot.history().len()),
        (None, Some(0), 0)
    );
    assert!(backend::soon(reader.next()).await.is_none(), "it waits for a run");
    for n in 0..3_u32 {
        start(&hub, &session, &agent).await;
        let run = hub.run_id("s");
        let read = read_to_end_of_run(&mut reader).await;
        let HubEvent::Snapshot { number: Some(number), snapshot } = &read[0] else { panic!() };
        assert_eq!(run.as_deref(), Some(number.run()));
        assert_eq!(
            (snapshot.starts_at(), snapshot.start().len()),
            (Some(u64::from(2 * n)), 2 * n as usize)
        );
        assert!(snapshot.events().is_empty());
    }
    drop(hub);
    assert!(reader.next().await.unwrap().is_err());
    assert!(reader.next().await.is_none());
}

async fn after_a_restart_history_and_pending_calls_come_from_the_store() {
    let store = MemoryStore::new();
    let spec = ToolSpec::new("delete", "Deletes a file", json!({ "type": "object" }));
    let delete = Tool::raw(spec, |_, _| async { "deleted" }).unwrap().requires_approval();
    let model = Scripted::new([backend::begin_reply().call("delete", json!({ "file": "notes" }))]);
    let agent = Agent::new(model).with_tools([delete]);
    let number = {
        let hub = backend::hub().await;
        let session = Session::open(store.clone(), "s").await.unwrap();
        start(&hub, &session, &agent).await;
        let mut reader = hub.read_session(&session, None);
        let read = read_to_end_of_run(&mut reader).await;
        let last = hub.read_session(&session, read[2].number()).next().await.unwrap().unwrap();
        assert_eq!(last.number(), read[3].number(), "its log is kept for a while");
        read[2].number().cloned()
    };
    // Simulates another process.
    let hub = backend::hub().await;
    let session = Session::open(store, "s").await.unwrap();
    let mut reader = hub.read_session(&session, number.as_ref());
    let Some(Ok(HubEvent::Snapshot { number: None, snapshot })) = reader.next().await else {
        panic!("the run is gone");
    };
    assert_eq!(snapshot.history(), session.history());
    assert_eq!(snapshot.pending_calls().len(), 1);
    assert_eq!(snapshot.pending_calls()[0].name, "delete");
}

async fn reading_from_a_number_of_an_earlier_run_returns_a_snapshot_of_the_active_run() {
    let (hub, agent) = (backend::hub().await, agent());
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    start(&hub, &session, &agent).await;
    let mut reader = hub.read_session(&session, None);
    let former = read_to_end_of_run(&mut reader).await[1].number().unwrap().clone();
    start(&hub, &session, &agent).await;
    let mut reader = hub.read_session(&session, Some(&former));
    let read = read_to_end_of_run(&mut reader).await;
    let HubEvent::Snapshot { number: Some(number), snapshot } = &read[0] else {
        panic!("{read:?}")
    };
    assert_ne!(number.run(), former.run());
    assert_eq!(snapshot.starts_at(), Some(2));
}

async fn a_reader_polled_after_a_failure_receives_the_error() {
    let failing = Scripted::from_fn(|_, _| Reply::error(Error::new(ErrorKind::Auth, "no key")));
    let (hub, agent) = (backend::hub().await, Agent::new(failing));
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let mut reader = hub.read_session(&session, None);
    reader.next().await.unwrap().unwrap();
    start(&hub, &session, &agent).await;
    while hub.run_id("s").is_some() {
        tokio::task::yield_now().await;
    }
    let read = read_to_end_of_run(&mut reader).await;
    assert!(matches!(&read[0], HubEvent::Snapshot { number: Some(_), .. }));
    let Some(HubEvent::Ended { error: Some(error), .. }) = read.last() else { panic!("{read:?}") };
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(backend::soon(reader.next()).await.is_none(), "nothing is told twice");
}

async fn a_reader_not_polled_during_a_run_receives_a_snapshot_of_the_session() {
    let (hub, agent) = (backend::hub().await.with_ended_kept_for(Duration::ZERO), agent());
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let mut reader = hub.read_session(&session, None);
    reader.next().await.unwrap().unwrap();
    assert!(backend::soon(reader.next()).await.is_none());
    for runs in 1..=3 {
        start(&hub, &session, &agent).await;
        while hub.run_id("s").is_some() {
            tokio::task::yield_now().await;
        }
        backend::let_tasks_run().await;
        // The run's log is gone, or the log of a later run has replaced it.
        let Some(Ok(HubEvent::Snapshot { number: None, snapshot })) = reader.next().await else {
            panic!("the run is over");
        };
        assert_eq!((snapshot.run(), snapshot.history().len()), (None, 2 * runs));
        assert!(backend::soon(reader.next()).await.is_none(), "nothing is told twice");
    }
    // The same after a run that the reader has read to its end.
    start(&hub, &session, &agent).await;
    read_to_end_of_run(&mut reader).await;
    assert!(backend::soon(reader.next()).await.is_none(), "nothing is told twice");
    start(&hub, &session, &agent).await;
    let read = read_to_end_of_run(&mut reader).await;
    assert!(matches!(&read[0], HubEvent::Snapshot { number: Some(_), .. }));
    assert_eq!(session.history().len(), 10);
    // One run was missed, and another is active: the reader receives the session first, so that
    // nothing is left out.
    start(&hub, &session, &agent).await;
    while hub.run_id("s").is_some() {
        tokio::task::yield_now().await;
    }
    start(&hub, &session, &agent).await;
    let Some(Ok(HubEvent::Snapshot { number: None, .. })) = reader.next().await else {
        panic!("a run was missed");
    };
    let read = read_to_end_of_run(&mut reader).await;
    let HubEvent::Snapshot { number: Some(_), snapshot } = &read[0] else { panic!("{read:?}") };
    assert_eq!(snapshot.starts_at(), Some(12));
}

async fn reading_from_a_number_before_a_missed_run_returns_a_snapshot_of_the_session() {
    let (hub, agent) = (backend::hub().await, agent());
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    start(&hub, &session, &agent).await;
    let mut reader = hub.read_session(&session, None);
    let first = read_to_end_of_run(&mut reader).await;
    drop(reader);
    start(&hub, &session, &agent).await;
    while hub.run_id("s").is_some() {
        tokio::task::yield_now().await;
    }
    // The log of the first run still exists, but does not have the whole session.
    let mut reader = hub.read_session(&session, first[1].number());
    let Some(Ok(HubEvent::Snapshot { number: None, snapshot })) = reader.next().await else {
        panic!("another run has ended since");
    };
    assert_eq!(snapshot.history().len(), 4);
    assert!(backend::soon(reader.next()).await.is_none());
}

/// A page: a run that this reader has read to its end stays on the screen, and the next run is
/// shown after it. Any other snapshot replaces the page's content.
struct View {
    reader: SessionReader,
    before: Vec<Item>,
    run: Journal,
    /// The number of items that the run started with.
    starts_at: usize,
    has_ended: bool,
    last: Option<EventNumber>,
}

impl View {
    fn new(hub: &Hub, session: &Session) -> Self {
        let run = Journal::new(session.history());
        let reader = hub.read_session(session, None);
        Self { reader, before: Vec::new(), run, starts_at: 0, has_ended: false, last: None }
    }

    fn attach_again(&mut self, hub: &Hub, session: &Session) {
        self.reader = hub.read_session(session, self.last.as_ref());
        // Runs may have started and ended meanwhile.
        self.has_ended = false;
    }

    /// Reads the available events, at most `limit`.
    async fn read(&mut self, limit: u32) {
        for _ in 0..limit {
            let Some(Some(read)) = backend::soon(self.reader.next()).await else { return };
            let read = read.unwrap();
            self.last = read.number().cloned();
            let is_next = std::mem::take(&mut self.has_ended);
            match &read {
                HubEvent::Snapshot { number, snapshot } => {
                    self.before = match is_next && number.is_some() {
                        true => self.shown(),
                        false => snapshot.start().iter().cloned().collect(),
                    };
                    (self.run, self.starts_at) = (snapshot.to_journal(), snapshot.start().len());
                }
                HubEvent::Event { event, .. } => self.run.observe(event),
                _ => self.has_ended = true,
            }
        }
    }

    fn shown(&self) -> Vec<Item> {
        let run = self.run.history();
        self.before.iter().chain(run.iter().skip(self.starts_at)).cloned().collect()
    }
}

async fn a_reader_polled_or_reattached_at_any_time_ends_with_the_whole_session() {
    for seed in 0..backend::seeds() {
        let dice = Dice::new(seed);
        let kept = if dice.one_in(2) { Duration::ZERO } else { Duration::from_mins(1) };
        let (hub, agent) = (backend::hub().await.with_ended_kept_for(kept), agent());
        let session = Session::open(MemoryStore::new(), "s").await.unwrap();
        let mut view = View::new(&hub, &session);
        for _ in 0..60 {
            match dice.roll(5) {
                0 if hub.run_id("s").is_none() => start(&hub, &session, &agent).await,
                1 => view.attach_again(&hub, &session),
                2 | 3 => view.read(dice.roll_u32(12)).await,
                _ => tokio::task::yield_now().await,
            }
        }
        while hub.run_id("s").is_some() {
            tokio::task::yield_now().await;
        }
        view.read(u32::MAX).await;
        let (shown, stored) = (view.shown(), session.history());
        assert!(shown.iter().eq(stored.iter()), "seed {seed}: {} {}", shown.len(), stored.len());
    }
}

on_backend! {
    a_reader_of_a_session_follows_it_from_run_to_run,
    after_a_restart_history_and_pending_calls_come_from_the_store,
    reading_from_a_number_of_an_earlier_run_returns_a_snapshot_of_the_active_run,
    a_reader_polled_after_a_failure_receives_the_error,
    a_reader_not_polled_during_a_run_receives_a_snapshot_of_the_session,
    reading_from_a_number_before_a_missed_run_returns_a_snapshot_of_the_session,
    a_reader_polled_or_reattached_at_any_time_ends_with_the_whole_session,
}
