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

/// Stands for a key, and for what a long text was cut off behind.
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

    /// Takes the key out of a text, also its beginning where the text was cut off with `…`.
    pub fn masked(&self, text: &str) -> String {
        if self.0.len() < SHORTEST {
            return text.to_owned();
        }
        let text = without(text, &self.0);
        let encoded = percent_encoded(&self.0);
        match encoded == *self.0 {
            true => text,
            false => without(&without(&text, &encoded), &encoded.to_lowercase()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Takes a key out of a text, and what there is of it where the text was cut off.
fn without(text: &str, key: &str) -> String {
    let text = text.replace(key, MASK);
    if !text.contains(MASK) {
        return text;
    }
    let beginnings = (SHORTEST..key.len()).rev().filter_map(|len| key.get(..len));
    let beginnings: Vec<&str> = beginnings.collect();
    let shown = text.split(MASK).map(|piece| {
        let cut = beginnings.iter().find_map(|beginning| piece.strip_suffix(beginning));
        cut.unwrap_or(piece)
    });
    let mut shown: Vec<&str> = shown.collect();
    // Nothing was cut off behind the last piece.
    if let (Some(last), Some(whole)) = (shown.last_mut(), text.rsplit(MASK).next()) {
        *last = whole;
    }
    shown.join(MASK)
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
    fn a_key_in_which_a_text_was_cut_off_is_not_shown() {
        let check = |text: &str, shown: &str| {
            assert_eq!(Secret::new("sk-123456").masked(text), shown, "{text}");
        };
        check("wrong: sk-123456", "wrong: …");
        check("wrong: sk-12345…", "wrong: …");
        check("wrong: sk-1…: wrong: sk-123…", "wrong: …: wrong: …");
        check("wrong: sk-…", "wrong: sk-…");
        check("it was cut off… sk-12", "it was cut off… sk-12");
        check("not cut off: sk-12", "not cut off: sk-12");
    }

    #[test]
    fn a_user_name_and_a_password_are_written_as_they_travel() {
        // The example of RFC 7617.
        assert_eq!(basic("Aladdin", "open sesame"), "QWxhZGRpbjpvcGVuIHNlc2FtZQ");
        assert_eq!(basic("", ""), "Og");
        assert_eq!(percent_decoded("a%2Fb%20c%é%4"), "a/b c%é%4");
    }
}
