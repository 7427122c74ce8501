//! Runs a turn's calls when their journal allows it, or emits what the journal has stored.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::event::ToolEvent;
use crate::tool::run::call_journal::{CallJournal, CallsBegin};
use crate::tool::run::live_calls::LiveCalls;
use crate::tool::run::replayed_calls::ReplayedCalls;
use crate::tool::run::result_collector::{CallsEnd, ResultCollector};
use crate::tool::run::turn_calls::TurnCalls;

/// A turn's calls, whose results a journal stores.
pub(super) struct JournaledCalls {
    journal: Arc<dyn CallJournal>,
    pub(super) stage: JournalStage,
}

pub(super) enum JournalStage {
    /// Waits until the journal reports whether the calls run.
    AwaitsBegin(Box<LiveCalls>),
    Running(Box<LiveCalls>),
    /// Emits the events that the journal has stored.
    Repeating(ReplayedCalls),
    /// All events have been emitted, but the journal has not stored the results yet.
    Storing(CallsEnd),
}

impl JournaledCalls {
    pub(super) fn new(mut live: Box<LiveCalls>, journal: Arc<dyn CallJournal>) -> Self {
        live.set_journal(&journal);
        Self { journal, stage: JournalStage::AwaitsBegin(live) }
    }

    pub(super) fn live_mut(&mut self) -> Option<&mut LiveCalls> {
        match &mut self.stage {
            JournalStage::AwaitsBegin(live) | JournalStage::Running(live) => Some(live),
            JournalStage::Repeating(_) | JournalStage::Storing(_) => None,
        }
    }

    pub(super) fn poll_event(
        &mut self,
        calls: &mut TurnCalls,
        results: &mut ResultCollector,
        cx: &mut Context<'_>,
    ) -> Poll<Option<ToolEvent>> {
        loop {
            match &mut self.stage {
                JournalStage::AwaitsBegin(_) => {
                    let begin = ready!(self.journal.poll_begin(cx));
                    self.begin(begin);
                }
                JournalStage::Running(live) => {
                    let polled = live.poll_event(calls, results, cx);
                    if polled.is_pending() && !live.is_asking() {
                        self.journal.on_idle();
                    }
                    match ready!(polled) {
                        Some(event) => return Poll::Ready(Some(event)),
                        None => self.stage = JournalStage::Storing(live.end(results)),
                    }
                }
                JournalStage::Repeating(replayed) => {
                    match ready!(replayed.poll_event(calls, results, cx)) {
                        Some(event) => return Poll::Ready(Some(event)),
                        None => self.stage = JournalStage::Storing(replayed.end(results)),
                    }
                }
                JournalStage::Storing(_) => return self.journal.poll_end(cx).map(|()| None),
            }
        }
    }

    fn begin(&mut self, begin: CallsBegin) {
        let stage = mem::replace(&mut self.stage, JournalStage::Storing(CallsEnd::default()));
        self.stage = match (begin, stage) {
            (CallsBegin::Live(admitted), JournalStage::AwaitsBegin(mut live)) => {
                live.set_admitted(admitted);
                JournalStage::Running(live)
            }
            (CallsBegin::Live(_), stage) => stage,
            (CallsBegin::Saved(saved), _) => JournalStage::Repeating(saved.into()),
            (CallsBegin::EndedEarly(events), _) => {
                JournalStage::Repeating(ReplayedCalls::until_early_end(events))
            }
        };
    }

    pub(super) fn end(&mut self, results: &ResultCollector) -> CallsEnd {
        match &mut self.stage {
            JournalStage::AwaitsBegin(live) | JournalStage::Running(live) => live.end(results),
            JournalStage::Repeating(replayed) => replayed.end(results),
            JournalStage::Storing(end) => mem::take(end),
        }
    }
}
