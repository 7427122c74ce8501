//! Entries for testing stores.

use std::ops::Range;
use std::sync::Arc;

use serde_json::json;
use turnstream::event::{AppendReason, EndReason, RewriteReason};
use turnstream::item::{
    EffectReport, Grant, GrantDuration, GrantScope, GrantTerms, History, Item, ItemFlag,
    MediaSource, Part, PendingCall, ProviderData, RawJson, ResultKind, SideEffect, StopReason,
    ToolCall, ToolResult, TurnInfo,
};
use turnstream::session::Entry;
use turnstream::usage::Usage;

/// Creates an entry that contains a user message with this text.
pub fn text_entry(text: &str) -> Entry {
    Item::user(text).into()
}

/// Creates one entry for each number in `numbers`. Each entry contains a user message whose text is
/// the number.
pub fn numbered_entries(numbers: Range<u64>) -> Vec<Entry> {
    numbers.map(|n| text_entry(&n.to_string())).collect()
}

/// Creates entries of every kind, with all fields set.
pub fn entries_of_every_kind() -> Vec<Entry> {
    let turn = TurnInfo {
        usage: Usage::default(),
        model: Some("m".into()),
        response_id: Some("r".into()),
        stop_reason: StopReason::ToolCalls,
    };
    let mut last = Item::text("Let me look.").with_flag(ItemFlag::Interrupted);
    last.turn = Some(Arc::new(turn));
    let value = RawJson::parse(r#"{"z":1,"a":[null,1.5e300]}"#).unwrap();
    let mut thought = Item::reasoning("");
    thought.provider_data =
        Some(Arc::new(ProviderData { provider: "anthropic".into(), model: "m".into(), value }));
    let result =
        ToolResult::for_call(&sample_call("c"), ResultKind::Timeout, vec![Part::from("cut")])
            .with_report(EffectReport {
                side_effects: vec![SideEffect::of_change("a.rs")],
                evidence: vec![RawJson::from(json!({ "exit_code": 1 }))],
            });
    let picture = vec![
        Part::image("image/png", MediaSource::Data("aGk=".into())),
        Part::image("image/png", MediaSource::Url("https://x".into())),
    ];
    let items = vec![
        Item::system("Be brief."),
        Item::user(picture),
        thought,
        last,
        Item { idempotent: true, ..Item::tool_call("c", "read", "{not json") },
        Item::tool_result(result),
    ];
    let (first, others) = items.split_at(1);
    let mut entries: Vec<Entry> = others.iter().cloned().map(Entry::Item).collect();
    let history = History::from_items("s/d", first.to_vec());
    entries.push(Entry::Appended { why: AppendReason::Steer, id: "r".into(), count: 2 });
    let reason = Some(EndReason::MaxTurns);
    entries.push(Entry::Nested { call_id: "d".into(), history, reason });
    entries.push(Entry::Rewritten { why: RewriteReason::Compacted, from: 1, to: 3, items });
    entries.push(Entry::Pending {
        calls: vec![
            sample_call("c").into(),
            PendingCall::from(sample_call("e")).with_parent_call("d"),
        ],
    });
    entries.push(Entry::Resumed { idempotent: vec!["c".into()] });
    let terms = GrantTerms::new(GrantScope::SameArguments, GrantDuration::Session);
    let grant = Grant {
        id: "a".into(),
        agent_path: vec!["clean".into()],
        definition: "{}".into(),
        ..Grant::new(&sample_call("c").into(), "files", terms.with_sub_agents())
    };
    entries.push(Entry::GrantAdded { grant: Box::new(grant) });
    entries.push(Entry::GrantRevoked { grant_id: "a".into() });
    entries
}

fn sample_call(id: &str) -> ToolCall {
    ToolCall { call_id: id.into(), name: "read".into(), arguments: r#"{"path":"a.rs"}"#.into() }
}
