//! Events and entries that no valid run produces.

use std::sync::Arc;

use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt, stream};
use proptest::prelude::*;
use turnstream::event::{AppendReason, RewriteReason, ToolEvent, Transition};
use turnstream::item::{ResultKind, ToolCall, ToolResult};
use turnstream::session::{Entry, MemoryStore, PersistExt, Session, Store, restore_history};
use turnstream::turn::{StopReason, Turn, TurnEvent};
use turnstream::{Error, Event, History, Item, Journal};

fn tool_call(id: u8) -> ToolCall {
    ToolCall { call_id: format!("c{id}"), name: "t".into(), arguments: "{}".into() }
}

fn tool_result(id: u8, text: &str) -> ToolResult {
    ToolResult::for_call(&tool_call(id), ResultKind::Ok, text)
}

fn turn_with_calls(ids: &[u8]) -> Arc<Turn> {
    let items: Vec<Item> = std::iter::once(Item::text("so"))
        .chain(ids.iter().map(|id| {
            serde_json::from_value(serde_json::json!({
                "type": "tool_call", "call_id": format!("c{id}"), "name": "t", "arguments": "{}",
            }))
            .unwrap()
        }))
        .collect();
    let turn = serde_json::json!({ "items": items, "stop_reason": StopReason::ToolCalls });
    Arc::new(serde_json::from_value(turn).unwrap())
}

fn any_event() -> impl Strategy<Value = Event> {
    let id = || 0_u8..6;
    let text = "[a-z]{1,3}";
    let result = (id(), text).prop_map(|(id, text)| tool_result(id, &text));
    let item = prop_oneof![
        text.prop_map(Item::user),
        result.clone().prop_map(Item::tool_result),
        text.prop_map(Item::text),
    ];
    let items = proptest::collection::vec(item, 0..4);
    let why = AppendReason::Input;
    prop_oneof![
        3 => proptest::collection::vec(id(), 0..4).prop_map(|ids| {
            Event::Turn(TurnEvent::TurnComplete { turn: turn_with_calls(&ids) })
        }),
        6 => result.prop_map(|result| Event::Tool(ToolEvent::Output(result))),
        1 => id().prop_map(|id| {
            let (call_id, arguments) = (format!("c{id}"), "{}".into());
            Event::Tool(ToolEvent::Started { call_id, name: "t".into(), arguments, grant_id: None })
        }),
        2 => items.clone().prop_map(move |items| Event::Appended { why, id: "i".into(), items }),
        1 => (0_usize..9, 0_usize..9, items).prop_map(|(from, to, items)| {
            Event::Rewritten {
                why: RewriteReason::Compacted,
                from,
                to,
                items,
                usage: Box::default(),
                model: None,
            }
        }),
        1 => Just(Event::TurnStarted { turn: 1, model: String::new(), transition: None }),
        1 => text.prop_map(|text| Event::Turn(TurnEvent::TextDelta { index: 0, text: (&*text).into() })),
        1 => Just(Event::Continued { reason: Transition::NextTurn }),
    ]
}

/// The same with unique call ids, as sealed streams of providers have them.
fn with_unique_call_ids(events: Vec<Event>) -> impl Iterator<Item = Event> {
    let mut next = 0;
    events.into_iter().map(move |event| {
        let Event::Turn(TurnEvent::TurnComplete { turn: it }) = &event else { return event };
        let from = next;
        next += u8::try_from(it.tool_calls().count()).unwrap();
        let ids: Vec<u8> = (from..next).collect();
        Event::Turn(TurnEvent::TurnComplete { turn: turn_with_calls(&ids) })
    })
}

/// Checks that the stored history equals the fold, after each event.
async fn check_durable_history(events: Vec<Event>) -> Result<(), TestCaseError> {
    let store = MemoryStore::new();
    let session = Session::open(store.clone(), "s").await.unwrap();
    let journal = Journal::new(History::empty("s"));
    let mut recorded = stream::iter(with_unique_call_ids(events).map(Ok)).persist_to(&session);
    while let Some(event) = recorded.next().await {
        journal.observe(&event.unwrap());
        let durable = restore_history("s", store.load("s", 0).await.unwrap().unwrap_or_default());
        prop_assert_eq!(&durable, &session.history());
        if !journal.has_open_turn() {
            prop_assert_eq!(&durable, &journal.history());
        }
        prop_assert!(durable.settled().is_settled());
    }
    prop_assert_eq!(session.history(), journal.history());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_stored_events_of_any_loop_restore_to_their_fold(
        events in proptest::collection::vec(any_event(), 0..25),
    ) {
        block_on(check_durable_history(events))?;
    }

    #[test]
    fn arbitrary_entries_never_panic_and_can_be_continued(
        events in proptest::collection::vec(any_event(), 0..25),
        marks in proptest::collection::vec(0_u8..3, 25),
    ) {
        let entries = events.into_iter().zip(marks).flat_map(|(event, mark)| {
            let mut entries = match event {
                Event::Appended { items, .. } => items.into_iter().map(Entry::Item).collect(),
                Event::Turn(TurnEvent::TurnComplete { turn }) => {
                    turn.to_history_items().into_iter().map(Entry::Item).collect()
                }
                Event::Rewritten { why, from, to, items, .. } => {
                    vec![Entry::Rewritten { why, from, to, items }]
                }
                Event::Tool(ToolEvent::Output(it)) => vec![Entry::Item(Item::tool_result(it))],
                _ => Vec::new(),
            };
            match mark {
                0 => entries.push(Entry::Resumed { idempotent: Vec::new() }),
                1 => entries.push(Entry::Pending { calls: vec![tool_call(1).into()] }),
                _ => {}
            }
            entries
        });
        let entries: Vec<Entry> = entries.collect();
        let store = MemoryStore::new();
        block_on(async {
            store.append("s", 0, entries).await.unwrap();
            let session = Session::open(store.clone(), "s").await.unwrap();
            let agent = turnstream::Agent::new(turnstream::provider::Scripted::new(["On."]));
            let outcome = session.run(&agent, "on").await.unwrap().outcome().await.unwrap();
            assert!(outcome.history.is_settled());
            assert_eq!(outcome.history, Session::open(store, "s").await.unwrap().history());
        });
    }
}

#[tokio::test]
async fn a_turn_left_incomplete_at_the_end_of_a_loop_is_stored() {
    for fails in [false, true] {
        let session = Session::open(MemoryStore::new(), "s").await.unwrap();
        let said = TurnEvent::TextDelta { index: 0, text: "Half a".into() };
        let mut events = vec![Ok(Event::Turn(said))];
        events.extend(fails.then(|| Err(Error::new(turnstream::ErrorKind::Server, "gone"))));
        let all: Vec<_> = stream::iter(events).persist_to(&session).collect().await;
        assert_eq!(all.last().unwrap().is_err(), fails);
        assert!(session.history().last().unwrap().interrupted);
    }
}

#[tokio::test]
async fn results_stored_out_of_order_are_restored_in_call_order() {
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let events = [
        Event::Turn(TurnEvent::TurnComplete { turn: turn_with_calls(&[1, 2, 3]) }),
        Event::Tool(ToolEvent::Output(tool_result(3, "three"))),
        Event::Tool(ToolEvent::Output(tool_result(1, "one"))),
        Event::Tool(ToolEvent::Output(tool_result(9, "stray"))),
        Event::Tool(ToolEvent::Output(tool_result(1, "one again"))),
        Event::Tool(ToolEvent::Output(tool_result(2, "two"))),
    ];
    let recorded = stream::iter(events.map(Ok)).persist_to(&session);
    recorded.try_for_each(|_| async { Ok(()) }).await.unwrap();
    let history = session.history();
    let ids: Vec<_> =
        history.iter().filter_map(Item::as_tool_result).map(|it| &it.call_id).collect();
    assert_eq!(ids, ["c1", "c2", "c3"]);
    assert_eq!(session.version(), 4 + 3);
}
