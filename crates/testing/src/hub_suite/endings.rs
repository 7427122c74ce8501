//! How a run in a hub ends, and what a drop cancels.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use turnstream::event::EndReason;
use turnstream::hub::{
    AlreadyRunning, Command, EventLog, Hub, HubEvent, NotRunning, Reader, RunSource, ShuttingDown,
    Unattended,
};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, Session};
use turnstream::{Agent, Error, ErrorKind, Event, History};

use crate::hub_suite::backend::Backend;
use crate::hub_suite::pace::Pace;

/// A model that never stops.
fn endless_agent<B: Backend>() -> Agent {
    let reply = (0..1_000)
        .fold(Reply::new(), |reply, _| reply.say("word ").delay(B::time(Duration::from_secs(1))));
    Agent::new(Scripted::from_fn(move |_, _| reply.clone()))
}

/// Counts as alive until the stream is dropped.
fn endless_source(alive: &Arc<AtomicUsize>) -> RunSource {
    struct Guard(Arc<AtomicUsize>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    alive.fetch_add(1, Ordering::SeqCst);
    let guard = Guard(Arc::clone(alive));
    let events = stream::pending::<Result<Event, Error>>().map(move |event| {
        let _ = &guard;
        event
    });
    RunSource::new(History::empty("h"), events)
}

async fn last_of(reader: Reader) -> Result<HubEvent, Error> {
    reader.collect::<Vec<_>>().await.pop().unwrap()
}

pub(super) async fn dropping_the_owner_synchronously_drops_the_run_and_ends_its_readers<
    B: Backend,
>() {
    let (hub, alive) = (B::hub().await, Arc::new(AtomicUsize::new(0)));
    let owner = hub.start("key", endless_source(&alive)).await.unwrap();
    let reader = hub.read("key", None).unwrap();
    B::let_tasks_run().await;
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    drop(owner);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(last_of(reader).await.is_err());
    assert_eq!((hub.run_id("key"), hub.stats().runs, hub.stats().entries), (None, 0, 0));
    hub.start("key", endless_source(&alive)).await.expect("the key is free").detach();
}

pub(super) async fn dropping_the_hub_synchronously_drops_its_runs<B: Backend>() {
    let (hub, alive) = (B::hub().await, Arc::new(AtomicUsize::new(0)));
    hub.start("a", endless_source(&alive)).await.unwrap().detach();
    let owner = hub.start("b", endless_source(&alive)).await.unwrap();
    let reader = hub.read("a", None).unwrap();
    B::let_tasks_run().await;
    let clone = hub.clone();
    drop(hub);
    assert_eq!(alive.load(Ordering::SeqCst), 2);
    drop(clone);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(last_of(reader).await.is_err());
    drop(owner);
}

pub(super) async fn dropping_readers_cancels_nothing<B: Backend>() {
    let (hub, alive) = (B::hub().await, Arc::new(AtomicUsize::new(0)));
    hub.start("key", endless_source(&alive)).await.unwrap().detach();
    for _ in 0..3 {
        let mut reader = hub.read("key", None).unwrap();
        reader.next().await.unwrap().unwrap();
    }
    B::let_tasks_run().await;
    assert_eq!((alive.load(Ordering::SeqCst), hub.stats().readers), (1, 0));
}

pub(super) async fn a_panic_in_a_run_ends_it_with_a_panic_error<B: Backend>() {
    let hub = B::hub().await;
    let events = stream::poll_fn(|_| panic!("boom"));
    hub.start("key", RunSource::new(History::empty("h"), events)).await.unwrap().detach();
    let Ok(HubEvent::Ended { error: Some(error), .. }) =
        last_of(hub.read("key", None).unwrap()).await
    else {
        panic!("it ends");
    };
    assert_eq!(error.kind(), ErrorKind::Panic);
}

pub(super) async fn runs_end_with_their_runtime<B: Backend>() {
    // A runtime cannot be dropped within another one.
    let thread = std::thread::spawn(check_that_runs_end_with_their_runtime::<B>);
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn check_that_runs_end_with_their_runtime<B: Backend>() {
    let alive = Arc::new(AtomicUsize::new(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (hub, reader) = runtime.block_on(async {
        let hub = B::hub().await;
        hub.start("key", endless_source(&alive)).await.unwrap().detach();
        let reader = hub.read("key", None).unwrap();
        (hub, reader)
    });
    drop(runtime);
    assert_eq!((alive.load(Ordering::SeqCst), hub.stats().runs), (0, 0));
    assert!(futures::executor::block_on(last_of(reader)).is_err());
}

pub(super) async fn a_key_has_at_most_one_active_run<B: Backend>() {
    let (hub, alive) = (B::hub().await, Arc::new(AtomicUsize::new(0)));
    let place = hub.reserve("key").unwrap();
    let refused = hub.reserve("key").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(refused.find_source::<AlreadyRunning>().unwrap().key, "key");
    drop(place);
    let owner = hub.start("key", endless_source(&alive)).await.unwrap();
    assert!(hub.start("key", endless_source(&alive)).await.is_err());
    assert_eq!(alive.load(Ordering::SeqCst), 1, "the second was dropped");
    let mut next = Box::pin(hub.reserve_when_free("key"));
    assert!((&mut next).now_or_never().is_none());
    drop(owner);
    let place = next.await.unwrap();
    place.start(endless_source(&alive)).await.unwrap().detach();
}

pub(super) async fn a_run_without_readers_is_interrupted_after_the_configured_time<B: Backend>() {
    let hub = B::builder().await;
    let limit = B::time(Duration::from_mins(1));
    let hub = hub.with_unattended(Unattended::InterruptAfter(limit)).build();
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let run = session.run(&endless_agent::<B>(), "Go").await.unwrap();
    hub.start("s", run).await.unwrap().detach();
    let mut reader = hub.read("s", None).unwrap();
    tokio::time::sleep(B::time(Duration::from_mins(2))).await;
    assert_eq!(hub.stats().runs, 1, "it has a reader");
    reader.next().await.unwrap().unwrap();
    drop(reader);
    tokio::time::sleep(B::time(Duration::from_secs(30))).await;
    assert_eq!(hub.stats().runs, 1);
    tokio::time::sleep(B::time(Duration::from_secs(45))).await;
    assert_eq!(hub.stats().runs, 0);
    let text = session.history().iter().next_back().unwrap().as_text().unwrap().to_owned();
    assert!(text.starts_with("word word "), "what there was of the turn is stored: {text}");
}

pub(super) async fn a_stream_without_commands_or_readers_is_dropped<B: Backend>() {
    let alive = Arc::new(AtomicUsize::new(0));
    let hub = B::builder().await;
    let limit = B::time(Duration::from_mins(1));
    let hub = hub.with_unattended(Unattended::InterruptAfter(limit)).build();
    hub.start("key", endless_source(&alive)).await.unwrap().detach();
    tokio::time::sleep(B::time(Duration::from_secs(30))).await;
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    tokio::time::sleep(B::time(Duration::from_secs(45))).await;
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

pub(super) async fn shutdown_waits_then_interrupts_and_stores_partial_turns<B: Backend>() {
    let hub = B::hub().await;
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let run = session.run(&endless_agent::<B>(), "Go").await.unwrap();
    hub.start("s", run).await.unwrap().detach();
    let reader = hub.read("s", None).unwrap();
    let of_session = hub.read_session(&session, None);
    let begin = tokio::time::Instant::now();
    let read = tokio::spawn(async move { reader.into_events().collect::<Vec<_>>().await });
    let read_session = tokio::spawn(async move { of_session.collect::<Vec<_>>().await });
    hub.shut_down(B::time(Duration::from_secs(30))).await;
    B::assert_elapsed(begin, B::time(Duration::from_secs(30)));
    let refused = hub.reserve("t").unwrap_err();
    assert!(refused.find_source::<ShuttingDown>().is_some());
    let events = read.await.unwrap();
    let Some(Ok(Event::Finished(outcome))) = events.last() else { panic!("{events:?}") };
    assert!(matches!(outcome.reason, EndReason::Interrupted(_)));
    let text = session.history().iter().next_back().unwrap().as_text().unwrap().to_owned();
    assert!(text.starts_with("word word "), "{text}");
    let last = read_session.await.unwrap().pop().unwrap().unwrap_err();
    assert!(last.find_source::<ShuttingDown>().is_some(), "{last}");
}

pub(super) async fn shutting_down_a_hub_without_runs_returns_at_once<B: Backend>() {
    let hub = B::hub().await;
    let outcome = hub.start("s", endless_agent_that_ends().run("Go")).await.unwrap();
    outcome.detach();
    let begin = tokio::time::Instant::now();
    hub.shut_down(B::time(Duration::from_secs(30))).await;
    B::assert_elapsed(begin, Duration::ZERO);
}

fn endless_agent_that_ends() -> Agent {
    Agent::new(Scripted::new(["Done."]))
}

pub(super) async fn the_log_of_an_ended_run_can_be_read_from_a_number_until_it_is_removed<
    B: Backend,
>() {
    let hub = B::builder().await.with_ended_kept_for(B::time(Duration::from_mins(1))).build();
    let owner = hub.start("s", endless_agent_that_ends().run("Go")).await.unwrap();
    let all: Vec<HubEvent> = owner.read().map(Result::unwrap).collect().await;
    owner.detach();
    B::let_tasks_run().await;
    let number = all[1].number();
    assert!(hub.read("s", None).unwrap_err().find_source::<NotRunning>().is_some(), "it is over");
    let rest: Vec<_> = hub.read("s", number).unwrap().collect().await;
    assert_eq!(rest.len(), all.len() - 2);
    tokio::time::sleep(B::time(Duration::from_secs(75))).await;
    assert!(hub.read("s", number).is_err());
    assert_eq!(hub.stats().entries, 0);
}

pub(super) async fn a_hub_that_loses_its_run_drops_it_and_readers_follow_the_next_attempt<
    B: Backend,
>() {
    let (log, alive) = (B::events().await, Arc::new(AtomicUsize::new(0)));
    let here = Hub::builder().with_backend(log.clone(), log.clone()).build();
    let there = Hub::builder().with_backend(log.clone(), log.clone()).build();
    let (sender, events) = futures::channel::mpsc::unbounded();
    let first = endless_source(&alive);
    drop(first);
    here.start("key", RunSource::new(History::empty("h"), events).with_run_id("r"))
        .await
        .unwrap()
        .detach();
    let mut reader = here.read("key", None).unwrap();
    reader.next().await.unwrap().unwrap();
    let agent = endless_agent_that_ends();
    there.start("key", RunSource::from(agent.run("Go")).with_run_id("r")).await.unwrap().detach();
    B::let_tasks_run().await;
    // The first hub has not detected the takeover yet.
    assert!(sender.unbounded_send(Ok(Event::Unknown)).is_ok());
    B::let_tasks_run().await;
    assert!(sender.is_closed(), "its stream was dropped");
    let read: Vec<HubEvent> = reader.map(Result::unwrap).collect().await;
    assert!(matches!(&read[0], HubEvent::Snapshot { number: Some(n), .. } if n.epoch() == 2));
    assert!(matches!(read.last(), Some(HubEvent::Ended { error: None, .. })));
    assert!(here.send("r", Command::Interrupt).await.is_err());
    assert_eq!(log.stats().entries, read.len() + 1);
}
