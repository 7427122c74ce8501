//! Counts the tokens in a text.

/// A trait for counting the tokens in a text. This trait is also implemented for closures.
///
/// A counter must be fast: it is called often, with texts of any length, and runs synchronously
/// while a future or stream is polled.
///
/// ```
/// use turnstream::context::{CountTokens, BytesDiv4};
///
/// let words = |text: &str| text.split_whitespace().count() as u64;
/// assert_eq!(words.count("to be or not"), 4);
/// assert_eq!(BytesDiv4.count("to be or not"), 3);
/// ```
pub trait CountTokens: Send + Sync {
    /// Returns the number of tokens in the text, as the model's tokenizer counts them or as an
    /// estimate.
    fn count(&self, text: &str) -> u64;
}

impl<F: Fn(&str) -> u64 + Send + Sync> CountTokens for F {
    fn count(&self, text: &str) -> u64 {
        self(text)
    }
}

/// Estimates the number of tokens without a tokenizer, as the number of bytes divided by 4, rounded
/// up.
///
/// The estimate is close for English ("1 token ~= 4 chars in English",
/// <https://help.openai.com/en/articles/4936856>) but tens of percent too low for code and JSON. A
/// Chinese or Japanese character takes up three bytes, and therefore counts as 0.75 tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesDiv4;

impl CountTokens for BytesDiv4 {
    fn count(&self, text: &str) -> u64 {
        u64::try_from(text.len().div_ceil(4)).unwrap_or(u64::MAX)
    }
}
