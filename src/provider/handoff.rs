//! Decides how one model's output is sent to another model.

use crate::item::{Item, ItemKind, ProviderData};

/// Specifies how a history item is sent to a model.
///
/// A signature, encrypted reasoning or a provider-specific item is useful only to the model that
/// produced it, and only on the same wire. Data that only one model can use is sent back to that
/// model byte for byte, and never to another model.
///
/// | item | sent to the model that produced it | sent to another model |
/// |---|---|---|
/// | text, tool calls | with their provider data | the text or call only |
/// | reasoning | with its signature | its text, if the wire accepts unsigned reasoning |
/// | provider-specific item | unchanged | not sent |
/// | user messages, tool results, instructions | unchanged | unchanged |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handoff<'a> {
    /// The item is sent together with its provider data, which the provider expects to receive
    /// back.
    Verbatim(&'a ProviderData),
    /// The item is sent without provider data.
    Plain,
    /// The item is not sent.
    Dropped,
}

/// Decides how an item is sent to the model named `model` on the wire named `provider`; see the
/// table in [`Handoff`].
///
/// ```
/// use turnstream::Item;
/// use turnstream::item::{RawJson, ProviderData};
/// use turnstream::provider::{Handoff, handoff};
///
/// let value = RawJson::parse(r#"{"signature":"c2ln"}"#)?;
/// let data = ProviderData { provider: "anthropic".into(), model: "a".into(), value };
/// let thought = Item { provider_data: Some(data.into()), ..Item::reasoning("Hm.") };
/// assert!(matches!(handoff(&thought, "anthropic", "a"), Handoff::Verbatim(_)));
/// assert_eq!(handoff(&thought, "anthropic", "b"), Handoff::Plain);
/// assert_eq!(handoff(&thought, "gemini", "a"), Handoff::Plain);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn handoff<'a>(item: &'a Item, provider: &str, model: &str) -> Handoff<'a> {
    let own = |data: &&ProviderData| data.provider == provider && data.model == model;
    let data = item.provider_data.as_deref().filter(own);
    match (&item.kind, data) {
        // A provider would reject a truncated item in its own format.
        (ItemKind::Other, Some(_)) if item.interrupted => Handoff::Dropped,
        (_, Some(data)) => Handoff::Verbatim(data),
        (ItemKind::Other, None) => Handoff::Dropped,
        (ItemKind::Reasoning { text }, None) if text.is_empty() => Handoff::Dropped,
        (_, None) => Handoff::Plain,
    }
}

impl<'a> Handoff<'a> {
    /// Returns the provider data to send with the item, if any.
    pub fn data(self) -> Option<&'a ProviderData> {
        match self {
            Self::Verbatim(data) => Some(data),
            Self::Plain | Self::Dropped => None,
        }
    }
}
