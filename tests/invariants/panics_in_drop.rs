//! A panic in the `Drop` of a tool or a provider.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::executor::block_on;
use futures::{FutureExt, Stream, StreamExt};
use serde_json::json;
use turnstream::event::EndReason;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::TurnStream;
use turnstream::tool::Tool;
use turnstream::{Agent, Error, Item, Request, Run, TurnEvent, TurnStreamExt};

use turnstream_test_support::tools::spec;

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
