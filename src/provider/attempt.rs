//! One try at a turn by a provider below.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;

use crate::error::Error;
use crate::provider::Provider;
use crate::request::Request;
use crate::stream::TurnStream;
use crate::turn::{TurnBuilder, TurnEvent};
use crate::usage::Usage;

/// One try at a turn, and whether a consumer has seen anything of it.
pub(super) struct Attempt {
    events: TurnStream,
    /// Something other than a count was said, and not taken back.
    said: bool,
}

impl Attempt {
    /// Sends nothing before the first poll.
    pub(super) fn new(provider: &dyn Provider, request: Request) -> Self {
        Self { events: provider.stream_turn(request), said: false }
    }

    /// Hands what comes next to `turn`.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> Poll<Option<Result<(), Error>>> {
        Poll::Ready(match ready!(Pin::new(&mut self.events).poll_next(cx)) {
            Some(Ok(event)) => {
                match &event {
                    TurnEvent::UsageUpdate { .. } => {}
                    TurnEvent::Retracted { .. } => self.said = false,
                    TurnEvent::TextDelta { .. }
                    | TurnEvent::ReasoningDelta { .. }
                    | TurnEvent::RefusalDelta { .. }
                    | TurnEvent::ToolCallStart { .. }
                    | TurnEvent::ToolCallArgsDelta { .. }
                    | TurnEvent::ToolCallEnd { .. }
                    | TurnEvent::TurnComplete { .. } => self.said = true,
                }
                turn.absorb(event);
                Some(Ok(()))
            }
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }

    /// Whether a consumer has seen something that another try would have to take back.
    pub(super) fn has_said(&self) -> bool {
        self.said
    }

    /// Voids what the try has said and counts what it has cost; nothing if there is neither.
    pub(super) fn void(self, error: &Error, turn: &mut TurnBuilder) {
        if self.said || turn.usage_so_far() != Usage::default() {
            turn.retract(error.to_string());
        }
    }
}
