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

/// Takes all secrets out of a text.
#[cfg(feature = "http")]
pub(crate) fn masked(secrets: &[Secret], text: &str) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| secret.masked(&text))
}

/// How a user name and a password travel: `user:password` in base64 (RFC 7617).
#[cfg(feature = "http")]
pub(super) fn basic(user: &str, password: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in format!("{user}:{password}").as_bytes().chunks(3) {
        let bits = (0..3)
            .fold(0, |bits, at| bits << 8 | u32::from(three.get(at).copied().unwrap_or_default()));
        for at in 0..=three.len() {
            out.push(char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    // Without the `=` at its end, which may be left out or written otherwise.
    out
}

/// A text with its `%XX` read; what is none stays.
#[cfg(feature = "http")]
pub(super) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|two| str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
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

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;

    #[test]
    fn a_user_name_and_a_password_are_written_as_they_travel() {
        // The example of RFC 7617.
        assert_eq!(basic("Aladdin", "open sesame"), "QWxhZGRpbjpvcGVuIHNlc2FtZQ");
        assert_eq!(basic("", ""), "Og");
        assert_eq!(percent_decoded("a%2Fb%20c%é%4"), "a/b c%é%4");
    }
}
