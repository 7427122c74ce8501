//! The turns that an agent retries itself, besides the retries of its providers.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use tokio::time::sleep;
use turnstream::agent::hook;
use turnstream::agent::{Budget, Limits};
use turnstream::event::{EndReason, Transition};
use turnstream::provider::{Backoff, Reply, Retry, Scripted};
use turnstream::{Agent, ErrorKind, Event, TurnEvent, Usage};

use turnstream_test_support::providers::error_of_kind;
use turnstream_test_support::runs::{limits_with_max_turns, test_agent};
use turnstream_test_support::world::{FinishedRun, finish_run};

const SECOND: Duration = Duration::from_secs(1);

/// A reply with some text, and then an error.
fn failing_reply(kind: ErrorKind) -> Reply {
    Reply::text("It is ").fail(error_of_kind(kind))
}

fn limits_with_retries(limit: u32) -> Limits {
    Limits { max_turn_retries: limit, ..Limits::default() }
}

async fn run_to_end(agent: Agent) -> FinishedRun {
    finish_run(agent.run("go")).await
}

#[tokio::test(start_paused = true)]
async fn the_agent_does_not_retry_a_turn_that_an_inner_retry_has_retried() {
    for kind in [ErrorKind::Overloaded, ErrorKind::IncompleteTurn, ErrorKind::Timeout] {
        let model = Scripted::from_fn(move |_, _| failing_reply(kind));
        let retry = Retry::new(model.clone()).with_retraction();
        let finished = run_to_end(test_agent(retry).with_limits(limits_with_retries(5))).await;
        assert_eq!(finished.outcome.error.unwrap().kind(), kind);
        assert_eq!(model.requests().len(), 3, "the attempts of `Retry`");
    }
}

#[tokio::test(start_paused = true)]
async fn the_agent_retries_a_turn_that_an_inner_retry_skips() {
    type RetryChange = fn(Retry) -> Retry;
    let changes: [RetryChange; 3] = [
        |retry| retry,
        |retry| retry.with_retraction().retry_if(|_| false),
        |retry| {
            let backoff = Backoff { max_attempts: 1, ..Backoff::default() };
            retry.with_retraction().with_backoff(backoff)
        },
    ];
    for change in changes {
        let model = Scripted::new([failing_reply(ErrorKind::Overloaded), "fine".into()]);
        let finished = run_to_end(
            test_agent(change(Retry::new(model.clone()))).with_limits(limits_with_retries(1)),
        )
        .await;
        assert_eq!((finished.outcome.text.as_str(), finished.outcome.turns), ("fine", 2));
        assert_eq!(finished.transitions(), [Transition::Retry]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_provider_retries_failures_before_a_response_and_the_agent_retries_empty_ones() {
    for kind in [ErrorKind::Overloaded, ErrorKind::Timeout, ErrorKind::Connect] {
        let model = Scripted::new([Reply::error(error_of_kind(kind)), "never".into()]);
        let finished = run_to_end(test_agent(model).with_limits(limits_with_retries(1))).await;
        assert_eq!(
            (finished.outcome.reason, finished.outcome.turns),
            (EndReason::ProviderError, 1)
        );
    }
    let model = Scripted::new([Reply::new().disconnect(), "fine".into()]);
    let finished = run_to_end(test_agent(model).with_limits(limits_with_retries(1))).await;
    assert_eq!((finished.outcome.text.as_str(), finished.outcome.turns), ("fine", 2));
}

#[tokio::test(start_paused = true)]
async fn the_agent_does_not_retry_an_empty_response_that_an_inner_retry_has_retried() {
    let model = Scripted::from_fn(|_, _| Reply::new().disconnect());
    run_to_end(test_agent(Retry::new(model.clone())).with_limits(limits_with_retries(5))).await;
    assert_eq!(model.requests().len(), 3);
    // The last of three attempts has no text, the others do.
    let model = Scripted::from_fn(|_, n| match n {
        0 | 1 => Reply::text("It is ").disconnect(),
        _ => Reply::new().disconnect(),
    });
    let retry = Retry::new(model.clone()).with_retraction();
    run_to_end(test_agent(retry).with_limits(limits_with_retries(5))).await;
    assert_eq!(model.requests().len(), 3);
}

/// The number of waits that were reported.
fn reported_wait_count(finished: &FinishedRun) -> usize {
    let is_wait = |event: &&Event| matches!(event, Event::Turn(TurnEvent::Retrying { .. }));
    finished.events.iter().filter(is_wait).count()
}

#[tokio::test(start_paused = true)]
async fn a_provider_retries_on_its_own_once_its_fallback_is_unavailable() {
    let busy = || Reply::error(error_of_kind(ErrorKind::Overloaded));
    let first = || Scripted::new([busy(), "first".into()]);
    let with_fallback =
        |first| test_agent(Retry::new(first)).with_fallback(Scripted::new(["second"]));

    let finished = run_to_end(with_fallback(first())).await;
    assert_eq!((finished.outcome.text.as_str(), reported_wait_count(&finished)), ("second", 0));
    // The last allowed turn.
    let finished = run_to_end(with_fallback(first()).with_limits(limits_with_max_turns(1))).await;
    assert_eq!((finished.outcome.text.as_str(), reported_wait_count(&finished)), ("first", 1));
    // The owner has requested a stop after this turn.
    let agent = with_fallback(first());
    let mut run = agent.run("go");
    let started = |event: &Event| matches!(event, Event::Appended { .. });
    assert!(started(&run.next().await.unwrap().unwrap()));
    assert!(matches!(run.next().await, Some(Ok(Event::TurnStarted { .. }))));
    run.stop_after_turn();
    assert_eq!(run.outcome().await.text, "first");
}

#[tokio::test(start_paused = true)]
async fn a_limit_reached_during_a_request_ends_the_run_even_with_a_fallback() {
    let first = |usage| {
        let busy =
            Reply::new().delay(SECOND).usage(usage).fail(error_of_kind(ErrorKind::Overloaded));
        Scripted::new([busy, "first".into()])
    };
    let agent = |usage| {
        let second = Scripted::new(["second"]);
        (test_agent(Retry::new(first(usage))).with_fallback(second.clone()), second)
    };
    // The owner requests a stop during the wait.
    let (waiting, second) = agent(Usage::default());
    let mut run = waiting.run("go");
    while let Some(event) = run.next().now_or_never() {
        assert!(event.is_some(), "it waits for the model");
    }
    assert_eq!(run.handle().history().len(), 1, "the request is open");
    run.stop_after_turn();
    assert_eq!((run.outcome().await.text.as_str(), second.requests().len()), ("first", 0));

    // The failed attempt has used up the tokens.
    let usage = Usage { output_tokens: 100, ..Usage::default() };
    let (spending, second) = agent(usage);
    let outcome =
        spending.with_budget(Budget::new().with_total_tokens(50)).run("go").outcome().await;
    assert_eq!((outcome.text.as_str(), second.requests().len()), ("first", 0));

    // There is only enough time for a wrap-up turn.
    let (late, second) = agent(Usage::default());
    let slow = hook::prepare_request(|_, request| async {
        sleep(8 * SECOND).await;
        request
    });
    let budget = Budget::new().with_time_limit(20 * SECOND).with_wrap_up_time(14 * SECOND);
    let outcome = late.with_hook(slow).with_budget(budget).run("go").outcome().await;
    assert_eq!((outcome.text.as_str(), second.requests().len()), ("first", 0));
}
