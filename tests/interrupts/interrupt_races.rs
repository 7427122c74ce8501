//! An interrupt that coincides with other endings, sub-agents and approvals.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::time::sleep;
use turnstream::agent::Budget;
use turnstream::agent::hook::{self, CallDecision, Hook, StopDecision};
use turnstream::event::{EndReason, InterruptedPhase};
use turnstream::item::{PendingCall, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::Tool;
use turnstream::{Agent, Error, ErrorKind, Event, History, Request, Run, RunHandle};

use turnstream_test_support::items::token_usage;
use turnstream_test_support::replays;
use turnstream_test_support::runs::{
    check_outcome, collect_rest, final_outcome, is_tool_started, limits_with_max_turns, pull_ready,
    pull_until, reply_calling, result_kinds, result_summaries, scripted_agent,
};
use turnstream_test_support::tools::{Counter, counted_tool, ok_tool, pending_tool, spec};

const INTERRUPTED_STREAMING: EndReason = EndReason::Interrupted(InterruptedPhase::Streaming);
const INTERRUPTED_TOOLS: EndReason = EndReason::Interrupted(InterruptedPhase::Tools);

/// The handle of a run, for hooks and tools that are created before the run.
#[derive(Clone, Default)]
struct HandleSlot(Arc<Mutex<Option<RunHandle>>>);

impl HandleSlot {
    fn set(&self, run: &Run) {
        *self.0.lock().unwrap() = Some(run.handle());
    }

    fn interrupt(&self) {
        self.0.lock().unwrap().as_ref().unwrap().interrupt();
    }

    fn stop_after_turn(&self) {
        self.0.lock().unwrap().as_ref().unwrap().stop_after_turn();
    }
}

/// A hook that interrupts its run as soon as it is called, and then allows the run to continue.
fn interrupting_hook(held: &HandleSlot, says: StopDecision) -> impl Hook + 'static {
    let held = held.clone();
    hook::before_stop(move |_, _| {
        held.interrupt();
        let says = says.clone();
        async move { says }
    })
}

mod interrupt_versus_other_endings {
    //! An interrupt overrides whatever else ends the run in the same poll.

    use super::*;

    #[tokio::test]
    async fn no_hook_can_override_an_interrupt() {
        let why = || "why".to_owned();
        for says in [
            StopDecision::Allow,
            StopDecision::Continue(why()),
            StopDecision::EndRun(why()),
            StopDecision::Blocked(why()),
            StopDecision::Unproven(why()),
        ] {
            let held = HandleSlot::default();
            let (agent, model) = scripted_agent(["done".into(), "never".into()], vec![]);
            let mut run = agent.with_hook(interrupting_hook(&held, says.clone())).run("go");
            held.set(&run);
            let events = collect_rest(&mut run).await;
            check_outcome(final_outcome(&events), INTERRUPTED_STREAMING, 1);
            assert_eq!(model.requests().len(), 1, "{says:?}");
            assert_eq!(final_outcome(&events).text, "done", "the text is kept");
            assert_eq!(
                (&final_outcome(&events).why, &final_outcome(&events).proof),
                (&None, &None),
                "{says:?}"
            );
        }
    }

    #[tokio::test]
    async fn an_interrupt_from_a_hook_overrides_that_hooks_answer() {
        let held = HandleSlot::default();
        for (name, agent, model) in agents_with_interrupting_hooks(&held) {
            let mut run = agent.run("go");
            held.set(&run);
            let events = collect_rest(&mut run).await;
            let outcome = final_outcome(&events);
            assert!(matches!(outcome.reason, EndReason::Interrupted(_)), "{name}: {outcome:?}");
            assert_eq!((&outcome.error, outcome.pending.len()), (&None, 0), "{name}");
            assert!(model.requests().len() <= 1, "{name}: nothing is sent any more");
            assert!(outcome.history.settled().is_settled(), "{name}");
            assert!(run.next().await.is_none(), "{name}");
        }
    }

    #[tokio::test]
    async fn an_interrupt_overrides_a_simultaneous_stop() {
        for interrupts_first in [true, false] {
            let held = HandleSlot::default();
            let (at, answers) = (held.clone(), Counter::default());
            let tool = counted_tool("t", &answers, move |_| {
                if interrupts_first {
                    at.interrupt();
                    at.stop_after_turn();
                } else {
                    at.stop_after_turn();
                    at.interrupt();
                }
                std::future::ready("fine".to_owned())
            });
            let (agent, model) =
                scripted_agent([reply_calling("c1", "t"), "never".into()], vec![tool]);
            let run = agent.run("go");
            held.set(&run);
            let outcome = run.outcome().await;
            assert!(matches!(outcome.reason, EndReason::Interrupted(_)), "{outcome:?}");
            assert_eq!((model.requests().len(), answers.started_count()), (1, 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_overrides_a_simultaneous_limit() {
        // The time limit is reached.
        let (agent, _) = scripted_agent(
            [reply_calling("c1", "t")],
            vec![pending_tool("t", &Counter::default())],
        );
        let limited = agent.with_budget(Budget::new().with_time_limit(Duration::from_secs(1)));
        let mut run = limited.run("go");
        pull_ready(&mut run);
        tokio::time::advance(Duration::from_secs(2)).await;
        run.interrupt();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_TOOLS, 1);
        assert_eq!(
            (result_kinds(outcome.new_items()), outcome.budget.as_ref()),
            (vec![ResultKind::Interrupted], None)
        );
        // The last turn is used up, or the tokens are.
        for budget in [Budget::new(), Budget::new().with_total_tokens(1)] {
            let reply = reply_calling("c1", "t").usage(token_usage(1, 0));
            let (agent, _) =
                scripted_agent([reply, "never".into()], vec![ok_tool("t", &Counter::default())]);
            let mut run = agent.with_limits(limits_with_max_turns(1)).with_budget(budget).run("go");
            pull_until(&mut run, |event| event.tool_output().is_some()).await;
            run.interrupt();
            let outcome = run.outcome().await;
            assert!(matches!(outcome.reason, EndReason::Interrupted(_)), "{outcome:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_overrides_a_simultaneous_failure() {
        let fails = || Error::new(ErrorKind::Server, "broken");
        let reply = Reply::text("x").delay(Duration::from_secs(1)).fail(fails());
        let mut run = scripted_agent([reply], vec![]).0.run("go");
        pull_ready(&mut run);
        tokio::time::advance(Duration::from_secs(2)).await;
        run.interrupt();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_STREAMING, 1);
        assert_eq!(outcome.error, None);
    }

    #[tokio::test]
    async fn a_tool_that_reports_cancellation_has_merely_failed() {
        let cancelled =
            Tool::raw(spec("t"), |_, _| async { Err::<(), _>("operation was cancelled") }).unwrap();
        let (agent, _) = scripted_agent([reply_calling("c1", "t"), "done".into()], vec![cancelled]);
        let outcome = agent.run("go").outcome().await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Error]);
    }

    #[tokio::test]
    async fn a_tool_that_interrupts_its_run_keeps_its_result() {
        let held = HandleSlot::default();
        let at = held.clone();
        let tool = counted_tool("t", &Counter::default(), move |_| {
            at.interrupt();
            async { "fine".to_owned() }
        });
        let (agent, model) = scripted_agent(
            [reply_calling("c1", "t").call_raw("c2", "t", "{}"), "never".into()],
            vec![tool],
        );
        let mut run = agent.run("go");
        held.set(&run);
        let events = collect_rest(&mut run).await;
        check_outcome(final_outcome(&events), INTERRUPTED_TOOLS, 1);
        assert_eq!(result_kinds(final_outcome(&events).new_items()).len(), 2);
        assert_eq!(model.requests().len(), 1);
    }
}

/// All deciding hooks, each of which interrupts its run, and then answers normally, ends the run in
/// another way, or fails.
fn agents_with_interrupting_hooks(held: &HandleSlot) -> Vec<(&'static str, Agent, Scripted)> {
    let failure = || Error::new(ErrorKind::Other, "the hook");
    let world =
        || scripted_agent([reply_calling("c1", "t"), "done".into(), "never".into()], vec![]);
    let mut agents = Vec::new();
    let mut add = |name, hook: Box<dyn Fn(Agent) -> Agent>| {
        let (agent, model) = world();
        let agent = agent.with_tools([ok_tool("t", &Counter::default())]);
        agents.push((name, hook(agent), model));
    };
    macro_rules! hooks {
        ($($name:literal $kind:ident |$($given:ident),*| $answer:expr;)*) => {$({
            let held = held.clone();
            add($name, Box::new(move |agent| {
                let held = held.clone();
                agent.with_hook(hook::$kind(move |$($given),*| {
                    held.interrupt();
                    async move { $answer }
                }))
            }));
        })*};
    }
    hooks! {
        "the context" transform_context |_state, context| context;
        "no context" transform_context |_state, _context| Err::<History, _>(failure());
        "the request" prepare_request |_state, request| request;
        "no request" prepare_request |_state, _request| Err::<Request, _>(failure());
        "run it" before_tool |_state, _call| CallDecision::Allow;
        "not that" before_tool |_state, _call| CallDecision::Deny("no".into());
        "ask" before_tool |_state, _call| CallDecision::RequireApproval;
        "no answer" before_tool |_state, _call| Err::<CallDecision, _>(failure());
        "go on" should_stop |_state| false;
        "stop" should_stop |_state| true;
        "unknown" should_stop |_state| Err::<bool, _>(failure());
    }
    agents
}

fn agent_with_child(child: &Scripted) -> (Agent, Scripted) {
    let tool = Agent::new(child.clone())
        .with_recorder(replays::replaying_recorder())
        .as_tool("child", "Looks")
        .unwrap();
    let asks = Reply::new().call_raw("c1", "child", r#"{"prompt":"look"}"#);
    scripted_agent([asks, "done without it".into()], vec![tool])
}

mod interrupt_and_sub_agents {
    //! Interrupts of sub-agents and of their parents.

    use super::*;

    #[tokio::test]
    async fn an_interrupted_sub_agent_is_one_failed_result_for_its_parent() {
        let child = Scripted::new([Reply::text("half of it").hang()]);
        let (agent, _) = agent_with_child(&child);
        let mut run = agent.run("go");
        pull_ready(&mut run);
        run.handle().sub_agent_handle("c1").unwrap().interrupt();
        let events = collect_rest(&mut run).await;
        let outcome = final_outcome(&events);
        check_outcome(outcome, EndReason::Completed, 2);
        let [(id, kind, text)] = &result_summaries(outcome.new_items())[..] else {
            panic!("{outcome:?}")
        };
        assert_eq!((*id, *kind), ("c1", ResultKind::Error));
        assert!(text.contains("half of it") && text.contains("interrupted"), "{text}");
        assert_eq!(child.in_flight(), 0);
    }

    #[tokio::test]
    async fn an_interrupted_parent_drops_its_sub_agent_and_keeps_its_history() {
        let child = Scripted::new([Reply::text("half of it").hang()]);
        let (agent, model) = agent_with_child(&child);
        let mut run = agent.run("go");
        pull_ready(&mut run);
        assert_eq!(child.in_flight(), 1);
        run.interrupt();
        let first = run.next().await.unwrap().unwrap();
        assert!(first.tool_output().is_some());
        assert_eq!(child.in_flight(), 0);
        let story = run.journal().nested_journal("c1").unwrap().history();
        let outcome = run.outcome().await;
        check_outcome(&outcome, INTERRUPTED_TOOLS, 1);
        let expected = ("c1", ResultKind::Interrupted, "Interrupted mid-execution".to_owned());
        assert_eq!(result_summaries(outcome.new_items()), [expected]);
        assert_eq!(model.requests().len(), 1);
        assert_eq!(story.len(), 2);
        let last = story.last().unwrap();
        assert_eq!((last.as_text(), last.interrupted), (Some("half of it"), true));
    }
}

fn run_asking_for_approval(counter: &Counter) -> (Run, PendingCall) {
    let (agent, _) = scripted_agent(
        [reply_calling("c1", "t"), "never".into()],
        vec![ok_tool("t", counter).requires_approval()],
    );
    let mut run = agent.interactive().run("go");
    let events = pull_ready(&mut run);
    let asked = events.iter().find_map(Event::approval_request).unwrap();
    (run, asked)
}

#[track_caller]
fn assert_refused(verdict: Result<(), Error>) {
    assert_eq!(verdict.unwrap_err().kind(), ErrorKind::Conflict);
}

mod interrupt_and_approvals {
    //! Interrupts while a call awaits approval, and verdicts that arrive too late.

    use super::*;

    #[tokio::test]
    async fn a_call_awaiting_approval_is_answered_as_interrupted() {
        let counter = Counter::default();
        let (mut run, asked) = run_asking_for_approval(&counter);
        let handle = run.handle();
        handle.interrupt();
        let events = collect_rest(&mut run).await;
        check_outcome(final_outcome(&events), INTERRUPTED_TOOLS, 1);
        let expected = ("c1", ResultKind::Interrupted, "Interrupted by user".to_owned());
        assert_eq!(result_summaries(final_outcome(&events).new_items()), [expected]);
        assert!(final_outcome(&events).pending.is_empty());
        assert_refused(handle.approve(&asked));
        assert_refused(handle.deny(&asked, "too late"));
        assert!(run.next().await.is_none());
        assert_eq!(counter.started_count(), 0);
    }

    #[tokio::test]
    async fn an_approval_after_a_drop_or_suspension_is_rejected() {
        let counter = Counter::default();
        let (run, asked) = run_asking_for_approval(&counter);
        let handle = run.handle();
        drop(run);
        assert_refused(handle.approve(&asked));

        let (agent, _) = scripted_agent(
            [reply_calling("c1", "t")],
            vec![ok_tool("t", &counter).requires_approval()],
        );
        let run = agent.run("go");
        let handle = run.handle();
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Pending, 1);
        assert_refused(handle.approve(&outcome.pending[0]));
        assert_eq!(counter.started_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_is_accepted_until_the_last_sibling_has_ended() {
        for in_time in [true, false] {
            let (counter, slow) = (Counter::default(), Counter::default());
            let naps = counted_tool("nap", &slow, |_| async {
                sleep(Duration::from_secs(1)).await;
                "rested".to_owned()
            });
            let reply = reply_calling("c1", "t").call_raw("c2", "nap", "{}");
            let tools = vec![ok_tool("t", &counter).requires_approval(), naps];
            let (agent, _) = scripted_agent([reply, "done".into()], tools);
            let mut run = agent.run("go");
            let asked = pull_until(&mut run, |event| event.approval_request().is_some()).await;
            pull_until(&mut run, is_tool_started).await;
            if in_time {
                run.approve(asked.approval_request().unwrap()).unwrap();
            }
            let handle = run.handle();
            let outcome = run.outcome().await;
            if in_time {
                check_outcome(&outcome, EndReason::Completed, 2);
                assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Ok; 2]);
            } else {
                check_outcome(&outcome, EndReason::Pending, 1);
                assert_eq!(outcome.pending, [asked.approval_request().unwrap()]);
                assert_refused(handle.approve(asked.approval_request().unwrap()));
            }
            assert_eq!(counter.started_count(), usize::from(in_time));
        }
    }

    #[tokio::test]
    async fn a_simultaneous_verdict_and_interrupt_run_nothing() {
        let counter = Counter::default();
        let (run, asked) = run_asking_for_approval(&counter);
        run.approve(&asked).unwrap();
        run.interrupt();
        check_outcome(&run.outcome().await, INTERRUPTED_TOOLS, 1);
        assert_eq!(counter.started_count(), 0);
    }

    #[tokio::test]
    async fn an_approval_for_a_sub_agent_of_an_interrupted_parent_is_rejected() {
        let counter = Counter::default();
        let child = Agent::new(Scripted::new([reply_calling("c1", "t")]))
            .with_tools([ok_tool("t", &counter).requires_approval()])
            .interactive();
        let asks = Reply::new().call("child", json!({ "prompt": "look" }));
        let tools = vec![child.as_tool("child", "Looks").unwrap()];
        let mut run = scripted_agent([asks], tools).0.run("go");
        let events = pull_ready(&mut run);
        let nested = run.handle().sub_agent_handle("call_1_1").unwrap();
        let asked = events.iter().find_map(|event| match event {
            Event::Nested { event, .. } => event.approval_request(),
            _ => None,
        });
        let asked = asked.unwrap();
        run.interrupt();
        collect_rest(&mut run).await;
        assert_refused(nested.approve(asked));
        assert_eq!(counter.started_count(), 0);
    }
}
