//! Which turns an agent asks for again by itself, beside what its providers retry.

use futures::StreamExt;
use turnstream::agent::Limits;
use turnstream::event::{Reason, Transition};
use turnstream::provider::{Backoff, Reply, Retry, Scripted};
use turnstream::{Agent, ErrorKind, Event, TurnEvent};

use crate::support::providers::error;
use crate::support::runs::agent;
use crate::support::world::{Told, told};

/// Says something, and fails.
fn broken(kind: ErrorKind) -> Reply {
    Reply::text("It is ").fail(error(kind))
}

fn retrying(limit: u32) -> Limits {
    Limits { retries: limit, ..Limits::default() }
}

async fn run(agent: Agent) -> Told {
    told(agent.run("go")).await
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_a_retry_below_has_tried_again_is_not_asked_for_again() {
    for kind in [ErrorKind::Overloaded, ErrorKind::IncompleteTurn, ErrorKind::Timeout] {
        let model = Scripted::function(move |_, _| broken(kind));
        let retry = Retry::new(model.clone()).with_retraction();
        let told = run(agent(retry).with_limits(retrying(5))).await;
        assert_eq!(told.outcome.error.unwrap().kind(), kind);
        assert_eq!(model.requests().len(), 3, "the attempts of `Retry`");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_a_retry_below_leaves_alone_is_asked_for_again() {
    type Change = fn(Retry) -> Retry;
    let changes: [Change; 3] = [
        |retry| retry,
        |retry| retry.with_retraction().retry_if(|_| false),
        |retry| {
            let backoff = Backoff { attempts: 1, ..Backoff::default() };
            retry.with_retraction().with_backoff(backoff)
        },
    ];
    for change in changes {
        let model = Scripted::new([broken(ErrorKind::Overloaded), "fine".into()]);
        let told = run(agent(change(Retry::new(model.clone()))).with_limits(retrying(1))).await;
        assert_eq!((told.outcome.text.as_str(), told.outcome.turns), ("fine", 2));
        assert_eq!(told.transitions(), [Transition::Retry]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_failed_before_the_answer_is_left_to_the_provider_and_an_answer_without_a_word_is_not()
{
    for kind in [ErrorKind::Overloaded, ErrorKind::Timeout, ErrorKind::Connect] {
        let model = Scripted::new([Reply::error(error(kind)), "never".into()]);
        let told = run(agent(model).with_limits(retrying(1))).await;
        assert_eq!((told.outcome.reason, told.outcome.turns), (Reason::ProviderError, 1));
    }
    let model = Scripted::new([Reply::new().cut(), "fine".into()]);
    let told = run(agent(model).with_limits(retrying(1))).await;
    assert_eq!((told.outcome.text.as_str(), told.outcome.turns), ("fine", 2));
}

/// How many waits were reported.
fn waits(told: &Told) -> usize {
    let is_wait = |event: &&Event| matches!(event, Event::Turn(TurnEvent::Retrying { .. }));
    told.events.iter().filter(is_wait).count()
}

#[tokio::test(start_paused = true)]
async fn a_provider_whose_fallback_cannot_be_asked_any_more_retries_by_itself() {
    let busy = || Reply::error(error(ErrorKind::Overloaded));
    let first = || Scripted::new([busy(), "first".into()]);
    let with_fallback = |first| agent(Retry::new(first)).with_fallback(Scripted::new(["second"]));

    let told = run(with_fallback(first())).await;
    assert_eq!((told.outcome.text.as_str(), waits(&told)), ("second", 0));
    // The only turn that is left.
    let told = run(with_fallback(first()).with_max_turns(1)).await;
    assert_eq!((told.outcome.text.as_str(), waits(&told)), ("first", 1));
    // The holder wants no other turn.
    let agent = with_fallback(first());
    let mut run = agent.run("go");
    let started = |event: &Event| matches!(event, Event::Appended { .. });
    assert!(started(&run.next().await.unwrap().unwrap()));
    assert!(matches!(run.next().await, Some(Ok(Event::TurnStarted { .. }))));
    run.stop_after_turn();
    assert_eq!(run.outcome().await.text, "first");
}
