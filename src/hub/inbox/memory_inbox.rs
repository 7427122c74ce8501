//! Inboxes that are kept in this process's memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::channel::{mpsc, oneshot};
use futures::future::{BoxFuture, FutureExt, ready};
use futures::stream::{BoxStream, StreamExt};

use crate::agent::{InputReceipt, queued_bytes};
use crate::error::{Error, ErrorKind};
use crate::hub::NotRunning;
use crate::hub::backend::command_to_json;
use crate::hub::inbox::command_inbox::{Command, CommandInbox, SentCommand};
use crate::lock::lock_ignoring_poison;

/// The maximum number of commands that can be queued for a busy run.
const MAX_WAITING: usize = 1_000;

/// The maximum total size of the commands that can be queued for a busy run.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// Keeps the inboxes of runs in this process's memory. Clones share the same inboxes.
///
/// At most 1,000 commands, or 16 MiB of commands, can be queued for each run, and one more
/// interrupt; further commands are rejected. A single command may be larger.
#[derive(Clone, Debug, Default)]
pub struct MemoryInbox(Arc<Mutex<HashMap<String, Senders>>>);

/// The senders of an inbox. Each has a place of its own in the queue.
#[derive(Debug)]
struct Senders {
    commands: mpsc::Sender<QueuedCommand>,
    /// Sends interrupts while the queue is full.
    interrupts: mpsc::Sender<QueuedCommand>,
    /// The size of the queued commands.
    queued_bytes: Arc<AtomicUsize>,
}

/// A command, and its size.
type QueuedCommand = (SentCommand, usize);

impl MemoryInbox {
    /// Creates a `MemoryInbox` without any open inbox.
    pub fn new() -> Self {
        Self::default()
    }

    async fn send_command(
        &self,
        run: &str,
        id: String,
        command: Command,
    ) -> Result<InputReceipt, Error> {
        let not_running = || Error::from(NotRunning { run: run.to_owned() });
        let (answer, answered) = oneshot::channel();
        let (is_interrupt, bytes) = (command.is_urgent(), command_bytes(&command));
        let command = SentCommand::new(id.clone(), command, |done| {
            let _ = answer.send(done);
        });
        let sent = {
            let mut inboxes = lock_ignoring_poison(&self.0);
            // The command is not sent through a clone of the sender, because each clone increases
            // the capacity of the channel.
            let senders = inboxes.get_mut(run).ok_or_else(not_running)?;
            let queued = senders.queued_bytes.load(Ordering::Relaxed);
            let has_space = queued == 0 || queued.saturating_add(bytes) <= MAX_WAITING_BYTES;
            let sent = match has_space || is_interrupt {
                true => senders.send((command, bytes), is_interrupt),
                false => Err(true),
            };
            if sent.is_ok() {
                senders.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            sent
        };
        match sent {
            Ok(()) => {}
            Err(true) => {
                let message = "too many commands wait for the run";
                return Err(Error::new(ErrorKind::Overloaded, message));
            }
            Err(false) => return Err(not_running()),
        }
        answered.await.map_err(|_| not_running())??;
        Ok(InputReceipt { id })
    }
}

/// Returns the number of bytes of memory that a command takes, approximately.
fn command_bytes(command: &Command) -> usize {
    match command {
        Command::Steer(items) | Command::FollowUp(items) => queued_bytes(items),
        other => command_to_json("", other.clone()).map_or(0, |json| json.len()),
    }
}

impl Senders {
    /// Queues a command. On failure, returns whether the queue is full.
    fn send(&mut self, command: QueuedCommand, is_interrupt: bool) -> Result<(), bool> {
        let sent = match self.commands.try_send(command) {
            Err(error) if error.is_full() && is_interrupt => {
                self.interrupts.try_send(error.into_inner())
            }
            sent => sent,
        };
        sent.map_err(|error| error.is_full())
    }
}

impl CommandInbox for MemoryInbox {
    fn open<'a>(
        &'a self,
        run: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, SentCommand>, Error>> {
        let (sender, commands) = mpsc::channel(MAX_WAITING);
        let mut inboxes = lock_ignoring_poison(&self.0);
        inboxes.retain(|_, senders| !senders.commands.is_closed());
        let queued_bytes = Arc::<AtomicUsize>::default();
        let senders = Senders {
            interrupts: sender.clone(),
            commands: sender,
            queued_bytes: Arc::clone(&queued_bytes),
        };
        inboxes.insert(run.to_owned(), senders);
        let commands = commands.map(move |(command, bytes)| {
            queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            command
        });
        ready(Ok(commands.boxed())).boxed()
    }

    fn send<'a>(
        &'a self,
        run: &'a str,
        id: String,
        command: Command,
    ) -> BoxFuture<'a, Result<InputReceipt, Error>> {
        self.send_command(run, id, command).boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::item::Item;

    #[tokio::test]
    async fn the_size_of_the_queued_commands_is_bounded() {
        let inbox = MemoryInbox::new();
        let mut commands = inbox.open("r").await.unwrap();
        let send = |command| inbox.send("r", "c".to_owned(), command).now_or_never();
        let steer =
            |megabytes: usize| Command::Steer(vec![Item::user("x".repeat(megabytes << 20))]);
        // A single command may be larger than the limit.
        assert!(send(steer(17)).is_none(), "it waits for its answer");
        let refused = send(steer(0)).unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Overloaded);
        assert!(send(Command::Interrupt).is_none());
        commands.next().await.unwrap();
        assert!(send(steer(8)).is_none());
        assert_eq!(send(steer(8)).unwrap().unwrap_err().kind(), ErrorKind::Overloaded);
        assert!(send(steer(7)).is_none());
    }

    #[tokio::test]
    async fn a_full_inbox_accepts_one_interrupt() {
        let inbox = MemoryInbox::new();
        let mut commands = inbox.open("r").await.unwrap();
        let send = |command| inbox.send("r", "c".to_owned(), command).now_or_never();
        // The channel has one more place for its first sender.
        for _ in 0..=MAX_WAITING {
            assert!(send(Command::StopAfterTurn).is_none(), "it waits for its answer");
        }
        let refused = send(Command::StopAfterTurn).unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Overloaded);
        assert!(send(Command::Interrupt).is_none());
        assert_eq!(send(Command::Interrupt).unwrap().unwrap_err().kind(), ErrorKind::Overloaded);
        for _ in 0..=MAX_WAITING {
            commands.next().await.unwrap();
        }
        let mut last = None;
        commands.next().await.unwrap().apply_by(|_, command| {
            last = Some(command);
            Ok(())
        });
        assert_eq!(last, Some(Command::Interrupt));
    }
}
