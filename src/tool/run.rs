//! The calls of one turn while they run.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::stream::{FusedStream, SelectAll, StreamExt};

use crate::error::panic_message;
use crate::event::ToolEvent;
use crate::item::{History, ResultKind, ToolCall, ToolResult};
use crate::tool::context::CancelFlag;
use crate::tool::{ToolContext, Toolkit, Update, Updates};
use crate::turn::Turn;

/// The calls of one turn while they run: a stream of their events, one output a call.
///
/// Made by [`Toolkit::run`]. Dropping it drops every tool that is running.
#[must_use = "streams do nothing unless polled"]
pub struct ToolRun {
    kit: Toolkit,
    history: History,
    turn: Arc<Turn>,
    /// Those that did not begin yet, in call order.
    waiting: VecDeque<ToolCall>,
    running: SelectAll<Running>,
    /// What was given out, in the order in which it came.
    results: Vec<ToolResult>,
}

impl ToolRun {
    pub(super) fn new(kit: &Toolkit, history: History, turn: Arc<Turn>) -> Self {
        let waiting = turn.tool_calls().cloned().collect();
        Self {
            kit: kit.clone(),
            history,
            turn,
            waiting,
            running: SelectAll::new(),
            results: Vec::new(),
        }
    }

    /// The history before the turn, and the turn.
    pub(super) fn began_with(&self) -> (&History, &Arc<Turn>) {
        (&self.history, &self.turn)
    }

    /// Begins a call: what runs, or the result of one that may not run.
    fn begin(&self, call: ToolCall) -> Result<Running, ToolEvent> {
        let refuse = |kind, why: String| Err(ToolEvent::made_up(&call, kind, why));
        if let Some(veto) = self.turn.calls().veto() {
            return refuse(veto.kind, veto.why.to_owned());
        }
        if self.history.holds_call_id(&call.call_id) {
            let why = "Not run: another call has this id. Call the tool again.";
            return refuse(ResultKind::Skipped, why.to_owned());
        }
        let Some(tool) = self.kit.find(&call.name) else {
            let why = format!("There is no tool `{}`. {}", call.name, self.kit.names());
            return refuse(ResultKind::UnknownTool, why);
        };
        let arguments = call.arguments_or_empty();
        let invalid = |why: &str| {
            format!(
                "The arguments of `{}` do not fit: {why}. Call it again with arguments that fit \
                 its schema.",
                call.name
            )
        };
        match serde_json::from_str::<serde::de::IgnoredAny>(arguments) {
            Err(error) => {
                return refuse(
                    ResultKind::InvalidArguments,
                    invalid(&format!("not JSON: {error}")),
                );
            }
            Ok(_) if !arguments.starts_with('{') => {
                return refuse(ResultKind::InvalidArguments, invalid("not a JSON object"));
            }
            Ok(_) => {}
        }
        let cancelled = CancelFlag::default();
        let context = ToolContext::new(
            &call.call_id,
            self.history.id(),
            Arc::clone(&self.turn),
            cancelled.clone(),
        );
        let called = catch_unwind(AssertUnwindSafe(|| tool.handler().call(arguments, context)));
        match called {
            Ok(Ok(updates)) => Ok(Running { call, updates: Some(updates), cancelled }),
            Ok(Err(why)) => refuse(ResultKind::InvalidArguments, invalid(&why)),
            Err(payload) => refuse(ResultKind::Panic, panicked(&*payload)),
        }
    }
}

impl ToolRun {
    /// The results so far, in call order.
    pub(super) fn take_results(&mut self) -> Vec<ToolResult> {
        let mut held: HashMap<String, ToolResult> = std::mem::take(&mut self.results)
            .into_iter()
            .map(|result| (result.call_id.clone(), result))
            .collect();
        self.turn.tool_calls().filter_map(|call| held.remove(&call.call_id)).collect()
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<ToolEvent>> {
        loop {
            // One a poll, so that nothing of a tool runs before its `Started` is given out.
            if self.has_room()
                && let Some(call) = self.waiting.pop_front()
            {
                return Poll::Ready(Some(match self.begin(call) {
                    Ok(running) => {
                        let started = running.started();
                        self.running.push(running);
                        started
                    }
                    Err(answer) => answer,
                }));
            }
            let polled = self.running.poll_next_unpin(cx);
            let event = matches!(polled, Poll::Ready(Some(_)));
            // What ended inside made room for one that waits.
            if event || self.waiting.is_empty() || !self.has_room() {
                return polled;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.running.len() < self.kit.limit()
    }
}

impl Stream for ToolRun {
    type Item = ToolEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ToolEvent>> {
        let polled = self.poll_event(cx);
        if let Poll::Ready(Some(ToolEvent::Output(result))) = &polled {
            self.results.push(result.clone());
        }
        polled
    }
}

impl FusedStream for ToolRun {
    fn is_terminated(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

impl fmt::Debug for ToolRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolRun")
            .field("waiting", &self.waiting.len())
            .field("running", &self.running.len())
            .finish_non_exhaustive()
    }
}

/// One call while it runs: `Started`, any `Progress`, one `Output`.
struct Running {
    call: ToolCall,
    /// `None` once the output is there; dropped before it is given out.
    updates: Option<Updates>,
    cancelled: CancelFlag,
}

impl Stream for Running {
    type Item = ToolEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ToolEvent>> {
        let this = &mut *self;
        let Some(updates) = &mut this.updates else { return Poll::Ready(None) };
        let (call_id, name) = (&this.call.call_id, &this.call.name);
        let update = match catch_unwind(AssertUnwindSafe(|| updates.poll_next_unpin(cx))) {
            Ok(polled) => ready!(polled),
            Err(payload) => {
                let answer = ToolEvent::made_up(&this.call, ResultKind::Panic, panicked(&*payload));
                this.finish();
                return Poll::Ready(Some(answer));
            }
        };
        let event = match update {
            Some(Update::Progress(data)) => {
                let (call_id, name) = (call_id.clone(), name.clone());
                return Poll::Ready(Some(ToolEvent::Progress { call_id, name, data }));
            }
            Some(Update::Nested(event)) => {
                let (call_id, name) = (call_id.clone(), name.clone());
                return Poll::Ready(Some(ToolEvent::Nested { call_id, name, event }));
            }
            Some(Update::Output(output)) => {
                let kind = if output.failed { ResultKind::Error } else { ResultKind::Ok };
                ToolEvent::Output(ToolResult::answering(&this.call, kind, output.content))
            }
            None => {
                let why = "Error: the tool ended without a result.";
                ToolEvent::made_up(&this.call, ResultKind::Error, why)
            }
        };
        this.finish();
        Poll::Ready(Some(event))
    }
}

impl Running {
    fn started(&self) -> ToolEvent {
        let (call_id, name) = (self.call.call_id.clone(), self.call.name.clone());
        ToolEvent::Started { call_id, name }
    }

    /// Drops what ran. A panic in its `Drop` is no reason to lose the result that is there, or to
    /// leave a sibling undropped.
    fn finish(&mut self) {
        self.cancelled.set();
        let updates = self.updates.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(updates)));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.updates.is_some() {
            self.finish();
        }
    }
}

fn panicked(payload: &(dyn std::any::Any + Send)) -> String {
    format!("Error: the tool panicked: {}", panic_message(payload))
}
