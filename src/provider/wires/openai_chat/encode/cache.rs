//! Serializes messages, and caches the bytes of messages that can no longer change.

use super::blocks::{Instructions, Message};
use super::call_ids::AssignedIds;
use crate::error::Error;
use crate::provider::codec::body::serialization_error;
use crate::provider::codec::cache_control::CacheControl;
use crate::provider::codec::encode_context::{ClosedElements, JsonArray, JsonElements};
use crate::provider::wires::openai_chat::dialect::Dialect;
use crate::request::ToolNames;

/// The settings that determine, together with the items, how a message is encoded: the dialect, the
/// names of the tools, and whether text is sent as content parts.
pub(super) type EncodingKey = (Dialect, ToolNames, bool);

/// The encoder state after the messages that are already encoded.
#[derive(Clone, Default)]
pub(super) struct EncodedPrefix {
    pub(super) cursor: WriteCursor,
    /// Whether any encoded message contains tool calls.
    pub(super) has_calls: bool,
    /// The byte offset at which the cache marker is inserted if no later message can hold the
    /// marker. The cached bytes do not include the marker.
    cache_mark_offset: Option<usize>,
}

/// The encoder state at a point in the history where no turn is open, every call has a result, and
/// no media are pending.
#[derive(Clone, Default)]
pub(super) struct WriteCursor {
    /// Whether a tool result has been written since the last user message.
    pub(super) in_tool_loop: bool,
    /// Whether the last message is a tool result.
    pub(super) follows_result: bool,
    /// The call ids assigned so far.
    pub(super) assigned_ids: AssignedIds,
}

/// The messages that follow the cached prefix of a context.
pub(super) struct NewMessages<'a> {
    /// The message that contains the instructions that precede the items, if any.
    pub(super) leading_instructions: Option<Instructions<'a>>,
    /// The messages for the new items.
    pub(super) messages: Vec<Message<'a>>,
    /// The boundary after the messages that can no longer change. The tuple contains the item index
    /// at the boundary, the number of messages before it, and the encoder state at the boundary.
    pub(super) closed_elements: Option<(usize, usize, WriteCursor)>,
    /// Whether the first message contains the cache marker for the end of the stable zone.
    pub(super) is_first_marked: bool,
    /// The message that contains the instructions that follow the items, if any.
    pub(super) trailing_instructions: Option<Instructions<'a>>,
}

impl NewMessages<'_> {
    /// Serializes the messages after the cached prefix. `known` is the encoder state after the
    /// prefix, which is `before` bytes long. A cache marker is added to the newest message that can
    /// hold a marker.
    pub(super) fn into_array(
        mut self,
        known: &EncodedPrefix,
        before: usize,
        mark: Option<CacheControl>,
    ) -> Result<JsonArray<EncodedPrefix>, Error> {
        let mut array = JsonArray::new("messages");
        if let Some(front) = &self.leading_instructions {
            array.leading_elements.push(front)?;
        }
        let count = self.closed_elements.as_ref().map_or(0, |(_, count, _)| *count);
        let rest = self.messages.split_off(count.min(self.messages.len()));
        let called = known.has_calls || self.messages.iter().any(Message::has_calls);
        let mut closed = JsonElements::default();
        let mut mark_at = known.cache_mark_offset;
        let place = encode_messages(self.messages, 0, &mut closed, mark)?;
        mark_at = place.map(|at| before + at).or(mark_at);
        let begins = before + closed.0.len();
        if let Some((at, _, cursor)) = self.closed_elements {
            let state = EncodedPrefix { cursor, has_calls: called, cache_mark_offset: mark_at };
            array.closed_elements =
                Some(ClosedElements { end_index: at, encoder_state: state, elements: closed });
        }
        let place = encode_messages(
            rest,
            usize::from(self.is_first_marked),
            &mut array.remaining_elements,
            mark,
        )?;
        mark_at = place.map(|at| begins + at).or(mark_at);
        if let Some(back) = &self.trailing_instructions {
            array.remaining_elements.push(back)?;
        }
        if let (Some(at), Some(mark)) = (mark_at, mark) {
            let mut field = br#","cache_control":"#.to_vec();
            serde_json::to_writer(&mut field, &mark).map_err(serialization_error)?;
            array.insertion = Some((at, field));
        }
        Ok(array)
    }
}

/// Appends messages to `elements`. Returns the byte offset at which a cache marker is to be
/// inserted into the newest message that can hold a marker. The first `marked` messages are not
/// considered for the marker.
fn encode_messages(
    messages: Vec<Message<'_>>,
    marked: usize,
    elements: &mut JsonElements,
    mark: Option<CacheControl>,
) -> Result<Option<usize>, Error> {
    let mut newest = None;
    for (at, mut message) in messages.into_iter().enumerate() {
        let begins = elements.0.len();
        elements.push(&message)?;
        if mark.is_some() && at >= marked && message.accepts_cache_mark() {
            newest = Some((begins, elements.0.len(), message));
        }
    }
    let (Some((begins, ends, mut message)), Some(mark)) = (newest, mark) else { return Ok(None) };
    if let Some(place) = message.content.cache_control_slots().next_back() {
        *place = Some(mark);
    }
    let mut marked = JsonElements::default();
    marked.push(&message)?;
    let plain = elements.0.get(begins..ends).unwrap_or_default();
    let same = plain.iter().zip(&marked.0).take_while(|(plain, marked)| plain == marked).count();
    Ok(Some(begins + same))
}
