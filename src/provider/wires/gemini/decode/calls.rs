//! Matches parts to calls, and detects when a call is complete.

use serde_json::value::RawValue;

use super::frames::FunctionCall;
use super::partial_args::PartialArguments;
use crate::error::Error;
use crate::provider::codec::decode::item_key;
use crate::provider::codec::failure::protocol_error;
use crate::provider::codec::lenient::read_object;
use crate::provider::wires::gemini::passthrough::PassthroughFields;
use crate::request::ToolNames;
use crate::turn::{MAX_ITEMS, TurnBuilder};

/// A turn's tool calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) tool_names: ToolNames,
    /// The calls. A call's position in the list is its item key.
    all: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    id: String,
    signature: Option<String>,
    arguments: Option<PartialArguments>,
    is_ended: bool,
}

impl Calls {
    /// Returns whether the turn contains no calls so far.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns an error if any call is open. The check is performed when a malformed value arrives,
    /// because the value may have been a piece of an open call.
    pub(super) fn check_no_open_call(&self) -> Result<(), Error> {
        match self.all.iter().any(|call| !call.is_ended) {
            true => Err(protocol_error("a piece of a tool call is malformed")),
            false => Ok(()),
        }
    }

    /// Applies a tool call or a piece of a tool call. `model` is the name of the model that wrote
    /// the call.
    ///
    /// The API reference says about `willContinue`: "Whether this is the last part of the
    /// `FunctionCall`. If true, another partial message for the current `FunctionCall` is expected
    /// to follow".
    pub(super) fn push(
        &mut self,
        raw: &RawValue,
        signature: Option<&str>,
        model: &str,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let piece: FunctionCall<'_> =
            read_object(raw).ok_or_else(|| protocol_error("a tool call is malformed"))?;
        let Some(at) = self.call_index_for(&piece)? else { return Ok(()) };
        let key = item_key(at);
        let begins = at == self.all.len();
        if at == MAX_ITEMS {
            turn.exceed_item_limit();
            return Ok(());
        }
        if begins {
            let name = self.tool_names.own_name(piece.name());
            turn.start_tool_call(key, piece.id.or_empty(), name);
            let id = piece.id.or_empty().to_owned();
            self.all.push(Call { id, signature: None, arguments: None, is_ended: false });
        }
        let Some(call) = self.all.get_mut(at) else { return Ok(()) };
        // If a piece has no signature, an earlier signature is kept.
        if let Some(signature) = signature {
            call.signature = Some(signature.to_owned());
        }
        let id = Some(call.id.clone()).filter(|id| !id.is_empty());
        if signature.is_some() || begins && id.is_some() {
            let thought_signature = call.signature.clone();
            if let Some(data) =
                (PassthroughFields { id, thought_signature, ..PassthroughFields::default() })
                    .to_provider_data(model)
            {
                turn.set_tool_call_data(key, data);
            }
        }
        let will_continue = piece.will_continue.unwrap_or(false);
        if call.arguments.is_none() && piece.partial_args.is_none() && !will_continue {
            let whole = piece.args.map_or("{}", RawValue::get);
            if !whole.starts_with('{') {
                return Err(protocol_error("the arguments of a tool call are not an object"));
            }
            turn.push_tool_call_args(key, whole);
            turn.end_tool_call(key);
            call.is_ended = true;
            return Ok(());
        }
        let arguments = call.arguments.get_or_insert_with(PartialArguments::new);
        if let Some(begun) = piece.args {
            arguments.set_initial(begun.get())?;
        }
        for piece in piece.partial_args.iter().flatten() {
            arguments.push(piece)?;
        }
        if !will_continue {
            call.is_ended = true;
            // An incomplete call stays open and must not be executed.
            if let Some(whole) =
                call.arguments.take().and_then(PartialArguments::into_complete_json)
            {
                turn.push_tool_call_args(key, &whole);
                turn.end_tool_call(key);
            }
        }
        Ok(())
    }

    /// Returns the position of the call that a piece continues or starts, or `None` if the piece is
    /// empty and no call is open.
    fn call_index_for(&self, piece: &FunctionCall<'_>) -> Result<Option<usize>, Error> {
        let (id, name) = (piece.id.or_empty(), piece.name());
        let mut open = self.all.iter().enumerate().filter(|(_, call)| !call.is_ended);
        if !id.is_empty()
            && let Some((at, _)) = open.clone().find(|(_, call)| call.id == id)
        {
            return Ok(Some(at));
        }
        if !name.is_empty() {
            return Ok(Some(self.all.len()));
        }
        match (open.next(), open.next()) {
            (Some((at, call)), None) if id.is_empty() || call.id.is_empty() => Ok(Some(at)),
            (Some(_), Some(_)) if id.is_empty() => {
                Err(protocol_error("a piece of a tool call may belong to several calls"))
            }
            (None, _) if piece.is_empty() => Ok(None),
            _ => Err(protocol_error("a tool call has no name")),
        }
    }
}
