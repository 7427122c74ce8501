//! Providers made of a closure obey the same rules as all others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures::{FutureExt, StreamExt, stream};
use turnstream::event::EndReason;
use turnstream::provider::{Backoff, Piece, Provider, Retry, from_poll_fn, from_stream};
use turnstream::stream::TurnStreamExt;
use turnstream::turn::{PartialTurn, StopReason};
use turnstream::{Agent, Error, ErrorKind, Item, TurnEvent, Usage};

use turnstream_test_support::providers::user_request;
use turnstream_test_support::tools::{Counter, ok_tool};

fn call_piece(id: &str) -> Piece {
    call_piece_with(id, "{}")
}

fn call_piece_with(id: &str, arguments: &str) -> Piece {
    Piece::ToolCall { id: id.into(), name: "t".into(), arguments: arguments.into() }
}

fn usage() -> Usage {
    Usage { input_tokens: 10, output_tokens: 2, ..Usage::default() }
}

#[tokio::test]
async fn a_stream_of_deltas_becomes_a_turn() {
    let model = from_stream("mine", |_| {
        stream::iter([
            Ok(Piece::Reasoning("Hm. ".into())),
            Ok(Piece::Reasoning("Well.".into())),
            Ok("It is ".into()),
            Ok(String::from("done.").into()),
            Ok(Piece::Usage(usage())),
            Ok(StopReason::MaxTokens.into()),
        ])
    });
    assert_eq!(model.model(), "mine");
    let turn = model.stream_turn(user_request()).into_turn().await.unwrap();
    assert_eq!((turn.text(), turn.reasoning()), ("It is done.".into(), "Hm. Well.".into()));
    assert_eq!((turn.usage(), turn.stop_reason()), (usage(), &StopReason::MaxTokens));
}

#[tokio::test]
async fn calls_of_a_custom_provider_run_and_missing_or_duplicate_ids_are_made_unique() {
    let ran = Counter::default();
    let model = from_stream("mine", |request| {
        let results = request.history.iter().filter(|item| item.as_tool_result().is_some());
        stream::iter(match results.count() {
            0 => vec![
                Ok(call_piece("")),
                Ok(call_piece("x")),
                Ok(call_piece_with("x", r#"{"n":2}"#)),
                Ok(StopReason::ToolCalls.into()),
            ],
            _ => vec![Ok("done".into()), Ok(StopReason::Stop.into())],
        })
    });
    let outcome = Agent::new(model).with_tool(ok_tool("t", &ran)).run("go").outcome().await;
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "done"));
    assert_eq!(ran.started_count(), 3);
    let ids = outcome.new_items().iter().filter_map(Item::as_tool_call).map(|call| &call.call_id);
    let ids: std::collections::HashSet<_> = ids.collect();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn a_stream_without_a_stop_is_an_incomplete_turn_and_no_call_runs() {
    let ran = Counter::default();
    let model = from_stream("mine", |_| stream::iter([Ok("It is ".into()), Ok(call_piece("c"))]));
    let error = model.stream_turn(user_request()).into_turn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
    assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "It is ");
    let outcome = Agent::new(model).with_tool(ok_tool("t", &ran)).run("go").outcome().await;
    assert_eq!(
        (outcome.error.unwrap().kind(), ran.started_count()),
        (ErrorKind::IncompleteTurn, 0)
    );
}

#[tokio::test]
async fn items_after_the_stop_are_not_read() {
    let model = from_stream("mine", |_| {
        stream::iter([Ok("done".into()), Ok(StopReason::Stop.into()), Ok("more".into())])
    });
    let turn = model.stream_turn(user_request()).into_turn().await.unwrap();
    assert_eq!(turn.text(), "done");
}

#[tokio::test]
async fn an_error_passes_through_unchanged_and_can_be_retried() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let model = from_stream("mine", move |_| {
        let n = counted.fetch_add(1, Ordering::Relaxed);
        let busy = Error::new(ErrorKind::Overloaded, "busy").with_status(529);
        stream::iter(match n {
            0 => vec![Err(busy)],
            _ => vec![Ok("done".into()), Ok(StopReason::Stop.into())],
        })
    });
    let model = Arc::new(model);
    let error = model.stream_turn(user_request()).into_turn().await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Overloaded, Some(529)));
    asked.store(0, Ordering::Relaxed);
    let backoff = Backoff { base_delay: std::time::Duration::ZERO, ..Backoff::default() };
    let turn =
        Retry::new(model).with_backoff(backoff).stream_turn(user_request()).into_turn().await;
    assert_eq!(turn.unwrap().text(), "done");
}

#[tokio::test]
async fn nothing_is_called_before_the_first_poll_and_a_drop_drops_the_stream() {
    let counter = Counter::default();
    let shared = counter.clone();
    let model = from_stream("mine", move |_| {
        let here = shared.enter();
        stream::once(async { Ok("It is ".into()) })
            .chain(stream::pending())
            .inspect(move |_| _ = &here)
    });
    let mut turn = model.stream_turn(user_request());
    assert_eq!(counter.started_count(), 0);
    assert!(matches!(turn.next().await, Some(Ok(TurnEvent::TextDelta { .. }))));
    assert!(turn.next().now_or_never().is_none());
    assert_eq!(counter.alive_count(), 1);
    drop(turn);
    assert_eq!(counter.alive_count(), 0);
}

#[tokio::test]
async fn a_closure_that_panics_is_an_error_of_the_run() {
    fn panicking_provider(_: turnstream::Request) -> stream::Empty<Result<Piece, Error>> {
        panic!("boom")
    }
    let outcome = Agent::new(from_stream("mine", panicking_provider)).run("go").outcome().await;
    let error = outcome.error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Panic);
    assert!(error.message().contains("boom"), "{error}");
}

#[tokio::test]
async fn a_poll_function_can_push_any_events_and_is_dropped_with_its_turn() {
    let counter = Counter::default();
    let shared = counter.clone();
    let model = from_poll_fn("mine", move |_| {
        let here = shared.enter();
        let mut polls = 0;
        move |cx, turn| {
            let _ = &here;
            polls += 1;
            match polls {
                1 | 3 => turn.push_text(0, "word "),
                2 => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                _ => {
                    turn.stop(StopReason::Stop, "end");
                    return Poll::Ready(Some(turn.complete()));
                }
            }
            Poll::Ready(Some(Ok(())))
        }
    });
    assert_eq!(model.model(), "mine");
    let turn = model.stream_turn(user_request());
    assert_eq!(counter.started_count(), 0);
    let turn = turn.into_turn().await.unwrap();
    assert_eq!((turn.text().as_str(), turn.raw_stop_reason()), ("word word ", Some("end")));
    assert_eq!((counter.started_count(), counter.alive_count()), (1, 0));

    let ends = from_poll_fn("mine", |_| |_, _| Poll::Ready(None));
    let error = ends.stream_turn(user_request()).into_turn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn the_debug_output_of_a_closure_provider_names_its_model() {
    let pieces = from_stream("mine", |_| stream::iter([Ok(Piece::Stop(StopReason::Stop))]));
    let polled = from_poll_fn("mine", |_| |_, _| Poll::Ready(None));
    assert_eq!(format!("{pieces:?}"), r#"FromStream { model: "mine", .. }"#);
    assert_eq!(format!("{polled:?}"), r#"FromPollFn { model: "mine", .. }"#);
}
