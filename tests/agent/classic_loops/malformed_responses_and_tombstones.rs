//! "Malformed responses and tombstones": after a fallback, the partial answer of the first model,
//! with its signed reasoning, is marked as tombstones. They are sent to no model, and are neither
//! shown by a page nor part of a transcript.

use std::pin::pin;

use futures::StreamExt;
use serde_json::json;
use turnstream::context::{Compactor, Summarizer};
use turnstream::item::ItemKind;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::session::{Entry, MemoryStore, Session, Store};
use turnstream::turn::PartialTurn;
use turnstream::ui::ClientLimits;
use turnstream::ui::ag_ui::{AgUi, RunRequest};
use turnstream::ui::ai_sdk::AiSdk;
use turnstream::{
    Agent, Error, ErrorKind, History, Item, Request, Steps, TurnStreamExt, loop_stream,
};

use turnstream_test_support::items::history_of;
use turnstream_test_support::models::WireProvider;
use turnstream_testing::Wire;

/// Adds the items of the failed turn as tombstones.
fn with_tombstones(mut history: History, error: &Error) -> History {
    let partial = error.find_source::<PartialTurn>().unwrap();
    let start = history.len();
    history.extend(partial.items());
    for edit in history.tombstone_edits(start..history.len()).unwrap() {
        edit.apply(&mut history);
    }
    history
}

/// The reasoning, its signature and the text of the first model, whose answer breaks off.
const PARTIAL: [&str; 3] = ["Let me think", "sig-1", "Half an answer"];

/// Runs a loop whose first model breaks off and whose second model answers. Returns its history,
/// and the request to the second model.
async fn run_loop_with_fallback() -> (History, String) {
    let [reasoning, signature, text] = PARTIAL;
    let partial = Reply::new().think(reasoning).sign(signature).say(text).disconnect();
    let first = Scripted::new([partial]);
    let second = WireProvider::new(Wire::Anthropic, "m", ["A whole answer."]);
    let earlier = history_of([Item::user("What is it?")]);
    let mut events = pin!(loop_stream((earlier, false), |(history, has_failed)| {
        let request = Request::new(history.clone());
        let turn = match has_failed {
            false => first.stream_turn(request),
            true => second.stream_turn(request),
        };
        let before = history.clone();
        let steps = turn.on_turn_complete(move |turn| async move {
            let mut history = before;
            history.extend(turn.to_history_items());
            Ok(Steps::stop_with((history, has_failed)))
        });
        Steps::new(steps).recover(ErrorKind::IncompleteTurn, move |error| {
            Steps::next((with_tombstones(history, &error), true))
        })
    }));
    while let Some(event) = events.next().await {
        event.unwrap();
    }
    let (history, has_failed) = events.take_final_state().unwrap();
    assert_eq!((has_failed, first.requests().len()), (true, 1));
    (history, second.sent_bodies()[0].to_string())
}

#[track_caller]
fn assert_only_the_whole_answer(text: &str) {
    assert!(text.contains("What is it?"), "{text}");
    for partial in PARTIAL {
        assert!(!text.contains(partial), "{partial} is in {text}");
    }
}

#[tokio::test]
async fn after_a_fallback_the_partial_answer_is_a_tombstone_and_only_it_is_not_sent() {
    let (history, sent) = run_loop_with_fallback().await;
    assert_only_the_whole_answer(&sent);
    // The history keeps all of it.
    let stored = serde_json::to_string(&history.iter().collect::<Vec<_>>()).unwrap();
    assert!(PARTIAL.iter().all(|partial| stored.contains(partial)), "{stored}");
    let is_tombstone: Vec<bool> = history.iter().map(|item| item.tombstone).collect();
    assert_eq!(is_tombstone, [false, true, true, false]);
    let is_reasoning = |item: &Item| matches!(item.kind, ItemKind::Reasoning { .. });
    assert!(history.iter().nth(1).is_some_and(is_reasoning));
}

#[tokio::test]
async fn the_partial_answer_is_neither_shown_by_a_page_nor_part_of_a_transcript() {
    let (history, _) = run_loop_with_fallback().await;
    let store = MemoryStore::new();
    let entries: Vec<Entry> = history.iter().cloned().map(Entry::from).collect();
    store.append("s", 0, entries).await.unwrap();
    let session = Session::open(store, "s").await.unwrap();
    let agent = Agent::new(Scripted::new([""; 0]));
    let page = AiSdk::default().load_messages(&session, &agent).await.unwrap();
    assert_only_the_whole_answer(&json!(page).to_string());
    let body = json!({ "threadId": "s", "runId": "r", "messages": [] }).to_string();
    let request =
        RunRequest::parse(Some("application/json"), body.as_bytes(), &ClientLimits::default());
    let page = AgUi::new(&request.unwrap()).load_messages(&session, &agent).await.unwrap();
    assert_only_the_whole_answer(&json!(page).to_string());
    assert!(json!(page).to_string().contains("A whole answer."));

    let model = Scripted::new(["In short."]);
    let mut longer = history.clone();
    longer.extend([Item::user("More"), Item::text("No.")]);
    Summarizer::new(model.clone()).with_keep_turns(1).compact(&longer).await.unwrap().unwrap();
    let transcript = model.requests()[0].history.iter().find_map(Item::as_user).unwrap().text();
    assert_only_the_whole_answer(&transcript);
}
