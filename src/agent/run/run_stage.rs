//! The stages of a run.

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;

use crate::agent::State;
use crate::error::Error;
use crate::event::{BudgetExceeded, EndReason, Event};
use crate::stream::{LoopWithState, Step};

/// The stage of a run.
#[doc = include_str!("run_stage.md")]
pub(in crate::agent) enum Stage {
    /// The next event appends the input.
    Input { event: Box<Event>, events: LoopStream },
    /// The input is not appended, and the run ends. Calls that are open in the history stay open.
    Refused { error: Error, events: LoopStream },
    /// The loop is polled.
    Looping(LoopStream),
    /// No time is left except the time reserved for the wrap-up turn. The calls that were dropped
    /// are given results.
    WrappingUp { exceeded: BudgetExceeded, events: LoopStream },
    /// The loop has been dropped, and the final events are yielded.
    Ending(Box<PendingEnd>),
    /// `Finished` has been yielded, and the error follows.
    Failed(Error),
    /// Everything has been yielded.
    Over,
}

pub(in crate::agent) type LoopStream = Pin<Box<dyn IterationStream>>;

/// Describes the end of a run whose final events have not been yielded yet.
pub(in crate::agent) struct PendingEnd {
    pub(in crate::agent) reason: EndReason,
    /// Whether the run refused its input, and so changes nothing.
    pub(in crate::agent) input_refused: bool,
    pub(in crate::agent) error: Option<Error>,
    /// The exceeded time limit, if it ended the run.
    pub(in crate::agent) time_limit_exceeded: Option<BudgetExceeded>,
    /// The reason for the interrupt that ended the run, if one was given. A reason that is given
    /// later has no effect.
    pub(in crate::agent) interrupt_reason: Option<Arc<str>>,
    /// The same reason, until an item in the history contains it.
    pub(in crate::agent) unreported_interrupt_reason: Option<Arc<str>>,
}

/// A run's loop, whose body can be dropped and restarted.
pub(in crate::agent) trait IterationStream:
    Stream<Item = Result<Event, Error>> + Send
{
    fn restart(self: Pin<&mut Self>, state: State);
}

impl<F, St> IterationStream for LoopWithState<F, St, State>
where
    F: FnMut(State) -> St + Send,
    St: Stream<Item = Result<Step<Event, State>, Error>> + Send,
{
    fn restart(self: Pin<&mut Self>, state: State) {
        Self::restart(self, state);
    }
}

impl Stage {
    /// Returns the loop if it has started and not ended.
    pub(in crate::agent) fn running_loop(&mut self) -> Option<&mut LoopStream> {
        match self {
            Self::Looping(events) | Self::WrappingUp { events, .. } => Some(events),
            Self::Input { .. }
            | Self::Refused { .. }
            | Self::Ending(_)
            | Self::Failed(_)
            | Self::Over => None,
        }
    }

    /// Returns the event that appends the input, and starts the loop.
    pub(in crate::agent) fn start_loop(&mut self) -> Option<Event> {
        match self.take() {
            Self::Input { event, events } => {
                *self = Self::Looping(events);
                Some(*event)
            }
            other => self.stay(other),
        }
    }

    /// Records that the loop was interrupted because a time limit was exceeded.
    pub(in crate::agent) fn begin_wrap_up(&mut self, exceeded: BudgetExceeded) {
        *self = match self.take() {
            Self::Looping(events) => Self::WrappingUp { exceeded, events },
            other => other,
        };
    }

    /// Continues the loop for the wrap-up turn.
    pub(in crate::agent) fn continue_loop(&mut self) {
        *self = match self.take() {
            Self::WrappingUp { events, .. } => Self::Looping(events),
            other => other,
        };
    }

    /// Ends the loop, and returns it.
    pub(in crate::agent) fn end_loop(&mut self, end: PendingEnd) -> Option<LoopStream> {
        match self.take() {
            Self::Refused { events, .. } | Self::Looping(events) => {
                *self = Self::Ending(Box::new(end));
                Some(events)
            }
            other => self.stay(other),
        }
    }

    /// Records that `Finished` is yielded, with the error of a run that failed.
    pub(in crate::agent) fn finish(&mut self, error: Option<Error>) {
        *self = match self.take() {
            Self::Ending(_) => error.map_or(Self::Over, Self::Failed),
            other => other,
        };
    }

    /// Returns the error that follows `Finished`.
    pub(in crate::agent) fn take_error(&mut self) -> Option<Error> {
        match self.take() {
            Self::Failed(error) => Some(error),
            other => self.stay(other),
        }
    }

    /// Drops everything that the stage holds. The run is over then.
    pub(in crate::agent) fn clear(&mut self) {
        drop(self.take());
    }

    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Over)
    }

    fn stay<T>(&mut self, stage: Self) -> Option<T> {
        *self = stage;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use super::*;
    use crate::error::ErrorKind;
    use crate::event::{AppendReason, BudgetKind};
    use turnstream_test_support::transitions::{self, Machine};

    struct NoEvents;

    impl Stream for NoEvents {
        type Item = Result<Event, Error>;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(None)
        }
    }

    impl IterationStream for NoEvents {
        fn restart(self: Pin<&mut Self>, _: State) {}
    }

    fn error() -> Error {
        Error::new(ErrorKind::Server, "failed")
    }

    /// A run's stage, or `None` before the run is created.
    struct Run(Option<Stage>);

    impl Machine for Run {
        fn state(&self) -> String {
            let name = match &self.0 {
                None => "new",
                Some(Stage::Input { .. }) => "input",
                Some(Stage::Refused { .. }) => "refused",
                Some(Stage::Looping(_)) => "looping",
                Some(Stage::WrappingUp { .. }) => "wrapping up",
                Some(Stage::Ending(_)) => "ending",
                Some(Stage::Failed(_)) => "failed",
                Some(Stage::Over) => "over",
            };
            name.to_owned()
        }

        fn apply(&mut self, input: &str) -> String {
            let events: LoopStream = Box::pin(NoEvents);
            let Some(stage) = &mut self.0 else {
                self.0 = match input {
                    "it has input" => {
                        let (why, id, items) = (AppendReason::Input, "input".to_owned(), vec![]);
                        let event = Box::new(Event::Appended { why, id, items });
                        Some(Stage::Input { event, events })
                    }
                    "its input is refused" => Some(Stage::Refused { error: error(), events }),
                    "it has no input" => Some(Stage::Looping(events)),
                    _ => None,
                };
                return "-".to_owned();
            };
            let mut effect = "-";
            match input {
                "it is polled" => {
                    if stage.start_loop().is_some() {
                        effect = "yields the input";
                    } else if stage.take_error().is_some() {
                        effect = "yields the error";
                    }
                }
                "the loop ends" => {
                    let end = PendingEnd {
                        reason: EndReason::Completed,
                        input_refused: false,
                        error: None,
                        time_limit_exceeded: None,
                        interrupt_reason: None,
                        unreported_interrupt_reason: None,
                    };
                    if stage.end_loop(end).is_some() {
                        effect = "drops the loop";
                    }
                }
                "a time limit is exceeded" => stage.begin_wrap_up(BudgetExceeded {
                    kind: BudgetKind::Time,
                    used: 2,
                    limit: 1,
                    diminishing_returns: false,
                }),
                "all dropped calls have results" => stage.continue_loop(),
                "`Finished` is yielded" => stage.finish(None),
                "`Finished` is yielded with an error" => stage.finish(Some(error())),
                _ => {}
            }
            effect.to_owned()
        }
    }

    #[test]
    fn a_run_moves_between_its_stages_as_their_table_says() {
        let table = include_str!("run_stage.md");
        transitions::check(table, "# The stages of a run", || Run(None));
    }
}
