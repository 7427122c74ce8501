//! Many readers that attach and detach.

use std::time::Duration;

use futures::{StreamExt, stream};
use turnstream::env::SeededRandom;
use turnstream::hub::{HubEvent, RunSource, TooSlow};
use turnstream::turn::{Text, TurnEvent};
use turnstream::{Error, Event, History, Journal};

use crate::hub_suite::backend::Backend;
use crate::hub_suite::pace::{Pace, roll};

/// One turn of `count` numbers that never ends.
fn endless_turn(
    count: usize,
) -> impl futures::Stream<Item = Result<Event, Error>> + Send + 'static {
    let started = Event::TurnStarted { turn: 1, model: "m".to_owned(), transition: None };
    let delta = |n: usize| {
        let text = Text::from(format!("{n} "));
        Event::Turn(TurnEvent::TextDelta { index: 0, text })
    };
    let deltas = stream::iter((0..count).map(delta));
    stream::iter([started]).chain(deltas).map(Ok).then(|event| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        event
    })
}

fn source(count: usize) -> RunSource {
    RunSource::new(History::empty("h"), endless_turn(count))
}

fn expected(count: usize) -> String {
    (0..count).fold(String::new(), |text, n| text + &n.to_string() + " ")
}

fn text_of(journal: &Journal) -> String {
    journal.history().iter().filter_map(|item| item.as_text().map(str::to_owned)).collect()
}

pub(super) async fn readers_that_detach_and_attach_at_random_lose_and_duplicate_nothing<
    B: Backend,
>() {
    let count = B::count(4_000);
    let random = SeededRandom::new(20_261_123);
    let hub = B::builder().await.with_capacity(64).with_ended_kept_for(Duration::MAX).build();
    let run = hub.start("key", source(count)).await.unwrap().detach();
    let mut readers: Vec<(Journal, Option<turnstream::hub::EventNumber>, bool)> =
        (0..50).map(|_| (Journal::new(History::empty("h")), None, false)).collect();
    let (mut attached, mut snapshots) = (0, 0);
    while readers.iter().any(|(.., has_ended)| !has_ended) {
        for (journal, number, has_ended) in readers.iter_mut().filter(|(.., ended)| !ended) {
            let mut reader = hub.read_run(&run, number.as_ref()).unwrap();
            attached += 1;
            for _ in 0..roll(&random, 8) {
                match reader.next().await {
                    Some(Ok(event)) => {
                        *number = event.number().cloned();
                        match event {
                            HubEvent::Snapshot { snapshot, .. } => {
                                *journal = snapshot.to_journal();
                                snapshots += 1;
                            }
                            HubEvent::Event { event, .. } => journal.observe(&event),
                            _ => *has_ended = true,
                        }
                    }
                    Some(Err(error)) => {
                        assert!(error.find_source::<TooSlow>().is_some(), "{error}");
                        break;
                    }
                    None => break,
                }
            }
            drop(reader);
            for _ in 0..roll(&random, 3) {
                tokio::task::yield_now().await;
            }
        }
    }
    for (journal, ..) in &readers {
        assert_eq!(text_of(journal), expected(count));
    }
    assert!(snapshots > B::least_attached() / 10, "{snapshots}");
    assert!(attached > B::least_attached(), "{attached} attached, {snapshots} snapshots");
    assert_eq!(hub.stats().readers, 0);
}

pub(super) async fn a_disconnected_slow_reader_can_reattach_without_loss_and_the_log_stays_small<
    B: Backend,
>() {
    let count = B::count(5_000);
    let hub = B::builder().await.with_capacity(64).with_ended_kept_for(Duration::MAX).build();
    hub.start("key", source(count)).await.unwrap().detach();
    let mut slow = hub.read("key", None).unwrap();
    let first = slow.next().await.unwrap().unwrap();
    let (of_fast, mut fast) = (hub.clone(), hub.read("key", None).unwrap());
    let fast = tokio::spawn(async move {
        let mut fullest = 0;
        while let Some(event) = fast.next().await {
            event.unwrap();
            fullest = fullest.max(of_fast.stats().fullest_log);
        }
        fullest
    });
    let fullest = fast.await.unwrap();
    assert!(fullest <= 64, "{fullest}");
    let error = slow.next().await.unwrap().unwrap_err();
    assert_eq!(error.find_source::<TooSlow>().unwrap().last.as_ref(), first.number());
    assert_eq!(hub.stats().cut_readers, 1);
    let run = first.number().unwrap().run();
    let events = hub.read_run(run, first.number()).unwrap().into_events();
    let journal = Journal::new(History::empty("h"));
    let events: Vec<_> = events.map(Result::unwrap).collect().await;
    for event in &events {
        journal.observe(event);
    }
    assert_eq!(text_of(&journal), expected(count));
}

pub(super) async fn stats_count_runs_and_readers<B: Backend>() {
    let hub = B::hub().await;
    hub.start("a", RunSource::new(History::empty("h"), stream::pending())).await.unwrap().detach();
    hub.start("b", source(3)).await.unwrap().detach();
    let readers = [hub.read("a", None).unwrap(), hub.read("b", None).unwrap()];
    let wait = B::time(Duration::from_secs(5));
    tokio::time::sleep(wait).await;
    let stats = hub.stats();
    assert_eq!((stats.runs, stats.readers), (1, 2));
    assert_eq!((stats.entries, stats.fullest_log, stats.capacity), (7, 6, 1_024));
    assert_eq!(stats.cut_readers, 0);
    let oldest = stats.oldest_reader.unwrap();
    assert!(oldest >= wait && oldest < 4 * wait, "{oldest:?}");
    drop(readers);
    assert_eq!((hub.stats().readers, hub.stats().oldest_reader), (0, None));
}
