//! Provider data for the Anthropic Messages API. An item's provider data contains the fields that
//! are sent back with the item to the model that wrote it.
//!
//! The provider data contains the `citations` of a text item, the `signature` of a reasoning item,
//! or the `caller` of a tool call. Any other block is stored as a whole.

use serde::Serialize;

use crate::item::{ProviderData, RawJson};
use crate::provider::codec::ordered_fields::OrderedFields;

/// The name that identifies this API in provider data.
pub(super) const PROVIDER_NAME: &str = "anthropic";

/// Returns whether a provider-specific item is only metadata of the message, rather than a block.
pub(in crate::provider) fn is_metadata(data: &ProviderData) -> bool {
    data.provider == PROVIDER_NAME
        && OrderedFields::provider_data_field(data, "type")
            .is_some_and(|kind| kind.get() == r#""message""#)
}

/// Creates provider data that contains a single field of a block, with its value unchanged.
pub(super) fn field_data(model: &str, name: &str, value: &impl Serialize) -> ProviderData {
    let fields = std::collections::HashMap::from([(name, value)]);
    let value = RawJson::new(&fields).unwrap_or_else(|_| serde_json::json!({}).into());
    ProviderData::new(PROVIDER_NAME, model, value)
}
