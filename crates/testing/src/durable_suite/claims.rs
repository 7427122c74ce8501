//! The checks that the suite runs.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::{BoxFuture, Either, join, select};
use turnstream::agent::hook::{CallDecision, Hook, HookFuture};
use turnstream::agent::{Agent, Budget, Limits, State};
use turnstream::context::{Compaction, Compactor, Window};
use turnstream::error::{Error, ErrorKind};
use turnstream::event::{EndReason, Event, ToolEvent};
use turnstream::hub::{Command, NotRunning};
use turnstream::item::{History, Item, PendingCall, ResultKind, ToolCall};
use turnstream::provider::Reply;
use turnstream::request::Request;
use turnstream::tool::{Tool, Toolkit, Verdict};

use crate::durable_suite::faulty_engine::{Loss, LossMoment, LossPlan};
use crate::durable_suite::host::EngineHost;
use crate::durable_suite::scenario::{
    Probe, Stage, Traces, call, count_text, for_each_loss, result_kind, results, spec,
};
use crate::lock::lock_ignoring_poison;

/// Creates an agent that calls two tools one after the other, then two at the same time, and then
/// answers.
fn busy_agent(probe: &Probe) -> Agent {
    let model = probe.model(|history| match results(history) {
        0 => call("c1", "first"),
        1 => call("c2", "second"),
        2 => call("c3", "first").call_raw("c4", "second", "{}"),
        _ => Reply::text("All is done."),
    });
    let tools = ["first", "second"].map(|name| probe.tool(name).idempotent());
    Agent::new(model).with_tools(tools)
}

pub(super) async fn an_attempt_lost_at_any_operation_changes_neither_history_nor_outcome(
    host: &dyn EngineHost,
) {
    for_each_loss(host, "same", async |stage, reference| {
        let outcome = stage.run(&busy_agent(&stage.probe), "Do it.").await.unwrap();
        let traces = stage.traces(outcome).await;
        assert_eq!(traces.outcome.reason, EndReason::Completed);
        if let Some(reference) = reference {
            assert_eq!(traces.entries, reference.entries);
            assert_eq!(traces.outcome.text, reference.outcome.text);
            assert_eq!(traces.outcome.new_items(), reference.outcome.new_items());
            assert_eq!(traces.outcome.turns, reference.outcome.turns);
        }
        traces
    })
    .await;
}

pub(super) async fn a_recorded_turn_is_not_requested_again(host: &dyn EngineHost) {
    for_each_loss(host, "turns", async |stage, reference| {
        let outcome = stage.run(&busy_agent(&stage.probe), "Do it.").await.unwrap();
        let most = if reference.is_some() { 5 } else { 4 };
        assert!(stage.probe.requests() <= most, "{} requests", stage.probe.requests());
        stage.traces(outcome).await
    })
    .await;
}

/// Checks that each call starts at most once, and that its result is consistent with how often it
/// has started and ended.
async fn check_calls_start_at_most_once(
    host: &dyn EngineHost,
    name: &str,
    agent: impl Fn(&Probe) -> Agent,
    calls: &[&str],
) {
    for_each_loss(host, name, async |stage, reference| {
        let outcome = stage.run(&agent(&stage.probe), "Do it.").await.unwrap();
        assert_eq!(outcome.reason, EndReason::Completed);
        for call_id in calls {
            let (begun, ended) = (stage.probe.begun(call_id), stage.probe.ended(call_id));
            let kind = result_kind(&outcome.history, call_id);
            assert!(begun <= 1, "`{call_id}` has begun {begun} times");
            match kind {
                Some(ResultKind::Ok) => assert_eq!((begun, ended), (1, 1), "`{call_id}`"),
                Some(ResultKind::Interrupted) => assert!(reference.is_some(), "`{call_id}`"),
                other => panic!("`{call_id}` has the result {other:?}"),
            }
        }
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn a_non_idempotent_call_starts_at_most_once(host: &dyn EngineHost) {
    let agent = |probe: &Probe| {
        let model = probe.model(|history| match results(history) {
            0 => call("c1", "pay"),
            1 => call("c2", "pay"),
            _ => Reply::text("Paid."),
        });
        Agent::new(model).with_tool(probe.tool("pay"))
    };
    check_calls_start_at_most_once(host, "in-place", agent, &["c1", "c2"]).await;
}

pub(super) async fn separately_executed_non_idempotent_calls_start_at_most_once(
    host: &dyn EngineHost,
) {
    let agent = |probe: &Probe| {
        let model = probe.model(|history| match results(history) {
            0 => call("c1", "pay").call_raw("c2", "pay", "{}").call_raw("c3", "pay", "{}"),
            _ => Reply::text("Paid."),
        });
        Agent::new(model).with_tool(probe.tool("pay"))
    };
    check_calls_start_at_most_once(host, "separate", agent, &["c1", "c2", "c3"]).await;
}

pub(super) async fn an_exclusive_non_idempotent_call_starts_at_most_once(host: &dyn EngineHost) {
    let agent = |probe: &Probe| {
        let model = probe.model(|history| match results(history) {
            0 => call("c1", "alone").call_raw("c2", "pay", "{}").call_raw("c3", "alone", "{}"),
            _ => Reply::text("Paid."),
        });
        Agent::new(model).with_tools([probe.tool("pay"), probe.tool("alone").exclusive()])
    };
    check_calls_start_at_most_once(host, "alone", agent, &["c1", "c2", "c3"]).await;
}

pub(super) async fn a_lost_idempotent_call_runs_again_with_its_idempotency_key(
    host: &dyn EngineHost,
) {
    for_each_loss(host, "again", async |stage, _| {
        let outcome = stage.run(&busy_agent(&stage.probe), "Do it.").await.unwrap();
        for call_id in ["c1", "c2", "c3", "c4"] {
            assert_eq!(result_kind(&outcome.history, call_id), Some(ResultKind::Ok));
            assert!(stage.probe.begun(call_id) <= 2);
        }
        let is_own = |key: &String| key.starts_with(&format!("{}/", stage.session));
        assert!(stage.probe.keys().iter().all(is_own), "{:?}", stage.probe.keys());
        stage.traces(outcome).await
    })
    .await;
}

/// Returns the results published by all attempts, grouped by call id.
fn published_results(stage: &Stage<'_>) -> HashMap<String, Vec<String>> {
    let mut given: HashMap<String, Vec<String>> = HashMap::new();
    for event in lock_ignoring_poison(&stage.events.attempts).iter().flatten() {
        if let Event::Tool(ToolEvent::Output(result)) = event {
            let text = format!("{} {}", result.kind, result.content.text());
            given.entry(result.call_id.clone()).or_default().push(text);
        }
    }
    given
}

pub(super) async fn a_published_result_never_changes(host: &dyn EngineHost) {
    for_each_loss(host, "results", async |stage, _| {
        let model = stage.probe.model(|history| match results(history) {
            0 => call("c1", "pay"),
            1 => call("c2", "pay").call_raw("c3", "pay", "{}"),
            _ => Reply::text("Paid."),
        });
        let agent = Agent::new(model).with_tool(stage.probe.tool("pay"));
        let outcome = stage.run(&agent, "Pay.").await.unwrap();
        for (call_id, given) in published_results(stage) {
            let first = given.first().unwrap();
            assert!(given.iter().all(|text| text == first), "`{call_id}`: {given:?}");
        }
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn the_outcome_is_recorded_before_it_is_published(host: &dyn EngineHost) {
    for_each_loss(host, "end", async |stage, _| {
        let outcome = stage.run(&busy_agent(&stage.probe), "Do it.").await.unwrap();
        let traces = stage.traces(outcome).await;
        for event in lock_ignoring_poison(&stage.events.attempts).iter().flatten() {
            if let Event::Finished(given) = event {
                assert_eq!(**given, traces.outcome);
            }
        }
        traces
    })
    .await;
}

pub(super) async fn input_queued_before_the_run_is_delivered_once(host: &dyn EngineHost) {
    for_each_loss(host, "before", async |stage, _| {
        stage.send("w1", Command::Steer(vec![Item::user("And be quick.")])).await.unwrap();
        let outcome = stage.run(&busy_agent(&stage.probe), "Do it.").await.unwrap();
        assert_eq!(count_text(&outcome.history, "And be quick."), 1);
        let events =
            lock_ignoring_poison(&stage.events.attempts).last().cloned().unwrap_or_default();
        let is_it = |event: &&Event| matches!(event, Event::Appended { id, .. } if id == "w1");
        assert_eq!(events.iter().filter(is_it).count(), 1, "its receipt is in one event");
        stage.traces(outcome).await
    })
    .await;
}

/// Creates an agent whose first call waits until the check lets the call continue.
fn gated_agent(probe: &Probe) -> Agent {
    let model = probe.model(|history| match results(history) {
        0 => call("c1", "wait"),
        1 if count_text(history, "First this.") == 0 => Reply::text("Done."),
        1 => call("c2", "work"),
        _ => Reply::text("Done."),
    });
    Agent::new(model).with_tools([probe.gated_tool("wait"), probe.tool("work").idempotent()])
}

/// Runs the agent from [`gated_agent`], and sends commands while its first call is running.
async fn run_and_send(
    stage: &Stage<'_>,
    commands: Vec<(&str, Command)>,
) -> (turnstream::event::Outcome, Vec<Result<(), Error>>) {
    let agent = gated_agent(&stage.probe);
    let commanding = async {
        stage.probe.gate_reached().await;
        let mut answers = Vec::new();
        for (id, command) in commands {
            answers.push(stage.send(id, command).await);
        }
        stage.probe.open_gate();
        answers
    };
    let (outcome, answers) = join(stage.run(&agent, "Do it."), commanding).await;
    (outcome.unwrap(), answers)
}

pub(super) async fn input_sent_while_a_tool_runs_is_delivered_once(host: &dyn EngineHost) {
    for_each_loss(host, "during", async |stage, _| {
        let steer = Command::Steer(vec![Item::user("First this.")]);
        let (outcome, sent) = run_and_send(stage, vec![("w1", steer)]).await;
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        assert_eq!(count_text(&outcome.history, "First this."), 1);
        assert_eq!(result_kind(&stage.history().await, "c2"), Some(ResultKind::Ok));
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn follow_ups_are_delivered_once_each(host: &dyn EngineHost) {
    for_each_loss(host, "follow", async |stage, _| {
        let follow = |text: &str| Command::FollowUp(vec![Item::user(text)]);
        let commands = vec![("w1", follow("Then left.")), ("w2", follow("Then right."))];
        let (outcome, _) = run_and_send(stage, commands).await;
        for text in ["Then left.", "Then right."] {
            assert_eq!(count_text(&outcome.history, text), 1, "{text}");
        }
        assert!(outcome.undelivered.is_empty());
        assert_eq!(outcome.turns, 4);
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn input_that_arrives_too_late_is_delivered_by_the_next_run(
    host: &dyn EngineHost,
) {
    for_each_loss(host, "late", async |stage, _| {
        let steer = Command::Steer(vec![Item::user("First this.")]);
        let commands = vec![("w1", Command::StopAfterTurn), ("w2", steer)];
        let (outcome, _) = run_and_send(stage, commands).await;
        assert_eq!(outcome.reason, EndReason::Stopped);
        let undelivered: Vec<_> = outcome.undelivered.iter().map(|input| &*input.id).collect();
        assert_eq!(undelivered, ["w2"]);
        let traces = stage.traces(outcome).await;
        let next = stage.run_safely(&gated_agent(&stage.probe), "Go on.").await;
        assert_eq!(count_text(&next.history, "First this."), 1);
        assert!(next.undelivered.is_empty());
        traces
    })
    .await;
}

pub(super) async fn an_interrupt_sent_while_a_tool_runs_ends_the_run(host: &dyn EngineHost) {
    for_each_loss(host, "interrupt", async |stage, _| {
        let interrupt = Command::InterruptWithReason("tea".to_owned());
        let (outcome, sent) = run_and_send(stage, vec![("w1", interrupt)]).await;
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        assert!(matches!(outcome.reason, EndReason::Interrupted(_)), "{:?}", outcome.reason);
        assert_eq!(outcome.why.as_deref(), Some("tea"));
        // The model reads the reason in a result of a call or, if all calls have run, in a message.
        let history = stage.history().await;
        let stored = history.iter().filter_map(|item| match item.as_tool_result() {
            Some(result) => Some(result.content.text()),
            None => item.as_user().map(turnstream::item::Content::text),
        });
        assert!(stored.into_iter().any(|text| text.ends_with(": tea")), "{history:?}");
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn a_stop_sent_while_a_tool_runs_ends_the_run_after_the_turn(
    host: &dyn EngineHost,
) {
    for_each_loss(host, "stop", async |stage, _| {
        let (outcome, _) = run_and_send(stage, vec![("w1", Command::StopAfterTurn)]).await;
        assert_eq!(outcome.reason, EndReason::Stopped);
        assert_eq!(result_kind(&outcome.history, "c1"), Some(ResultKind::Ok));
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn an_interrupt_of_a_run_that_has_ended_is_refused(host: &dyn EngineHost) {
    let stage = Stage::new(host, "ended", LossPlan::new());
    stage.run(&busy_agent(&stage.probe), "Do it.").await.unwrap();
    let error = stage.send("w1", Command::Interrupt).await.unwrap_err();
    assert!(error.find_source::<NotRunning>().is_some(), "{error}");
    let outcome = stage.run(&busy_agent(&stage.probe), "Again.").await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
}

/// Creates an agent whose first call requires approval.
fn asking_agent(probe: &Probe) -> Agent {
    let model = probe.model(|history| match results(history) {
        0 => call("c1", "pay").call_raw("c2", "look", "{}"),
        _ => Reply::text("Paid."),
    });
    Agent::new(model)
        .with_tools([probe.tool("pay").requires_approval(), probe.tool("look").idempotent()])
}

pub(super) async fn a_run_that_waits_for_an_approval_ends_and_is_resumed(host: &dyn EngineHost) {
    // First scenario: the run that ends with pending calls loses an attempt.
    for_each_loss(host, "pending", async |stage, _| {
        let outcome = stage.run(&asking_agent(&stage.probe), "Pay.").await.unwrap();
        assert_eq!(outcome.reason, EndReason::Pending);
        assert_eq!(stage.probe.begun("c1"), 0);
        stage.traces(outcome).await
    })
    .await;
    // Second scenario: the run that resumes the calls loses an attempt.
    for_each_loss(host, "resumed", async |stage, _| {
        let agent = asking_agent(&stage.probe);
        let pending = stage.run_safely(&agent, "Pay.").await.pending;
        let verdicts = pending.into_iter().map(|call| (call, Verdict::Approve)).collect();
        let outcome = stage.resume(&agent, verdicts).await.unwrap();
        assert_eq!(outcome.reason, EndReason::Completed);
        assert!(stage.probe.begun("c1") <= 1);
        assert_eq!(result_kind(&stage.history().await, "c2"), Some(ResultKind::Ok));
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn an_approved_call_of_a_failed_run_does_not_start_again(host: &dyn EngineHost) {
    let stage = Stage::new(host, "failed", LossPlan::new());
    let model = stage.probe.model(|history| match results(history) {
        0 => call("c1", "pay"),
        _ => Reply::text("Done."),
    });
    let probe = stage.probe.clone();
    let pay = Tool::raw(spec("pay"), move |_args, _cx| {
        probe.count();
        async { "x".repeat(9 << 20) }
    });
    let pay = pay.expect("the tool is one").requires_approval();
    let agent =
        Agent::new(model).with_toolkit(Toolkit::new([pay]).with_max_result_bytes(usize::MAX));
    let pending = stage.run(&agent, "Pay.").await.unwrap().pending;
    let verdicts = || pending.iter().map(|call| (call.clone(), Verdict::Approve)).collect();
    let error = stage.resume(&agent, verdicts()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    // The call may have started, so the request for a verdict is void.
    let error = stage.resume(&agent, verdicts()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let outcome = stage.resume(&agent, Vec::new()).await.unwrap();
    assert_eq!(outcome.reason, EndReason::Completed);
    assert_eq!(stage.probe.counted(), 1, "the call has begun twice");
    assert_eq!(result_kind(&stage.history().await, "c1"), Some(ResultKind::Interrupted));
}

pub(super) async fn a_denied_call_does_not_run(host: &dyn EngineHost) {
    for_each_loss(host, "denied", async |stage, _| {
        let agent = asking_agent(&stage.probe);
        let pending = stage.run_safely(&agent, "Pay.").await.pending;
        let verdicts = pending.into_iter().map(|call| (call, Verdict::deny("no"))).collect();
        let outcome = stage.resume(&agent, verdicts).await.unwrap();
        assert_eq!(result_kind(&outcome.history, "c1"), Some(ResultKind::Denied));
        assert_eq!(stage.probe.begun("c1"), 0);
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn a_verdict_that_answers_no_open_request_is_a_conflict_and_runs_nothing(
    host: &dyn EngineHost,
) {
    let stage = Stage::new(host, "conflict", LossPlan::new());
    let agent = asking_agent(&stage.probe);
    let pending = stage.run_safely(&agent, "Pay.").await.pending;
    let begun = stage.probe.keys();
    let old = |call: &PendingCall| {
        let approval_id = format!("before {}", call.approval_id);
        (PendingCall { approval_id, ..call.clone() }, Verdict::Approve)
    };
    let error = stage.resume(&agent, pending.iter().map(old).collect()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(stage.losses.attempts(), 1, "another attempt would have the same error");
    assert_eq!(stage.probe.keys(), begun);
    assert_eq!(stage.status().await.pending_calls(), pending);
    let verdicts = pending.into_iter().map(|call| (call, Verdict::Approve)).collect();
    let outcome = stage.resume(&agent, verdicts).await.unwrap();
    assert_eq!((outcome.reason, stage.probe.begun("c1")), (EndReason::Completed, 1));
}

pub(super) async fn an_interactive_run_waits_for_verdicts(host: &dyn EngineHost) {
    for_each_loss(host, "interactive", async |stage, _| {
        let model = stage.probe.model(|history| match results(history) {
            0 => call("c1", "pay").call_raw("c2", "pay", r#"{"n":2}"#),
            _ => Reply::text("Paid."),
        });
        let pay = stage.probe.tool("pay").requires_approval();
        let agent = Agent::new(model).with_tools([pay]).interactive();
        let run = std::pin::pin!(stage.run(&agent, "Pay."));
        let outcome = match select(run, std::pin::pin!(stage.approve_requests())).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((never, _)) => match never {},
        };
        let outcome = outcome.unwrap();
        assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.pending);
        assert!(stage.probe.begun("c1") <= 1 && stage.probe.begun("c2") <= 1);
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn an_approver_of_an_interactive_run_needs_only_the_status(host: &dyn EngineHost) {
    for_each_loss(host, "status", async |stage, _| {
        let model = stage.probe.model(|history| match results(history) {
            0 => call("c1", "pay").call_raw("c2", "pay", r#"{"n":2}"#),
            2 => call("c3", "pay"),
            _ => Reply::text("Paid."),
        });
        let pay = stage.probe.tool("pay").requires_approval();
        let agent = Agent::new(model).with_tools([pay]).interactive();
        let run = std::pin::pin!(stage.run(&agent, "Pay."));
        let outcome = match select(run, std::pin::pin!(stage.approve_awaited_calls())).await {
            Either::Left((outcome, _)) => outcome.unwrap(),
            Either::Right((never, _)) => match never {},
        };
        assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.pending);
        assert!(["c1", "c2", "c3"].iter().all(|call_id| stage.probe.begun(call_id) <= 1));
        let status = stage.status().await;
        assert_eq!((status.run, status.awaited_calls), (None, Vec::new()));
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn the_status_lists_a_call_only_while_the_run_waits_for_its_verdict(
    host: &dyn EngineHost,
) {
    let stage = Stage::new(host, "listed", LossPlan::new());
    let model = stage.probe.model(|history| match results(history) {
        0 => call("c1", "pay"),
        _ => Reply::text("Paid."),
    });
    let pay = stage.probe.gated_tool("pay").requires_approval();
    let agent = Agent::new(model).with_tool(pay).interactive();
    let approvals = std::pin::pin!(stage.approve_awaited_calls());
    let reached = std::pin::pin!(stage.probe.gate_reached());
    let acts = async {
        match select(reached, approvals).await {
            Either::Left(_) => {}
            Either::Right((never, _)) => match never {},
        }
        // The tool runs. An engine may apply what it writes with a delay.
        while !stage.status().await.awaited_calls.is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(stage.status().await.run.is_some());
        stage.probe.open_gate();
    };
    let (outcome, ()) = join(stage.run(&agent, "Pay."), acts).await;
    assert_eq!(outcome.unwrap().reason, EndReason::Completed);
}

pub(super) async fn an_interactive_run_ends_pending_after_its_limit(host: &dyn EngineHost) {
    for_each_loss(host, "limit", async |stage, _| {
        let budget = Budget::new().with_time_limit(Duration::from_millis(150));
        let agent = asking_agent(&stage.probe).with_budget(budget).interactive();
        let outcome = stage.run(&agent, "Pay.").await.unwrap();
        // A lost attempt may have used up the time limit.
        assert!(
            matches!(outcome.reason, EndReason::Pending | EndReason::Budget),
            "{:?}",
            outcome.reason
        );
        assert_eq!(stage.probe.begun("c1"), 0);
        let status = stage.status().await;
        assert_eq!((&status.run, &*status.awaited_calls), (&None, &[][..]));
        if outcome.reason == EndReason::Pending {
            assert_eq!(status.pending_calls(), outcome.pending);
        }
        stage.traces(outcome).await
    })
    .await;
}

fn agent_with_sub_agent(probe: &Probe, needs_approval: bool) -> Agent {
    let pay = match needs_approval {
        true => probe.tool("pay").requires_approval(),
        false => probe.tool("pay"),
    };
    let child = Agent::new(probe.model(|history| match results(history) {
        0 => call("i1", "pay"),
        _ => Reply::text("The child has paid."),
    }))
    .with_tool(pay);
    let model = probe.model(|history| match results(history) {
        0 => Reply::new().call_raw("c1", "child", r#"{"prompt":"Pay."}"#),
        _ => Reply::text("All is paid."),
    });
    Agent::new(model).with_tool(child.as_tool("child", "Pays").expect("a name for a tool"))
}

pub(super) async fn a_sub_agent_runs_at_most_once(host: &dyn EngineHost) {
    for_each_loss(host, "child", async |stage, reference| {
        let agent = agent_with_sub_agent(&stage.probe, false);
        let outcome = stage.run(&agent, "Pay.").await.unwrap();
        assert_eq!(outcome.reason, EndReason::Completed);
        assert!(stage.probe.begun("i1") <= 1, "the sub-agent began twice");
        if reference.is_none() {
            assert_eq!(result_kind(&outcome.history, "c1"), Some(ResultKind::Ok));
        }
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn a_sub_agent_that_waits_for_an_approval_is_resumed(host: &dyn EngineHost) {
    for_each_loss(host, "child-pending", async |stage, _| {
        let agent = agent_with_sub_agent(&stage.probe, true);
        let outcome = stage.run_safely(&agent, "Pay.").await;
        assert_eq!(outcome.reason, EndReason::Pending);
        let pending = outcome.pending.into_iter();
        let verdicts = pending.map(|call| (call, Verdict::Approve)).collect();
        let outcome = stage.resume(&agent, verdicts).await.unwrap();
        assert_eq!(outcome.reason, EndReason::Completed);
        assert!(stage.probe.begun("i1") <= 1);
        stage.traces(outcome).await
    })
    .await;
}

/// A hook whose future returns `Pending` once for each request.
struct SlowHook(Probe);

impl Hook for SlowHook {
    fn prepare_request(&self, _: &State, request: Request) -> HookFuture<'static, Request> {
        let probe = self.0.clone();
        Box::pin(async move {
            tokio::task::yield_now().await;
            probe.count();
            Ok(request)
        })
    }
}

pub(super) async fn a_slow_hook_is_called_once_for_each_request(host: &dyn EngineHost) {
    for_each_loss(host, "hook", async |stage, reference| {
        let agent = busy_agent(&stage.probe).with_hook(SlowHook(stage.probe.clone()));
        let outcome = stage.run(&agent, "Do it.").await.unwrap();
        let most = if reference.is_some() { 5 } else { 4 };
        assert!((4..=most).contains(&stage.probe.counted()), "{}", stage.probe.counted());
        stage.traces(outcome).await
    })
    .await;
}

/// A hook that returns different arguments each time it is called.
struct Rewriting(Probe);

impl Hook for Rewriting {
    fn before_tool<'a>(&'a self, _: &'a State, _: &'a ToolCall) -> HookFuture<'a, CallDecision> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(CallDecision::RewriteArguments(format!(r#"{{"n":{}}}"#, self.0.count())))
        })
    }
}

pub(super) async fn rewritten_arguments_are_recorded_with_the_call(host: &dyn EngineHost) {
    for_each_loss(host, "rewrite", async |stage, _| {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let model = stage.probe.model(|history| match results(history) {
            0 => call("c1", "show").call_raw("c2", "show", "{}"),
            _ => Reply::text("Shown."),
        });
        let see = std::sync::Arc::clone(&seen);
        let spec = crate::durable_suite::scenario::spec("show");
        let show = turnstream::tool::Tool::raw(spec, move |args, cx| {
            lock_ignoring_poison(&see).push((cx.call_id().to_owned(), args.to_string()));
            async { "shown" }
        });
        let show = show.unwrap().idempotent();
        let agent = Agent::new(model).with_tool(show).with_hook(Rewriting(stage.probe.clone()));
        let outcome = stage.run(&agent, "Show.").await.unwrap();
        let seen = lock_ignoring_poison(&seen).clone();
        for call_id in ["c1", "c2"] {
            let mut own = seen.iter().filter(|(id, _)| id == call_id).map(|(_, args)| args);
            let first = own.next().unwrap();
            assert!(own.all(|args| args == first), "`{call_id}` ran with {seen:?}");
        }
        stage.traces(outcome).await
    })
    .await;
}

/// A compactor whose future returns `Pending` once and then replaces all items except the last
/// item.
struct SlowCompactor(Probe);

impl Compactor for SlowCompactor {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        let (probe, len) = (self.0.clone(), history.len());
        Box::pin(async move {
            tokio::task::yield_now().await;
            probe.count();
            Ok((len > 2).then(|| Compaction::new(0, len - 1, vec![Item::user("Before.")])))
        })
    }
}

pub(super) async fn a_compaction_is_performed_once(host: &dyn EngineHost) {
    for_each_loss(host, "compact", async |stage, reference| {
        let long = "word ".repeat(2_000);
        stage.run_safely(&Agent::new(stage.probe.model(|_| Reply::text("Hm."))), &*long).await;
        let agent = busy_agent(&stage.probe)
            .with_window(Window::new(2_000))
            .with_compactor(SlowCompactor(stage.probe.clone()));
        let outcome = stage.run(&agent, "Do it.").await.unwrap();
        assert_eq!(outcome.reason, EndReason::Completed);
        let most = if reference.is_some() { 2 } else { 1 };
        assert!((1..=most).contains(&stage.probe.counted()), "{}", stage.probe.counted());
        let traces = stage.traces(outcome).await;
        if let Some(reference) = reference {
            assert_eq!(traces.entries, reference.entries);
        }
        traces
    })
    .await;
}

pub(super) async fn a_failing_model_ends_the_run_with_its_error(host: &dyn EngineHost) {
    for_each_loss(host, "failing", async |stage, _| {
        let model = stage.probe.model(|history| match results(history) {
            0 => call("c1", "work"),
            _ => Reply::new().say("Well").fail(Error::new(ErrorKind::Auth, "the key is wrong")),
        });
        let agent = Agent::new(model).with_tool(stage.probe.tool("work").idempotent());
        let outcome = stage.run(&agent, "Do it.").await.unwrap();
        assert_eq!(outcome.reason, EndReason::ProviderError);
        let error = outcome.error.as_ref().unwrap();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Auth, "the key is wrong"));
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn a_reply_that_is_cut_off_is_requested_again(host: &dyn EngineHost) {
    for_each_loss(host, "breaks", async |stage, reference| {
        let probe = stage.probe.clone();
        let model = stage.probe.model(move |_| match probe.count() {
            1 => Reply::new().say("The answer").disconnect(),
            _ => Reply::text("The answer is five."),
        });
        let limits = Limits::default();
        let outcome = stage.run(&Agent::new(model).with_limits(limits), "How many?").await.unwrap();
        assert_eq!(outcome.text, "The answer is five.");
        if let Some(reference) = reference {
            assert_eq!(outcome.text, reference.outcome.text);
        }
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn the_tool_call_limit_is_enforced(host: &dyn EngineHost) {
    for_each_loss(host, "calls", async |stage, _| {
        let agent = busy_agent(&stage.probe).with_budget(Budget::new().with_tool_calls(3));
        let outcome = stage.run(&agent, "Do it.").await.unwrap();
        assert_eq!(outcome.reason, EndReason::Budget);
        assert_eq!(result_kind(&outcome.history, "c3"), Some(ResultKind::Ok));
        assert_eq!(result_kind(&outcome.history, "c4"), Some(ResultKind::Budget));
        assert_eq!(stage.probe.begun("c4"), 0);
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn the_next_run_of_a_session_continues_its_history(host: &dyn EngineHost) {
    for_each_loss(host, "next", async |stage, reference| {
        stage.run_safely(&busy_agent(&stage.probe), "Do it.").await;
        let echo = stage.probe.model(|history| Reply::text(format!("{} items", history.len())));
        let outcome = stage.run(&Agent::new(echo), "How long is it?").await.unwrap();
        if let Some(reference) = reference {
            assert_eq!(outcome.text, reference.outcome.text);
        }
        stage.traces(outcome).await
    })
    .await;
}

pub(super) async fn a_failed_run_is_settled_by_the_next_run(host: &dyn EngineHost) {
    // Only a few losses are injected, because the turn that ends the first run is large.
    for operation in [1, 2, 4] {
        let losses = LossPlan::with_losses([Loss { operation, moment: LossMoment::After(2) }]);
        let stage = Stage::new(host, "settle", losses);
        let model = stage.probe.model(|history| match results(history) {
            0 => call("c1", "work"),
            _ => Reply::text("x".repeat(9 << 20)),
        });
        let agent = Agent::new(model).with_tool(stage.probe.tool("work").idempotent());
        let error = stage.without_losses().run(&agent, "Do it.").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let outcome = stage.run(&busy_agent(&stage.probe), "Go on.").await.unwrap();
        assert_eq!(outcome.reason, EndReason::Completed);
        assert_eq!(stage.losses.attempts(), 2);
        let history = stage.history().await;
        assert!(history.is_settled());
        assert_eq!((count_text(&history, "Do it."), count_text(&history, "Go on.")), (1, 1));
        assert_eq!(result_kind(&history, "c1"), Some(ResultKind::Ok));
    }
}

pub(super) async fn a_turn_larger_than_eight_mebibytes_ends_the_run(host: &dyn EngineHost) {
    let stage = Stage::new(host, "large", LossPlan::new());
    let model = stage.probe.model(|_| Reply::text("x".repeat(9 << 20)));
    let error = stage.run(&Agent::new(model), "Write a novel.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!((stage.probe.requests(), stage.losses.attempts()), (1, 1), "it was requested once");
    // The session can still start new runs.
    let next = stage.run_safely(&busy_agent(&stage.probe), "Then do it.").await;
    assert_eq!(next.reason, EndReason::Completed);
    assert!(stage.history().await.is_settled());
}

pub(super) async fn a_run_survives_the_loss_of_two_attempts(host: &dyn EngineHost) {
    let stage = Stage::new(host, "reference", LossPlan::new());
    let outcome = stage.run(&busy_agent(&stage.probe), "Do it.").await.unwrap();
    let (reference, operations) = (stage.traces(outcome).await, stage.losses.operations());
    for first in 0..operations {
        let others = [first, (first + 1) % operations, operations - 1];
        let count = if host.is_thorough() { others.len() } else { 1 };
        for second in others.into_iter().cycle().skip(first).take(count) {
            let loss = |operation| Loss { operation, moment: LossMoment::After(2) };
            let losses = LossPlan::with_losses([loss(first), loss(second)]);
            let stage = Stage::new(host, "two", losses);
            let outcome = stage.run(&busy_agent(&stage.probe), "Do it.").await.unwrap();
            let traces: Traces = stage.traces(outcome).await;
            assert_eq!(stage.losses.attempts(), 3, "{first}, {second}");
            assert_eq!(traces.entries, reference.entries, "{first}, {second}");
            for call_id in ["c1", "c2", "c3", "c4"] {
                assert!(stage.probe.begun(call_id) <= 3);
            }
        }
    }
}
