//! Counts the tokens in a text.

/// Counts the tokens in a text. This trait is also implemented for closures.
///
/// A counter must be fast, because it is called often, synchronously while a future or stream is
/// polled, and with texts of any length.
///
/// ```
/// use turnstream::context::{CountTokens, BytesDiv4};
///
/// let words = |text: &str| text.split_whitespace().count() as u64;
/// assert_eq!(words.count("to be or not"), 4);
/// assert_eq!(BytesDiv4.count("to be or not"), 3);
/// ```
pub trait CountTokens: Send + Sync {
    /// Returns the number of tokens in the text.
    fn count(&self, text: &str) -> u64;
}

impl<F: Fn(&str) -> u64 + Send + Sync> CountTokens for F {
    fn count(&self, text: &str) -> u64 {
        self(text)
    }
}

/// Estimates the number of tokens without a tokenizer, as a quarter of the number of bytes, rounded
/// up.
///
/// The estimate is close for English ("1 token ~= 4 chars in English",
/// <https://help.openai.com/en/articles/4936856>) and some tens of percent too low for code and
/// JSON. A Chinese or Japanese character, which takes up three bytes, counts as three quarters of a
/// token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesDiv4;

impl CountTokens for BytesDiv4 {
    fn count(&self, text: &str) -> u64 {
        u64::try_from(text.len().div_ceil(4)).unwrap_or(u64::MAX)
    }
}
