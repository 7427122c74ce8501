//! The failed requests that a provider over HTTP retries on its own, and the events that report
//! retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use turnstream::agent::{Budget, Limits};
use turnstream::event::{BudgetKind, EndReason};
use turnstream::http::Timeouts;
use turnstream::provider::{Backoff, CircuitBreaker, Fallback, Provider, Reply, Retry};
use turnstream::replay::{Record, Replay};
use turnstream::{Agent, Error, ErrorKind, Event, TurnEvent, Usage};
use turnstream_testing::http::{BodyPart, HttpResponse, LoopbackServer};
use turnstream_testing::{Answer, Fault, FaultPosition, ModelServer, Wire};

use crate::over_http::{API_KEY, TransportSettings, http_provider};
use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::providers::{collect_turn, user_request};
use turnstream_test_support::runs::collect_rest;

/// The number of failed attempts and the delay of each report.
fn reported_waits(events: &[TurnEvent]) -> Vec<(u32, u64)> {
    let wait = |event: &TurnEvent| match event {
        TurnEvent::Retrying { attempt, delay_ms, .. } => Some((*attempt, *delay_ms)),
        _ => None,
    };
    events.iter().filter_map(wait).collect()
}

/// The first event of a turn, which is then dropped: the test does not wait in real time.
async fn first_event(model: &dyn Provider) -> Result<TurnEvent, Error> {
    model.stream_turn(user_request()).next().await.expect("a turn is never empty")
}

async fn wait_after_answer(answer: Answer) -> Result<u64, Error> {
    let server = ModelServer::start(move |_| answer.clone()).await.unwrap();
    let model = http_provider(Wire::Anthropic, &server.url(), 0, TransportSettings::default());
    match first_event(&*model).await? {
        TurnEvent::Retrying { delay_ms, .. } => Ok(delay_ms),
        event => panic!("it does not wait: {event:?}"),
    }
}

/// The number of requests that a server receives if it gives this answer to all of them.
async fn count_requests(wire: Wire, answer: Answer) -> usize {
    let server = ModelServer::start(move |_| answer.clone()).await.unwrap();
    let model = http_provider(wire, &server.url(), 0, TransportSettings::without_delay());
    let (events, failed) = collect_turn(model.stream_turn(user_request())).await;
    let sent = server.requests().len();
    assert_eq!(reported_waits(&events).len() + 1, sent, "each retry is reported");
    assert!(failed.is_some());
    sent
}

#[tokio::test]
async fn transient_errors_are_attempted_three_times_and_permanent_ones_once() {
    for wire in Wire::ALL {
        for status in [408, 409, 429, 500, 501, 502, 503, 504, 529] {
            assert_eq!(count_requests(wire, Answer::error(status)).await, 3, "{wire} {status}");
            assert_eq!(
                count_requests(wire, Answer::html_page(status)).await,
                3,
                "{wire} {status}, a page"
            );
        }
        for status in [400, 401, 402, 403, 404, 413, 422] {
            assert_eq!(count_requests(wire, Answer::error(status)).await, 1, "{wire} {status}");
        }
    }
}

#[tokio::test]
async fn each_attempt_sends_the_same_bytes() {
    for wire in Wire::ALL {
        let server = ModelServer::start(|asked| match asked.index {
            0 => Answer::error(503),
            1 => Answer::error(429),
            _ => Answer::from("Hello!"),
        });
        let server = server.await.unwrap();
        let model = http_provider(wire, &server.url(), 0, TransportSettings::without_delay());
        let (events, failed) = collect_turn(model.stream_turn(user_request())).await;
        assert_eq!((reported_waits(&events), failed), (vec![(1, 0), (2, 0)], None), "{wire}");
        assert_eq!(events.last().unwrap().turn_complete().unwrap().text(), "Hello!");
        let sent = server.http_server().requests();
        assert!(sent.len() == 3 && sent.iter().all(|it| it.body == sent[0].body), "{wire}");
    }
}

#[tokio::test]
async fn the_x_should_retry_header_takes_precedence() {
    let told = |status, word| Answer::error(status).with_header("x-should-retry", word);
    for (status, word, sent) in
        [(503, "false", 1), (429, "false", 1), (400, "true", 3), (503, "true", 3)]
    {
        assert_eq!(
            count_requests(Wire::Anthropic, told(status, word)).await,
            sent,
            "{status} {word}"
        );
    }
    assert_eq!(count_requests(Wire::Anthropic, told(400, "perhaps")).await, 1);
}

#[tokio::test]
async fn the_status_takes_precedence_over_the_error_message() {
    let answer = |status, code: &str| {
        let body = format!(r#"{{"error":{{"message":"oh","type":"{code}","code":"{code}"}}}}"#);
        Answer::raw("application/json", body).with_status(status)
    };
    // A gateway that reports its timeout as a bad request, and one that reports a bad request as a
    // timeout.
    assert_eq!(count_requests(Wire::OpenAiChat, answer(504, "timeout")).await, 3);
    assert_eq!(count_requests(Wire::OpenAiChat, answer(502, "failed_generation")).await, 3);
    assert_eq!(count_requests(Wire::OpenAiChat, answer(400, "timeout")).await, 1);
    assert_eq!(count_requests(Wire::OpenAiChat, answer(400, "rate_limit_exceeded")).await, 1);
    // Permanent errors are recognized by their text.
    assert_eq!(count_requests(Wire::OpenAiChat, answer(500, "context_length_exceeded")).await, 1);
}

#[tokio::test]
async fn a_timeout_reported_in_the_stream_is_retried_before_any_output() {
    let frame = r#"event: error
data: {"type":"error","error":{"type":"timeout_error","message":"Request timed out"}}

"#;
    let answer = Answer::raw("text/event-stream", frame);
    assert_eq!(count_requests(Wire::Anthropic, answer).await, 3);
}

#[tokio::test]
async fn retry_after_is_honoured_for_every_kind_of_retry() {
    let asks = |status| Answer::error(status).with_header("retry-after", "3");
    assert_eq!(wait_after_answer(asks(501)).await.unwrap(), 3_000);
    assert_eq!(wait_after_answer(asks(409)).await.unwrap(), 3_000);
    let told = asks(400).with_header("x-should-retry", "true");
    assert_eq!(wait_after_answer(told).await.unwrap(), 3_000);
}

#[tokio::test]
async fn an_exhausted_quota_is_not_retried() {
    let body = r#"{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}"#;
    let answer = Answer::raw("application/json", body).with_status(429);
    assert_eq!(count_requests(Wire::OpenAiChat, answer).await, 1);
}

#[tokio::test]
async fn retry_after_is_honoured_up_to_one_minute() {
    let asks = |seconds: &str| Answer::error(429).with_header("retry-after", seconds);
    assert_eq!(wait_after_answer(asks("3")).await.unwrap(), 3_000);
    assert_eq!(wait_after_answer(asks("60")).await.unwrap(), 60_000);
    let error = wait_after_answer(asks("61")).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(61)));
    // Without a delay from the server, it is random and at most half a second.
    let drawn = wait_after_answer(Answer::error(503)).await.unwrap();
    assert!((1..=500).contains(&drawn), "{drawn}");
    assert_eq!(
        wait_after_answer(Answer::error(503)).await.unwrap(),
        drawn,
        "from the given source"
    );
}

#[tokio::test]
async fn an_error_in_the_stream_is_retried_only_before_any_output() {
    let busy = || Error::new(ErrorKind::Overloaded, "overloaded");
    for wire in [Wire::Anthropic, Wire::OpenAiResponses] {
        let before = Answer::from(Reply::new().fail(busy()));
        assert_eq!(count_requests(wire, before).await, 3, "{wire}");
        let after = Answer::from(Reply::text("It is ").fail(busy()));
        assert_eq!(count_requests(wire, after).await, 1, "{wire}");
        let thought = Answer::from(Reply::new().think("Hm.").fail(busy()));
        assert_eq!(count_requests(wire, thought).await, 1, "{wire}");
    }
}

#[tokio::test]
async fn an_incomplete_turn_is_not_retried() {
    for place in [FaultPosition::Bytes(0), FaultPosition::Events(3)] {
        for mishap in [Fault::Cut(place), Fault::EndEarly(place)] {
            let answer = Answer::from("Hello, world!").with_fault(mishap);
            assert_eq!(count_requests(Wire::Anthropic, answer).await, 1, "{place:?}");
        }
    }
}

#[tokio::test]
async fn a_client_side_timeout_is_not_retried() {
    let limits = Timeouts { first_byte: Duration::from_secs(9), ..Timeouts::default() };
    let turn = Timeouts { turn: Duration::from_secs(9), ..Timeouts::default() };
    for timeouts in [limits, turn] {
        let silent = HttpResponse {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            body: vec![BodyPart::Hang],
        };
        let server = LoopbackServer::start(move |_| silent.clone()).await.unwrap();
        let transport = TransportSettings { timeouts, ..TransportSettings::without_delay() };
        let model = http_provider(Wire::Anthropic, &server.url(), 0, transport);
        let asked = async {
            while server.requests().is_empty() {
                tokio::task::yield_now().await;
            }
            // From here on, waits take no real time.
            tokio::time::pause();
        };
        let ((events, failed), ()) =
            futures::join!(collect_turn(model.stream_turn(user_request())), asked);
        tokio::time::resume();
        assert_eq!(failed.unwrap().kind(), ErrorKind::Timeout);
        assert_eq!((server.requests().len(), reported_waits(&events)), (1, vec![]));
    }
}

#[tokio::test]
async fn a_refused_connection_is_retried_after_a_delay() {
    // The port was free a moment ago.
    let url = LoopbackServer::start(|_| HttpResponse::text(200, "")).await.unwrap().url();
    let transport = TransportSettings {
        backoff: Backoff { base_delay: Duration::from_nanos(1), ..Backoff::default() },
        ..TransportSettings::default()
    };
    let model = http_provider(Wire::Anthropic, &url, 0, transport);
    let (events, failed) = collect_turn(model.stream_turn(user_request())).await;
    assert_eq!((reported_waits(&events).len(), failed.unwrap().kind()), (2, ErrorKind::Connect));
    let model = http_provider(Wire::Anthropic, &url, 0, TransportSettings::default());
    let Ok(TurnEvent::Retrying { delay_ms, .. }) = first_event(&*model).await else {
        panic!("it is not retried")
    };
    assert!(delay_ms > 0, "not at once");
}

#[tokio::test]
async fn one_setting_disables_or_configures_retries() {
    let server = ModelServer::start(|_| Answer::error(503)).await.unwrap();
    for attempts in [0, 1, 2, 5] {
        let mut transport = TransportSettings::without_delay();
        transport.backoff.max_attempts = attempts;
        let before = server.requests().len();
        collect_turn(
            http_provider(Wire::Gemini, &server.url(), 0, transport).stream_turn(user_request()),
        )
        .await;
        assert_eq!(server.requests().len() - before, attempts.max(1) as usize);
    }
    let model = turnstream::provider::Anthropic::new("m").with_base_url(server.url()).unwrap();
    let model =
        model.with_http_client(turnstream::http::HttpClient::without_proxy()).without_retries();
    let before = server.requests().len();
    let (events, _) = collect_turn(model.stream_turn(user_request())).await;
    assert_eq!((server.requests().len() - before, reported_waits(&events)), (1, vec![]));
}

/// Two servers, of which the first refuses all requests and the second answers all; and their
/// request counts.
async fn failing_and_ok_servers(status: u16) -> (ModelServer, ModelServer) {
    let failing = ModelServer::start(move |_| Answer::error(status)).await.unwrap();
    let fine = ModelServer::start(|_| Answer::from("Hello!")).await.unwrap();
    (failing, fine)
}

fn provider_at(server: &ModelServer, number: u32) -> Arc<dyn Provider> {
    http_provider(Wire::Anthropic, &server.url(), number, TransportSettings::without_delay())
}

#[tokio::test]
async fn under_a_retry_provider_each_attempt_is_one_request() {
    for attempts in [1, 2, 4] {
        let (server, _) = failing_and_ok_servers(503).await;
        let backoff =
            Backoff { max_attempts: attempts, ..TransportSettings::without_delay().backoff };
        let retry = || Retry::new(provider_at(&server, 0)).with_backoff(backoff);
        collect_turn(retry().stream_turn(user_request())).await;
        assert_eq!(server.requests().len(), attempts as usize);
        // Of two nested retries, only the outer one retries.
        let outer = Retry::new(retry()).with_backoff(TransportSettings::without_delay().backoff);
        let (events, _) = collect_turn(outer.stream_turn(user_request())).await;
        assert_eq!(server.requests().len(), attempts as usize + 3);
        assert_eq!(reported_waits(&events), [(1, 0), (2, 0)]);
    }
}

#[tokio::test]
async fn a_retry_that_selects_no_errors_disables_retries_under_it() {
    let (server, _) = failing_and_ok_servers(503).await;
    collect_turn(
        Retry::new(provider_at(&server, 0)).retry_if(|_| false).stream_turn(user_request()),
    )
    .await;
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn only_the_last_provider_of_a_fallback_retries() {
    let (first, second) = failing_and_ok_servers(503).await;
    let fallback = Fallback::new(provider_at(&first, 0)).or(provider_at(&second, 1));
    let (events, failed) = collect_turn(fallback.stream_turn(user_request())).await;
    assert_eq!((reported_waits(&events), failed), (vec![], None));
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));

    let (first, second) =
        (failing_and_ok_servers(503).await.0, failing_and_ok_servers(429).await.0);
    let fallback = Fallback::new(provider_at(&first, 0)).or(provider_at(&second, 1));
    let (events, _) = collect_turn(fallback.stream_turn(user_request())).await;
    assert_eq!(reported_waits(&events), [(1, 0), (2, 0)]);
    assert_eq!((first.requests().len(), second.requests().len()), (1, 3));
}

#[tokio::test]
async fn a_fallback_can_be_configured_to_retry_its_first_provider() {
    let (first, second) = failing_and_ok_servers(503).await;
    let fallback =
        Fallback::new(provider_at(&first, 0)).or(provider_at(&second, 1)).retrying_first();
    let (events, failed) = collect_turn(fallback.stream_turn(user_request())).await;
    assert_eq!((reported_waits(&events), failed), (vec![(1, 0), (2, 0)], None));
    assert_eq!((first.requests().len(), second.requests().len()), (3, 1));
}

#[tokio::test]
async fn a_retry_around_a_fallback_is_the_only_one() {
    let (first, second) =
        (failing_and_ok_servers(503).await.0, failing_and_ok_servers(429).await.0);
    let fallback = Fallback::new(provider_at(&first, 0)).or(provider_at(&second, 1));
    let backoff = Backoff { max_attempts: 2, ..TransportSettings::without_delay().backoff };
    collect_turn(Retry::new(fallback).with_backoff(backoff).stream_turn(user_request())).await;
    assert_eq!((first.requests().len(), second.requests().len()), (2, 2));
}

#[tokio::test]
async fn an_agent_with_a_fallback_fails_over_immediately_and_only_the_last_provider_retries() {
    let (first, second) = failing_and_ok_servers(503).await;
    let agent = Agent::new(provider_at(&first, 0)).with_fallback(provider_at(&second, 1));
    let outcome = agent.run("go").outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "Hello!"));
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));

    let (first, second) =
        (failing_and_ok_servers(503).await.0, failing_and_ok_servers(429).await.0);
    let agent = Agent::new(provider_at(&first, 0)).with_fallback(provider_at(&second, 1));
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.error.unwrap().kind(), ErrorKind::RateLimited);
    assert_eq!((first.requests().len(), second.requests().len()), (1, 3));
}

#[tokio::test]
async fn a_circuit_breaker_counts_one_failure_per_request_and_forwards_retry_settings() {
    let (server, _) = failing_and_ok_servers(503).await;
    let breaker = CircuitBreaker::new(provider_at(&server, 0)).with_max_failures(2);
    for (turn, sent) in [(1, 3), (2, 6), (3, 6)] {
        let (_, failed) = collect_turn(breaker.stream_turn(user_request())).await;
        assert!(failed.is_some());
        assert_eq!(server.requests().len(), sent, "in turn {turn}");
    }
    let (server, _) = failing_and_ok_servers(503).await;
    let breaker = CircuitBreaker::new(provider_at(&server, 0)).with_max_failures(9);
    let retry = Retry::new(breaker).with_backoff(TransportSettings::without_delay().backoff);
    collect_turn(retry.stream_turn(user_request())).await;
    assert_eq!(server.requests().len(), 3, "one for each attempt");
}

#[tokio::test]
async fn all_attempts_of_a_turn_count_as_one_model_call() {
    let server = ModelServer::start(|asked| match asked.index {
        0 | 1 => Answer::error(503),
        _ => {
            let usage = Usage { input_tokens: 10, output_tokens: 2, ..Usage::default() };
            Answer::from(Reply::text("Hello!").usage(usage))
        }
    });
    let server = server.await.unwrap();
    let agent = Agent::new(provider_at(&server, 0))
        .with_limits(Limits { max_turns: Some(1), ..Limits::default() });
    let outcome = agent.run("go").outcome().await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 1));
    assert_eq!((server.requests().len(), outcome.usage.total()), (3, 12));
}

#[tokio::test]
async fn the_time_limit_of_a_run_spans_all_attempts() {
    let server = ModelServer::start(|_| Answer::error(503).with_header("retry-after", "50"));
    let server = server.await.unwrap();
    let agent =
        Agent::new(http_provider(Wire::Anthropic, &server.url(), 0, TransportSettings::default()));
    let mut run =
        agent.with_budget(Budget::new().with_time_limit(Duration::from_secs(20))).run("go");
    loop {
        if let Event::Turn(TurnEvent::Retrying { delay_ms, .. }) =
            run.next().await.unwrap().unwrap()
        {
            assert_eq!(delay_ms, 50_000);
            break;
        }
    }
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let events = collect_rest(&mut run).await;
    assert!(began.elapsed() <= Duration::from_secs(20));
    let outcome = events.last().unwrap().outcome().unwrap();
    assert_eq!(outcome.reason, EndReason::Budget);
    assert_eq!(outcome.budget.as_ref().map(|it| it.kind), Some(BudgetKind::Time));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_retry_event_shows_no_key() {
    let body = format!(r#"{{"error":{{"message":"slow down, {API_KEY}"}}}}"#);
    let answer = Answer::raw("application/json", body).with_status(429);
    let server = ModelServer::start(move |_| answer.clone()).await.unwrap();
    for wire in Wire::ALL {
        let model = http_provider(wire, &server.url(), 0, TransportSettings::without_delay());
        let event = first_event(&*model).await.unwrap();
        let TurnEvent::Retrying { error, .. } = &event else { panic!("{event:?}") };
        assert!(error.message().contains("slow down"), "{error}");
        let shown = format!("{error:#} {error:#?} {}", serde_json::to_string(&event).unwrap());
        assert!(!shown.contains(API_KEY), "{shown}");
    }
}

#[tokio::test]
async fn retry_events_are_recorded_and_replayed_without_waiting() {
    let server = ModelServer::start(|asked| match asked.index {
        0 => Answer::error(503),
        _ => Answer::from("Hello!"),
    });
    let server = server.await.unwrap();
    let paper = SharedBuffer::new();
    let transport = TransportSettings {
        backoff: Backoff { base_delay: Duration::from_millis(2), ..Backoff::default() },
        ..TransportSettings::default()
    };
    let model = http_provider(Wire::Anthropic, &server.url(), 0, transport);
    let recorded =
        collect_turn(Record::to_writer(model, paper.clone()).stream_turn(user_request())).await;
    assert_eq!(reported_waits(&recorded.0).len(), 1);

    // Simulates a long wait.
    let text = paper.text();
    let at = text.find("\"delay_ms\":").unwrap() + "\"delay_ms\":".len();
    let end = at + text[at..].find(|c: char| !c.is_ascii_digit()).unwrap();
    let text = format!("{}3600000{}", &text[..at], &text[end..]);
    let replay = Replay::from_text(&text).unwrap();
    let began = tokio::time::Instant::now();
    let (events, failed) = collect_turn(replay.stream_turn(user_request())).await;
    assert!(began.elapsed() < Duration::from_hours(1));
    assert_eq!((reported_waits(&events), failed), (vec![(1, 3_600_000)], None));
    assert_eq!(events[1..], recorded.0[1..]);
}

#[tokio::test]
async fn a_retry_dropped_during_its_delay_sends_nothing() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let server = ModelServer::start(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Answer::error(503).with_header("retry-after", "9")
    });
    let server = server.await.unwrap();
    let model = http_provider(Wire::Anthropic, &server.url(), 0, TransportSettings::default());
    let mut turn = model.stream_turn(user_request());
    assert!(matches!(turn.next().await, Some(Ok(TurnEvent::Retrying { .. }))));
    tokio::time::pause();
    drop(turn);
    tokio::time::advance(Duration::from_hours(1)).await;
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}
