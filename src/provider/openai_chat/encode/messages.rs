//! From the items of a history to messages.

use std::borrow::Cow;
use std::mem::take;

use super::blocks::{Call, CallFunction, Content, Message, Part, media_part};
use super::cache::{Cursor, EncodedPrefix, Form, NewMessages};
use super::call_ids::Ids;
use crate::error::Error;
use crate::item::{self, Item, ItemKind, ProviderData, ToolCall, ToolResult};
use crate::provider::encode_context::EncodeContext;
use crate::provider::handoff;
use crate::provider::openai_chat::dialect::{
    Dialect, EmptyContent, ReasoningEcho, SystemPlace, SystemRole,
};
use crate::provider::openai_chat::passthrough::{BLOCKS, DETAILS, EXTRA_FIELDS, THOUGHT_FIELD};
use crate::provider::ordered_fields::Fields;
use crate::provider::portable_values::{
    content_text, has_media, object_or_wrapped, result_text, wire_name,
};

/// What an assistant says where a server wants one between a tool result and the user.
const READ: &str = "I have read the results.";

/// The messages so far. Nothing that was closed is looked at again.
pub(super) struct Messages<'a> {
    dialect: &'a Dialect,
    model: &'a str,
    /// Texts of the assistant and the user are parts, with and without a mark.
    in_parts: bool,
    done: Vec<Message<'a>>,
    /// What is known here, but for the ids.
    cursor: Cursor,
    /// The place up to which all is closed, how many messages are, and what is known there.
    closed: Option<(usize, usize, Cursor)>,
    /// The message of the turn that is being written.
    turn: Option<Message<'a>>,
    /// What the turn thought.
    thought: Cow<'a, str>,
    /// The item before was of a turn that did not complete.
    interrupted: bool,
    /// Images and files of the tool results that are being written.
    media: Vec<Part<'a>>,
    /// How many calls have no result yet.
    open_calls: usize,
    ids: Ids<'a>,
}

impl<'a> Messages<'a> {
    /// Begins at a place, or with nothing.
    pub(super) fn new(
        dialect: &'a Dialect,
        model: &'a str,
        in_parts: bool,
        cursor: &Cursor,
    ) -> Self {
        Self {
            dialect,
            model,
            in_parts,
            done: Vec::new(),
            ids: Ids::new(dialect.ids, cursor.given.clone()),
            cursor: cursor.clone(),
            closed: None,
            turn: None,
            thought: Cow::Borrowed(""),
            interrupted: false,
            media: Vec::new(),
            open_calls: 0,
        }
    }

    /// The messages of a context, the zones of the system prompt where the dialect has them.
    pub(super) fn write(
        mut self,
        context: &'a EncodeContext<EncodedPrefix, Form>,
    ) -> Result<NewMessages<'a>, Error> {
        let (stable, volatile) = (context.stable(), context.volatile());
        let (front, back) = match self.dialect.system_place {
            SystemPlace::Anywhere => (self.instruction([stable, ""]), [volatile, ""]),
            SystemPlace::Front => (self.instruction([stable, volatile]), ["", ""]),
        };
        for (at, item) in context.items() {
            self.push(item)?;
            if self.turn.is_none() && self.media.is_empty() && self.open_calls == 0 {
                let cursor = Cursor { given: self.ids.given.clone(), ..self.cursor.clone() };
                self.closed = Some((at, self.done.len(), cursor));
            }
        }
        self.close();
        let back = self.instruction(back);
        let (messages, closed) = (self.done, self.closed);
        Ok(NewMessages { front, messages, closed, first_is_marked: false, back })
    }

    fn put(&mut self, message: Message<'a>) {
        self.cursor.behind_result = message.role == "tool";
        self.done.push(message);
    }

    /// Instructions in one message, the zones apart from each other; none if they say nothing.
    fn instruction(&self, zones: [&'a str; 2]) -> Option<Message<'a>> {
        let zones = zones.into_iter().filter(|zone| !zone.is_empty());
        let content = match self.in_parts {
            true => Content::Parts(zones.map(Part::text).collect()),
            false => Content::Text(zones.collect::<Vec<_>>().join("\n\n").into()),
        };
        let role = match self.dialect.system_role {
            SystemRole::System => "system",
            SystemRole::Developer => "developer",
        };
        content.says_something().then(|| Message::new(role, content))
    }

    fn push(&mut self, item: &'a Item) -> Result<(), Error> {
        // What was cut off is a message of its own; what comes next does not change it. Nor does
        // another that was cut off: nothing tells where the first ended but its text. But between
        // calls and their results no message may stand.
        let went_on = std::mem::replace(&mut self.interrupted, item.interrupted);
        let ends = |turn: &Message<'_>| match item.interrupted {
            true => turn.content.says_something(),
            false => went_on,
        };
        if self.turn.as_ref().is_some_and(|turn| turn.tool_calls.is_empty() && ends(turn)) {
            self.close_turn();
        }
        let data = handoff(item, self.dialect.name, self.model).data();
        match &item.kind {
            ItemKind::User { content } => self.user(content)?,
            ItemKind::System { text } => {
                self.close();
                match self.dialect.system_place {
                    SystemPlace::Anywhere => {
                        if let Some(message) = self.instruction([text, ""]) {
                            self.put(message);
                        }
                    }
                    SystemPlace::Front => self.speak_as_user(self.spoken(Cow::Borrowed(text))),
                }
            }
            ItemKind::Text { text } => {
                let in_parts = self.in_parts;
                self.turn().content.say(text, in_parts);
            }
            ItemKind::Reasoning { text } => self.think(item, text, data),
            ItemKind::ToolCall(call) => {
                self.open_calls += 1;
                let call = self.call(call, data);
                let calls = &mut self.turn().tool_calls;
                match calls.is_empty() {
                    // Most turns have one.
                    true => *calls = vec![call],
                    false => calls.push(call),
                }
            }
            ItemKind::ToolResult(result) => {
                self.open_calls = self.open_calls.saturating_sub(1);
                self.close_turn();
                self.result(result)?;
            }
            // This wire has no place for them.
            ItemKind::Other => {}
        }
        if item.turn.is_some() {
            self.close_turn();
        }
        Ok(())
    }

    fn user(&mut self, content: &'a item::Content) -> Result<(), Error> {
        self.close();
        let part = |part| media_part(part, self.dialect.media);
        let content = match content {
            item::Content::Parts(parts) if has_media(content) => {
                Content::Parts(parts.iter().map(part).collect::<Result<_, _>>()?)
            }
            content => self.spoken(content_text(content)),
        };
        self.speak_as_user(content);
        Ok(())
    }

    fn speak_as_user(&mut self, content: Content<'a>) {
        self.cursor.in_tool_loop = false;
        self.answer_results();
        self.put(Message::new("user", content));
    }

    fn think(&mut self, item: &Item, text: &'a str, data: Option<&'a ProviderData>) {
        match self.dialect.reasoning_echo {
            ReasoningEcho::None => {}
            // Half of what is signed would be refused.
            ReasoningEcho::AsItCame if item.interrupted => {}
            ReasoningEcho::AsItCame => {
                let Some(data) = data else { return };
                let rare = self.turn().rare();
                for (name, place) in
                    [(DETAILS, &mut rare.reasoning_details), (BLOCKS, &mut rare.thinking_blocks)]
                {
                    *place = place.take().or_else(|| Fields::of_data(data, name));
                }
            }
            ReasoningEcho::ContentInToolLoop => {
                self.turn();
                self.thought += text;
            }
        }
    }

    fn call(&mut self, call: &'a ToolCall, data: Option<&'a ProviderData>) -> Call<'a> {
        let kept = |name: &str| data.and_then(|data| Fields::of_data(data, name));
        let thought = kept(THOUGHT_FIELD).and_then(|raw| serde_json::from_str(raw.get()).ok());
        let thought: Option<String> = thought;
        let [extra_content, provider_specific_fields] = EXTRA_FIELDS.map(kept);
        Call {
            id: self.ids.call(&call.call_id, thought.as_deref()),
            r#type: "function",
            function: CallFunction {
                name: wire_name(&call.name),
                arguments: object_or_wrapped(call),
                provider_specific_fields: kept("function"),
            },
            extra_content,
            provider_specific_fields,
        }
    }

    fn result(&mut self, result: &'a ToolResult) -> Result<(), Error> {
        self.cursor.in_tool_loop = true;
        if let item::Content::Parts(parts) = &result.content {
            for part in parts.iter().filter(|part| part.as_text().is_none()) {
                self.media.push(media_part(part, self.dialect.media)?);
            }
        }
        let mut message = Message::new("tool", Content::Text(result_text(result)));
        message.tool_call_id = Some(self.ids.result(&result.call_id));
        if self.dialect.result_names {
            message.rare().name = Some(wire_name(&result.name));
        }
        self.put(message);
        Ok(())
    }

    fn spoken(&self, text: Cow<'a, str>) -> Content<'a> {
        match self.in_parts {
            true => Content::Parts(vec![Part::text(text)]),
            false => Content::Text(text),
        }
    }

    fn turn(&mut self) -> &mut Message<'a> {
        self.close_media();
        self.turn.get_or_insert_with(|| Message::new("assistant", Content::Absent))
    }

    fn close(&mut self) {
        self.close_turn();
        self.close_media();
    }

    /// An assistant that neither said nor called anything has no message.
    fn close_turn(&mut self) {
        let thought = take(&mut self.thought);
        let Some(mut turn) = self.turn.take() else { return };
        let calls = !turn.tool_calls.is_empty();
        if !turn.content.says_something() {
            turn.content = match self.dialect.empty_content {
                EmptyContent::Null => Content::Null,
                EmptyContent::Empty => Content::Text(Cow::Borrowed("")),
                EmptyContent::Absent => Content::Absent,
            };
            if !calls {
                return;
            }
        }
        let echoes = self.dialect.reasoning_echo == ReasoningEcho::ContentInToolLoop;
        if echoes && (calls || self.cursor.in_tool_loop) {
            turn.rare().reasoning_content = Some(thought);
        }
        self.put(turn);
    }

    fn close_media(&mut self) {
        if !self.media.is_empty() {
            let media = take(&mut self.media);
            self.answer_results();
            self.put(Message::new("user", Content::Parts(media)));
        }
    }

    /// Has an assistant speak before the user does, where a server wants it.
    fn answer_results(&mut self) {
        if self.dialect.assistant_after_results && self.cursor.behind_result {
            let content = self.spoken(Cow::Borrowed(READ));
            self.put(Message::new("assistant", content));
        }
    }
}
