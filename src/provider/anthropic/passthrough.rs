//! The provider data of this wire: what goes back with an item to the model that wrote it.
//!
//! A text has its `citations`, a thought its `signature`, a call its `caller`; any other block is kept
//! whole.

use serde::Serialize;

use crate::item::{ProviderData, RawJson};

/// The name of this wire in provider data.
pub(super) const PROVIDER_NAME: &str = "anthropic";

/// One field of a block, its value as it is written.
pub(super) fn field_data(model: &str, name: &str, value: &impl Serialize) -> ProviderData {
    let fields = std::collections::HashMap::from([(name, value)]);
    let value = RawJson::new(&fields).unwrap_or_else(|_| serde_json::json!({}).into());
    ProviderData::new(PROVIDER_NAME, model, value)
}
