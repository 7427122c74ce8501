//! The only place where a turn is put together.

mod absorb;
mod places;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use self::places::Places;
use crate::error::{Error, ErrorKind};
use crate::item::{History, ItemKind, Json, ProviderData, StopReason, ToolCall};
use crate::turn::partial::{Block, Key};
use crate::turn::{PartialTurn, ReasoningKind, Text, Turn, TurnEvent};
use crate::usage::Usage;

/// Puts a turn together: decoders push what the wire says, events come out, at the end the turn.
///
/// It makes call ids unique against the history before it and within the turn, before
/// `ToolCallStart` is emitted: an empty id becomes `call_<turn>_<n>`, one that the history holds
/// `<id>_dup<k>`. A second start under an id of this turn is held back to its end: then it is
/// dropped if name and arguments are those of the first, else emitted whole under a new id.
///
/// Only [`complete`](Self::complete) makes a turn whose calls may run.
///
/// ```
/// use turnstream::turn::{StopReason, TurnBuilder, TurnEvent};
///
/// let mut turn = TurnBuilder::new();
/// turn.text(0, "Hel");
/// turn.text(0, "lo");
/// turn.stop(StopReason::Stop, "end_turn");
/// turn.complete()?;
/// let events: Vec<TurnEvent> = std::iter::from_fn(|| turn.next_event()).collect();
/// assert_eq!(events.len(), 3);
/// assert!(matches!(&events[2], TurnEvent::TurnComplete { turn } if turn.text() == "Hello"));
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct TurnBuilder {
    history: Option<History>,
    provider: &'static str,
    partial: PartialTurn,
    calls: Vec<CallState>,
    places: Places,
    stop: Option<(StopReason, Option<String>)>,
    events: VecDeque<TurnEvent>,
    /// Nothing is taken any more.
    finished: bool,
    /// `TurnComplete` was pushed.
    completed: bool,
    /// There were more items than any turn has.
    overfull: bool,
}

/// How many items a turn may have. No model writes as many; a server that never ends would fill
/// the memory.
pub(crate) const MOST_ITEMS: usize = 16_384;

/// A call of this turn, as the wire names it and as it is known here.
#[derive(Debug)]
struct CallState {
    key: u32,
    wire_id: String,
    call_id: String,
    /// Set while a doubled id is held back: nothing of it was emitted yet.
    held: Option<Held>,
    ended: bool,
    dropped: bool,
    /// Where it stands among the items, once it is emitted.
    block: Option<usize>,
    /// Matched with a call of a turn that came ready-made.
    matched: bool,
}

#[derive(Debug)]
struct Held {
    name: String,
    arguments: String,
    data: Option<ProviderData>,
}

impl TurnBuilder {
    /// Makes a builder that knows of no history: ids are unique within the turn only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a builder for the turn that follows a history, whose call ids are taken.
    pub fn after(history: &History) -> Self {
        Self { history: Some(history.clone()), ..Self::default() }
    }

    /// Says which wire this is, for the provider data that the builder itself adds.
    pub fn provider(&mut self, name: &'static str) {
        self.provider = name;
    }

    /// Says which model answers.
    pub fn model(&mut self, model: &str) {
        if !model.is_empty() && self.partial.model.is_none() {
            self.partial.model = Some(model.to_owned());
        }
    }

    /// Says the provider's id of the response.
    pub fn response_id(&mut self, id: &str) {
        if !id.is_empty() && self.partial.response_id.is_none() {
            self.partial.response_id = Some(id.to_owned());
        }
    }

    /// A piece of text. An empty one says nothing.
    pub fn text(&mut self, index: u32, piece: &str) {
        if self.takes(piece) {
            self.partial.push_text(index, piece);
            self.events.push_back(TurnEvent::TextDelta { index, text: piece.into() });
            self.bound();
        }
    }

    /// A piece of a refusal.
    pub fn refusal(&mut self, index: u32, piece: &str) {
        if self.takes(piece) {
            self.partial.push_text(index, piece);
            self.events.push_back(TurnEvent::RefusalDelta { index, text: piece.into() });
            self.bound();
        }
    }

    /// A piece of reasoning.
    pub fn reasoning(&mut self, index: u32, piece: &str, kind: ReasoningKind) {
        if self.takes(piece) {
            self.partial.push_reasoning(index, piece);
            let text = Text::from(piece);
            self.events.push_back(TurnEvent::ReasoningDelta { index, text, kind });
            self.bound();
        }
    }

    /// What belongs to a text item and goes back verbatim. Nothing if there is no such item.
    pub fn text_data(&mut self, index: u32, data: ProviderData) {
        if !self.finished {
            self.partial.attach(Key::Text(index), data);
        }
    }

    /// What belongs to a reasoning item and goes back verbatim. Makes the item if it is not there:
    /// some providers send a signature without any words.
    pub fn reasoning_data(&mut self, index: u32, data: ProviderData) {
        if !self.finished {
            let new = || ItemKind::Reasoning { text: String::new() };
            self.partial.open(Key::Reasoning(index), new);
            self.partial.attach(Key::Reasoning(index), data);
            self.bound();
        }
    }

    /// A provider's own item, kept verbatim.
    pub fn other(&mut self, data: ProviderData) {
        if !self.finished {
            self.partial.push_other(data);
            self.bound();
        }
    }

    /// A call begins. `key` is the wire's own way to tell the calls of a turn apart.
    pub fn tool_call_start(&mut self, key: u32, wire_id: &str, name: &str) {
        if self.finished {
            return;
        }
        let mut same_id = self.places.of_wire_id(wire_id).iter();
        let doubled = !wire_id.is_empty() && same_id.any(|at| !self.calls[*at].dropped);
        let mut state = CallState {
            key,
            wire_id: wire_id.to_owned(),
            call_id: String::new(),
            held: None,
            ended: false,
            dropped: false,
            block: None,
            matched: false,
        };
        if doubled {
            let (name, arguments) = (name.to_owned(), String::new());
            state.held = Some(Held { name, arguments, data: None });
        } else {
            state.call_id = self.fresh_id(wire_id);
            state.block = Some(self.emit_start(&state.call_id, wire_id, name));
        }
        self.places.put(key, wire_id, self.calls.len());
        self.calls.push(state);
        self.bound();
    }

    /// A piece of a call's arguments.
    pub fn tool_call_args(&mut self, key: u32, piece: &str) {
        if !self.takes(piece) {
            return;
        }
        let Some(at) = self.places.of_key(key).filter(|at| !self.calls[*at].ended) else { return };
        match &mut self.calls[at].held {
            Some(held) => held.arguments.push_str(piece),
            None => self.emit_args(at, piece),
        }
    }

    /// What belongs to a call and goes back verbatim.
    pub fn tool_call_data(&mut self, key: u32, data: ProviderData) {
        if self.finished {
            return;
        }
        let Some(at) = self.places.of_key(key) else { return };
        let state = &mut self.calls[at];
        if let Some(held) = &mut state.held {
            held.data = Some(data);
            return;
        }
        if let Some(block) = state.block.and_then(|at| self.partial.blocks.get_mut(at)) {
            let is_own = state.call_id == state.wire_id;
            let data = if is_own { data } else { with_wire_id(data, &state.wire_id) };
            block.item.provider_data = Some(Arc::new(data));
        }
    }

    /// A call is written to its end.
    pub fn tool_call_end(&mut self, key: u32) {
        if self.finished {
            return;
        }
        let Some(at) = self.places.of_key(key) else { return };
        if std::mem::replace(&mut self.calls[at].ended, true) {
            return;
        }
        if self.calls[at].held.is_some() {
            let mut same_id = self.places.of_wire_id(&self.calls[at].wire_id).iter();
            // The first under this id may still be open; then `complete` decides.
            if same_id.any(|at| self.calls[*at].held.is_none() && self.calls[*at].ended) {
                self.release(at);
            }
        } else {
            self.emit_end(at);
        }
    }

    /// What the attempt has cost so far; replaces what was said before.
    pub fn usage(&mut self, usage: Usage) {
        if !self.finished && self.partial.usage != usage {
            self.partial.usage = usage;
            self.events.push_back(TurnEvent::UsageUpdate { usage });
        }
    }

    /// What was counted so far.
    pub fn usage_so_far(&self) -> Usage {
        self.partial.usage
    }

    /// The terminal marker: why the model stopped, and the wire's own word for it.
    pub fn stop(&mut self, reason: StopReason, raw: &str) {
        if !self.finished && self.stop.is_none() {
            // A wire's word that is one of ours means it: written and read back it would.
            let reason = match reason {
                StopReason::Other(word) => StopReason::from(Cow::Owned(word)),
                reason => reason,
            };
            self.stop = Some((reason, (!raw.is_empty()).then(|| raw.to_owned())));
        }
    }

    /// The turn goes on behind a terminal marker, which does not count any more: another one is
    /// awaited.
    pub fn go_on(&mut self) {
        if !self.finished {
            self.stop = None;
        }
    }

    /// Whether the terminal marker was seen.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Whether the turn is complete: pushing more changes nothing.
    pub fn is_complete(&self) -> bool {
        self.completed
    }

    /// Whether nothing is taken any more: the turn is complete, or failed.
    pub(crate) fn is_over(&self) -> bool {
        self.finished
    }

    /// Voids all of the open turn; what comes next begins it anew.
    pub fn retract(&mut self, why: impl Into<String>) {
        if self.finished {
            return;
        }
        let usage = self.partial.usage;
        self.partial = PartialTurn::default();
        self.calls.clear();
        self.places = Places::default();
        self.stop = None;
        self.events.push_back(TurnEvent::Retracted { why: why.into(), usage });
    }

    /// Completes the turn.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if it has more items than any turn has (16,384),
    /// [`ErrorKind::IncompleteTurn`] if there was no terminal marker, and [`ErrorKind::Protocol`]
    /// if the model stopped for its tools and one of the calls was never written to its end.
    pub fn complete(&mut self) -> Result<(), Error> {
        if self.completed {
            return Ok(());
        }
        if self.finished {
            return Err(self.incomplete(None));
        }
        let Some((stop_reason, raw_stop_reason)) = self.stop.take() else {
            return Err(self.incomplete(None));
        };
        let may_run = matches!(stop_reason, StopReason::Stop | StopReason::ToolCalls);
        if may_run && self.calls.iter().any(|call| !call.ended) {
            self.finished = true;
            let message = "a tool call was not written to its end";
            return Err(Error::new(ErrorKind::Protocol, message));
        }
        self.end_calls();
        (self.finished, self.completed) = (true, true);
        let partial = std::mem::take(&mut self.partial);
        let turn = Turn {
            items: partial.blocks.into_iter().map(|block| block.item).collect(),
            stop_reason,
            raw_stop_reason,
            usage: partial.usage,
            model: partial.model,
            response_id: partial.response_id,
            built: true,
        };
        self.events.push_back(TurnEvent::TurnComplete { turn: Arc::new(turn) });
        Ok(())
    }

    /// Ends the turn without a terminal marker: the error carries what there is.
    pub fn incomplete(&mut self, cause: Option<Error>) -> Error {
        self.finished = true;
        if self.overfull {
            let message = format!("the turn has more than {MOST_ITEMS} items");
            let partial = std::mem::take(&mut self.partial);
            return Error::new(ErrorKind::TooLarge, message).with_source(partial);
        }
        std::mem::take(&mut self.partial).into_error(cause)
    }

    /// Ends the turn by an error. If something of the turn was there, the error carries it as a
    /// [`PartialTurn`] before its own source, so that nothing paid for is lost.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.finished = true;
        let partial = std::mem::take(&mut self.partial);
        if partial.is_empty() || PartialTurn::of(&error).is_some() {
            return error;
        }
        error.map_source(|cause| partial.with_cause(cause))
    }

    /// Whether a piece of the model's own answer waits to be taken out, and not only counts.
    pub(crate) fn has_output(&self) -> bool {
        self.events.iter().any(|event| match event {
            TurnEvent::TextDelta { .. }
            | TurnEvent::ReasoningDelta { .. }
            | TurnEvent::RefusalDelta { .. }
            | TurnEvent::ToolCallStart { .. }
            | TurnEvent::ToolCallArgsDelta { .. }
            | TurnEvent::ToolCallEnd { .. } => true,
            TurnEvent::UsageUpdate { .. }
            | TurnEvent::Retracted { .. }
            | TurnEvent::TurnComplete { .. } => false,
        })
    }

    /// Whether there is an event to take out.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the next event out.
    pub fn next_event(&mut self) -> Option<TurnEvent> {
        self.events.pop_front()
    }

    /// Takes nothing any more once there are more items than any turn has.
    fn bound(&mut self) {
        if self.partial.blocks.len().max(self.calls.len()) > MOST_ITEMS {
            self.overfill();
        }
    }

    /// Takes nothing any more: a decoder holds more than any turn has.
    pub(crate) fn overfill(&mut self) {
        if !self.finished {
            (self.finished, self.overfull) = (true, true);
        }
    }

    fn takes(&self, piece: &str) -> bool {
        !self.finished && !piece.is_empty()
    }

    /// The id that a call is known by from here on.
    fn fresh_id(&mut self, wire_id: &str) -> String {
        let in_history = |id: &str| self.history.as_ref().is_some_and(|h| h.holds_call_id(id));
        let wanted = if wire_id.is_empty() {
            let turn = self.history.as_ref().map_or(0, History::completed_turns) + 1;
            format!("call_{turn}_{}", self.calls.len() + 1)
        } else {
            wire_id.to_owned()
        };
        if self.places.holds(&wanted) || in_history(&wanted) {
            return self.places.rename(&wanted, self.history.as_ref());
        }
        self.places.give(&wanted);
        wanted
    }

    /// Returns where the call stands among the items.
    fn emit_start(&mut self, call_id: &str, wire_id: &str, name: &str) -> usize {
        let (call_id, name) = (call_id.to_owned(), name.to_owned());
        let call =
            ToolCall { call_id: call_id.clone(), name: name.clone(), arguments: String::new() };
        self.partial.push_call(call);
        let at = self.partial.blocks.len() - 1;
        if call_id != wire_id {
            let data = with_wire_id(self.own_data(), wire_id);
            self.partial.blocks[at].item.provider_data = Some(Arc::new(data));
        }
        self.events.push_back(TurnEvent::ToolCallStart { call_id, name });
        at
    }

    fn emit_args(&mut self, at: usize, piece: &str) {
        let call_id = self.calls[at].call_id.clone();
        if let Some(block) = self.block_mut(at)
            && let ItemKind::ToolCall(call) = &mut block.item.kind
        {
            call.arguments.push_str(piece);
        }
        self.events.push_back(TurnEvent::ToolCallArgsDelta { call_id, delta: Text::from(piece) });
    }

    fn emit_end(&mut self, at: usize) {
        if let Some(block) = self.block_mut(at) {
            block.ended = true;
        }
        let call_id = self.calls[at].call_id.clone();
        self.events.push_back(TurnEvent::ToolCallEnd { call_id });
    }

    /// The item of a call that was emitted.
    fn block_mut(&mut self, at: usize) -> Option<&mut Block> {
        self.calls[at].block.and_then(|at| self.partial.blocks.get_mut(at))
    }

    /// Decides on a held call: the same as the first under its id, or one of its own.
    fn release(&mut self, at: usize) {
        let Some(held) = self.calls[at].held.take() else { return };
        let wire_id = self.calls[at].wire_id.clone();
        let before = self.places.of_wire_id(&wire_id).iter().take_while(|other| **other < at);
        let blocks = before.filter_map(|other| self.calls[*other].block);
        let mut calls = blocks.filter_map(|at| self.partial.blocks.get(at)?.item.as_tool_call());
        if calls.any(|call| call.name == held.name && call.arguments == held.arguments) {
            self.calls[at].dropped = true;
            return;
        }
        let call_id = self.fresh_id(&wire_id);
        self.calls[at].call_id.clone_from(&call_id);
        self.calls[at].block = Some(self.emit_start(&call_id, &wire_id, &held.name));
        if !held.arguments.is_empty() {
            self.emit_args(at, &held.arguments);
        }
        if let Some(data) = held.data
            && let Some(block) = self.block_mut(at)
        {
            block.item.provider_data = Some(Arc::new(with_wire_id(data, &wire_id)));
        }
        self.emit_end(at);
    }

    /// Every start that was emitted has its end, and nothing is held back any more.
    fn end_calls(&mut self) {
        for at in 0..self.calls.len() {
            if self.calls[at].held.is_some() {
                self.calls[at].ended = true;
                self.release(at);
            } else if !std::mem::replace(&mut self.calls[at].ended, true) {
                self.emit_end(at);
            }
        }
    }

    fn own_data(&self) -> ProviderData {
        let model = self.partial.model.clone().unwrap_or_default();
        let value = Json::from(serde_json::json!({}));
        ProviderData { provider: self.provider.to_owned(), model, value }
    }
}

/// Notes the id that the wire used, beside what is there, which stays as it is written.
fn with_wire_id(data: ProviderData, wire_id: &str) -> ProviderData {
    // Beside what is there nothing is written anew: it goes back byte for byte.
    if let Some(fields) = data.value.as_str().strip_prefix('{').filter(|fields| *fields != "}")
        && !fields.contains("\"wire_id\"")
        && let Ok(id) = serde_json::to_string(wire_id)
        && let Ok(value) = Json::parse(&format!("{{\"wire_id\":{id},{fields}"))
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

#[cfg(test)]
mod tests;
