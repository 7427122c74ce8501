//! Encodes events as chunks of a UI message stream.

use serde_json::json;

use super::approval_group::approval_group_id;
use super::chunk::{Chunk, DataChunk, EndMetadata, MessagePart, StartMetadata};
use super::version::Version;
use crate::error::Error;
use crate::event::{AppendReason, EndReason, Event, Outcome, RewriteReason, ToolEvent};
use crate::item::{Content, Item, Part, PendingCall, RawJson, ResultKind, ToolCall, ToolResult};
use crate::provider::{Citation, citations};
use crate::small_map::SmallMap;
use crate::turn::{StopReason, Turn, TurnEvent};
use crate::ui::error_texts::ErrorTexts;
use crate::ui::frame::{write_data, write_keep_alive};
use crate::ui::message_name::MessageName;
use crate::ui::nested_run::{NestedRun, call_path};
use crate::ui::partial_sender::{PartialSender, SentPartial};
use crate::ui::response::EncodeEvents;
use crate::ui::stored_file::stored_file_text;
use crate::ui::stored_items::appended_item_id;

/// Encodes a run's events as a single message.
#[derive(Clone, Debug, Default)]
pub(super) struct AiSdkEncoder {
    pub(super) version: Version,
    pub(super) has_typed_tools: bool,
    pub(super) error_texts: ErrorTexts,
    pub(super) name: MessageName,
    /// Whether the client already has this message, which contains the calls that this run resumes.
    pub(super) continues: bool,
    pub(super) partials: Option<PartialSender>,
    pub(super) state: MessageState,
}

/// The state of the message, based on the chunks that have been sent so far.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageState {
    has_started: bool,
    step: Step,
    /// The number of turns started so far.
    turn: u32,
    /// Whether the last turn is complete and no new turn has started.
    is_between_turns: bool,
    open_parts: Vec<OpenPart>,
    calls: SmallMap<String, Call>,
    /// The calls in the turn that is currently streaming.
    streamed_calls: Vec<String>,
    /// Whether the most recent step that the client received contains a call.
    has_calls_in_step: bool,
    nested_runs: SmallMap<String, NestedRun>,
    /// The calls that are awaiting approval.
    requests: Vec<PendingCall>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Closed,
    Empty,
    Filled,
}

/// Text or reasoning that has not ended yet.
#[derive(Clone, Debug)]
struct OpenPart {
    kind: PartKind,
    index: u32,
    id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartKind {
    Text,
    Reasoning,
}

/// A call that was sent to the client.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    /// Whether approval was requested for this call.
    was_asked: bool,
}

impl EncodeEvents for AiSdkEncoder {
    fn begin(&mut self, out: &mut Vec<u8>) {
        // A comment is sent immediately, so that the client receives the response's head.
        write_keep_alive(out);
    }

    fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        if let Some(partials) = &mut self.partials {
            let ended = partials.observe(event);
            self.send_partials(ended, out);
        }
        let shown = self.error_texts.event(event);
        match shown.as_ref().unwrap_or(event) {
            Event::Turn(event) => self.turn_event(event, out),
            Event::Tool(event) => self.tool_event(event, out),
            Event::Nested { call_id, name, event } => {
                self.nested_event(vec![call_id], name, event, out);
            }
            Event::TurnStarted { model, .. } => self.begin_turn(Some(model), out),
            Event::Appended { .. } if !self.state.has_started => self.name.observe(event),
            Event::Appended { why: AppendReason::Steer | AppendReason::FollowUp, id, items } => {
                self.steered(id, items, out);
            }
            // Removing reasoning that the provider refused changes nothing that the client shows.
            Event::Rewritten { why: RewriteReason::ReasoningRefused, .. } => {}
            event @ Event::Rewritten { why, from, to, .. } if event.is_rewrite() => {
                let data = json!({ "why": why, "from": from, "to": to });
                self.push_data_part("data-compacted", data, out);
            }
            Event::Finished(outcome) => self.finished(outcome, out),
            Event::Appended { .. }
            | Event::Rewritten { .. }
            | Event::HelperUsage { .. }
            | Event::Continued { .. }
            | Event::Unknown => {}
        }
    }

    fn encode_idle(&mut self, out: &mut Vec<u8>) {
        let growing = self.partials.as_mut().map(PartialSender::growing);
        self.send_partials(growing.unwrap_or_default(), out);
    }

    fn is_last(&self, event: &Event) -> bool {
        matches!(event, Event::Finished(_))
    }

    fn end(&mut self, error: Option<&Error>, out: &mut Vec<u8>) {
        if let Some(error) = error {
            let text = self.error_texts.error(error).to_string();
            let ended = self.partials.as_mut().map(PartialSender::end_early);
            self.send_partials(ended.unwrap_or_default(), out);
            self.close(out);
            write_data(out, &Chunk::Error { error_text: &text });
            let finish_reason = self.finish_reason("error");
            write_data(out, &Chunk::Finish { finish_reason, message_metadata: None });
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn keep_alive(&self, out: &mut Vec<u8>) {
        write_keep_alive(out);
    }
}

/// Encodes the events of a turn.
impl AiSdkEncoder {
    fn turn_event(&mut self, event: &TurnEvent, out: &mut Vec<u8>) {
        match event {
            TurnEvent::TextDelta { index, text } | TurnEvent::RefusalDelta { index, text } => {
                let id = self.open_part(PartKind::Text, *index, out);
                write_data(out, &Chunk::TextDelta { id, delta: text });
            }
            TurnEvent::ReasoningDelta { index, text, .. } => {
                let id = self.open_part(PartKind::Reasoning, *index, out);
                write_data(out, &Chunk::ReasoningDelta { id, delta: text });
            }
            TurnEvent::ToolCallStart { call_id, name } => {
                self.begin_content(out);
                self.announce(call_id, name, out);
                self.state.streamed_calls.push(call_id.clone());
            }
            TurnEvent::ToolCallArgsDelta { call_id, delta } => {
                if self.state.calls.get(call_id.as_str()).is_some() {
                    let (tool_call_id, input_text_delta) = (call_id.as_str(), delta.as_str());
                    write_data(out, &Chunk::ToolInputDelta { tool_call_id, input_text_delta });
                }
            }
            TurnEvent::Retrying { attempt, delay_ms, error } => {
                let error = error.to_string();
                let data = json!({ "attempt": attempt, "delayMs": delay_ms, "error": error });
                self.push_data_part("data-retry", data, out);
            }
            TurnEvent::Retracted { why, .. } => self.retracted(why, out),
            TurnEvent::TurnComplete { turn } => self.turn_complete(turn, out),
            TurnEvent::ToolCallEnd { .. } | TurnEvent::UsageUpdate { .. } => {}
        }
    }

    fn start(&mut self, model: Option<&str>, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.state.has_started, true) {
            let id = self.name.to_id();
            let message_metadata = model.map(|model| StartMetadata { model });
            write_data(out, &Chunk::Start { message_id: id.as_deref(), message_metadata });
        }
    }

    fn begin_turn(&mut self, model: Option<&str>, out: &mut Vec<u8>) {
        self.start(model, out);
        self.close_parts(out);
        self.state.turn += 1;
        self.state.is_between_turns = false;
        if self.state.step == Step::Filled {
            write_data(out, &Chunk::FinishStep);
        }
        if self.state.step != Step::Empty {
            write_data(out, &Chunk::StartStep);
        }
        self.state.step = Step::Empty;
        self.state.has_calls_in_step = false;
    }

    /// Starts a turn for the content that follows, unless a turn is already open.
    fn begin_content(&mut self, out: &mut Vec<u8>) {
        if self.state.is_between_turns || self.state.step == Step::Closed {
            self.begin_turn(None, out);
        }
        self.state.step = Step::Filled;
    }

    /// Returns the id of a part of the message, starting the part first if it is new.
    fn open_part(&mut self, kind: PartKind, index: u32, out: &mut Vec<u8>) -> &str {
        let is_it = |part: &OpenPart| part.kind == kind && part.index == index;
        let at = match self.state.open_parts.iter().position(is_it) {
            Some(at) => at,
            None => {
                self.begin_content(out);
                let turn = self.state.turn;
                let id = match kind {
                    PartKind::Text => format!("t{turn}.{index}"),
                    PartKind::Reasoning => format!("r{turn}.{index}"),
                };
                match kind {
                    PartKind::Text => write_data(out, &Chunk::TextStart { id: &id }),
                    PartKind::Reasoning => write_data(out, &Chunk::ReasoningStart { id: &id }),
                }
                self.state.open_parts.push(OpenPart { kind, index, id });
                self.state.open_parts.len() - 1
            }
        };
        &self.state.open_parts[at].id
    }

    fn close_parts(&mut self, out: &mut Vec<u8>) {
        for OpenPart { kind, id, .. } in self.state.open_parts.drain(..) {
            match kind {
                PartKind::Text => write_data(out, &Chunk::TextEnd { id: &id }),
                PartKind::Reasoning => write_data(out, &Chunk::ReasoningEnd { id: &id }),
            }
        }
    }

    fn announce(&mut self, call_id: &str, name: &str, out: &mut Vec<u8>) {
        let (dynamic, name) = (!self.has_typed_tools, name.to_owned());
        let chunk = Chunk::ToolInputStart { tool_call_id: call_id, tool_name: &name, dynamic };
        write_data(out, &chunk);
        let call = Call { name, was_asked: false };
        self.state.calls.insert(call_id.to_owned(), call);
        self.state.has_calls_in_step = true;
    }

    fn turn_complete(&mut self, turn: &Turn, out: &mut Vec<u8>) {
        self.close_parts(out);
        for call in turn.tool_calls() {
            self.complete_call(call, out);
        }
        let why = match turn.stop_reason() {
            StopReason::Interrupted => "the turn was interrupted",
            _ => "the model retracted it",
        };
        self.withdraw_calls(why, out);
        let sources = cited_pages(turn.items());
        for (source, number) in sources.iter().zip(0..) {
            self.begin_content(out);
            let id = format!("s{}.{number}", self.state.turn);
            write_data(out, &source_chunk(&id, source));
        }
        self.state.is_between_turns = true;
    }

    fn complete_call(&mut self, call: &ToolCall, out: &mut Vec<u8>) {
        let (tool_call_id, tool_name) = (call.call_id.as_str(), call.name.as_str());
        if !self.state.streamed_calls.contains(&call.call_id) {
            self.begin_content(out);
            self.announce(tool_call_id, tool_name, out);
        }
        let dynamic = !self.has_typed_tools;
        match RawJson::parse(call.arguments_or_empty_object()) {
            Ok(input) => {
                let chunk = Chunk::ToolInputAvailable { tool_call_id, tool_name, input, dynamic };
                write_data(out, &chunk);
            }
            Err(error) => {
                let text = format!("the arguments are not JSON: {error}");
                self.input_error(
                    tool_call_id,
                    tool_name,
                    text_to_json(&call.arguments),
                    &text,
                    out,
                );
            }
        }
        self.state.streamed_calls.retain(|streamed| *streamed != call.call_id);
    }

    fn input_error(&self, id: &str, name: &str, input: RawJson, text: &str, out: &mut Vec<u8>) {
        let (tool_call_id, tool_name, error_text) = (id, name, text);
        let dynamic = !self.has_typed_tools;
        if self.version == Version::V5 {
            let chunk = Chunk::ToolInputAvailable { tool_call_id, tool_name, input, dynamic };
            write_data(out, &chunk);
            write_data(out, &Chunk::ToolOutputError { tool_call_id, error_text, dynamic });
        } else {
            let chunk =
                Chunk::ToolInputError { tool_call_id, tool_name, input, error_text, dynamic };
            write_data(out, &chunk);
        }
    }

    /// Withdraws the calls that are currently streaming, because they will not be made.
    fn withdraw_calls(&mut self, why: &str, out: &mut Vec<u8>) {
        for call_id in std::mem::take(&mut self.state.streamed_calls) {
            let Some(call) = self.state.calls.get_mut(call_id.as_str()) else { continue };
            let name = std::mem::take(&mut call.name);
            self.input_error(&call_id, &name, RawJson::from(serde_json::Value::Null), why, out);
        }
    }

    fn retracted(&mut self, why: &str, out: &mut Vec<u8>) {
        if self.state.step != Step::Filled {
            return;
        }
        self.close_parts(out);
        if self.version >= Version::V7 {
            self.state.streamed_calls.clear();
            write_data(out, &Chunk::ResetStep);
        } else {
            self.withdraw_calls("the turn was retracted", out);
            let id = format!("turn-{}", self.state.turn);
            let (data, transient) = (json!({ "why": why }), false);
            let kind = "data-retracted";
            write_data(out, &DataChunk { kind, id: Some(&id), data, transient });
            write_data(out, &Chunk::FinishStep);
            write_data(out, &Chunk::StartStep);
            // The next attempt to produce the turn needs its own ids.
            self.state.turn += 1;
        }
        self.state.step = Step::Empty;
    }
}

/// Returns the citations of pages in a turn, one for each page.
pub(super) fn cited_pages<'a>(items: impl IntoIterator<Item = &'a Item>) -> Vec<Citation> {
    let mut pages: Vec<Citation> = Vec::new();
    for citation in items.into_iter().flat_map(citations) {
        if citation.url.is_some() && !pages.iter().any(|page| page.url == citation.url) {
            pages.push(citation);
        }
    }
    pages
}

/// Returns the part that names a cited page.
pub(super) fn source_chunk<'a>(source_id: &'a str, source: &'a Citation) -> Chunk<'a> {
    let (url, title) = (source.url.as_deref().unwrap_or_default(), source.title.as_deref());
    Chunk::SourceUrl { source_id, url, title }
}

/// Encodes events from tools.
impl AiSdkEncoder {
    fn tool_event(&mut self, event: &ToolEvent, out: &mut Vec<u8>) {
        match event {
            ToolEvent::ApprovalRequested(call) => self.ask(call, out),
            ToolEvent::Started { call_id, .. } => self.verdict(&[], call_id, true, out),
            ToolEvent::Progress { call_id, name, data } => {
                let data = json!({ "toolName": name, "progress": data });
                self.part("data-progress", call_id, data, out);
            }
            ToolEvent::Output(result) => self.output(result, out),
            ToolEvent::Nested { call_id, name, event } => {
                self.nested_event(vec![call_id], name, event, out);
            }
            // Approval of the sub-agent's pending calls was already requested, or the calls are
            // part of the outcome.
            ToolEvent::Suspended { .. }
            | ToolEvent::GrantAdded { .. }
            | ToolEvent::GrantRevoked { .. } => {}
        }
    }

    /// Returns whether chunks for this call may be sent.
    fn is_known(&self, call_id: &str) -> bool {
        self.continues || self.state.calls.get(call_id).is_some()
    }

    /// Requests approval of a call. Because the client does not know the calls of sub-agents,
    /// approval of all of a sub-agent's calls is requested on the tool call that started the
    /// sub-agent. A data part describes each of the sub-agent's calls.
    fn ask(&mut self, call: &PendingCall, out: &mut Vec<u8>) {
        let root = call.root_call_id();
        if !self.is_known(root) {
            return;
        }
        if self.version == Version::V5 || !call.path.is_empty() {
            let input = call_input(&call.to_tool_call());
            let id = call.approval_id.as_str();
            let data = json!({
                "approvalId": id, "toolCallId": root, "toolName": call.name, "input": input,
            });
            self.part("data-approval", id, data, out);
        }
        self.state.requests.push(call.clone());
        if let Some(known) = self.state.calls.get_mut(root) {
            known.was_asked = true;
        }
        self.request_approval(root, out);
    }

    /// Requests approval of all calls with this root call that are awaiting approval. The client
    /// replaces an earlier request for the same root call.
    fn request_approval(&mut self, root: &str, out: &mut Vec<u8>) {
        if self.version > Version::V5 {
            self.start(None, out);
            let approval_id = &approval_group_id(root, &self.state.requests);
            write_data(out, &Chunk::ToolApprovalRequest { approval_id, tool_call_id: root });
        }
    }

    /// Records the verdict on a call. If other calls of the same sub-agent are still awaiting
    /// approval, their approval is requested anew, and a single answer is sent after the last
    /// verdict.
    fn verdict(&mut self, path: &[&str], call_id: &str, approved: bool, out: &mut Vec<u8>) {
        let is_it = |request: &PendingCall| {
            request.call_id == call_id && request.path.iter().eq(path.iter().copied())
        };
        let requests = &mut self.state.requests;
        let Some(at) = requests.iter().position(is_it) else { return };
        let root = path.first().copied().unwrap_or(call_id);
        let approval_id = &approval_group_id(root, &*requests);
        requests.remove(at);
        if requests.iter().any(|request| request.root_call_id() == root) {
            self.request_approval(root, out);
        } else if self.version >= Version::V7 {
            write_data(out, &Chunk::ToolApprovalResponse { approval_id, approved });
        }
    }

    fn output(&mut self, result: &ToolResult, out: &mut Vec<u8>) {
        let (tool_call_id, dynamic) = (result.call_id.as_str(), !self.has_typed_tools);
        if !self.is_known(tool_call_id) {
            return;
        }
        self.start(None, out);
        let is_denied = result.kind == ResultKind::Denied;
        if is_denied {
            self.verdict(&[], tool_call_id, false, out);
        }
        let call = self.state.calls.get(tool_call_id);
        let was_asked = call.is_none_or(|call| call.was_asked);
        if !result.is_error() {
            let output = content_to_json(&result.content);
            write_data(out, &Chunk::ToolOutputAvailable { tool_call_id, output, dynamic });
        } else if is_denied && was_asked && self.version > Version::V5 {
            write_data(out, &Chunk::ToolOutputDenied { tool_call_id });
        } else {
            let text = result.content.text();
            let error_text = if text.is_empty() { result.kind.as_str() } else { &text };
            write_data(out, &Chunk::ToolOutputError { tool_call_id, error_text, dynamic });
        }
    }

    /// Encodes an event from a sub-agent, which runs as the last call in the path.
    fn nested_event<'a>(
        &mut self,
        mut path: Vec<&'a str>,
        name: &'a str,
        event: &'a Event,
        out: &mut Vec<u8>,
    ) {
        let root = path[0];
        if !self.is_known(root) {
            return;
        }
        match event {
            Event::Nested { call_id, name, event } => {
                path.push(call_id);
                return self.nested_event(path, name, event, out);
            }
            Event::Tool(ToolEvent::ApprovalRequested(call)) => {
                let path = path.iter().map(|&id| id.to_owned()).collect();
                self.ask(&PendingCall { path, ..(**call).clone() }, out);
            }
            Event::Tool(ToolEvent::Started { call_id, .. }) => {
                self.verdict(&path, call_id, true, out);
            }
            Event::Tool(ToolEvent::Output(result)) if result.kind == ResultKind::Denied => {
                self.verdict(&path, &result.call_id, false, out);
            }
            _ => {}
        }
        // Invariant: the path contains at least the call that runs the outermost sub-agent.
        let Some((call_id, parents)) = path.split_last() else { return };
        let id = call_path(parents, call_id);
        if self.state.nested_runs.get(id.as_str()).is_none() {
            self.state.nested_runs.insert(id.clone(), NestedRun::new(name));
        }
        let Some(run) = self.state.nested_runs.get_mut(id.as_str()) else { return };
        if run.observe(event) {
            let data = json!(run);
            self.part("data-agent", &id, data, out);
        }
    }
}

/// Encodes data parts and the run's end.
impl AiSdkEncoder {
    /// Writes a data part. The client replaces any earlier part that has the same id.
    fn part(&mut self, kind: &'static str, id: &str, data: serde_json::Value, out: &mut Vec<u8>) {
        self.start(None, out);
        write_data(out, &DataChunk { kind, id: Some(id), data, transient: false });
    }

    fn send_partials(&mut self, partials: Vec<SentPartial>, out: &mut Vec<u8>) {
        for partial in partials {
            self.part("data-partial", &partial.id(), partial.to_json("toolCallId"), out);
        }
    }

    /// Writes data that does not become part of the message.
    fn push_data_part(&mut self, kind: &'static str, data: serde_json::Value, out: &mut Vec<u8>) {
        self.start(None, out);
        write_data(out, &DataChunk { kind, id: None, data, transient: true });
    }

    fn steered(&mut self, id: &str, items: &[Item], out: &mut Vec<u8>) {
        for (index, content) in items.iter().filter_map(Item::as_user).enumerate() {
            let id = &appended_item_id(id, index);
            if self.version >= Version::V7 {
                write_data(out, &Chunk::SteeringMessage { id, parts: content_to_parts(content) });
            } else {
                self.part("data-steer", id, json!({ "text": content.text() }), out);
            }
        }
    }

    fn finished(&mut self, outcome: &Outcome, out: &mut Vec<u8>) {
        self.close(out);
        let usage = outcome.usage + *outcome.nested_usage;
        let metadata = EndMetadata {
            reason: outcome.reason.as_str(),
            why: outcome.why.as_deref(),
            turns: outcome.turns,
            usage: usage.into(),
            cost: outcome.total_cost(),
        };
        let failure = match (&outcome.error, outcome.reason) {
            (Some(error), _) => Some(error.to_string()),
            (None, EndReason::Malformed) => {
                Some("the model's replies could not be used".to_owned())
            }
            (None, _) => None,
        };
        if let Some(text) = failure {
            // Clients ignore everything after an error, so the metadata is sent first.
            write_data(out, &Chunk::MessageMetadata { message_metadata: metadata });
            write_data(out, &Chunk::Error { error_text: &text });
            let finish_reason = self.finish_reason("error");
            write_data(out, &Chunk::Finish { finish_reason, message_metadata: None });
            return;
        }
        let has_calls = match self.state.turn {
            0 => self.continues,
            _ => self.state.has_calls_in_step,
        };
        if has_calls && outcome.reason != EndReason::Pending {
            // If the message did not end with an empty step, a client whose last step contains only
            // results would keep sending requests.
            write_data(out, &Chunk::StartStep);
            write_data(out, &Chunk::FinishStep);
        }
        if matches!(outcome.reason, EndReason::Interrupted(_)) {
            write_data(out, &Chunk::Abort);
        }
        let reason = match (outcome.reason, &outcome.unknown_stop_reason) {
            (EndReason::Completed, Some(_)) => "other",
            (reason, _) => finish_reason(reason, self.version),
        };
        let finish_reason = self.finish_reason(reason);
        write_data(out, &Chunk::Finish { finish_reason, message_metadata: Some(metadata) });
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        self.start(None, out);
        self.close_parts(out);
        self.withdraw_calls("the run ended", out);
        if self.state.step != Step::Closed {
            write_data(out, &Chunk::FinishStep);
            self.state.step = Step::Closed;
        }
    }

    fn finish_reason(&self, reason: &'static str) -> Option<&'static str> {
        (self.version > Version::V5).then_some(reason)
    }
}

fn finish_reason(reason: EndReason, version: Version) -> &'static str {
    match reason {
        EndReason::Completed => "stop",
        EndReason::MaxTurns
        | EndReason::Truncated
        | EndReason::ContextWindow
        | EndReason::Budget => "length",
        EndReason::Refused | EndReason::Filtered => "content-filter",
        EndReason::Pending => "tool-calls",
        EndReason::Interrupted(_) if version >= Version::V7 => "interrupted",
        EndReason::ProviderError
        | EndReason::Incomplete
        | EndReason::Malformed
        | EndReason::HookError => "error",
        EndReason::Interrupted(_)
        | EndReason::Stopped
        | EndReason::StopHookPrevented
        | EndReason::Repeating
        | EndReason::Blocked
        | EndReason::Unproven
        | EndReason::Other => "other",
    }
}

/// Returns a call's arguments as JSON. Arguments that are not valid JSON become a string.
pub(super) fn call_input(call: &ToolCall) -> RawJson {
    RawJson::parse(call.arguments_or_empty_object())
        .unwrap_or_else(|_| text_to_json(&call.arguments))
}

fn text_to_json(text: &str) -> RawJson {
    RawJson::new(text).unwrap_or_else(|_| serde_json::Value::Null.into())
}

/// Converts content into JSON. Text that is a JSON object or array is kept unchanged, any other
/// text becomes a string, and parts become a list.
pub(super) fn content_to_json(content: &Content) -> RawJson {
    match content {
        Content::Text(text) if text.trim_start().starts_with(['{', '[']) => {
            RawJson::parse(text).unwrap_or_else(|_| text_to_json(text))
        }
        Content::Text(text) => text_to_json(text),
        Content::Parts(parts) => {
            RawJson::new(parts).unwrap_or_else(|_| text_to_json(&content.text()))
        }
    }
}

pub(super) fn content_to_parts(content: &Content) -> Vec<MessagePart<'_>> {
    match content {
        Content::Text(text) => vec![MessagePart::Text { text: text.as_str().into() }],
        Content::Parts(parts) => parts
            .iter()
            .map(|part| match part {
                Part::Text { text } => MessagePart::Text { text: text.as_str().into() },
                Part::Image(media) | Part::File(media) => match media.to_url() {
                    Some(url) => MessagePart::File { media_type: &media.media_type, url },
                    None => MessagePart::Text { text: stored_file_text(media).into() },
                },
            })
            .collect(),
    }
}
