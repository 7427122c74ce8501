//! Provider data for the Anthropic Messages API. Provider data contains the fields that are sent
//! back, together with their item, to the model that wrote the item.
//!
//! A text item's provider data contains the `citations`. A reasoning item's provider data contains
//! the `signature`, and a tool call's provider data contains the `caller`. Any other block is
//! stored as a whole.

use serde::Serialize;

use crate::item::{ProviderData, RawJson};

/// The name that identifies this API in provider data.
pub(super) const PROVIDER_NAME: &str = "anthropic";

/// Creates provider data that contains a single field from a block. The field's value is stored
/// unchanged.
pub(super) fn field_data(model: &str, name: &str, value: &impl Serialize) -> ProviderData {
    let fields = std::collections::HashMap::from([(name, value)]);
    let value = RawJson::new(&fields).unwrap_or_else(|_| serde_json::json!({}).into());
    ProviderData::new(PROVIDER_NAME, model, value)
}
