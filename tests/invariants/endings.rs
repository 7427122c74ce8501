//! A turn, a loop and a run end exactly once, and nothing follows their end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::executor::block_on;
use futures::{FutureExt, StreamExt, stream};
use turnstream::event::EndReason;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::{Step, TurnSource, loop_stream, seal};
use turnstream::turn::{StopReason, TurnBuilder};
use turnstream::{
    Agent, Error, ErrorKind, Event, EventStreamExt, History, Journal, Request, TurnEvent,
    TurnStreamExt, Usage,
};

#[test]
fn finish_with_on_a_finished_run_adds_no_second_finished_event() {
    let run = Agent::new(Scripted::new(["x"])).run("go");
    let journal = run.journal().clone();
    let events: Vec<_> = block_on(run.finish_with(&journal).collect());
    let endings = events.iter().filter(|event| event.as_ref().unwrap().outcome().is_some());
    assert_eq!(endings.count(), 1);
}

#[test]
fn a_loop_whose_body_panicked_has_no_finished_event() {
    type Body = stream::Empty<Result<Step<Event, u8>, Error>>;
    let journal = Journal::new(History::empty("h"));
    let mut events = loop_stream(0, |_| -> Body { std::panic::resume_unwind(Box::new("boom")) })
        .journal_to(&journal)
        .finish_with(&journal);
    assert!(catch_unwind(AssertUnwindSafe(|| events.next().now_or_never())).is_err());
    assert!(block_on(events.next()).is_none());
}

#[test]
fn a_loop_that_stops_in_the_middle_of_a_turn_is_not_completed() {
    let journal = Journal::new(History::empty("h"));
    let half = [Ok(TurnEvent::TextDelta { index: 0, text: "half".into() }.into())];
    let events: Vec<_> =
        block_on(stream::iter(half).journal_to(&journal).finish_with(&journal).collect());
    let outcome = events.last().unwrap().as_ref().unwrap().outcome().unwrap();
    assert_eq!(outcome.reason, EndReason::Stopped);
}

#[test]
fn a_sealed_stream_ends_exactly_one_way_for_any_input() {
    struct FnTurnSource(fn(&mut TurnBuilder) -> Result<(), Error>);
    impl TurnSource for FnTurnSource {
        fn poll_turn(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            turn: &mut TurnBuilder,
        ) -> Poll<Option<Result<(), Error>>> {
            Poll::Ready(Some((self.0)(turn)))
        }
    }
    let last = |odd| {
        let events: Vec<_> = block_on(seal(&History::empty("h"), FnTurnSource(odd)).collect());
        events.into_iter().last().unwrap()
    };
    let late_error = last(|turn| {
        turn.stop(StopReason::Stop, "");
        turn.complete()?;
        Err(Error::new(ErrorKind::Server, "late"))
    });
    assert!(matches!(late_error, Ok(TurnEvent::TurnComplete { .. })));
    let never_said = last(|turn| {
        let _ = turn.fail_incomplete(None);
        Ok(())
    });
    assert!(never_said.is_err());
    let asked_twice = last(|turn| {
        turn.start_tool_call(0, "a", "t");
        turn.stop(StopReason::ToolCalls, "");
        let _ = turn.complete();
        turn.complete()
    });
    assert!(asked_twice.is_err());
}

#[test]
fn nothing_follows_a_complete_turn_and_its_source_is_dropped_before_it_is_yielded() {
    let events: Vec<Result<TurnEvent, Error>> = {
        let reply = Reply::text("Hi.").call_raw("a", "t", "{}");
        let request = Request::new(History::empty("h"));
        block_on(Scripted::new([reply]).stream_turn(request).collect())
    };
    let busy = Arc::new(Error::new(ErrorKind::Overloaded, "busy"));
    let usage = Usage { output_tokens: 9, ..Usage::default() };
    let late = [
        Ok(TurnEvent::TextDelta { index: 0, text: "late".into() }),
        Ok(TurnEvent::UsageUpdate { usage }),
        Ok(TurnEvent::ToolCallStart { call_id: "b".into(), name: "t".into() }),
        Ok(TurnEvent::ToolCallEnd { call_id: "a".into() }),
        Ok(TurnEvent::Retrying { attempt: 1, delay_ms: 1, error: busy }),
        Ok(TurnEvent::Retracted { why: "late".into(), usage: usage.into() }),
        events.last().unwrap().clone(),
        Err(Error::new(ErrorKind::Server, "late")),
    ];
    for late in late {
        // A connection that stays open after the end of the turn.
        let source = stream::iter(events.clone()).chain(stream::iter([late.clone()]));
        let guard = Arc::new(());
        let watch = Arc::downgrade(&guard);
        let source = source.chain(stream::pending()).inspect(move |_| drop(Arc::clone(&guard)));
        let mut turn = source.seal(&History::empty("h"));
        let mut read = Vec::new();
        while let Some(event) = turn.next().now_or_never().expect("it ends") {
            let is_complete = matches!(event, Ok(TurnEvent::TurnComplete { .. }));
            assert_eq!(watch.upgrade().is_none(), is_complete, "{event:?}, {late:?}");
            read.push(event);
        }
        assert_eq!(read, events, "{late:?}");
    }
}

#[test]
fn a_stop_reason_that_forbids_calls_is_not_overridden_by_a_second_one() {
    let mut turn = TurnBuilder::new();
    turn.start_tool_call(0, "a", "t");
    turn.end_tool_call(0);
    turn.stop(StopReason::MaxTokens, "length");
    turn.stop(StopReason::ToolCalls, "tool_calls");
    turn.complete().unwrap();
    let last = std::iter::from_fn(|| turn.next_event()).last();
    let Some(TurnEvent::TurnComplete { turn }) = last else { panic!("no turn") };
    assert!(turn.calls().veto().is_some());
}
