//! What the tests of compaction are told with.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::hook::{self, Hook};
use turnstream::context::Compaction;
use turnstream::event::RewrittenWhy;
use turnstream::item::{Content, ResultKind, StopReason, ToolCall, ToolResult, TurnInfo};
use turnstream::provider::Reply;
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{ErrorKind, Event, History, Item, Journal, Outcome, Run, Usage};

pub(crate) fn tokens(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

pub(crate) fn history(items: impl IntoIterator<Item = Item>) -> History {
    History::from_items("h", items)
}

/// The item as the last of a completed turn that used so many tokens.
pub(crate) fn ends(item: Item, usage: Usage) -> Item {
    let info =
        TurnInfo { usage, model: None, response_id: None, stop_reason: StopReason::ToolCalls };
    Item { turn: Some(Arc::new(info)), ..item }
}

pub(crate) fn result(id: &str, content: impl Into<Content>) -> Item {
    let call = ToolCall { call_id: id.into(), name: "look".into(), arguments: String::new() };
    Item::tool_result(ToolResult::answering(&call, ResultKind::Ok, content))
}

/// One turn with a call: a thought, words, the call, its result.
pub(crate) fn turn(n: usize) -> Vec<Item> {
    let id = format!("c{n}");
    vec![
        Item::reasoning(format!("thought {n}")),
        Item::text(format!("text {n}")),
        ends(Item::tool_call(&id, "look", format!("{{\"n\":{n}}}")), tokens(100, 10)),
        result(&id, format!("result {n}")),
    ]
}

/// A user's words, and turns with calls behind them.
pub(crate) fn session(turns: usize) -> Vec<Item> {
    let mut items = vec![Item::user("Begin.")];
    items.extend((0..turns).flat_map(turn));
    items
}

pub(crate) fn applied(compaction: &Compaction, to: &History) -> History {
    compaction.check(to).unwrap();
    let mut history = to.clone();
    compaction.apply(&mut history);
    history
}

/// Read back from a store.
pub(crate) fn stored(history: &History) -> History {
    serde_json::from_str(&serde_json::to_string(history).unwrap()).unwrap()
}

/// A tool `look` whose results have so many bytes.
pub(crate) fn look(bytes: usize) -> Tool {
    let spec = ToolSpec {
        name: "look".into(),
        description: String::new(),
        parameters: json!({ "type": "object" }),
    };
    Tool::raw(spec, move |_, _| async move { "x".repeat(bytes) }).unwrap()
}

/// A turn that calls `look` and used so many tokens.
pub(crate) fn looks(usage: Usage) -> Reply {
    Reply::text("Let me look.").call("look", json!({})).usage(usage)
}

/// A hook that notes what failed.
pub(crate) fn failures() -> (Arc<Mutex<Vec<ErrorKind>>>, impl Hook + 'static) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    (seen, hook::on_failure(move |_, error| noted.lock().unwrap().push(error.kind())))
}

/// A run to its end: what was told, and how it ended. Its events fold to its history and its usage.
pub(crate) async fn told(mut run: Run) -> (Vec<Event>, Outcome) {
    let journal = Journal::new(run.history());
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        journal.observe(&event);
        assert!(run.history().settled().is_lawful());
        events.push(event);
    }
    let outcome = events.last().and_then(Event::finished).unwrap().clone();
    assert!(journal.history() == outcome.history, "the events fold to the history");
    assert_eq!(journal.usage(), outcome.usage);
    (events, outcome)
}

/// The places of the compactions: `c` for one, `0` for one that came to nothing, `t` for a request.
pub(crate) fn order(events: &[Event]) -> String {
    let sign = |event: &Event| match event {
        Event::Rewritten { why: RewrittenWhy::Compacted, from, to, items, .. } => {
            Some(if from == to && items.is_empty() { '0' } else { 'c' })
        }
        Event::TurnStarted { .. } => Some('t'),
        _ => None,
    };
    events.iter().filter_map(sign).collect()
}

/// The words of users and of the model, in order.
pub(crate) fn words(history: &History) -> Vec<String> {
    let said = |item: &Item| item.as_user().map(Content::text).or(item.as_text().map(Into::into));
    history.iter().filter_map(said).collect()
}
