//! Converts a history's items to messages.

use std::borrow::Cow;
use std::mem::take;

use super::blocks::{
    Call, CallFunction, Content, InstructionContent, InstructionPart, Instructions, Message, Part,
    media_part,
};
use super::cache::{EncodedPrefix, EncodingKey, NewMessages, WriteCursor};
use super::call_ids::CallIdMap;
use crate::error::Error;
use crate::item::{self, Item, ItemKind, ProviderData, ToolCall, ToolResult};
use crate::provider::codec::encode_context::{EncodeContext, SystemZone};
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::codec::portable_values::{
    arguments_as_object, content_text, has_media, issued_call_id, result_text,
};
use crate::provider::codec::unsupported_part::{PartOrText, UnsupportedPart, append_paragraph};
use crate::provider::handoff;
use crate::provider::wires::openai_chat::dialect::{
    Dialect, EmptyContent, ReasoningEcho, SystemPosition,
};
use crate::provider::wires::openai_chat::passthrough::{
    CALL_EXTRA_FIELDS, REASONING_DETAILS_FIELD, SIGNATURE_FIELD, THINKING_BLOCKS_FIELD,
};
use crate::request::ToolNames;

/// The text of the assistant message that is inserted between a tool result and a user message if
/// the dialect requires such a message.
const RESULTS_ACKNOWLEDGEMENT: &str = "I have read the results.";

/// Accumulates the encoded messages. Once a message is complete, the encoder does not read it
/// again.
pub(super) struct Messages<'a> {
    dialect: &'a Dialect,
    model: &'a str,
    tool_names: &'a ToolNames,
    /// Whether the text of assistant and user messages is sent as content parts even if a message
    /// has no cache marker.
    uses_parts: bool,
    written: Vec<Message<'a>>,
    /// The current state of the encoder, except for the assigned call ids.
    cursor: WriteCursor,
    /// The boundary after the messages that can no longer change. The tuple contains the item index
    /// at the boundary, the number of messages before it, and the encoder state at the boundary.
    closed_elements: Option<(usize, usize, WriteCursor)>,
    /// The assistant message for the current turn.
    open_turn: Option<Message<'a>>,
    /// Reasoning from the current turn that has not yet been added to a message.
    pending_reasoning: Cow<'a, str>,
    /// Whether the previous item was interrupted.
    was_interrupted: bool,
    /// The images and files from the tool results that are being written.
    result_media: Vec<Part<'a>>,
    /// The number of calls that have no result yet.
    open_call_count: usize,
    call_ids: CallIdMap<'a>,
}

impl<'a> Messages<'a> {
    /// Creates the state for adding messages at `cursor`, the end of the cached prefix.
    pub(super) fn new(
        dialect: &'a Dialect,
        model: &'a str,
        tool_names: &'a ToolNames,
        in_parts: bool,
        cursor: &WriteCursor,
    ) -> Self {
        Self {
            dialect,
            model,
            tool_names,
            uses_parts: in_parts,
            written: Vec::new(),
            call_ids: CallIdMap::new(dialect.call_id_rule, cursor.assigned_ids.clone()),
            cursor: cursor.clone(),
            closed_elements: None,
            open_turn: None,
            pending_reasoning: Cow::Borrowed(""),
            was_interrupted: false,
            result_media: Vec::new(),
            open_call_count: 0,
        }
    }

    /// Encodes a context's items, with the zones of the system prompt at the positions that the
    /// dialect specifies.
    pub(super) fn write(
        mut self,
        context: &'a EncodeContext<EncodedPrefix, EncodingKey>,
    ) -> Result<NewMessages<'a>, Error> {
        let stable = SystemZone::Stable(context.stable_system());
        let volatile = SystemZone::Volatile(context.volatile_system());
        let (front, back) = match self.dialect.system_position {
            SystemPosition::Anywhere => (vec![stable], vec![volatile]),
            SystemPosition::Front => (vec![stable, volatile], Vec::new()),
        };
        let (front, back) = (self.instruction_message(front), self.instruction_message(back));
        for (at, item) in context.items_to_encode() {
            self.push(item, context.unsupported_part(at))?;
            if self.open_turn.is_none() && self.result_media.is_empty() && self.open_call_count == 0
            {
                let cursor = WriteCursor {
                    assigned_ids: self.call_ids.assigned_ids.clone(),
                    ..self.cursor.clone()
                };
                self.closed_elements = Some((at, self.written.len(), cursor));
            }
        }
        self.close_turn_and_media();
        let (messages, closed) = (self.written, self.closed_elements);
        Ok(NewMessages {
            leading_instructions: front,
            messages,
            closed_elements: closed,
            is_first_marked: false,
            trailing_instructions: back,
        })
    }

    fn push_message(&mut self, message: Message<'a>) {
        self.cursor.follows_result = message.role == "tool";
        self.written.push(message);
    }

    /// Creates a message that contains the given zones as separate paragraphs or parts. Returns
    /// `None` if all zones are blank.
    fn instruction_message(&self, mut zones: Vec<SystemZone<'a>>) -> Option<Instructions<'a>> {
        if zones.iter().all(|zone| zone.is_blank()) {
            return None;
        }
        zones.retain(|zone| !zone.as_str().is_empty());
        let content = match (self.uses_parts, &zones[..]) {
            (true, _) => {
                InstructionContent::Parts(zones.into_iter().map(InstructionPart::new).collect())
            }
            (false, [zone]) => InstructionContent::Zone(*zone),
            (false, _) => {
                let texts: Vec<&str> = zones.into_iter().map(SystemZone::as_str).collect();
                InstructionContent::Joined(texts.join("\n\n"))
            }
        };
        Some(Instructions { role: self.dialect.system_role, content })
    }

    fn push(&mut self, item: &'a Item, unsupported: UnsupportedPart) -> Result<(), Error> {
        // An interrupted item forms a separate message, which later items do not change. Two
        // consecutive interrupted items form two messages if the first item contains text. However,
        // no message may come between calls and their results.
        let went_on = std::mem::replace(&mut self.was_interrupted, item.interrupted);
        let ends = |turn: &Message<'_>| match item.interrupted {
            true => turn.content.has_content(),
            false => went_on,
        };
        if self.open_turn.as_ref().is_some_and(|turn| turn.tool_calls.is_empty() && ends(turn)) {
            self.close_turn();
        }
        let data = handoff(item, self.dialect.name, self.model).data();
        match &item.kind {
            ItemKind::User { content } => self.push_user(content, unsupported)?,
            ItemKind::System { text } => {
                self.close_turn_and_media();
                match self.dialect.system_position {
                    SystemPosition::Anywhere => {
                        let content = self.text_content(Cow::Borrowed(text));
                        if content.has_content() {
                            self.push_message(Message::new(self.dialect.system_role, content));
                        }
                    }
                    SystemPosition::Front => {
                        self.push_user_content(self.text_content(Cow::Borrowed(text)));
                    }
                }
            }
            ItemKind::Text { text } => {
                let in_parts = self.uses_parts;
                self.open_turn().content.append_text(text, in_parts);
            }
            ItemKind::Reasoning { text } => self.push_reasoning(item, text, data),
            ItemKind::ToolCall(call) => {
                if self.open_call_count == 0 {
                    self.call_ids.start_turn();
                }
                self.open_call_count += 1;
                let issued_id = issued_call_id(item, self.dialect.name);
                let call = self.encode_call(call, issued_id, data);
                let calls = &mut self.open_turn().tool_calls;
                match calls.is_empty() {
                    // Most turns have a single call.
                    true => *calls = vec![call],
                    false => calls.push(call),
                }
            }
            ItemKind::ToolResult(result) => {
                self.open_call_count = self.open_call_count.saturating_sub(1);
                self.close_turn();
                self.push_result(result)?;
            }
            // The API has no way to represent provider-specific items.
            ItemKind::Other => {}
        }
        if item.turn.is_some() {
            self.close_turn();
        }
        Ok(())
    }

    fn push_user(
        &mut self,
        content: &'a item::Content,
        unsupported: UnsupportedPart,
    ) -> Result<(), Error> {
        self.close_turn_and_media();
        let content = match content {
            item::Content::Parts(parts) if has_media(content) => {
                self.mixed_content(parts, unsupported)?
            }
            content => self.text_content(content_text(content)),
        };
        self.push_user_content(content);
        Ok(())
    }

    /// Encodes content that contains images or files. If all of them are replaced by text, the
    /// content is text, because the server may not accept a list of parts.
    fn mixed_content(
        &self,
        parts: &'a [item::Part],
        unsupported: UnsupportedPart,
    ) -> Result<Content<'a>, Error> {
        let (mut encoded, mut text) = (Vec::with_capacity(parts.len()), String::new());
        let (mut has_media, mut follows_description) = (false, false);
        for part in parts {
            if let Some(own) = part.as_text() {
                match take(&mut follows_description) {
                    true => append_paragraph(&mut text, own),
                    false => text.push_str(own),
                }
                encoded.push(Part::text(own));
                continue;
            }
            match unsupported.apply(part, media_part(part, self.dialect))? {
                PartOrText::Part(media) => {
                    has_media = true;
                    encoded.push(media);
                }
                PartOrText::Text(description) => {
                    append_paragraph(&mut text, &description);
                    follows_description = true;
                    encoded.push(Part::text(description));
                }
            }
        }
        Ok(match has_media {
            true => Content::Parts(encoded),
            false => self.text_content(text.into()),
        })
    }

    fn push_user_content(&mut self, content: Content<'a>) {
        self.cursor.in_tool_loop = false;
        self.acknowledge_results();
        self.push_message(Message::new("user", content));
    }

    fn push_reasoning(&mut self, item: &Item, text: &'a str, data: Option<&'a ProviderData>) {
        match self.dialect.reasoning_echo {
            ReasoningEcho::None => {}
            // Servers reject truncated reasoning with a signature, and a turn that was interrupted
            // does not continue.
            ReasoningEcho::Verbatim | ReasoningEcho::ContentInToolLoop if item.interrupted => {}
            ReasoningEcho::Verbatim => {
                let Some(data) = data else { return };
                let rare = self.open_turn().rare_fields_mut();
                for (name, place) in [
                    (REASONING_DETAILS_FIELD, &mut rare.reasoning_details),
                    (THINKING_BLOCKS_FIELD, &mut rare.thinking_blocks),
                ] {
                    *place =
                        place.take().or_else(|| OrderedFields::provider_data_field(data, name));
                }
            }
            ReasoningEcho::ContentInToolLoop => {
                self.open_turn();
                self.pending_reasoning += text;
            }
        }
    }

    fn encode_call(
        &mut self,
        call: &'a ToolCall,
        issued_id: Option<String>,
        data: Option<&'a ProviderData>,
    ) -> Call<'a> {
        let stored =
            |name: &str| data.and_then(|data| OrderedFields::provider_data_field(data, name));
        let thought = stored(SIGNATURE_FIELD).and_then(|raw| serde_json::from_str(raw.get()).ok());
        let thought: Option<String> = thought;
        let [extra_content, provider_specific_fields] = CALL_EXTRA_FIELDS.map(stored);
        Call {
            id: self.call_ids.call_id(&call.call_id, issued_id, thought.as_deref()),
            r#type: "function",
            function: CallFunction {
                name: self.tool_names.sent_name(&call.name),
                arguments: arguments_as_object(call),
                provider_specific_fields: stored("function"),
            },
            extra_content,
            provider_specific_fields,
        }
    }

    fn push_result(&mut self, result: &'a ToolResult) -> Result<(), Error> {
        self.cursor.in_tool_loop = true;
        let mut text = result_text(result);
        if let item::Content::Parts(parts) = &result.content {
            for part in parts.iter().filter(|part| part.as_text().is_none()) {
                let encoded = media_part(part, self.dialect);
                match UnsupportedPart::IN_TOOL_RESULTS.apply(part, encoded)? {
                    PartOrText::Part(media) => self.result_media.push(media),
                    PartOrText::Text(description) => {
                        append_paragraph(text.to_mut(), &description);
                    }
                }
            }
        }
        let mut message = Message::new("tool", Content::Text(text));
        message.tool_call_id = Some(self.call_ids.result_id(&result.call_id));
        if self.dialect.names_results {
            message.rare_fields_mut().name = Some(self.tool_names.sent_name(&result.name));
        }
        self.push_message(message);
        Ok(())
    }

    fn text_content(&self, text: Cow<'a, str>) -> Content<'a> {
        match self.uses_parts {
            true => Content::Parts(vec![Part::text(text)]),
            false => Content::Text(text),
        }
    }

    fn open_turn(&mut self) -> &mut Message<'a> {
        self.close_media();
        self.open_turn.get_or_insert_with(|| Message::new("assistant", Content::Absent))
    }

    fn close_turn_and_media(&mut self) {
        self.close_turn();
        self.close_media();
    }

    /// Ends the current turn. A turn that has neither text nor calls produces no message.
    fn close_turn(&mut self) {
        let thought = take(&mut self.pending_reasoning);
        let Some(mut turn) = self.open_turn.take() else { return };
        let calls = !turn.tool_calls.is_empty();
        if !turn.content.has_content() {
            turn.content = match self.dialect.empty_content {
                EmptyContent::Null => Content::Null,
                EmptyContent::EmptyString => Content::Text(Cow::Borrowed("")),
                EmptyContent::Absent => Content::Absent,
            };
            if !calls {
                return;
            }
        }
        let echoes = self.dialect.reasoning_echo == ReasoningEcho::ContentInToolLoop;
        if echoes && (calls || self.cursor.in_tool_loop) {
            turn.rare_fields_mut().reasoning_content = Some(thought);
        }
        self.push_message(turn);
    }

    fn close_media(&mut self) {
        if !self.result_media.is_empty() {
            let media = take(&mut self.result_media);
            self.acknowledge_results();
            self.push_message(Message::new("user", Content::Parts(media)));
        }
    }

    /// Inserts an assistant message between a tool result and a user message if the dialect
    /// requires such a message.
    fn acknowledge_results(&mut self) {
        if self.dialect.requires_assistant_after_results && self.cursor.follows_result {
            let content = self.text_content(Cow::Borrowed(RESULTS_ACKNOWLEDGEMENT));
            self.push_message(Message::new("assistant", content));
        }
    }
}
