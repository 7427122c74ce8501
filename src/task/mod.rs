//! A door to a task of the runtime, for consumers that pause.
//!
//! Streams of this crate go on only while they are polled: a consumer that pauses between two
//! items pauses the tools, too, and reads no more of what the model says.
//! [`in_task`](InTaskExt::in_task) has a task do the polling. Beside it only a hub spawns tasks (feature `hub`).

mod in_task;
mod owned_task;
mod shared_buffer;

use std::num::NonZeroUsize;

use futures::Stream;

pub use in_task::InTask;
#[cfg(feature = "hub")]
pub(crate) use owned_task::OwnedTask;

use crate::error::Error;

/// The method [`in_task`](Self::in_task) on streams of results, as a run, a hand-written loop and
/// a turn are.
pub trait InTaskExt<T>: Stream<Item = Result<T, Error>> + Sized {
    /// Runs the stream in one task of tokio's, which is at most `n` items ahead of the consumer.
    ///
    /// While the consumer pauses, the stream goes on until `n` items wait for it; then it pauses,
    /// too. So `n` is how much may be said while nobody listens: a tool that says nothing runs on
    /// to its end, one that tells its progress may need more than a few.
    ///
    /// The task begins with the first poll. Items come in the order of the stream, errors included;
    /// behind the last one the stream is dropped, and `None` comes for ever.
    ///
    /// # Drop
    ///
    /// Dropping what this gives drops the stream in that call, with its connection and its tools,
    /// and the items that wait. If the task is in the middle of a poll at that moment, on another
    /// thread, then that poll is the last, and the stream is dropped at its end: a poll cannot be
    /// broken off.
    ///
    /// # Errors
    ///
    /// A panic in the stream comes out as an error of kind [`Panic`](crate::ErrorKind::Panic), and
    /// the end of the runtime before that of the stream as [`Other`](crate::ErrorKind::Other);
    /// either is the last item.
    ///
    /// # Panics
    ///
    /// The first poll panics outside of a tokio runtime. It can be repeated inside of one.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    ///
    /// use futures::TryStreamExt;
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    /// use turnstream::task::InTaskExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let run = Agent::new(Scripted::new(["Hello load_cached!"])).run("Hi");
    /// let handle = run.handle();
    ///
    /// let mut events = run.in_task(const { NonZeroUsize::new(16).unwrap() });
    /// while let Some(event) = events.try_next().await? {
    ///     // Whatever takes long here does not hold up the tools.
    ///     print!("{}", event.text_delta().map_or("", |text| text));
    /// }
    /// assert_eq!(handle.history().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    fn in_task(self, n: NonZeroUsize) -> InTask<T>
    where
        Self: Send + 'static,
        T: Send + 'static,
    {
        InTask::new(self, n)
    }
}

impl<T, St: Stream<Item = Result<T, Error>>> InTaskExt<T> for St {}
