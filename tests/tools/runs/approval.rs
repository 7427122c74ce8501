//! Calls that wait for a verdict or an external result.

use futures::FutureExt;
use futures::stream::{FusedStream, StreamExt};
use turnstream::item::ResultKind;
use turnstream::provider::Reply;
use turnstream::tool::{Permission, Tool, ToolOutput, ToolRun, Verdict};
use turnstream::{Step, Toolkit};

use super::{
    ScriptedPolicy, only_result, sleep_tool, spec, start_run, summarize_event, summarize_remaining,
    turn_from_reply, turn_with_calls,
};

fn approval_toolkit() -> Toolkit {
    Toolkit::new([
        sleep_tool("ask").requires_approval(),
        sleep_tool("a"),
        Tool::external(spec("out")).unwrap(),
        sleep_tool("alone").requires_approval().exclusive(),
    ])
}

fn pending_call_ids(run: ToolRun) -> Vec<String> {
    run.finish().unwrap().pending.into_iter().map(|call| call.call_id).collect()
}

#[tokio::test]
async fn without_a_policy_every_call_gets_its_result() {
    for (name, kind) in [("ask", ResultKind::Denied), ("out", ResultKind::Skipped)] {
        let result =
            only_result(start_run(&approval_toolkit(), &turn_with_calls(&[name]).await)).await;
        assert_eq!(result.kind, kind);
    }
    let steps = start_run(&approval_toolkit(), &turn_with_calls(&["ask", "out", "a"]).await)
        .then_next(|history| history);
    let Some(Ok(Step::Next(history))) = steps.collect::<Vec<_>>().await.pop() else { panic!() };
    assert!(history.is_settled());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_verdict_is_left_pending_when_its_siblings_have_ended() {
    let rules = ScriptedPolicy::default();
    let mut tools = start_run(&approval_toolkit(), &turn_with_calls(&["ask", "a", "out"]).await)
        .with_policy(rules.clone());
    assert_eq!(summarize_remaining(&mut tools).await, ["ask ask {}", "start a", "Ok a"]);
    assert!(tools.is_terminated());
    assert_eq!(rules.log()[1], "asked ask");
    assert!(rules.log().contains(&"asked out".to_owned()));
    let answered = tools.finish().unwrap();
    let ids: Vec<_> = answered.pending.iter().map(|call| &*call.call_id).collect();
    assert_eq!(ids, ["ask", "out"]);
    assert_eq!(answered.history.pending_calls(), answered.pending);
}

#[tokio::test]
async fn the_poll_after_the_approval_request_ends_the_stream() {
    let mut tools = start_run(&approval_toolkit(), &turn_with_calls(&["ask"]).await)
        .with_policy(ScriptedPolicy::default());
    assert_eq!(summarize_event(&tools.next().await.unwrap()), "ask ask {}");
    assert_eq!(tools.next().now_or_never(), Some(None));
    assert_eq!(pending_call_ids(tools), ["ask"]);
}

#[tokio::test]
async fn a_verdict_between_two_polls_is_accepted() {
    for (verdict, expected) in [
        (Verdict::Approve, &["start ask", "Ok ask"][..]),
        (Verdict::Deny("no".into()), &["Denied ask"]),
        (Verdict::Output(ToolOutput::ok("mine")), &["Ok ask"]),
        (Verdict::Output(ToolOutput::error("mine")), &["Error ask"]),
    ] {
        let rules = ScriptedPolicy::default();
        let mut tools = start_run(&approval_toolkit(), &turn_with_calls(&["ask"]).await)
            .with_policy(rules.clone());
        tools.next().await.unwrap();
        rules.script().verdicts.insert("ask", verdict);
        assert_eq!(summarize_remaining(&mut tools).await, expected);
        assert!(pending_call_ids(tools).is_empty());
    }
}

#[tokio::test]
async fn a_verdict_given_in_advance_is_not_requested() {
    let rules =
        ScriptedPolicy::configured(|book| drop(book.verdicts.insert("ask", Verdict::Approve)));
    let mut tools =
        start_run(&approval_toolkit(), &turn_with_calls(&["ask"]).await).with_policy(rules.clone());
    assert_eq!(summarize_remaining(&mut tools).await, ["start ask", "Ok ask"]);
    assert_eq!(rules.log(), ["before ask", "after ask"]);
}

#[tokio::test(start_paused = true)]
async fn a_verdict_is_accepted_until_the_last_sibling_has_ended() {
    let reply = Reply::new().call_raw("ask", "ask", "").call_raw("a", "a", "{\"ms\":50}");
    let turn = turn_from_reply(reply).await;
    for late in [false, true] {
        let rules = ScriptedPolicy::default();
        let mut tools = start_run(&approval_toolkit(), &turn).with_policy(rules.clone());
        for expected in ["ask ask ", "start a", "Ok a"] {
            assert_eq!(summarize_event(&tools.next().await.unwrap()), expected);
        }
        if late {
            assert_eq!(tools.next().await, None);
        }
        rules.script().verdicts.insert("ask", Verdict::Approve);
        let rest = summarize_remaining(&mut tools).await;
        assert_eq!(rest.is_empty(), late, "{rest:?}");
        assert_eq!(pending_call_ids(tools).is_empty(), !late);
    }
}

#[tokio::test]
async fn an_interactive_policy_is_awaited() {
    let rules = ScriptedPolicy::configured(|book| book.waits_for_verdicts = true);
    let mut tools = start_run(&approval_toolkit(), &turn_with_calls(&["ask", "out"]).await)
        .with_policy(rules.clone());
    assert_eq!(summarize_event(&tools.next().await.unwrap()), "ask ask {}");
    for _ in 0..3 {
        assert_eq!(tools.next().now_or_never(), None, "it waits");
    }
    rules.script().verdicts.insert("ask", Verdict::Approve);
    assert_eq!(summarize_remaining(&mut tools).await, ["start ask", "Ok ask"]);
    assert_eq!(pending_call_ids(tools), ["out"], "an external call is never waited for");
}

#[tokio::test]
async fn an_external_call_is_answered_by_its_output_or_stays_pending_without_one() {
    for (verdict, expected) in [
        (Verdict::Approve, &[][..]),
        (Verdict::Deny("no".into()), &["Denied out"]),
        (Verdict::Output(ToolOutput::ok("42")), &["Ok out"]),
    ] {
        let rules = ScriptedPolicy::configured(|book| drop(book.verdicts.insert("out", verdict)));
        let mut tools =
            start_run(&approval_toolkit(), &turn_with_calls(&["out"]).await).with_policy(rules);
        assert_eq!(summarize_remaining(&mut tools).await, expected);
        assert_eq!(pending_call_ids(tools).is_empty(), !expected.is_empty());
    }
}

#[tokio::test]
async fn a_policy_may_require_approval_of_any_call_but_an_external_one() {
    let rules = ScriptedPolicy::configured(|book| {
        book.permissions.insert("a", Permission::require_approval());
        book.permissions.insert(
            "out",
            Permission { arguments: Some("{\"ms\":1}".into()), ..Permission::require_approval() },
        );
    });
    let mut tools =
        start_run(&approval_toolkit(), &turn_with_calls(&["a", "out"]).await).with_policy(rules);
    assert_eq!(summarize_remaining(&mut tools).await, ["ask a {}"]);
    let pending = tools.finish().unwrap().pending;
    assert_eq!(pending[1].arguments, "{\"ms\":1}", "what would run");
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_call_awaiting_approval_blocks_no_other_and_then_runs_alone() {
    let reply = Reply::new()
        .call_raw("alone", "alone", "{\"ms\":10}")
        .call_raw("1", "a", "{\"ms\":50}")
        .call_raw("2", "a", "{\"ms\":80}");
    let rules = ScriptedPolicy::default();
    let mut tools =
        start_run(&approval_toolkit(), &turn_from_reply(reply).await).with_policy(rules.clone());
    for expected in ["ask alone {\"ms\":10}", "start a", "start a"] {
        assert_eq!(summarize_event(&tools.next().await.unwrap()), expected);
    }
    rules.script().verdicts.insert("alone", Verdict::Approve);
    assert_eq!(summarize_remaining(&mut tools).await, ["Ok 1", "Ok 2", "start alone", "Ok alone"]);
    let order: Vec<_> = tools.finish().unwrap().results.into_iter().map(|r| r.call_id).collect();
    assert_eq!(order, ["alone", "1", "2"], "results are in call order");
}

#[tokio::test]
async fn approvals_are_requested_while_an_exclusive_call_runs() {
    let kit = Toolkit::new([sleep_tool("ask").requires_approval(), sleep_tool("slow").exclusive()]);
    let reply = Reply::new().call_raw("1", "slow", "{\"ms\":9}").call_raw("2", "ask", "{}");
    tokio::time::pause();
    let mut tools =
        start_run(&kit, &turn_from_reply(reply).await).with_policy(ScriptedPolicy::default());
    assert_eq!(summarize_remaining(&mut tools).await, ["start slow", "ask ask {}", "Ok 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_approved_exclusive_call_is_not_overtaken_by_unstarted_calls() {
    let reply =
        ["1", "2", "3"].iter().fold(Reply::new().call_raw("alone", "alone", "{}"), |reply, id| {
            reply.call_raw(id, "a", "{\"ms\":50}")
        });
    let rules = ScriptedPolicy::default();
    let two = std::num::NonZeroUsize::new(2).unwrap();
    let mut tools =
        start_run(&approval_toolkit().with_max_concurrency(two), &turn_from_reply(reply).await)
            .with_policy(rules.clone());
    for expected in ["ask alone {}", "start a", "start a"] {
        assert_eq!(summarize_event(&tools.next().await.unwrap()), expected);
    }
    rules.script().verdicts.insert("alone", Verdict::Approve);
    let rest = summarize_remaining(&mut tools).await;
    assert_eq!(rest, ["Ok 1", "Ok 2", "start alone", "Ok alone", "start a", "Ok 3"]);
    let log = rules.log();
    let place = |line: &str| log.iter().position(|logged| logged == line).unwrap();
    assert!(place("after alone") < place("before 3"), "asked when it can start: {log:?}");
}

#[tokio::test(start_paused = true)]
async fn approved_calls_start_in_call_order_whatever_the_order_of_their_approvals() {
    let ids = ["first", "second", "third"];
    let tools = ids.iter().map(|id| sleep_tool(id).requires_approval());
    let kit = Toolkit::new(tools.chain([sleep_tool("slow")]))
        .with_max_concurrency(std::num::NonZeroUsize::MIN);
    let asks = ids.iter().fold(Reply::new(), |reply, id| reply.call_raw(id, id, "{}"));
    let turn = turn_from_reply(asks.call_raw("slow", "slow", "{\"ms\":50}")).await;
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let rules = ScriptedPolicy::default();
        let mut tools = start_run(&kit, &turn).with_policy(rules.clone());
        for expected in ["ask first {}", "ask second {}", "ask third {}", "start slow"] {
            assert_eq!(summarize_event(&tools.next().await.unwrap()), expected);
        }
        // The only slot is taken, so each verdict is applied before a call can start.
        for at in order {
            rules.script().verdicts.insert(ids[at], Verdict::Approve);
            assert_eq!(tools.next().now_or_never(), None, "it waits");
        }
        let rest = summarize_remaining(&mut tools).await;
        let expected = ids.iter().flat_map(|id| [format!("start {id}"), format!("Ok {id}")]);
        assert_eq!(rest[0], "Ok slow");
        assert!(rest[1..].iter().eq(&expected.collect::<Vec<_>>()), "{order:?}: {rest:?}");
    }
}

#[tokio::test]
async fn simultaneous_verdicts_each_yield_their_event() {
    let reply =
        ["1", "2", "3", "4"].iter().fold(Reply::new(), |reply, id| reply.call_raw(id, "ask", "{}"));
    let rules = ScriptedPolicy::default();
    let mut tools =
        start_run(&approval_toolkit(), &turn_from_reply(reply).await).with_policy(rules.clone());
    for _ in 0..4 {
        assert_eq!(summarize_event(&tools.next().await.unwrap()), "ask ask {}");
    }
    for (id, verdict) in [
        ("1", Verdict::Deny("no".into())),
        ("2", Verdict::Approve),
        ("3", Verdict::Output(ToolOutput::ok("mine"))),
        ("4", Verdict::Deny("no".into())),
    ] {
        rules.script().verdicts.insert(id, verdict);
    }
    let mut rest = summarize_remaining(&mut tools).await;
    rest.sort();
    assert_eq!(rest, ["Denied 1", "Denied 4", "Ok 2", "Ok 3", "start ask"]);
}
