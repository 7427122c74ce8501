//! A fold of the events that a reader receives, from any number on, equals the fold of the whole
//! run.

use std::time::Duration;

use futures::channel::oneshot;
use futures::{FutureExt, StreamExt, stream};
use serde_json::json;
use turnstream::event::{EndReason, InterruptedPhase};
use turnstream::hub::{Hub, HubEvent, RunSource, TooSlow};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::turn::{Text, TurnEvent};
use turnstream::{Agent, Event, History, Item, Journal, Outcome, Usage};

use crate::conversations::{Conversation, Events, conversations};
use crate::hub_suite::backend::Backend;
use crate::hub_suite::pace::Pace;

/// The whole result of a fold, including sub-agents.
type Told =
    (History, Vec<Item>, Usage, Usage, InterruptedPhase, bool, Outcome, Vec<(String, History)>);

fn told(journal: &Journal) -> Told {
    let nested = journal.nested_call_ids().into_iter();
    let nested = nested.map(|id| (id.clone(), journal.nested_journal(&id).unwrap().history()));
    (
        journal.history(),
        journal.new_items(),
        journal.usage(),
        journal.nested_usage(),
        journal.phase(),
        journal.has_open_turn(),
        journal.outcome(EndReason::Pending, None),
        nested.collect(),
    )
}

fn fold<'a>(start: &History, events: impl IntoIterator<Item = &'a Event>) -> Journal {
    let journal = Journal::new(start.clone());
    events.into_iter().for_each(|event| journal.observe(event));
    journal
}

/// Applies an event as a reader does: a snapshot replaces the previous state.
fn apply(journal: &mut Journal, event: &HubEvent) {
    match event {
        HubEvent::Snapshot { snapshot, .. } => *journal = snapshot.to_journal(),
        HubEvent::Event { event, .. } => journal.observe(event),
        _ => {}
    }
}

/// Each run of the conversations, with the history that it starts with.
async fn all_runs() -> Vec<(String, History, Events)> {
    let mut all = Vec::new();
    for Conversation { name, runs, mut start } in conversations().await {
        for (n, events) in runs.into_iter().enumerate() {
            let known: Vec<Event> = events.iter().filter_map(|event| event.clone().ok()).collect();
            let next = fold(&start, &known).history();
            all.push((format!("{name}, run {n}"), start, events));
            start = next;
        }
    }
    all
}

/// Runs the events through a hub whose log has a limited capacity, and reads all of them. The
/// reader keeps up with the run.
async fn run_through_hub<B: Backend>(
    start: &History,
    events: &Events,
    capacity: usize,
) -> (Hub, Vec<HubEvent>) {
    let hub = B::builder().await.with_capacity(capacity).with_ended_kept_for(Duration::MAX).build();
    let events = stream::iter(events.clone()).then(|event| async {
        tokio::time::sleep(B::step()).await;
        event
    });
    // The run waits until its reader has attached.
    let (open, reader_attached) = oneshot::channel();
    let source = RunSource::new(
        start.clone(),
        reader_attached.into_stream().flat_map(|_| stream::empty()).chain(events),
    );
    let run = hub.start("key", source).await.unwrap();
    let mut reader = run.read().map(Result::unwrap);
    run.detach();
    let mut read = vec![reader.next().await.unwrap()];
    open.send(()).unwrap();
    read.extend(reader.collect::<Vec<_>>().await);
    (hub, read)
}

pub(super) async fn a_reader_attached_at_the_start_receives_every_event<B: Backend>() {
    for (name, start, events) in all_runs().await {
        let (_hub, read) = run_through_hub::<B>(&start, &events, 16).await;
        let known: Vec<&Event> = events.iter().filter_map(|event| event.as_ref().ok()).collect();
        let got: Vec<&Event> = (read.iter())
            .filter_map(|event| match event {
                HubEvent::Event { event, .. } => Some(&**event),
                _ => None,
            })
            .collect();
        assert_eq!(got, known, "{name}");
        let Some(HubEvent::Ended { error, .. }) = read.last() else { panic!("{name}: {read:?}") };
        let failed = events.iter().find_map(|event| event.as_ref().err());
        assert_eq!(error.as_ref(), failed, "{name}");
    }
}

pub(super) async fn a_reader_attached_at_any_number_ends_with_the_history_of_the_run<B: Backend>() {
    let (mut continued, mut replaced) = (0, 0);
    for capacity in [16, 100_000] {
        for (name, start, events) in all_runs().await {
            let known: Vec<Event> = events.iter().filter_map(|event| event.clone().ok()).collect();
            let expected = told(&fold(&start, &known));
            let (hub, all) = run_through_hub::<B>(&start, &events, capacity).await;
            for have in 1..=all.len() {
                let mut journal = Journal::new(start.clone());
                for event in &all[..have] {
                    apply(&mut journal, event);
                }
                let number = all[have - 1].number();
                let rest: Vec<HubEvent> =
                    hub.read("key", number).unwrap().map(Result::unwrap).collect().await;
                match rest.first() {
                    Some(HubEvent::Snapshot { .. }) => replaced += 1,
                    _ => continued += 1,
                }
                for event in &rest {
                    apply(&mut journal, event);
                }
                assert_eq!(told(&journal), expected, "{name} after {number:?}");
            }
        }
    }
    assert!(continued > 500 && replaced > 50, "{continued} and {replaced}");
}

pub(super) async fn a_snapshot_equals_the_fold_of_all_earlier_events<B: Backend>() {
    let mut compared = 0;
    for (name, start, events) in all_runs().await {
        let known: Vec<Event> = events.iter().filter_map(|event| event.clone().ok()).collect();
        for count in (0..=known.len()).step_by(B::stride()) {
            // The log of a run that has progressed this far, and then waits for ever.
            let so_far = stream::iter(known[..count].to_vec()).map(Ok).chain(stream::pending());
            let hub = B::builder().await.with_capacity(16).build();
            let _owner = hub.start("key", RunSource::new(start.clone(), so_far)).await.unwrap();
            for _ in 0..count {
                tokio::task::yield_now().await;
            }
            let journal = loop {
                let mut reader = hub.read("key", None).unwrap();
                let Some(Ok(HubEvent::Snapshot { snapshot, .. })) = reader.next().await else {
                    panic!("{name}: a new reader begins with a snapshot");
                };
                let mut journal = snapshot.to_journal();
                let mut is_cut = false;
                while let Some(Some(event)) = B::soon(reader.next()).await {
                    match event {
                        Ok(event) => apply(&mut journal, &event),
                        // A log on a server may still be written meanwhile, and drops entries
                        // beyond its capacity.
                        Err(error) if error.find_source::<TooSlow>().is_some() => is_cut = true,
                        Err(error) => panic!("{name}, {count}: {error}"),
                    }
                }
                if !is_cut {
                    break journal;
                }
            };
            assert_eq!(told(&journal), told(&fold(&start, &known[..count])), "{name}, {count}");
            compared += 1;
        }
    }
    assert!(compared > 500 / B::stride(), "{compared}");
}

pub(super) async fn a_snapshot_contains_no_more_events_than_necessary<B: Backend>() {
    let text = (0..1_000)
        .map(|n| Event::Turn(TurnEvent::TextDelta { index: 0, text: Text::from(n.to_string()) }));
    let started = Event::TurnStarted { turn: 1, model: "m".to_owned(), transition: None };
    let events = stream::iter([started]).chain(stream::iter(text)).map(Ok).chain(stream::pending());
    let hub = B::builder().await.with_capacity(64).with_ended_kept_for(Duration::MAX).build();
    let _owner = hub.start("key", RunSource::new(History::empty("h"), events)).await.unwrap();
    B::let_tasks_run().await;
    assert!(hub.stats().fullest_log <= 64, "{:?}", hub.stats());
    let Some(Ok(HubEvent::Snapshot { snapshot, .. })) = hub.read("key", None).unwrap().next().await
    else {
        panic!("a new reader begins with a snapshot");
    };
    assert_eq!(snapshot.events().len(), 2, "{:?}", snapshot.events());
    assert_eq!(snapshot.run(), hub.run_id("key").as_deref());
}

pub(super) async fn a_snapshot_contains_no_deltas_of_complete_turns<B: Backend>() {
    let say_200_numbers =
        |reply: Reply| (0..200).fold(reply, |reply, n| reply.say(format!("{n} ")));
    let first = say_200_numbers(Reply::new()).call("read", json!({}));
    let spec = ToolSpec::new("read", "Reads", json!({ "type": "object" }));
    let read = Tool::raw(spec, |_, _| async { "read" }).unwrap();
    let agent =
        Agent::new(Scripted::new([first, say_200_numbers(Reply::new())])).with_tools([read]);
    let hub = B::builder().await.with_capacity(16).build();
    let run = hub.start("key", agent.run("Go")).await.unwrap();
    while hub.run_id("key").is_some() {
        tokio::task::yield_now().await;
    }
    let Some(Ok(HubEvent::Snapshot { snapshot, .. })) = run.read().next().await else {
        panic!("a new reader begins with a snapshot");
    };
    assert!((5..15).contains(&snapshot.events().len()), "{:?}", snapshot.events());
}
