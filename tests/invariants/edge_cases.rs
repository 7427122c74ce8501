//! Edge cases of the core: full toolkits, panics in a `Drop`, late results, ids, seals.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::executor::block_on;
use futures::{FutureExt, Stream, StreamExt, stream};
use serde_json::json;
use turnstream::agent::Limits;
use turnstream::event::{AppendReason, EndReason, InterruptedPhase, ToolEvent};
use turnstream::item::{ItemFlag, ResultKind, ToolResult};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::{Step, TurnSource, TurnStream, loop_stream, seal};
use turnstream::tool::Tool;
use turnstream::turn::{StopReason, TurnBuilder};
use turnstream::{
    Agent, Error, ErrorKind, Event, EventStreamExt, History, Item, Journal, Request, Run, Toolkit,
    Turn, TurnEvent, TurnStreamExt, Usage,
};

use turnstream_test_support::tools::spec;

/// A tool that sleeps for the requested number of milliseconds, or for ever without a number.
fn nap_tool() -> Tool {
    Tool::raw(spec("nap"), |args, _| async move {
        match args["ms"].as_u64() {
            Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            None => std::future::pending().await,
        }
    })
    .unwrap()
}

fn turn_from_reply(reply: Reply) -> Arc<Turn> {
    let request = Request::new(History::empty("h"));
    block_on(Scripted::new([reply]).stream_turn(request).into_turn()).unwrap()
}

fn tool_result(call_id: &str) -> ToolResult {
    let kind = ResultKind::Ok;
    ToolResult {
        call_id: call_id.into(),
        name: "t".into(),
        content: "real".into(),
        kind,
        report: None,
    }
}

/// Polls until the run is pending.
fn pull_ready(run: &mut Run) {
    while let Some(Some(event)) = run.next().now_or_never() {
        event.unwrap();
    }
}

/// Panics when it is dropped, unless the thread is panicking already.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("boom"));
        }
    }
}

fn panic_on_drop_tool() -> Tool {
    Tool::raw(spec("bomb"), |_, _| {
        let bomb = PanicOnDrop;
        async move {
            let _bomb = bomb;
            std::future::pending::<()>().await;
        }
    })
    .unwrap()
}

async fn output_times(at_once: usize, naps: &[Option<u64>]) -> Vec<u128> {
    let call = |reply: Reply, ms: &Option<u64>| reply.call("nap", json!({ "ms": ms }));
    let turn = turn_from_reply(naps.iter().fold(Reply::new(), call));
    let kit = Toolkit::new([nap_tool()]).with_max_concurrency(at_once.try_into().unwrap());
    let began = tokio::time::Instant::now();
    let events = kit.run(&History::empty("h"), &turn);
    events
        .filter(|event| std::future::ready(matches!(event, ToolEvent::Output(_))))
        .map(|_| began.elapsed().as_millis())
        .take(naps.iter().flatten().count())
        .collect()
        .await
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_slot_is_reused_as_soon_as_it_is_free() {
    let naps = [Some(50), Some(500), Some(50)];
    assert_eq!(output_times(2, &naps).await, [50, 100, 500]);
}

#[tokio::test(start_paused = true)]
async fn hanging_calls_do_not_prevent_others_from_starting() {
    let naps = [None, None, None, Some(1), Some(1), Some(1)];
    assert_eq!(output_times(4, &naps).await, [1, 2, 3]);
}

#[test]
fn no_tool_code_runs_before_its_started_event_is_yielded() {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let tool = Tool::raw(spec("t"), move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<()>()
    });
    let turn = turn_from_reply(Reply::new().call("t", json!({})).call("t", json!({})));
    let mut run = Toolkit::new([tool.unwrap()]).run(&History::empty("h"), &turn);
    for started in 1..=2 {
        let event = run.next().now_or_never().unwrap().unwrap();
        assert!(matches!(event, ToolEvent::Started { .. }));
        assert!(ran.load(Ordering::Relaxed) < started);
    }
    assert!(run.next().now_or_never().is_none());
    assert_eq!(ran.load(Ordering::Relaxed), 2);
}

#[test]
fn a_panic_in_a_tools_drop_affects_neither_the_ending_nor_its_siblings() {
    let model = Scripted::new([Reply::new().call("bomb", json!({})).call("bomb", json!({}))]);
    let mut run = Agent::new(model).with_tools([panic_on_drop_tool()]).run("go");
    pull_ready(&mut run);
    run.interrupt();
    let outcome = block_on(run.outcome());
    assert!(matches!(outcome.reason, EndReason::Interrupted(_)));
    let results = outcome.new_items().iter().filter_map(Item::as_tool_result);
    assert_eq!(results.count(), 2);
}

#[test]
fn a_panic_in_a_providers_drop_does_not_affect_the_ending() {
    struct PanicOnDropStream(PanicOnDrop);
    impl Stream for PanicOnDropStream {
        type Item = Result<TurnEvent, Error>;
        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            let _ = &self.0;
            Poll::Pending
        }
    }
    struct PanicOnDropProvider;
    impl Provider for PanicOnDropProvider {
        fn stream_turn(&self, request: Request) -> TurnStream {
            PanicOnDropStream(PanicOnDrop).seal(&request.history)
        }
        fn model(&self) -> &'static str {
            "wild"
        }
    }
    let mut run = Agent::new(PanicOnDropProvider).run("go");
    pull_ready(&mut run);
    run.interrupt();
    assert!(matches!(block_on(run.outcome()).reason, EndReason::Interrupted(_)));
}

#[test]
fn input_steered_to_a_dropped_run_is_returned() {
    let run = Agent::new(Scripted::new(["x"])).run("go");
    let handle = run.handle();
    drop(run);
    assert!(handle.steer("late").is_err());
}

#[test]
fn steering_empty_input_starts_no_turn() {
    let model = Scripted::new(["a", "b"]);
    let mut run = Agent::new(model.clone()).run("go");
    while let Some(event) = block_on(run.next()) {
        if event.unwrap().text_delta().is_some() {
            run.steer(Vec::<Item>::new()).unwrap();
        }
    }
    assert_eq!(model.requests().len(), 1);
}

#[test]
fn a_valid_reply_resets_the_malformed_count_even_when_steered() {
    let model = Scripted::new(["", "good", "", "good", "", "fine"]);
    let mut run = Agent::new(model).run("go");
    let mut reason = None;
    while let Some(event) = block_on(run.next()) {
        let event = event.unwrap();
        if event.text_delta().is_some_and(|text| *text == "good") {
            run.steer("go on").unwrap();
        }
        reason = event.outcome().map(|outcome| outcome.reason);
    }
    assert_eq!(reason, Some(EndReason::Completed));
}

#[test]
fn a_result_after_an_append_is_kept() {
    let journal = Journal::new(History::empty("h"));
    let turn = turn_from_reply(Reply::new().call_raw("a", "t", "{}").call_raw("b", "t", "{}"));
    journal.observe(&TurnEvent::TurnComplete { turn }.into());
    journal.observe(&ToolEvent::Output(tool_result("a")).into());
    let (why, items) = (AppendReason::Steer, vec![Item::user("hm")]);
    journal.observe(&Event::Appended { why, id: "s".into(), items });
    assert!(!journal.history().unanswered_calls().is_empty());
    journal.observe(&ToolEvent::Output(tool_result("b")).into());
    let settled = journal.history().settled();
    let results: Vec<_> = settled.iter().filter_map(Item::as_tool_result).collect();
    assert_eq!(results, [&tool_result("a"), &tool_result("b")]);
}

#[test]
fn results_yielded_before_are_in_the_next_history() {
    let tool = Tool::raw(spec("t"), |_, _| async { "real" }).unwrap();
    let turn = turn_from_reply(Reply::new().call_raw("a", "t", "{}"));
    let mut run = Toolkit::new([tool]).run(&History::empty("h"), &turn);
    while block_on(run.next()).is_some() {}
    let steps: Vec<_> = block_on(run.then_next(|history| history).collect());
    let Some(Ok(Step::Next(history))) = steps.last() else { panic!("no next state") };
    assert!(history.is_settled());
}

#[test]
fn finish_with_on_a_finished_run_adds_no_second_finished_event() {
    let run = Agent::new(Scripted::new(["x"])).run("go");
    let journal = run.journal().clone();
    let events: Vec<_> = block_on(run.finish_with(&journal).collect());
    let endings = events.iter().filter(|event| event.as_ref().unwrap().outcome().is_some());
    assert_eq!(endings.count(), 1);
}

#[test]
fn a_loop_whose_body_panicked_has_no_finished_event() {
    type Body = stream::Empty<Result<Step<Event, u8>, Error>>;
    let journal = Journal::new(History::empty("h"));
    let mut events = loop_stream(0, |_| -> Body { std::panic::resume_unwind(Box::new("boom")) })
        .journal_to(&journal)
        .finish_with(&journal);
    assert!(catch_unwind(AssertUnwindSafe(|| events.next().now_or_never())).is_err());
    assert!(block_on(events.next()).is_none());
}

#[test]
fn a_loop_that_stops_in_the_middle_of_a_turn_is_not_completed() {
    let journal = Journal::new(History::empty("h"));
    let half = [Ok(TurnEvent::TextDelta { index: 0, text: "half".into() }.into())];
    let events: Vec<_> =
        block_on(stream::iter(half).journal_to(&journal).finish_with(&journal).collect());
    let outcome = events.last().unwrap().as_ref().unwrap().outcome().unwrap();
    assert_eq!(outcome.reason, EndReason::Stopped);
}

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

#[test]
fn a_sealed_stream_ends_exactly_one_way_for_any_input() {
    struct FnTurnSource(fn(&mut TurnBuilder) -> Result<(), Error>);
    impl TurnSource for FnTurnSource {
        fn poll_turn(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            turn: &mut TurnBuilder,
        ) -> Poll<Option<Result<(), Error>>> {
            Poll::Ready(Some((self.0)(turn)))
        }
    }
    let last = |odd| {
        let events: Vec<_> = block_on(seal(&History::empty("h"), FnTurnSource(odd)).collect());
        events.into_iter().last().unwrap()
    };
    let late_error = last(|turn| {
        turn.stop(StopReason::Stop, "");
        turn.complete()?;
        Err(Error::new(ErrorKind::Server, "late"))
    });
    assert!(matches!(late_error, Ok(TurnEvent::TurnComplete { .. })));
    let never_said = last(|turn| {
        let _ = turn.fail_incomplete(None);
        Ok(())
    });
    assert!(never_said.is_err());
    let asked_twice = last(|turn| {
        turn.start_tool_call(0, "a", "t");
        turn.stop(StopReason::ToolCalls, "");
        let _ = turn.complete();
        turn.complete()
    });
    assert!(asked_twice.is_err());
}

#[test]
fn nothing_follows_a_complete_turn_and_its_source_is_dropped_before_it_is_yielded() {
    let events: Vec<Result<TurnEvent, Error>> = {
        let reply = Reply::text("Hi.").call_raw("a", "t", "{}");
        let request = Request::new(History::empty("h"));
        block_on(Scripted::new([reply]).stream_turn(request).collect())
    };
    let busy = Arc::new(Error::new(ErrorKind::Overloaded, "busy"));
    let usage = Usage { output_tokens: 9, ..Usage::default() };
    let late = [
        Ok(TurnEvent::TextDelta { index: 0, text: "late".into() }),
        Ok(TurnEvent::UsageUpdate { usage }),
        Ok(TurnEvent::ToolCallStart { call_id: "b".into(), name: "t".into() }),
        Ok(TurnEvent::ToolCallEnd { call_id: "a".into() }),
        Ok(TurnEvent::Retrying { attempt: 1, delay_ms: 1, error: busy }),
        Ok(TurnEvent::Retracted { why: "late".into(), usage: usage.into() }),
        events.last().unwrap().clone(),
        Err(Error::new(ErrorKind::Server, "late")),
    ];
    for late in late {
        // A connection that stays open after the end of the turn.
        let source = stream::iter(events.clone()).chain(stream::iter([late.clone()]));
        let guard = Arc::new(());
        let watch = Arc::downgrade(&guard);
        let source = source.chain(stream::pending()).inspect(move |_| drop(Arc::clone(&guard)));
        let mut turn = source.seal(&History::empty("h"));
        let mut read = Vec::new();
        while let Some(event) = turn.next().now_or_never().expect("it ends") {
            let is_complete = matches!(event, Ok(TurnEvent::TurnComplete { .. }));
            assert_eq!(watch.upgrade().is_none(), is_complete, "{event:?}, {late:?}");
            read.push(event);
        }
        assert_eq!(read, events, "{late:?}");
    }
}

#[test]
fn a_stop_reason_that_forbids_calls_is_not_overridden_by_a_second_one() {
    let mut turn = TurnBuilder::new();
    turn.start_tool_call(0, "a", "t");
    turn.end_tool_call(0);
    turn.stop(StopReason::MaxTokens, "length");
    turn.stop(StopReason::ToolCalls, "tool_calls");
    turn.complete().unwrap();
    let last = std::iter::from_fn(|| turn.next_event()).last();
    let Some(TurnEvent::TurnComplete { turn }) = last else { panic!("no turn") };
    assert!(turn.calls().veto().is_some());
}

#[test]
fn numbers_in_tool_output_round_trip_exactly() {
    let mut seed = 88_172_645_463_325_252_u64;
    for _ in 0..10_000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let number = f64::from_bits(seed);
        let data = turnstream::item::RawJson::new(&number).unwrap();
        let event =
            Event::Tool(ToolEvent::Progress { call_id: "c".into(), name: "t".into(), data });
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event, "{line}");
    }
}

#[test]
fn additions_of_a_later_version_are_ignored_where_unknown() {
    let read = |line: &str| serde_json::from_str::<Event>(line).unwrap();
    let appended = read(r#"{"type":"appended","why":"telepathy","id":"i","items":[]}"#);
    assert!(matches!(appended, Event::Appended { why: AppendReason::Other, .. }));
    let output = read(
        r#"{"type":"tool_output","call_id":"c","name":"t","is_error":true,"kind":"quota","content":"x"}"#,
    );
    assert_eq!(output.tool_output().unwrap().kind, ResultKind::Error);
    let nested = r#"{"type":"nested","call_id":"c","name":"n","event":{"type":"later"}}"#;
    assert_eq!(read(nested), Event::Unknown);
    assert!(serde_json::from_str::<Event>(r#"{"type":"continued","reason":"boredom"}"#).is_ok());
    let finished = read(r#"{"type":"finished","outcome":{"reason":"boredom","text":"so"}}"#);
    let outcome = finished.outcome().unwrap();
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Other, "so"));
    assert!(outcome.clone().into_result().is_err(), "it is not taken for completed");
    let written = serde_json::to_string(&finished).unwrap();
    assert_eq!(read(&written), finished);
    let interrupted =
        read(r#"{"type":"finished","outcome":{"reason":"interrupted","phase":"dreaming"}}"#);
    assert_eq!(
        interrupted.outcome().unwrap().reason,
        EndReason::Interrupted(InterruptedPhase::Streaming)
    );
}
