//! Executes admitted calls, from waiting for a slot to returning the result.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::stream::{SelectAll, StreamExt};
use tokio::time::Instant;

use crate::error::Error;
use crate::propagation::TraceContexts;
use crate::tool::ToolContext;
use crate::tool::run::announced_calls::AnnouncedCalls;
use crate::tool::run::call_journal::CallJournal;
use crate::tool::run::concurrency_slots::ConcurrencySlots;
use crate::tool::run::policy_handle::{HeldSlot, PolicyFuture};
use crate::tool::run::running_call::{CallUpdate, RunningCall, started_event};
use crate::tool::run::turn_calls::{AnsweredCall, CallPermission, ReadyCall, TurnCalls};

/// Waits for a slot for each admitted call, and then runs the call until its result arrives.
pub(super) struct CallExecutor {
    /// The calls that start as soon as a slot is free, in call order.
    ready_calls: VecDeque<ReadyCall>,
    /// The first ready call's index within the turn, and the future that waits for the policy to
    /// grant the call a slot.
    pending_slot: Option<(usize, PolicyFuture<HeldSlot>)>,
    slots: ConcurrencySlots,
    /// The calls that wait for their journal, if the run has a journal.
    announced: Option<AnnouncedCalls>,
    running: SelectAll<RunningCall>,
    /// The time at which the last event was emitted, or `None` while no tool has a time limit.
    last_event_at: Option<Instant>,
    has_timeouts: bool,
}

impl CallExecutor {
    pub(super) fn new(max_concurrency: usize) -> Self {
        Self {
            ready_calls: VecDeque::new(),
            pending_slot: None,
            slots: ConcurrencySlots::new(max_concurrency),
            announced: None,
            running: SelectAll::new(),
            last_event_at: None,
            has_timeouts: false,
        }
    }

    pub(super) fn set_journal(&mut self, journal: Arc<dyn CallJournal>) {
        let slots = mem::replace(&mut self.slots, ConcurrencySlots::unlimited());
        self.announced = Some(AnnouncedCalls::new(journal, slots));
    }

    /// Adds a call to the ready calls, keeping them in call order. The call starts as soon as a
    /// slot is free.
    pub(super) fn enqueue(&mut self, ready_call: ReadyCall) {
        let place = self.ready_calls.partition_point(|other| other.index < ready_call.index);
        self.ready_calls.insert(place, ready_call);
    }

    /// Returns the slots available to calls that have not been admitted yet, or `None` while an
    /// admitted call is waiting for its slot.
    pub(super) fn free_slots(&self) -> Option<ConcurrencySlots> {
        self.ready_calls.is_empty().then_some(self.slots)
    }

    /// Returns the next call to start, if a slot is free for it.
    pub(super) fn peek_next(&self) -> Option<&ReadyCall> {
        self.ready_calls.front().filter(|first| self.slots.has_slot_for(Some(&first.tool)))
    }

    /// Changes why the next call may run.
    pub(super) fn set_permission_of_next(&mut self, permission: CallPermission) {
        if let Some(first) = self.ready_calls.front_mut() {
            first.permission = permission;
        }
    }

    /// Removes and returns the next call to start.
    pub(super) fn take_next(&mut self) -> Option<ReadyCall> {
        self.ready_calls.pop_front()
    }

    /// Starts the [next](Self::peek_next) call if it has received its slot. If the returned update
    /// is `Answered`, the tool did not run.
    pub(super) fn start_next(
        &mut self,
        calls: &mut TurnCalls,
        cx: &mut Context<'_>,
    ) -> Result<Option<CallUpdate>, Error> {
        let has_room = |first: &&ReadyCall| self.slots.has_slot_for(Some(&first.tool));
        let Some(first) = self.ready_calls.front().filter(has_room) else {
            // Other runs may be waiting for a slot that this run cannot use now.
            cancel_slot_wait(&mut self.pending_slot)?;
            return Ok(None);
        };
        if self.pending_slot.as_ref().is_some_and(|(whose, _)| *whose != first.index) {
            cancel_slot_wait(&mut self.pending_slot)?;
        }
        let has_result =
            (self.announced.as_ref()).is_some_and(|it| it.journal.has_result(&first.call.call_id));
        let needs_slot = !first.tool.runs_sub_agents() && !has_result;
        if self.pending_slot.is_none() && needs_slot {
            let slot = calls.policy.call_policy(|policy| policy.acquire_slot(&first.call))?;
            self.pending_slot = slot.map(|slot| (first.index, PolicyFuture::new(slot)));
        }
        let slot = match &mut self.pending_slot {
            Some((_, waiting)) => match waiting.poll(cx)? {
                Poll::Ready(slot) => Some(slot),
                Poll::Pending => return Ok(None),
            },
            None => None,
        };
        self.pending_slot = None;
        let Some(ready_call) = self.ready_calls.pop_front() else { return Ok(None) };
        let turn = Arc::clone(&calls.turn);
        let mut context = ToolContext::new(&ready_call.call, calls.history.id(), turn);
        (context.is_dry_run, context.data) = (calls.toolkit.is_dry_run(), calls.run_data.clone());
        if !ready_call.tool.runs_sub_agents() {
            // The tools of a sub-agent are measured themselves.
            context.poll_timer.clone_from(&calls.poll_timer);
        }
        if let Some(contexts) = context.data.get::<TraceContexts>() {
            let of_call = contexts.of_call(context.call_id());
            context.data = context.data.insert(of_call);
        }
        calls.policy.call_policy(|policy| policy.on_start(&context))?;
        context.policy_extension = calls.policy.call_policy(|policy| policy.policy_extension())?;
        let limit = calls.toolkit.time_limit(&ready_call.tool);
        self.has_timeouts |= limit.is_some();
        if let Some(announced) = &mut self.announced {
            let started = announced.announce(ready_call, limit, context, slot);
            return Ok(Some(CallUpdate::Event(started)));
        }
        let (tool, started) = (ready_call.tool.clone(), started_event(&ready_call));
        Ok(Some(match RunningCall::start(ready_call, limit, context, slot) {
            Ok(running) => {
                self.slots.acquire(&tool);
                self.running.push(running);
                CallUpdate::Event(started)
            }
            Err(ended) => CallUpdate::Answered(ended),
        }))
    }

    /// Returns the next update from the running calls, or `None` if no calls are running or
    /// announced.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<CallUpdate>> {
        if let Some(announced) = &mut self.announced {
            while let Poll::Ready(start) = announced.poll_start(cx) {
                match start {
                    Ok(running) => self.running.push(running),
                    Err(ended) => return Poll::Ready(Some(CallUpdate::Answered(ended))),
                }
            }
        }
        let update = match ready!(self.running.poll_next_unpin(cx)) {
            None if self.announced.as_ref().is_some_and(|it| !it.is_empty()) => {
                return Poll::Pending;
            }
            update => update,
        };
        if let Some(
            CallUpdate::Answered(_)
            | CallUpdate::SubAgentEnded { .. }
            | CallUpdate::Suspended { .. },
        ) = update
        {
            self.announced.as_mut().map_or(&mut self.slots, |it| &mut it.slots).release();
        }
        Poll::Ready(update)
    }

    /// Pauses all time limits after an event, so that the time until the consumer polls again does
    /// not count towards them.
    pub(super) fn pause_timeouts(&mut self) {
        if self.has_timeouts {
            self.last_event_at = Some(Instant::now());
        }
    }

    /// Resumes all time limits when the consumer polls again.
    pub(super) fn resume_timeouts(&mut self) {
        if let Some(since) = self.last_event_at.take() {
            let pause = since.elapsed();
            self.running.iter_mut().for_each(|running| running.extend_deadline(pause));
        }
    }

    /// Returns the next call that was executed elsewhere.
    pub(super) fn next_executed(&mut self, cx: &mut Context<'_>) -> Option<Box<AnsweredCall>> {
        match self.announced.as_mut()?.poll_start(cx) {
            Poll::Ready(Err(answered)) => Some(answered),
            Poll::Ready(Ok(_)) | Poll::Pending => None,
        }
    }

    /// Drops all ready and running calls. Calls that were executed elsewhere are kept.
    pub(super) fn clear(&mut self) {
        self.ready_calls.clear();
        self.announced.iter_mut().for_each(AnnouncedCalls::keep_executed);
        self.running = SelectAll::new();
        self.pending_slot = None;
    }
}

fn cancel_slot_wait(slot: &mut Option<(usize, PolicyFuture<HeldSlot>)>) -> Result<(), Error> {
    slot.take().map_or(Ok(()), |(_, mut waiting)| waiting.cancel())
}
