//! Matches tool call deltas to their calls, which servers identify in different ways.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::{RawValue, to_raw_value};

use super::frames::WireCall;
use crate::error::Error;
use crate::item::RawJson;
use crate::provider::codec::decode::item_key;
use crate::provider::codec::failure::protocol_error;
use crate::provider::codec::lenient::{LenientStr, non_null};
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::wires::openai::{arguments_text, malformed_arguments_error};
use crate::provider::wires::openai_chat::passthrough::{
    CALL_EXTRA_FIELDS, CALL_ID_SIGNATURE_SEPARATOR, SIGNATURE_FIELD,
};
use crate::request::ToolNames;
use crate::small_map::SmallMap;
use crate::turn::{MAX_ITEMS, TurnBuilder};

/// The tool calls of a turn that is being streamed. A call's position in `all` is its item key.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) tool_names: ToolNames,
    all: Vec<Call>,
    /// The newest call for each call index.
    newest_by_index: SmallMap<u64, usize>,
    /// The turn's calls, ordered by index, or by arrival if they have no index.
    call_order: Vec<usize>,
    /// The number of calls at the start of `call_order` that have started.
    started_count: usize,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    /// Whether the call has been passed to the turn builder. The name of a started call no longer
    /// changes.
    is_started: bool,
    /// Arguments that arrived before the call's name or before the preceding calls had started.
    buffered_arguments: String,
    /// Whether a piece of the arguments was malformed. The complete arguments of a broken call are
    /// unknown.
    is_broken: bool,
    /// Whether the call arrived as a whole and therefore cannot be extended.
    is_complete: bool,
    /// The provider data to send back with the call.
    data: OrderedFields<'static>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Applies a delta to the corresponding call, or starts a new call.
    pub(super) fn push(&mut self, delta: &WireCall<'_>, turn: &mut TurnBuilder) {
        if turn.is_finished() {
            return;
        }
        let (id, thought) = match delta.id.or_empty().split_once(CALL_ID_SIGNATURE_SEPARATOR) {
            Some((id, thought)) => (id, Some(thought)),
            None => (delta.id.or_empty(), None),
        };
        let function = delta.function.value.as_ref();
        let name = function.map_or("", |function| function.name.or_empty());
        let arguments = arguments_text(function.and_then(|function| function.arguments));
        let says_nothing = id.is_empty() && name.is_empty() && !delta.function.malformed;
        let says_nothing = says_nothing && arguments.as_deref() == Some("");
        let at = match self.find_call(delta.index.0, id, name) {
            Some(at) => at,
            None if says_nothing => return,
            None if self.all.len() == MAX_ITEMS => return turn.exceed_item_limit(),
            None => {
                let index = delta.index.0;
                let at = self.insert_call(Call { index, ..Call::default() });
                if let Some(index) = index {
                    self.newest_by_index.insert(index, at);
                }
                at
            }
        };
        if !says_nothing && self.is_ambiguous(delta.index.0, id, name) {
            return self.mark_open_calls_broken();
        }
        let call = &mut self.all[at];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        // A name may arrive in pieces or be repeated in every chunk of the call.
        if !call.is_started && call.name != name {
            call.name.push_str(name);
        }
        turn.count_bytes(call.keep_data(delta, thought));
        call.is_broken |= arguments.is_none() || delta.function.malformed;
        let arguments = arguments.unwrap_or_default();
        if call.is_started {
            turn.push_tool_call_args(item_key(at), &arguments);
            return;
        }
        call.buffered_arguments.push_str(&arguments);
        if !call.buffered_arguments.is_empty() {
            self.start_calls_up_to(at, turn);
        }
    }

    /// Returns the call to which `delta` belongs, if the only effect of a further delta with the
    /// same fields but different arguments would be to append those arguments to the call. `delta`
    /// must be the most recently applied delta.
    pub(super) fn find_repeatable(&self, delta: &WireCall<'_>) -> Option<usize> {
        let id = delta.id.or_empty();
        let function = delta.function.value.as_ref()?;
        let name = function.name.or_empty();
        let at = self.find_call(delta.index.0, id, name)?;
        let call = &self.all[at];
        let has_data = [
            delta.extra_content,
            delta.provider_specific_fields,
            function.provider_specific_fields,
        ];
        let is_repeatable = call.is_started
            && (id.is_empty() || call.id == id)
            && has_data.iter().all(|field| non_null(*field).is_none())
            && !self.is_ambiguous(delta.index.0, id, name);
        is_repeatable.then_some(at)
    }

    /// Appends arguments to a call returned by [`find_repeatable`](Self::find_repeatable). The
    /// effect is the same as passing a further delta with these arguments to [`push`](Self::push).
    pub(super) fn push_arguments(at: usize, arguments: &str, turn: &mut TurnBuilder) {
        if !turn.is_finished() {
            turn.push_tool_call_args(item_key(at), arguments);
        }
    }

    /// Inserts a call at its position in the call order. Calls that have already started keep their
    /// positions.
    fn insert_call(&mut self, call: Call) -> usize {
        let at = self.all.len();
        let comes_after = |other: &usize| match (self.all[*other].index, call.index) {
            (Some(other), Some(index)) => other > index,
            _ => false,
        };
        let later =
            self.call_order[self.started_count..].iter().rev().take_while(|it| comes_after(it));
        self.call_order.insert(self.call_order.len() - later.count(), at);
        self.all.push(call);
        at
    }

    /// Starts a call that has arguments. First starts all preceding calls, whose names must already
    /// be complete. A call without a name delays all following calls, as does a gap in the indices.
    fn start_calls_up_to(&mut self, at: usize, turn: &mut TurnBuilder) {
        let mut is_reached = false;
        while let Some(next) = self.call_order.get(self.started_count).copied() {
            let call = &mut self.all[next];
            let is_missing =
                |index: u64| usize::try_from(index).is_ok_and(|it| it > self.started_count);
            let is_held_up = call.name.is_empty() || call.index.is_some_and(is_missing);
            if is_held_up || is_reached && call.buffered_arguments.is_empty() {
                return;
            }
            call.start(item_key(next), &self.tool_names, turn);
            self.started_count += 1;
            is_reached |= next == at;
        }
    }

    /// Adds a call that the model wrote as text. Returns `false` if the text is not a call.
    pub(super) fn push_text_call(&mut self, written: &str, turn: &mut TurnBuilder) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(default, bound(deserialize = "'de: 'a"))]
        struct TextCall<'a> {
            name: LenientStr<'a>,
            arguments: Option<&'a RawValue>,
            parameters: Option<&'a RawValue>,
        }
        let Ok(read) = serde_json::from_str::<TextCall<'_>>(written.trim()) else { return false };
        let arguments =
            non_null(read.arguments).or(non_null(read.parameters)).map_or("{}", RawValue::get);
        let name = read.name.or_empty();
        if name.is_empty() || !arguments.starts_with('{') {
            return false;
        }
        if self.all.len() == MAX_ITEMS {
            turn.exceed_item_limit();
            return true;
        }
        let (name, early) = (name.to_owned(), arguments.to_owned());
        let at = self.insert_call(Call {
            name,
            buffered_arguments: early,
            is_complete: true,
            ..Call::default()
        });
        self.start_calls_up_to(at, turn);
        true
    }

    /// Ends every call after the finish reason has arrived. `data` converts a call's stored fields
    /// to provider data.
    pub(super) fn end_all(
        &mut self,
        turn: &mut TurnBuilder,
        data: impl Fn(RawJson) -> crate::item::ProviderData,
    ) -> Result<(), Error> {
        for at in &self.call_order {
            let at = *at;
            let call = &mut self.all[at];
            if call.is_broken {
                return Err(malformed_arguments_error());
            }
            if call.name.is_empty() {
                return Err(protocol_error("a tool call has no name"));
            }
            call.start(item_key(at), &self.tool_names, turn);
            let fields = std::mem::take(&mut call.data);
            if let Some(value) = fields.into_non_empty_json() {
                turn.set_tool_call_data(item_key(at), data(value));
            }
            turn.end_tool_call(item_key(at));
        }
        Ok(())
    }

    /// Returns whether every call has a name and arguments that are JSON.
    pub(super) fn have_json_arguments(&self, turn: &TurnBuilder) -> bool {
        let is_whole = |call: &Call| {
            let buffered = &call.buffered_arguments;
            let is_json = || serde_json::from_str::<IgnoredAny>(buffered).is_ok();
            !call.is_broken && !call.name.is_empty() && (call.is_started || is_json())
        };
        self.all.iter().all(is_whole) && turn.has_json_arguments()
    }

    /// Marks all open calls as broken. The decoder calls this method when it receives a piece that
    /// is malformed or that may belong to any of the open calls.
    pub(super) fn mark_open_calls_broken(&mut self) {
        self.all.iter_mut().filter(|call| !call.is_complete).for_each(|call| call.is_broken = true);
    }

    /// Returns whether a piece cannot be matched to a single call because several calls with an
    /// index are open.
    fn is_ambiguous(&self, index: Option<u64>, id: &str, name: &str) -> bool {
        let counted = |call: &Call| !call.is_complete && call.index.is_some();
        index.is_none()
            && id.is_empty()
            && name.is_empty()
            && self.all.iter().filter(|call| counted(call)).nth(1).is_some()
    }

    /// Returns the call that a delta continues, or `None` if the delta starts a new call.
    fn find_call(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let fits = |call: &Call| id.is_empty() || call.id.is_empty() || call.id == id;
        if let Some(at) = index.and_then(|index| self.newest_by_index.get(&index))
            && self.all.get(*at).is_some_and(fits)
        {
            return Some(*at);
        }
        let newest = |belongs: &dyn Fn(&Call) -> bool| {
            self.all.iter().rposition(|call| !call.is_complete && belongs(call))
        };
        match (index, id) {
            // A delta with the same index but a different id belongs to another call.
            (Some(index), _) => newest(&|call| call.index == Some(index) && fits(call)),
            (None, "") if name.is_empty() => newest(&|_| true),
            (None, "") => None,
            (None, id) => newest(&|call| call.id == id),
        }
    }
}

impl Call {
    fn start(&mut self, key: u32, names: &ToolNames, turn: &mut TurnBuilder) {
        if !std::mem::replace(&mut self.is_started, true) {
            turn.start_tool_call(key, &self.id, names.own_name(&self.name));
            turn.push_tool_call_args(key, &std::mem::take(&mut self.buffered_arguments));
        }
    }

    /// Stores the call's provider data, including the signature of the preceding reasoning, under
    /// the field names that the server uses. A field that is absent from a later delta remains
    /// stored. Returns the number of bytes that were stored.
    fn keep_data(&mut self, delta: &WireCall<'_>, thought: Option<&str>) -> usize {
        let thought = thought.and_then(|thought| to_raw_value(thought).ok());
        let function = delta.function.value.as_ref();
        let [extra_content, specific_fields] = CALL_EXTRA_FIELDS;
        let mut bytes = 0;
        for (name, value) in [
            (SIGNATURE_FIELD, thought.as_deref()),
            (extra_content, delta.extra_content),
            (specific_fields, delta.provider_specific_fields),
            ("function", function.and_then(|function| function.provider_specific_fields)),
        ] {
            if let Some(value) = non_null(value) {
                bytes += value.get().len();
                self.data.set(name, value.to_owned());
            }
        }
        bytes
    }
}
