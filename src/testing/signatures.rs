//! Signatures that a scripted model gives its thoughts, and that a strict server checks.

use std::collections::{HashMap, HashSet};

use crate::fnv::fnv1a_64;
use crate::provider::server::IssuedItem;

/// How every signature of ours begins: "scripted:" in base 64.
pub(super) const SIGNATURE_PREFIX: &str = "c2NyaXB0ZWQ6";

/// A signature over what was said. It is lawful base 64, as the vendors' are, and the same for the
/// same words, so that another server knows it as well.
pub(super) fn sign_text(said: &str) -> String {
    // Sixteen hexadecimal digits are base 64, too.
    format!("{SIGNATURE_PREFIX}{:016x}", fnv1a_64(said.bytes()))
}

/// What a server signed in the words of its script.
#[derive(Debug, Default)]
pub(super) struct Signatures {
    /// What each signature was given for.
    issued: HashMap<String, HashSet<String>>,
    /// The reasoning item that each item on the Responses wire followed.
    reasoning_by_item: HashMap<String, String>,
}

impl Signatures {
    /// Remembers what an answer issued.
    pub(super) fn record_response(&mut self, issued: impl Iterator<Item = IssuedItem>) {
        for issued in issued {
            match issued {
                IssuedItem::Signature { signature, signed_text: over } => {
                    self.issued.entry(signature).or_default().insert(over);
                }
                IssuedItem::RequiresReasoning { item, reasoning } => {
                    drop(self.reasoning_by_item.insert(item, reasoning));
                }
            }
        }
    }

    /// Whether the signature was given for these words.
    pub(super) fn is_issued_for(&self, signature: &str, said: &str) -> bool {
        let given = self.issued.get(signature);
        signature == sign_text(said) || given.is_some_and(|over| over.contains(said))
    }

    /// Whether the signature was given for anything.
    pub(super) fn was_issued(&self, signature: &str) -> bool {
        self.issued.contains_key(signature)
    }

    /// The reasoning item that an item has to come back with.
    pub(super) fn signed_reasoning_before(&self, item: &str) -> Option<&String> {
        self.reasoning_by_item.get(item)
    }
}
