use super::*;

fn history(texts: &[&str]) -> History {
    History::from_items("h", texts.iter().map(|text| Item::text(*text)))
}

fn texts(history: &History) -> Vec<&str> {
    history.iter().filter_map(Item::as_text).collect()
}

#[test]
fn a_fork_shares_what_was_and_goes_its_own_way() {
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
    let mut long = History::with_id("h");
    for _ in 0..1_000_000 {
        long.push(Item::text(""));
    }
    drop(long);
}

#[test]
fn a_rewritten_call_id_stays_remembered_also_through_a_store() {
    let mut history = history(&["1"]);
    history.push(Item::tool_call("c1", "t", "{}"));
    history.push(Item::text("3"));
    history.rewrite(0..2, [Item::text("summary")]);
    assert_eq!(texts(&history), ["summary", "3"]);
    assert!(history.holds_call_id("c1"));
    let stored = serde_json::to_string(&history).unwrap();
    let loaded: History = serde_json::from_str(&stored).unwrap();
    assert_eq!(loaded, history);
    assert!(loaded.holds_call_id("c1"));
    assert!(!loaded.holds_call_id("c2"));
}

#[test]
fn a_range_beyond_the_end_rewrites_up_to_the_end() {
    let mut history = history(&["1", "2", "3"]);
    history.rewrite(1..9, [Item::text("x")]);
    assert_eq!(texts(&history), ["1", "x"]);
    history.rewrite(7..9, [Item::text("y")]);
    assert_eq!(texts(&history), ["1", "x", "y"]);
}
