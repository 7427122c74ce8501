//! A compaction keeps a valid history valid, and leaves a compacted one unchanged.

use proptest::prelude::*;
use serde_json::json;
use turnstream::context::{
    Compaction, Truncator, mark_reactive_compaction, record_stale_usage, was_reactively_compacted,
};
use turnstream::item::{Content, ItemFlag, ItemKind, MediaSource, Part, ToolCall};
use turnstream::{History, Item};
use turnstream_testing::{Wire, lint};

use turnstream_test_support::compaction::{
    as_stop_turn_end, encode_history, look_call, run_compactor, scripted_summarizer,
    with_provider_data,
};
use turnstream_test_support::items::{
    apply_compaction, history_of, look_result, look_turn, session_items,
};

/// Turns, text, instructions and summaries, in any order and with any marks.
fn any_session() -> impl Strategy<Value = History> {
    let piece = (0_usize..8, 0_usize..100);
    prop::collection::vec(piece, 0..14).prop_map(|pieces| {
        let items = pieces.into_iter().enumerate().flat_map(|(n, (kind, mark))| {
            let items = match kind {
                0 => vec![Item::user(format!("user {n}"))],
                1 => vec![Item::system(format!("rule {n}"))],
                2 => vec![Item::user("sum").with_flag(ItemFlag::Compacted)],
                3 => vec![Item::text(format!("half {n}")).with_flag(ItemFlag::Interrupted)],
                4 => vec![Item::text(format!("said {n}"))],
                _ => look_turn(n),
            };
            let void = move |item: Item| {
                if mark == 0 { item.with_flag(ItemFlag::Tombstone) } else { item }
            };
            items.into_iter().map(void)
        });
        history_of(items).settled()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_summary_never_separates_a_call_from_its_result(before in any_session(), keep in 1_usize..4) {
        let (compactor, _) = scripted_summarizer(keep);
        let Some(compaction) = run_compactor(&compactor, &before) else { return Ok(()) };
        compaction.validate(&before).unwrap();
        let compaction = record_stale_usage(compaction, &before);
        let after = apply_compaction(&compaction, &before);
        prop_assert!(after.is_settled());
        let live = |it: &History, f: fn(&Item) -> bool| -> Vec<Item> {
            it.iter().filter(|item| !item.tombstone && f(item)).cloned().collect()
        };
        let system = |item: &Item| matches!(item.kind, turnstream::item::ItemKind::System { .. });
        prop_assert_eq!(live(&after, system), live(&before, system));
        let user = |item: &Item| item.as_user().is_some() && !item.compacted;
        let (kept, said) = (live(&after, user), live(&before, user));
        prop_assert_eq!(kept.last(), said.last());
        let summaries = |it: &History| live(it, |item| item.compacted).len();
        let stay = history_of(before.iter().skip(compaction.to).cloned());
        prop_assert_eq!(summaries(&after), 1 + summaries(&stay));
        // A second summary keeps the same turns.
        let again = run_compactor(&compactor, &after);
        prop_assert_eq!(again, None);
    }
}

/// The bytes of an item that a model receives.
fn item_size_bytes(item: &Item) -> usize {
    let media = |part: &Part| serde_json::to_string(part).unwrap().len();
    let content = |content: &Content| match content {
        Content::Text(text) => text.len(),
        Content::Parts(parts) => {
            parts.iter().map(|p| p.as_text().map_or_else(|| media(p), str::len)).sum()
        }
    };
    let data = item.provider_data.as_ref().map_or(0, |data| data.value.as_str().len());
    data + match &item.kind {
        ItemKind::System { text } | ItemKind::Text { text } | ItemKind::Reasoning { text } => {
            text.len()
        }
        ItemKind::User { content: said } => content(said),
        ItemKind::ToolCall(call) => call.arguments.len(),
        ItemKind::ToolResult(result) => content(&result.content),
        _ => 0,
    }
}

fn any_content() -> impl Strategy<Value = Content> {
    let text = || "[aü\n]{0,80}";
    prop_oneof![
        text().prop_map(Content::from),
        (text(), text()).prop_map(|(text, data)| {
            Content::from(vec![
                text.as_str().into(),
                Part::image("image/png", MediaSource::from(data)),
            ])
        }),
    ]
}

/// Any item, with few different call ids, so that they collide.
fn any_item() -> impl Strategy<Value = Item> {
    let id = || prop::sample::select(vec!["a", "b", "c", "d", "e"]);
    let text = || "[aü]{0,40}";
    let kind = prop_oneof![
        1 => text().prop_map(Item::user),
        1 => text().prop_map(Item::system),
        2 => text().prop_map(Item::text),
        3 => text().prop_map(Item::reasoning),
        5 => (id(), text()).prop_map(|(id, text)| look_call(id, &json!({ "a": text }).to_string())),
        5 => (id(), any_content()).prop_map(|(id, content)| look_result(id, content)),
        1 => Just(with_provider_data(Item::new(ItemKind::Other), "x", json!({ "own": 1 }))),
    ];
    let mark = prop::option::weighted(
        0.1,
        prop::sample::select(vec![ItemFlag::Interrupted, ItemFlag::Compacted, ItemFlag::Tombstone]),
    );
    (kind, mark, prop::bool::weighted(0.3), prop::bool::weighted(0.2)).prop_map(
        |(item, mark, last, sign)| {
            let outside = matches!(
                item.kind,
                ItemKind::User { .. } | ItemKind::System { .. } | ItemKind::ToolResult(_)
            );
            let item = if last && !outside { as_stop_turn_end(item) } else { item };
            let item = if sign {
                with_provider_data(item, "anthropic", json!({ "signature": "s" }))
            } else {
                item
            };
            match mark {
                Some(mark) => item.with_flag(mark),
                None => item,
            }
        },
    )
}

/// A valid history: any items, settled, or a session as agents produce it.
fn any_settled_history() -> impl Strategy<Value = History> {
    let settled =
        prop::collection::vec(any_item(), 0..40).prop_map(|items| history_of(items).settled());
    prop_oneof![3 => settled, 1 => (0_usize..9).prop_map(|turns| history_of(session_items(turns)))]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn shortening_keeps_a_history_settled_and_is_idempotent(
        before in any_settled_history(),
        keep in 0_usize..4,
        max in prop_oneof![0_usize..60, Just(1_024)],
        arguments in 0_usize..40,
        thoughts in 0_usize..40,
        clips in any::<bool>(),
    ) {
        let mut shorten = Truncator { keep_turns: keep, max_arguments_bytes: arguments, max_reasoning_bytes: thoughts, ..Truncator::new() };
        if clips {
            shorten.max_result_bytes = Some(max);
        }
        prop_assert!(before.is_settled());
        let Some(compaction) = shorten.plan_compaction(&before) else { return Ok(()) };
        let after = apply_compaction(&compaction, &before);
        prop_assert!(after.is_settled());
        prop_assert_eq!(&after.settled(), &after);
        prop_assert_eq!(shorten.plan_compaction(&after), None);

        let total = |history: &History| history.iter().map(item_size_bytes).sum::<usize>();
        prop_assert!(total(&after) < total(&before) || after.len() < before.len());
        prop_assert!(total(&after) <= total(&before));
        let ids = |history: &History| -> Vec<(bool, String)> {
            let id = |item: &Item| match &item.kind {
                ItemKind::ToolCall(call) => Some((true, call.call_id.clone())),
                ItemKind::ToolResult(result) => Some((false, result.call_id.clone())),
                _ => None,
            };
            history.iter().filter_map(id).collect()
        };
        prop_assert_eq!(ids(&after), ids(&before));
        prop_assert_eq!(after.completed_turns(), before.completed_turns());
        let said = |history: &History| -> Vec<Item> {
            let said = |item: &&Item| matches!(item.kind, ItemKind::User { .. } | ItemKind::System { .. } | ItemKind::Text { .. } | ItemKind::Other);
            history.iter().filter(said).cloned().collect()
        };
        prop_assert_eq!(said(&after), said(&before));
        let results = |history: &History| -> Vec<Item> {
            history.iter().filter(|item| item.as_tool_result().is_some()).cloned().collect()
        };
        prop_assert!(clips || results(&after) == results(&before));
        let is_object = |call: &ToolCall| {
            serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&call.arguments).is_ok()
        };
        let mut changed = after.iter().filter(|item| item.compacted).filter_map(Item::as_tool_call);
        prop_assert!(changed.all(is_object));
    }

    #[test]
    fn a_settled_history_stays_settled_under_any_compactor(
        before in any_settled_history(),
        from in 0_usize..45,
        len in 0_usize..45,
        items in prop::collection::vec(any_item(), 0..6),
    ) {
        let compaction = Compaction::new(from, from + len, items);
        let with_note = mark_reactive_compaction(compaction.clone(), &before);
        if compaction.validate(&before).is_ok() {
            prop_assert!(apply_compaction(&compaction, &before).is_settled());
            // The note never makes it invalid.
            let after = apply_compaction(&with_note, &before);
            prop_assert!(after.is_settled() && was_reactively_compacted(&after));
        }
    }

    #[test]
    fn every_wire_accepts_shortened_histories_with_the_compaction_note(turns in 5_usize..9, keep in 1_usize..4) {
        let before = history_of(session_items(turns));
        let compaction = Truncator { keep_turns: keep, max_result_bytes: Some(4), max_reasoning_bytes: 0, ..Truncator::new() }.plan_compaction(&before).unwrap();
        let after = apply_compaction(&mark_reactive_compaction(compaction, &before), &before);
        for wire in Wire::ALL {
            prop_assert_eq!(lint::request(wire, "m", &encode_history(wire, &after)), [""; 0]);
        }
    }
}
