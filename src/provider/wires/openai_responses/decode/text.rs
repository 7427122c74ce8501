//! The text of an item that is being streamed, which consists of the parts of a message or of a
//! reasoning item.

use crate::turn::{ReasoningKind, TurnBuilder};

/// The kind of text in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    Text,
    Refusal,
    Summary,
    Trace,
}

/// The parts of an item, in the order in which they started.
#[derive(Debug, Default)]
pub(super) struct TextParts(Vec<Part>);

/// The maximum number of parts in an item. Servers send items with far fewer parts.
const MAX_PARTS: usize = 1024;

#[derive(Debug)]
struct Part {
    kind: TextKind,
    index: u64,
    text: String,
    /// Whether the part's complete text has been received. Deltas that arrive after the complete
    /// text are ignored.
    is_whole: bool,
}

/// The result of comparing streamed content with the final form that the provider sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Comparison {
    Equal,
    Different,
}

impl TextParts {
    /// Appends a piece of text to a part.
    pub(super) fn push_delta(
        &mut self,
        (kind, index): (TextKind, u64),
        piece: &str,
        key: u32,
        turn: &mut TurnBuilder,
    ) {
        let at = self.part_index(kind, index);
        if self.0[at].is_whole || piece.is_empty() {
            return;
        }
        if self.0[at].text.is_empty() && self.0.iter().any(|part| !part.text.is_empty()) {
            emit_text(kind.separator(), kind, key, turn);
        }
        self.0[at].text.push_str(piece);
        emit_text(piece, kind, key, turn);
    }

    /// Applies a part's complete text, and emits the text that the deltas did not contain. Does
    /// nothing if the complete text is empty.
    pub(super) fn push_whole(
        &mut self,
        (kind, index): (TextKind, u64),
        text: &str,
        key: u32,
        turn: &mut TurnBuilder,
    ) -> Comparison {
        if text.is_empty() {
            return Comparison::Equal;
        }
        let at = self.part_index(kind, index);
        let streamed = &self.0[at].text;
        let newest = self.0.iter().rposition(|part| !part.text.is_empty());
        let is_last = newest.is_none_or(|newest| newest <= at);
        let agreement = match text.strip_prefix(streamed.as_str()) {
            _ if texts_match(streamed, text) => Comparison::Equal,
            Some(rest) if is_last || streamed.is_empty() => {
                let rest = rest.to_owned();
                self.0[at].is_whole = false;
                self.push_delta((kind, index), &rest, key, turn);
                Comparison::Equal
            }
            _ => {
                text.clone_into(&mut self.0[at].text);
                Comparison::Different
            }
        };
        self.0[at].is_whole = true;
        agreement
    }

    /// Applies the final text of all parts in the finished item.
    pub(super) fn push_all(
        &mut self,
        final_text: &[(TextKind, u64, &str)],
        key: u32,
        turn: &mut TurnBuilder,
    ) -> Comparison {
        let text: String = final_text.iter().map(|(.., text)| *text).collect();
        // Some gateways number the parts differently in deltas and finished items.
        if texts_match(&self.text(), &text) {
            return Comparison::Equal;
        }
        final_text.iter().fold(Comparison::Equal, |before, (kind, index, text)| {
            match self.push_whole((*kind, *index), text, key, turn) {
                Comparison::Equal => before,
                Comparison::Different => Comparison::Different,
            }
        })
    }

    /// Returns whether the item has more than `MAX_PARTS` parts, in which case the turn fails.
    pub(super) fn has_too_many_parts(&self) -> bool {
        self.0.len() > MAX_PARTS
    }

    /// Returns the combined text of all parts.
    pub(super) fn text(&self) -> String {
        self.0.iter().map(|part| part.text.as_str()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|part| part.text.is_empty())
    }

    pub(super) fn has_refusal(&self) -> bool {
        self.0.iter().any(|part| part.kind == TextKind::Refusal && !part.text.is_empty())
    }

    /// Emits the text of all parts again after a retraction.
    pub(super) fn emit_again(&self, key: u32, turn: &mut TurnBuilder) {
        let parts = self.0.iter().filter(|part| !part.text.is_empty());
        for (at, part) in parts.enumerate() {
            if at > 0 {
                emit_text(part.kind.separator(), part.kind, key, turn);
            }
            emit_text(&part.text, part.kind, key, turn);
        }
    }

    fn part_index(&mut self, kind: TextKind, index: u64) -> usize {
        let belongs = |part: &Part| part.kind == kind && part.index == index;
        self.0.iter().rposition(belongs).unwrap_or_else(|| {
            if !self.has_too_many_parts() {
                self.0.push(Part { kind, index, text: String::new(), is_whole: false });
            }
            self.0.len() - 1
        })
    }
}

impl TextKind {
    /// Returns whether this kind of text is reasoning. The parts of a message form a single text,
    /// whereas the parts of reasoning are separate paragraphs.
    pub(super) fn is_reasoning(self) -> bool {
        matches!(self, Self::Summary | Self::Trace)
    }

    fn separator(self) -> &'static str {
        if self.is_reasoning() { "\n\n" } else { "" }
    }
}

fn emit_text(piece: &str, kind: TextKind, key: u32, turn: &mut TurnBuilder) {
    match kind {
        TextKind::Text => turn.push_text(key, piece),
        TextKind::Refusal => turn.push_refusal(key, piece),
        TextKind::Summary => turn.push_reasoning(key, piece, ReasoningKind::Summary),
        TextKind::Trace => turn.push_reasoning(key, piece, ReasoningKind::Trace),
    }
}

/// Returns whether a streamed text matches its final form. Differences in leading and trailing
/// white space do not justify a retraction and are ignored. An empty final text matches any
/// streamed text.
fn texts_match(streamed: &str, final_text: &str) -> bool {
    final_text.is_empty() || (!streamed.is_empty() && streamed.trim() == final_text.trim())
}
