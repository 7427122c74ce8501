//! Rebuilds a recorded turn so that its calls are allowed to run.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::item::{Item, ItemKind};
use crate::turn::{ReasoningKind, Turn, TurnBuilder, TurnEvent};

/// Rebuilds a recorded turn in the same way that a decoder builds a turn: the recorded items are
/// pushed one by one, and the recorded stop reason is set last.
///
/// # Errors
///
/// Returns an error if the rebuilt turn differs from the recorded turn.
pub(super) fn rebuild_turn(recorded: &Turn) -> Result<Arc<Turn>, Error> {
    let mut turn = TurnBuilder::new();
    turn.set_model(recorded.model().unwrap_or_default());
    turn.set_response_id(recorded.response_id().unwrap_or_default());
    for (at, item) in (0..).zip(recorded.items()) {
        push_item(&mut turn, at, item);
    }
    turn.set_usage(recorded.usage());
    if let Some(billing) = recorded.billing() {
        *turn.billing() = billing.clone();
    }
    turn.push_logprobs(recorded.logprobs().to_vec());
    turn.stop(recorded.stop_reason().clone(), recorded.raw_stop_reason().unwrap_or_default());
    turn.complete()?;
    let rebuilt = std::iter::from_fn(|| turn.next_event()).find_map(|event| match event {
        TurnEvent::TurnComplete { turn } => Some(turn),
        _ => None,
    });
    rebuilt.filter(|rebuilt| **rebuilt == *recorded).ok_or_else(|| {
        let message = "no provider could have produced the recorded turn";
        Error::new(ErrorKind::Store, message)
    })
}

fn push_item(turn: &mut TurnBuilder, at: u32, item: &Item) {
    let data = item.provider_data.as_deref().cloned().into_iter();
    match &item.kind {
        ItemKind::Text { text } => {
            turn.push_text(at, text);
            data.for_each(|data| turn.set_text_data(at, data));
        }
        ItemKind::Reasoning { text } => {
            turn.push_reasoning(at, text, ReasoningKind::Trace);
            data.for_each(|data| turn.set_reasoning_data(at, data));
        }
        ItemKind::ToolCall(call) => {
            turn.start_tool_call(at, &call.call_id, &call.name);
            turn.push_tool_call_args(at, &call.arguments);
            data.for_each(|data| turn.set_tool_call_data(at, data));
            turn.end_tool_call(at);
        }
        ItemKind::Other => data.for_each(|data| turn.push_provider_item(data)),
        // A model never produces such an item, so the later comparison with the recorded turn
        // fails.
        ItemKind::System { .. } | ItemKind::User { .. } | ItemKind::ToolResult(_) => {}
    }
}
