//! A string that is never shown.

use std::fmt;
use std::sync::Arc;

/// A key. `Debug` does not show it, and it is taken out of whatever a server echoes.
///
/// ```
/// use turnstream::http::Secret;
///
/// let key = Secret::new("sk-123456");
/// assert_eq!(format!("{key:?}"), "Secret(…)");
/// assert_eq!(key.masked("wrong key sk-123456"), "wrong key …");
/// ```
#[derive(Clone)]
pub struct Secret(Arc<str>);

/// Shorter ones are no keys, and taking them out of a text would only garble it.
const SHORTEST: usize = 4;

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

    /// Takes the key out of a text.
    pub fn masked(&self, text: &str) -> String {
        if self.0.len() < SHORTEST {
            return text.to_owned();
        }
        let text = text.replace(&*self.0, "…");
        let encoded = percent_encoded(&self.0);
        match encoded == *self.0 {
            true => text,
            false => text.replace(&encoded, "…").replace(&encoded.to_lowercase(), "…"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.extend(format!("%{byte:02X}").chars()),
        }
    }
    out
}
