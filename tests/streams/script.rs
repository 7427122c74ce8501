//! Scripts for the bodies of a loop, their players, and a reference for the result.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures::stream::{self, FusedStream, Stream, StreamExt};
use turnstream::stream::{LoopEndReason, Step, loop_over, loop_stream, loop_with_state};

pub(crate) fn poll_once<S: Stream + Unpin>(stream: &mut S) -> Poll<Option<S::Item>> {
    stream.poll_next_unpin(&mut Context::from_waker(Waker::noop()))
}

#[derive(Default)]
pub(crate) struct WakeCounter(pub(crate) AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls a future to its end. Panics if it is pending without having woken its task, because it
/// would hang.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let wakes = Arc::new(WakeCounter::default());
    let counting = Waker::from(Arc::clone(&wakes));
    loop {
        let before = wakes.0.load(Ordering::Relaxed);
        match future.as_mut().poll(&mut Context::from_waker(&counting)) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                assert!(wakes.0.load(Ordering::Relaxed) > before, "pending without a wake");
            }
        }
    }
}

/// An action of a scripted body when it is polled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BodyAction {
    Value(u32),
    Next(u32),
    Stop,
    StopWith(u32),
    Fail(u32),
    /// Wakes its task and is pending, once.
    Wait,
}
pub(crate) use BodyAction::{Fail, Next, Stop, StopWith, Value, Wait};

/// The index of the body in the script, and a number that is added to each of its values.
pub(crate) type BodyState = (usize, u32);

/// The expected result of a script.
#[derive(Debug, PartialEq)]
pub(crate) struct LoopResult {
    pub(crate) items: Vec<Result<u32, u32>>,
    pub(crate) ended: LoopEndReason,
    /// The states that bodies were built with.
    pub(crate) built_states: Vec<BodyState>,
    /// The last state: that of the last body, or the one that the loop left.
    pub(crate) last_state: BodyState,
    /// The number of actions that were performed in total.
    pub(crate) action_count: usize,
}

/// The loop over plain vectors, with which all forms of the loop are compared. `inputs` limits the
/// number of bodies.
pub(crate) fn reference_result(script: &[Vec<BodyAction>], inputs: Option<usize>) -> LoopResult {
    let mut told = LoopResult {
        items: vec![],
        ended: LoopEndReason::NoDecision,
        built_states: vec![],
        last_state: (0, 0),
        action_count: 0,
    };
    let mut state = (0, 0);
    'bodies: loop {
        if Some(state.0) == inputs {
            told.ended = LoopEndReason::InputEnded;
            told.last_state = state;
            return told;
        }
        told.built_states.push(state);
        told.last_state = state;
        for word in script.get(state.0).map_or(&[][..], Vec::as_slice) {
            told.action_count += 1;
            match *word {
                Wait => {}
                Value(value) => told.items.push(Ok(value.wrapping_add(state.1))),
                Next(with) => {
                    state = (state.0 + 1, with);
                    continue 'bodies;
                }
                Stop => told.ended = LoopEndReason::Stop,
                StopWith(with) => {
                    told.ended = LoopEndReason::StopWith;
                    told.last_state = (state.0 + 1, with);
                }
                Fail(error) => {
                    told.items.push(Err(error));
                    told.ended = LoopEndReason::Failed;
                }
            }
            if told.ended != LoopEndReason::NoDecision {
                return told;
            }
        }
        return told;
    }
}

pub(crate) type BoxedBody<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

/// Plays scripts, and records its calls.
#[derive(Clone, Default)]
pub(crate) struct ScriptPlayer {
    pub(crate) script: Arc<Vec<Vec<BodyAction>>>,
    pub(crate) built_states: Arc<Mutex<Vec<BodyState>>>,
    pub(crate) action_count: Arc<AtomicUsize>,
}

impl ScriptPlayer {
    pub(crate) fn new(script: &[Vec<BodyAction>]) -> Self {
        Self { script: Arc::new(script.to_vec()), ..Self::default() }
    }

    pub(crate) fn body(&self, state: BodyState) -> BoxedBody<Result<Step<u32, BodyState>, u32>> {
        self.built_states.lock().unwrap().push(state);
        let (n, with) = state;
        let mut words: VecDeque<BodyAction> =
            self.script.get(n).cloned().unwrap_or_default().into();
        let played = Arc::clone(&self.action_count);
        Box::pin(stream::poll_fn(move |cx| {
            let Some(word) = words.pop_front() else { return Poll::Ready(None) };
            played.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Some(match word {
                Value(value) => Ok(Step::Value(value.wrapping_add(with))),
                Next(with) => Ok(Step::Next((n + 1, with))),
                Stop => Ok(Step::Stop),
                StopWith(with) => Ok(Step::StopWith((n + 1, with))),
                Fail(error) => Err(error),
                Wait => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }))
        }))
    }

    /// The same without errors: a body of bare steps.
    pub(crate) fn infallible_body(&self, state: BodyState) -> BoxedBody<Step<u32, BodyState>> {
        self.body(state).map(|step| step.expect("the script does not fail")).boxed()
    }

    pub(crate) fn into_result(
        self,
        items: Vec<Result<u32, u32>>,
        ended: Option<LoopEndReason>,
        last: BodyState,
    ) -> LoopResult {
        let built = std::mem::take(&mut *self.built_states.lock().unwrap());
        let played = self.action_count.load(Ordering::Relaxed);
        LoopResult {
            items,
            ended: ended.expect("it has ended"),
            built_states: built,
            last_state: last,
            action_count: played,
        }
    }
}

/// Drains a stream, and checks that it stays terminated.
pub(crate) fn drain_stream<S: FusedStream + Unpin>(stream: &mut S) -> Vec<S::Item> {
    // A stream without an end fails below instead of running for ever.
    let items = block_on(stream.by_ref().take(1000).collect());
    for _ in 0..3 {
        assert!(stream.is_terminated());
        assert!(matches!(poll_once(stream), Poll::Ready(None)), "it goes on after its end");
    }
    items
}

/// Runs a script through every form of the loop.
pub(crate) fn check_every_form(script: &[Vec<BodyAction>]) -> LoopResult {
    let expected = reference_result(script, None);

    let player = ScriptPlayer::new(script);
    let mut stream = loop_stream((0, 0), |state| player.body(state));
    let items = drain_stream(&mut stream);
    let ended = stream.end_reason();
    drop(stream);
    assert_eq!(player.into_result(items, ended, expected.last_state), expected, "loop_stream");

    let player = ScriptPlayer::new(script);
    let (mut stream, cell) = loop_with_state((0, 0), |state| player.body(state));
    let items = drain_stream(&mut stream);
    assert_eq!(stream.end_reason(), cell.end_reason());
    drop(stream);
    assert_eq!(
        player.into_result(items, cell.end_reason(), cell.get()),
        expected,
        "loop_with_state"
    );

    if !script.iter().flatten().any(|word| matches!(word, Fail(_))) {
        let player = ScriptPlayer::new(script);
        let mut stream = loop_stream((0, 0), |state| player.infallible_body(state));
        let items = drain_stream(&mut stream).into_iter().map(Ok).collect();
        let ended = stream.end_reason();
        drop(stream);
        assert_eq!(
            player.into_result(items, ended, expected.last_state),
            expected,
            "a body of bare steps"
        );
    }

    for inputs in 0..script.len() + 2 {
        let expected = reference_result(script, Some(inputs));
        let player = ScriptPlayer::new(script);
        let input = stream::iter(0..inputs);
        let mut stream = loop_over(input, (0, 0), |state: BodyState, n| {
            assert_eq!(state.0, n, "each body has the state that the one before left");
            player.body(state)
        });
        let items = drain_stream(&mut stream);
        let ended = stream.end_reason();
        if expected.ended == LoopEndReason::InputEnded {
            assert_eq!(stream.state(), Some(&expected.last_state));
        }
        drop(stream);
        assert_eq!(player.into_result(items, ended, expected.last_state), expected, "loop_over");
    }
    expected
}
