//! The reports and results of calls that were dropped.

use serde::{Deserialize, Serialize};

use crate::item::{EffectReport, ToolResult};

/// The reports and results of calls that were dropped before their `Output` events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct DroppedCalls {
    /// The effects that each call reported before it was dropped, with the id of the call.
    pub(crate) reports: Vec<(String, EffectReport)>,
    /// The results that were known when the calls were dropped.
    pub(crate) known_results: Vec<ToolResult>,
}
