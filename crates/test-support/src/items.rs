//! Histories with turns, calls and results, and compactions of them.

use std::sync::Arc;

use turnstream::context::Compaction;
use turnstream::item::{Content, ResultKind, StopReason, ToolCall, ToolResult, TurnInfo};
use turnstream::{History, Item, Usage};

/// A usage without cached and reasoning tokens. Unlike `Usage::default`, it can be a constant.
pub const fn token_usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage {
        input_tokens,
        output_tokens,
        cache_read_input_tokens: 0,
        cache_write_input_tokens: 0,
        reasoning_tokens: 0,
        cache_write_1h_input_tokens: 0,
        estimated_tokens: 0,
    }
}

pub fn history_of(items: impl IntoIterator<Item = Item>) -> History {
    History::from_items("h", items)
}

/// The item as the last one of a completed turn with calls.
pub fn as_tool_turn_end(item: Item, usage: Usage) -> Item {
    as_turn_end(StopReason::ToolCalls, item, usage)
}

/// The item as the last one of a completed turn.
pub fn as_turn_end(stop_reason: StopReason, item: Item, usage: Usage) -> Item {
    let info = TurnInfo { usage, model: None, response_id: None, stop_reason };
    Item { turn: Some(Arc::new(info)), ..item }
}

pub fn look_result(id: &str, content: impl Into<Content>) -> Item {
    let call = ToolCall { call_id: id.into(), name: "look".into(), arguments: String::new() };
    Item::tool_result(ToolResult::for_call(&call, ResultKind::Ok, content))
}

/// One turn with a call: reasoning, text, the call, and its result.
pub fn look_turn(n: usize) -> Vec<Item> {
    let id = format!("c{n}");
    vec![
        Item::reasoning(format!("thought {n}")),
        Item::text(format!("text {n}")),
        as_tool_turn_end(
            Item::tool_call(&id, "look", format!("{{\"n\":{n}}}")),
            token_usage(100, 10),
        ),
        look_result(&id, format!("result {n}")),
    ]
}

/// A user message, followed by turns with calls.
pub fn session_items(turns: usize) -> Vec<Item> {
    let mut items = vec![Item::user("Begin.")];
    items.extend((0..turns).flat_map(look_turn));
    items
}

pub fn apply_compaction(compaction: &Compaction, to: &History) -> History {
    compaction.validate(to).unwrap();
    let mut history = to.clone();
    compaction.apply(&mut history);
    history
}

/// The history after a round trip through JSON, as a store does it.
pub fn round_trip_json(history: &History) -> History {
    serde_json::from_str(&serde_json::to_string(history).unwrap()).unwrap()
}

/// The texts of users and of the model, in order.
pub fn message_texts(history: &History) -> Vec<String> {
    let message_text =
        |item: &Item| item.as_user().map(Content::text).or(item.as_text().map(Into::into));
    history.iter().filter_map(message_text).collect()
}
