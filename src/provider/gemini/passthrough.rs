//! Provider data for the Gemini API. An item's provider data contains the fields that are sent back
//! with the item to the model that wrote it.

use serde::{Deserialize, Serialize};

use crate::item::{ProviderData, RawJson};

/// The name that identifies this API in provider data.
pub(super) const PROVIDER_NAME: &str = "gemini";

/// The fields of a part that are stored with its item.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PassthroughFields {
    /// The call's id, if the API assigned one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// An empty string if the part is a text part without text that is not a thought, and `None`
    /// otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thought_signature: Option<String>,
}

impl PassthroughFields {
    pub(super) fn to_provider_data(&self, model: &str) -> Option<ProviderData> {
        Some(ProviderData::new(PROVIDER_NAME, model, RawJson::new(self).ok()?))
    }
}
