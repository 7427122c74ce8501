//! Events that wait to be written until no secret can begin at the end of what is there.

use super::mask::Masker;
use crate::turn::{Text, TurnEvent};

/// The events of a turn that were not written yet.
///
/// A secret may come in pieces. So a piece that ends with what may be the beginning of one is held
/// back, with all that comes behind it.
#[derive(Default)]
pub(super) struct Pending {
    events: Vec<TurnEvent>,
    /// The open end of each text, where it has one.
    ends: Vec<(Block, String)>,
}

/// What a piece of text belongs to.
#[derive(Clone, Debug, PartialEq)]
enum Block {
    Text(u32),
    Reasoning(u32),
    Arguments(String),
}

impl Pending {
    /// Takes an event and gives what can be written.
    pub(super) fn push(&mut self, event: TurnEvent, masker: &Masker) -> Vec<TurnEvent> {
        let mut ready = match &event {
            // The text goes on no further.
            TurnEvent::TurnComplete { .. } => {
                self.ends.clear();
                self.take(masker)
            }
            TurnEvent::Retracted { .. } => self.cut(masker),
            TurnEvent::TextDelta { .. }
            | TurnEvent::ReasoningDelta { .. }
            | TurnEvent::RefusalDelta { .. }
            | TurnEvent::ToolCallStart { .. }
            | TurnEvent::ToolCallArgsDelta { .. }
            | TurnEvent::ToolCallEnd { .. }
            | TurnEvent::UsageUpdate { .. }
            | TurnEvent::Retrying { .. } => Vec::new(),
        };
        if let Some((block, piece)) = piece(&event) {
            let at = self.ends.iter().position(|(open, _)| *open == block);
            let before = at.map(|at| self.ends.swap_remove(at).1).unwrap_or_default();
            let text = before + piece;
            let end = masker.open_end(&text);
            if !end.is_empty() {
                self.ends.push((block, end.to_owned()));
            }
        }
        self.events.push(event);
        if self.ends.is_empty() {
            ready.extend(self.take(masker));
        }
        ready
    }

    /// Gives all that is left of a turn that goes no further. What may be the beginning of a
    /// secret is taken for one.
    pub(super) fn cut(&mut self, masker: &Masker) -> Vec<TurnEvent> {
        self.take(masker)
    }

    fn take(&mut self, masker: &Masker) -> Vec<TurnEvent> {
        let mut events = std::mem::take(&mut self.events);
        let ends = std::mem::take(&mut self.ends);
        let mut blocks: Vec<(Block, Vec<usize>)> = Vec::new();
        for (at, event) in events.iter().enumerate() {
            let Some((block, _)) = piece(event) else { continue };
            match blocks.iter_mut().find(|(other, _)| *other == block) {
                Some((_, places)) => places.push(at),
                None => blocks.push((block, vec![at])),
            }
        }
        for (block, places) in blocks {
            let open = ends.iter().find(|(other, _)| *other == block);
            let tail = open.map_or(0, |(_, end)| end.len());
            let text = |at: &usize| piece(&events[*at]).map_or("", |(_, piece)| piece).to_owned();
            let mut pieces: Vec<String> = places.iter().map(text).collect();
            masker.pieces(&mut pieces, tail);
            for (at, piece) in places.into_iter().zip(pieces) {
                if let Some(text) = piece_mut(&mut events[at]) {
                    *text = piece.into();
                }
            }
        }
        events
    }
}

fn piece(event: &TurnEvent) -> Option<(Block, &str)> {
    match event {
        TurnEvent::TextDelta { index, text } | TurnEvent::RefusalDelta { index, text } => {
            Some((Block::Text(*index), text))
        }
        TurnEvent::ReasoningDelta { index, text, .. } => Some((Block::Reasoning(*index), text)),
        TurnEvent::ToolCallArgsDelta { call_id, delta } => {
            Some((Block::Arguments(call_id.clone()), delta))
        }
        TurnEvent::ToolCallStart { .. }
        | TurnEvent::ToolCallEnd { .. }
        | TurnEvent::UsageUpdate { .. }
        | TurnEvent::Retrying { .. }
        | TurnEvent::Retracted { .. }
        | TurnEvent::TurnComplete { .. } => None,
    }
}

fn piece_mut(event: &mut TurnEvent) -> Option<&mut Text> {
    match event {
        TurnEvent::TextDelta { text, .. }
        | TurnEvent::RefusalDelta { text, .. }
        | TurnEvent::ReasoningDelta { text, .. }
        | TurnEvent::ToolCallArgsDelta { delta: text, .. } => Some(text),
        TurnEvent::ToolCallStart { .. }
        | TurnEvent::ToolCallEnd { .. }
        | TurnEvent::UsageUpdate { .. }
        | TurnEvent::Retrying { .. }
        | TurnEvent::Retracted { .. }
        | TurnEvent::TurnComplete { .. } => None,
    }
}
