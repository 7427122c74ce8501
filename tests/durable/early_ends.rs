//! The results of calls whose run is ended from outside before it has taken these results.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use turnstream::agent::Budget;
use turnstream::durable::{
    Attempt, Engine, Loss, LossMoment, LossPlan, MemoryEngine, StepFuture, StepRunner,
    StoredCommand, ToolCallRequest,
};
use turnstream::event::EndReason;
use turnstream::item::{RawJson, ResultKind, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::Entry;
use turnstream::tool::Tool;
use turnstream::{Agent, Error, History, Item};

use crate::support::tools::spec;

/// An agent with this time limit that makes two calls, which take this long.
fn agent(limit: Duration, call: Duration, begun: &Arc<AtomicUsize>) -> Agent {
    let model = Scripted::from_fn(|request, _| match results(&request.history).len() {
        0 => Reply::new().call_raw("c1", "work", "{}").call_raw("c2", "work", "{}"),
        _ => Reply::text("Done."),
    });
    let begun = Arc::clone(begun);
    let work = Tool::raw(spec("work"), move |_, _| {
        begun.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(call).await;
            "done"
        }
    });
    Agent::new(model).with_tool(work.unwrap()).with_budget(Budget::new().with_time_limit(limit))
}

fn results(history: &History) -> Vec<(ResultKind, String)> {
    let results = history.iter().filter_map(Item::as_tool_result);
    results.map(|result| (result.kind, result.content.text())).collect()
}

#[tokio::test(start_paused = true)]
async fn results_of_separately_executed_calls_that_exceed_the_runs_time_limit_are_not_lost() {
    let begun = Arc::default();
    let agent = agent(Duration::from_mins(1), Duration::from_secs(70), &begun);
    let mut engine = MemoryEngine::new().with_worker(&agent);
    let attempt = || Attempt::run(&agent, "s", Vec::new(), "Work.");
    let outcome = attempt().drive(&mut engine).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Budget);
    let done = (ResultKind::Ok, "done".to_owned());
    assert_eq!(results(&outcome.history), [done.clone(), done]);
    assert_eq!(begun.load(Ordering::Relaxed), 2);
    assert_eq!(attempt().drive(&mut engine.next_attempt()).await.unwrap(), outcome);
}

/// An engine that takes two minutes to save entries.
struct SlowToSave(MemoryEngine);

impl StepRunner for SlowToSave {
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>> {
        self.0.step(name, step)
    }
}

impl Engine for SlowToSave {
    fn take_commands(&mut self) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>> {
        self.0.take_commands()
    }

    fn wait_for_commands<'a>(
        &'a mut self,
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>> {
        self.0.wait_for_commands(limit, is_enough)
    }

    fn call_tools(
        &mut self,
        calls: Vec<ToolCallRequest>,
    ) -> BoxFuture<'_, Result<Vec<ToolResult>, Error>> {
        self.0.call_tools(calls)
    }

    fn save(&mut self, from: u64, entries: Vec<Entry>) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            tokio::time::sleep(Duration::from_mins(2)).await;
            self.0.save(from, entries).await
        }
        .boxed()
    }

    fn finish(&mut self, put_back: Vec<StoredCommand>) -> BoxFuture<'_, Result<(), Error>> {
        self.0.finish(put_back)
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_a_lost_attempt_started_are_never_reported_as_not_started() {
    let mut ended_early = 0;
    for moment in [LossMoment::After(1), LossMoment::After(4), LossMoment::Kept] {
        for operation in 0.. {
            let begun = Arc::default();
            let agent = agent(Duration::from_mins(1), Duration::from_secs(1), &begun);
            let attempt = || Attempt::run(&agent, "s", Vec::new(), "Work.");
            let first = MemoryEngine::new();
            let plan = LossPlan::with_losses([Loss { operation, moment }]);
            if attempt().drive(&mut plan.wrap(first.next_attempt())).await.is_ok() {
                break;
            }
            let before = begun.load(Ordering::Relaxed);
            // The second attempt reaches its time limit before it can take a result.
            let outcome = attempt().drive(&mut SlowToSave(first.next_attempt())).await.unwrap();
            let results = results(&outcome.history);
            let place = format!("{operation}, {moment:?}: {before} have begun, {results:?}");
            assert!(begun.load(Ordering::Relaxed) <= 2, "{place}");
            assert_eq!(results.len(), 2, "{place}");
            if before > 0 {
                assert!(results.iter().all(|(kind, _)| *kind != ResultKind::Budget), "{place}");
                ended_early += usize::from(results[0].0 == ResultKind::Timeout);
            }
        }
    }
    assert!(ended_early > 0);
}
