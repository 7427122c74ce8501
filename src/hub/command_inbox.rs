//! Commands to a run from elsewhere.

use std::fmt;

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::agent::{InputReceipt, RunHandle};
use crate::error::{Error, ErrorKind};
use crate::event::UndeliveredInput;
use crate::item::{Item, PendingCall};
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
}

/// A command on its way to its run.
pub struct SentCommand {
    id: String,
    command: Command,
    answer: Box<dyn FnOnce(Result<(), Error>) + Send>,
}

/// The inboxes of runs.
pub trait CommandInbox: Send + Sync {
    /// Opens the inbox of a run. The stream has the commands in the order in which they were sent. While it is
    /// there, the run is running; one that was opened before ends.
    ///
    /// # Errors
    ///
    /// [`Store`](ErrorKind::Store) if the inbox cannot be opened.
    fn open<'a>(
        &'a self,
        run: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, SentCommand>, Error>>;

    /// Sends a command to a run, and waits until the run has taken it. The id of the receipt is this one; that of
    /// input comes back in `appended`.
    ///
    /// Dropping the future leaves open whether the run takes the command.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) with [`NotRunning`](crate::hub::NotRunning) as its source if
    /// the run has ended or does not exist; the error of the [handle](RunHandle) of the run;
    /// [`Store`](ErrorKind::Store) if the command cannot be sent.
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

    /// Does it to a run.
    pub(super) fn apply(self, handle: Option<&RunHandle>) {
        let done = match handle {
            Some(handle) => self.command.apply(self.id, handle),
            None => {
                let message = "a stream that is not a run takes no commands";
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        };
        (self.answer)(done);
    }
}

impl Command {
    fn apply(self, id: String, handle: &RunHandle) -> Result<(), Error> {
        let refused = |_: UndeliveredInput| {
            Error::new(ErrorKind::InvalidRequest, "the run takes nothing any more")
        };
        match self {
            Self::Interrupt => handle.interrupt(),
            Self::StopAfterTurn => handle.stop_after_turn(),
            Self::Steer(items) => handle.enqueue_as(id, false, items).map_err(refused)?,
            Self::FollowUp(items) => handle.enqueue_as(id, true, items).map_err(refused)?,
            Self::Verdict { call, verdict } => handle.submit_verdict(call, verdict)?,
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
