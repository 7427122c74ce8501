//! The cost of moving a token: events, steps and the loop itself are small, and stay small.
//!
//! An event is moved once for each layer that it passes, so its size is paid for every token. The
//! numbers are the current sizes on 64-bit platforms; a larger one needs a reason, or a `Box`
//! around rarely used fields.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream;
use turnstream::agent::{Agent, State, StateFields, loop_body};
use turnstream::event::{Outcome, ToolEvent};
use turnstream::item::{ToolCall, ToolResult};
use turnstream::provider::{Provider, Scripted};
use turnstream::stream::{LoopEndReason, LoopStream, TurnStream};
use turnstream::turn::Text;
use turnstream::{
    Error, Event, History, Item, Journal, Request, Run, Step, Steps, TurnEvent, TurnStreamExt,
    Usage, loop_stream,
};

#[track_caller]
fn check_size<T>(at_most: usize) {
    let size = size_of::<T>();
    assert!(size <= at_most, "{} has {size} bytes", std::any::type_name::<T>());
}

#[test]
fn events_are_small() {
    // The usage and a tag; a tool call with its id and its name determines the number.
    check_size::<TurnEvent>(64);
    check_size::<Text>(24);
    check_size::<Usage>(56);
    // A tool's result determines it.
    check_size::<ToolEvent>(96);
    check_size::<ToolResult>(96);
    check_size::<ToolCall>(72);
    check_size::<Event>(96);
}

#[test]
fn wrappers_of_an_event_add_no_size() {
    let event = size_of::<Event>();
    check_size::<Result<Event, Error>>(event);
    check_size::<Option<Result<Event, Error>>>(event);
    check_size::<Step<Event, History>>(event);
    check_size::<Option<Result<Step<Event, History>, Error>>>(event);
    check_size::<Result<TurnEvent, Error>>(size_of::<TurnEvent>());
}

#[test]
fn handles_are_at_most_a_few_pointers_in_size() {
    check_size::<Error>(8);
    check_size::<Journal>(8);
    check_size::<TurnStream>(16);
    check_size::<Steps<'static, History>>(16);
    check_size::<turnstream::task::InTask<Event>>(24);
    check_size::<History>(40);
}

#[test]
fn values_created_once_per_turn_are_small() {
    check_size::<Item>(120);
    check_size::<Outcome>(368);
    // A `State` is a pointer to its fields.
    check_size::<State>(8);
    check_size::<StateFields>(344);
    check_size::<Run>(640);
}

/// The size of a loop, without its closure's state and the larger of its body and its state. A loop
/// contains either of them.
fn loop_overhead<F, B, S>(_: &LoopStream<F, B, S>) -> usize {
    size_of::<LoopStream<F, B, S>>() - size_of::<F>() - size_of::<B>().max(size_of::<S>())
}

#[test]
fn a_loop_is_three_pointers_larger_than_its_body_or_state() {
    let counting = loop_stream(3_u64, |n| stream::iter([Step::Value(n), Step::Next(n - 1)]));
    assert!(loop_overhead(&counting) <= 24, "{}", loop_overhead(&counting));
    assert!(size_of::<Option<LoopEndReason>>() <= 1);

    let talking = loop_stream(History::empty("h"), |_: History| {
        let turn: TurnStream = TurnStreamExt::seal(stream::empty(), &History::empty("h"));
        turn.on_turn_complete(|_| -> Ready<_> { ready(Ok(Steps::<History>::stop())) })
    });
    assert!(loop_overhead(&talking) <= 24, "{}", loop_overhead(&talking));
    assert!(size_of_val(&talking) <= 80, "{}", size_of_val(&talking));
}

#[test]
fn on_turn_complete_is_the_size_of_its_turn_stream_and_continuation() {
    type ThenFuture = Ready<Result<Steps<'static, u8>, Error>>;
    let then: fn(std::sync::Arc<turnstream::Turn>) -> ThenFuture = |_| ready(Ok(Steps::stop()));
    let turn = Scripted::new(["hi"]).stream_turn(Request::new(History::empty("h")));
    let steps = turn.on_turn_complete(then);
    assert!(size_of_val(&steps) <= 56, "{}", size_of_val(&steps));
}

#[test]
fn the_agents_loop_body_is_one_small_future_per_iteration() {
    let measured = Arc::new(AtomicUsize::new(0));
    let size = Arc::clone(&measured);
    let agent = Agent::new(Scripted::new(["hi"]));
    let run = agent.run_with_body(
        move |parts, state| {
            let body = loop_body(parts, state);
            size.store(size_of_val(&body), Ordering::Relaxed);
            body
        },
        History::empty("h"),
        "go",
    );
    assert_eq!(futures::executor::block_on(run.outcome()).text, "hi");
    let bytes = measured.load(Ordering::Relaxed);
    println!("the body of the agent's loop has {bytes} bytes");
    assert!(bytes <= 2816, "{bytes}");
}
