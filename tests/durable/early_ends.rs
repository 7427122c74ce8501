//! The results of calls whose run is ended from outside before it has taken these results.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, join};
use futures::{FutureExt, TryStreamExt};
use turnstream::agent::{Budget, Pool};
use turnstream::durable::{
    Attempt, Engine, StepFuture, StepRunner, StoredCommand, ToolCallRequest,
};
use turnstream::event::{EndReason, ToolEvent};
use turnstream::hub::Command;
use turnstream::item::{PendingCall, RawJson, ResultKind, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::Entry;
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item};

use turnstream_test_support::tools::spec;
use turnstream_testing::durable_suite::{Loss, LossMoment, LossPlan, MemoryEngine};

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
    fn take_commands(
        &mut self,
        undelivered_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>> {
        self.0.take_commands(undelivered_bytes)
    }

    fn wait_for_commands<'a>(
        &'a mut self,
        awaited: &'a [PendingCall],
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>> {
        self.0.wait_for_commands(awaited, limit, is_enough)
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

#[tokio::test(start_paused = true)]
async fn recorded_results_of_calls_are_not_lost_while_all_slots_of_a_pool_are_in_use() {
    let pool = Pool::unlimited().with_max_concurrency(NonZeroUsize::new(2).unwrap());
    let budget = || Budget::new().with_pool(pool.clone());
    let begun: Arc<AtomicUsize> = Arc::default();
    let agent = agent(Duration::MAX, Duration::from_secs(1), &begun).with_budget(budget());
    let attempt = || Attempt::run(&agent, "s", Vec::new(), "Work.");
    // Another run can hold both slots.
    let wait = Tool::raw(spec("wait"), |_, _| std::future::pending::<&str>()).unwrap();
    let holder = Agent::new(Scripted::from_fn(|_, _| {
        Reply::new().call_raw("w1", "wait", "{}").call_raw("w2", "wait", "{}")
    }));
    let holder = holder.with_tool(wait).with_budget(budget());
    let mut were_recorded = 0;
    for operation in 0.. {
        let before = begun.load(Ordering::Relaxed);
        let first = MemoryEngine::new().with_worker(&agent);
        let plan = LossPlan::with_losses([Loss { operation, moment: LossMoment::Kept }]);
        if attempt().drive(&mut plan.wrap(first.next_attempt())).await.is_ok() {
            break;
        }
        if begun.load(Ordering::Relaxed) == before {
            continue;
        }
        let mut held = holder.run("Wait.");
        for _ in 0..2 {
            let is_started =
                |event: &Event| matches!(event, Event::Tool(ToolEvent::Started { .. }));
            while !is_started(&held.try_next().await.unwrap().unwrap()) {}
        }
        let mut engine = first.next_attempt();
        // The run can send its next request once the slot is free.
        let release = async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            drop(held);
        };
        let (outcome, ()) = join(attempt().drive(&mut engine), release).await;
        let outcome = outcome.unwrap();
        let done = (ResultKind::Ok, "done".to_owned());
        assert_eq!(results(&outcome.history), [done.clone(), done], "{operation}");
        assert_eq!(begun.load(Ordering::Relaxed), before + 2, "{operation}");
        were_recorded += 1;
    }
    assert!(were_recorded > 0);
}

/// Input of `mebibytes` MiB.
fn large_input(mebibytes: usize) -> Vec<Item> {
    vec![Item::user("x".repeat(mebibytes << 20))]
}

#[tokio::test(start_paused = true)]
async fn input_for_which_a_step_has_no_place_is_refused_and_the_run_continues() {
    let engine = MemoryEngine::new();
    let (in_turn, in_call) = (engine.next_attempt(), engine.next_attempt());
    let model = Scripted::from_fn(move |request, _| match results(&request.history).len() {
        0 => {
            in_turn.send("a", Command::Steer(large_input(5))).unwrap();
            Reply::new().call_raw("c1", "work", "{}")
        }
        // Together with the input, this turn is larger than a turn may be.
        _ => Reply::text("y".repeat(7 << 20)),
    });
    let work = Tool::raw(spec("work"), move |_, _| {
        // The run has taken the first input, and delivers both with its next request.
        let refused = in_call.send("b", Command::Steer(large_input(5))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
        in_call.send("c", Command::Steer(vec![Item::user("small")])).unwrap();
        std::future::ready("done")
    });
    let agent = Agent::new(model).with_tool(work.unwrap());
    let mut first = engine.next_attempt();
    let outcome = Attempt::run(&agent, "s", Vec::new(), "Work.").drive(&mut first).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
    let inputs = outcome.history.iter().filter_map(Item::as_user).map(|said| said.text().len());
    assert_eq!(inputs.collect::<Vec<_>>(), ["Work.".len(), 5 << 20, "small".len()]);
    engine.next_run().send("d", Command::Steer(large_input(5))).unwrap();
}

#[tokio::test(start_paused = true)]
async fn input_that_a_failed_run_returns_never_fills_the_queue_and_the_next_run_delivers_it() {
    let engine = MemoryEngine::new();
    let (in_turn, in_call) = (engine.next_attempt(), engine.next_attempt());
    let model = Scripted::from_fn(move |request, _| match request.history.len() {
        1 => {
            in_turn.send("a", Command::FollowUp(large_input(5))).unwrap();
            Reply::new().call_raw("c1", "work", "{}")
        }
        3 => Reply::text("y".repeat(9 << 20)),
        _ => Reply::text("Done."),
    });
    let work = Tool::raw(spec("work"), move |_, _| {
        in_call.send("b", Command::FollowUp(large_input(5))).unwrap_err();
        in_call.send("c", Command::FollowUp(large_input(2))).unwrap();
        // Only input is returned to the queue for the next run.
        let data = serde_json::json!("x".repeat(1 << 19)).into();
        let progress = Command::ToolProgress { call_id: "c1".to_owned(), data };
        in_call.send("p", progress).unwrap();
        std::future::ready("done")
    });
    let agent = Agent::new(model).with_tool(work.unwrap());
    let mut first = engine.next_attempt();
    let attempt = Attempt::run(&agent, "s", Vec::new(), "Work.").drive(&mut first);
    assert_eq!(attempt.await.unwrap_err().kind(), ErrorKind::TooLarge);
    let ids: Vec<String> = engine.queued().into_iter().map(|stored| stored.id).collect();
    assert_eq!(ids, ["a", "c"]);
    let mut next = engine.next_run();
    let attempt = Attempt::run(&agent, "s", engine.entries(), "Again.").drive(&mut next);
    assert_eq!(attempt.await.unwrap().reason, EndReason::Completed);
    assert_eq!(engine.queued(), []);
}

#[tokio::test(start_paused = true)]
async fn input_that_a_run_has_not_delivered_after_several_steps_still_counts_in_the_queue() {
    let engine = MemoryEngine::new();
    let in_turn = engine.next_attempt();
    let model = Scripted::from_fn(move |request, _| {
        let input_count = request.history.iter().filter_map(Item::as_user).count();
        match (results(&request.history).len(), input_count) {
            (0, _) => {
                in_turn.send("a", Command::FollowUp(large_input(5))).unwrap();
                return Reply::new().call_raw("c1", "work", "{}");
            }
            // The run has taken commands again, and still has the first input.
            (_, 1) => {
                let refused = in_turn.send("b", Command::FollowUp(large_input(5))).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
            }
            // The run has delivered the first input.
            _ => {}
        }
        Reply::text("Done.")
    });
    let work = Tool::raw(spec("work"), |_, _| std::future::ready("done"));
    let agent = Agent::new(model).with_tool(work.unwrap());
    let mut first = engine.next_attempt();
    let outcome = Attempt::run(&agent, "s", Vec::new(), "Work.").drive(&mut first).await.unwrap();
    assert_eq!(outcome.history.iter().filter_map(Item::as_user).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn verdicts_that_a_run_has_received_do_not_count_in_the_queue() {
    let engine = MemoryEngine::new();
    let in_turn = engine.next_attempt();
    let model = Scripted::from_fn(move |request, _| {
        if results(&request.history).is_empty() {
            return Reply::new().call_raw("c1", "work", "{}");
        }
        if request.history.iter().filter_map(Item::as_user).count() == 1 {
            in_turn.send("a", Command::FollowUp(large_input(5))).unwrap();
        }
        Reply::text("Done.")
    });
    let work = Tool::raw(spec("work"), |_, _| std::future::ready("done")).unwrap();
    let agent = Agent::new(model).with_tool(work.requires_approval()).interactive();
    let deny = async {
        let call = loop {
            match engine.status().awaited_calls.pop() {
                Some(call) => break call,
                None => tokio::task::yield_now().await,
            }
        };
        let verdict = Verdict::Deny("x".repeat(5 << 20));
        engine.send("v", Command::Verdict { call, verdict }).unwrap();
    };
    let mut first = engine.next_attempt();
    let attempt = Attempt::run(&agent, "s", Vec::new(), "Work.").drive(&mut first);
    let (outcome, ()) = join(attempt, deny).await;
    let history = outcome.unwrap().history;
    assert_eq!(history.iter().filter_map(Item::as_user).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn input_queued_before_a_run_is_in_the_runs_first_request() {
    let engine = MemoryEngine::new();
    engine.send("a", Command::Steer(vec![Item::user("Quickly.")])).unwrap();
    let agent = Agent::new(Scripted::new(["Done."]));
    let mut first = engine.next_attempt();
    let outcome = Attempt::run(&agent, "s", Vec::new(), "Work.").drive(&mut first).await.unwrap();
    let items = outcome.history.iter().map(|item| item.as_user().is_some());
    assert_eq!(items.collect::<Vec<_>>(), [true, true, false]);
}
