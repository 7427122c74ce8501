//! The calls that may run, from a place of their own to their end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::stream::{SelectAll, StreamExt};
use tokio::time::Instant;

use crate::error::Error;
use crate::tool::ToolContext;
use crate::tool::run::calls::{Calls, Candidate};
use crate::tool::run::guarded_gate::{OfGate, Slot};
use crate::tool::run::places::Places;
use crate::tool::run::running::{Running, Said};

/// Runs the calls that are allowed, each as soon as there is room, until each has its result.
pub(super) struct Execution {
    /// Those that start as soon as there is room, in call order.
    allowed: VecDeque<Candidate>,
    /// What the first of these waits for, with its place in the turn.
    slot: Option<(usize, OfGate<Slot>)>,
    places: Places,
    running: SelectAll<Running>,
    /// When an event was last given out; `None` while no tool has a time limit.
    gave_out: Option<Instant>,
    is_timed: bool,
}

impl Execution {
    pub(super) fn new(at_once: usize) -> Self {
        Self {
            allowed: VecDeque::new(),
            slot: None,
            places: Places::new(at_once),
            running: SelectAll::new(),
            gave_out: None,
            is_timed: false,
        }
    }

    /// Lets a call start as soon as there is room, behind those before it in the turn.
    pub(super) fn allow(&mut self, candidate: Candidate) {
        let place = self.allowed.partition_point(|other| other.at < candidate.at);
        self.allowed.insert(place, candidate);
    }

    /// The places for calls that are not allowed yet; `None` while one that is waits for its own.
    pub(super) fn places(&self) -> Option<Places> {
        self.allowed.is_empty().then_some(self.places)
    }

    /// The call that is to start next, if there is room for it.
    pub(super) fn next(&self) -> Option<&Candidate> {
        self.allowed.front().filter(|first| self.places.are_left(Some(&first.tool)))
    }

    /// Takes the call that was to start next.
    pub(super) fn take_next(&mut self) -> Option<Candidate> {
        self.allowed.pop_front()
    }

    /// Starts the [next](Self::next) call, once it has its slot. One that ends in this has not run.
    pub(super) fn start(
        &mut self,
        calls: &mut Calls,
        cx: &mut Context<'_>,
    ) -> Result<Option<Said>, Error> {
        let has_room = |first: &&Candidate| self.places.are_left(Some(&first.tool));
        let Some(first) = self.allowed.front().filter(has_room) else {
            // Other runs may wait for a slot that this one cannot use now.
            give_up(&mut self.slot)?;
            return Ok(None);
        };
        if self.slot.as_ref().is_some_and(|(whose, _)| *whose != first.at) {
            give_up(&mut self.slot)?;
        }
        if self.slot.is_none() && !first.tool.runs_agents() {
            let slot = calls.gate.ask(|gate| gate.slot(&first.call))?;
            self.slot = slot.map(|slot| (first.at, OfGate::new(slot)));
        }
        let slot = match &mut self.slot {
            Some((_, waiting)) => match waiting.poll(cx)? {
                Poll::Ready(slot) => Some(slot),
                Poll::Pending => return Ok(None),
            },
            None => None,
        };
        self.slot = None;
        let Some(candidate) = self.allowed.pop_front() else { return Ok(None) };
        let (call_id, turn) = (&candidate.call.call_id, Arc::clone(&calls.turn));
        let mut context = ToolContext::new(call_id, calls.history.id(), turn);
        (context.dry_run, context.data) = (calls.kit.is_dry_run(), calls.data.clone());
        calls.gate.ask(|gate| gate.starts(&context))?;
        context.extension = calls.gate.ask(|gate| gate.extension())?;
        let limit = calls.kit.time_limit(&candidate.tool);
        let tool = candidate.tool.clone();
        Ok(Some(match Running::begin(candidate, limit, context, slot) {
            Ok(running) => {
                let started = running.started();
                self.is_timed |= limit.is_some();
                self.places.take(&tool);
                self.running.push(running);
                Said::Event(started)
            }
            Err(ended) => Said::Ended(ended),
        }))
    }

    /// What the next of those that run has to say; `None` if none runs.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        let said = ready!(self.running.poll_next_unpin(cx));
        if let Some(Said::Ended(_) | Said::Suspended { .. }) = said {
            self.places.give_back();
        }
        Poll::Ready(said)
    }

    /// An event was given out: what the consumer takes until the next poll is not counted.
    pub(super) fn pause(&mut self) {
        if self.is_timed {
            self.gave_out = Some(Instant::now());
        }
    }

    /// The consumer polls.
    pub(super) fn resume(&mut self) {
        if let Some(since) = self.gave_out.take() {
            let pause = since.elapsed();
            self.running.iter_mut().for_each(|running| running.shift(pause));
        }
    }

    /// Drops all calls.
    pub(super) fn clear(&mut self) {
        self.allowed.clear();
        self.running = SelectAll::new();
        self.slot = None;
    }
}

fn give_up(slot: &mut Option<(usize, OfGate<Slot>)>) -> Result<(), Error> {
    slot.take().map_or(Ok(()), |(_, mut waiting)| waiting.give_up())
}
