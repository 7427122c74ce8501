//! A run that is ended from outside at any operation ends in the same way in each attempt.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use turnstream::agent::Budget;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::event::EndReason;
use turnstream::hub::{Command, Hub};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::{Agent, History, Item, Outcome};

use crate::lossy_run::{LossyRun, Start};
use turnstream_test_support::cases::sample_step;
use turnstream_test_support::clock::paused_runtime;
use turnstream_test_support::tools::{nap_tool, spec};
use turnstream_testing::durable_suite::{Loss, LossMoment, MemoryEngine};

/// Interrupts of a run, and of its model.
const INTERRUPTS: [Command; 2] = [Command::Interrupt, Command::InterruptTurn];

fn results(history: &History) -> usize {
    history.iter().filter(|item| item.as_tool_result().is_some()).count()
}

/// A model that makes these calls, and then answers.
fn model(calls: &'static [&'static [(&'static str, &'static str)]]) -> Scripted {
    Scripted::from_fn(move |request, _| {
        let mut done = results(&request.history);
        for turn in calls {
            if done == 0 {
                let mut reply = Reply::new().say("Well.");
                for (at, (name, arguments)) in turn.iter().enumerate() {
                    let id = format!("c{}-{at}", results(&request.history));
                    reply = reply.call_raw(&id, name, arguments);
                }
                return reply;
            }
            done = done.saturating_sub(turn.len());
        }
        Reply::new().say("All ").say("is ").say("done.")
    })
}

/// Performs a run without a loss, and then with a loss at each operation; checks all of them.
async fn check_each_loss(make: impl Fn() -> LossyRun) -> Outcome {
    let run = make();
    let reference = run.drive().await.unwrap();
    run.check(&reference).await;
    for operation in 0..run.plan.operations() {
        for moment in [LossMoment::After(2), LossMoment::Kept] {
            let loss = Loss { operation, moment };
            let run = make().with_losses([loss]);
            let checked = async {
                let outcome = run.drive().await.unwrap();
                run.check(&outcome).await;
            };
            let checked = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(checked));
            if let Err(panic) = checked.await {
                println!("with a loss at {loss:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    reference
}

/// Sends a command before an operation of a run, the first time that an attempt reaches it.
fn sending_at(mut run: LossyRun, operation: usize, command: Command) -> LossyRun {
    let mut count = 0;
    run.before_operation =
        Some(Arc::new(Mutex::new(move |engine: &MemoryEngine, _: &'static str| {
            if count == operation {
                let _ = engine.send("w1", command.clone());
            }
            count += 1;
        })));
    run
}

fn busy_agent() -> Agent {
    let model = model(&[&[("nap", r#"{"ms":5}"#)], &[("nap", "{}"), ("nap", r#"{"ms":3}"#)]]);
    Agent::new(model).with_tool(nap_tool("nap").idempotent())
}

#[test]
fn a_run_interrupted_by_a_command_ends_identically_in_each_attempt() {
    paused_runtime().block_on(async {
        for operation in (0..14).step_by(sample_step(3)) {
            let make = || {
                let run =
                    LossyRun::new(&busy_agent(), &MemoryEngine::new(), Start::Input("Do it."));
                sending_at(run, operation, Command::Interrupt)
            };
            println!("interrupted before operation {operation}");
            check_each_loss(make).await;
        }
    });
}

#[test]
fn a_run_stopped_by_a_command_ends_identically_in_each_attempt() {
    paused_runtime().block_on(async {
        for operation in (0..14).step_by(sample_step(3)) {
            let make = || {
                let run =
                    LossyRun::new(&busy_agent(), &MemoryEngine::new(), Start::Input("Do it."));
                sending_at(run, operation, Command::StopAfterTurn)
            };
            println!("stopped before operation {operation}");
            check_each_loss(make).await;
        }
    });
}

#[test]
fn a_run_whose_model_is_interrupted_by_a_command_ends_identically_in_each_attempt() {
    paused_runtime().block_on(async {
        for operation in (0..14).step_by(sample_step(3)) {
            for steers in [false, true] {
                let make = || {
                    let run =
                        LossyRun::new(&busy_agent(), &MemoryEngine::new(), Start::Input("Do it."));
                    if steers {
                        let steer = Command::Steer(vec![Item::user("And this.")]);
                        run.engine.send("w1", steer).unwrap();
                    }
                    sending_at(run, operation, Command::InterruptTurn)
                };
                println!("the model is interrupted before operation {operation}");
                check_each_loss(make).await;
            }
        }
    });
}

/// An interrupt that names delivered input must have no effect, in an attempt that has not delivered
/// the input itself, too.
#[test]
fn an_interrupt_for_input_never_ends_the_answer_to_it() {
    paused_runtime().block_on(async {
        for operation in (0..14).step_by(sample_step(3)) {
            let make = || {
                let run =
                    LossyRun::new(&busy_agent(), &MemoryEngine::new(), Start::Input("Do it."));
                let steer = Command::Steer(vec![Item::user("And this.")]);
                run.engine.send("i1", steer).unwrap();
                let interrupt = Command::InterruptTurnFor { input_id: "i1".to_owned() };
                sending_at(run, operation, interrupt)
            };
            println!("the model is interrupted for input before operation {operation}");
            let outcome = check_each_loss(make).await;
            assert_eq!(outcome.reason, EndReason::Completed);
        }
    });
}

/// Sends an interrupt to an attempt's run through its hub on the `at`th call, counted across all
/// attempts.
#[derive(Clone)]
struct Interrupter {
    hub: Hub,
    command: Command,
    at: usize,
    asked: Arc<AtomicUsize>,
}

impl Interrupter {
    fn new(at: usize, command: Command) -> Self {
        Self { hub: Hub::new(), command, at, asked: Arc::default() }
    }

    /// In the middle of a poll of the run, the hub can interrupt only through the handle in this
    /// process.
    fn ask(&self) {
        if self.asked.fetch_add(1, Ordering::Relaxed) == self.at {
            let _ = self.hub.send("run", self.command.clone()).now_or_never();
        }
    }
}

/// An agent whose tools and hooks, and every poll of its model, may interrupt its run.
fn interrupting_agent(interrupter: &Interrupter) -> Agent {
    let given = || interrupter.clone();
    let (polled, prepared, judged, stopping, noted) = (given(), given(), given(), given(), given());
    let model = Scripted::from_fn(move |request, _| {
        polled.ask();
        let reply = Reply::new().say("Well ").say("now.").delay(Duration::from_millis(1));
        match results(&request.history) {
            0 => reply.call_raw("c1", "work", "{}"),
            1 => reply
                .call_raw("c2", "work", "{}")
                .call_raw("c3", "nobody", "{}")
                .call_raw("c4", "work", "{}"),
            _ => reply.say("Done."),
        }
    });
    let tool = given();
    let work = Tool::raw(spec("work"), move |_, _| {
        let tool = tool.clone();
        async move {
            tool.ask();
            tokio::task::yield_now().await;
            tool.ask();
            tokio::time::sleep(Duration::from_millis(1)).await;
            tool.ask();
            "done"
        }
    });
    Agent::new(model)
        .with_tool(work.unwrap())
        .with_hook(hook::prepare_request(move |_, request| {
            let prepared = prepared.clone();
            async move {
                prepared.ask();
                tokio::task::yield_now().await;
                prepared.ask();
                request
            }
        }))
        .with_hook(hook::before_tool(move |_, _| {
            let judged = judged.clone();
            async move {
                judged.ask();
                tokio::task::yield_now().await;
                judged.ask();
                CallDecision::Allow
            }
        }))
        .with_hook(hook::should_stop(move |_| {
            stopping.ask();
            async { false }
        }))
        .with_hook(hook::after_tool(move |_, _, _| noted.ask()))
}

#[test]
fn a_run_interrupted_by_its_own_code_ends_identically_in_each_attempt() {
    paused_runtime().block_on(async {
        let places = (0..24).step_by(sample_step(5));
        for (at, command) in places.flat_map(|at| INTERRUPTS.map(|command| (at, command))) {
            println!("{command:?} at the {at}th place");
            let make = || {
                let interrupter = Interrupter::new(at, command.clone());
                let agent = interrupting_agent(&interrupter);
                let mut run = LossyRun::new(&agent, &MemoryEngine::new(), Start::Input("Do it."));
                run.hub = Some(interrupter.hub);
                run
            };
            check_each_loss(make).await;
        }
    });
}

#[test]
fn a_run_interrupted_at_any_event_ends_identically_in_each_attempt() {
    paused_runtime().block_on(async {
        let places = (0..45).step_by(2 * sample_step(3));
        for (at, command) in places.flat_map(|at| INTERRUPTS.map(|command| (at, command))) {
            println!("{command:?} at event {at}");
            let make = || {
                let interrupter = Interrupter::new(at, command.clone());
                let mut run =
                    LossyRun::new(&busy_agent(), &MemoryEngine::new(), Start::Input("Do it."));
                run.hub = Some(interrupter.hub.clone());
                run.on_event = Some(Arc::new(move || interrupter.ask()));
                run
            };
            check_each_loss(make).await;
        }
    });
}

#[test]
fn a_time_limit_reached_at_any_time_ends_the_run_identically_in_each_attempt() {
    paused_runtime().block_on(async {
        for limit in (1..28).step_by(sample_step(4)) {
            for wrap_up in [None, Some(6)] {
                let make = || {
                    let calls: &[&[(&str, &str)]] = &[
                        &[("nap", r#"{"ms":5}"#)],
                        &[("nap", r#"{"ms":2}"#), ("nap", r#"{"ms":8}"#)],
                    ];
                    let model = model(calls);
                    let slow = Scripted::from_fn(move |request, _| {
                        let _ = &model;
                        let done = results(&request.history);
                        let reply = Reply::new().say("Well").delay(Duration::from_millis(2));
                        match done {
                            0 => reply.call_raw("c1", "nap", r#"{"ms":5}"#),
                            1 => reply.call_raw("c2", "nap", r#"{"ms":2}"#).call_raw(
                                "c3",
                                "nap",
                                r#"{"ms":8}"#,
                            ),
                            _ => reply.say("done").delay(Duration::from_millis(3)).say("."),
                        }
                    });
                    let mut budget = Budget::new().with_time_limit(Duration::from_millis(limit));
                    if let Some(time) = wrap_up {
                        budget =
                            budget.with_wrap_up().with_wrap_up_time(Duration::from_millis(time));
                    }
                    let agent = Agent::new(slow)
                        .with_tool(nap_tool("nap").idempotent())
                        .with_budget(budget)
                        .with_hook(hook::prepare_request(|_, request| async move {
                            tokio::time::sleep(Duration::from_millis(3)).await;
                            request
                        }));
                    LossyRun::new(&agent, &MemoryEngine::new(), Start::Input("Do it."))
                };
                println!("limit {limit} ms, wrap-up {wrap_up:?}");
                check_each_loss(make).await;
            }
        }
    });
}
