//! Converts the items of a history to the input items of a request.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use super::blocks::{CallOutput, ContentPart, InputItem, content_parts, text_part};
use super::cache::{EncodedPrefix, EncodingKey};
use super::client_tools::ItemOfCall;
use crate::error::Error;
use crate::item::{Item, ItemKind, ProviderData, RawJson, ToolCall, ToolResult};
use crate::provider::codec::encode_context::{
    ClosedElements, EncodeContext, JsonArray, JsonElements,
};
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::codec::portable_values::{
    ServerKind, arguments_as_object, has_media, result_text,
};
use crate::provider::codec::unsupported_part::UnsupportedPart;
use crate::provider::handoff;
use crate::provider::wires::openai_responses::client_calls::{AnsweredCalls, McpApprovalItem};
use crate::provider::wires::openai_responses::passthrough::{
    PROVIDER_NAME, PassthroughItem, ReasoningItem,
};
use crate::request::{ClientTool, ToolNames};

/// Collects the input items written so far. The input is append-only, because an item's encoding
/// depends only on that item and the preceding items.
pub(super) struct InputItems<'a> {
    server: ServerKind,
    tool_names: &'a ToolNames,
    context: &'a RequestContext,
    written: JsonElements,
    /// The last point in the input at which no reasoning is pending: the index of the history item
    /// that follows this point, the number of bytes written before it, and the encoder's state.
    closed_elements: Option<(usize, usize, EncodedPrefix)>,
    /// The reasoning that has not yet been followed by another item. Pending reasoning is dropped
    /// at the end of the turn, because the API reports "Item 'rs_…' of type 'reasoning' was
    /// provided without its required following item".
    pending_reasoning: Vec<(ReasoningItem<'a>, &'a RawJson)>,
    /// The current state of the encoder.
    prefix: EncodedPrefix,
    /// The answers to the items' calls for the client, which are collected when the first such call
    /// is encoded. Most requests contain none.
    answers: OnceCell<ClientAnswers<'a>>,
    /// Whether an approval was added that is not sent again in a later request, unless the response
    /// contains the approved call.
    has_new_approval: bool,
    /// Whether a call for the client was omitted that a later request may contain, because its
    /// answer may still be appended.
    may_be_answered_later: bool,
}

/// The items of a request.
type RequestContext = EncodeContext<EncodedPrefix, EncodingKey>;

/// The answers to calls for the client.
struct ClientAnswers<'a> {
    /// The calls that a later item of the provider answers.
    answered_calls: AnsweredCalls,
    /// The results by the ids of their calls.
    results: HashMap<&'a str, &'a ToolResult>,
    /// The calls whose approvals were sent in an earlier request, because an item of the model
    /// follows.
    sent_approvals: HashSet<&'a str>,
}

impl<'a> InputItems<'a> {
    /// Creates an empty collection for the items of a request that are not encoded yet.
    pub(super) fn new((server, tool_names): &'a EncodingKey, context: &'a RequestContext) -> Self {
        Self {
            server: *server,
            tool_names,
            context,
            written: JsonElements::default(),
            closed_elements: None,
            pending_reasoning: Vec::new(),
            prefix: context.encoder_state().cloned().unwrap_or_default(),
            answers: OnceCell::new(),
            has_new_approval: false,
            may_be_answered_later: false,
        }
    }

    /// Adds an item to the input. `at` is one past the item's index in the history.
    pub(super) fn push(
        &mut self,
        item: &'a Item,
        at: usize,
        model: &str,
        unsupported: UnsupportedPart,
    ) -> Result<(), Error> {
        self.push_item(item, model, unsupported)?;
        let may_change = self.may_be_answered_later || self.has_new_approval;
        if self.pending_reasoning.is_empty() && !may_change {
            self.closed_elements = Some((at, self.written.0.len(), self.prefix.clone()));
        }
        Ok(())
    }

    fn push_item(
        &mut self,
        item: &'a Item,
        model: &str,
        unsupported: UnsupportedPart,
    ) -> Result<(), Error> {
        if std::mem::replace(&mut self.prefix.was_interrupted, item.interrupted) != item.interrupted
        {
            self.end_turn();
        }
        let data = handoff(item, PROVIDER_NAME, model).data();
        match &item.kind {
            ItemKind::User { content } => {
                self.end_turn();
                self.may_be_answered_later = false;
                let parts = content_parts(content, self.server, unsupported)?;
                self.push_message("user", &parts)?;
            }
            ItemKind::System { text } => {
                self.end_turn();
                self.push_instruction(text)?;
            }
            ItemKind::Text { text } => self.push_text(text, data)?,
            ItemKind::Reasoning { .. } => {
                let thought = data
                    .and_then(|data| Some((ReasoningItem::from_provider_data(data)?, &data.value)));
                self.pending_reasoning.extend(thought);
            }
            ItemKind::ToolCall(call) => {
                let issued_id = self.server.issued_call_id(item, PROVIDER_NAME);
                let result = || self.answers().results.get(call.call_id.as_str()).copied();
                let own = data.and_then(|data| {
                    ItemOfCall::read(data, call, result, self.server, issued_id.as_deref())
                });
                match own.filter(|own| self.sends_item(own, call)) {
                    Some(own) => self.push_client_call(own)?,
                    None => self.push_call(call, issued_id, data)?,
                }
            }
            ItemKind::ToolResult(result) => {
                self.end_turn();
                self.push_result(result)?;
            }
            // The API rejects a call without its answer.
            ItemKind::Other
                if data.is_some_and(|data| self.answers().answered_calls.leave_open(data)) =>
            {
                self.may_be_answered_later = true;
            }
            ItemKind::Other => {
                if let Some(data) = data {
                    self.push_provider_item(data)?;
                }
            }
        }
        if item.turn.is_some() {
            self.end_turn();
        }
        Ok(())
    }

    /// Adds an instruction as a `developer` message.
    pub(super) fn push_instruction(&mut self, text: &str) -> Result<(), Error> {
        self.push_message("developer", text_part(text).as_slice())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written.0.is_empty()
    }

    pub(super) fn finish(self) -> JsonArray<EncodedPrefix> {
        let mut array = JsonArray::new("input");
        let mut elements = self.written;
        if let Some((at, size, state)) = self.closed_elements {
            let rest = elements.0.split_off(size.min(elements.0.len()));
            array.closed_elements =
                Some(ClosedElements { end_index: at, encoder_state: state, elements });
            elements = JsonElements(rest);
        }
        array.remaining_elements = elements;
        array
    }

    /// Returns the answers to the items' calls for the client.
    fn answers(&self) -> &ClientAnswers<'a> {
        self.answers.get_or_init(|| {
            let items = || self.context.peek_items_to_encode();
            let results = items().filter_map(Item::as_tool_result);
            ClientAnswers {
                // An interrupted item is not sent.
                answered_calls: AnsweredCalls::of(items().filter(|item| !item.interrupted)),
                results: results.map(|result| (result.call_id.as_str(), result)).collect(),
                sent_approvals: sent_approvals(items()),
            }
        })
    }

    /// Adds an item that only the provider understands. A reference to a request for an approval is
    /// left out if the request was not sent as an item of its own type.
    fn push_provider_item(&mut self, data: &ProviderData) -> Result<(), Error> {
        let requests = &mut self.prefix.approval_requests;
        match McpApprovalItem::read(data) {
            None => {}
            Some(McpApprovalItem::Request(id)) => requests.push(id),
            Some(McpApprovalItem::Call(id) | McpApprovalItem::Response(id))
                if requests.contains(&id) => {}
            Some(McpApprovalItem::Response(_)) => return Ok(()),
            Some(McpApprovalItem::Call(_)) => {
                if let Some(item) = OrderedFields::parse(data.value.as_str()) {
                    self.flush_reasoning()?;
                    return self.written.push(&item.without(&["approval_request_id"]));
                }
            }
        }
        self.flush_reasoning()?;
        self.written.push(&data.value)
    }

    fn push_text(&mut self, text: &str, data: Option<&ProviderData>) -> Result<(), Error> {
        if text.is_empty() {
            return Ok(());
        }
        let stored = data.and_then(|data| self.linked_item(data));
        self.push_linked_or_plain(
            stored.and_then(|stored| stored.into_message(text)),
            &InputItem::Message { role: "assistant", content: &[ContentPart::OutputText { text }] },
        )
    }

    fn push_call(
        &mut self,
        call: &ToolCall,
        issued_id: Option<String>,
        data: Option<&ProviderData>,
    ) -> Result<(), Error> {
        let id = self.prefix.issued_ids.call_id(call, issued_id);
        let name = self.tool_names.sent_name(&call.name);
        let arguments = arguments_as_object(call);
        let stored = data.and_then(|data| self.linked_item(data));
        self.push_linked_or_plain(
            stored.and_then(|stored| stored.into_call(&id, &name, &arguments)),
            &InputItem::FunctionCall { call_id: &id, name: &name, arguments: &arguments },
        )
    }

    /// Adds the pending reasoning and then `linked`, an item with its stored fields. If `linked` is
    /// `None`, drops the pending reasoning and adds `plain`.
    fn push_linked_or_plain(
        &mut self,
        linked: Option<OrderedFields<'_>>,
        plain: &InputItem<'_>,
    ) -> Result<(), Error> {
        match linked {
            Some(item) => {
                self.flush_reasoning()?;
                self.written.push(&item)
            }
            None => {
                self.pending_reasoning.clear();
                self.written.push(plain)
            }
        }
    }

    /// Returns whether the call of a client tool is sent as an item of its own type. An approval is
    /// not sent again if the response contains items but not the approved call, because the call
    /// may have run.
    fn sends_item(&self, own: &ItemOfCall<'_>, call: &ToolCall) -> bool {
        let id = call.call_id.as_str();
        let may_run_twice = own.is_approval()
            && self.answers().sent_approvals.contains(id)
            && !self.answers().answered_calls.contains(id);
        !may_run_twice && own.can_be_sent(self.is_linked(&own.stored))
    }

    /// Adds the call of a client tool as an item of its own type.
    fn push_client_call(&mut self, call: ItemOfCall<'_>) -> Result<(), Error> {
        let is_linked = self.is_linked(&call.stored);
        self.has_new_approval |= call.is_approval() && !self.is_answer_final(call.call_id());
        match is_linked {
            true => self.flush_reasoning()?,
            false => self.pending_reasoning.clear(),
        }
        if call.is_approval() {
            self.prefix.approval_requests.push(call.call_id().to_owned());
        }
        let Some((item, open_call)) = call.into_item(is_linked) else { return Ok(()) };
        self.prefix.open_client_calls.push(open_call);
        self.written.push(&item)
    }

    /// Returns whether the answer to a request for an approval is the same in all later requests.
    fn is_answer_final(&self, id: &str) -> bool {
        let ClientAnswers { results, sent_approvals, .. } = self.answers();
        let is_denied = results.get(id).is_some_and(|result| !ClientTool::is_approved(result));
        is_denied || sent_approvals.contains(id)
    }

    fn push_result(&mut self, result: &ToolResult) -> Result<(), Error> {
        let open = &mut self.prefix.open_client_calls;
        if let Some(at) = open.iter().position(|call| call.is_answered_by(result)) {
            let call = open.swap_remove(at);
            return self.written.push(&call.answer(result, self.server));
        }
        let output = match has_media(&result.content) {
            true => CallOutput::Parts(content_parts(
                &result.content,
                self.server,
                UnsupportedPart::IN_TOOL_RESULTS,
            )?),
            false => CallOutput::Text(result_text(result)),
        };
        let id = self.prefix.issued_ids.result_id(&result.call_id);
        self.written.push(&InputItem::FunctionCallOutput { call_id: &id, output })
    }

    /// Returns an item's stored fields if they are linked to the preceding reasoning item. The API
    /// rejects an item that is sent with an id but without the linked reasoning item.
    fn linked_item<'d>(&self, data: &'d ProviderData) -> Option<PassthroughItem<'d>> {
        PassthroughItem::from_provider_data(data).filter(|stored| self.is_linked(stored))
    }

    /// Returns whether a stored item is linked to the preceding reasoning item, or to none.
    fn is_linked(&self, stored: &PassthroughItem<'_>) -> bool {
        let waiting = self.pending_reasoning.last().map(|(thought, _)| thought.id());
        let before = waiting.or(self.prefix.last_reasoning_id.as_deref());
        stored.after.as_deref() == before
    }

    fn flush_reasoning(&mut self) -> Result<(), Error> {
        for (thought, item) in std::mem::take(&mut self.pending_reasoning) {
            self.written.push(item)?;
            self.prefix.last_reasoning_id = Some(thought.id().to_owned());
        }
        Ok(())
    }

    fn end_turn(&mut self) {
        self.pending_reasoning.clear();
        self.prefix.last_reasoning_id = None;
    }

    /// Adds a message, unless it is empty.
    fn push_message(
        &mut self,
        role: &'static str,
        content: &[ContentPart<'_>],
    ) -> Result<(), Error> {
        match content {
            [] => Ok(()),
            content => self.written.push(&InputItem::Message { role, content }),
        }
    }
}

/// Returns the calls with approvals that an item of the model follows.
fn sent_approvals<'a>(items: impl Iterator<Item = &'a Item>) -> HashSet<&'a str> {
    let (mut sent, mut new) = (HashSet::new(), Vec::new());
    for item in items {
        match &item.kind {
            ItemKind::ToolResult(result) if ClientTool::is_approved(result) => {
                new.push(&*result.call_id);
            }
            ItemKind::Text { .. }
            | ItemKind::Reasoning { .. }
            | ItemKind::ToolCall(_)
            | ItemKind::Other => sent.extend(new.drain(..)),
            ItemKind::User { .. } | ItemKind::System { .. } | ItemKind::ToolResult(_) => {}
        }
    }
    sent
}
