//! A turn's tool calls. The server sends each call as a whole, but gateways may send its arguments
//! as text, in several pieces.

use serde_json::value::RawValue;

use super::frames::{Function, WireCall};
use crate::error::Error;
use crate::provider::codec::failure::protocol_error;
use crate::provider::codec::lenient::{non_null, read_object};
use crate::request::ToolNames;
use crate::turn::{MAX_ITEMS, TurnBuilder};

/// Tracks the tool calls received so far in a turn.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) tool_names: ToolNames,
    /// The number of calls so far. A call's item key is its position, starting from zero.
    call_count: usize,
    /// The last call, if more of its arguments may still follow.
    open_call: Option<OpenCall>,
}

/// A tool call whose arguments are sent as text.
#[derive(Debug)]
struct OpenCall {
    key: u32,
    index: Option<u64>,
    id: String,
}

/// The arguments in a call delta.
enum Arguments<'a> {
    /// The complete arguments as a JSON object.
    Object(&'a str),
    /// The arguments as a string, which may contain all of the arguments or only a piece of them.
    Text(String),
}

impl Calls {
    /// Returns whether the turn contains no calls so far.
    pub(super) fn is_empty(&self) -> bool {
        self.call_count == 0
    }

    /// Applies the calls in a message's `tool_calls` field.
    pub(super) fn push(
        &mut self,
        calls: Option<&RawValue>,
        turn: &mut TurnBuilder,
    ) -> Result<(), Error> {
        let Some(calls) = non_null(calls) else { return Ok(()) };
        let calls: Vec<&RawValue> = serde_json::from_str(calls.get())
            .map_err(|error| protocol_error("the tool calls are not a list").with_source(error))?;
        for raw in calls {
            if turn.is_finished() {
                break;
            }
            if raw.get() != "null" {
                self.push_call(raw, turn)?;
            }
        }
        Ok(())
    }

    fn push_call(&mut self, raw: &RawValue, turn: &mut TurnBuilder) -> Result<(), Error> {
        let call = read_object::<WireCall<'_>>(raw)
            .ok_or_else(|| protocol_error("a tool call is malformed"))?;
        let function = call.function.0.unwrap_or_default();
        let arguments = Arguments::from_function(&function)?;
        let (id, name) = (call.id.or_empty(), function.name.or_empty());
        if let Some(open) = &self.open_call
            && open.continues_with(id, &function)
        {
            return match arguments {
                Some(Arguments::Text(piece)) => {
                    turn.push_tool_call_args(open.key, &piece);
                    Ok(())
                }
                Some(Arguments::Object(_)) => {
                    Err(protocol_error("a tool call has its arguments twice"))
                }
                None => Ok(()),
            };
        }
        self.end_open_call(turn);
        if name.is_empty() {
            return Err(protocol_error("a tool call has no name"));
        }
        if self.call_count == MAX_ITEMS {
            turn.exceed_item_limit();
            return Ok(());
        }
        let key = u32::try_from(self.call_count).unwrap_or(u32::MAX);
        self.call_count += 1;
        turn.start_tool_call(key, id, self.tool_names.own_name(name));
        let whole = match arguments {
            Some(Arguments::Text(piece)) => {
                turn.push_tool_call_args(key, &piece);
                self.open_call = Some(OpenCall { key, index: function.index.0, id: id.to_owned() });
                return Ok(());
            }
            Some(Arguments::Object(whole)) => whole,
            None => "{}",
        };
        turn.push_tool_call_args(key, whole);
        turn.end_tool_call(key);
        Ok(())
    }

    /// Ends the last call if it is still open.
    pub(super) fn end_open_call(&mut self, turn: &mut TurnBuilder) {
        if let Some(open) = self.open_call.take() {
            turn.end_tool_call(open.key);
        }
    }
}

impl OpenCall {
    /// Returns whether a piece without a tool name continues this call.
    fn continues_with(&self, id: &str, function: &Function<'_>) -> bool {
        let same_index =
            self.index.is_none() || function.index.0.is_none() || self.index == function.index.0;
        let same_id = id.is_empty() || id == self.id;
        function.name.or_empty().is_empty() && same_index && same_id
    }
}

impl<'a> Arguments<'a> {
    fn from_function(function: &Function<'a>) -> Result<Option<Self>, Error> {
        match function.arguments.map(RawValue::get) {
            None | Some("null") => Ok(None),
            Some(object) if object.starts_with('{') => Ok(Some(Self::Object(object))),
            Some(other) => match serde_json::from_str(other) {
                Ok(text) => Ok(Some(Self::Text(text))),
                Err(error) => {
                    let message = "the arguments of a tool call are neither an object nor text";
                    Err(protocol_error(message).with_source(error))
                }
            },
        }
    }
}
