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

/// Returns whether [`rebuild_turn`] certainly returns a turn that equals this turn. It does if a
/// turn builder of this process has built the turn, and every item is a text, a reasoning text or a
/// call without marks and without provider data.
pub(super) fn can_certainly_be_rebuilt(turn: &Turn) -> bool {
    turn.is_built() && turn.items().iter().all(is_plain)
}

fn is_plain(item: &Item) -> bool {
    let Item { kind, provider_data, interrupted, compacted, tombstone, commentary, .. } = item;
    let has_marks = *interrupted || *compacted || *tombstone || *commentary || item.idempotent;
    let is_plain_kind = match kind {
        ItemKind::Text { text } | ItemKind::Reasoning { text } => !text.is_empty(),
        ItemKind::ToolCall(call) => !call.call_id.is_empty(),
        ItemKind::System { .. }
        | ItemKind::User { .. }
        | ItemKind::ToolResult(_)
        | ItemKind::Other => false,
    };
    is_plain_kind && !has_marks && provider_data.is_none() && item.turn.is_none()
}

fn push_item(turn: &mut TurnBuilder, at: u32, item: &Item) {
    let data = item.provider_data.as_deref().cloned().into_iter();
    match &item.kind {
        ItemKind::Text { text } => {
            turn.push_text(at, text);
            data.for_each(|data| turn.set_text_data(at, data));
            if item.commentary {
                turn.mark_commentary(at);
            }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::item::{ProviderData, RawJson, StopReason};
    use crate::usage::Usage;
    use crate::world::SavedTurn;

    fn data(value: &str) -> ProviderData {
        ProviderData::new("p", "m", RawJson::parse(value).unwrap())
    }

    /// Saves the turn that this function builds.
    fn save(build: impl FnOnce(&mut TurnBuilder)) -> SavedTurn {
        let mut turn = TurnBuilder::new();
        build(&mut turn);
        if !turn.is_finished() {
            turn.stop(StopReason::ToolCalls, "tool_use");
            turn.complete().unwrap();
        }
        let mut saved = SavedTurn::default();
        while let Some(event) = turn.next_event() {
            saved.observe(&Ok(event));
        }
        saved
    }

    fn push_call(turn: &mut TurnBuilder) {
        turn.push_reasoning(0, "Hm.", ReasoningKind::Summary);
        turn.push_text(0, "Let me look.");
        turn.start_tool_call(0, "c1", "look");
        turn.push_tool_call_args(0, "{}");
        turn.end_tool_call(0);
    }

    #[test]
    fn everything_that_a_decoder_can_set_is_rebuilt() {
        let mut turn = TurnBuilder::new();
        turn.set_model("m-1");
        turn.set_response_id("r-1");
        turn.set_service_tier("flex");
        turn.set_server_tool_calls("web_search", 2);
        turn.set_tokens_of_kind("citation", 3);
        turn.set_reasoning_data(0, data(r#"{"hidden":true}"#));
        turn.push_reasoning(1, "Hm.", ReasoningKind::Summary);
        turn.set_reasoning_data(1, data(r#"{"signature":"s"}"#));
        turn.push_text(0, "Let me see.");
        turn.set_text_data(0, data(r#"{"id":"1"}"#));
        turn.mark_commentary(0);
        turn.push_text(1, "More commentary.");
        turn.mark_commentary(1);
        turn.push_provider_item(data(r#"{"type":"search"}"#));
        turn.push_refusal(2, "No.");
        push_call(&mut turn);
        turn.set_tool_call_data(0, data(r#"{"id":"2"}"#));
        turn.start_tool_call(1, "", "look");
        turn.end_tool_call(1);
        turn.set_usage(Usage { input_tokens: 1, ..Usage::default() });
        turn.stop(StopReason::Other("odd".to_owned()), "odd");
        turn.complete().unwrap();
        let mut events = std::iter::from_fn(|| turn.next_event());
        let complete = events.find_map(|event| event.turn_complete().cloned()).unwrap();
        assert_eq!(complete.items().iter().filter(|item| item.commentary).count(), 2);
        let json = serde_json::to_value(&*complete).unwrap();
        let stored: Turn = serde_json::from_value(json).unwrap();
        assert_eq!(*rebuild_turn(&stored).unwrap(), *complete);
    }

    #[test]
    fn the_end_of_a_turn_is_reused_only_if_the_turn_is_certainly_rebuilt() {
        let is_reused = |saved: &SavedTurn| saved.received_end().is_some();
        let plain = save(push_call);
        assert!(is_reused(&plain));
        let TurnEvent::TurnComplete { turn } = plain.received_end().unwrap() else { panic!() };
        assert_eq!(*rebuild_turn(turn).unwrap(), **turn);
        assert!(is_reused(&save(|turn| {
            turn.push_text(0, "Hi");
            turn.retract("a retry");
            push_call(turn);
        })));
        let stored = serde_json::to_value(&plain).unwrap();
        assert!(!is_reused(&serde_json::from_value(stored).unwrap()));
        let mut failed = plain.clone();
        failed.observe(&Err(Error::new(ErrorKind::Other, "failed")));
        assert!(!is_reused(&failed));
        let marks: [fn(&mut TurnBuilder); 5] = [
            |turn| turn.mark_commentary(0),
            |turn| turn.set_text_data(0, data("{}")),
            |turn| turn.set_tool_call_data(0, data("{}")),
            |turn| turn.push_provider_item(data("{}")),
            |turn| turn.interrupt(|| 0),
        ];
        for (at, mark) in marks.into_iter().enumerate() {
            let saved = save(|turn| {
                push_call(turn);
                mark(turn);
            });
            assert!(saved.is_complete() && !is_reused(&saved), "mark {at}");
        }
        assert!(!is_reused(&serde_json::from_value(json!({})).unwrap()));
    }
}
