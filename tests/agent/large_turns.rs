//! The byte limit of a turn applies to every provider.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use futures::{StreamExt, stream};
use turnstream::agent::Limits;
use turnstream::event::EndReason;
use turnstream::provider::{
    CircuitBreaker, Decode, Decoding, Fallback, FrameOutcome, Piece, Provider, Reply, Retry,
    Scripted, from_poll_fn, from_stream,
};
use turnstream::replay::{Record, Replay};
use turnstream::sse::Frame;
use turnstream::stream::{TurnStream, TurnStreamExt, seal};
use turnstream::turn::{StopReason, TurnBuilder, TurnEvent};
use turnstream::{Error, ErrorKind, History, Request, Usage};
use turnstream_testing::Wire;

use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::models::WireProvider;
use turnstream_test_support::providers::{usage_with_output, user_request};
use turnstream_test_support::runs::{limits_without_retries, test_agent};

const MAX_TURN_BYTES: usize = 1000;

fn oversized_reply() -> Reply {
    Reply::new()
        .usage(usage_with_output(7))
        .event(TurnEvent::TextDelta { index: 0, text: "x".repeat(MAX_TURN_BYTES + 1).into() })
}

/// A provider whose answer never ends.
fn endless_provider() -> impl Provider + 'static {
    from_stream("endless", |_| {
        let usage = stream::iter([Ok(Piece::Usage(usage_with_output(7)))]);
        usage.chain(stream::repeat_with(|| Ok(Piece::Text("x".repeat(100)))))
    })
}

/// A provider that does not pass on the request's limit.
struct LimitDroppingProvider<P>(P);

impl<P: Provider> Provider for LimitDroppingProvider<P> {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let history = request.history.clone();
        self.0.stream_turn(Request { max_turn_bytes: None, ..request }).seal(&history)
    }

    fn model(&self) -> &str {
        self.0.model()
    }
}

fn all_providers() -> Vec<(&'static str, Arc<dyn Provider>)> {
    let polled = from_poll_fn("polled", |_| {
        |_cx, turn| {
            turn.set_usage(usage_with_output(7));
            turn.push_text(0, &"x".repeat(100));
            Poll::Ready(Some(Ok(())))
        }
    });
    let script = || Scripted::from_fn(|_, _| oversized_reply());
    vec![
        ("scripted", Arc::new(script())),
        ("from_stream", Arc::new(endless_provider())),
        ("from_poll_fn", Arc::new(polled)),
        ("forgetful", Arc::new(LimitDroppingProvider(endless_provider()))),
        ("retry", Arc::new(Retry::new(endless_provider()))),
        ("fallback", Arc::new(Fallback::new(endless_provider()).or(endless_provider()))),
        ("breaker", Arc::new(CircuitBreaker::new(endless_provider()))),
        ("record", Arc::new(Record::to_writer(endless_provider(), SharedBuffer::new()))),
    ]
}

fn limits_with_turn_bytes(max_turn_bytes: usize) -> Limits {
    Limits { max_turn_bytes, ..limits_without_retries() }
}

#[tokio::test]
async fn a_run_ends_as_too_large_at_its_byte_limit_with_any_provider() {
    for (name, provider) in all_providers() {
        let run =
            test_agent(provider).with_limits(limits_with_turn_bytes(MAX_TURN_BYTES)).run("go");
        let handle = run.handle();
        let outcome = run.outcome().await;
        assert_eq!(outcome.reason, EndReason::ProviderError, "{name}");
        let error = outcome.error.as_ref().expect(name);
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{name}: {error}");
        assert!(error.to_string().contains("1000 bytes"), "{name}: {error}");
        assert!(outcome.text.len() <= MAX_TURN_BYTES, "{name}: {} bytes", outcome.text.len());
        let expected = if name == "fallback" {
            usage_with_output(7) + usage_with_output(7)
        } else {
            usage_with_output(7)
        };
        assert_eq!(outcome.usage, expected, "{name}: it is paid for");
        assert!(handle.history().settled().is_settled(), "{name}");
    }
}

#[tokio::test]
async fn a_request_can_raise_its_byte_limit_above_the_default_through_any_provider_layer() {
    let model = from_stream("large", |_| {
        let pieces = stream::repeat_with(|| Ok(Piece::Text("x".repeat(1 << 20)))).take(65);
        pieces.chain(stream::iter([Ok(StopReason::Stop.into())]))
    });
    let request = Request { max_turn_bytes: Some(usize::MAX), ..user_request() };
    let mut turn = Retry::new(model).stream_turn(request);
    let mut completed = 0;
    while let Some(event) = turn.next().await {
        completed += usize::from(event.unwrap().turn_complete().is_some());
    }
    assert_eq!(completed, 1);
}

#[tokio::test]
async fn every_wire_enforces_the_byte_limit() {
    for wire in Wire::ALL {
        let model = WireProvider::new(wire, "m", [Reply::text("word ".repeat(1000))]);
        let outcome = test_agent(model)
            .with_limits(limits_with_turn_bytes(MAX_TURN_BYTES))
            .run("go")
            .outcome()
            .await;
        let error = outcome.error.expect("it is too large");
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{wire}: {error}");
        assert!(outcome.text.len() <= MAX_TURN_BYTES, "{wire}");
    }
}

#[tokio::test]
async fn a_replay_enforces_the_byte_limit() {
    let paper = SharedBuffer::new();
    let record =
        Record::to_writer(Scripted::new([Reply::text("word ".repeat(1000))]), paper.clone());
    record.stream_turn(user_request()).into_turn().await.unwrap();
    let replay = Replay::from_text(&paper.text()).unwrap();
    let limited = Request { max_turn_bytes: Some(MAX_TURN_BYTES), ..user_request() };
    let error = replay.stream_turn(limited).into_turn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[tokio::test]
async fn without_an_agent_a_turn_is_limited_to_64_mib() {
    let piece = TurnEvent::TextDelta { index: 0, text: "x".repeat(1 << 20).into() };
    let endless = stream::repeat_with(move || Ok(piece.clone()));
    let mut turn = seal(&History::empty("h"), endless);
    let (mut bytes, mut error) = (0, None);
    while let Some(event) = turn.next().await {
        match event {
            Ok(event) => bytes += event.text_delta().unwrap().len(),
            Err(failed) => error = Some(failed),
        }
    }
    assert_eq!(bytes, 64 << 20);
    assert_eq!(error.unwrap().kind(), ErrorKind::TooLarge);
}

/// A decoder that buffers all input and emits no events.
struct SilentDecoder;

impl Decode for SilentDecoder {
    fn frame(&mut self, _: Frame<'_>, _: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        Ok(FrameOutcome::Continue)
    }

    fn finish(&mut self, _: &mut TurnBuilder) -> Result<(), Error> {
        Ok(())
    }
}

#[tokio::test]
async fn a_response_of_empty_frames_ends_as_too_large() {
    let frame = Bytes::from(format!("data: {}\n\n", "x".repeat(1 << 20)));
    let frames = Arc::new(AtomicUsize::new(0));
    let count = frames.clone();
    let body = stream::repeat_with(move || {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(frame.clone())
    });
    let turn = seal(&History::empty("h"), Decoding::new(body, SilentDecoder)).into_turn();
    assert_eq!(turn.await.unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(frames.load(Ordering::Relaxed), 257);
}

#[tokio::test]
async fn a_turn_that_is_as_large_as_its_limit_is_complete() {
    let text = "x".repeat(MAX_TURN_BYTES);
    let says = move |_| {
        let end: [Result<Piece, _>; 2] = [Ok(text.clone().into()), Ok(StopReason::Stop.into())];
        stream::iter(end)
    };
    let outcome = test_agent(from_stream("exact", says))
        .with_limits(limits_with_turn_bytes(MAX_TURN_BYTES))
        .run("go")
        .outcome()
        .await;
    assert_eq!((outcome.reason, outcome.text.len()), (EndReason::Completed, MAX_TURN_BYTES));
    assert_eq!(outcome.usage, Usage::default());
}
