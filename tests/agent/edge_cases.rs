//! Edge cases of an agent: counters, the moment at which a limit is reached, and the state after an
//! end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::executor::block_on;
use futures::{FutureExt, StreamExt, stream};
use serde_json::json;
use turnstream::agent::hook::CallDecision;
use turnstream::agent::{Budget, Pool, RunContext, State, Target, hook, loop_body};
use turnstream::event::{BudgetKind, EndReason, Transition};
use turnstream::provider::{Piece, Provider, Reply, Scripted, from_stream};
use turnstream::request::ToolChoice;
use turnstream::stream::{Step, TurnStream};
use turnstream::tool::Tool;
use turnstream::turn::StopReason;
use turnstream::usage::{Price, Prices};
use turnstream::{
    Agent, Error, ErrorKind, Event, History, Outcome, Request, Run, TurnEvent, TurnStreamExt, Usage,
};

use turnstream_test_support::runs::{limits_with_max_turns, push_event};
use turnstream_test_support::tools::{constant_tool, spec};

fn uncounted_tool() -> Tool {
    constant_tool("t", "done")
}

fn tool_call_reply() -> Reply {
    Reply::new().call("t", json!({}))
}

fn truncated_reply(text: &str) -> Reply {
    Reply::text(text).stop(StopReason::MaxTokens)
}

fn output_usage(output_tokens: u64) -> Usage {
    Usage { output_tokens, ..Usage::default() }
}

fn context_window_error() -> Error {
    Error::new(ErrorKind::ContextWindow, "the prompt is too long")
}

/// Returns all events, and calls `act` after each.
fn run_with_action(mut run: Run, mut act: impl FnMut(&Run, &Event)) -> (Vec<Event>, Outcome) {
    let mut events = Vec::new();
    while let Some(event) = block_on(run.next()) {
        let is_event = event.is_ok();
        push_event(&mut events, event);
        if is_event {
            act(&run, events.last().unwrap());
        }
    }
    let finished: Vec<&Outcome> = events.iter().filter_map(Event::outcome).collect();
    assert_eq!(finished.len(), 1);
    let outcome = finished[0].clone();
    (events, outcome)
}

/// Three answers, each of which is continued twice.
fn model_with_truncated_answers() -> Scripted {
    Scripted::from_fn(|_, n| match n % 3 {
        2 => Reply::text("fine").usage(output_usage(300)),
        _ => truncated_reply("half"),
    })
}

#[test]
fn a_complete_answer_resets_the_count_of_truncated_texts() {
    let run = Agent::new(model_with_truncated_answers()).run("go");
    for _ in 0..2 {
        run.follow_up("more").unwrap();
    }
    let (_, outcome) = run_with_action(run, |_, _| {});
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 9));

    let mut left = 2;
    let (_, outcome) =
        run_with_action(Agent::new(model_with_truncated_answers()).run("go"), |run, event| {
            if event.text_delta().is_some_and(|text| *text == "fine") && left > 0 {
                left -= 1;
                run.steer("more").unwrap();
            }
        });
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 9));

    let target = Budget::new().with_target(Target::new(1_000));
    let (_, outcome) = run_with_action(
        Agent::new(model_with_truncated_answers()).with_budget(target).run("go"),
        |_, _| {},
    );
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 9));
}

#[test]
fn truncated_calls_do_not_count_toward_the_call_limit() {
    let two = tool_call_reply().call("t", json!({})).stop(StopReason::MaxTokens);
    let agent = Agent::new(Scripted::new([two, tool_call_reply(), Reply::text("fine")]))
        .with_tools([uncounted_tool()])
        .with_budget(Budget::new().with_tool_calls(1));
    let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 3));
}

#[test]
fn a_run_that_is_asked_to_stop_announces_no_wrap_up_turn() {
    let agent = Agent::new(Scripted::new([tool_call_reply()]))
        .with_tools([uncounted_tool()])
        .with_budget(Budget::new().with_tool_calls(0).with_wrap_up());
    let (events, outcome) = run_with_action(agent.run("go"), |run, event| {
        if event.turn_complete().is_some() {
            run.stop_after_turn();
        }
    });
    assert_eq!(outcome.reason, EndReason::Budget);
    assert!(!events.iter().any(|event| matches!(event, Event::Continued { .. })));
    assert!(outcome.new_items().last().unwrap().as_tool_result().is_some());
}

#[test]
fn a_run_dropped_while_it_ends_has_still_charged_the_pool() {
    let pool = Pool::new(1_000);
    let agent = Agent::new(Scripted::new([tool_call_reply().usage(output_usage(7))]))
        .with_tools([uncounted_tool()])
        .with_budget(Budget::new().with_pool(pool.clone()));
    let mut run = agent.run("go");
    while let Some(event) = block_on(run.next()) {
        if event.unwrap().turn_complete().is_some() {
            break;
        }
    }
    run.interrupt();
    // The synthetic result for the call; `Finished` is still to come.
    assert!(block_on(run.next()).is_some());
    drop(run);
    assert_eq!(pool.used_tokens(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_limit_reached_between_turns_still_allows_the_reserved_wrap_up_turn() {
    let seconds = Duration::from_secs;
    for (pause, last_turn) in [(seconds(7), true), (seconds(20), false)] {
        let model = Scripted::new([tool_call_reply(), Reply::text("what I have")]);
        let budget = Budget::new().with_time_limit(seconds(10)).with_wrap_up_time(seconds(4));
        let agent = Agent::new(model.clone()).with_tools([uncounted_tool()]).with_budget(budget);
        let mut run = agent.run("go");
        let mut continued = Vec::new();
        let mut outcome = None;
        while let Some(event) = run.next().await {
            match event.unwrap() {
                Event::Continued { reason } => {
                    continued.push(reason);
                    if reason == Transition::NextTurn {
                        tokio::time::advance(pause).await;
                    }
                }
                Event::Finished(it) => outcome = Some(it),
                _ => {}
            }
        }
        let outcome = outcome.unwrap();
        assert_eq!(outcome.reason, EndReason::Budget);
        if last_turn {
            assert_eq!(continued, [Transition::NextTurn, Transition::WrapUp]);
            assert_eq!(outcome.text, "what I have");
            assert_eq!(model.requests()[1].options.tool_choice, ToolChoice::None);
        } else {
            assert_eq!(continued, [Transition::NextTurn]);
            assert_eq!(model.requests().len(), 1, "no request is sent when the time is over");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_reached_before_the_first_request_ends_the_run_without_a_request() {
    let model = Scripted::new(["x"]);
    let budget = Budget::new().with_time_limit(Duration::ZERO).with_wrap_up();
    let outcome = Agent::new(model.clone()).with_budget(budget).run("go").outcome().await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Budget, 0));
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_of_a_run_starts_at_its_first_poll() {
    let budget = Budget::new().with_time_limit(Duration::from_secs(10));
    let mut run = Agent::new(Scripted::new(["x"])).with_budget(budget).run("go");
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(run.next().await.is_some());
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(run.outcome().await.reason, EndReason::Budget);
}

#[test]
fn a_finished_event_that_a_body_forwards_does_not_end_the_run() {
    let inner = Agent::new(Scripted::new(["inner"]));
    let agent = Agent::new(Scripted::new(["x"]));
    let own = move |_: RunContext, state: State| {
        let events = inner.run("go").map(|event| event.map(Step::Value));
        events
            .chain(stream::iter([Ok(Step::StopWith(state.with_end_reason(EndReason::Completed)))]))
    };
    let (events, outcome) =
        run_with_action(agent.run_with_body(own, History::empty("h"), "outer"), |_, _| {});
    assert!(events.last().unwrap().outcome().is_some());
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "inner"));
}

#[test]
fn a_body_polled_ahead_of_its_run_ends_the_run_with_an_error_before_any_wrong_request() {
    let provider = Scripted::new(["never"]);
    let requests = provider.clone();
    let ahead = |cx: RunContext, state: State| {
        let chunks = loop_body(cx, state).ready_chunks(64);
        chunks.flat_map(stream::iter)
    };
    let run = Agent::new(provider).run_with_body(ahead, History::empty("h"), "go");
    run.handle().steer("and mind the gap").unwrap();
    let (_, outcome) = run_with_action(run, |_, _| {});
    let error = outcome.error.unwrap();
    assert_eq!(
        (outcome.reason, error.kind()),
        (EndReason::ProviderError, ErrorKind::InvalidRequest)
    );
    assert!(error.to_string().contains("polled ahead"), "{error}");
    assert!(requests.requests().is_empty());
    assert!(serde_json::to_string(&outcome.history).unwrap().contains("mind the gap"));

    let plain =
        Agent::new(Scripted::new(["heard"])).run_with_body(loop_body, History::empty("h"), "go");
    plain.handle().steer("and mind the gap").unwrap();
    assert_eq!(run_with_action(plain, |_, _| {}).1.text, "heard");
}

#[test]
fn partial_output_is_kept_if_the_turn_is_not_retried() {
    let reply = Reply::text("half an ").fail(context_window_error());
    let (events, outcome) =
        run_with_action(Agent::new(Scripted::new([reply])).run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::ContextWindow, "half an "));
    let retracted = |event: &Event| matches!(event, Event::Turn(TurnEvent::Retracted { .. }));
    assert!(!events.iter().any(retracted));
}

#[test]
fn a_history_that_cannot_be_compacted_is_sent_to_the_fallback() {
    let agent = Agent::new(Scripted::new([Reply::error(context_window_error())]))
        .with_fallback(Scripted::new(["fits"]));
    let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "fits"));
}

/// Panics when it is dropped, unless the thread is panicking already.
struct PanicOnDropUnlessPanicking;

impl Drop for PanicOnDropUnlessPanicking {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("boom"));
        }
    }
}

#[test]
fn a_panic_in_a_providers_drop_does_not_disturb_a_dropped_run() {
    struct PanickingProvider;
    impl Provider for PanickingProvider {
        fn stream_turn(&self, request: Request) -> TurnStream {
            let said = TurnEvent::UsageUpdate { usage: output_usage(7) };
            let bomb = PanicOnDropUnlessPanicking;
            let silent = stream::pending().inspect(move |_| {
                let _ = &bomb;
            });
            stream::iter([Ok(said)]).chain(silent).seal(&request.history)
        }
        fn model(&self) -> &'static str {
            "wild"
        }
    }
    let pool = Pool::new(1_000);
    let mut run =
        Agent::new(PanickingProvider).with_budget(Budget::new().with_pool(pool.clone())).run("go");
    while let Some(Some(event)) = run.next().now_or_never() {
        event.unwrap();
    }
    let handle = run.handle();
    let _ = catch_unwind(AssertUnwindSafe(|| drop(run)));
    assert_eq!(pool.used_tokens(), 7);
    assert!(handle.steer("late").is_err());
}

#[test]
fn a_token_target_reached_at_the_end_is_not_reported_as_given_up() {
    let target = Target { min_nudges: 0, ..Target::new(1_000) };
    let model = Scripted::new([
        Reply::text("little").usage(output_usage(10)),
        Reply::text("much").usage(output_usage(990)),
    ]);
    let run = Agent::new(model).with_budget(Budget::new().with_target(target)).run("go");
    run.follow_up("more").unwrap();
    let (_, outcome) = run_with_action(run, |_, _| {});
    assert_eq!((outcome.reason, outcome.budget), (EndReason::Completed, None));
}

#[test]
fn the_reported_budget_is_the_one_that_ended_the_run() {
    let model = Scripted::new([
        tool_call_reply().usage(output_usage(10)),
        Reply::text("words").usage(output_usage(200)),
    ]);
    let agent = Agent::new(model)
        .with_tools([uncounted_tool()])
        .with_budget(Budget::new().with_tool_calls(0).with_output_tokens(100).with_wrap_up());
    let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Budget, "words"));
    assert_eq!(outcome.budget.unwrap().kind, BudgetKind::ToolCalls);
}

#[test]
fn the_usage_of_an_interrupted_request_is_counted() {
    let price = Price { input: 1.0, output: 2.0, cache_read: 0.5, cache_write: 1.5 };
    let prices = Prices::new().with_price("scripted", price);
    let model = Scripted::new([Reply::text("a").usage(output_usage(1_000)).hang()]);
    let pool = Pool::new(100_000).with_cost_limit(5.0, prices);
    let agent = Agent::new(model).with_budget(Budget::new().with_pool(pool.clone()));
    let mut run = agent.run("go");
    while let Some(Some(event)) = run.next().now_or_never() {
        event.unwrap();
    }
    run.interrupt();
    assert!(matches!(block_on(run.outcome()).reason, EndReason::Interrupted(_)));
    assert_eq!(pool.used_cost(), 2_000);
}

#[test]
fn hooks_are_notified_of_a_panic_in_the_provider() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let model = Scripted::from_fn(|_, _| -> Reply { std::panic::resume_unwind(Box::new("boom")) });
    let agent = Agent::new(model)
        .with_hook(hook::on_failure(move |_, error| seen.lock().unwrap().push(error.kind())));
    let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!(outcome.reason, EndReason::ProviderError);
    assert_eq!(*told.lock().unwrap(), [ErrorKind::Panic]);
}

#[test]
fn a_hook_can_stop_the_run_before_any_further_request() {
    for reply in [
        tool_call_reply(),
        tool_call_reply().stop(StopReason::MaxTokens),
        tool_call_reply().stop(StopReason::Other("odd".into())),
        truncated_reply("half"),
        Reply::text("wait").stop(StopReason::Pause),
        Reply::new(),
    ] {
        let agent = Agent::new(Scripted::new([reply]))
            .with_tools([uncounted_tool()])
            .with_hook(hook::should_stop(|_| async { true }));
        let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
        assert_eq!((outcome.reason, outcome.turns), (EndReason::Stopped, 1));
    }
}

#[test]
fn a_malformed_reply_is_corrected_and_the_third_in_a_row_ends_the_run() {
    let unreadable = || {
        let error = Error::new(ErrorKind::GenerationFailed, "MALFORMED_FUNCTION_CALL");
        Reply::text("I call").fail(error)
    };
    let model = Scripted::new([unreadable(), unreadable(), Reply::text("fine")]);
    let tools = ["read", "write"].map(|name| Tool::raw(spec(name), |_, _| async { "" }).unwrap());
    let agent = Agent::new(model).with_tools(tools);
    let (events, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 3));
    // The prompt, two corrections and the answer.
    let items = outcome.new_items();
    assert_eq!(items.len(), 4);
    let correction = items[1].as_user().unwrap().text();
    assert!(correction.ends_with("The tools are: `read`, `write`."), "{correction}");
    let corrected =
        |event: &&Event| matches!(event, Event::Continued { reason: Transition::Corrective });
    assert_eq!(events.iter().filter(corrected).count(), 2);

    let model = Scripted::from_fn(move |_, _| unreadable());
    let (_, outcome) = run_with_action(Agent::new(model.clone()).run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.turns), (EndReason::ProviderError, 3));
    assert_eq!(outcome.error.unwrap().kind(), ErrorKind::GenerationFailed);
    let agent = Agent::new(model).with_fallback(Scripted::new(["fine"]));
    let (_, outcome) = run_with_action(agent.run("go"), |_, _| {});
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 4));
}

/// Panics when it is dropped.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

fn panic_with_drop_panic<T>() -> T {
    std::panic::panic_any(PanicOnDrop)
}

#[test]
fn a_panic_payload_that_panics_on_drop_still_leaves_exactly_one_ending() {
    let calls = || Scripted::new([Reply::new().call("t", json!({})), Reply::text("done")]);
    let tool = |run: fn() -> &'static str| Tool::raw(spec("t"), move |_, _| async move { run() });
    let agents = [
        Agent::new(calls()).with_tools([tool(panic_with_drop_panic).unwrap()]),
        Agent::new(calls()).with_tools([Tool::raw(spec("t"), |_, _| {
            panic_with_drop_panic::<()>();
            async { "never" }
        })
        .unwrap()]),
        Agent::new(Scripted::new(["hi"]))
            .with_validation(|_| panic_with_drop_panic::<Result<(), String>>()),
        Agent::new(calls())
            .with_tools([tool(|| "fine").unwrap()])
            .with_hook(hook::before_tool(|_, _| async { panic_with_drop_panic::<CallDecision>() })),
        Agent::new(from_stream("bomb", move |_| {
            stream::once(async { panic_with_drop_panic::<Result<Piece, Error>>() })
        })),
    ];
    for agent in agents {
        let (events, outcome) =
            run_with_action(agent.with_limits(limits_with_max_turns(2)).run("go"), |_, _| {});
        assert!(events.iter().filter(|event| event.outcome().is_some()).count() == 1);
        let shown = format!("{:?} {:?}", outcome.error, outcome.new_items());
        assert!(shown.contains("panicked: no message"), "{shown}");
    }
}
