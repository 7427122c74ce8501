//! A string that is never shown.

use std::fmt;
use std::sync::Arc;

use crate::http::secret_search::secret_ranges;

/// A key. `Debug` does not show it, and it is taken out of whatever a server echoes.
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

/// Stands for a key.
const MASK: &str = "…";

impl Secret {
    /// Keeps a key. White space around it, as from a file, is dropped.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().into())
    }

    /// The key itself, for the header it belongs into.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the key out of a text, also where it is encoded, escaped, in another case, broken over
    /// lines, or cut off with dots or asterisks. Keys of less than four bytes are left in.
    pub fn mask_in(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut end = 0;
        for place in secret_ranges(&self.0, text) {
            // The one before it may have ended in the middle of this one.
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

/// Takes all secrets out of a text.
#[cfg(feature = "http")]
pub(crate) fn mask_secrets(secrets: &[Secret], text: &str) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| secret.mask_in(&text))
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_which_a_text_was_cut_off_is_not_shown() {
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
