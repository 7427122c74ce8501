//! How a loaded history is made valid.

use std::sync::Arc;

use turnstream::agent::hook;
use turnstream::event::EndReason;
use turnstream::item::{
    ItemFlag, ProviderData, RawJson, ResultKind, ToolCall, ToolResult, TurnInfo,
};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Verdict;
use turnstream::turn::StopReason;
use turnstream::{History, Item, Request, Usage};
use turnstream_testing::{Wire, lint};

use turnstream_test_support::models::WireProvider;
use turnstream_test_support::runs::{pull_ready, reply_calling_t, test_agent};
use turnstream_test_support::tools::{Counter, ok_tool, pending_tool, spec, uncounted_tool};
use turnstream_test_support::wires::encode;
use turnstream_test_support::world::{finish_run, item_summary};

fn user_item() -> Item {
    Item::user("u")
}

fn call_item(id: &str) -> Item {
    Item::tool_call(id, "t", "{}")
}

fn result_item(id: &str) -> Item {
    message_item(id, "fine")
}

fn message_item(id: &str, text: &str) -> Item {
    let call = ToolCall { call_id: id.into(), name: "t".into(), arguments: "{}".into() };
    Item::tool_result(ToolResult::for_call(&call, ResultKind::Ok, text))
}

/// The item as the last one of a completed turn.
fn as_turn_end(item: Item) -> Item {
    let info = TurnInfo {
        usage: Usage::default(),
        model: None,
        response_id: None,
        stop_reason: StopReason::ToolCalls,
    };
    Item { turn: Some(Arc::new(info)), ..item }
}

/// An item with provider data.
fn provider_item(value: &str) -> Item {
    let value = RawJson::parse(value).unwrap();
    Item::provider_item(ProviderData { provider: "anthropic".into(), model: "m".into(), value })
}

/// The summary of an item, with its result's kind unless that is `ok`.
fn item_with_result_kind(item: &Item) -> String {
    match item.as_tool_result() {
        Some(result) if result.is_error() => format!("{} {:?}", item_summary(item), result.kind),
        _ => item_summary(item),
    }
}

/// Settles a history, and checks properties that hold for every settled history.
#[track_caller]
fn check_settled(items: &[Item], expected: &[&str]) -> History {
    let history = History::from_items("h", items.to_vec());
    let settled = history.settled();
    assert_eq!(settled.iter().map(item_with_result_kind).collect::<Vec<_>>(), expected);
    assert!(settled.is_settled());
    let again = settled.settled();
    let bytes = |history: &History| serde_json::to_vec(history).unwrap();
    assert_eq!(bytes(&again), bytes(&settled), "it changes nothing when done twice");
    assert_eq!(bytes(&history.settled()), bytes(&settled), "nothing of it is chance");
    // Every vendor accepts it.
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
    //! Histories with missing, orphaned, duplicate or misplaced results are settled
    //! deterministically.

    use super::*;

    #[test]
    fn a_dangling_call_is_answered_as_interrupted() {
        let settled = check_settled(
            &[user_item(), as_turn_end(call_item("a")), user_item()],
            &["user: u", "call a", "result a Interrupted", "user: u"],
        );
        let answer = settled.iter().find_map(Item::as_tool_result).unwrap();
        assert_eq!(answer.content.text(), "Interrupted mid-execution");
    }

    #[test]
    fn only_missing_results_of_a_batch_are_synthesized() {
        let batch = [call_item("a"), call_item("b"), as_turn_end(call_item("c"))];
        let items = [&[user_item()][..], &batch, &[result_item("b"), user_item()]].concat();
        let settled = check_settled(
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
        let cut = as_turn_end(Item::tool_call("a", "t", r#"{"path":"/a"#));
        let settled = check_settled(
            &[user_item(), cut, user_item()],
            &["user: u", "call a", "result a Interrupted", "user: u"],
        );
        let call = settled.iter().find_map(Item::as_tool_call).unwrap();
        assert_eq!(call.arguments, r#"{"path":"/a"#);
    }

    #[test]
    fn an_incomplete_turn_loses_its_calls_and_keeps_its_text() {
        let half = |item: Item| item.with_flag(ItemFlag::Interrupted);
        let items = [
            user_item(),
            half(Item::text("so")),
            half(call_item("a")),
            result_item("a"),
            user_item(),
        ];
        let settled = check_settled(&items, &["user: u", "so", "user: u"]);
        assert!(settled.has_used_call_id("a"), "its id is not given again");
    }

    #[test]
    fn a_result_before_its_call_is_moved_after_it() {
        check_settled(
            &[user_item(), result_item("a"), as_turn_end(call_item("a")), user_item()],
            &["user: u", "call a", "result a", "user: u"],
        );
    }

    #[test]
    fn a_late_result_is_moved_to_its_turn() {
        check_settled(
            &[
                user_item(),
                as_turn_end(call_item("a")),
                user_item(),
                result_item("a"),
                Item::text("x"),
            ],
            &["user: u", "call a", "result a", "user: u", "x"],
        );
    }

    #[test]
    fn an_orphan_result_is_removed() {
        check_settled(&[user_item(), result_item("nobody's"), Item::text("x")], &["user: u", "x"]);
    }

    #[test]
    fn a_reused_id_is_renamed_together_with_its_result() {
        let items = [
            user_item(),
            as_turn_end(call_item("a")),
            message_item("a", "one"),
            as_turn_end(call_item("a")),
            message_item("a", "two"),
            as_turn_end(call_item("a")),
            message_item("a", "three"),
        ];
        let settled = check_settled(
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
        let items = [
            user_item(),
            as_turn_end(call_item("a")),
            user_item(),
            as_turn_end(call_item("a")),
            result_item("a"),
            user_item(),
        ];
        check_settled(
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
        let items = [
            user_item(),
            call_item("a"),
            as_turn_end(call_item("a")),
            message_item("a", "x"),
            message_item("a", "y"),
        ];
        let settled = check_settled(
            &items,
            &["user: u", "call a", "call a_dup1", "result a", "result a_dup1"],
        );
        let results: Vec<_> = settled.iter().filter_map(Item::as_tool_result).collect();
        assert_eq!(
            (results[0].content.text(), results[1].content.text()),
            ("x".into(), "y".into())
        );
    }

    #[test]
    fn of_duplicate_results_the_first_is_kept() {
        let items = [
            user_item(),
            as_turn_end(call_item("a")),
            message_item("a", "one"),
            message_item("a", "two"),
            user_item(),
        ];
        let settled = check_settled(&items, &["user: u", "call a", "result a", "user: u"]);
        let kept = settled.iter().find_map(Item::as_tool_result).unwrap();
        assert_eq!(kept.content.text(), "one");
    }

    #[test]
    fn a_result_without_an_open_call_does_not_answer_a_later_call_with_the_same_id() {
        let cut = call_item("a").with_flag(ItemFlag::Interrupted);
        let answered = [as_turn_end(call_item("a")), message_item("a", "one")];
        let earlier: [(&[Item], &[&str], &str); 2] = [
            (&answered, &["call a", "result a"], "a_dup1"),
            (std::slice::from_ref(&cut), &[], "a"),
        ];
        for (earlier, kept, id) in earlier {
            let items = [
                &[user_item()],
                earlier,
                &[message_item("a", "stale"), user_item(), as_turn_end(call_item("a"))],
            ]
            .concat();
            let call = format!("call {id}");
            let with_end =
                |end: &[&str]| [&["user: u"], kept, &["user: u", &call], end].concat().join(", ");
            let settled = |items: &[Item]| {
                let history = History::from_items("h", items.to_vec()).settled();
                history.iter().map(item_with_result_kind).collect::<Vec<_>>().join(", ")
            };
            let answer = format!("result {id}");
            assert_eq!(settled(&items), with_end(&[&format!("{answer} Interrupted")]));
            let with_result = [&items[..], &[message_item("a", "two")]].concat();
            assert_eq!(settled(&with_result), with_end(&[&answer]));
            let history = History::from_items("h", with_result).settled();
            assert_eq!(history.last().unwrap().as_tool_result().unwrap().content.text(), "two");
        }
    }

    #[test]
    fn provider_executed_items_are_unchanged() {
        let search =
            provider_item(r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#);
        let found =
            provider_item(r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[]}"#);
        let beside =
            [user_item(), search.clone(), found.clone(), as_turn_end(Item::text("x")), user_item()];
        let lawful = History::from_items("h", beside.to_vec());
        assert_eq!(lawful.settled(), lawful);
        // The same if items around them are repaired.
        let items =
            [user_item(), search.clone(), found.clone(), as_turn_end(call_item("a")), user_item()];
        let settled = check_settled(
            &items,
            &["user: u", "other", "other", "call a", "result a Interrupted", "user: u"],
        );
        let kept: Vec<_> = settled.iter().skip(1).take(2).cloned().collect();
        assert_eq!(kept, [search, found]);
    }

    #[test]
    fn a_trailing_open_call_is_answered() {
        check_settled(
            &[user_item(), as_turn_end(call_item("a"))],
            &["user: u", "call a", "result a Interrupted"],
        );
        let items = [user_item(), call_item("a"), as_turn_end(call_item("b")), result_item("a")];
        check_settled(&items, &["user: u", "call a", "call b", "result a", "result b Interrupted"]);
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
            user_item(),
            Item::reasoning("hm"),
            call_item("a"),
            as_turn_end(call_item("b")),
            result_item("b"),
            result_item("a"),
            Item::system("late"),
            Item::text("x"),
            user_item(),
            Item::text("half").with_flag(ItemFlag::Interrupted),
            user_item(),
            call_item("void").with_flag(ItemFlag::Tombstone),
            result_item("void").with_flag(ItemFlag::Tombstone),
            user_item(),
        ];
        let history = History::from_items("h", items);
        assert!(history.is_settled());
        let bytes = |history: &History| serde_json::to_vec(history).unwrap();
        assert_eq!(bytes(&history.settled()), bytes(&history));
    }

    #[test]
    fn settling_a_stored_repaired_history_changes_nothing() {
        let items = [
            user_item(),
            as_turn_end(call_item("a")),
            user_item(),
            as_turn_end(call_item("a")),
            result_item("a"),
            result_item("x"),
        ];
        let history = History::from_items("h", items);
        let settled = history.settled();
        let stored = serde_json::to_string(&settled).unwrap();
        let loaded: History = serde_json::from_str(&stored).unwrap();
        assert_eq!(serde_json::to_string(&loaded.settled()).unwrap(), stored);
    }

    #[tokio::test]
    async fn the_output_of_transform_context_is_repaired() {
        // Drops the first call and keeps its result.
        let forget = || {
            hook::transform_context(|_, mut context| async move {
                context.rewrite(1..context.len().min(2), []);
                context.push(result_item("nobody's"));
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
            let finished = finish_run(agent.run("go")).await;
            finished.check_outcome(EndReason::Completed, 3);
            assert_eq!(model.sent_bodies().len(), 3, "{wire}: each is one that its vendor takes");
            assert_eq!(finished.handle.history().len(), 6, "{wire}: the ledger stays");
        }
    }

    #[test]
    fn a_truncated_call_and_its_complete_sibling_are_kept_and_answered() {
        let cut = as_turn_end(Item::tool_call("b", "t", r#"{"path":"/a"#));
        let settled = check_settled(
            &[user_item(), Item::text("so"), call_item("a"), cut, user_item()],
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
        // If a wire needs an object, the raw text is wrapped in one.
        let mut sent = settled.clone();
        sent.push(user_item());
        for wire in [Wire::Anthropic, Wire::Gemini, Wire::Ollama] {
            assert!(
                encode(wire, "m", &Request::new(sent.clone())).to_string().contains("INVALID_JSON")
            );
        }
    }

    #[test]
    fn a_turn_with_only_a_partial_call_leaves_nothing() {
        let begun = Item::tool_call("a", "t", r#"{"path":"/a"#).with_flag(ItemFlag::Interrupted);
        check_settled(
            &[user_item(), begun.clone(), user_item(), Item::text("x")],
            &["user: u", "user: u", "x"],
        );
        check_settled(&[user_item(), begun], &["user: u"]);
    }

    #[test]
    fn complete_calls_of_an_incomplete_turn_are_removed() {
        let half = |item: Item| item.with_flag(ItemFlag::Interrupted);
        let items = [
            user_item(),
            half(call_item("a")),
            half(Item::text("and")),
            half(call_item("b")),
            user_item(),
        ];
        check_settled(&items, &["user: u", "and", "user: u"]);
    }

    #[test]
    fn an_open_call_before_another_reply_is_answered_in_between() {
        check_settled(
            &[
                user_item(),
                as_turn_end(call_item("a")),
                as_turn_end(Item::text("I could not look.")),
                user_item(),
            ],
            &["user: u", "call a", "result a Interrupted", "I could not look.", "user: u"],
        );
    }

    #[test]
    fn an_open_call_before_an_instruction_is_answered_before_it() {
        check_settled(
            &[user_item(), as_turn_end(call_item("a")), Item::system("late"), user_item()],
            &["user: u", "call a", "result a Interrupted", "system: late", "user: u"],
        );
    }

    #[test]
    fn open_calls_of_several_turns_are_answered_after_their_own_turn() {
        check_settled(
            &[
                user_item(),
                as_turn_end(call_item("a")),
                as_turn_end(call_item("b")),
                user_item(),
                as_turn_end(call_item("c")),
            ],
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
        // A turn in the writer's order: the second call comes after the first one's result.
        check_settled(
            &[
                user_item(),
                call_item("a"),
                result_item("a"),
                as_turn_end(call_item("b")),
                result_item("b"),
                user_item(),
            ],
            &["user: u", "call a", "result a", "call b", "result b", "user: u"],
        );
    }

    #[test]
    fn results_out_of_call_order_are_unchanged() {
        let items = [
            user_item(),
            call_item("a"),
            as_turn_end(call_item("b")),
            result_item("b"),
            result_item("a"),
            user_item(),
        ];
        let expected = ["user: u", "call a", "call b", "result b", "result a", "user: u"];
        let settled = check_settled(&items, &expected);
        assert_eq!(settled, History::from_items("h", items), "it was settled");
    }

    #[test]
    fn a_trailing_orphan_result_is_removed() {
        check_settled(
            &[user_item(), as_turn_end(Item::text("x")), result_item("ghost")],
            &["user: u", "x"],
        );
        check_settled(&[result_item("ghost")], &[]);
    }

    #[test]
    fn an_orphan_result_and_an_open_call_are_both_repaired() {
        check_settled(
            &[
                user_item(),
                result_item("ghost"),
                as_turn_end(call_item("a")),
                user_item(),
                Item::text("x"),
            ],
            &["user: u", "call a", "result a Interrupted", "user: u", "x"],
        );
        // An orphaned result answers no other call, not even the only open one.
        check_settled(
            &[user_item(), as_turn_end(call_item("a")), result_item("ghost"), user_item()],
            &["user: u", "call a", "result a Interrupted", "user: u"],
        );
    }

    #[test]
    fn an_error_result_answers_its_call() {
        let call = ToolCall { call_id: "a".into(), name: "t".into(), arguments: "{}".into() };
        for kind in [ResultKind::InvalidArguments, ResultKind::Error, ResultKind::Denied] {
            let wrong = Item::tool_result(ToolResult::for_call(&call, kind, "wrong"));
            let items = [
                user_item(),
                as_turn_end(call_item("a")),
                wrong,
                as_turn_end(Item::text("x")),
                user_item(),
            ];
            let answer = format!("result a {kind:?}");
            let settled = check_settled(&items, &["user: u", "call a", &answer, "x", "user: u"]);
            assert_eq!(settled, History::from_items("h", items));
        }
    }

    #[test]
    fn a_reused_id_does_not_hide_an_open_call() {
        check_settled(
            &[
                user_item(),
                as_turn_end(call_item("a")),
                message_item("a", "one"),
                as_turn_end(call_item("a")),
                user_item(),
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
        check_settled(
            &[
                user_item(),
                as_turn_end(call_item("a")),
                result_item("a"),
                as_turn_end(call_item("a")),
                result_item("a"),
                as_turn_end(call_item("a_dup1")),
                result_item("a_dup1"),
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
        let void = |item: Item| item.with_flag(ItemFlag::Tombstone);
        check_settled(
            &[user_item(), void(as_turn_end(call_item("a"))), result_item("a"), Item::text("x")],
            &["user: u", "call a", "x"],
        );
        check_settled(
            &[user_item(), as_turn_end(call_item("a")), void(result_item("a")), user_item()],
            &["user: u", "call a", "result a", "result a Interrupted", "user: u"],
        );
    }

    #[test]
    fn a_provider_call_without_its_result_is_kept_and_not_sent() {
        let items =
            [user_item(), Item::text("Let me see."), as_turn_end(unfinished_search()), user_item()];
        let settled = check_settled(&items, &["user: u", "Let me see.", "other", "user: u"]);
        let sent = encode(Wire::Anthropic, "m", &Request::new(settled)).to_string();
        assert!(sent.contains("Let me see.") && !sent.contains("srv1"), "{sent}");
    }

    #[test]
    fn a_reply_with_only_such_a_provider_call_sends_no_empty_message() {
        let settled = check_settled(
            &[user_item(), as_turn_end(unfinished_search()), user_item()],
            &["user: u", "other", "user: u"],
        );
        let sent = encode(Wire::Anthropic, "m", &Request::new(settled));
        let roles: Vec<_> =
            sent["messages"].as_array().unwrap().iter().map(|it| &it["role"]).collect();
        assert_eq!(roles, ["user"], "{sent}");
    }

    #[test]
    fn all_repairs_combined_settle_the_history_in_one_pass() {
        let items: Vec<Item> = history_with_all_faults().iter().cloned().collect();
        let settled = check_settled(
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
            let first = finish_run(agent.run_from(history_with_all_faults(), "go on")).await;
            first.check_outcome(EndReason::Completed, 1);
            // The history of the run is repaired once, and not again.
            let kept = first.handle.history();
            assert!(kept.is_settled(), "{wire}");
            finish_run(agent.run_from(kept, "and on")).await.check_outcome(EndReason::Completed, 1);
            let sent = model.sent_bodies();
            let messages = |body: &serde_json::Value| {
                let list = ["messages", "input", "contents"]
                    .into_iter()
                    .find_map(|name| body.get(name).and_then(serde_json::Value::as_array));
                let mut list = list.unwrap().clone();
                // Cache marks are on the newest message.
                for message in &mut list {
                    remove_cache_marks(message);
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
        let cut = as_turn_end(Item::tool_call("a", "t", r#"{"path":"/a"#));
        let history = History::from_items("h", [user_item(), cut]);
        let model = Scripted::new(["I see."]);
        let agent = test_agent(model.clone()).with_tools([ok_tool("t", &ran)]);
        let open = history.unanswered_calls();
        let verdicts = open.into_iter().map(|call| (call.into(), Verdict::Approve));
        let finished = finish_run(agent.resume(history, verdicts).unwrap()).await;
        finished.check_outcome(EndReason::Completed, 1);
        assert_eq!(
            (finished.result_kinds(), ran.started_count()),
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
        // The history that was passed in is unchanged.
        let open = pending.unanswered_calls();
        assert_eq!((open.len(), ran.started_count()), (1, 0));
        let verdicts = pending.pending_calls().into_iter().map(|call| (call, Verdict::Approve));
        let resumed = finish_run(agent.resume(pending, verdicts).unwrap()).await;
        assert_eq!((resumed.result_kinds(), ran.started_count()), (vec![ResultKind::Ok], 1));
    }

    #[tokio::test]
    async fn an_open_call_from_transform_context_is_answered_in_the_request() {
        let remind = || {
            hook::transform_context(|_, context| async move {
                let mut items = vec![user_item(), as_turn_end(call_item("from-elsewhere"))];
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

/// A search that the provider started and did not finish.
fn unfinished_search() -> Item {
    provider_item(r#"{"type":"server_tool_use","id":"srv1","name":"web_search","input":{}}"#)
}

/// A history with every possible fault.
fn history_with_all_faults() -> History {
    let half = |item: Item| item.with_flag(ItemFlag::Interrupted);
    History::from_items(
        "h",
        [
            user_item(),
            result_item("ghost"),
            result_item("early"),
            as_turn_end(call_item("early")),
            call_item("a"),
            as_turn_end(call_item("a")),
            message_item("a", "x"),
            message_item("a", "y"),
            message_item("a", "z"),
            user_item(),
            as_turn_end(Item::tool_call("cut", "t", r#"{"path":"/a"#)),
            as_turn_end(unfinished_search()),
            half(Item::text("half")),
            half(call_item("never")),
            user_item(),
            as_turn_end(call_item("a")),
            call_item("b"),
            as_turn_end(call_item("c")),
            result_item("c"),
        ],
    )
}

fn remove_cache_marks(json: &mut serde_json::Value) {
    match json {
        serde_json::Value::Array(list) => list.iter_mut().for_each(remove_cache_marks),
        serde_json::Value::Object(fields) => {
            fields.shift_remove("cache_control");
            fields.values_mut().for_each(remove_cache_marks);
        }
        _ => {}
    }
}
