//! The part of a budget that a run has used.

use std::sync::{Mutex, OnceLock};

use tokio::time::Instant;

use crate::agent::budget::{BudgetUsage, Rate};
use crate::agent::run::pool_claim::PoolClaim;
use crate::lock::lock_ignoring_poison;
use crate::usage::{Billing, CostGap, Usage, add_gap};

/// The part of a budget and of a pool that a run has used.
#[derive(Default)]
pub(in crate::agent) struct UsageAccount {
    /// The time of the run's first poll; set only if it is needed.
    started_at: OnceLock<Instant>,
    charged: Mutex<Charged>,
    /// The tokens and the slot that the run has claimed from its pool.
    pub(in crate::agent) pool_claim: PoolClaim,
}

/// The usage charged to budgets so far.
#[derive(Clone, Copy, Default)]
pub(in crate::agent) struct ChargedUsage {
    pub(in crate::agent) usage: Usage,
    /// The cost of the tokens whose price is known, in millionths of the unit used for prices.
    pub(in crate::agent) cost: u64,
}

/// The usage charged so far, and the request that further usage belongs to.
///
/// The price of a token may depend on the whole request, so the cost of the open request is
/// calculated anew each time. The request is stored here rather than in the run's state, because a
/// run may end before its state is updated.
#[derive(Default)]
struct Charged {
    total: ChargedUsage,
    /// The part of the cost that has been charged to the pool.
    drained_cost: u64,
    /// The reasons why the cost of the closed requests is not exact.
    gaps: Vec<CostGap>,
    request: OpenRequest,
}

/// The latest request.
#[derive(Default)]
struct OpenRequest {
    rate: Rate,
    /// The provider's report beside the tokens; known once the turn is complete.
    billing: Option<Billing>,
    /// The usage and cost of all earlier requests.
    before: ChargedUsage,
    /// The reasons why the cost of this request is not exact.
    gaps: Vec<CostGap>,
}

impl Charged {
    /// Charges the usage since the last call.
    fn charge(&mut self, usage: Usage, drain: impl FnOnce(Usage, u64)) {
        let more = usage - self.total.usage;
        self.total.usage = usage;
        self.price_request();
        let cost = self.total.cost.saturating_sub(self.drained_cost);
        self.drained_cost = self.drained_cost.saturating_add(cost);
        if more != Usage::default() || cost > 0 {
            drain(more, cost);
        }
    }

    fn price_request(&mut self) {
        let request = &mut self.request;
        let used = self.total.usage - request.before.usage;
        let cost = request.rate.cost(used, request.billing.as_ref());
        request.gaps = cost.gaps;
        self.total.cost = request.before.cost.saturating_add(cost.micros);
    }

    /// Closes the open request. Further usage belongs to a new request at the same price.
    fn close_request(&mut self) {
        let request = std::mem::take(&mut self.request);
        for gap in request.gaps {
            add_gap(&mut self.gaps, gap);
        }
        self.request =
            OpenRequest { rate: request.rate, before: self.total, ..OpenRequest::default() };
    }
}

impl UsageAccount {
    pub(in crate::agent) fn started_at(&self) -> Instant {
        *self.started_at.get_or_init(Instant::now)
    }

    /// Closes the open request, whose usage must have been charged. Further usage belongs to a new
    /// request at the given price.
    pub(in crate::agent) fn begin_request(&self, rate: Rate) {
        let mut charged = lock_ignoring_poison(&self.charged);
        charged.close_request();
        charged.request.rate = rate;
    }

    /// Returns the price of the open request.
    pub(in crate::agent) fn rate(&self) -> Rate {
        lock_ignoring_poison(&self.charged).request.rate.clone()
    }

    /// Closes the open request, whose usage must have been charged. Further usage belongs to a new
    /// request at the same price.
    pub(in crate::agent) fn close_request(&self) {
        lock_ignoring_poison(&self.charged).close_request();
    }

    /// Sets the price of the open request, and the provider's report beside the tokens.
    pub(in crate::agent) fn set_final_price(
        &self,
        rate: impl FnOnce(&Rate) -> Option<Rate>,
        billing: Option<&Billing>,
    ) {
        let mut charged = lock_ignoring_poison(&self.charged);
        let request = &mut charged.request;
        if let Some(rate) = rate(&request.rate) {
            request.rate = rate;
        }
        request.billing = billing.cloned();
    }

    /// Records a reason why the run's cost is not exact. `gap` is given the price of the open
    /// request.
    pub(in crate::agent) fn add_gap(&self, gap: impl FnOnce(&Rate) -> Option<CostGap>) {
        let mut charged = lock_ignoring_poison(&self.charged);
        if let Some(gap) = gap(&charged.request.rate) {
            add_gap(&mut charged.gaps, gap);
        }
    }

    /// Returns the reasons why the cost charged so far is not exact. Each gap occurs once.
    pub(in crate::agent) fn gaps(&self) -> Vec<CostGap> {
        let charged = lock_ignoring_poison(&self.charged);
        let mut gaps = charged.gaps.clone();
        for gap in &charged.request.gaps {
            add_gap(&mut gaps, gap.clone());
        }
        gaps
    }

    /// Charges the usage since this method was last called, and returns the total usage charged so
    /// far.
    pub(in crate::agent) fn charge(
        &self,
        usage: Usage,
        drain: impl FnOnce(Usage, u64),
    ) -> ChargedUsage {
        let mut charged = lock_ignoring_poison(&self.charged);
        if usage != charged.total.usage || charged.request.rate.is_known() {
            charged.charge(usage, drain);
        }
        charged.total
    }

    /// Returns the budget usage that the run will have once `usage` is charged.
    pub(in crate::agent) fn projected(&self, usage: Usage, tool_calls: u32) -> BudgetUsage {
        let charged = lock_ignoring_poison(&self.charged);
        let request = &charged.request;
        let used = usage - request.before.usage;
        let more = request.rate.cost(used, request.billing.as_ref()).micros;
        let (cost, elapsed) =
            (request.before.cost.saturating_add(more), self.started_at().elapsed());
        BudgetUsage { usage, cost, elapsed, tool_calls }
    }
}
