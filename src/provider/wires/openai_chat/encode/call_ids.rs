//! Converts call ids to the format that a server requires.

use crate::fnv::fnv1a_64;
use crate::item::NumberSet;
use crate::provider::codec::portable_values::{MAX_SHORT_ID_BYTES, wire_id};
use crate::provider::wires::openai_chat::dialect::CallIdRule;
use crate::provider::wires::openai_chat::passthrough::CALL_ID_SIGNATURE_SEPARATOR;
use crate::small_map::SmallMap;
use std::borrow::Cow;

/// Maps the call ids in a history to the ids that are sent. The id that is sent for a call depends
/// only on that call and the preceding calls.
pub(super) struct CallIdMap<'a> {
    rule: CallIdRule,
    /// The sent ids that may differ from the ids that [`wire_id`] alone would produce, by the
    /// call's own id.
    sent_ids: SmallMap<&'a str, String>,
    /// The ids sent for the calls in the current turn.
    turn_ids: Vec<Cow<'a, str>>,
    /// All ids assigned so far. Ids are stored only for a rule with so few possible ids that two
    /// calls might otherwise get the same id.
    pub(super) assigned_ids: AssignedIds,
}

/// The assigned ids of nine characters, stored as numbers.
pub(super) type AssignedIds = NumberSet;

impl<'a> CallIdMap<'a> {
    /// Creates a map for a point in the history at which every call has a result.
    pub(super) fn new(rule: CallIdRule, given: AssignedIds) -> Self {
        let (sent_ids, turn_ids) = (SmallMap::default(), Vec::new());
        Self { rule, sent_ids, turn_ids, assigned_ids: given }
    }

    /// Starts a turn with calls. Only the ids of calls in the same turn have to differ, because the
    /// results of earlier calls precede the turn.
    pub(super) fn start_turn(&mut self) {
        self.turn_ids.clear();
    }

    /// Returns the id to send for a call. `issued` is the id under which the server itself issued
    /// the call, unless that is the call's own id and every provider accepts it. If the call has a
    /// signature for the preceding reasoning, returns a combination of the id and the signature, in
    /// LiteLLM's format.
    pub(super) fn call_id(
        &mut self,
        id: &'a str,
        issued: Option<String>,
        thought: Option<&str>,
    ) -> Cow<'a, str> {
        let plain = match self.rule {
            CallIdRule::NineAlphanumerics => Cow::Owned(self.nine_char_id(id)),
            CallIdRule::AnyIssued | CallIdRule::Max40Chars => {
                let accepts = |issued: &String| {
                    self.rule == CallIdRule::AnyIssued || issued.len() <= MAX_SHORT_ID_BYTES
                };
                let is_free = |issued: &String| self.turn_ids.iter().all(|sent| sent != issued);
                match issued.filter(|issued| accepts(issued) && is_free(issued)) {
                    Some(issued) => Cow::Owned(issued),
                    None => wire_id(id, MAX_SHORT_ID_BYTES),
                }
            }
        };
        let sent = match thought {
            Some(thought) => Cow::Owned(format!("{plain}{CALL_ID_SIGNATURE_SEPARATOR}{thought}")),
            None => plain.clone(),
        };
        self.turn_ids.push(plain);
        if let Cow::Owned(sent) = &sent {
            self.sent_ids.insert(id, sent.clone());
        }
        sent
    }

    /// Returns the id to send for a call's result.
    pub(super) fn result_id(&self, id: &'a str) -> Cow<'a, str> {
        match self.sent_ids.get(id) {
            Some(sent) => Cow::Owned(sent.clone()),
            None => wire_id(id, MAX_SHORT_ID_BYTES),
        }
    }

    /// Returns an id of nine letters and digits that differs from the ids of all earlier calls.
    fn nine_char_id(&mut self, id: &str) -> String {
        let is_legal = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let mut nine = if is_legal { id.to_owned() } else { base62_id(fnv1a_64(id.bytes())) };
        for salt in 0_u8.. {
            if self.assigned_ids.insert(base62_value(&nine)) {
                break;
            }
            nine = base62_id(fnv1a_64(id.bytes().chain([salt])));
        }
        nine
    }
}

const BASE62_ALPHABET: &[u8; 62] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns the number that an id of nine characters encodes in base 62. Different ids have
/// different numbers.
fn base62_value(letters: &str) -> u64 {
    letters.bytes().rev().fold(0_u64, |number, byte| {
        let digit = BASE62_ALPHABET.iter().position(|letter| *letter == byte).unwrap_or_default();
        number.wrapping_mul(62).wrapping_add(digit as u64)
    })
}

fn base62_id(mut number: u64) -> String {
    let mut letter = || {
        let at = usize::try_from(number % 62).unwrap_or_default();
        number /= 62;
        char::from(BASE62_ALPHABET[at])
    };
    (0..9).map(|_| letter()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nine_character_ids_are_deterministic_and_distinct() {
        let made = || {
            let mut ids = CallIdMap::new(CallIdRule::NineAlphanumerics, AssignedIds::default());
            let texts: Vec<String> = (0..200).map(|n| format!("call_{n}")).collect();
            let sent = texts.iter().map(|id| {
                let id = Box::leak(id.clone().into_boxed_str());
                CallIdMap::call_id(&mut ids, id, None, None).into_owned()
            });
            sent.collect::<Vec<_>>()
        };
        let sent = made();
        assert_eq!(sent, made());
        assert!(sent.iter().all(|id| id.len() == 9 && id.chars().all(char::is_alphanumeric)));
        assert_eq!(sent.iter().collect::<HashSet<_>>().len(), 200);
    }

    #[test]
    fn a_valid_id_already_generated_for_another_call_is_replaced() {
        let mut ids = CallIdMap::new(CallIdRule::NineAlphanumerics, AssignedIds::default());
        let first = ids.call_id("call_1", None, None).into_owned();
        let taken: &'static str = Box::leak(first.clone().into_boxed_str());
        assert_ne!(ids.call_id(taken, None, None), first);
        assert_eq!(ids.result_id("call_1"), first);
        assert_ne!(ids.result_id(taken), first);
        assert_eq!(ids.call_id("abcdefghi", None, None), "abcdefghi");
    }
}
