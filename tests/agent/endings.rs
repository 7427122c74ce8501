//! Every way in which a run ends, in one table: the contents of the outcome, which includes all
//! text and usage of the run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::json;
use turnstream::agent::evidence::RequireEvidence;
use turnstream::agent::hook::{self, CallDecision, StopDecision};
use turnstream::agent::{Agent, Budget, Limits};
use turnstream::event::{EndReason, InterruptedPhase};
use turnstream::provider::{Reply, Scripted};
use turnstream::turn::StopReason;
use turnstream::{Error, ErrorKind, Event, Item, Outcome, Toolkit, Usage};

use turnstream_test_support::items::token_usage;
use turnstream_test_support::runs::limits_with_max_turns;
use turnstream_test_support::tools::uncounted_tool;

const TURN_USAGE: Usage = token_usage(10, 5);

fn tool_call_reply() -> Reply {
    Reply::text("so").call("t", json!({})).usage(TURN_USAGE)
}

fn text_reply(text: &str) -> Reply {
    Reply::text(text).usage(TURN_USAGE)
}

fn reply_with_stop(stop: StopReason) -> Reply {
    text_reply("half").stop(stop)
}

fn scripted_agent(replies: impl IntoIterator<Item = Reply>) -> Agent {
    // Every script starts with a turn whose tool runs.
    let replies = [tool_call_reply()].into_iter().chain(replies);
    let limits = Limits { max_continuations: 0, max_turn_retries: 0, ..Limits::default() };
    Agent::new(Scripted::new(replies)).with_tools([uncounted_tool("t")]).with_limits(limits)
}

/// An agent that ends for each reason, in the guide's order.
fn agents_by_end_reason() -> Vec<(EndReason, Agent)> {
    let stopping = |answer: StopDecision| {
        scripted_agent([text_reply("done")])
            .with_hook(hook::before_stop(move |_, _| std::future::ready(answer.clone())))
    };
    let why = || String::from("why");
    let failing = hook::before_tool(|_, _| async {
        Err::<CallDecision, _>(Error::new(ErrorKind::Other, "no"))
    });
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let wants_approval = uncounted_tool("t").requires_approval();
    let ends_at_two = Limits { end_after_repeats: 2, ..Limits::default() };
    vec![
        (EndReason::Completed, scripted_agent([text_reply("done")])),
        (EndReason::Refused, scripted_agent([reply_with_stop(StopReason::Refusal)])),
        (EndReason::Filtered, scripted_agent([reply_with_stop(StopReason::ContentFilter)])),
        (EndReason::Truncated, scripted_agent([reply_with_stop(StopReason::MaxTokens)])),
        (EndReason::ContextWindow, scripted_agent([reply_with_stop(StopReason::ContextWindow)])),
        (EndReason::Malformed, scripted_agent([text_reply("").stop(StopReason::ToolCalls)])),
        (EndReason::Repeating, scripted_agent([tool_call_reply()]).with_limits(ends_at_two)),
        (
            EndReason::MaxTurns,
            scripted_agent([tool_call_reply()]).with_limits(limits_with_max_turns(2)),
        ),
        (
            EndReason::Budget,
            scripted_agent([tool_call_reply()]).with_budget(Budget::new().with_total_tokens(20)),
        ),
        (EndReason::Stopped, scripted_agent([]).with_hook(hook::should_stop(|_| async { true }))),
        (EndReason::StopHookPrevented, stopping(StopDecision::EndRun(why()))),
        (EndReason::Blocked, stopping(StopDecision::Blocked(why()))),
        (EndReason::Unproven, stopping(StopDecision::Unproven(why()))),
        (
            EndReason::Interrupted(InterruptedPhase::Streaming),
            scripted_agent([text_reply("half").hang()]),
        ),
        (EndReason::Pending, scripted_agent([]).with_toolkit(Toolkit::new([wants_approval]))),
        (EndReason::Incomplete, scripted_agent([text_reply("half").disconnect()])),
        (EndReason::ProviderError, scripted_agent([text_reply("half").fail(busy)])),
        (EndReason::HookError, scripted_agent([]).with_hook(failing)),
    ]
}

/// Runs to the end; a run that hangs is interrupted.
fn run_or_interrupt(agent: &Agent) -> Outcome {
    use futures::{FutureExt, StreamExt};

    let mut run = agent.run("go");
    let (mut endings, mut errors) = (Vec::<Outcome>::new(), Vec::new());
    loop {
        match run.next().now_or_never() {
            Some(Some(event)) => match event {
                Ok(Event::Finished(outcome)) => endings.push(*outcome),
                Ok(_) => {}
                Err(error) => errors.push(error),
            },
            Some(None) => break,
            None => run.interrupt(),
        }
    }
    assert_eq!(endings.len(), 1);
    let outcome = endings.remove(0);
    assert_eq!(errors, Vec::from_iter(outcome.error.clone()), "a failed run yields its error once");
    outcome
}

#[test]
fn every_outcome_has_the_history_the_new_items_and_the_usage() {
    let mut seen = BTreeSet::new();
    for (reason, agent) in agents_by_end_reason() {
        let outcome = run_or_interrupt(&agent);
        assert_eq!(outcome.reason, reason);
        assert_eq!(outcome.partial, reason.is_partial(), "{reason}");
        assert_eq!(outcome.new_items().first(), Some(&Item::user("go")), "{reason}");
        let history: Vec<Item> = outcome.history.iter().cloned().collect();
        assert_eq!(history, outcome.new_items(), "{reason}");
        assert!(outcome.history.settled().is_settled(), "{reason}");
        assert!(outcome.usage.total() >= 15, "{reason}: {:?}", outcome.usage);
        assert_eq!(outcome.text.is_empty(), reason == EndReason::Malformed, "{reason}");
        let fails = matches!(
            reason,
            EndReason::ProviderError | EndReason::Incomplete | EndReason::HookError
        );
        assert_eq!(outcome.error.is_some(), fails, "{reason}");
        assert_eq!(outcome.pending.len(), usize::from(reason == EndReason::Pending), "{reason}");
        assert_eq!(outcome.budget.is_some(), reason == EndReason::Budget, "{reason}");
        assert_eq!(outcome.into_result().is_ok(), reason == EndReason::Completed, "{reason}");
        seen.insert(reason.as_str());
    }
    // The list of the outcome's reasons, in alphabetical order.
    let known = "blocked budget completed context_window filtered hook_error incomplete interrupted \
                 malformed max_turns pending provider_error refused repeating stop_hook_prevented \
                 stopped truncated unproven";
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), known.split(' ').collect::<Vec<_>>());
}

#[test]
fn every_ending_but_a_completed_one_says_what_is_unproven() {
    for (reason, agent) in agents_by_end_reason() {
        let outcome = run_or_interrupt(&agent);
        let expected = (reason == EndReason::Unproven).then_some("why");
        assert_eq!(outcome.unproven.as_deref(), expected, "{reason}");
    }
    for (reason, agent) in agents_by_end_reason() {
        let outcome = run_or_interrupt(&agent.with_evidence(RequireEvidence::new()));
        // The claim of the agent that completes is rejected, and its script ends.
        if reason != EndReason::Completed {
            assert_eq!(outcome.reason, reason);
        }
        let unproven = outcome.unproven.as_deref().unwrap();
        match reason {
            // The failing hook leaves a call without a result, which may have changed something.
            EndReason::HookError => assert!(unproven.contains("a call of `t`"), "{unproven}"),
            _ => assert_eq!(unproven, "no check was recorded", "{reason}"),
        }
        assert_eq!(serde_json::to_value(&outcome).unwrap()["unproven"], unproven);
    }
}

/// The notifications that hooks receive at the end of a run.
#[derive(Clone, Default)]
struct HookLog(Arc<Mutex<Vec<String>>>);

impl HookLog {
    fn push(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    /// The agent with two hooks that record their notifications, at both ends of its list.
    fn with_logging_hooks(&self, agent: Agent) -> Agent {
        let (finished, failed, stopping) = (self.clone(), self.clone(), self.clone());
        agent
            .with_hook(hook::on_finished(move |_, it| {
                finished.push(format!("finished {}", it.reason));
            }))
            .with_hook(hook::on_failure(move |_, error| {
                failed.push(error.kind().to_string());
            }))
            .with_hook(hook::should_stop(move |_| {
                stopping.push("should_stop".to_owned());
                async { false }
            }))
    }
}

#[test]
fn hooks_are_notified_of_every_ending_exactly_once_and_last() {
    for (reason, agent) in agents_by_end_reason() {
        let told = HookLog::default();
        // `outcome` checks that there is exactly one ending.
        let outcome = run_or_interrupt(&told.with_logging_hooks(agent));
        assert_eq!(outcome.reason, reason);
        let told = told.0.lock().unwrap().clone();
        let endings: Vec<_> = told.iter().filter(|told| told.starts_with("finished")).collect();
        assert_eq!(endings, [&format!("finished {reason}")], "{told:?}");
        assert_eq!(told.last(), endings.first().copied(), "it comes last: {told:?}");
    }
}

#[test]
fn the_test_table_covers_every_finish_reason() {
    // `EndReason` is non-exhaustive, so this test reads the list of variants from its source.
    let source = include_str!("../../src/event/end_reason.rs");
    let names = source.split_once("\nreason_names! {").unwrap().1;
    let names = names.split_once("\n}").unwrap().0;
    let mut names: BTreeSet<&str> = names.split('"').skip(1).step_by(2).collect();
    // These two are defined outside of the list.
    names.extend(["interrupted", "other"]);
    let mut table: BTreeSet<&str> =
        agents_by_end_reason().iter().map(|(reason, _)| reason.as_str()).collect();
    // Only a later version can have an unknown reason.
    table.insert("other");
    assert!(names.len() >= 18, "{names:?}");
    assert_eq!(table, names);
}
