//! What the body of a loop says.

use std::future::{Ready, ready};

use futures::stream::{Once, once};

/// One item of the body of a loop.
///
/// A `Next`, `Stop` or `StopWith` ends the iteration: what the body would say after it never
/// runs, because the body is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step<A, S> {
    /// Goes to the consumer.
    Value(A),
    /// Ends this iteration; the next one begins with this state.
    Next(S),
    /// Ends the loop.
    Stop,
    /// Ends the loop and leaves a final state behind.
    StopWith(S),
}

/// What a loop's body may stream: steps, or results of steps.
///
/// An `Err` goes to the consumer and ends the loop.
pub trait IntoStep {
    /// What goes to the consumer inside a [`Step::Value`].
    type Value;
    /// The state of the loop.
    type State;
    /// What the loop streams.
    type Item;

    /// Splits it into a step or an item that ends the loop.
    fn into_step(self) -> Result<Step<Self::Value, Self::State>, Self::Item>;

    /// Wraps a value for the consumer.
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

/// A body, or the end of one, that goes on with `state`. Chain it behind values.
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

/// A body, or the end of one, that ends the loop.
pub fn stop<A, S>() -> Once<Ready<Step<A, S>>> {
    once(ready(Step::Stop))
}

/// A body, or the end of one, that ends the loop and leaves a final state behind.
pub fn stop_with<A, S>(state: S) -> Once<Ready<Step<A, S>>> {
    once(ready(Step::StopWith(state)))
}
