use std::sync::Arc;

use crate::chunked_bytes::ChunkedBytes;
use crate::env::SystemIds;
use crate::env::draw::TestRng;
use crate::item::settle::PriorCallIds;
use crate::item::{History, Item, ItemFlag, ResultKind, StopReason, ToolResult, TurnInfo, settle};
use crate::usage::Usage;

fn history(texts: &[&str]) -> History {
    History::from_items("h", texts.iter().map(|text| Item::text(*text)))
}

fn texts(history: &History) -> Vec<&str> {
    history.iter().filter_map(Item::as_text).collect()
}

#[test]
fn a_fork_shares_its_entries_and_is_independent_afterwards() {
    let mut a = history(&["1", "2"]);
    let mut b = a.fork(&crate::env::CountingIds::new("fork"));
    a.push(Item::text("a"));
    b.push(Item::text("b"));
    assert_eq!(texts(&a), ["1", "2", "a"]);
    assert_eq!(texts(&b), ["1", "2", "b"]);
    assert_eq!((a.id(), b.id()), ("h", "fork-1"));
}

#[test]
fn a_million_entries_drop_without_recursion() {
    let mut long = History::empty("h");
    for _ in 0..1_000_000 {
        long.push(Item::text(""));
    }
    drop(long);
}

#[test]
fn rewritten_call_ids_stay_reserved_even_after_serialization() {
    let mut history = history(&["1"]);
    history.push(Item::tool_call("c1", "t", "{}"));
    history.push(Item::text("3"));
    history.rewrite(0..2, [Item::text("summary")]);
    assert_eq!(texts(&history), ["summary", "3"]);
    assert!(history.has_used_call_id("c1"));
    let stored = serde_json::to_string(&history).unwrap();
    let loaded: History = serde_json::from_str(&stored).unwrap();
    assert_eq!(loaded, history);
    assert!(loaded.has_used_call_id("c1"));
    assert!(!loaded.has_used_call_id("c2"));
}

#[test]
fn call_ids_of_a_removed_end_stay_reserved() {
    let call = |id: &str| Item::tool_call(id, "t", "{}");
    let items = [Item::text("1"), call("a"), Item::user("2"), call("b"), call("c")];
    let history = History::from_items("h", items);
    for remaining in [history.truncated(1), history.before_last_prompt().truncated(1)] {
        assert_eq!(texts(&remaining), ["1"]);
        let mut ids: Vec<_> = remaining.used_call_ids().collect();
        ids.sort_unstable();
        assert_eq!(ids, ["a", "b", "c"]);
        assert!(ids.iter().all(|id| remaining.has_used_call_id(id)));
        assert!(remaining.clone().fork(&SystemIds).has_used_call_id("c"));
        let stored = serde_json::to_string(&remaining).unwrap();
        let loaded: History = serde_json::from_str(&stored).unwrap();
        assert!(["a", "b", "c"].iter().all(|id| loaded.has_used_call_id(id)));
    }
}

#[test]
fn only_ids_of_removed_calls_are_retired() {
    let call = |id: &str| Item::tool_call(id, "t", "{}");
    let mut history = History::from_items("h", [call("a"), call("b"), call("a")]);
    history.rewrite(0..3, [call("a"), call("b")]);
    history.rewrite(0..2, [call("a"), call("b")]);
    assert_eq!(history.used_call_ids().collect::<Vec<_>>(), ["b", "a", "a"], "one `a` is gone");
}

#[test]
fn a_range_beyond_the_end_rewrites_up_to_the_end() {
    let mut history = history(&["1", "2", "3"]);
    history.rewrite(1..9, [Item::text("x")]);
    assert_eq!(texts(&history), ["1", "x"]);
    history.rewrite(7..9, [Item::text("y")]);
    assert_eq!(texts(&history), ["1", "x", "y"]);
}

/// Random valid and invalid sequences of calls and results, with few distinct ids.
fn items(draw: &TestRng) -> Vec<Item> {
    draw.random_vec(8, || {
        let id = format!("c{}", draw.next_below(3));
        let item = match draw.next_below(9) {
            0..=3 => Item::tool_call(id, "t", "{}"),
            4..=6 => Item::tool_result(ToolResult {
                call_id: id,
                name: "t".into(),
                content: "ok".into(),
                kind: ResultKind::Ok,
                report: None,
            }),
            7 => Item::user("go"),
            _ => Item::text("so"),
        };
        let turn = draw.next_bool().then(|| Arc::new(ended()));
        let item = Item { turn, ..item };
        match draw.next_below(8) {
            0 => item.with_flag(ItemFlag::Interrupted),
            1 => item.with_flag(ItemFlag::Tombstone),
            _ => item,
        }
    })
}

fn ended() -> TurnInfo {
    let stop_reason = StopReason::ToolCalls;
    TurnInfo { usage: Usage::default(), model: None, response_id: None, stop_reason }
}

#[test]
fn the_incremental_state_equals_a_full_recomputation() {
    for seed in 0..4_000 {
        let draw = TestRng::new(seed);
        let mut history = History::from_items("h", items(&draw));
        history = history.truncated(draw.next_below(9));
        let more = items(&draw);
        history.extend(more.clone());
        let rewritten = draw.next_below(9);
        if rewritten < history.len() {
            history.rewrite(rewritten..rewritten + 2, more.into_iter().take(2));
        }
        let all: Vec<&Item> = history.iter().collect();
        let is_lawful = settle::is_settled(&all);
        assert_eq!(history.is_settled(), is_lawful, "seed {seed}");
        let unanswered = settle::unanswered_calls(&all, &PriorCallIds::default());
        assert_eq!(history.unanswered_calls(), unanswered, "seed {seed}");
        let before = PriorCallIds {
            used_call_ids: history.index.call_ids.retired_ids().collect(),
            ..PriorCallIds::default()
        };
        let expected = match is_lawful {
            true => all.into_iter().cloned().collect(),
            false => settle::settle(&all, &before),
        };
        let settled = history.settled();
        assert!(settled.is_settled(), "seed {seed}");
        assert_eq!(settled.iter().cloned().collect::<Vec<_>>(), expected, "seed {seed}");
    }
}

#[test]
fn settling_many_calls_takes_linear_time() {
    // Quadratic time would mean a billion comparisons in each check, which takes minutes.
    const MANY: usize = 50_000;
    #[track_caller]
    fn check(items: impl IntoIterator<Item = Item>, unanswered: usize) {
        let history = History::from_items("h", items);
        assert_eq!(history.unanswered_calls().len(), unanswered);
        let settled = history.settled();
        assert!(settled.is_settled());
        assert_eq!(settled.len(), 2 * MANY);
    }
    let calls = || (0..MANY).map(|n| Item::tool_call(format!("c{n}"), "t", "{}"));
    let same = || (0..MANY).map(|_| Item::tool_call("c", "t", "{}"));
    let result = |id: String| {
        Item::tool_result(ToolResult {
            call_id: id,
            name: "t".into(),
            content: "ok".into(),
            kind: ResultKind::Ok,
            report: None,
        })
    };
    let results = || (0..MANY).map(|n| result(format!("c{n}")));
    check(calls(), MANY);
    check(calls().chain(results().rev()), 0);
    // A result without a call, so that the whole history is settled again.
    check(calls().chain([result("x".into())]).chain(results().rev()), 0);
    check(same().chain((0..MANY).map(|_| result("c".into()))), 0);
}

/// The number of items and the bytes that are cached for a history under a key.
fn remembered(history: &History, key: u8) -> Option<(usize, String)> {
    let piece = history.cached_encoding(&key, history.len())?;
    let mut bytes = ChunkedBytes::default();
    piece.append_to(&mut bytes, 0);
    Some((piece.len(), String::from_utf8(bytes.into_vec()).unwrap()))
}

fn remember(history: &History, key: u8, text: &str) {
    let older = history.cached_encoding(&key, history.len());
    history.cache_encoding(key, older.as_ref(), history.len(), text.as_bytes().to_vec(), ());
}

#[test]
fn cached_encodings_are_found_by_all_histories_that_share_the_entries() {
    let mut a = history(&["1"]);
    let before = a.clone();
    remember(&a, 0, "1");
    a.push(Item::text("2"));
    let fork = a.fork(&crate::env::CountingIds::new("fork"));
    remember(&a, 0, "2");
    assert_eq!(remembered(&a, 0), Some((2, "12".to_owned())));
    assert_eq!(remembered(&before, 0), Some((1, "1".to_owned())));
    assert_eq!(remembered(&fork, 0), Some((1, "1".to_owned())));
    assert_eq!(remembered(&a, 1), None);
    a.rewrite(1..2, [Item::text("3")]);
    assert_eq!(remembered(&a, 0), Some((1, "1".to_owned())));
    a.rewrite(0..1, []);
    assert_eq!(remembered(&a, 0), None);
}

#[test]
fn cached_encodings_are_found_up_to_a_length() {
    let mut history = history(&["1"]);
    remember(&history, 0, "1");
    history.extend([Item::text("2"), Item::text("3")]);
    remember(&history, 0, "23");
    let len_up_to = |max| history.cached_encoding(&0_u8, max).map(|piece| piece.len());
    assert_eq!([0, 1, 2, 3, 4].map(len_up_to), [None, Some(1), Some(1), Some(3), Some(3)]);
}

#[test]
fn the_encode_cache_is_bounded_and_drops_stale_entries() {
    let history = history(&["1"]);
    for key in 0..9 {
        remember(&history, key, "1");
    }
    let known = (0..9).filter(|key| remembered(&history, *key).is_some());
    assert_eq!(known.collect::<Vec<_>>(), [5, 6, 7, 8]);
    let mut other = history.clone();
    other.push(Item::text("2"));
    remember(&other, 8, "2");
    assert_eq!(remembered(&other, 8), Some((2, "12".to_owned())));
    drop(other);
    remember(&history, 7, "1");
    assert_eq!(remembered(&history, 8), Some((1, "1".to_owned())));
}

#[test]
fn a_million_cached_chunks_drop_without_recursion() {
    let mut history = History::empty("h");
    let mut older = None;
    for _ in 0..1_000_000 {
        history.push(Item::text(""));
        history.cache_encoding(0_u8, older.as_ref(), history.len(), Vec::new(), ());
        older = history.cached_encoding(&0_u8, history.len());
    }
    drop((history, older));
}

/// The number of bytes from which a chunk is shared as a whole.
const LARGE: usize = 32 * 1024;

#[test]
fn many_shared_chunks_drop_without_recursion() {
    let mut history = History::empty("h");
    let mut older = None;
    for _ in 0..2_000 {
        history.push(Item::text(""));
        history.cache_encoding(0_u8, older.as_ref(), history.len(), vec![0; LARGE], ());
        older = history.cached_encoding(&0_u8, history.len());
    }
    let small_stack = std::thread::Builder::new().stack_size(64 * 1024);
    small_stack.spawn(move || drop((history, older))).unwrap().join().unwrap();
}

/// Caches the bytes for a new item of a history, and returns the chunks of all its cached bytes.
fn remember_next(history: &mut History, bytes: Vec<u8>) -> Vec<bytes::Bytes> {
    let older = history.cached_encoding(&0_u8, history.len());
    history.push(Item::text(""));
    history.cache_encoding(0_u8, older.as_ref(), history.len(), bytes, ());
    let mut all = ChunkedBytes::default();
    history.cached_encoding(&0_u8, history.len()).unwrap().append_to(&mut all, 0);
    all.into_chunks()
}

#[test]
fn large_cached_bytes_are_shared_without_being_copied() {
    let mut history = History::empty("h");
    remember_next(&mut history, b"a".to_vec());
    remember_next(&mut history, b"b".to_vec());
    let large = vec![b'c'; LARGE];
    let address = large.as_ptr();
    let chunks = remember_next(&mut history, large);
    assert_eq!(chunks, [&b"ab"[..], &vec![b'c'; LARGE]]);
    assert_eq!(chunks[1].as_ptr(), address);
}

#[test]
fn a_history_that_was_cut_back_keeps_no_large_bytes_after_the_cut_in_memory() {
    let mut history = History::empty("h");
    remember_next(&mut history, b"a".to_vec());
    let cut = history.cached_encoding(&0_u8, 1).unwrap();
    let large = remember_next(&mut history, vec![b'b'; 10 * LARGE]).pop().unwrap();
    assert!(!large.is_unique());
    drop(history);
    assert!(large.is_unique());
    assert_eq!(cut.total_byte_len(), 1);
}

#[test]
fn a_summary_is_not_the_last_prompt() {
    let note = || Item::user("a summary").with_flag(ItemFlag::Compacted);
    let check = |items: &[Item], expected: usize| {
        let history = History::from_items("h", items.to_vec());
        assert_eq!(history.before_last_prompt().len(), expected, "{history:?}");
    };
    let (prompt, answer) = (|| Item::user("u"), || Item::text("x"));
    check(&[note(), prompt(), answer()], 1);
    check(&[prompt(), answer(), prompt(), note(), answer()], 2);
    check(&[note(), answer()], 2);
    // Tombstones do not count as prompts.
    let void = Item::user("v").with_flag(ItemFlag::Tombstone);
    check(&[prompt(), answer(), prompt(), answer(), void, answer()], 2);
    // Several consecutive prompts count as one.
    check(&[prompt(), answer(), prompt(), prompt(), answer()], 2);
    check(&[prompt()], 0);
    check(&[], 0);
}
