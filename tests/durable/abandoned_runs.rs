//! Runs that end in the middle for good. No later run may start the calls that they may have
//! started.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use turnstream::durable::Attempt;
use turnstream::event::EndReason;
use turnstream::item::{PendingCall, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{SessionState, restore_history};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, ErrorKind, History, Item};

use turnstream_test_support::tools::spec;
use turnstream_testing::durable_suite::{Loss, LossMoment, LossPlan, MemoryEngine};

const MOMENTS: [LossMoment; 5] = [
    LossMoment::Before,
    LossMoment::After(1),
    LossMoment::After(2),
    LossMoment::After(4),
    LossMoment::Kept,
];

/// Counts how often the tool of each call has begun.
#[derive(Clone, Default)]
struct Begun([Arc<AtomicUsize>; 2]);

impl Begun {
    fn counts(&self) -> [usize; 2] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn tool(&self, at: usize, name: &str) -> Tool {
        let count = Arc::clone(&self.0[at]);
        let tool = Tool::raw(spec(name), move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::task::yield_now().await;
                "done"
            }
        });
        tool.unwrap()
    }
}

fn results(history: &History) -> Vec<(ResultKind, String)> {
    let results = history.iter().filter_map(Item::as_tool_result);
    results.map(|result| (result.kind, result.content.text())).collect()
}

/// An agent that makes two calls with tools that `declare` completes.
fn agent_with(begun: &Begun, declare: impl Fn(Tool) -> Tool) -> Agent {
    let model = Scripted::from_fn(|request, _| match results(&request.history).len() {
        0 => Reply::new().call_raw("c1", "pay", "{}").call_raw("c2", "send", "{}"),
        _ => Reply::text("Done."),
    });
    Agent::new(model).with_tools([declare(begun.tool(0, "pay")), declare(begun.tool(1, "send"))])
}

/// An agent that makes two calls, which both need an approval.
fn agent(begun: &Begun) -> Agent {
    agent_with(begun, Tool::requires_approval)
}

fn approve(calls: &[PendingCall]) -> Vec<(PendingCall, Verdict)> {
    calls.iter().map(|call| (call.clone(), Verdict::Approve)).collect()
}

/// Runs until two calls are pending.
async fn pending_calls(agent: &Agent, engine: &mut MemoryEngine) -> Vec<PendingCall> {
    let outcome = Attempt::run(agent, "s", Vec::new(), "Pay.").drive(engine).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Pending);
    outcome.pending
}

/// The run that resumes the calls is abandoned at each of its operations. The next run gets the
/// same verdicts if the calls are still pending, or none, or new input. `declare` completes the
/// tools of the next run.
async fn check_abandoned_runs(
    prepare: impl Fn(MemoryEngine, &Agent) -> MemoryEngine,
    declare: impl Fn(Tool) -> Tool,
) {
    let (mut has_started, mut was_approvable) = (0, 0);
    for (moment, with_verdicts) in MOMENTS.iter().flat_map(|it| [(*it, true), (*it, false)]) {
        for operation in 0.. {
            let begun = Begun::default();
            let agent = agent(&begun);
            let mut first = prepare(MemoryEngine::new(), &agent);
            let calls = pending_calls(&agent, &mut first).await;
            let second = first.next_run();
            let plan = LossPlan::with_losses([Loss { operation, moment }]);
            let resumed = Attempt::resume(&agent, "s", second.entries(), approve(&calls));
            let ended = resumed.drive(&mut plan.wrap(second.next_attempt())).await;
            if ended.is_ok() {
                assert!(operation > 4, "the run has {operation} operations");
                break;
            }
            let before = begun.counts();
            has_started += usize::from(before != [0, 0]);
            let entries = second.entries();
            let place = format!("{operation}, {moment:?}, {with_verdicts}, {before:?}");
            let history = match SessionState::from_entries(entries.clone()) {
                // The abandoned run has saved its answer.
                SessionState::Idle => restore_history("s", entries),
                state => {
                    let is_pending = matches!(state, SessionState::Pending { .. });
                    was_approvable += usize::from(is_pending);
                    let verdicts = match is_pending {
                        true => approve(&calls),
                        false => {
                            check_void_verdicts(&agent, &second, &calls).await;
                            Vec::new()
                        }
                    };
                    let agent = agent_with(&begun, &declare);
                    let mut third = prepare(second.next_run(), &agent);
                    let attempt = match with_verdicts {
                        true => Attempt::resume(&agent, "s", entries, verdicts),
                        false => Attempt::run(&agent, "s", entries, "Never mind."),
                    };
                    let outcome = attempt.drive(&mut third).await;
                    outcome.unwrap_or_else(|error| panic!("{place}: {error}")).history
                }
            };
            let results = results(&history);
            assert_eq!(results.len(), 2, "{place}");
            for (at, (kind, text)) in results.iter().enumerate() {
                let count = begun.counts()[at];
                assert!(count <= 1, "{place}: a call has begun twice");
                assert!(before[at] == 0 || text != "Interrupted by user", "{place}");
                assert_eq!(*kind == ResultKind::Ok, text == "done", "{place}");
            }
        }
    }
    assert!(has_started > 0 && was_approvable > 0, "{has_started}, {was_approvable}");
}

/// Checks that verdicts on calls that may have started are a conflict.
async fn check_void_verdicts(agent: &Agent, engine: &MemoryEngine, calls: &[PendingCall]) {
    let resumed = Attempt::resume(agent, "s", engine.entries(), approve(calls));
    let error = resumed.drive(&mut engine.next_run()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

#[tokio::test(start_paused = true)]
async fn approved_calls_of_a_run_abandoned_at_any_operation_do_not_start_again() {
    check_abandoned_runs(|engine, _| engine, Tool::requires_approval).await;
}

#[tokio::test(start_paused = true)]
async fn approved_calls_that_are_executed_separately_do_not_start_again() {
    check_abandoned_runs(MemoryEngine::with_worker, Tool::requires_approval).await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_an_abandoned_run_are_not_repeated_by_an_idempotent_version_of_their_tools() {
    check_abandoned_runs(|engine, _| engine, |tool| tool.requires_approval().idempotent()).await;
}

#[tokio::test(start_paused = true)]
async fn a_later_attempt_does_not_repeat_calls_with_an_idempotent_version_of_their_tools() {
    let prepares: [fn(MemoryEngine, &Agent) -> MemoryEngine; 2] =
        [|engine, _| engine, MemoryEngine::with_worker];
    let mut interrupted = 0;
    for (prepare, moment) in prepares.iter().flat_map(|it| MOMENTS.map(|moment| (it, moment))) {
        for operation in 0.. {
            let begun = Begun::default();
            let agent = agent_with(&begun, |tool| tool);
            let engine = prepare(MemoryEngine::new(), &agent);
            let attempt = Attempt::run(&agent, "s", Vec::new(), "Pay.");
            let plan = LossPlan::with_losses([Loss { operation, moment }]);
            if attempt.drive(&mut plan.wrap(engine.next_attempt())).await.is_ok() {
                break;
            }
            let later = agent_with(&begun, Tool::idempotent);
            let attempt = Attempt::run(&later, "s", Vec::new(), "Pay.");
            let mut engine = prepare(engine.next_attempt(), &later);
            let outcome = attempt.drive(&mut engine).await.unwrap();
            let counts = begun.counts();
            assert!(counts.iter().all(|count| *count <= 1), "{operation}, {moment:?}: {counts:?}");
            let results = results(&outcome.history);
            interrupted +=
                results.iter().filter(|(kind, _)| *kind == ResultKind::Interrupted).count();
        }
    }
    assert!(interrupted > 0);
}

#[tokio::test(start_paused = true)]
async fn calls_of_an_abandoned_run_are_repeated_only_if_both_versions_of_their_tools_are_idempotent()
 {
    for (declare, later, is_repeated) in [
        (Tool::idempotent as fn(Tool) -> Tool, Tool::idempotent as fn(Tool) -> Tool, true),
        (Tool::idempotent, |tool| tool, false),
        (|tool| tool, Tool::idempotent, false),
    ] {
        let mut repeated = 0;
        for (moment, operation) in MOMENTS.iter().flat_map(|it| (0..12).map(move |n| (*it, n))) {
            let begun = Begun::default();
            let agent = agent_with(&begun, declare);
            let first = MemoryEngine::new();
            let attempt = Attempt::run(&agent, "s", Vec::new(), "Pay.");
            let plan = LossPlan::with_losses([Loss { operation, moment }]);
            let lost = attempt.drive(&mut plan.wrap(first.next_attempt())).await.is_err();
            let before = begun.counts();
            let entries = first.entries();
            let state = SessionState::from_entries(entries.clone());
            if !lost || !matches!(state, SessionState::Unfinished { .. }) {
                continue;
            }
            let agent = agent_with(&begun, later);
            let resumed = Attempt::resume(&agent, "s", entries, Vec::new());
            resumed.drive(&mut first.next_run()).await.unwrap();
            let is_repeat = |(after, before): (usize, usize)| before > 0 && after > before;
            repeated += begun.counts().into_iter().zip(before).filter(|it| is_repeat(*it)).count();
        }
        assert_eq!(repeated > 0, is_repeated, "{repeated}");
    }
}
