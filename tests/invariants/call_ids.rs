//! Ids of calls are unique, also those of calls that are no longer in the history.

use futures::executor::block_on;
use turnstream::agent::Limits;
use turnstream::item::ItemFlag;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, History, Item};

use super::tool_runs::tool_result;

#[test]
fn settling_a_history_keeps_its_used_call_ids() {
    let call = |id: &str| Item::tool_call(id, "t", "{}");
    let cut =
        History::from_items("h", [Item::user("x"), call("a").with_flag(ItemFlag::Interrupted)]);
    assert!(cut.settled().has_used_call_id("a"));

    let answer = |id: &str| Item::tool_result(tool_result(id));
    let items = [call("a_dup1"), answer("a_dup1"), call("a"), answer("a"), call("a"), answer("a")];
    let mut doubled = History::from_items("h", items);
    doubled.rewrite(0..2, [Item::text("summary")]);
    let settled = doubled.settled();
    let ids: Vec<_> = settled.iter().filter_map(Item::as_tool_call).map(|c| &c.call_id).collect();
    assert_eq!(ids, ["a", "a_dup2"]);
}

#[test]
fn call_ids_of_an_incomplete_turn_are_not_reused() {
    let model = Scripted::new([
        Reply::new().call_raw("a", "t", "{}").disconnect(),
        Reply::new().call_raw("a", "t", "{}"),
        Reply::text("x"),
    ]);
    let agent = Agent::new(model).with_limits(Limits { max_turn_retries: 0, ..Limits::default() });
    let mut kept = History::empty("h");
    for _ in 0..2 {
        kept.extend(block_on(agent.run_from(kept.clone(), "go").outcome()).new_items().to_vec());
    }
    let ids: Vec<_> = kept.iter().filter_map(Item::as_tool_call).map(|c| &c.call_id).collect();
    assert_eq!(ids, ["a", "a_dup1"]);
}

#[test]
fn a_model_cannot_reuse_the_ids_of_removed_calls() {
    let call = |id: &str| Item::tool_call(id, "t", "{}");
    let answer = |id: &str| Item::tool_result(tool_result(id));
    let items = [Item::user("x"), call("a"), answer("a"), call("a_dup1"), answer("a_dup1")];
    let history = History::from_items("h", items);
    let mut compacted = history.clone();
    compacted.rewrite(1..5, [Item::text("summary")]);
    let mut tombstoned = history.clone();
    let marked = history.iter().skip(1).map(|item| item.clone().with_flag(ItemFlag::Tombstone));
    tombstoned.rewrite(1..5, marked.collect::<Vec<_>>());
    let stored: History =
        serde_json::from_str(&serde_json::to_string(&compacted).unwrap()).unwrap();
    let cases = [
        ("truncated", history.truncated(1)),
        ("before the prompt", history.before_last_prompt()),
        ("compacted", compacted),
        ("tombstoned", tombstoned),
        ("stored", stored),
    ];
    for (name, history) in cases {
        let model = Scripted::new([Reply::new().call_raw("a", "t", "{}"), Reply::text("x")]);
        let before = history.len();
        let outcome = block_on(Agent::new(model).run_from(history, "go").outcome());
        let new = outcome.history.iter().skip(before);
        let ids: Vec<_> = new.filter_map(Item::as_tool_call).map(|c| &*c.call_id).collect();
        assert_eq!(ids, ["a_dup2"], "{name}");
    }
}
