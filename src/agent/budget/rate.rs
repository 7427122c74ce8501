//! The price of the requests to one model, at one time.

use std::sync::Arc;
use std::time::SystemTime;

use crate::usage::{Billing, Cost, CostGap, CostGapKind, KnownPrice, PricedRequest, Usage};

/// The price of a request, as far as it is known.
#[derive(Clone, Default)]
pub(crate) enum Rate {
    /// The budget has no prices.
    #[default]
    NoPrices,
    /// The budget has prices, but not for this model.
    Unknown { model: Arc<str>, sent_at: SystemTime },
    /// The price of the model, and the time at which the request was sent.
    Known { model: Arc<str>, price: KnownPrice, sent_at: SystemTime },
}

impl Rate {
    /// Returns the cost of a single request.
    pub(crate) fn cost(&self, usage: Usage, billing: Option<&Billing>) -> Cost {
        if usage == Usage::default() && billing.is_none_or(Billing::is_empty) {
            return Cost::default();
        }
        let unknown = |model: &Arc<str>| Cost {
            micros: 0,
            gaps: vec![CostGap::new(CostGapKind::UnknownModel, &**model)],
        };
        match self {
            Self::NoPrices => Cost::default(),
            Self::Unknown { model, .. } => unknown(model),
            Self::Known { model, price, sent_at } => {
                let request = PricedRequest::new(model, usage, *sent_at);
                let request = match billing {
                    Some(billing) => request.with_billing(billing),
                    None => request,
                };
                price.cost(&request).unwrap_or_else(|| unknown(model))
            }
        }
    }

    /// Returns whether the price is known.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, Self::Known { .. })
    }

    /// Returns the name of the model, if the budget has prices.
    pub(crate) fn model(&self) -> Option<&str> {
        match self {
            Self::NoPrices => None,
            Self::Unknown { model, .. } | Self::Known { model, .. } => Some(model),
        }
    }

    /// Returns the time at which the request was sent. If the budget has no prices, the time does
    /// not matter.
    pub(crate) fn sent_at(&self) -> SystemTime {
        match self {
            Self::NoPrices => SystemTime::UNIX_EPOCH,
            Self::Unknown { sent_at, .. } | Self::Known { sent_at, .. } => *sent_at,
        }
    }
}
