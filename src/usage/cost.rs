//! The cost of a request, and the reasons why it is not exact.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The cost of a request, as [`Prices`](crate::usage::Prices) or another
/// [`PriceSource`](crate::usage::PriceSource) calculates it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The cost, in millionths of the prices' currency unit.
    pub micros: u64,
    /// The reasons why the cost is not exact. The list is empty if the cost is exact.
    pub gaps: Vec<CostGap>,
}

impl Cost {
    /// Creates an exact cost, in millionths of the currency unit.
    pub fn exact(micros: u64) -> Self {
        Self { micros, gaps: Vec::new() }
    }
}

/// A reason why a cost is unknown or not exact.
///
/// Its [`Display`](fmt::Display) form is a sentence for people.
///
/// ```
/// use turnstream::usage::{CostGap, CostGapKind};
///
/// let gap = CostGap::new(CostGapKind::ServerTool, "gpt-5").with_detail("code_execution");
/// assert_eq!(gap.to_string(), "the fees of the server tool `code_execution` of `gpt-5` are unknown");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CostGap {
    /// The part of the cost that is missing, or included at another price.
    pub kind: CostGapKind,
    /// The name of the model.
    pub model: String,
    /// The name of the service tier, the server tool or the kind of tokens, if the kind of the gap
    /// is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The kinds of costs that a [`Cost`] does not include or does not know exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CostGapKind {
    /// The model has no price, so the cost of the run is unknown.
    UnknownModel,
    /// The model that answered has no price. Its tokens are charged at the price of the requested
    /// model.
    PricedAsRequested,
    /// The price of the service tier is unknown. The tokens are charged at the standard price,
    /// which is too high for a tier with a discount, and too low for any other tier.
    ServiceTier,
    /// The fees of a server tool are unknown and not included: the cost is a lower bound.
    ServerTool,
    /// The price of cache writes for an hour is unknown. They are charged at the price of other
    /// cache writes: the cost is a lower bound.
    LongCacheWrites,
    /// The price of a kind of tokens, such as audio, is unknown. The tokens are charged like other
    /// tokens, which is usually too little.
    TokenKind,
    /// The fees for storing a cache that the request has read depend on the time for which the
    /// application keeps the cache. They are not included: the cost is a lower bound.
    CacheStorage,
    /// An attempt was cut off or retracted before its end. The provider may have charged more
    /// tokens than it had reported by then: the cost is a lower bound.
    CutOffTurn,
    /// A kind that this version of the crate does not know.
    #[serde(other)]
    Other,
}

impl CostGap {
    /// Creates a gap for a model, without a detail.
    pub fn new(kind: CostGapKind, model: impl Into<String>) -> Self {
        Self { kind, model: model.into(), detail: None }
    }

    /// Sets the name of the service tier, the server tool or the kind of tokens.
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

impl fmt::Display for CostGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, model, detail } = self;
        let detail = detail.as_deref().unwrap_or("?");
        match kind {
            CostGapKind::UnknownModel => write!(f, "the price of `{model}` is unknown"),
            CostGapKind::PricedAsRequested => {
                write!(
                    f,
                    "the answers of `{model}` are charged as if the requested model had answered"
                )
            }
            CostGapKind::ServiceTier => {
                write!(
                    f,
                    "the service tier `{detail}` of `{model}` is charged at the standard price"
                )
            }
            CostGapKind::ServerTool => {
                write!(f, "the fees of the server tool `{detail}` of `{model}` are unknown")
            }
            CostGapKind::LongCacheWrites => write!(
                f,
                "cache writes of `{model}` for an hour are charged at the price of other cache writes"
            ),
            CostGapKind::TokenKind => {
                write!(f, "the `{detail}` tokens of `{model}` are charged like other tokens")
            }
            CostGapKind::CacheStorage => {
                write!(f, "the fees for storing the cache that `{model}` has read are not included")
            }
            CostGapKind::CutOffTurn => {
                write!(f, "`{model}` may have used more tokens in a turn that was cut off")
            }
            CostGapKind::Other => write!(f, "the cost of `{model}` is not exact"),
        }
    }
}

/// Adds a gap, unless it is already in the list.
pub(crate) fn add_gap(gaps: &mut Vec<CostGap>, gap: CostGap) {
    if !gaps.contains(&gap) {
        gaps.push(gap);
    }
}
