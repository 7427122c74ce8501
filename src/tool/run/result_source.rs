//! The source of the events of a turn's calls.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::event::ToolEvent;
use crate::tool::run::call_journal::CallJournal;
use crate::tool::run::journaled_calls::JournaledCalls;
use crate::tool::run::live_calls::LiveCalls;
use crate::tool::run::replayed_calls::ReplayedCalls;
use crate::tool::run::result_collector::{CallsEnd, ResultCollector};
use crate::tool::run::turn_calls::TurnCalls;

/// The source of the events of a turn's calls.
pub(super) enum ResultSource {
    /// The calls run.
    Live(Box<LiveCalls>),
    /// The events were saved or recorded.
    Replayed(ReplayedCalls),
    /// A journal decides whether and when the calls run.
    Journaled(JournaledCalls),
    /// All events have been emitted.
    Over(CallsEnd),
}

impl ResultSource {
    /// Returns the source that lets a journal decide when the calls run, unless the calls' events
    /// were saved or recorded.
    pub(super) fn with_journal(self, journal: Arc<dyn CallJournal>) -> Self {
        match self {
            Self::Live(live) => Self::Journaled(JournaledCalls::new(live, journal)),
            other => other,
        }
    }

    /// Returns the calls that run, or that may run.
    pub(super) fn live_mut(&mut self) -> Option<&mut LiveCalls> {
        match self {
            Self::Live(live) => Some(live),
            Self::Journaled(journaled) => journaled.live_mut(),
            Self::Replayed(_) | Self::Over(_) => None,
        }
    }

    /// Returns the next event, and stores the result or suspension that it contains.
    pub(super) fn poll_event(
        &mut self,
        calls: &mut TurnCalls,
        results: &mut ResultCollector,
        cx: &mut Context<'_>,
    ) -> Poll<Option<ToolEvent>> {
        let event = ready!(match self {
            Self::Live(live) => live.poll_event(calls, results, cx),
            Self::Replayed(replayed) => replayed.poll_event(calls, results, cx),
            Self::Journaled(journaled) => journaled.poll_event(calls, results, cx),
            Self::Over(_) => Poll::Ready(None),
        });
        if event.is_none() {
            *self = Self::Over(self.end(results));
        }
        Poll::Ready(event)
    }

    /// Returns the end of the calls if the source ends now.
    pub(super) fn end(&mut self, results: &ResultCollector) -> CallsEnd {
        match self {
            Self::Live(live) => live.end(results),
            Self::Replayed(replayed) => replayed.end(results),
            Self::Journaled(journaled) => journaled.end(results),
            Self::Over(end) => mem::take(end),
        }
    }
}
