//! The log probabilities of an answer's tokens.

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::item::RawJson;

/// A token of an answer, with its log probability and the most likely tokens in its place.
///
/// ```
/// use turnstream::turn::TokenLogprob;
///
/// let certain = TokenLogprob { token: "Yes".into(), logprob: -0.01, ..TokenLogprob::default() };
/// assert!(certain.logprob.exp() > 0.98);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// The token's text. A token that is only a part of a character has the text that the provider
    /// sends for it.
    pub token: String,
    /// The natural logarithm of the token's probability, at most 0.
    pub logprob: f64,
    /// The most likely tokens at this position, beginning with the most likely one. The number of
    /// tokens is at most that of [`Options::logprobs`](crate::request::Options::logprobs).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top: Vec<TopLogprob>,
}

/// A token that the model could have written, with its log probability.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopLogprob {
    /// The token's text.
    pub token: String,
    /// The natural logarithm of the token's probability, at most 0.
    pub logprob: f64,
}

impl TokenLogprob {
    /// Returns the number of bytes that the token counts toward the size of a turn.
    pub(super) fn byte_len(&self) -> usize {
        let top: usize = self.top.iter().map(|top| top.token.len() + size_of::<f64>()).sum();
        self.token.len() + size_of::<f64>() + top
    }
}

/// Deserializes a list from its JSON text. Inside an internally tagged enum, serde represents
/// numbers as text if the feature `serde_json/arbitrary_precision` is enabled.
pub(super) fn deserialize_list<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<TokenLogprob>, D::Error> {
    RawJson::deserialize(from)?.deserialize_as().map_err(de::Error::custom)
}
