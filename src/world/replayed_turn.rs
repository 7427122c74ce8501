//! Replays a turn that was stored as JSON.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::{Error, ErrorKind};
use crate::stream::{TurnPoll, TurnSource};
use crate::turn::{StopReason, TurnBuilder, TurnEvent};
use crate::world::rebuild_turn::rebuild_turn;

/// A stored event from a turn.
pub(crate) struct ReplayedEvent {
    pub(crate) event: TurnEvent,
    /// Whether the event ends a turn whose calls were prevented from running when the turn was
    /// recorded.
    pub(crate) is_vetoed: bool,
}

/// The events of a recorded turn, and the way in which the turn ended.
pub(crate) struct ReplayedTurn {
    pub(crate) events: VecDeque<ReplayedEvent>,
    pub(crate) ending: TurnEnding,
}

/// The way in which a recorded turn ended.
pub(crate) enum TurnEnding {
    /// The turn completed; its last event is `TurnComplete`.
    Complete,
    /// The turn failed with this error.
    Failed(Error),
    /// The turn was dropped, so its end was not recorded.
    Dropped,
    /// The end of the turn cannot be read; the error states the reason.
    Unreadable(Error),
}

impl ReplayedTurn {
    /// Creates a turn that failed with `error`, or a complete turn if `error` is `None`.
    pub(crate) fn new(events: VecDeque<ReplayedEvent>, error: Option<Error>) -> Self {
        Self { events, ending: error.map_or(TurnEnding::Complete, TurnEnding::Failed) }
    }
}

/// Replays a recorded event, or the error with which the turn failed. The partial turn is attached
/// to a replayed error.
pub(crate) fn replay_event(
    item: Result<ReplayedEvent, Error>,
    turn: &mut TurnBuilder,
) -> Result<(), Error> {
    turn.absorb(match item {
        // A turn's JSON does not state whether its calls are allowed to run.
        Ok(ReplayedEvent { event: TurnEvent::TurnComplete { turn }, is_vetoed: false })
            if *turn.stop_reason() != StopReason::Interrupted =>
        {
            TurnEvent::TurnComplete { turn: rebuild_turn(&turn)? }
        }
        Ok(ReplayedEvent { event, .. }) => event,
        Err(error) if error.kind() == ErrorKind::IncompleteTurn => {
            return Err(error.with_source(turn.fail_incomplete(None)));
        }
        Err(error) => return Err(error),
    });
    Ok(())
}

impl TurnSource for ReplayedTurn {
    fn poll_turn(self: Pin<&mut Self>, _cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let Self { events, ending } = self.get_mut();
        Poll::Ready(match (events.pop_front(), ending) {
            (Some(event), _) => Some(replay_event(Ok(event), turn)),
            (None, TurnEnding::Complete | TurnEnding::Dropped) => None,
            (None, TurnEnding::Failed(error)) => Some(replay_event(Err(error.clone()), turn)),
            (None, TurnEnding::Unreadable(cause)) => {
                Some(Err(turn.fail_incomplete(Some(cause.clone()))))
            }
        })
    }
}

/// Returns whether the event completes a turn whose calls must not run even though the turn's stop
/// reason allows it. This is the case for a turn that was not built by a turn builder.
pub(crate) fn is_vetoed_event(event: &TurnEvent) -> bool {
    let TurnEvent::TurnComplete { turn } = event else { return false };
    let allows = matches!(turn.stop_reason(), StopReason::Stop | StopReason::ToolCalls);
    allows && turn.calls().veto().is_some()
}
