//! Holds back events whose text may end with the start of a secret.

use crate::replay::masker::Masker;
use crate::turn::{Text, TurnEvent};

/// The events from a turn that have not been written yet.
///
/// A secret may arrive in several pieces. A piece of text whose end may be the start of a secret is
/// therefore held back, together with all later events.
#[derive(Default)]
pub(super) struct PendingEvents {
    events: Vec<TurnEvent>,
    /// The open blocks whose text ends with what may be the start of a secret, each with that part
    /// of its text.
    partial_secrets: Vec<(BlockId, String)>,
}

/// Identifies the block to which a piece of text belongs.
#[derive(Clone, Debug, PartialEq)]
enum BlockId {
    Text(u32),
    Reasoning(u32),
    Arguments(String),
}

impl PendingEvents {
    /// Adds an event and returns the events that can be written.
    pub(super) fn push_event(&mut self, mut event: TurnEvent, masker: &Masker) -> Vec<TurnEvent> {
        let mut ready = match &event {
            // No more text follows in the turn after this event.
            TurnEvent::TurnComplete { .. } => {
                self.partial_secrets.clear();
                self.drain(masker)
            }
            TurnEvent::Retracted { .. } => self.drain(masker),
            TurnEvent::TextDelta { .. }
            | TurnEvent::ReasoningDelta { .. }
            | TurnEvent::RefusalDelta { .. }
            | TurnEvent::ToolCallStart { .. }
            | TurnEvent::ToolCallArgsDelta { .. }
            | TurnEvent::ToolCallEnd { .. }
            | TurnEvent::UsageUpdate { .. }
            | TurnEvent::Retrying { .. } => Vec::new(),
        };
        if let Some((block, piece)) = event_text_mut(&mut event) {
            let at = self.partial_secrets.iter().position(|(open, _)| *open == block);
            let before = at.map(|at| self.partial_secrets.swap_remove(at).1).unwrap_or_default();
            let text = before + piece;
            let end = masker.partial_secret_suffix(&text);
            if !end.is_empty() {
                self.partial_secrets.push((block, end.to_owned()));
            }
        }
        self.events.push(event);
        if self.partial_secrets.is_empty() {
            ready.extend(self.drain(masker));
        }
        ready
    }

    /// Returns all pending events. Must be called only when no more events follow in the turn. Text
    /// that may be the start of a secret is masked.
    pub(super) fn drain(&mut self, masker: &Masker) -> Vec<TurnEvent> {
        let mut events = std::mem::take(&mut self.events);
        let ends = std::mem::take(&mut self.partial_secrets);
        let mut blocks: Vec<(BlockId, Vec<&mut Text>)> = Vec::new();
        for (block, text) in events.iter_mut().filter_map(event_text_mut) {
            match blocks.iter_mut().find(|(other, _)| *other == block) {
                Some((_, texts)) => texts.push(text),
                None => blocks.push((block, vec![text])),
            }
        }
        for (block, texts) in blocks {
            let open = ends.iter().find(|(other, _)| *other == block);
            let tail = open.map_or(0, |(_, end)| end.len());
            let mut pieces: Vec<String> = texts.iter().map(ToString::to_string).collect();
            masker.mask_pieces(&mut pieces, tail);
            for (text, piece) in texts.into_iter().zip(pieces) {
                *text = piece.into();
            }
        }
        events
    }
}

fn event_text_mut(event: &mut TurnEvent) -> Option<(BlockId, &mut Text)> {
    match event {
        TurnEvent::TextDelta { index, text } | TurnEvent::RefusalDelta { index, text } => {
            Some((BlockId::Text(*index), text))
        }
        TurnEvent::ReasoningDelta { index, text, .. } => Some((BlockId::Reasoning(*index), text)),
        TurnEvent::ToolCallArgsDelta { call_id, delta } => {
            Some((BlockId::Arguments(call_id.clone()), delta))
        }
        TurnEvent::ToolCallStart { .. }
        | TurnEvent::ToolCallEnd { .. }
        | TurnEvent::UsageUpdate { .. }
        | TurnEvent::Retrying { .. }
        | TurnEvent::Retracted { .. }
        | TurnEvent::TurnComplete { .. } => None,
    }
}
