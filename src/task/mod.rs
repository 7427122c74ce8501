//! Runs a stream in its own task, for consumers that pause.
//!
//! The streams in this crate make progress only while they are polled. If a consumer pauses between
//! two items, the tools therefore pause as well, and no more of the model's output is read. With
//! [`in_task`](InTaskExt::in_task), a separate task polls the stream, even while the consumer
//! pauses. Apart from this module, only a [hub](crate::hub) spawns tasks.

mod in_task;
mod owned_task;
mod shared_buffer;

use std::num::NonZeroUsize;

use futures::Stream;

pub use in_task::InTask;
pub use owned_task::OwnedTask;

use crate::error::Error;

/// Adds the [`in_task`](Self::in_task) method to streams of results, such as a run, a hand-written
/// loop or a turn.
pub trait InTaskExt<T>: Stream<Item = Result<T, Error>> + Sized {
    /// Runs the stream in its own tokio task, which gets at most `n` items ahead of the consumer.
    ///
    /// If the consumer pauses, the stream continues until `n` items have been buffered, and then
    /// pauses as well. A tool that yields no events runs to completion even if `n` is small. A tool
    /// that reports progress may need a larger buffer.
    ///
    /// The first poll spawns the task. All items, including errors, arrive in the order in which
    /// the stream yields them. After its last item, the stream is dropped, and all further polls
    /// return `None`.
    ///
    /// # Drop
    ///
    /// Dropping the returned stream synchronously drops the inner stream, including its connection
    /// and tools, and all buffered items. However, a poll cannot be aborted: if another thread is
    /// polling the inner stream during the drop, the inner stream is dropped once the poll returns.
    ///
    /// # Errors
    ///
    /// If the stream panics, an error of kind [`Panic`](crate::ErrorKind::Panic) is yielded. If the
    /// runtime ends before the stream does, an error of kind [`Other`](crate::ErrorKind::Other) is
    /// yielded. After a panic or the end of the runtime, the error is the last item.
    ///
    /// # Panics
    ///
    /// The first poll panics if it happens outside of a tokio runtime. After this panic, the stream
    /// can be polled again inside a runtime.
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
    /// let run = Agent::new(Scripted::new(["Hello, world!"])).run("Hi");
    /// let handle = run.handle();
    ///
    /// let mut events = run.in_task(const { NonZeroUsize::new(16).unwrap() });
    /// while let Some(event) = events.try_next().await? {
    ///     // Slow work here does not delay the tools.
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
