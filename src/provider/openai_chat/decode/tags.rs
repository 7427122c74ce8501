//! Thoughts and calls that a model writes into its text, between tags.

use crate::provider::openai_chat::dialect::ThinkTags;

const THINK: &str = "<think>";
const END_THINK: &str = "</think>";
const CALL: &str = "<tool_call>";
const END_CALL: &str = "</tool_call>";

/// The number of bytes that are taken at once: the held text is moved at each tag.
const MAX_PIECE: usize = 4 << 10;

/// A piece of text after its tags are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TextPiece<'a> {
    Text(&'a str),
    Thought(&'a str),
    /// What stands between the tags of a call.
    Call(&'a str),
}

/// Splits a text at its tags, wherever its pieces are cut.
#[derive(Debug)]
pub(super) struct Tags {
    think: ThinkTags,
    calls: bool,
    position: Position,
    /// What is not decided yet.
    held: String,
    /// How many of its bytes were searched.
    searched: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Position {
    /// Nothing but white space has come.
    Begin,
    /// Behind `<think>` and nothing but white space.
    BeginThought,
    Thought,
    /// Behind a closing tag and nothing but white space.
    Behind,
    Text,
    Call,
}

impl Tags {
    /// `None` if the text is to be taken as it is.
    pub(super) fn new(think: ThinkTags, calls: bool) -> Option<Self> {
        let position = match think {
            ThinkTags::Off if !calls => return None,
            ThinkTags::Off => Position::Text,
            ThinkTags::Tagged | ThinkTags::Opened => Position::Begin,
        };
        Some(Self { think, calls, position, held: String::new(), searched: 0 })
    }

    /// Takes the next piece of the text and says what it makes certain.
    pub(super) fn push(&mut self, piece: &str, mut say: impl FnMut(TextPiece<'_>)) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (next, behind) = rest.split_at(rest.floor_char_boundary(MAX_PIECE));
            self.held.push_str(next);
            while self.step(&mut say) {}
            rest = behind;
        }
    }

    /// The text is at its end; what was held back is what it looked like.
    pub(super) fn end(&mut self, mut say: impl FnMut(TextPiece<'_>)) {
        let held = std::mem::take(&mut self.held);
        self.searched = 0;
        match self.position {
            Position::Begin if self.think == ThinkTags::Opened => say(TextPiece::Thought(&held)),
            Position::Thought => say(TextPiece::Thought(&held)),
            Position::BeginThought | Position::Behind => {}
            Position::Begin | Position::Text => say(TextPiece::Text(&held)),
            Position::Call => {
                self.position = Position::Text;
                say(TextPiece::Text(CALL));
                say(TextPiece::Text(&held));
            }
        }
    }

    /// Moves on to the next place; `false` if more must come first.
    fn step(&mut self, say: &mut impl FnMut(TextPiece<'_>)) -> bool {
        match self.position {
            Position::Begin => {
                let begun = self.held.trim_start();
                if let Some(thought) = begun.strip_prefix(THINK) {
                    self.held = thought.to_owned();
                    self.position = Position::BeginThought;
                } else if THINK.starts_with(begun) {
                    return false;
                } else {
                    let opened = self.think == ThinkTags::Opened;
                    self.position = if opened { Position::BeginThought } else { Position::Text };
                }
                true
            }
            Position::BeginThought => self.skip_white_space(Position::Thought),
            Position::Behind => self.skip_white_space(Position::Text),
            Position::Thought => self.until(END_THINK, Position::Behind, |thought| {
                say(TextPiece::Thought(thought));
            }),
            Position::Text if self.calls => {
                self.until(CALL, Position::Call, |text| say(TextPiece::Text(text)))
            }
            Position::Text => {
                say(TextPiece::Text(&std::mem::take(&mut self.held)));
                false
            }
            Position::Call => {
                let from = self.searched.saturating_sub(END_CALL.len());
                let from = self.held.floor_char_boundary(from);
                let Some(at) = self.held[from..].find(END_CALL).map(|at| from + at) else {
                    self.searched = self.held.len();
                    return false;
                };
                say(TextPiece::Call(&self.held[..at]));
                self.cut(at + END_CALL.len(), Position::Behind);
                true
            }
        }
    }

    fn skip_white_space(&mut self, next: Position) -> bool {
        let white = self.held.len() - self.held.trim_start().len();
        self.held.drain(..white);
        if self.held.is_empty() {
            return false;
        }
        self.position = next;
        true
    }

    /// Says what stands before the tag, and all that cannot be a piece of it.
    fn until(&mut self, tag: &str, next: Position, say: impl FnOnce(&str)) -> bool {
        if let Some(at) = self.held.find(tag) {
            say(&self.held[..at]);
            self.cut(at + tag.len(), next);
            return true;
        }
        let kept = (1..tag.len()).rev().find(|len| self.held.ends_with(&tag[..*len]));
        let at = self.held.len() - kept.unwrap_or_default();
        say(&self.held[..at]);
        self.held.drain(..at);
        false
    }

    fn cut(&mut self, at: usize, next: Position) {
        self.held.drain(..at);
        self.searched = 0;
        self.position = next;
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
            let mut tags = Tags::new(think, calls).unwrap();
            let mut said: Vec<String> = Vec::new();
            let mut say = |piece: TextPiece<'_>| {
                let (kind, words) = match piece {
                    TextPiece::Text(words) => ("text ", words),
                    TextPiece::Thought(words) => ("thought ", words),
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
            tags.end(&mut say);
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
        use ThinkTags::Opened;
        check(Opened, false, "hm\n</think>\nhi", &["thought hm\n", "text hi"]);
        check(Opened, false, "<think>hm</think>hi", &["thought hm", "text hi"]);
        check(Opened, false, "hm", &["thought hm"]);
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
