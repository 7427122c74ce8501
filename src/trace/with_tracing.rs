//! A stream adapter that reports a run to the crate `tracing`.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use pin_project::pin_project;
use tracing::{Span, debug, error, info, info_span, trace, warn};

use crate::error::Error;
use crate::event::{Event, Outcome, ToolEvent};
use crate::item::{PendingCall, ResultKind, ToolResult};
use crate::turn::{Turn, TurnEvent};

/// The stream returned by the [`with_tracing`](crate::journal::EventStreamExt::with_tracing)
/// method.
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub(crate) struct WithTracing<T> {
    #[pin]
    events: T,
    state: LogState,
    description: RunDescription,
}

/// The information about a run that its events do not contain.
#[derive(Default)]
pub(crate) struct RunDescription {
    /// The agent's label; empty if it has none.
    pub(crate) agent_name: String,
    /// The id of the run's history; empty if it is unknown.
    pub(crate) conversation_id: String,
}

enum LogState {
    /// No run has started, or the last one has ended.
    Idle,
    Running(RunLog),
}

/// The spans of a run that have not ended. Dropping a span ends it.
struct RunLog {
    span: Span,
    /// The span of the request that is in progress.
    chat: Option<Span>,
    calls: Vec<CallLog>,
}

struct CallLog {
    call_id: String,
    span: Span,
    sub_agent: Option<Box<RunLog>>,
}

impl<T> WithTracing<T> {
    pub(crate) fn new(events: T, description: RunDescription) -> Self {
        Self { events, state: LogState::Idle, description }
    }
}

impl<T: Stream<Item = Result<Event, Error>>> Stream for WithTracing<T> {
    type Item = Result<Event, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        // The first poll happens outside of the run's span, which starts with the first event.
        let entered = match this.state {
            LogState::Running(run) => Some(run.span.enter()),
            LogState::Idle => None,
        };
        let polled = this.events.poll_next(cx);
        drop(entered);
        match &polled {
            Poll::Ready(Some(Ok(event))) => this.state.observe(event, this.description),
            Poll::Ready(Some(Err(error))) => this.state.fail(error),
            Poll::Ready(None) => *this.state = LogState::Idle,
            Poll::Pending => {}
        }
        polled
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}

impl LogState {
    fn observe(&mut self, event: &Event, run: &RunDescription) {
        if let Self::Idle = self {
            let span = info_span!(
                "invoke_agent",
                gen_ai.operation.name = "invoke_agent",
                gen_ai.agent.name = known(&run.agent_name),
                gen_ai.conversation.id = known(&run.conversation_id),
            );
            *self = Self::Running(RunLog::new(span));
        }
        let Self::Running(run) = self else { return };
        run.observe(event);
        if let Event::Finished(_) = event {
            *self = Self::Idle;
        }
    }

    /// Reports an error that is not part of an outcome.
    fn fail(&mut self, error: &Error) {
        if let Self::Running(run) = self {
            report_error(&run.span, error);
        }
        *self = Self::Idle;
    }
}

impl RunLog {
    fn new(span: Span) -> Self {
        Self { span, chat: None, calls: Vec::new() }
    }

    fn observe(&mut self, event: &Event) {
        match event {
            Event::Appended { why, items, .. } => {
                debug!(parent: &self.span, ?why, items = items.len(), "items were appended");
            }
            Event::Rewritten { why, from, to, items, usage, model } => info!(
                parent: &self.span,
                ?why,
                replaced = to - from,
                by = items.len(),
                gen_ai.response.model = model.as_deref(),
                gen_ai.usage.input_tokens = usage.input_tokens,
                gen_ai.usage.output_tokens = usage.output_tokens,
                "the history was rewritten",
            ),
            Event::TurnStarted { turn, model, transition } => {
                let chat = info_span!(
                    parent: &self.span,
                    "chat",
                    gen_ai.operation.name = "chat",
                    gen_ai.request.model = model,
                    turn,
                );
                debug!(parent: &chat, ?transition, "a request is sent");
                self.chat = Some(chat);
            }
            Event::Turn(event) => self.on_turn_event(event),
            Event::Tool(ToolEvent::Nested { call_id, name, event })
            | Event::Nested { call_id, name, event } => self.on_nested(call_id, name, event),
            Event::Tool(event) => self.on_tool_event(event),
            Event::HelperUsage { purpose, model, usage } => info!(
                parent: &self.span,
                purpose,
                gen_ai.response.model = model.as_deref(),
                gen_ai.usage.input_tokens = usage.input_tokens,
                gen_ai.usage.output_tokens = usage.output_tokens,
                "a hook has sent a request",
            ),
            Event::Continued { reason } => {
                debug!(parent: &self.span, ?reason, "the run continues");
                self.chat = None;
            }
            Event::Finished(outcome) => self.on_finished(outcome),
            Event::Unknown => {}
        }
    }

    fn on_turn_event(&mut self, event: &TurnEvent) {
        let span = self.chat.as_ref().unwrap_or(&self.span);
        match event {
            TurnEvent::TextDelta { text, .. } => trace!(parent: span, %text, "text"),
            TurnEvent::Retrying { attempt, delay_ms, error } => {
                let kind = error.kind().as_str();
                warn!(parent: span, attempt, delay_ms, error.type = kind, "the request is retried");
                trace!(parent: span, %error, "the error");
            }
            TurnEvent::Retracted { why, usage } => {
                warn!(
                    parent: span,
                    gen_ai.usage.input_tokens = usage.input_tokens,
                    gen_ai.usage.output_tokens = usage.output_tokens,
                    "the turn was retracted",
                );
                trace!(parent: span, why, "the reason");
            }
            TurnEvent::TurnComplete { turn } => {
                report_turn(span, turn);
                self.chat = None;
            }
            TurnEvent::ReasoningDelta { .. }
            | TurnEvent::RefusalDelta { .. }
            | TurnEvent::ToolCallStart { .. }
            | TurnEvent::ToolCallArgsDelta { .. }
            | TurnEvent::ToolCallEnd { .. }
            | TurnEvent::UsageUpdate { .. } => {}
        }
    }

    fn on_tool_event(&mut self, event: &ToolEvent) {
        match event {
            ToolEvent::ApprovalRequested(call) => {
                let PendingCall { name, call_id, arguments, .. } = &**call;
                info!(
                    parent: &self.span,
                    gen_ai.tool.name = name,
                    gen_ai.tool.call.id = call_id,
                    "an approval is requested",
                );
                trace!(parent: &self.span, arguments, "the arguments");
            }
            ToolEvent::Started { call_id, name, arguments, grant_id } => {
                let span = self.start_call(call_id, name, grant_id.as_deref());
                debug!(parent: &span, "the tool starts");
                trace!(parent: &span, arguments, "the arguments");
            }
            ToolEvent::Progress { call_id, data, .. } => {
                let span = self.calls.iter().find(|call| call.call_id == *call_id);
                let span = span.map_or(&self.span, |call| &call.span);
                debug!(parent: span, "the tool reports progress");
                trace!(parent: span, data = data.as_str(), "the progress");
            }
            ToolEvent::Suspended { call_id, pending, .. } => {
                let span = self.take_call(call_id).unwrap_or_else(|| self.span.clone());
                info!(parent: &span, pending = pending.len(), "the sub-agent is suspended");
            }
            ToolEvent::Output(result) => {
                let span = self.take_call(&result.call_id).unwrap_or_else(|| self.span.clone());
                report_result(&span, result);
            }
            ToolEvent::GrantAdded { call_id, grant } => {
                info!(
                    parent: &self.span,
                    gen_ai.tool.name = grant.tool,
                    gen_ai.tool.call.id = call_id,
                    grant_id = grant.id,
                    scope = ?grant.terms.scope,
                    duration = ?grant.terms.duration,
                    "a grant is given",
                );
            }
            ToolEvent::GrantRevoked { grant_id } => {
                info!(parent: &self.span, grant_id, "a grant is revoked");
            }
            ToolEvent::Nested { .. } => {}
        }
    }

    fn start_call(&mut self, call_id: &str, name: &str, grant_id: Option<&str>) -> Span {
        let span = info_span!(
            parent: &self.span,
            "execute_tool",
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = name,
            gen_ai.tool.call.id = call_id,
            // The grant that let the call start without a question.
            turnstream.grant.id = grant_id,
        );
        let call = CallLog { call_id: call_id.to_owned(), span: span.clone(), sub_agent: None };
        self.calls.push(call);
        span
    }

    fn take_call(&mut self, call_id: &str) -> Option<Span> {
        let at = self.calls.iter().position(|call| call.call_id == call_id)?;
        Some(self.calls.remove(at).span)
    }

    fn on_nested(&mut self, call_id: &str, name: &str, event: &Event) {
        let Some(call) = self.calls.iter_mut().find(|call| call.call_id == call_id) else { return };
        let sub_agent = call.sub_agent.get_or_insert_with(|| {
            let span = info_span!(
                parent: &call.span,
                "invoke_agent",
                gen_ai.operation.name = "invoke_agent",
                gen_ai.agent.name = name,
            );
            Box::new(Self::new(span))
        });
        sub_agent.observe(event);
        if let Event::Finished(_) = event {
            call.sub_agent = None;
        }
    }

    fn on_finished(&mut self, outcome: &Outcome) {
        // The spans end before the run is reported.
        (self.chat, self.calls) = (None, Vec::new());
        info!(
            parent: &self.span,
            reason = outcome.reason.as_str(),
            turns = outcome.turns,
            gen_ai.usage.input_tokens = outcome.usage.input_tokens,
            gen_ai.usage.output_tokens = outcome.usage.output_tokens,
            pending = outcome.pending.len(),
            "the run has ended",
        );
        if let Some(error) = &outcome.error {
            report_error(&self.span, error);
        }
    }
}

/// Returns a text unless it is empty.
fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn report_turn(span: &Span, turn: &Turn) {
    let usage = turn.usage();
    info!(
        parent: span,
        gen_ai.response.model = turn.model(),
        gen_ai.response.finish_reasons = turn.stop_reason().as_str(),
        gen_ai.usage.input_tokens = usage.input_tokens,
        gen_ai.usage.output_tokens = usage.output_tokens,
        gen_ai.usage.cache_read.input_tokens = usage.cache_read_input_tokens,
        gen_ai.usage.cache_write.input_tokens = usage.cache_write_input_tokens,
        gen_ai.usage.reasoning.output_tokens = usage.reasoning_tokens,
        calls = turn.tool_calls().count(),
        "the turn is complete",
    );
}

fn report_result(span: &Span, result: &ToolResult) {
    let ToolResult { name, call_id, kind, content, .. } = result;
    match result.is_error() {
        false => info!(
            parent: span,
            gen_ai.tool.name = name,
            gen_ai.tool.call.id = call_id,
            "the call has a result",
        ),
        true => warn!(
            parent: span,
            // The model has invented the name of an unknown tool, which may quote the conversation.
            gen_ai.tool.name = (*kind != ResultKind::UnknownTool).then_some(name.as_str()),
            gen_ai.tool.call.id = call_id,
            error.type = kind.as_str(),
            "the call failed",
        ),
    }
    trace!(parent: span, content = content.text(), "the content");
}

fn report_error(span: &Span, error: &Error) {
    error!(parent: span, error.type = error.kind().as_str(), "the run failed");
    trace!(parent: span, %error, "the error");
}
