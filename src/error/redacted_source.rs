//! Replaces error sources that contain secrets.

use std::error::Error as StdError;
use std::fmt;

/// The redacted messages of all errors in the source chain of an error.
#[derive(Debug)]
pub(super) struct RedactedSource(String);

impl RedactedSource {
    /// Redacts the messages of a source and of all errors in its source chain with `f`. Returns
    /// `None` if `f` changes neither the messages nor the `Debug` output of these errors.
    pub(super) fn from_chain<'a>(
        chain: impl Iterator<Item = &'a (dyn StdError + 'static)> + Clone,
        f: impl Fn(&str) -> String,
    ) -> Option<Self> {
        let same = |text: &str| f(text) == text;
        // The short and long forms of `Debug` differ in more than just line breaks.
        let clean = |error: &(dyn StdError + 'static)| {
            same(&error.to_string()) && same(&format!("{error:?}")) && same(&format!("{error:#?}"))
        };
        if chain.clone().all(clean) {
            return None;
        }
        let shown: Vec<String> = chain.map(|error| f(&error.to_string())).collect();
        Some(Self(shown.join(": ")))
    }
}

impl fmt::Display for RedactedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for RedactedSource {}
