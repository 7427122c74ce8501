//! Handles the calls in the turn that is being built: assigns their ids, and holds back calls with
//! duplicate ids.

use std::sync::Arc;

use crate::item::{History, ItemKind, ProviderData, RawJson, ToolCall, is_portable_call_id};
use crate::turn::builder::TurnBuilder;
use crate::turn::builder::call_state::{CallState, HeldCall};
use crate::turn::partial_turn::Block;
use crate::turn::{Text, TurnEvent};

impl TurnBuilder {
    /// Starts a tool call. `key` is the number by which the wire format identifies the call within
    /// the turn.
    pub fn start_tool_call(&mut self, key: u32, wire_id: &str, name: &str) {
        if !self.count_bytes(wire_id.len() + name.len()) {
            return;
        }
        let mut same_id = self.call_index.find_by_wire_id(wire_id).iter();
        let doubled = !wire_id.is_empty() && same_id.any(|at| !self.calls[*at].is_dropped);
        let mut state = CallState {
            key,
            wire_id: wire_id.to_owned(),
            call_id: String::new(),
            held_call: None,
            has_ended: false,
            is_dropped: false,
            block_index: None,
            is_matched: false,
        };
        if doubled {
            let (name, arguments) = (name.to_owned(), String::new());
            state.held_call = Some(HeldCall { name, arguments, data: None });
        } else {
            state.call_id = self.fresh_call_id(wire_id);
            state.block_index = Some(self.emit_start(&state.call_id, wire_id, name));
        }
        self.call_index.insert(key, wire_id, self.calls.len());
        self.calls.push(state);
        self.check_item_limit();
    }

    /// Pushes a piece of a tool call's arguments. A piece for an unknown `key`, or for a call that
    /// has ended, is ignored.
    pub fn push_tool_call_args(&mut self, key: u32, piece: &str) {
        if !self.count_text(piece) {
            return;
        }
        let Some(at) = self.call_index.find_by_key(key).filter(|at| !self.calls[*at].has_ended)
        else {
            return;
        };
        match &mut self.calls[at].held_call {
            Some(held) => held.arguments.push_str(piece),
            None => self.emit_args(at, piece),
        }
    }

    /// Sets the provider data that is sent back verbatim with a tool call.
    pub fn set_tool_call_data(&mut self, key: u32, data: ProviderData) {
        if !self.count_data_bytes(&data) {
            return;
        }
        let Some(at) = self.call_index.find_by_key(key) else { return };
        let state = &mut self.calls[at];
        if let Some(held) = &mut state.held_call {
            held.data = Some(data);
            return;
        }
        if let Some(block) = state.block_index.and_then(|at| self.partial.blocks.get_mut(at)) {
            let is_recorded = is_wire_id_recorded(self.provider, &state.call_id, &state.wire_id);
            let data = if is_recorded { data_with_wire_id(data, &state.wire_id) } else { data };
            block.item.provider_data = Some(Arc::new(data));
        }
    }

    /// Ends a tool call whose arguments are complete. An unknown `key`, or a call that has already
    /// ended, is ignored.
    pub fn end_tool_call(&mut self, key: u32) {
        if self.is_finished {
            return;
        }
        let Some(at) = self.call_index.find_by_key(key) else { return };
        if std::mem::replace(&mut self.calls[at].has_ended, true) {
            return;
        }
        if self.calls[at].held_call.is_some() {
            let mut same_id = self.call_index.find_by_wire_id(&self.calls[at].wire_id).iter();
            // If the first call with this id is still open, `complete` later decides whether to
            // emit the held call.
            if same_id.any(|at| self.calls[*at].held_call.is_none() && self.calls[*at].has_ended) {
                self.release_held(at);
            }
        } else {
            self.emit_end(at);
        }
    }

    /// Creates a unique call id from an id in the wire format.
    pub(super) fn fresh_call_id(&mut self, wire_id: &str) -> String {
        let in_history =
            |id: &str| self.history_ids.as_ref().is_some_and(|h| h.has_used_call_id(id));
        let wanted = if wire_id.is_empty() {
            let turn = self.history_ids.as_ref().map_or(0, History::completed_turns) + 1;
            format!("call_{turn}_{}", self.calls.len() + 1)
        } else {
            wire_id.to_owned()
        };
        if self.call_index.is_used_id(&wanted) || in_history(&wanted) {
            return self.call_index.issue_replacement_id(&wanted, self.history_ids.as_ref());
        }
        self.call_index.add_id(&wanted);
        wanted
    }

    /// Emits the start of a call and returns the index of the call's item.
    pub(super) fn emit_start(&mut self, call_id: &str, wire_id: &str, name: &str) -> usize {
        let (call_id, name) = (call_id.to_owned(), name.to_owned());
        let call =
            ToolCall { call_id: call_id.clone(), name: name.clone(), arguments: String::new() };
        self.partial.push_call(call);
        let at = self.partial.blocks.len() - 1;
        if is_wire_id_recorded(self.provider, &call_id, wire_id) {
            let data = data_with_wire_id(self.empty_provider_data(), wire_id);
            self.partial.blocks[at].item.provider_data = Some(Arc::new(data));
        }
        self.events.push_back(TurnEvent::ToolCallStart { call_id, name });
        at
    }

    pub(super) fn emit_args(&mut self, at: usize, piece: &str) {
        let call_id = self.calls[at].call_id.clone();
        if let Some(block) = self.call_block_mut(at)
            && let ItemKind::ToolCall(call) = &mut block.item.kind
        {
            call.arguments.push_str(piece);
        }
        self.events.push_back(TurnEvent::ToolCallArgsDelta { call_id, delta: Text::from(piece) });
    }

    pub(super) fn emit_end(&mut self, at: usize) {
        if let Some(block) = self.call_block_mut(at) {
            block.has_ended = true;
        }
        let call_id = self.calls[at].call_id.clone();
        self.events.push_back(TurnEvent::ToolCallEnd { call_id });
    }

    /// Returns the block of a call, if it has been emitted.
    pub(super) fn call_block_mut(&mut self, at: usize) -> Option<&mut Block> {
        self.calls[at].block_index.and_then(|at| self.partial.blocks.get_mut(at))
    }

    /// Emits a call that was held back, or drops it if an earlier call with the same id also has
    /// the same name and arguments.
    pub(super) fn release_held(&mut self, at: usize) {
        let Some(held) = self.calls[at].held_call.take() else { return };
        let wire_id = self.calls[at].wire_id.clone();
        let before =
            self.call_index.find_by_wire_id(&wire_id).iter().take_while(|other| **other < at);
        let blocks = before.filter_map(|other| self.calls[*other].block_index);
        let mut calls = blocks.filter_map(|at| self.partial.blocks.get(at)?.item.as_tool_call());
        if calls.any(|call| call.name == held.name && call.arguments == held.arguments) {
            self.calls[at].is_dropped = true;
            return;
        }
        let call_id = self.fresh_call_id(&wire_id);
        self.calls[at].call_id.clone_from(&call_id);
        self.calls[at].block_index = Some(self.emit_start(&call_id, &wire_id, &held.name));
        if !held.arguments.is_empty() {
            self.emit_args(at, &held.arguments);
        }
        if let Some(data) = held.data
            && let Some(block) = self.call_block_mut(at)
        {
            block.item.provider_data = Some(Arc::new(data_with_wire_id(data, &wire_id)));
        }
        self.emit_end(at);
    }

    /// Emits the end of every open call, and emits or drops every call that is held back.
    pub(super) fn end_open_calls(&mut self) {
        for at in 0..self.calls.len() {
            if self.calls[at].held_call.is_some() {
                self.calls[at].has_ended = true;
                self.release_held(at);
            } else if !std::mem::replace(&mut self.calls[at].has_ended, true) {
                self.emit_end(at);
            }
        }
    }

    pub(super) fn empty_provider_data(&self) -> ProviderData {
        let model = self.partial.model.clone().unwrap_or_default();
        let value = RawJson::from(serde_json::json!({}));
        ProviderData { provider: self.provider.to_owned(), model, value }
    }
}

/// Returns whether a call's provider data records the id that the provider issued. The record tells
/// the provider's encoder that the provider accepts the id.
fn is_wire_id_recorded(provider: &str, call_id: &str, wire_id: &str) -> bool {
    call_id != wire_id || (!provider.is_empty() && !is_portable_call_id(wire_id))
}

/// Adds a call's original id in the wire format to its provider data. The bytes of the other fields
/// do not change.
pub(super) fn data_with_wire_id(data: ProviderData, wire_id: &str) -> ProviderData {
    // The field is prepended to the JSON text, so that the rest of the data is sent back byte for
    // byte.
    if let Some(fields) = data.value.as_str().strip_prefix('{').filter(|fields| *fields != "}")
        && !fields.contains("\"wire_id\"")
        && let Ok(id) = serde_json::to_string(wire_id)
        && let Ok(value) = RawJson::parse(&format!("{{\"wire_id\":{id},{fields}"))
    {
        return ProviderData { value, ..data };
    }
    let mut value = data.value.to_value();
    match &mut value {
        serde_json::Value::Object(map) => {
            map.insert("wire_id".to_owned(), wire_id.into());
        }
        other => *other = serde_json::json!({ "wire_id": wire_id, "value": other.take() }),
    }
    ProviderData { value: value.into(), ..data }
}
