//! What makes a loaded history lawful: H62.

use std::sync::Arc;

use turnstream::agent::hook;
use turnstream::event::Reason;
use turnstream::item::{Json, Mark, ProviderData, ResultKind, ToolCall, ToolResult, TurnInfo};
use turnstream::provider::Scripted;
use turnstream::testing::{Wire, lint};
use turnstream::turn::StopReason;
use turnstream::{History, Item, Request, Usage};

use crate::support::models::OnWire;
use crate::support::runs::{agent, call};
use crate::support::tools::{spec, tool};
use crate::support::wires::encode;
use crate::support::world::{told, words};

fn user() -> Item {
    Item::user("u")
}

fn calls(id: &str) -> Item {
    Item::tool_call(id, "t", "{}")
}

fn result(id: &str) -> Item {
    said(id, "fine")
}

fn said(id: &str, text: &str) -> Item {
    let call = ToolCall { call_id: id.into(), name: "t".into(), arguments: "{}".into() };
    Item::tool_result(ToolResult::answering(&call, ResultKind::Ok, text))
}

/// The last item of a completed turn.
fn ends(item: Item) -> Item {
    let info = TurnInfo {
        usage: Usage::default(),
        model: None,
        response_id: None,
        stop_reason: StopReason::ToolCalls,
    };
    Item { turn: Some(Arc::new(info)), ..item }
}

/// An entry as `words` has it, with how its result came about where that is not `ok`.
fn shown(item: &Item) -> String {
    match item.as_tool_result() {
        Some(result) if result.is_error() => format!("{} {:?}", words(item), result.kind),
        _ => words(item),
    }
}

/// What a history becomes, and what holds for each of them.
#[track_caller]
fn check(items: &[Item], expected: &[&str]) -> History {
    let history = History::from_items("h", items.to_vec());
    let settled = history.settled();
    assert_eq!(settled.iter().map(shown).collect::<Vec<_>>(), expected);
    assert!(settled.is_lawful());
    let again = settled.settled();
    let bytes = |history: &History| serde_json::to_vec(history).unwrap();
    assert_eq!(bytes(&again), bytes(&settled), "it changes nothing when done twice");
    assert_eq!(bytes(&history.settled()), bytes(&settled), "nothing of it is chance");
    // Every vendor takes it.
    let mut sent = history;
    sent.push(Item::user("go on"));
    let request = Request::new(sent).with_tools([spec("t")]);
    for wire in Wire::ALL {
        let complaints = lint::request(wire, &encode(wire, "m", &request));
        assert_eq!(complaints, Vec::<String>::new(), "{wire}");
    }
    settled
}

#[test]
fn h62_a_dangling_call_is_answered_as_interrupted() {
    let settled = check(
        &[user(), ends(calls("a")), user()],
        &["user: u", "call a", "result a Interrupted", "user: u"],
    );
    let answer = settled.iter().find_map(Item::as_tool_result).unwrap();
    assert_eq!(answer.content.text(), "Interrupted mid-execution");
}

#[test]
fn h62_of_a_partly_answered_batch_only_the_missing_results_are_made_up() {
    let batch = [calls("a"), calls("b"), ends(calls("c"))];
    let items = [&[user()][..], &batch, &[result("b"), user()]].concat();
    let settled = check(
        &items,
        &[
            "user: u",
            "call a",
            "call b",
            "call c",
            "result b",
            "result a Interrupted",
            "result c Interrupted",
            "user: u",
        ],
    );
    assert_eq!(settled.len(), 8);
}

#[test]
fn h62_incomplete_arguments_of_a_completed_turn_stay_as_they_are() {
    let cut = ends(Item::tool_call("a", "t", r#"{"path":"/a"#));
    let settled =
        check(&[user(), cut, user()], &["user: u", "call a", "result a Interrupted", "user: u"]);
    let call = settled.iter().find_map(Item::as_tool_call).unwrap();
    assert_eq!(call.arguments, r#"{"path":"/a"#);
}

#[test]
fn h62_calls_of_a_turn_that_never_completed_are_left_out_and_its_words_stay() {
    let half = |item: Item| item.marked(Mark::Interrupted);
    let items = [user(), half(Item::text("so")), half(calls("a")), result("a"), user()];
    let settled = check(&items, &["user: u", "so", "user: u"]);
    assert!(settled.holds_call_id("a"), "its id is not given again");
}

#[test]
fn h62_a_result_before_its_call_comes_behind_it() {
    check(
        &[user(), result("a"), ends(calls("a")), user()],
        &["user: u", "call a", "result a", "user: u"],
    );
}

#[test]
fn h62_a_result_that_came_late_comes_back_to_its_turn() {
    check(
        &[user(), ends(calls("a")), user(), result("a"), Item::text("x")],
        &["user: u", "call a", "result a", "user: u", "x"],
    );
}

#[test]
fn h62_an_orphan_result_is_left_out() {
    check(&[user(), result("nobody's"), Item::text("x")], &["user: u", "x"]);
}

#[test]
fn h62_an_id_that_was_used_again_gets_another_and_so_does_its_result() {
    let items = [
        user(),
        ends(calls("a")),
        said("a", "one"),
        ends(calls("a")),
        said("a", "two"),
        ends(calls("a")),
        said("a", "three"),
    ];
    let settled = check(
        &items,
        &[
            "user: u",
            "call a",
            "result a",
            "call a_dup1",
            "result a_dup1",
            "call a_dup2",
            "result a_dup2",
        ],
    );
    let texts: Vec<_> = settled.iter().filter_map(Item::as_tool_result).collect();
    let texts: Vec<_> = texts.iter().map(|result| result.content.text()).collect();
    assert_eq!(texts, ["one", "two", "three"]);
}

#[test]
fn h62_an_id_that_was_used_again_before_it_was_answered_answers_the_newer_call() {
    let items = [user(), ends(calls("a")), user(), ends(calls("a")), result("a"), user()];
    check(
        &items,
        &[
            "user: u",
            "call a",
            "result a Interrupted",
            "user: u",
            "call a_dup1",
            "result a_dup1",
            "user: u",
        ],
    );
}

#[test]
fn h62_an_id_used_twice_in_one_turn_is_told_apart_and_answered_in_order() {
    let items = [user(), calls("a"), ends(calls("a")), said("a", "x"), said("a", "y")];
    let settled = check(&items, &["user: u", "call a", "call a_dup1", "result a", "result a_dup1"]);
    let results: Vec<_> = settled.iter().filter_map(Item::as_tool_result).collect();
    assert_eq!((results[0].content.text(), results[1].content.text()), ("x".into(), "y".into()));
}

#[test]
fn h62_a_duplicate_result_is_left_out_and_the_first_is_kept() {
    let items = [user(), ends(calls("a")), said("a", "one"), said("a", "two"), user()];
    let settled = check(&items, &["user: u", "call a", "result a", "user: u"]);
    let kept = settled.iter().find_map(Item::as_tool_result).unwrap();
    assert_eq!(kept.content.text(), "one");
}

#[test]
fn h62_what_the_provider_ran_itself_is_untouched() {
    let own = |value: &str| {
        let value = Json::parse(value).unwrap();
        Item::other(ProviderData { provider: "anthropic".into(), model: "m".into(), value })
    };
    let search = own(r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#);
    let found = own(r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[]}"#);
    let beside = [user(), search.clone(), found.clone(), ends(Item::text("x")), user()];
    let lawful = History::from_items("h", beside.to_vec());
    assert_eq!(lawful.settled(), lawful);
    // Also where something beside them is repaired.
    let items = [user(), search.clone(), found.clone(), ends(calls("a")), user()];
    let settled =
        check(&items, &["user: u", "other", "other", "call a", "result a Interrupted", "user: u"]);
    let kept: Vec<_> = settled.iter().skip(1).take(2).cloned().collect();
    assert_eq!(kept, [search, found]);
}

#[test]
fn h62_a_trailing_open_call_is_answered_too() {
    check(&[user(), ends(calls("a"))], &["user: u", "call a", "result a Interrupted"]);
    let items = [user(), calls("a"), ends(calls("b")), result("a")];
    check(&items, &["user: u", "call a", "call b", "result a", "result b Interrupted"]);
}

#[tokio::test]
async fn h62_only_a_resume_keeps_a_trailing_call_open() {
    let deferred = tool("t").needs_approval();
    let model = Scripted::new([call("a"), "one".into(), "two".into()]);
    let agent = agent(model.clone()).with_tools([deferred]);
    let first = told(agent.run("go")).await;
    first.check(Reason::Pending, 1);
    let history = first.handle.history();
    assert_eq!(history.unanswered_calls().len(), 1, "pending, and not yet settled");
    let verdicts = first.outcome.pending.iter().cloned();
    let verdicts = verdicts.map(|call| (call, turnstream::tool::Verdict::Approve));
    let resumed = told(agent.resume(history.clone(), verdicts).unwrap()).await;
    assert_eq!(resumed.kinds(), [ResultKind::Ok]);
    let settled = told(agent.run_from(history, "never mind")).await;
    assert_eq!(settled.kinds(), [ResultKind::Interrupted]);
}

#[test]
fn h62_a_lawful_history_stays_byte_for_byte() {
    let items = [
        Item::system("s"),
        user(),
        Item::reasoning("hm"),
        calls("a"),
        ends(calls("b")),
        result("b"),
        result("a"),
        Item::system("late"),
        Item::text("x"),
        user(),
        Item::text("half").marked(Mark::Interrupted),
        user(),
        calls("void").marked(Mark::Tombstone),
        result("void").marked(Mark::Tombstone),
        user(),
    ];
    let history = History::from_items("h", items);
    assert!(history.is_lawful());
    let bytes = |history: &History| serde_json::to_vec(history).unwrap();
    assert_eq!(bytes(&history.settled()), bytes(&history));
}

#[test]
fn h62_a_repaired_history_that_was_stored_is_the_same_again() {
    let items = [user(), ends(calls("a")), user(), ends(calls("a")), result("a"), result("x")];
    let history = History::from_items("h", items);
    let settled = history.settled();
    let stored = serde_json::to_string(&settled).unwrap();
    let loaded: History = serde_json::from_str(&stored).unwrap();
    assert_eq!(serde_json::to_string(&loaded.settled()).unwrap(), stored);
}

#[tokio::test]
async fn h62_what_transform_context_gives_is_repaired_as_well() {
    // Forgets the first call and keeps its result.
    let forget = || {
        hook::transform_context(|_, mut context| async move {
            context.rewrite(1..context.len().min(2), []);
            context.push(result("nobody's"));
            context
        })
    };
    for wire in Wire::ALL {
        let model = OnWire::new(wire, "m", [call("a"), call("b"), "done".into()]);
        let agent = agent(model.clone()).with_tools([tool("t")]).with_hook(forget());
        let told = told(agent.run("go")).await;
        told.check(Reason::Completed, 3);
        assert_eq!(model.sent().len(), 3, "{wire}: each is one that its vendor takes");
        assert_eq!(told.handle.history().len(), 6, "{wire}: the ledger stays");
    }
}
