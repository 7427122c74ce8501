//! Calls whose events are known before, and what calls came to, to be kept.

use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::event::{Event, ToolEvent};
use crate::item::{PendingCall, ToolCall};
use crate::tool::suspended::Suspended;
use crate::tool::{Suspension, ToolRun};

/// What the calls of a turn came to, to be kept: their results, the calls that stay open, and why they
/// were ended, without their progress and the events of sub-agents.
///
/// [`ToolRun::keeping`] makes it, and [`ToolRun::kept`] answers with it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptCalls {
    events: Vec<Event>,
    pending: Vec<PendingCall>,
    limited: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

/// What a run of calls gives out instead of running anything.
pub(super) struct Played {
    pub(super) events: BoxStream<'static, ToolEvent>,
    /// The calls that stay without a result.
    pub(super) pending: Vec<PendingCall>,
    pub(super) limited: usize,
    /// What ends it.
    pub(super) error: Option<Error>,
}

/// Takes what the calls come to.
pub(super) struct Keeper {
    kept: KeptCalls,
    keep: Box<dyn FnOnce(KeptCalls) + Send>,
}

impl ToolRun {
    /// Runs no tool and asks nobody: gives what the same calls came to before.
    pub fn kept(self, kept: KeptCalls) -> Self {
        let KeptCalls { events, pending, limited, error } = kept;
        let events = events.into_iter().filter_map(|event| match event {
            Event::Tool(event) => Some(event),
            _ => None,
        });
        self.playing(Played { events: stream::iter(events).boxed(), pending, limited, error })
    }

    /// Hands on what the calls came to, in the poll in which the last of them ends. If it is dropped
    /// before, nothing is handed on.
    pub fn keeping(mut self, keep: impl FnOnce(KeptCalls) + Send + 'static) -> Self {
        self.keeper = Some(Box::new(Keeper { kept: KeptCalls::default(), keep: Box::new(keep) }));
        self
    }

    /// The calls that it was given, in their order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.turn.tool_calls()
    }

    /// Runs no tool and asks nobody: its events are these, and those of `pending`
    /// that are its own are left without a result at their end.
    pub(crate) fn played(
        self,
        events: impl Stream<Item = ToolEvent> + Send + 'static,
        mut pending: Vec<PendingCall>,
    ) -> Self {
        pending.retain(|it| self.turn.tool_calls().any(|call| call.call_id == it.own_call_id()));
        self.playing(Played { events: events.boxed(), pending, limited: 0, error: None })
    }

    fn playing(mut self, played: Played) -> Self {
        self.played = Some(Box::new(played));
        self
    }

    /// Takes an item for the keeper, if there is one.
    pub(super) fn note(&mut self, event: Option<&ToolEvent>) {
        match (event, &mut self.keeper) {
            (_, None) | (Some(ToolEvent::Progress { .. } | ToolEvent::Nested { .. }), _) => {}
            (Some(event), Some(keeper)) => keeper.kept.events.push(event.clone().into()),
            (None, keeper @ Some(_)) => {
                let Some(keeper) = keeper.take() else { return };
                let Keeper { kept, keep } = *keeper;
                let limited = self.limit.as_ref().map_or(0, |limit| limit.answered);
                let (pending, error) = (self.pending(), self.error.clone());
                keep(KeptCalls { pending, limited, error, ..kept });
            }
        }
    }

    /// Keeps the result that an event brings.
    pub(super) fn keep(&mut self, event: &ToolEvent) {
        let is_it = |call: &ToolCall| call.call_id == event.call_id();
        let at = self.turn.tool_calls().position(is_it).unwrap_or(usize::MAX);
        match event {
            ToolEvent::Output(result) => self.results.push((at, result.clone())),
            ToolEvent::Suspended { call_id, name: _, pending, nested } => {
                let suspension =
                    Suspension { pending: pending.clone(), nested: (**nested).clone() };
                self.suspended.push(Suspended::new(at, call_id, suspension));
            }
            ToolEvent::ApprovalRequested(_)
            | ToolEvent::Started { .. }
            | ToolEvent::Progress { .. }
            | ToolEvent::Nested { .. } => {}
        }
    }
}
