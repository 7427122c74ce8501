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

/// The item at the end of a turn that the provider paused. The next request continues the turn with
/// the token; it then contains neither this item nor the paused turn.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Continuation {
    pub(super) continuation_token: String,
}

impl Continuation {
    pub(super) fn new(continuation_token: String) -> Self {
        Self { continuation_token }
    }

    pub(super) fn from_provider_data(data: &ProviderData) -> Option<Self> {
        (data.provider == PROVIDER_NAME).then(|| data.value.deserialize_as().ok()).flatten()
    }

    pub(super) fn to_provider_data(&self, model: &str) -> ProviderData {
        let value = serde_json::json!({ "continuationToken": self.continuation_token });
        ProviderData::new(PROVIDER_NAME, model, value)
    }
}

/// Returns whether a provider-specific item is only metadata of the response, rather than a part.
pub(in crate::provider) fn is_metadata(data: &ProviderData) -> bool {
    Continuation::from_provider_data(data).is_some()
}
