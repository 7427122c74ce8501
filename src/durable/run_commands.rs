//! The commands that a run has received from its engine.
#![doc = include_str!("run_commands.md")]

use std::collections::HashSet;
use std::mem;

use crate::agent::RunHandle;
use crate::durable::engine::StoredCommand;
use crate::durable::storage::{ends_run, json_bytes};
use crate::hub::Command;

/// The commands that a run has received from its engine and has not delivered, in order of arrival.
#[derive(Default)]
pub(super) struct RunCommands {
    queue: Vec<QueuedCommand>,
    /// Whether a command is ending the run, so that the run no longer waits for verdicts.
    pub(super) is_stopping: bool,
    /// The receipt ids of the input that is already in the saved entries.
    delivered: HashSet<String>,
}

struct QueuedCommand {
    stored: StoredCommand,
    state: CommandState,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum CommandState {
    /// The command has not been passed to the run, which may not have been created yet.
    Arrived,
    /// The run has accepted the input.
    Accepted,
    /// The current step has delivered the input.
    DeliveredInStep,
    /// The run has refused the input, because it arrived too late.
    Refused,
    /// The verdict waits until the run waits for verdicts.
    EarlyVerdict,
}

impl RunCommands {
    /// Adds commands from the engine's queue.
    pub(super) fn push(&mut self, commands: Vec<StoredCommand>) {
        let arrived = |stored| QueuedCommand { stored, state: CommandState::Arrived };
        self.queue.extend(commands.into_iter().map(arrived));
    }

    /// Passes the commands that have arrived to the run of this session.
    pub(super) fn pass_to_run(&mut self, session: &str, handle: &RunHandle) {
        for mut queued in mem::take(&mut self.queue) {
            if queued.state == CommandState::Arrived {
                self.is_stopping |= ends_run(&queued.stored);
                let StoredCommand { id, command } = queued.stored.clone();
                let is_follow_up = matches!(command, Command::FollowUp(_));
                queued.state = match command {
                    Command::Verdict { .. } => CommandState::EarlyVerdict,
                    Command::Steer(items) | Command::FollowUp(items) => {
                        // The engine's queue has accepted the input, and limits its size.
                        match handle.enqueue_accepted(id, is_follow_up, items) {
                            Ok(()) => CommandState::Accepted,
                            Err(_) => CommandState::Refused,
                        }
                    }
                    // Only input is returned to the queue for the next run.
                    command => {
                        drop(command.apply(id, session, handle));
                        continue;
                    }
                };
            }
            self.queue.push(queued);
        }
        self.remove_delivered();
    }

    /// Returns the size of the commands, in bytes of JSON.
    pub(super) fn bytes(&self) -> usize {
        self.queue.iter().map(|queued| json_bytes(&queued.stored)).sum()
    }

    /// The current step has delivered the input with this id.
    pub(super) fn on_delivered(&mut self, id: &str) {
        let mut is_queued = false;
        for queued in self.queue.iter_mut().filter(|queued| queued.stored.id == id) {
            (queued.state, is_queued) = (CommandState::DeliveredInStep, true);
        }
        if !is_queued {
            self.delivered.insert(id.to_owned());
        }
    }

    /// The engine has recorded the current step, and saved the input that the step has delivered.
    pub(super) fn on_step_recorded(&mut self) {
        let is_it = |queued: &&QueuedCommand| queued.state == CommandState::DeliveredInStep;
        let delivered = self.queue.iter().filter(is_it).map(|queued| queued.stored.id.clone());
        self.delivered.extend(delivered);
        self.remove_delivered();
    }

    /// Takes the verdicts that arrived before the run started waiting for them.
    pub(super) fn take_verdicts(&mut self) -> Vec<StoredCommand> {
        let is_verdict = |queued: &mut QueuedCommand| queued.state == CommandState::EarlyVerdict;
        self.queue.extract_if(.., is_verdict).map(|queued| queued.stored).collect()
    }

    /// Takes the commands that the next run receives, because this run has not delivered them.
    pub(super) fn take_undelivered(&mut self) -> Vec<StoredCommand> {
        self.take_verdicts();
        mem::take(&mut self.queue).into_iter().map(|queued| queued.stored).collect()
    }

    /// A command may arrive again after its input has been delivered.
    fn remove_delivered(&mut self) {
        self.queue.retain(|queued| !self.delivered.contains(&queued.stored.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Agent, Run};
    use crate::item::{Item, PendingCall, ToolCall};
    use crate::provider::Scripted;
    use crate::tool::Verdict;
    use turnstream_test_support::transitions::{self, Machine};

    fn run() -> Run {
        Agent::new(Scripted::new(["Done."])).run("Go.")
    }

    fn verdict() -> Command {
        let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: "{}".into() };
        Command::Verdict { call: PendingCall::from(call), verdict: Verdict::Approve }
    }

    fn stored(id: &str, command: Command) -> StoredCommand {
        StoredCommand { id: id.to_owned(), command }
    }

    fn steer(id: &str) -> StoredCommand {
        stored(id, Command::Steer(vec![Item::user("Stop.")]))
    }

    /// Walks the states of one command, which arrives again only if it has not been delivered.
    struct CommandMachine {
        commands: RunCommands,
        run: Run,
        ended_run: RunHandle,
    }

    impl CommandMachine {
        fn new() -> Self {
            let ended_run = run().handle();
            Self { commands: RunCommands::default(), run: run(), ended_run }
        }
    }

    impl Machine for CommandMachine {
        fn state(&self) -> String {
            let Some(queued) = self.commands.queue.first() else {
                let is_delivered = self.commands.delivered.contains("w");
                return if is_delivered { "delivered" } else { "absent" }.to_owned();
            };
            let state = match (queued.state, &queued.stored.command) {
                (CommandState::Arrived, Command::Steer(_)) => "arrived input",
                (CommandState::Arrived, Command::Verdict { .. }) => "arrived verdict",
                (CommandState::Arrived, _) => "arrived interrupt",
                (CommandState::Accepted, _) => "accepted",
                (CommandState::DeliveredInStep, _) => "delivered in this step",
                (CommandState::Refused, _) => "refused",
                (CommandState::EarlyVerdict, _) => "early verdict",
            };
            state.to_owned()
        }

        fn apply(&mut self, input: &str) -> String {
            let commands = &mut self.commands;
            let mut arrive = |command| {
                if commands.queue.is_empty() && commands.delivered.is_empty() {
                    commands.push(vec![command]);
                }
                "-"
            };
            let effect = match input {
                "input arrives" => arrive(steer("w")),
                "a verdict arrives" => arrive(stored("w", verdict())),
                "an interrupt arrives" => arrive(stored("w", Command::Interrupt)),
                "the run takes commands" | "the run takes commands after its end" => {
                    let is_over = input != "the run takes commands";
                    let handle = if is_over { self.ended_run.clone() } else { self.run.handle() };
                    commands.is_stopping = false;
                    commands.pass_to_run("s", &handle);
                    if commands.is_stopping { "stops" } else { "-" }
                }
                "the run waits for verdicts" => {
                    if commands.take_verdicts().is_empty() {
                        "-"
                    } else {
                        "taken"
                    }
                }
                "the run delivers it" => {
                    commands.on_delivered("w");
                    "-"
                }
                "the step is recorded" => {
                    commands.on_step_recorded();
                    "-"
                }
                "no attempt follows" => {
                    if commands.take_undelivered().is_empty() {
                        "-"
                    } else {
                        "put back"
                    }
                }
                other => panic!("an unknown input: {other}"),
            };
            effect.to_owned()
        }
    }

    #[test]
    fn a_command_moves_between_its_states_as_its_table_says() {
        let table = include_str!("run_commands.md");
        transitions::check(table, "# The states of a command", CommandMachine::new);
    }

    #[test]
    fn undelivered_commands_are_returned_in_order_of_arrival_and_count_with_their_size() {
        let run = run();
        let mut commands = RunCommands::default();
        let (first, second, third) = (steer("1"), steer("2"), steer("3"));
        commands.push(vec![first.clone(), stored("v", verdict()), second.clone()]);
        commands.pass_to_run("s", &run.handle());
        commands.push(vec![third.clone()]);
        commands.on_delivered("2");
        let sizes = [&first, &second, &third, &stored("v", verdict())].map(json_bytes);
        assert_eq!(commands.bytes(), sizes.iter().sum::<usize>());
        assert_eq!(commands.take_undelivered(), [first, second, third]);
        assert_eq!(commands.bytes(), 0);
    }

    #[test]
    fn input_that_arrives_again_after_its_delivery_is_not_returned() {
        let run = run();
        let mut commands = RunCommands::default();
        for _ in 0..2 {
            commands.push(vec![steer("1"), steer("2")]);
            commands.pass_to_run("s", &run.handle());
            assert_eq!(commands.queue.len(), 2);
            commands.on_delivered("1");
            commands.on_step_recorded();
        }
        assert_eq!(commands.take_undelivered(), [steer("2"), steer("2")]);
    }
}
