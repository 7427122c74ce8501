//! The calls of a turn: when they start, and where their results go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use serde_json::json;
use turnstream::event::{AppendReason, ToolEvent};
use turnstream::item::{ResultKind, ToolResult};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::Step;
use turnstream::tool::Tool;
use turnstream::turn::TurnBuilder;
use turnstream::{Event, History, Item, Journal, Request, Toolkit, Turn, TurnEvent, TurnStreamExt};

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

pub(super) fn tool_result(call_id: &str) -> ToolResult {
    let kind = ResultKind::Ok;
    ToolResult {
        call_id: call_id.into(),
        name: "t".into(),
        content: "real".into(),
        kind,
        report: None,
    }
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
fn only_a_turn_builder_produces_runnable_calls() {
    let mut turn = TurnBuilder::new();
    turn.start_tool_call(0, "a", "t");
    turn.end_tool_call(0);
    turn.stop(turnstream::turn::StopReason::ToolCalls, "");
    turn.complete().unwrap();
    let Some(TurnEvent::TurnComplete { turn }) = std::iter::from_fn(|| turn.next_event()).last()
    else {
        panic!("no turn");
    };
    assert!(turn.calls().veto().is_none());
    let json = serde_json::to_string(&*turn).unwrap();
    let read: turnstream::Turn = serde_json::from_str(&json).unwrap();
    assert!(read.calls().veto().is_some());
    let forged = json.replacen('{', "{\"built\":true,", 1);
    let read: turnstream::Turn = serde_json::from_str(&forged).unwrap();
    assert!(read.calls().veto().is_some(), "no file can forge it");
}
