//! Encodes this crate's events as AG-UI events.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::content::content_to_json;
use super::event::{AgUiEvent, Interrupt, Outcome, SubagentOutcome, TokenUsage};
use super::lane::Lane;
use super::request::RunRequest;
use super::tombstones::remove_tombstones;
use crate::error::{Error, ErrorKind};
use crate::event::{AppendReason, EndReason, Event, RewriteReason, ToolEvent};
use crate::item::{Item, PendingCall, ToolResult, escape_call_id, join_call_id};
use crate::session::Session;
use crate::turn::{StopReason, Turn, TurnEvent};
use crate::ui::error_texts::ErrorTexts;
use crate::ui::frame::{write_data, write_keep_alive};
use crate::ui::message_name::message_id;
use crate::ui::nested_run::call_path;
use crate::ui::partial_sender::{PartialSender, SentPartial};
use crate::ui::response::EncodeEvents;

/// Encodes a run's events as AG-UI events.
#[derive(Clone, Debug, Default)]
pub(super) struct AgUiEncoder {
    thread_id: String,
    run_id: String,
    parent_run_id: Option<String>,
    pub(super) error_texts: ErrorTexts,
    /// The session whose entry numbers are used as message ids. Without a session, message ids are
    /// based on `message_count`.
    pub(super) session: Option<Session>,
    /// All complete messages, from both the client and this run.
    messages: Vec<Value>,
    root: Lane,
    nested: Vec<Lane>,
    /// The number of messages whose ids were assigned without a session.
    message_count: u64,
    withdrawn_count: u64,
    step: Option<String>,
    turn: u32,
    /// The ids of the requests for approval.
    approval_ids: HashSet<String>,
    /// The requested models, without duplicates.
    models: Vec<String>,
    pub(super) partials: Option<SharedPartials>,
}

impl AgUiEncoder {
    pub(super) fn new(request: &RunRequest) -> Self {
        Self {
            thread_id: request.thread_id.clone(),
            run_id: request.run_id.clone(),
            parent_run_id: request.input.parent_run_id.clone(),
            messages: request.input.messages.clone(),
            root: Lane::new(String::new(), None),
            ..Self::default()
        }
    }
}

impl EncodeEvents for AgUiEncoder {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let event = AgUiEvent::RunStarted {
            thread_id: &self.thread_id,
            run_id: &self.run_id,
            protocol_version: "1.0",
            parent_run_id: self.parent_run_id.as_deref(),
        };
        write_data(out, &event);
    }

    fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        if let Some(partials) = &mut self.partials {
            let ended = partials.sender.observe(event);
            self.send_partials(ended, out);
        }
        let shown = self.error_texts.event(event);
        match shown.as_ref().unwrap_or(event) {
            Event::Nested { call_id, name, event } => {
                self.nested_event("", call_id, name, event, out);
            }
            Event::TurnStarted { model, .. } => {
                if !self.models.contains(model) {
                    self.models.push(model.clone());
                }
                self.begin_turn(out);
            }
            Event::Appended { why, items, .. } => self.appended(*why, items, out),
            // Removing reasoning that the provider refused changes nothing that the client shows.
            Event::Rewritten { why: RewriteReason::ReasoningRefused, .. } => {}
            event @ Event::Rewritten { why, from, items, .. } if event.is_rewrite() => {
                if *why == RewriteReason::Tombstoned {
                    let history = self.session.as_ref().map(Session::history);
                    remove_tombstones(&mut self.messages, history.as_ref(), *from, items);
                }
                self.snapshot_with(Vec::new(), out);
            }
            Event::Turn(event) => {
                if self.root.is_between_turns && begins_content(event) {
                    self.begin_turn(out);
                }
                let mut lane = std::mem::take(&mut self.root);
                self.turn_event(&mut lane, event, out);
                self.root = lane;
            }
            Event::Tool(event) => {
                let mut lane = std::mem::take(&mut self.root);
                self.tool_event(&mut lane, event, out);
                self.root = lane;
            }
            Event::Finished(outcome) => self.finished(outcome, out),
            Event::Rewritten { .. }
            | Event::HelperUsage { .. }
            | Event::Continued { .. }
            | Event::Unknown => {}
        }
    }

    fn encode_idle(&mut self, out: &mut Vec<u8>) {
        let growing = self.partials.as_mut().map(|partials| partials.sender.growing());
        self.send_partials(growing.unwrap_or_default(), out);
    }

    fn is_last(&self, event: &Event) -> bool {
        matches!(event, Event::Finished(_))
    }

    fn end(&mut self, error: Option<&Error>, out: &mut Vec<u8>) {
        if let Some(error) = error {
            let ended = self.partials.as_mut().map(|partials| partials.sender.end_early());
            self.send_partials(ended.unwrap_or_default(), out);
            self.close(out);
            write_error(&self.error_texts.error(error), Vec::new(), out);
        }
    }

    fn keep_alive(&self, out: &mut Vec<u8>) {
        write_keep_alive(out);
    }
}

/// The values that have not ended, as a part of the state that is shared with the client.
#[derive(Clone, Debug)]
pub(super) struct SharedPartials {
    pub(super) sender: PartialSender,
    /// The client's own state, until the first value is sent.
    pub(super) client_state: Option<Map<String, Value>>,
}

impl AgUiEncoder {
    /// Sends values as members of `partials` in the shared state.
    fn send_partials(&mut self, partials: Vec<SentPartial>, out: &mut Vec<u8>) {
        let Some(shared) = &mut self.partials else { return };
        for partial in partials {
            let (name, value) = (partial.id(), partial.to_json("toolCallId"));
            if let Some(mut snapshot) = shared.client_state.take() {
                snapshot.insert("partials".to_owned(), json!({ name: value }));
                write_data(out, &AgUiEvent::StateSnapshot { snapshot: snapshot.into() });
                continue;
            }
            let path = format!("/partials/{}", name.replace('~', "~0").replace('/', "~1"));
            let delta = json!([{ "op": "add", "path": path, "value": value }]);
            write_data(out, &AgUiEvent::StateDelta { delta });
        }
    }
}

fn begins_content(event: &TurnEvent) -> bool {
    matches!(
        event,
        TurnEvent::TextDelta { .. }
            | TurnEvent::RefusalDelta { .. }
            | TurnEvent::ReasoningDelta { .. }
            | TurnEvent::ToolCallStart { .. }
            | TurnEvent::TurnComplete { .. }
    )
}

/// Encodes events from turns and tools, for the run itself or for a sub-agent.
impl AgUiEncoder {
    fn begin_turn(&mut self, out: &mut Vec<u8>) {
        self.root.close(out);
        self.finish_step(out);
        self.turn += 1;
        let step_name = format!("turn-{}", self.turn);
        write_data(out, &AgUiEvent::StepStarted { step_name: &step_name });
        self.step = Some(step_name);
        let id = self.next_message_id(0);
        self.root.begin_turn(id);
    }

    fn finish_step(&mut self, out: &mut Vec<u8>) {
        if let Some(step_name) = self.step.take() {
            write_data(out, &AgUiEvent::StepFinished { step_name: &step_name });
        }
    }

    /// Returns a message id. If there is a session, the id is based on the number of the entry that
    /// is `before` positions before the next entry.
    fn next_message_id(&mut self, before: u64) -> String {
        match &self.session {
            Some(session) => message_id(session.id(), session.version().saturating_sub(before)),
            None => {
                self.message_count += 1;
                message_id(&self.run_id, self.message_count)
            }
        }
    }

    fn turn_event(&mut self, lane: &mut Lane, event: &TurnEvent, out: &mut Vec<u8>) {
        match event {
            TurnEvent::TextDelta { text, .. } | TurnEvent::RefusalDelta { text, .. } => {
                lane.text(text, out);
            }
            TurnEvent::ReasoningDelta { index, text, .. } => lane.reasoning(*index, text, out),
            TurnEvent::ToolCallStart { call_id, name } => lane.call_start(call_id, name, out),
            TurnEvent::ToolCallArgsDelta { call_id, delta } => lane.call_args(call_id, delta, out),
            TurnEvent::ToolCallEnd { call_id } => lane.call_end(call_id, out),
            TurnEvent::TurnComplete { turn } => self.turn_complete(lane, turn, out),
            TurnEvent::Retracted { .. } => {
                lane.close(out);
                // The calls' answers are removed together with the calls.
                let count = self.messages.len();
                self.withdraw(lane, &[], "the turn was retracted", out);
                self.messages.truncate(count);
                let emptied: Vec<Value> = lane.emptied_reasoning().collect();
                let message_id = std::mem::take(&mut lane.message_id);
                lane.begin_turn(message_id);
                self.snapshot_with(emptied, out);
            }
            TurnEvent::Retrying { attempt, delay_ms, error } => {
                let error = error.to_string();
                let value = json!({ "attempt": attempt, "delayMs": delay_ms, "error": error });
                write_data(out, &AgUiEvent::Custom { name: "retrying", value });
            }
            TurnEvent::UsageUpdate { .. } => {}
        }
    }

    fn turn_complete(&mut self, lane: &mut Lane, turn: &Turn, out: &mut Vec<u8>) {
        for call in turn
            .tool_calls()
            .filter(|call| !lane.has_call(&call.call_id))
            .cloned()
            .collect::<Vec<_>>()
        {
            lane.call_start(&call.call_id, &call.name, out);
            lane.call_args(&call.call_id, &call.arguments, out);
        }
        lane.close(out);
        self.messages.extend(lane.messages());
        let remaining: Vec<String> =
            turn.tool_calls().map(|call| lane.call_id(&call.call_id)).collect();
        let why = match turn.stop_reason() {
            StopReason::Interrupted => "the turn was interrupted",
            _ => "the model retracted it",
        };
        self.withdraw(lane, &remaining, why, out);
        lane.is_between_turns = true;
    }

    /// Sends a result for each withdrawn call, because a client would otherwise treat the call as
    /// pending. Calls whose ids are in `kept` are not withdrawn.
    fn withdraw(&mut self, lane: &Lane, remaining: &[String], why: &str, out: &mut Vec<u8>) {
        for tool_call_id in lane.call_ids_without(remaining) {
            self.withdrawn_count += 1;
            let message_id = format!("withdrawn-{}-{tool_call_id}", self.withdrawn_count);
            let metadata = json!({ "is_error": true, "kind": "interrupted" });
            self.result(lane, &message_id, &tool_call_id, &why.into(), Some(metadata), out);
        }
    }

    fn tool_event(&mut self, lane: &mut Lane, event: &ToolEvent, out: &mut Vec<u8>) {
        match event {
            ToolEvent::ApprovalRequested(call) => {
                let id = lane.call_id(&call.call_id);
                let value = json!({
                    "approvalId": call.approval_id, "toolCallId": id,
                    "toolCallName": call.name, "arguments": call.arguments,
                });
                write_data(out, &AgUiEvent::Custom { name: "approval_requested", value });
                self.approval_ids.insert(call.approval_id.clone());
            }
            ToolEvent::Progress { call_id, name, data } => {
                let id = lane.call_id(call_id);
                let event = AgUiEvent::ActivitySnapshot {
                    message_id: &format!("progress-{id}"),
                    activity_type: "tool_progress",
                    content: json!({ "toolCallId": id, "toolCallName": name, "progress": data }),
                };
                lane.write(event, out);
            }
            ToolEvent::Output(result) => {
                self.end_nested(
                    &lane.call_id(&result.call_id),
                    result.is_error().then_some("it failed"),
                    out,
                );
                self.output(lane, result, out);
            }
            ToolEvent::Nested { call_id, name, event } => {
                let path = lane.path.clone();
                self.nested_event(&path, call_id, name, event, out);
            }
            ToolEvent::Suspended { call_id, pending, .. } => {
                let path = lane.call_id(call_id);
                self.suspend_nested(&path, approval_ids(pending), out);
            }
            ToolEvent::Started { .. }
            | ToolEvent::GrantAdded { .. }
            | ToolEvent::GrantRevoked { .. } => {}
        }
    }

    fn output(&mut self, lane: &Lane, result: &ToolResult, out: &mut Vec<u8>) {
        let tool_call_id = lane.call_id(&result.call_id);
        // The result of a client's own tool is already among the messages that the client sent.
        if self.messages.iter().any(|message| message["toolCallId"] == tool_call_id.as_str()) {
            return;
        }
        let message_id = match lane.path.is_empty() {
            // The result's entry was written before the event was yielded.
            true => self.next_message_id(1),
            false => format!("{}:result-{}", self.run_id, tool_call_id),
        };
        let content = content_to_json(&result.content);
        let metadata = json!({ "is_error": true, "kind": result.kind.as_str() });
        let metadata = result.is_error().then_some(metadata);
        self.result(lane, &message_id, &tool_call_id, &content, metadata, out);
    }

    fn result(
        &mut self,
        lane: &Lane,
        message_id: &str,
        tool_call_id: &str,
        content: &Value,
        metadata: Option<Value>,
        out: &mut Vec<u8>,
    ) {
        let event = AgUiEvent::ToolCallResult {
            message_id,
            tool_call_id,
            content,
            role: "tool",
            metadata: metadata.as_ref(),
        };
        lane.write(event, out);
        let mut message = json!({
            "id": message_id, "role": "tool", "toolCallId": tool_call_id, "content": content,
        });
        if let Some(metadata) = metadata {
            message["metadata"] = metadata;
        }
        self.messages.push(lane.tagged(message));
    }
}

/// Encodes events from sub-agents.
impl AgUiEncoder {
    fn nested_event(
        &mut self,
        parent: &str,
        call_id: &str,
        name: &str,
        event: &Event,
        out: &mut Vec<u8>,
    ) {
        let path = match parent.is_empty() {
            true => escape_call_id(call_id).into_owned(),
            false => join_call_id(parent, call_id),
        };
        let at = self.nested_lane(parent, &path, name, out);
        if self.nested[at].has_ended {
            return;
        }
        match event {
            Event::Nested { call_id, name, event } => {
                return self.nested_event(&path, call_id, name, event, out);
            }
            Event::Finished(outcome) => {
                let error = outcome.error.as_ref().map(ToString::to_string);
                return match outcome.reason {
                    EndReason::Pending => {
                        self.suspend_nested(&path, approval_ids(&outcome.pending), out);
                    }
                    _ => self.end_nested(&path, error.as_deref(), out),
                };
            }
            _ => {}
        }
        let mut lane = std::mem::take(&mut self.nested[at]);
        match event {
            Event::TurnStarted { .. } => self.begin_nested_turn(&mut lane, out),
            Event::Turn(event) => {
                if lane.is_between_turns && begins_content(event) {
                    self.begin_nested_turn(&mut lane, out);
                }
                self.turn_event(&mut lane, event, out);
            }
            Event::Tool(event) => self.tool_event(&mut lane, event, out),
            _ => {}
        }
        self.nested[at] = lane;
    }

    fn begin_nested_turn(&mut self, lane: &mut Lane, out: &mut Vec<u8>) {
        lane.close(out);
        lane.turn += 1;
        lane.begin_turn(format!("{}/{}:{}", self.run_id, lane.path, lane.turn));
    }

    /// Returns the index of the [`Lane`] that tracks a sub-agent. The sub-agent's first event
    /// creates the `Lane`.
    fn nested_lane(&mut self, parent: &str, path: &str, name: &str, out: &mut Vec<u8>) -> usize {
        if let Some(at) = self.nested.iter().position(|lane| lane.path == path) {
            return at;
        }
        let tag = format!("{}/{path}", self.run_id);
        let parent_tag = format!("{}/{parent}", self.run_id);
        let event = AgUiEvent::SubagentStarted {
            subagent_run_id: &tag,
            name,
            parent_tool_call_id: path,
            parent_subagent_run_id: (!parent.is_empty()).then_some(&parent_tag),
        };
        write_data(out, &event);
        self.nested.push(Lane::new(path.to_owned(), Some(tag)));
        self.nested.len() - 1
    }

    /// Ends the sub-agent at `path`, after ending any sub-agents that are nested in it.
    fn end_nested(&mut self, path: &str, error: Option<&str>, out: &mut Vec<u8>) {
        self.end_lanes(path, error.map_or(Ok(SubagentOutcome::Success), Err), out);
    }

    fn suspend_nested(&mut self, path: &str, interrupt_ids: Vec<String>, out: &mut Vec<u8>) {
        self.end_lanes(path, Ok(SubagentOutcome::Suspended { interrupt_ids }), out);
    }

    fn end_lanes(&mut self, path: &str, outcome: Result<SubagentOutcome, &str>, out: &mut Vec<u8>) {
        let prefix = format!("{path}/");
        let is_inner = |lane: &&Lane| !lane.has_ended && lane.path.starts_with(&prefix);
        let inner = self.nested.iter().rev().filter(is_inner).map(|lane| lane.path.clone());
        for path in inner.collect::<Vec<_>>() {
            self.end_lane(&path, Err("the run ended"), out);
        }
        self.end_lane(path, outcome, out);
    }

    fn end_lane(&mut self, path: &str, outcome: Result<SubagentOutcome, &str>, out: &mut Vec<u8>) {
        let is_it = |lane: &Lane| lane.path == path && !lane.has_ended;
        let Some(at) = self.nested.iter().position(is_it) else { return };
        let mut lane = std::mem::take(&mut self.nested[at]);
        lane.has_ended = true;
        self.close_lane(&mut lane, out);
        let subagent_run_id = lane.tag.as_deref().unwrap_or_default();
        let event = match outcome {
            Ok(outcome) => AgUiEvent::SubagentFinished { subagent_run_id, outcome },
            Err(message) => AgUiEvent::SubagentError { subagent_run_id, message },
        };
        write_data(out, &event);
        self.nested[at] = lane;
    }

    /// Ends a [`Lane`]'s current turn, which may be incomplete.
    fn close_lane(&mut self, lane: &mut Lane, out: &mut Vec<u8>) {
        lane.close(out);
        if !std::mem::replace(&mut lane.is_between_turns, true) {
            self.messages.extend(lane.messages());
            self.withdraw(lane, &[], "the run ended", out);
        }
    }
}

/// Encodes the run's messages and the end of the run.
impl AgUiEncoder {
    fn appended(&mut self, why: AppendReason, items: &[Item], out: &mut Vec<u8>) {
        if !matches!(why, AppendReason::Steer | AppendReason::FollowUp) {
            return;
        }
        let count = items.len() as u64;
        for (at, item) in items.iter().enumerate() {
            let Some(content) = item.as_user() else { continue };
            // The entries of the items are followed by one that states their source.
            let id = self.next_message_id(count - at as u64 + 1);
            let (message_id, delta) = (id.as_str(), &*content.text());
            write_data(out, &AgUiEvent::TextMessageStart { message_id, role: "user" });
            // A message may consist only of files.
            if !delta.is_empty() {
                write_data(out, &AgUiEvent::TextMessageContent { message_id, delta });
            }
            write_data(out, &AgUiEvent::TextMessageEnd { message_id });
            self.messages.push(json!({ "id": message_id, "role": "user", "content": delta }));
        }
    }

    /// Sends all messages, including unfinished messages from sub-agents.
    fn snapshot_with(&self, emptied: Vec<Value>, out: &mut Vec<u8>) {
        let mut messages = self.messages.clone();
        for lane in self.nested.iter().filter(|lane| !lane.is_between_turns) {
            messages.extend(lane.messages());
        }
        messages.extend(emptied);
        write_data(out, &AgUiEvent::MessagesSnapshot { messages });
    }

    fn finished(&mut self, outcome: &crate::event::Outcome, out: &mut Vec<u8>) {
        self.close(out);
        let models = std::mem::take(&mut self.models);
        let model = match models.as_slice() {
            [model] => Some(model.as_str()),
            _ => None,
        };
        let mut usage = vec![TokenUsage::new(model, outcome.usage)];
        if outcome.nested_usage.total() > 0 {
            usage.push(TokenUsage::new(None, *outcome.nested_usage));
        }
        if let Some(error) = &outcome.error {
            return write_error(error, usage, out);
        }
        if outcome.reason == EndReason::Malformed {
            let error = Error::new(ErrorKind::Malformed, "the model's replies could not be used");
            return write_error(&error, usage, out);
        }
        let result = json!({
            "reason": outcome.reason.as_str(), "why": outcome.why, "turns": outcome.turns,
        });
        let (outcome, result) = match outcome.reason {
            EndReason::Interrupted(_) | EndReason::Stopped => (Some(Outcome::Cancelled), None),
            EndReason::Pending => {
                let is_approval =
                    |call: &PendingCall| self.approval_ids.contains(&call.approval_id);
                match interrupts(&outcome.pending, is_approval) {
                    // By AG-UI 1.0, a run that stops on calls to the client's tools ends with the
                    // outcome `success` or without one, but not with `interrupt`. Some clients take
                    // `success` for the end of the work, whereas all derive the pending calls from
                    // the stream.
                    none if none.is_empty() => (None, Some(result)),
                    interrupts => (Some(Outcome::Interrupt { interrupts }), None),
                }
            }
            _ => (Some(Outcome::Success), Some(result)),
        };
        let (thread_id, run_id) = (self.thread_id.as_str(), self.run_id.as_str());
        write_data(out, &AgUiEvent::RunFinished { thread_id, run_id, outcome, result, usage });
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let open = self.nested.iter().rev().filter(|lane| !lane.has_ended);
        for path in open.map(|lane| lane.path.clone()).collect::<Vec<_>>() {
            self.end_lane(&path, Err("the run ended"), out);
        }
        let mut root = std::mem::take(&mut self.root);
        self.close_lane(&mut root, out);
        self.root = root;
        self.finish_step(out);
    }
}

/// Returns the interrupts of a run that ended with pending calls. If any pending call awaits
/// approval or belongs to a sub-agent, there is an interrupt for each pending call. Otherwise, all
/// of them are calls to the client's tools, and there is no interrupt.
pub(super) fn interrupts(
    pending: &[PendingCall],
    is_approval: impl Fn(&PendingCall) -> bool,
) -> Vec<Interrupt> {
    if pending.iter().all(|call| call.path.is_empty() && !is_approval(call)) {
        return Vec::new();
    }
    let interrupt = |call: &PendingCall| {
        let is_approval = is_approval(call);
        let approval = || {
            json!({
                "type": "object",
                "properties": {
                    "approved": { "type": "boolean" },
                    "reason": { "type": "string" },
                    "always": {
                        "type": "object",
                        "description": "Also approves further calls to this tool",
                        "properties": {
                            "scope": {},
                            "duration": { "enum": ["run", "session", "until_revoked"] },
                            "includes_sub_agents": { "type": "boolean" },
                        },
                        "required": ["scope", "duration"],
                    },
                },
                "required": ["approved"],
            })
        };
        Interrupt {
            reason: if is_approval { "tool_approval" } else { "tool_output" },
            response_schema: if is_approval { approval() } else { json!({}) },
            metadata: json!({ "toolCallName": call.name, "arguments": call.arguments }),
            tool_call_id: call_path(&call.path, &call.call_id),
            id: call.approval_id.clone(),
        }
    };
    pending.iter().map(interrupt).collect()
}

fn approval_ids(pending: &[PendingCall]) -> Vec<String> {
    pending.iter().map(|call| call.approval_id.clone()).collect()
}

fn write_error(error: &Error, usage: Vec<TokenUsage<'_>>, out: &mut Vec<u8>) {
    let (message, code) = (error.to_string(), error.kind().as_str());
    write_data(out, &AgUiEvent::RunError { message: &message, code, usage });
}
