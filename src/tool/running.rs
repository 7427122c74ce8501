//! One call while it runs.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::StreamExt;

use crate::env::{Ring, TimeLimit};
use crate::error::catch_panic;
use crate::event::ToolEvent;
use crate::item::{Content, ResultKind, ToolCall, ToolResult};
use crate::tool::begin::Candidate;
use crate::tool::context::Record;
use crate::tool::timer::Timer;
use crate::tool::{Suspension, ToolContext, ToolOutput, Update, Updates};

/// One call while it runs: any progress, then its end.
pub(super) struct Running {
    at: usize,
    call: ToolCall,
    /// `None` once the result is there; dropped before it is given out.
    updates: Option<Updates>,
    record: Arc<Record>,
    timer: Option<Timer>,
    /// Its place among the calls that share a limit with it. `None` once it ended.
    slot: Option<Box<dyn Any + Send>>,
}

/// What a call that runs has to say.
pub(super) enum Said {
    Event(ToolEvent),
    Ended { at: usize, call: ToolCall, result: ToolResult },
    Suspended { at: usize, call: ToolCall, suspension: Box<Suspension> },
}

impl Running {
    /// Begins a call. Nothing of the tool runs before the first poll.
    ///
    /// # Errors
    ///
    /// What the call is answered with if it panics.
    pub(super) fn begin(
        candidate: Candidate,
        limit: Option<TimeLimit>,
        context: ToolContext,
    ) -> Result<Self, Box<(ToolCall, ToolResult)>> {
        let Candidate { at, call, prepared, .. } = candidate;
        let record = context.record();
        match prepared.begin(context) {
            Ok(updates) => {
                let timer = limit.map(Timer::new);
                Ok(Self { at, call, updates: Some(updates), record, timer, slot: None })
            }
            Err(message) => {
                record.cancel();
                let result = ToolResult::answering(&call, ResultKind::Panic, panicked(&message));
                Err(Box::new((call, result.with_report(record.take()))))
            }
        }
    }

    /// Keeps its place until it ends.
    pub(super) fn holding(mut self, slot: Option<Box<dyn Any + Send>>) -> Self {
        self.slot = slot;
        self
    }

    pub(super) fn started(&self) -> ToolEvent {
        let (call_id, name) = (self.call.call_id.clone(), self.call.name.clone());
        ToolEvent::Started { call_id, name }
    }

    /// Does not count a pause of the consumer.
    pub(super) fn shift(&mut self, pause: Duration) {
        if let Some(timer) = &mut self.timer {
            timer.shift(pause);
        }
    }

    fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        let Some(updates) = &mut self.updates else { return Poll::Ready(None) };
        if let Some(timer) = &mut self.timer {
            timer.arm();
        }
        let (call_id, name) = (&self.call.call_id, &self.call.name);
        let polled = match &self.timer {
            // It had more to tell when its time was over, and that was given out.
            Some(timer) if timer.has_rung() => return Poll::Ready(Some(self.time_out())),
            _ => catch_panic(|| updates.poll_next_unpin(cx)),
        };
        if let (Some(timer), Ok(Poll::Ready(_))) = (&mut self.timer, &polled) {
            timer.look();
        }
        let (kind, content) = match polled {
            Ok(Poll::Pending) => {
                let Some(timer) = &mut self.timer else { return Poll::Pending };
                return timer.poll(cx).map(|ring| {
                    Some(match ring {
                        Ring::TimeUp => self.time_out(),
                        Ring::NoTimer => self.no_timer(),
                    })
                });
            }
            Ok(Poll::Ready(Some(Update::Progress(data)))) => {
                let (call_id, name) = (call_id.clone(), name.clone());
                let event = ToolEvent::Progress { call_id, name, data };
                return Poll::Ready(Some(Said::Event(event)));
            }
            Ok(Poll::Ready(Some(Update::Nested(event)))) => {
                let (call_id, name) = (call_id.clone(), name.clone());
                let event = ToolEvent::Nested { call_id, name, event };
                return Poll::Ready(Some(Said::Event(event)));
            }
            Ok(Poll::Ready(Some(Update::Output(output)))) => output.into_kind(),
            Ok(Poll::Ready(Some(Update::Suspended(suspension)))) => {
                self.drop_updates();
                let (at, call) = (self.at, self.call.clone());
                return Poll::Ready(Some(Said::Suspended { at, call, suspension }));
            }
            Ok(Poll::Ready(None)) => {
                (ResultKind::Error, "Error: the tool ended without a result.".into())
            }
            Err(message) => (ResultKind::Panic, panicked(&message).into()),
        };
        Poll::Ready(Some(self.end(kind, content)))
    }

    fn time_out(&mut self) -> Said {
        let limit = self.timer.as_ref().map_or(Duration::ZERO, Timer::limit);
        let text = format!(
            "Timed out after {limit:?}. What it began may have been done in part: look before you \
             call it again."
        );
        self.end(ResultKind::Timeout, text.into())
    }

    /// The limit was set, and cannot be kept here.
    fn no_timer(&mut self) -> Said {
        let text = "Error: the tool has a time limit, which needs a tokio runtime with its time \
             enabled. What it began may have been done in part.";
        self.end(ResultKind::Error, text.into())
    }

    fn end(&mut self, kind: ResultKind, content: Content) -> Said {
        self.drop_updates();
        let result = ToolResult::answering(&self.call, kind, content);
        let result = result.with_report(self.record.take());
        Said::Ended { at: self.at, call: self.call.clone(), result }
    }

    /// Drops what ran. A panic in its `Drop` is no reason to lose the result that is there, or to
    /// leave a sibling undropped.
    fn drop_updates(&mut self) {
        self.record.cancel();
        let updates = self.updates.take();
        let _ = catch_panic(|| drop(updates));
        self.slot = None;
    }
}

impl Stream for Running {
    type Item = Said;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        self.poll_update(cx)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.updates.is_some() {
            self.drop_updates();
        }
    }
}

impl ToolOutput {
    pub(super) fn into_kind(self) -> (ResultKind, Content) {
        let kind = if self.failed { ResultKind::Error } else { ResultKind::Ok };
        (kind, self.content)
    }

    pub(crate) fn answering(self, call: &ToolCall) -> ToolResult {
        let (kind, content) = self.into_kind();
        ToolResult::answering(call, kind, content)
    }
}

/// What the model is told of arguments that do not fit.
pub(super) fn unfit(call: &ToolCall, why: &str) -> String {
    format!(
        "The arguments of `{}` do not fit: {why}. Call it again with arguments that fit its schema.",
        call.name
    )
}

pub(super) fn panicked(message: &str) -> String {
    format!("Error: the tool panicked: {message}")
}
