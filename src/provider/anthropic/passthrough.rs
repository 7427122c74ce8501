//! The provider data of the Anthropic Messages wire. Provider data contains the fields that are
//! sent back, with their item, to the model that wrote the item.
//!
//! The provider data of a text item contains its `citations`. The provider data of a reasoning item
//! contains its `signature`, and the provider data of a tool call contains its `caller`. Any other
//! block is stored as a whole.

use serde::Serialize;

use crate::item::{ProviderData, RawJson};

/// The name that identifies this wire in provider data.
pub(super) const PROVIDER_NAME: &str = "anthropic";

/// Creates provider data with a single field of a block. The value of the field is stored as
/// received.
pub(super) fn field_data(model: &str, name: &str, value: &impl Serialize) -> ProviderData {
    let fields = std::collections::HashMap::from([(name, value)]);
    let value = RawJson::new(&fields).unwrap_or_else(|_| serde_json::json!({}).into());
    ProviderData::new(PROVIDER_NAME, model, value)
}
