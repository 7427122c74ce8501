//! Compaction: the ranges that it may replace, the note that it leaves, and the compactor that
//! needs no model.

use std::sync::Arc;

use futures::executor::block_on;
use serde_json::json;
use turnstream::context::{
    Compaction, Compactor, Truncator, compactor_fn, mark_reactive_compaction,
    was_reactively_compacted,
};
use turnstream::item::{ItemFlag, Part, ProviderData, RawJson};
use turnstream::{ErrorKind, History, Item};
use turnstream_testing::{Wire, lint};

use turnstream_test_support::compaction::{
    as_stop_turn_end, encode_history, look_call, with_provider_data,
};
use turnstream_test_support::items::{
    apply_compaction, history_of, look_result, look_turn, session_items,
};

const COMPACTION_NOTE: &str =
    "The conversation up to here was shortened to fit the context window.";

fn items_of(history: &History) -> Vec<Item> {
    history.iter().cloned().collect()
}

// ---- Valid ranges

#[track_caller]
fn assert_invalid_compaction(from: usize, to: usize, items: Vec<Item>, why: &str) {
    let history = history_of(session_items(2));
    let error = Compaction::new(from, to, items).validate(&history).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains(why), "{error}");
}

#[track_caller]
fn assert_valid_compaction(from: usize, to: usize, items: Vec<Item>) {
    let before = history_of(session_items(2));
    assert!(apply_compaction(&Compaction::new(from, to, items), &before).is_settled());
}

#[test]
fn a_compaction_never_separates_a_call_from_its_result() {
    let parted = "a call would be separated from its result";
    assert_invalid_compaction(0, 4, vec![], parted);
    assert_invalid_compaction(4, 5, vec![], parted);
    assert_invalid_compaction(3, 4, vec![], parted);
    assert_invalid_compaction(3, 5, vec![look_call("c0", "{}")], parted);
    assert_invalid_compaction(4, 5, vec![look_result("c1", "of another")], parted);
    assert_invalid_compaction(
        3,
        5,
        vec![look_result("c0", "first"), look_call("c0", "{}")],
        parted,
    );
    assert_invalid_compaction(4, 4, vec![Item::user("between")], parted);
    assert_invalid_compaction(
        4,
        5,
        vec![look_result("c0", "twice"), look_result("c0", "twice")],
        parted,
    );
    assert_invalid_compaction(
        3,
        5,
        vec![look_call("c0", "{}").with_flag(ItemFlag::Tombstone), look_result("c0", "r")],
        parted,
    );
    assert_invalid_compaction(
        3,
        5,
        vec![look_call("c0", "{}").with_flag(ItemFlag::Interrupted), look_result("c0", "r")],
        parted,
    );
    assert_invalid_compaction(
        5,
        5,
        vec![look_call("new", "{}").with_flag(ItemFlag::Interrupted)],
        parted,
    );
    assert_valid_compaction(0, 5, vec![]);
    assert_valid_compaction(0, 9, vec![Item::user("summary")]);
    assert_valid_compaction(4, 5, vec![look_result("c0", "short")]);
    assert_valid_compaction(3, 5, vec![look_call("c0", "{}"), look_result("c0", "short")]);
    assert_valid_compaction(5, 5, vec![Item::user("between two turns")]);
    assert_valid_compaction(0, 0, vec![]);
}

#[test]
fn a_compaction_range_outside_the_history_is_rejected() {
    assert_invalid_compaction(0, 10, vec![], "0..10 is not a range of 9 entries");
    assert_invalid_compaction(10, 10, vec![], "10..10 is not a range");
    assert_invalid_compaction(5, 1, vec![], "5..1 is not a range");
    assert_invalid_compaction(usize::MAX, usize::MAX, vec![], "is not a range");
}

#[test]
fn a_compaction_that_reuses_a_call_id_of_the_history_is_rejected() {
    assert_invalid_compaction(
        0,
        5,
        vec![look_call("c1", "{}"), look_result("c1", "r")],
        "the call id `c1` is already in use",
    );
    let mut history = history_of(session_items(2));
    history.rewrite(0..5, []);
    let back = vec![look_call("c0", "{}"), look_result("c0", "r")];
    let error = Compaction::new(0, 0, back).validate(&history).unwrap_err();
    assert!(error.message().contains("`c0` is already in use"), "{error}");
}

#[test]
fn a_compaction_is_not_rejected_for_an_already_unsettled_history() {
    let open = history_of([Item::user("a"), as_stop_turn_end(look_call("c", "{}"))]);
    let compaction = Compaction::new(0, 1, vec![Item::user("b")]);
    assert!(apply_compaction(&compaction, &open).settled().is_settled());
}

// ---- The note

#[track_caller]
fn assert_note_position(history: &History, compaction: Compaction, expected: usize) {
    let compaction = mark_reactive_compaction(compaction, history);
    let rewritten = apply_compaction(&compaction, history);
    assert!(rewritten.is_settled() || !history.is_settled());
    assert!(was_reactively_compacted(&rewritten) && !was_reactively_compacted(history));
    let is_note = |item: &Item| item.kind == Item::user(COMPACTION_NOTE).kind && item.compacted;
    assert_eq!(rewritten.iter().position(is_note), Some(expected));
    assert_eq!(rewritten.iter().filter(|item| is_note(item)).count(), 1);
}

#[test]
fn the_compaction_note_is_placed_between_turns_after_the_replaced_range() {
    let history = history_of(session_items(2));
    let same = |from: usize, to: usize| {
        Compaction::new(from, to, history.iter().take(to).skip(from).cloned().collect())
    };
    // 0 user, 1 reasoning, 2 text, 3 call, 4 result, 5 reasoning, 6 text, 7 call, 8 result
    assert_note_position(&history, same(0, 0), 0);
    assert_note_position(&history, same(0, 1), 1);
    for to in 2..=5 {
        assert_note_position(&history, same(1, to), 5);
    }
    for to in 6..=9 {
        assert_note_position(&history, same(6, to), 9);
    }
    assert_note_position(&history, Compaction::new(0, 9, vec![]), 0);
    assert_note_position(&history, Compaction::new(0, 5, vec![]), 0);
    assert_note_position(&history, Compaction::new(0, 5, vec![Item::user("sum")]), 1);
    assert_note_position(&history, Compaction::new(0, 5, vec![Item::text("sum")]), 5);
}

#[test]
fn the_compaction_note_is_never_placed_among_the_results_of_a_turn() {
    let void = look_result("c1", "void").with_flag(ItemFlag::Tombstone);
    let history = history_of([
        look_call("c1", "{}"),
        as_stop_turn_end(look_call("c2", "{}")),
        look_result("c2", "2"),
        void,
        look_result("c1", "1"),
        Item::text("done"),
    ]);
    assert!(history.is_settled());
    let clip = Compaction::new(2, 3, vec![look_result("c2", "-")]);
    assert_note_position(&history, clip, 5);
}

#[test]
fn a_turn_without_calls_is_a_boundary_and_a_tombstoned_result_is_not() {
    let void = look_result("c1", "void").with_flag(ItemFlag::Tombstone);
    let batch = [look_call("c1", "{}"), void.clone(), as_stop_turn_end(look_call("c2", "{}"))];
    let history = history_of(batch.into_iter().chain([
        look_result("c1", "1"),
        look_result("c2", "2"),
        as_stop_turn_end(Item::text("paused")),
        as_stop_turn_end(Item::text("done")),
    ]));
    assert!(history.is_settled());
    assert_note_position(&history, Compaction::new(1, 2, vec![void]), 5);
    let item = Item::text("paused").with_flag(ItemFlag::Compacted);
    assert_note_position(&history, Compaction::new(5, 6, vec![as_stop_turn_end(item)]), 6);
}

#[test]
fn an_out_of_range_compaction_gets_its_note_and_is_rejected_by_check() {
    let history = history_of(session_items(1));
    for (from, to) in [(0, 99), (99, 99), (usize::MAX, usize::MAX)] {
        let compaction = mark_reactive_compaction(Compaction::new(from, to, vec![]), &history);
        assert!(compaction.validate(&history).is_err());
    }
}

#[test]
fn the_compaction_note_survives_storing_settling_forking_and_later_turns() {
    let before = history_of(session_items(3));
    let compaction = mark_reactive_compaction(Compaction::new(0, 5, vec![]), &before);
    let mut history = apply_compaction(&compaction, &before);
    let stored = serde_json::to_string(&history).unwrap();
    history = serde_json::from_str(&stored).unwrap();
    history.extend(look_turn(7));
    history.push(as_stop_turn_end(look_call("open", "{}")));
    history = history.settled();
    assert!(was_reactively_compacted(&history));
    // A plain compaction leaves the note unchanged, and one that would lose it is refused.
    let shortened = Truncator { max_reasoning_bytes: 0, keep_turns: 1, ..Truncator::new() }
        .plan_compaction(&history)
        .unwrap();
    assert!(was_reactively_compacted(&apply_compaction(&shortened, &history)));
    let forget = Compaction::new(0, history.len(), vec![Item::user("sum")]);
    let error = forget.validate(&history).unwrap_err();
    assert!(error.message().contains("the note of an earlier compaction"), "{error}");
    apply_compaction(&mark_reactive_compaction(forget, &history), &history);
}

#[test]
fn other_compacted_items_are_not_mistaken_for_the_compaction_note() {
    let compacted = |item: Item| item.with_flag(ItemFlag::Compacted);
    let foreign = json!({ "compaction": "reactive" });
    assert!(!was_reactively_compacted(&history_of([
        compacted(Item::user(COMPACTION_NOTE)),
        compacted(with_provider_data(Item::user("x"), "anthropic", foreign.clone())),
        compacted(with_provider_data(
            Item::user("x"),
            "turnstream",
            json!({ "compaction": "asked" })
        )),
        compacted(with_provider_data(Item::user("x"), "turnstream", json!(null))),
        with_provider_data(Item::user("x"), "turnstream", foreign),
    ])));
}

// ---- Wires

#[test]
fn every_wire_accepts_the_compaction_note_at_any_position() {
    let before = history_of(session_items(3));
    for wire in Wire::ALL {
        assert_eq!(lint::request(wire, "m", &encode_history(wire, &before)), [""; 0]);
        for (from, to, sum) in
            [(0, 0, 0), (0, 1, 0), (0, 5, 0), (0, 5, 1), (4, 4, 0), (0, 13, 0), (0, 13, 1)]
        {
            let items = vec![Item::user("sum"); sum];
            let kept = before.iter().take(to).skip(from).cloned();
            let items = if from == to { kept.collect() } else { items };
            let after = apply_compaction(
                &mark_reactive_compaction(Compaction::new(from, to, items), &before),
                &before,
            );
            let body = encode_history(wire, &after);
            assert_eq!(lint::request(wire, "m", &body), [""; 0], "{wire:?} {from}..{to}");
            assert_eq!(body.to_string().matches(COMPACTION_NOTE).count(), 1);
            assert!(!body.to_string().contains("reactive"));
        }
    }
}

// ---- Compactors

#[test]
fn closures_and_shared_compactors_implement_compactor() {
    let history = history_of(session_items(1));
    let never = Arc::new(compactor_fn(|_: &History| Ok(None)));
    let shared: Arc<dyn Compactor> = never;
    assert_eq!(block_on(shared.compact(&history)).unwrap(), None);
    // The future owns everything that it needs.
    let future = Arc::new(Truncator::new()).compact(&history);
    drop(history);
    assert_eq!(block_on(future).unwrap(), None);
}

// ---- The truncator

#[test]
fn old_turns_keep_a_prefix_of_reasoning_and_arguments_and_all_other_items() {
    let long = "x".repeat(5_000);
    let mut items = vec![
        Item::system("rule"),
        Item::user(long.clone()),
        Item::reasoning(long.clone()),
        Item::reasoning("short"),
        with_provider_data(Item::reasoning("signed"), "anthropic", json!({ "signature": "s" })),
        Item::text(long.clone()),
        with_provider_data(
            look_call("big", &format!("{{\"a\":\"{long}\",\"b\":[1]}}")),
            "gemini",
            json!({ "id": "big" }),
        ),
        as_stop_turn_end(look_call("small", "{\"a\":1}")),
        look_result("small", "fine"),
        look_result(
            "big",
            vec![long.as_str().into(), Part::image("image/png", long.clone().into_bytes())],
        ),
    ];
    let old = items.len();
    items.extend((0..4).flat_map(look_turn));
    items.push(look_result("c9", long.clone()));
    items.insert(items.len() - 1, as_stop_turn_end(look_call("c9", "{}")));
    let before = history_of(items.clone());
    let after = apply_compaction(
        &Truncator { keep_turns: 5, ..Truncator::new() }.plan_compaction(&before).unwrap(),
        &before,
    );
    let after = self::items_of(&after);
    assert_eq!(after[..2], items[..2]);
    let thought = format!("{}…", "x".repeat(197));
    assert_eq!(after[2], Item::reasoning(thought).with_flag(ItemFlag::Compacted));
    assert_eq!(after[3], items[3]);
    // The signed reasoning is gone.
    assert_eq!(after[4], items[5]);
    let call = after[5].as_tool_call().unwrap();
    assert!(after[5].compacted && after[5].provider_data.is_none());
    let input: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
    assert!(call.arguments.len() <= 1_024 && call.arguments.len() > 500, "{}", call.arguments);
    assert!(input["a"].as_str().unwrap().ends_with("xxx…"));
    assert_eq!(input["b"], json!([1]));
    // Results stay whole, old ones and new ones.
    assert_eq!(after[6..], items[7..]);
    assert!(old < items.len());
}

#[test]
fn results_are_truncated_only_if_configured() {
    let long = "x".repeat(5_000);
    let mut items = vec![Item::user("u"), as_stop_turn_end(look_call("big", "{}"))];
    items.push(look_result(
        "big",
        vec![long.as_str().into(), Part::image("image/png", long.clone().into_bytes())],
    ));
    items.extend((0..4).flat_map(look_turn));
    let before = history_of(items);
    assert_eq!(Truncator::new().plan_compaction(&before), None);
    let clips = Truncator { max_result_bytes: Some(1_024), ..Truncator::new() };
    let after = apply_compaction(&clips.plan_compaction(&before).unwrap(), &before);
    let after = self::items_of(&after);
    assert!(after[2].compacted);
    let text = after[2].as_tool_result().unwrap().content.text();
    assert!(text.len() <= 1_024 && text.starts_with("xxx"), "{text}");
    assert!(text.ends_with("xxx\n[image/png left out]\n"), "{text}");
}

/// The arguments of an old call after truncation.
fn shorten_arguments(arguments: &str, max: usize) -> Option<String> {
    let mut items = vec![as_stop_turn_end(look_call("c", arguments)), look_result("c", "r")];
    items.extend(look_turn(1));
    let before = history_of(items);
    let shorten = Truncator { keep_turns: 1, max_arguments_bytes: max, ..Truncator::new() };
    let after = apply_compaction(&shorten.plan_compaction(&before)?, &before);
    Some(after.iter().find_map(Item::as_tool_call).unwrap().arguments.clone())
}

#[test]
fn shortened_arguments_are_a_json_object_within_the_configured_bytes() {
    let text = |n: usize| "ü\\n\\\"".repeat(n);
    let many: Vec<String> = (0..50).map(|n| format!("\"k{n}\":\"{}\"", text(9))).collect();
    let cases = [
        format!("{{\"a\":\"{}\"}}", text(900)),
        format!("{{\"z\":1.50,\"a\":[{}1]}}", "[1],".repeat(900)),
        format!("{{{}}}", many.join(",")),
        format!("{{\"a\":\"\\ud800{}\"}}", text(900)),
        // Incomplete JSON; not an object; not JSON at all.
        format!("{{\"a\":\"{}", text(900)),
        format!("[{}1]", "1,".repeat(900)),
        "ü".repeat(900),
    ];
    for arguments in &cases {
        for max in [60, 100, 300, 1_024] {
            let made = shorten_arguments(arguments, max).unwrap();
            assert!(made.len() <= max, "{max}: {made}");
            let read: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(&made).unwrap();
            assert!(!read.is_empty());
        }
        assert!(shorten_arguments(arguments, 0).unwrap().starts_with(r#"{"shortened":""#));
        assert_eq!(shorten_arguments(arguments, usize::MAX), None);
    }
    let first = shorten_arguments(&cases[1], 100).unwrap();
    assert_eq!(first, format!(r#"{{"a":"[{}[1…","z":1.50}}"#, "[1],".repeat(11)));
    let many = shorten_arguments(&cases[2], 300).unwrap();
    assert!(many.starts_with(r#"{"prefix":"{\"k0\":"#) && many.contains("shortened"), "{many}");
}

#[test]
fn reasoning_is_removed_entirely_if_configured() {
    let mut items =
        vec![Item::user("u"), Item::reasoning("hm"), as_stop_turn_end(Item::text("so"))];
    items.extend(look_turn(1));
    let before = history_of(items);
    let none = Truncator { keep_turns: 1, max_reasoning_bytes: 0, ..Truncator::new() };
    let after = apply_compaction(&none.plan_compaction(&before).unwrap(), &before);
    // An empty item is left, which shows that something was removed.
    assert_eq!(self::items_of(&after)[1], Item::reasoning("").with_flag(ItemFlag::Compacted));
    assert_eq!(none.plan_compaction(&after), None);
    let recorded =
        turnstream::context::record_stale_usage(none.plan_compaction(&before).unwrap(), &before);
    assert_eq!(recorded.items.len(), 1, "no note is needed");
    for wire in Wire::ALL {
        let body = encode_history(wire, &apply_compaction(&recorded, &before)).to_string();
        assert!(!body.contains("stale_turns") && !body.contains("\"\""), "{body}");
    }
}

#[test]
fn the_results_of_an_old_turn_are_old_too() {
    let mut items =
        vec![as_stop_turn_end(look_call("c", "{}")), look_result("c", "x".repeat(2_000))];
    items.extend(look_turn(1));
    let before = history_of(items);
    let clips =
        Truncator { max_result_bytes: Some(1_024), max_reasoning_bytes: 0, ..Truncator::new() };
    let shortens = |keep| Truncator { keep_turns: keep, ..clips }.plan_compaction(&before);
    assert_eq!(shortens(1).map(|made| (made.from, made.to)), Some((1, 2)));
    assert_eq!(shortens(2), None);
    // The newest turn always keeps its reasoning.
    assert_eq!(shortens(0), shortens(1));
}

#[test]
fn compacted_and_tombstoned_items_are_not_shortened_again() {
    let long = || look_result("c1", "x".repeat(2_000));
    let mut items = vec![look_call("c1", "{}"), as_stop_turn_end(look_call("c2", "{}"))];
    items.extend([long().with_flag(ItemFlag::Tombstone), long().with_flag(ItemFlag::Compacted)]);
    items.push(Item::reasoning("void").with_flag(ItemFlag::Tombstone));
    items.push(look_result("c2", "x".repeat(2_000)));
    items.extend(look_turn(9));
    let before = history_of(items);
    assert!(before.is_settled());
    let clips = Truncator { keep_turns: 1, max_result_bytes: Some(1_024), ..Truncator::new() };
    let made = clips.plan_compaction(&before).unwrap();
    assert_eq!((made.from, made.to), (5, 6));
}

#[test]
fn a_huge_result_of_the_newest_turn_is_truncated_to_eight_times_the_limit() {
    let before = history_of([
        Item::user("u"),
        as_stop_turn_end(look_call("c", "{}")),
        look_result("c", "ü".repeat(500_000)),
    ]);
    let shorten = Truncator { max_result_bytes: Some(100), ..Truncator::new() };
    let after = apply_compaction(&shorten.plan_compaction(&before).unwrap(), &before);
    let text = after.last().unwrap().as_tool_result().unwrap().content.text();
    assert!((780..=800).contains(&text.len()), "{}", text.len());
    assert_eq!(
        Truncator { max_result_bytes: Some(usize::MAX), ..shorten }.plan_compaction(&before),
        None
    );
}

#[test]
fn a_turn_that_ends_in_reasoning_stays_a_turn_after_shortening() {
    let thought =
        with_provider_data(Item::reasoning("hm"), "anthropic", json!({ "signature": "s" }));
    let mut items = vec![
        Item::user("u"),
        as_stop_turn_end(thought),
        as_stop_turn_end(Item::reasoning("")),
        Item::user("v"),
    ];
    items.extend(look_turn(1));
    let before = history_of(items);
    let after = apply_compaction(
        &Truncator { keep_turns: 1, ..Truncator::new() }.plan_compaction(&before).unwrap(),
        &before,
    );
    assert_eq!(after.completed_turns(), before.completed_turns());
    let bare = as_stop_turn_end(Item::reasoning("")).with_flag(ItemFlag::Compacted);
    assert_eq!(self::items_of(&after)[1], bare);
    assert_eq!(self::items_of(&after)[2..], self::items_of(&before)[2..]);
}

#[test]
fn turns_with_a_provider_item_keep_their_reasoning_and_arguments() {
    let own = Item::provider_item(ProviderData {
        provider: "openai_responses".into(),
        model: "m".into(),
        value: RawJson::parse(r#"{"type":"web_search_call","id":"ws_1"}"#).unwrap(),
    });
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(2_000));
    let mut items = vec![Item::user("u"), Item::reasoning("hm"), own];
    items.extend([as_stop_turn_end(look_call("c", &long)), look_result("c", "x".repeat(2_000))]);
    items.extend([Item::reasoning("goes"), as_stop_turn_end(Item::text("t"))]);
    items.extend(look_turn(1));
    let before = history_of(items.clone());
    let clips = Truncator {
        keep_turns: 1,
        max_result_bytes: Some(1_024),
        max_reasoning_bytes: 0,
        ..Truncator::new()
    };
    let made = clips.plan_compaction(&before).unwrap();
    assert_eq!((made.from, made.to, made.items.len()), (4, 6, 1));
}

#[test]
fn a_history_with_nothing_to_shorten_yields_no_compaction() {
    assert_eq!(Truncator::new().plan_compaction(&history_of([])), None);
    assert_eq!(
        Truncator::new().plan_compaction(&history_of([Item::user("x".repeat(9_000_000))])),
        None
    );
    let bare = Truncator { max_reasoning_bytes: 0, ..Truncator::new() };
    assert_eq!(bare.plan_compaction(&history_of(session_items(4))), None);
    assert!(bare.plan_compaction(&history_of(session_items(5))).is_some());
    assert_eq!(Truncator::new().plan_compaction(&history_of(session_items(9))), None);
}
