//! Adds the events from another stream to a turn, including the finished turn at the end of that
//! stream.

use std::sync::Arc;

use crate::item::{Item, ItemKind, StopReason, ToolCall};
use crate::turn::builder::builder::{LimitExceeded, TurnBuilder};
use crate::turn::builder::calls::data_with_wire_id;
use crate::turn::{PartialTurn, Turn, TurnEvent};

impl TurnBuilder {
    /// Adds an event from another stream of turn events. [`seal`](crate::stream::seal) uses this
    /// method.
    ///
    /// If the event contains a complete turn, the items of this turn are kept. If the events of a
    /// call were emitted with a new id, the call has the same new id in the complete turn.
    /// Absorbing a complete turn does not allow calls to run that the turn itself does not allow to
    /// run.
    pub(crate) fn absorb(&mut self, event: TurnEvent) {
        if self.is_finished {
            return;
        }
        match event {
            TurnEvent::ToolCallStart { call_id, name } => {
                let key = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
                self.start_tool_call(key, &call_id, &name);
            }
            TurnEvent::ToolCallArgsDelta { call_id, delta } => {
                if let Some(key) = self.newest_call_key(&call_id) {
                    self.push_tool_call_args(key, &delta);
                }
            }
            TurnEvent::ToolCallEnd { call_id } => {
                if let Some(key) = self.newest_call_key(&call_id) {
                    self.end_tool_call(key);
                }
            }
            TurnEvent::Retracted { why, usage } => {
                self.partial.usage = *usage;
                self.retract(why);
            }
            event @ TurnEvent::Retrying { .. } => self.forward_retry(event),
            TurnEvent::TurnComplete { turn } => self.complete_with_turn(turn),
            TurnEvent::TextDelta { ref text, .. }
            | TurnEvent::RefusalDelta { ref text, .. }
            | TurnEvent::ReasoningDelta { ref text, .. } => {
                if self.count_bytes(text.len()) {
                    self.partial.absorb(&event);
                    self.events.push_back(event);
                }
            }
            TurnEvent::UsageUpdate { .. } => {
                self.partial.absorb(&event);
                self.events.push_back(event);
            }
        }
    }

    /// Completes the turn, using the content of a turn that another builder finished.
    fn complete_with_turn(&mut self, turn: Arc<Turn>) {
        if turn.items.iter().map(payload_bytes).sum::<usize>() > self.max_bytes.0 {
            self.partial.usage = turn.usage;
            return self.set_limit_exceeded(LimitExceeded::Bytes);
        }
        // The bytes that were counted when the events arrived are also part of the finished turn's
        // items.
        self.used_bytes = 0;
        if turn.stop_reason != StopReason::Interrupted {
            self.end_open_calls();
        }
        let mut items = Vec::with_capacity(turn.items.len());
        let mut changed = false;
        for item in &turn.items {
            let Some(call) = item.as_tool_call() else {
                items.push(item.clone());
                continue;
            };
            let mut same_id = self.call_index.find_by_wire_id(&call.call_id).iter();
            let at = match same_id.find(|at| !self.calls[**at].is_matched) {
                Some(at) => *at,
                None => self.emit_call_of_turn(call),
            };
            self.calls[at].is_matched = true;
            if self.calls[at].is_dropped {
                changed = true;
                continue;
            }
            let call_id = self.calls[at].call_id.clone();
            if call_id == call.call_id {
                items.push(item.clone());
                continue;
            }
            changed = true;
            let data = item.provider_data.as_deref().cloned();
            let data = data_with_wire_id(
                data.unwrap_or_else(|| self.empty_provider_data()),
                &call.call_id,
            );
            items.push(Item {
                kind: ItemKind::ToolCall(ToolCall { call_id, ..call.clone() }),
                provider_data: Some(Arc::new(data)),
                ..item.clone()
            });
        }
        (self.is_finished, self.is_completed) = (true, true);
        self.partial = PartialTurn::default();
        let turn = if changed { Arc::new(Turn { items, ..(*turn).clone() }) } else { turn };
        self.events.push_back(TurnEvent::TurnComplete { turn });
    }

    /// Emits the events for a call that appears only in the finished turn, not in the events that
    /// preceded it.
    fn emit_call_of_turn(&mut self, call: &ToolCall) -> usize {
        let at = self.calls.len();
        let key = u32::try_from(at).unwrap_or(u32::MAX);
        self.start_tool_call(key, &call.call_id, &call.name);
        self.push_tool_call_args(key, &call.arguments);
        self.calls[at].has_ended = true;
        if self.calls[at].held_call.is_some() {
            self.release_held(at);
        } else {
            self.emit_end(at);
        }
        at
    }

    fn newest_call_key(&self, wire_id: &str) -> Option<u32> {
        let newest = self.call_index.find_by_wire_id(wire_id).last();
        newest.map(|at| self.calls[*at].key)
    }
}

/// Returns the number of bytes in an item that count towards the turn's size limit.
pub(super) fn payload_bytes(item: &Item) -> usize {
    let data = item.provider_data.as_ref().map_or(0, |data| data.value.as_str().len());
    data + match &item.kind {
        ItemKind::Text { text } | ItemKind::Reasoning { text } => text.len(),
        ItemKind::ToolCall(call) => call.call_id.len() + call.name.len() + call.arguments.len(),
        // Models never produce items of these kinds.
        ItemKind::System { .. }
        | ItemKind::User { .. }
        | ItemKind::ToolResult(_)
        | ItemKind::Other => 0,
    }
}
