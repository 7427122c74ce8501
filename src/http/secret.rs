//! A secret string that `Debug` output never shows.

use std::fmt;
use std::sync::Arc;

use crate::http::secret_search::secret_ranges;

/// Holds a key that must stay secret. `Debug` output does not show the key, and
/// [`mask_in`](Self::mask_in) masks it in text where a server echoes it.
///
/// ```
/// use turnstream::http::Secret;
///
/// let key = Secret::new("sk-123456");
/// assert_eq!(format!("{key:?}"), "Secret(…)");
/// assert_eq!(key.mask_in("wrong key sk-123456"), "wrong key …");
/// ```
#[derive(Clone)]
pub struct Secret(Arc<str>);

/// The string that replaces a key in masked text.
pub(crate) const MASK: &str = "…";

impl Secret {
    /// Creates a secret from a key. Whitespace around the key, such as a line feed from a file, is
    /// trimmed.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().into())
    }

    /// Returns the key itself, for use in the header in which it is sent.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether the key is empty. An empty key counts as no key: a provider then sends no
    /// header for it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Masks the key wherever it occurs in a string, even if it is encoded, escaped, in a different
    /// case, split across lines, or truncated with dots or asterisks. Keys shorter than four bytes
    /// are not masked.
    pub fn mask_in(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut end = 0;
        for place in secret_ranges(&self.0, text) {
            // An earlier range may overlap this range.
            if place.end <= end {
                continue;
            }
            if place.start >= end {
                shown.push_str(&text[end..place.start]);
                shown.push_str(MASK);
            }
            end = place.end;
        }
        shown.push_str(&text[end..]);
        shown
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Masks all of the given secrets in a string.
#[cfg(feature = "http")]
pub(crate) fn mask_secrets(secrets: &[Secret], text: &str) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| secret.mask_in(&text))
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;

    #[test]
    fn a_key_truncated_at_the_end_of_a_text_is_masked() {
        let check = |text: &str, shown: &str| {
            assert_eq!(Secret::new("sk-123456").mask_in(text), shown, "{text}");
        };
        check("wrong: sk-123456", "wrong: …");
        check("wrong: sk-12345…", "wrong: …");
        check("wrong: sk-1…: wrong: sk-123…", "wrong: …: wrong: …");
        check("wrong: sk-…", "wrong: sk-…");
        check("it was cut off… sk-12", "it was cut off… sk-12");
        check("not cut off: sk-12", "not cut off: sk-12");
    }
}
