//! A run that is started again when it fails.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;
use tokio_stream::StreamNotifyClose;

use crate::agent::RunHandle;
use crate::env::{Deadline, DeadlineOutcome, TimeLimit};
use crate::error::{Error, ErrorKind, catch_panic, panic_to_error};
use crate::supervise::restart::FailureCount;
use crate::supervise::{Restart, Supervised, SupervisedEnd, SupervisedStream};

/// A function that starts a run. It receives the number of the attempt, counted from 1.
pub(super) type StartFn = Box<dyn FnMut(u32) -> SupervisedStream + Send>;

/// A run that is started again when it fails.
pub(super) struct RestartingRun {
    start: StartFn,
    policy: Restart,
    failures: FailureCount,
    /// The number of times that the run was started.
    attempts: u32,
    state: RunState,
}

enum RunState {
    /// The run is started by the next poll.
    Starting,
    Running(RunningStream),
    /// The run has failed and waits to be started again.
    Delayed {
        deadline: Deadline,
        error: Error,
    },
    /// The run was dropped because it was silent, and the failure has not been reported yet.
    Dropped {
        error: Error,
        lasted: Duration,
    },
    Ended,
}

struct RunningStream {
    events: StreamNotifyClose<SupervisedStream>,
    /// The handle with which the run is interrupted, if the stream is a run that has not been
    /// interrupted yet.
    handle: Option<Arc<RunHandle>>,
    started: Instant,
    /// The error of a run that was interrupted because it was silent.
    silence: Option<Error>,
}

impl RestartingRun {
    pub(super) fn new(start: StartFn, policy: Restart) -> Self {
        let (failures, state) = (FailureCount::default(), RunState::Starting);
        Self { start, policy, failures, attempts: 0, state }
    }

    /// Returns what happens next. After the end has been returned, returns `None`.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Supervised>> {
        loop {
            match &mut self.state {
                RunState::Starting => {
                    self.attempts = self.attempts.saturating_add(1);
                    let (start, attempt) = (&mut self.start, self.attempts);
                    let started = panic_to_error(ErrorKind::Panic, "starting a run", || {
                        RunningStream::new(start(attempt))
                    });
                    match started {
                        Ok(running) => self.state = RunState::Running(running),
                        Err(error) => return Poll::Ready(Some(self.fail(error, Duration::ZERO))),
                    }
                }
                RunState::Running(running) => {
                    let events = &mut running.events;
                    let polled = panic_to_error(ErrorKind::Panic, "a supervised run", || {
                        events.poll_next_unpin(cx)
                    });
                    let error = match polled {
                        Ok(polled) => match ready!(polled).flatten() {
                            Some(Ok(event)) => return Poll::Ready(Some(Supervised::Event(event))),
                            Some(Err(error)) => Some(error),
                            None => None,
                        },
                        Err(panic) => Some(panic),
                    };
                    let (error, lasted) =
                        (error.or(running.silence.take()), running.started.elapsed());
                    return Poll::Ready(Some(match error {
                        Some(error) => self.fail(error, lasted),
                        None => self.end(SupervisedEnd::Finished),
                    }));
                }
                RunState::Delayed { deadline, error } => match ready!(deadline.poll(cx)) {
                    DeadlineOutcome::TimeUp => self.state = RunState::Starting,
                    // Without timers, the run would be started again at once, and for ever.
                    DeadlineOutcome::NoTimer => {
                        let error = error.clone();
                        return Poll::Ready(Some(self.end(SupervisedEnd::Failed(error))));
                    }
                },
                RunState::Dropped { error, lasted } => {
                    let (error, lasted) = (error.clone(), *lasted);
                    return Poll::Ready(Some(self.fail(error, lasted)));
                }
                RunState::Ended => return Poll::Ready(None),
            }
        }
    }

    /// Ends a silent run: interrupts it or, if it is not a run of an agent or has been interrupted
    /// before, drops it. The failure is reported by a later poll.
    pub(super) fn end_silent(&mut self, waited: Duration) {
        let RunState::Running(running) = &mut self.state else { return };
        let reason = format!("the run was silent for {waited:?}");
        let error = Error::new(ErrorKind::Timeout, &*reason);
        match running.handle.take() {
            Some(handle) => {
                handle.interrupt_with_reason(reason);
                running.silence = Some(error);
            }
            None => {
                let lasted = running.started.elapsed();
                self.replace(RunState::Dropped { error, lasted });
            }
        }
    }

    /// Drops the failed run, and returns what follows.
    fn fail(&mut self, error: Error, lasted: Duration) -> Supervised {
        match self.failures.next_delay(self.policy, lasted) {
            Some(delay) => {
                let deadline = Deadline::new(TimeLimit::Explicit(delay));
                self.replace(RunState::Delayed { deadline, error: error.clone() });
                Supervised::Restarting { restarts: self.failures.restarts, delay, error }
            }
            None => self.end(match self.failures.restarts {
                0 => SupervisedEnd::Failed(error),
                restarts => SupervisedEnd::GaveUp { restarts, error },
            }),
        }
    }

    fn end(&mut self, end: SupervisedEnd) -> Supervised {
        self.replace(RunState::Ended);
        Supervised::Ended(end)
    }

    /// Changes the state, and drops the old one. A panic in a user's `Drop` implementation is
    /// ignored.
    fn replace(&mut self, state: RunState) {
        let old = std::mem::replace(&mut self.state, state);
        let _ = catch_panic(|| drop(old));
    }
}

impl RunningStream {
    fn new(events: SupervisedStream) -> Self {
        let handle = events.handle();
        let events = StreamNotifyClose::new(events);
        Self { events, handle, started: Instant::now(), silence: None }
    }
}

impl fmt::Debug for RestartingRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestartingRun").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}
