//! Parses the reasoning and tool calls that a model writes between tags in its text.

use crate::provider::wires::openai_chat::dialect::ThinkTags;

const THINK_TAG: &str = "<think>";
const THINK_END_TAG: &str = "</think>";
const CALL_TAG: &str = "<tool_call>";
const CALL_END_TAG: &str = "</tool_call>";

/// The maximum number of bytes processed in a single step. The number is limited because, after
/// each tag, the rest of the held-back text is moved to the start of its buffer.
const MAX_CHUNK_BYTES: usize = 4 << 10;

/// A piece of a model's text, classified by the tags around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TextPiece<'a> {
    Text(&'a str),
    Reasoning(&'a str),
    /// The text between a tool call's tags.
    Call(&'a str),
}

/// Splits text at its tags. The result does not depend on how the text was divided into pieces.
#[derive(Debug)]
pub(super) struct TagParser {
    think_tags: ThinkTags,
    parses_calls: bool,
    state: TagState,
    /// The text that is not yet known to be answer text, reasoning or a tool call.
    held_text: String,
    /// The number of bytes of `held_text` that have already been searched for tags.
    searched_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum TagState {
    /// Only white space has been received so far.
    Start,
    /// A `<think>` tag has been received, followed only by white space.
    ReasoningStart,
    Reasoning,
    /// A closing tag has been received, followed only by white space.
    AfterReasoning,
    Text,
    Call,
}

impl TagParser {
    /// Creates a parser, or returns `None` if neither reasoning tags nor tool call tags are to be
    /// parsed.
    pub(super) fn new(think: ThinkTags, calls: bool) -> Option<Self> {
        let position = match think {
            ThinkTags::Off if !calls => return None,
            ThinkTags::Off => TagState::Text,
            ThinkTags::Tagged | ThinkTags::OpenedByTemplate => TagState::Start,
        };
        Some(Self {
            think_tags: think,
            parses_calls: calls,
            state: position,
            held_text: String::new(),
            searched_len: 0,
        })
    }

    /// Parses the next piece of the text and emits all text that is certain to be answer text,
    /// reasoning or a tool call.
    pub(super) fn push(&mut self, piece: &str, mut say: impl FnMut(TextPiece<'_>)) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (next, behind) = rest.split_at(rest.floor_char_boundary(MAX_CHUNK_BYTES));
            self.held_text.push_str(next);
            while self.step(&mut say) {}
            rest = behind;
        }
    }

    /// Ends the text. Any text that was held back as the possible start of a tag is emitted
    /// unchanged.
    pub(super) fn flush(&mut self, mut say: impl FnMut(TextPiece<'_>)) {
        let held = std::mem::take(&mut self.held_text);
        self.searched_len = 0;
        match self.state {
            TagState::Start if self.think_tags == ThinkTags::OpenedByTemplate => {
                say(TextPiece::Reasoning(&held));
            }
            TagState::Reasoning => say(TextPiece::Reasoning(&held)),
            TagState::ReasoningStart | TagState::AfterReasoning => {}
            TagState::Start | TagState::Text => say(TextPiece::Text(&held)),
            TagState::Call => {
                self.state = TagState::Text;
                say(TextPiece::Text(CALL_TAG));
                say(TextPiece::Text(&held));
            }
        }
    }

    /// Advances the parser to its next state. Returns `false` if more text is needed.
    fn step(&mut self, say: &mut impl FnMut(TextPiece<'_>)) -> bool {
        match self.state {
            TagState::Start => {
                let begun = self.held_text.trim_start();
                if let Some(thought) = begun.strip_prefix(THINK_TAG) {
                    self.held_text = thought.to_owned();
                    self.state = TagState::ReasoningStart;
                } else if THINK_TAG.starts_with(begun) {
                    return false;
                } else {
                    let opened = self.think_tags == ThinkTags::OpenedByTemplate;
                    self.state = if opened { TagState::ReasoningStart } else { TagState::Text };
                }
                true
            }
            TagState::ReasoningStart => self.skip_white_space(TagState::Reasoning),
            TagState::AfterReasoning => self.skip_white_space(TagState::Text),
            TagState::Reasoning => {
                self.emit_until(THINK_END_TAG, TagState::AfterReasoning, |thought| {
                    say(TextPiece::Reasoning(thought));
                })
            }
            TagState::Text if self.parses_calls => {
                self.emit_until(CALL_TAG, TagState::Call, |text| say(TextPiece::Text(text)))
            }
            TagState::Text => {
                say(TextPiece::Text(&std::mem::take(&mut self.held_text)));
                false
            }
            TagState::Call => {
                let from = self.searched_len.saturating_sub(CALL_END_TAG.len());
                let from = self.held_text.floor_char_boundary(from);
                let Some(at) = self.held_text[from..].find(CALL_END_TAG).map(|at| from + at) else {
                    self.searched_len = self.held_text.len();
                    return false;
                };
                say(TextPiece::Call(&self.held_text[..at]));
                self.advance(at + CALL_END_TAG.len(), TagState::AfterReasoning);
                true
            }
        }
    }

    fn skip_white_space(&mut self, next: TagState) -> bool {
        let white = self.held_text.len() - self.held_text.trim_start().len();
        self.held_text.drain(..white);
        if self.held_text.is_empty() {
            return false;
        }
        self.state = next;
        true
    }

    /// Emits the text before `tag`. If the tag is not found, emits all of the text except for a
    /// suffix that may be the start of the tag.
    fn emit_until(&mut self, tag: &str, next: TagState, say: impl FnOnce(&str)) -> bool {
        if let Some(at) = self.held_text.find(tag) {
            say(&self.held_text[..at]);
            self.advance(at + tag.len(), next);
            return true;
        }
        let overlap = (1..tag.len()).rev().find(|len| self.held_text.ends_with(&tag[..*len]));
        let at = self.held_text.len() - overlap.unwrap_or_default();
        say(&self.held_text[..at]);
        self.held_text.drain(..at);
        false
    }

    fn advance(&mut self, at: usize, next: TagState) {
        self.held_text.drain(..at);
        self.searched_len = 0;
        self.state = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `text` divided into pieces of every size, and joins the output of each kind.
    #[track_caller]
    fn check(think: ThinkTags, calls: bool, text: &str, expected: &[&str]) {
        for size in 1..=text.chars().count().max(1) {
            let letters: Vec<char> = text.chars().collect();
            let mut tags = TagParser::new(think, calls).unwrap();
            let mut actual: Vec<String> = Vec::new();
            let mut say = |piece: TextPiece<'_>| {
                let (kind, text) = match piece {
                    TextPiece::Text(text) => ("text ", text),
                    TextPiece::Reasoning(text) => ("thought ", text),
                    TextPiece::Call(text) => ("call ", text),
                };
                if text.is_empty() {
                    return;
                }
                match actual.last_mut().filter(|last| last.starts_with(kind) && kind != "call ") {
                    Some(last) => last.push_str(text),
                    None => actual.push(kind.to_owned() + text),
                }
            };
            for piece in letters.chunks(size) {
                tags.push(&piece.iter().collect::<String>(), &mut say);
            }
            tags.flush(&mut say);
            assert_eq!(actual, expected, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn tagged_reasoning_is_separated_from_text_for_any_split() {
        use ThinkTags::Tagged;
        check(Tagged, false, "<think>\nhm</think>\n\nhi", &["thought hm", "text hi"]);
        check(Tagged, false, " <think></think>hé", &["text hé"]);
        check(Tagged, false, "<thin", &["text <thin"]);
        check(Tagged, false, "hi <think>x</think>", &["text hi <think>x</think>"]);
        check(Tagged, false, "<think>a < b </thin", &["thought a < b </thin"]);
    }

    #[test]
    fn reasoning_without_an_opening_tag_ends_at_the_closing_tag() {
        use ThinkTags::OpenedByTemplate;
        check(OpenedByTemplate, false, "hm\n</think>\nhi", &["thought hm\n", "text hi"]);
        check(OpenedByTemplate, false, "<think>hm</think>hi", &["thought hm", "text hi"]);
        check(OpenedByTemplate, false, "hm", &["thought hm"]);
    }

    #[test]
    fn a_call_in_text_ends_only_at_its_closing_tag() {
        use ThinkTags::{Off, Tagged};
        let two = "ok\n<tool_call>{1}</tool_call>\n<tool_call>{é}</tool_call>\n";
        check(Off, true, two, &["text ok\n", "call {1}", "call {é}"]);
        check(Off, true, "<tool_call>{}", &["text <tool_call>{}"]);
        check(Off, true, "a <tool_ b", &["text a <tool_ b"]);
        let both = "<think>hm</think><tool_call>{}</tool_call>";
        check(Tagged, true, both, &["thought hm", "call {}"]);
    }
}
