//! Thoughts and calls that a model writes into its text, between tags.

use crate::provider::openai_chat::dialect::ThinkTags;

const THINK_TAG: &str = "<think>";
const THINK_END_TAG: &str = "</think>";
const CALL_TAG: &str = "<tool_call>";
const CALL_END_TAG: &str = "</tool_call>";

/// The number of bytes that are taken at once: the held text is moved at each tag.
const MAX_CHUNK_BYTES: usize = 4 << 10;

/// A piece of text after its tags are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TextPiece<'a> {
    Text(&'a str),
    Reasoning(&'a str),
    /// What stands between the tags of a call.
    Call(&'a str),
}

/// Splits a text at its tags, wherever its pieces are cut.
#[derive(Debug)]
pub(super) struct TagParser {
    think_tags: ThinkTags,
    parses_calls: bool,
    state: TagState,
    /// What is not decided yet.
    held_text: String,
    /// How many of its bytes were searched.
    searched_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum TagState {
    /// Nothing but white space has come.
    Start,
    /// Behind `<think>` and nothing but white space.
    ReasoningStart,
    Reasoning,
    /// Behind a closing tag and nothing but white space.
    AfterReasoning,
    Text,
    Call,
}

impl TagParser {
    /// `None` if the text is to be taken as it is.
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

    /// Takes the next piece of the text and says what it makes certain.
    pub(super) fn push(&mut self, piece: &str, mut say: impl FnMut(TextPiece<'_>)) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (next, behind) = rest.split_at(rest.floor_char_boundary(MAX_CHUNK_BYTES));
            self.held_text.push_str(next);
            while self.step(&mut say) {}
            rest = behind;
        }
    }

    /// The text is at its end; what was held back is what it looked like.
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

    /// Moves on to the next place; `false` if more must come first.
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

    /// Says what stands before the tag, and all that cannot be a piece of it.
    fn emit_until(&mut self, tag: &str, next: TagState, say: impl FnOnce(&str)) -> bool {
        if let Some(at) = self.held_text.find(tag) {
            say(&self.held_text[..at]);
            self.advance(at + tag.len(), next);
            return true;
        }
        let kept = (1..tag.len()).rev().find(|len| self.held_text.ends_with(&tag[..*len]));
        let at = self.held_text.len() - kept.unwrap_or_default();
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

    /// Reads `text` cut in pieces of every size, and joins what is said of one kind.
    #[track_caller]
    fn check(think: ThinkTags, calls: bool, text: &str, expected: &[&str]) {
        for size in 1..=text.chars().count().max(1) {
            let letters: Vec<char> = text.chars().collect();
            let mut tags = TagParser::new(think, calls).unwrap();
            let mut said: Vec<String> = Vec::new();
            let mut say = |piece: TextPiece<'_>| {
                let (kind, words) = match piece {
                    TextPiece::Text(words) => ("text ", words),
                    TextPiece::Reasoning(words) => ("thought ", words),
                    TextPiece::Call(words) => ("call ", words),
                };
                if words.is_empty() {
                    return;
                }
                match said.last_mut().filter(|last| last.starts_with(kind) && kind != "call ") {
                    Some(last) => last.push_str(words),
                    None => said.push(kind.to_owned() + words),
                }
            };
            for piece in letters.chunks(size) {
                tags.push(&piece.iter().collect::<String>(), &mut say);
            }
            tags.flush(&mut say);
            assert_eq!(said, expected, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn thoughts_between_tags_are_told_from_the_text_wherever_the_pieces_are_cut() {
        use ThinkTags::Tagged;
        check(Tagged, false, "<think>\nhm</think>\n\nhi", &["thought hm", "text hi"]);
        check(Tagged, false, " <think></think>hé", &["text hé"]);
        check(Tagged, false, "<thin", &["text <thin"]);
        check(Tagged, false, "hi <think>x</think>", &["text hi <think>x</think>"]);
        check(Tagged, false, "<think>a < b </thin", &["thought a < b </thin"]);
    }

    #[test]
    fn thoughts_whose_opening_tag_is_missing_end_at_the_closing_one() {
        use ThinkTags::OpenedByTemplate;
        check(OpenedByTemplate, false, "hm\n</think>\nhi", &["thought hm\n", "text hi"]);
        check(OpenedByTemplate, false, "<think>hm</think>hi", &["thought hm", "text hi"]);
        check(OpenedByTemplate, false, "hm", &["thought hm"]);
    }

    #[test]
    fn a_call_in_the_text_ends_at_its_tag_and_nowhere_else() {
        use ThinkTags::{Off, Tagged};
        let two = "ok\n<tool_call>{1}</tool_call>\n<tool_call>{é}</tool_call>\n";
        check(Off, true, two, &["text ok\n", "call {1}", "call {é}"]);
        check(Off, true, "<tool_call>{}", &["text <tool_call>{}"]);
        check(Off, true, "a <tool_ b", &["text a <tool_ b"]);
        let both = "<think>hm</think><tool_call>{}</tool_call>";
        check(Tagged, true, both, &["thought hm", "call {}"]);
    }
}
