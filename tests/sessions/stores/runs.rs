//! Runs with each store: the stored entries when a run stops, when its process dies, and when a
//! prompt was refused.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use turnstream::agent::Agent;
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{Content, ItemFlag, ResultKind, ToolCall};
use turnstream::provider::{Reply, Scripted};
#[cfg(feature = "sqlite")]
use turnstream::session::SqliteStore;
use turnstream::session::{
    Entry, JsonLinesStore, MemoryStore, Session, SessionRun, SessionState, Store,
};
use turnstream::tool::Tool;
use turnstream::turn::StopReason;
use turnstream::{ErrorKind, Event, History, Item, Usage};

use super::sample_entries::TempFolder;
use crate::support::items::token_usage;
use crate::support::runs::{result_summaries, tool_calls};
use crate::support::stores::{IdempotencyKeys, key_recording_tool};
use crate::support::tools::spec;

type OpenStore = Box<dyn Fn(&TempFolder) -> Arc<dyn Store> + Send + Sync>;

/// A store, opened again by each process that uses it.
struct ReopenableStore {
    name: &'static str,
    open: OpenStore,
    folder: TempFolder,
}

impl ReopenableStore {
    fn open(&self) -> Arc<dyn Store> {
        (self.open)(&self.folder)
    }

    async fn open_session(&self) -> Session {
        Session::open(self.open(), "s").await.unwrap()
    }

    /// The entries that another process reads.
    async fn load_entries(&self) -> Vec<Entry> {
        self.open().load("s", 0).await.unwrap().unwrap_or_default()
    }
}

/// Each kind of store, empty.
fn empty_stores() -> Vec<ReopenableStore> {
    let disk = |name, open: fn(&TempFolder) -> Arc<dyn Store>| ReopenableStore {
        name,
        open: Box::new(open),
        folder: TempFolder::new(),
    };
    let memory = MemoryStore::new();
    vec![
        ReopenableStore {
            name: "memory",
            open: Box::new(move |_| Arc::new(memory.clone())),
            folder: TempFolder::new(),
        },
        disk("JSON lines", |folder| Arc::new(JsonLinesStore::open(folder.path()).unwrap())),
        #[cfg(feature = "sqlite")]
        disk("SQLite", |folder| Arc::new(SqliteStore::open(folder.join("db")).unwrap())),
    ]
}

/// Pulls a run until an event matches, and returns whether one did.
async fn pull_until(run: &mut SessionRun, fits: impl Fn(&Event) -> bool) -> bool {
    while let Some(event) = run.next().await {
        if fits(&event.unwrap()) {
            return true;
        }
    }
    false
}

fn result_kinds(history: &History) -> Vec<(&str, ResultKind)> {
    result_summaries(history).into_iter().map(|(id, kind, _)| (id, kind)).collect()
}

/// The total usage of a history's turns.
fn total_usage(history: &History) -> Usage {
    let turns = history.iter().filter_map(|item| item.turn.as_ref());
    turns.fold(Usage::default(), |sum, turn| sum + turn.usage)
}

#[tokio::test]
async fn a_stop_after_the_turn_stores_its_results_and_usage_and_starts_no_later_turn() {
    let moments: [fn(&Event) -> bool; 4] = [
        |event| matches!(event, Event::TurnStarted { turn: 2, .. }),
        |event| event.turn_complete().is_some_and(|turn| turn.calls().len() == 2),
        |event| matches!(event, Event::Tool(ToolEvent::Started { call_id, .. }) if call_id == "b"),
        |event| event.tool_output().is_some_and(|result| result.call_id == "b"),
    ];
    for moment in moments {
        for disk in empty_stores() {
            let keys = IdempotencyKeys::default();
            let model = Scripted::new([
                Reply::new().call_raw("a", "t", "{}").usage(token_usage(10, 1)),
                Reply::new()
                    .call_raw("b", "t", "{}")
                    .call_raw("c", "t", "{}")
                    .usage(token_usage(20, 2)),
                Reply::text("done").usage(token_usage(30, 3)),
            ]);
            let agent =
                Agent::new(model.clone()).with_tools([key_recording_tool("t", &keys, false)]);
            let session = disk.open_session().await;
            let mut run = session.run(&agent, "go").await.unwrap();
            assert!(pull_until(&mut run, moment).await);
            run.stop_after_turn();
            let outcome = run.outcome().await.unwrap();
            drop(session);

            let name = disk.name;
            assert_eq!((outcome.reason, outcome.turns), (EndReason::Stopped, 2), "{name}");
            assert_eq!((model.requests().len(), keys.lock().unwrap().len()), (2, 3), "{name}");
            // The next process finds the complete second turn, and nothing of a third.
            let session = disk.open_session().await;
            let history = session.history();
            assert_eq!(history, outcome.history, "{name}");
            let ok = ResultKind::Ok;
            assert_eq!(result_kinds(&history), [("a", ok), ("b", ok), ("c", ok)], "{name}");
            assert_eq!(
                (total_usage(&history), outcome.usage),
                (token_usage(30, 3), token_usage(30, 3)),
                "{name}"
            );
            let unfinished = SessionState::Unfinished { open_calls: Vec::new() };
            assert_eq!(session.state(), unfinished, "{name}: the model has not answered");
            // The run continues with the third turn, and runs no call again.
            let outcome = session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
            assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "done"), "{name}");
            assert_eq!((model.requests().len(), keys.lock().unwrap().len()), (3, 3), "{name}");
            assert_eq!(
                total_usage(&disk.open_session().await.history()),
                token_usage(60, 6),
                "{name}"
            );
        }
    }
}

/// A tool that records its key, and the entries of its session that another process can read when
/// it starts.
fn store_reading_tool(
    disk: &Arc<ReopenableStore>,
    keys: &IdempotencyKeys,
    seen: &Arc<Mutex<Vec<[usize; 2]>>>,
) -> Tool {
    let (disk, keys, seen) = (Arc::clone(disk), Arc::clone(keys), Arc::clone(seen));
    let tool = Tool::raw(spec("t"), move |_args, cx| {
        keys.lock().unwrap().push(cx.idempotency_key().to_owned());
        let (disk, seen) = (Arc::clone(&disk), Arc::clone(&seen));
        async move {
            let entries = disk.load_entries().await;
            let items = || {
                entries.iter().filter_map(|entry| match entry {
                    Entry::Item(item) => Some(item),
                    _ => None,
                })
            };
            let results = items().filter(|item| item.as_tool_result().is_some()).count();
            seen.lock().unwrap().push([tool_calls(items()).len(), results]);
            "fine"
        }
    });
    tool.unwrap().exclusive()
}

fn model_with_two_calls() -> Scripted {
    let calls = Reply::text("so").call_raw("a", "t", "{}").call_raw("b", "t", "{}");
    Scripted::new([calls, "never".into()])
}

#[tokio::test]
async fn a_turn_is_durable_before_its_tools_start_and_each_result_before_the_next() {
    for disk in empty_stores() {
        let (disk, keys, seen) = (Arc::new(disk), IdempotencyKeys::default(), Arc::default());
        let agent = Agent::new(model_with_two_calls())
            .with_tools([store_reading_tool(&disk, &keys, &seen)]);
        let session = disk.open_session().await;
        let mut run = session.run(&agent, "go").await.unwrap();
        while let Some(event) = run.next().await {
            // Reported events are durable.
            let entries = disk.load_entries().await;
            let holds =
                |item: &Item| entries.iter().any(|entry| *entry == Entry::from(item.clone()));
            match event.unwrap() {
                Event::Appended { items, .. } => assert!(items.iter().all(holds), "{}", disk.name),
                Event::Tool(ToolEvent::Output(result)) => {
                    assert!(holds(&Item::tool_result(result)), "{}", disk.name);
                }
                event => {
                    let turn = event.turn_complete().map(|turn| turn.to_history_items());
                    assert!(turn.unwrap_or_default().iter().all(holds), "{}", disk.name);
                }
            }
        }
        // Both calls are stored before the first tool starts, and its result before the second one
        // starts.
        assert_eq!(*seen.lock().unwrap(), [[2, 0], [2, 1]], "{}", disk.name);
    }
}

#[tokio::test]
async fn a_crash_between_a_turn_and_its_results_is_repaired_and_no_call_runs_again() {
    for memory_or_disk in 0..empty_stores().len() {
        for len in 1.. {
            let disk = Arc::new(empty_stores().swap_remove(memory_or_disk));
            let (keys, seen) = (IdempotencyKeys::default(), Arc::default());
            let agent =
                |model| Agent::new(model).with_tools([store_reading_tool(&disk, &keys, &seen)]);
            let session = disk.open_session().await;
            let mut run = session.run(&agent(model_with_two_calls()), "go").await.unwrap();
            let mut told = Vec::new();
            for _ in 0..len {
                told.extend(run.next().await.map(Result::unwrap));
            }
            let is_over = told.len() < len;
            drop((run, session));

            let session = disk.open_session().await;
            let at = format!("{} after {len} events", disk.name);
            assert!(session.history().settled().is_settled(), "{at}");
            let outcome = session.run(&agent(Scripted::new(["I see."])), "go on").await;
            let outcome = outcome.unwrap().outcome().await.unwrap();
            assert_eq!(outcome.reason, EndReason::Completed, "{at}");
            // Each reported result is stored, and any other call has an interrupted result.
            let history = disk.open_session().await.history();
            assert!(history.is_settled(), "{at}");
            let is_told = |id: &str| {
                let mut results = told.iter().filter_map(Event::tool_output);
                results.any(|result| result.call_id == id)
            };
            let expected = tool_calls(&history).into_iter().map(|ToolCall { call_id, .. }| {
                let ok = is_told(call_id);
                (&**call_id, if ok { ResultKind::Ok } else { ResultKind::Interrupted })
            });
            assert_eq!(result_kinds(&history), expected.collect::<Vec<_>>(), "{at}");
            let ran = keys.lock().unwrap().clone();
            assert_eq!(ran.iter().collect::<HashSet<_>>().len(), ran.len(), "{at}: {ran:?}");
            if is_over {
                assert_eq!(ran, ["s/a", "s/b"]);
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_session_can_be_forked_before_the_refused_prompt() {
    for disk in empty_stores() {
        let model = Scripted::new([
            Reply::new().call_raw("a", "t", "{}"),
            "hello".into(),
            Reply::text("half").stop(StopReason::MaxTokens),
            "and half".into(),
            Reply::new().call_raw("b", "t", "{}"),
            Reply::new().refuse("No."),
            "Gladly.".into(),
        ]);
        let agent = Agent::new(model).with_tools([key_recording_tool(
            "t",
            &IdempotencyKeys::default(),
            false,
        )]);
        let session = disk.open_session().await;
        for input in ["hi", "more", "something bad"] {
            session.run(&agent, input).await.unwrap().outcome().await.unwrap();
        }
        assert_eq!(session.history().last().unwrap().as_text(), Some("No."));
        let before = session.history();
        // All of it was compacted since, and stays in the store.
        let note = Item::user("We have met.").with_flag(ItemFlag::Compacted);
        session.checkpoint(0..before.len(), [note.clone()]).await.unwrap();
        drop(session);

        let session = disk.open_session().await;
        let fork = session.fork_before_last_prompt("other").await.unwrap();
        let name = disk.name;
        assert_eq!((fork.id(), fork.history().id()), ("other", "other"), "{name}");
        let texts: Vec<_> = before.iter().take(fork.history().len()).collect();
        assert!(fork.history().iter().eq(texts), "{name}: as it was before the prompt");
        let users: Vec<_> =
            fork.history().iter().filter_map(Item::as_user).map(Content::text).collect();
        assert_eq!(users[..2], ["hi", "more"], "{name}");
        assert_eq!((users.len(), tool_calls(&fork.history()).len()), (3, 1), "{name}");
        let outcome = fork.run(&agent, "something good").await.unwrap().outcome().await.unwrap();
        assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Gladly."), "{name}");
        // The forked session is unchanged, and the next process finds the same fork.
        assert!(disk.open_session().await.history().iter().eq([&note]), "{name}");
        let other = Session::open(disk.open(), "other").await.unwrap();
        assert_eq!(other.history(), fork.history(), "{name}");
    }
}

#[tokio::test]
async fn forking_before_the_prompt_copies_a_promptless_session_and_fails_for_an_unstored_one() {
    let store = MemoryStore::new();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let error = session.fork_before_last_prompt("other").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    store.append("s", 0, vec![Item::text("Hello!").into()]).await.unwrap();
    let fork = session.fork_before_last_prompt("other").await.unwrap();
    assert_eq!(fork.history().len(), 1);
}
