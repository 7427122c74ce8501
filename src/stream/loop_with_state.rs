//! A loop whose state can be read from the outside.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures::Stream;

use crate::lock::lock_ignoring_poison;
use crate::stream::iteration::LoopObserver;
use crate::stream::{IntoStep, LoopEndReason, LoopStream};

/// Like [`loop_stream`](crate::stream::loop_stream), but also returns a cell from which the loop's
/// state can be read.
///
/// While the loop is running, the cell contains the state from which the current body stream was
/// created. After the loop has ended with [`Step::StopWith`](crate::stream::Step::StopWith), the
/// cell contains the final state. The cell may outlive the stream.
///
/// Dropping the stream drops the active body. The cell then keeps the state from which this body
/// was created.
///
/// ```
/// use futures::{StreamExt, executor::block_on, stream};
/// use turnstream::stream::{LoopEndReason, Step, loop_with_state};
///
/// let (sum, state) = loop_with_state((0, 1), |(sum, n)| {
///     let next = (sum + n, n + 1);
///     let step = if n == 4 { Step::StopWith(next) } else { Step::Next(next) };
///     stream::iter([Step::Value(n), step])
/// });
/// assert_eq!(block_on(sum.collect::<Vec<_>>()), [1, 2, 3, 4]);
/// assert_eq!(state.get(), (10, 5));
/// assert_eq!(state.end_reason(), Some(LoopEndReason::StopWith));
/// ```
pub fn loop_with_state<S, B, F>(
    state: S,
    body: F,
) -> (LoopStream<F, B, S, StateCell<S>>, StateCell<S>)
where
    S: Clone,
    F: FnMut(S) -> B,
    B: Stream,
    B::Item: IntoStep<State = S>,
{
    let shared_state =
        StateCell(Arc::new(Mutex::new(CellContents { state: state.clone(), end_reason: None })));
    (LoopStream::with_observer(state, body, shared_state.clone()), shared_state)
}

/// The stream returned by the [`loop_with_state`] function.
pub(crate) type LoopWithState<F, B, S> = LoopStream<F, B, S, StateCell<S>>;

/// Gives access to a loop's current state. Clones of the cell refer to the same loop.
pub struct StateCell<S>(Arc<Mutex<CellContents<S>>>);

struct CellContents<S> {
    state: S,
    end_reason: Option<LoopEndReason>,
}

impl<S: Clone> StateCell<S> {
    /// Returns the state from which the current body stream was created, or the final state.
    pub fn get(&self) -> S {
        self.with_contents(|seen| seen.state.clone())
    }

    /// Returns the reason why the loop ended. Returns `None` while the loop is running, or if the
    /// stream was dropped before the loop ended.
    pub fn end_reason(&self) -> Option<LoopEndReason> {
        self.with_contents(|seen| seen.end_reason)
    }
}

impl<S> StateCell<S> {
    fn with_contents<T>(&self, f: impl FnOnce(&mut CellContents<S>) -> T) -> T {
        // Nothing panics while the lock is held, except a state's own `Clone` or `Drop`.
        f(&mut lock_ignoring_poison(&self.0))
    }
}

impl<S: Clone> LoopObserver<S> for StateCell<S> {
    fn observe_state(&mut self, state: &S) {
        let state = state.clone();
        let before = self.with_contents(|seen| std::mem::replace(&mut seen.state, state));
        // The old state is dropped after the lock is released, because its `Drop` may read the
        // cell.
        drop(before);
    }

    // `observe_end` is not part of the code that runs for each item.
    #[inline(never)]
    fn observe_end(&mut self, ended: LoopEndReason, state: Option<&S>) {
        let state = state.cloned();
        let before = self.with_contents(|seen| {
            seen.end_reason = Some(ended);
            state.map(|state| std::mem::replace(&mut seen.state, state))
        });
        drop(before);
    }
}

impl<S> Clone for StateCell<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: fmt::Debug> fmt::Debug for StateCell<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_contents(|seen| {
            f.debug_struct("StateCell")
                .field("state", &seen.state)
                .field("ended", &seen.end_reason)
                .finish()
        })
    }
}
