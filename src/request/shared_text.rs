//! A text that is shared by many requests.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// A text that never changes. Cloning is cheap, and clones share the text.
///
/// The text's JSON form is cached together with the text, so a text that is sent in many requests
/// is escaped only once.
///
/// ```
/// use turnstream::request::SharedText;
///
/// let text = SharedText::from("Be brief.");
/// assert_eq!(text, "Be brief.");
/// assert!(text.starts_with("Be"));
/// ```
#[derive(Clone)]
pub struct SharedText(Arc<TextWithJson>);

struct TextWithJson {
    text: Box<str>,
    /// The text as a JSON string, once it has been encoded.
    json: OnceLock<Box<RawValue>>,
}

impl SharedText {
    /// Returns the text as a JSON string.
    pub(crate) fn to_json(&self) -> &RawValue {
        self.0.json.get_or_init(|| {
            #[cfg(test)]
            tests::ENCODED.set(tests::ENCODED.get() + 1);
            // Invariant: every text can be encoded as a JSON string.
            to_raw_value(&self.0.text).expect("a JSON string")
        })
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self(Arc::new(TextWithJson { text: text.into(), json: OnceLock::new() }))
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Creates an empty text.
impl Default for SharedText {
    fn default() -> Self {
        static EMPTY: LazyLock<SharedText> = LazyLock::new(|| "".into());
        EMPTY.clone()
    }
}

impl PartialEq for SharedText {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for SharedText {}

impl PartialEq<str> for SharedText {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for SharedText {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl Serialize for SharedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for SharedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    thread_local! {
        /// The number of texts that have been encoded.
        pub(crate) static ENCODED: Cell<usize> = const { Cell::new(0) };
    }
}
