//! The items that a scripted model signs, hides and refuses.

use futures::executor::block_on;
use serde_json::json;
use turnstream::item::ProviderData;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::TurnStreamExt;
use turnstream::turn::{ReasoningKind, StopReason, Turn, TurnEvent};
use turnstream::{History, Request};

fn turn_from_reply(reply: Reply) -> Turn {
    let model = Scripted::new([reply]);
    let turn = model.stream_turn(Request::new(History::empty("h"))).into_turn();
    (*block_on(turn).unwrap()).clone()
}

/// The provider data of each item, which is sent back to the model.
fn item_provider_data(reply: Reply) -> Vec<Option<ProviderData>> {
    turn_from_reply(reply)
        .items()
        .iter()
        .map(|item| item.provider_data.as_deref().cloned())
        .collect()
}

fn scripted_data(value: serde_json::Value) -> ProviderData {
    let (provider, model) = ("scripted".to_owned(), "scripted".to_owned());
    ProviderData { provider, model, value: value.into() }
}

#[test]
fn a_scripted_signature_applies_to_the_previous_part() {
    let reply = Reply::new()
        .think("Hm")
        .sign("a")
        .say("Hi")
        .sign("b")
        .call_raw("c1", "now", "{}")
        .sign("c")
        .say("there");
    let signed = |signature: &str| Some(scripted_data(json!({ "signature": signature })));
    assert_eq!(item_provider_data(reply), [signed("a"), signed("b"), signed("c"), None]);
    // Only an item with reasoning can be signed.
    assert_eq!(item_provider_data(Reply::new().sign("a").say("Hi")), [None]);
    assert_eq!(item_provider_data(Reply::text("Hi").retract("again").sign("a").say("Ho")), [None]);
}

#[test]
fn a_signed_part_is_not_extended() {
    let items = turn_from_reply(Reply::new().think("one").sign("a").think("two").sign("b"));
    assert_eq!(items.items().len(), 2);
}

#[test]
fn hidden_reasoning_is_provider_data_without_text() {
    let reply = Reply::new().think_hidden("b3Bh").say("Hi");
    assert_eq!(
        item_provider_data(reply.clone()),
        [Some(scripted_data(json!({ "data": "b3Bh" }))), None]
    );
    assert_eq!(turn_from_reply(reply).reasoning(), "");
}

#[test]
fn a_reasoning_summary_is_distinguished_from_full_reasoning() {
    let model = Scripted::new([Reply::new().think("a").summarize("b")]);
    let turn = model.stream_turn(Request::new(History::empty("h")));
    let kinds = block_on(futures::StreamExt::collect::<Vec<_>>(turn));
    let kinds: Vec<_> = kinds
        .into_iter()
        .filter_map(|event| match event.unwrap() {
            TurnEvent::ReasoningDelta { kind, .. } => Some(kind),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [ReasoningKind::Trace, ReasoningKind::Summary]);
}

#[test]
fn a_scripted_refusal_has_the_refusal_stop_reason() {
    assert_eq!(turn_from_reply(Reply::new().refuse("No")).stop_reason(), &StopReason::Refusal);
    let again = Reply::new().refuse("No").retract("again").say("Yes");
    assert_eq!(turn_from_reply(again).stop_reason(), &StopReason::Stop);
    let calls = Reply::new().refuse("No, but").call_raw("c", "f", "{}");
    assert_eq!(turn_from_reply(calls).stop_reason(), &StopReason::ToolCalls);
}
