//! The stages of a run.

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;

use crate::agent::State;
use crate::error::Error;
use crate::event::{BudgetExceeded, EndReason, Event};
use crate::stream::{LoopWithState, Step};

/// The stage of a run.
///
/// | stage | ends when | next stage |
/// |---|---|---|
/// | `Input` | the event that appends the input is yielded | `Looping` |
/// | `Refused` | the run is polled | `Ending` |
/// | `Looping` | a time limit is exceeded, and a wrap-up turn can follow | `WrappingUp` |
/// | `Looping` | the loop ends, fails or is interrupted | `Ending` |
/// | `WrappingUp` | all dropped calls have results | `Looping` |
/// | `Ending` | `Finished` is yielded without an error | `Over` |
/// | `Ending` | `Finished` is yielded with an error | `Failed` |
/// | `Failed` | the error is yielded | `Over` |
///
/// A method that belongs to another stage changes nothing.
pub(in crate::agent) enum Stage {
    /// The next event appends the input.
    Input {
        event: Box<Event>,
        events: LoopStream,
    },
    /// The input is not appended, and the run ends. Calls that are open in the history stay open.
    Refused {
        error: Error,
        events: LoopStream,
    },
    /// The loop is polled.
    Looping(LoopStream),
    /// No time is left except the time reserved for the wrap-up turn. The calls that were dropped
    /// are given results.
    WrappingUp {
        exceeded: BudgetExceeded,
        events: LoopStream,
    },
    /// The loop has been dropped, and the final events are yielded.
    Ending(PendingEnd),
    /// `Finished` has been yielded, and the error follows.
    Failed(Error),
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

    /// Interrupts the loop because a time limit was exceeded.
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
                *self = Self::Ending(end);
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
    use crate::env::{Random, SeededRandom};
    use crate::error::ErrorKind;
    use crate::event::{AppendReason, BudgetKind};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        Input,
        Refused,
        Looping,
        WrappingUp,
        Ending,
        Failed,
        Over,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Change {
        StartLoop,
        BeginWrapUp,
        ContinueLoop,
        EndLoop,
        FinishWithoutError,
        FinishWithError,
        TakeError,
    }

    const CHANGES: [Change; 7] = [
        Change::StartLoop,
        Change::BeginWrapUp,
        Change::ContinueLoop,
        Change::EndLoop,
        Change::FinishWithoutError,
        Change::FinishWithError,
        Change::TakeError,
    ];

    /// The rows of the table in the docs of `Stage`.
    const TABLE: [(Kind, Change, Kind); 8] = [
        (Kind::Input, Change::StartLoop, Kind::Looping),
        (Kind::Refused, Change::EndLoop, Kind::Ending),
        (Kind::Looping, Change::BeginWrapUp, Kind::WrappingUp),
        (Kind::Looping, Change::EndLoop, Kind::Ending),
        (Kind::WrappingUp, Change::ContinueLoop, Kind::Looping),
        (Kind::Ending, Change::FinishWithoutError, Kind::Over),
        (Kind::Ending, Change::FinishWithError, Kind::Failed),
        (Kind::Failed, Change::TakeError, Kind::Over),
    ];

    const EXCEEDED: BudgetExceeded =
        BudgetExceeded { kind: BudgetKind::Time, used: 2, limit: 1, diminishing_returns: false };

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

    fn kind(stage: &Stage) -> Kind {
        match stage {
            Stage::Input { .. } => Kind::Input,
            Stage::Refused { .. } => Kind::Refused,
            Stage::Looping(_) => Kind::Looping,
            Stage::WrappingUp { .. } => Kind::WrappingUp,
            Stage::Ending(_) => Kind::Ending,
            Stage::Failed(_) => Kind::Failed,
            Stage::Over => Kind::Over,
        }
    }

    fn error() -> Error {
        Error::new(ErrorKind::Server, "failed")
    }

    fn first_stage(random: &SeededRandom) -> Stage {
        let events: LoopStream = Box::pin(NoEvents);
        match random.next_u64() % 3 {
            0 => {
                let (why, id, items) = (AppendReason::Input, "input".to_owned(), Vec::new());
                Stage::Input { event: Box::new(Event::Appended { why, id, items }), events }
            }
            1 => Stage::Refused { error: error(), events },
            _ => Stage::Looping(events),
        }
    }

    fn apply(stage: &mut Stage, change: Change) {
        match change {
            Change::StartLoop => drop(stage.start_loop()),
            Change::BeginWrapUp => {
                stage.begin_wrap_up(EXCEEDED);
            }
            Change::ContinueLoop => stage.continue_loop(),
            Change::EndLoop => drop(stage.end_loop(PendingEnd {
                reason: EndReason::Completed,
                input_refused: false,
                error: None,
                time_limit_exceeded: None,
                interrupt_reason: None,
                unreported_interrupt_reason: None,
            })),
            Change::FinishWithoutError => stage.finish(None),
            Change::FinishWithError => stage.finish(Some(error())),
            Change::TakeError => drop(stage.take_error()),
        }
    }

    /// Walks through stages at random. Returns the first change that the table does not have, or
    /// the number of times that each row was seen.
    fn walk(table: &[(Kind, Change, Kind)]) -> Result<Vec<u32>, (Kind, Change, Kind)> {
        let random = SeededRandom::new(46);
        let mut seen = vec![0; table.len()];
        for _ in 0..2_000 {
            let mut stage = first_stage(&random);
            for _ in 0..20 {
                let before = kind(&stage);
                let change = CHANGES[(random.next_u64() % 7) as usize];
                apply(&mut stage, change);
                let after = kind(&stage);
                let row = table.iter().position(|row| *row == (before, change, after));
                match row {
                    Some(row) => seen[row] += 1,
                    None if before == after => {
                        // The table has no other stage for this change.
                        if table.iter().any(|row| row.0 == before && row.1 == change) {
                            return Err((before, change, after));
                        }
                    }
                    None => return Err((before, change, after)),
                }
            }
        }
        Ok(seen)
    }

    #[test]
    fn a_run_moves_only_between_the_stages_of_the_table_and_reaches_all_of_them() {
        let seen = walk(&TABLE).unwrap();
        assert!(seen.iter().all(|&times| times > 0), "{seen:?}");
    }

    #[test]
    fn a_table_of_stages_without_one_of_its_rows_is_refused() {
        for row in 0..TABLE.len() {
            let mut table = TABLE.to_vec();
            let removed = table.remove(row);
            assert_eq!(walk(&table), Err(removed));
        }
    }
}
