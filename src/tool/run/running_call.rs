//! A single running call.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::StreamExt;

use crate::env::{Deadline, DeadlineOutcome, TimeLimit};
use crate::error::catch_panic;
use crate::event::ToolEvent;
use crate::item::{Content, RawJson, ResultKind, ToolCall, ToolResult};
use crate::tool::context::CallRecord;
use crate::tool::run::policy_handle::HeldSlot;
use crate::tool::run::turn_calls::{AnsweredCall, ReadyCall, panic_message};
use crate::tool::{PollTimer, Suspension, ToolContext, ToolUpdate, UpdateStream};

/// Runs a single call. The stream yields progress updates, followed by the end of the call.
pub(super) struct RunningCall {
    index: usize,
    /// The call, which is moved out once it has ended.
    call: ToolCall,
    /// The stream of updates. This field is `None` once the result has arrived, since the stream is
    /// dropped before the result is emitted.
    updates: Option<UpdateStream>,
    record: Arc<CallRecord>,
    limit: Option<TimeLimit>,
    /// The deadline set by the time limit, or `None` until the call is first polled. The deadline
    /// is extended when the consumer pauses.
    alarm: Option<Deadline>,
    /// Whether the deadline had passed when the call last returned an update.
    is_timed_out: bool,
    /// The concurrency slot that the call occupies, which is released when the call ends.
    slot: Option<HeldSlot>,
    /// The update that arrived together with the end of the call's sub-agent.
    held_update: Option<CallUpdate>,
    poll_timer: Option<Arc<PollTimer>>,
}

/// An update from a running call.
pub(super) enum CallUpdate {
    Event(ToolEvent),
    Progress {
        call: ToolCall,
        data: RawJson,
    },
    Answered(Box<AnsweredCall>),
    /// The last event of the call's sub-agent, and the call's result.
    SubAgentEnded {
        event: ToolEvent,
        answered: Box<AnsweredCall>,
    },
    Suspended {
        call_index: usize,
        call: ToolCall,
        suspension: Box<Suspension>,
    },
}

/// Returns the event that reports the start of a call.
pub(super) fn started_event(ready_call: &ReadyCall) -> ToolEvent {
    let ToolCall { call_id, name, arguments } = ready_call.call.clone();
    let grant_id = ready_call.permission.grant_id().map(Into::into);
    ToolEvent::Started { call_id, name, arguments, grant_id }
}

impl RunningCall {
    /// Starts a call. The call keeps its slot until it ends. No code in the tool's stream runs
    /// before the first poll.
    ///
    /// # Errors
    ///
    /// If starting the call panics, the `Err` contains the call with its result.
    pub(super) fn start(
        ready_call: ReadyCall,
        limit: Option<TimeLimit>,
        context: ToolContext,
        slot: Option<HeldSlot>,
    ) -> Result<Self, Box<AnsweredCall>> {
        let ReadyCall { index: at, call, prepared, .. } = ready_call;
        let record = context.call_record();
        let poll_timer = context.poll_timer.clone();
        match prepared.start(context) {
            Ok(updates) => Ok(Self {
                index: at,
                call,
                updates: Some(updates),
                record,
                limit,
                alarm: None,
                is_timed_out: false,
                slot,
                held_update: None,
                poll_timer,
            }),
            Err(message) => {
                record.mark_cancelled();
                let mut ended = AnsweredCall::from_refusal(
                    at,
                    call,
                    (ResultKind::Panic, panic_message(&message)),
                );
                ended.result = ended.result.with_report(record.take_report());
                Err(Box::new(ended))
            }
        }
    }

    /// Extends the deadline by the time for which the consumer paused.
    pub(super) fn extend_deadline(&mut self, pause: Duration) {
        if let Some(alarm) = &mut self.alarm {
            alarm.extend(pause);
        }
    }

    fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<CallUpdate>> {
        if let Some(update) = self.held_update.take() {
            return Poll::Ready(Some(update));
        }
        let Some(updates) = &mut self.updates else { return Poll::Ready(None) };
        if self.alarm.is_none() {
            self.alarm = self.limit.map(Deadline::new);
        }
        if self.is_timed_out {
            return Poll::Ready(Some(self.end_timed_out()));
        }
        let mut poll = || catch_panic(|| updates.poll_next_unpin(cx));
        let polled = match &self.poll_timer {
            Some(timer) => timer.measure(&self.call, poll),
            None => poll(),
        };
        if let Ok(Poll::Ready(_)) = polled {
            self.is_timed_out = self.alarm.as_ref().is_some_and(Deadline::is_over);
        }
        let (kind, content) = match polled {
            Ok(Poll::Pending) => {
                let Some(alarm) = &mut self.alarm else { return Poll::Pending };
                return alarm.poll(cx).map(|ring| {
                    Some(match ring {
                        DeadlineOutcome::TimeUp => self.end_timed_out(),
                        DeadlineOutcome::NoTimer => self.end_without_timer(),
                    })
                });
            }
            Ok(Poll::Ready(Some(ToolUpdate::Progress(data)))) => {
                let call = self.call.clone();
                return Poll::Ready(Some(CallUpdate::Progress { call, data }));
            }
            Ok(Poll::Ready(Some(ToolUpdate::NestedEvent(event)))) => {
                let has_ended = event.outcome().is_some();
                let ToolCall { call_id, name, .. } = self.call.clone();
                let event = ToolEvent::Nested { call_id, name, event };
                let update = if has_ended {
                    self.end_sub_agent(event, cx)
                } else {
                    CallUpdate::Event(event)
                };
                return Poll::Ready(Some(update));
            }
            Ok(Poll::Ready(Some(ToolUpdate::Output(output)))) => output.into_kind_and_content(),
            Ok(Poll::Ready(Some(ToolUpdate::Suspended(suspension)))) => {
                self.drop_updates();
                let (at, call) = (self.index, self.call.clone());
                return Poll::Ready(Some(CallUpdate::Suspended {
                    call_index: at,
                    call,
                    suspension,
                }));
            }
            Ok(Poll::Ready(None)) => {
                (ResultKind::Error, "Error: the tool ended without a result.".into())
            }
            Err(message) => (ResultKind::Panic, panic_message(&message).into()),
        };
        Poll::Ready(Some(self.end(kind, content)))
    }

    /// Adds the call's result to the last event of its sub-agent if the result is ready. Otherwise,
    /// the result would be lost if the run were dropped after this event.
    fn end_sub_agent(&mut self, event: ToolEvent, cx: &mut Context<'_>) -> CallUpdate {
        match self.poll_update(cx) {
            Poll::Ready(Some(CallUpdate::Answered(answered))) => {
                CallUpdate::SubAgentEnded { event, answered }
            }
            Poll::Ready(update) => {
                self.held_update = update;
                CallUpdate::Event(event)
            }
            Poll::Pending => CallUpdate::Event(event),
        }
    }

    fn end_timed_out(&mut self) -> CallUpdate {
        let limit = self.limit.map_or(Duration::ZERO, TimeLimit::duration);
        let text = format!(
            "Timed out after {limit:?}. The call may have taken effect in part: check before you \
             repeat it."
        );
        self.end(ResultKind::Timeout, text.into())
    }

    /// Ends the call with an error, because it has an explicit time limit but no timer is
    /// available.
    fn end_without_timer(&mut self) -> CallUpdate {
        let text = "Error: the tool has a time limit, which needs a tokio runtime with its time \
             enabled. The call may have taken effect in part.";
        self.end(ResultKind::Error, text.into())
    }

    fn end(&mut self, kind: ResultKind, content: Content) -> CallUpdate {
        self.drop_updates();
        let ToolCall { call_id, name, arguments } = &mut self.call;
        let call = ToolCall {
            call_id: mem::take(call_id),
            name: mem::take(name),
            arguments: mem::take(arguments),
        };
        let result = ToolResult::for_call(&call, kind, content);
        let result = result.with_report(self.record.take_report());
        CallUpdate::Answered(Box::new(AnsweredCall { index: self.index, call, result }))
    }

    /// Drops the tool's stream. A panic in the stream's `Drop` implementation is caught, so that
    /// the result is not lost and the other calls are still dropped.
    fn drop_updates(&mut self) {
        self.record.mark_cancelled();
        let updates = self.updates.take();
        let _ = catch_panic(|| drop(updates));
        self.slot = None;
    }
}

impl Stream for RunningCall {
    type Item = CallUpdate;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<CallUpdate>> {
        self.poll_update(cx)
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        if self.updates.is_some() {
            self.drop_updates();
        }
    }
}
