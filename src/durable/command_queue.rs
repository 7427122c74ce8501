//! The commands that wait for a run.

use std::collections::VecDeque;
use std::mem;

use serde::{Deserialize, Serialize};

use crate::durable::engine::StoredCommand;
use crate::error::Error;
use crate::hub::{Command, NotRunning};

/// The commands that wait for the runs of one session, and those who wait for commands, as an engine keeps them.
///
/// Input waits for the next run if none is active. A command that ends a run is for the active one alone.
///
/// Who waits has an id that the engine can wake: each method that wakes waiters returns their ids, and forgets them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandQueue {
    /// The active run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    commands: VecDeque<StoredCommand>,
    /// The active run, while it waits for a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiter: Option<CommandWaiter>,
    /// The timers that have expired since the last wait began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    expired: Vec<String>,
    /// Those who wait for an interrupt or the end of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop_waiters: Vec<String>,
}

/// A run that waits for commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandWaiter {
    /// The id by which the engine wakes it.
    pub id: String,
    /// The timer that ends the wait, if it has a limit. Each wait has another one, which may
    /// [expire](CommandQueue::expire) at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<String>,
}

/// The answer to a waiter that begins to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitAnswer {
    /// Nothing yet: it will be woken.
    Waiting,
    /// A command or a stop is there: it will not be woken.
    Ready,
    /// Its timer has expired: it will not be woken.
    Expired,
}

impl CommandQueue {
    /// Adds a command, unless one with its id waits already. Returns the waiters to wake.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), with [`NotRunning`] as its source, if the command ends a
    /// run or judges a call of one, and none is active.
    pub fn push(&mut self, session: &str, command: StoredCommand) -> Result<Vec<String>, Error> {
        if self.run.is_none() && !is_input(&command) {
            return Err(NotRunning { run: session.to_owned() }.into());
        }
        let mut woken: Vec<String> =
            self.waiter.take().map(|waiter| waiter.id).into_iter().collect();
        if is_interrupt(&command) {
            woken.append(&mut self.stop_waiters);
        }
        if self.commands.iter().all(|waiting| waiting.id != command.id) {
            self.commands.push_back(command);
        }
        Ok(woken)
    }

    /// Takes all commands for a run, which is the active one from here on.
    pub fn take(&mut self, run: &str) -> Vec<StoredCommand> {
        if self.run.as_deref() != Some(run) {
            self.end_run();
            self.run = Some(run.to_owned());
        }
        self.commands.drain(..).collect()
    }

    /// The active run waits for a command. It replaces the waiter that is there, if there is one.
    pub fn wait(&mut self, waiter: CommandWaiter) -> WaitAnswer {
        if !self.commands.is_empty() {
            return WaitAnswer::Ready;
        }
        // Those of earlier waits.
        self.expired.retain(|timer| waiter.timer.as_ref() == Some(timer));
        if !self.expired.is_empty() {
            return WaitAnswer::Expired;
        }
        self.waiter = Some(waiter);
        WaitAnswer::Waiting
    }

    /// The timer of a wait has expired, which may not have begun, or have ended long ago. Returns the waiter to wake.
    pub fn expire(&mut self, timer: &str) -> Option<String> {
        if self.run.is_some() && self.expired.iter().all(|expired| expired != timer) {
            self.expired.push(timer.to_owned());
        }
        let waiter = self.waiter.take_if(|waiter| waiter.timer.as_deref() == Some(timer))?;
        Some(waiter.id)
    }

    /// Adds a waiter for an interrupt or the end of the active run. Returns [`Ready`](WaitAnswer::Ready) if an interrupt
    /// waits already or no run is active.
    pub fn wait_for_stop(&mut self, id: String) -> WaitAnswer {
        if self.run.is_none() || self.commands.iter().any(is_interrupt) {
            return WaitAnswer::Ready;
        }
        self.stop_waiters.push(id);
        WaitAnswer::Waiting
    }

    /// The run has ended. The commands that it has not delivered are the first that the next run takes. Returns the
    /// waiters to wake.
    pub fn finish(&mut self, run: &str, put_back: Vec<StoredCommand>) -> Vec<String> {
        let mut woken = Vec::new();
        if self.run.as_deref() == Some(run) {
            self.end_run();
            woken.append(&mut self.stop_waiters);
        }
        for command in put_back.into_iter().filter(is_input).rev() {
            self.commands.push_front(command);
        }
        woken
    }

    /// Removes everything: the commands, input included, the active run and the waiters. Returns the waiters to wake.
    pub fn clear(&mut self) -> Vec<String> {
        let Self { waiter, stop_waiters, .. } = mem::take(self);
        waiter.map(|waiter| waiter.id).into_iter().chain(stop_waiters).collect()
    }

    /// The same without the waiters: the commands and the active run, to be shown.
    pub fn without_waiters(self) -> Self {
        Self { run: self.run, commands: self.commands, ..Self::default() }
    }

    /// The active run.
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// The commands that wait.
    pub fn commands(&self) -> impl Iterator<Item = &StoredCommand> {
        self.commands.iter()
    }

    /// Those who wait for a stop are still to be woken.
    fn end_run(&mut self) {
        self.run = None;
        self.commands.retain(is_input);
        self.waiter = None;
        self.expired.clear();
    }
}

fn is_interrupt(stored: &StoredCommand) -> bool {
    stored.command == Command::Interrupt
}

fn is_input(stored: &StoredCommand) -> bool {
    matches!(stored.command, Command::Steer(_) | Command::FollowUp(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Item;

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
        assert_eq!(ids(queue.take("run-1")), "a");
        queue.push("s", steer("b")).unwrap();
        queue.finish("run-1", vec![steer("a")]);
        assert_eq!(ids(queue.take("run-2")), "a b");
    }

    #[test]
    fn an_interrupt_never_reaches_the_next_run() {
        let mut queue = CommandQueue::default();
        let error = queue.push("s", interrupt("x")).unwrap_err();
        assert!(NotRunning::from_error(&error).is_some());
        queue.take("run-1");
        queue.push("s", interrupt("x")).unwrap();
        queue.finish("run-1", vec![stored("y", Command::StopAfterTurn)]);
        assert_eq!(ids(queue.take("run-2")), "");
        // Nor one for a run that has never reported its end.
        queue.push("s", interrupt("z")).unwrap();
        assert_eq!(ids(queue.take("run-3")), "");
    }

    #[test]
    fn a_command_that_is_sent_again_is_taken_once() {
        let mut queue = CommandQueue::default();
        queue.push("s", steer("a")).unwrap();
        queue.push("s", steer("a")).unwrap();
        assert_eq!(ids(queue.take("run-1")), "a");
    }

    fn interrupt(id: &str) -> StoredCommand {
        stored(id, Command::Interrupt)
    }

    /// A queue whose run is active.
    fn running() -> CommandQueue {
        let mut queue = CommandQueue::default();
        queue.take("run-1");
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
    fn who_begins_to_wait_after_a_command_came_is_not_woken() {
        let mut queue = running();
        queue.push("s", steer("a")).unwrap();
        assert_eq!(queue.wait(waiter("w1", None)), WaitAnswer::Ready);
        assert_eq!(queue.push("s", steer("b")).unwrap(), [""; 0]);
        assert_eq!(ids(queue.take("run-1")), "a b");
        assert_eq!(queue.wait(waiter("w2", None)), WaitAnswer::Waiting);
    }

    #[test]
    fn a_waiter_that_begins_again_is_woken_under_its_last_id() {
        let mut queue = running();
        queue.wait(waiter("w1", None));
        queue.wait(waiter("w2", None));
        assert_eq!(queue.push("s", steer("a")).unwrap(), ["w2"]);
    }

    #[test]
    fn an_expired_timer_ends_its_wait_only() {
        let mut queue = running();
        queue.wait(waiter("w1", Some("t1")));
        assert_eq!(queue.expire("t0"), None);
        assert_eq!(queue.expire("t1").as_deref(), Some("w1"));
        // Whoever looks again finds it so.
        assert_eq!(queue.wait(waiter("w2", Some("t1"))), WaitAnswer::Expired);
        assert_eq!(queue.wait(waiter("w3", Some("t2"))), WaitAnswer::Waiting);
        assert_eq!(queue.expire("t1"), None);
        assert_eq!(queue.push("s", steer("a")).unwrap(), ["w3"]);
    }

    #[test]
    fn a_timer_that_expires_before_its_wait_begins_ends_it() {
        let mut queue = running();
        assert_eq!(queue.expire("t1"), None);
        assert_eq!(queue.expire("t0"), None);
        assert_eq!(queue.wait(waiter("w1", Some("t1"))), WaitAnswer::Expired);
    }

    #[test]
    fn commands_come_before_the_end_of_a_wait() {
        let mut queue = running();
        queue.expire("t1");
        queue.push("s", steer("a")).unwrap();
        assert_eq!(queue.wait(waiter("w1", Some("t1"))), WaitAnswer::Ready);
    }

    #[test]
    fn nothing_of_a_wait_reaches_the_next_run() {
        let mut queue = running();
        queue.wait(waiter("w1", Some("t1")));
        queue.finish("run-1", Vec::new());
        assert_eq!(queue.expire("t1"), None);
        assert_eq!(queue, CommandQueue::default());
        // Nor of one for a run that has never reported its end.
        queue.take("run-2");
        queue.expire("t2");
        queue.wait(waiter("w2", None));
        queue.take("run-3");
        assert_eq!(queue.push("s", steer("a")).unwrap(), [""; 0]);
    }

    #[test]
    fn an_interrupt_wakes_all_who_wait() {
        let mut queue = running();
        assert_eq!(queue.wait_for_stop("w1".to_owned()), WaitAnswer::Waiting);
        assert_eq!(queue.wait_for_stop("w2".to_owned()), WaitAnswer::Waiting);
        queue.wait(waiter("w3", None));
        assert_eq!(queue.push("s", steer("a")).unwrap(), ["w3"]);
        assert_eq!(queue.push("s", interrupt("x")).unwrap(), ["w1", "w2"]);
        // One that comes late.
        assert_eq!(queue.wait_for_stop("w4".to_owned()), WaitAnswer::Ready);
        assert_eq!(queue.finish("run-1", Vec::new()), [""; 0]);
    }

    #[test]
    fn the_end_of_a_run_wakes_all_who_wait_for_a_stop() {
        let mut queue = running();
        queue.wait_for_stop("w1".to_owned());
        queue.wait_for_stop("w2".to_owned());
        assert_eq!(queue.finish("run-0", Vec::new()), [""; 0]);
        assert_eq!(queue.finish("run-1", Vec::new()), ["w1", "w2"]);
        // One that comes late.
        assert_eq!(queue.wait_for_stop("w3".to_owned()), WaitAnswer::Ready);
        assert_eq!(queue, CommandQueue::default());
    }

    #[test]
    fn a_queue_that_is_cleared_is_empty_and_its_waiters_are_woken() {
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
    fn a_queue_reads_back_as_it_was_written() {
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
    fn a_queue_is_shown_without_its_waiters() {
        let mut queue = running();
        queue.wait_for_stop("w1".to_owned());
        queue.expire("t1");
        let mut shown = running();
        queue.push("s", steer("a")).unwrap();
        shown.push("s", steer("a")).unwrap();
        assert_eq!(queue.without_waiters(), shown);
    }
}
