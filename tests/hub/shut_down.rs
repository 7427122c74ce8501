//! Runs whose keys were reserved before their hub shuts down.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use turnstream::hub::{Hub, HubEvent, ShuttingDown};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, Session, SessionState};
use turnstream::tool::{Tool, ToolSpec, Verdict};
use turnstream::{Agent, Error, Event};

/// Shuts down the hub until it interrupts its runs, which is at once if `limit` is zero.
async fn shut_down(hub: &Hub, limit: Duration) -> JoinHandle<()> {
    let closed = hub.clone();
    let ended = tokio::spawn(async move { closed.shut_down(limit).await });
    tokio::task::yield_now().await;
    assert!(is_shutting_down(&hub.reserve("other").unwrap_err()));
    ended
}

fn is_shutting_down(error: &Error) -> bool {
    error.find_source::<ShuttingDown>().is_some()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_replaces_an_answer_starts_during_a_shutdown_and_is_interrupted_at_once() {
    let (store, hub) = (MemoryStore::new(), Hub::new());
    let session = Session::open(store.clone(), "s").await.unwrap();
    let agent = Agent::new(Scripted::new([Reply::text("One"), Reply::text("Two").hang()]));
    session.run(&agent, "Go.").await.unwrap().outcome().await.unwrap();
    let place = hub.reserve("s").unwrap();
    let (begin, ended) = (Instant::now(), shut_down(&hub, Duration::ZERO).await);
    let run = session.run_replacing(&agent, 0, "Go on.").await.unwrap();
    place.start(run).await.unwrap().detach();
    ended.await.unwrap();
    assert_eq!((begin.elapsed(), hub.stats().runs), (Duration::ZERO, 0));
    let stored = Session::open(store, "s").await.unwrap().history();
    let stays: Vec<_> = stored.iter().filter(|item| !item.tombstone).collect();
    assert_eq!(stays[0].as_user().unwrap().text(), "Go on.");
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_comes_while_runs_are_interrupted_is_refused_and_its_call_still_waits() {
    let spec = ToolSpec::new("save", "Saves", json!({ "type": "object", "properties": {} }));
    let save = Tool::raw(spec, |_, _| async { "saved" }).unwrap().requires_approval();
    let model = Scripted::new([Reply::new().call("save", json!({})), Reply::text("Done.")]);
    let agent = Agent::new(model).with_tool(save);
    let (store, hub) = (MemoryStore::new(), Hub::new());
    let session = Session::open(store.clone(), "s").await.unwrap();
    session.run(&agent, "Go.").await.unwrap().outcome().await.unwrap();
    let SessionState::Pending { calls } = session.state() else { panic!("{session:?}") };
    let place = hub.reserve("s").unwrap();
    let ended = shut_down(&hub, Duration::ZERO).await;
    let verdicts = calls.clone().into_iter().map(|call| (call, Verdict::Approve));
    let run = session.resume(&agent, verdicts).await.unwrap();
    assert!(is_shutting_down(&place.start(run).await.unwrap_err()));
    ended.await.unwrap();
    let session = Session::open(store, "s").await.unwrap();
    assert_eq!(session.state(), SessionState::Pending { calls });
}

#[tokio::test(start_paused = true)]
async fn a_session_reader_that_waits_reads_a_run_whose_key_was_reserved_before_the_shutdown() {
    let (hub, agent) = (Hub::new(), Agent::new(Scripted::new(["Hello!"])));
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let mut reader = hub.read_session(&session, None);
    assert!(matches!(reader.next().await, Some(Ok(HubEvent::Snapshot { .. }))));
    let read = tokio::spawn(reader.collect::<Vec<_>>());
    let place = hub.reserve("s").unwrap();
    let ended = shut_down(&hub, Duration::from_secs(30)).await;
    assert!(!read.is_finished());
    place.start(session.run(&agent, "Hi").await.unwrap()).await.unwrap().detach();
    ended.await.unwrap();
    let mut events = read.await.unwrap();
    assert!(is_shutting_down(&events.pop().unwrap().unwrap_err()));
    let is_finished = |event: &HubEvent| match event {
        HubEvent::Event { event, .. } => matches!(&**event, Event::Finished(_)),
        _ => false,
    };
    assert!(events.iter().flatten().any(is_finished), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_reader_ends_when_a_key_reserved_before_the_shutdown_is_released() {
    let hub = Hub::new();
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let read = tokio::spawn(hub.read_session(&session, None).collect::<Vec<_>>());
    let place = hub.reserve("s").unwrap();
    let ended = shut_down(&hub, Duration::from_secs(30)).await;
    assert!(!read.is_finished());
    drop(place);
    ended.await.unwrap();
    assert!(is_shutting_down(&read.await.unwrap().pop().unwrap().unwrap_err()));
}
