//! The contract of the loop: `loop_stream`, `loop_over`, `loop_with_state` and `on_turn_complete`.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{Either, FutureExt, select};
use futures::stream::{self, FusedStream, Stream, StreamExt, TryStreamExt};

use turnstream::env::CountingIds;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::{
    IntoStep, LoopEndReason, LoopOverExt, LoopStream, StateCell, Step, Steps, TurnStream,
    TurnStreamExt, loop_over, loop_stream, loop_with_state,
};
use turnstream::turn::{PartialTurn, TurnEvent};
use turnstream::{Error, ErrorKind, Event, History, Item, Request, Turn};

use super::script::{
    BodyAction, BodyState, Fail, Next, ScriptPlayer, Stop, StopWith, Value, Wait, WakeCounter,
    block_on, check_every_form, drain_stream, poll_once,
};

fn check_ending(script: &[Vec<BodyAction>], items: &[u32], ended: LoopEndReason) {
    let told = check_every_form(script);
    assert_eq!(told.items, items.iter().copied().map(Ok).collect::<Vec<_>>());
    assert_eq!(told.ended, ended);
}

#[test]
fn values_reach_the_consumer_in_order_and_next_starts_another_iteration() {
    check_ending(
        &[vec![Value(1), Value(2), Next(10)], vec![Next(20)], vec![Value(1), Wait, Value(2), Stop]],
        &[1, 2, 21, 22],
        LoopEndReason::Stop,
    );
}

#[test]
fn stop_ends_the_loop() {
    check_ending(&[vec![Stop]], &[], LoopEndReason::Stop);
    check_ending(&[vec![Value(1), Stop, Value(2)], vec![Value(3)]], &[1], LoopEndReason::Stop);
}

#[test]
fn stop_with_ends_the_loop_and_leaves_its_state() {
    check_ending(&[vec![Value(1), StopWith(7), Value(2)]], &[1], LoopEndReason::StopWith);
    assert_eq!(check_every_form(&[vec![Next(3)], vec![StopWith(7)]]).last_state, (2, 7));
}

#[test]
fn a_body_without_a_decision_ends_the_loop_distinguishably() {
    check_ending(&[], &[], LoopEndReason::NoDecision);
    check_ending(&[vec![Value(1)], vec![Value(2), Stop]], &[1], LoopEndReason::NoDecision);
    check_ending(&[vec![Value(1), Next(0)], vec![Wait]], &[1], LoopEndReason::NoDecision);
}

#[test]
fn an_error_is_yielded_and_ends_the_loop() {
    let told =
        check_every_form(&[vec![Value(1), Next(0)], vec![Value(2), Fail(9), Value(3), Next(0)]]);
    assert_eq!(told.items, [Ok(1), Ok(2), Err(9)]);
    assert_eq!(told.ended, LoopEndReason::Failed);
}

#[test]
fn next_stop_and_stop_with_can_be_bodies_or_end_them() {
    let count = loop_stream(0, |n| {
        let value = stream::iter([Step::Value(n)]);
        match n {
            0 => stream::iter([Step::Next(1)]).boxed_local(),
            1 => value.chain(stream::iter([Step::Next(2)])).boxed_local(),
            2 => value.chain(stream::iter([Step::StopWith(9)])).boxed_local(),
            _ => value.chain(stream::iter([Step::Stop])).boxed_local(),
        }
    });
    assert_eq!(block_on(count.collect::<Vec<_>>()), [1, 2]);
}

// ---- What is alive when

/// Counts the values that are alive.
#[derive(Clone, Default)]
pub(super) struct GuardCounter(Arc<(AtomicUsize, AtomicUsize)>);

/// Counts as alive until it is dropped.
struct Guard(GuardCounter);

impl GuardCounter {
    fn guard(&self) -> Guard {
        self.0.0.fetch_add(1, Ordering::Relaxed);
        Guard(self.clone())
    }

    fn created_count(&self) -> usize {
        self.0.0.load(Ordering::Relaxed)
    }

    fn dropped_count(&self) -> usize {
        self.0.1.load(Ordering::Relaxed)
    }

    pub(super) fn alive_count(&self) -> usize {
        self.created_count() - self.dropped_count()
    }

    /// The stream, with a guard inside that lives as long as it does.
    pub(super) fn attach_guard<S: Stream>(
        &self,
        stream: S,
    ) -> impl Stream<Item = S::Item> + use<S> {
        let guard = self.guard();
        stream.map(move |item| {
            let _inside = &guard;
            item
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn code_after_a_decision_in_the_body_never_runs() {
    for decision in [Step::Next(1), Step::Stop, Step::StopWith(1)] {
        let after = AtomicUsize::new(0);
        let gauge = GuardCounter::default();
        let stream = loop_stream(0, |n| {
            let inner = gauge.guard();
            let after = &after;
            async_stream::stream! {
                let _inner = inner;
                yield Step::Value(n);
                yield if n == 0 { decision } else { Step::Stop };
                after.fetch_add(1, Ordering::Relaxed);
                yield Step::Value(100);
            }
        });
        let bodies = if decision == Step::Next(1) { 2 } else { 1 };
        assert_eq!(block_on(stream.collect::<Vec<_>>()).len(), bodies);
        assert_eq!(after.into_inner(), 0);
        assert_eq!((gauge.created_count(), gauge.dropped_count()), (bodies, bodies));
    }
}

#[test]
fn a_decision_drops_the_body_in_the_same_poll() {
    for decision in [Ok(Step::Stop), Ok(Step::StopWith(())), Err("no")] {
        let gauge = GuardCounter::default();
        let mut stream =
            loop_stream((), |()| gauge.attach_guard(stream::iter([Ok(Step::Value(1)), decision])));
        assert_eq!(poll_once(&mut stream), Poll::Ready(Some(Ok(1))));
        assert_eq!(gauge.alive_count(), 1);
        assert!(poll_once(&mut stream).is_ready());
        assert_eq!(gauge.alive_count(), 0);
        assert!(stream.is_terminated());
    }
}

#[test]
fn nothing_runs_before_the_first_poll() {
    let mut built = 0;
    let stream = loop_stream((), |()| {
        built += 1;
        stream::iter([Step::<(), ()>::Stop])
    });
    drop(stream);
    assert_eq!(built, 0);
}

#[test]
fn the_next_body_is_built_only_when_polled() {
    let player = ScriptPlayer::new(&[vec![Value(1), Next(0)], vec![Value(2), Stop]]);
    let mut stream = loop_stream((0, 0), |state| player.body(state));
    assert_eq!(poll_once(&mut stream), Poll::Ready(Some(Ok(1))));
    assert_eq!(player.built_states.lock().unwrap().len(), 1);
    assert_eq!(
        player.action_count.load(Ordering::Relaxed),
        1,
        "a pull reads no further than its item"
    );
    assert_eq!(poll_once(&mut stream), Poll::Ready(Some(Ok(2))));
    assert_eq!(player.built_states.lock().unwrap().len(), 2);
}

#[test]
fn a_body_is_dropped_before_the_next_one_is_built() {
    let gauge = GuardCounter::default();
    let stream = loop_stream(0, |n| {
        assert_eq!(gauge.alive_count(), 0);
        let decision = if n < 4 { Step::Next(n + 1) } else { Step::Stop };
        gauge.attach_guard(stream::iter([Step::Value(n), decision]))
    });
    assert_eq!(block_on(stream.collect::<Vec<_>>()), [0, 1, 2, 3, 4]);
    assert_eq!((gauge.created_count(), gauge.dropped_count()), (5, 5));

    let input = stream::iter(0..5).inspect(|_| assert_eq!(gauge.alive_count(), 0));
    let stream = loop_over(input, (), |(), n| {
        assert_eq!(gauge.alive_count(), 0);
        gauge.attach_guard(stream::iter([Step::Value(n), Step::Next(())]))
    });
    assert_eq!(block_on(stream.collect::<Vec<_>>()), [0, 1, 2, 3, 4]);
    assert_eq!((gauge.created_count(), gauge.dropped_count()), (10, 10));
}

#[test]
fn dropping_the_stream_drops_the_active_body_once() {
    for polls in 0..8 {
        let gauge = GuardCounter::default();
        let (state, inputs) = (GuardCounter::default(), GuardCounter::default());
        let player = ScriptPlayer::new(&[
            vec![Value(1), Wait, Value(2), Next(0)],
            vec![Wait, Value(3), Stop],
        ]);
        let mut stream = loop_stream(((0, 0), state.guard()), |(at, guard)| {
            gauge.attach_guard(player.body(at)).map_ok(move |step| match step {
                Step::Value(value) => Step::Value(value),
                Step::Next(at) => Step::Next((at, guard.0.guard())),
                Step::Stop => Step::Stop,
                Step::StopWith(at) => Step::StopWith((at, guard.0.guard())),
            })
        });
        let mut over =
            loop_over(inputs.attach_guard(stream::repeat(())), (0, 0), |at: BodyState, ()| {
                gauge.attach_guard(player.body(at))
            });
        for _ in 0..polls {
            let _ = poll_once(&mut stream);
            let _ = poll_once(&mut over);
        }
        let before = gauge.dropped_count();
        let active = gauge.alive_count();
        assert!(active <= 2);
        drop((stream, over));
        assert_eq!(gauge.dropped_count(), before + active);
        assert_eq!(
            (gauge.alive_count(), state.alive_count(), inputs.alive_count()),
            (0, 0, 0),
            "after {polls} polls"
        );
    }
}

// ---- Cost

const ROUNDS: usize = 100_000;

/// A body that counts its polls and ends with `Next` until the last round.
fn counted_body(
    polls: &AtomicUsize,
    values: usize,
    n: usize,
) -> impl Stream<Item = Step<usize, usize>> {
    let mut said = 0;
    stream::poll_fn(move |_| {
        polls.fetch_add(1, Ordering::Relaxed);
        said += 1;
        Poll::Ready(Some(match n + 1 {
            _ if said <= values => Step::Value(n),
            ROUNDS => Step::Stop,
            next => Step::Next(next),
        }))
    })
}

fn run_on_small_stack(f: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(64 * 1024).spawn(f).unwrap().join().unwrap();
}

#[test]
fn a_hundred_thousand_iterations_use_constant_stack_and_one_poll_per_step() {
    for values in [0, 1, 3] {
        run_on_small_stack(move || {
            let polls = AtomicUsize::new(0);
            let (stream, cell) = loop_with_state(0, |n| counted_body(&polls, values, n));
            assert_eq!(block_on(stream.count()), ROUNDS * values);
            assert_eq!(polls.into_inner(), ROUNDS * (values + 1));
            assert_eq!((cell.get(), cell.end_reason()), (ROUNDS - 1, Some(LoopEndReason::Stop)));
        });
        run_on_small_stack(move || {
            let polls = AtomicUsize::new(0);
            let input = stream::iter(0..ROUNDS);
            let stream = loop_over(input, 0, |state, n| {
                assert_eq!(state, n);
                counted_body(&polls, values, n)
            });
            assert_eq!(block_on(stream.count()), ROUNDS * values);
            assert_eq!(polls.into_inner(), ROUNDS * (values + 1));
        });
    }
}

/// The number of times that a stream returns `Pending` before its next item. Each must come with a
/// wake.
fn count_pendings<S: Stream + Unpin>(stream: &mut S) -> usize {
    let wakes = Arc::new(WakeCounter::default());
    let counting = Waker::from(Arc::clone(&wakes));
    let mut pendings = 0;
    while stream.poll_next_unpin(&mut Context::from_waker(&counting)).is_pending() {
        pendings += 1;
        assert_eq!(wakes.0.load(Ordering::Relaxed), pendings, "pending without a wake");
    }
    pendings
}

#[test]
fn a_long_run_without_an_item_yields_to_the_executor() {
    let silent = AtomicUsize::new(0);
    let mut stream = loop_stream(0, |n| counted_body(&silent, 0, n));
    let times = count_pendings(&mut stream);
    // Often enough to be fair, and rarely enough to be cheap.
    assert!((ROUNDS / 1000..=ROUNDS / 50).contains(&times), "{times} times");
    assert_eq!(stream.end_reason(), Some(LoopEndReason::Stop));

    let mut stream = loop_over(stream::iter(0..ROUNDS), 0, |_, n| counted_body(&silent, 0, n));
    let times = count_pendings(&mut stream);
    assert!((ROUNDS / 1000..=ROUNDS / 50).contains(&times), "{times} times");
}

#[test]
fn a_loop_without_items_does_not_starve_other_tasks() {
    let silent = AtomicUsize::new(0);
    let mut stream = loop_stream(0, |n| counted_body(&silent, 0, n));
    let neighbour = pin!(async { 7 });
    match block_on(select(stream.next(), neighbour)) {
        Either::Right((seven, _)) => assert_eq!(seven, 7),
        Either::Left(_) => panic!("the neighbour was polled only after the loop was over"),
    }
    assert!(silent.load(Ordering::Relaxed) < 1000);
}

#[test]
fn a_loop_that_yields_an_item_each_iteration_never_yields_to_the_executor() {
    let polls = AtomicUsize::new(0);
    let mut stream = loop_stream(0, |n| counted_body(&polls, 1, n));
    for n in 0..10_000 {
        assert_eq!(poll_once(&mut stream), Poll::Ready(Some(n)));
    }
}

#[test]
fn a_pending_body_is_polled_once_per_poll() {
    let polls = AtomicUsize::new(0);
    let mut stream = loop_stream((), |()| {
        stream::poll_fn(|_| {
            polls.fetch_add(1, Ordering::Relaxed);
            Poll::<Option<Step<(), ()>>>::Pending
        })
    });
    for pulled in 1..=500 {
        assert!(poll_once(&mut stream).is_pending());
        assert_eq!(polls.load(Ordering::Relaxed), pulled);
    }
    assert!(!stream.is_terminated());
}

#[test]
fn the_loop_stores_its_parts_unboxed() {
    fn check_sizes<B: Stream<Item = Step<u8, u64>>>(body: fn(u64) -> B) {
        let words = 4 * size_of::<usize>();
        let parts = size_of::<B>() + size_of_val(&body) + size_of::<Option<u64>>();
        let stream = loop_stream(0, body);
        assert!(size_of_val(&stream) >= size_of::<B>(), "the body is held by value");
        assert!(size_of_val(&stream) <= parts + words, "{}", size_of_val(&stream));
        let over = loop_over(stream::empty::<()>(), 0, move |n, ()| body(n));
        assert!(size_of_val(&over) <= parts + words, "{}", size_of_val(&over));
        let (with_state, _) = loop_with_state(0, body);
        assert!(size_of_val(&with_state) <= size_of_val(&stream) + size_of::<usize>());
    }
    check_sizes(|_| stream::empty());
    check_sizes(|_| stream::iter([Step::Value(0_u8); 1000]));
}

// ---- Panics

fn panic_message<T>(f: impl FnOnce() -> T) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("it does not panic"),
        Err(payload) => (*payload.downcast_ref::<&str>().unwrap()).to_owned(),
    }
}

fn panicking_stream<T>() -> impl Stream<Item = T> {
    stream::poll_fn(|_| panic!("boom"))
}

fn assert_stays_panicked<F, B, S, O>(mut stream: LoopStream<F, B, S, O>)
where
    LoopStream<F, B, S, O>: FusedStream + Unpin,
{
    assert_eq!(stream.end_reason(), Some(LoopEndReason::Panicked));
    for _ in 0..3 {
        assert!(stream.is_terminated());
        assert!(matches!(poll_once(&mut stream), Poll::Ready(None)));
    }
    assert_eq!(stream.end_reason(), Some(LoopEndReason::Panicked));
}

#[test]
fn a_panic_in_the_body_propagates_and_ends_the_loop() {
    let gauge = GuardCounter::default();
    let mut stream = loop_stream(gauge.guard(), |state| {
        let values = stream::iter([Step::Value(1)]).chain(panicking_stream());
        gauge.attach_guard(values.map(move |step| {
            let _state = &state;
            step
        }))
    });
    assert_eq!(poll_once(&mut stream), Poll::Ready(Some(1)));
    assert_eq!(gauge.alive_count(), 2);
    assert_eq!(panic_message(|| poll_once(&mut stream)), "boom");
    assert_eq!(gauge.alive_count(), 0, "the body and its state are dropped");
    assert_stays_panicked(stream);
    assert_eq!((gauge.created_count(), gauge.dropped_count()), (2, 2));
}

#[test]
fn a_panic_in_the_closure_propagates_and_ends_the_loop() {
    let gauge = GuardCounter::default();
    let mut stream = loop_stream((0, gauge.guard()), |(n, state)| {
        assert!(n == 0, "boom");
        gauge.attach_guard(stream::iter([Step::Value(n), Step::Next((n + 1, state))]))
    });
    assert_eq!(poll_once(&mut stream), Poll::Ready(Some(0)));
    assert_eq!(panic_message(|| poll_once(&mut stream)), "boom");
    assert_eq!(gauge.alive_count(), 0, "the body and the state are dropped");
    assert_stays_panicked(stream);
    assert_eq!((gauge.created_count(), gauge.dropped_count()), (2, 2));
}

#[test]
fn a_panic_ends_loop_over_without_polling_further_input() {
    for in_closure in [false, true] {
        let gauge = GuardCounter::default();
        let mut pulled = 0;
        let input = stream::iter(0..10).inspect(|_| pulled += 1);
        let mut stream = loop_over(input, gauge.guard(), |state, n| {
            assert!(!(in_closure && n == 1), "boom");
            let steps = stream::iter([Step::Value(n), Step::Next(state)]);
            gauge.attach_guard(match n {
                0 => steps.left_stream(),
                _ => panicking_stream().right_stream(),
            })
        });
        assert_eq!(poll_once(&mut stream), Poll::Ready(Some(0)));
        assert_eq!(panic_message(|| poll_once(&mut stream)), "boom");
        assert_eq!(gauge.alive_count(), 0);
        for _ in 0..3 {
            assert_eq!(poll_once(&mut stream), Poll::Ready(None));
            assert!(stream.is_terminated());
        }
        assert_eq!(stream.end_reason(), Some(LoopEndReason::Panicked));
        drop(stream);
        assert_eq!(pulled, 2);
    }
}

// ---- Kinds of bodies

fn assert_send<T: Send>(_: &T) {}
fn assert_sync<T: Sync>(_: &T) {}
fn assert_static<T: 'static>(_: &T) {}
fn assert_unpin<T: Unpin>(_: &T) {}

#[test]
fn a_loop_of_send_parts_is_send_and_static() {
    let owned = String::from("owned");
    let stream = loop_stream(0, move |n: u32| {
        let owned = owned.clone();
        async_stream::stream! {
            tokio::task::yield_now().await;
            yield Step::Value(owned);
            yield Step::Next(n + 1);
        }
    });
    assert_send(&stream);
    assert_static(&stream);

    let (stream, cell) = loop_with_state(0, |n: u32| stream::iter([Step::<(), _>::Next(n)]));
    assert_send(&(stream, cell.clone()));
    assert_static(&cell);
    assert_sync(&cell);

    let stream =
        loop_over(stream::empty::<()>(), 0, |n: u32, ()| stream::iter([Step::<(), _>::Next(n)]));
    assert_send(&stream);
    assert_static(&stream);
}

#[test]
fn a_loop_of_unpin_bodies_is_unpin() {
    assert_unpin(&loop_stream(0, |n: u32| stream::iter([Step::<(), _>::Next(n)])));
    assert_unpin(&loop_over(stream::empty::<()>(), 0, |n: u32, ()| {
        stream::iter([Step::<(), _>::Next(n)])
    }));
}

#[test]
fn a_body_may_borrow_and_need_not_be_send() {
    let words = ["a".to_owned(), "b".to_owned()];
    let local = Rc::new(());
    let mut seen = vec![];
    {
        let words = &words;
        let stream = loop_stream(0, |n: usize| {
            seen.push(n);
            let local = Rc::clone(&local);
            async_stream::stream! {
                let Some(word) = words.get(n) else { return yield Step::Stop };
                yield Step::Value(word.as_str());
                drop(local);
                yield Step::Next(n + 1);
            }
        });
        assert_eq!(block_on(stream.collect::<Vec<&str>>()), ["a", "b"]);
    }
    assert_eq!(seen, [0, 1, 2]);
    assert_eq!(Rc::strong_count(&local), 1);
}

#[tokio::test(start_paused = true)]
async fn an_async_body_is_flattened() {
    let stream = loop_stream(0, |n| {
        async move {
            tokio::time::sleep(Duration::from_hours(1)).await;
            let decision = if n < 2 { Step::Next(n + 1) } else { Step::Stop };
            stream::iter([Step::Value(n), decision])
        }
        .flatten_stream()
    });
    let started = tokio::time::Instant::now();
    assert_eq!(stream.collect::<Vec<_>>().await, [0, 1, 2]);
    assert_eq!(started.elapsed(), Duration::from_hours(3));
}

#[test]
fn an_error_may_be_of_any_type() {
    struct NeitherCloneNorDebug;
    let mut stream = loop_stream((), |()| {
        stream::iter([Ok::<_, NeitherCloneNorDebug>(Step::Value(1)), Err(NeitherCloneNorDebug)])
    });
    assert!(matches!(poll_once(&mut stream), Poll::Ready(Some(Ok(1)))));
    assert!(matches!(poll_once(&mut stream), Poll::Ready(Some(Err(NeitherCloneNorDebug)))));
    assert!(matches!(poll_once(&mut stream), Poll::Ready(None)));

    let never = loop_stream((), |()| stream::iter([Step::<u8, ()>::Stop]).map(Ok::<_, Infallible>));
    assert_eq!(block_on(never.count()), 0);
}

#[test]
fn a_loop_may_be_the_body_of_a_loop() {
    let stream = loop_stream(1, |outer: u32| {
        let inner = loop_stream(0, move |n: u32| {
            let decision = if n + 1 < outer { Step::Next(n + 1) } else { Step::Stop };
            stream::iter([Step::Value(Step::Value((outer, n))), decision])
        });
        inner.chain(if outer < 3 {
            stream::iter([Step::Next(outer + 1)]).left_stream()
        } else {
            stream::iter([Step::Stop]).right_stream()
        })
    });
    let pairs = block_on(stream.collect::<Vec<_>>());
    assert_eq!(pairs, [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]);
}

#[test]
fn items_and_steps_are_distinguished_by_type() {
    fn item_of<T: IntoStep>(value: T::Value) -> T::Item {
        T::wrap_value(value)
    }
    assert_eq!(item_of::<Step<u8, ()>>(1), 1);
    assert_eq!(item_of::<Result<Step<u8, ()>, String>>(1), Ok(1));
    assert_eq!(Step::<u8, u8>::Next(1).into_step(), Ok(Step::Next(1)));
    assert_eq!(Err::<Step<u8, u8>, _>("no").into_step(), Err(Err("no")));
}

// ---- `loop_over`

#[test]
fn loop_over_threads_its_state_through_the_inputs() {
    let mut totals = loop_over(stream::iter([1, 2, 3]), 0, |total, n| {
        stream::iter([Step::Value((total, n)), Step::Next(total + n)])
    });
    assert_eq!(totals.state(), Some(&0));
    assert_eq!(drain_stream(&mut totals), [(0, 1), (1, 2), (3, 3)]);
    assert_eq!(totals.end_reason(), Some(LoopEndReason::InputEnded));
    assert_eq!(totals.state(), Some(&6));
}

#[test]
fn loop_over_polls_an_input_only_on_demand_without_an_active_body() {
    let pulled = AtomicUsize::new(0);
    let input = stream::iter(0..).inspect(|_| {
        pulled.fetch_add(1, Ordering::Relaxed);
    });
    let mut stream =
        input.loop_over((), |(), n| stream::iter([Step::Value(n), Step::Value(n), Step::Next(())]));
    for expected in [(0, 1), (0, 1), (1, 2), (1, 2), (2, 3)] {
        assert_eq!(poll_once(&mut stream), Poll::Ready(Some(expected.0)));
        assert_eq!(pulled.load(Ordering::Relaxed), expected.1);
    }
    drop(stream);
    assert_eq!(pulled.into_inner(), 3);
}

#[test]
fn loop_over_polls_no_input_after_its_end() {
    for decision in [Some(Ok(Step::Stop)), Some(Ok(Step::StopWith(()))), Some(Err("no")), None] {
        let pulled = AtomicUsize::new(0);
        let input = stream::iter(0..).inspect(|_| {
            pulled.fetch_add(1, Ordering::Relaxed);
        });
        let mut stream = loop_over(input, (), |(), _: i32| {
            stream::iter([Some(Ok(Step::Value(1))), decision].into_iter().flatten())
        });
        drain_stream(&mut stream);
        assert_eq!(pulled.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn loop_over_never_polls_a_finished_input() {
    let mut over = false;
    let input = stream::poll_fn(|_| {
        assert!(!over, "polled after its end");
        over = true;
        Poll::Ready(None::<()>)
    });
    let mut stream = loop_over(input, (), |(), ()| stream::iter([Step::<u8, ()>::Stop]));
    assert!(drain_stream(&mut stream).is_empty());
    assert_eq!(stream.end_reason(), Some(LoopEndReason::InputEnded));
}

#[test]
fn loop_over_waits_for_its_input() {
    let mut waiting = true;
    let input = stream::poll_fn(move |cx| match std::mem::take(&mut waiting) {
        true => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        false => Poll::Ready(Some(7)),
    });
    let mut stream = loop_over(input, (), |(), n| stream::iter([Step::Value(n), Step::Stop]));
    assert_eq!(poll_once(&mut stream), Poll::Pending);
    assert_eq!(stream.state(), Some(&()));
    assert_eq!(stream.end_reason(), None);
    assert_eq!(drain_stream(&mut stream), [7]);
}

// ---- `loop_with_state`

#[test]
fn the_cell_shows_the_state_that_the_active_body_was_built_with() {
    let player = ScriptPlayer::new(&[
        vec![Value(0), Value(0), Next(1)],
        vec![Wait, Value(0), Next(2)],
        vec![Value(0), StopWith(3)],
    ]);
    let (mut stream, cell) = loop_with_state((0, 0), |state| player.body(state));
    let shown = |cell: &StateCell<BodyState>| (cell.get(), cell.end_reason());
    assert_eq!(shown(&cell), ((0, 0), None), "before the first pull");
    for state in [(0, 0), (0, 0), (1, 1), (1, 1), (2, 2)] {
        let _ = poll_once(&mut stream);
        assert_eq!(shown(&cell), (state, None));
    }
    assert_eq!(poll_once(&mut stream), Poll::Ready(None));
    assert_eq!(shown(&cell), ((3, 3), Some(LoopEndReason::StopWith)));
    let other = cell.clone();
    drop(stream);
    assert_eq!(shown(&other), ((3, 3), Some(LoopEndReason::StopWith)), "it outlives the stream");
}

#[test]
fn the_cell_keeps_the_last_state_for_every_ending() {
    for (last, ended) in [
        (Some(Ok(Step::Stop)), LoopEndReason::Stop),
        (Some(Err("no")), LoopEndReason::Failed),
        (None, LoopEndReason::NoDecision),
    ] {
        let (stream, cell) = loop_with_state(1, |n| {
            stream::iter(match n {
                1 => Some(Ok(Step::Next(2))),
                _ => last,
            })
        });
        block_on(stream.map(|_: Result<(), _>| ()).collect::<()>());
        assert_eq!((cell.get(), cell.end_reason()), (2, Some(ended)));
    }
}

#[test]
fn the_cell_of_a_dropped_loop_shows_its_last_state() {
    let (mut stream, cell) =
        loop_with_state(0, |n| stream::iter([Step::Value(n), Step::Next(n + 1)]));
    for n in 0..3 {
        assert_eq!(poll_once(&mut stream), Poll::Ready(Some(n)));
    }
    drop(stream);
    assert_eq!((cell.get(), cell.end_reason()), (2, None));
}

#[test]
fn the_body_may_read_the_cell() {
    let cell: Arc<Mutex<Option<StateCell<u32>>>> = Arc::default();
    let seen = Arc::clone(&cell);
    let (stream, state) = loop_with_state(0, move |n| {
        let shown = seen.lock().unwrap().as_ref().unwrap().get();
        stream::iter([Step::Value(shown), if n < 3 { Step::Next(n + 1) } else { Step::Stop }])
    });
    *cell.lock().unwrap() = Some(state);
    assert_eq!(block_on(stream.collect::<Vec<_>>()), [0, 1, 2, 3]);
}

#[test]
fn the_cell_drops_every_state_but_the_last() {
    let gauge = GuardCounter::default();
    let (stream, cell) = loop_with_state(Arc::new(gauge.guard()), |_| {
        let state = Arc::new(gauge.guard());
        let decision =
            if gauge.created_count() < 5 { Step::Next(state) } else { Step::StopWith(state) };
        stream::iter([Step::Value(()), decision])
    });
    assert_eq!(block_on(stream.count()), 4);
    assert_eq!((gauge.created_count(), gauge.alive_count()), (5, 1));
    drop(cell);
    assert_eq!(gauge.alive_count(), 0);
}

#[test]
fn debug_shows_the_ending_and_no_closure() {
    let mut stream = loop_stream((), |()| stream::iter([Step::<u8, ()>::Stop]));
    assert_eq!(format!("{stream:?}"), "LoopStream { ended: None, .. }");
    assert_eq!(poll_once(&mut stream), Poll::Ready(None));
    assert_eq!(format!("{stream:?}"), "LoopStream { ended: Some(Stop), .. }");
    let stream =
        loop_over(stream::empty::<()>(), (), |(), ()| stream::iter([Step::<u8, ()>::Stop]));
    assert_eq!(format!("{stream:?}"), "LoopOver { ended: None, .. }");
    let (_, cell) = loop_with_state(1, |_| stream::iter([Step::<u8, _>::Stop]));
    assert_eq!(format!("{cell:?}"), "StateCell { state: 1, ended: None }");
}

// ---- `on_turn_complete`

fn history() -> History {
    let mut history = History::new(&CountingIds::new("test"));
    history.push(Item::user("hello"));
    history
}

fn stream_model_turn(model: &Scripted) -> TurnStream {
    model.stream_turn(Request::new(history()))
}

fn stream_reply_turn(reply: impl Into<Reply>) -> TurnStream {
    stream_model_turn(&Scripted::new([reply]))
}

/// The events of a turn with reasoning, text and calls.
fn turn_events() -> Vec<TurnEvent> {
    let call = serde_json::json!({ "path": "a.txt" });
    let reply = Reply::new().think("hm hm").say("I read it.").call("read", call);
    block_on(stream_reply_turn(reply).try_collect()).unwrap()
}

type TestStep = Result<Step<Event, u32>, Error>;

async fn then_stop(_: Arc<Turn>) -> Result<Steps<'static, u32>, Error> {
    Ok(Steps::stop())
}

async fn then_unreachable(_: Arc<Turn>) -> Result<Steps<'static, u32>, Error> {
    panic!("`then` runs")
}

/// Drains a stream, and checks that it stays terminated and holds nothing that `gauge` counts.
fn drain_steps(stream: impl FusedStream<Item = TestStep>, gauge: &GuardCounter) -> Vec<TestStep> {
    let mut stream = Box::pin(stream);
    let steps = drain_stream(&mut stream);
    assert_eq!(gauge.alive_count(), 0, "something is still held at the end");
    steps
}

/// Expects an error, and nothing after it.
fn drain_to_error(
    stream: impl FusedStream<Item = TestStep>,
    gauge: &GuardCounter,
) -> (usize, Error) {
    let mut steps = drain_steps(stream, gauge);
    let error = steps.pop().expect("an error").expect_err("an error");
    assert!(steps.iter().all(Result::is_ok));
    (steps.len(), error)
}

#[test]
fn every_event_of_the_turn_is_forwarded_including_the_last() {
    let mut expected: Vec<TestStep> =
        turn_events().into_iter().map(|event| Ok(Step::Value(Event::Turn(event)))).collect();
    assert!(matches!(
        expected.last(),
        Some(Ok(Step::Value(Event::Turn(TurnEvent::TurnComplete { .. }))))
    ));
    expected.push(Ok(Step::Next(7)));
    let steps = stream::iter(turn_events().into_iter().map(Ok))
        .on_turn_complete(|_| async { Ok(Steps::next(7)) });
    assert_eq!(drain_steps(steps, &GuardCounter::default()), expected);
}

#[test]
fn on_turn_complete_passes_the_turn_to_its_closure_and_yields_its_steps() {
    let appended = |n: u32| Event::TurnStarted { turn: n, model: "m".into(), transition: None };
    let steps = stream_reply_turn("hello there").on_turn_complete(async |turn: Arc<Turn>| {
        assert_eq!(turn.text(), "hello there");
        Ok(Steps::stop_with(3).preceded_by([appended(1), appended(2)]))
    });
    let mut steps = drain_steps(steps, &GuardCounter::default());
    let after = steps.split_off(steps.len() - 3);
    assert_eq!(
        after,
        [Ok(Step::Value(appended(1))), Ok(Step::Value(appended(2))), Ok(Step::StopWith(3))]
    );
}

#[test]
fn the_closure_runs_at_the_next_poll_after_the_upstream_was_dropped() {
    let gauge = GuardCounter::default();
    let ran = AtomicUsize::new(0);
    let count = turn_events().len();
    let upstream = gauge.attach_guard(stream::iter(turn_events().into_iter().map(Ok)));
    let mut steps = pin!(upstream.on_turn_complete(|_| {
        assert_eq!(gauge.alive_count(), 0);
        ran.fetch_add(1, Ordering::Relaxed);
        async { Ok(Steps::<u32>::stop()) }
    }));
    for _ in 1..count {
        assert!(matches!(poll_once(&mut steps), Poll::Ready(Some(Ok(Step::Value(_))))));
        assert_eq!(gauge.alive_count(), 1);
    }
    let Poll::Ready(Some(Ok(Step::Value(last)))) = poll_once(&mut steps) else { panic!("no last") };
    assert!(last.turn_complete().is_some());
    assert_eq!(gauge.alive_count(), 0, "the upstream is dropped with its last event");
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    assert!(!steps.is_terminated());
    assert_eq!(poll_once(&mut steps), Poll::Ready(Some(Ok(Step::Stop))));
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    assert_eq!(poll_once(&mut steps), Poll::Ready(None));
    assert!(steps.is_terminated());
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

#[test]
fn on_turn_complete_reacts_to_the_event_and_not_to_the_end_of_the_stream() {
    let open = stream::iter(turn_events().into_iter().map(Ok)).chain(stream::pending());
    let steps = drain_steps(open.on_turn_complete(then_stop), &GuardCounter::default());
    assert_eq!(steps.last(), Some(&Ok(Step::Stop)));
}

#[test]
fn an_upstream_that_ends_without_turn_complete_is_an_incomplete_turn() {
    let gauge = GuardCounter::default();
    let mut events = turn_events();
    events.pop();
    let upstream = gauge.attach_guard(stream::iter(events.clone().into_iter().map(Ok)));
    let (before, error) = drain_to_error(upstream.on_turn_complete(then_unreachable), &gauge);
    assert_eq!((before, error.kind()), (events.len(), ErrorKind::IncompleteTurn));

    let (before, error) =
        drain_to_error(stream::empty().on_turn_complete(then_unreachable), &gauge);
    assert_eq!((before, error.kind()), (0, ErrorKind::IncompleteTurn));
}

#[test]
fn an_incomplete_turn_error_carries_the_partial_turn() {
    let upstream = stream_reply_turn(Reply::text("half a sen").disconnect());
    let (before, error) =
        drain_to_error(upstream.on_turn_complete(then_unreachable), &GuardCounter::default());
    assert_eq!((before, error.kind()), (3, ErrorKind::IncompleteTurn));
    let partial = error.find_source::<PartialTurn>().expect("a partial turn");
    assert_eq!(partial.items().iter().filter_map(Item::as_text).collect::<String>(), "half a sen");
}

#[test]
fn an_upstream_error_is_forwarded_and_the_closure_never_runs() {
    let gauge = GuardCounter::default();
    let failure = Error::new(ErrorKind::Overloaded, "no room").with_status(529);
    let upstream =
        gauge.attach_guard(stream_reply_turn(Reply::text("one two").fail(failure.clone())));
    let (before, error) = drain_to_error(upstream.on_turn_complete(then_unreachable), &gauge);
    assert_eq!((before, error), (2, failure));
}

#[test]
fn an_error_of_the_closure_or_its_steps_is_forwarded() {
    let gauge = GuardCounter::default();
    let failure = || Error::new(ErrorKind::Store, "disk full");
    let (_, error) =
        drain_to_error(stream_reply_turn("a").on_turn_complete(async |_| Err(failure())), &gauge);
    assert_eq!(error, failure());

    let steps = stream_reply_turn("a").on_turn_complete(async |_| {
        let steps = stream::iter([Ok(Step::Value(Event::Unknown)), Err(failure())]);
        Ok(Steps::new(gauge.attach_guard(steps.chain(stream::pending()))))
    });
    let (before, error) = drain_to_error(steps, &gauge);
    assert_eq!((before, error), (3, failure()));
}

#[test]
fn a_panic_in_the_closure_becomes_an_error() {
    fn assert_panic_error(stream: impl FusedStream<Item = TestStep>, gauge: &GuardCounter) {
        let (_, error) = drain_to_error(stream, gauge);
        assert_eq!(error.kind(), ErrorKind::Panic);
        assert!(error.message().contains("boom"), "{error}");
    }
    let gauge = GuardCounter::default();

    let guard = gauge.guard();
    let in_closure = stream_reply_turn("a").on_turn_complete(move |turn| {
        let _guard = guard;
        assert!(turn.text() != "a", "boom");
        then_stop(turn)
    });
    assert_panic_error(in_closure, &gauge);

    let guard = gauge.guard();
    let in_future = stream_reply_turn("a").on_turn_complete(move |_| async move {
        let _guard = guard;
        tokio::task::yield_now().await;
        panic!("boom")
    });
    assert_panic_error(in_future, &gauge);

    let in_steps = stream_reply_turn("a").on_turn_complete(async |_| {
        Ok(Steps::new(gauge.attach_guard(panicking_stream::<TestStep>())))
    });
    assert_panic_error(in_steps, &gauge);
}

#[test]
fn a_turn_stream_can_be_transformed_before_on_turn_complete() {
    let seen = AtomicUsize::new(0);
    let steps = stream_reply_turn(Reply::new().think("hidden").say("a b"))
        .try_filter(|event| std::future::ready(!matches!(event, TurnEvent::ReasoningDelta { .. })))
        .map_ok(|event| match event {
            TurnEvent::TextDelta { index, text } => {
                TurnEvent::TextDelta { index, text: text.to_uppercase().as_str().into() }
            }
            event => event,
        })
        .inspect(|_| {
            seen.fetch_add(1, Ordering::Relaxed);
        })
        .on_turn_complete(then_stop);
    let steps = drain_steps(steps, &GuardCounter::default());
    let text: Vec<_> = steps
        .iter()
        .filter_map(|step| match step {
            Ok(Step::Value(event)) => event.text_delta().map(ToString::to_string),
            _ => None,
        })
        .collect();
    assert_eq!(text, ["A ", "B"]);
    assert_eq!(seen.into_inner(), 3);
    assert_eq!(steps.len(), 4);
}

#[test]
fn a_turn_stream_whose_end_was_filtered_out_is_incomplete() {
    let upstream = stream_reply_turn("a")
        .try_filter(|event| std::future::ready(!matches!(event, TurnEvent::TurnComplete { .. })));
    let (_, error) =
        drain_to_error(upstream.on_turn_complete(then_unreachable), &GuardCounter::default());
    assert_eq!(error.kind(), ErrorKind::IncompleteTurn);
}

#[test]
fn dropping_on_turn_complete_drops_the_upstream_the_closure_or_its_steps() {
    let gauge = GuardCounter::default();
    let make = || {
        let inner = gauge.clone();
        gauge.attach_guard(stream_reply_turn("a")).on_turn_complete(async move |_| {
            let guard = inner.guard();
            tokio::task::yield_now().await;
            drop(guard);
            let steps = stream::iter([Ok(Step::Value(Event::Unknown))]).chain(stream::pending());
            Ok(Steps::<u32>::new(inner.attach_guard(steps)))
        })
    };
    // The turn, its end, `then`, its steps, and once more pending.
    for (polls, alive) in [(0, 1), (1, 1), (2, 0), (3, 1), (4, 1), (5, 1)] {
        let mut steps = Box::pin(make());
        for _ in 0..polls {
            let _ = poll_once(&mut steps);
        }
        assert_eq!(gauge.alive_count(), alive, "after {polls} polls");
        drop(steps);
        assert_eq!(gauge.alive_count(), 0, "after {polls} polls");
    }
}

#[test]
fn dropping_the_loop_cancels_the_turn() {
    let model = Scripted::new([Reply::text("one two").hang()]);
    let mut stream = Box::pin(loop_stream((), |()| {
        stream_model_turn(&model).on_turn_complete(async |_| Ok(Steps::stop()))
    }));
    assert_eq!((model.requests().len(), model.in_flight()), (0, 0), "nothing is sent before");
    for _ in 0..3 {
        let _ = poll_once(&mut stream);
    }
    assert_eq!((model.requests().len(), model.in_flight()), (1, 1));
    drop(stream);
    assert_eq!(model.in_flight(), 0);
}

#[test]
fn the_next_request_is_sent_only_when_polled() {
    let model = Scripted::new(["one", "two"]);
    let mut stream = Box::pin(loop_stream(history(), |history| {
        let turn = model.stream_turn(Request::new(history.clone()));
        turn.on_turn_complete(async move |turn: Arc<Turn>| {
            let mut history = history;
            let decided = turn.text() == "two";
            history.extend(turn.to_history_items());
            Ok(if decided { Steps::stop() } else { Steps::next(history) })
        })
    }));
    let mut turns = vec![];
    while turns.is_empty() {
        let event = block_on(stream.try_next()).unwrap().unwrap();
        turns.extend(event.turn_complete().cloned());
    }
    assert_eq!((model.requests().len(), model.in_flight()), (1, 0));
    while let Some(event) = block_on(stream.try_next()).unwrap() {
        turns.extend(event.turn_complete().cloned());
    }
    assert_eq!(turns.iter().map(|turn| turn.text()).collect::<Vec<_>>(), ["one", "two"]);
    let asked: Vec<_> = model.requests().iter().map(|request| request.history.len()).collect();
    assert_eq!(asked, [1, 2]);
    assert_eq!(stream.end_reason(), Some(LoopEndReason::Stop));
}

#[test]
fn a_failed_turn_ends_the_loop_as_failed() {
    let stream = loop_stream((), |()| {
        stream_reply_turn(Reply::text("a").disconnect())
            .on_turn_complete(async |_| Ok(Steps::stop()))
    });
    let mut stream = Box::pin(stream);
    let items = drain_stream(&mut stream);
    assert!(matches!(&items[..], [Ok(_), Err(error)] if error.kind() == ErrorKind::IncompleteTurn));
    assert_eq!(stream.end_reason(), Some(LoopEndReason::Failed));
}

#[tokio::test(start_paused = true)]
async fn the_closure_may_await() {
    let started = tokio::time::Instant::now();
    let reply = Reply::new().delay(Duration::from_mins(1)).say("a");
    let steps = stream_reply_turn(reply).on_turn_complete(async |_| {
        tokio::time::sleep(Duration::from_hours(1)).await;
        Ok(Steps::<u32>::stop())
    });
    let mut steps = pin!(steps);
    assert!(steps.next().await.unwrap().is_ok());
    assert_eq!(started.elapsed(), Duration::from_mins(1));
    assert_eq!(steps.count().await, 2);
    assert_eq!(started.elapsed(), Duration::from_mins(61));
}

#[test]
fn on_turn_complete_is_send_static_and_unboxed_if_its_parts_are() {
    let steps = stream_reply_turn("a").on_turn_complete(then_stop);
    assert_send(&steps);
    assert_static(&steps);
    let parts = size_of::<TurnStream>() + size_of::<Steps<'_, u32>>();
    assert!(size_of_val(&steps) <= parts + 2 * size_of::<usize>(), "{}", size_of_val(&steps));

    let borrowed = String::from("b");
    let steps = stream_reply_turn("a").on_turn_complete(async |_| {
        let words = stream::iter([&borrowed]);
        Ok(Steps::<u32>::new(words.map(|_| Ok(Step::Value(Event::Unknown)))))
    });
    assert_send(&steps);
    assert_eq!(block_on(steps.count()), 3);

    let local = Rc::new(());
    let steps = stream_reply_turn("a").on_turn_complete(async |_| {
        let _local = Rc::clone(&local);
        Ok(Steps::<u32>::stop())
    });
    assert_eq!(block_on(steps.count()), 3);
}

// ---- After a panic in another part of a body

/// A body whose `Drop` panics.
struct PanicOnDrop<S>(S);

impl<S> Drop for PanicOnDrop<S> {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "boom");
    }
}

impl<S: Stream + Unpin> Stream for PanicOnDrop<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

#[test]
fn a_panic_in_a_bodys_drop_ends_the_loop() {
    for decision in [Step::Next(1), Step::Stop, Step::StopWith(1)] {
        let mut stream = loop_stream(0, |n| PanicOnDrop(stream::iter([Step::Value(n), decision])));
        assert_eq!(poll_once(&mut stream), Poll::Ready(Some(0)));
        assert_eq!(panic_message(|| poll_once(&mut stream)), "boom");
        assert_stays_panicked(stream);

        let mut pulled = 0;
        let input = stream::repeat(()).inspect(|()| pulled += 1);
        let mut stream =
            loop_over(input, 0, |n, ()| PanicOnDrop(stream::iter([Step::Value(n), decision])));
        assert_eq!(poll_once(&mut stream), Poll::Ready(Some(0)));
        assert_eq!(panic_message(|| poll_once(&mut stream)), "boom");
        for _ in 0..3 {
            assert_eq!(poll_once(&mut stream), Poll::Ready(None));
        }
        assert_eq!(stream.end_reason(), Some(LoopEndReason::Panicked));
        drop(stream);
        assert_eq!(pulled, 1, "no input is pulled after the panic");
    }
}

#[test]
fn a_panic_in_a_states_clone_ends_the_loop() {
    #[derive(Debug)]
    struct PanicOnClone(u32);
    impl Clone for PanicOnClone {
        fn clone(&self) -> Self {
            assert!(self.0 == 0, "boom");
            Self(self.0)
        }
    }
    let (mut stream, cell) = loop_with_state(PanicOnClone(0), |state| {
        stream::iter([Step::Value(state.0), Step::Next(PanicOnClone(state.0 + 1))])
    });
    assert_eq!(poll_once(&mut stream), Poll::Ready(Some(0)));
    assert_eq!(panic_message(|| poll_once(&mut stream)), "boom");
    assert_stays_panicked(stream);
    assert_eq!((cell.get().0, cell.end_reason()), (0, Some(LoopEndReason::Panicked)));
}

#[test]
fn a_panic_in_into_step_ends_the_loop() {
    struct PanickingStep;
    impl IntoStep for PanickingStep {
        type Value = ();
        type State = ();
        type Item = ();
        fn into_step(self) -> Result<Step<(), ()>, ()> {
            panic!("boom")
        }
        fn wrap_value((): ()) {}
    }
    let gauge = GuardCounter::default();
    let mut stream =
        loop_stream((), |()| gauge.attach_guard(stream::repeat_with(|| PanickingStep)));
    assert_eq!(panic_message(|| poll_once(&mut stream)), "boom");
    assert_eq!(gauge.alive_count(), 0);
    assert_stays_panicked(stream);
}

#[test]
fn the_cell_shows_a_panic_immediately() {
    for in_closure in [false, true] {
        let (mut stream, cell) = loop_with_state(0, |n| {
            assert!(!in_closure || n == 0, "boom");
            stream::iter([Step::Value(n), Step::Next(n + 1)]).chain(panicking_stream()).map(
                move |step| {
                    assert!(n == 0, "boom");
                    step
                },
            )
        });
        assert_eq!(poll_once(&mut stream), Poll::Ready(Some(0)));
        assert_eq!(panic_message(|| poll_once(&mut stream)), "boom");
        assert_eq!((cell.get(), cell.end_reason()), (1, Some(LoopEndReason::Panicked)));
        assert_stays_panicked(stream);
        assert_eq!(cell.end_reason(), Some(LoopEndReason::Panicked));
    }
}

#[test]
fn loop_over_keeps_the_state_passed_to_stop_with() {
    let mut stream = loop_over(stream::repeat(1), 0, |total, n| {
        let total = total + n;
        stream::iter([if total < 3 { Step::Next(total) } else { Step::StopWith(total) }])
            .map(|step| -> Step<u8, _> { step })
    });
    assert!(drain_stream(&mut stream).is_empty());
    assert_eq!((stream.end_reason(), stream.state()), (Some(LoopEndReason::StopWith), Some(&3)));
}
