//! How a toolkit runs the calls of a turn.

use std::future::ready;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use turnstream::event::ToolEvent;
use turnstream::item::{Content, Part, ResultKind, ToolResult};
use turnstream::provider::Reply;
use turnstream::stream::Step;
use turnstream::tool::{Tool, ToolContext, ToolOutput, ToolSpec, ToolUpdate};
use turnstream::turn::StopReason;
use turnstream::{Event, History, Item, Toolkit};

use super::runs::fixture::{spec, turn_from_reply};
use turnstream_test_support::tools::reply_calling_nap;

/// A tool that sleeps for the requested number of milliseconds, and counts its running calls.
fn counting_sleep_tool(running: &Arc<AtomicUsize>, most: &Arc<AtomicUsize>) -> Tool {
    let (running, most) = (running.clone(), most.clone());
    Tool::raw(spec("nap"), move |args, _cx| {
        let (running, most) = (running.clone(), most.clone());
        async move {
            let now = running.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(now, Ordering::Relaxed);
            sleep(Duration::from_millis(args["ms"].as_u64().unwrap_or(0))).await;
            running.fetch_sub(1, Ordering::Relaxed);
            args["ms"].to_string()
        }
    })
    .unwrap()
}

/// Runs a turn's calls, and returns each event with its time.
async fn run_with_timestamps(kit: &Toolkit, reply: Reply) -> Vec<(u128, ToolEvent)> {
    let began = Instant::now();
    let turn = turn_from_reply(reply).await;
    let events = kit.run(&History::empty("h"), &turn);
    events.map(|event| (began.elapsed().as_millis(), event)).collect().await
}

fn timed_results(events: &[(u128, ToolEvent)]) -> Vec<(u128, &ToolResult)> {
    let output = |entry: &'_ (u128, ToolEvent)| match entry {
        (at, ToolEvent::Output(_)) => Some(*at),
        _ => None,
    };
    let results = events.iter().filter_map(|(_, event)| match event {
        ToolEvent::Output(result) => Some(result),
        _ => None,
    });
    events.iter().filter_map(output).zip(results).collect()
}

/// Runs one call of one tool, and returns its result.
async fn result_of(tool: Tool, name: &str, arguments: &str) -> ToolResult {
    let kit = Toolkit::new([tool]);
    let events = run_with_timestamps(&kit, Reply::new().call_raw("c", name, arguments)).await;
    let outputs = timed_results(&events);
    assert_eq!(outputs.len(), 1, "one result a call");
    outputs[0].1.clone()
}

fn echo_tool() -> Tool {
    Tool::raw(spec("echo"), |args: Value, _cx| async move { args }).unwrap()
}

#[tokio::test(start_paused = true)]
async fn results_of_parallel_calls_are_yielded_as_each_call_finishes() {
    let count = Arc::default();
    let kit = Toolkit::new([counting_sleep_tool(&count, &Arc::default())]);
    let events = run_with_timestamps(&kit, reply_calling_nap(&[600, 50, 200])).await;
    let times: Vec<_> =
        timed_results(&events).iter().map(|(at, result)| (*at, result.content.text())).collect();
    assert_eq!(times, [(50, "50".into()), (200, "200".into()), (600, "600".into())]);
}

#[tokio::test(start_paused = true)]
async fn results_enter_the_history_in_call_order() {
    let kit = Toolkit::new([counting_sleep_tool(&Arc::default(), &Arc::default())]);
    let turn = turn_from_reply(reply_calling_nap(&[600, 50, 200])).await;
    let steps = kit.run(&History::empty("h"), &turn).then_next(|history| history);
    let last = steps.map(Result::unwrap).collect::<Vec<_>>().await.pop();
    let Some(Step::Next(history)) = last else { panic!("no next state") };
    let results = history.iter().filter_map(Item::as_tool_result).map(|r| r.content.text());
    assert_eq!(results.collect::<Vec<_>>(), ["600", "50", "200"]);
    assert!(history.is_settled());
    assert_eq!(history.completed_turns(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_default_concurrency_limit_is_four_calls() {
    for (limit, expected) in [(None, 4), (Some(1), 1), (Some(100), 10)] {
        let (running, most) = (Arc::default(), Arc::default());
        let mut kit = Toolkit::new([counting_sleep_tool(&running, &most)]);
        if let Some(limit) = limit {
            kit = kit.with_max_concurrency(NonZeroUsize::new(limit).unwrap());
        }
        let events = run_with_timestamps(&kit, reply_calling_nap(&[10; 10])).await;
        assert_eq!(timed_results(&events).len(), 10);
        assert_eq!(most.load(Ordering::Relaxed), expected);
    }
}

#[tokio::test]
async fn empty_arguments_are_an_empty_object() {
    for arguments in ["", "null", "  ", "{}"] {
        let result = result_of(echo_tool(), "echo", arguments).await;
        assert_eq!((result.kind, result.content.text()), (ResultKind::Ok, "{}".into()));
    }
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_the_available_names() {
    let result = result_of(echo_tool(), "nobody", "{}").await;
    assert_eq!(result.kind, ResultKind::UnknownTool);
    assert!(result.is_error() && result.content.text().contains("`echo`"), "{result:?}");
}

#[tokio::test]
async fn arguments_that_are_not_a_json_object_are_answered_with_the_reason() {
    for arguments in ["{\"ms\":", "[]", "\"{}\"", "3", "{} x"] {
        let result = result_of(echo_tool(), "echo", arguments).await;
        assert_eq!(result.kind, ResultKind::InvalidArguments, "{arguments}");
    }
}

#[tokio::test]
async fn a_schema_mismatch_is_reported_with_its_path() {
    let result = result_of(echo_tool(), "echo", "{\"ms\":\"soon\"}").await;
    assert_eq!(result.kind, ResultKind::InvalidArguments);
    assert!(result.content.text().contains("ms"), "{result:?}");
}

#[cfg(feature = "schemars")]
#[tokio::test]
async fn a_mismatch_of_typed_arguments_is_reported_with_its_path() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Outer {
        inner: Vec<Inner>,
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Inner {
        x: u8,
    }
    let sum = || {
        Tool::new("sum", "", |args: Outer, _cx| async move {
            args.inner.iter().map(|inner| u32::from(inner.x)).sum::<u32>()
        })
    };
    let result = result_of(sum(), "sum", r#"{"inner":[{"x":1},{"x":2}]}"#).await;
    assert_eq!(result.content.text(), "3");
    let result = result_of(sum(), "sum", r#"{"inner":[{"x":1},{"x":"2"}]}"#).await;
    assert_eq!(result.kind, ResultKind::InvalidArguments);
    assert!(result.content.text().contains("inner[1].x"), "{result:?}");
    assert!(sum().spec().parameters.to_value().get("$schema").is_none());
}

#[tokio::test]
async fn a_tool_error_is_an_error_result() {
    let tool = Tool::raw(spec("t"), |_, _| async { Err::<(), _>("the disk is full") }).unwrap();
    let result = result_of(tool, "t", "{}").await;
    assert_eq!(result.kind, ResultKind::Error);
    assert_eq!(result.content.text(), "Error: the disk is full");
}

#[tokio::test]
async fn a_panic_anywhere_in_a_tool_is_an_error_result() {
    fn raise_panic() -> String {
        std::panic::resume_unwind(Box::new("boom"))
    }
    struct PanicOnDrop;
    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                raise_panic();
            }
        }
    }
    let in_future = Tool::raw(spec("t"), |_, _| async { raise_panic() }).unwrap();
    let in_closure = Tool::raw(spec("t"), |_, _| {
        raise_panic();
        async {}
    })
    .unwrap();
    for tool in [in_future, in_closure] {
        let result = result_of(tool, "t", "{}").await;
        assert_eq!(result.kind, ResultKind::Panic);
        assert!(result.content.text().contains("boom"));
    }
    let in_drop = Tool::raw(spec("t"), |_, _| {
        let bomb = PanicOnDrop;
        let updates = futures::stream::iter([ToolUpdate::output("fine")]);
        ready(updates.map(move |update| (&bomb, update).1).boxed())
    })
    .unwrap();
    let result = result_of(in_drop, "t", "{}").await;
    assert_eq!((result.kind, result.content.text()), (ResultKind::Ok, "fine".into()));
}

#[tokio::test]
async fn siblings_of_a_failed_call_continue() {
    let bad =
        Tool::raw(spec("bad"), |_, _| async { std::panic::resume_unwind(Box::new("boom")) as () })
            .unwrap();
    let kit = Toolkit::new([echo_tool(), bad]);
    let reply = Reply::new()
        .call("bad", json!({}))
        .call("nobody", json!({}))
        .call_raw("c", "echo", "{")
        .call("echo", json!({}));
    let events = run_with_timestamps(&kit, reply).await;
    let mut kinds: Vec<_> =
        timed_results(&events).iter().map(|(_, r)| (&r.call_id, r.kind)).collect();
    kinds.sort_by_key(|(id, _)| (*id).clone());
    let kinds: Vec<_> = kinds.into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(
        kinds,
        [ResultKind::InvalidArguments, ResultKind::Panic, ResultKind::UnknownTool, ResultKind::Ok]
    );
}

#[tokio::test]
async fn a_streaming_tool_reports_progress_and_is_dropped_after_its_output() {
    let polled = Arc::new(AtomicUsize::new(0));
    let seen = polled.clone();
    let tool = Tool::raw(spec("t"), move |_, _| {
        let seen = seen.clone();
        let updates = vec![
            ToolUpdate::progress(&1),
            ToolUpdate::progress(&2),
            ToolUpdate::output("done"),
            ToolUpdate::output("late"),
        ];
        let updates = futures::stream::iter(updates).inspect(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
        });
        ready(updates.boxed())
    })
    .unwrap();
    let events =
        run_with_timestamps(&Toolkit::new([tool]), Reply::new().call("t", json!({}))).await;
    let shapes: Vec<_> = events
        .iter()
        .map(|(_, event)| match event {
            ToolEvent::Started { .. } => "started".to_owned(),
            ToolEvent::Progress { data, .. } => data.to_string(),
            ToolEvent::Output(result) => result.content.text(),
            _ => "?".to_owned(),
        })
        .collect();
    assert_eq!(shapes, ["started", "1", "2", "done"]);
    assert_eq!(polled.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_stream_that_ends_without_an_output_is_an_error() {
    let tool = Tool::raw(spec("t"), |_, _| ready(futures::stream::empty().boxed())).unwrap();
    assert_eq!(result_of(tool, "t", "{}").await.kind, ResultKind::Error);
}

#[tokio::test]
async fn a_tool_may_return_parts() {
    let tool = Tool::raw(spec("t"), |_, _| async { vec![Part::image("image/png", b"\0\0\0")] });
    let result = result_of(tool.unwrap(), "t", "{}").await;
    assert!(matches!(result.content, Content::Parts(parts) if parts.len() == 1));
    let tool = Tool::raw(spec("t"), |_, _| async { ToolOutput::error("no") }).unwrap();
    assert_eq!(result_of(tool, "t", "{}").await.kind, ResultKind::Error);
}

#[tokio::test]
async fn calls_of_a_turn_whose_stop_reason_forbids_them_are_answered_and_never_run() {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let tool = Tool::raw(spec("t"), move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        async {}
    })
    .unwrap();
    let kit = Toolkit::new([tool]);
    for (reason, kind) in [
        (StopReason::MaxTokens, ResultKind::Truncated),
        (StopReason::ContextWindow, ResultKind::Truncated),
        (StopReason::Refusal, ResultKind::Skipped),
        (StopReason::ContentFilter, ResultKind::Skipped),
        (StopReason::Pause, ResultKind::Skipped),
        (StopReason::Other("odd".into()), ResultKind::Skipped),
    ] {
        let reply = Reply::new().call("t", json!({})).call("t", json!({})).stop(reason);
        let events = run_with_timestamps(&kit, reply).await;
        assert_eq!(events.len(), 2, "an answer each and nothing else");
        assert!(timed_results(&events).iter().all(|(_, result)| result.kind == kind));
    }
    assert_eq!(ran.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_turn_already_in_the_history_does_not_run_again() {
    let turn = turn_from_reply(Reply::new().call("echo", json!({}))).await;
    let history = History::from_items("h", turn.to_history_items());
    let events: Vec<_> = Toolkit::new([echo_tool()]).run(&history, &turn).collect().await;
    assert!(matches!(&events[..], [ToolEvent::Output(r)] if r.kind == ResultKind::Skipped));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_drops_its_tools_and_sets_their_cancellation_flag() {
    let flag = Arc::new(std::sync::Mutex::new(None));
    let (running, seen) = (Arc::new(AtomicUsize::new(0)), flag.clone());
    let counted = running.clone();
    let tool = Tool::raw(spec("t"), move |_, cx| {
        assert_eq!(cx.idempotency_key(), format!("h/{}", cx.call_id()));
        *seen.lock().unwrap() = Some(cx);
        let running = counted.clone();
        running.fetch_add(1, Ordering::Relaxed);
        let guard = RunOnDrop(Some(move || {
            running.fetch_sub(1, Ordering::Relaxed);
        }));
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        }
    })
    .unwrap();
    let turn = turn_from_reply(Reply::new().call("t", json!({}))).await;
    let mut run = Toolkit::new([tool]).run(&History::empty("h"), &turn);
    run.next().await.unwrap();
    assert!(futures::FutureExt::now_or_never(run.next()).is_none());
    let cx = flag.lock().unwrap().clone().unwrap();
    assert!(!cx.is_cancelled());
    assert_eq!(running.load(Ordering::Relaxed), 1);
    drop(run);
    assert!(cx.is_cancelled());
    assert_eq!(running.load(Ordering::Relaxed), 0);
}

/// Runs a closure when it is dropped.
struct RunOnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for RunOnDrop<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

#[test]
fn an_invalid_tool_spec_is_rejected() {
    let bad = |name: &str, parameters: Value| {
        let spec = ToolSpec::new(name, "", parameters);
        Tool::raw(spec, |_, _| async {}).is_err()
    };
    let object = || json!({ "type": "object" });
    assert!(bad("", object()) && bad("a b", object()) && bad(&"x".repeat(65), object()));
    assert!(bad("t", json!({})) && bad("t", json!({ "type": "string" })));
    assert!(!bad("t", object()));
}

#[test]
fn replace_swaps_a_tool_of_the_same_name_or_adds_it() {
    let first = Tool::raw(spec("a"), |_, _| async { 1 }).unwrap();
    let second = Tool::raw(ToolSpec { description: "new".into(), ..spec("a") }, |_, _| async { 2 });
    let kit =
        Toolkit::new([first]).with_replaced_tool(second.unwrap()).with_replaced_tool(echo_tool());
    let names: Vec<_> =
        kit.specs().iter().map(|s| format!("{} {}", s.name, s.description)).collect();
    assert_eq!(names, ["a new", "echo "]);
    let names =
        |kit: &Toolkit| kit.specs().iter().map(|spec| spec.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&kit.with_tool(echo_tool())), ["a", "echo", "echo"]);
}

#[tokio::test]
async fn tool_events_are_yielded_as_run_events() {
    let turn = turn_from_reply(Reply::new().call("echo", json!({}))).await;
    let steps = Toolkit::new([echo_tool()]).run(&History::empty("h"), &turn).then_next(|h| h);
    let values: Vec<_> = steps.map(Result::unwrap).collect().await;
    assert!(matches!(
        &values[..],
        [
            Step::Value(Event::Tool(ToolEvent::Started { .. })),
            Step::Value(Event::Tool(ToolEvent::Output(_))),
            Step::Next(_)
        ]
    ));
}

/// The code that a closure runs before it returns its future is work of the tool, too.
#[tokio::test]
async fn no_tool_closure_runs_before_its_started_event_is_yielded() {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = || {
        let ran = Arc::clone(&ran);
        move |_args: Value, _cx: ToolContext| {
            ran.fetch_add(1, Ordering::Relaxed);
            "done"
        }
    };
    let (raw, streaming) = (count(), count());
    let tools = [
        Tool::raw(spec("raw"), move |args, cx| ready(raw(args, cx))).unwrap(),
        Tool::raw(spec("streaming"), move |args, cx| {
            ready(futures::stream::iter([ToolUpdate::output(streaming(args, cx))]).boxed())
        })
        .unwrap(),
    ];
    for tool in tools {
        ran.store(0, Ordering::Relaxed);
        let turn = turn_from_reply(Reply::new().call(tool.name(), json!({}))).await;
        let mut events = Toolkit::new([tool]).run(&History::empty("h"), &turn);
        assert!(matches!(events.next().await, Some(ToolEvent::Started { .. })));
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        assert!(matches!(events.next().await, Some(ToolEvent::Output(_))));
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    }
}
