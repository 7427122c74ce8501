//! A stop after a turn, a drop at any poll, and a consumer that pauses.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt, StreamExt, stream};
use serde_json::json;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::event::EndReason;
use turnstream::item::ResultKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolUpdate};
use turnstream::{Agent, Event, Outcome, Usage};
use turnstream_testing::Wire;

use turnstream_test_support::models::ChunkedProvider;
use turnstream_test_support::replays;
use turnstream_test_support::runs::{
    check_outcome, event_types, is_tool_started, pull_ready, pull_until, reply_calling,
    result_kinds, scripted_agent,
};
use turnstream_test_support::tools::{Counter, ok_tool, pending_tool, spec};
use turnstream_test_support::wires::sse_frame;

async fn run_stopped_when(fits: impl Fn(&Event) -> bool) -> (Outcome, Scripted, Counter, Usage) {
    let counter = Counter::default();
    let usage = Usage { input_tokens: 10, output_tokens: 3, ..Usage::default() };
    let first = reply_calling("c1", "t").call_raw("c2", "t", "{}").usage(usage);
    let (agent, model) = scripted_agent([first, "never".into()], vec![ok_tool("t", &counter)]);
    let mut run = agent.run("go");
    pull_until(&mut run, fits).await;
    run.stop_after_turn();
    run.stop_after_turn();
    let handle = run.handle();
    let outcome = run.outcome().await;
    assert!(handle.history().is_settled());
    (outcome, model, counter, usage)
}

mod stop_after_turn {
    //! A stop request lets the turn and its tools finish and sends no further request.

    use super::*;

    #[tokio::test]
    async fn a_stop_finishes_the_turn_and_its_tools_and_sends_no_request() {
        let moments: [fn(&Event) -> bool; 4] = [
            |event| matches!(event, Event::TurnStarted { .. }),
            |event| event.turn_complete().is_some(),
            is_tool_started,
            |event| event.tool_output().is_some(),
        ];
        for (at, fits) in moments.into_iter().enumerate() {
            let (outcome, model, counter, usage) = run_stopped_when(fits).await;
            check_outcome(&outcome, EndReason::Stopped, 1);
            assert!(outcome.partial);
            assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Ok; 2], "moment {at}");
            assert_eq!((outcome.usage, counter.started_count()), (usage, 2), "moment {at}");
            assert_eq!(model.requests().len(), 1, "moment {at}");
        }
    }

    #[tokio::test]
    async fn a_stop_when_the_model_is_done_changes_nothing() {
        let (agent, _) = scripted_agent(["all done".into()], vec![]);
        let mut run = agent.run("go");
        pull_until(&mut run, |event| event.text_delta().is_some()).await;
        run.stop_after_turn();
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 1);
        assert_eq!(outcome.text, "all done");
    }
}

/// A tool that reports progress three times.
fn progress_tool(counter: &Counter, steps: &Arc<AtomicUsize>) -> Tool {
    let (counter, steps) = (counter.clone(), Arc::clone(steps));
    Tool::raw(spec("tell"), move |_, _| {
        let (alive, steps) = (counter.enter(), Arc::clone(&steps));
        let updates = (0..3).map(|n| ToolUpdate::progress(&n)).chain([ToolUpdate::output("told")]);
        let updates = stream::iter(updates).map(move |update| {
            let _alive = &alive;
            steps.fetch_add(1, Ordering::Relaxed);
            update
        });
        ready(updates.boxed())
    })
    .unwrap()
}

/// The frames of a turn with text and two calls, one call per chunk.
fn two_call_frames() -> Vec<String> {
    let words = ["one ", "two ", "three "].map(|word| {
        sse_frame(&format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{word}"}}}}]}}"#))
    });
    let call = |index: u8, name: &str| {
        sse_frame(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":{index},"id":"c{index}","function":{{"name":"{name}","arguments":"{{}}"}}}}]}}}}]}}"#
        ))
    };
    let end = sse_frame(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#);
    let calls = [call(0, "tell"), call(1, "endless"), end, sse_frame("[DONE]")];
    words.into_iter().chain(calls).collect()
}

mod drop_cancels {
    //! Dropping a run at any poll synchronously drops everything under it.

    use super::*;

    #[tokio::test]
    async fn a_drop_at_any_poll_drops_connection_and_tools_synchronously() {
        let mut seen = [0; 3];
        for polls in 0..60 {
            let (tools, steps) = (Counter::default(), Arc::default());
            let model = ChunkedProvider::new(vec![two_call_frames()], Wire::OpenAiChat);
            let (open, read) = (model.open_bodies.clone(), Arc::clone(&model.chunks_read));
            let kit = [progress_tool(&tools, &steps), pending_tool("endless", &tools)];
            let mut run = Agent::new(model)
                .with_recorder(replays::replaying_recorder())
                .with_tools(kit)
                .run("go");
            for _ in 0..polls {
                run.next().now_or_never();
            }
            seen[0] += open.alive_count();
            seen[1] += tools.alive_count();
            drop(run);
            assert_eq!((open.alive_count(), tools.alive_count()), (0, 0), "after {polls} polls");
            let before = (read.load(Ordering::Relaxed), steps.load(Ordering::Relaxed));
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            assert_eq!((read.load(Ordering::Relaxed), steps.load(Ordering::Relaxed)), before);
            let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
            assert_eq!(tasks, 0, "no task is left");
            seen[2] += 1;
        }
        assert!(seen[0] > 0 && seen[1] > 0 && seen[2] == 60, "something was dropped: {seen:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_drop_drops_timers_hooks_and_sub_agents() {
        let counter = Counter::default();
        let waits = {
            let counter = counter.clone();
            hook::before_tool(move |_, _| {
                let alive = counter.enter();
                async move {
                    let _alive = alive;
                    std::future::pending::<CallDecision>().await
                }
            })
        };
        let (agent_, model) =
            scripted_agent([reply_calling("c1", "t")], vec![ok_tool("t", &Counter::default())]);
        let mut run = agent_.with_hook(waits).run("go");
        pull_ready(&mut run);
        assert_eq!((counter.alive_count(), model.in_flight()), (1, 0));
        drop(run);
        assert_eq!(counter.alive_count(), 0);

        let child = Scripted::new([Reply::text("so far").hang()]);
        let asks = Reply::new().call("child", json!({ "prompt": "look" }));
        let tools = vec![
            Agent::new(child.clone())
                .with_recorder(replays::replaying_recorder())
                .as_tool("child", "Looks")
                .unwrap(),
        ];
        let mut run = scripted_agent([asks], tools).0.run("go");
        pull_ready(&mut run);
        assert_eq!(child.in_flight(), 1);
        drop(run);
        assert_eq!(child.in_flight(), 0);
    }
}

mod slow_consumer {
    //! A consumer that pauses: nothing is read or sent ahead of its polls.

    use super::*;

    #[tokio::test]
    async fn no_more_bytes_are_read_than_were_polled_for() {
        // How far the run reads ahead: the chunk whose events are being yielded.
        const MAX_FRAMES_AHEAD: usize = 1;
        let model = ChunkedProvider::new(vec![two_call_frames()], Wire::OpenAiChat);
        let read = Arc::clone(&model.chunks_read);
        let (tools, steps) = (Counter::default(), Arc::new(AtomicUsize::new(0)));
        let kit = [progress_tool(&tools, &steps), pending_tool("endless", &tools)];
        let mut run = Agent::new(model)
            .with_recorder(replays::replaying_recorder())
            .with_tools(kit)
            .run("go");
        let (mut pulled, mut told) = (0, 0);
        while let Some(Some(event)) = run.next().now_or_never() {
            pulled += 1;
            let event = event.unwrap();
            told += usize::from(event_types(&[event])[0].starts_with("tool_"));
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let read = read.load(Ordering::Relaxed);
            assert!(read <= pulled + MAX_FRAMES_AHEAD, "{read} read after {pulled} pulled");
            assert!(steps.load(Ordering::Relaxed) <= told, "a tool ran ahead of its consumer");
        }
        assert!(read.load(Ordering::Relaxed) >= 6 && steps.load(Ordering::Relaxed) == 4);
    }

    #[tokio::test]
    async fn the_next_request_is_sent_only_when_polled() {
        let (agent, model) = scripted_agent(
            [reply_calling("c1", "t"), "done".into()],
            vec![ok_tool("t", &Counter::default())],
        );
        let mut run = agent.run("go");
        pull_until(&mut run, |event| matches!(event, Event::Continued { .. })).await;
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        assert_eq!(model.requests().len(), 1);
        pull_until(&mut run, |event| matches!(event, Event::TurnStarted { .. })).await;
        assert_eq!(model.requests().len(), 1, "announced, and not sent before the next pull");
        pull_until(&mut run, |event| event.text_delta().is_some()).await;
        assert_eq!(model.requests().len(), 2);
    }
}
