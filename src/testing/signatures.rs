//! Signatures that a scripted model gives its thoughts, and that a strict server checks.

use std::collections::{HashMap, HashSet};

use crate::fnv::fnv1a_64;
use crate::provider::server::IssuedItem;

/// How every signature of ours begins: "scripted:" in base 64.
pub(super) const BEGINS: &str = "c2NyaXB0ZWQ6";

/// A signature over what was said. It is lawful base 64, as the vendors' are, and the same for the
/// same words, so that another server knows it as well.
pub(super) fn sign(said: &str) -> String {
    // Sixteen hexadecimal digits are base 64, too.
    format!("{BEGINS}{:016x}", fnv1a_64(said.bytes()))
}

/// What a server signed in the words of its script.
#[derive(Debug, Default)]
pub(super) struct Signatures {
    /// What each signature was given for.
    given: HashMap<String, HashSet<String>>,
    /// The reasoning item that each item on the Responses wire followed.
    followed: HashMap<String, String>,
}

impl Signatures {
    /// Remembers what an answer issued.
    pub(super) fn learn(&mut self, issued: impl Iterator<Item = IssuedItem>) {
        for issued in issued {
            match issued {
                IssuedItem::Signature { signature, signed_text: over } => {
                    self.given.entry(signature).or_default().insert(over);
                }
                IssuedItem::AfterReasoning { item, reasoning } => {
                    drop(self.followed.insert(item, reasoning))
                }
            }
        }
    }

    /// Whether the signature was given for these words.
    pub(super) fn hold(&self, signature: &str, said: &str) -> bool {
        let given = self.given.get(signature);
        signature == sign(said) || given.is_some_and(|over| over.contains(said))
    }

    /// Whether the signature was given for anything.
    pub(super) fn issued(&self, signature: &str) -> bool {
        self.given.contains_key(signature)
    }

    /// The reasoning item that an item has to come back with.
    pub(super) fn reasoning_before(&self, item: &str) -> Option<&String> {
        self.followed.get(item)
    }
}
