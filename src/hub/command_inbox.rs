//! Commands that are sent to a run from elsewhere.

use std::fmt;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::agent::{InputReceipt, RunHandle};
use crate::error::{Error, ErrorKind};
use crate::event::UndeliveredInput;
use crate::hub::event_log::NotRunning;
use crate::item::{Item, PendingCall, RawJson};
use crate::tool::Verdict;

/// A command to a run from elsewhere, for example from another process. Each variant is an action of a [`RunHandle`],
/// as data.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Interrupts the run, as [`RunHandle::interrupt`] does.
    Interrupt,
    /// Ends the run after its turn, as [`RunHandle::stop_after_turn`] does.
    StopAfterTurn,
    /// Adds these items as input before the next request, as [`RunHandle::steer`] does.
    Steer(Vec<Item>),
    /// Adds these items as input for when the model stops on its own, as [`RunHandle::follow_up`] does.
    FollowUp(Vec<Item>),
    /// Submits a verdict on a call, as [`RunHandle::submit_verdict`] does.
    Verdict {
        /// The pending call, as the approval request showed it.
        call: PendingCall,
        /// The verdict on the call.
        verdict: Verdict,
    },
    /// Reports the progress of a tool call that runs apart from its run, on another worker of a durable engine. Readers
    /// of the run receive the progress as the event [`Progress`](crate::event::ToolEvent::Progress). Runs that are not
    /// durable reject this command.
    ToolProgress {
        /// The id of the call.
        call_id: String,
        /// The data that the tool reports.
        data: RawJson,
    },
}

/// A command that was sent to a run, with a way to answer it.
pub struct SentCommand {
    id: String,
    command: Command,
    answer: Box<dyn FnOnce(Result<(), Error>) + Send>,
}

/// An inbox through which commands are sent to runs.
pub trait CommandInbox: Send + Sync {
    /// Opens the inbox of a run. The returned stream yields commands in the order in which they were sent. The run
    /// accepts commands as long as the stream exists. If the inbox of the same run is opened again, the earlier stream
    /// ends.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the inbox cannot be opened.
    fn open<'a>(
        &'a self,
        run: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, SentCommand>, Error>>;

    /// Sends a command to a run, and waits until the run has accepted the command. Accepted input is queued for the
    /// model, which may not have read the input yet. The receipt of the input has this `id`. When the input is in the
    /// history, the event `Appended` reports the same id. Input that arrives too late for the history is in
    /// `Outcome::undelivered`.
    ///
    /// If the future is dropped, the run may or may not receive the command.
    ///
    /// # Errors
    ///
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest) with [`NotRunning`](crate::hub::NotRunning) as its source if the
    ///   run has ended, accepts no more input or does not exist;
    /// - the error that the run's [handle](RunHandle) returns for the command;
    /// - [`Overloaded`](ErrorKind::Overloaded) if too many commands are waiting;
    /// - [`Store`](ErrorKind::Store) if the command cannot be sent.
    fn send<'a>(
        &'a self,
        run: &'a str,
        id: String,
        command: Command,
    ) -> BoxFuture<'a, Result<InputReceipt, Error>>;
}

impl SentCommand {
    /// Creates a command with this id. `answer` is called at most once, with the result of the command. If the run is
    /// dropped before it handles the command, `answer` is not called.
    pub fn new(
        id: impl Into<String>,
        command: Command,
        answer: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> Self {
        Self { id: id.into(), command, answer: Box::new(answer) }
    }

    /// Applies the command to a run with `apply`, and passes the result to the sender of the command.
    pub(super) fn apply_by(self, apply: impl FnOnce(String, Command) -> Result<(), Error>) {
        (self.answer)(apply(self.id, self.command));
    }
}

impl Command {
    /// Applies the command to the run with this handle.
    pub(crate) fn apply(self, id: String, run: &str, handle: &RunHandle) -> Result<(), Error> {
        let refused = |_: UndeliveredInput| Error::from(NotRunning { run: run.to_owned() });
        match self {
            Self::Interrupt => handle.interrupt(),
            Self::StopAfterTurn => handle.stop_after_turn(),
            Self::Steer(items) => handle.enqueue_as(id, false, items).map_err(refused)?,
            Self::FollowUp(items) => handle.enqueue_as(id, true, items).map_err(refused)?,
            Self::Verdict { call, verdict } => handle.submit_verdict(call, verdict)?,
            Self::ToolProgress { .. } => {
                let message = "only calls of durable runs that run apart report progress with \
                this command";
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for SentCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentCommand")
            .field("id", &self.id)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}
