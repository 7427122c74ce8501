//! Queues the commands that are waiting for a run.

use std::collections::VecDeque;
use std::mem;

use serde::{Deserialize, Serialize};

use crate::durable::engine::StoredCommand;
use crate::error::{Error, ErrorKind};
use crate::hub::{Command, NotRunning, ensure_short_id};

/// The maximum size of the input that waits for a run or that the run has taken but not delivered,
/// in bytes of JSON. The verdicts that wait have the same limit of their own, so that input never
/// keeps a verdict from a run that needs it.
///
/// NOTE: a step records the input that it delivers, in addition to its result. [`StepRecord`] has
/// place for this size.
///
/// [`StepRecord`]: crate::durable::step_record::StepRecord
const MAX_WAITING_BYTES: usize = 8 << 20;

/// The maximum number of commands that wait for a run.
const MAX_WAITING_COMMANDS: usize = 1_000;

/// Queues the commands for a session, and tracks the waiters that must be woken when a command
/// arrives. The engine stores the queue.
///
/// If no run is active, input and the revocation of a grant wait for the next run. A command that
/// ends a run applies only to the active run.
///
/// Each waiter has an id, which the engine uses to wake the waiter. Methods that return the ids of
/// waiters to wake also remove these waiters from the queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandQueue {
    /// The id of the active run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    commands: VecDeque<StoredCommand>,
    /// The size of the input that the active run has taken and, as far as it has reported, not
    /// delivered.
    #[serde(skip_serializing_if = "is_zero")]
    undelivered_bytes: usize,
    /// The active run's waiter. `Some` while the run waits for a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiter: Option<CommandWaiter>,
    /// The ids of the timers that have expired since the last wait began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    expired_timers: Vec<String>,
    /// The ids of the waiters that wait for an interrupt or for the end of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop_waiters: Vec<String>,
}

/// A run that is waiting for commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandWaiter {
    /// The id that the engine uses to wake the run.
    pub id: String,
    /// The id of the timer that ends the wait, if the wait has a time limit. Each wait must use a
    /// different timer id. The timer may [expire](CommandQueue::expire) at any time, even before
    /// the wait starts or after the wait has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<String>,
}

/// The answer to a waiter: whether it has to wait, and whether it will be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitAnswer {
    /// The awaited command or stop has not arrived yet. The waiter must wait, and will be woken
    /// later.
    Waiting,
    /// The awaited command or stop has already arrived. The waiter will not be woken.
    Ready,
    /// The waiter's timer has already expired. The waiter will not be woken.
    Expired,
}

impl CommandQueue {
    /// Adds a command, unless a command with the same id is already in the queue. Returns the ids
    /// of the waiters to wake.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error, with [`NotRunning`]
    /// as its source, if no run is active and the command is neither input nor the revocation of a
    /// grant. Only these commands can wait for the next run. Returns a
    /// [`TooLarge`](crate::ErrorKind::TooLarge) error if the JSON of all input in the queue, and of
    /// the input that the active run has taken but not delivered, would exceed 8 MiB, if the JSON
    /// of all verdicts in the queue would exceed 8 MiB, or if the command's id is longer than 1
    /// KiB. Returns an [`Overloaded`](crate::ErrorKind::Overloaded) error if 1,000 commands already
    /// wait. If an error is returned, the queue is unchanged.
    pub fn push(&mut self, session: &str, command: StoredCommand) -> Result<Vec<String>, Error> {
        if self.run.is_none() && !waits_for_run(&command) {
            return Err(NotRunning { run: session.to_owned() }.into());
        }
        ensure_short_id(&command.id)?;
        if let Command::InterruptTurnFor { input_id } = &command.command {
            ensure_short_id(input_id)?;
        }
        let is_interrupt = command.command.is_interrupt();
        if let Command::InterruptTurnFor { .. } = command.command {
            // The new command waits for later input, and does what the queued command would do.
            self.commands.retain(|queued| !is_same_kind(queued, &command));
        }
        // A second command that ends the run or the turn would change nothing, so it does not fill
        // the queue.
        let is_queued = |queued: &StoredCommand| {
            queued.id == command.id || is_signal(&command) && is_same_kind(queued, &command)
        };
        if !self.commands.iter().any(is_queued) {
            self.add(command)?;
        }
        let mut woken: Vec<String> =
            self.waiter.take().map(|waiter| waiter.id).into_iter().collect();
        if is_interrupt {
            woken.append(&mut self.stop_waiters);
        }
        Ok(woken)
    }

    /// Adds a command at the end of the queue, unless the queue is full. A command that ends the
    /// run or a turn is always added.
    fn add(&mut self, command: StoredCommand) -> Result<(), Error> {
        if is_signal(&command) {
            self.commands.push_back(command);
            return Ok(());
        }
        if self.commands.len() >= MAX_WAITING_COMMANDS {
            let message = format!("{MAX_WAITING_COMMANDS} commands wait for the run already");
            return Err(Error::new(ErrorKind::Overloaded, message));
        }
        let is_verdict = is_verdict(&command);
        let queued = self.commands.iter().filter(|queued| is_verdict == self::is_verdict(queued));
        let same_kind: Vec<&StoredCommand> = queued.chain([&command]).collect();
        let taken = if is_verdict { 0 } else { self.undelivered_bytes };
        let bytes = taken.saturating_add(json_bytes(&same_kind));
        if bytes <= MAX_WAITING_BYTES {
            self.commands.push_back(command);
            return Ok(());
        }
        let message = format!(
            "with this command, {bytes} bytes would wait for the model, at most {MAX_WAITING_BYTES} are stored"
        );
        Err(Error::new(ErrorKind::TooLarge, message))
    }

    /// Takes all commands from the queue for `run`, and makes `run` the active run.
    /// `undelivered_bytes` is the size that the run passed to
    /// [`Engine::take_commands`](crate::durable::Engine::take_commands), or `None` while the run
    /// waits and delivers nothing.
    pub fn take(&mut self, run: &str, undelivered_bytes: Option<usize>) -> Vec<StoredCommand> {
        if self.run.as_deref() != Some(run) {
            self.end_run();
            self.run = Some(run.to_owned());
        }
        let taken: Vec<StoredCommand> = self.commands.drain(..).collect();
        let input: Vec<&StoredCommand> = taken.iter().filter(|command| is_input(command)).collect();
        let earlier = undelivered_bytes.unwrap_or(self.undelivered_bytes);
        let bytes = if input.is_empty() { 0 } else { json_bytes(&input) };
        self.undelivered_bytes = earlier.saturating_add(bytes);
        taken
    }

    /// Makes the active run wait for the next command. The new waiter replaces the run's previous
    /// waiter, if any.
    pub fn wait(&mut self, waiter: CommandWaiter) -> WaitAnswer {
        if !self.commands.is_empty() {
            return WaitAnswer::Ready;
        }
        // Timers of earlier waits are removed.
        self.expired_timers.retain(|timer| waiter.timer.as_ref() == Some(timer));
        if !self.expired_timers.is_empty() {
            return WaitAnswer::Expired;
        }
        self.waiter = Some(waiter);
        WaitAnswer::Waiting
    }

    /// Marks a timer as expired, even if its wait has not started yet or has already ended. Returns
    /// the id of the waiter to wake, if any.
    pub fn expire(&mut self, timer: &str) -> Option<String> {
        if self.run.is_some() && self.expired_timers.iter().all(|expired| expired != timer) {
            self.expired_timers.push(timer.to_owned());
        }
        let waiter = self.waiter.take_if(|waiter| waiter.timer.as_deref() == Some(timer))?;
        Some(waiter.id)
    }

    /// Adds a waiter that waits for an interrupt or for the end of the active run. Returns
    /// [`Ready`](WaitAnswer::Ready) if an interrupt is already queued or no run is active.
    pub fn wait_for_stop(&mut self, id: String) -> WaitAnswer {
        if self.run.is_none() || self.commands.iter().any(|queued| queued.command.is_interrupt()) {
            return WaitAnswer::Ready;
        }
        self.stop_waiters.push(id);
        WaitAnswer::Waiting
    }

    /// Ends `run`, and puts its undelivered input (`put_back`) back at the front of the queue for
    /// the next run. Returns the ids of the waiters to wake.
    pub fn finish(&mut self, run: &str, put_back: Vec<StoredCommand>) -> Vec<String> {
        let mut woken = Vec::new();
        if self.run.as_deref() == Some(run) {
            self.end_run();
            woken.append(&mut self.stop_waiters);
        }
        for command in put_back.into_iter().filter(waits_for_run).rev() {
            self.commands.push_front(command);
        }
        woken
    }

    /// Removes all commands (including input), the active run and all waiters. Returns the ids of
    /// the waiters to wake.
    pub fn clear(&mut self) -> Vec<String> {
        let Self { waiter, stop_waiters, .. } = mem::take(self);
        waiter.map(|waiter| waiter.id).into_iter().chain(stop_waiters).collect()
    }

    /// Returns the queue without the ids of its waiters, for programs that display the commands and
    /// the active run.
    pub fn without_waiters(self) -> Self {
        Self { run: self.run, commands: self.commands, ..Self::default() }
    }

    /// Returns the id of the active run, that is, of the run that last [took](Self::take) commands
    /// and has not ended.
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// Returns an iterator over the commands in the queue, which no run has taken yet, in the order
    /// in which they arrived.
    pub fn commands(&self) -> impl Iterator<Item = &StoredCommand> {
        self.commands.iter()
    }

    /// Ends the active run. The caller must still wake the waiters that wait for an interrupt or
    /// for the end of the run.
    fn end_run(&mut self) {
        self.run = None;
        self.commands.retain(waits_for_run);
        self.undelivered_bytes = 0;
        self.waiter = None;
        self.expired_timers.clear();
    }
}

/// Returns the size of commands in JSON.
pub(in crate::durable) fn json_bytes<T: Serialize + ?Sized>(commands: &T) -> usize {
    serde_json::to_vec(commands).map_or(0, |json| json.len())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(bytes: &usize) -> bool {
    *bytes == 0
}

fn is_verdict(stored: &StoredCommand) -> bool {
    matches!(stored.command, Command::Verdict { .. })
}

/// Returns whether the command ends the run. Such a command contains at most a short reason.
pub(in crate::durable) fn ends_run(stored: &StoredCommand) -> bool {
    stored.command.is_interrupt() || stored.command == Command::StopAfterTurn
}

/// Returns whether the command ends the run or the current turn.
fn is_signal(stored: &StoredCommand) -> bool {
    ends_run(stored) || stored.command.is_turn_interrupt()
}

fn is_same_kind(a: &StoredCommand, b: &StoredCommand) -> bool {
    mem::discriminant(&a.command) == mem::discriminant(&b.command)
}

/// Returns whether the command waits for the next run if the active run does not take it.
fn waits_for_run(stored: &StoredCommand) -> bool {
    is_input(stored) || matches!(stored.command, Command::RevokeGrant { .. })
}

fn is_input(stored: &StoredCommand) -> bool {
    matches!(stored.command, Command::Steer(_) | Command::FollowUp(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Item, PendingCall, ToolCall};
    use crate::tool::Verdict;

    fn stored(id: &str, command: Command) -> StoredCommand {
        StoredCommand { id: id.to_owned(), command }
    }

    fn steer(id: &str) -> StoredCommand {
        stored(id, Command::Steer(vec![Item::user(id)]))
    }

    fn ids(commands: Vec<StoredCommand>) -> String {
        commands.into_iter().map(|stored| stored.id).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn input_waits_for_the_next_run() {
        let mut queue = CommandQueue::default();
        queue.push("s", steer("a")).unwrap();
        assert_eq!(ids(queue.take("run-1", Some(0))), "a");
        queue.push("s", steer("b")).unwrap();
        queue.finish("run-1", vec![steer("a")]);
        assert_eq!(ids(queue.take("run-2", Some(0))), "a b");
    }

    #[test]
    fn an_interrupt_never_reaches_the_next_run() {
        let mut queue = CommandQueue::default();
        let error = queue.push("s", interrupt("x")).unwrap_err();
        assert!(error.find_source::<NotRunning>().is_some());
        queue.take("run-1", Some(0));
        queue.push("s", interrupt("x")).unwrap();
        queue.finish("run-1", vec![stored("y", Command::StopAfterTurn)]);
        assert_eq!(ids(queue.take("run-2", Some(0))), "");
        // Commands for a run that never reported its end are also dropped.
        queue.push("s", interrupt("z")).unwrap();
        assert_eq!(ids(queue.take("run-3", Some(0))), "");
    }

    #[test]
    fn a_repeated_command_is_taken_once() {
        let mut queue = CommandQueue::default();
        queue.push("s", steer("a")).unwrap();
        queue.push("s", steer("a")).unwrap();
        assert_eq!(ids(queue.take("run-1", Some(0))), "a");
    }

    fn interrupt(id: &str) -> StoredCommand {
        stored(id, Command::Interrupt)
    }

    /// Creates a queue with an active run.
    fn running() -> CommandQueue {
        let mut queue = CommandQueue::default();
        queue.take("run-1", Some(0));
        queue
    }

    fn waiter(id: &str, timer: Option<&str>) -> CommandWaiter {
        CommandWaiter { id: id.to_owned(), timer: timer.map(str::to_owned) }
    }

    #[test]
    fn a_waiter_is_woken_once() {
        let mut queue = running();
        assert_eq!(queue.wait(waiter("w1", None)), WaitAnswer::Waiting);
        assert_eq!(queue.push("s", steer("a")).unwrap(), ["w1"]);
        assert_eq!(queue.push("s", steer("b")).unwrap(), [""; 0]);
        assert_eq!(queue.finish("run-1", Vec::new()), [""; 0]);
    }

    #[test]
    fn a_waiter_added_after_a_command_arrived_is_not_woken() {
        let mut queue = running();
        queue.push("s", steer("a")).unwrap();
        assert_eq!(queue.wait(waiter("w1", None)), WaitAnswer::Ready);
        assert_eq!(queue.push("s", steer("b")).unwrap(), [""; 0]);
        assert_eq!(ids(queue.take("run-1", Some(0))), "a b");
        assert_eq!(queue.wait(waiter("w2", None)), WaitAnswer::Waiting);
    }

    #[test]
    fn a_run_that_waits_again_is_woken_by_its_last_waiter_id() {
        let mut queue = running();
        queue.wait(waiter("w1", None));
        queue.wait(waiter("w2", None));
        assert_eq!(queue.push("s", steer("a")).unwrap(), ["w2"]);
    }

    #[test]
    fn an_expired_timer_ends_only_its_own_wait() {
        let mut queue = running();
        queue.wait(waiter("w1", Some("t1")));
        assert_eq!(queue.expire("t0"), None);
        assert_eq!(queue.expire("t1").as_deref(), Some("w1"));
        // The run receives the same answer when it waits again.
        assert_eq!(queue.wait(waiter("w2", Some("t1"))), WaitAnswer::Expired);
        assert_eq!(queue.wait(waiter("w3", Some("t2"))), WaitAnswer::Waiting);
        assert_eq!(queue.expire("t1"), None);
        assert_eq!(queue.push("s", steer("a")).unwrap(), ["w3"]);
    }

    #[test]
    fn a_timer_that_expires_before_its_wait_starts_ends_that_wait() {
        let mut queue = running();
        assert_eq!(queue.expire("t1"), None);
        assert_eq!(queue.expire("t0"), None);
        assert_eq!(queue.wait(waiter("w1", Some("t1"))), WaitAnswer::Expired);
    }

    #[test]
    fn queued_commands_take_precedence_over_an_expired_timer() {
        let mut queue = running();
        queue.expire("t1");
        queue.push("s", steer("a")).unwrap();
        assert_eq!(queue.wait(waiter("w1", Some("t1"))), WaitAnswer::Ready);
    }

    #[test]
    fn a_wait_does_not_affect_the_next_run() {
        let mut queue = running();
        queue.wait(waiter("w1", Some("t1")));
        queue.finish("run-1", Vec::new());
        assert_eq!(queue.expire("t1"), None);
        assert_eq!(queue, CommandQueue::default());
        // A wait of a run that never reported its end does not reach the next run either.
        queue.take("run-2", Some(0));
        queue.expire("t2");
        queue.wait(waiter("w2", None));
        queue.take("run-3", Some(0));
        assert_eq!(queue.push("s", steer("a")).unwrap(), [""; 0]);
    }

    #[test]
    fn an_interrupt_for_input_replaces_an_earlier_one_and_follows_the_input() {
        let mut queue = CommandQueue::default();
        queue.take("run-1", Some(0));
        for (input, interrupt) in [("a", "x"), ("b", "y")] {
            queue.push("s", steer(input)).unwrap();
            let command = Command::InterruptTurnFor { input_id: input.to_owned() };
            queue.push("s", stored(interrupt, command)).unwrap();
        }
        assert_eq!(ids(queue.take("run-1", Some(0))), "a b y");
        let command = Command::InterruptTurnFor { input_id: "a".to_owned() };
        queue.push("s", stored("z", command)).unwrap();
        queue.finish("run-1", Vec::new());
        assert_eq!(ids(queue.take("run-2", Some(0))), "");
    }

    #[test]
    fn an_interrupt_wakes_all_stop_waiters() {
        let mut queue = running();
        assert_eq!(queue.wait_for_stop("w1".to_owned()), WaitAnswer::Waiting);
        assert_eq!(queue.wait_for_stop("w2".to_owned()), WaitAnswer::Waiting);
        queue.wait(waiter("w3", None));
        assert_eq!(queue.push("s", steer("a")).unwrap(), ["w3"]);
        assert_eq!(queue.push("s", interrupt("x")).unwrap(), ["w1", "w2"]);
        // A waiter that comes late.
        assert_eq!(queue.wait_for_stop("w4".to_owned()), WaitAnswer::Ready);
        assert_eq!(queue.finish("run-1", Vec::new()), [""; 0]);
    }

    #[test]
    fn the_end_of_a_run_wakes_all_stop_waiters() {
        let mut queue = running();
        queue.wait_for_stop("w1".to_owned());
        queue.wait_for_stop("w2".to_owned());
        assert_eq!(queue.finish("run-0", Vec::new()), [""; 0]);
        assert_eq!(queue.finish("run-1", Vec::new()), ["w1", "w2"]);
        // A waiter that comes late.
        assert_eq!(queue.wait_for_stop("w3".to_owned()), WaitAnswer::Ready);
        assert_eq!(queue, CommandQueue::default());
    }

    #[test]
    fn clearing_a_queue_empties_it_and_wakes_its_waiters() {
        let mut queue = running();
        queue.wait_for_stop("w1".to_owned());
        queue.wait(waiter("w2", Some("t1")));
        queue.expire("t0");
        assert_eq!(queue.clear(), ["w2", "w1"]);
        queue.push("s", steer("a")).unwrap();
        assert_eq!(queue.clear(), [""; 0]);
        assert_eq!(queue, CommandQueue::default());
    }

    #[test]
    fn a_queue_round_trips_through_json() {
        let mut queue = running();
        queue.wait(waiter("w1", Some("t1")));
        queue.expire("t2");
        queue.wait_for_stop("w2".to_owned());
        let json = serde_json::to_string(&queue).unwrap();
        assert_eq!(serde_json::from_str::<CommandQueue>(&json).unwrap(), queue);
        queue.push("s", steer("a")).unwrap();
        let json = serde_json::to_string(&queue).unwrap();
        assert_eq!(serde_json::from_str::<CommandQueue>(&json).unwrap(), queue);
        assert_eq!(serde_json::from_str::<CommandQueue>("{}").unwrap(), CommandQueue::default());
    }

    #[test]
    fn without_waiters_removes_waiters_and_timers() {
        let mut queue = running();
        queue.wait_for_stop("w1".to_owned());
        queue.expire("t1");
        let mut shown = running();
        queue.push("s", steer("a")).unwrap();
        shown.push("s", steer("a")).unwrap();
        assert_eq!(queue.without_waiters(), shown);
    }

    #[test]
    fn a_full_queue_accepts_no_further_input_but_still_accepts_an_interrupt() {
        let mut queue = running();
        let large = |id: &str| {
            let items = vec![Item::user("x".repeat(3 << 20))];
            StoredCommand { id: id.to_owned(), command: Command::Steer(items) }
        };
        queue.push("s", large("a")).unwrap();
        queue.push("s", large("b")).unwrap();
        let before = queue.clone();
        assert_eq!(queue.push("s", large("c")).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(queue, before);
        // A repeated command is in the queue already.
        queue.push("s", large("b")).unwrap();
        let interrupt = StoredCommand { id: "d".to_owned(), command: Command::Interrupt };
        queue.push("s", interrupt).unwrap();
        assert_eq!(queue.take("run-1", Some(0)).len(), 3);
    }

    #[test]
    fn input_that_a_run_has_taken_counts_until_the_run_reports_that_it_was_delivered() {
        let mut queue = running();
        let large = |id: &str| stored(id, Command::FollowUp(vec![Item::user("x".repeat(5 << 20))]));
        let refused = |queue: &mut CommandQueue| {
            let before = queue.clone();
            assert_eq!(queue.push("s", large("b")).unwrap_err().kind(), ErrorKind::TooLarge);
            assert_eq!(*queue, before);
        };
        queue.push("s", large("a")).unwrap();
        let taken = queue.take("run-1", Some(0));
        refused(&mut queue);
        // The run waits, and has not delivered anything.
        assert_eq!(queue.take("run-1", None), []);
        refused(&mut queue);
        assert_eq!(queue.take("run-1", Some(json_bytes(&taken))), []);
        refused(&mut queue);
        let json = serde_json::to_string(&queue).unwrap();
        assert_eq!(serde_json::from_str::<CommandQueue>(&json).unwrap(), queue);
        // Commands that end the run, and smaller input, still have a place.
        queue.push("s", interrupt("x")).unwrap();
        queue.push("s", steer("c")).unwrap();
        assert_eq!(queue.take("run-1", Some(0)).len(), 2);
        queue.push("s", large("b")).unwrap();
    }

    #[test]
    fn a_thousand_commands_wait_for_a_run() {
        let mut queue = running();
        queue.commands = (0..MAX_WAITING_COMMANDS).map(|n| steer(&format!("w{n}"))).collect();
        let before = queue.clone();
        let error = queue.push("s", steer("last")).unwrap_err();
        assert_eq!((error.kind(), &queue), (ErrorKind::Overloaded, &before));
        queue.push("s", interrupt("x")).unwrap();
    }

    #[test]
    fn input_does_not_keep_a_verdict_from_a_run_that_waits_for_it() {
        let mut queue = running();
        let call: PendingCall =
            ToolCall { call_id: "c1".into(), name: "pay".into(), arguments: "{}".into() }.into();
        let verdict = |id: &str, text: String| {
            stored(id, Command::Verdict { call: call.clone(), verdict: Verdict::deny(text) })
        };
        let large = || "x".repeat(5 << 20);
        queue.push("s", stored("a", Command::Steer(vec![Item::user(large())]))).unwrap();
        assert_eq!(ids(queue.take("run-1", None)), "a");
        queue.push("s", verdict("b", large())).unwrap();
        assert_eq!(queue.push("s", verdict("c", large())).unwrap_err().kind(), ErrorKind::TooLarge);
        // A verdict that the run has taken does not count any more.
        assert_eq!(ids(queue.take("run-1", None)), "b");
        queue.push("s", verdict("d", large())).unwrap();
    }

    #[test]
    fn input_returned_to_a_queue_never_exceeds_its_limit() {
        let mut queue = running();
        let large = |id: &str| stored(id, Command::Steer(vec![Item::user("x".repeat(3 << 20))]));
        let mut taken = Vec::new();
        for id in ["a", "b", "c", "d"] {
            let held = if taken.is_empty() { 0 } else { json_bytes(&taken) };
            let _ = queue.push("s", large(id));
            taken.extend(queue.take("run-1", Some(held)));
            let _ = queue.push("s", large(&format!("{id}2")));
        }
        queue.finish("run-1", taken);
        assert!(json_bytes(&queue.commands) <= MAX_WAITING_BYTES);
        assert_eq!(ids(queue.take("run-2", Some(0))), "a a2");
    }

    #[test]
    fn commands_that_end_a_run_never_fill_the_queue() {
        let mut queue = running();
        for n in 0..10 {
            queue.push("s", interrupt(&format!("i{n}"))).unwrap();
            queue.push("s", stored(&format!("s{n}"), Command::StopAfterTurn)).unwrap();
            let reason = Command::InterruptWithReason("x".repeat(1 << 20));
            queue.push("s", stored(&format!("r{n}"), reason)).unwrap();
        }
        let json = serde_json::to_string(&queue).unwrap();
        assert!(json.len() < 4_000, "{}", json.len());
        assert_eq!(ids(queue.take("run-1", Some(0))), "i0 s0 r0");
    }

    #[test]
    fn a_command_with_a_long_id_is_refused() {
        let mut queue = running();
        let error = queue.push("s", interrupt(&"i".repeat(1 << 20))).unwrap_err();
        assert_eq!((error.kind(), queue), (ErrorKind::TooLarge, running()));
        let mut queue = running();
        let command = Command::InterruptTurnFor { input_id: "i".repeat(1 << 20) };
        let error = queue.push("s", stored("c", command)).unwrap_err();
        assert_eq!((error.kind(), queue), (ErrorKind::TooLarge, running()));
    }
}
