//! From messages to the bytes of a body, of which those that cannot change are remembered.

use super::blocks::Message;
use super::call_ids::AssignedIds;
use crate::error::Error;
use crate::provider::body::serialization_error;
use crate::provider::cache_control::CacheControl;
use crate::provider::encode_context::{ClosedElements, JsonArray, JsonElements};
use crate::provider::openai_chat::dialect::Dialect;

/// What a message depends on beside the items: the dialect, and whether texts are parts.
pub(super) type EncodingKey = (Dialect, bool);

/// What is known of the messages that are encoded.
#[derive(Clone, Default)]
pub(super) struct EncodedPrefix {
    pub(super) cursor: WriteCursor,
    /// One of them has calls.
    pub(super) has_calls: bool,
    /// Where in their bytes the mark goes, if it stands on none of those that follow. Their bytes
    /// are without it.
    cache_mark_offset: Option<usize>,
}

/// What is known where no turn, no call and no medium is open.
#[derive(Clone, Default)]
pub(super) struct WriteCursor {
    /// A tool has answered and the user has not spoken since.
    pub(super) in_tool_loop: bool,
    /// The newest message answers a call.
    pub(super) follows_result: bool,
    /// The ids that were given out.
    pub(super) assigned_ids: AssignedIds,
}

/// The messages of a context, as far as they were not encoded before.
pub(super) struct NewMessages<'a> {
    /// The instructions before the items, where there are any.
    pub(super) leading_instructions: Option<Message<'a>>,
    /// Those of the items.
    pub(super) messages: Vec<Message<'a>>,
    /// The place up to which all is closed, how many messages are, and what is known there.
    pub(super) closed_elements: Option<(usize, usize, WriteCursor)>,
    /// The first of the messages is marked as the end of the stable zone.
    pub(super) is_first_marked: bool,
    /// The instructions behind the items, where there are any.
    pub(super) trailing_instructions: Option<Message<'a>>,
}

impl NewMessages<'_> {
    /// Encodes them behind those that are `known`, which are `before` bytes. A mark is put on the
    /// newest message that it can stand on.
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

/// Adds messages, and gives the place in the bytes where a mark goes that stands on the newest.
/// None can stand on the first of them, as many as are `marked`.
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
