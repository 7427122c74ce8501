//! Writes a run as one turn of a model.

use std::collections::HashSet;
use std::mem;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::event::{EndReason, Event, Outcome, ToolEvent};
use turnstream::provider::server::{
    ContentDelta, ErrorDocument, Frame, FrameFormat, TurnStart, TurnWriter, Wire,
};
use turnstream::turn::{ReasoningKind, StopReason};
use turnstream::usage::Usage;
use turnstream::{Error, ErrorKind, Run, TurnEvent};

use crate::authorize::ActiveRun;
use crate::failure::{Failure, client_error};
use crate::model_request::ModelRequest;
use crate::stored_responses::{StoredResponse, StoredResponses};
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
    /// Where the response is kept, and for whom.
    pub(crate) store: Option<(StoredResponses, String)>,
}

/// A run that is written as one turn of a model.
pub(crate) struct Answer {
    settings: AnswerSettings,
    model: String,
    body: Value,
    client_tools: HashSet<String>,
    format: FrameFormat,
    blocks: Blocks,
    /// The bytes of frames so far.
    written: Written,
    /// Whether a tool has started. The client must then not repeat the request on its own.
    has_acted: bool,
    state: AnswerState,
}

/// The state of an answer.
enum AnswerState {
    /// The run continues.
    Running { run: Box<Run>, _active_run: ActiveRun },
    /// The answer has ended.
    Ended,
}

/// The frames that have been written.
struct Written {
    writer: Option<TurnWriter>,
    count: usize,
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
    has_text: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum BlockKind {
    Text,
    Reasoning,
    /// A call that the agent has made itself, shown as reasoning.
    OwnCall,
}

/// How a run has ended.
struct Ending {
    calls: Vec<(u32, ContentDelta)>,
    reason: StopReason,
    usage: Usage,
}

impl Answer {
    pub(crate) fn new(
        settings: AnswerSettings,
        request: ModelRequest,
        run: Run,
        active_run: ActiveRun,
    ) -> Self {
        let client_tools = request.tool_names();
        let ModelRequest { model, mut body, is_streamed, .. } = request;
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
            written: Written { writer: None, count: 0 },
            has_acted: false,
            state: AnswerState::Running { run: Box::new(run), _active_run: active_run },
        }
    }

    pub(crate) fn content_type(&self) -> &'static str {
        self.format.content_type
    }

    /// Returns the bytes with which the stream opens, before the agent has said anything.
    pub(crate) fn open(&mut self) -> Result<String, Failure> {
        self.write(Vec::new())
    }

    /// Returns bytes that keep the connection alive.
    pub(crate) fn keep_alive(&self) -> String {
        match self.settings.wire {
            // The vendor's own event would take a number that the next event has.
            Wire::OpenAiResponses => ": keep-alive\n\n".to_owned(),
            wire => wire.keep_alive(&self.format, self.written.count),
        }
    }

    /// Waits for the next bytes of the stream. Returns `None` after its end. If the returned future
    /// is dropped, nothing is lost.
    pub(crate) async fn next_bytes(&mut self) -> Option<Result<String, Failure>> {
        loop {
            let AnswerState::Running { run, .. } = &mut self.state else { return None };
            let event = match run.next().await {
                Some(Ok(Event::Finished(outcome))) => return Some(self.finish(&outcome)),
                Some(Ok(event)) => event,
                // The outcome contains the error.
                Some(Err(_)) | None => return None,
            };
            let pieces = self.pieces(&event);
            if pieces.is_empty() {
                continue;
            }
            match self.write(pieces) {
                Ok(bytes) if bytes.is_empty() => {}
                written => return Some(written),
            }
        }
    }

    /// Returns the stream's bytes for an error that has ended it.
    pub(crate) fn error_bytes(&mut self, failure: &Failure) -> String {
        let frame = self.settings.wire.error_frame(failure.error(), self.written.count);
        self.encode(&[frame]) + self.format.body_end
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
                    match event {
                        Event::TurnStarted { .. } => {
                            before_turn = (pieces.len(), self.blocks.clone());
                        }
                        // The text of a turn that is retracted is never sent.
                        Event::Turn(TurnEvent::Retracted { .. }) => {
                            pieces.truncate(before_turn.0);
                            self.blocks.clone_from(&before_turn.1);
                            continue;
                        }
                        _ => {}
                    }
                    pieces.extend(self.pieces(&event));
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
        Ok(bytes + self.format.body_end)
    }

    /// Decides how the answer ends, and keeps the response.
    fn end(&mut self, outcome: &Outcome) -> Result<Ending, Failure> {
        self.state = AnswerState::Ended;
        if let Some(error) = &outcome.error {
            return Err(self.fail(error));
        }
        let mut calls = Vec::new();
        for call in &outcome.pending {
            if !call.path.is_empty() || !self.client_tools.contains(&call.name) {
                let message = format!("the tool {:?} waits for a result from outside", call.name);
                return Err(self.fail(&Error::new(ErrorKind::Unsupported, message)));
            }
            let index = self.blocks.start(None);
            let (call_id, name) = (call.call_id.clone(), call.name.clone());
            calls.push((index, ContentDelta::CallStart { call_id, name }));
            calls.push((index, ContentDelta::CallArgs(call.arguments.clone())));
            calls.push((index, ContentDelta::CallEnd));
        }
        let reason = match outcome.reason {
            EndReason::Budget if self.blocks.count == 0 && !self.has_acted => {
                let message = "the budget for this request is used up";
                let error = Error::new(ErrorKind::RateLimited, message).with_status(429);
                return Err(Failure::new(error, false));
            }
            EndReason::Interrupted(_) => {
                let message = "the server has stopped the answer";
                return Err(self.fail(&Error::new(ErrorKind::Overloaded, message)));
            }
            EndReason::Pending => StopReason::ToolCalls,
            EndReason::MaxTurns | EndReason::Budget | EndReason::Truncated => StopReason::MaxTokens,
            EndReason::Refused | EndReason::Filtered => self.refusal(),
            _ => StopReason::Stop,
        };
        if let Some((responses, principal)) = &self.settings.store {
            let response = StoredResponse {
                principal: principal.clone(),
                model: self.model.clone(),
                history: outcome.history.clone(),
            };
            responses.insert(format!("resp_{}", self.settings.id), response);
        }
        Ok(Ending { calls, reason, usage: outcome.usage })
    }

    /// The stop reason by which the wire reports a refusal.
    fn refusal(&self) -> StopReason {
        match self.settings.wire {
            Wire::Anthropic => StopReason::Refusal,
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
            Event::TurnStarted { .. } | Event::Turn(TurnEvent::Retracted { .. }) => {
                self.blocks.start_turn();
            }
            Event::Turn(
                TurnEvent::TextDelta { index, text } | TurnEvent::RefusalDelta { index, text },
            ) => {
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

    /// Writes pieces of the answer.
    fn write(&mut self, pieces: Vec<(u32, ContentDelta)>) -> Result<String, Failure> {
        let writer = self.written.writer.take();
        let mut writer = writer.unwrap_or_else(|| self.writer(Usage::default()));
        let frames = writer.write(pieces).map_err(|error| self.fail(&error))?;
        self.written.writer = Some(writer);
        Ok(self.encode(&frames))
    }

    fn encode(&mut self, frames: &[Frame]) -> String {
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
        Failure::new(client_error(error, &self.settings.id), self.has_acted)
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

    /// Returns the index of the block to which a piece of text belongs, and whether the text begins
    /// a new paragraph.
    fn text(&mut self, index: u32) -> (u32, bool) {
        let is_new_paragraph = mem::take(&mut self.has_earlier_text);
        self.has_text = true;
        (self.piece(index, BlockKind::Text), is_new_paragraph)
    }
}

fn ended_early() -> Error {
    Error::new(ErrorKind::Other, "the run ended without an outcome")
}

impl Failure {
    /// Converts the failure to a response on this wire.
    pub(crate) fn document(&self, wire: Wire) -> ErrorDocument {
        let mut document = wire.error_document(self.error());
        if self.has_acted() {
            // The vendors' clients repeat a request that fails, unless this header forbids it.
            document.headers.push(("x-should-retry", "false".to_owned()));
        }
        document
    }
}
