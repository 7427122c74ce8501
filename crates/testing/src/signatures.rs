//! Issues signatures for a scripted model's reasoning, and recognizes them when a request sends
//! them back.

use std::collections::{HashMap, HashSet};

use turnstream::provider::server::Issued;

/// The prefix of every generated signature, which is `scripted:` encoded as base64.
pub(super) const SIGNATURE_PREFIX: &str = "c2NyaXB0ZWQ6";

/// Returns a signature for a text. Like vendors' signatures, the signature is valid base64. The
/// signature depends only on the text, so other test servers accept it as well.
pub(super) fn sign_text(content: &str) -> String {
    // FNV-1a. Sixteen hexadecimal digits are also valid base64.
    let hash = content.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{SIGNATURE_PREFIX}{hash:016x}")
}

/// The signatures that a server has issued in scripted answers.
#[derive(Debug, Default)]
pub(super) struct Signatures {
    /// The texts for which each signature was issued.
    issued: HashMap<String, HashSet<String>>,
    /// The reasoning item that precedes each item in the OpenAI Responses wire format, keyed by the
    /// id of the item.
    reasoning_by_item: HashMap<String, String>,
}

impl Signatures {
    /// Records the signatures and items that an answer contains.
    pub(super) fn record_response(&mut self, issued: impl IntoIterator<Item = Issued>) {
        for issued in issued {
            match issued {
                Issued::Signature { signature, signed_text: over } => {
                    self.issued.entry(signature).or_default().insert(over);
                }
                Issued::RequiresReasoning { item, reasoning } => {
                    drop(self.reasoning_by_item.insert(item, reasoning));
                }
                _ => {}
            }
        }
    }

    /// Returns whether this signature was issued for this text.
    pub(super) fn is_issued_for(&self, signature: &str, content: &str) -> bool {
        let given = self.issued.get(signature);
        signature == sign_text(content) || given.is_some_and(|over| over.contains(content))
    }

    /// Returns whether this signature was issued for any text.
    pub(super) fn was_issued(&self, signature: &str) -> bool {
        self.issued.contains_key(signature)
    }

    /// Returns the reasoning item, if any, that a request must send back together with this item.
    pub(super) fn signed_reasoning_before(&self, item: &str) -> Option<&String> {
        self.reasoning_by_item.get(item)
    }
}
