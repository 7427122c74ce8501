//! The inboxes of runs in Redis.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt, unfold};
use redis::streams::StreamRangeReply;
use tokio::time::Instant;
use turnstream::agent::InputReceipt;
use turnstream::durable::StoredCommand;
use turnstream::env::{Ids, SystemIds};
use turnstream::hub::{Command, NotRunning, SentCommand};
use turnstream::{Error, ErrorKind};

use crate::answer::{answer_from_json, answer_to_json};
use crate::mirror::parse_id;
use crate::outbox::Outbox;
use crate::shared_state::SharedState;
use crate::wakeups::Listener;

/// The maximum number of commands that are read at once.
const PAGE: usize = 64;

/// The maximum size of the commands that wait for a run, unless only one command waits.
const MAX_WAITING_BYTES: u64 = 16 << 20;

/// The maximum number of interrupts that are accepted while an inbox is full.
const MAX_EXTRA_INTERRUPTS: usize = 16;

/// The time between two checks for an answer while no notification arrives.
const ANSWER_CHECK: Duration = Duration::from_millis(500);

/// Opens a run's inbox.
pub(crate) async fn open(
    shared: &Arc<SharedState>,
    outbox: &Outbox,
    run: &str,
) -> Result<BoxStream<'static, SentCommand>, Error> {
    let token = SystemIds.next_id();
    let mut script = shared.scripts.open.prepare_invoke();
    script.key(shared.keys.open(run)).key(shared.keys.inbox(run));
    script.arg(&token).arg(shared.settings.lease_ms());
    let _: i64 = shared.connection.script(&script).await?;
    shared.state().inboxes.insert(run.to_owned(), token.clone());
    let inbox = OpenInbox {
        listener: shared.wakeups.listen(shared.keys.inbox(run)),
        shared: Arc::clone(shared),
        outbox: outbox.clone(),
        run: run.to_owned(),
        token,
        last: "-".to_owned(),
        read: VecDeque::new(),
    };
    Ok(unfold(inbox, |mut inbox| async { Some((inbox.next().await?, inbox)) }).boxed())
}

struct OpenInbox {
    shared: Arc<SharedState>,
    outbox: Outbox,
    listener: Listener,
    run: String,
    token: String,
    /// The id of the entry after which the next page starts.
    last: String,
    read: VecDeque<SentCommand>,
}

impl OpenInbox {
    /// Returns the next command, or `None` if the inbox was opened again elsewhere.
    async fn next(&mut self) -> Option<SentCommand> {
        loop {
            if let Some(command) = self.read.pop_front() {
                return Some(command);
            }
            let mut pipeline = redis::pipe();
            pipeline.get(self.shared.keys.open(&self.run));
            let key = self.shared.keys.inbox(&self.run);
            pipeline.xrange_count(&key, &self.last, "+", PAGE).xrevrange_count(&key, "+", "-", 1);
            let found: Result<(Option<String>, StreamRangeReply, StreamRangeReply), Error> =
                self.shared.connection.pipeline(&pipeline).await;
            if let Ok((open, page, newest)) = found {
                if open.is_some_and(|open| open != self.token) {
                    return None;
                }
                if page.ids.is_empty() && self.has_gone_back(&newest) {
                    "-".clone_into(&mut self.last);
                    continue;
                }
                self.take(page);
                if !self.read.is_empty() {
                    continue;
                }
            }
            // Commands that currently cannot be read are read once the server is available again.
            self.listener.wait(self.shared.settings.beat()).await;
        }
    }

    /// Returns whether the server has lost its data and is again assigning ids that are lower than
    /// `last`.
    fn has_gone_back(&self, newest: &StreamRangeReply) -> bool {
        let last = self.last.strip_prefix('(').and_then(parse_id);
        let newest = newest.ids.first().and_then(|newest| parse_id(&newest.id));
        newest.zip(last).is_some_and(|(newest, last)| newest < last)
    }

    fn take(&mut self, page: StreamRangeReply) {
        for id in page.ids {
            self.last = format!("({}", id.id);
            let json: Vec<u8> = id.get("command").unwrap_or_default();
            let Ok(StoredCommand { id: command_id, command }) = serde_json::from_slice(&json)
            else {
                // Another program wrote this entry.
                let (shared, inbox) = (Arc::clone(&self.shared), self.shared.keys.inbox(&self.run));
                self.outbox.put(async move {
                    let remove = redis::cmd("XDEL").arg(inbox).arg(id.id).to_owned();
                    let _: Result<i64, Error> = shared.connection.query(&remove).await;
                });
                continue;
            };
            let (shared, outbox) = (Arc::clone(&self.shared), self.outbox.clone());
            let (run, answer_id) = (self.run.clone(), command_id.clone());
            let answer = move |done: Result<(), Error>| {
                let json = answer_to_json(done);
                outbox.put(async move {
                    let mut script = shared.scripts.answer.prepare_invoke();
                    script.key(shared.keys.inbox(&run)).key(shared.keys.answer(&run, &answer_id));
                    script.arg(id.id).arg(json).arg(shared.keys.answers(&run));
                    let _: Result<i64, Error> = shared.connection.script(&script).await;
                });
            };
            self.read.push_back(SentCommand::new(command_id, command, answer));
        }
    }
}

impl Drop for OpenInbox {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if state.inboxes.get(&self.run) == Some(&self.token) {
            state.inboxes.remove(&self.run);
        }
        drop(state);
        let (shared, run, token) = (Arc::clone(&self.shared), self.run.clone(), self.token.clone());
        self.outbox.put(async move {
            let mut script = shared.scripts.close.prepare_invoke();
            script.key(shared.keys.open(&run)).key(shared.keys.inbox(&run));
            script.arg(token).arg(shared.keys.answers(&run));
            // If the script fails, the inbox closes when its key expires.
            let _: Result<i64, Error> = shared.connection.script(&script).await;
        });
    }
}

/// Sends a command and waits for its answer.
pub(crate) async fn send(
    shared: &Arc<SharedState>,
    run: &str,
    id: String,
    command: Command,
) -> Result<InputReceipt, Error> {
    let (keys, settings) = (&shared.keys, &shared.settings);
    let not_running = || Error::from(NotRunning { run: run.to_owned() });
    let mut listener = shared.wakeups.listen(keys.answers(run));
    // Interrupts, which are small, are accepted even if the inbox is full.
    let is_interrupt = matches!(
        command,
        Command::Interrupt
            | Command::InterruptWithReason(_)
            | Command::InterruptTurn
            | Command::InterruptTurnFor { .. }
    );
    let capacity = match is_interrupt {
        true => settings.max_waiting.saturating_add(MAX_EXTRA_INTERRUPTS),
        false => settings.max_waiting,
    };
    let max_bytes = if is_interrupt { u64::from(u32::MAX) } else { MAX_WAITING_BYTES };
    let mut script = shared.scripts.send.prepare_invoke();
    script.key(keys.open(run)).key(keys.inbox(run));
    let command = StoredCommand { id: id.clone(), command };
    let json = serde_json::to_string(&command).map_err(|error| {
        let message = "the command cannot be sent to another machine";
        Error::new(ErrorKind::Unsupported, message).with_source(error)
    })?;
    script.arg(json).arg(capacity).arg(settings.expiry_ms());
    script.arg(max_bytes);
    let status: String = shared.connection.script(&script).await?;
    match status.as_str() {
        "ok" => {}
        "full" => {
            let message = "too many commands, or too large ones, wait for the run";
            return Err(Error::new(ErrorKind::Overloaded, message));
        }
        _ => return Err(not_running()),
    }
    let begin = Instant::now();
    loop {
        let mut pipeline = redis::pipe();
        // The inbox is checked before the answer is read, because an inbox is closed only after its
        // commands have been answered.
        pipeline.exists(keys.open(run)).get(keys.answer(run, &id));
        let (is_open, answer): (bool, Option<Vec<u8>>) =
            shared.connection.pipeline(&pipeline).await?;
        match answer {
            Some(answer) => return answer_from_json(run, &answer).map(|()| InputReceipt { id }),
            None if !is_open => return Err(not_running()),
            None => {}
        }
        let left = settings.answer_limit.saturating_sub(begin.elapsed());
        if left.is_zero() {
            let message = "the run has not answered in time";
            return Err(Error::new(ErrorKind::Timeout, message));
        }
        listener.wait(left.min(ANSWER_CHECK)).await;
    }
}
