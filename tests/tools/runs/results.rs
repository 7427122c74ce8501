//! Changes of results, and calls that are answered without running.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::stream::StreamExt;
use serde_json::json;
use turnstream::item::{ResultKind, SideEffect};
use turnstream::provider::Reply;
use turnstream::tool::{Tool, ToolOutput, Verdict};
use turnstream::turn::StopReason;
use turnstream::{Item, Toolkit};

use super::{
    ScriptedPolicy, only_result, sleep_tool, spec, start_run, summarize_event, summarize_remaining,
    turn_from_reply, turn_with_calls,
};

#[tokio::test]
async fn the_report_of_a_result_contains_the_tools_reports() {
    for (fate, kind) in
        [("ok", ResultKind::Ok), ("error", ResultKind::Error), ("panic", ResultKind::Panic)]
    {
        let tool = Tool::raw(spec("a"), move |_, cx| async move {
            cx.record_change("a.rs");
            cx.record_creation("b.rs");
            cx.record_side_effect(SideEffect { kind: "sent".into(), target: "mail".into() });
            cx.record_evidence(json!({ "exit": 0 }));
            match fate {
                "ok" => Ok("fine"),
                "error" => Err("no"),
                _ => std::panic::resume_unwind(Box::new("boom")),
            }
        });
        let kit = Toolkit::new([tool.unwrap()]);
        let result = only_result(start_run(&kit, &turn_with_calls(&["a"]).await)).await;
        assert_eq!(result.kind, kind);
        let report = result.report.unwrap();
        let effects: Vec<_> = report.side_effects.iter().map(|e| (&*e.kind, &*e.target)).collect();
        assert_eq!(effects, [("changed", "a.rs"), ("created", "b.rs"), ("sent", "mail")]);
        assert_eq!(report.evidence[0].as_str(), "{\"exit\":0}");
    }
    let silent =
        only_result(start_run(&Toolkit::new([sleep_tool("a")]), &turn_with_calls(&["a"]).await))
            .await;
    assert_eq!(silent.report, None);
}

#[tokio::test]
async fn reports_made_while_a_tool_is_dropped_count_and_later_ones_do_not() {
    struct RecordOnDrop(turnstream::tool::ToolContext);
    impl Drop for RecordOnDrop {
        fn drop(&mut self) {
            self.0.record_change("undone");
        }
    }
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let tool = Tool::raw(spec("a"), move |_, cx: turnstream::tool::ToolContext| {
        *keep.lock().unwrap() = Some(cx.clone());
        let undo = RecordOnDrop(cx);
        let updates = futures::stream::iter([turnstream::tool::ToolUpdate::output("done")])
            .chain(futures::stream::pending())
            .map(move |update| (&undo, update).1);
        std::future::ready(updates.boxed())
    });
    let kit = Toolkit::new([tool.unwrap()]);
    let result = only_result(start_run(&kit, &turn_with_calls(&["a"]).await)).await;
    kept.lock().unwrap().take().unwrap().record_change("late");
    assert_eq!(result.report.unwrap().side_effects, [SideEffect::of_change("undone")]);
}

#[tokio::test]
async fn a_dry_run_calls_only_tools_that_support_it() {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let write = Tool::raw(spec("write"), move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        async {}
    });
    let look = Tool::raw(spec("look"), |_, cx| async move { cx.is_dry_run() });
    let kit =
        Toolkit::new([write.unwrap(), look.unwrap().with_dry_run_support()]).with_dry_run(true);
    let reply = Reply::new()
        .call_raw("1", "write", "{\"ms\":1}")
        .call_raw("2", "write", "{\"x\":1}")
        .call_raw("3", "look", "{}");
    let rules = ScriptedPolicy::default();
    let mut tools = start_run(&kit, &turn_from_reply(reply).await).with_policy(rules.clone());
    let shapes = summarize_remaining(&mut tools).await;
    assert_eq!(shapes, ["Skipped 1", "InvalidArguments 2", "start look", "Ok 3"]);
    assert_eq!(rules.log().iter().filter(|line| line.starts_with("before")).count(), 1);
    let results = tools.finish().unwrap().results;
    assert!(results[0].content.text().contains("`write`"));
    assert!(results[0].content.text().contains("{\"ms\":1}"));
    assert_eq!((results[2].content.text(), ran.load(Ordering::Relaxed)), ("true".into(), 0));
}

#[tokio::test]
async fn of_a_single_action_only_the_first_call_runs() {
    let kit = Toolkit::new([sleep_tool("a"), sleep_tool("b")]).first_call_only();
    assert!(kit.is_first_call_only() && !Toolkit::default().is_first_call_only());
    let mut tools = start_run(&kit, &turn_with_calls(&["a", "b", "nobody"]).await);
    let shapes = summarize_remaining(&mut tools).await;
    assert_eq!(shapes.iter().filter(|shape| shape.starts_with("start")).count(), 1);
    let results = tools.finish().unwrap().results;
    let kinds: Vec<_> = results.iter().map(|result| result.kind).collect();
    assert_eq!(kinds, [ResultKind::Ok, ResultKind::Skipped, ResultKind::Skipped]);
    assert_eq!(
        results[1].content.text(),
        "Not run: one call in a reply, please. Call it again if it is still needed."
    );
}

#[tokio::test]
async fn a_rejected_run_answers_every_call_and_forbidden_calls_keep_their_own_answer() {
    let kit = Toolkit::new([sleep_tool("a")]);
    let mut tools = start_run(&kit, &turn_with_calls(&["a", "nobody"]).await)
        .with_refusal(ResultKind::Budget, "Not run.");
    let events: Vec<_> = tools.by_ref().map(|event| summarize_event(&event)).collect().await;
    assert!(events.iter().all(|event| event.starts_with("Budget")) && events.len() == 2);
    assert_eq!(tools.finish().unwrap().results[0].content.text(), "Not run.");

    let cut = turn_from_reply(Reply::new().call("a", json!({})).stop(StopReason::MaxTokens)).await;
    let result =
        only_result(start_run(&kit, &cut).with_refusal(ResultKind::Budget, "Not run.")).await;
    assert_eq!(result.kind, ResultKind::Truncated);
}

#[tokio::test]
async fn a_long_result_is_truncated_and_passed_whole_to_on_truncate() {
    let long = || Tool::raw(spec("a"), |_, _| async { "x".repeat(70_000) }).unwrap();
    let result =
        only_result(start_run(&Toolkit::new([long()]), &turn_with_calls(&["a"]).await)).await;
    assert!(result.content.text().len() <= 65_536);
    assert!(result.content.text().contains("bytes were left out here]"));

    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let kit = Toolkit::new([long(), sleep_tool("b")]).with_max_result_bytes(1_000).on_truncate(
        move |call, whole| {
            keep.lock().unwrap().push((call.call_id.clone(), whole.content.text().len()));
            Some("See a.txt.".into())
        },
    );
    let mut tools = start_run(&kit, &turn_with_calls(&["a", "b"]).await);
    summarize_remaining(&mut tools).await;
    let answered = tools.finish().unwrap();
    assert!(answered.results[0].content.text().contains("left out here. See a.txt.]"));
    assert_eq!(*kept.lock().unwrap(), [("a".to_owned(), 70_000)], "only what is clipped");
    let held = answered.history.iter().find_map(Item::as_tool_result).unwrap();
    assert_eq!(held, &answered.results[0], "the history has what was seen");
}

#[tokio::test]
async fn a_result_rewritten_by_a_hook_is_truncated() {
    let long = "y".repeat(500);
    let kit = Toolkit::new([sleep_tool("a"), Tool::external(spec("out")).unwrap()])
        .with_max_result_bytes(100);
    let rules = ScriptedPolicy::configured(|book| {
        book.verdicts.insert("out", Verdict::Output(ToolOutput::ok(long.clone())));
    });
    let output =
        only_result(start_run(&kit, &turn_with_calls(&["out"]).await).with_policy(rules)).await;
    assert_eq!(output.content.text().len(), 100);
    let rules = ScriptedPolicy::configured(|book| book.replacement_text = Some(long));
    let rewritten =
        only_result(start_run(&kit, &turn_with_calls(&["a"]).await).with_policy(rules)).await;
    assert_eq!(rewritten.content.text().len(), 100);
}

#[tokio::test]
async fn a_panic_in_on_truncate_leaves_a_truncated_result() {
    let kit = Toolkit::new([Tool::raw(spec("a"), |_, _| async { "x".repeat(500) }).unwrap()])
        .with_max_result_bytes(100)
        .on_truncate(|_, _| std::panic::resume_unwind(Box::new("boom")));
    let result = only_result(start_run(&kit, &turn_with_calls(&["a"]).await)).await;
    assert_eq!((result.kind, result.content.text().len()), (ResultKind::Ok, 100));
}

#[tokio::test(start_paused = true)]
async fn a_tool_run_finished_early_keeps_the_available_results() {
    let kit = Toolkit::new([sleep_tool("a")]);
    let reply = Reply::new().call_raw("1", "a", "{\"ms\":50}").call_raw("2", "a", "{}");
    let mut tools = start_run(&kit, &turn_from_reply(reply).await);
    for _ in 0..3 {
        tools.next().await.unwrap();
    }
    let answered = tools.finish().unwrap();
    assert_eq!(answered.results.len(), 1);
    assert_eq!(answered.history.unanswered_calls()[0].call_id, "1");
    assert!(answered.pending.is_empty());
}

#[tokio::test]
async fn a_change_that_had_been_made_before_is_a_result_of_its_own_kind_and_no_error() {
    let tool = Tool::raw(spec("a"), |_, _| async { ToolOutput::already_exists("a.rs exists") });
    let kit = Toolkit::new([tool.unwrap()]);
    let result = only_result(start_run(&kit, &turn_with_calls(&["a"]).await)).await;
    assert_eq!((result.kind, result.is_error()), (ResultKind::AlreadyExists, false));
    let stored = serde_json::to_value(Item::tool_result(result.clone())).unwrap();
    assert_eq!((&stored["kind"], &stored["is_error"]), (&json!("already_exists"), &json!(false)));
    let restored: Item = serde_json::from_value(stored).unwrap();
    assert_eq!(restored.as_tool_result(), Some(&result));
}
