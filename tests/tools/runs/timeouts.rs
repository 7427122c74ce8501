//! The time limit of a call.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::stream::{self, StreamExt};
use tokio::time::{Instant, advance, sleep};
use turnstream::Toolkit;
use turnstream::item::ResultKind;
use turnstream::provider::Reply;
use turnstream::tool::{Tool, ToolContext, ToolUpdate};

use super::{
    only_result, sleep_tool, spec, start_run, summarize_event, summarize_remaining,
    turn_from_reply, turn_with_calls,
};

const CALL_TIMEOUT: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn a_timed_out_call_is_dropped_and_answered_and_its_siblings_continue() {
    let seen: Arc<Mutex<Option<ToolContext>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let stuck = Tool::raw(spec("stuck"), move |_, cx| {
        cx.record_change("half.txt");
        *kept.lock().unwrap() = Some(cx);
        std::future::pending::<()>()
    });
    let kit = Toolkit::new([stuck.unwrap().with_timeout(CALL_TIMEOUT), sleep_tool("a")]);
    let reply = Reply::new().call_raw("1", "stuck", "").call_raw("2", "a", "{\"ms\":500}");
    let began = Instant::now();
    let mut tools = start_run(&kit, &turn_from_reply(reply).await);
    let mut shapes = Vec::new();
    while let Some(event) = tools.next().await {
        let shape = summarize_event(&event);
        if shape == "Timeout 1" {
            assert_eq!(began.elapsed(), CALL_TIMEOUT);
            let cx = seen.lock().unwrap().clone().unwrap();
            assert!(cx.is_cancelled(), "it is gone before anybody reads of it");
        }
        shapes.push(shape);
    }
    assert_eq!(shapes, ["start stuck", "start a", "Timeout 1", "Ok 2"]);
    let result = tools.finish().unwrap().results.remove(0);
    assert!(result.content.text().starts_with("Timed out after 100ms."), "{result:?}");
    assert_eq!(result.report.unwrap().side_effects[0].target, "half.txt");
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_dropped_in_the_poll_that_yields_its_result() {
    // A stream that does not end after its output, one that has none, and one that panics.
    let cases = [
        (stream::iter([Some(ToolUpdate::output("done"))]).boxed(), ResultKind::Ok),
        (stream::iter([]).boxed(), ResultKind::Timeout),
        (stream::iter([None]).boxed(), ResultKind::Panic),
    ];
    for (updates, kind) in cases {
        let alive = Arc::new(());
        let watch = Arc::downgrade(&alive);
        let updates = Mutex::new(Some((updates, alive)));
        let tool = Tool::raw(spec("t"), move |_, _| {
            let (updates, alive) = updates.lock().unwrap().take().unwrap();
            // The stream of updates keeps `alive` until it is dropped.
            let updates = updates.chain(stream::pending()).zip(stream::repeat(alive));
            let updates = updates.map(|(update, _)| {
                update.unwrap_or_else(|| std::panic::resume_unwind(Box::new("boom")))
            });
            ready(updates.boxed())
        });
        let kit = Toolkit::new([tool.unwrap().with_timeout(CALL_TIMEOUT)]);
        let mut tools = start_run(&kit, &turn_with_calls(&["t"]).await);
        assert_eq!(summarize_event(&tools.next().await.unwrap()), "start t");
        assert!(watch.upgrade().is_some());
        let ended = tools.next().await.unwrap();
        assert_eq!(summarize_event(&ended), format!("{kind:?} t"));
        assert!(watch.upgrade().is_none(), "{kind:?}: the tool still exists");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_in_time_is_unaffected() {
    for (ms, kind) in [(99, ResultKind::Ok), (100, ResultKind::Ok), (101, ResultKind::Timeout)] {
        let kit = Toolkit::new([sleep_tool("a").with_timeout(CALL_TIMEOUT)]);
        let reply = Reply::new().call_raw("1", "a", &format!("{{\"ms\":{ms}}}"));
        assert_eq!(
            only_result(start_run(&kit, &turn_from_reply(reply).await)).await.kind,
            kind,
            "{ms}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_beyond_the_clock_is_ignored() {
    let kit = Toolkit::new([sleep_tool("a").with_timeout(Duration::MAX)]);
    assert_eq!(
        only_result(start_run(&kit, &turn_with_calls(&["a"]).await)).await.kind,
        ResultKind::Ok
    );
}

/// A tool that reports progress after 40 ms, and completes after being polled for another 40 ms.
fn slow_progress_tool() -> Tool {
    Tool::raw(spec("chatty"), |_, _| async {
        let updates = async_stream::stream! {
            for n in 0..3 {
                sleep(Duration::from_millis(30)).await;
                yield ToolUpdate::progress(&n);
            }
            yield ToolUpdate::output("done");
        };
        updates.boxed()
    })
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn pauses_of_the_consumer_do_not_count_toward_a_tool_timeout() {
    for (limit, kind) in [(95, ResultKind::Ok), (85, ResultKind::Timeout)] {
        let kit = Toolkit::new([slow_progress_tool().with_timeout(Duration::from_millis(limit))]);
        let mut tools = start_run(&kit, &turn_with_calls(&["chatty"]).await);
        while tools.next().await.is_some() {
            // Longer than the limit, after each event.
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(tools.finish().unwrap().results[0].kind, kind, "{limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn time_between_polls_without_an_event_counts_toward_a_tool_timeout() {
    let kit = Toolkit::new([sleep_tool("a").with_timeout(CALL_TIMEOUT)]);
    let turn = turn_from_reply(Reply::new().call_raw("1", "a", "{\"ms\":500}")).await;
    let mut tools = start_run(&kit, &turn);
    assert_eq!(summarize_event(&tools.next().await.unwrap()), "start a");
    advance(Duration::from_secs(9)).await;
    assert_eq!(tools.next().now_or_never(), None, "it was not polled yet");
    advance(CALL_TIMEOUT).await;
    assert_eq!(summarize_remaining(&mut tools).await, ["Timeout 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_polled_before_its_timer() {
    let kit = Toolkit::new([sleep_tool("a").with_timeout(CALL_TIMEOUT)]);
    let turn = turn_from_reply(Reply::new().call_raw("1", "a", "{\"ms\":50}")).await;
    let mut tools = start_run(&kit, &turn);
    tools.next().await.unwrap();
    assert_eq!(tools.next().now_or_never(), None);
    advance(Duration::from_secs(9)).await;
    assert_eq!(summarize_remaining(&mut tools).await, ["Ok 1"], "a result that is there counts");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_always_reports_progress_still_times_out() {
    let busy = Tool::raw(spec("busy"), |_, _| async {
        futures::stream::repeat(ToolUpdate::progress(&0)).take(20).boxed()
    });
    let kit = Toolkit::new([busy.unwrap().with_timeout(Duration::ZERO)]);
    let events = summarize_remaining(&mut start_run(&kit, &turn_with_calls(&["busy"]).await)).await;
    assert_eq!(events.len(), 3, "what it told is given out, then it is over: {events:?}");
    assert_eq!(events[2], "Timeout busy");
}

#[test]
fn a_tool_without_a_timeout_needs_no_clock() {
    // Without tokio.
    futures::executor::block_on(async {
        let tool = Tool::raw(spec("a"), |_, _| async { 1 }).unwrap();
        let kit = Toolkit::new([tool]);
        assert_eq!(
            only_result(start_run(&kit, &turn_with_calls(&["a"]).await)).await.kind,
            ResultKind::Ok
        );
    });
}
