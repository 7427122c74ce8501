//! `Retry`: the errors that it retries, its delays, and what a consumer observes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use tokio::time::Instant;
use turnstream::env::{Random, SeededRandom};
use turnstream::provider::{
    Backoff, CircuitBreaker, Fallback, Provider, Reply, Retry, Scripted, anthropic,
};
use turnstream::replay::Record;
use turnstream::stream::{TurnPoll, TurnSource, TurnStream, TurnStreamExt, seal};
use turnstream::turn::{PartialTurn, TurnBuilder, TurnEvent};
use turnstream::usage::Billing;
use turnstream::{Agent, Error, ErrorKind, History, Item, Request, Turn, Usage};

use turnstream_test_support::providers::{
    collect_turn, error_of_kind, usage_with_output, user_request,
};

/// Returns the largest value, so that delays are the longest.
struct MaxRandom;

impl Random for MaxRandom {
    fn next_u64(&self) -> u64 {
        u64::MAX
    }
}

fn overloaded_reply() -> Reply {
    Reply::error(error_of_kind(ErrorKind::Overloaded))
}

fn remaining_text(events: &[TurnEvent]) -> String {
    let mut text = String::new();
    for event in events {
        match event {
            TurnEvent::TextDelta { text: piece, .. } => text.push_str(piece),
            TurnEvent::Retracted { .. } => text.clear(),
            _ => {}
        }
    }
    text
}

fn retracted_usages(events: &[TurnEvent]) -> Vec<Usage> {
    let usage = |event: &TurnEvent| match event {
        TurnEvent::Retracted { usage, .. } => Some(**usage),
        _ => None,
    };
    events.iter().filter_map(usage).collect()
}

/// The number of requests to a provider that first fails with `reply`, then answers.
async fn count_requests(reply: Reply, change: impl FnOnce(Retry) -> Retry) -> usize {
    let model = Scripted::new([reply, Reply::text("fine")]);
    collect_turn(change(Retry::new(model.clone())).stream_turn(user_request())).await;
    model.requests().len()
}

#[tokio::test(start_paused = true)]
async fn only_transient_errors_are_retried() {
    use ErrorKind::*;
    for kind in [Connect, Timeout, RateLimited, Overloaded, Server, IncompleteTurn] {
        assert_eq!(
            count_requests(Reply::error(error_of_kind(kind)), |retry| retry).await,
            2,
            "{kind}"
        );
    }
    assert_eq!(count_requests(Reply::new().disconnect(), |retry| retry).await, 2, "cut at once");
    for kind in [
        Auth,
        Billing,
        ContextWindow,
        InvalidRequest,
        Unsupported,
        Filtered,
        Protocol,
        TooLarge,
        Store,
        Other,
    ] {
        assert_eq!(
            count_requests(Reply::error(error_of_kind(kind)), |retry| retry).await,
            1,
            "{kind}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_closure_can_select_other_errors() {
    let status = |error: &Error| error.status() == Some(409);
    let choose = move |retry: Retry| retry.retry_if(status);
    let conflict = error_of_kind(ErrorKind::InvalidRequest).with_status(409);
    assert_eq!(count_requests(Reply::error(conflict), choose).await, 2);
    assert_eq!(
        count_requests(overloaded_reply(), choose).await,
        1,
        "the closure replaces the default"
    );
}

#[tokio::test(start_paused = true)]
async fn output_is_never_retracted_by_default() {
    let model = Scripted::new([
        Reply::text("half of it").fail(error_of_kind(ErrorKind::Server)),
        overloaded_reply(),
    ]);
    let (events, failed) =
        collect_turn(Retry::new(model.clone()).stream_turn(user_request())).await;
    assert_eq!(failed.unwrap().kind(), ErrorKind::Server);
    assert_eq!((remaining_text(&events).as_str(), model.requests().len()), ("half of it", 1));
    assert_eq!(retracted_usages(&events), []);
    // Reasoning, refusals and calls count as output, too.
    let failed = || error_of_kind(ErrorKind::Overloaded);
    assert_eq!(count_requests(Reply::new().think("hm").fail(failed()), |retry| retry).await, 1);
    assert_eq!(count_requests(Reply::new().refuse("no").fail(failed()), |retry| retry).await, 1);
    let called = Reply::new().call_unfinished("a", "t", "").fail(failed());
    assert_eq!(count_requests(called, |retry| retry).await, 1);
}

#[tokio::test(start_paused = true)]
async fn output_retracted_by_the_inner_provider_does_not_count_as_output() {
    let void = || Reply::text("void").usage(usage_with_output(3)).retract("again");
    assert_eq!(
        count_requests(void().fail(error_of_kind(ErrorKind::Server)), |retry| retry).await,
        2
    );
    let anew = void().say("anew").fail(error_of_kind(ErrorKind::Server));
    assert_eq!(count_requests(anew, |retry| retry).await, 1);
    // The usage was counted once, by the retraction below.
    let model = Scripted::new([void().fail(error_of_kind(ErrorKind::Server)), Reply::text("fine")]);
    let (events, failed) = collect_turn(Retry::new(model).stream_turn(user_request())).await;
    assert_eq!((retracted_usages(&events), failed), (vec![usage_with_output(3)], None));
}

#[tokio::test(start_paused = true)]
async fn with_retraction_enabled_output_is_retracted_and_counted() {
    let model = Scripted::new([
        Reply::text("half of it")
            .usage(usage_with_output(3))
            .fail(error_of_kind(ErrorKind::Server)),
        Reply::text("and").usage(usage_with_output(4)).disconnect(),
        Reply::text("all of it").usage(usage_with_output(5)),
    ]);
    let outcome = {
        let retry = Retry::new(model.clone()).with_retraction();
        let (events, failed) = collect_turn(retry.stream_turn(user_request())).await;
        assert_eq!(failed, None);
        assert_eq!(
            (remaining_text(&events).as_str(), retracted_usages(&events).len()),
            ("all of it", 2)
        );
        let model = Scripted::from_fn(move |_, n| match n {
            0 => Reply::text("half of it")
                .usage(usage_with_output(3))
                .fail(error_of_kind(ErrorKind::Server)),
            1 => Reply::text("and").usage(usage_with_output(4)).disconnect(),
            _ => Reply::text("all of it").usage(usage_with_output(5)),
        });
        Agent::new(Retry::new(model).with_retraction()).run("go").outcome().await
    };
    assert_eq!((outcome.text.as_str(), outcome.usage.output_tokens), ("all of it", 12));
    assert_eq!(outcome.turns, 1);
}

#[tokio::test(start_paused = true)]
async fn usage_without_output_does_not_prevent_a_retry_and_is_counted_once() {
    let model = Scripted::new([
        Reply::new()
            .usage(usage_with_output(1))
            .usage(usage_with_output(2))
            .fail(error_of_kind(ErrorKind::Overloaded)),
        Reply::text("fine").usage(usage_with_output(7)),
    ]);
    let (events, failed) = collect_turn(Retry::new(model).stream_turn(user_request())).await;
    assert_eq!(failed, None);
    assert_eq!(
        retracted_usages(&events),
        [usage_with_output(2)],
        "the count goes to the run, and no word is void"
    );
    let words = |event: &TurnEvent| matches!(event, TurnEvent::TextDelta { .. });
    let void = |event: &TurnEvent| matches!(event, TurnEvent::Retracted { .. });
    assert!(events.iter().position(void).unwrap() < events.iter().position(words).unwrap());
}

#[tokio::test(start_paused = true)]
async fn attempts_without_output_report_only_their_retry_delays() {
    let model = Scripted::new([overloaded_reply(), overloaded_reply(), Reply::text("fine")]);
    let (events, failed) = collect_turn(Retry::new(model).stream_turn(user_request())).await;
    let (waits, rest): (Vec<_>, Vec<_>) =
        events.into_iter().partition(|event| matches!(event, TurnEvent::Retrying { .. }));
    assert_eq!(waits.len(), 2);
    let plain = collect_turn(Scripted::new(["fine"]).stream_turn(user_request())).await;
    assert_eq!((rest, failed), plain);
}

#[tokio::test(start_paused = true)]
async fn the_delay_grows_with_each_attempt_up_to_the_maximum() {
    let model = Scripted::from_fn(|_, _| overloaded_reply());
    let backoff = Backoff {
        max_attempts: 6,
        base_delay: Duration::from_secs(1),
        factor: 3.0,
        max_delay: Duration::from_secs(10),
        ..Backoff::default()
    };
    let retry = Retry::new(model.clone()).with_backoff(backoff).with_random(MaxRandom);
    let began = Instant::now();
    let (_, failed) = collect_turn(retry.stream_turn(user_request())).await;
    assert_eq!(failed, Some(error_of_kind(ErrorKind::Overloaded)), "the last error as it is");
    assert_eq!(model.requests().len(), 6);
    // 1 + 3 + 9 + 10 + 10 seconds, minus the difference of the largest fraction from one, plus a
    // timer step.
    let waited = began.elapsed();
    assert!(waited > Duration::from_millis(32_990) && waited < Duration::from_millis(33_010));
}

#[tokio::test(start_paused = true)]
async fn equal_random_values_give_equal_delays() {
    let mut waited = Vec::new();
    for seed in [1, 1, 2] {
        let model = Scripted::new([overloaded_reply(), overloaded_reply(), Reply::text("fine")]);
        let retry = Retry::new(model).with_random(SeededRandom::new(seed));
        let began = Instant::now();
        collect_turn(retry.stream_turn(user_request())).await;
        waited.push(began.elapsed());
    }
    assert_eq!(waited[0], waited[1]);
    assert_ne!(waited[0], waited[2]);
}

#[tokio::test(start_paused = true)]
async fn the_delay_honours_retry_after() {
    let limited = error_of_kind(ErrorKind::RateLimited).with_retry_after(Duration::from_secs(20));
    let model = Scripted::new([Reply::error(limited), Reply::text("fine")]);
    let began = Instant::now();
    let (_, failed) = collect_turn(Retry::new(model).stream_turn(user_request())).await;
    assert_eq!(failed, None);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(20) && waited < Duration::from_secs(21), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_above_the_maximum_yields_the_error_immediately() {
    let limited = error_of_kind(ErrorKind::RateLimited).with_retry_after(Duration::from_secs(61));
    let said = Reply::text("half").fail(limited.clone());
    let model = Scripted::new([said, Reply::text("fine")]);
    let began = Instant::now();
    let retry = Retry::new(model.clone()).with_retraction();
    let (events, failed) = collect_turn(retry.stream_turn(user_request())).await;
    assert_eq!(failed.unwrap().retry_after(), Some(Duration::from_secs(61)));
    assert_eq!((model.requests().len(), began.elapsed()), (1, Duration::ZERO));
    assert_eq!(remaining_text(&events), "half", "nothing is retracted without a retry");
}

#[tokio::test(start_paused = true)]
async fn the_last_error_carries_its_partial_turn() {
    let model = Scripted::from_fn(|_, n| Reply::text(format!("try {n}")).disconnect());
    let retry = Retry::new(model).with_retraction();
    let (events, failed) = collect_turn(retry.stream_turn(user_request())).await;
    let failed = failed.unwrap();
    assert_eq!(failed.kind(), ErrorKind::IncompleteTurn);
    assert_eq!(failed.find_source::<PartialTurn>().unwrap().text(), "try 2");
    assert_eq!(remaining_text(&events), "try 2");
}

#[tokio::test(start_paused = true)]
async fn each_attempt_sends_the_same_bytes() {
    let model = Scripted::new([overloaded_reply(), overloaded_reply(), Reply::text("fine")]);
    let asked = user_request().with_system("be brief");
    collect_turn(Retry::new(model.clone()).stream_turn(asked)).await;
    let bodies = model.requests();
    let bodies: Vec<_> = bodies.iter().map(|r| anthropic::encode(r, "m").unwrap()).collect();
    assert!(bodies.len() == 3 && bodies.iter().all(|body| *body == bodies[0]));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_the_first_poll() {
    let model = Scripted::new([overloaded_reply(), Reply::text("fine")]);
    let turn = Retry::new(model.clone()).stream_turn(user_request());
    assert_eq!(model.requests().len(), 0);
    drop(turn);
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drop_during_the_delay_sends_no_further_request() {
    let model = Scripted::from_fn(|_, _| overloaded_reply());
    let mut turn = Retry::new(model.clone()).stream_turn(user_request());
    assert!(matches!(turn.next().now_or_never(), Some(Some(Ok(TurnEvent::Retrying { .. })))));
    assert!(turn.next().now_or_never().is_none());
    assert_eq!((model.requests().len(), model.in_flight()), (1, 0), "the failed try is gone");
    drop(turn);
    tokio::time::advance(Duration::from_hours(1)).await;
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn output_is_retracted_before_the_delay() {
    let model =
        Scripted::from_fn(|_, _| Reply::text("void").fail(error_of_kind(ErrorKind::Server)));
    let mut turn = Retry::new(model).with_retraction().stream_turn(user_request());
    assert!(matches!(turn.next().now_or_never(), Some(Some(Ok(TurnEvent::TextDelta { .. })))));
    assert!(matches!(turn.next().now_or_never(), Some(Some(Ok(TurnEvent::Retracted { .. })))));
    assert!(matches!(turn.next().now_or_never(), Some(Some(Ok(TurnEvent::Retrying { .. })))));
    assert!(turn.next().now_or_never().is_none(), "it waits");
}

#[tokio::test(start_paused = true)]
async fn ids_generated_for_empty_or_duplicate_ones_do_not_depend_on_retries() {
    let script = || {
        Scripted::from_fn(|_, _| {
            Reply::new()
                .call_raw("", "t", "{}")
                .call_raw("old", "t", "{}")
                .call_raw("d", "t", "{}")
                .call_raw("d", "t", "{\"x\":1}")
                .call_raw("d", "t", "{}")
        })
    };
    let held = History::from_items("h", [Item::user("x"), Item::tool_call("old", "t", "{}")]);
    let asked = || Request::new(held.clone());
    let plain = collect_turn(script().stream_turn(asked())).await;
    let nested = Retry::new(Retry::new(Retry::new(script())));
    assert_eq!(collect_turn(nested.stream_turn(asked())).await, plain);
    let Some(TurnEvent::TurnComplete { turn }) = plain.0.last() else { panic!("no turn") };
    let ids: Vec<&str> = turn.tool_calls().map(|call| call.call_id.as_str()).collect();
    assert_eq!(ids, ["call_1_1", "old_dup1", "d", "d_dup1"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_id_of_a_retracted_attempt_can_be_reused() {
    let model = Scripted::new([
        Reply::new().call_raw("a", "t", "{}").disconnect(),
        Reply::new().call_raw("a", "t", "{\"x\":2}"),
    ]);
    let turn =
        Retry::new(model).with_retraction().stream_turn(user_request()).into_turn().await.unwrap();
    let call = turn.tool_calls().next().unwrap();
    assert_eq!((call.call_id.as_str(), call.arguments.as_str()), ("a", "{\"x\":2}"));
    assert!(turn.calls().veto().is_none());
}

#[cfg(feature = "http")]
mod over_http {
    use super::*;
    use turnstream::http::HttpClient;
    use turnstream::provider::Anthropic;
    use turnstream_testing::ModelServer;

    #[tokio::test]
    async fn an_overloaded_server_receives_the_same_bytes_again() {
        let server = ModelServer::anthropic(|_, n| match n {
            0 => Reply::error(error_of_kind(ErrorKind::Overloaded).with_status(529)),
            // In the stream, after the usage that every stream starts with.
            1 => Reply::new().fail(error_of_kind(ErrorKind::Overloaded)),
            _ => Reply::text("Hello!"),
        })
        .await
        .unwrap();
        let model = Anthropic::new("m").with_base_url(server.url()).unwrap();
        let model = model.with_http_client(HttpClient::without_proxy());
        let backoff = Backoff { base_delay: Duration::ZERO, ..Backoff::default() };
        let retry = Retry::new(model).with_backoff(backoff);
        let turn = retry.stream_turn(user_request()).into_turn().await.unwrap();
        assert_eq!(turn.text(), "Hello!");
        let bodies = server.http_server().requests();
        assert!(bodies.len() == 3 && bodies.iter().all(|sent| sent.body == bodies[0].body));
    }
}

/// The turn of an agent's run that is interrupted after its first text.
async fn interrupted_turn(provider: impl Provider + 'static) -> Arc<Turn> {
    let mut run = Agent::new(provider).run("Go.");
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        if event.text_delta().is_some() {
            run.interrupt_turn();
        }
        if let Some(turn) = event.turn_complete() {
            return Arc::clone(turn);
        }
    }
    panic!("the turn is not complete");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_of_a_wrapped_provider_has_its_model_and_its_service_tier() {
    let model = || {
        let mut billing = Billing::default();
        billing.set_service_tier("flex");
        let reply = Reply::new().billing(billing).say("Half of an answer").hang();
        Scripted::new([reply]).with_model("m")
    };
    let turns = [
        interrupted_turn(model()).await,
        interrupted_turn(Retry::new(model())).await,
        interrupted_turn(Fallback::new(model()).or(Scripted::new(["no"]))).await,
        interrupted_turn(CircuitBreaker::new(model())).await,
        interrupted_turn(Record::to_writer(model(), std::io::sink())).await,
        interrupted_turn(Retry::new(CircuitBreaker::new(model()))).await,
    ];
    for turn in turns {
        let tier = turn.billing().and_then(Billing::service_tier);
        assert_eq!((turn.model(), tier), (Some("m"), Some("flex")), "{turn:?}");
    }
}

/// A turn whose first piece of text arrives together with its usage, and which does not end.
struct TextWithUsage;

/// The provider of the turn [`TextWithUsage`].
struct ReportsUsageWithText;

fn reported() -> Usage {
    Usage { input_tokens: 100, ..usage_with_output(50) }
}

impl TurnSource for TextWithUsage {
    fn poll_turn(self: Pin<&mut Self>, _: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        if turn.usage() == reported() {
            return Poll::Pending;
        }
        turn.push_text(0, "Half");
        turn.set_usage(reported());
        Poll::Ready(Some(Ok(())))
    }
}

impl Provider for ReportsUsageWithText {
    fn stream_turn(&self, request: Request) -> TurnStream {
        seal(&request, TextWithUsage)
    }

    fn model(&self) -> &'static str {
        "m"
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_of_a_wrapped_provider_has_usage_that_no_event_has_contained_yet() {
    let turns = [
        interrupted_turn(ReportsUsageWithText).await,
        interrupted_turn(Retry::new(ReportsUsageWithText)).await,
        interrupted_turn(Fallback::new(ReportsUsageWithText).or(Scripted::new(["no"]))).await,
    ];
    for turn in turns {
        assert_eq!(turn.usage(), reported(), "{turn:?}");
    }
}
