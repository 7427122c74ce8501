//! The names under which a vendor sees a request's tools.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::fnv::fnv1a_64;

/// The maximum length of a tool name that every vendor accepts.
const MAX_NAME_LEN: usize = 64;

/// The start of a name whose own first character a vendor does not accept.
const LETTER_PREFIX: &str = "t_";

/// The names that a vendor accepts for tools. All vendors accept names of 1 to 64 letters, digits,
/// `_` and `-`; they differ in the first character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolNameRule {
    /// The name may begin with any of these characters.
    #[default]
    Any,
    /// The name must begin with a letter.
    Letter,
    /// The name must begin with a letter or `_`.
    LetterOrUnderscore,
}

/// The number of rules, for tables that are indexed by rule.
pub(super) const RULE_COUNT: usize = 3;

impl ToolNameRule {
    /// Returns whether the vendor accepts a tool name.
    fn accepts(self, name: &str) -> bool {
        let starts = name.bytes().next().is_some_and(|first| self.accepts_start(first));
        starts && name.len() <= MAX_NAME_LEN && name.bytes().all(is_name_byte)
    }

    fn accepts_start(self, first: u8) -> bool {
        match self {
            Self::Any => true,
            Self::Letter => first.is_ascii_alphabetic(),
            Self::LetterOrUnderscore => first.is_ascii_alphabetic() || first == b'_',
        }
    }

    /// Converts a name to one that the vendor accepts. Different names may be converted to the same
    /// name.
    fn fit(self, name: &str) -> Cow<'_, str> {
        match self.accepts(name) {
            true => Cow::Borrowed(name),
            false => Cow::Owned(self.converted(name, MAX_NAME_LEN)),
        }
    }

    /// Converts a name, and adds a hash of the name and of `salt`.
    fn fit_with_hash(self, name: &str, salt: u32) -> String {
        let hash = fnv1a_64(name.bytes().chain(salt.to_le_bytes())) >> 32;
        let suffix = format!("_{hash:08x}");
        self.converted(name, MAX_NAME_LEN - suffix.len()) + &suffix
    }

    fn converted(self, name: &str, max_len: usize) -> String {
        let plain = |byte: u8| if is_name_byte(byte) { char::from(byte) } else { '_' };
        let first = name.bytes().next().map(|first| if is_name_byte(first) { first } else { b'_' });
        let prefix = match first {
            Some(first) if self.accepts_start(first) => "",
            None if self == Self::Any => "_",
            Some(_) | None => LETTER_PREFIX,
        };
        let rest = name.bytes().take(max_len - prefix.len()).map(plain);
        prefix.chars().chain(rest).collect()
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Converts between the names of a list's tools and the names under which a vendor sees them. A
/// name that the vendor accepts stays as it is. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolNames {
    rule: ToolNameRule,
    /// The tools that are renamed, if any.
    renamed: Option<Arc<RenamedTools>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct RenamedTools {
    /// The name that is sent for each tool whose converted name belongs to another tool, by the
    /// tool's own name.
    displaced: BTreeMap<String, String>,
    /// The own name of each renamed tool, by the name that is sent.
    own_names: BTreeMap<String, String>,
}

impl ToolNames {
    /// Chooses the names of the tools. The choice does not depend on the order of the tools.
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>, rule: ToolNameRule) -> Self {
        let (accepted, refused): (BTreeSet<&str>, BTreeSet<&str>) =
            names.into_iter().partition(|name| rule.accepts(name));
        if refused.is_empty() {
            return Self { rule, renamed: None };
        }
        let mut renamed = RenamedTools::default();
        for name in refused {
            let is_taken = |sent: &str, renamed: &RenamedTools| {
                accepted.contains(sent) || renamed.own_names.contains_key(sent)
            };
            let mut sent = rule.fit(name).into_owned();
            if is_taken(&sent, &renamed) {
                let mut salt = 0;
                while is_taken(&sent, &renamed) {
                    sent = rule.fit_with_hash(name, salt);
                    salt += 1;
                }
                renamed.displaced.insert(name.to_owned(), sent.clone());
            }
            renamed.own_names.insert(sent, name.to_owned());
        }
        Self { rule, renamed: Some(Arc::new(renamed)) }
    }

    pub(crate) fn rule(&self) -> ToolNameRule {
        self.rule
    }

    /// Returns the name to send for a tool. The tool does not have to be in the list: a history may
    /// contain calls to tools that are no longer offered, or that a model has made up.
    pub(crate) fn sent_name<'a>(&self, own: &'a str) -> Cow<'a, str> {
        let displaced = self.renamed.as_ref().and_then(|renamed| renamed.displaced.get(own));
        match displaced {
            Some(sent) => Cow::Owned(sent.clone()),
            None => self.rule.fit(own),
        }
    }

    /// Returns the own name of the tool that was sent under the name `sent`.
    pub(crate) fn own_name<'a>(&'a self, sent: &'a str) -> &'a str {
        let own = self.renamed.as_ref().and_then(|renamed| renamed.own_names.get(sent));
        own.map_or(sent, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [ToolNameRule; RULE_COUNT] =
        [ToolNameRule::Any, ToolNameRule::Letter, ToolNameRule::LetterOrUnderscore];

    #[test]
    fn a_name_is_changed_only_if_the_rule_rejects_it() {
        let sent = |name: &str| RULES.map(|rule| rule.fit(name).into_owned());
        assert_eq!(sent("read-File_2"), ["read-File_2"; 3]);
        assert_eq!(sent("3d"), ["3d", "t_3d", "t_3d"]);
        assert_eq!(sent("-x"), ["-x", "t_-x", "t_-x"]);
        assert_eq!(sent("_x"), ["_x", "t__x", "_x"]);
        assert_eq!(sent("a.b c"), ["a_b_c"; 3]);
        assert_eq!(sent(""), ["_", "t_", "t_"]);
        assert_eq!(sent(&"7".repeat(70)).map(|name| name.len()), [64; 3]);
    }

    #[test]
    fn renamed_tools_have_distinct_accepted_names_that_are_converted_back() {
        let long = "x".repeat(80);
        let longer = "x".repeat(81);
        let names =
            ["3d", "t_3d", "a.b", "a b", "a_b", "ü", "é", "", "_", "t_", "-x", &long, &longer];
        for rule in RULES {
            let tools = ToolNames::new(names, rule);
            let sent: Vec<String> =
                names.iter().map(|name| tools.sent_name(name).into_owned()).collect();
            assert!(sent.iter().all(|name| rule.accepts(name)), "{rule:?} {sent:?}");
            assert_eq!(sent.iter().collect::<BTreeSet<_>>().len(), names.len(), "{sent:?}");
            for (own, sent) in names.iter().zip(&sent) {
                assert_eq!(tools.own_name(sent), *own);
                assert!(!rule.accepts(own) || own == sent, "{rule:?} {own} {sent}");
            }
            let mut reversed = names;
            reversed.reverse();
            assert_eq!(ToolNames::new(reversed, rule), tools);
        }
    }

    #[test]
    fn the_name_of_another_lists_renamed_tool_can_belong_to_a_tool() {
        let first = ToolNames::new(["3d"], ToolNameRule::Letter);
        let taken = first.sent_name("3d").into_owned();
        let both = ToolNames::new(["3d", taken.as_str()], ToolNameRule::Letter);
        let moved = both.sent_name("3d").into_owned();
        assert_ne!(moved, taken);
        assert_eq!((both.own_name(&moved), both.own_name(&taken)), ("3d", taken.as_str()));
        let all = ToolNames::new(["3d", taken.as_str(), moved.as_str()], ToolNameRule::Letter);
        assert!(![taken, moved].contains(&all.sent_name("3d").into_owned()));
    }
}
