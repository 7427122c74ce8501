//! Signatures that a scripted model gives its thoughts, and that a strict server checks.

use std::collections::HashMap;

use serde_json::Value;

use crate::testing::write::signed_call;
use crate::testing::{Asked, Wire};

/// What Gemini takes in place of a signature, for calls that it did not write,
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const SKIPPED: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

/// How every signature of ours begins: "scripted:" in base 64.
const BEGINS: &str = "c2NyaXB0ZWQ6";

/// A signature over what was said. It is lawful base 64, as the vendors' are, and the same for the
/// same words, so that another server knows it as well.
pub(super) fn sign(said: &str) -> String {
    // FNV-1a, 64 bit; sixteen hexadecimal digits are base 64, too.
    let hash = said.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{BEGINS}{hash:016x}")
}

/// What a server signed in the words of its script.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    /// What each signature was given for.
    given: HashMap<String, Vec<String>>,
    /// The reasoning item that each item on the Responses wire followed.
    followed: HashMap<String, String>,
}

impl Proofs {
    /// Remembers a signature of the script.
    pub(super) fn give(&mut self, signature: &str, said: &str) {
        let over = self.given.entry(signature.to_owned()).or_default();
        if over.iter().all(|known| known != said) {
            over.push(said.to_owned());
        }
    }

    /// Whether the signature was given for these words.
    pub(super) fn hold(&self, signature: &str, said: &str) -> bool {
        let given = self.given.get(signature);
        signature == sign(said) || given.is_some_and(|over| over.iter().any(|s| s == said))
    }

    /// Remembers that an item followed a reasoning item.
    pub(super) fn follows(&mut self, item: &str, reasoning: &str) {
        self.followed.insert(item.to_owned(), reasoning.to_owned());
    }

    /// What a request brings back in another form than it was given.
    pub(super) fn complaints(&self, asked: &Asked) -> Vec<String> {
        let body = &asked.body;
        match asked.wire {
            Wire::Anthropic => self.in_messages(body),
            Wire::OpenAiChat => self.in_details(body),
            Wire::OpenAiResponses => self.in_items(body),
            Wire::Gemini => self.in_contents(body),
        }
    }

    fn in_messages(&self, body: &Value) -> Vec<String> {
        let mut bad = Vec::new();
        for (at, message) in list(&body["messages"]).enumerate() {
            for (index, block) in list(&message["content"]).enumerate() {
                let (proof, said) = match text(&block["type"]) {
                    "thinking" => ("signature", text(&block["thinking"])),
                    "redacted_thinking" => ("data", ""),
                    _ => continue,
                };
                if !self.hold(text(&block[proof]), said) {
                    let kind = text(&block["type"]);
                    bad.push(format!(
                        "messages.{at}.content.{index}: Invalid `{proof}` in `{kind}` block"
                    ));
                }
            }
        }
        bad
    }

    fn in_details(&self, body: &Value) -> Vec<String> {
        let mut bad = Vec::new();
        for (at, message) in list(&body["messages"]).enumerate() {
            for (index, detail) in list(&message["reasoning_details"]).enumerate() {
                let known = match (&detail["data"], &detail["signature"]) {
                    (Value::String(data), _) => self.hold(data, ""),
                    // The signature may come back on its own, as it was sent.
                    (_, Value::String(signature)) => match detail["text"].as_str() {
                        Some(said) => self.hold(signature, said),
                        None => self.given.contains_key(signature),
                    },
                    _ => true,
                };
                if !known {
                    bad.push(format!(
                        "messages[{at}].reasoning_details[{index}]: Invalid `signature` in \
                         `thinking` block"
                    ));
                }
            }
        }
        bad
    }

    fn in_items(&self, body: &Value) -> Vec<String> {
        let mut bad = Vec::new();
        let items: Vec<&Value> = list(&body["input"]).collect();
        for item in &items {
            let id = text(&item["id"]);
            if let Some(encrypted) = item["encrypted_content"].as_str()
                && item["type"] == "reasoning"
                && !self.hold(encrypted, id)
                // Without its id, the content stands for itself.
                && !(id.is_empty() && (encrypted.starts_with(BEGINS) || self.given.contains_key(encrypted)))
            {
                bad.push(format!(
                    "The encrypted content {encrypted:.12}... could not be verified. Reason: \
                     Encrypted content could not be decrypted or parsed."
                ));
            }
            if let Some(reasoning) = self.followed.get(id)
                && !items.iter().any(|item| {
                    item["type"] == "reasoning"
                        && (item["id"].is_null() || item["id"] == *reasoning)
                })
            {
                bad.push(format!(
                    "Item '{id}' of type '{}' was provided without its required 'reasoning' item: \
                     '{reasoning}'.",
                    text(&item["type"])
                ));
            }
        }
        bad
    }

    fn in_contents(&self, body: &Value) -> Vec<String> {
        let mut bad = Vec::new();
        for (at, content) in list(&body["contents"]).enumerate() {
            for (index, part) in list(&content["parts"]).enumerate() {
                let either = |camel: &str, snake: &str| {
                    part.get(camel).or_else(|| part.get(snake)).cloned().unwrap_or_default()
                };
                let signature = either("thoughtSignature", "thought_signature");
                let said = match either("functionCall", "function_call") {
                    Value::Null => String::new(),
                    call => signed_call(&call),
                };
                if let Some(signature) = signature.as_str()
                    && !self.hold(signature, &said)
                    && !SKIPPED.contains(&signature)
                {
                    bad.push(format!(
                        "Thought signature is not valid. (contents[{at}].parts[{index}])"
                    ));
                }
            }
        }
        bad
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
