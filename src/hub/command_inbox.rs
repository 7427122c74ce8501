//! Commands to a run from elsewhere.

use std::fmt;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::agent::{InputReceipt, RunHandle};
use crate::error::{Error, ErrorKind};
use crate::event::UndeliveredInput;
use crate::hub::event_log::NotRunning;
use crate::item::{Item, PendingCall, RawJson};
use crate::tool::Verdict;

/// A command to a run from elsewhere: an action of a [`RunHandle`], as data.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// [`RunHandle::interrupt`].
    Interrupt,
    /// [`RunHandle::stop_after_turn`].
    StopAfterTurn,
    /// [`RunHandle::steer`].
    Steer(Vec<Item>),
    /// [`RunHandle::follow_up`].
    FollowUp(Vec<Item>),
    /// [`RunHandle::submit_verdict`].
    Verdict {
        /// The call, as the approval request showed it.
        call: PendingCall,
        /// The verdict.
        verdict: Verdict,
    },
    /// Progress of a tool call that runs apart from its run, on another worker of a durable engine. Readers of the run
    /// get it as the event [`Progress`](crate::event::ToolEvent::Progress). Other runs refuse it.
    ToolProgress {
        /// The call.
        call_id: String,
        /// The data that the tool reports.
        data: RawJson,
    },
}

/// A command on its way to its run.
pub struct SentCommand {
    id: String,
    command: Command,
    answer: Box<dyn FnOnce(Result<(), Error>) + Send>,
}

/// The inboxes of runs.
pub trait CommandInbox: Send + Sync {
    /// Opens the inbox of a run. The stream has the commands in the order in which they were sent. The run takes
    /// commands for as long as the stream exists. Opening the inbox of the same run again ends the earlier stream.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the inbox cannot be opened.
    fn open<'a>(
        &'a self,
        run: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, SentCommand>, Error>>;

    /// Sends a command to a run, and waits until the run has taken it: that input is queued for the model, not that
    /// the model has read it. The receipt has this `id`. For input, the event `Appended` has it too once the input is
    /// in the history; input that comes too late for that is in `Outcome::undelivered`.
    ///
    /// Dropping the future leaves open whether the run takes the command.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) with [`NotRunning`](crate::hub::NotRunning) as its source if
    /// the run has ended, takes no more input or does not exist; the error of the [handle](RunHandle) of the run;
    /// [`Overloaded`](ErrorKind::Overloaded) if too many commands wait; [`Store`](ErrorKind::Store) if the command
    /// cannot be sent.
    fn send<'a>(
        &'a self,
        run: &'a str,
        id: String,
        command: Command,
    ) -> BoxFuture<'a, Result<InputReceipt, Error>>;
}

impl SentCommand {
    /// A command with its id. `answer` is called once, with what the run has answered, or not at all if the run
    /// was dropped.
    pub fn new(
        id: impl Into<String>,
        command: Command,
        answer: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> Self {
        Self { id: id.into(), command, answer: Box::new(answer) }
    }

    /// Does it to a run, and answers.
    pub(super) fn apply_by(self, apply: impl FnOnce(String, Command) -> Result<(), Error>) {
        (self.answer)(apply(self.id, self.command));
    }
}

impl Command {
    /// Does it to a run.
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
