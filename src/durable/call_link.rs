//! Connects a tool call that is performed separately from its run to that run.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, poll_fn};
use futures::stream::BoxStream;

use crate::durable::engine::ToolCallRequest;
use crate::env::Deadline;
use crate::error::Error;
use crate::event::{Event, ToolEvent};
use crate::hub::{Command, Hub, HubEvent, Reader};
use crate::item::RawJson;

/// The maximum number of progress reports that can be queued while another report is being sent. If
/// more reports arrive, the oldest queued report is dropped.
const MAX_WAITING: usize = 64;

/// The maximum size of a progress report, in bytes of JSON. A larger report is dropped.
const MAX_REPORT_BYTES: usize = 64 << 10;

/// The maximum time for which a completed call waits for its last progress to be sent.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Sends a call's progress to its run through the hub, and detects when the run has ended.
///
/// The call does not depend on this connection: if the hub cannot be reached, progress is lost, but
/// the call still runs to completion.
pub(super) struct CallLink {
    target: Option<LinkTarget>,
    call_id: String,
    waiting: VecDeque<RawJson>,
    sending: Option<BoxFuture<'static, ()>>,
    /// The reader for the run's events. `None` once a read has failed.
    reader: Option<Reader>,
    commands: CallCommands,
}

/// The commands for the call, which are sent to its own inbox in the hub.
enum CallCommands {
    Opening(BoxFuture<'static, Result<BoxStream<'static, Command>, Error>>),
    Open(BoxStream<'static, Command>),
    /// The run does not use a hub, or the hub's inboxes cannot be reached.
    Closed,
}

struct LinkTarget {
    hub: Hub,
    run: String,
}

impl CallLink {
    pub(super) fn new(request: &ToolCallRequest, hub: Option<&Hub>) -> Self {
        let target = hub.cloned().zip(request.run.clone());
        let target = target.map(|(hub, run)| LinkTarget { hub, run });
        let read = |target: &LinkTarget| target.hub.read_any_run(&target.run, None);
        let open = |(target, address): (&LinkTarget, String)| {
            let hub = target.hub.clone();
            CallCommands::Opening(async move { hub.open_call_inbox(&address).await }.boxed())
        };
        let commands = target.as_ref().zip(request.address());
        Self {
            reader: target.as_ref().map(read),
            commands: commands.map_or(CallCommands::Closed, open),
            target,
            call_id: request.call.call_id.clone(),
            waiting: VecDeque::new(),
            sending: None,
        }
    }

    /// Queues progress, which is sent after all previously queued progress.
    pub(super) fn push(&mut self, progress: RawJson) {
        if self.target.is_some() && progress.as_str().len() <= MAX_REPORT_BYTES {
            if self.waiting.len() == MAX_WAITING {
                self.waiting.pop_front();
            }
            self.waiting.push_back(progress);
        }
    }

    /// Checks whether the run still needs the call. Returns `Poll::Ready` once the run has been
    /// interrupted or has ended, or the call already has a result.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = self.poll_sent(cx);
        if self.poll_interrupted(cx).is_ready() {
            return Poll::Ready(());
        }
        while let Some(reader) = &mut self.reader {
            match reader.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(event))) if self.is_end(&event) => return Poll::Ready(()),
                Poll::Ready(Some(Ok(_))) => {}
                // The run's log does not exist or cannot be read, but the run may still be active.
                Poll::Ready(Some(Err(_)) | None) => self.reader = None,
                Poll::Pending => break,
            }
        }
        Poll::Pending
    }

    fn poll_interrupted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.commands = match &mut self.commands {
                CallCommands::Opening(opening) => match ready!(opening.poll_unpin(cx)) {
                    Ok(commands) => CallCommands::Open(commands),
                    Err(_) => CallCommands::Closed,
                },
                CallCommands::Open(commands) => match ready!(commands.poll_next_unpin(cx)) {
                    Some(command) if command.is_interrupt() => return Poll::Ready(()),
                    Some(_) => continue,
                    None => CallCommands::Closed,
                },
                CallCommands::Closed => return Poll::Pending,
            }
        }
    }

    fn is_end(&self, event: &HubEvent) -> bool {
        match event {
            HubEvent::Ended { .. } => true,
            HubEvent::Event { event, .. } => match &**event {
                Event::Tool(ToolEvent::Output(result)) => result.call_id == self.call_id,
                event => matches!(event, Event::Finished(_)),
            },
            HubEvent::Snapshot { .. } => false,
        }
    }

    /// Sends the queued progress. Returns `Poll::Pending` until all queued progress has been sent.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(sending) = &mut self.sending {
                match sending.poll_unpin(cx) {
                    Poll::Ready(()) => self.sending = None,
                    Poll::Pending => return Poll::Pending,
                }
            }
            let Some(target) = &self.target else { return Poll::Ready(()) };
            let Some(data) = self.waiting.pop_front() else { return Poll::Ready(()) };
            let (hub, run, call_id) =
                (target.hub.clone(), target.run.clone(), self.call_id.clone());
            let sending = async move {
                // Progress is lost if the run does not accept it.
                let _ = hub.send(&run, Command::ToolProgress { call_id, data }).await;
            };
            self.sending = Some(sending.boxed());
        }
    }

    /// Sends the remaining progress after the call has ended. Stops once [`FLUSH_LIMIT`] has
    /// elapsed.
    pub(super) async fn flush(mut self) {
        let mut limit = Deadline::try_start(FLUSH_LIMIT);
        poll_fn(|cx| {
            let is_over = limit.as_mut().is_none_or(|limit| limit.poll(cx).is_ready());
            if is_over { Poll::Ready(()) } else { self.poll_sent(cx) }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::hub::{CommandInbox, MemoryInbox, MemoryLog};
    use crate::item::ToolCall;

    #[tokio::test(start_paused = true)]
    async fn progress_that_a_run_does_not_accept_is_limited_in_number_and_time() {
        let inbox = MemoryInbox::new();
        let _unread_commands = inbox.open("r").await.unwrap();
        let hub = Hub::builder().with_backend(MemoryLog::new(), inbox).build();
        let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: "{}".into() };
        let request = ToolCallRequest { session: "s".to_owned(), run: Some("r".to_owned()), call };
        let mut link = CallLink::new(&request, Some(&hub));
        for n in 0..100 {
            link.push(json!(n).into());
        }
        let waiting: Vec<&str> = link.waiting.iter().map(RawJson::as_str).collect();
        assert_eq!((waiting.len(), waiting[0], waiting[63]), (64, "36", "99"));
        let began = Instant::now();
        link.flush().await;
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }
}
