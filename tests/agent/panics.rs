//! Panics in providers, tools, hooks and their destructors leave a run with exactly one ending.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use futures::{FutureExt, StreamExt, stream};
use serde_json::json;
use turnstream::agent::hook::CallDecision;
use turnstream::agent::{Budget, Pool, hook};
use turnstream::event::EndReason;
use turnstream::provider::{Piece, Provider, Reply, Scripted, from_stream};
use turnstream::stream::TurnStream;
use turnstream::tool::Tool;
use turnstream::{Agent, Error, ErrorKind, Request, TurnEvent, TurnStreamExt};

use turnstream_test_support::runs::{limits_with_max_turns, output_usage, run_with_action};
use turnstream_test_support::tools::spec;

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
