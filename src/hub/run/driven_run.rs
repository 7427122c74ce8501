//! The run that a runner polls, and the commands that the run receives.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, StreamExt};

use crate::error::{Error, ErrorKind, panic_to_error};
use crate::event::Event;
use crate::hub::inbox::command_inbox::{CommandInbox, SentCommand};
use crate::hub::log::event_log::LogContent;
use crate::hub::run::registry::HubRun;

/// A run and its commands. The run's commands are received until the runner has written the run's
/// end, but a run that has ended refuses them.
pub(in crate::hub) struct DrivenRun {
    pub(super) hub_run: Arc<HubRun>,
    /// The events of the run, or `None` after the run has ended.
    events: Option<BoxStream<'static, Result<Event, Error>>>,
    inbox: Arc<dyn CommandInbox>,
    commands: Option<BoxStream<'static, SentCommand>>,
}

impl DrivenRun {
    pub(in crate::hub) fn new(
        hub_run: Arc<HubRun>,
        events: BoxStream<'static, Result<Event, Error>>,
        inbox: Arc<dyn CommandInbox>,
    ) -> Self {
        Self { hub_run, events: Some(events), inbox, commands: None }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.events.is_none()
    }

    /// Polls the run for its next event, or for its end.
    pub(super) fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<LogContent> {
        let Some(events) = &mut self.events else { return Poll::Pending };
        let polled = panic_to_error(ErrorKind::Panic, "the run", || events.poll_next_unpin(cx));
        Poll::Ready(match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Some(Ok(event)))) => LogContent::Event(Arc::new(event)),
            Ok(Poll::Ready(Some(Err(error)))) | Err(error) => self.end(Some(error)),
            Ok(Poll::Ready(None)) => self.end(None),
        })
    }

    /// Drops the run, which accepts no more commands, and returns the entry for its end.
    pub(super) fn end(&mut self, error: Option<Error>) -> LogContent {
        self.events = None;
        self.hub_run.refuse_commands();
        LogContent::End(error)
    }

    /// Interrupts the run because it has no readers. Returns the run's end if the run cannot be
    /// interrupted, and was dropped instead.
    pub(super) fn interrupt_unattended(&mut self) -> Option<LogContent> {
        if let Some(handle) = &self.hub_run.handle {
            handle.interrupt();
            return None;
        }
        let error = Error::new(ErrorKind::Other, "the run has no readers");
        self.events.is_some().then(|| self.end(Some(error)))
    }

    /// Interrupts the run because its log cannot be written, and polls it to its end.
    pub(super) async fn interrupt_and_drain(&mut self) {
        if let (Some(handle), Some(events)) = (&self.hub_run.handle, &mut self.events) {
            // An interrupt keeps the partial turn.
            handle.interrupt_with_reason("the log of the run can no longer be written");
            while let Some(Ok(_)) = events.next().await {}
        }
    }

    /// Opens the inbox, unless the run has ended or its commands are being received.
    pub(super) async fn open_inbox(&mut self) -> Result<(), Error> {
        if self.events.is_some() && self.commands.is_none() {
            self.commands = Some(self.inbox.open(&self.hub_run.run).await?);
        }
        Ok(())
    }

    /// Passes the commands that have arrived to the run. Wakes the task if another command arrives,
    /// or if a reader is attached or dropped.
    pub(super) fn poll_commands(&mut self, cx: &mut Context<'_>) {
        self.hub_run.runner_waker.register(cx.waker());
        while let Some(commands) = &mut self.commands {
            match commands.poll_next_unpin(cx) {
                Poll::Ready(Some(command)) => {
                    command.apply_by(|id, command| self.hub_run.apply(id, command));
                }
                Poll::Ready(None) => self.commands = None,
                Poll::Pending => return,
            }
        }
    }

    pub(super) fn close_inbox(&mut self) {
        self.commands = None;
    }

    /// Drops the run and its commands.
    pub(super) fn drop_work(&mut self) {
        self.events = None;
        self.commands = None;
    }
}
