//! Tokens that several runs share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::usage::Usage;

/// Tokens of requests and answers that a tree of agents shares. A clone is the same pool.
///
/// Every run that has it takes its tokens out of it at its boundaries, and ends at the next one once
/// it is spent, whoever spent it. Several runs at once may each finish the turn they
/// are in, so that a little more than the limit is used.
///
/// ```
/// use turnstream::Usage;
/// use turnstream::agent::Pool;
///
/// let pool = Pool::tokens(1_000);
/// let child = pool.clone();
/// child.drain(Usage { input_tokens: 900, output_tokens: 150, ..Usage::default() });
/// assert_eq!(pool.used(), 1_050);
/// assert!(pool.is_spent());
/// ```
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u64,
    used: AtomicU64,
}

impl Pool {
    /// Makes a pool of so many tokens.
    pub fn tokens(limit: u64) -> Self {
        Self(Arc::new(Shared { limit, used: AtomicU64::new(0) }))
    }

    /// Takes the [total](Usage::total) of what was used since the last time out of it. It never
    /// waits, and takes more than there is.
    pub fn drain(&self, usage_delta: Usage) {
        let add = |used: u64| Some(used.saturating_add(usage_delta.total()));
        // It always adds: the closure never declines. The count guards no other memory.
        let _ = self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// How many tokens were taken out.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// How many tokens there were.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Whether all of it was used.
    pub fn is_spent(&self) -> bool {
        self.used() >= self.limit()
    }
}
