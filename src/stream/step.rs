//! The items that a loop body yields.

/// An item that a loop body yields.
///
/// A `Next`, `Stop` or `StopWith` ends the iteration and drops the body, so any items that the body
/// has not yielded yet are lost.
///
/// ```
/// use std::pin::pin;
///
/// use futures::{StreamExt, executor::block_on, stream};
/// use turnstream::{Step, loop_stream};
///
/// let mut countdown = pin!(loop_stream(3, |n| {
///     let step = if n > 1 { Step::Next(n - 1) } else { Step::StopWith(0) };
///     stream::iter([Step::Value(n), step])
/// }));
/// assert_eq!(block_on(countdown.as_mut().collect::<Vec<_>>()), [3, 2, 1]);
/// assert_eq!(countdown.take_final_state(), Some(0));
/// ```
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
    /// The type of the values in [`Step::Value`], which the consumer receives.
    type Value;
    /// The state that [`Step::Next`] passes to the next iteration, and that [`Step::StopWith`] ends
    /// with.
    type State;
    /// The item type of the loop's stream: `A` for a body of `Step<A, S>`, and `Result<A, E>` for a
    /// body of `Result<Step<A, S>, E>`.
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
