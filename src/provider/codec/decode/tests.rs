//! Tests of the timeouts, as a consumer of a turn observes them.

use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use tokio::time::Instant;

use super::*;
use crate::http::Timeouts;
use crate::item::History;
use crate::provider::wires::openai_chat::{Decoder, Dialect};
use crate::stream::{TurnStream, seal};
use crate::turn::PartialTurn;

const PING: &str = ": ping\n\n";
const EMPTY: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n";
const COUNT: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5}}\n\n";
const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
const THOUGHT: &str = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}\n\n";
const FINISH: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

#[test]
fn the_docs_list_the_limit_on_values() {
    assert_eq!(MAX_FRAME_VALUES, 1_000_000);
    let row = "| JSON values in an event or a line | 1,000,000 |";
    assert!(include_str!("../../mod.rs").contains(row));
}

#[test]
fn a_frame_with_too_many_values_is_too_large_at_any_place_in_the_body() {
    let many = |max: usize| format!("data: {{\"x\":[{}]}}\n\n", vec!["0"; max].join(","));
    let read = |body: String| {
        let body = stream::iter([Ok(Bytes::from(body))]);
        let decoding = Decoding::new(body, Decoder::new("any", &Dialect::OPENAI));
        let mut turn = seal(&History::empty("h"), decoding);
        std::iter::from_fn(|| turn.next().now_or_never().unwrap())
            .find_map(Result::err)
            .map(|error| error.kind())
    };
    let whole = |frame: &str| format!("{TEXT}{frame}{FINISH}data: [DONE]\n\n");
    assert_eq!(read(whole(&many(MAX_FRAME_VALUES - 2))), None);
    assert_eq!(read(whole(&many(MAX_FRAME_VALUES - 1))), Some(ErrorKind::TooLarge));
    let after_end = format!("{TEXT}{FINISH}data: [DONE]\n\n{}", many(MAX_FRAME_VALUES));
    assert_eq!(read(after_end), Some(ErrorKind::TooLarge));
}

/// A turn whose frames arrive after the given delays in seconds, and whose body then stays open.
fn turn(frames: &'static [(u64, &'static str)], limits: Timeouts) -> TurnStream {
    let body = stream::iter(frames).then(|(seconds, frame)| async move {
        tokio::time::sleep(Duration::from_secs(*seconds)).await;
        Ok(Bytes::from_static(frame.as_bytes()))
    });
    let decoding = Decoding::new(
        Box::pin(body.chain(stream::pending())),
        Decoder::new("any", &Dialect::OPENAI),
    );
    seal(&History::empty("h"), decoding.with_deadlines(deadlines(limits)))
}

fn deadlines(limits: Timeouts) -> TurnDeadlines {
    TurnDeadlines::start(limits, "the host".to_owned())
}

fn limits() -> Timeouts {
    let (first_output, idle_output) = (Duration::from_mins(1), Duration::from_secs(20));
    Timeouts { first_output, idle_output, ..Timeouts::default() }
}

/// Checks the error's message, the time at which it occurs, and the partial turn's text.
async fn check(mut turn: TurnStream, seconds: u64, expected: &str, expected_text: &str) {
    let began = Instant::now();
    let error = loop {
        match turn.next().await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(began.elapsed(), Duration::from_secs(seconds), "{error}");
    assert!(error.message().contains(expected), "{error}");
    let partial = error.find_source::<PartialTurn>();
    assert_eq!(partial.map(PartialTurn::text).unwrap_or_default(), expected_text);
    assert!(turn.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn pings_and_usage_counts_do_not_count_as_output() {
    let pings = &[(10, PING), (10, EMPTY), (10, COUNT), (10, PING), (10, COUNT), (9, PING)];
    check(turn(pings, limits()), 60, "sent no output", "").await;
}

#[tokio::test(start_paused = true)]
async fn a_ping_does_not_reset_the_idle_output_limit() {
    let frames = &[(59, TEXT), (10, PING), (9, TEXT), (15, PING), (4, PING), (9, TEXT)];
    check(turn(frames, limits()), 59 + 10 + 9 + 20, "sent no further output", "hihi").await;
}

#[tokio::test(start_paused = true)]
async fn reasoning_counts_as_output() {
    let frames = &[(59, THOUGHT), (19, THOUGHT), (19, TEXT)];
    check(turn(frames, limits()), 59 + 19 + 19 + 20, "sent no further output", "hi").await;
}

#[tokio::test(start_paused = true)]
async fn the_whole_turn_has_a_separate_limit() {
    let frames = &[(10, TEXT), (10, TEXT), (10, TEXT), (10, TEXT)];
    let limits = Timeouts { turn: Duration::from_secs(35), ..limits() };
    check(turn(frames, limits), 35, "not complete within 35s", "hihihi").await;
    let limits = Timeouts { turn: Duration::from_secs(5), ..limits };
    check(turn(&[(10, TEXT)], limits), 5, "not complete", "").await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_completes_after_its_stop_reason_without_the_end_of_the_body() {
    for limits in [limits(), Timeouts { turn: Duration::from_secs(9), ..limits() }] {
        let mut turn = turn(&[(1, TEXT), (1, FINISH)], limits);
        let mut last = None;
        while let Some(event) = turn.next().await {
            last = Some(event.unwrap());
        }
        assert!(matches!(last, Some(crate::turn::TurnEvent::TurnComplete { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn consumer_pauses_do_not_count_toward_the_idle_limit() {
    let mut turn = turn(&[(1, TEXT), (19, TEXT)], limits());
    assert!(turn.next().await.unwrap().is_ok());
    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(turn.next().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn endless_pings_time_out_without_blocking_the_executor() {
    let pings = stream::repeat_with(|| Ok(Bytes::from_static(PING.as_bytes())));
    let decoding = Decoding::new(pings, Decoder::new("any", &Dialect::OPENAI));
    let decoding = decoding.with_deadlines(deadlines(limits()));
    let mut turn = seal(&History::empty("h"), decoding);
    assert!(turn.next().now_or_never().is_none());
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(turn.next().now_or_never().is_none());
    tokio::time::advance(Duration::from_secs(1)).await;
    let error = turn.next().now_or_never().unwrap().unwrap().unwrap_err();
    assert!(error.message().contains("sent no output"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn without_timeouts_a_turn_waits_indefinitely() {
    let never = Timeouts::NEVER;
    let limits = Timeouts {
        first_byte: never,
        first_output: never,
        idle: never,
        idle_output: never,
        ..Timeouts::default()
    };
    let mut turn = turn(&[(1_000_000, TEXT), (1_000_000, TEXT)], limits);
    assert!(turn.next().await.unwrap().is_ok());
    assert!(turn.next().await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_has_a_limit_of_its_own() {
    let limits = Timeouts { first_byte: Duration::from_secs(30), ..limits() };
    check(turn(&[(31, PING)], limits), 30, "the host did not start its response within 30s", "")
        .await;
    check(turn(&[(29, PING)], limits), 60, "sent no output", "").await;
}

#[tokio::test(start_paused = true)]
async fn a_body_without_pings_is_silent_and_one_with_pings_is_not() {
    let idle = Duration::from_secs(10);
    let limits = Timeouts { idle, idle_output: Timeouts::NEVER, ..limits() };
    let pings = &[(1, TEXT), (9, PING), (9, PING), (9, PING), (11, PING)];
    check(turn(pings, limits), 1 + 27 + 10, "the host sent nothing for", "hi").await;
}
