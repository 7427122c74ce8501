//! Calls whose events are known before, and what calls came to, to be kept.

use std::mem;

use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::event::{Event, ToolEvent};
use crate::item::PendingCall;

/// What the calls of a turn came to, to be kept: their results, the calls that stay open, and why they
/// were ended, without their progress and the events of sub-agents.
///
/// [`ToolRun::on_complete`](crate::tool::ToolRun::on_complete) makes it, and [`ToolRun::with_saved_calls`](crate::tool::ToolRun::with_saved_calls) answers with it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedCalls {
    pub(super) events: Vec<Event>,
    pub(super) pending: Vec<PendingCall>,
    pub(super) limited: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Error>,
}

/// What a run of calls gives out instead of running anything.
pub(super) struct ReplayedCalls {
    pub(super) events: BoxStream<'static, ToolEvent>,
    /// How it ends, without events.
    pub(super) saved_calls: SavedCalls,
}

/// Takes what the calls come to.
pub(super) struct SaveCallback {
    pub(super) saved: SavedCalls,
    pub(super) callback: Box<dyn FnOnce(SavedCalls) + Send>,
}

impl ReplayedCalls {
    pub(super) fn new(events: impl Stream<Item = ToolEvent> + Send + 'static) -> Self {
        Self { events: events.boxed(), saved_calls: SavedCalls::default() }
    }
}

impl From<SavedCalls> for ReplayedCalls {
    fn from(mut end: SavedCalls) -> Self {
        let events = mem::take(&mut end.events).into_iter().filter_map(|event| match event {
            Event::Tool(event) => Some(event),
            _ => None,
        });
        Self { saved_calls: end, ..Self::new(stream::iter(events)) }
    }
}
