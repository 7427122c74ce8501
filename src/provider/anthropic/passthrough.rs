//! Provider data of this wire: the fields that are sent back, with their item, to the model that
//! wrote it.
//!
//! A text item stores its `citations`, a reasoning item its `signature` and a tool call its
//! `caller`; any other block is stored whole.

use serde::Serialize;

use crate::item::{ProviderData, RawJson};

/// The name of this wire in provider data.
pub(super) const PROVIDER_NAME: &str = "anthropic";

/// Provider data with a single field of a block, whose value is kept as received.
pub(super) fn field_data(model: &str, name: &str, value: &impl Serialize) -> ProviderData {
    let fields = std::collections::HashMap::from([(name, value)]);
    let value = RawJson::new(&fields).unwrap_or_else(|_| serde_json::json!({}).into());
    ProviderData::new(PROVIDER_NAME, model, value)
}
