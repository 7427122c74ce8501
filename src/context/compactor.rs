//! A trait for choosing which items in a history to replace in order to shorten it.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};

use crate::context::{Compaction, CompactionFailure};
use crate::error::Error;
use crate::item::History;
use crate::propagation::TraceContext;
use crate::usage::Usage;

/// A trait for choosing which items in a history to replace in order to shorten it.
///
/// An agent calls its compactor before each request that would nearly fill the [context
/// window](crate::context::Window). The agent also calls its compactor if a provider rejects a
/// request because the request does not fit, but only once in a history's lifetime.
pub trait Compactor: Send + Sync {
    /// Plans which items to replace. Returns `None` if the history cannot be shortened.
    ///
    /// The returned future must own all of its data; the history is cheap to clone. Dropping the
    /// future must cancel its work. An agent drops the future when the run is interrupted or when
    /// the [timeout](crate::agent::Limits::compactor_timeout) expires.
    ///
    /// # Errors
    ///
    /// Returns an error if the compaction fails, for example because the model cannot write a
    /// summary. An implementation attaches the tokens that it has used to the error, with
    /// [`CompactionFailure::attach_usage`]. An agent leaves the history unchanged, and reports the
    /// error to [`Hook::on_failure`](crate::agent::hook::Hook::on_failure).
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>>;

    /// Plans which items to replace, like [`compact`](Self::compact), as part of a distributed
    /// trace. A compactor that sends requests sends the context with them. An agent calls this
    /// method with the context of its run, if the run has one. By default, it ignores the context
    /// and calls `compact`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`compact`](Self::compact).
    fn compact_traced(
        &self,
        history: &History,
        _trace_context: Option<TraceContext>,
    ) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        self.compact(history)
    }

    /// Returns a compactor that falls back to `second` if this compactor fails or finds nothing to
    /// replace.
    ///
    /// Before a request, an agent calls its compactor repeatedly, as long as the history is too
    /// long and each call shortens it. `Truncator::new().or_else(summarizer)` therefore summarizes
    /// only if the history is still too long after truncation.
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
    fn or_else<C: Compactor + 'static>(self, second: C) -> impl Compactor
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

    fn compact_traced(
        &self,
        history: &History,
        trace_context: Option<TraceContext>,
    ) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        (**self).compact_traced(history, trace_context)
    }
}

/// Creates a compactor from a synchronous function.
///
/// ```
/// use futures::executor::block_on;
/// use turnstream::context::{Compaction, Compactor, compactor_fn};
/// use turnstream::{History, Item};
///
/// // Drops all but the newest item.
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
pub fn compactor_fn<F>(f: F) -> impl Compactor
where
    F: Fn(&History) -> Result<Option<Compaction>, Error> + Send + Sync,
{
    CompactorFn(f)
}

/// The compactor returned by the [`compactor_fn`] function.
struct CompactorFn<F>(F);

impl<F> Compactor for CompactorFn<F>
where
    F: Fn(&History) -> Result<Option<Compaction>, Error> + Send + Sync,
{
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        ready((self.0)(history)).boxed()
    }
}

/// The compactor returned by the [`or_else`](Compactor::or_else) method.
///
/// The second compactor is called if the first compactor returns `None` or fails. If the first
/// compactor fails, the tokens that it used are added to the result of the second compactor. If the
/// first compactor fails and the second returns `None`, the first compactor's error is returned.
struct OrElse<A, B> {
    first: A,
    second: Arc<B>,
}

impl<A: Compactor, B: Compactor + 'static> Compactor for OrElse<A, B> {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        self.compact_traced(history, None)
    }

    fn compact_traced(
        &self,
        history: &History,
        trace_context: Option<TraceContext>,
    ) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        let first = self.first.compact_traced(history, trace_context.clone());
        let (second, history) = (Arc::clone(&self.second), history.clone());
        async move {
            let failed = match first.await {
                Ok(Some(compaction)) => return Ok(Some(compaction)),
                Ok(None) => None,
                Err(error) => Some(error),
            };
            let used = failed.as_ref().map_or_else(Usage::default, CompactionFailure::usage_of);
            match (second.compact_traced(&history, trace_context).await, failed) {
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
