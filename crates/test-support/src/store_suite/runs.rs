//! Runs: the stored entries when a run stops, when its process dies, and when a prompt was refused.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use turnstream::agent::Agent;
use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{Content, ItemFlag, ResultKind, ToolCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, Session, SessionRun, SessionState};
use turnstream::tool::Tool;
use turnstream::turn::StopReason;
use turnstream::{Event, History, Item, Usage};

use super::temp_store::ReopenableStore;
use super::tools::{IdempotencyKeys, key_recording_tool, spec};

/// Pulls a run until an event matches, and returns whether one did.
async fn pull_until(run: &mut SessionRun, fits: impl Fn(&Event) -> bool) -> bool {
    while let Some(event) = run.next().await {
        if fits(&event.unwrap()) {
            return true;
        }
    }
    false
}

fn token_usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

fn tool_calls<'a>(items: impl IntoIterator<Item = &'a Item>) -> Vec<&'a ToolCall> {
    items.into_iter().filter_map(Item::as_tool_call).collect()
}

fn result_kinds(history: &History) -> Vec<(&str, ResultKind)> {
    let results = history.iter().filter_map(Item::as_tool_result);
    results.map(|result| (&*result.call_id, result.kind)).collect()
}

/// The total usage of a history's turns.
fn total_usage(history: &History) -> Usage {
    let turns = history.iter().filter_map(|item| item.turn.as_ref());
    turns.fold(Usage::default(), |sum, turn| sum + turn.usage)
}

pub async fn a_stop_after_the_turn_stores_its_results_and_usage_and_starts_no_later_turn(
    empty: fn() -> ReopenableStore,
) {
    let moments: [fn(&Event) -> bool; 4] = [
        |event| matches!(event, Event::TurnStarted { turn: 2, .. }),
        |event| event.turn_complete().is_some_and(|turn| turn.calls().len() == 2),
        |event| matches!(event, Event::Tool(ToolEvent::Started { call_id, .. }) if call_id == "b"),
        |event| event.tool_output().is_some_and(|result| result.call_id == "b"),
    ];
    for moment in moments {
        let store = empty();
        let keys = IdempotencyKeys::default();
        let model = Scripted::new([
            Reply::new().call_raw("a", "t", "{}").usage(token_usage(10, 1)),
            Reply::new()
                .call_raw("b", "t", "{}")
                .call_raw("c", "t", "{}")
                .usage(token_usage(20, 2)),
            Reply::text("done").usage(token_usage(30, 3)),
        ]);
        let agent = Agent::new(model.clone()).with_tools([key_recording_tool("t", &keys, false)]);
        let session = store.open_session().await;
        let mut run = session.run(&agent, "go").await.unwrap();
        assert!(pull_until(&mut run, moment).await);
        run.stop_after_turn();
        let outcome = run.outcome().await.unwrap();
        drop(session);

        assert_eq!((outcome.reason, outcome.turns), (EndReason::Stopped, 2));
        assert_eq!((model.requests().len(), keys.lock().unwrap().len()), (2, 3));
        // The next process finds the complete second turn, and nothing of a third.
        let session = store.open_session().await;
        let history = session.history();
        assert_eq!(history, outcome.history);
        let ok = ResultKind::Ok;
        assert_eq!(result_kinds(&history), [("a", ok), ("b", ok), ("c", ok)]);
        assert_eq!(
            (total_usage(&history), outcome.usage),
            (token_usage(30, 3), token_usage(30, 3))
        );
        let unfinished = SessionState::Unfinished { open_calls: Vec::new() };
        assert_eq!(session.state(), unfinished, "the model has not answered");
        // The run continues with the third turn, and runs no call again.
        let outcome = session.resume(&agent, []).await.unwrap().outcome().await.unwrap();
        assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "done"));
        assert_eq!((model.requests().len(), keys.lock().unwrap().len()), (3, 3));
        assert_eq!(total_usage(&store.open_session().await.history()), token_usage(60, 6));
    }
}

/// A tool that records its key, and the entries of its session that another process can read when
/// it starts.
fn store_reading_tool(
    store: &Arc<ReopenableStore>,
    keys: &IdempotencyKeys,
    seen: &Arc<Mutex<Vec<[usize; 2]>>>,
) -> Tool {
    let (store, keys, seen) = (Arc::clone(store), Arc::clone(keys), Arc::clone(seen));
    let tool = Tool::raw(spec("t"), move |_args, cx| {
        keys.lock().unwrap().push(cx.idempotency_key().to_owned());
        let (store, seen) = (Arc::clone(&store), Arc::clone(&seen));
        async move {
            let entries = store.load_entries().await;
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

pub async fn a_turn_is_durable_before_its_tools_start_and_each_result_before_the_next(
    empty: fn() -> ReopenableStore,
) {
    let (store, keys, seen) = (Arc::new(empty()), IdempotencyKeys::default(), Arc::default());
    let agent =
        Agent::new(model_with_two_calls()).with_tools([store_reading_tool(&store, &keys, &seen)]);
    let session = store.open_session().await;
    let mut run = session.run(&agent, "go").await.unwrap();
    while let Some(event) = run.next().await {
        // Reported events are durable.
        let entries = store.load_entries().await;
        let holds = |item: &Item| entries.iter().any(|entry| *entry == Entry::from(item.clone()));
        match event.unwrap() {
            Event::Appended { items, .. } => assert!(items.iter().all(holds)),
            Event::Tool(ToolEvent::Output(result)) => {
                assert!(holds(&Item::tool_result(result)));
            }
            event => {
                let turn = event.turn_complete().map(|turn| turn.to_history_items());
                assert!(turn.unwrap_or_default().iter().all(holds));
            }
        }
    }
    // Both calls are stored before the first tool starts, and its result before the second one
    // starts.
    assert_eq!(*seen.lock().unwrap(), [[2, 0], [2, 1]]);
}

pub async fn a_crash_between_a_turn_and_its_results_is_repaired_and_no_call_runs_again(
    empty: fn() -> ReopenableStore,
) {
    for len in 1.. {
        let store = Arc::new(empty());
        let (keys, seen) = (IdempotencyKeys::default(), Arc::default());
        let agent =
            |model| Agent::new(model).with_tools([store_reading_tool(&store, &keys, &seen)]);
        let session = store.open_session().await;
        let mut run = session.run(&agent(model_with_two_calls()), "go").await.unwrap();
        let mut told = Vec::new();
        for _ in 0..len {
            told.extend(run.next().await.map(Result::unwrap));
        }
        let is_over = told.len() < len;
        drop((run, session));

        let session = store.open_session().await;
        let at = format!("after {len} events");
        assert!(session.history().settled().is_settled(), "{at}");
        let outcome = session.run(&agent(Scripted::new(["I see."])), "go on").await;
        let outcome = outcome.unwrap().outcome().await.unwrap();
        assert_eq!(outcome.reason, EndReason::Completed, "{at}");
        // Each reported result is stored, and any other call has an interrupted result.
        let history = store.open_session().await.history();
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

pub async fn a_session_can_be_forked_before_the_refused_prompt(empty: fn() -> ReopenableStore) {
    let store = empty();
    let model = Scripted::new([
        Reply::new().call_raw("a", "t", "{}"),
        "hello".into(),
        Reply::text("half").stop(StopReason::MaxTokens),
        "and half".into(),
        Reply::new().call_raw("b", "t", "{}"),
        Reply::new().refuse("No."),
        "Gladly.".into(),
    ]);
    let agent =
        Agent::new(model).with_tools([key_recording_tool("t", &IdempotencyKeys::default(), false)]);
    let session = store.open_session().await;
    for input in ["hi", "more", "something bad"] {
        session.run(&agent, input).await.unwrap().outcome().await.unwrap();
    }
    assert_eq!(session.history().last().unwrap().as_text(), Some("No."));
    let before = session.history();
    // All of it was compacted since, and stays in the store.
    let note = Item::user("We have met.").with_flag(ItemFlag::Compacted);
    session.checkpoint(0..before.len(), [note.clone()]).await.unwrap();
    drop(session);

    let session = store.open_session().await;
    let fork = session.fork_before_last_prompt("other").await.unwrap();

    assert_eq!((fork.id(), fork.history().id()), ("other", "other"));
    let texts: Vec<_> = before.iter().take(fork.history().len()).collect();
    assert!(fork.history().iter().eq(texts), "as it was before the prompt");
    let users: Vec<_> =
        fork.history().iter().filter_map(Item::as_user).map(Content::text).collect();
    assert_eq!(users[..2], ["hi", "more"]);
    assert_eq!((users.len(), tool_calls(&fork.history()).len()), (3, 1));
    let outcome = fork.run(&agent, "something good").await.unwrap().outcome().await.unwrap();
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Completed, "Gladly."));
    // The forked session is unchanged, and the next process finds the same fork.
    assert!(store.open_session().await.history().iter().eq([&note]));
    let other = Session::open(store.open(), "other").await.unwrap();
    assert_eq!(other.history(), fork.history());
}
