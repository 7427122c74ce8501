//! The output items of a response that is being streamed.

use std::borrow::Cow;
use std::mem::discriminant;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::calls::{Call, DeclaredTools, expand_wrapper};
use super::frames::WireItem;
use super::text::{Comparison, TextKind, TextParts};
use crate::error::Error;
use crate::item::{ProviderData, RawJson};
use crate::provider::codec::decode::item_key;
use crate::provider::codec::failure::protocol_error;
use crate::provider::codec::lenient::deserialize_json;
use crate::provider::codec::logprobs::read_tokens;
use crate::provider::wires::openai::arguments_text;
use crate::provider::wires::openai_responses::client_tool_call::ClientToolCall;
use crate::provider::wires::openai_responses::passthrough::{self, MessagePart, PROVIDER_NAME};
use crate::request::ToolSpecs;
use crate::small_map::SmallMap;
use crate::turn::{MAX_ITEMS, TokenLogprob, TurnBuilder};
use crate::usage::Billing;

/// An item's position, as reported by an event. The index takes precedence over the item id,
/// because the id may change from event to event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Location<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: &'a str,
}

/// The maximum size of a finished item whose JSON is kept until the terminal event repeats it. A
/// larger item is parsed again.
const MAX_FINISHED_JSON_BYTES: usize = 16 << 10;

/// All output items of a response. An item's position in `slots` is its key in the turn.
#[derive(Debug, Default)]
pub(super) struct OutputItems {
    /// The requested model, the only model to which the provider data of the turn's items is sent
    /// back.
    model: String,
    /// The names of the declared tools.
    pub(super) declared_tools: DeclaredTools,
    slots: Vec<Slot>,
    /// The id of the last finished reasoning item.
    last_reasoning_id: Option<String>,
    /// Whether the streamed content of any item differs from the finished item, so that the turn
    /// must be retracted.
    has_mismatch: bool,
    /// The position of the newest item for each output index. The map is used only if every item
    /// has an index.
    newest_slot_by_index: SmallMap<u64, usize>,
    has_unindexed_slots: bool,
    /// Whether any item has more parts than the limit allows.
    has_too_many_parts: bool,
    /// The number of item keys assigned so far to calls inside wrapper calls.
    wrapped_call_count: u32,
}

impl OutputItems {
    /// Creates an empty list of output items for a response from `model`.
    pub(super) fn for_model(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }

    /// Handles an item's start event.
    pub(super) fn on_item_added(
        &mut self,
        location: Location<'_>,
        raw: &RawValue,
        turn: &mut TurnBuilder,
    ) {
        let mut scratch = String::new();
        let Some(item) = WireItem::parse(raw, &mut scratch) else { return };
        let location = Location { id: item.id.or_empty(), ..location };
        // If the item already exists, its start event was sent twice.
        if self.find(location, |slot| slot.may_match(&item)).is_none() {
            let at = self.open_slot(location, SlotKind::from_item(&item));
            if let SlotKind::Call(call) = &mut self.slots[at].kind {
                call.start_from_item(&item, &self.declared_tools, item_key(at), turn);
            }
        }
    }

    /// Handles a piece of text from a message or from reasoning. Returns the position in `slots` of
    /// the item to which the text belongs.
    pub(super) fn on_text_delta(
        &mut self,
        location: Location<'_>,
        part: (TextKind, u64),
        piece: &str,
        turn: &mut TurnBuilder,
    ) -> usize {
        let at = self.text_slot(location, part.0);
        self.push_text(at, part, piece, turn);
        at
    }

    /// Appends a piece of text to the item at position `at` in `slots`.
    pub(super) fn push_text(
        &mut self,
        at: usize,
        part: (TextKind, u64),
        piece: &str,
        turn: &mut TurnBuilder,
    ) {
        if let Some(parts) = self.slots[at].open_text_mut() {
            parts.push_delta(part, piece, item_key(at), turn);
            self.has_too_many_parts |= parts.has_too_many_parts();
        }
    }

    /// Handles the complete text of a part of an item.
    pub(super) fn on_text_done(
        &mut self,
        location: Location<'_>,
        part: (TextKind, u64),
        text: &str,
        turn: &mut TurnBuilder,
    ) {
        let at = self.text_slot(location, part.0);
        if let Some(parts) = self.slots[at].open_text_mut() {
            let differs = parts.push_whole(part, text, item_key(at), turn) == Comparison::Different;
            // A mismatch in reasoning is tolerated: reasoning text is only for display, and the
            // finished item is sent back.
            self.has_mismatch |= differs && !part.0.is_reasoning();
            self.has_too_many_parts |= parts.has_too_many_parts();
        }
    }

    /// Handles a piece of a call's arguments. `piece` is `None` if the received value is not a
    /// string. Returns the call's position in `slots`, or `None` if it is unclear to which call the
    /// piece belongs.
    pub(super) fn on_arguments_delta(
        &mut self,
        location: Location<'_>,
        piece: Option<&str>,
        turn: &mut TurnBuilder,
    ) -> Option<usize> {
        if self.is_ambiguous(location) {
            for slot in &mut self.slots {
                if let SlotKind::Call(call) = &mut slot.kind {
                    call.push_delta(None, 0, turn);
                }
            }
            return None;
        }
        let at = self.call_slot(location);
        self.push_arguments(at, piece, turn);
        Some(at)
    }

    /// Appends a piece to the arguments of the call at position `at` in `slots`.
    pub(super) fn push_arguments(
        &mut self,
        at: usize,
        piece: Option<&str>,
        turn: &mut TurnBuilder,
    ) {
        if let SlotKind::Call(call) = &mut self.slots[at].kind {
            call.push_delta(piece, item_key(at), turn);
        }
    }

    /// Handles a call's complete arguments, which are `None` if the received value is not a string.
    pub(super) fn on_arguments_done(
        &mut self,
        location: Location<'_>,
        name: &str,
        final_value: Option<Cow<'_, str>>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        if self.is_ambiguous(location) {
            return Err(protocol_error("the end of a tool call may belong to several calls"));
        }
        let at = self.call_slot(location);
        self.slots[at].finished_json = None;
        if let SlotKind::Call(call) = &mut self.slots[at].kind {
            call.set_name(name, &self.declared_tools);
            let agreement = call.finish(final_value, false, item_key(at), turn)?;
            self.has_mismatch |= agreement == Comparison::Different;
        }
        self.emit_if_complete(at, turn);
        Ok(())
    }

    /// Emits a complete call. If the call is a wrapper call, emits the inner calls instead.
    fn emit_call(&mut self, at: usize, turn: &mut TurnBuilder) {
        let SlotKind::Call(call) = &mut self.slots[at].kind else { return };
        let wraps = call.may_be_wrapper && call.is_complete();
        let inner = wraps.then(|| expand_wrapper(&call.arguments, &self.declared_tools)).flatten();
        let Some(inner) = inner else { return call.emit(item_key(at), turn) };
        call.is_started = true;
        for (nth, one) in inner.iter().enumerate() {
            // Keys are assigned downward from the maximum, so that no output item has the same key.
            let key = u32::MAX - self.wrapped_call_count;
            self.wrapped_call_count += 1;
            let id = match call.id.as_str() {
                "" => String::new(),
                id => format!("{id}_{nth}"),
            };
            turn.start_tool_call(key, &id, self.declared_tools.names.own_name(one.name()));
            turn.push_tool_call_args(key, one.parameters.get());
            turn.end_tool_call(key);
        }
    }

    fn emit_if_complete(&mut self, at: usize, turn: &mut TurnBuilder) {
        if self.slots[at].kind.as_call().is_some_and(|call| call.is_complete() && !call.is_started)
        {
            self.emit_call(at, turn);
        }
    }

    pub(super) fn has_items(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Handles an item's end event.
    pub(super) fn on_item_done(
        &mut self,
        location: Location<'_>,
        raw: &RawValue,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let mut scratch = String::new();
        let Some(item) = WireItem::parse(raw, &mut scratch) else { return Ok(()) };
        let location = Location { id: item.id.or_empty(), ..location };
        let found = self.find_or_newest(location, |slot| slot.may_match(&item));
        let at = found.unwrap_or_else(|| self.open_slot(location, SlotKind::from_item(&item)));
        // An `mcp_list_tools` item may arrive without its tools. In this case, the terminal event
        // contains them.
        if item.r#type.or_empty() == "mcp_list_tools" && item.tools.is_none() {
            self.slots[at].data = deserialize_json(raw);
            return Ok(());
        }
        self.finish_item(at, raw, &item, turn)?;
        let json = Some(raw.get()).filter(|json| json.len() <= MAX_FINISHED_JSON_BYTES);
        self.slots[at].finished_json = json.map(Into::into);
        Ok(())
    }

    /// Applies the output in the terminal event, which completes any items whose own events are
    /// missing.
    pub(super) fn apply_terminal_output(
        &mut self,
        output: &[&RawValue],
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        // The number of items that are in the same order as in `slots`.
        let mut in_order = 0;
        for (index, raw) in (0..).zip(output) {
            if self.exceeds_item_limit() {
                break;
            }
            if let Some(slot) =
                self.slots.get_mut(in_order).filter(|slot| slot.is_final(index, raw))
            {
                slot.is_matched = true;
                in_order += 1;
                continue;
            }
            let mut scratch = String::new();
            let Some(item) = WireItem::parse(raw, &mut scratch) else { continue };
            let location = Location { index: Some(index), id: item.id.or_empty() };
            let at = self
                .find_for_terminal_item(location, &item)
                .unwrap_or_else(|| self.open_slot(location, SlotKind::from_item(&item)));
            self.slots[at].is_matched = true;
            in_order += usize::from(at == in_order);
            self.finish_item(at, raw, &item, turn)?;
        }
        for at in 0..self.slots.len() {
            if let Slot { kind: SlotKind::ProviderItem(_), is_done: false, data: Some(_), .. } =
                self.slots[at]
            {
                self.slots[at].is_done = true;
                self.attach_data(at, turn);
            }
        }
        Ok(())
    }

    /// Returns whether the streamed content must be retracted, and clears the `has_mismatch` flag.
    pub(super) fn take_mismatch(&mut self) -> bool {
        std::mem::take(&mut self.has_mismatch)
    }

    /// Emits the content of all items again after a retraction.
    pub(super) fn emit_again(&mut self, turn: &mut TurnBuilder) {
        for at in 0..self.slots.len() {
            match &self.slots[at].kind {
                SlotKind::Message(parts) | SlotKind::Reasoning(parts) => {
                    parts.emit_again(item_key(at), turn);
                }
                SlotKind::Call(_) => self.emit_call(at, turn),
                SlotKind::ClientCall { call, .. } => call.emit(item_key(at), turn),
                SlotKind::ProviderItem(_) => {}
            }
            if self.slots[at].is_done {
                self.attach_data(at, turn);
            }
        }
    }

    /// Counts the calls of tools that ran on the provider's servers, and for which the provider may
    /// charge fees. A web search that only opens a page, or finds a text in it, is free.
    pub(super) fn count_server_tool_calls(&self, turn: &mut TurnBuilder) {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct SearchCall {
            action: Action,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Action {
            r#type: String,
        }
        for slot in &self.slots {
            let SlotKind::ProviderItem(kind) = &slot.kind else { continue };
            let tool = match kind.as_str() {
                "web_search_call" => {
                    let read = |data: &RawJson| serde_json::from_str(data.as_str()).ok();
                    let call: SearchCall = slot.data.as_ref().and_then(read).unwrap_or_default();
                    match call.action.r#type.as_str() {
                        "open_page" | "find" | "find_in_page" => continue,
                        _ => Billing::WEB_SEARCH,
                    }
                }
                "file_search_call" => Billing::FILE_SEARCH,
                "code_interpreter_call" => Billing::CODE_EXECUTION,
                "image_generation_call" => "image_generation",
                _ => continue,
            };
            turn.billing().count_server_tool_call(tool);
        }
    }

    /// Adds the log probabilities of all messages to the turn.
    pub(super) fn push_logprobs(&mut self, turn: &mut TurnBuilder) {
        for slot in self.slots.iter_mut().filter(|slot| !slot.logprobs.is_empty()) {
            turn.push_logprobs(std::mem::take(&mut slot.logprobs));
        }
    }

    pub(super) fn has_refusal(&self) -> bool {
        let refuses =
            |slot: &Slot| matches!(&slot.kind, SlotKind::Message(parts) if parts.has_refusal());
        self.slots.iter().any(refuses)
    }

    pub(super) fn has_calls(&self) -> bool {
        let is_call =
            |slot: &Slot| matches!(slot.kind, SlotKind::Call(_) | SlotKind::ClientCall { .. });
        self.slots.iter().any(is_call)
    }

    /// Emits any truncated calls that have not been emitted yet.
    pub(super) fn emit_unstarted_calls(&mut self, turn: &mut TurnBuilder) {
        for at in 0..self.slots.len() {
            if let SlotKind::Call(call) = &mut self.slots[at].kind
                && !call.is_started
            {
                call.emit(item_key(at), turn);
            }
        }
    }

    /// Returns an error unless every call is complete.
    pub(super) fn check_calls(&self) -> Result<(), Error> {
        let mut calls = self.slots.iter().filter_map(|slot| slot.kind.as_call());
        match calls.find(|call| !call.is_complete()).map(|call| call.name.as_str()) {
            None => Ok(()),
            Some("") => Err(protocol_error("a tool call has no name")),
            Some(_) => Err(protocol_error("a tool call is unfinished")),
        }
    }

    /// Returns whether an event cannot be matched to a single call because several calls are open.
    fn is_ambiguous(&self, location: Location<'_>) -> bool {
        let is_call = |slot: &Slot| matches!(slot.kind, SlotKind::Call(_));
        let mut open = self.slots.iter().filter(|slot| is_call(slot) && !slot.is_done);
        location.index.is_none() && open.nth(1).is_some() && self.find(location, is_call).is_none()
    }

    /// Returns whether the response has more items or parts than the limits allow. Content beyond
    /// the limits is ignored.
    pub(super) fn exceeds_item_limit(&self) -> bool {
        self.slots.len() > MAX_ITEMS || self.has_too_many_parts
    }

    fn open_slot(&mut self, location: Location<'_>, kind: SlotKind) -> usize {
        match location.index {
            Some(index) => self.newest_slot_by_index.insert(index, self.slots.len()),
            None => self.has_unindexed_slots = true,
        }
        let Location { index, id } = location;
        let slot = Slot {
            index,
            id: id.to_owned(),
            kind,
            is_done: false,
            data: None,
            logprobs: Vec::new(),
            is_matched: false,
            finished_json: None,
        };
        self.slots.push(slot);
        self.slots.len() - 1
    }

    /// Returns the position in `slots` of the newest item at `location` that matches `wanted`.
    fn find(&self, location: Location<'_>, wanted: impl Fn(&Slot) -> bool) -> Option<usize> {
        if let Some(index) = location.index
            && !self.has_unindexed_slots
        {
            let newest = *self.newest_slot_by_index.get(&index)?;
            if wanted(self.slots.get(newest)?) {
                return Some(newest);
            }
        }
        self.slots.iter().rposition(|slot| slot.is_at(location) && wanted(slot))
    }

    /// Returns the position in `slots` of the newest item at `location` that matches `wanted`. If
    /// no item matches and the location has no index, returns the position of the newest open item
    /// that matches `wanted`.
    fn find_or_newest(
        &self,
        location: Location<'_>,
        wanted: impl Fn(&Slot) -> bool,
    ) -> Option<usize> {
        let newest = || self.slots.iter().rposition(|slot| !slot.is_done && wanted(slot));
        let found = self.find(location, &wanted);
        found.or_else(|| location.index.is_none().then(newest).flatten())
    }

    fn text_slot(&mut self, location: Location<'_>, kind_of_text: TextKind) -> usize {
        let kind = SlotKind::from_text_kind(kind_of_text);
        let found = self.find_or_newest(location, |slot| slot.kind.is_same_kind(&kind));
        found.unwrap_or_else(|| self.open_slot(location, kind))
    }

    /// Returns the position in `slots` of the call at `location`, adding the call if its start
    /// event was lost.
    fn call_slot(&mut self, location: Location<'_>) -> usize {
        let is_call = |slot: &Slot| matches!(slot.kind, SlotKind::Call(_));
        let found = self.find_or_newest(location, is_call);
        found.unwrap_or_else(|| self.open_slot(location, SlotKind::Call(Box::default())))
    }

    /// Returns the position in `slots` of an item in the terminal event. The item is looked up by
    /// call id, then by item id, then by index, and finally by its position among the items of the
    /// same kind.
    fn find_for_terminal_item(&self, location: Location<'_>, item: &WireItem<'_>) -> Option<usize> {
        let kind = SlotKind::from_item(item);
        let call_id = item.call_id.or_empty();
        let is_this_call = |slot: &Slot| {
            let call = slot.kind.as_call();
            call.is_some_and(|call| !call_id.is_empty() && call.id == call_id)
        };
        let may_be = |slot: &Slot| match slot.kind.as_call() {
            Some(_) => slot.may_match(item),
            None => slot.kind.is_same_kind(&kind),
        };
        let first = |wanted: &dyn Fn(&Slot) -> bool| {
            self.slots.iter().position(|slot| !slot.is_matched && wanted(slot))
        };
        first(&is_this_call)
            .or_else(|| first(&|slot| may_be(slot) && slot.has_id(location.id)))
            .or_else(|| first(&|slot| may_be(slot) && slot.index == location.index))
            .or_else(|| first(&may_be))
    }

    /// Completes the item at position `at` in `slots` with the finished item's JSON.
    fn finish_item(
        &mut self,
        at: usize,
        raw: &RawValue,
        item: &WireItem<'_>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let (slot, key) = (&mut self.slots[at], item_key(at));
        let after = self.last_reasoning_id.as_deref();
        match &mut slot.kind {
            SlotKind::Call(call) => {
                call.update_identity(item, &self.declared_tools);
                let cut_off = matches!(item.status.or_empty(), "incomplete" | "failed");
                let final_value = arguments_text(item.arguments);
                self.has_mismatch |=
                    call.finish(final_value, cut_off, key, turn)? == Comparison::Different;
                slot.data = slot.data.take().or_else(|| passthrough::call_data(raw, after));
            }
            _ if slot.is_done => return Ok(()),
            SlotKind::Message(parts) => {
                let final_value = message_text_parts(&item.content.0);
                self.has_mismatch |=
                    parts.push_all(&final_value, key, turn) == Comparison::Different;
                self.has_too_many_parts |= parts.has_too_many_parts();
                if item.phase.get() == Some("commentary") {
                    turn.mark_commentary(key);
                }
                let parts = item.content.0.iter().filter_map(|part| part.logprobs);
                slot.logprobs = parts.flat_map(read_tokens).collect();
                slot.data = passthrough::message_data(raw, &item.content.0, after);
            }
            SlotKind::Reasoning(parts) => {
                if parts.is_empty() {
                    let _ = parts.push_all(&reasoning_text_parts(item), key, turn);
                    self.has_too_many_parts |= parts.has_too_many_parts();
                }
                slot.data = deserialize_json(raw);
                self.last_reasoning_id = Some(item.id.or_empty().to_owned());
            }
            SlotKind::ProviderItem(item_type) => {
                let json = deserialize_json(raw);
                let call =
                    json.as_ref().and_then(|it| ClientCall::read(it, &self.declared_tools.specs));
                match (call, json) {
                    (Some(call), Some(json)) => {
                        slot.data = passthrough::client_call_data(json.as_str(), after);
                        call.emit(key, turn);
                        let item_type = std::mem::take(item_type);
                        slot.kind = SlotKind::ClientCall { item_type, call };
                    }
                    (_, json) => slot.data = json,
                }
            }
            // Such a call is done.
            SlotKind::ClientCall { .. } => return Ok(()),
        }
        slot.is_done = true;
        self.emit_if_complete(at, turn);
        self.attach_data(at, turn);
        Ok(())
    }

    /// Sets the provider data for the turn's item.
    fn attach_data(&self, at: usize, turn: &mut TurnBuilder) {
        let Slot { kind, data: Some(value), .. } = &self.slots[at] else { return };
        let data = ProviderData::new(PROVIDER_NAME, &self.model, value.clone());
        match kind {
            SlotKind::Message(_) => turn.set_text_data(item_key(at), data),
            SlotKind::Reasoning(_) => turn.set_reasoning_data(item_key(at), data),
            SlotKind::Call(_) | SlotKind::ClientCall { .. } => {
                turn.set_tool_call_data(item_key(at), data);
            }
            SlotKind::ProviderItem(_) => turn.push_provider_item(data),
        }
    }
}

#[derive(Debug)]
struct Slot {
    index: Option<u64>,
    id: String,
    kind: SlotKind,
    /// Whether the finished item has been received.
    is_done: bool,
    /// The item's provider data, which is sent back verbatim.
    data: Option<RawJson>,
    /// The log probabilities of a message's tokens.
    logprobs: Vec<TokenLogprob>,
    /// Whether the terminal event contained the item.
    is_matched: bool,
    /// The finished item as it was received in the item's end event. `None` if the item is large,
    /// or if a later event may have changed it.
    finished_json: Option<Box<str>>,
}

#[derive(Debug)]
enum SlotKind {
    Message(TextParts),
    Reasoning(TextParts),
    Call(Box<Call>),
    /// A provider-specific item of the given type. Once the item is finished, it is stored
    /// unchanged.
    ProviderItem(String),
    /// A call of a declared client tool, as an item of the given type, which is finished.
    ClientCall {
        item_type: String,
        call: ClientCall,
    },
}

/// A call of a client tool.
#[derive(Debug)]
struct ClientCall {
    id: String,
    name: String,
    arguments: String,
}

impl ClientCall {
    /// Reads a finished item. Returns `None` if the item is not a call of one of the tools.
    fn read(item: &RawJson, tools: &ToolSpecs) -> Option<Self> {
        let call = ClientToolCall::parse(item.as_str())?;
        let name = call.declared_tool(tools)?.name.clone();
        Some(Self { id: call.id().to_owned(), name, arguments: call.arguments()? })
    }

    fn emit(&self, key: u32, turn: &mut TurnBuilder) {
        turn.start_tool_call(key, &self.id, &self.name);
        turn.push_tool_call_args(key, &self.arguments);
        turn.end_tool_call(key);
    }
}

impl SlotKind {
    fn from_item(item: &WireItem<'_>) -> Self {
        match item.r#type.or_empty() {
            "message" => Self::Message(TextParts::default()),
            "reasoning" => Self::Reasoning(TextParts::default()),
            "function_call" => Self::Call(Box::default()),
            own => Self::ProviderItem(own.to_owned()),
        }
    }

    fn from_text_kind(kind_of_text: TextKind) -> Self {
        match kind_of_text.is_reasoning() {
            true => Self::Reasoning(TextParts::default()),
            false => Self::Message(TextParts::default()),
        }
    }

    fn is_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::ProviderItem(one) | Self::ClientCall { item_type: one, .. },
                Self::ProviderItem(other) | Self::ClientCall { item_type: other, .. },
            ) => one == other,
            (one, other) => discriminant(one) == discriminant(other),
        }
    }

    fn as_call(&self) -> Option<&Call> {
        match self {
            Self::Call(call) => Some(call),
            Self::Message(_)
            | Self::Reasoning(_)
            | Self::ProviderItem(_)
            | Self::ClientCall { .. } => None,
        }
    }
}

impl Slot {
    /// Returns the item's text, if the item is an unfinished message or unfinished reasoning.
    fn open_text_mut(&mut self) -> Option<&mut TextParts> {
        match &mut self.kind {
            SlotKind::Message(parts) | SlotKind::Reasoning(parts) if !self.is_done => Some(parts),
            SlotKind::Message(_)
            | SlotKind::Reasoning(_)
            | SlotKind::Call(_)
            | SlotKind::ProviderItem(_)
            | SlotKind::ClientCall { .. } => None,
        }
    }

    /// Returns whether this item is at `location`.
    fn is_at(&self, location: Location<'_>) -> bool {
        match (self.index, location.index) {
            (Some(own), Some(index)) => own == index,
            (None, _) | (_, None) => self.has_id(location.id),
        }
    }

    /// Returns whether the terminal event's item at `index` equals the finished item in this slot.
    /// Such an item has already been applied.
    fn is_final(&self, index: u64, raw: &RawValue) -> bool {
        !self.is_matched
            && self.index == Some(index)
            && self.finished_json.as_deref() == Some(raw.get())
    }

    fn has_id(&self, id: &str) -> bool {
        !id.is_empty() && self.id == id
    }

    /// Returns whether this is a call of a client tool that is answered under this id. A server may
    /// omit the id of the item itself.
    fn is_client_call_with_id(&self, call_id: &str) -> bool {
        let SlotKind::ClientCall { call, .. } = &self.kind else { return false };
        !call_id.is_empty() && call.id == call_id
    }

    /// Returns whether `item` may be the item stored in this slot. A finished item may be followed
    /// by another item at the same position.
    fn may_match(&self, item: &WireItem<'_>) -> bool {
        let fits = |own: &str, final_value: &str| {
            own.is_empty() || final_value.is_empty() || own == final_value
        };
        let may_be = match self.kind.as_call() {
            Some(call) => {
                fits(&call.id, item.call_id.or_empty()) && fits(&call.name, item.name.or_empty())
            }
            None => {
                !self.is_done
                    || self.has_id(item.id.or_empty())
                    || self.is_client_call_with_id(item.call_id.or_empty())
            }
        };
        may_be && self.kind.is_same_kind(&SlotKind::from_item(item))
    }
}

fn message_text_parts<'a>(content: &'a [MessagePart<'_>]) -> Vec<(TextKind, u64, &'a str)> {
    let final_value = |(index, part): (u64, &'a MessagePart<'_>)| match part.r#type.or_empty() {
        "output_text" | "text" => Some((TextKind::Text, index, part.text.or_empty())),
        "refusal" => Some((TextKind::Refusal, index, part.refusal.or_empty())),
        _ => None,
    };
    (0..).zip(content).filter_map(final_value).collect()
}

/// Returns the text parts of a reasoning item that was not streamed. Text that appears in both the
/// summary and the content is included only once.
fn reasoning_text_parts<'a>(item: &'a WireItem<'_>) -> Vec<(TextKind, u64, &'a str)> {
    let parts = |kind_of_text, parts: &'a [MessagePart<'_>]| {
        (0..).zip(parts).map(move |(index, part)| (kind_of_text, index, part.text.or_empty()))
    };
    let text = |parts: &[MessagePart<'_>]| -> String {
        parts.iter().map(|part| part.text.or_empty()).collect()
    };
    let (summary, content) = (&item.summary.0, &item.content.0);
    let twice = text(summary) == text(content);
    let content = if twice { &[][..] } else { content };
    parts(TextKind::Summary, summary).chain(parts(TextKind::Trace, content)).collect()
}
