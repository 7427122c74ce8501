//! A compactor, and another where it has nothing to say.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};

use crate::context::{Compaction, CompactionFailure, Compactor};
use crate::error::Error;
use crate::item::History;
use crate::usage::Usage;

/// Compactor for the [`or`](Compactor::or) method.
///
/// The second is asked when the first has given `None` or failed. What the first has used then counts
/// with what the second gives; its error is told where the second gives nothing.
#[derive(Clone, Debug)]
pub struct Or<A, B> {
    first: A,
    second: Arc<B>,
}

impl<A, B> Or<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second: Arc::new(second) }
    }
}

impl<A: Compactor, B: Compactor + 'static> Compactor for Or<A, B> {
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
                    Err(CompactionFailure::wrap(error, usage))
                }
            }
        }
        .boxed()
    }
}
