//! A policy before and after a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::stream::StreamExt;
use turnstream::item::ResultKind;
use turnstream::provider::Reply;
use turnstream::tool::{Permission, PermissionDecision, Tool, ToolOutput, Verdict};
use turnstream::{ErrorKind, Toolkit};

use super::{
    ScriptedPolicy, only_result, sleep_tool, spec, start_run, summarize_remaining, turn_from_reply,
    turn_with_calls,
};

#[tokio::test(start_paused = true)]
async fn the_policy_is_asked_once_per_runnable_call_in_call_order() {
    let kit = Toolkit::new([sleep_tool("a"), sleep_tool("b")]);
    let reply = Reply::new()
        .call_raw("1", "a", "{\"ms\":5}")
        .call_raw("2", "nobody", "{}")
        .call_raw("3", "b", "{\"no\":1}")
        .call_raw("4", "b", "{");
    let rules = ScriptedPolicy::configured(|book| book.before_delay_ms = 10);
    let mut tools = start_run(&kit, &turn_from_reply(reply.call_raw("5", "b", "")).await)
        .with_policy(rules.clone());
    summarize_remaining(&mut tools).await;
    let log = rules.log();
    let before: Vec<_> = log.iter().filter(|line| line.starts_with("before")).collect();
    assert_eq!(before, ["before 1", "before 5"]);
    assert_eq!(log.iter().filter(|line| line.starts_with("after")).count(), 5);
}

#[tokio::test(start_paused = true)]
async fn running_calls_continue_while_the_policy_is_pending() {
    let kit = Toolkit::new([sleep_tool("a"), sleep_tool("b")]);
    let reply = Reply::new().call_raw("1", "a", "{\"ms\":50}").call_raw("2", "b", "{}");
    let rules = ScriptedPolicy::configured(|book| book.before_delay_ms = 100);
    let mut tools = start_run(&kit, &turn_from_reply(reply).await).with_policy(rules);
    assert_eq!(summarize_remaining(&mut tools).await, ["start a", "Ok 1", "start b", "Ok 2"]);
}

#[tokio::test]
async fn a_denied_call_is_answered_with_the_reason_and_its_siblings_run() {
    let kit = Toolkit::new([sleep_tool("a"), sleep_tool("b")]);
    let rules = ScriptedPolicy::configured(|book| {
        book.permissions.insert("a", Permission::deny("not on Sundays"));
    });
    let mut tools = start_run(&kit, &turn_with_calls(&["a", "b"]).await).with_policy(rules);
    assert_eq!(summarize_remaining(&mut tools).await, ["Denied a", "start b", "Ok b"]);
    let denied = &tools.finish().unwrap().results[0];
    assert_eq!(denied.content.text(), "Denied: not on Sundays");
}

#[tokio::test(start_paused = true)]
async fn rewritten_arguments_are_the_ones_approved_and_run() {
    let kit = Toolkit::new([sleep_tool("a")]);
    for asks in [false, true] {
        let rules = ScriptedPolicy::configured(|book| {
            let decision =
                if asks { PermissionDecision::RequireApproval } else { PermissionDecision::Allow };
            book.permissions
                .insert("a", Permission { decision, arguments: Some("{\"ms\":7}".into()) });
        });
        let mut tools = start_run(&kit, &turn_with_calls(&["a"]).await).with_policy(rules.clone());
        if asks {
            let event = tools.next().await.unwrap();
            let Some(call) = turnstream::Event::from(event).approval_request() else { panic!() };
            assert_eq!(call.arguments, "{\"ms\":7}");
            rules.script().verdicts.insert("a", Verdict::Approve);
        }
        assert_eq!(only_result(tools).await.content.text(), "{\"ms\":7}");
    }
}

#[tokio::test]
async fn rewritten_arguments_that_do_not_match_are_a_policy_error() {
    let kit = Toolkit::new([sleep_tool("a")]);
    for bad in ["{\"ms\":\"x\"}", "[]", "{"] {
        let rules = ScriptedPolicy::configured(|book| {
            book.permissions.insert(
                "a",
                Permission { arguments: Some(bad.into()), ..Permission::require_approval() },
            );
        });
        let tools = start_run(&kit, &turn_with_calls(&["a"]).await).with_policy(rules.clone());
        let result = only_result(tools).await;
        assert_eq!(result.kind, ResultKind::Error, "{bad}");
        assert!(result.content.text().contains("a rule rewrote"), "{result:?}");
        assert!(!rules.log().contains(&"asked a".to_owned()), "no approval is requested for it");
    }
}

#[tokio::test]
async fn a_result_is_rewritten_before_it_is_yielded() {
    let kit = Toolkit::new([sleep_tool("a")]);
    let rules =
        ScriptedPolicy::configured(|book| book.replacement_text = Some("[redacted]".into()));
    let mut tools = start_run(&kit, &turn_with_calls(&["a"]).await).with_policy(rules);
    let events: Vec<_> = tools.by_ref().collect().await;
    let turnstream::event::ToolEvent::Output(seen) = &events[1] else { panic!("{events:?}") };
    assert_eq!(seen.content.text(), "[redacted]");
    assert_eq!(&tools.finish().unwrap().results[0], seen);
}

/// A tool that never ends, with a count of its running calls.
fn never_ending_tool(name: &str, running: &Arc<AtomicUsize>) -> Tool {
    struct RunningGuard(Arc<AtomicUsize>);
    impl Drop for RunningGuard {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let running = Arc::clone(running);
    Tool::raw(spec(name), move |_, _| {
        running.fetch_add(1, Ordering::Relaxed);
        let guard = RunningGuard(Arc::clone(&running));
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        }
    })
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_error_or_panic_of_the_policy_drops_running_calls_and_ends_the_stream() {
    for (place, panics) in [
        ("before c", false),
        ("before c", true),
        ("asked c", true),
        ("verdict", true),
        ("after b", false),
        ("after b", true),
    ] {
        let running = Arc::default();
        let kit = Toolkit::new([
            never_ending_tool("a", &running),
            sleep_tool("b"),
            sleep_tool("c").requires_approval(),
        ]);
        let rules = ScriptedPolicy::configured(|book| match panics {
            true => assert!(book.panicking_steps.insert(place)),
            false => assert!(book.failing_steps.insert(place)),
        });
        let mut tools =
            start_run(&kit, &turn_with_calls(&["a", "b", "c"]).await).with_policy(rules);
        let shapes = summarize_remaining(&mut tools).await;
        assert_eq!(shapes[..2], ["start a", "start b"], "{place}");
        assert_eq!(running.load(Ordering::Relaxed), 0, "{place}");
        assert!(tools.next().await.is_none());
        // Completed results are yielded before the run fails.
        assert_eq!(shapes.contains(&"Ok b".into()), place == "after b", "{place}: {shapes:?}");
        assert_eq!(tools.finish().unwrap_err().kind(), ErrorKind::Hook, "{place}");
    }
}

#[tokio::test]
async fn a_result_whose_rewrite_failed_is_yielded_unchanged() {
    let kit = Toolkit::new([sleep_tool("a")]);
    let rules = ScriptedPolicy::configured(|book| {
        book.replacement_text = Some("half rewritten".into());
        book.failing_steps.insert("after a");
    });
    let tools = start_run(&kit, &turn_with_calls(&["a"]).await).with_policy(rules);
    let events: Vec<_> = tools.collect().await;
    let turnstream::event::ToolEvent::Output(seen) = &events[1] else { panic!("{events:?}") };
    assert_eq!(seen.content.text(), "{}");
}

#[tokio::test]
async fn an_error_of_the_policy_is_the_last_step_of_a_loop() {
    let kit = Toolkit::new([sleep_tool("a")]);
    let rules = ScriptedPolicy::configured(|book| {
        book.failing_steps.insert("before a");
    });
    let steps = start_run(&kit, &turn_with_calls(&["a"]).await)
        .with_policy(rules)
        .then_next(|history| history);
    let steps: Vec<_> = steps.collect().await;
    assert!(matches!(&steps[..], [Err(error)] if error.kind() == ErrorKind::Hook));
}

#[tokio::test(start_paused = true)]
async fn a_drop_at_any_poll_leaves_nothing_running() {
    let mut most = 0;
    for polls in 0..16 {
        let running = Arc::<AtomicUsize>::default();
        let kit = Toolkit::new([
            never_ending_tool("a", &running),
            sleep_tool("b").requires_approval(),
            never_ending_tool("c", &running).exclusive(),
            never_ending_tool("d", &running),
        ]);
        let rules = ScriptedPolicy::configured(|book| {
            (book.before_delay_ms, book.waits_for_verdicts) = (3, true);
            let output = Verdict::Output(ToolOutput::ok("fine"));
            book.verdicts.insert("b", output);
        });
        let mut tools =
            start_run(&kit, &turn_with_calls(&["a", "b", "d", "c"]).await).with_policy(rules);
        for _ in 0..polls {
            tokio::time::advance(std::time::Duration::from_millis(2)).await;
            let _ = tools.next().now_or_never();
        }
        most = most.max(running.load(Ordering::Relaxed));
        drop(tools);
        assert_eq!(running.load(Ordering::Relaxed), 0, "after {polls} polls");
    }
    assert_eq!(most, 2, "some of them ran");
}

#[tokio::test]
async fn a_failing_preflight_check_runs_before_the_policy_and_nothing_runs() {
    use turnstream::tool::{PreparedCall, ToolHandler, ToolSpec};
    struct RejectingHandler(ToolSpec);
    impl ToolHandler for RejectingHandler {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
            match arguments {
                "{}" => Err("too empty".into()),
                _ => std::panic::resume_unwind(Box::new("boom")),
            }
        }
    }
    let kit = Toolkit::new([Tool::from_handler(RejectingHandler(spec("a")))]);
    for (arguments, kind, asked) in
        [("{}", ResultKind::InvalidArguments, 1), ("{\"x\":1}", ResultKind::Panic, 0)]
    {
        let rules = ScriptedPolicy::default();
        let reply = Reply::new().call_raw("a", "a", arguments);
        let result =
            only_result(start_run(&kit, &turn_from_reply(reply).await).with_policy(rules.clone()))
                .await;
        assert_eq!(result.kind, kind);
        assert_eq!(rules.log(), ["repair a", "after a"][1 - asked..]);
    }
}
