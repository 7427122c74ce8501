//! A reader of a session, across its runs.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::json;
use tokio::sync::Semaphore;
use turnstream::Journal;
use turnstream::env::SeededRandom;
use turnstream::hub::{EventNumber, Hub, HubEvent, SessionReader};
use turnstream::provider::{Piece, from_stream};
use turnstream::session::{MemoryStore, Session};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, Item};

use crate::hub_suite::backend::Backend;
use crate::hub_suite::pace::{Pace, roll};

/// The runs of a session. Each waits before its reply, until a test lets it end.
struct Runs {
    agent: Agent,
    replies: Arc<Semaphore>,
}

impl Runs {
    fn new() -> Self {
        Self::with_reply(|| Ok(vec!["An answer.".into(), StopReason::Stop.into()]))
    }

    fn with_reply(reply: impl Fn() -> Result<Vec<Piece>, Error> + Send + Sync + 'static) -> Self {
        let replies = Arc::new(Semaphore::new(0));
        let may_reply = Arc::clone(&replies);
        let model = from_stream("gated", move |_| {
            let (may_reply, reply) = (Arc::clone(&may_reply), reply());
            stream::once(async move {
                may_reply.acquire().await.unwrap().forget();
                stream::iter(match reply {
                    Ok(pieces) => pieces.into_iter().map(Ok).collect(),
                    Err(error) => vec![Err(error)],
                })
            })
            .flatten()
        });
        Self { agent: Agent::new(model), replies }
    }

    /// Starts a run, which waits before its reply.
    async fn start(&self, hub: &Hub, session: &Session) {
        let place = hub.reserve_when_free(session.id()).await.unwrap();
        let run = session.run(&self.agent, "Hi").await.unwrap();
        place.start(run).await.unwrap().detach();
    }

    fn let_one_end(&self) {
        self.replies.add_permits(1);
    }

    /// Starts a run, and waits until it has ended. Returns its id.
    async fn run_to_end(&self, hub: &Hub, session: &Session) -> String {
        self.start(hub, session).await;
        let run = hub.run_id(session.id()).unwrap();
        self.let_one_end();
        while hub.run_id(session.id()).is_some() {
            tokio::task::yield_now().await;
        }
        run
    }

    /// Reads the active run from the start to its end; the run ends after the first event was read.
    async fn read(&self, reader: &mut SessionReader) -> Vec<HubEvent> {
        let mut read = vec![reader.next().await.unwrap().unwrap()];
        self.let_one_end();
        read_to_end(reader, &mut read).await;
        read
    }
}

async fn read_to_end(reader: &mut SessionReader, read: &mut Vec<HubEvent>) {
    while !matches!(read.last(), Some(HubEvent::Ended { .. })) {
        read.push(reader.next().await.unwrap().unwrap());
    }
}

/// Waits until the log of a run is removed.
async fn until_removed(hub: &Hub, run: &str) {
    while !matches!(hub.read_any_run(run, None).next().await, Some(Err(_))) {
        tokio::task::yield_now().await;
    }
}

pub(super) async fn a_reader_of_a_session_follows_it_from_run_to_run<B: Backend>() {
    let (hub, runs) = (B::hub().await, Runs::new());
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let mut reader = hub.read_session(&session, None);
    let Some(Ok(HubEvent::Snapshot { number: None, snapshot })) = reader.next().await else {
        panic!("no run is there: it begins with what is stored");
    };
    assert_eq!(
        (snapshot.run(), snapshot.starts_at(), snapshot.to_journal().history().len()),
        (None, Some(0), 0)
    );
    assert!(B::soon(reader.next()).await.is_none(), "it waits for a run");
    for n in 0..3_u32 {
        runs.start(&hub, &session).await;
        let run = hub.run_id("s");
        let read = runs.read(&mut reader).await;
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

pub(super) async fn after_a_restart_history_and_pending_calls_come_from_the_store<B: Backend>() {
    let store = MemoryStore::new();
    let spec = ToolSpec::new("delete", "Deletes a file", json!({ "type": "object" }));
    let delete = Tool::raw(spec, |_, _| async { "deleted" }).unwrap().requires_approval();
    let call = json!({ "file": "notes" }).to_string();
    let mut runs = Runs::with_reply(move || {
        let (id, name) = ("c1".into(), "delete".into());
        let call = Piece::ToolCall { id, name, arguments: call.clone() };
        Ok(vec![call, StopReason::ToolCalls.into()])
    });
    runs.agent = runs.agent.with_tools([delete]);
    let number = {
        let hub = B::hub().await;
        let session = Session::open(store.clone(), "s").await.unwrap();
        runs.start(&hub, &session).await;
        let mut reader = hub.read_session(&session, None);
        let read = runs.read(&mut reader).await;
        let last = hub.read_session(&session, read[2].number()).next().await.unwrap().unwrap();
        assert_eq!(last.number(), read[3].number(), "its log is kept for a while");
        read[2].number().cloned()
    };
    // Simulates another process.
    let hub = B::hub().await;
    let session = Session::open(store, "s").await.unwrap();
    let mut reader = hub.read_session(&session, number.as_ref());
    let Some(Ok(HubEvent::Snapshot { number: None, snapshot })) = reader.next().await else {
        panic!("the run is gone");
    };
    assert_eq!(snapshot.to_journal().history(), session.history());
    assert_eq!(snapshot.pending_calls().len(), 1);
    assert_eq!(snapshot.pending_calls()[0].name, "delete");
}

pub(super) async fn reading_from_a_number_of_an_earlier_run_returns_a_snapshot_of_the_active_run<
    B: Backend,
>() {
    let (hub, runs) = (B::hub().await, Runs::new());
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    runs.start(&hub, &session).await;
    let mut reader = hub.read_session(&session, None);
    let former = runs.read(&mut reader).await[1].number().unwrap().clone();
    runs.start(&hub, &session).await;
    let mut reader = hub.read_session(&session, Some(&former));
    let read = runs.read(&mut reader).await;
    let HubEvent::Snapshot { number: Some(number), snapshot } = &read[0] else {
        panic!("{read:?}")
    };
    assert_ne!(number.run(), former.run());
    assert_eq!(snapshot.starts_at(), Some(2));
}

pub(super) async fn a_reader_polled_after_a_failure_receives_the_error<B: Backend>() {
    let failing = Runs::with_reply(|| Err(Error::new(ErrorKind::Auth, "no key")));
    let hub = B::hub().await;
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let mut reader = hub.read_session(&session, None);
    reader.next().await.unwrap().unwrap();
    failing.run_to_end(&hub, &session).await;
    let mut read = Vec::new();
    read_to_end(&mut reader, &mut read).await;
    assert!(matches!(&read[0], HubEvent::Snapshot { number: Some(_), .. }));
    let Some(HubEvent::Ended { error: Some(error), .. }) = read.last() else { panic!("{read:?}") };
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(B::soon(reader.next()).await.is_none(), "nothing is told twice");
}

pub(super) async fn a_reader_not_polled_during_a_run_receives_a_snapshot_of_the_session<
    B: Backend,
>() {
    let (hub, runs) = (B::builder().await.with_ended_kept_for(Duration::ZERO).build(), Runs::new());
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let mut reader = hub.read_session(&session, None);
    reader.next().await.unwrap().unwrap();
    assert!(B::soon(reader.next()).await.is_none());
    for count in 1..=3 {
        let run = runs.run_to_end(&hub, &session).await;
        until_removed(&hub, &run).await;
        // The run's log is gone, or the log of a later run has replaced it.
        let Some(Ok(HubEvent::Snapshot { number: None, snapshot })) = reader.next().await else {
            panic!("the run is over");
        };
        assert_eq!((snapshot.run(), snapshot.to_journal().history().len()), (None, 2 * count));
        assert!(B::soon(reader.next()).await.is_none(), "nothing is told twice");
    }
    // The same after a run that the reader has read to its end.
    runs.start(&hub, &session).await;
    runs.read(&mut reader).await;
    assert!(B::soon(reader.next()).await.is_none(), "nothing is told twice");
    runs.start(&hub, &session).await;
    let read = runs.read(&mut reader).await;
    assert!(matches!(&read[0], HubEvent::Snapshot { number: Some(_), .. }));
    assert_eq!(session.history().len(), 10);
    // One run was missed, and another is active: the reader receives the session first, so that
    // nothing is left out.
    runs.run_to_end(&hub, &session).await;
    runs.start(&hub, &session).await;
    let Some(Ok(HubEvent::Snapshot { number: None, .. })) = reader.next().await else {
        panic!("a run was missed");
    };
    let read = runs.read(&mut reader).await;
    let HubEvent::Snapshot { number: Some(_), snapshot } = &read[0] else { panic!("{read:?}") };
    assert_eq!(snapshot.starts_at(), Some(12));
}

pub(super) async fn reading_from_a_number_before_a_missed_run_returns_a_snapshot_of_the_session<
    B: Backend,
>() {
    let (hub, runs) = (B::hub().await, Runs::new());
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    runs.start(&hub, &session).await;
    let mut reader = hub.read_session(&session, None);
    let first = runs.read(&mut reader).await;
    drop(reader);
    runs.run_to_end(&hub, &session).await;
    // The log of the first run still exists, but does not have the whole session.
    let mut reader = hub.read_session(&session, first[1].number());
    let Some(Ok(HubEvent::Snapshot { number: None, snapshot })) = reader.next().await else {
        panic!("another run has ended since");
    };
    assert_eq!(snapshot.to_journal().history().len(), 4);
    assert!(B::soon(reader.next()).await.is_none());
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
    async fn read<B: Backend>(&mut self, limit: u32) {
        for _ in 0..limit {
            let Some(Some(read)) = B::soon(self.reader.next()).await else { return };
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

pub(super) async fn a_reader_polled_or_reattached_at_any_time_ends_with_the_whole_session<
    B: Backend,
>() {
    for seed in 0..B::seeds() {
        let random = SeededRandom::new(seed);
        let retention = if roll(&random, 2) == 0 { Duration::ZERO } else { Duration::from_mins(1) };
        let (hub, runs) = (B::builder().await.with_ended_kept_for(retention).build(), Runs::new());
        let session = Session::open(MemoryStore::new(), "s").await.unwrap();
        let mut view = View::new(&hub, &session);
        for _ in 0..60 {
            match roll(&random, 6) {
                0 if hub.run_id("s").is_none() => runs.start(&hub, &session).await,
                0 | 1 if hub.run_id("s").is_some() => runs.let_one_end(),
                2 => view.attach_again(&hub, &session),
                3 | 4 => view.read::<B>(u32::try_from(roll(&random, 12)).unwrap()).await,
                _ => tokio::task::yield_now().await,
            }
        }
        runs.let_one_end();
        while hub.run_id("s").is_some() {
            tokio::task::yield_now().await;
        }
        let stored = session.history();
        for _ in 0..100 {
            view.read::<B>(u32::MAX).await;
            if view.shown().iter().eq(stored.iter()) {
                break;
            }
        }
        let shown = view.shown();
        assert!(shown.iter().eq(stored.iter()), "seed {seed}: {} {}", shown.len(), stored.len());
    }
}
