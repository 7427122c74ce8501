//! The commands that wait for a run.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::durable::engine::StoredCommand;
use crate::error::Error;
use crate::hub::{Command, NotRunning};

/// The commands that wait for the runs of one session, as an engine keeps them.
///
/// Input waits for the next run if none is active. A command that ends a run is for the active one alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandQueue {
    /// The active run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    commands: VecDeque<StoredCommand>,
}

impl CommandQueue {
    /// Adds a command, unless one with its id waits already.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), with [`NotRunning`] as its source, if the command ends a
    /// run or judges a call of one, and none is active.
    pub fn push(&mut self, session: &str, command: StoredCommand) -> Result<(), Error> {
        if self.run.is_none() && !is_input(&command) {
            return Err(NotRunning { run: session.to_owned() }.into());
        }
        if self.commands.iter().all(|waiting| waiting.id != command.id) {
            self.commands.push_back(command);
        }
        Ok(())
    }

    /// Takes all commands for a run, which is the active one from here on.
    pub fn take(&mut self, run: &str) -> Vec<StoredCommand> {
        if self.run.as_deref() != Some(run) {
            self.end_run();
            self.run = Some(run.to_owned());
        }
        self.commands.drain(..).collect()
    }

    /// The run has ended. The commands that it has not delivered are the first that the next run takes.
    pub fn finish(&mut self, run: &str, put_back: Vec<StoredCommand>) {
        if self.run.as_deref() == Some(run) {
            self.end_run();
        }
        for command in put_back.into_iter().filter(is_input).rev() {
            self.commands.push_front(command);
        }
    }

    /// The active run.
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }

    /// The commands that wait.
    pub fn commands(&self) -> impl Iterator<Item = &StoredCommand> {
        self.commands.iter()
    }

    fn end_run(&mut self) {
        self.run = None;
        self.commands.retain(is_input);
    }
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
        let error = queue.push("s", stored("x", Command::Interrupt)).unwrap_err();
        assert!(NotRunning::from_error(&error).is_some());
        queue.take("run-1");
        queue.push("s", stored("x", Command::Interrupt)).unwrap();
        queue.finish("run-1", vec![stored("y", Command::StopAfterTurn)]);
        assert_eq!(ids(queue.take("run-2")), "");
        // Nor one for a run that has never reported its end.
        queue.push("s", stored("z", Command::Interrupt)).unwrap();
        assert_eq!(ids(queue.take("run-3")), "");
    }

    #[test]
    fn a_command_that_is_sent_again_is_taken_once() {
        let mut queue = CommandQueue::default();
        queue.push("s", steer("a")).unwrap();
        queue.push("s", steer("a")).unwrap();
        assert_eq!(ids(queue.take("run-1")), "a");
    }

    #[test]
    fn a_queue_reads_back_as_it_was_written() {
        let mut queue = CommandQueue::default();
        queue.take("run-1");
        queue.push("s", steer("a")).unwrap();
        let json = serde_json::to_string(&queue).unwrap();
        assert_eq!(serde_json::from_str::<CommandQueue>(&json).unwrap(), queue);
        assert_eq!(serde_json::from_str::<CommandQueue>("{}").unwrap(), CommandQueue::default());
    }
}
