//! Commands that are sent to a run from outside, for example from another process.

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::agent::{InputReceipt, RefusedInput, RevocationError, RunHandle};
use crate::error::{Error, ErrorKind};
use crate::hub::log::event_log::NotRunning;
use crate::item::{Item, PendingCall, RawJson};
use crate::tool::Verdict;

/// A command sent to a run from outside, for example from another process. Most variants correspond
/// to a method of [`RunHandle`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Command {
    /// Interrupts the run; see [`RunHandle::interrupt`].
    Interrupt,
    /// Interrupts the run for this reason; see [`RunHandle::interrupt_with_reason`].
    InterruptWithReason(String),
    /// Interrupts the model, but not the tools; see [`RunHandle::interrupt_turn`].
    InterruptTurn,
    /// Interrupts the model, but not the tools, unless it has received this input; see
    /// [`RunHandle::interrupt_turn_for`].
    InterruptTurnFor {
        /// The id of the input's receipt.
        input_id: String,
    },
    /// Ends the run after its current turn; see [`RunHandle::stop_after_turn`].
    StopAfterTurn,
    /// Adds these items as input before the next model request; see [`RunHandle::steer`].
    Steer(Vec<Item>),
    /// Adds these items as input once the model stops of its own accord; see
    /// [`RunHandle::follow_up`].
    FollowUp(Vec<Item>),
    /// Submits a verdict on a call; see [`RunHandle::submit_verdict`].
    Verdict {
        /// The pending call, as shown in the approval request.
        call: PendingCall,
        /// The verdict on the call.
        verdict: Verdict,
    },
    /// Revokes a grant; see [`RunHandle::revoke_grant`].
    RevokeGrant {
        /// The id of the grant.
        grant_id: String,
    },
    /// Reports the progress of a tool call that a durable engine executes on a worker other than
    /// the one that executes the run. The run's readers receive the progress as a
    /// [`Progress`](crate::event::ToolEvent::Progress) event. Runs that are not durable reject this
    /// command.
    ToolProgress {
        /// The id of the tool call.
        call_id: String,
        /// The progress data that the tool reports.
        data: RawJson,
    },
}

/// A command that was sent to a run, together with a callback that passes the command's result to
/// the sender.
pub struct SentCommand {
    id: String,
    command: Command,
    answer: Box<dyn FnOnce(Result<(), Error>) + Send>,
}

/// Receives the commands of [`Hub::send`](crate::hub::Hub::send) and delivers them to the runs. A
/// hub opens an inbox for each of its runs; with a shared implementation, other processes can send
/// commands to it.
pub trait CommandInbox: Send + Sync {
    /// Opens a run's inbox. The returned stream yields commands in the order in which they were
    /// sent. The run accepts commands as long as this stream exists. If the same run's inbox is
    /// opened again, the earlier stream ends. Dropping the stream closes the inbox: the senders of
    /// commands that are still in it receive an error, with [`NotRunning`](crate::hub::NotRunning)
    /// as its source.
    ///
    /// # Errors
    ///
    /// Returns a [`Store`](ErrorKind::Store) error if the inbox cannot be opened.
    fn open<'a>(
        &'a self,
        run: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, SentCommand>, Error>>;

    /// Sends a command to a run, and waits until the run has accepted it. Accepted input is queued
    /// for the model, which may not receive the input until later. The receipt for the input
    /// contains the given `id`. When the input is added to the history, the run yields an
    /// `Appended` event with the same id as the receipt. Input that arrives too late to be added is
    /// listed in `Outcome::undelivered`.
    ///
    /// If the returned future is dropped, the run may or may not receive the command.
    ///
    /// # Errors
    ///
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest), with [`NotRunning`](crate::hub::NotRunning)
    ///   as its source, if the run has ended, no longer accepts input or does not exist;
    /// - the error that the run's [handle](RunHandle) returns for the command;
    /// - [`Overloaded`](ErrorKind::Overloaded) if too many commands, or too much input, wait for
    ///   the run;
    /// - [`Store`](ErrorKind::Store) if the command cannot be sent.
    fn send<'a>(
        &'a self,
        run: &'a str,
        id: String,
        command: Command,
    ) -> BoxFuture<'a, Result<InputReceipt, Error>>;
}

impl SentCommand {
    /// Creates a command with this id. `answer` is called at most once, with the command's result.
    /// If the run is dropped before it has handled the command, `answer` is not called.
    pub fn new(
        id: impl Into<String>,
        command: Command,
        answer: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> Self {
        Self { id: id.into(), command, answer: Box::new(answer) }
    }

    /// Applies the command to a run by calling `apply`, and passes the result to the command's
    /// sender.
    pub(in crate::hub) fn apply_by(self, apply: impl FnOnce(String, Command) -> Result<(), Error>) {
        (self.answer)(apply(self.id, self.command));
    }
}

impl Command {
    /// Returns whether the command interrupts the run, with or without a reason.
    pub(crate) fn is_interrupt(&self) -> bool {
        matches!(self, Self::Interrupt | Self::InterruptWithReason(_))
    }

    /// Returns whether the command interrupts the model, but not the tools.
    pub(crate) fn is_turn_interrupt(&self) -> bool {
        matches!(self, Self::InterruptTurn | Self::InterruptTurnFor { .. })
    }

    /// Returns whether the command interrupts the run or its model. Such a command is small, and is
    /// accepted even if many commands wait.
    pub(crate) fn is_urgent(&self) -> bool {
        self.is_interrupt() || self.is_turn_interrupt()
    }

    /// Applies the command to the run that this handle controls.
    pub(crate) fn apply(self, id: String, run: &str, handle: &RunHandle) -> Result<(), Error> {
        let refused = |input: RefusedInput| match input {
            RefusedInput::RunIsOver(_) => Error::from(NotRunning { run: run.to_owned() }),
            RefusedInput::QueueIsFull(_) => {
                Error::new(ErrorKind::Overloaded, "too much input waits for the run")
            }
        };
        match self {
            Self::Interrupt => handle.interrupt(),
            Self::InterruptWithReason(reason) => handle.interrupt_with_reason(reason),
            Self::InterruptTurn => handle.interrupt_turn_once(id),
            Self::InterruptTurnFor { input_id } => handle.interrupt_turn_for_once(id, &input_id),
            Self::StopAfterTurn => handle.stop_after_turn(),
            Self::Steer(items) => handle.enqueue_as(id, false, items).map_err(refused)?,
            Self::FollowUp(items) => handle.enqueue_as(id, true, items).map_err(refused)?,
            Self::Verdict { call, verdict } => handle.submit_verdict(call, verdict)?,
            Self::RevokeGrant { grant_id } => {
                handle.try_revoke_grant(&grant_id).map_err(|error| match error {
                    RevocationError::RunIsOver => NotRunning { run: run.to_owned() }.into(),
                    RevocationError::UnknownGrant => error.into_error(&grant_id),
                })?;
            }
            Self::ToolProgress { .. } => {
                let message = "only calls that are executed separately from a durable run report \
                progress with this command";
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        Ok(())
    }
}

/// Returns an error if the id of a command, or of input, is too long to be stored.
pub(crate) fn ensure_short_id(id: &str) -> Result<(), Error> {
    /// The maximum length of an id, in bytes.
    const MAX_ID_BYTES: usize = 1 << 10;
    if id.len() <= MAX_ID_BYTES {
        return Ok(());
    }
    let bytes = id.len();
    let message = format!("the command's id has {bytes} bytes, at most {MAX_ID_BYTES} are stored");
    Err(Error::new(ErrorKind::TooLarge, message))
}

impl_debug!(SentCommand(it), id = it.id, command = it.command);

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::agent::Agent;
    use crate::provider::Scripted;

    #[test]
    fn a_revocation_after_the_end_of_a_run_is_refused_like_other_late_commands() {
        let run = Agent::new(Scripted::new(["Done."])).run("Go.");
        let handle = run.handle();
        let refused = |handle: &RunHandle| {
            let command = Command::RevokeGrant { grant_id: "a".to_owned() };
            command.apply("c".to_owned(), "r", handle).unwrap_err()
        };
        assert!(refused(&handle).find_source::<NotRunning>().is_none());
        block_on(run.outcome());
        assert!(refused(&handle).find_source::<NotRunning>().is_some());
    }
}
