//! The items that a loop body yields.

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
