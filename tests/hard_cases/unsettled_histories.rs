//! What makes a loaded history lawful.

use std::sync::Arc;

use turnstream::agent::hook;
use turnstream::event::EndReason;
use turnstream::item::{Mark, ProviderData, RawJson, ResultKind, ToolCall, ToolResult, TurnInfo};
use turnstream::provider::{Reply, Scripted};
use turnstream::testing::{Wire, lint};
use turnstream::tool::Verdict;
use turnstream::turn::StopReason;
use turnstream::{History, Item, Request, Usage};

use crate::support::models::WireProvider;
use crate::support::runs::{pull_ready, reply_calling_t, test_agent};
use crate::support::tools::{Counter, ok_tool, pending_tool, spec, uncounted_tool};
use crate::support::wires::encode;
use crate::support::world::{finish_run, item_summary};

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
    Item::tool_result(ToolResult::for_call(&call, ResultKind::Ok, text))
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

/// An entry of the provider's own.
fn own(value: &str) -> Item {
    let value = RawJson::parse(value).unwrap();
    Item::provider_item(ProviderData { provider: "anthropic".into(), model: "m".into(), value })
}

/// An entry as `words` has it, with how its result came about where that is not `ok`.
fn shown(item: &Item) -> String {
    match item.as_tool_result() {
        Some(result) if result.is_error() => format!("{} {:?}", item_summary(item), result.kind),
        _ => item_summary(item),
    }
}

/// What a history becomes, and what holds for each of them.
#[track_caller]
fn check(items: &[Item], expected: &[&str]) -> History {
    let history = History::from_items("h", items.to_vec());
    let settled = history.settled();
    assert_eq!(settled.iter().map(shown).collect::<Vec<_>>(), expected);
    assert!(settled.is_settled());
    let again = settled.settled();
    let bytes = |history: &History| serde_json::to_vec(history).unwrap();
    assert_eq!(bytes(&again), bytes(&settled), "it changes nothing when done twice");
    assert_eq!(bytes(&history.settled()), bytes(&settled), "nothing of it is chance");
    // Every vendor takes it.
    let mut sent = history;
    sent.push(Item::user("go on"));
    let request = Request::new(sent).with_tools([spec("t")]);
    for wire in Wire::ALL {
        let complaints = lint::request(wire, "m", &encode(wire, "m", &request));
        assert_eq!(complaints, Vec::<String>::new(), "{wire}");
    }
    settled
}

mod unsettled_histories {
    //! Histories with missing, orphaned, duplicate or misplaced results are settled deterministically.

    use super::*;

    #[test]
    fn a_dangling_call_is_answered_as_interrupted() {
        let settled = check(
            &[user(), ends(calls("a")), user()],
            &["user: u", "call a", "result a Interrupted", "user: u"],
        );
        let answer = settled.iter().find_map(Item::as_tool_result).unwrap();
        assert_eq!(answer.content.text(), "Interrupted mid-execution");
    }

    #[test]
    fn only_missing_results_of_a_batch_are_synthesized() {
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
    fn incomplete_arguments_of_a_completed_turn_are_unchanged() {
        let cut = ends(Item::tool_call("a", "t", r#"{"path":"/a"#));
        let settled = check(
            &[user(), cut, user()],
            &["user: u", "call a", "result a Interrupted", "user: u"],
        );
        let call = settled.iter().find_map(Item::as_tool_call).unwrap();
        assert_eq!(call.arguments, r#"{"path":"/a"#);
    }

    #[test]
    fn an_incomplete_turn_loses_its_calls_and_keeps_its_text() {
        let half = |item: Item| item.with_mark(Mark::Interrupted);
        let items = [user(), half(Item::text("so")), half(calls("a")), result("a"), user()];
        let settled = check(&items, &["user: u", "so", "user: u"]);
        assert!(settled.has_used_call_id("a"), "its id is not given again");
    }

    #[test]
    fn a_result_before_its_call_is_moved_after_it() {
        check(
            &[user(), result("a"), ends(calls("a")), user()],
            &["user: u", "call a", "result a", "user: u"],
        );
    }

    #[test]
    fn a_late_result_is_moved_to_its_turn() {
        check(
            &[user(), ends(calls("a")), user(), result("a"), Item::text("x")],
            &["user: u", "call a", "result a", "user: u", "x"],
        );
    }

    #[test]
    fn an_orphan_result_is_removed() {
        check(&[user(), result("nobody's"), Item::text("x")], &["user: u", "x"]);
    }

    #[test]
    fn a_reused_id_is_renamed_together_with_its_result() {
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
    fn a_result_of_a_reused_open_id_answers_the_newer_call() {
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
    fn an_id_used_twice_in_one_turn_is_renamed_and_answered_in_order() {
        let items = [user(), calls("a"), ends(calls("a")), said("a", "x"), said("a", "y")];
        let settled =
            check(&items, &["user: u", "call a", "call a_dup1", "result a", "result a_dup1"]);
        let results: Vec<_> = settled.iter().filter_map(Item::as_tool_result).collect();
        assert_eq!(
            (results[0].content.text(), results[1].content.text()),
            ("x".into(), "y".into())
        );
    }

    #[test]
    fn of_duplicate_results_the_first_is_kept() {
        let items = [user(), ends(calls("a")), said("a", "one"), said("a", "two"), user()];
        let settled = check(&items, &["user: u", "call a", "result a", "user: u"]);
        let kept = settled.iter().find_map(Item::as_tool_result).unwrap();
        assert_eq!(kept.content.text(), "one");
    }

    #[test]
    fn provider_executed_items_are_unchanged() {
        let search = own(r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#);
        let found = own(r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[]}"#);
        let beside = [user(), search.clone(), found.clone(), ends(Item::text("x")), user()];
        let lawful = History::from_items("h", beside.to_vec());
        assert_eq!(lawful.settled(), lawful);
        // Also where something beside them is repaired.
        let items = [user(), search.clone(), found.clone(), ends(calls("a")), user()];
        let settled = check(
            &items,
            &["user: u", "other", "other", "call a", "result a Interrupted", "user: u"],
        );
        let kept: Vec<_> = settled.iter().skip(1).take(2).cloned().collect();
        assert_eq!(kept, [search, found]);
    }

    #[test]
    fn a_trailing_open_call_is_answered() {
        check(&[user(), ends(calls("a"))], &["user: u", "call a", "result a Interrupted"]);
        let items = [user(), calls("a"), ends(calls("b")), result("a")];
        check(&items, &["user: u", "call a", "call b", "result a", "result b Interrupted"]);
    }

    #[tokio::test]
    async fn only_a_resume_keeps_a_trailing_call_open() {
        let deferred = uncounted_tool("t").requires_approval();
        let model = Scripted::new([reply_calling_t("a"), "one".into(), "two".into()]);
        let agent = test_agent(model.clone()).with_tools([deferred]);
        let first = finish_run(agent.run("go")).await;
        first.check_outcome(EndReason::Pending, 1);
        let history = first.handle.history();
        assert_eq!(history.unanswered_calls().len(), 1, "pending, and not yet settled");
        let verdicts = first.outcome.pending.iter().cloned();
        let verdicts = verdicts.map(|call| (call, Verdict::Approve));
        let resumed = finish_run(agent.resume(history.clone(), verdicts).unwrap()).await;
        assert_eq!(resumed.result_kinds(), [ResultKind::Ok]);
        let settled = finish_run(agent.run_from(history, "never mind")).await;
        assert_eq!(settled.result_kinds(), [ResultKind::Interrupted]);
    }

    #[test]
    fn a_settled_history_is_unchanged_byte_for_byte() {
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
            Item::text("half").with_mark(Mark::Interrupted),
            user(),
            calls("void").with_mark(Mark::Tombstone),
            result("void").with_mark(Mark::Tombstone),
            user(),
        ];
        let history = History::from_items("h", items);
        assert!(history.is_settled());
        let bytes = |history: &History| serde_json::to_vec(history).unwrap();
        assert_eq!(bytes(&history.settled()), bytes(&history));
    }

    #[test]
    fn settling_a_stored_repaired_history_changes_nothing() {
        let items = [user(), ends(calls("a")), user(), ends(calls("a")), result("a"), result("x")];
        let history = History::from_items("h", items);
        let settled = history.settled();
        let stored = serde_json::to_string(&settled).unwrap();
        let loaded: History = serde_json::from_str(&stored).unwrap();
        assert_eq!(serde_json::to_string(&loaded.settled()).unwrap(), stored);
    }

    #[tokio::test]
    async fn the_output_of_transform_context_is_repaired() {
        // Forgets the first call and keeps its result.
        let forget = || {
            hook::transform_context(|_, mut context| async move {
                context.rewrite(1..context.len().min(2), []);
                context.push(result("nobody's"));
                context
            })
        };
        for wire in Wire::ALL {
            let model = WireProvider::new(
                wire,
                "m",
                [reply_calling_t("a"), reply_calling_t("b"), "done".into()],
            );
            let agent =
                test_agent(model.clone()).with_tools([uncounted_tool("t")]).with_hook(forget());
            let told = finish_run(agent.run("go")).await;
            told.check_outcome(EndReason::Completed, 3);
            assert_eq!(model.sent_bodies().len(), 3, "{wire}: each is one that its vendor takes");
            assert_eq!(told.handle.history().len(), 6, "{wire}: the ledger stays");
        }
    }

    #[test]
    fn a_truncated_call_and_its_complete_sibling_are_kept_and_answered() {
        let cut = ends(Item::tool_call("b", "t", r#"{"path":"/a"#));
        let settled = check(
            &[user(), Item::text("so"), calls("a"), cut, user()],
            &[
                "user: u",
                "so",
                "call a",
                "call b",
                "result a Interrupted",
                "result b Interrupted",
                "user: u",
            ],
        );
        // Where a wire needs an object, the raw text is wrapped in one.
        let mut sent = settled.clone();
        sent.push(user());
        for wire in [Wire::Anthropic, Wire::Gemini, Wire::Ollama] {
            assert!(
                encode(wire, "m", &Request::new(sent.clone())).to_string().contains("INVALID_JSON")
            );
        }
    }

    #[test]
    fn a_turn_with_only_a_partial_call_leaves_nothing() {
        let begun = Item::tool_call("a", "t", r#"{"path":"/a"#).with_mark(Mark::Interrupted);
        check(&[user(), begun.clone(), user(), Item::text("x")], &["user: u", "user: u", "x"]);
        check(&[user(), begun], &["user: u"]);
    }

    #[test]
    fn complete_calls_of_an_incomplete_turn_are_removed() {
        let half = |item: Item| item.with_mark(Mark::Interrupted);
        let items = [user(), half(calls("a")), half(Item::text("and")), half(calls("b")), user()];
        check(&items, &["user: u", "and", "user: u"]);
    }

    #[test]
    fn an_open_call_before_another_reply_is_answered_in_between() {
        check(
            &[user(), ends(calls("a")), ends(Item::text("I could not look.")), user()],
            &["user: u", "call a", "result a Interrupted", "I could not look.", "user: u"],
        );
    }

    #[test]
    fn an_open_call_before_an_instruction_is_answered_before_it() {
        check(
            &[user(), ends(calls("a")), Item::system("late"), user()],
            &["user: u", "call a", "result a Interrupted", "system: late", "user: u"],
        );
    }

    #[test]
    fn open_calls_of_several_turns_are_answered_after_their_own_turn() {
        check(
            &[user(), ends(calls("a")), ends(calls("b")), user(), ends(calls("c"))],
            &[
                "user: u",
                "call a",
                "result a Interrupted",
                "call b",
                "result b Interrupted",
                "user: u",
                "call c",
                "result c Interrupted",
            ],
        );
    }

    #[test]
    fn a_result_between_calls_of_a_turn_is_moved_after_its_call() {
        // A turn as its one writer had it: the second call comes after the first one's result.
        check(
            &[user(), calls("a"), result("a"), ends(calls("b")), result("b"), user()],
            &["user: u", "call a", "result a", "call b", "result b", "user: u"],
        );
    }

    #[test]
    fn results_out_of_call_order_are_unchanged() {
        let items = [user(), calls("a"), ends(calls("b")), result("b"), result("a"), user()];
        let expected = ["user: u", "call a", "call b", "result b", "result a", "user: u"];
        let settled = check(&items, &expected);
        assert_eq!(settled, History::from_items("h", items), "it was lawful");
    }

    #[test]
    fn a_trailing_orphan_result_is_removed() {
        check(&[user(), ends(Item::text("x")), result("ghost")], &["user: u", "x"]);
        check(&[result("ghost")], &[]);
    }

    #[test]
    fn an_orphan_result_and_an_open_call_are_both_repaired() {
        check(
            &[user(), result("ghost"), ends(calls("a")), user(), Item::text("x")],
            &["user: u", "call a", "result a Interrupted", "user: u", "x"],
        );
        // An orphan answers no other call, not even the only open one.
        check(
            &[user(), ends(calls("a")), result("ghost"), user()],
            &["user: u", "call a", "result a Interrupted", "user: u"],
        );
    }

    #[test]
    fn an_error_result_answers_its_call() {
        let call = ToolCall { call_id: "a".into(), name: "t".into(), arguments: "{}".into() };
        for kind in [ResultKind::InvalidArguments, ResultKind::Error, ResultKind::Denied] {
            let wrong = Item::tool_result(ToolResult::for_call(&call, kind, "wrong"));
            let items = [user(), ends(calls("a")), wrong, ends(Item::text("x")), user()];
            let answer = format!("result a {kind:?}");
            let settled = check(&items, &["user: u", "call a", &answer, "x", "user: u"]);
            assert_eq!(settled, History::from_items("h", items));
        }
    }

    #[test]
    fn a_reused_id_does_not_hide_an_open_call() {
        check(
            &[
                user(),
                ends(calls("a")),
                said("a", "one"),
                ends(calls("a")),
                user(),
                Item::text("x"),
            ],
            &[
                "user: u",
                "call a",
                "result a",
                "call a_dup1",
                "result a_dup1 Interrupted",
                "user: u",
                "x",
            ],
        );
    }

    #[test]
    fn a_generated_id_never_collides_with_the_history() {
        check(
            &[
                user(),
                ends(calls("a")),
                result("a"),
                ends(calls("a")),
                result("a"),
                ends(calls("a_dup1")),
                result("a_dup1"),
            ],
            &[
                "user: u",
                "call a",
                "result a",
                "call a_dup2",
                "result a_dup2",
                "call a_dup1",
                "result a_dup1",
            ],
        );
    }

    #[test]
    fn tombstoned_calls_and_results_are_not_paired() {
        let void = |item: Item| item.with_mark(Mark::Tombstone);
        check(
            &[user(), void(ends(calls("a"))), result("a"), Item::text("x")],
            &["user: u", "call a", "x"],
        );
        check(
            &[user(), ends(calls("a")), void(result("a")), user()],
            &["user: u", "call a", "result a", "result a Interrupted", "user: u"],
        );
    }

    #[test]
    fn a_provider_call_without_its_result_is_kept_and_not_sent() {
        let items = [user(), Item::text("Let me see."), ends(search()), user()];
        let settled = check(&items, &["user: u", "Let me see.", "other", "user: u"]);
        let sent = encode(Wire::Anthropic, "m", &Request::new(settled)).to_string();
        assert!(sent.contains("Let me see.") && !sent.contains("srv1"), "{sent}");
    }

    #[test]
    fn a_reply_with_only_such_a_provider_call_sends_no_empty_message() {
        let settled = check(&[user(), ends(search()), user()], &["user: u", "other", "user: u"]);
        let sent = encode(Wire::Anthropic, "m", &Request::new(settled));
        let roles: Vec<_> =
            sent["messages"].as_array().unwrap().iter().map(|it| &it["role"]).collect();
        assert_eq!(roles, ["user"], "{sent}");
    }

    #[test]
    fn all_repairs_combined_settle_the_history_in_one_pass() {
        let items: Vec<Item> = all_of_it().iter().cloned().collect();
        let settled = check(
            &items,
            &[
                "user: u",
                "call early",
                "result early",
                "call a",
                "call a_dup1",
                "result a",
                "result a_dup1",
                "user: u",
                "call cut",
                "result cut Interrupted",
                "other",
                "half",
                "user: u",
                "call a_dup2",
                "result a_dup2 Interrupted",
                "call b",
                "call c",
                "result c",
                "result b Interrupted",
            ],
        );
        assert!(settled.unanswered_calls().is_empty());
    }

    #[tokio::test]
    async fn every_run_continuing_a_repaired_history_starts_identically() {
        for wire in Wire::ALL {
            let model = WireProvider::new(wire, "m", ["one", "two"]);
            let agent = test_agent(model.clone()).with_tools([uncounted_tool("t")]);
            let first = finish_run(agent.run_from(all_of_it(), "go on")).await;
            first.check_outcome(EndReason::Completed, 1);
            // The history of the run is repaired, and is not repaired again.
            let kept = first.handle.history();
            assert!(kept.is_settled(), "{wire}");
            finish_run(agent.run_from(kept, "and on")).await.check_outcome(EndReason::Completed, 1);
            let sent = model.sent_bodies();
            let messages = |body: &serde_json::Value| {
                let list = ["messages", "input", "contents"]
                    .into_iter()
                    .find_map(|name| body.get(name).and_then(serde_json::Value::as_array));
                let mut list = list.unwrap().clone();
                // The marks of a cache stand on the newest message.
                for message in &mut list {
                    strip_marks(message);
                }
                list
            };
            let (before, after) = (messages(&sent[0]), messages(&sent[1]));
            assert_eq!(after[..before.len()], before, "{wire}");
        }
    }

    #[tokio::test]
    async fn a_resumed_call_with_truncated_arguments_is_answered_and_not_run() {
        let ran = Counter::default();
        let cut = ends(Item::tool_call("a", "t", r#"{"path":"/a"#));
        let history = History::from_items("h", [user(), cut]);
        let model = Scripted::new(["I see."]);
        let agent = test_agent(model.clone()).with_tools([ok_tool("t", &ran)]);
        let open = history.unanswered_calls();
        let verdicts = open.into_iter().map(|call| (call.into(), Verdict::Approve));
        let told = finish_run(agent.resume(history, verdicts).unwrap()).await;
        told.check_outcome(EndReason::Completed, 1);
        assert_eq!(
            (told.result_kinds(), ran.started_count()),
            (vec![ResultKind::InvalidArguments], 0)
        );
        assert!(model.requests()[0].history.is_settled());
    }

    #[tokio::test]
    async fn a_pending_history_continued_by_another_run_can_still_be_resumed() {
        let ran = Counter::default();
        let model = Scripted::new([reply_calling_t("a"), "never mind".into(), "done".into()]);
        let agent = test_agent(model.clone()).with_tools([ok_tool("t", &ran).requires_approval()]);
        let pending = finish_run(agent.run("go")).await.handle.history();
        let other = finish_run(agent.run_from(pending.clone(), "something else")).await;
        assert_eq!(other.result_kinds(), [ResultKind::Interrupted]);
        // The history that was passed in is not changed.
        let open = pending.unanswered_calls();
        assert_eq!((open.len(), ran.started_count()), (1, 0));
        let verdicts = open.into_iter().map(|call| (call.into(), Verdict::Approve));
        let resumed = finish_run(agent.resume(pending, verdicts).unwrap()).await;
        assert_eq!((resumed.result_kinds(), ran.started_count()), (vec![ResultKind::Ok], 1));
    }

    #[tokio::test]
    async fn an_open_call_from_transform_context_is_answered_in_the_request() {
        let remind = || {
            hook::transform_context(|_, context| async move {
                let mut items = vec![user(), ends(calls("from-elsewhere"))];
                items.extend(context.iter().cloned());
                History::from_items(context.id(), items)
            })
        };
        for wire in Wire::ALL {
            let model = WireProvider::new(wire, "m", ["done"]);
            let agent =
                test_agent(model.clone()).with_tools([uncounted_tool("t")]).with_hook(remind());
            finish_run(agent.run("go")).await.check_outcome(EndReason::Completed, 1);
            let sent = model.sent_bodies()[0].to_string();
            assert!(sent.contains("Interrupted mid-execution"), "{wire}: {sent}");
        }
    }

    #[tokio::test]
    async fn a_run_interrupted_between_two_tools_continues_settled() {
        for wire in Wire::ALL {
            let (quick, endless_) = (Counter::default(), Counter::default());
            let reply = Reply::new().call_raw("a", "t", "{}").call_raw("b", "u", "{}");
            let model = WireProvider::new(wire, "m", [reply, "The volume is 216.".into()]);
            let tools = [ok_tool("t", &quick), pending_tool("u", &endless_)];
            let agent = test_agent(model.clone()).with_tools(tools);
            let mut run = agent.run("go");
            pull_ready(&mut run);
            run.interrupt();
            let outcome = run.outcome().await;
            let next = finish_run(agent.run_from(outcome.history, "go on")).await;
            next.check_outcome(EndReason::Completed, 1);
            assert_eq!(next.result_kinds(), [ResultKind::Ok, ResultKind::Interrupted], "{wire}");
            assert_eq!(
                (quick.started_count(), endless_.started_count(), model.sent_bodies().len()),
                (1, 1, 2),
                "{wire}"
            );
        }
    }
}

/// A search that the provider began and did not end.
fn search() -> Item {
    own(r#"{"type":"server_tool_use","id":"srv1","name":"web_search","input":{}}"#)
}

/// A history with everything that can be wrong with one.
fn all_of_it() -> History {
    let half = |item: Item| item.with_mark(Mark::Interrupted);
    History::from_items(
        "h",
        [
            user(),
            result("ghost"),
            result("early"),
            ends(calls("early")),
            calls("a"),
            ends(calls("a")),
            said("a", "x"),
            said("a", "y"),
            said("a", "z"),
            user(),
            ends(Item::tool_call("cut", "t", r#"{"path":"/a"#)),
            ends(search()),
            half(Item::text("half")),
            half(calls("never")),
            user(),
            ends(calls("a")),
            calls("b"),
            ends(calls("c")),
            result("c"),
        ],
    )
}

fn strip_marks(json: &mut serde_json::Value) {
    match json {
        serde_json::Value::Array(list) => list.iter_mut().for_each(strip_marks),
        serde_json::Value::Object(fields) => {
            fields.shift_remove("cache_control");
            fields.values_mut().for_each(strip_marks);
        }
        _ => {}
    }
}
