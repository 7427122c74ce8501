//! Tools that fail, do not exist, or return too much.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::ready;
use futures::{FutureExt, StreamExt, stream};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use turnstream::Toolkit;
use turnstream::agent::hook;
use turnstream::event::EndReason;
use turnstream::item::{Content, Part, ResultKind};
use turnstream::provider::Reply;
use turnstream::tool::{Tool, ToolContext, ToolOutput, ToolUpdate};
use turnstream_testing::Wire;

use turnstream_test_support::runs::{
    check_outcome, is_tool_started, pull_ready, pull_until, reply_calling, result_kinds,
    result_summaries, run_outcome, run_to_end, scripted_agent, tool_results,
};
use turnstream_test_support::tools::{Counter, counted_tool, ok_tool, pending_tool, spec};
use turnstream_test_support::wires::encode_and_lint;

fn panicking_tool(name: &str) -> Tool {
    counted_tool(name, &Counter::default(), |_| async {
        std::panic::resume_unwind(Box::new("boom"))
    })
}

fn failing_tool(name: &str) -> Tool {
    Tool::raw(spec(name), |_, _| ready(Err::<(), _>("the disk is full"))).unwrap()
}

/// A tool that never answers, and whose timeout is 50 ms.
fn timed_out_tool(name: &str, counter: &Counter) -> Tool {
    pending_tool(name, counter).with_timeout(Duration::from_millis(50))
}

mod failing_tool {
    //! A tool that fails yields an error result; its siblings and the run continue.

    use super::*;

    #[tokio::test]
    async fn a_tool_failure_is_a_result_and_siblings_and_run_continue() {
        let counter = Counter::default();
        let reply = reply_calling("c1", "bad").call_raw("c2", "t", "{}");
        let (outcome, history, _) =
            run_to_end([reply, "done".into()], vec![failing_tool("bad"), ok_tool("t", &counter)])
                .await;
        check_outcome(&outcome, EndReason::Completed, 2);
        let expected = [
            ("c1", ResultKind::Error, "Error: the disk is full".to_owned()),
            ("c2", ResultKind::Ok, "fine".to_owned()),
        ];
        assert_eq!(result_summaries(outcome.new_items()), expected);
        for wire in Wire::ALL {
            assert!(
                encode_and_lint(wire, &history).to_string().contains("the disk is full"),
                "{wire:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_tool_failure_ends_the_run() {
        use ResultKind::{Error, Panic, Timeout};

        let silent = Tool::raw(spec("silent"), |_, _| ready(stream::empty().boxed())).unwrap();
        let says_so =
            Tool::raw(spec("says_so"), |_, _| ready(ToolOutput::error("try elsewhere"))).unwrap();
        let counter = Counter::default();
        let tools = vec![
            failing_tool("bad"),
            panicking_tool("wild"),
            timed_out_tool("late", &counter),
            silent,
            says_so,
        ];
        let reply = reply_calling("c1", "bad")
            .call_raw("c2", "wild", "{}")
            .call_raw("c3", "late", "{}")
            .call_raw("c4", "silent", "{}")
            .call_raw("c5", "says_so", "{}");
        let outcome = run_outcome([reply, "done".into()], tools).await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(result_kinds(outcome.new_items()), [Error, Panic, Timeout, Error, Error]);
        assert!(tool_results(outcome.new_items()).iter().all(|result| result.is_error()));
    }
}

mod panicking_tool {
    //! A tool that panics anywhere yields an error result and affects nothing else.

    use super::*;

    #[tokio::test]
    async fn a_tool_panic_is_an_error_result_and_affects_nothing_else() {
        use ResultKind::{Ok, Panic};

        fn panic_with_boom() -> ! {
            std::panic::resume_unwind(Box::new("boom"))
        }
        let at_once = Tool::raw(spec("at_once"), |_, _| {
            panic_with_boom();
            #[allow(unreachable_code, reason = "it says the type")]
            ready(())
        });
        let between = Tool::raw(spec("between"), |_, _| {
            let updates = stream::iter([ToolUpdate::progress(&1), ToolUpdate::output("never")]);
            let updates = updates.map(|update| match update {
                ToolUpdate::Output(_) => panic_with_boom(),
                update => update,
            });
            ready(updates.boxed())
        });
        let counter = Counter::default();
        let tools = vec![
            at_once.unwrap(),
            between.unwrap(),
            panicking_tool("within"),
            ok_tool("t", &counter),
        ];
        let reply = reply_calling("c1", "at_once")
            .call_raw("c2", "between", "{}")
            .call_raw("c3", "within", "{}")
            .call_raw("c4", "t", "{}");
        let again = reply_calling("c5", "t");
        let outcome = run_outcome([reply, again, "done".into()], tools).await;
        check_outcome(&outcome, EndReason::Completed, 3);
        assert_eq!(result_kinds(outcome.new_items()), [Panic, Panic, Panic, Ok, Ok]);
        for result in &tool_results(outcome.new_items())[..3] {
            assert!(result.content.text().contains("boom"), "{result:?}");
        }
        assert_eq!((counter.started_count(), counter.alive_count()), (2, 0));
    }
}

mod tool_timeout {
    //! A tool that exceeds its timeout is dropped and answered; late values are discarded.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timeout_is_a_result_and_the_tool_is_dropped_before_it_is_yielded() {
        let (counter, slow) = (Counter::default(), Counter::default());
        let nap = counted_tool("nap", &slow, |_| async {
            sleep(Duration::from_millis(100)).await;
            "rested".to_owned()
        });
        let reply = reply_calling("c1", "late").call_raw("c2", "nap", "{}");
        let (agent, _) =
            scripted_agent([reply, "done".into()], vec![timed_out_tool("late", &counter), nap]);
        let mut run = agent.run("go");
        pull_until(&mut run, is_tool_started).await;
        let began = Instant::now();
        let event = pull_until(&mut run, |event| event.tool_output().is_some()).await;
        let result = event.tool_output().unwrap();
        assert_eq!((&*result.call_id, result.kind), ("c1", ResultKind::Timeout));
        assert!(result.content.text().starts_with("Timed out after 50ms"), "{result:?}");
        assert_eq!(began.elapsed(), Duration::from_millis(50));
        assert_eq!((counter.started_count(), counter.alive_count(), slow.alive_count()), (1, 0, 1));
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Timeout, ResultKind::Ok]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_value_is_discarded_and_blocking_work_is_cancelled() {
        // The channel and the context that a thread started by the tool would hold.
        type ThreadReport = (oneshot::Sender<String>, ToolContext);
        let thread: Arc<Mutex<Option<ThreadReport>>> = Arc::default();
        let held = Arc::clone(&thread);
        let blocking = Tool::raw(spec("t"), move |_, cx| {
            let (late, value) = oneshot::channel();
            *held.lock().unwrap() = Some((late, cx));
            value.map(|value| value.unwrap())
        });
        let limit = Duration::from_millis(50);
        let (agent, _) = scripted_agent(
            [reply_calling("c1", "t"), "done".into()],
            vec![blocking.unwrap().with_timeout(limit)],
        );
        let mut run = agent.run("go");
        pull_ready(&mut run);
        assert!(!thread.lock().unwrap().as_ref().unwrap().1.is_cancelled());
        pull_until(&mut run, |event| event.tool_output().is_some()).await;
        let (late, cx) = thread.lock().unwrap().take().unwrap();
        assert!(cx.is_cancelled());
        late.send("late".to_owned()).unwrap_err();
        let outcome = run.outcome().await;
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Timeout]);
    }
}

mod unknown_tool {
    //! A call of a tool that does not exist or was not offered.

    use super::*;

    #[tokio::test]
    async fn an_unknown_tool_is_answered_with_the_available_names_and_siblings_run() {
        use ResultKind::{Ok, UnknownTool};

        let counter = Counter::default();
        let reply = reply_calling("c1", "t").call_raw("c2", "nope", "{}").call_raw("c3", "t", "{}");
        let tools = vec![ok_tool("t", &counter), ok_tool("u", &counter)];
        let outcome = run_outcome([reply, "done".into()], tools).await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(result_kinds(outcome.new_items()), [Ok, UnknownTool, Ok]);
        let told = tool_results(outcome.new_items())[1].content.text();
        assert!(told.contains("`nope`") && told.contains("`t`") && told.contains("`u`"), "{told}");
        assert_eq!(counter.started_count(), 2);
    }

    #[tokio::test]
    async fn a_tool_not_offered_in_the_request_is_unknown() {
        let counter = Counter::default();
        let only_first = hook::prepare_request(|state, mut request| async move {
            if state.counts.model_calls == 1 {
                request.tools = request.tools.iter().filter(|it| it.name == "t").cloned().collect();
            }
            request
        });
        let reply = |id: &str| reply_calling(id, "u");
        let tools = vec![ok_tool("t", &Counter::default()), ok_tool("u", &counter)];
        let (agent, _) = scripted_agent([reply("c1"), reply("c2"), "done".into()], tools);
        let outcome = agent.with_hook(only_first).run("go").outcome().await;
        check_outcome(&outcome, EndReason::Completed, 3);
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::UnknownTool, ResultKind::Ok]);
        let told = tool_results(outcome.new_items())[0].content.text();
        assert!(told.contains("The tools are: `t`."), "{told}");
        assert_eq!(counter.started_count(), 1);
    }

    #[tokio::test]
    async fn the_third_consecutive_turn_with_only_unknown_tools_ends_the_run() {
        let wrong = || Reply::new().call("nope", json!({}));
        let outcome = run_outcome([wrong(), wrong(), wrong(), "never".into()], vec![]).await;
        check_outcome(&outcome, EndReason::Malformed, 3);
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::UnknownTool; 3]);
        assert!(
            tool_results(outcome.new_items())[0].content.text().contains("There are no tools.")
        );
    }
}

async fn truncate_result(text: &str, max: usize) -> (String, String) {
    let owned = text.to_owned();
    let big = counted_tool("t", &Counter::default(), move |_| ready(owned.clone()));
    let (agent, model) = scripted_agent([reply_calling("c1", "t"), "done".into()], vec![]);
    let kit = Toolkit::new([big]).with_max_result_bytes(max);
    let outcome = agent.with_toolkit(kit).run("go").outcome().await;
    let kept = tool_results(outcome.new_items())[0].content.text();
    (kept, tool_results(&model.requests()[1].history)[0].content.text())
}

mod oversized_result {
    //! A result above the byte limit is truncated at a character boundary.

    use super::*;

    #[tokio::test]
    async fn a_huge_result_is_truncated_at_a_character_boundary() {
        for unit in ["a", "é", "…", "👩‍🚀", "a👍é"] {
            let text = unit.repeat(400);
            for max in 60..100 {
                let (kept, sent) = truncate_result(&text, max).await;
                assert!(kept.len() <= max, "{} of {max}", kept.len());
                let (head, rest) = kept.split_once("\n[").unwrap();
                let (_, tail) = rest.split_once("here]\n").unwrap();
                assert!(text.starts_with(head) && text.ends_with(tail), "{kept}");
                assert!(!kept.contains('\u{fffd}'));
                assert_eq!(kept, sent, "what is kept is what is sent");
            }
        }
    }

    #[tokio::test]
    async fn a_result_within_the_limit_is_unchanged() {
        let text = "é".repeat(50);
        assert_eq!(truncate_result(&text, 100).await.0, text);
    }

    #[tokio::test]
    async fn the_default_limit_applies_to_every_result() {
        let long = || "👍".repeat(100_000);
        let fails = Tool::raw(spec("bad"), move |_, _| ready(Err::<(), _>(long()))).unwrap();
        let big = counted_tool("t", &Counter::default(), move |_| ready(long()));
        let reply = reply_calling("c1", "bad").call_raw("c2", "t", "{}");
        let outcome = run_outcome([reply, "done".into()], vec![fails, big]).await;
        for result in tool_results(outcome.new_items()) {
            let len = result.content.text().len();
            assert!((60_000..=64 * 1024).contains(&len), "{len}");
        }
    }

    #[tokio::test]
    async fn media_of_a_result_are_kept_and_its_texts_share_the_limit() {
        let parts = || {
            vec![
                Part::Text { text: "é".repeat(300).into() },
                Part::image("image/png", b"\0\0\0"),
                Part::Text { text: "👍".repeat(300).into() },
            ]
        };
        let shows = Tool::raw(spec("t"), move |_, _| ready(parts())).unwrap();
        let (agent, _) = scripted_agent([reply_calling("c1", "t"), "done".into()], vec![]);
        let kit = Toolkit::new([shows]).with_max_result_bytes(101);
        let outcome = agent.with_toolkit(kit).run("go").outcome().await;
        let result = tool_results(outcome.new_items())[0];
        assert!(result.content.text().len() <= 101);
        let Content::Parts(parts) = &result.content else { panic!("{result:?}") };
        assert!(parts.iter().any(|part| matches!(part, Part::Image(_))), "{parts:?}");
    }
}

mod special_tool_names {
    //! Tool names that are special in other languages are ordinary names here.

    use super::*;

    #[tokio::test]
    async fn names_special_in_other_languages_are_ordinary_unknown_tools() {
        let counter = Counter::default();
        for name in ["constructor", "__proto__", "toString", "hasOwnProperty", "prototype", ""] {
            let reply = reply_calling("c1", name).call_raw("c2", "t", "{}");
            let outcome = run_outcome([reply, "done".into()], vec![ok_tool("t", &counter)]).await;
            check_outcome(&outcome, EndReason::Completed, 2);
            let expected = [ResultKind::UnknownTool, ResultKind::Ok];
            assert_eq!(result_kinds(outcome.new_items()), expected, "{name}");
        }
    }

    #[tokio::test]
    async fn a_tool_may_have_a_name_special_in_other_languages() {
        let ctor = counted_tool("constructor", &Counter::default(), |args| ready(args.to_string()));
        let arguments = r#"{"__proto__":{"admin":true}}"#;
        let reply = Reply::new().call_raw("c1", "constructor", arguments);
        let outcome = run_outcome([reply, "done".into()], vec![ctor]).await;
        assert_eq!(
            result_summaries(outcome.new_items()),
            [("c1", ResultKind::Ok, arguments.to_owned())]
        );
    }
}
