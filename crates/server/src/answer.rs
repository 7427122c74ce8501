//! Writes a run as one turn of a model.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::event::{EndReason, Event, Outcome, ToolEvent, Transition};
use turnstream::provider::server::{
    ContentDelta, ErrorDocument, Frame, FrameFormat, TurnStart, TurnWriter, Wire,
};
use turnstream::turn::{ReasoningKind, StopReason};
use turnstream::usage::Usage;
use turnstream::{Error, ErrorKind, Run, TurnEvent};

use crate::call_ids::client_call_id;
use crate::failure::{Failure, client_error};
use crate::model_request::{ModelRequest, name_taken};
use crate::slots::Slot;
use crate::stored_responses::{StoredResponse, StoredResponses, added_bytes};
use crate::wires;

/// The settings of a single answer.
pub(crate) struct AnswerSettings {
    pub(crate) wire: Wire,
    /// The id of the response, without the wire's prefix.
    pub(crate) id: String,
    /// The path of the request with its query, which decides about the format on the Gemini wire.
    pub(crate) path: String,
    /// Whether the client sees the agent's reasoning and its own calls, as reasoning.
    pub(crate) shows_work: bool,
    /// Where the response is kept, for whom, and the size of the history that it continues.
    pub(crate) store: Option<(StoredResponses, String, usize)>,
}

/// A run that is written as one turn of a model.
pub(crate) struct Answer {
    settings: AnswerSettings,
    model: String,
    body: Value,
    client_tools: HashSet<String>,
    format: FrameFormat,
    blocks: Blocks,
    text: SentText,
    /// The frames so far.
    written: WrittenFrames,
    /// Whether a tool has started. The client must then not repeat the request on its own.
    has_acted: bool,
    state: AnswerState,
}

/// The state of an answer.
enum AnswerState {
    /// The run continues.
    Running { run: Box<Run>, _active_run: Slot },
    /// The answer has ended.
    Ended,
}

/// The text that the client receives.
enum SentText {
    /// The text of all turns, as it arrives.
    OfAllTurns,
    /// The text of the last turn, at its end, because it must match a format. Contains the text of
    /// the current turn.
    OfLastTurn(String),
}

/// The frames that have been written.
#[derive(Default)]
struct WrittenFrames {
    writer: Option<TurnWriter>,
    count: usize,
    /// The first event on the Responses wire, from which an error in the stream is made.
    first_event: Option<Value>,
}

/// Numbers the content blocks of all turns of a run.
#[derive(Clone, Default)]
struct Blocks {
    /// The number of blocks so far.
    count: u32,
    /// The open block: the turn's own index, and its kind.
    open: Option<(u32, BlockKind)>,
    /// Whether an earlier turn contains text, so that the next text begins a new paragraph.
    has_earlier_text: bool,
    /// Whether the current turn contains text.
    has_text: bool,
    has_refusal: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum BlockKind {
    Text,
    Refusal,
    Reasoning,
    /// A call that the agent has made itself, shown as reasoning.
    OwnCall,
}

/// How a run has ended.
struct Ending {
    calls: Vec<(u32, ContentDelta)>,
    reason: StopReason,
    usage: Usage,
    /// The response to keep, without its output.
    stored: Option<StoredResponse>,
}

impl Answer {
    pub(crate) fn new(
        settings: AnswerSettings,
        request: ModelRequest,
        run: Run,
        active_run: Slot,
    ) -> Self {
        let client_tools = request.tool_names();
        let text = match request.has_format() {
            true => SentText::OfLastTurn(String::new()),
            false => SentText::OfAllTurns,
        };
        let ModelRequest { model, repeated: mut body, is_streamed, .. } = request;
        if !is_streamed && settings.wire == Wire::OpenAiChat {
            // A response that is not streamed always contains its usage.
            body["stream_options"] = json!({ "include_usage": true });
        }
        Self {
            format: settings.wire.frame_format(&settings.path),
            settings,
            model,
            body,
            client_tools,
            blocks: Blocks::default(),
            text,
            written: WrittenFrames::default(),
            has_acted: false,
            state: AnswerState::Running { run: Box::new(run), _active_run: active_run },
        }
    }

    pub(crate) fn content_type(&self) -> &'static str {
        self.format.content_type
    }

    /// Returns the bytes with which the stream opens, before the agent has said anything.
    pub(crate) fn open(&mut self) -> Result<Bytes, Failure> {
        self.write(Vec::new()).map(Bytes::from)
    }

    /// Returns bytes that keep the connection alive.
    pub(crate) fn keep_alive(&self) -> Bytes {
        match self.settings.wire {
            // The vendor's own event would take a number that the next event has.
            Wire::OpenAiResponses => Bytes::from_static(b": keep-alive\n\n"),
            wire => wire.keep_alive(&self.format, self.written.count).into(),
        }
    }

    /// Polls for the next bytes of the stream. Returns `None` after its end.
    pub(crate) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            let AnswerState::Running { run, .. } = &mut self.state else {
                return Poll::Ready(None);
            };
            let event = match ready!(run.poll_next_unpin(cx)) {
                Some(Ok(Event::Finished(outcome))) => {
                    return Poll::Ready(Some(self.finish(&outcome).map(Bytes::from)));
                }
                Some(Ok(event)) => event,
                // The outcome contains the error.
                Some(Err(_)) | None => return Poll::Ready(None),
            };
            if let Some(bytes) = self.continue_text(&event) {
                return Poll::Ready(Some(Ok(bytes)));
            }
            let pieces = self.pieces(&event);
            if pieces.is_empty() {
                continue;
            }
            match self.write(pieces) {
                Ok(bytes) if bytes.is_empty() => {}
                written => return Poll::Ready(Some(written.map(Bytes::from))),
            }
        }
    }

    /// Writes a piece of text that continues a block. Most events of a run are such pieces.
    fn continue_text(&mut self, event: &Event) -> Option<Bytes> {
        let Event::Turn(TurnEvent::TextDelta { index, text }) = event else { return None };
        let at = self.blocks.open_text(*index)?;
        let (SentText::OfAllTurns, Some(writer)) = (&self.text, &mut self.written.writer) else {
            return None;
        };
        let mut bytes = Vec::new();
        writer.continue_text(at, text, &self.format, &mut bytes).then(|| {
            self.written.count += 1;
            bytes.into()
        })
    }

    /// Returns the stream's bytes for an error that has ended it.
    pub(crate) fn error_bytes(&mut self, failure: &Failure) -> Bytes {
        let mut frame = self.settings.wire.error_frame(failure.error(), self.written.count);
        if let Some(first) = &self.written.first_event
            && let Ok(mut event) = serde_json::from_str::<Value>(&frame.data)
            && let Some(failed) = event["response"].as_object().cloned()
        {
            // The vendor's clients compare the response with the first one.
            let mut response = first["response"].clone();
            for name in ["status", "error"] {
                response[name] = failed.get(name).cloned().unwrap_or_default();
            }
            event["response"] = response;
            frame.data = event.to_string();
        }
        (self.encode(&[frame]) + self.format.body_end).into()
    }

    /// Waits for the end of the run, and returns the response that is not streamed.
    pub(crate) async fn complete(mut self) -> Result<Value, Failure> {
        let mut pieces = Vec::new();
        // The answer before the current turn.
        let mut before_turn = (0, self.blocks.clone());
        let ending = loop {
            let AnswerState::Running { run, .. } = &mut self.state else {
                return Err(self.fail(&ended_early()));
            };
            match run.next().await {
                Some(Ok(Event::Finished(outcome))) => break self.end(&outcome)?,
                Some(Ok(event)) => {
                    // The text of a turn that is retracted or rejected is never sent.
                    if is_void(&event) {
                        pieces.truncate(before_turn.0);
                        self.blocks.clone_from(&before_turn.1);
                    }
                    pieces.extend(self.pieces(&event));
                    if let Event::TurnStarted { .. } = event {
                        before_turn = (pieces.len(), self.blocks.clone());
                    }
                }
                Some(Err(_)) | None => return Err(self.fail(&ended_early())),
            }
        };
        pieces.extend(ending.calls);
        let mut writer = self.writer(ending.usage);
        let wire = self.settings.wire;
        let frames = writer.write(pieces).and_then(|mut frames| {
            frames.extend(writer.stop(&ending.reason, ending.usage)?);
            Ok(frames)
        });
        let frames = frames.map_err(|error| self.fail(&error))?;
        let data: Vec<Value> =
            frames.iter().filter_map(|frame| serde_json::from_str(&frame.data).ok()).collect();
        self.store(ending.stored, data.last());
        Ok(match wire {
            Wire::Anthropic => wires::anthropic::document(&data),
            Wire::OpenAiChat => wires::openai_chat::document(&data),
            Wire::OpenAiResponses => wires::openai_responses::document(&data),
            Wire::Gemini => wires::gemini::document(&data),
            _ => wires::ollama::document(&data),
        })
    }

    /// Ends the stream with the outcome of the run.
    fn finish(&mut self, outcome: &Outcome) -> Result<String, Failure> {
        let ending = self.end(outcome)?;
        let mut bytes = self.write(ending.calls)?;
        let writer = self.written.writer.take();
        let mut writer = writer.unwrap_or_else(|| self.writer(ending.usage));
        let frames = writer.write([]).and_then(|mut frames| {
            frames.extend(writer.stop(&ending.reason, ending.usage)?);
            Ok(frames)
        });
        let frames = frames.map_err(|error| self.fail(&error))?;
        bytes += &self.encode(&frames);
        if ending.stored.is_some() {
            let last = frames.last().and_then(|last| serde_json::from_str(&last.data).ok());
            self.store(ending.stored, last.as_ref());
        }
        Ok(bytes + self.format.body_end)
    }

    /// Keeps a response. `last` is the last event of its stream, which contains its output.
    fn store(&self, stored: Option<StoredResponse>, last: Option<&Value>) {
        if let (Some(mut stored), Some((responses, ..))) = (stored, &self.settings.store) {
            let output = last.map(|event| event["response"]["output"].clone());
            if let Some(Value::Array(output)) = output {
                stored.output = output.into();
            }
            responses.insert(format!("resp_{}", self.settings.id), stored);
        }
    }

    /// Decides how the answer ends.
    fn end(&mut self, outcome: &Outcome) -> Result<Ending, Failure> {
        self.state = AnswerState::Ended;
        if let Some(error) = &outcome.error {
            return Err(self.fail(error));
        }
        let mut calls = Vec::new();
        for call in &outcome.pending {
            if !call.path.is_empty() || !self.client_tools.contains(&call.name) {
                let message = format!("the tool {:?} waits for a result from outside", call.name);
                return Err(self.fail(&Error::new(ErrorKind::Server, message)));
            }
            let index = self.blocks.start(None);
            let call_id = client_call_id(&call.call_id, &self.settings.id);
            let name = call.name.clone();
            calls.push((index, ContentDelta::CallStart { call_id, name }));
            calls.push((index, ContentDelta::CallArgs(call.arguments.clone())));
            calls.push((index, ContentDelta::CallEnd));
        }
        if let Some(text) = self.final_text(outcome) {
            let (at, _) = self.blocks.text(u32::MAX);
            calls.insert(0, (at, ContentDelta::Text(text)));
        }
        let reason = match outcome.reason {
            EndReason::Budget if self.blocks.count == 0 => {
                self.state = AnswerState::Ended;
                let message = "the budget for this request is used up";
                let error = Error::new(ErrorKind::RateLimited, message).with_status(429);
                return Err(Failure::new(error, self.has_acted));
            }
            EndReason::Interrupted(_) => {
                let message = "the server has stopped the answer";
                return Err(self.fail(&Error::new(ErrorKind::Overloaded, message)));
            }
            EndReason::ContextWindow => {
                let message = "the conversation is too long";
                return Err(self.fail(&Error::new(ErrorKind::ContextWindow, message)));
            }
            EndReason::Completed | EndReason::Blocked | EndReason::Stopped => StopReason::Stop,
            EndReason::Pending => StopReason::ToolCalls,
            EndReason::MaxTurns | EndReason::Budget | EndReason::Truncated => StopReason::MaxTokens,
            EndReason::Refused | EndReason::Filtered => self.refusal(),
            reason => {
                let message = format!("the run ended with the reason {}", reason.as_str());
                return Err(self.fail(&Error::new(ErrorKind::Server, message)));
            }
        };
        let store = self.settings.store.as_ref();
        let stored = store.map(|(_, principal, earlier_bytes)| StoredResponse {
            principal: principal.clone(),
            model: self.model.clone(),
            history: outcome.history.clone(),
            // The output repeats what the run has added to the history.
            bytes: earlier_bytes + 2 * added_bytes(outcome),
            output: Arc::default(),
        });
        let usage = outcome.usage + *outcome.nested_usage;
        Ok(Ending { calls, reason, usage, stored })
    }

    /// Returns the text that ends the answer, but that no delta contains: the text that must match
    /// a format, or the summary of a run that the model has ended by a tool.
    fn final_text(&mut self, outcome: &Outcome) -> Option<String> {
        let is_stopped = outcome.stop_action.is_some();
        let text = match &mut self.text {
            SentText::OfLastTurn(text) if text.is_empty() && is_stopped => outcome.text.clone(),
            SentText::OfLastTurn(text) => mem::take(text),
            SentText::OfAllTurns if !self.blocks.has_text && is_stopped => outcome.text.clone(),
            SentText::OfAllTurns => String::new(),
        };
        Some(text).filter(|text| !text.is_empty())
    }

    /// The stop reason by which the wire reports a refusal.
    fn refusal(&self) -> StopReason {
        match self.settings.wire {
            Wire::Anthropic => StopReason::Refusal,
            Wire::OpenAiChat | Wire::OpenAiResponses if self.blocks.has_refusal => {
                StopReason::Refusal
            }
            Wire::Ollama => StopReason::Stop,
            _ => StopReason::ContentFilter,
        }
    }

    /// Converts an event to the pieces of the answer that the client sees.
    fn pieces(&mut self, event: &Event) -> Vec<(u32, ContentDelta)> {
        if let Some(call) = event.approval_request()
            && let AnswerState::Running { run, .. } = &self.state
        {
            // The verdict is refused only if the call no longer waits for one.
            let _ = run.deny(call, "no one can approve this call here");
        }
        match event {
            Event::TurnStarted { transition, .. } => {
                // A turn that continues a text continues its block.
                let continues = matches!(
                    transition,
                    Some(Transition::MaxOutputTokensRecovery | Transition::PauseResumed)
                );
                if !continues {
                    self.start_turn();
                }
            }
            Event::Turn(TurnEvent::Retracted { .. }) => self.start_turn(),
            Event::Turn(TurnEvent::RefusalDelta { index, text })
                if matches!(self.settings.wire, Wire::OpenAiChat | Wire::OpenAiResponses) =>
            {
                self.blocks.has_refusal = true;
                let at = self.blocks.piece(*index, BlockKind::Refusal);
                return vec![(at, ContentDelta::Refusal(text.to_string()))];
            }
            Event::Turn(
                TurnEvent::TextDelta { index, text } | TurnEvent::RefusalDelta { index, text },
            ) => {
                if let SentText::OfLastTurn(held) = &mut self.text {
                    held.push_str(text);
                    return Vec::new();
                }
                let (at, is_new_paragraph) = self.blocks.text(*index);
                let text = if is_new_paragraph { format!("\n\n{text}") } else { text.to_string() };
                return vec![(at, ContentDelta::Text(text))];
            }
            Event::Turn(TurnEvent::ReasoningDelta { index, text, kind })
                if self.settings.shows_work =>
            {
                let at = self.blocks.piece(*index, BlockKind::Reasoning);
                return vec![(at, ContentDelta::Reasoning(*kind, text.to_string()))];
            }
            Event::Tool(ToolEvent::Started { name, arguments, .. }) => {
                self.has_acted = true;
                if self.settings.shows_work {
                    let at = self.blocks.piece(0, BlockKind::OwnCall);
                    let text = format!("Calls {name} with {arguments}\n");
                    return vec![(at, ContentDelta::Reasoning(ReasoningKind::Trace, text))];
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn start_turn(&mut self) {
        self.blocks.start_turn();
        if let SentText::OfLastTurn(held) = &mut self.text {
            held.clear();
        }
    }

    /// Writes pieces of the answer.
    fn write(&mut self, pieces: Vec<(u32, ContentDelta)>) -> Result<String, Failure> {
        let writer = self.written.writer.take();
        let mut writer = writer.unwrap_or_else(|| self.writer(Usage::default()));
        let frames = writer.write(pieces).map_err(|error| self.fail(&error))?;
        self.written.writer = Some(writer);
        Ok(self.encode(&frames))
    }

    fn encode(&mut self, frames: &[Frame]) -> String {
        if self.written.count == 0 && self.settings.wire == Wire::OpenAiResponses {
            self.written.first_event =
                frames.first().and_then(|first| serde_json::from_str(&first.data).ok());
        }
        let start = self.written.count;
        self.written.count += frames.len();
        (start..).zip(frames).map(|(n, frame)| self.format.encode(frame, n)).collect()
    }

    fn writer(&self, usage: Usage) -> TurnWriter {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        TurnWriter::new(
            self.settings.wire,
            TurnStart {
                id: &self.settings.id,
                model: &self.model,
                created_at: now.map_or(0, |now| now.as_secs()),
                request: &self.body,
                usage,
                signatures: &[],
                sign: Box::new(|_| None),
            },
        )
    }

    /// Ends the answer with an error.
    fn fail(&mut self, error: &Error) -> Failure {
        self.state = AnswerState::Ended;
        if let Some(name) = self.taken_name(error) {
            return Failure::new(name_taken(name), true);
        }
        let must_not_repeat = self.has_acted || !error.is_retryable();
        Failure::new(client_error(error, &self.settings.id), must_not_repeat)
    }

    /// Returns the name of the client's tool that a tool of one of the agent's sources has, too.
    fn taken_name(&self, error: &Error) -> Option<&str> {
        let is_about_tools =
            error.kind() == ErrorKind::InvalidRequest && error.parameter() == Some("tools");
        let is_named = |name: &&String| error.message().contains(&format!("the name `{name}`"));
        let mut names = self.client_tools.iter().filter(|_| is_about_tools);
        names.find(is_named).map(String::as_str)
    }
}

impl Blocks {
    fn start_turn(&mut self) {
        self.open = None;
        self.has_earlier_text |= mem::take(&mut self.has_text);
    }

    /// Starts a block.
    fn start(&mut self, open: Option<(u32, BlockKind)>) -> u32 {
        self.open = open;
        self.count += 1;
        self.count - 1
    }

    /// Returns the index of the block to which a piece belongs.
    fn piece(&mut self, index: u32, kind: BlockKind) -> u32 {
        match self.open == Some((index, kind)) {
            true => self.count - 1,
            false => self.start(Some((index, kind))),
        }
    }

    /// Returns the index of the open block, if a piece of text would only continue it.
    fn open_text(&self, index: u32) -> Option<u32> {
        (self.open == Some((index, BlockKind::Text))).then(|| self.count - 1)
    }

    /// Returns the index of the block to which a piece of text belongs, and whether the text begins
    /// a new paragraph.
    fn text(&mut self, index: u32) -> (u32, bool) {
        let is_new_paragraph = mem::take(&mut self.has_earlier_text);
        self.has_text = true;
        (self.piece(index, BlockKind::Text), is_new_paragraph)
    }
}

/// Returns whether an event voids the text of the turn before it.
fn is_void(event: &Event) -> bool {
    match event {
        Event::Turn(TurnEvent::Retracted { .. }) => true,
        Event::TurnStarted { transition, .. } => matches!(
            transition,
            Some(
                Transition::Corrective
                    | Transition::StopHookBlocking
                    | Transition::ReasoningRefused
            )
        ),
        _ => false,
    }
}

fn ended_early() -> Error {
    Error::new(ErrorKind::Other, "the run ended without an outcome")
}

impl Failure {
    /// Converts the failure to a response on this wire.
    pub(crate) fn document(&self, wire: Wire) -> ErrorDocument {
        let mut document = wire.error_document(self.error());
        if self.must_not_repeat() {
            // The vendors' clients repeat a request that fails, unless this header forbids it.
            document.headers.push(("x-should-retry", "false".to_owned()));
        }
        document
    }
}
