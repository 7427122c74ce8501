//! Thoughts and calls that a model writes into its text, between tags.

use super::dialect::ThinkTags;

const THINK: &str = "<think>";
const END_THINK: &str = "</think>";
const CALL: &str = "<tool_call>";
const END_CALL: &str = "</tool_call>";

/// So much is taken at once, in bytes: what is held is moved at each tag.
const AT_ONCE: usize = 4 << 10;

/// What a piece of text turns out to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Said<'a> {
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
    place: Place,
    /// What is not decided yet.
    held: String,
    /// So much of it was searched.
    searched: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
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
        let place = match think {
            ThinkTags::Off if !calls => return None,
            ThinkTags::Off => Place::Text,
            ThinkTags::Tagged | ThinkTags::Opened => Place::Begin,
        };
        Some(Self { think, calls, place, held: String::new(), searched: 0 })
    }

    /// Takes the next piece of the text and says what it makes certain.
    pub(super) fn push(&mut self, piece: &str, mut say: impl FnMut(Said<'_>)) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (next, behind) = rest.split_at(rest.floor_char_boundary(AT_ONCE));
            self.held.push_str(next);
            while self.step(&mut say) {}
            rest = behind;
        }
    }

    /// The text is at its end; what was held back is what it looked like.
    pub(super) fn end(&mut self, mut say: impl FnMut(Said<'_>)) {
        let held = std::mem::take(&mut self.held);
        self.searched = 0;
        match self.place {
            Place::Begin if self.think == ThinkTags::Opened => say(Said::Thought(&held)),
            Place::Thought => say(Said::Thought(&held)),
            Place::BeginThought | Place::Behind => {}
            Place::Begin | Place::Text => say(Said::Text(&held)),
            Place::Call => {
                self.place = Place::Text;
                say(Said::Text(CALL));
                say(Said::Text(&held));
            }
        }
    }

    /// Moves on to the next place; `false` if more must come first.
    fn step(&mut self, say: &mut impl FnMut(Said<'_>)) -> bool {
        match self.place {
            Place::Begin => {
                let begun = self.held.trim_start();
                if let Some(thought) = begun.strip_prefix(THINK) {
                    self.held = thought.to_owned();
                    self.place = Place::BeginThought;
                } else if THINK.starts_with(begun) {
                    return false;
                } else {
                    let opened = self.think == ThinkTags::Opened;
                    self.place = if opened { Place::BeginThought } else { Place::Text };
                }
                true
            }
            Place::BeginThought => self.skip_white_space(Place::Thought),
            Place::Behind => self.skip_white_space(Place::Text),
            Place::Thought => self.until(END_THINK, Place::Behind, |thought| {
                say(Said::Thought(thought));
            }),
            Place::Text if self.calls => {
                self.until(CALL, Place::Call, |text| say(Said::Text(text)))
            }
            Place::Text => {
                say(Said::Text(&std::mem::take(&mut self.held)));
                false
            }
            Place::Call => {
                let from = self.searched.saturating_sub(END_CALL.len());
                let from = self.held.floor_char_boundary(from);
                let Some(at) = self.held[from..].find(END_CALL).map(|at| from + at) else {
                    self.searched = self.held.len();
                    return false;
                };
                say(Said::Call(&self.held[..at]));
                self.cut(at + END_CALL.len(), Place::Behind);
                true
            }
        }
    }

    fn skip_white_space(&mut self, next: Place) -> bool {
        let white = self.held.len() - self.held.trim_start().len();
        self.held.drain(..white);
        if self.held.is_empty() {
            return false;
        }
        self.place = next;
        true
    }

    /// Says what stands before the tag, and all that cannot be a piece of it.
    fn until(&mut self, tag: &str, next: Place, say: impl FnOnce(&str)) -> bool {
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

    fn cut(&mut self, at: usize, next: Place) {
        self.held.drain(..at);
        self.searched = 0;
        self.place = next;
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
            let mut say = |piece: Said<'_>| {
                let (kind, words) = match piece {
                    Said::Text(words) => ("text ", words),
                    Said::Thought(words) => ("thought ", words),
                    Said::Call(words) => ("call ", words),
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
