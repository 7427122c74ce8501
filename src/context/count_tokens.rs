//! How many tokens a text has.

/// Counts the tokens of a text. A closure is enough.
///
/// It is asked for texts of any length, often, and in the poll in which the number is needed, so it
/// must be quick.
///
/// ```
/// use turnstream::context::{CountTokens, BytesDiv4};
///
/// let words = |text: &str| text.split_whitespace().count() as u64;
/// assert_eq!(words.count("to be or not"), 4);
/// assert_eq!(BytesDiv4.count("to be or not"), 3);
/// ```
pub trait CountTokens: Send + Sync {
    /// How many tokens the text has.
    fn count(&self, text: &str) -> u64;
}

impl<F: Fn(&str) -> u64 + Send + Sync> CountTokens for F {
    fn count(&self, text: &str) -> u64 {
        self(text)
    }
}

/// The guess without a tokenizer: a quarter of the bytes, rounded up.
///
/// It is near for English ("1 token ~= 4 chars in English",
/// <https://help.openai.com/en/articles/4936856>), some tens of percent too low for code and JSON, and
/// counts a character of Chinese or Japanese, which has three bytes, as three quarters of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytesDiv4;

impl CountTokens for BytesDiv4 {
    fn count(&self, text: &str) -> u64 {
        u64::try_from(text.len().div_ceil(4)).unwrap_or(u64::MAX)
    }
}
