//! Token estimates.

use serde_json::json;
use turnstream::context::{
    BytesDiv4, Compaction, CountTokens, Truncator, count_tokens, estimate_request_tokens,
    estimate_tokens, mark_reactive_compaction, record_stale_usage,
};
use turnstream::item::{ItemFlag, Part, ProviderData};
use turnstream::tool::ToolSpec;
use turnstream::{History, Item, Request, Usage};

use turnstream_test_support::items::{
    apply_compaction, as_tool_turn_end, history_of, look_result, look_turn, round_trip_json,
    session_items, token_usage,
};

#[track_caller]
fn assert_estimate(history: &History, expected: u64) {
    assert_eq!(estimate_tokens(history, &BytesDiv4), expected);
    assert_eq!(estimate_tokens(&round_trip_json(history), &BytesDiv4), expected, "read back");
}

fn estimate_without_usage(history: &History) -> u64 {
    count_tokens(history, &BytesDiv4)
}

#[test]
fn the_estimate_is_the_newest_usage_plus_a_count_of_later_items() {
    assert_estimate(&history_of([]), 0);
    assert_estimate(&history_of([Item::user("12345678")]), 2 + 4);
    let mut it = history_of([
        Item::user("x".repeat(9_000)),
        as_tool_turn_end(Item::text("a"), token_usage(70, 5)),
    ]);
    assert_estimate(&it, 75);
    it.push(Item::user("12345678"));
    assert_estimate(&it, 75 + 6);
    it.push(as_tool_turn_end(Item::tool_call("c", "look", "{}"), token_usage(90, 9)));
    assert_estimate(&it, 99);
    it.push(look_result("c", "x".repeat(4_000)));
    assert_estimate(&it, 99 + 1_004);
}

#[test]
fn a_turn_without_usage_is_counted_by_the_token_counter() {
    let none = Usage::default();
    let mut it = history_of([Item::user("u"), as_tool_turn_end(Item::text("12345678"), none)]);
    assert_estimate(&it, 5 + 6);
    it = history_of([Item::user("u"), as_tool_turn_end(Item::text("a"), token_usage(40, 2))]);
    it.extend([Item::user("u"), as_tool_turn_end(Item::text("12345678"), none)]);
    assert_estimate(&it, 42 + 5 + 6);
    // The usage of a tombstoned turn does not count.
    it.push(
        as_tool_turn_end(Item::text("void"), token_usage(9_999, 1)).with_flag(ItemFlag::Tombstone),
    );
    assert_estimate(&it, 42 + 5 + 6);
}

#[test]
fn every_kind_of_item_is_counted() {
    let own = ProviderData { provider: "p".into(), model: "m".into(), value: json!([1, 2]).into() };
    let media = vec!["12345678".into(), Part::image("image/png", vec![0; 67_500])];
    for (item, expected) in [
        (Item::system("12345678"), 2 + 4),
        (Item::user(media), 2 + 1_600 + 4),
        (Item::reasoning("123456789"), 3 + 4),
        (Item::tool_call("a-long-id", "look", r#"{"a":1}"#), 1 + 2 + 4),
        (look_result("c", "1234"), 1 + 4),
        (Item::provider_item(own), 2 + 4),
        (Item::user("void").with_flag(ItemFlag::Tombstone), 0),
    ] {
        assert_eq!(estimate_without_usage(&history_of([item])), expected);
    }
}

#[test]
fn without_usage_a_request_estimate_includes_system_prompt_and_tools() {
    let parameters = json!({ "type": "object" });
    let spec = ToolSpec::new("look", "12345678", parameters);
    let request = |history| Request::new(history).with_system("1234").with_tools([spec.clone()]);
    let of = |history| estimate_request_tokens(&request(history), &BytesDiv4);
    assert_eq!(of(history_of([])), 1 + (1 + 2 + 5 + 4));
    assert_eq!(
        of(history_of([Item::user("u"), as_tool_turn_end(Item::text("a"), token_usage(70, 5))])),
        75
    );
    // The context that is sent counts, not the history.
    let narrow = Request { context: history_of([]), ..request(history_of(session_items(9))) };
    assert_eq!(estimate_request_tokens(&narrow, &BytesDiv4), 13);
}

#[test]
fn a_custom_tokenizer_counts_items_without_usage() {
    let words = |text: &str| text.split_whitespace().count() as u64;
    assert_eq!(estimate_tokens(&history_of([Item::user("to be or not")]), &words), 4 + 4);
    let boundless = |_: &str| u64::MAX;
    assert_eq!(boundless.count(""), u64::MAX);
    assert_eq!(estimate_tokens(&history_of(session_items(3)), &boundless), u64::MAX);
}

#[test]
fn usage_from_before_a_compaction_does_not_count() {
    let full = |n: usize| {
        let mut it = history_of(session_items(n));
        it.extend([
            as_tool_turn_end(Item::text("full"), token_usage(99_000, 10)),
            Item::user("more"),
        ]);
        it
    };
    for (n, compaction) in [
        (3, Compaction::new(0, 5, vec![Item::user("sum").with_flag(ItemFlag::Compacted)])),
        (3, Compaction::new(0, 5, vec![])),
        (3, Compaction::new(0, 5, vec![Item::user("unmarked")])),
        (
            9,
            Truncator { keep_turns: 2, max_reasoning_bytes: 0, ..Truncator::new() }
                .plan_compaction(&full(9))
                .unwrap(),
        ),
    ] {
        let before = full(n);
        assert_estimate(&before, 99_010 + 5);
        for compaction in [
            record_stale_usage(compaction.clone(), &before),
            mark_reactive_compaction(compaction, &before),
        ] {
            let mut after = apply_compaction(&compaction, &before);
            assert_estimate(&after, estimate_without_usage(&after));
            // The next turn's usage counts what was sent.
            after.push(as_tool_turn_end(Item::text("fine"), token_usage(500, 20)));
            assert_estimate(&after, 520);
            after.push(Item::user("1234"));
            assert_estimate(&after, 525);
        }
    }
}

#[test]
fn of_several_compactions_the_newest_one_counts_at_any_position() {
    let sum = |n: usize| vec![Item::user(format!("sum {n}")).with_flag(ItemFlag::Compacted)];
    let mut it = history_of(session_items(6));
    let first = Compaction::new(0, 13, sum(1));
    it = apply_compaction(&record_stale_usage(first, &it), &it);
    assert_estimate(&it, estimate_without_usage(&it));
    it.extend(look_turn(7));
    assert_estimate(&it, 110 + 2 + 4);
    // The second compaction replaces items before a counted turn, including the first compaction.
    let second = Compaction::new(0, 5, sum(2));
    it = apply_compaction(&record_stale_usage(second, &it), &it);
    assert_estimate(&it, estimate_without_usage(&it));
    it.extend(look_turn(8));
    assert_estimate(&it, 110 + 2 + 4);
}

#[test]
fn in_a_history_shortened_without_a_record_no_usage_counts() {
    let mut it = history_of(session_items(3));
    it.rewrite(0..5, [Item::user("sum").with_flag(ItemFlag::Compacted)]);
    it.extend(look_turn(7));
    assert_estimate(&it, estimate_without_usage(&it));
}

#[test]
fn a_compaction_record_survives_settling_and_forking_and_foreign_data_is_ignored() {
    let before = history_of(session_items(3));
    let compaction = Compaction::new(0, 5, vec![Item::user("s").with_flag(ItemFlag::Compacted)]);
    let mut it = apply_compaction(&record_stale_usage(compaction, &before), &before);
    it.extend(look_turn(7));
    it.push(as_tool_turn_end(Item::tool_call("open", "look", "{}"), token_usage(300, 1)));
    assert_estimate(
        &it.settled(),
        301 + estimate_without_usage(&history_of([it.settled().last().unwrap().clone()])),
    );

    for value in
        [json!({ "compaction": "recorded" }), json!({ "compaction": 1, "stale_turns": -1 })]
    {
        let data = ProviderData {
            provider: "turnstream".into(),
            model: String::new(),
            value: value.into(),
        };
        let note = Item { provider_data: Some(data.into()), ..Item::user("s") };
        let mut it = history_of([note.with_flag(ItemFlag::Compacted)]);
        it.extend(look_turn(7));
        assert_estimate(&it, estimate_without_usage(&it));
    }
}
