//! Provider data of this wire: the fields that are sent back, with their item, to the model that
//! wrote it.

use serde::{Deserialize, Serialize};

use crate::item::{ProviderData, RawJson};

/// The name of this wire in provider data.
pub(super) const PROVIDER_NAME: &str = "gemini";

/// The fields of a part that are stored with its item.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PassthroughFields {
    /// Set if the wire assigned an id to the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// Set, to an empty string, if the part is an empty text part and not a thought.
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
