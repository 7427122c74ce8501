//! Who says what to replace so that a history gets shorter.

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};

use crate::context::{Compaction, CompactionFailure};
use crate::error::Error;
use crate::item::History;
use crate::usage::Usage;

/// Says what to replace so that a history gets shorter.
///
/// An agent asks it before a request that nears the [window](crate::context::Window), as often as
/// that happens, and when a request did not fit, once in the life of a history.
pub trait Compactor: Send + Sync {
    /// What to replace, or `None` if nothing gets shorter.
    ///
    /// The history is cheap to clone into the future, which owns what it needs. Dropping the
    /// future, as an interrupt does, must cancel what it does. An agent drops it when it takes longer
    /// than [`with_compactor_timeout`](crate::Agent::with_compactor_timeout) says.
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>>;

    /// Asks another where this one has nothing to replace, or fails.
    ///
    /// Before a request an agent asks again as long as the history is too long and gets shorter, so that
    /// `Truncator::new().or(summarize)` summarises only where shortening was not enough.
    ///
    /// ```
    /// use futures::executor::block_on;
    /// use turnstream::context::{Compactor, Truncator, Summarizer};
    /// use turnstream::provider::Scripted;
    /// use turnstream::{History, Item};
    ///
    /// let model = Scripted::new(["They say hello a lot."]);
    /// let compactor = Truncator::new().or_else(Summarizer::new(model).with_keep_turns(1));
    /// let words = [Item::user("hello"), Item::text("hello"), Item::user("bye"), Item::text("bye")];
    /// let mut history = History::from_items("h", words);
    /// let compaction = block_on(compactor.compact(&history))?.unwrap();
    /// compaction.apply(&mut history);
    /// assert_eq!(history.len(), 3);
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    fn or_else<C: Compactor + 'static>(self, second: C) -> OrElse<Self, C>
    where
        Self: Sized,
    {
        OrElse { first: self, second: Arc::new(second) }
    }
}

impl<C: Compactor + ?Sized> Compactor for Arc<C> {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        (**self).compact(history)
    }
}

/// Makes a compactor of a function that needs not wait.
///
/// ```
/// use futures::executor::block_on;
/// use turnstream::context::{Compaction, Compactor, compactor_fn};
/// use turnstream::{History, Item};
///
/// // Forgets all but the newest entry.
/// let forget = compactor_fn(|history: &History| {
///     let to = history.len().saturating_sub(1);
///     Ok((to > 0).then(|| Compaction::new(0, to, Vec::new())))
/// });
/// let mut history = History::from_items("h", ["one", "two", "three"].map(Item::user));
/// let compaction = block_on(forget.compact(&history))?.unwrap();
/// compaction.validate(&history)?;
/// compaction.apply(&mut history);
/// assert_eq!(history.len(), 1);
/// # Ok::<(), turnstream::Error>(())
/// ```
pub fn compactor_fn<F>(f: F) -> CompactorFn<F>
where
    F: Fn(&History) -> Result<Option<Compaction>, Error> + Send + Sync,
{
    CompactorFn(f)
}

/// Compactor for the [`compactor_fn`] function.
#[derive(Clone, Copy)]
pub struct CompactorFn<F>(F);

impl<F> fmt::Debug for CompactorFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactWith").finish_non_exhaustive()
    }
}

impl<F> Compactor for CompactorFn<F>
where
    F: Fn(&History) -> Result<Option<Compaction>, Error> + Send + Sync,
{
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        ready((self.0)(history)).boxed()
    }
}

/// Compactor for the [`or_else`](Compactor::or_else) method.
///
/// The second is asked when the first has given `None` or failed. What the first has used then counts
/// with what the second gives; its error is told where the second gives nothing.
#[derive(Clone, Debug)]
pub struct OrElse<A, B> {
    first: A,
    second: Arc<B>,
}

impl<A: Compactor, B: Compactor + 'static> Compactor for OrElse<A, B> {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        let first = self.first.compact(history);
        let (second, history) = (Arc::clone(&self.second), history.clone());
        async move {
            let failed = match first.await {
                Ok(Some(compaction)) => return Ok(Some(compaction)),
                Ok(None) => None,
                Err(error) => Some(error),
            };
            let used = failed.as_ref().map_or_else(Usage::default, CompactionFailure::usage_of);
            match (second.compact(&history).await, failed) {
                (Ok(Some(compaction)), _) => {
                    Ok(Some(Compaction { usage: compaction.usage + used, ..compaction }))
                }
                (Ok(None), None) => Ok(None),
                (Ok(None), Some(error)) => Err(error),
                (Err(error), _) => {
                    let usage = CompactionFailure::usage_of(&error) + used;
                    Err(CompactionFailure::attach_usage(error, usage))
                }
            }
        }
        .boxed()
    }
}
