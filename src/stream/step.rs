//! The items that a loop body yields.

use std::future::{Ready, ready};

use futures::stream::{Once, once};

/// An item that a loop body yields.
///
/// A `Next`, `Stop` or `StopWith` ends the iteration and drops the body, so any items that the body
/// has not yielded yet are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step<A, S> {
    /// A value that the loop yields to the consumer.
    Value(A),
    /// Ends this iteration; the next iteration starts with the given state.
    Next(S),
    /// Ends the loop.
    Stop,
    /// Ends the loop with a final state.
    StopWith(S),
}

/// A trait for the items that a loop body may yield: a [`Step`], or a `Result` that contains a
/// step.
///
/// An `Err` is yielded to the consumer and ends the loop.
pub trait IntoStep {
    /// The type of the values in [`Step::Value`].
    type Value;
    /// The state of the loop.
    type State;
    /// The item type of the loop's stream.
    type Item;

    /// Converts the item into a step. An `Err` contains the last item that the loop yields before
    /// ending.
    fn into_step(self) -> Result<Step<Self::Value, Self::State>, Self::Item>;

    /// Wraps a value in an item of the loop's stream.
    fn wrap_value(value: Self::Value) -> Self::Item;
}

impl<A, S> IntoStep for Step<A, S> {
    type Value = A;
    type State = S;
    type Item = A;

    #[inline]
    fn into_step(self) -> Result<Self, A> {
        Ok(self)
    }

    #[inline]
    fn wrap_value(value: A) -> A {
        value
    }
}

impl<A, S, E> IntoStep for Result<Step<A, S>, E> {
    type Value = A;
    type State = S;
    type Item = Result<A, E>;

    #[inline]
    fn into_step(self) -> Result<Step<A, S>, Self::Item> {
        self.map_err(Err)
    }

    #[inline]
    fn wrap_value(value: A) -> Self::Item {
        Ok(value)
    }
}

/// Returns a body that continues the loop with `state`. The body can be chained after a stream of
/// values.
///
/// ```
/// use futures::{StreamExt, executor::block_on, stream};
/// use turnstream::stream::{Step, loop_stream, next, stop};
///
/// let count = loop_stream(1, |n| {
///     let values = stream::iter([Step::Value(n)]);
///     if n < 3 { values.chain(next(n + 1)).left_stream() } else { values.chain(stop()).right_stream() }
/// });
/// assert_eq!(block_on(count.collect::<Vec<_>>()), [1, 2, 3]);
/// ```
pub fn next<A, S>(state: S) -> Once<Ready<Step<A, S>>> {
    once(ready(Step::Next(state)))
}

/// Returns a body that ends the loop. The body can be chained after a stream of values.
pub fn stop<A, S>() -> Once<Ready<Step<A, S>>> {
    once(ready(Step::Stop))
}

/// Returns a body that ends the loop with a final state. The body can be chained after a stream of
/// values.
pub fn stop_with<A, S>(state: S) -> Once<Ready<Step<A, S>>> {
    once(ready(Step::StopWith(state)))
}
