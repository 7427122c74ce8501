//! Ids of calls in the form that a server takes.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::fnv::fnv1a_64;
use crate::item::NumberSet;
use crate::provider::openai_chat::dialect::IdRule;
use crate::provider::openai_chat::passthrough::THOUGHT;
use crate::provider::portable_values::{SHORT_ID, wire_id};

/// The ids of the calls so far. What an id becomes depends on the calls before it and on nothing
/// behind it.
pub(super) struct Ids<'a> {
    rule: IdRule,
    /// Those that are not what the rule alone makes of them.
    sent: HashMap<&'a str, String>,
    /// All that were given out, where a rule leaves so little room that two may meet.
    pub(super) given: Given,
}

/// The ids of nine letters that were given out, as the numbers that they are.
pub(super) type Given = NumberSet;

impl<'a> Ids<'a> {
    /// Begins behind calls that all have their results.
    pub(super) fn new(rule: IdRule, given: Given) -> Self {
        Self { rule, sent: HashMap::new(), given }
    }

    /// The id of a call. With the signature of a thought it is the id that LiteLLM made of both.
    pub(super) fn call(&mut self, id: &'a str, thought: Option<&str>) -> Cow<'a, str> {
        let plain = match self.rule {
            IdRule::UpTo40 => wire_id(id, SHORT_ID),
            IdRule::Nine => Cow::Owned(self.nine(id)),
        };
        let sent = match thought {
            Some(thought) => Cow::Owned(format!("{plain}{THOUGHT}{thought}")),
            None => plain,
        };
        if thought.is_some() || self.rule == IdRule::Nine {
            self.sent.insert(id, sent.clone().into_owned());
        }
        sent
    }

    /// The id by which a result answers its call.
    pub(super) fn result(&self, id: &'a str) -> Cow<'a, str> {
        match self.sent.get(id) {
            Some(sent) => Cow::Owned(sent.clone()),
            None => wire_id(id, SHORT_ID),
        }
    }

    /// Nine letters and digits that no call before has.
    fn nine(&mut self, id: &str) -> String {
        let is_legal = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let mut nine = if is_legal { id.to_owned() } else { letters(fnv1a_64(id.bytes())) };
        for salt in 0_u8.. {
            if self.given.insert(number(&nine)) {
                break;
            }
            nine = letters(fnv1a_64(id.bytes().chain([salt])));
        }
        nine
    }
}

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The number that nine of the letters are; no two are the same.
fn number(letters: &str) -> u64 {
    letters.bytes().rev().fold(0_u64, |number, byte| {
        let digit = LETTERS.iter().position(|letter| *letter == byte).unwrap_or_default();
        number.wrapping_mul(62).wrapping_add(digit as u64)
    })
}

fn letters(mut number: u64) -> String {
    let mut letter = || {
        let at = usize::try_from(number % 62).unwrap_or_default();
        number /= 62;
        char::from(LETTERS[at])
    };
    (0..9).map(|_| letter()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nine_letters_are_deterministic_and_distinct() {
        let made = || {
            let mut ids = Ids::new(IdRule::Nine, Given::default());
            let texts: Vec<String> = (0..200).map(|n| format!("call_{n}")).collect();
            let sent = texts.iter().map(|id| {
                let sent = Ids::call(&mut ids, Box::leak(id.clone().into_boxed_str()), None);
                sent.into_owned()
            });
            sent.collect::<Vec<_>>()
        };
        let sent = made();
        assert_eq!(sent, made());
        assert!(sent.iter().all(|id| id.len() == 9 && id.chars().all(char::is_alphanumeric)));
        assert_eq!(sent.iter().collect::<HashSet<_>>().len(), 200);
    }

    #[test]
    fn a_legal_id_that_another_became_is_sent_as_a_third() {
        let mut ids = Ids::new(IdRule::Nine, Given::default());
        let first = ids.call("call_1", None).into_owned();
        let taken: &'static str = Box::leak(first.clone().into_boxed_str());
        assert_ne!(ids.call(taken, None), first);
        assert_eq!(ids.result("call_1"), first);
        assert_ne!(ids.result(taken), first);
        assert_eq!(ids.call("abcdefghi", None), "abcdefghi");
    }
}
