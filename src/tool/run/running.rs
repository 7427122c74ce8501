//! One call while it runs.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::StreamExt;

use crate::env::{Alarm, Ring, TimeLimit};
use crate::error::catch_panic;
use crate::event::ToolEvent;
use crate::item::{Content, ResultKind, ToolCall, ToolResult};
use crate::tool::context::Record;
use crate::tool::run::calls::{Candidate, Ended, panicked};
use crate::tool::run::guarded_gate::Slot;
use crate::tool::{Suspension, ToolContext, Update, Updates};

/// One call while it runs: any progress, then its end.
pub(super) struct Running {
    at: usize,
    call: ToolCall,
    /// `None` once the result is there; dropped before it is given out.
    updates: Option<Updates>,
    record: Arc<Record>,
    limit: Option<TimeLimit>,
    /// Rings when it has taken too long; pauses of the consumer do not count. `None` until it is first
    /// polled.
    alarm: Option<Alarm>,
    /// Whether its time was over when it last had something to tell.
    late: bool,
    /// Its place among the calls that share a limit with it. `None` once it ended.
    slot: Option<Slot>,
}

/// What a call that runs has to say.
pub(super) enum Said {
    Event(ToolEvent),
    Ended(Box<Ended>),
    Suspended { at: usize, call: ToolCall, suspension: Box<Suspension> },
}

impl Running {
    /// Begins a call, which keeps its slot until it ends. Nothing of the tool runs before the first poll.
    ///
    /// # Errors
    ///
    /// What the call is answered with if it panics.
    pub(super) fn begin(
        candidate: Candidate,
        limit: Option<TimeLimit>,
        context: ToolContext,
        slot: Option<Slot>,
    ) -> Result<Self, Box<Ended>> {
        let Candidate { at, call, prepared, .. } = candidate;
        let record = context.record();
        match prepared.begin(context) {
            Ok(updates) => {
                let updates = Some(updates);
                Ok(Self { at, call, updates, record, limit, alarm: None, late: false, slot })
            }
            Err(message) => {
                record.cancel();
                let mut ended = Ended::refused(at, call, (ResultKind::Panic, panicked(&message)));
                ended.result = ended.result.with_report(record.take());
                Err(Box::new(ended))
            }
        }
    }

    pub(super) fn started(&self) -> ToolEvent {
        let (call_id, name) = ids(&self.call);
        ToolEvent::Started { call_id, name }
    }

    /// Does not count a pause of the consumer.
    pub(super) fn shift(&mut self, pause: Duration) {
        if let Some(alarm) = &mut self.alarm {
            alarm.shift(pause);
        }
    }

    fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        let Some(updates) = &mut self.updates else { return Poll::Ready(None) };
        if self.alarm.is_none() {
            self.alarm = self.limit.map(Alarm::new);
        }
        if self.late {
            return Poll::Ready(Some(self.time_out()));
        }
        let polled = catch_panic(|| updates.poll_next_unpin(cx));
        if let Ok(Poll::Ready(_)) = polled {
            self.late = self.alarm.as_ref().is_some_and(Alarm::is_over);
        }
        let (kind, content) = match polled {
            Ok(Poll::Pending) => {
                let Some(alarm) = &mut self.alarm else { return Poll::Pending };
                return alarm.poll(cx).map(|ring| {
                    Some(match ring {
                        Ring::TimeUp => self.time_out(),
                        Ring::NoTimer => self.no_timer(),
                    })
                });
            }
            Ok(Poll::Ready(Some(Update::Progress(data)))) => {
                let (call_id, name) = ids(&self.call);
                let event = ToolEvent::Progress { call_id, name, data };
                return Poll::Ready(Some(Said::Event(event)));
            }
            Ok(Poll::Ready(Some(Update::Nested(event)))) => {
                let (call_id, name) = ids(&self.call);
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
        let limit = self.limit.map_or(Duration::ZERO, TimeLimit::duration);
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
        let result = ToolResult::for_call(&self.call, kind, content);
        let result = result.with_report(self.record.take());
        Said::Ended(Box::new(Ended { at: self.at, call: self.call.clone(), result }))
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

fn ids(call: &ToolCall) -> (String, String) {
    (call.call_id.clone(), call.name.clone())
}
