//! Which calls run concurrently.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::StreamExt;
use proptest::prelude::*;
use serde_json::json;
use turnstream::event::ToolEvent;
use turnstream::provider::Reply;
use turnstream::tool::Tool;
use turnstream::{History, Toolkit};

use turnstream_test_support::clock;

#[path = "../../../../tests/tools/runs/fixture.rs"]
#[allow(dead_code, reason = "the tests of `tools` use all of it")]
mod fixture;

use self::fixture::{ScriptedPolicy, spec, summarize_remaining, turn_from_reply};

/// When each call ran, from and to, in milliseconds.
type CallSpans = Arc<Mutex<Vec<(usize, u128, u128)>>>;

/// A tool that records its span; the number of a call is its id.
fn span_recording_tool(name: &str, spans: &CallSpans, began: tokio::time::Instant) -> Tool {
    let spans = Arc::clone(spans);
    Tool::raw(spec(name), move |args, cx| {
        let spans = Arc::clone(&spans);
        async move {
            let from = began.elapsed().as_millis();
            tokio::time::sleep(Duration::from_millis(args["ms"].as_u64().unwrap())).await;
            let to = began.elapsed().as_millis();
            spans.lock().unwrap().push((cx.call_id().parse().unwrap(), from, to));
        }
    })
    .unwrap()
}

/// Runs calls of `(exclusive, ms)` and checks which of them overlap.
async fn check_overlaps(sequence: &[(bool, u64)], at_once: usize, gated: bool) {
    let (spans, began) = (CallSpans::default(), tokio::time::Instant::now());
    let kit = Toolkit::new([
        span_recording_tool("safe", &spans, began),
        span_recording_tool("alone", &spans, began).exclusive(),
    ])
    .with_max_concurrency(NonZeroUsize::new(at_once).unwrap());
    let reply = sequence.iter().enumerate().fold(Reply::new(), |reply, (at, (alone, ms))| {
        let name = if *alone { "alone" } else { "safe" };
        reply.call_raw(&at.to_string(), name, &json!({ "ms": ms }).to_string())
    });
    let turn = turn_from_reply(reply).await;
    let mut run = kit.run(&History::empty("h"), &turn);
    if gated {
        run = run.with_policy(ScriptedPolicy::configured(|book| book.before_delay_ms = 1));
    }
    let events: Vec<_> = run.by_ref().collect().await;
    let started: Vec<usize> = events
        .iter()
        .filter_map(|event| match event {
            ToolEvent::Started { call_id, .. } => Some(call_id.parse().unwrap()),
            _ => None,
        })
        .collect();
    assert!(started.iter().copied().eq(0..sequence.len()), "started in call order: {started:?}");
    assert!(run.finish().unwrap().history.is_settled());
    let mut spans = spans.lock().unwrap().clone();
    spans.sort_unstable();
    assert_eq!(spans.len(), sequence.len());
    for (i, from, to) in &spans {
        let beside = spans.iter().filter(|(j, from2, to2)| i != j && from2 < to && from < to2);
        let beside: Vec<_> = beside.map(|(j, ..)| *j).collect();
        if sequence[*i].0 {
            assert_eq!(beside, [0; 0], "{i} is alone in {sequence:?}");
        }
        let at_begin = spans.iter().filter(|(_, from2, to2)| from2 <= from && from < to2).count();
        assert!(at_begin <= at_once, "{at_begin} at once in {sequence:?}");
        for (j, _, to_before) in &spans {
            // An exclusive call runs after all earlier calls, and all later calls run after it.
            if j < i && (sequence[*j].0 || sequence[*i].0) {
                assert!(to_before <= from, "{i} begins after {j} in {sequence:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn an_exclusive_call_runs_alone_and_in_call_order(
        sequence in proptest::collection::vec((any::<bool>(), 1_u64..40), 1..9),
        at_once in 1_usize..6,
        gated in any::<bool>(),
    ) {
        let runtime = clock::paused_runtime();
        runtime.block_on(check_overlaps(&sequence, at_once, gated));
    }
}

#[tokio::test(start_paused = true)]
async fn consecutive_shared_calls_run_concurrently() {
    let (spans, began) = (CallSpans::default(), tokio::time::Instant::now());
    let kit = Toolkit::new([
        span_recording_tool("safe", &spans, began),
        span_recording_tool("alone", &spans, began).exclusive(),
    ]);
    let calls = ["safe", "safe", "alone", "safe", "safe"];
    let reply = calls.iter().enumerate().fold(Reply::new(), |reply, (at, name)| {
        reply.call_raw(&at.to_string(), name, "{\"ms\":10}")
    });
    let turn = turn_from_reply(reply).await;
    summarize_remaining(&mut kit.run(&History::empty("h"), &turn)).await;
    let mut spans = spans.lock().unwrap().clone();
    spans.sort_unstable();
    assert_eq!(spans, [(0, 0, 10), (1, 0, 10), (2, 10, 20), (3, 20, 30), (4, 20, 30)]);
}
