//! The words of one item while they stream: the parts of a message, or of reasoning.

use crate::turn::{ReasoningKind, TurnBuilder};

/// What kind of words a part holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    Text,
    Refusal,
    Summary,
    Trace,
}

/// The parts of an item, in the order in which their first words came.
#[derive(Debug, Default)]
pub(super) struct Words(Vec<Part>);

/// How many parts an item may have; no model writes as many.
const MOST_PARTS: usize = 1024;

#[derive(Debug)]
struct Part {
    voice: Voice,
    index: u64,
    text: String,
    /// Its whole text was told; a delta behind that says nothing.
    whole: bool,
}

/// Whether what was streamed is what the provider says it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Agreement {
    Agrees,
    Differs,
}

impl Words {
    /// A piece of a part.
    pub(super) fn delta(
        &mut self,
        (voice, index): (Voice, u64),
        piece: &str,
        key: u32,
        turn: &mut TurnBuilder,
    ) {
        let at = self.part(voice, index);
        if self.0[at].whole || piece.is_empty() {
            return;
        }
        if self.0[at].text.is_empty() && self.0.iter().any(|part| !part.text.is_empty()) {
            say(voice.gap(), voice, key, turn);
        }
        self.0[at].text.push_str(piece);
        say(piece, voice, key, turn);
    }

    /// The whole text of a part: what its deltas did not say is said. An empty one says nothing.
    pub(super) fn whole(
        &mut self,
        (voice, index): (Voice, u64),
        text: &str,
        key: u32,
        turn: &mut TurnBuilder,
    ) -> Agreement {
        if text.is_empty() {
            return Agreement::Agrees;
        }
        let at = self.part(voice, index);
        let streamed = &self.0[at].text;
        let newest = self.0.iter().rposition(|part| !part.text.is_empty());
        let is_last = newest.is_none_or(|newest| newest <= at);
        let agreement = match text.strip_prefix(streamed.as_str()) {
            _ if same(streamed, text) => Agreement::Agrees,
            Some(rest) if is_last || streamed.is_empty() => {
                let rest = rest.to_owned();
                self.0[at].whole = false;
                self.delta((voice, index), &rest, key, turn);
                Agreement::Agrees
            }
            _ => {
                text.clone_into(&mut self.0[at].text);
                Agreement::Differs
            }
        };
        self.0[at].whole = true;
        agreement
    }

    /// All parts as the finished item has them.
    pub(super) fn all(
        &mut self,
        told: &[(Voice, u64, &str)],
        key: u32,
        turn: &mut TurnBuilder,
    ) -> Agreement {
        let text: String = told.iter().map(|(.., text)| *text).collect();
        // Some gateways number their parts in two ways.
        if same(&self.text(), &text) {
            return Agreement::Agrees;
        }
        told.iter().fold(Agreement::Agrees, |before, (voice, index, text)| {
            match self.whole((*voice, *index), text, key, turn) {
                Agreement::Agrees => before,
                Agreement::Differs => Agreement::Differs,
            }
        })
    }

    /// There are more parts than any item has: the turn is not read on.
    pub(super) fn is_overfull(&self) -> bool {
        self.0.len() > MOST_PARTS
    }

    /// All that was said.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|part| part.text.as_str()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|part| part.text.is_empty())
    }

    pub(super) fn refuses(&self) -> bool {
        self.0.iter().any(|part| part.voice == Voice::Refusal && !part.text.is_empty())
    }

    /// Says everything once more, after a retraction.
    pub(super) fn say_again(&self, key: u32, turn: &mut TurnBuilder) {
        let parts = self.0.iter().filter(|part| !part.text.is_empty());
        for (at, part) in parts.enumerate() {
            if at > 0 {
                say(part.voice.gap(), part.voice, key, turn);
            }
            say(&part.text, part.voice, key, turn);
        }
    }

    fn part(&mut self, voice: Voice, index: u64) -> usize {
        let belongs = |part: &Part| part.voice == voice && part.index == index;
        self.0.iter().rposition(belongs).unwrap_or_else(|| {
            if !self.is_overfull() {
                self.0.push(Part { voice, index, text: String::new(), whole: false });
            }
            self.0.len() - 1
        })
    }
}

impl Voice {
    /// What stands between two parts: those of a message are one text, those of reasoning are
    /// paragraphs.
    fn gap(self) -> &'static str {
        match self {
            Self::Text | Self::Refusal => "",
            Self::Summary | Self::Trace => "\n\n",
        }
    }
}

fn say(piece: &str, voice: Voice, key: u32, turn: &mut TurnBuilder) {
    match voice {
        Voice::Text => turn.text(key, piece),
        Voice::Refusal => turn.refusal(key, piece),
        Voice::Summary => turn.reasoning(key, piece, ReasoningKind::Summary),
        Voice::Trace => turn.reasoning(key, piece, ReasoningKind::Trace),
    }
}

/// White space around a text is no difference worth a retraction, and a text that is missing is
/// none at all.
fn same(streamed: &str, told: &str) -> bool {
    told.is_empty() || (!streamed.is_empty() && streamed.trim() == told.trim())
}
