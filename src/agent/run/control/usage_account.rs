//! The part of a budget that a run has used.

use std::sync::{Mutex, OnceLock};

use tokio::time::Instant;

use crate::agent::budget::BudgetUsage;
use crate::agent::run::pool_claim::PoolClaim;
use crate::lock::lock_ignoring_poison;
use crate::usage::{Price, Usage};

/// The part of a budget and of a pool that a run has used.
#[derive(Default)]
pub(in crate::agent) struct UsageAccount {
    /// The time of the run's first poll; set only if it is needed.
    started_at: OnceLock<Instant>,
    charged: Mutex<ChargedUsage>,
    /// The tokens and the slot that the run has claimed from its pool.
    pub(in crate::agent) pool_claim: PoolClaim,
}

/// The usage charged to budgets so far.
#[derive(Clone, Copy, Default)]
pub(in crate::agent) struct ChargedUsage {
    pub(in crate::agent) usage: Usage,
    /// The cost of the tokens whose price is known, in millionths of the unit used for prices.
    pub(in crate::agent) cost: u64,
    /// The number of tokens whose price is unknown.
    pub(in crate::agent) unpriced_tokens: u64,
    /// The price of the model used for the last request, if it is known. The price is stored here
    /// rather than in the run's state, because a run may end before its state is updated.
    price: Option<Price>,
}

impl UsageAccount {
    pub(in crate::agent) fn started_at(&self) -> Instant {
        *self.started_at.get_or_init(Instant::now)
    }

    /// Sets the price at which usage is charged from now on.
    pub(in crate::agent) fn set_price(&self, price: Option<Price>) {
        lock_ignoring_poison(&self.charged).price = price;
    }

    /// Charges the usage since this method was last called, and returns the total usage charged so
    /// far.
    pub(in crate::agent) fn charge(
        &self,
        usage: Usage,
        drain: impl FnOnce(Usage, u64),
    ) -> ChargedUsage {
        let mut charged = lock_ignoring_poison(&self.charged);
        let more = usage.increase_since(charged.usage);
        if more != Usage::default() {
            let cost = charged.price.map_or(0, |price| price.cost(&more));
            drain(more, cost);
            charged.cost = charged.cost.saturating_add(cost);
            if charged.price.is_none() {
                charged.unpriced_tokens = charged.unpriced_tokens.saturating_add(more.total());
            }
            charged.usage = usage;
        }
        *charged
    }

    /// Returns the budget usage that the run will have once `usage` is charged.
    pub(in crate::agent) fn projected(&self, usage: Usage, tool_calls: u32) -> BudgetUsage {
        let charged = *lock_ignoring_poison(&self.charged);
        let more =
            charged.price.map_or(0, |price| price.cost(&usage.increase_since(charged.usage)));
        let (cost, elapsed) = (charged.cost.saturating_add(more), self.started_at().elapsed());
        BudgetUsage { usage, cost, elapsed, tool_calls }
    }
}
