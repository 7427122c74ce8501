//! What a model is shown of what another one wrote.

use crate::item::{Item, ItemKind, ProviderData};

/// How an item goes to a model.
///
/// Signatures, encrypted reasoning and a provider's own items are bound to the wire and the model
/// that wrote them: there they go back byte for byte, and to nobody else.
///
/// | item | to the model that wrote it | to another |
/// |---|---|---|
/// | text, calls | with their data | the words and the call |
/// | reasoning | with its signature | its words, where a wire takes unsigned ones |
/// | a provider's own item | as it is | not at all |
/// | the user's, results, instructions | as they are | as they are |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handoff<'a> {
    /// With what the provider wants to see again.
    Verbatim(&'a ProviderData),
    /// Its words alone.
    Plain,
    /// Not at all.
    Dropped,
}

/// Says how an item goes to a model behind a wire, by the table of [`Handoff`].
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
        // Half of something of the provider's own would be refused.
        (ItemKind::Other, Some(_)) if item.interrupted => Handoff::Dropped,
        (_, Some(data)) => Handoff::Verbatim(data),
        (ItemKind::Other, None) => Handoff::Dropped,
        (ItemKind::Reasoning { text }, None) if text.is_empty() => Handoff::Dropped,
        (_, None) => Handoff::Plain,
    }
}

impl<'a> Handoff<'a> {
    /// What the provider wants to see again, where it may.
    pub fn data(self) -> Option<&'a ProviderData> {
        match self {
            Self::Verbatim(data) => Some(data),
            Self::Plain | Self::Dropped => None,
        }
    }
}
