//! Every way in which a run ends, from one table: what the outcome says, and that nothing of what
//! was said and paid for is missing from it.

use std::collections::BTreeSet;

use serde_json::json;
use turnstream::agent::hook::{self, BeforeTool, OnStop};
use turnstream::agent::{Agent, Budget, Limits};
use turnstream::event::{Phase, Reason};
use turnstream::provider::{Reply, Scripted};
use turnstream::turn::StopReason;
use turnstream::{Error, ErrorKind, Event, Item, Outcome, Usage};

use crate::support::tools::tool;

const USED: Usage = Usage {
    input_tokens: 10,
    output_tokens: 5,
    cache_read_input_tokens: 0,
    cache_write_input_tokens: 0,
    reasoning_tokens: 0,
};

fn call() -> Reply {
    Reply::text("so").call("t", json!({})).usage(USED)
}

fn says(text: &str) -> Reply {
    Reply::text(text).usage(USED)
}

fn ends(stop: StopReason) -> Reply {
    says("half").stop(stop)
}

fn agent(replies: impl IntoIterator<Item = Reply>) -> Agent {
    // Every script begins with a turn whose tool runs.
    let replies = [call()].into_iter().chain(replies);
    let limits = Limits { continuations: 0, retries: 0, ..Limits::default() };
    Agent::new(Scripted::new(replies)).with_tools([tool("t")]).with_limits(limits)
}

/// An agent that ends for each reason, in the order of the guide.
fn all() -> Vec<(Reason, Agent)> {
    let stopping = |answer: OnStop| {
        agent([says("done")]).with_hook(hook::stop(move |_, _| std::future::ready(answer.clone())))
    };
    let why = || String::from("why");
    let failing = hook::before_tool(|_, _| async {
        Err::<BeforeTool, _>(Error::new(ErrorKind::Other, "no"))
    });
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let wants_approval = tool("t").needs_approval();
    let ends_at_two = Limits { repeats_end: 2, ..Limits::default() };
    vec![
        (Reason::Completed, agent([says("done")])),
        (Reason::Refused, agent([ends(StopReason::Refusal)])),
        (Reason::Filtered, agent([ends(StopReason::ContentFilter)])),
        (Reason::Truncated, agent([ends(StopReason::MaxTokens)])),
        (Reason::ContextWindow, agent([ends(StopReason::ContextWindow)])),
        (Reason::Malformed, agent([says("").stop(StopReason::ToolCalls)])),
        (Reason::Repeating, agent([call()]).with_limits(ends_at_two)),
        (Reason::MaxTurns, agent([call()]).with_max_turns(2)),
        (Reason::Budget, agent([call()]).with_budget(Budget::new().total_tokens(20))),
        (Reason::Stopped, agent([]).with_hook(hook::should_stop(|_| async { true }))),
        (Reason::StopHookPrevented, stopping(OnStop::Prevent(why()))),
        (Reason::Blocked, stopping(OnStop::Blocked(why()))),
        (Reason::Unproven, stopping(OnStop::Unproven(why()))),
        (Reason::Interrupted(Phase::Streaming), agent([says("half").hang()])),
        (Reason::Pending, agent([]).with_tools([wants_approval])),
        (Reason::Incomplete, agent([says("half").cut()])),
        (Reason::ProviderError, agent([says("half").fail(busy)])),
        (Reason::HookError, agent([]).with_hook(failing)),
    ]
}

/// Runs to the end; what hangs is interrupted.
fn outcome(agent: &Agent) -> Outcome {
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
fn every_ending_has_the_history_what_was_added_and_what_it_cost() {
    let mut seen = BTreeSet::new();
    for (reason, agent) in all() {
        let outcome = outcome(&agent);
        assert_eq!(outcome.reason, reason);
        assert_eq!(outcome.partial, reason.is_partial(), "{reason}");
        assert_eq!(outcome.new_items().first(), Some(&Item::user("go")), "{reason}");
        let history: Vec<Item> = outcome.history.iter().cloned().collect();
        assert_eq!(history, outcome.new_items(), "{reason}");
        assert!(outcome.history.settled().is_lawful(), "{reason}");
        assert!(outcome.usage.total() >= 15, "{reason}: {:?}", outcome.usage);
        assert_eq!(outcome.text.is_empty(), reason == Reason::Malformed, "{reason}");
        let fails =
            matches!(reason, Reason::ProviderError | Reason::Incomplete | Reason::HookError);
        assert_eq!(outcome.error.is_some(), fails, "{reason}");
        assert_eq!(outcome.pending.len(), usize::from(reason == Reason::Pending), "{reason}");
        assert_eq!(outcome.budget.is_some(), reason == Reason::Budget, "{reason}");
        assert_eq!(outcome.into_result().is_ok(), reason == Reason::Completed, "{reason}");
        seen.insert(reason.as_str());
    }
    // The list of the outcome's reasons, in alphabetical order.
    let known = "blocked budget completed context_window filtered hook_error incomplete interrupted \
                 malformed max_turns pending provider_error refused repeating stop_hook_prevented \
                 stopped truncated unproven";
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), known.split(' ').collect::<Vec<_>>());
}
